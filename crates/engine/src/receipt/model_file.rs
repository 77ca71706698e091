//! Which file a record is about: enough to tell it from any other, without reading its weights.

use std::collections::BTreeMap;

use ounce_gguf::TensorType;
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

use super::canonical::hex;
use crate::EngineError;
use crate::model::ModelSpec;

/// The section `file`.
///
/// # Errors
/// The file changed while its header was hashed.
pub(super) fn section(spec: &ModelSpec) -> Result<Value, EngineError> {
    let file = &spec.file;
    let mut hasher = Sha256::new();
    file.header_parts().for_each(|bytes| hasher.update(bytes));
    file.check()?;
    let mut types: BTreeMap<TensorType, (u64, u64)> = BTreeMap::new();
    for t in &file.header().tensors {
        let (tensors, bytes) = types.entry(t.ty).or_default();
        *tensors += 1;
        *bytes += t.n_bytes;
    }
    let types: Map<String, Value> = types
        .iter()
        .map(|(ty, (tensors, bytes))| {
            let counts = json!({ "tensors": tensors, "bytes": bytes });
            (ty.name().to_owned(), counts)
        })
        .collect();
    let name = file.path().file_name().unwrap_or_default();
    Ok(json!({
        "name": name.to_string_lossy(),
        "bytes": file.n_bytes(),
        "parts": file.paths().count(),
        "header_sha256": hex(&hasher.finalize()),
        "architecture": spec.hparams.arch,
        "parameters": file.header().tensors.iter().map(|t| t.n_elements()).fold(0, u64::saturating_add),
        "tensor_types": types,
    }))
}
