//! Products by cuBLASLt: types of operands and sums as asked for, no split of a sum, a fixed workspace, and
//! one algorithm a product, found once by the library's heuristic (not by timing, so that it is the same
//! in every run) and kept.

use super::driver::{Element, Extents, Lay};
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
}

impl Kind {
    /// What an executor's plan asks for: f32 sums and an f32 product. f32 operands stay f32: no TF32.
    pub fn of(element: Element) -> Kind {
        Kind {
            operands: match element {
                Element::F32 => sys::cudaDataType::CUDA_R_32F,
                Element::Bf16 => sys::cudaDataType::CUDA_R_16BF,
                Element::F16 => sys::cudaDataType::CUDA_R_16F,
            },
            product: sys::cudaDataType::CUDA_R_32F,
            compute: sys::cublasComputeType_t::CUBLAS_COMPUTE_32F,
            scale: sys::cudaDataType::CUDA_R_32F,
        }
    }
}

/// What is kept of a product of one kind and extents.
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
    ready: HashMap<(Kind, Extents), Ready>,
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
    /// There is no such library, or it refuses; in one line.
    pub fn open() -> Result<Blas, String> {
        if !Blas::present() {
            return Err("there is a CUDA driver, but no cuBLASLt (libcublasLt): install the CUDA toolkit 12 or put its lib folder into the library path".into());
        }
        let handle = result::create_handle();
        Ok(Blas {
            handle: handle.map_err(|e| format!("cuBLASLt cannot be used: {e}"))?,
            ready: HashMap::new(),
        })
    }

    /// Finds the algorithm for a product, if it is not known yet; returns its number.
    ///
    /// # Errors
    /// There is none without a split of sums, or the library refuses.
    pub fn prepare(&mut self, kind: Kind, extents: Extents) -> Result<i32, Refused> {
        if let Some(r) = self.ready.get(&(kind, extents)) {
            return Ok(r.number);
        }
        let ready = Ready::new(self.handle, kind, &extents)?;
        let number = ready.number;
        self.ready.insert((kind, extents), ready);
        Ok(number)
    }

    /// Enqueues c = a * b, column by column.
    ///
    /// # Safety
    /// The pointers are to device memory that holds what the extents say, in the kind's types, and to
    /// [`WORKSPACE`] bytes; they stay valid until the stream is done; the handle's context is current.
    ///
    /// # Errors
    /// It was not prepared, or the library refuses.
    pub unsafe fn multiply(
        &self,
        kind: Kind,
        extents: Extents,
        (a, b, c, workspace): (u64, u64, u64, u64),
        stream: sys::cudaStream_t,
    ) -> Result<(), Refused> {
        let status = sys::cublasStatus_t::CUBLAS_STATUS_NOT_INITIALIZED;
        let r = self
            .ready
            .get(&(kind, extents))
            .ok_or(result::CublasError(status))?;
        let (one, zero, int_one, int_zero) = (1.0f32, 0.0f32, 1i32, 0i32);
        let whole = kind.scale == sys::cudaDataType::CUDA_R_32I;
        let factor = |f: *const f32, i: *const i32| -> *const c_void {
            if whole { i.cast() } else { f.cast() }
        };
        let [left, right, product] = r.layouts;
        // SAFETY: descriptors live as long as `self`; the rest is the caller's promise. The factors are
        // read before the call returns (pointer mode host is the default).
        unsafe {
            result::matmul(
                self.handle,
                r.desc,
                factor(&one, &int_one),
                factor(&zero, &int_zero),
                a as *const c_void,
                left,
                b as *const c_void,
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
    fn new(handle: sys::cublasLtHandle_t, kind: Kind, e: &Extents) -> Result<Ready, Refused> {
        // Null descriptors until they are made: the destructor skips them.
        let mut ready = Ready {
            desc: result::create_matmul_desc(kind.compute, kind.scale)?,
            layouts: [std::ptr::null_mut(); 3],
            // SAFETY: an array of words, for which zeros are a value; it is overwritten below.
            algorithm: unsafe { std::mem::zeroed() },
            number: 0,
        };
        let matrices = [
            (kind.operands, e.a, e.m, e.k),
            (kind.operands, e.b, e.k, e.n),
            (kind.product, e.c, e.m, e.n),
        ];
        for (to, (ty, lay, rows, cols)) in ready.layouts.iter_mut().zip(matrices) {
            *to = layout(ty, lay, (rows, cols), e.batch)?;
        }
        use sys::cublasLtMatmulDescAttributes_t as Attribute;
        for (lay, which) in [
            (e.a, Attribute::CUBLASLT_MATMUL_DESC_TRANSA),
            (e.b, Attribute::CUBLASLT_MATMUL_DESC_TRANSB),
        ] {
            let how = i32::from(lay.transposed); // CUBLAS_OP_N, CUBLAS_OP_T
            // SAFETY: the descriptor is alive; the attribute takes 32 bits.
            unsafe {
                result::set_matmul_desc_attribute(ready.desc, which, (&raw const how).cast(), 4)?;
            }
        }
        let found = ready.search(handle, e.alignment)?;
        (ready.algorithm, ready.number) = found;
        Ok(ready)
    }

    /// The first algorithm of the heuristic that splits no sum.
    fn search(
        &self,
        handle: sys::cublasLtHandle_t,
        alignment: u32,
    ) -> Result<(sys::cublasLtMatmulAlgo_t, i32), Refused> {
        use sys::cublasLtMatmulPreferenceAttributes_t as Attribute;
        let preference = Preference(result::create_matmul_pref()?);
        let (workspace, schemes) = (WORKSPACE as u64, 0u32); // CUBLASLT_REDUCTION_SCHEME_NONE
        let [left, right, product] = self.layouts;
        for which in [
            Attribute::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES,
            Attribute::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
            Attribute::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES,
            Attribute::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES,
        ] {
            // SAFETY: the preference is alive; the attribute takes 32 bits.
            unsafe {
                let bytes = (&raw const alignment).cast();
                result::set_matmul_pref_attribute(preference.0, which, bytes, 4)?;
            }
        }
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

/// A matrix of `rows` by `cols` before it is transposed, and the others of its batch.
fn layout(
    ty: sys::cudaDataType,
    lay: Lay,
    (rows, cols): (u64, u64),
    batch: u64,
) -> Result<sys::cublasLtMatrixLayout_t, Refused> {
    let (rows, cols) = match lay.transposed {
        true => (cols, rows),
        false => (rows, cols),
    };
    let made = result::create_matrix_layout(ty, rows, cols, lay.pitch as i64)?;
    use sys::cublasLtMatrixLayoutAttribute_t as Attribute;
    let (count, stride) = (batch as i32, lay.stride as i64);
    // SAFETY: the layout is alive; the attributes take 32 and 64 bits.
    let set = unsafe {
        result::set_matrix_layout_attribute(
            made,
            Attribute::CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT,
            (&raw const count).cast(),
            4,
        )
        .and_then(|()| {
            result::set_matrix_layout_attribute(
                made,
                Attribute::CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET,
                (&raw const stride).cast(),
                8,
            )
        })
    };
    if let Err(e) = set {
        // SAFETY: made above and given to nobody.
        let _ = unsafe { result::destroy_matrix_layout(made) };
        return Err(e);
    }
    Ok(made)
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
