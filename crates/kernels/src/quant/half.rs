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

/// Binary32 to IEEE 754 binary16, rounding to nearest even as F16C does; too large becomes infinite.
pub(crate) fn f32_to_f16(x: f32) -> u16 {
    let bits = x.to_bits();
    let sign = (bits >> 16) as u16 & 0x8000;
    let magnitude = bits & 0x7fff_ffff;
    let half = match magnitude {
        // NaN keeps the upper bits of its payload and becomes quiet.
        0x7f80_0001.. => 0x7e00 | (magnitude >> 13 & 0x3ff) as u16,
        // From 65520 on, half a step above the largest finite number.
        0x477f_f000.. => 0x7c00,
        // Normal: rebias, round by adding just under half a step, more for odd numbers; a carry moves the exponent.
        0x3880_0000.. => ((magnitude - (112 << 23) + 0xfff + (magnitude >> 13 & 1)) >> 13) as u16,
        // Subnormal: adding 0.5 leaves the number, in units of 2^-24, rounded in the low bits.
        _ => ((f32::from_bits(magnitude) + 0.5).to_bits() - 0.5f32.to_bits()) as u16,
    };
    sign | half
}

/// Binary32 to bfloat16, rounding to nearest even; NaN stays NaN.
pub(crate) fn f32_to_bf16(x: f32) -> u16 {
    let bits = x.to_bits();
    if x.is_nan() {
        return (bits >> 16) as u16 | 0x40;
    }
    ((bits + 0x7fff + (bits >> 16 & 1)) >> 16) as u16
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
    fn every_half_survives_and_rounding_is_to_nearest_even() {
        for bits in 0..=u16::MAX {
            let x = f16_to_f32(bits);
            assert!(
                f32_to_f16(x) == bits || x.is_nan() && f16_to_f32(f32_to_f16(x)).is_nan(),
                "{bits:#06x}"
            );
            if x.is_finite() && bits & 0x7fff < 0x7bff {
                // Between this number and the next: the nearer one, the even one in the middle.
                let next = f16_to_f32(bits + 1);
                let middle = (x + next) / 2.0;
                assert_eq!(f32_to_f16(middle), bits + (bits & 1), "{bits:#06x}");
                assert_eq!(f32_to_f16((x + middle) / 2.0), bits);
                assert_eq!(f32_to_f16((next + middle) / 2.0), bits + 1);
            }
            let b = bf16_to_f32(bits);
            assert!(f32_to_bf16(b) == bits || b.is_nan() && bf16_to_f32(f32_to_bf16(b)).is_nan());
        }
        assert_eq!(f32_to_f16(65_519.9), 0x7bff);
        assert_eq!(f32_to_f16(65_520.0), 0x7c00);
        assert_eq!(f32_to_f16(-1e30), 0xfc00);
        assert_eq!(f32_to_bf16(1.0 + 1.0 / 256.0), 0x3f80);
        assert_eq!(f32_to_bf16(1.0 + 3.0 / 256.0), 0x3f82);
    }

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
