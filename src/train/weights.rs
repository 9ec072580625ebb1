//! Weights in and out, as safetensors under PyTorch's names.

use super::checkpoint::file::fault;
use super::checkpoint::{MAX_HEADER, read};
use crate::error::Error;
use crate::models::char_gpt::CharGpt;
use safetensors::{Dtype, SafeTensors, tensor::TensorView};
use std::path::Path;

/// Named f32 tensors.
pub type Tensors = Vec<(String, Vec<usize>, Vec<f32>)>;

/// Loads the weights of a model, in its own order.
///
/// # Errors
/// A file that cannot be read, is no safetensors file, or differs from the model in names, shapes or
/// types. The message names the first tensor that differs.
pub fn load(path: &Path, model: &CharGpt) -> Result<Vec<(String, Vec<f32>)>, Error> {
    let fail = |why: String| fault(path, why);
    let expected: u64 = model.parameters() as u64 * 4;
    let meta = std::fs::metadata(path).map_err(Error::io("read", path))?;
    // Names and padding make a small header; anything far larger is not this model's file.
    if meta.is_file() && meta.len() > expected + MAX_HEADER {
        return Err(fail(format!(
            "has {} bytes, this model's weights are {expected}",
            meta.len()
        )));
    }
    from_bytes(path, &read(path)?, model)
}

/// As [`load`], from the bytes of a file; `path` stands for it in messages.
///
/// # Errors
/// As [`load`].
pub fn from_bytes(
    path: &Path,
    bytes: &[u8],
    model: &CharGpt,
) -> Result<Vec<(String, Vec<f32>)>, Error> {
    let fail = |why: String| fault(path, why);
    let file = SafeTensors::deserialize(bytes).map_err(|e| {
        fail(format!(
            "is not a whole safetensors file ({e}); save it again or take another --init"
        ))
    })?;
    let weights = model.weights();
    if let Some(extra) = file
        .names()
        .iter()
        .find(|n| !weights.iter().any(|w| w.name == **n))
    {
        return Err(fail(format!("has a tensor {extra} that the model has not")));
    }
    let mut out = Vec::with_capacity(weights.len());
    for w in weights {
        let t = file
            .tensor(&w.name)
            .map_err(|_| fail(format!("has no tensor {}", w.name)))?;
        if t.dtype() != Dtype::F32 {
            return Err(fail(format!(
                "{} is {:?}, F32 is needed",
                w.name,
                t.dtype()
            )));
        }
        if t.shape() != w.dims {
            return Err(fail(format!(
                "{} has shape {:?}, the model needs {:?}",
                w.name,
                t.shape(),
                w.dims
            )));
        }
        let data: Vec<f32> = t
            .data()
            .chunks_exact(4)
            .map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]]))
            .collect();
        if let Some(i) = data.iter().position(|x| !x.is_finite()) {
            return Err(fail(format!("{} element {i} is {}", w.name, data[i])));
        }
        out.push((w.name, data));
    }
    Ok(out)
}

/// Writes tensors to a temporary file beside `path` and renames it into place.
///
/// # Errors
/// The file cannot be written.
pub fn save(path: &Path, tensors: &Tensors) -> Result<(), Error> {
    let bytes: Vec<(String, Vec<usize>, Vec<u8>)> = tensors
        .iter()
        .map(|(n, s, d)| {
            (
                n.clone(),
                s.clone(),
                d.iter().flat_map(|x| x.to_le_bytes()).collect(),
            )
        })
        .collect();
    let mut views = Vec::with_capacity(bytes.len());
    for (name, shape, data) in &bytes {
        let view = TensorView::new(Dtype::F32, shape.clone(), data);
        views.push((
            name,
            view.map_err(|e| Error::Internal(format!("{name}: {e}")))?,
        ));
    }
    let out = safetensors::serialize(views, None).map_err(|e| Error::Internal(e.to_string()))?;
    crate::report::files::write_atomic(path, &out)
}
