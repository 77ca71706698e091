//! Numbers in, numbers out: knows blocks and floats, nothing of models.
//!
//! Everything here runs on memory that the caller owns; nothing allocates after [`Cpu::new`].

mod cpu;
mod isa;
mod mat;
pub mod ops;
pub mod peak;
mod pool;
pub mod quant;
mod shared_slice;

pub use cpu::Cpu;
pub use isa::{Isa, IsaError};
pub use mat::Mat;
pub use ounce_gguf::TensorType;
pub use pool::{Pool, default_threads};
pub use shared_slice::SharedSlice;
