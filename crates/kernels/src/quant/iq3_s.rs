//! IQ3_S: 256 weights, four at a time from a grid of 512 points, and their signs; 8 scales of 4 bits; f16 `d`.

use super::half::{u16_at, u32_at};
use super::iq3s_grid::IQ3S_GRID;
use super::lanes::Lanes;
use super::span::{Block, Span};

pub(crate) struct IQ3_S;

impl Block for IQ3_S {
    const LEN: usize = 256;
    const BYTES: usize = 110;
    const OFFSET: u8 = 15;
    const MAX_Q: u8 = 30;

    #[inline(always)]
    fn unpack<L: Lanes>(l: L, bytes: &[u8], out: &mut Span<L>) {
        let d = l.half(u16_at(bytes, 0));
        let (points, high, signs) = (&bytes[2..66], &bytes[66..74], &bytes[74..106]);
        for i in 0..8 {
            let s = bytes[106 + i / 2] >> (4 * (i % 2)) & 15;
            out.scale[i] = d * f32::from(1 + 2 * s);
            let mut sizes = [0u8; 32];
            for (k, sizes) in sizes.chunks_exact_mut(4).enumerate() {
                let point = usize::from(points[8 * i + k]) | usize::from(high[i] >> k & 1) << 8;
                sizes.copy_from_slice(&IQ3S_GRID[point].to_le_bytes());
            }
            // 15 + size, or 15 - size where the sign bit is set: (15 + size) ^ 31 is 16 - size, one too many.
            let negative = l.mask(u32_at(signs, 4 * i));
            let plus = l.add(l.load(&sizes), l.splat(15));
            out.q[i] = l.add(l.xor(plus, l.and(negative, l.splat(31))), negative);
        }
    }
}
