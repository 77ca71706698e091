//! TQ1_0: 256 ternary weights, five to a byte in base 3 (the last 16 four to a byte); f16 `d`.

use super::half::u16_at;
use super::lanes::Lanes;
use super::span::{Block, Span};

pub(crate) struct TQ1_0;

impl Block for TQ1_0 {
    const LEN: usize = 256;
    const BYTES: usize = 54;
    const OFFSET: u8 = 1;
    const MAX_Q: u8 = 2;

    #[inline(always)]
    fn unpack<L: Lanes>(l: L, bytes: &[u8], out: &mut Span<L>) {
        out.scale[..8].fill(l.half(u16_at(bytes, 52)));
        let mut q = [0u8; 256];
        // 32 bytes with five digits each, 16 with five, 4 with four; digit n of all bytes before digit n + 1.
        let (mut at, mut first) = (0, 0);
        for (n_bytes, n_digits) in [(32, 5), (16, 5), (4, 4)] {
            for power in &POWERS_OF_3[..n_digits] {
                for &b in &bytes[first..first + n_bytes] {
                    q[at] = digit(b, *power);
                    at += 1;
                }
            }
            first += n_bytes;
        }
        for (lanes, q) in out.q.iter_mut().zip(q.as_chunks().0) {
            *lanes = l.load(q);
        }
    }
}

const POWERS_OF_3: [u8; 5] = [1, 3, 9, 27, 81];

/// A byte is a fraction of 256, rounded up, written in base 3: shift left by digits, then read the first.
fn digit(byte: u8, power: u8) -> u8 {
    ((u16::from(byte.wrapping_mul(power)) * 3) >> 8) as u8
}
