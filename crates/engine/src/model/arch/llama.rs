//! Llama 2/3.x, SmolLM2, Mistral, TinyLlama (Touvron et al., arXiv 2302.13971; Dubey et al., arXiv 2407.21783).

use ounce_kernels::ops::RopeKind;

use super::blocks::{AttentionStyle, decoder, swiglu};
use crate::EngineError;
use crate::model::file::ModelFile;
use crate::model::graph::Graph;
use crate::model::hparams::{Hparams, Keys};

/// Rope over adjacent pairs (the converter permuted the rows of q and k), biases where the file has them.
pub fn build(file: &ModelFile, hp: &Hparams) -> Result<Graph, EngineError> {
    let keys = Keys::new(file)?;
    if keys.u32_or("expert_count", 0)? != 0 {
        return Err(keys.bad(
            "expert_count",
            "mixtures of experts of architecture llama (Mixtral) are not supported",
        ));
    }
    let style = AttentionStyle {
        rope: RopeKind::Norm,
        qk_norm: false,
        window: None,
    };
    decoder(file, hp, style, |g, b, h| swiglu(g, b, hp, h))
}
