//! Products by cuBLASLt: types of operands and sums as asked for, no split of a sum, a fixed workspace, and
//! one algorithm a product, found once by the library's heuristic (not by timing, so that it is the same
//! in every run) and kept.

use cudarc::cublaslt::{result, sys};
use std::collections::HashMap;
use std::ffi::c_void;

/// Bytes of workspace.
pub const WORKSPACE: usize = 32 << 20;

/// How cuBLASLt is asked to multiply.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Kind {
    /// Type of both operands.
    pub operands: sys::cudaDataType,
    /// Type of the product.
    pub product: sys::cudaDataType,
    /// Arithmetic of the sums.
    pub compute: sys::cublasComputeType_t,
    /// Type of the factors of product and old value.
    pub scale: sys::cudaDataType,
    /// The right operand is stored transposed, as 8-bit products must have it.
    pub transposed: bool,
}

/// What is kept of a product of one kind and extent.
struct Ready {
    desc: sys::cublasLtMatmulDesc_t,
    /// Of the left operand, the right one and the product, as cuBLASLt sees them.
    layouts: [sys::cublasLtMatrixLayout_t; 3],
    algorithm: sys::cublasLtMatmulAlgo_t,
    number: i32,
}

/// A handle with its algorithms.
pub struct Blas {
    handle: sys::cublasLtHandle_t,
    ready: HashMap<(Kind, usize), Ready>,
}

type Refused = result::CublasError;

impl Blas {
    /// Whether the library is there.
    pub fn present() -> bool {
        // SAFETY: opens and closes libraries by cuBLASLt's names, which run no code of consequence when
        // loaded.
        unsafe { sys::is_culib_present() }
    }

    /// A handle for the current context.
    ///
    /// # Errors
    /// The library refuses.
    pub fn new() -> Result<Blas, Refused> {
        Ok(Blas {
            handle: result::create_handle()?,
            ready: HashMap::new(),
        })
    }

    /// Finds the algorithm for a product of extent `n`, if it is not known yet; returns its number.
    ///
    /// # Errors
    /// There is none without a split of sums, or the library refuses.
    pub fn prepare(&mut self, kind: Kind, n: usize) -> Result<i32, Refused> {
        if let Some(r) = self.ready.get(&(kind, n)) {
            return Ok(r.number);
        }
        let ready = Ready::new(self.handle, kind, n)?;
        let number = ready.number;
        self.ready.insert((kind, n), ready);
        Ok(number)
    }

    /// Enqueues c = a * b.
    ///
    /// # Safety
    /// The pointers are to device memory of `n * n` elements of the kind's types, and to [`WORKSPACE`]
    /// bytes; they stay valid until the stream is done; the handle's context is current.
    ///
    /// # Errors
    /// It was not prepared, or the library refuses.
    pub unsafe fn multiply(
        &self,
        kind: Kind,
        n: usize,
        (a, b, c, workspace): (u64, u64, u64, u64),
        stream: sys::cudaStream_t,
    ) -> Result<(), Refused> {
        let status = sys::cublasStatus_t::CUBLAS_STATUS_NOT_INITIALIZED;
        let r = self
            .ready
            .get(&(kind, n))
            .ok_or(result::CublasError(status))?;
        let (one, zero, int_one, int_zero) = (1.0f32, 0.0f32, 1i32, 0i32);
        let whole = kind.scale == sys::cudaDataType::CUDA_R_32I;
        let factor = |f: *const f32, i: *const i32| -> *const c_void {
            if whole { i.cast() } else { f.cast() }
        };
        let [left, right, product] = r.layouts;
        // cuBLASLt's matrices are column-major: a row-major product is that of the transposes, in the
        // other order.
        // SAFETY: descriptors live as long as `self`; the rest is the caller's promise. The factors are
        // read before the call returns (pointer mode host is the default).
        unsafe {
            result::matmul(
                self.handle,
                r.desc,
                factor(&one, &int_one),
                factor(&zero, &int_zero),
                b as *const c_void,
                left,
                a as *const c_void,
                right,
                c as *const c_void,
                product,
                c as *mut c_void,
                product,
                &r.algorithm,
                workspace as *mut c_void,
                WORKSPACE,
                stream,
            )
        }
    }
}

