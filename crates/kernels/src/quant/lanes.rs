//! The byte operations that blocks are unpacked with, 32 at a time, and their readable reference.

use super::half::f16_to_f32;

/// An instruction set as a value: whoever holds one may use its instructions.
///
/// Implementations are zero-sized proofs; the SIMD ones are made only after the CPU was asked.
pub(crate) trait Lanes: Copy {
    /// 32 bytes, by preference in a register.
    type U8: Copy;

    /// Every lane `v`.
    fn splat(self, v: u8) -> Self::U8;
    /// Lane `i` is `b[i]`.
    fn load(self, b: &[u8; 32]) -> Self::U8;
    /// The inverse of [`Lanes::load`].
    #[cfg_attr(not(target_arch = "x86_64"), allow(dead_code))] // SIMD products repack; scalar ones do not.
    fn store(self, v: Self::U8, out: &mut [u8; 32]);
    /// Lanes 0..16 the low nibbles of `b`, lanes 16..32 the high ones.
    fn nibbles(self, b: &[u8; 16]) -> Self::U8;
    /// Lane `i` is 255 when bit `i` is set, else 0.
    fn mask(self, bits: u32) -> Self::U8;
    /// Bitwise and.
    fn and(self, a: Self::U8, b: Self::U8) -> Self::U8;
    /// Bitwise or.
    fn or(self, a: Self::U8, b: Self::U8) -> Self::U8;
    /// Bitwise exclusive or.
    fn xor(self, a: Self::U8, b: Self::U8) -> Self::U8;
    /// Wrapping sum.
    fn add(self, a: Self::U8, b: Self::U8) -> Self::U8;
    /// Each byte shifted right by `N` < 8, zeros coming in.
    fn shr<const N: i32>(self, v: Self::U8) -> Self::U8;
    /// Each byte shifted left by `N` < 8, zeros coming in.
    fn shl<const N: i32>(self, v: Self::U8) -> Self::U8;
    /// `table[i]` for every lane `i`; all lanes must be < 16.
    fn lookup(self, table: &[u8; 16], i: Self::U8) -> Self::U8;
    /// Half-precision bits to single precision.
    fn halves(self, bits: &[u16; 8]) -> [f32; 8];
    /// The same for pairs, the first of which is in the low half: all first ones, all second ones.
    fn half_pairs(self, pairs: &[u32; 8]) -> ([f32; 8], [f32; 8]);
    /// One pair.
    fn half_pair(self, pair: u32) -> (f32, f32);
    /// One half-precision number.
    #[inline(always)]
    fn half(self, bits: u16) -> f32 {
        self.half_pair(u32::from(bits)).0
    }
}

/// Plain Rust, for any CPU: the oracle of all others.
#[derive(Clone, Copy)]
pub(crate) struct Scalar;

impl Lanes for Scalar {
    type U8 = [u8; 32];

    fn splat(self, v: u8) -> [u8; 32] {
        [v; 32]
    }
    fn load(self, b: &[u8; 32]) -> [u8; 32] {
        *b
    }
    fn store(self, v: [u8; 32], out: &mut [u8; 32]) {
        *out = v;
    }
    fn nibbles(self, b: &[u8; 16]) -> [u8; 32] {
        std::array::from_fn(|i| if i < 16 { b[i] & 15 } else { b[i - 16] >> 4 })
    }
    fn mask(self, bits: u32) -> [u8; 32] {
        std::array::from_fn(|i| if bits >> i & 1 == 1 { 255 } else { 0 })
    }
    fn and(self, a: [u8; 32], b: [u8; 32]) -> [u8; 32] {
        std::array::from_fn(|i| a[i] & b[i])
    }
    fn or(self, a: [u8; 32], b: [u8; 32]) -> [u8; 32] {
        std::array::from_fn(|i| a[i] | b[i])
    }
    fn xor(self, a: [u8; 32], b: [u8; 32]) -> [u8; 32] {
        std::array::from_fn(|i| a[i] ^ b[i])
    }
    fn add(self, a: [u8; 32], b: [u8; 32]) -> [u8; 32] {
        std::array::from_fn(|i| a[i].wrapping_add(b[i]))
    }
    fn shr<const N: i32>(self, v: [u8; 32]) -> [u8; 32] {
        v.map(|x| x >> N)
    }
    fn shl<const N: i32>(self, v: [u8; 32]) -> [u8; 32] {
        v.map(|x| x << N)
    }
    fn lookup(self, table: &[u8; 16], i: [u8; 32]) -> [u8; 32] {
        i.map(|i| table[usize::from(i)])
    }
    fn halves(self, bits: &[u16; 8]) -> [f32; 8] {
        bits.map(f16_to_f32)
    }
    fn half_pairs(self, pairs: &[u32; 8]) -> ([f32; 8], [f32; 8]) {
        (
            pairs.map(|p| self.half_pair(p).0),
            pairs.map(|p| self.half_pair(p).1),
        )
    }
    fn half_pair(self, pair: u32) -> (f32, f32) {
        (f16_to_f32(pair as u16), f16_to_f32((pair >> 16) as u16))
    }
}
