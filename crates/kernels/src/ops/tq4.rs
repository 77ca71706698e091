//! Cache type tq4: heads rotated by the random Hadamard transform, then in blocks of the tensor type IQ4_NL.
//!
//! Rotated coordinates are nearly normal, and for those 16 uneven levels with a well-chosen scale of each 32 lose less
//! than q4_0's even ones, or than a code for the normal distribution with one scale a head: 0.0055 of the square of a
//! number against 0.0074 and 0.009.

use super::hadamard::{self, MAX_BLOCK};
use super::math::dot;
use super::{for_isa, rotate_heads};
use crate::Isa;
use crate::quant::{IQ4_NL_VALUES, f16_to_f32, f32_to_f16};

/// Numbers of a block: a half for the scale, and half a byte each.
pub(crate) const BLOCK: usize = 32;
/// Bytes of a block.
pub(crate) const BYTES: usize = 2 + BLOCK / 2;

/// The levels, in units of the scale: whole numbers, so that sums of their differences are exact.
const LEVELS: [f32; 16] = levels();
/// Where a level begins: halfway to the one below. The first has no beginning.
const STARTS: [f32; 16] = starts();

const fn levels() -> [f32; 16] {
    let (mut levels, mut i) = ([0.0; 16], 0);
    while i < 16 {
        levels[i] = IQ4_NL_VALUES[i] as f32 - 128.0;
        i += 1;
    }
    levels
}

const fn starts() -> [f32; 16] {
    let (mut starts, mut i) = ([f32::NEG_INFINITY; 16], 1);
    while i < 16 {
        starts[i] = (LEVELS[i - 1] + LEVELS[i]) / 2.0;
        i += 1;
    }
    starts
}

/// Where the largest number of a block is tried: around the lowest level, which is far out, and the highest, which is
/// nearer. A smaller scale cuts the largest off and serves the others better.
const EXTREMES: [f32; 6] = [
    LEVELS[0] * 0.9,
    LEVELS[0],
    LEVELS[0] * 1.1,
    LEVELS[15] * 0.85,
    LEVELS[15] * 0.95,
    LEVELS[15] * 1.05,
];

/// Rotates and stores heads of `head_dim`, a multiple of 32; `x` is a whole number of the heads' blocks of rotation.
pub(crate) fn store(isa: Isa, head_dim: usize, x: &[f32], out: &mut [u8]) {
    let n = hadamard::block(head_dim);
    let mut rotated = [0.0; MAX_BLOCK];
    let rotated = &mut rotated[..n];
    for (x, out) in x
        .chunks_exact(n)
        .zip(out.chunks_exact_mut(n / BLOCK * BYTES))
    {
        rotated.copy_from_slice(x);
        rotate_heads(isa, n, rotated);
        let rotated: &[f32] = rotated;
        for_isa!(isa, quantise, (rotated: &[f32], out: &mut [u8]));
    }
}

#[inline(always)]
fn quantise(x: &[f32], out: &mut [u8]) {
    for (x, out) in x.as_chunks().0.iter().zip(out.chunks_exact_mut(BYTES)) {
        let half = f32_to_f16(best_scale(x));
        let d = f16_to_f32(half);
        out[..2].copy_from_slice(&half.to_le_bytes());
        let q = indices(x, if d == 0.0 { 0.0 } else { 1.0 / d });
        for (i, byte) in out[2..].iter_mut().enumerate() {
            *byte = q[i] | q[i + BLOCK / 2] << 4;
        }
    }
}

/// The scale with the smallest Σ(x - scale·level)² among the least-squares fits to the levels that each of
/// [`EXTREMES`] gives. NaN where a number is not finite: that shall reach the logits, where it is told.
#[inline(always)]
fn best_scale(x: &[f32; BLOCK]) -> f32 {
    let max = x
        .iter()
        .fold(0.0f32, |m, x| if x.abs() > m.abs() { *x } else { m });
    let is_finite = x.iter().fold(true, |all, x| all & x.is_finite());
    if !is_finite {
        return f32::NAN;
    }
    let (mut best, mut scale) = (0.0, 0.0);
    for extreme in EXTREMES {
        let (xq, qq) = fit(x, extreme / max);
        // What the fit takes off Σx².
        let gain = xq / qq * xq;
        if gain > best {
            (best, scale) = (gain, xq / qq);
        }
    }
    scale
}