impl Drop for Blas {
    fn drop(&mut self) {
        self.ready.clear();
        // SAFETY: made by `new`, destroyed here alone, after all that was made with it.
        let _ = unsafe { result::destroy_handle(self.handle) };
    }
}

impl Ready {
    fn new(handle: sys::cublasLtHandle_t, kind: Kind, n: usize) -> Result<Ready, Refused> {
        let layout = |ty| result::create_matrix_layout(ty, n as u64, n as u64, n as i64);
        // Null descriptors until they are made: the destructor skips them.
        let mut ready = Ready {
            desc: result::create_matmul_desc(kind.compute, kind.scale)?,
            layouts: [std::ptr::null_mut(); 3],
            // SAFETY: an array of words, for which zeros are a value; it is overwritten below.
            algorithm: unsafe { std::mem::zeroed() },
            number: 0,
        };
        for (to, ty) in ready
            .layouts
            .iter_mut()
            .zip([kind.operands, kind.operands, kind.product])
        {
            *to = layout(ty)?;
        }
        if kind.transposed {
            let yes: i32 = 1; // CUBLAS_OP_T
            let which = sys::cublasLtMatmulDescAttributes_t::CUBLASLT_MATMUL_DESC_TRANSA;
            // SAFETY: the descriptor is alive; the attribute takes 32 bits.
            unsafe {
                result::set_matmul_desc_attribute(ready.desc, which, (&raw const yes).cast(), 4)?;
            }
        }
        let found = ready.search(handle)?;
        (ready.algorithm, ready.number) = found;
        Ok(ready)
    }

    /// The first algorithm of the heuristic that splits no sum.
    fn search(
        &self,
        handle: sys::cublasLtHandle_t,
    ) -> Result<(sys::cublasLtMatmulAlgo_t, i32), Refused> {
        use sys::cublasLtMatmulPreferenceAttributes_t as Attribute;
        let preference = Preference(result::create_matmul_pref()?);
        let (workspace, schemes) = (WORKSPACE as u64, 0u32); // CUBLASLT_REDUCTION_SCHEME_NONE
        let [left, right, product] = self.layouts;
        // SAFETY: everything named is alive; the attributes take 64 and 32 bits.
        let found = unsafe {
            result::set_matmul_pref_attribute(
                preference.0,
                Attribute::CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                (&raw const workspace).cast(),
                8,
            )?;
            result::set_matmul_pref_attribute(
                preference.0,
                Attribute::CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
                (&raw const schemes).cast(),
                4,
            )?;
            result::get_matmul_algo_heuristic(
                handle,
                self.desc,
                left,
                right,
                product,
                product,
                preference.0,
            )?
        };
        use sys::cublasLtMatmulAlgoConfigAttributes_t as Config;
        // The library was told; this makes sure.
        if config(&found.algo, Config::CUBLASLT_ALGO_CONFIG_SPLITK_NUM)? > 1 {
            let status = sys::cublasStatus_t::CUBLAS_STATUS_NOT_SUPPORTED;
            return Err(result::CublasError(status));
        }
        let number = config(&found.algo, Config::CUBLASLT_ALGO_CONFIG_ID)?;
        Ok((found.algo, number))
    }
}

/// A 32-bit attribute of an algorithm.
fn config(
    algorithm: &sys::cublasLtMatmulAlgo_t,
    which: sys::cublasLtMatmulAlgoConfigAttributes_t,
) -> Result<i32, Refused> {
    let (mut value, mut written) = (0i32, 0usize);
    // SAFETY: the algorithm is one that the library filled in; four bytes are there for the value.
    let status = unsafe {
        sys::cublasLtMatmulAlgoConfigGetAttribute(
            algorithm,
            which,
            (&raw mut value).cast(),
            4,
            &mut written,
        )
    };
    status.result().map(|()| value)
}

struct Preference(sys::cublasLtMatmulPreference_t);

impl Drop for Preference {
    fn drop(&mut self) {
        // SAFETY: made by its owner, destroyed here alone.
        let _ = unsafe { result::destroy_matmul_pref(self.0) };
    }
}

impl Drop for Ready {
    fn drop(&mut self) {
        // SAFETY: made by `new`, destroyed here alone; those that were not made are null.
        unsafe {
            for layout in self.layouts.iter().filter(|l| !l.is_null()) {
                let _ = result::destroy_matrix_layout(*layout);
            }
            let _ = result::destroy_matmul_desc(self.desc);
        }
    }
}
