//! AVX2, FMA and F16C.

use super::lanes::Lanes;
use std::arch::x86_64::*;

/// Proof that this CPU has AVX2, FMA and F16C.
///
/// Its functions are `inline(always)` and must be used inside functions with those target features, or
/// they become calls.
#[derive(Clone, Copy)]
pub(crate) struct Avx2(());

impl Avx2 {
    /// `None` when the CPU lacks one of the three.
    pub fn detect() -> Option<Avx2> {
        let all = is_x86_feature_detected!("avx2")
            && is_x86_feature_detected!("fma")
            && is_x86_feature_detected!("f16c");
        all.then_some(Avx2(()))
    }

    /// Eight floats from little-endian bytes.
    #[inline(always)]
    pub fn load_f32(self, b: &[u8; 32]) -> __m256 {
        // SAFETY: AVX by `self`; 32 readable bytes, no alignment asked.
        unsafe { _mm256_loadu_ps(b.as_ptr().cast()) }
    }

    /// Eight halves from little-endian bytes.
    #[inline(always)]
    pub fn load_f16(self, b: &[u8; 16]) -> __m256 {
        // SAFETY: F16C by `self`; 16 readable bytes, no alignment asked.
        unsafe { _mm256_cvtph_ps(_mm_loadu_si128(b.as_ptr().cast())) }
    }

    /// Eight bfloat16 from little-endian bytes.
    #[inline(always)]
    pub fn load_bf16(self, b: &[u8; 16]) -> __m256 {
        // SAFETY: AVX2 by `self`; 16 readable bytes, no alignment asked.
        unsafe {
            let bits = _mm256_cvtepu16_epi32(_mm_loadu_si128(b.as_ptr().cast()));
            _mm256_castsi256_ps(_mm256_slli_epi32::<16>(bits))
        }
    }
}

/// What the x86 products add to [`Lanes`]; all of them are proofs of at least AVX2, FMA and F16C.
pub(crate) trait X86: Lanes<U8 = __m256i> {
    /// Lane `i` of eight: the sum of `q[4i+j] * x[4i+j]` over `j` in 0..4, `q` unsigned and at most 128,
    /// `x` signed and at least -127.
    fn dot4(self, q: __m256i, x: __m256i) -> __m256i;

    /// Lane `i` is `x[i]`.
    #[inline(always)]
    fn load_i8(self, x: &[i8; 32]) -> __m256i {
        // SAFETY: AVX by the trait's promise; 32 readable bytes, no alignment asked.
        unsafe { _mm256_loadu_si256(x.as_ptr().cast()) }
    }

    /// The bits of eight floats.
    #[inline(always)]
    fn load_words(self, v: &[f32; 8]) -> __m256i {
        // SAFETY: AVX by the trait's promise; 32 readable bytes, no alignment asked.
        unsafe { _mm256_loadu_si256(v.as_ptr().cast()) }
    }

    /// The inverse of [`X86::load_words`].
    #[inline(always)]
    fn store_words(self, v: __m256i, out: &mut [f32; 8]) {
        // SAFETY: AVX by the trait's promise; 32 writable bytes, no alignment asked.
        unsafe { _mm256_storeu_si256(out.as_mut_ptr().cast(), v) }
    }

    /// Word `j` of vector `i` goes to word `i` of vector `j`, words of 32 bits.
    #[inline(always)]
    fn transpose(self, v: [__m256i; 8]) -> [__m256i; 8] {
        // SAFETY: AVX2 by the trait's promise; registers only.
        unsafe {
            let pair = |a, b| {
                (
                    _mm256_unpacklo_epi32(v[a], v[b]),
                    _mm256_unpackhi_epi32(v[a], v[b]),
                )
            };
            let (p0, p1) = pair(0, 1);
            let (p2, p3) = pair(2, 3);
            let (p4, p5) = pair(4, 5);
            let (p6, p7) = pair(6, 7);
            let four = |a, b| (_mm256_unpacklo_epi64(a, b), _mm256_unpackhi_epi64(a, b));
            let (a0, a1) = four(p0, p2);
            let (a2, a3) = four(p1, p3);
            let (b0, b1) = four(p4, p6);
            let (b2, b3) = four(p5, p7);
            let low = |a, b| _mm256_permute2x128_si256::<0x20>(a, b);
            let high = |a, b| _mm256_permute2x128_si256::<0x31>(a, b);
            [
                low(a0, b0),
                low(a1, b1),
                low(a2, b2),
                low(a3, b3),
                high(a0, b0),
                high(a1, b1),
                high(a2, b2),
                high(a3, b3),
            ]
        }
    }

