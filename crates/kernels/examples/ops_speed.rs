//! Speed of the ops that are not products with weights:
//! `cargo run --release -p ounce-kernels --example ops_speed [THREADS [NAME...]]`, each the best of several runs.
//! Names are those printed; a line is shown when its name contains one that was asked for.

use ounce_kernels::ops::*;
use ounce_kernels::{Cpu, Isa, default_threads};
use std::time::{Duration, Instant};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let n_threads = args.next().map_or(Ok(default_threads()), |n| n.parse())?;
    let names: Vec<String> = args.collect();
    let isa = Isa::choose()?;
    let cpu = Cpu::new(isa, n_threads);
    println!("{isa}, {} threads", cpu.pool.n_threads());
    let show = |name: &str, run: &mut dyn FnMut()| {
        if names.is_empty() || names.iter().any(|n| name.contains(n.as_str())) {
            println!("{name:40} {:10.1} us", best(run) * 1e6);
        }
    };
    attentions(&cpu, &show);
    delta_nets(&cpu, &show);
    rows(&cpu, &show);
    Ok(())
}

type Show<'a> = &'a dyn Fn(&str, &mut dyn FnMut());

/// The heads of SmolLM2-135M (9 over 3, of 64) and of Qwen3.5 0.8B (8 over 2, of 256).
fn attentions(cpu: &Cpu, show: Show<'_>) {
    for (n_head, n_head_kv, d) in [(9, 3, 64), (8, 2, 256)] {
        let mut scratch = AttnScratch::new(cpu.pool.n_threads(), d, d, n_head, n_head_kv);
        for (ty, depth, n_tokens) in [
            (KvType::F16, 4096, 1),
            (KvType::BF16, 4096, 1),
            (KvType::Q8_0, 4096, 1),
            (KvType::Q4_0, 4096, 1),
            (KvType::Tq4, 4096, 1),
            (KvType::F16, 0, 512),
            (KvType::F16, 2048, 512),
        ] {
            let width = n_head_kv * d;
            let n = depth + n_tokens;
            let [k, v] = [1, 2].map(|seed| {
                let mut bytes = vec![0; ty.row_bytes(n * width)];
                kv_store(cpu, ty, d, &numbers(n * width, seed), &mut bytes);
                bytes
            });
            let rows = |past| KvRows {
                ty,
                past,
                n_slots: n,
                n_past: n,
                fresh: &[],
                n_fresh: 0,
                row_bytes: ty.row_bytes(width),
            };
            let attn = Attention {
                q: &numbers(n_tokens * n_head * d, 3),
                n_tokens,
                n_head,
                n_head_kv,
                dk: d,
                dv: d,
                k: rows(&k),
                v: rows(&v),
                pos0: depth,
                window: None,
                scale: 1.0 / (d as f32).sqrt(),
            };
            let mut out = vec![0.0; n_tokens * n_head * d];
            let name = format!("attention {n_head}/{n_head_kv}x{d} {ty} {n_tokens} at {depth}");
            show(&name, &mut || attention(cpu, &attn, &mut scratch, &mut out));
        }
    }
}

/// A layer of Qwen3.5 0.8B.
fn delta_nets(cpu: &Cpu, show: Show<'_>) {
    let (nk, nv, d, k) = (16, 16, 128, 4);
    let width = (2 * nk + nv) * d;
    for n_tokens in [1, 64] {
        let qkv = numbers(n_tokens * width, 1);
        let g: Vec<f32> = numbers(n_tokens * nv, 2).iter().map(|x| -x.abs()).collect();
        let args = GatedDeltaNet {
            qkv: &qkv,
            g: &g,
            beta: &numbers(n_tokens * nv, 3),
            n_tokens,
            nk,
            nv,
            d,
            eps: 1e-6,
        };
        let (mut state, mut out) = (vec![0.0; nv * d * d], vec![0.0; n_tokens * nv * d]);
        show(&format!("gated_delta_net {n_tokens}"), &mut || {
            gated_delta_net(cpu, &args, &mut state, &mut out);
        });
        let (w, mut state) = (numbers(width * k, 4), vec![0.0; (k - 1) * width]);
        let mut y = vec![0.0; qkv.len()];
        show(&format!("causal_conv1d_silu {n_tokens}"), &mut || {
            causal_conv1d_silu(cpu, &qkv, &w, k, &mut state, &mut y);
        });
        let (mut x, w) = (numbers(n_tokens * nv * d, 5), numbers(d, 6));
        show(&format!("gated_norm {n_tokens}"), &mut || {
            gated_norm(cpu, &mut x, &out, &w, 1e-6);
        });
    }
}

/// Gates, norms and ropes of 512 tokens.
fn rows(cpu: &Cpu, show: Show<'_>) {
    let (n_tokens, n_ff, n_embd, n_head, d) = (512, 1536, 576, 9, 64);
    let up = numbers(n_tokens * n_ff, 1);
    let mut gate = numbers(n_tokens * n_ff, 2);
    type Gate = fn(&Cpu, &mut [f32], &[f32]);
    let gates: [(&str, Gate); 4] = [
        ("silu_mul", silu_mul),
        ("gelu_mul", gelu_mul),
        ("sigmoid_mul", sigmoid_mul),
        ("add", add),
    ];
    for (name, op) in gates {
        // Repeated application must not end in infinities or subnormals.
        show(&format!("{name} 512x{n_ff}"), &mut || {
            gate.copy_from_slice(&up);
            op(cpu, &mut gate, &up);
        });
    }
    let (x, w) = (numbers(n_tokens * n_embd, 3), numbers(n_embd, 4));
    let mut y = vec![0.0; x.len()];
    show(&format!("rms_norm 512x{n_embd}"), &mut || {
        rms_norm(cpu, &x, &w, 1e-5, &mut y);
    });
    let mut table = vec![0.0; n_tokens * d];
    let angles = Angles {
        theta_scale: 0.75,
        divisors: &vec![1.0; d / 2],
        mscale: 1.0,
    };
    show("rope_angles 512x64", &mut || {
        rope_angles(cpu, angles, 0, n_tokens, &mut table);
    });
    for kind in [RopeKind::Norm, RopeKind::Neox] {
        show(&format!("rope {kind:?} 512x9x64"), &mut || {
            rope(cpu, &mut y, n_tokens, n_head, d, kind, &table);
        });
    }
    for ty in KvType::ALL {
        let mut bytes = vec![0; ty.row_bytes(x.len())];
        show(&format!("kv_store {ty} 512x{n_embd}"), &mut || {
            kv_store(cpu, ty, d, &x, &mut bytes);
        });
    }
}

/// Numbers in -1..1.
fn numbers(n: usize, seed: u32) -> Vec<f32> {
    let mut state = seed.wrapping_mul(0x9e37_79b9) | 1;
    (0..n)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 17;
            state ^= state << 5;
            state as f32 / (1u32 << 31) as f32 - 1.0
        })
        .collect()
}

/// Seconds of the best run; runs for a third of a second, seven times at least.
fn best(run: &mut dyn FnMut()) -> f64 {
    let (begin, mut best, mut runs) = (Instant::now(), f64::INFINITY, 0);
    while runs < 7 || begin.elapsed() < Duration::from_millis(300) {
        let start = Instant::now();
        run();
        best = best.min(start.elapsed().as_secs_f64());
        runs += 1;
    }
    best
}
