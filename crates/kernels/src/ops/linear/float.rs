//! Products with weights that are floats: activations stay f32, sums are f32.

use super::Chunk;
use crate::ops::math::{LANES, sum_lanes};
use crate::quant::Float;

#[cfg(target_arch = "x86_64")]
pub(super) use avx2::{matmul as matmul_avx2, matvec as matvec_avx2};

/// One token, plain Rust.
pub(super) fn matvec_scalar<F: Float>(chunk: &mut Chunk<'_>) {
    for (i, r) in chunk.rows.clone().enumerate() {
        chunk.y.token(0)[i] = dot::<F>(chunk.w.row(r), chunk.x.x) + chunk.bias(r);
    }
}

/// Many tokens, plain Rust.
pub(super) fn matmul_scalar<F: Float>(chunk: &mut Chunk<'_>) {
    let cols = chunk.w.cols;
    for (i, r) in chunk.rows.clone().enumerate() {
        for t in 0..chunk.x.n_tokens {
            let x = &chunk.x.x[t * cols..(t + 1) * cols];
            chunk.y.token(t)[i] = dot::<F>(chunk.w.row(r), x) + chunk.bias(r);
        }
    }
}

/// In the order of the SIMD form: the same bits.
fn dot<F: Float>(row: &[u8], x: &[f32]) -> f32 {
    let mut sums = [0.0; LANES];
    for (w, x) in row.chunks(LANES * F::BYTES).zip(x.chunks(LANES)) {
        for ((w, x), sum) in w.chunks_exact(F::BYTES).zip(x).zip(&mut sums) {
            *sum = F::to_f32(w).mul_add(*x, *sum);
        }
    }
    sum_lanes(sums)
}

#[cfg(target_arch = "x86_64")]
mod avx2 {
    use super::super::Chunk;
    use super::{LANES, sum_lanes};
    use crate::quant::{Avx2, Float};
    use std::arch::x86_64::*;

    /// One token: two rows at a time.
    #[target_feature(enable = "avx2,fma,f16c")]
    pub fn matvec<F: Float>(v: Avx2, chunk: &mut Chunk<'_>) {
        tiles::<F, 2, 1>(v, chunk);
    }

    /// Many tokens: two rows by three tokens at a time, twelve sums in registers.
    #[target_feature(enable = "avx2,fma,f16c")]
    pub fn matmul<F: Float>(v: Avx2, chunk: &mut Chunk<'_>) {
        tiles::<F, 2, 3>(v, chunk);
    }

    /// Every product is summed in the same order, whatever the tile: one token or many give the same bits.
    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    fn tiles<F: Float, const ROWS: usize, const TOKENS: usize>(v: Avx2, chunk: &mut Chunk<'_>) {
        let (cols, n_tokens) = (chunk.w.cols, chunk.x.n_tokens);
        let rows = chunk.rows.clone();
        for t in (0..n_tokens).step_by(TOKENS) {
            for r in rows.clone().step_by(ROWS) {
                // A tile is always whole: what is missing is a row or token that is there.
                let w = std::array::from_fn(|i| chunk.w.row((r + i).min(rows.end - 1)));
                let x = std::array::from_fn(|i| {
                    let t = (t + i).min(n_tokens - 1);
                    &chunk.x.x[t * cols..(t + 1) * cols]
                });
                let sums = tile::<F, ROWS, TOKENS>(v, w, x);
                for (i, sums) in sums.iter().enumerate().take(rows.end - r) {
                    let bias = chunk.bias(r + i);
                    for (j, sum) in sums.iter().enumerate().take(n_tokens - t) {
                        chunk.y.token(t + j)[r - rows.start + i] = sum + bias;
                    }
                }
            }
        }
    }

    /// The products of some rows with some tokens.
    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    fn tile<F: Float, const ROWS: usize, const TOKENS: usize>(
        v: Avx2,
        w: [&[u8]; ROWS],
        x: [&[f32]; TOKENS],
    ) -> [[f32; TOKENS]; ROWS] {
        let cols = x[0].len();
        let n = cols / LANES * LANES;
        assert!(x.iter().all(|x| x.len() == cols) && w.iter().all(|w| w.len() == cols * F::BYTES));
        let mut sums = [[[_mm256_setzero_ps(); 2]; TOKENS]; ROWS];
        for c in (0..n).step_by(LANES) {
            // SAFETY: `c + LANES` is at most the length of each `x`.
            let x = x.map(|x| unsafe {
                [
                    _mm256_loadu_ps(x.as_ptr().add(c)),
                    _mm256_loadu_ps(x.as_ptr().add(c + 8)),
                ]
            });
            for (sums, w) in sums.iter_mut().zip(w) {
                let w = [
                    F::load8(v, &w[c * F::BYTES..]),
                    F::load8(v, &w[(c + 8) * F::BYTES..]),
                ];
                for (sums, x) in sums.iter_mut().zip(x) {
                    sums[0] = _mm256_fmadd_ps(w[0], x[0], sums[0]);
                    sums[1] = _mm256_fmadd_ps(w[1], x[1], sums[1]);
                }
            }
        }
        let mut out = [[0.0; TOKENS]; ROWS];
        for (r, out) in out.iter_mut().enumerate() {
            for (t, out) in out.iter_mut().enumerate() {
                let mut lanes = [0.0f32; LANES];
                // SAFETY: room for two registers.
                unsafe {
                    _mm256_storeu_ps(lanes.as_mut_ptr(), sums[r][t][0]);
                    _mm256_storeu_ps(lanes.as_mut_ptr().add(8), sums[r][t][1]);
                }
                let rest = w[r][n * F::BYTES..].chunks_exact(F::BYTES).zip(&x[t][n..]);
                for ((w, x), lane) in rest.zip(&mut lanes) {
                    *lane = F::to_f32(w).mul_add(*x, *lane);
                }
                *out = sum_lanes(lanes);
            }
        }
        out
    }
}
