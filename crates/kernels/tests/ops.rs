//! Every op against its definition in double precision, on random shapes with tails, on every instruction set of this
//! machine and several thread counts; and the same bits from all of them.

mod support;

use ounce_kernels::ops::*;
use ounce_kernels::{Cpu, Isa};
use proptest::prelude::*;
use support::random;

/// Every instruction set of this machine, one to three threads.
fn cpus() -> Vec<Cpu> {
    let mut isas = vec![Isa::Scalar];
    if Isa::detect() != Isa::Scalar {
        isas.push(Isa::detect());
    }
    if Isa::detect() == Isa::Avx512 {
        isas.push(Isa::Avx2);
    }
    isas.into_iter()
        .flat_map(|isa| [1, 2, 3].map(|n| Cpu::new(isa, n)))
        .collect()
}

fn d(x: &[f32]) -> Vec<f64> {
    x.iter().map(|&x| f64::from(x)).collect()
}

#[track_caller]
fn close(got: &[f32], want: &[f64], tolerance: f64, what: &str) {
    assert_eq!(got.len(), want.len(), "{what}");
    let scale = want.iter().fold(1.0f64, |m, x| m.max(x.abs()));
    for (i, (g, w)) in got.iter().zip(want).enumerate() {
        assert!(
            (f64::from(*g) - w).abs() <= tolerance * scale,
            "{what}: element {i} is {g}, not {w}"
        );
    }
}

/// Runs `op` on every CPU; the results must be the same bits, and are returned once.
#[track_caller]
fn on_all(what: &str, op: impl Fn(&Cpu) -> Vec<f32>) -> Vec<f32> {
    let mut first: Option<Vec<f32>> = None;
    for cpu in cpus() {
        let got = op(&cpu);
        match &first {
            None => first = Some(got),
            Some(want) => {
                let same = got
                    .iter()
                    .zip(want)
                    .all(|(a, b)| a.to_bits() == b.to_bits() || a.is_nan() && b.is_nan());
                assert!(
                    same,
                    "{what}: {} with {} threads differs",
                    cpu.isa(),
                    cpu.pool.n_threads()
                );
            }
        }
    }
    first.unwrap()
}

fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

fn silu(x: f64) -> f64 {
    x * sigmoid(x)
}

