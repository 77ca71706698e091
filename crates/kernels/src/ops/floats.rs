//! Eight floats at a time: what ops are written with where the compiler does not find the vectors itself, and the two
//! sums of products that are built from it. Each is written once; all instruction sets give the same bits.

#[cfg(target_arch = "x86_64")]
use crate::quant::Avx2;
use crate::quant::{Scalar, f16_to_f32, f32_to_f16};

/// Floats of a vector.
pub(crate) const WIDTH: usize = 8;

/// An instruction set as a value: whoever holds one may use its instructions. Methods are `inline(always)` and belong
/// into functions compiled for the set, see [`for_floats`].
pub(crate) trait Floats: Copy {
    /// Eight floats.
    type V: Copy;

    /// All of them `x`.
    fn splat(self, x: f32) -> Self::V;
    /// From memory.
    fn load(self, x: &[f32; WIDTH]) -> Self::V;
    /// To memory.
    fn store(self, v: Self::V, x: &mut [f32; WIDTH]);
    /// `a + b`.
    fn add(self, a: Self::V, b: Self::V) -> Self::V;
    /// `a · b`.
    fn mul(self, a: Self::V, b: Self::V) -> Self::V;
    /// `a · b + c`, rounded once.
    fn mul_add(self, a: Self::V, b: Self::V, c: Self::V) -> Self::V;
    /// The sums over each of four vectors, halves first (as [`sum_lanes`](super::math::sum_lanes)).
    fn sums(self, v: [Self::V; 4]) -> [f32; 4];
    /// From half precision.
    fn from_halves(self, bits: &[u16; WIDTH]) -> Self::V;
    /// To half precision, rounding to nearest even.
    fn to_halves(self, v: Self::V) -> [u16; WIDTH];

    /// Fewer than eight, the others 0.
    #[inline(always)]
    fn load_part(self, x: &[f32]) -> Self::V {
        let mut whole = [0.0; WIDTH];
        whole[..x.len()].copy_from_slice(x);
        self.load(&whole)
    }
}

/// Plain Rust, for any CPU: the reference.
impl Floats for Scalar {
    type V = [f32; WIDTH];

    #[inline(always)]
    fn splat(self, x: f32) -> Self::V {
        [x; WIDTH]
    }
    #[inline(always)]
    fn load(self, x: &[f32; WIDTH]) -> Self::V {
        *x
    }
    #[inline(always)]
    fn store(self, v: Self::V, x: &mut [f32; WIDTH]) {
        *x = v;
    }
    #[inline(always)]
    fn add(self, a: Self::V, b: Self::V) -> Self::V {
        std::array::from_fn(|i| a[i] + b[i])
    }
    #[inline(always)]
    fn mul(self, a: Self::V, b: Self::V) -> Self::V {
        std::array::from_fn(|i| a[i] * b[i])
    }
    #[inline(always)]
    fn mul_add(self, a: Self::V, b: Self::V, c: Self::V) -> Self::V {
        std::array::from_fn(|i| a[i].mul_add(b[i], c[i]))
    }
    #[inline(always)]
    fn sums(self, v: [Self::V; 4]) -> [f32; 4] {
        v.map(|v| {
            let four: [f32; 4] = std::array::from_fn(|i| v[i] + v[i + 4]);
            (four[0] + four[2]) + (four[1] + four[3])
        })
    }
    #[inline(always)]
    fn from_halves(self, bits: &[u16; WIDTH]) -> Self::V {
        bits.map(f16_to_f32)
    }
    #[inline(always)]
    fn to_halves(self, v: Self::V) -> [u16; WIDTH] {
        v.map(f32_to_f16)
    }
}

#[cfg(target_arch = "x86_64")]
mod avx2 {
    use super::{Avx2, Floats, WIDTH};
    use std::arch::x86_64::*;

    impl Floats for Avx2 {
        type V = __m256;

