//! Attention and its cache against the definition in double precision: rings, windows, groups, every cache type.

mod support;

use ounce_kernels::ops::*;
use ounce_kernels::{Cpu, Isa, TensorType, quant};
use proptest::prelude::*;
use support::random;

const TYPES: [KvType; 6] = KvType::ALL;

fn cpus() -> Vec<Cpu> {
    [
        (Isa::Scalar, 1),
        (Isa::Scalar, 3),
        (Isa::detect(), 1),
        (Isa::detect(), 2),
        (Isa::detect(), 3),
    ]
    .map(|(isa, n)| Cpu::new(isa, n))
    .into()
}

/// The tensor type of the same layout; tq4 has rotated heads in it.
fn tensor_type(ty: KvType) -> TensorType {
    match ty {
        KvType::F32 => TensorType::F32,
        KvType::F16 => TensorType::F16,
        KvType::BF16 => TensorType::BF16,
        KvType::Q8_0 => TensorType::Q8_0,
        KvType::Q4_0 => TensorType::Q4_0,
        KvType::Tq4 => TensorType::IQ4_NL,
    }
}

/// Stored heads and the numbers they stand for.
fn stored(cpu: &Cpu, ty: KvType, head_dim: usize, x: &[f32]) -> (Vec<u8>, Vec<f32>) {
    let mut bytes = vec![0; ty.row_bytes(x.len())];
    kv_store(cpu, ty, head_dim, x, &mut bytes);
    let mut back = vec![0.0; x.len()];
    quant::dequantize_row(tensor_type(ty), &bytes, &mut back);
    if ty == KvType::Tq4 {
        unrotate_heads(Isa::Scalar, head_dim, &mut back);
    }
    (bytes, back)
}

#[test]
fn rows_are_stored_as_the_tensor_types_are() {
    for (head_dim, n) in [
        (32, 32),
        (96, 96),
        (64, 640),
        (320, 640),
        (32, 20_000),
        (512, 20_480),
    ] {
        let x = random(n, n as u64);
        for ty in TYPES {
            let (first, back) = stored(&cpus()[0], ty, head_dim, &x);
            for cpu in cpus() {
                assert_eq!(
                    stored(&cpu, ty, head_dim, &x).0,
                    first,
                    "{ty} on {}",
                    cpu.isa()
                );
            }
            let step = match ty {
                KvType::F32 => 0.0,
                KvType::F16 => 2.0 / 2048.0,
                KvType::BF16 => 2.0 / 256.0,
                // Half a step, and what rounding the scale to a half moves the largest by.
                KvType::Q8_0 => 2.0 / 127.0 * 0.51 + 2.0 / 2048.0,
                // Eight steps to one side, seven to the other.
                KvType::Q4_0 => 2.0 / 8.0 * 1.01,
                // No step: errors are normal, and this is six times their mean.
                KvType::Tq4 => 0.5,
            };
            for (a, b) in x.iter().zip(&back) {
                assert!((a - b).abs() <= step, "{ty}: {a} came back as {b}");
            }
        }
    }
}

#[test]
fn names_parse_and_hostile_numbers_are_stored() {
    for ty in TYPES {
        assert_eq!(ty.name().parse(), Ok(ty));
        let x: Vec<f32> = [f32::NAN, f32::INFINITY, -1e38, 1e-45]
            .iter()
            .cycle()
            .take(64)
            .copied()
            .collect();
        let back = stored(&cpus()[0], ty, 64, &x).1;
        // What is not finite must not turn into numbers where one rotation mixes it with all.
        assert!(ty != KvType::Tq4 || back.iter().all(|x| x.is_nan()));
        assert_eq!(stored(&cpus()[0], ty, 32, &[0.0; 32]).1, [0.0; 32]);
        stored(&cpus()[0], ty, 32, &[1e-38; 32]);
        stored(&cpus()[0], ty, 32, &[-1e38; 32]);
    }
    assert!(
        "q3_k"
            .parse::<KvType>()
            .unwrap_err()
            .to_string()
            .contains("q4_0")
    );
}

/// Σ(x - what `ty` makes of x)² / Σx².
fn error(ty: KvType, head_dim: usize, x: &[f32]) -> f64 {
    let back = stored(&Cpu::new(Isa::detect(), 1), ty, head_dim, x).1;
    let square = |x: f32| f64::from(x).powi(2);
    let error: f64 = x.iter().zip(&back).map(|(a, b)| square(a - b)).sum();
    error / x.iter().copied().map(square).sum::<f64>()
}

