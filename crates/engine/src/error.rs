//! Everything that can go wrong between a file and a token, each with what, where and what to do.

use std::io;
use std::path::{Path, PathBuf};

use ounce_gguf::TensorType;

/// Errors of this crate; `Display` is the one line a user sees.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)] // each variant's message is its documentation
pub enum EngineError {
    #[error("{}: no such file", .0.display())]
    NotFound(PathBuf),
    #[error("{}: is a directory; name a .gguf file in it", .0.display())]
    IsDirectory(PathBuf),
    #[error("{}: not a regular file; weights are served from a mapping, so the model must be a file", .0.display())]
    NotAFile(PathBuf),
    #[error("{}: the file is empty; download it again", .0.display())]
    EmptyFile(PathBuf),
    #[error(
        "{}: the file shrank, was overwritten or its storage failed while the model was in use; restore it and load the model again",
        .0.display()
    )]
    FileChanged(PathBuf),
    #[error(
        "{}: cannot lock {bytes} bytes in memory: {source}; {} (RLIMIT_MEMLOCK): raise it with ulimit -l, or do not lock the model",
        path.display(),
        limit.map_or("there is no limit".to_owned(), |n| format!("the limit is {n} bytes"))
    )]
    Lock {
        path: PathBuf,
        bytes: u64,
        limit: Option<u64>,
        source: io::Error,
    },
    #[error("{}: {source}", path.display())]
    Io { path: PathBuf, source: io::Error },
    #[error("{}: {source}", path.display())]
    Gguf {
        path: PathBuf,
        source: ounce_gguf::Error,
    },
    #[error("{}: {source}", path.display())]
    InFile {
        path: PathBuf,
        source: Box<EngineError>,
    },
    #[error("{0}")]
    Metadata(#[from] ounce_gguf::Error),
    #[error(
        "cannot reserve {bytes} bytes of address space for the {what}: {source}; lower -c or lift the limit (ulimit -v)"
    )]
    Reserve {
        what: &'static str,
        bytes: usize,
        source: io::Error,
    },
    #[error("architecture \"{name}\" is not supported; supported are {known}")]
    UnknownArch { name: String, known: String },
    #[error(
        "tensor \"{name}\" is missing; the file is incomplete or of another architecture than it says"
    )]
    MissingTensor { name: String },
    #[error("tensor \"{name}\" has shape {found:?} but the metadata asks for {wanted:?}")]
    TensorShape {
        name: String,
        found: Vec<u64>,
        wanted: Vec<u64>,
    },
    #[error(
        "tensor \"{name}\" is of type {ty}, for which there is no kernel; re-quantise the file, for example to Q4_K_M"
    )]
    NoKernel { name: String, ty: TensorType },
    #[error("tensor \"{name}\" is of type {ty}; vectors of this kind must be F32")]
    VectorType { name: String, ty: TensorType },
    #[error("metadata key \"{key}\": {why}")]
    Hparam { key: String, why: String },
    #[error("{0}")]
    Tokenizer(#[from] crate::tokenizer::TokenizerError),
    #[error("{0}")]
    Template(#[from] crate::template::TemplateError),
    #[error(
        "a context of {asked} tokens is larger than the {trained} the model was trained for; use -c {trained} or less"
    )]
    ContextTooLarge { asked: usize, trained: usize },
    #[error(
        "the prompt has {n_prompt} tokens and the context holds {n_ctx}; use a larger -c or a shorter prompt"
    )]
    PromptTooLong { n_prompt: usize, n_ctx: usize },
    #[error(
        "the context of {n_ctx} tokens is full; use a larger -c, or --context-shift to drop the oldest tokens"
    )]
    ContextFull { n_ctx: usize },
    #[error("token id {id} is not in the vocabulary of {n_vocab}")]
    TokenId { id: u32, n_vocab: usize },
    #[error(
        "the logits are not finite; the file is damaged or its weights overflow: compare its sha256 with the publisher's"
    )]
    NotFinite,
    #[error(
        "cache type {ty} needs a head size that is a multiple of {block}, this model has {head_dim}; use f16"
    )]
    KvType {
        ty: String,
        block: usize,
        head_dim: usize,
    },
    #[error(
        "memory is too short for new work: {0}; close other programs, lower -c or use a smaller quantisation, then try again"
    )]
    Pressure(String),
    #[error("cannot hold this process to its plan: {why}; leave out --strict-memory")]
    StrictMemory { why: String },
    #[error("{what} must be {wanted}, not {found}")]
    Parameter {
        what: &'static str,
        wanted: &'static str,
        found: String,
    },
}

impl EngineError {
    /// Whether a mapped file changed or failed: the model is of no further use, and a program that ends for it does so
    /// with [`EXIT_FILE_CHANGED`](crate::memory::EXIT_FILE_CHANGED).
    pub fn is_file_changed(&self) -> bool {
        match self {
            EngineError::FileChanged(_) => true,
            EngineError::InFile { source, .. } => source.is_file_changed(),
            _ => false,
        }
    }

    /// Whether the system refused memory that the plan reserves.
    pub fn is_no_memory(&self) -> bool {
        match self {
            EngineError::Reserve { .. } => true,
            EngineError::InFile { source, .. } => source.is_no_memory(),
            _ => false,
        }
    }

    /// An I/O error on a path, with "no such file" told apart.
    pub fn open(path: &Path, source: io::Error) -> EngineError {
        match source.kind() {
            io::ErrorKind::NotFound => EngineError::NotFound(path.to_owned()),
            _ => EngineError::Io {
                path: path.to_owned(),
                source,
            },
        }
    }
}
