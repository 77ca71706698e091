//! Qwen 3, mixture of experts (Yang et al., arXiv 2505.09388).

use super::blocks::decoder;
use super::qwen3::STYLE;
use crate::EngineError;
use crate::model::file::ModelFile;
use crate::model::graph::Graph;
use crate::model::hparams::{Hparams, Keys};

/// As Qwen 3, each feed-forward layer a choice of `expert_used_count` among `expert_count`.
pub fn build(file: &ModelFile, hp: &Hparams) -> Result<Graph, EngineError> {
    let keys = Keys::new(file)?;
    let n_expert = keys.count("expert_count", 4096)?;
    let n_used = keys.count("expert_used_count", n_expert as u32)?;
    let n_ff = keys.count("expert_feed_forward_length", 1 << 24)?;
    decoder(file, hp, STYLE, |g, b, h| {
        let (router, _) = b.matrix("ffn_gate_inp", n_expert, hp.n_embd)?;
        let experts = [
            b.matrices("ffn_gate_exps", n_expert, n_ff, hp.n_embd)?,
            b.matrices("ffn_up_exps", n_expert, n_ff, hp.n_embd)?,
            b.matrices("ffn_down_exps", n_expert, hp.n_embd, n_ff)?,
        ];
        Ok(g.moe(h, router, experts, n_used))
    })
}