    /// [`X86::dot4`] for `w` signed and over its whole range.
    #[inline(always)]
    fn dot4_signed(self, w: __m256i, x: __m256i) -> __m256i {
        // SAFETY: AVX2 by the trait's promise. |w| is at most 128 read as unsigned, and x, at least
        // -127, changes sign without overflow.
        let (size, x) = unsafe { (_mm256_abs_epi8(w), _mm256_sign_epi8(x, w)) };
        self.dot4(size, x)
    }
}

impl X86 for Avx2 {
    #[inline(always)]
    fn dot4(self, q: __m256i, x: __m256i) -> __m256i {
        // SAFETY: AVX2 by `self`. Pairs are at most 2 * 128 * 127 = 32512: no saturation.
        unsafe { _mm256_madd_epi16(_mm256_maddubs_epi16(q, x), _mm256_set1_epi16(1)) }
    }
}

impl Lanes for Avx2 {
    type U8 = __m256i;

    #[inline(always)]
    fn splat(self, v: u8) -> __m256i {
        // SAFETY: AVX2 by `self`.
        unsafe { _mm256_set1_epi8(v as i8) }
    }

    #[inline(always)]
    fn load(self, b: &[u8; 32]) -> __m256i {
        // SAFETY: AVX2 by `self`; 32 readable bytes, no alignment asked.
        unsafe { _mm256_loadu_si256(b.as_ptr().cast()) }
    }

    #[inline(always)]
    fn store(self, v: __m256i, out: &mut [u8; 32]) {
        // SAFETY: AVX2 by `self`; 32 writable bytes, no alignment asked.
        unsafe { _mm256_storeu_si256(out.as_mut_ptr().cast(), v) }
    }

    #[inline(always)]
    fn nibbles(self, b: &[u8; 16]) -> __m256i {
        // SAFETY: AVX2 by `self`; 16 readable bytes, no alignment asked.
        unsafe {
            let b = _mm_loadu_si128(b.as_ptr().cast());
            let both = _mm256_set_m128i(_mm_srli_epi16::<4>(b), b);
            _mm256_and_si256(both, _mm256_set1_epi8(15))
        }
    }

    #[inline(always)]
    fn mask(self, bits: u32) -> __m256i {
        // SAFETY: AVX2 by `self`.
        unsafe {
            // Byte i / 8 of the bits goes to lane i; all other bits than i % 8 are set; then only a
            // lane with its own bit set too is all ones.
            let byte = _mm256_set_epi64x(
                0x0303_0303_0303_0303,
                0x0202_0202_0202_0202,
                0x0101_0101_0101_0101,
                0,
            );
            let spread = _mm256_shuffle_epi8(_mm256_set1_epi32(bits as i32), byte);
            let others = _mm256_set1_epi64x(0x7fbf_dfef_f7fb_fdfe);
            _mm256_cmpeq_epi8(_mm256_or_si256(spread, others), _mm256_set1_epi8(-1))
        }
    }

    #[inline(always)]
    fn and(self, a: __m256i, b: __m256i) -> __m256i {
        // SAFETY: AVX2 by `self`.
        unsafe { _mm256_and_si256(a, b) }
    }

    #[inline(always)]
    fn or(self, a: __m256i, b: __m256i) -> __m256i {
        // SAFETY: AVX2 by `self`.
        unsafe { _mm256_or_si256(a, b) }
    }

    #[inline(always)]
    fn xor(self, a: __m256i, b: __m256i) -> __m256i {
        // SAFETY: AVX2 by `self`.
        unsafe { _mm256_xor_si256(a, b) }
    }