        #[inline(always)]
        fn splat(self, x: f32) -> __m256 {
            // SAFETY: AVX by `self`.
            unsafe { _mm256_set1_ps(x) }
        }
        #[inline(always)]
        fn load(self, x: &[f32; WIDTH]) -> __m256 {
            // SAFETY: AVX by `self`; eight readable floats, no alignment asked.
            unsafe { _mm256_loadu_ps(x.as_ptr()) }
        }
        #[inline(always)]
        fn store(self, v: __m256, x: &mut [f32; WIDTH]) {
            // SAFETY: AVX by `self`; room for eight floats, no alignment asked.
            unsafe { _mm256_storeu_ps(x.as_mut_ptr(), v) }
        }
        #[inline(always)]
        fn add(self, a: __m256, b: __m256) -> __m256 {
            // SAFETY: AVX by `self`.
            unsafe { _mm256_add_ps(a, b) }
        }
        #[inline(always)]
        fn mul(self, a: __m256, b: __m256) -> __m256 {
            // SAFETY: AVX by `self`.
            unsafe { _mm256_mul_ps(a, b) }
        }
        #[inline(always)]
        fn mul_add(self, a: __m256, b: __m256, c: __m256) -> __m256 {
            // SAFETY: FMA by `self`.
            unsafe { _mm256_fmadd_ps(a, b, c) }
        }
        #[inline(always)]
        fn sums(self, [a, b, c, d]: [__m256; 4]) -> [f32; 4] {
            let mut out = [0.0; 4];
            // SAFETY: AVX by `self`; room for four floats, no alignment asked.
            unsafe {
                // Halves of a and b, then of c and d, added: a in the low half of the register, b in the high one.
                let ab = _mm256_add_ps(
                    _mm256_permute2f128_ps::<0x20>(a, b),
                    _mm256_permute2f128_ps::<0x31>(a, b),
                );
                let cd = _mm256_add_ps(
                    _mm256_permute2f128_ps::<0x20>(c, d),
                    _mm256_permute2f128_ps::<0x31>(c, d),
                );
                // Elements 0 and 1 plus elements 2 and 3: [a a c c | b b d d].
                let pairs = _mm256_add_ps(
                    _mm256_shuffle_ps::<0b01_00_01_00>(ab, cd),
                    _mm256_shuffle_ps::<0b11_10_11_10>(ab, cd),
                );
                // [a c a c | b d b d].
                let sums = _mm256_hadd_ps(pairs, pairs);
                let (ac, bd) = (
                    _mm256_castps256_ps128(sums),
                    _mm256_extractf128_ps::<1>(sums),
                );
                _mm_storeu_ps(out.as_mut_ptr(), _mm_unpacklo_ps(ac, bd));
            }
            out
        }
        #[inline(always)]
        fn from_halves(self, bits: &[u16; WIDTH]) -> __m256 {
            // SAFETY: F16C by `self`; 16 readable bytes, no alignment asked.
            unsafe { _mm256_cvtph_ps(_mm_loadu_si128(bits.as_ptr().cast())) }
        }
        #[inline(always)]
        fn to_halves(self, v: __m256) -> [u16; WIDTH] {
            let mut bits = [0; WIDTH];
            // SAFETY: F16C by `self`; room for 16 bytes, no alignment asked.
            unsafe {
                let half = _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(v);
                _mm_storeu_si128(bits.as_mut_ptr().cast(), half);
            }
            bits
        }
    }
}

/// Calls `$f`, an `#[inline(always)]` function whose first argument is a [`Floats`], with that of `$isa`.
macro_rules! for_floats {
    ($isa:expr, $f:path, ($($arg:ident: $ty:ty),* $(,)?)) => {{
        #[cfg(target_arch = "x86_64")]
        #[target_feature(enable = "avx2,fma,f16c")]
        #[allow(clippy::too_many_arguments)]
        fn avx2(l: crate::quant::Avx2, $($arg: $ty),*) {
            $f(l, $($arg),*)
        }
        match $isa {
            #[cfg(target_arch = "x86_64")]
            crate::Isa::Avx2 | crate::Isa::Avx512 => {
                let l = crate::quant::Avx2::detect().expect("Cpu::new saw that the CPU has AVX2");
                // SAFETY: `l` proves the target features.
                unsafe { avx2(l, $($arg),*) }
            }
            _ => $f(crate::quant::Scalar, $($arg),*),
        }
    }};
}
pub(crate) use for_floats;

