//! Parts that several architectures share: causal attention, the gated feed-forward layer, the output head.

use ounce_kernels::ops::RopeKind;

use crate::EngineError;
use crate::model::file::{MatRef, ModelFile, VecRef};
use crate::model::graph::{Graph, KvSpec, V};
use crate::model::hparams::Hparams;

/// The tensors `blk.<i>.*`.
pub struct Block<'a> {
    file: &'a ModelFile,
    i: usize,
}

impl<'a> Block<'a> {
    /// Block `i` of the file.
    pub fn new(file: &'a ModelFile, i: usize) -> Block<'a> {
        Block { file, i }
    }

    fn name(&self, tensor: &str) -> String {
        format!("blk.{}.{tensor}", self.i)
    }

    /// `blk.<i>.<tensor>.weight` as a matrix, with no bias.
    pub fn matrix(
        &self,
        tensor: &str,
        rows: usize,
        cols: usize,
    ) -> Result<(MatRef, Option<VecRef>), EngineError> {
        Ok((
            self.file
                .matrix(&self.name(&format!("{tensor}.weight")), rows, cols)?,
            None,
        ))
    }

    /// As [`Block::matrix`], with `<tensor>.bias` if the file holds one.
    pub fn biased(
        &self,
        tensor: &str,
        rows: usize,
        cols: usize,
    ) -> Result<(MatRef, Option<VecRef>), EngineError> {
        let bias = self
            .file
            .optional_vector(&self.name(&format!("{tensor}.bias")), rows)?;
        Ok((self.matrix(tensor, rows, cols)?.0, bias))
    }

    /// A stack of `n` matrices.
    pub fn matrices(
        &self,
        tensor: &str,
        n: usize,
        rows: usize,
        cols: usize,
    ) -> Result<MatRef, EngineError> {
        self.file
            .matrices(&self.name(&format!("{tensor}.weight")), n, rows, cols)
    }

    /// `blk.<i>.<name>` as a vector; the full suffix is given, for not every name ends in `.weight`.
    pub fn vector(&self, name: &str, len: usize) -> Result<VecRef, EngineError> {
        self.file.vector(&self.name(name), len)
    }

    /// `blk.<i>.<name>` as an F32 matrix used element by element.
    pub fn f32_matrix(&self, name: &str, rows: usize, cols: usize) -> Result<VecRef, EngineError> {
        self.file.f32_matrix(&self.name(name), rows, cols)
    }
}

/// How an architecture's attention differs from the plain one.
#[derive(Clone, Copy)]
pub struct AttentionStyle {
    /// Which dimensions rope pairs.
    pub rope: RopeKind,
    /// RMS norm of each query and key head before rope.
    pub qk_norm: bool,
    /// Positions a query can see.
    pub window: Option<usize>,
}

/// `attn_output · attention(q, k, v)` of the normed rows `h`.
pub fn attention(
    g: &mut Graph,
    b: &Block<'_>,
    hp: &Hparams,
    style: AttentionStyle,
    h: V,
    angles: V,
) -> Result<V, EngineError> {
    let (dk, dv) = (hp.head_dim_k, hp.head_dim_v);
    let [q, k, v] = g.linear(
        h,
        [
            b.biased("attn_q", hp.n_head * dk, hp.n_embd)?,
            b.biased("attn_k", hp.n_head_kv * dk, hp.n_embd)?,
            b.biased("attn_v", hp.n_head_kv * dv, hp.n_embd)?,
        ],
    );
    if style.qk_norm {
        g.rms_norm_in_place(q, b.vector("attn_q_norm.weight", dk)?, hp.rms_eps);
        g.rms_norm_in_place(k, b.vector("attn_k_norm.weight", dk)?, hp.rms_eps);
    }
    g.rope(q, dk, style.rope, angles);
    g.rope(k, dk, style.rope, angles);
    let kv = KvSpec {
        n_head_kv: hp.n_head_kv,
        head_dim_k: dk,
        head_dim_v: dv,
        window: style.window,
    };
    let a = g.attention([q, k, v], kv, 1.0 / (dk as f32).sqrt());
    let [o] = g.linear(a, [b.biased("attn_output", hp.n_embd, hp.n_head * dv)?]);
    Ok(o)
}

/// `down · (silu(gate · h) ⊙ up · h)` (Shazeer, arXiv 2002.05202).
pub fn swiglu(g: &mut Graph, b: &Block<'_>, hp: &Hparams, h: V) -> Result<V, EngineError> {
    let [gate, up] = g.linear(
        h,
        [
            b.biased("ffn_gate", hp.n_ff, hp.n_embd)?,
            b.biased("ffn_up", hp.n_ff, hp.n_embd)?,
        ],
    );
    g.silu_mul(gate, up);
    let [down] = g.linear(gate, [b.biased("ffn_down", hp.n_embd, hp.n_ff)?]);
    Ok(down)
}

/// The embedding table.
pub fn embedding(file: &ModelFile, hp: &Hparams) -> Result<MatRef, EngineError> {
    file.matrix("token_embd.weight", hp.n_vocab, hp.n_embd)
}

/// Final norm and output matrix; a file without `output.weight` shares the embedding table.
pub fn output(g: &mut Graph, file: &ModelFile, hp: &Hparams, x: V) -> Result<(), EngineError> {
    let head = if file.has("output.weight") {
        file.matrix("output.weight", hp.n_vocab, hp.n_embd)?
    } else {
        embedding(file, hp)?
    };
    g.output(
        x,
        file.vector("output_norm.weight", hp.n_embd)?,
        hp.rms_eps,
        head,
    );
    Ok(())
}

/// The pre-norm decoder that Llama, Qwen 2 and Qwen 3 share: `x += attention(rms(x)); x += ffn(rms(x))`.
pub fn decoder(
    file: &ModelFile,
    hp: &Hparams,
    style: AttentionStyle,
    ffn: impl Fn(&mut Graph, &Block<'_>, V) -> Result<V, EngineError>,
) -> Result<Graph, EngineError> {
    let mut g = Graph::default();
    let x = g.embed(embedding(file, hp)?, 1.0);
    let angles = g.rope_angles(crate::model::rope::RopeFreqs::load(file, hp)?);
    for i in 0..hp.n_layer {
        let b = Block::new(file, i);
        let h = g.rms_norm(x, b.vector("attn_norm.weight", hp.n_embd)?, hp.rms_eps);
        let a = attention(&mut g, &b, hp, style, h, angles)?;
        g.add(x, a);
        let h = g.rms_norm(x, b.vector("ffn_norm.weight", hp.n_embd)?, hp.rms_eps);
        let f = ffn(&mut g, &b, h)?;
        g.add(x, f);
    }
    output(&mut g, file, hp, x)?;
    Ok(g)
}
