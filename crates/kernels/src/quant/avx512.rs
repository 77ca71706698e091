//! AVX-512 with the byte dot product (VNNI). Blocks are unpacked with the AVX2 operations.

use super::avx2::{Avx2, X86};
use super::lanes::Lanes;
use std::arch::x86_64::*;

/// Proof that this CPU has AVX2, FMA, F16C and AVX-512 F, BW, VL, DQ and VNNI.
#[derive(Clone, Copy)]
pub(crate) struct Vnni(Avx2);

impl Vnni {
    /// `None` when the CPU lacks one of them.
    pub fn detect() -> Option<Vnni> {
        let all = is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("avx512vl")
            && is_x86_feature_detected!("avx512dq")
            && is_x86_feature_detected!("avx512vnni");
        if all { Avx2::detect().map(Vnni) } else { None }
    }
}

impl X86 for Vnni {
    #[inline(always)]
    fn dot4(self, q: __m256i, x: __m256i) -> __m256i {
        // SAFETY: AVX-512 VL and VNNI by `self`.
        unsafe { _mm256_dpbusd_epi32(_mm256_setzero_si256(), q, x) }
    }
}

/// Hands the operations on to [`Avx2`].
macro_rules! as_avx2 {
    ($($name:ident$(<const $n:ident>)?($($arg:ident: $ty:ty),*) $(-> $out:ty)?;)*) => {
        $(#[inline(always)]
        fn $name$(<const $n: i32>)?(self, $($arg: $ty),*) $(-> $out)? {
            self.0.$name$(::<$n>)?($($arg),*)
        })*
    };
}

impl Lanes for Vnni {
    type U8 = __m256i;

    as_avx2! {
        splat(v: u8) -> __m256i;
        load(b: &[u8; 32]) -> __m256i;
        store(v: __m256i, out: &mut [u8; 32]);
        nibbles(b: &[u8; 16]) -> __m256i;
        mask(bits: u32) -> __m256i;
        and(a: __m256i, b: __m256i) -> __m256i;
        or(a: __m256i, b: __m256i) -> __m256i;
        xor(a: __m256i, b: __m256i) -> __m256i;
        add(a: __m256i, b: __m256i) -> __m256i;
        shr<const N>(v: __m256i) -> __m256i;
        shl<const N>(v: __m256i) -> __m256i;
        lookup(table: &[u8; 16], i: __m256i) -> __m256i;
        halves(bits: &[u16; 8]) -> [f32; 8];
        half_pairs(pairs: &[u32; 8]) -> ([f32; 8], [f32; 8]);
        half_pair(pair: u32) -> (f32, f32);
    }
}
