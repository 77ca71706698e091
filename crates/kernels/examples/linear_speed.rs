//! Speed of the products: `cargo run --release -p ounce-kernels --example linear_speed [THREADS [TYPE...]]`.
//!
//! Matrix-vector in GB/s of weights over a matrix of about 100 MB, matrix-matrix in GMAC/s at 128 and 512
//! tokens over one of 2048 by 2048, each the best of several runs.

use ounce_kernels::ops::acts::ActBuf;
use ounce_kernels::ops::linear::{LinearOut, linear};
use ounce_kernels::quant::has_kernel;
use ounce_kernels::{Cpu, Isa, Mat, TensorType, default_threads};
use std::time::Instant;

const COLS: usize = 2048;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let n_threads = args.next().map_or(Ok(default_threads()), |n| n.parse())?;
    let names: Vec<String> = args.collect();
    let isa = Isa::choose()?;
    let cpu = Cpu::new(isa, n_threads);
    println!("{isa:?}, {n_threads} threads");
    println!("read        {:6.1} GB/s", read_bandwidth(&cpu));
    for &ty in TensorType::ALL.iter().filter(|&&ty| has_kernel(ty)) {
        if !names.is_empty() && !names.iter().any(|n| n == ty.name()) {
            continue;
        }
        let row_bytes = COLS / ty.block_len() * ty.block_bytes();
        let rows = (100 << 20) / row_bytes;
        let mut weights: Vec<u8> = (0..rows * row_bytes)
            .map(|i| ((i * 7919) >> 3) as u8 & 0x0b | 0x30)
            .collect();
        let vector = time(&cpu, ty, rows, &weights, 1);
        weights.truncate(2048 * row_bytes);
        print!(
            "{:8} matvec {:6.1} GB/s",
            ty.name(),
            (rows * row_bytes) as f64 / vector / 1e9
        );
        for n_tokens in [128, 512] {
            let seconds = time(&cpu, ty, 2048, &weights, n_tokens);
            print!(
                "   {n_tokens} tokens {:6.1} GMAC/s",
                (2048 * COLS * n_tokens) as f64 / seconds / 1e9
            );
        }
        println!();
    }
    Ok(())
}

/// Seconds of the best run.
fn time(cpu: &Cpu, ty: TensorType, rows: usize, weights: &[u8], n_tokens: usize) -> f64 {
    let x: Vec<f32> = (0..n_tokens * COLS)
        .map(|i| (i % 61) as f32 / 61.0 - 0.5)
        .collect();
    let mut y = vec![0.0; n_tokens * rows];
    let mut acts = ActBuf::new(n_tokens, COLS);
    let w = Mat::new(ty, rows, COLS, weights).expect("whole rows");
    best(|| {
        linear(
            cpu,
            &mut acts,
            &x,
            n_tokens,
            &mut [LinearOut {
                w,
                bias: None,
                y: &mut y,
            }],
        )
    })
}

/// GB/s of summing 256 MB.
fn read_bandwidth(cpu: &Cpu) -> f64 {
    let data = vec![1u64; 32 << 20];
    let part = data.len() / cpu.pool.n_threads();
    let seconds = best(|| {
        cpu.pool.run(&|i| {
            let mut sums = [0u64; 16];
            for x in data[i * part..(i + 1) * part].as_chunks::<16>().0 {
                sums.iter_mut()
                    .zip(x)
                    .for_each(|(sum, x)| *sum = sum.wrapping_add(*x));
            }
            std::hint::black_box(sums);
        })
    });
    (data.len() * 8) as f64 / seconds / 1e9
}

fn best(mut f: impl FnMut()) -> f64 {
    (0..7)
        .map(|_| {
            let start = Instant::now();
            f();
            start.elapsed().as_secs_f64()
        })
        .fold(f64::INFINITY, f64::min)
}
