//! Qwen 3.5, dense, text: three gated delta net layers, then one of gated full attention
//! (Yang et al., "Gated Delta Networks", arXiv 2412.06464).
//!
//! Blocks for multi-token prediction at the end of a file are not part of the main pass and never touched.

use ounce_gguf::Value;
use ounce_kernels::ops::{MAX_CONV_KERNEL, RopeKind};

use super::blocks::{Block, embedding, output, swiglu};
use crate::EngineError;
use crate::model::file::ModelFile;
use crate::model::graph::{DeltaNet, Graph, KvSpec, V};
use crate::model::hparams::{Hparams, Keys};
use crate::model::rope::RopeFreqs;

/// `x += mixer(rms(x)); x += swiglu(rms(x))`, the mixer recurrent or attention by layer.
pub fn build(file: &ModelFile, hp: &Hparams) -> Result<Graph, EngineError> {
    let keys = Keys::new(file)?;
    let net = net(&keys, hp)?;
    let recurrent = recurrent_layers(&keys, file, hp)?;
    let mut g = Graph::default();
    let x = g.embed(embedding(file, hp)?, 1.0);
    // For text every axis of the multi-axis rope carries the same position, which makes it the plain NeoX rope.
    let angles = g.rope_angles(RopeFreqs::load(file, hp)?);
    for (i, &recurrent) in recurrent.iter().enumerate() {
        let b = Block::new(file, i);
        let h = g.rms_norm(x, b.vector("attn_norm.weight", hp.n_embd)?, hp.rms_eps);
        let a = if recurrent {
            delta_net(&mut g, &b, hp, &keys, net, h)?
        } else {
            gated_attention(&mut g, &b, hp, h, angles)?
        };
        g.add(x, a);
        let h = g.rms_norm(
            x,
            b.vector("post_attention_norm.weight", hp.n_embd)?,
            hp.rms_eps,
        );
        let f = swiglu(&mut g, &b, hp, h)?;
        g.add(x, f);
    }
    output(&mut g, file, hp, x)?;
    Ok(g)
}

fn net(keys: &Keys<'_>, hp: &Hparams) -> Result<DeltaNet, EngineError> {
    let net = DeltaNet {
        n_head_k: keys.count("ssm.group_count", 65_536)?,
        n_head_v: keys.count("ssm.time_step_rank", 65_536)?,
        head_dim: keys.count("ssm.state_size", 4096)?,
        eps: hp.rms_eps,
    };
    let n_inner = keys.count("ssm.inner_size", 1 << 24)?;
    if net.n_head_v * net.head_dim != n_inner {
        return Err(keys.bad(
            "ssm.inner_size",
            format!(
                "{n_inner} is not {} heads of {}",
                net.n_head_v, net.head_dim
            ),
        ));
    }
    if !net.n_head_v.is_multiple_of(net.n_head_k) {
        return Err(keys.bad(
            "ssm.group_count",
            format!(
                "{} does not divide the {} value heads",
                net.n_head_k, net.n_head_v
            ),
        ));
    }
    Ok(net)
}

/// Which layers are recurrent: the array if the file has one, else all but every `full_attention_interval`-th.
fn recurrent_layers(
    keys: &Keys<'_>,
    file: &ModelFile,
    hp: &Hparams,
) -> Result<Vec<bool>, EngineError> {
    if let Some(Value::Array(array)) = keys.value("attention.recurrent_layers") {
        let layers: Vec<bool> = array.bools(file.bytes())?.take(hp.n_layer).collect();
        if layers.len() < hp.n_layer {
            return Err(keys.bad(
                "attention.recurrent_layers",
                format!("{} entries for {} layers", layers.len(), hp.n_layer),
            ));
        }
        return Ok(layers);
    }
    let interval = keys.count_or("full_attention_interval", 1024, 4)?;
    Ok((0..hp.n_layer).map(|i| (i + 1) % interval != 0).collect())
}

fn gated_attention(
    g: &mut Graph,
    b: &Block<'_>,
    hp: &Hparams,
    h: V,
    angles: V,
) -> Result<V, EngineError> {
    let (dk, dv) = (hp.head_dim_k, hp.head_dim_v);
    // Per head: dk rows of query, then as many of output gate.
    let [qg, k, v] = g.linear(
        h,
        [
            b.matrix("attn_q", hp.n_head * 2 * dk, hp.n_embd)?,
            b.matrix("attn_k", hp.n_head_kv * dk, hp.n_embd)?,
            b.matrix("attn_v", hp.n_head_kv * dv, hp.n_embd)?,
        ],
    );
    let [q, gate] = g.split_heads(qg, dk);
    g.rms_norm_in_place(q, b.vector("attn_q_norm.weight", dk)?, hp.rms_eps);
    g.rms_norm_in_place(k, b.vector("attn_k_norm.weight", dk)?, hp.rms_eps);
    g.rope(q, dk, RopeKind::Neox, angles);
    g.rope(k, dk, RopeKind::Neox, angles);
    let kv = KvSpec {
        n_head_kv: hp.n_head_kv,
        head_dim_k: dk,
        head_dim_v: dv,
        window: None,
    };
    let a = g.attention([q, k, v], kv, 1.0 / (dk as f32).sqrt());
    g.sigmoid_mul(a, gate);
    let [o] = g.linear(a, [b.matrix("attn_output", hp.n_embd, hp.n_head * dv)?]);
    Ok(o)
}

fn delta_net(
    g: &mut Graph,
    b: &Block<'_>,
    hp: &Hparams,
    keys: &Keys<'_>,
    net: DeltaNet,
    h: V,
) -> Result<V, EngineError> {
    let kernel = keys.count("ssm.conv_kernel", MAX_CONV_KERNEL as u32)?;
    let n_inner = net.n_head_v * net.head_dim;
    let n_conv = 2 * net.n_head_k * net.head_dim + n_inner;
    let [qkv, z, alpha, beta] = g.linear(
        h,
        [
            b.matrix("attn_qkv", n_conv, hp.n_embd)?,
            b.matrix("attn_gate", n_inner, hp.n_embd)?,
            b.matrix("ssm_alpha", net.n_head_v, hp.n_embd)?,
            b.matrix("ssm_beta", net.n_head_v, hp.n_embd)?,
        ],
    );
    let qkv = g.causal_conv(
        qkv,
        b.f32_matrix("ssm_conv1d.weight", n_conv, kernel)?,
        kernel,
    );
    g.delta_gates(
        alpha,
        beta,
        b.vector("ssm_dt.bias", net.n_head_v)?,
        b.vector("ssm_a", net.n_head_v)?,
    );
    let o = g.delta_net(qkv, alpha, beta, net);
    g.gated_norm(o, z, b.vector("ssm_norm.weight", net.head_dim)?, hp.rms_eps);
    let [out] = g.linear(o, [b.matrix("ssm_out", hp.n_embd, n_inner)?]);
    Ok(out)
}
