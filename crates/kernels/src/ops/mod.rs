//! Operations over rows of floats, one file each.
//!
//! An op is written once, in plain Rust that the compiler can vectorise, and compiled for each instruction set by
//! `for_isa!`; the scalar compilation is the oracle of its tests. Where that is not enough an op has intrinsics.

pub mod acts;
mod attention;
mod conv;
mod delta_net;
mod elementwise;
mod hadamard;
mod kv;
pub mod linear;
mod math;
mod norm;
mod rope;
mod split;
mod tq4;

pub use acts::ActBuf;
pub use attention::{Attention, AttnScratch, attention};
pub use conv::{MAX_CONV_KERNEL, causal_conv1d_silu};
pub use delta_net::{GatedDeltaNet, delta_net_gates, gated_delta_net};
pub use elementwise::{add, gelu_mul, scale, sigmoid_mul, silu_mul};
pub use hadamard::{rotate_heads, unrotate_heads};
pub use kv::{KvRows, KvType, KvTypeError, kv_store};
pub use linear::{LinearOut, linear};
pub use norm::{gated_norm, rms_norm, rms_norm_inplace};
pub use rope::{Angles, RopeKind, rope, rope_angles};

/// Calls `$f`, an `#[inline(always)]` function, compiled for the instruction set `$isa`. A `mul_add` is an instruction in
/// one form and a library call in the other, of the same result: all forms give the same bits.
macro_rules! for_isa {
    ($isa:expr, $f:path, ($($arg:ident: $ty:ty),* $(,)?)) => {{
        #[cfg(target_arch = "x86_64")]
        #[target_feature(enable = "avx2,fma,f16c")]
        #[allow(clippy::too_many_arguments)]
        fn avx2($($arg: $ty),*) {
            $f($($arg),*)
        }
        match $isa {
            #[cfg(target_arch = "x86_64")]
            // SAFETY: `Isa` is chosen only where the CPU has these features.
            crate::Isa::Avx2 | crate::Isa::Avx512 => unsafe { avx2($($arg),*) },
            _ => $f($($arg),*),
        }
    }};
}
pub(crate) use for_isa;
