//! Qwen 3, dense (Yang et al., arXiv 2505.09388).

use ounce_kernels::ops::RopeKind;

use super::blocks::{AttentionStyle, decoder, swiglu};
use crate::EngineError;
use crate::model::file::ModelFile;
use crate::model::graph::Graph;
use crate::model::hparams::Hparams;

/// What Qwen 3's attention adds to Qwen 2's: a norm of each query and key head, no bias.
pub(super) const STYLE: AttentionStyle = AttentionStyle {
    rope: RopeKind::Neox,
    qk_norm: true,
    window: None,
};

/// As Qwen 2, with [`STYLE`].
pub fn build(file: &ModelFile, hp: &Hparams) -> Result<Graph, EngineError> {
    decoder(file, hp, STYLE, |g, b, h| swiglu(g, b, hp, h))
}
