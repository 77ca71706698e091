//! The matrix products of every type, on every instruction set this CPU has, against `f64`.

use ounce_kernels::ops::acts::ActBuf;
use ounce_kernels::ops::linear::{LinearOut, linear};
use ounce_kernels::quant::{dequantize_row, has_kernel};
use ounce_kernels::{Cpu, Isa, Mat, TensorType};
use proptest::prelude::*;

/// Instruction sets to test: the scalar code and whatever else this CPU can run.
fn isas() -> Vec<Isa> {
    let mut isas = vec![Isa::Scalar];
    #[cfg(target_arch = "x86_64")]
    {
        let avx2 = is_x86_feature_detected!("avx2")
            && is_x86_feature_detected!("fma")
            && is_x86_feature_detected!("f16c");
        let avx512 = avx2
            && is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("avx512vl")
            && is_x86_feature_detected!("avx512dq");
        isas.extend(avx2.then_some(Isa::Avx2));
        isas.extend(avx512.then_some(Isa::Avx512));
    }
    isas
}

fn types() -> Vec<TensorType> {
    TensorType::ALL
        .iter()
        .copied()
        .filter(|&ty| has_kernel(ty))
        .collect()
}

fn is_float(ty: TensorType) -> bool {
    matches!(ty, TensorType::F32 | TensorType::F16 | TensorType::BF16)
}

/// Small deterministic random numbers.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u32 {
        self.0 = self
            .0
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        (self.0 >> 33) as u32
    }

    fn unit(&mut self) -> f32 {
        self.next() as f32 / (1u32 << 30) as f32 - 1.0
    }
}

/// Rows of random blocks whose scales are numbers of ordinary size.
fn weights(random: &mut Random, ty: TensorType, rows: usize, cols: usize) -> Vec<u8> {
    use TensorType::*;
    let mut bytes: Vec<u8> = (0..rows * cols / ty.block_len() * ty.block_bytes())
        .map(|_| random.next() as u8)
        .collect();
    // Where a block has half-precision numbers.
    let halves: &[usize] = match ty {
        F16 | Q4_0 | Q5_0 | Q8_0 | IQ4_NL | IQ4_XS | IQ3_S => &[0],
        Q4_1 | Q5_1 | Q4_K | Q5_K => &[0, 2],
        Q2_K => &[80, 82],
        Q3_K => &[108],
        Q6_K => &[208],
        TQ1_0 => &[52],
        TQ2_0 => &[64],
        F32 | BF16 | MXFP4 => &[],
        _ => panic!("no layout for {ty}"),
    };
    for block in bytes.chunks_exact_mut(ty.block_bytes()) {
        for &at in halves {
            // 2^-7 to 2^-3, either sign.
            let exponent = 8 + random.next() as u16 % 5;
            let half = (random.next() as u16 & 0x83ff) | exponent << 10;
            block[at..at + 2].copy_from_slice(&half.to_le_bytes());
        }
        match ty {
            F32 => block.copy_from_slice(&random.unit().to_le_bytes()),
            BF16 => block.copy_from_slice(&random.unit().to_le_bytes()[2..]),
            MXFP4 => block[0] = 120 + (random.next() % 5) as u8,
            _ => {}
        }
    }
    bytes
}

/// Activations that int8 blocks of 32 hold exactly: whole numbers of a power of two, 127 among them.
fn exact_activations(random: &mut Random, n: usize) -> Vec<f32> {
    let mut x: Vec<f32> = Vec::with_capacity(n);
    while x.len() < n {
        let step = 2f32.powi(random.next() as i32 % 6 - 9);
        let at = random.next() % 32;
        x.extend((0..32).map(|i| {
            step * if i == at {
                -127.0
            } else {
                (random.next() % 255) as f32 - 127.0
            }
        }));
    }
    x.truncate(n);
    x
}

fn dequantized(w: &Mat<'_>, r: usize) -> Vec<f64> {
    let mut row = vec![0.0; w.cols];
    dequantize_row(w.ty, w.row(r), &mut row);
    row.into_iter().map(f64::from).collect()
}

/// `y` of one product.
fn product(cpu: &Cpu, w: Mat<'_>, bias: Option<&[f32]>, x: &[f32], n_tokens: usize) -> Vec<f32> {
    let mut y = vec![f32::NAN; n_tokens * w.rows];
    let mut acts = ActBuf::new(n_tokens, w.cols);
    linear(
        cpu,
        &mut acts,
        x,
        n_tokens,
        &mut [LinearOut { w, bias, y: &mut y }],
    );
    y
}