fn rms_scale(x: &[f64], eps: f64) -> f64 {
    1.0 / (x.iter().map(|x| x * x).sum::<f64>() / x.len() as f64 + eps).sqrt()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn norms(width in 1usize..300, rows in 1usize..40, seed: u64) {
        let (x, z, w) = (random(width * rows, seed), random(width * rows, seed ^ 1), random(width, seed ^ 2));
        let eps = 1e-5f32;
        let want: Vec<f64> = d(&x).chunks(width).flat_map(|r| {
            let s = rms_scale(r, f64::from(eps));
            r.iter().zip(d(&w)).map(move |(x, w)| x * s * w).collect::<Vec<_>>()
        }).collect();
        let got = on_all("rms_norm", |cpu| {
            let mut y = vec![0.0; x.len()];
            rms_norm(cpu, &x, &w, eps, &mut y);
            y
        });
        close(&got, &want, 1e-6, "rms_norm");
        let in_place = on_all("rms_norm_inplace", |cpu| {
            let mut y = x.clone();
            rms_norm_inplace(cpu, &mut y, &w, eps);
            y
        });
        prop_assert_eq!(&got, &in_place);
        let gated = on_all("gated_norm", |cpu| {
            let mut y = x.clone();
            gated_norm(cpu, &mut y, &z, &w, eps);
            y
        });
        let want: Vec<f64> = want.iter().zip(d(&z)).map(|(x, z)| x * silu(z)).collect();
        close(&gated, &want, 1e-6, "gated_norm");
    }

    #[test]
    fn gates(n in 1usize..40_000, seed: u64) {
        let (x, y) = (random(n, seed), random(n, seed ^ 1));
        type Binary = fn(&Cpu, &mut [f32], &[f32]);
        type Definition = fn(f64, f64) -> f64;
        let cases: [(&str, Binary, Definition); 3] = [
            ("silu_mul", silu_mul, |x, y| silu(x) * y),
            ("sigmoid_mul", sigmoid_mul, |x, y| x * sigmoid(y)),
            ("add", add, |x, y| x + y),
        ];
        for (name, op, definition) in cases {
            let got = on_all(name, |cpu| {
                let mut out = x.clone();
                op(cpu, &mut out, &y);
                out
            });
            let want: Vec<f64> = d(&x).into_iter().zip(d(&y)).map(|(x, y)| definition(x, y)).collect();
            close(&got, &want, 1e-6, name);
        }
        on_all("gelu_mul", |cpu| {
            let mut out = x.clone();
            gelu_mul(cpu, &mut out, &y);
            out
        });
        let scaled = on_all("scale", |cpu| {
            let mut out = x.clone();
            scale(cpu, &mut out, 1.5);
            out
        });
        prop_assert!(scaled.iter().zip(&x).all(|(a, b)| *a == b * 1.5));
    }

    #[test]
    fn ropes(half in 1usize..40, pass in 0usize..5, heads in 1usize..5, n in 1usize..20, pos0 in 0usize..2000, neox: bool, seed: u64) {
        let (n_rot, head_dim) = (2 * half, 2 * half + pass);
        let x = random(n * heads * head_dim, seed);
        let divisors: Vec<f32> = random(half, seed ^ 3).iter().map(|r| 2.5 + r).collect();
        let angles = Angles { theta_scale: 0.9, divisors: &divisors, mscale: 1.1 };
        let kind = if neox { RopeKind::Neox } else { RopeKind::Norm };
        let got = on_all("rope", |cpu| {
            let (mut table, mut x) = (vec![0.0; n * n_rot], x.clone());
            rope_angles(cpu, angles, pos0, n, &mut table);
            rope(cpu, &mut x, n, heads, head_dim, kind, &table);
            x
        });
        let mut want = d(&x);
        for (t, row) in want.chunks_mut(heads * head_dim).enumerate() {
            for head in row.chunks_mut(head_dim) {
                for (j, divisor) in divisors.iter().enumerate() {
                    let theta = (pos0 + t) as f64 * 0.9f64.powi(j as i32) / f64::from(*divisor);
                    let (a, b) = if neox { (j, j + half) } else { (2 * j, 2 * j + 1) };
                    let (x, y, m) = (head[a], head[b], 1.1);
                    head[a] = (x * theta.cos() - y * theta.sin()) * m;
                    head[b] = (x * theta.sin() + y * theta.cos()) * m;
                }
            }
        }
        // The angle is made in single precision: at position 2000 it is good to about 1e-3.
        close(&got, &want, 1e-6 * (pos0 + n) as f64 + 1e-6, "rope");
    }

    /// However a text is cut into chunks, the convolution and its state are the same.
    #[test]
    fn convolutions(k in 1usize..=MAX_CONV_KERNEL, channels in 1usize..200, cuts in proptest::collection::vec(1usize..9, 1..5), seed: u64) {
        let n: usize = cuts.iter().sum();
        let (x, w) = (random(n * channels, seed), random(channels * k, seed ^ 1));
        let got = on_all("causal_conv1d_silu", |cpu| {
            let (mut state, mut y) = (vec![0.0; (k - 1) * channels], vec![0.0; x.len()]);
            let mut at = 0;
            for cut in &cuts {
                let part = at * channels..(at + cut) * channels;
                causal_conv1d_silu(cpu, &x[part.clone()], &w, k, &mut state, &mut y[part]);
                at += cut;
            }
            let expected: Vec<f32> = (0..(k - 1) * channels).map(|i| {
                let (row, c) = (i / channels, i % channels);
                (n + row).checked_sub(k - 1).map_or(0.0, |t| x[t * channels + c])
            }).collect();
            assert_eq!(state, expected);
            y
        });
        let want: Vec<f64> = (0..n * channels).map(|i| {
            let (t, c) = (i / channels, i % channels);
            let sum: f64 = (0..k).filter_map(|j| {
                let from = (t + j).checked_sub(k - 1)?;
                Some(f64::from(w[c * k + j]) * f64::from(x[from * channels + c]))
            }).sum();
            silu(sum)
        }).collect();
        close(&got, &want, 1e-6, "causal_conv1d_silu");
    }

    /// Against the recurrence as the paper writes it, cut into chunks anywhere.
    #[test]
    fn delta_nets(d_head in 1usize..70, nk in 1usize..4, groups in 1usize..3, cuts in proptest::collection::vec(1usize..6, 1..4), seed: u64) {
        let (nv, n) = (nk * groups, cuts.iter().sum::<usize>());
        let width = (2 * nk + nv) * d_head;
        let qkv = random(n * width, seed);
        let g: Vec<f32> = random(n * nv, seed ^ 1).iter().map(|x| -x.abs()).collect();
        let beta: Vec<f32> = random(n * nv, seed ^ 2).iter().map(|x| 0.5 + x / 5.0).collect();
        let eps = 1e-6;
        let got = on_all("gated_delta_net", |cpu| {
            let (mut state, mut out) = (vec![0.0; nv * d_head * d_head], vec![0.0; n * nv * d_head]);
            let mut at = 0;
            for &cut in &cuts {
                let args = GatedDeltaNet {
                    qkv: &qkv[at * width..(at + cut) * width],
                    g: &g[at * nv..(at + cut) * nv],
                    beta: &beta[at * nv..(at + cut) * nv],
                    n_tokens: cut, nk, nv, d: d_head, eps,
                };
                gated_delta_net(cpu, &args, &mut state, &mut out[at * nv * d_head..(at + cut) * nv * d_head]);
                at += cut;
            }
            out
        });
        let mut want = vec![0.0; got.len()];
        for h in 0..nv {
            // S[key][value].
            let mut s = vec![vec![0.0f64; d_head]; d_head];
            for t in 0..n {
                let row = d(&qkv[t * width..(t + 1) * width]);
                let unit = |x: &[f64]| {
                    let norm = x.iter().map(|x| x * x).sum::<f64>().sqrt().max(f64::from(eps));
                    x.iter().map(|x| x / norm).collect::<Vec<_>>()
                };
                let key = h % nk;
                let q: Vec<f64> = unit(&row[key * d_head..(key + 1) * d_head]).iter().map(|x| x / (d_head as f64).sqrt()).collect();
                let k = unit(&row[(nk + key) * d_head..(nk + key + 1) * d_head]);
                let v = &row[(2 * nk + h) * d_head..(2 * nk + h + 1) * d_head];
                let decay = f64::from(g[t * nv + h]).exp();
                s.iter_mut().flatten().for_each(|x| *x *= decay);
                for j in 0..d_head {
                    let sk: f64 = (0..d_head).map(|i| s[i][j] * k[i]).sum();
                    let e = f64::from(beta[t * nv + h]) * (v[j] - sk);
                    (0..d_head).for_each(|i| s[i][j] += k[i] * e);
                }
                for j in 0..d_head {
                    want[(t * nv + h) * d_head + j] = (0..d_head).map(|i| s[i][j] * q[i]).sum();
                }
            }
        }
        close(&got, &want, 1e-5, "gated_delta_net");
    }

    #[test]
    fn delta_gates(heads in 1usize..40, n in 1usize..5, seed: u64) {
        let (a, b) = (random(heads * n, seed), random(heads * n, seed ^ 1));
        let (dt, ssm_a) = (random(heads, seed ^ 2), random(heads, seed ^ 3));
        let alpha: Vec<f32> = a.iter().map(|x| x * 20.0).collect();
        let got = on_all("delta_net_gates", |cpu| {
            let (mut alpha, mut beta) = (alpha.clone(), b.clone());
            delta_net_gates(cpu, &mut alpha, &mut beta, &dt, &ssm_a);
            alpha.extend(beta);
            alpha
        });
        let mut want: Vec<f64> = alpha.iter().enumerate().map(|(i, x)| {
            let x = f64::from(*x) + f64::from(dt[i % heads]);
            f64::from(ssm_a[i % heads]) * (1.0 + x.exp()).ln()
        }).collect();
        want.extend(d(&b).into_iter().map(sigmoid));
        close(&got, &want, 1e-6, "delta_net_gates");
    }
}

/// Data from a hostile file may be anything; the ops carry it through without a panic.
#[test]
fn not_a_number_and_infinity_pass_through() {
    let x = [
        f32::NAN,
        f32::INFINITY,
        f32::NEG_INFINITY,
        f32::MAX,
        f32::MIN_POSITIVE,
        -0.0,
        1e-40,
        3.0,
    ];
    for cpu in cpus() {
        for op in [silu_mul, gelu_mul, sigmoid_mul, add] {
            let mut y = x;
            op(&cpu, &mut y, &x);
            assert!(y[0].is_nan());
        }
        let mut y = x;
        rms_norm(&cpu, &x, &[1.0; 8], 1e-6, &mut y);
        assert!(y[0].is_nan());
        let mut state = [0.0; 4];
        let args = GatedDeltaNet {
            qkv: &x[..6],
            g: &[f32::NAN],
            beta: &[f32::INFINITY],
            n_tokens: 1,
            nk: 1,
            nv: 1,
            d: 2,
            eps: 1e-6,
        };
        gated_delta_net(&cpu, &args, &mut state, &mut [0.0; 2]);
    }
}
