//! CUDA C to machine code, at run time, by NVIDIA's NVRTC.

use cudarc::nvrtc::{result, sys};
use std::ffi::{CStr, CString, c_char};

/// The files of `shaders/cuda`: names and texts.
pub const SOURCES: &[(&str, &str)] = &[
    (
        "ceiling.cu",
        include_str!("../../../shaders/cuda/ceiling.cu"),
    ),
    (
        "gemm_mma.cu",
        include_str!("../../../shaders/cuda/gemm_mma.cu"),
    ),
    (
        "gemm_wgmma.cu",
        include_str!("../../../shaders/cuda/gemm_wgmma.cu"),
    ),
];

/// What the compiler makes of a text.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Compiled {
    /// Machine code, a CUBIN.
    pub image: Vec<u8>,
    /// The PTX that it came from.
    pub listing: String,
}

/// Whether the library is there.
pub fn present() -> bool {
    // SAFETY: opens and closes libraries by NVRTC's names, which run no code of consequence when loaded.
    unsafe { sys::is_culib_present() }
}

/// Compiles a file of [`SOURCES`] for an architecture (`sm_80`, `sm_90a`) to a CUBIN.
///
/// # Errors
/// There is no such file, or the compiler's log in one line.
///
/// # Panics
/// If NVRTC is not there: see [`present`].
pub fn compile(name: &str, arch: &str) -> Result<Vec<u8>, String> {
    let source = SOURCES.iter().find(|s| s.0 == name);
    let text = source.ok_or_else(|| format!("there is no {name}"))?.1;
    compile_text(name, text, arch, &[]).map(|c| c.image)
}

/// Compiles an emitted kernel ([`super::emit`]) for an architecture to a CUBIN. Nothing is fused: its sums
/// and products say so, and the compiler is told so too.
///
/// # Errors
/// The compiler's log in one line.
///
/// # Panics
/// As [`compile`].
pub fn compile_emitted(source: &str, arch: &str) -> Result<Compiled, String> {
    let exact = [
        "--fmad=false",
        "--ftz=false",
        "--prec-div=true",
        "--prec-sqrt=true",
    ];
    compile_text("an emitted kernel", source, arch, &exact)
}

fn compile_text(name: &str, text: &str, arch: &str, more: &[&str]) -> Result<Compiled, String> {
    let zero = |_| format!("{name} holds a zero byte");
    let (text, title) = (
        CString::new(text).map_err(zero)?,
        CString::new(name).map_err(zero)?,
    );
    let program = Program::new(&text, &title).map_err(|e| format!("{name}: {e}"))?;
    let mut options = vec![format!("--gpu-architecture={arch}"), "--std=c++17".into()];
    options.extend(more.iter().map(|o| o.to_string()));
    // SAFETY: the program lives until the end of this function.
    if let Err(e) = unsafe { result::compile_program(program.0, &options) } {
        return Err(format!("{name} for {arch}: {e}: {}", program.log()));
    }
    let failed = |e| format!("{name} for {arch}: {e}");
    Ok(Compiled {
        image: program.cubin().map_err(failed)?,
        listing: program.ptx().map_err(failed)?,
    })
}

struct Program(sys::nvrtcProgram);

impl Program {
    fn new(text: &CStr, title: &CStr) -> Result<Program, result::NvrtcError> {
        result::create_program(text, Some(title)).map(Program)
    }

    fn log(&self) -> String {
        // SAFETY: the program lives as long as `self`.
        let log: Vec<c_char> = unsafe { result::get_program_log(self.0) }.unwrap_or_default();
        let bytes: Vec<u8> = log.iter().map(|c| *c as u8).filter(|c| *c != 0).collect();
        let text = String::from_utf8_lossy(&bytes);
        let lines = text.lines().map(str::trim).filter(|l| !l.is_empty());
        lines.collect::<Vec<_>>().join(": ")
    }

    fn cubin(&self) -> Result<Vec<u8>, result::NvrtcError> {
        let mut size = 0;
        // SAFETY: the program lives as long as `self`, and `size` is where the length goes.
        unsafe { sys::nvrtcGetCUBINSize(self.0, &mut size) }.result()?;
        let mut out = vec![0u8; size];
        // SAFETY: as above, with as many bytes as were asked for.
        unsafe { sys::nvrtcGetCUBIN(self.0, out.as_mut_ptr().cast()) }.result()?;
        Ok(out)
    }

    fn ptx(&self) -> Result<String, result::NvrtcError> {
        // SAFETY: the program lives as long as `self`.
        let text: Vec<c_char> = unsafe { result::get_ptx(self.0) }?;
        let bytes: Vec<u8> = text.iter().map(|c| *c as u8).filter(|c| *c != 0).collect();
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // SAFETY: made by `new`, destroyed here alone. A failure would leak a compiler's memory.
        let _ = unsafe { result::destroy_program(self.0) };
    }
}