/// Checks a product with the sum of dequantised weights times `x` in f64. `int8` allows for
/// activations that int8 does not hold exactly: half a step each.
fn check(what: &str, w: &Mat<'_>, bias: Option<&[f32]>, x: &[f32], y: &[f32], int8: bool) {
    for r in 0..w.rows {
        let row = dequantized(w, r);
        let largest = row.iter().fold(0.0, |m: f64, w| m.max(w.abs()));
        for (t, x) in x.chunks(w.cols).enumerate() {
            let (mut want, mut size, mut step_error) =
                (bias.map_or(0.0, |b| f64::from(b[r])), 0.0, 0.0);
            for (row, x) in row.chunks(32).zip(x.chunks(32)) {
                let max = x.iter().fold(0f32, |m, x| m.max(x.abs()));
                for (w, x) in row.iter().zip(x) {
                    want += w * f64::from(*x);
                    size += f64::from(x.abs());
                    step_error += w.abs() * f64::from(max) / 127.0 * 0.5001;
                }
            }
            // Rounding of f32 sums, whose terms are as large as the largest weight (minima, offsets).
            let tolerance =
                2e-6 * (size * largest + want.abs()) + if int8 { step_error } else { 0.0 };
            let got = f64::from(y[t * w.rows + r]);
            assert!(
                (got - want).abs() <= tolerance,
                "{what}: row {r} token {t}: {got} is not {want} within {tolerance}"
            );
        }
    }
}

