//! Everything that can go wrong, each as one line that says what to do about it.

use std::io;
use std::path::{Path, PathBuf};

/// An error of this crate. Its text is a single line.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// The text is no model reference.
    #[error("{given:?} is no model reference: {reason}")]
    BadReference {
        /// What was written.
        given: String,
        /// What is wrong with it.
        reason: String,
    },
    /// A file named by the user does not exist.
    #[error("no such file: {}{hint}", path.display())]
    NoSuchFile {
        /// The file.
        path: PathBuf,
        /// What else may have been meant, starting with `; `, or empty.
        hint: String,
    },
    /// A folder was named where a file is wanted.
    #[error("{} is a folder; name the .gguf file in it", path.display())]
    IsFolder {
        /// The folder.
        path: PathBuf,
    },
    /// One file of a split model is missing.
    #[error("{} is missing: the model is split into {count} files that belong in one folder", path.display())]
    MissingPart {
        /// The file that is not there.
        path: PathBuf,
        /// How many files the model has.
        count: u32,
    },
    /// The model is not on this machine and must not be fetched.
    #[error("model {name} is not on this machine; fetch it with `ounce pull {name}`")]
    NotPulled {
        /// Canonical model name.
        name: String,
    },
    /// A registry does not know the model.
    #[error("{what} does not exist on {place}; check the spelling{hint}")]
    Unknown {
        /// Model or file.
        what: String,
        /// Host.
        place: String,
        /// More advice, starting with a separator, or empty.
        hint: String,
    },
    /// No connection to a host.
    #[error(
        "cannot reach {host}: {reason}; check the connection or the proxy (HTTPS_PROXY, ALL_PROXY, NO_PROXY)"
    )]
    Unreachable {
        /// Host, with `through proxy …` where one is in use.
        host: String,
        /// What the system said.
        reason: String,
    },
    /// A secure connection could not be made.
    #[error(
        "no secure connection to {host}: {reason}; if a proxy inspects traffic, set SSL_CERT_FILE to its certificates"
    )]
    Tls {
        /// Host.
        host: String,
        /// What failed.
        reason: String,
    },
    /// The server wants a login or a licence accepted (401, 403).
    #[error("{host} refuses {what} (HTTP {status}): {hint}")]
    Refused {
        /// Host.
        host: String,
        /// Path that was asked for.
        what: String,
        /// HTTP status.
        status: u16,
        /// What to do.
        hint: String,
    },
    /// Any other HTTP status that is not a success.
    #[error("{host} answers HTTP {status} for {what}; {hint}")]
    HttpStatus {
        /// Host.
        host: String,
        /// Path that was asked for.
        what: String,
        /// HTTP status.
        status: u16,
        /// What to do.
        hint: String,
        /// Seconds the server asks to wait.
        retry_after: Option<u64>,
    },
    /// An answer that makes no sense.
    #[error("{host} sends an answer that cannot be used: {reason}")]
    BadAnswer {
        /// Host.
        host: String,
        /// What is wrong.
        reason: String,
    },
    /// The connection broke during a transfer, again and again.
    #[error(
        "the connection to {host} broke at {done} of {total} bytes: {reason}; run the same command again to resume"
    )]
    Broken {
        /// Host.
        host: String,
        /// Bytes on disk.
        done: u64,
        /// Bytes announced, or `?`.
        total: String,
        /// What the system said.
        reason: String,
    },
    /// A repository, manifest or package without a usable GGUF file.
    #[error("{place} has no {wanted}; it has: {found}")]
    NoGguf {
        /// Where it was looked for.
        place: String,
        /// What was looked for.
        wanted: String,
        /// What is there instead.
        found: String,
    },
    /// The bytes are not the ones expected; they were deleted.
    #[error(
        "wrong hash for {file}: expected sha256 {wanted}, got {got}; the download was deleted, try again or use another source"
    )]
    WrongHash {
        /// File name.
        file: String,
        /// Expected SHA-256.
        wanted: String,
        /// SHA-256 of what arrived.
        got: String,
    },
    /// The size is not the one expected.
    #[error("wrong size for {file}: expected {wanted} bytes, got {got}; the download was deleted")]
    WrongSize {
        /// File name.
        file: String,
        /// Expected size.
        wanted: u64,
        /// Actual size.
        got: u64,
    },
    /// The file is complete but is no GGUF file.
    #[error("{file} is not a GGUF file: it starts with {start:?}; check what {origin} points to")]
    NotGguf {
        /// File name.
        file: String,
        /// Where it came from.
        origin: String,
        /// First bytes, printable.
        start: String,
    },
    /// No room on the disk.
    #[error(
        "no space left for {}: {need} bytes are needed and {free} are free; make room or set OUNCE_HOME to another disk", path.display()
    )]
    NoSpace {
        /// File or folder.
        path: PathBuf,
        /// Bytes still to be written; `more` where that is not known.
        need: String,
        /// Bytes available, or `none`.
        free: String,
    },
    /// No pip on this machine.
    #[error(
        "no working pip found (tried {tried}); install Python's pip or set OUNCE_PIP to its command"
    )]
    NoPip {
        /// The commands tried.
        tried: String,
    },
    /// pip ran and failed.
    #[error("pip cannot fetch {package}: {reason}")]
    Pip {
        /// Package, with version.
        package: String,
        /// pip's own words.
        reason: String,
    },
    /// A wheel that cannot be unpacked.
    #[error("the package {file} cannot be unpacked: {reason}")]
    BadWheel {
        /// Wheel file name.
        file: String,
        /// What is wrong.
        reason: String,
    },
    /// Every source of a named model failed.
    #[error("no source has {name}: {failures}{hint}")]
    AllSourcesFailed {
        /// Model name.
        name: String,
        /// Each source with its error, separated by ` | `.
        failures: String,
        /// More advice, starting with a separator, or empty.
        hint: &'static str,
    },
    /// The model belongs to ollama.
    #[error("{name} belongs to ollama and is left alone; remove it with `ollama rm {ollama_name}`")]
    OllamaOwned {
        /// Name as given.
        name: String,
        /// The name ollama lists it under.
        ollama_name: String,
    },
    /// A file that this store did not pull.
    #[error("{} was not pulled by ounce and is left alone; delete the file yourself", path.display())]
    NotOurs {
        /// The file.
        path: PathBuf,
    },
    /// The model to remove is not in the store.
    #[error("no pulled model is called {name}; `ounce list` shows what is there")]
    NoSuchModel {
        /// Name as given.
        name: String,
    },
    /// Another process is pulling the model.
    #[error("{name} is being pulled by another process; wait for it or stop it first")]
    Busy {
        /// Model name.
        name: String,
    },
    /// An environment variable with a value that cannot be used.
    #[error("{variable} is set to {value:?}: {reason}")]
    BadSetting {
        /// Name of the variable.
        variable: &'static str,
        /// Its value.
        value: String,
        /// What is wrong.
        reason: String,
    },
    /// The operating system refused something.
    #[error("cannot {action} {}: {source}", path.display())]
    Io {
        /// A verb, such as `write`.
        action: &'static str,
        /// File or folder.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

impl StoreError {
    /// Wraps an error of the operating system; a full disk becomes [`StoreError::NoSpace`].
    pub(crate) fn io(action: &'static str, path: &Path, source: io::Error) -> Self {
        use io::ErrorKind::{QuotaExceeded, StorageFull};
        if matches!(source.kind(), StorageFull | QuotaExceeded) {
            return Self::no_space(path, None);
        }
        Self::Io {
            action,
            path: path.to_owned(),
            source,
        }
    }

    /// `need` is the number of bytes still to be written, where known.
    pub(crate) fn no_space(path: &Path, need: Option<u64>) -> Self {
        Self::NoSpace {
            path: path.to_owned(),
            need: need.map_or_else(|| "more".to_owned(), |n| n.to_string()),
            free: crate::space::free(path).map_or_else(|| "none".to_owned(), |n| n.to_string()),
        }
    }

    /// The text without the advice that would be repeated for every source.
    pub(crate) fn brief(&self) -> String {
        match self {
            Self::Unreachable { host, reason } => format!("cannot reach {host}: {reason}"),
            other => other.to_string(),
        }
    }

    /// Whether the same request may succeed a moment later.
    pub(crate) fn is_transient(&self) -> bool {
        match self {
            Self::Unreachable { .. } | Self::Broken { .. } => true,
            Self::HttpStatus { status, .. } => *status == 429 || *status >= 500,
            _ => false,
        }
    }

    /// Whether the cause is this machine, so that another source would not help.
    pub(crate) fn is_local(&self) -> bool {
        matches!(
            self,
            Self::NoSpace { .. } | Self::Io { .. } | Self::Busy { .. }
        )
    }
}