    #[inline(always)]
    fn add(self, a: __m256i, b: __m256i) -> __m256i {
        // SAFETY: AVX2 by `self`.
        unsafe { _mm256_add_epi8(a, b) }
    }

    #[inline(always)]
    fn shr<const N: i32>(self, v: __m256i) -> __m256i {
        // SAFETY: AVX2 by `self`.
        unsafe {
            // Bytes do not shift; pairs do, and what came from the neighbour is masked out.
            _mm256_and_si256(
                _mm256_srli_epi16::<N>(v),
                _mm256_set1_epi8((0xff_u8 >> N) as i8),
            )
        }
    }

    #[inline(always)]
    fn shl<const N: i32>(self, v: __m256i) -> __m256i {
        // SAFETY: AVX2 by `self`.
        unsafe {
            _mm256_and_si256(
                _mm256_slli_epi16::<N>(v),
                _mm256_set1_epi8((0xff_u8 << N) as i8),
            )
        }
    }

    #[inline(always)]
    fn lookup(self, table: &[u8; 16], i: __m256i) -> __m256i {
        // SAFETY: AVX2 by `self`; 16 readable bytes, no alignment asked.
        unsafe {
            let table = _mm256_broadcastsi128_si256(_mm_loadu_si128(table.as_ptr().cast()));
            _mm256_shuffle_epi8(table, i)
        }
    }

    #[inline(always)]
    fn halves(self, bits: &[u16; 8]) -> [f32; 8] {
        // Joined as integers: sixteen bits at a time, a vector would take twice the steps.
        let join = |at: usize| {
            let four = [bits[at], bits[at + 1], bits[at + 2], bits[at + 3]].map(u64::from);
            (four[0] | four[1] << 16 | four[2] << 32 | four[3] << 48) as i64
        };
        let (low, high) = (join(0), join(4));
        // SAFETY: AVX and F16C by `self`.
        unsafe { floats(_mm256_cvtph_ps(_mm_set_epi64x(high, low))) }
    }

    #[inline(always)]
    fn half_pairs(self, pairs: &[u32; 8]) -> ([f32; 8], [f32; 8]) {
        let join = |a: usize, b: usize| (u64::from(pairs[a]) | u64::from(pairs[b]) << 32) as i64;
        // In this order, taking every second number within 128-bit halves puts them all in order.
        let (a, b, c, d) = (join(0, 1), join(4, 5), join(2, 3), join(6, 7));
        // SAFETY: AVX and F16C by `self`.
        unsafe {
            let a = _mm256_cvtph_ps(_mm_set_epi64x(b, a));
            let c = _mm256_cvtph_ps(_mm_set_epi64x(d, c));
            (
                floats(_mm256_shuffle_ps::<0b10_00_10_00>(a, c)),
                floats(_mm256_shuffle_ps::<0b11_01_11_01>(a, c)),
            )
        }
    }

    #[inline(always)]
    fn half_pair(self, pair: u32) -> (f32, f32) {
        // SAFETY: F16C by `self`.
        unsafe {
            let pair = _mm_cvtph_ps(_mm_cvtsi32_si128(pair as i32));
            (_mm_cvtss_f32(pair), _mm_cvtss_f32(_mm_movehdup_ps(pair)))
        }
    }
}

#[inline(always)]
fn floats(v: __m256) -> [f32; 8] {
    let mut out = [0.0; 8];
    // SAFETY: who has a `__m256` has AVX; 32 writable bytes, no alignment asked.
    unsafe { _mm256_storeu_ps(out.as_mut_ptr(), v) };
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_transposed() {
        let Some(l) = Avx2::detect() else { return };
        let rows: [[f32; 8]; 8] =
            std::array::from_fn(|i| std::array::from_fn(|j| (8 * i + j) as f32));
        let columns = l.transpose(rows.each_ref().map(|row| l.load_words(row)));
        for (j, column) in columns.into_iter().enumerate() {
            let mut found = [0.0; 8];
            l.store_words(column, &mut found);
            assert_eq!(found, std::array::from_fn(|i| rows[i][j]));
        }
    }
}