/// Parts of a sum of products, two vectors: element `i` belongs to part `i mod 16`. The parts are then added, halves
/// first. llama.cpp's prefill sums in this order too, so that its logits and ours differ by little more than the last bit.
const PARTS: usize = 2 * WIDTH;

/// `Σ a[i]·b[j]` for the four pairs, at `i * B + j`. All slices have one length.
#[inline(always)]
pub(crate) fn dots<L: Floats, const A: usize, const B: usize>(
    l: L,
    a: [&[f32]; A],
    b: [&[f32]; B],
) -> [f32; 4] {
    const { assert!(A * B == 4) };
    let n = a[0].len();
    let (a, b) = (a.map(|a| &a[..n]), b.map(|b| &b[..n]));
    let mut parts = [[l.splat(0.0); 4]; 2];
    let mut step = |half: usize, a: [L::V; A], b: [L::V; B]| {
        for i in 0..A {
            for j in 0..B {
                let sum = &mut parts[half][i * B + j];
                *sum = l.mul_add(a[i], b[j], *sum);
            }
        }
    };
    let at = |x: &[f32], start: usize| l.load(x[start..].first_chunk().expect("eight floats"));
    let whole = n / PARTS * PARTS;
    for start in (0..whole).step_by(PARTS) {
        step(0, a.map(|a| at(a, start)), b.map(|b| at(b, start)));
        let start = start + WIDTH;
        step(1, a.map(|a| at(a, start)), b.map(|b| at(b, start)));
    }
    for (half, start) in (whole..n).step_by(WIDTH).enumerate() {
        let part = |x: &[f32]| l.load_part(&x[start..n.min(start + WIDTH)]);
        step(half, a.map(part), b.map(part));
    }
    let [low, high] = parts;
    l.sums(std::array::from_fn(|i| l.add(low[i], high[i])))
}