/// tq4 loses what 16 levels for the normal distribution must lose, whatever the numbers' own distribution; q4_0 more
/// of any, and several times as much where few channels are large, as those of keys are.
#[test]
fn tq4_is_closer_than_q4_0() {
    for head_dim in [32, 64, 80 + 16, 128, 256, 512] {
        let mut x = random(64 * head_dim, head_dim as u64);
        let (tq4, q4_0) = (KvType::Tq4, KvType::Q4_0);
        // Uniform numbers are q4_0's best case.
        assert!(error(tq4, head_dim, &x) < 0.0065);
        let (start, step) = (head_dim / 5, 32);
        for head in x.chunks_exact_mut(head_dim) {
            head[start..]
                .iter_mut()
                .step_by(step)
                .for_each(|x| *x *= 20.0);
        }
        let (ours, theirs) = (error(tq4, head_dim, &x), error(q4_0, head_dim, &x));
        assert!(ours < 0.0065, "{head_dim}: {ours}");
        assert!(3.0 * ours < theirs, "{head_dim}: {ours} to {theirs}");
    }
}

#[derive(Debug, Clone)]
struct Case {
    n_tokens: usize,
    n_head_kv: usize,
    group: usize,
    dk: usize,
    dv: usize,
    pos0: usize,
    window: Option<usize>,
    ty_k: KvType,
    ty_v: KvType,
    seed: u64,
}

fn cases() -> impl Strategy<Value = Case> {
    let shape = (1usize..70, 1usize..4, 1usize..9, 1usize..4, 1usize..4);
    (
        shape,
        0usize..150,
        proptest::option::of(1usize..60),
        (0..TYPES.len(), 0..TYPES.len()),
        any::<u64>(),
    )
        .prop_map(
            |((n_tokens, n_head_kv, group, dk, dv), pos0, window, (ty_k, ty_v), seed)| Case {
                n_tokens,
                n_head_kv,
                group,
                dk: 32 * dk,
                dv: 32 * dv,
                pos0,
                window,
                ty_k: TYPES[ty_k],
                ty_v: TYPES[ty_v],
                seed,
            },
        )
}

/// The definition, over the numbers that the stored rows stand for.
fn reference(c: &Case, q: &[f32], k: &[f32], v: &[f32], scale: f64) -> Vec<f64> {
    let n_head = c.n_head_kv * c.group;
    let mut out = Vec::new();
    for t in 0..c.n_tokens {
        let pos = c.pos0 + t;
        let first = c.window.map_or(0, |w| (pos + 1).saturating_sub(w));
        for h in 0..n_head {
            let kv = h / c.group;
            let q = &q[(t * n_head + h) * c.dk..][..c.dk];
            let scores: Vec<f64> = (first..=pos)
                .map(|p| {
                    let k = &k[(p * c.n_head_kv + kv) * c.dk..][..c.dk];
                    q.iter()
                        .zip(k)
                        .map(|(a, b)| f64::from(*a) * f64::from(*b))
                        .sum::<f64>()
                        * scale
                })
                .collect();
            let max = scores.iter().copied().fold(f64::MIN, f64::max);
            let sum: f64 = scores.iter().map(|s| (s - max).exp()).sum();
            for i in 0..c.dv {
                let mix: f64 = (first..=pos)
                    .zip(&scores)
                    .map(|(p, s)| (s - max).exp() * f64::from(v[(p * c.n_head_kv + kv) * c.dv + i]))
                    .sum();
                out.push(mix / sum);
            }
        }
    }
    out
}

