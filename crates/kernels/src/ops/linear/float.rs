//! Products with weights that are floats: activations stay f32, sums are f32.

use super::Chunk;
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

/// Eight sums, added at the end: nearer to the true sum than one, and what compilers make SIMD of.
fn dot<F: Float>(row: &[u8], x: &[f32]) -> f32 {
    let mut sums = [0f32; 8];
    for (w, x) in row.chunks(8 * F::BYTES).zip(x.chunks(8)) {
        for ((w, x), sum) in w.chunks_exact(F::BYTES).zip(x).zip(&mut sums) {
            *sum += F::to_f32(w) * x;
        }
    }
    sums.iter().sum()
}

#[cfg(target_arch = "x86_64")]
mod avx2 {
    use super::super::{Chunk, TILE_ROWS, matvec::sum_of_lanes};
    use crate::quant::{Avx2, Float};
    use std::arch::x86_64::*;

    /// One token.
    #[target_feature(enable = "avx2,fma,f16c")]
    pub fn matvec<F: Float>(v: Avx2, chunk: &mut Chunk<'_>) {
        for (i, r) in chunk.rows.clone().enumerate() {
            chunk.y.token(0)[i] = dot::<F>(v, chunk.w.row(r), chunk.x.x) + chunk.bias(r);
        }
    }

    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    fn dot<F: Float>(v: Avx2, row: &[u8], x: &[f32]) -> f32 {
        let mut sums = [_mm256_setzero_ps(); 4];
        let (x32, x_rest) = x.as_chunks::<32>();
        let (w32, w_rest) = row.split_at(x32.len() * 32 * F::BYTES);
        for (w, x) in w32.chunks_exact(32 * F::BYTES).zip(x32) {
            for (i, sum) in sums.iter_mut().enumerate() {
                // SAFETY: eight of 32 floats.
                let x = unsafe { _mm256_loadu_ps(x.as_ptr().add(8 * i)) };
                *sum = _mm256_fmadd_ps(F::load8(v, &w[8 * i * F::BYTES..]), x, *sum);
            }
        }
        let sums = _mm256_add_ps(
            _mm256_add_ps(sums[0], sums[1]),
            _mm256_add_ps(sums[2], sums[3]),
        );
        sum_of_lanes(sums) + super::dot::<F>(w_rest, x_rest)
    }

    /// Columns of a panel.
    const COLS: usize = 256;
    /// Tokens of a tile: with 16 rows, twelve sums in registers.
    const TOKENS: usize = 6;

    /// 16 rows by 256 columns, `[column][row]`.
    #[repr(align(64))]
    struct Panel([[f32; TILE_ROWS]; COLS]);

    /// Many tokens: panels of 16 rows by 256 columns, converted once and multiplied with all of them.
    #[target_feature(enable = "avx2,fma,f16c")]
    pub fn matmul<F: Float>(v: Avx2, chunk: &mut Chunk<'_>) {
        let (cols, n_tokens) = (chunk.w.cols, chunk.x.n_tokens);
        let rows = chunk.rows.clone();
        chunk.set_to_bias();
        let mut panel = Panel([[0.0; TILE_ROWS]; COLS]);
        for first in rows.clone().step_by(TILE_ROWS) {
            let n_rows = TILE_ROWS.min(rows.end - first);
            let at = first - rows.start;
            for c in (0..cols).step_by(COLS) {
                let n_cols = COLS.min(cols - c);
                for r in 0..n_rows {
                    let row = &chunk.w.row(first + r)[c * F::BYTES..(c + n_cols) * F::BYTES];
                    fill::<F>(v, &mut panel, r, row);
                }
                for t in (0..n_tokens).step_by(TOKENS) {
                    let n = TOKENS.min(n_tokens - t);
                    let mut sums = [[0.0; TILE_ROWS]; TOKENS];
                    for (i, sums) in sums[..n].iter_mut().enumerate() {
                        sums[..n_rows].copy_from_slice(&chunk.y.token(t + i)[at..at + n_rows]);
                    }
                    // A tile is always whole: what is missing is a token that is there.
                    let x = std::array::from_fn(|i| {
                        let t = t + i.min(n - 1);
                        &chunk.x.x[t * cols + c..t * cols + c + n_cols]
                    });
                    tile(&panel, n_cols, x, &mut sums);
                    for (i, sums) in sums[..n].iter().enumerate() {
                        chunk.y.token(t + i)[at..at + n_rows].copy_from_slice(&sums[..n_rows]);
                    }
                }
            }
        }
    }

    /// Converts a row into column `r` of the panel.
    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    fn fill<F: Float>(v: Avx2, panel: &mut Panel, r: usize, row: &[u8]) {
        let mut eight = [0f32; 8];
        for (w, out) in row.chunks(8 * F::BYTES).zip(panel.0.chunks_mut(8)) {
            if w.len() == 8 * F::BYTES {
                // SAFETY: room for eight floats.
                unsafe { _mm256_storeu_ps(eight.as_mut_ptr(), F::load8(v, w)) };
            } else {
                for (w, x) in w.chunks_exact(F::BYTES).zip(&mut eight) {
                    *x = F::to_f32(w);
                }
            }
            for (column, x) in out.iter_mut().zip(eight) {
                column[r] = x;
            }
        }
    }

    /// Adds the product of the panel's first `n_cols` columns with six tokens.
    #[inline]
    #[target_feature(enable = "avx2,fma")]
    fn tile(
        panel: &Panel,
        n_cols: usize,
        x: [&[f32]; TOKENS],
        sums: &mut [[f32; TILE_ROWS]; TOKENS],
    ) {
        assert!(n_cols <= COLS && x.iter().all(|x| x.len() == n_cols));
        // SAFETY: loads and stores of eight floats inside the arrays of sixteen that they name; column
        // `c` is below `n_cols`, which the assertion holds against the panel and every token.
        unsafe {
            let mut total: [[__m256; 2]; TOKENS] = std::array::from_fn(|t| {
                [
                    _mm256_loadu_ps(sums[t].as_ptr()),
                    _mm256_loadu_ps(sums[t].as_ptr().add(8)),
                ]
            });
            for c in 0..n_cols {
                let w = panel.0.get_unchecked(c).as_ptr();
                let w = [_mm256_load_ps(w), _mm256_load_ps(w.add(8))];
                for t in 0..TOKENS {
                    let x = _mm256_set1_ps(*x[t].get_unchecked(c));
                    total[t][0] = _mm256_fmadd_ps(w[0], x, total[t][0]);
                    total[t][1] = _mm256_fmadd_ps(w[1], x, total[t][1]);
                }
            }
            for t in 0..TOKENS {
                _mm256_storeu_ps(sums[t].as_mut_ptr(), total[t][0]);
                _mm256_storeu_ps(sums[t].as_mut_ptr().add(8), total[t][1]);
            }
        }
    }
}
