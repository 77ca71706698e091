//! Weights that are floats already: F32, F16, BF16.

use super::half::{bf16_to_f32, f16_to_f32};
use crate::TensorType;

/// A float type, little-endian.
pub(crate) trait Float: 'static {
    /// Bytes of one number.
    const BYTES: usize;

    /// The number in the first [`Float::BYTES`] bytes of `b`.
    fn to_f32(b: &[u8]) -> f32;

    /// Eight numbers.
    #[cfg(target_arch = "x86_64")]
    fn load8(v: super::Avx2, b: &[u8]) -> std::arch::x86_64::__m256;
}

/// A generic function over float types, for [`with_float`].
pub(crate) trait WithFloat {
    /// What it returns.
    type Out;
    /// Called with the float type that belongs to the tensor type asked for.
    fn call<F: Float>(self) -> Self::Out;
}

/// Calls `f` with the float type of `ty`; `None` when `ty` is no float type known here.
pub(crate) fn with_float<F: WithFloat>(ty: TensorType, f: F) -> Option<F::Out> {
    match ty {
        TensorType::F32 => Some(f.call::<F32>()),
        TensorType::F16 => Some(f.call::<F16>()),
        TensorType::BF16 => Some(f.call::<BF16>()),
        _ => None,
    }
}

/// Single precision.
pub(crate) struct F32;

impl Float for F32 {
    const BYTES: usize = 4;

    fn to_f32(b: &[u8]) -> f32 {
        f32::from_le_bytes([b[0], b[1], b[2], b[3]])
    }

    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    fn load8(v: super::Avx2, b: &[u8]) -> std::arch::x86_64::__m256 {
        v.load_f32(b.first_chunk().expect("eight numbers"))
    }
}

/// Half precision.
pub(crate) struct F16;

impl Float for F16 {
    const BYTES: usize = 2;

    fn to_f32(b: &[u8]) -> f32 {
        f16_to_f32(u16::from_le_bytes([b[0], b[1]]))
    }

    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    fn load8(v: super::Avx2, b: &[u8]) -> std::arch::x86_64::__m256 {
        v.load_f16(b.first_chunk().expect("eight numbers"))
    }
}

/// bfloat16.
pub(crate) struct BF16;

impl Float for BF16 {
    const BYTES: usize = 2;

    fn to_f32(b: &[u8]) -> f32 {
        bf16_to_f32(u16::from_le_bytes([b[0], b[1]]))
    }

    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    fn load8(v: super::Avx2, b: &[u8]) -> std::arch::x86_64::__m256 {
        v.load_bf16(b.first_chunk().expect("eight numbers"))
    }
}