/// Columns that suit the type's blocks.
fn cols_for(ty: TensorType, choice: usize) -> usize {
    match ty.block_len() {
        1 => [1, 7, 8, 31, 32, 65, 100, 256, 300, 515][choice % 10],
        32 => [32, 64, 96, 160, 224, 256, 288, 480, 512, 576][choice % 10],
        block => block * (choice % 3 + 1),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    /// Every type, instruction set, tail and thread count: exact where int8 is.
    #[test]
    fn products_are_those_of_the_dequantised_weights(
        seed in any::<u64>(),
        rows in 1usize..40,
        n_tokens in prop_oneof![Just(1usize), 2usize..20],
        choice in 0usize..10,
        with_bias in any::<bool>(),
        n_threads in 1usize..=3,
    ) {
        let random = &mut Random(seed);
        for ty in types() {
            let cols = cols_for(ty, choice);
            let bytes = weights(random, ty, rows, cols);
            let w = Mat::new(ty, rows, cols, &bytes).unwrap();
            let x = exact_activations(random, n_tokens * cols);
            let rough: Vec<f32> = (0..n_tokens * cols).map(|_| random.unit()).collect();
            let bias: Vec<f32> = (0..rows).map(|_| random.unit()).collect();
            let bias = with_bias.then_some(&bias[..]);
            for isa in isas() {
                let cpu = Cpu::new(isa, n_threads);
                let what = format!("{ty} {isa:?} [{rows}][{cols}] {n_tokens} tokens {n_threads} threads");
                // Token boundaries cut blocks when the columns are no multiple of 32: floats only.
                check(&what, &w, bias, &x, &product(&cpu, w, bias, &x, n_tokens), false);
                check(&what, &w, bias, &rough, &product(&cpu, w, bias, &rough, n_tokens), !is_float(ty));
            }
        }
    }

    /// Weights and activations of any bits: whatever comes out, nothing panics, and what is not finite
    /// in x is not finite in y.
    #[test]
    fn hostile_bits_do_no_harm(seed in any::<u64>(), n_tokens in 1usize..6, choice in 0usize..10) {
        let random = &mut Random(seed);
        for ty in types() {
            let (rows, cols) = (19, cols_for(ty, choice));
            let wild: Vec<u8> =
                (0..rows * cols / ty.block_len() * ty.block_bytes()).map(|_| random.next() as u8).collect();
            let tame = weights(random, ty, rows, cols);
            let mut x: Vec<f32> = (0..n_tokens * cols)
                .map(|_| f32::from_bits(random.next() << 1 | random.next() & 1))
                .collect();
            for isa in isas() {
                let cpu = Cpu::new(isa, 2);
                product(&cpu, Mat::new(ty, rows, cols, &wild).unwrap(), None, &x, n_tokens);
            }
            x.fill(0.5);
            x[(n_tokens - 1) * cols] = f32::NAN;
            for isa in isas() {
                let cpu = Cpu::new(isa, 2);
                let y = product(&cpu, Mat::new(ty, rows, cols, &tame).unwrap(), None, &x, n_tokens);
                let (clean, bad) = y.split_at((n_tokens - 1) * rows);
                prop_assert!(clean.iter().all(|y| y.is_finite()), "{} {:?}: {:?}", ty, isa, clean);
                prop_assert!(bad.iter().all(|y| y.is_nan()), "{} {:?}: {:?}", ty, isa, bad);
            }
        }
    }
}

/// Matrices of all types in one call, more than a round takes, some with a bias, and each the same bits
/// as in a call of its own, whatever the number of threads.
#[test]
fn many_matrices_share_one_input() {
    let random = &mut Random(7);
    let cols = 512;
    for isa in isas() {
        for n_tokens in [1, 2, 11] {
            let x: Vec<f32> = (0..n_tokens * cols).map(|_| random.unit()).collect();
            let all: Vec<_> = types()
                .into_iter()
                .enumerate()
                .map(|(i, ty)| {
                    let rows = 1 + 37 * i;
                    let bias: Option<Vec<f32>> = i
                        .is_multiple_of(2)
                        .then(|| (0..rows).map(|_| random.unit()).collect());
                    (ty, rows, weights(random, ty, rows, cols), bias)
                })
                .collect();
            let mat = |i: usize| Mat::new(all[i].0, all[i].1, cols, &all[i].2).unwrap();
            let alone: Vec<Vec<f32>> = (0..all.len())
                .map(|i| product(&Cpu::new(isa, 1), mat(i), all[i].3.as_deref(), &x, n_tokens))
                .collect();
            for n_threads in [1, 2, 3] {
                let mut y: Vec<Vec<f32>> =
                    all.iter().map(|m| vec![f32::NAN; n_tokens * m.1]).collect();
                let mut outs: Vec<LinearOut<'_>> = y
                    .iter_mut()
                    .enumerate()
                    .map(|(i, y)| LinearOut {
                        w: mat(i),
                        bias: all[i].3.as_deref(),
                        y,
                    })
                    .collect();
                let mut acts = ActBuf::new(n_tokens, cols);
                linear(
                    &Cpu::new(isa, n_threads),
                    &mut acts,
                    &x,
                    n_tokens,
                    &mut outs,
                );
                assert_eq!(y, alone, "{isa:?}, {n_tokens} tokens, {n_threads} threads");
            }
        }
    }
}

/// The typical error, not only its bound: int8 in blocks of 32 costs about half a percent of a term.
#[test]
fn int8_activations_cost_less_than_a_percent() {
    let random = &mut Random(3);
    for ty in types() {
        let (rows, cols) = (64, 1024);
        let bytes = weights(random, ty, rows, cols);
        let w = Mat::new(ty, rows, cols, &bytes).unwrap();
        let x: Vec<f32> = (0..cols).map(|_| random.unit()).collect();
        for isa in isas() {
            let y = product(&Cpu::new(isa, 1), w, None, &x, 1);
            let (mut error, mut size) = (0.0, 0.0);
            for (r, y) in y.iter().enumerate() {
                let row = dequantized(&w, r);
                let want: f64 = row.iter().zip(&x).map(|(w, x)| w * f64::from(*x)).sum();
                error += (want - f64::from(*y)).powi(2);
                size += row
                    .iter()
                    .zip(&x)
                    .map(|(w, x)| (w * f64::from(*x)).powi(2))
                    .sum::<f64>();
            }
            assert!(
                (error / size).sqrt() < 0.006,
                "{ty} {isa:?}: {}",
                (error / size).sqrt()
            );
        }
    }
}

#[test]
fn nothing_to_do_is_done() {
    let cpu = Cpu::new(Isa::Scalar, 2);
    let mut acts = ActBuf::new(0, 0);
    linear(&cpu, &mut acts, &[], 0, &mut []);
    let w = Mat::new(TensorType::Q8_0, 3, 0, &[]).unwrap();
    linear(
        &cpu,
        &mut acts,
        &[],
        0,
        &mut [LinearOut {
            w,
            bias: None,
            y: &mut [],
        }],
    );
    for isa in isas() {
        for ty in [TensorType::Q8_0, TensorType::F16] {
            for n_tokens in [1, 2] {
                let w = Mat::new(ty, 3, 0, &[]).unwrap();
                let y = product(&Cpu::new(isa, 1), w, Some(&[1.0, 2.0, 3.0]), &[], n_tokens);
                assert_eq!(
                    y,
                    [1.0, 2.0, 3.0].repeat(n_tokens),
                    "{isa:?} {ty} {n_tokens}"
                );
            }
        }
    }
}

#[test]
#[should_panic(expected = "do not fit into the activation buffer")]
fn a_buffer_too_small_is_refused() {
    let bytes = [0; 34];
    let w = Mat::new(TensorType::Q8_0, 1, 32, &bytes).unwrap();
    let mut acts = ActBuf::new(1, 32);
    linear(
        &Cpu::new(Isa::Scalar, 1),
        &mut acts,
        &[0.0; 64],
        2,
        &mut [LinearOut {
            w,
            bias: None,
            y: &mut [0.0; 2],
        }],
    );
}

#[test]
#[should_panic(expected = "no kernel for IQ1_S")]
fn a_type_without_a_kernel_is_refused() {
    let bytes = [0; 50];
    let w = Mat::new(TensorType::IQ1_S, 1, 256, &bytes).unwrap();
    product(&Cpu::new(Isa::Scalar, 1), w, None, &[0.0; 256], 1);
}
