//! Activations as int8: quantised once for all matrices that read them.
//!
//! Blocks of 32 with an f32 scale, finer than ggml's Q8_K (256 to a scale) and with a finer scale than
//! its Q8_0 (f16): what the products lose to int8 is not more than what the peer loses.

use crate::quant::SPAN;
use crate::{Cpu, Isa, SharedSlice};

#[cfg(target_arch = "x86_64")]
use crate::quant::Avx2;

/// 256 activations of one token. `x[i]` is about `d[i / 32] * q[i]`.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
pub(crate) struct ActSpan {
    /// In -127..=127: products of pairs with a weight's byte stay inside 16 bits.
    pub q: [i8; SPAN],
    /// Largest magnitude of each 32, over 127. NaN or infinite when one of them is.
    pub d: [f32; SPAN / 32],
    /// `d` times the sum of each 32 `q`: what a weight's minimum is multiplied with.
    pub sum32: [f32; SPAN / 32],
    /// The same for each 16.
    pub sum16: [f32; SPAN / 16],
}

impl ActSpan {
    const ZERO: ActSpan = ActSpan {
        q: [0; SPAN],
        d: [0.0; SPAN / 32],
        sum32: [0.0; SPAN / 32],
        sum16: [0.0; SPAN / 16],
    };
}

/// Below this a block of 32 is taken for zero, as 127 over its largest magnitude would overflow.
const TINY: f32 = 1e-35;

/// The quantised form of the input of [`linear`](super::linear::linear), allocated once and used for every call.
pub struct ActBuf {
    /// [span][token]: all tokens of the first 256 columns, then of the next, ...
    spans: Vec<ActSpan>,
}

impl ActBuf {
    /// Bytes that [`ActBuf::new`] allocates; the largest number when they cannot be counted.
    pub fn bytes(max_tokens: usize, max_cols: usize) -> usize {
        let spans = max_tokens.saturating_mul(max_cols.div_ceil(SPAN));
        spans.saturating_mul(size_of::<ActSpan>())
    }

    /// Room for `max_tokens` rows of `max_cols` numbers; fewer of longer ones fit as well.
    pub fn new(max_tokens: usize, max_cols: usize) -> ActBuf {
        ActBuf {
            spans: vec![ActSpan::ZERO; max_tokens * max_cols.div_ceil(SPAN)],
        }
    }

    /// Quantises `x` [n_tokens][cols]; `cols` is a multiple of 32. The result is [span][token].
    ///
    /// # Panics
    /// When `x` is larger than what the buffer was made for.
    pub(crate) fn quantize(
        &mut self,
        cpu: &Cpu,
        x: &[f32],
        n_tokens: usize,
        cols: usize,
    ) -> &[ActSpan] {
        assert!(
            cols.is_multiple_of(32),
            "{cols} columns are no whole number of blocks of 32"
        );
        let n_spans = cols.div_ceil(SPAN);
        let used = n_spans * n_tokens;
        assert!(
            used <= self.spans.len(),
            "{n_tokens} tokens of {cols} columns do not fit into the activation buffer"
        );
        let spans = SharedSlice::new(&mut self.spans[..used]);
        let quantize_token = |t: usize| {
            for (s, x) in x[t * cols..(t + 1) * cols].chunks(SPAN).enumerate() {
                let i = s * n_tokens + t;
                // SAFETY: span i belongs to token t, and each token is quantised by one thread.
                let out = &mut unsafe { spans.slice_mut(i..i + 1) }[0];
                quantize_span(cpu.isa, x, out);
            }
        };
        let n_threads = cpu.pool.n_threads();
        // One token is done sooner than a second thread wakes.
        if n_tokens == 1 || n_threads == 1 {
            (0..n_tokens).for_each(quantize_token);
        } else {
            cpu.pool
                .run(&|i| (i..n_tokens).step_by(n_threads).for_each(quantize_token));
        }
        &self.spans[..used]
    }
}

/// Quantises up to 256 numbers; the rest of `out` becomes zero.
fn quantize_span(isa: Isa, x: &[f32], out: &mut ActSpan) {
    if x.len() < SPAN {
        *out = ActSpan::ZERO;
    }
    match isa {
        #[cfg(target_arch = "x86_64")]
        Isa::Avx2 | Isa::Avx512 => {
            let v = Avx2::detect().expect("an AVX2 instruction set was chosen on a CPU without it");
            // SAFETY: `v` proves the target features.
            unsafe { quantize_avx2(v, x, out) }
        }
        _ => quantize_scalar(x, out),
    }
}

