//! Block types of quantised weights, one file each: how a block's bits become numbers.
//!
//! Everything that can be done with a type follows from one function, `Block::unpack`, which turns
//! 256 weights of a row into integers, scales and minima (a `Span`). It is written once, over 32-lane
//! byte operations (`Lanes`), and compiled for each instruction set. Dequantisation is here; the
//! products are in [`linear`](crate::ops::linear()).
//!
//! A new type: its line in `ounce_gguf::TensorType`, a file here, and its line in `block_types!` below.
//!
//! Layouts: `ggml-common.h` and `ggml-quants.c` of llama.cpp (MIT).

#![allow(non_camel_case_types)] // The block types bear the names the field gives them.

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod float;
mod half;
mod iq3s_grid;
mod k_scales;
mod lanes;
mod span;

#[cfg(target_arch = "x86_64")]
pub(crate) use avx2::{Avx2, X86};
#[cfg(target_arch = "x86_64")]
pub(crate) use avx512::Vnni;
pub(crate) use float::{Float, WithFloat, with_float};
pub(crate) use half::{bf16_to_f32, f16_to_f32, f32_to_bf16, f32_to_f16};
pub(crate) use iq4_nl::VALUES as IQ4_NL_VALUES;
pub(crate) use lanes::Scalar;
pub(crate) use span::{Block, SPAN, Span, span_bytes};

use crate::TensorType;

/// A generic function over block types, for [`with_block`] (a closure cannot be generic).
pub(crate) trait WithBlock {
    /// What it returns.
    type Out;
    /// Called with the block type that belongs to the tensor type asked for.
    fn call<B: Block>(self) -> Self::Out;
}

/// One line a type: tensor type and file (which holds a struct of the tensor type's name).
macro_rules! block_types {
    ($($ty:ident: $module:ident,)*) => {
        $(mod $module;)*

        /// Calls `f` with the block type of `ty`; `None` when `ty` is no quantised type known here.
        pub(crate) fn with_block<F: WithBlock>(ty: TensorType, f: F) -> Option<F::Out> {
            match ty {
                $(TensorType::$ty => Some(f.call::<$module::$ty>()),)*
                _ => None,
            }
        }
    };
}

block_types! {
    Q4_0: q4_0,
    Q4_1: q4_1,
    Q5_0: q5_0,
    Q5_1: q5_1,
    Q8_0: q8_0,
    Q2_K: q2_k,
    Q3_K: q3_k,
    Q4_K: q4_k,
    Q5_K: q5_k,
    Q6_K: q6_k,
    IQ4_NL: iq4_nl,
    IQ4_XS: iq4_xs,
    IQ3_S: iq3_s,
    MXFP4: mxfp4,
    TQ1_0: tq1_0,
    TQ2_0: tq2_0,
}

/// True when weights of this type can be dequantised and multiplied. A model with others is refused at load.
pub fn has_kernel(ty: TensorType) -> bool {
    struct Known;
    impl WithBlock for Known {
        type Out = ();
        fn call<B: Block>(self) {}
    }
    impl WithFloat for Known {
        type Out = ();
        fn call<F: Float>(self) {}
    }
    with_block(ty, Known).is_some() || with_float(ty, Known).is_some()
}

/// Writes the numbers that one row of `ty` stands for: bit for bit what ggml's dequantisation gives.
///
/// # Panics
/// When [`has_kernel`] is false for `ty`, or `bytes` is not the length of a row of `out.len()` elements.
pub fn dequantize_row(ty: TensorType, bytes: &[u8], out: &mut [f32]) {
    struct Row<'a>(&'a [u8], &'a mut [f32]);
    impl WithBlock for Row<'_> {
        type Out = ();
        fn call<B: Block>(self) {
            span::dequantize_row::<B>(self.0, self.1);
        }
    }
    impl WithFloat for Row<'_> {
        type Out = ();
        fn call<F: Float>(self) {
            for (y, b) in self.1.iter_mut().zip(self.0.chunks_exact(F::BYTES)) {
                *y = F::to_f32(b);
            }
        }
    }
    let row_bytes = ty.row_bytes(out.len() as u64);
    assert_eq!(
        row_bytes,
        Some(bytes.len() as u64),
        "bytes of a {ty} row of {}",
        out.len()
    );
    if with_block(ty, Row(bytes, out)).is_none() {
        with_float(ty, Row(bytes, out)).unwrap_or_else(|| panic!("no kernel for {ty}"));
    }
}
