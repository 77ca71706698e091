//! GGUF: bytes in, header out. No I/O, no `unsafe`, no allocation larger than what is left of the file.
//!
//! [`parse`] is given the whole file, usually a mapping, and touches only its header: metadata and tensor infos. Every
//! count, length, offset and product is checked against what is left of the file before anything is allocated.
//! Arrays of the metadata are checked in one walk and decoded later, from the same bytes, by [`Array`].
//!
//! Source: the GGUF specification (`docs/gguf.md` of ggml) and `gguf.cpp`.
#![forbid(unsafe_code)]

mod cursor;
mod error;
mod header;
mod metadata;
pub mod split;
mod types;
mod vocab;
pub mod write;

pub use error::Error;
pub use header::{Header, TensorInfo, parse};
pub use metadata::{Array, Metadata, Value, ValueKind};
pub use types::TensorType;
pub use vocab::check_vocab;
