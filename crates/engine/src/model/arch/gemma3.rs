//! Gemma 3, text (Gemma Team, arXiv 2503.19786).

use ounce_kernels::ops::RopeKind;

use super::blocks::{AttentionStyle, Block, attention, embedding, output};
use crate::EngineError;
use crate::model::file::ModelFile;
use crate::model::graph::{Graph, V};
use crate::model::hparams::{Hparams, Keys};
use crate::model::rope::RopeFreqs;

/// Five local layers, then a global one.
const PATTERN: usize = 6;

/// Norms before and after each part, query and key norms, sliding windows with their own rope, gelu gates.
pub fn build(file: &ModelFile, hp: &Hparams) -> Result<Graph, EngineError> {
    let keys = Keys::new(file)?;
    let window = keys.count("attention.sliding_window", 1 << 24)?;
    let mut g = Graph::default();
    let x = g.embed(embedding(file, hp)?, (hp.n_embd as f32).sqrt());
    let global = g.rope_angles(RopeFreqs::load(file, hp)?);
    let local = g.rope_angles(RopeFreqs::plain(
        hp.n_rot,
        keys.f32_or("rope.freq_base_swa", 10_000.0)?,
    ));
    for i in 0..hp.n_layer {
        let b = Block::new(file, i);
        let is_local = (i + 1) % PATTERN != 0;
        let (window, angles) = if is_local {
            (Some(window), local)
        } else {
            (None, global)
        };
        let style = AttentionStyle {
            rope: RopeKind::Neox,
            qk_norm: true,
            window,
        };
        let h = g.rms_norm(x, b.vector("attn_norm.weight", hp.n_embd)?, hp.rms_eps);
        let a = attention(&mut g, &b, hp, style, h, angles)?;
        g.rms_norm_in_place(
            a,
            b.vector("post_attention_norm.weight", hp.n_embd)?,
            hp.rms_eps,
        );
        g.add(x, a);
        let h = g.rms_norm(x, b.vector("ffn_norm.weight", hp.n_embd)?, hp.rms_eps);
        let f = geglu(&mut g, &b, hp, h)?;
        g.rms_norm_in_place(f, b.vector("post_ffw_norm.weight", hp.n_embd)?, hp.rms_eps);
        g.add(x, f);
    }
    output(&mut g, file, hp, x)?;
    Ok(g)
}

/// `down · (gelu(gate · h) ⊙ up · h)` (Shazeer, arXiv 2002.05202).
fn geglu(g: &mut Graph, b: &Block<'_>, hp: &Hparams, h: V) -> Result<V, EngineError> {
    let [gate, up] = g.linear(
        h,
        [
            b.matrix("ffn_gate", hp.n_ff, hp.n_embd)?,
            b.matrix("ffn_up", hp.n_ff, hp.n_embd)?,
        ],
    );
    g.gelu_mul(gate, up);
    let [down] = g.linear(gate, [b.matrix("ffn_down", hp.n_embd, hp.n_ff)?]);
    Ok(down)
}