/// `acc[r] += Σ_j w[r][j] · v[j]` for rows `v` that lie `stride` apart, over columns `col` to `col + C * WIDTH` of all.
#[inline(always)]
pub(crate) fn mix<L: Floats, const R: usize, const C: usize>(
    l: L,
    w: [&[f32]; R],
    v: &[f32],
    stride: usize,
    col: usize,
    acc: [&mut [f32]; R],
) {
    let n = w[0].len();
    let w = w.map(|w| &w[..n]);
    let zero = [[l.splat(0.0); C]; R];
    let add = |a: [[L::V; C]; R], b: [[L::V; C]; R]| -> [[L::V; C]; R] {
        std::array::from_fn(|r| std::array::from_fn(|c| l.add(a[r][c], b[r][c])))
    };
    // Row j belongs to part j mod 16; of these, every fourth is summed in one walk, as many as registers hold.
    let quarter = |first: usize| {
        let mut parts = [zero; 4];
        let mut step = |part: usize, j: usize| {
            let v: &[f32] = &v[j * stride + col..][..C * WIDTH];
            let v: [L::V; C] = std::array::from_fn(|c| {
                l.load(v[c * WIDTH..].first_chunk().expect("eight floats"))
            });
            for r in 0..R {
                let w = l.splat(w[r][j]);
                for c in 0..C {
                    parts[part][r][c] = l.mul_add(w, v[c], parts[part][r][c]);
                }
            }
        };
        let whole = n / PARTS * PARTS;
        for j in (first..whole).step_by(PARTS) {
            for part in 0..4 {
                step(part, j + 4 * part);
            }
        }
        for part in 0..4 {
            let j = whole + first + 4 * part;
            if j < n {
                step(part, j);
            }
        }
        let [a, b, c, d] = parts;
        add(add(a, c), add(b, d))
    };
    let even = add(quarter(0), quarter(2));
    let sum = add(even, add(quarter(1), quarter(3)));
    for (acc, sum) in acc.into_iter().zip(sum) {
        for (c, sum) in sum.into_iter().enumerate() {
            let acc = acc[col + c * WIDTH..]
                .first_chunk_mut()
                .expect("eight floats");
            l.store(l.add(l.load(acc), sum), acc);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::math::dot;
    use super::*;
    use crate::Isa;

    /// Numbers in -1..1.
    fn numbers(n: usize, seed: u32) -> Vec<f32> {
        (0..n as u32)
            .map(|i| {
                let x = (i ^ seed << 7).wrapping_mul(0x9e37_79b9);
                ((x ^ x >> 15) & 0xffff) as f32 / 32768.0 - 1.0
            })
            .collect()
    }

    fn isas() -> impl Iterator<Item = Isa> {
        [Isa::Scalar, Isa::Avx2]
            .into_iter()
            .filter(|i| i.is_available())
    }

    #[test]
    fn four_products_are_those_of_the_single_product() {
        #[inline(always)]
        fn both<L: Floats>(l: L, x: &[Vec<f32>], out: &mut [[f32; 4]; 2]) {
            let [a, b, c, d, e] = [0, 1, 2, 3, 4].map(|i| x[i].as_slice());
            *out = [dots(l, [a, b], [c, d]), dots(l, [a], [b, c, d, e])];
        }
        for n in 0..70 {
            let x: Vec<Vec<f32>> = (0..5).map(|i| numbers(n, i)).collect();
            let pair = |i: usize, j: usize| dot(&x[i], &x[j]).to_bits();
            for isa in isas() {
                let (x, mut out) = (x.as_slice(), [[0.0; 4]; 2]);
                let out_ref = &mut out;
                for_floats!(isa, both, (x: &[Vec<f32>], out_ref: &mut [[f32; 4]; 2]));
                let want = [
                    [pair(0, 2), pair(0, 3), pair(1, 2), pair(1, 3)],
                    [pair(0, 1), pair(0, 2), pair(0, 3), pair(0, 4)],
                ];
                assert_eq!(out.map(|o| o.map(f32::to_bits)), want, "{n} on {isa}");
            }
        }
    }

    #[test]
    fn mixes_are_sums_of_products_by_column() {
        #[inline(always)]
        fn both<L: Floats>(l: L, w: &[Vec<f32>], v: &[f32], out: &mut [Vec<f32>]) {
            let [one, a, b] = out else { unreachable!() };
            mix::<L, 1, 2>(l, [&w[0]], v, 24, 8, [one]);
            mix::<L, 2, 1>(l, [&w[0], &w[1]], v, 24, 8, [a, b]);
        }
        for n in 0..70 {
            let w: Vec<Vec<f32>> = (0..2).map(|i| numbers(n, i)).collect();
            let v = numbers(24 * n, 9);
            let column = |c: usize| (0..n).map(|j| v[24 * j + c]).collect::<Vec<_>>();
            for isa in isas() {
                let mut out = vec![vec![1.0; 24]; 3];
                let (w, v, out_ref) = (w.as_slice(), v.as_slice(), out.as_mut_slice());
                for_floats!(isa, both, (w: &[Vec<f32>], v: &[f32], out_ref: &mut [Vec<f32>]));
                for c in 0..24 {
                    let want = |r: usize, end: usize| match (8..end).contains(&c) {
                        true => 1.0 + dot(&w[r], &column(c)),
                        false => 1.0,
                    };
                    let got = [out[0][c], out[1][c], out[2][c]];
                    assert_eq!(got, [want(0, 24), want(0, 16), want(1, 16)], "{n} on {isa}");
                }
            }
        }
    }

    #[test]
    fn halves_are_the_reference_s() {
        #[inline(always)]
        fn round<L: Floats>(l: L, bits: &[u16; WIDTH], x: &mut [f32; WIDTH], back: &mut [u16; 8]) {
            let v = l.from_halves(bits);
            l.store(v, x);
            *back = l.to_halves(v);
        }
        for isa in isas() {
            for first in (0..=u16::MAX).step_by(WIDTH) {
                let bits = std::array::from_fn(|i| first + i as u16);
                let (mut x, mut back) = ([0.0; WIDTH], [0; WIDTH]);
                let (bits_ref, x_ref, back_ref) = (&bits, &mut x, &mut back);
                for_floats!(isa, round, (bits_ref: &[u16; 8], x_ref: &mut [f32; 8], back_ref: &mut [u16; 8]));
                assert_eq!(x.map(f32::to_bits), bits.map(|b| f16_to_f32(b).to_bits()));
                assert_eq!(back, x.map(f32_to_f16), "{isa}");
            }
        }
    }
}
