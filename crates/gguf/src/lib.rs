//! GGUF: bytes in, header out. No I/O, no `unsafe`, no allocation larger than what is left of the file.
#![forbid(unsafe_code)]

mod types;

pub use types::TensorType;
