//! What can be wrong with a tokenizer's metadata.

/// Errors of this module; `Display` is one line for the user, to which the caller adds the path.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)] // each variant's message is its documentation
pub enum TokenizerError {
    #[error("{0}")]
    Metadata(#[from] ounce_gguf::Error),
    #[error(
        "\"tokenizer.ggml.model\" is \"{0}\"; supported are \"gpt2\" (byte-level BPE) and \"llama\" (SentencePiece)"
    )]
    Model(String),
    #[error("\"tokenizer.ggml.pre\" is \"{name}\", which is not supported; supported are {known}")]
    Pre { name: String, known: String },
    #[error("\"tokenizer.ggml.tokens\" has 0 entries; convert the model again")]
    NoTokens,
    #[error("\"{key}\" has {found} {what}; at most {most} are supported")]
    TooLarge {
        key: &'static str,
        found: u64,
        what: &'static str,
        most: u64,
    },
    #[error(
        "\"tokenizer.ggml.tokens\" holds \"{text}\" twice, as {first} and {second}; convert the model again"
    )]
    DuplicateToken {
        text: String,
        first: u32,
        second: u32,
    },
    #[error(
        "\"tokenizer.ggml.merges\", entry {index}: \"{text}\" is not two parts with a space between"
    )]
    Merge { index: usize, text: String },
    #[error("\"{flag}\" is true but there is no \"{key}\"")]
    NoSuchId {
        flag: &'static str,
        key: &'static str,
    },
}
