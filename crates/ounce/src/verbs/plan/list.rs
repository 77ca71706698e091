//! `ounce plan --list GLOB`: the tensors whose names match.

use std::process::ExitCode;

use glob::Pattern;
use ounce_engine::model::file::ModelFile;
use ounce_gguf::TensorInfo;
use serde_json::{Value, json};

use crate::verbs::show::{tensor_json, tensor_line};
use crate::{Outcome, out};

/// Lists the tensors of `file` that match `glob`, in the order of the file.
pub fn run(file: &ModelFile, glob: &Pattern, json: bool) -> Outcome {
    let all = file.header().tensors.iter();
    let found: Vec<&TensorInfo> = all.filter(|t| glob.matches(&t.name)).collect();
    let Some(first) = file.header().tensors.first() else {
        return Err(format!("{}: the file holds no tensors", file.path().display()).into());
    };
    if found.is_empty() {
        return Err(format!(
            "{}: no tensor matches {glob}; their names are like {}; * stands for any text",
            file.path().display(),
            first.name
        )
        .into());
    }
    let bytes: u64 = found.iter().map(|t| t.n_bytes).sum();
    if json {
        let tensors: Vec<Value> = found.iter().map(|t| tensor_json(t)).collect();
        out::json(&json!({ "tensors": tensors, "bytes": bytes }))?;
    } else {
        for t in &found {
            tensor_line(t)?;
        }
        out::line(format_args!(
            "  {} tensor{}, {}",
            found.len(),
            if found.len() == 1 { "" } else { "s" },
            out::bytes(bytes)
        ))?;
    }
    out::flush()?;
    Ok(ExitCode::SUCCESS)
}