/// Scale and its inverse of a block with the largest magnitude `max`, whose bits order it above all
/// others: NaN above infinity above numbers, so that neither is lost.
fn scale_of(max: f32) -> (f32, f32) {
    if max < TINY {
        (0.0, 0.0)
    } else if max.is_finite() {
        (max / 127.0, 127.0 / max)
    } else {
        (max, 0.0)
    }
}

fn quantize_scalar(x: &[f32], out: &mut ActSpan) {
    for (b, x) in x.chunks_exact(32).enumerate() {
        let max = x
            .iter()
            .map(|x| x.to_bits() & 0x7fff_ffff)
            .max()
            .expect("32 numbers");
        let (d, inverse) = scale_of(f32::from_bits(max));
        out.d[b] = d;
        let mut sums = [0i32; 2];
        for (i, x) in x.iter().enumerate() {
            // A NaN becomes 0 here; `d` carries it on.
            let q = (x * inverse).round_ties_even() as i8;
            out.q[32 * b + i] = q;
            sums[i / 16] += i32::from(q);
        }
        out.sum16[2 * b] = d * sums[0] as f32;
        out.sum16[2 * b + 1] = d * sums[1] as f32;
        out.sum32[b] = d * (sums[0] + sums[1]) as f32;
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma,f16c")]
fn quantize_avx2(v: Avx2, x: &[f32], out: &mut ActSpan) {
    use std::arch::x86_64::*;
    for (b, x) in x.as_chunks::<32>().0.iter().enumerate() {
        let x: [__m256; 4] = std::array::from_fn(|i| {
            // SAFETY: eight of the 32 numbers, as 32 bytes.
            v.load_f32(unsafe { &*x.as_ptr().add(8 * i).cast() })
        });
        let size =
            x.map(|x| _mm256_and_si256(_mm256_castps_si256(x), _mm256_set1_epi32(0x7fff_ffff)));
        let max = _mm256_max_epi32(
            _mm256_max_epi32(size[0], size[1]),
            _mm256_max_epi32(size[2], size[3]),
        );
        let max = _mm_max_epi32(
            _mm256_castsi256_si128(max),
            _mm256_extracti128_si256::<1>(max),
        );
        let max = _mm_max_epi32(max, _mm_shuffle_epi32::<0b00_00_11_10>(max));
        let max = _mm_max_epi32(max, _mm_shuffle_epi32::<0b00_00_00_01>(max));
        let (d, inverse) = scale_of(f32::from_bits(_mm_cvtsi128_si32(max) as u32));

        let q = x.map(|x| {
            let scaled = _mm256_mul_ps(x, _mm256_set1_ps(inverse));
            // Infinity times 0 is NaN; it becomes 0, as in the scalar code.
            let number = _mm256_cmp_ps::<_CMP_ORD_Q>(scaled, scaled);
            _mm256_cvtps_epi32(_mm256_and_ps(scaled, number))
        });
        // Packing works within 128-bit halves; the permutation puts the fours back in order.
        let q = _mm256_packs_epi16(
            _mm256_packs_epi32(q[0], q[1]),
            _mm256_packs_epi32(q[2], q[3]),
        );
        let q = _mm256_permutevar8x32_epi32(q, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
        let pairs = _mm256_maddubs_epi16(_mm256_set1_epi8(1), q);
        let fours = _mm256_madd_epi16(pairs, _mm256_set1_epi16(1));
        let twos = _mm256_hadd_epi32(fours, fours);
        let sums = _mm256_hadd_epi32(twos, twos);
        let sums = [
            _mm256_extract_epi32::<0>(sums),
            _mm256_extract_epi32::<4>(sums),
        ];

        let bytes = out.q[32 * b..]
            .first_chunk_mut::<32>()
            .expect("32 of a span");
        // SAFETY: 32 writable bytes, no alignment asked.
        unsafe { _mm256_storeu_si256(bytes.as_mut_ptr().cast(), q) };
        out.d[b] = d;
        out.sum16[2 * b] = d * sums[0] as f32;
        out.sum16[2 * b + 1] = d * sums[1] as f32;
        out.sum32[b] = d * (sums[0] + sums[1]) as f32;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn scalar(x: &[f32]) -> ActSpan {
        let mut out = ActSpan::ZERO;
        quantize_scalar(x, &mut out);
        out
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn every_number_is_within_half_a_step(
            x in prop::collection::vec(-1e3f32..1e3, 256),
            exponent in -40i32..30,
        ) {
            let x: Vec<f32> = x.iter().map(|x| x * 2f32.powi(exponent)).collect();
            let a = scalar(&x);
            for b in 0..8 {
                let mut sums = [0.0; 2];
                for i in 0..32 {
                    let q = f32::from(a.q[32 * b + i]);
                    prop_assert!(q.abs() <= 127.0);
                    prop_assert!((x[32 * b + i] - a.d[b] * q).abs() <= a.d[b] * 0.50001);
                    sums[i / 16] += q;
                }
                prop_assert_eq!(a.sum16[2 * b], a.d[b] * sums[0]);
                prop_assert_eq!(a.sum16[2 * b + 1], a.d[b] * sums[1]);
                prop_assert_eq!(a.sum32[b], a.d[b] * (sums[0] + sums[1]));
            }
        }

        #[cfg(target_arch = "x86_64")]
        #[test]
        fn avx2_gives_the_same_bits(
            bits in prop::collection::vec(any::<u32>(), 256),
            n in 1usize..=8,
            narrow in any::<bool>(),
        ) {
            let Some(v) = Avx2::detect() else { return Ok(()) };
            // Any bit pattern, or only numbers of like size.
            let x: Vec<f32> = bits[..32 * n]
                .iter()
                .map(|b| f32::from_bits(if narrow { b & 0x80ff_ffff | 0x3f00_0000 } else { *b }))
                .collect();
            let (want, mut got) = (scalar(&x), ActSpan::ZERO);
            // SAFETY: `v` proves the target features.
            unsafe { quantize_avx2(v, &x, &mut got) };
            prop_assert_eq!(want.q, got.q);
            let bits = |a: [f32; 8]| a.map(|x| if x.is_nan() { 0x7fc0_0000 } else { x.to_bits() });
            prop_assert_eq!(bits(want.d), bits(got.d));
            prop_assert_eq!(bits(want.sum32), bits(got.sum32));
            for half in 0..2 {
                let of = |a: &ActSpan| bits(std::array::from_fn(|i| a.sum16[8 * half + i]));
                prop_assert_eq!(of(&want), of(&got));
            }
        }
    }

    #[test]
    fn what_is_not_finite_stays_visible() {
        for (bad, nan) in [
            (f32::NAN, true),
            (f32::INFINITY, false),
            (f32::NEG_INFINITY, false),
        ] {
            let mut x = [1.0; 256];
            x[40] = bad;
            let a = scalar(&x);
            assert_eq!(a.d[1].is_nan(), nan);
            assert!(!a.d[1].is_finite());
            assert!((a.d[0] - 1.0 / 127.0).abs() < 1e-9 && a.q[0] == 127);
        }
    }

    #[test]
    fn zeros_and_the_tiny_are_zero() {
        let a = scalar(&[0.0; 256]);
        assert!(a.d == [0.0; 8] && a.q == [0; 256]);
        let a = scalar(&[1e-44; 256]);
        assert!(a.d == [0.0; 8] && a.q == [0; 256] && a.sum16 == [0.0; 16]);
    }

    #[test]
    fn spans_of_a_token_are_a_stride_apart_and_padded() {
        let cpu = Cpu::new(Isa::Scalar, 1);
        let x: Vec<f32> = (0..3 * 288).map(|i| i as f32).collect();
        let mut acts = ActBuf::new(3, 288);
        assert_eq!(ActBuf::bytes(3, 288), 3 * 2 * size_of::<ActSpan>());
        // Left-overs of a wider call must not shine through.
        acts.quantize(&cpu, &[1.0; 3 * 512], 3, 512);
        let spans = acts.quantize(&cpu, &x, 3, 288);
        assert_eq!(spans.len(), 6);
        for t in 0..3 {
            assert_eq!(spans[t].d[0], (t * 288 + 31) as f32 / 127.0);
            assert_eq!(spans[3 + t].d[0], (t * 288 + 287) as f32 / 127.0);
            assert_eq!(spans[3 + t].d[1..], [0.0; 7]);
            assert_eq!(spans[3 + t].q[32..], [0; 224]);
        }
    }
}
