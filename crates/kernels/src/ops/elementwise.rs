//! Gates, sums and factors, element by element.

use std::sync::OnceLock;

use super::math::{sigmoid, silu};
use super::{for_isa, split};
use crate::Cpu;
#[cfg(target_arch = "x86_64")]
use crate::Isa;
use crate::quant::{f16_to_f32, f32_to_f16};

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

/// `gate = gelu(gate) · up`, in the tanh form, looked up by the half-precision form of the gate as ggml does: every
/// published figure of a gelu model includes that rounding, and so do the references here.
///
/// # Panics
/// When the lengths differ.
pub fn gelu_mul(cpu: &Cpu, gate: &mut [f32], up: &[f32]) {
    assert_eq!(gate.len(), up.len());
    let table = gelu_table();
    split::rows(cpu, gate, 1, 8, &|first, gate| {
        let up = &up[first..first + gate.len()];
        match cpu.isa {
            #[cfg(target_arch = "x86_64")]
            // SAFETY: `Isa` is chosen only where the CPU has F16C.
            Isa::Avx2 | Isa::Avx512 => unsafe { x86::gelu_mul(table, gate, up) },
            _ => gelu_mul_kernel(table, gate, up),
        }
    });
}

fn gelu_mul_kernel(table: &[u16; 1 << 16], gate: &mut [f32], up: &[f32]) {
    for (x, up) in gate.iter_mut().zip(up) {
        let half = f32_to_f16(*x);
        *x = up * within_table(*x, f16_to_f32(table[usize::from(half)]));
    }
}

/// The ends of ggml's table. NaN has an entry.
#[inline(always)]
fn within_table(x: f32, gelu: f32) -> f32 {
    let gelu = if x <= -10.0 { 0.0 } else { gelu };
    if x >= 10.0 { x } else { gelu }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::*;

    use super::{gelu_mul_kernel, within_table};

    /// Eight at a time, with the CPU's own conversions.
    #[target_feature(enable = "avx2,fma,f16c")]
    pub fn gelu_mul(table: &[u16; 1 << 16], gate: &mut [f32], up: &[f32]) {
        let done = gate.len() / 8 * 8;
        for (x, up) in gate.chunks_exact_mut(8).zip(up.chunks_exact(8)) {
            let mut halves = [0u16; 8];
            let mut gelu = [0.0f32; 8];
            // SAFETY: `x` and `gelu` are eight floats, `halves` is 16 bytes; the instructions allow any alignment.
            unsafe {
                let half =
                    _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(_mm256_loadu_ps(x.as_ptr()));
                _mm_storeu_si128(halves.as_mut_ptr().cast(), half);
                let looked_up = halves.map(|h| table[usize::from(h)]);
                let values = _mm256_cvtph_ps(_mm_loadu_si128(looked_up.as_ptr().cast()));
                _mm256_storeu_ps(gelu.as_mut_ptr(), values);
            }
            for ((x, up), gelu) in x.iter_mut().zip(up).zip(gelu) {
                *x = up * within_table(*x, gelu);
            }
        }
        gelu_mul_kernel(table, &mut gate[done..], &up[done..]);
    }
}

/// gelu of every half-precision number, in half precision; 128 KiB, filled on first use.
fn gelu_table() -> &'static [u16; 1 << 16] {
    static TABLE: OnceLock<Box<[u16; 1 << 16]>> = OnceLock::new();
    TABLE.get_or_init(|| {
        let mut table = Box::new([0; 1 << 16]);
        for (bits, entry) in (0..=u16::MAX).zip(table.iter_mut()) {
            let x = f16_to_f32(bits);
            // Hendrycks, Gimpel, arXiv 1606.08415, in ggml's order of operations.
            let tanh = (SQRT_2_OVER_PI * x * (1.0 + 0.044_715 * x * x)).tanh();
            *entry = f32_to_f16(0.5 * x * (1.0 + tanh));
        }
        table
    })
}

const SQRT_2_OVER_PI: f32 = 0.797_884_6;

/// `x = x · s`.
pub fn scale(cpu: &Cpu, x: &mut [f32], s: f32) {
    split::rows(cpu, x, 1, 1, &|_, x| x.iter_mut().for_each(|x| *x *= s));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Isa;

    #[test]
    fn gelu_is_gelu_to_half_precision() {
        let cpu = Cpu::new(Isa::Scalar, 1);
        for i in -1200..=1200 {
            let x = i as f32 * 0.01;
            let mut y = [x];
            gelu_mul(&cpu, &mut y, &[2.0]);
            let d = f64::from(x);
            let want = d
                * (1.0 + ((2.0 / std::f64::consts::PI).sqrt() * (d + 0.044715 * d.powi(3))).tanh());
            assert!(
                (f64::from(y[0]) - want).abs() <= 2e-3 * d.abs(),
                "{x}: {} for {want}",
                y[0]
            );
        }
        let mut y = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY];
        gelu_mul(&cpu, &mut y, &[1.0; 3]);
        assert!(y[0].is_nan() && y[1] == f32::INFINITY && y[2] == 0.0);
    }
}
