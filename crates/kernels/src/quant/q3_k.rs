//! Q3_K: 256 weights of 3 bits (32 bytes of high bits, 64 of low pairs); 16 signed 6-bit scales in 12 bytes; f16 `d`.

use super::half::{u16_at, u32_at};
use super::lanes::Lanes;
use super::span::{Block, Span, bytes_at};

pub(crate) struct Q3_K;

impl Block for Q3_K {
    const LEN: usize = 256;
    const BYTES: usize = 110;
    const GROUP: usize = 16;
    const OFFSET: u8 = 4;
    const MAX_Q: u8 = 7;

    #[inline(always)]
    fn unpack<L: Lanes>(l: L, bytes: &[u8], out: &mut Span<L>) {
        let d = l.half(u16_at(bytes, 108));
        let (a, b, c) = (u32_at(bytes, 96), u32_at(bytes, 100), u32_at(bytes, 104));
        // Low nibbles in a and b, the pairs of high bits in c.
        let scales = [
            a & 0x0f0f_0f0f | (c & 0x0303_0303) << 4,
            b & 0x0f0f_0f0f | (c >> 2 & 0x0303_0303) << 4,
            a >> 4 & 0x0f0f_0f0f | (c >> 4 & 0x0303_0303) << 4,
            b >> 4 & 0x0f0f_0f0f | (c >> 6 & 0x0303_0303) << 4,
        ];
        for i in 0..16 {
            let s = i32::from(scales[i / 4].to_le_bytes()[i % 4]);
            out.scale[i] = d * (s - 32) as f32;
        }
        let high = l.load(bytes_at(bytes, 0));
        let (two_bits, four) = (l.splat(3), l.splat(4));
        let (v, w) = (l.load(bytes_at(bytes, 32)), l.load(bytes_at(bytes, 64)));
        out.q = [
            l.or(l.and(v, two_bits), l.and(l.shl::<2>(high), four)),
            l.or(
                l.and(l.shr::<2>(v), two_bits),
                l.and(l.shl::<1>(high), four),
            ),
            l.or(l.and(l.shr::<4>(v), two_bits), l.and(high, four)),
            l.or(l.shr::<6>(v), l.and(l.shr::<1>(high), four)),
            l.or(l.and(w, two_bits), l.and(l.shr::<2>(high), four)),
            l.or(
                l.and(l.shr::<2>(w), two_bits),
                l.and(l.shr::<3>(high), four),
            ),
            l.or(
                l.and(l.shr::<4>(w), two_bits),
                l.and(l.shr::<4>(high), four),
            ),
            l.or(l.shr::<6>(w), l.and(l.shr::<5>(high), four)),
        ];
    }
}
