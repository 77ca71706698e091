//! The tile kernel of AVX2: 16 rows by up to four tokens.

use super::matmul::Sums;
use super::panel::Panel;
use crate::ops::acts::ActSpan;
use crate::quant::Block;
use std::arch::x86_64::*;

/// Tokens of a tile: with 16 rows, eight sums of 16-bit products in registers.
pub(super) const TOKENS: usize = 4;

/// Adds the product of `panel` with the tokens `x`, as many as `sums` has, at most [`TOKENS`].
#[inline]
#[target_feature(enable = "avx2,fma")]
pub(super) fn add<B: Block>(panel: &Panel, x: &[ActSpan], sums: &mut Sums) {
    // Products of pairs are at most 2 * 127 * q; a run of them is added in 16 bits before it is
    // widened: four while q is at most 32, two to 64, and signed whole bytes not at all.
    match (B::GROUP, B::MAX_Q) {
        (32, ..=32) => by_tokens::<32, 4, false>(panel, x, sums),
        (16, ..=32) => by_tokens::<16, 4, false>(panel, x, sums),
        (16, ..=64) => by_tokens::<16, 2, false>(panel, x, sums),
        (32, _) => by_tokens::<32, 1, true>(panel, x, sums),
        _ => unreachable!("no block type has such groups and integers"),
    }
}

#[target_feature(enable = "avx2,fma")]
fn by_tokens<const GROUP: usize, const RUN: usize, const SIGNED: bool>(
    panel: &Panel,
    x: &[ActSpan],
    sums: &mut Sums,
) {
    match sums.len() {
        1 => tile::<GROUP, RUN, SIGNED, 1>(panel, x, sums),
        2 => tile::<GROUP, RUN, SIGNED, 2>(panel, x, sums),
        3 => tile::<GROUP, RUN, SIGNED, 3>(panel, x, sums),
        4 => tile::<GROUP, RUN, SIGNED, 4>(panel, x, sums),
        n => unreachable!("a tile of {n} tokens"),
    }
}

/// `N` tokens. `SIGNED` panels hold signed bytes plus 128 and are multiplied as signed ones, so that
/// their minimum, which is that offset alone, has no part in it.
#[inline]
#[target_feature(enable = "avx2,fma")]
fn tile<const GROUP: usize, const RUN: usize, const SIGNED: bool, const N: usize>(
    panel: &Panel,
    x: &[ActSpan],
    sums: &mut Sums,
) {
    let x: &[ActSpan; N] = x.try_into().expect("N tokens");
    let sums: &mut [[f32; 16]; N] = sums.try_into().expect("N tokens");
    // SAFETY: the loads and stores are of 8 floats or 32 bytes inside the arrays that they name.
    unsafe {
        let mut total: [[__m256; 2]; N] = std::array::from_fn(|t| {
            [
                _mm256_loadu_ps(sums[t].as_ptr()),
                _mm256_loadu_ps(sums[t].as_ptr().add(8)),
            ]
        });
        for g in 0..panel.n_groups.min(256 / GROUP) {
            let mut dots = [[_mm256_setzero_si256(); 2]; N];
            for run in 0..GROUP / 4 / RUN {
                let mut pairs = [[_mm256_setzero_si256(); 2]; N];
                for k in 0..RUN {
                    let four = (g * GROUP / 4) + run * RUN + k;
                    let q = panel.q[four].as_ptr();
                    let w = [
                        _mm256_load_si256(q.cast()),
                        _mm256_load_si256(q.add(32).cast()),
                    ];
                    for t in 0..N {
                        let xq = _mm256_set1_epi32(x[t].q.as_ptr().cast::<i32>().add(four).read());
                        for h in 0..2 {
                            let product = if SIGNED {
                                let w = _mm256_xor_si256(w[h], _mm256_set1_epi8(-128));
                                _mm256_maddubs_epi16(_mm256_abs_epi8(w), _mm256_sign_epi8(xq, w))
                            } else {
                                _mm256_maddubs_epi16(w[h], xq)
                            };
                            pairs[t][h] = _mm256_add_epi16(pairs[t][h], product);
                        }
                    }
                }
                for t in 0..N {
                    for h in 0..2 {
                        let fours = _mm256_madd_epi16(pairs[t][h], _mm256_set1_epi16(1));
                        dots[t][h] = _mm256_add_epi32(dots[t][h], fours);
                    }
                }
            }
            for h in 0..2 {
                let scale = _mm256_load_ps(panel.scale[g].as_ptr().add(8 * h));
                let min = _mm256_load_ps(panel.min[g].as_ptr().add(8 * h));
                for t in 0..N {
                    let both = _mm256_mul_ps(scale, _mm256_set1_ps(x[t].d[g * GROUP / 32]));
                    let dot = _mm256_cvtepi32_ps(dots[t][h]);
                    total[t][h] = _mm256_fmadd_ps(dot, both, total[t][h]);
                    if !SIGNED {
                        let x_sum = if GROUP == 16 {
                            x[t].sum16[g]
                        } else {
                            x[t].sum32[g]
                        };
                        total[t][h] = _mm256_fnmadd_ps(min, _mm256_set1_ps(x_sum), total[t][h]);
                    }
                }
            }
        }
        for t in 0..N {
            _mm256_storeu_ps(sums[t].as_mut_ptr(), total[t][0]);
            _mm256_storeu_ps(sums[t].as_mut_ptr().add(8), total[t][1]);
        }
    }
}
