//! `ounce plan FOLDER`: the weights of a model that is not converted yet, from the headers of its safetensors files.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::ExitCode;

use ounce_engine::plan::{Device, headroom};
use ounce_engine::safetensors::{Tensor, read_folder};
use serde_json::{Value, json};

use super::table::bar;
use crate::{Outcome, exit, out};

/// Forms that a conversion may have: name, bits a weight of its matrices, weights of a block. Q4_K_M mixes Q4_K and Q6_K;
/// 4.85 is what its files come to.
const FORMS: [(&str, f64, u64); 3] = [("F16", 16.0, 1), ("Q8_0", 8.5, 32), ("Q4_K_M", 4.85, 256)];

/// What the weights take in a form, and whether they fit in memory then.
struct Row {
    name: String,
    bytes: u64,
    fits: bool,
}

/// Plans the weights alone; `headroom` overrides the proportional one. Exit code 0: some form fits; 2: none does, so that
/// pages of the smallest are streamed.
pub fn run(folder: &Path, device: &Device, room: Option<u64>, json: bool) -> Outcome {
    let (n_files, tensors) = read_folder(folder)?;
    let room = room.unwrap_or_else(|| headroom(device.memory.bytes));
    let row = |name: &str, of: &dyn Fn(&Tensor) -> u64| {
        let bytes = tensors.iter().map(of).fold(0, u64::saturating_add);
        Row {
            name: name.to_owned(),
            bytes,
            fits: bytes.saturating_add(room) <= device.memory.bytes,
        }
    };
    let mut rows = vec![row("as it is", &|t| t.n_bytes)];
    // What packed weights come to in another form cannot be told from their headers.
    let is_packed = tensors.iter().any(Tensor::is_packed);
    for (name, bits, block) in FORMS.into_iter().filter(|_| !is_packed) {
        rows.push(row(name, &|t| t.bytes_as(bits, block)));
    }
    let mut types: BTreeMap<&str, (usize, u64)> = BTreeMap::new();
    for t in &tensors {
        let (n, bytes) = types.entry(&t.dtype).or_default();
        *n += 1;
        *bytes += t.n_bytes;
    }
    let parameters: u64 = tensors.iter().map(Tensor::n_elements).sum();
    if json {
        let types: Vec<Value> = types
            .iter()
            .map(|(ty, (n, bytes))| json!({ "type": ty, "tensors": n, "bytes": bytes }))
            .collect();
        let forms: Vec<Value> = rows
            .iter()
            .map(|r| json!({ "form": r.name, "bytes": r.bytes, "fits": r.fits }))
            .collect();
        out::json(&json!({
            "folder": folder.display().to_string(),
            "files": n_files,
            "parameters": (!is_packed).then_some(parameters),
            "quantised": is_packed,
            "types": types,
            "device": { "name": device.name, "memory_bytes": device.memory.known(), "memory_limit": device.memory.limit },
            "headroom_bytes": room,
            "weights": forms,
        }))?;
    } else {
        out::line(format_args!(
            "{}: {n_files} safetensors file{}, {} tensors, {}; weights only, on {}",
            folder.display(),
            if n_files == 1 { "" } else { "s" },
            tensors.len(),
            match is_packed {
                true => "quantised already (packed integers)".to_owned(),
                false => format!("{parameters} parameters"),
            },
            device.name
        ))?;
        for (ty, (n, bytes)) in &types {
            out::line(format_args!(
                "  {ty:<22} {:>8}  {n} tensors",
                out::bytes(*bytes)
            ))?;
        }
        out::line(format_args!(
            "  {:<22} {:>8}  left free",
            "headroom",
            out::bytes(room)
        ))?;
        for (i, r) in rows.iter().enumerate() {
            out::line(format_args!(
                "  {:<22} {:>8}  {} of {}  ({})  {}",
                if i == 0 {
                    r.name.clone()
                } else {
                    format!("as {}, about", r.name)
                },
                out::bytes(r.bytes),
                bar(r.bytes.saturating_add(room), device.memory.bytes),
                device
                    .memory
                    .known()
                    .map_or_else(|| "?".to_owned(), out::bytes),
                device.memory.limit,
                if r.fits { "fits" } else { "does not fit" }
            ))?;
        }
        out::line(match is_packed {
            true => {
                "what a GGUF of it would take cannot be told from these headers; convert it, or a checkpoint that is not quantised, and plan that file"
            }
            false => "convert it to GGUF to run it, and plan that file for cache and context",
        })?;
    }
    out::flush()?;
    let some_fit = rows.iter().any(|r| r.fits);
    Ok(ExitCode::from(if some_fit { 0 } else { exit::STREAMS }))
}
