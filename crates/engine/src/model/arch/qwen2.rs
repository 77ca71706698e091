//! Qwen 2 and 2.5 (Yang et al., arXiv 2407.10671).

use ounce_kernels::ops::RopeKind;

use super::blocks::{AttentionStyle, decoder, swiglu};
use crate::EngineError;
use crate::model::file::ModelFile;
use crate::model::graph::Graph;
use crate::model::hparams::Hparams;

/// As Llama, with NeoX rope and biases on q, k and v.
pub fn build(file: &ModelFile, hp: &Hparams) -> Result<Graph, EngineError> {
    let style = AttentionStyle {
        rope: RopeKind::Neox,
        qk_norm: false,
        window: None,
    };
    decoder(file, hp, style, |g, b, h| swiglu(g, b, hp, h))
}
