//! Q5_K: 256 weights of 5 bits (32 bytes of fifth bits); 8 scales and minima of 6 bits; f16 `d` and `dmin` of those.

use super::k_scales::unpack_scales;
use super::lanes::Lanes;
use super::span::{Block, Span, bytes_at};

pub(crate) struct Q5_K;

impl Block for Q5_K {
    const LEN: usize = 256;
    const BYTES: usize = 176;
    const OFFSET: u8 = 0;
    const MAX_Q: u8 = 31;

    #[inline(always)]
    fn unpack<L: Lanes>(l: L, bytes: &[u8], out: &mut Span<L>) {
        unpack_scales(l, bytes, out);
        let fifth = l.load(bytes_at(bytes, 16));
        let v: [L::U8; 4] = [
            l.load(bytes_at(bytes, 48)),
            l.load(bytes_at(bytes, 80)),
            l.load(bytes_at(bytes, 112)),
            l.load(bytes_at(bytes, 144)),
        ];
        let (nibble, bit) = (l.splat(15), l.splat(16));
        out.q = [
            l.or(l.and(v[0], nibble), l.and(l.shl::<4>(fifth), bit)),
            l.or(l.shr::<4>(v[0]), l.and(l.shl::<3>(fifth), bit)),
            l.or(l.and(v[1], nibble), l.and(l.shl::<2>(fifth), bit)),
            l.or(l.shr::<4>(v[1]), l.and(l.shl::<1>(fifth), bit)),
            l.or(l.and(v[2], nibble), l.and(fifth, bit)),
            l.or(l.shr::<4>(v[2]), l.and(l.shr::<1>(fifth), bit)),
            l.or(l.and(v[3], nibble), l.and(l.shr::<2>(fifth), bit)),
            l.or(l.shr::<4>(v[3]), l.and(l.shr::<3>(fifth), bit)),
        ];
    }
}
