//! MXFP4: 32 weights of 4-bit floats (e2m1) with a power of two for scale (e8m0).

use super::lanes::Lanes;
use super::span::{Block, Span, bytes_at};

pub(crate) struct MXFP4;

impl Block for MXFP4 {
    const LEN: usize = 32;
    const BYTES: usize = 17;
    const OFFSET: u8 = 12;
    const MAX_Q: u8 = 24;

    #[inline(always)]
    fn unpack<L: Lanes>(l: L, bytes: &[u8], out: &mut Span<L>) {
        for (i, block) in bytes.chunks_exact(Self::BYTES).enumerate() {
            out.scale[i] = e8m0_half(block[0]);
            out.q[i] = l.lookup(&VALUES, l.nibbles(bytes_at(block, 1)));
        }
    }
}

/// ggml's `kvalues_mxfp4` (twice the e2m1 values: 0, 1, 2, 3, 4, 6, 8, 12, then the same negated), plus 12.
const VALUES: [u8; 16] = [12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0];

/// Half of 2^(e - 127), as the values above are doubled (`ggml_e8m0_to_fp32_half`).
fn e8m0_half(e: u8) -> f32 {
    f32::from_bits(match e {
        // 2^-128 and 2^-127 are subnormal.
        0 | 1 => 0x0020_0000 << e,
        _ => u32::from(e - 1) << 23,
    })
}

#[cfg(test)]
mod tests {
    use crate::{TensorType, quant::dequantize_row};

    /// By hand from the OCP microscaling specification: e8m0 exponent, e2m1 elements, low nibbles first.
    #[test]
    fn values_of_the_specification() {
        let e2m1 = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0];
        for (e, scale) in [
            (0u8, 2f32.powi(-127)),
            (1, 2f32.powi(-126)),
            (127, 1.0),
            (130, 8.0),
            (254, 2f32.powi(127)),
        ] {
            let mut block = [0u8; 17];
            block[0] = e;
            for i in 0..16 {
                block[1 + i] = i as u8 | (15 - i as u8) << 4;
            }
            let mut out = [0.0; 32];
            dequantize_row(TensorType::MXFP4, &block, &mut out);
            for i in 0..16 {
                let value = |n: usize| {
                    if n < 8 {
                        e2m1[n] * scale
                    } else {
                        -e2m1[n - 8] * scale
                    }
                };
                assert_eq!(out[i], value(i), "e {e}, low nibble {i}");
                assert_eq!(out[16 + i], value(15 - i), "e {e}, high nibble {}", 15 - i);
            }
        }
    }
}
