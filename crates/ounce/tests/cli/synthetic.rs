//! Models that are a header and a hole as large as their weights.

use ounce_gguf::TensorType;
use ounce_gguf::write::Writer;

use crate::harness::{scratch, sparse};

/// Whether a mix called "M" gives `attn_v` and `ffn_down` of layer `i` of `n` more bits, as llama.cpp's `use_more_bits` has
/// it.
fn has_more_bits(i: u64, n: u64) -> bool {
    i < n / 8 || i >= 7 * n / 8 || (i - n / 8) % 3 == 2
}

/// A Qwen3.5 of these dimensions: its header, and as much hole as its weights would take as Q4_K_M. `tied`: the output
/// matrix is the embedding table.
pub fn qwen35(
    name: &str,
    [n_embd, n_layer, n_head, n_kv, n_ff, n_v]: [u64; 6],
    tied: bool,
) -> String {
    let (vocab, head, k, d) = (248_320, 256, 16, 128);
    let u = |w: Writer, key: &str, n: u64| w.u32(&format!("qwen35.{key}"), n as u32);
    let mut w = Writer::new().str("general.architecture", "qwen35");
    for (key, n) in [
        ("block_count", n_layer),
        ("context_length", 262_144),
        ("embedding_length", n_embd),
        ("feed_forward_length", n_ff),
        ("attention.head_count", n_head),
        ("attention.head_count_kv", n_kv),
        ("attention.key_length", head),
        ("attention.value_length", head),
        ("rope.dimension_count", 64),
        ("ssm.conv_kernel", 4),
        ("ssm.inner_size", d * n_v),
        ("ssm.state_size", d),
        ("ssm.time_step_rank", n_v),
        ("ssm.group_count", k),
        ("full_attention_interval", 4),
    ] {
        w = u(w, key, n);
    }
    w = w.f32("qwen35.attention.layer_norm_rms_epsilon", 1e-6);
    let (q, q6, f) = (TensorType::Q4_K, TensorType::Q6_K, TensorType::F32);
    let table = if tied { q6 } else { q };
    w = w
        .tensor("token_embd.weight", &[n_embd, vocab], table)
        .tensor("output_norm.weight", &[n_embd], f);
    if !tied {
        w = w.tensor("output.weight", &[n_embd, vocab], q6);
    }
    for i in 0..n_layer {
        let more = if has_more_bits(i, n_layer) { q6 } else { q };
        let (kd, vd) = (d * k, d * n_v);
        let mut add = |tail: &str, dims: &[u64], ty| {
            let w0 = std::mem::take(&mut w);
            w = w0.tensor(&format!("blk.{i}.{tail}"), dims, ty);
        };
        add("attn_norm.weight", &[n_embd], f);
        add("post_attention_norm.weight", &[n_embd], f);
        if (i + 1) % 4 == 0 {
            add("attn_q.weight", &[n_embd, 2 * n_head * head], q);
            add("attn_k.weight", &[n_embd, n_kv * head], q);
            add("attn_v.weight", &[n_embd, n_kv * head], more);
            add("attn_output.weight", &[n_head * head, n_embd], q);
            add("attn_q_norm.weight", &[head], f);
            add("attn_k_norm.weight", &[head], f);
        } else {
            add("attn_qkv.weight", &[n_embd, 2 * kd + vd], q);
            add("attn_gate.weight", &[n_embd, vd], q);
            add("ssm_conv1d.weight", &[4, 2 * kd + vd], f);
            add("ssm_dt.bias", &[n_v], f);
            add("ssm_a", &[n_v], f);
            add("ssm_beta.weight", &[n_embd, n_v], q);
            add("ssm_alpha.weight", &[n_embd, n_v], q);
            add("ssm_norm.weight", &[d], f);
            add("ssm_out.weight", &[vd, n_embd], q);
        }
        add("ffn_gate.weight", &[n_embd, n_ff], q);
        add("ffn_up.weight", &[n_embd, n_ff], q);
        add("ffn_down.weight", &[n_ff, n_embd], more);
    }
    let path = scratch("plan").join(name);
    sparse(&path, &w);
    path.display().to_string()
}

/// A Llama of two layers whose feed-forward matrices are of `ty`.
pub fn llama(name: &str, ty: TensorType) -> String {
    let u = |w: Writer, key: &str, n| w.u32(&format!("llama.{key}"), n);
    let mut w = Writer::new().str("general.architecture", "llama");
    for (key, n) in [
        ("block_count", 2),
        ("context_length", 4096),
        ("embedding_length", 1024),
        ("feed_forward_length", 2048),
        ("attention.head_count", 16),
    ] {
        w = u(w, key, n);
    }
    let (q, f) = (TensorType::Q4_K, TensorType::F32);
    w = w
        .f32("llama.attention.layer_norm_rms_epsilon", 1e-5)
        .tensor("token_embd.weight", &[1024, 5000], q)
        .tensor("output_norm.weight", &[1024], f);
    for i in 0..2 {
        for (tail, dims, ty) in [
            ("attn_norm", vec![1024], f),
            ("ffn_norm", vec![1024], f),
            ("attn_q", vec![1024, 1024], q),
            ("attn_k", vec![1024, 1024], q),
            ("attn_v", vec![1024, 1024], q),
            ("attn_output", vec![1024, 1024], q),
            ("ffn_gate", vec![1024, 2048], ty),
            ("ffn_up", vec![1024, 2048], ty),
            ("ffn_down", vec![2048, 1024], ty),
        ] {
            w = w.tensor(&format!("blk.{i}.{tail}.weight"), &dims, ty);
        }
    }
    let path = scratch("plan").join(name);
    sparse(&path, &w);
    path.display().to_string()
}
