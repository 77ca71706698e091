//! The architectures, one file each. Adding one is a file and a line in [`ARCHS`].

mod blocks;
mod gemma3;
mod llama;
mod qwen2;
mod qwen3;
mod qwen35;
mod qwen3moe;

use super::file::ModelFile;
use super::graph::Graph;
use super::hparams::Hparams;
use crate::EngineError;

/// Writes the forward pass of a model as ops.
pub type Build = fn(&ModelFile, &Hparams) -> Result<Graph, EngineError>;

/// `general.architecture` → its file.
const ARCHS: &[(&str, Build)] = &[
    ("gemma3", gemma3::build),
    ("llama", llama::build),
    ("qwen2", qwen2::build),
    ("qwen3", qwen3::build),
    ("qwen35", qwen35::build),
    ("qwen3moe", qwen3moe::build),
];

/// The builder for an architecture.
///
/// # Errors
/// The name is not in the table; the error lists what is.
pub fn find(name: &str) -> Result<Build, EngineError> {
    ARCHS
        .iter()
        .find(|(n, _)| *n == name)
        .map(|(_, build)| *build)
        .ok_or_else(|| {
            let known: Vec<&str> = ARCHS.iter().map(|(n, _)| *n).collect();
            EngineError::UnknownArch {
                name: name.to_owned(),
                known: known.join(", "),
            }
        })
}
