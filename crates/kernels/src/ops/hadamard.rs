//! The random Hadamard transform of heads: signs, then the fast Walsh-Hadamard transform, an orthogonal matrix that
//! spreads outliers over all coordinates and makes them nearly normal (QuaRot, arXiv 2404.00456; TurboQuant, arXiv
//! 2504.19874). It keeps scalar products, and being linear it commutes with weighted sums.

use crate::Isa;

/// Coordinates transformed together, at most: enough to make them normal, and few enough for the stack.
pub(crate) const MAX_BLOCK: usize = 256;

/// The fixed random signs, of every block alike.
const SIGNS: [f32; MAX_BLOCK] = signs();

const fn signs() -> [f32; MAX_BLOCK] {
    let (mut signs, mut state, mut i) = ([1.0; MAX_BLOCK], 0x9e37_79b9_7f4a_7c15u64, 0);
    while i < MAX_BLOCK {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        if state >> 63 == 1 {
            signs[i] = -1.0;
        }
        i += 1;
    }
    signs
}

/// Length of the blocks that heads of `head_dim` are transformed in: the largest power of two that divides it, or
/// [`MAX_BLOCK`].
pub(crate) fn block(head_dim: usize) -> usize {
    (1 << head_dim.trailing_zeros()).min(MAX_BLOCK)
}

/// Rotates heads in place: each block `x` of a head, of the largest power of two that divides `head_dim` but at most
/// 256, becomes `H·D·x / √n`.
///
/// # Panics
/// When `x` is no whole number of heads.
pub fn rotate_heads(isa: Isa, head_dim: usize, x: &mut [f32]) {
    assert_eq!(x.len() % head_dim, 0);
    for x in x.chunks_exact_mut(block(head_dim)) {
        sign(x);
        walsh(isa, x);
    }
}

/// The inverse of [`rotate_heads`]: `D·H·x / √n`.
///
/// # Panics
/// When `x` is no whole number of heads.
pub fn unrotate_heads(isa: Isa, head_dim: usize, x: &mut [f32]) {
    assert_eq!(x.len() % head_dim, 0);
    for x in x.chunks_exact_mut(block(head_dim)) {
        walsh(isa, x);
        sign(x);
    }
}

/// `D·x / √n`.
fn sign(x: &mut [f32]) {
    let scale = (x.len() as f32).sqrt().recip();
    x.iter_mut().zip(&SIGNS).for_each(|(x, s)| *x *= s * scale);
}

/// `H·x`, the Walsh-Hadamard matrix in natural order.
fn walsh(isa: Isa, x: &mut [f32]) {
    match isa {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: `Isa` is chosen only where the CPU has AVX2.
        Isa::Avx2 | Isa::Avx512 if x.len() >= 8 => unsafe { x86::walsh(x) },
        _ => butterflies(x, 1),
    }
}

/// The stages from half the length down to a distance of `last`.
#[inline(always)]
fn butterflies(x: &mut [f32], last: usize) {
    let mut distance = x.len() / 2;
    while distance >= last {
        for pair in x.chunks_exact_mut(2 * distance) {
            let (a, b) = pair.split_at_mut(distance);
            for (a, b) in a.iter_mut().zip(b) {
                (*a, *b) = (*a + *b, *a - *b);
            }
        }
        distance /= 2;
    }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::*;

    /// As the reference, to the bit: the last three stages lie inside a register.
    #[target_feature(enable = "avx2")]
    pub fn walsh(x: &mut [f32]) {
        super::butterflies(x, 8);
        // Where the sign is set, the lane holds the second of its pair.
        let second = |bits: [u32; 8]| {
            let [a, b, c, d, e, f, g, h] = bits.map(|b| if b == 1 { -0.0 } else { 0.0 });
            _mm256_setr_ps(a, b, c, d, e, f, g, h)
        };
        let four = second([0, 0, 0, 0, 1, 1, 1, 1]);
        let two = second([0, 0, 1, 1, 0, 0, 1, 1]);
        let one = second([0, 1, 0, 1, 0, 1, 0, 1]);
        for x in x.chunks_exact_mut(8) {
            // SAFETY: `x` is 8 floats; the instructions allow any alignment.
            unsafe {
                let v = _mm256_loadu_ps(x.as_ptr());
                let v = _mm256_add_ps(_mm256_permute2f128_ps::<1>(v, v), _mm256_xor_ps(v, four));
                let v = _mm256_add_ps(_mm256_permute_ps::<0b01_00_11_10>(v), _mm256_xor_ps(v, two));
                let v = _mm256_add_ps(_mm256_permute_ps::<0b10_11_00_01>(v), _mm256_xor_ps(v, one));
                _mm256_storeu_ps(x.as_mut_ptr(), v);
            }
        }
    }
}
