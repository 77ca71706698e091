//! The tile kernel of AVX-512 with VNNI: 16 rows, one a lane, by up to eight tokens.

use super::matmul::Sums;
use super::panel::Panel;
use crate::ops::acts::ActSpan;
use crate::quant::Block;
use std::arch::x86_64::*;

/// Tokens of a tile: eight sums and eight dot products in registers.
pub(super) const TOKENS: usize = 8;

/// Adds the product of `panel` with the tokens `x`, as many as `sums` has, at most [`TOKENS`].
#[inline]
#[target_feature(enable = "avx512f,avx512vnni")]
pub(super) fn add<B: Block>(panel: &Panel, x: &[ActSpan], sums: &mut Sums) {
    if B::GROUP == 16 {
        by_tokens::<16>(panel, x, sums)
    } else {
        by_tokens::<32>(panel, x, sums)
    }
}

#[target_feature(enable = "avx512f,avx512vnni")]
fn by_tokens<const GROUP: usize>(panel: &Panel, x: &[ActSpan], sums: &mut Sums) {
    match sums.len() {
        1 => tile::<GROUP, 1>(panel, x, sums),
        2 => tile::<GROUP, 2>(panel, x, sums),
        3 => tile::<GROUP, 3>(panel, x, sums),
        4 => tile::<GROUP, 4>(panel, x, sums),
        5 => tile::<GROUP, 5>(panel, x, sums),
        6 => tile::<GROUP, 6>(panel, x, sums),
        7 => tile::<GROUP, 7>(panel, x, sums),
        8 => tile::<GROUP, 8>(panel, x, sums),
        n => unreachable!("a tile of {n} tokens"),
    }
}

#[inline]
#[target_feature(enable = "avx512f,avx512vnni")]
fn tile<const GROUP: usize, const N: usize>(panel: &Panel, x: &[ActSpan], sums: &mut Sums) {
    let x: &[ActSpan; N] = x.try_into().expect("N tokens");
    let sums: &mut [[f32; 16]; N] = sums.try_into().expect("N tokens");
    // SAFETY: the loads and stores are of 16 floats or 64 bytes, the whole of the arrays that they name.
    unsafe {
        let mut total: [__m512; N] = std::array::from_fn(|t| _mm512_loadu_ps(sums[t].as_ptr()));
        for g in 0..panel.n_groups.min(256 / GROUP) {
            let mut dots = [_mm512_setzero_si512(); N];
            for k in 0..GROUP / 4 {
                let four = g * GROUP / 4 + k;
                let w = _mm512_load_si512(panel.q[four].as_ptr().cast());
                for t in 0..N {
                    let x = _mm512_set1_epi32(x[t].q.as_ptr().cast::<i32>().add(four).read());
                    dots[t] = _mm512_dpbusd_epi32(dots[t], w, x);
                }
            }
            let scale = _mm512_load_ps(panel.scale[g].as_ptr());
            let min = _mm512_load_ps(panel.min[g].as_ptr());
            for t in 0..N {
                let both = _mm512_mul_ps(scale, _mm512_set1_ps(x[t].d[g * GROUP / 32]));
                let x_sum = if GROUP == 16 {
                    x[t].sum16[g]
                } else {
                    x[t].sum32[g]
                };
                total[t] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(dots[t]), both, total[t]);
                total[t] = _mm512_fnmadd_ps(min, _mm512_set1_ps(x_sum), total[t]);
            }
        }
        for t in 0..N {
            _mm512_storeu_ps(sums[t].as_mut_ptr(), total[t]);
        }
    }
}
