//! What can be wrong with a header, each with the key or tensor it is about.

use crate::{TensorType, ValueKind};

/// Errors of this crate; `Display` is one line for the user, to which the caller adds the path.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[allow(missing_docs)] // each variant's message is its documentation
pub enum Error {
    #[error("the file is empty; download it again")]
    Empty,
    #[error("not a GGUF file: it starts with {found}{hint}")]
    NotGguf { found: String, hint: &'static str },
    #[error(
        "a big-endian GGUF (its version reads {0:#010x}); convert it to little-endian with gguf_convert_endian.py"
    )]
    BigEndian(u32),
    #[error(
        "GGUF version {0} is not supported, only 2 and 3; convert the model again with a current converter"
    )]
    Version(u32),
    #[error(
        "the header is cut off at byte {at} while reading {what}: the file is truncated, download it again"
    )]
    TruncatedHeader { at: u64, what: String },
    #[error(
        "{what} says {count}, which cannot fit in the {left} bytes left of the file: the file is truncated or damaged, download it again"
    )]
    Count { what: String, count: u64, left: u64 },
    #[error("{what} at byte {at} is not valid UTF-8")]
    NotUtf8 { at: u64, what: String },
    #[error("metadata key at byte {at} is {found}")]
    BadKey { at: u64, found: &'static str },
    #[error("metadata key \"{0}\" appears twice")]
    DuplicateKey(String),
    #[error("metadata key \"{key}\" has value type {id}, which GGUF does not define")]
    ValueType { key: String, id: u32 },
    #[error("metadata key \"{0}\" is an array of arrays, which no known model uses")]
    NestedArray(String),
    #[error("metadata key \"{key}\" holds a boolean of value {found}; only 0 and 1 are allowed")]
    Bool { key: String, found: u8 },
    #[error("metadata key \"{0}\" is missing")]
    MissingKey(String),
    #[error("metadata key \"{key}\" is {found} where {wanted} is needed")]
    KeyType {
        key: String,
        wanted: &'static str,
        found: String,
    },
    #[error("general.alignment is {0}; it must be a power of two from 8 to 65536")]
    Alignment(u64),
    #[error("tensor name at byte {at} is {found}")]
    BadTensorName { at: u64, found: String },
    #[error("tensor \"{0}\" appears twice")]
    DuplicateTensor(String),
    #[error("tensor \"{name}\" has {n} dimensions; 1 to 4 are allowed")]
    DimensionCount { name: String, n: u32 },
    #[error("tensor \"{name}\" has shape {dims:?}, whose size is zero or too large")]
    Dimensions { name: String, dims: Vec<u64> },
    #[error(
        "tensor \"{name}\" is of type {id}, which this build does not know; use a newer build or another quantisation"
    )]
    UnknownType { name: String, id: u32 },
    #[error(
        "tensor \"{name}\" has rows of {cols} elements, not a multiple of {ty}'s block of {block}"
    )]
    Block {
        name: String,
        cols: u64,
        ty: TensorType,
        block: u64,
    },
    #[error(
        "tensor \"{name}\" starts at offset {offset}, not a multiple of the alignment {alignment}"
    )]
    TensorAlignment {
        name: String,
        offset: u64,
        alignment: u64,
    },
    #[error(
        "tensor \"{name}\" ends at byte {end} but the file has {file_len}: the file is truncated, download it again"
    )]
    TruncatedData {
        name: String,
        end: String,
        file_len: u64,
    },
    #[error("tensors \"{first}\" and \"{second}\" overlap")]
    Overlap { first: String, second: String },
    #[error("\"{key}\" has {found} entries but the vocabulary has {wanted} tokens")]
    VocabLength {
        key: String,
        found: u64,
        wanted: u64,
    },
    #[error("\"{key}\" is {id}, but the vocabulary has {n_vocab} tokens")]
    SpecialId { key: String, id: u64, n_vocab: u64 },
    #[error("an array of {found} was read as {wanted}")]
    ArrayKind {
        wanted: &'static str,
        found: ValueKind,
    },
    #[error(
        "an array lies at bytes {start}..{end}, past what was given; it must be read from the bytes it was parsed from"
    )]
    ArrayBytes { start: u64, end: u64 },
    #[error("split model: {0}")]
    Split(String),
}