/// Σ x·level and Σ level², of the levels nearest to `x · inverse`.
#[inline(always)]
fn fit(x: &[f32; BLOCK], inverse: f32) -> (f32, f32) {
    let mut q = [LEVELS[0]; BLOCK];
    for (levels, start) in LEVELS.windows(2).zip(&STARTS[1..]) {
        let step = levels[1] - levels[0];
        for (q, x) in q.iter_mut().zip(x) {
            *q += if x * inverse > *start { step } else { 0.0 };
        }
    }
    (dot(x, &q), dot(&q, &q))
}

/// Which level is nearest to each `x · inverse`.
#[inline(always)]
fn indices(x: &[f32; BLOCK], inverse: f32) -> [u8; BLOCK] {
    let mut q = [0i32; BLOCK];
    for start in &STARTS[1..] {
        for (q, x) in q.iter_mut().zip(x) {
            *q += i32::from(x * inverse > *start);
        }
    }
    q.map(|q| q as u8)
}

/// The rotated numbers that a head's bytes stand for.
pub(crate) fn load(isa: Isa, bytes: &[u8], out: &mut [f32]) {
    match isa {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: `Isa` is chosen only where the CPU has these features.
        Isa::Avx2 | Isa::Avx512 => unsafe { x86::load(bytes, out) },
        _ => load_plain(bytes, out),
    }
}

fn load_plain(bytes: &[u8], out: &mut [f32]) {
    for (b, out) in bytes.chunks_exact(BYTES).zip(out.chunks_exact_mut(BLOCK)) {
        let d = f16_to_f32(u16::from_le_bytes([b[0], b[1]]));
        let (low, high) = out.split_at_mut(BLOCK / 2);
        for ((l, h), q) in low.iter_mut().zip(high).zip(&b[2..]) {
            *l = d * LEVELS[usize::from(q & 15)];
            *h = d * LEVELS[usize::from(q >> 4)];
        }
    }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::*;

    use super::{BLOCK, BYTES};
    use crate::quant::IQ4_NL_VALUES;

    /// As the reference, to the bit: a shuffle of bytes looks the levels up.
    #[target_feature(enable = "avx2,fma,f16c")]
    pub fn load(bytes: &[u8], out: &mut [f32]) {
        // SAFETY: the table is 16 bytes.
        let levels = unsafe { _mm_loadu_si128(IQ4_NL_VALUES.as_ptr().cast()) };
        let levels = _mm_sub_epi8(levels, _mm_set1_epi8(-128));
        let nibble = _mm_set1_epi8(15);
        for (b, out) in bytes.chunks_exact(BYTES).zip(out.chunks_exact_mut(BLOCK)) {
            let half = _mm_set1_epi16(i16::from_le_bytes([b[0], b[1]]));
            let d = _mm256_cvtph_ps(half);
            // SAFETY: 16 bytes follow the scale.
            let q = unsafe { _mm_loadu_si128(b[2..].as_ptr().cast()) };
            let low = _mm_and_si128(q, nibble);
            let high = _mm_and_si128(_mm_srli_epi16::<4>(q), nibble);
            for (out, q) in out.chunks_exact_mut(BLOCK / 2).zip([low, high]) {
                let q = _mm_shuffle_epi8(levels, q);
                let (a, b) = (
                    _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(q)),
                    _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_srli_si128::<8>(q))),
                );
                // SAFETY: `out` is 16 floats; the instructions allow any alignment.
                unsafe {
                    _mm256_storeu_ps(out.as_mut_ptr(), _mm256_mul_ps(a, d));
                    _mm256_storeu_ps(out.as_mut_ptr().add(8), _mm256_mul_ps(b, d));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every scale, every pair of levels in every place.
    #[test]
    fn forms_of_load_agree_to_the_bit() {
        let (mut want, mut got) = ([0.0; 2 * BLOCK], [0.0; 2 * BLOCK]);
        for half in 0..=u16::MAX {
            let mut bytes = [0; 2 * BYTES];
            for block in bytes.chunks_exact_mut(BYTES) {
                block[..2].copy_from_slice(&half.to_le_bytes());
            }
            for (i, q) in bytes.iter_mut().enumerate().filter(|(i, _)| i % BYTES > 1) {
                *q = (usize::from(half) + 7 * i) as u8;
            }
            load(Isa::Scalar, &bytes, &mut want);
            load(Isa::detect(), &bytes, &mut got);
            for (a, b) in want.iter().zip(&got) {
                assert!(a.to_bits() == b.to_bits() || a.is_nan() && b.is_nan());
            }
        }
    }
}
