//! Gates, sums and factors, element by element.

use super::math::{gelu, sigmoid, silu};
use super::{for_isa, split};
use crate::Cpu;

/// An op `x[i] = f(x[i], y[i])`.
macro_rules! binary {
    ($(#[$doc:meta])* $name:ident, $kernel:ident, $cost:literal, |$x:ident, $y:ident| $value:expr) => {
        $(#[$doc])*
        ///
        /// # Panics
        /// When the lengths differ.
        pub fn $name(cpu: &Cpu, x: &mut [f32], y: &[f32]) {
            assert_eq!(x.len(), y.len());
            split::rows(cpu, x, 1, $cost, &|first, x| {
                let y = &y[first..first + x.len()];
                for_isa!(cpu.isa, $kernel, (x: &mut [f32], y: &[f32]));
            });
        }

        #[inline(always)]
        fn $kernel(x: &mut [f32], y: &[f32]) {
            for (x, y) in x.iter_mut().zip(y) {
                let ($x, $y) = (*x, *y);
                *x = $value;
            }
        }
    };
}

binary! {
    /// `gate = silu(gate) · up`.
    silu_mul, silu_mul_kernel, 8, |gate, up| silu(gate) * up
}
binary! {
    /// `x = x · sigmoid(g)`.
    sigmoid_mul, sigmoid_mul_kernel, 8, |x, g| x * sigmoid(g)
}
binary! {
    /// `x = x + y`.
    add, add_kernel, 1, |x, y| x + y
}

/// `gate = gelu(gate) · up`, in the tanh form, gelu's argument and value rounded to half precision: ggml looks them up in
/// a table of halves, every published figure of a gelu model includes that rounding, and so do the references here.
///
/// # Panics
/// When the lengths differ.
pub fn gelu_mul(cpu: &Cpu, gate: &mut [f32], up: &[f32]) {
    assert_eq!(gate.len(), up.len());
    split::rows(cpu, gate, 1, 10, &|first, gate| {
        let up = &up[first..first + gate.len()];
        for_isa!(cpu.isa, gelu_mul_kernel, (gate: &mut [f32], up: &[f32]));
    });
}

#[inline(always)]
fn gelu_mul_kernel(gate: &mut [f32], up: &[f32]) {
    for (x, y) in gate.iter_mut().zip(up) {
        // Where the table ends.
        let g = if *x <= -10.0 { 0.0 } else { {let h=round_to_half(*x); round_to_half(0.5*h*(1.0+(0.797_884_560_802_865_4_f32*h*(1.0+0.044715*h*h)).tanh()))} };
        *x = y * if *x >= 10.0 { *x } else { g };
    }
}

/// The nearest half-precision number, for magnitudes below 65520. Without branches, so that loops over it vectorise.
#[inline(always)]
fn round_to_half(x: f32) -> f32 {
    let bits = x.to_bits();
    // Adding and taking off a power of two rounds to its last place: 2^-24 for subnormal halves, else ten places below
    // the leading one.
    let exponent = (bits >> 23 & 0xff).max(113);
    let power = f32::from_bits((exponent + 13) << 23);
    let magnitude = f32::from_bits(bits & 0x7fff_ffff);
    let rounded = (magnitude + power) - power;
    f32::from_bits(rounded.to_bits() | bits & 0x8000_0000)
}

/// `x = x · s`.
pub fn scale(cpu: &Cpu, x: &mut [f32], s: f32) {
    split::rows(cpu, x, 1, 1, &|_, x| x.iter_mut().for_each(|x| *x *= s));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::quant::{f16_to_f32, f32_to_f16};

    #[test]
    fn rounding_to_half_is_that_of_the_conversion() {
        for i in 0..2_000_000u32 {
            // Exponents from 2^-30 to 2^3, all kinds of mantissas.
            let x = f32::from_bits((97 << 23) + i.wrapping_mul(139)) * if i % 2 == 0 { 1.0 } else { -1.0 };
            assert_eq!(round_to_half(x).to_bits(), f16_to_f32(f32_to_f16(x)).to_bits(), "{x:e}");
        }
        assert!(round_to_half(f32::NAN).is_nan());
    }
}
