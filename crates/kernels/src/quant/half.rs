//! Half precision to single precision, exact for every bit pattern.

/// IEEE 754 binary16 to binary32. Signalling NaNs become quiet ones, as the F16C instruction does.
pub(crate) fn f16_to_f32(bits: u16) -> f32 {
    let sign = u32::from(bits & 0x8000) << 16;
    let exponent = u32::from(bits >> 10 & 0x1f);
    let fraction = u32::from(bits & 0x3ff);
    match exponent {
        // A subnormal is its fraction times 2^-24, which single precision holds exactly.
        0 => f32::from_bits((fraction as f32 * (1.0 / 16_777_216.0)).to_bits() | sign),
        0x1f if fraction != 0 => f32::from_bits(sign | 0x7fc0_0000 | fraction << 13),
        0x1f => f32::from_bits(sign | 0x7f80_0000),
        _ => f32::from_bits(sign | (exponent + 112) << 23 | fraction << 13),
    }
}

/// bfloat16 to binary32: the upper half of the bits.
pub(crate) fn bf16_to_f32(bits: u16) -> f32 {
    f32::from_bits(u32::from(bits) << 16)
}

/// The little-endian 16-bit number at `at` in a block.
pub(crate) fn u16_at(block: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([block[at], block[at + 1]])
}

/// The little-endian 32-bit number at `at` in a block.
pub(crate) fn u32_at(block: &[u8], at: usize) -> u32 {
    u32::from(u16_at(block, at)) | u32::from(u16_at(block, at + 2)) << 16
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_values() {
        for (bits, want) in [
            (0x0000, 0.0),
            (0x8000, -0.0),
            (0x0001, 2f32.powi(-24)),
            (0x83ff, -1023.0 * 2f32.powi(-24)),
            (0x0400, 2f32.powi(-14)),
            (0x3c00, 1.0),
            (0x3555, 0.333_251_95),
            (0xc000, -2.0),
            (0x7bff, 65504.0),
            (0x7c00, f32::INFINITY),
            (0xfc00, f32::NEG_INFINITY),
        ] {
            assert_eq!(
                f16_to_f32(bits).to_bits(),
                f32::to_bits(want),
                "{bits:#06x}"
            );
        }
        assert!(f16_to_f32(0x7c01).is_nan() && f16_to_f32(0xfe00).is_nan());
    }
}