fn check(c: &Case) {
    let n_head = c.n_head_kv * c.group;
    let n = c.pos0 + c.n_tokens;
    let scale = 1.0 / (c.dk as f32).sqrt();
    let q = random(c.n_tokens * n_head * c.dk, c.seed);
    let cpu = Cpu::new(Isa::Scalar, 1);
    let (k_bytes, k) = stored(
        &cpu,
        c.ty_k,
        c.dk,
        &random(n * c.n_head_kv * c.dk, c.seed ^ 1),
    );
    let (v_bytes, v) = stored(
        &cpu,
        c.ty_v,
        c.dv,
        &random(n * c.n_head_kv * c.dv, c.seed ^ 2),
    );
    let want = reference(c, &q, &k, &v, f64::from(scale));
    // With a window, the ring holds exactly its positions before the chunk; without one, everything.
    let ring = |bytes: &[u8], row: usize| -> Vec<u8> {
        let Some(window) = c.window else {
            return bytes.to_vec();
        };
        let mut ring = vec![0xff; window * row];
        for p in c.pos0.saturating_sub(window)..c.pos0 {
            ring[p % window * row..][..row].copy_from_slice(&bytes[p * row..][..row]);
        }
        ring
    };
    let rows = |ring: &[u8], bytes: &[u8], ty: KvType, width: usize| -> (usize, usize) {
        let row = ty.row_bytes(c.n_head_kv * width);
        assert_eq!(bytes.len(), n * row);
        (row, ring.len() / row)
    };
    let k_ring = ring(&k_bytes, c.ty_k.row_bytes(c.n_head_kv * c.dk));
    let v_ring = ring(&v_bytes, c.ty_v.row_bytes(c.n_head_kv * c.dv));
    for cpu in cpus() {
        let view = |ring: &'static [u8], bytes: &'static [u8], ty, width| {
            let (row_bytes, n_slots) = rows(ring, bytes, ty, width);
            let n_past = if c.window.is_some() { c.pos0 } else { n };
            let fresh = if c.window.is_some() {
                &bytes[c.pos0 * row_bytes..]
            } else {
                &[]
            };
            KvRows {
                ty,
                past: ring,
                n_slots,
                n_past,
                fresh,
                n_fresh: fresh.len() / row_bytes,
                row_bytes,
            }
        };
        // Leaked: a few kilobytes a case, and the views may then have one lifetime.
        let leak = |b: &[u8]| -> &'static [u8] { b.to_vec().leak() };
        let a = Attention {
            q: &q,
            n_tokens: c.n_tokens,
            n_head,
            n_head_kv: c.n_head_kv,
            dk: c.dk,
            dv: c.dv,
            k: view(leak(&k_ring), leak(&k_bytes), c.ty_k, c.dk),
            v: view(leak(&v_ring), leak(&v_bytes), c.ty_v, c.dv),
            pos0: c.pos0,
            window: c.window,
            scale,
        };
        let mut scratch = AttnScratch::new(cpu.pool.n_threads(), c.dk, c.dv, n_head, c.n_head_kv);
        let mut out = vec![f32::NAN; c.n_tokens * n_head * c.dv];
        attention(&cpu, &a, &mut scratch, &mut out);
        for (i, (got, want)) in out.iter().zip(&want).enumerate() {
            assert!(
                (f64::from(*got) - want).abs() < 2e-5,
                "{c:?} on {}, {} threads: {i} is {got}, not {want}",
                cpu.isa(),
                cpu.pool.n_threads()
            );
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn attention_is_its_definition(case in cases()) {
        check(&case);
    }
}

/// One token over a long context: the keys are divided among the threads and the parts merged.
#[test]
fn a_lone_token_is_divided() {
    for pos0 in [255, 511, 900, 1500] {
        for window in [None, Some(700)] {
            let (ty_k, ty_v) = (KvType::F16, KvType::Tq4);
            check(&Case {
                n_tokens: 1,
                n_head_kv: 1,
                group: 4,
                dk: 64,
                dv: 32,
                pos0,
                window,
                ty_k,
                ty_v,
                seed: pos0 as u64,
            });
        }
    }
}

/// Scores of any size: the running maximum keeps the exponentials in range.
#[test]
fn extreme_scores_do_not_overflow() {
    for cpu in cpus() {
        let n = 100;
        let k: Vec<f32> = (0..n).flat_map(|p| [p as f32 * 100.0; 32]).collect();
        let v: Vec<f32> = (0..n).flat_map(|p| [p as f32; 32]).collect();
        let (k, _) = stored(&cpu, KvType::F32, 32, &k);
        let (v, _) = stored(&cpu, KvType::F32, 32, &v);
        let rows = |past| KvRows {
            ty: KvType::F32,
            past,
            n_slots: n,
            n_past: n,
            fresh: &[],
            n_fresh: 0,
            row_bytes: 128,
        };
        for (sign, want) in [(1.0, 99.0), (-1.0, 0.0)] {
            let q = [sign; 32];
            let a = Attention {
                q: &q,
                n_tokens: 1,
                n_head: 1,
                n_head_kv: 1,
                dk: 32,
                dv: 32,
                k: rows(&k),
                v: rows(&v),
                pos0: n - 1,
                window: None,
                scale: 1.0,
            };
            let mut scratch = AttnScratch::new(cpu.pool.n_threads(), 32, 32, 1, 1);
            let mut out = [0.0; 32];
            attention(&cpu, &a, &mut scratch, &mut out);
            assert!(out.iter().all(|x| (x - want).abs() < 1e-4), "{out:?}");
        }
    }
}
