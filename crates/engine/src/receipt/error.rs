//! What can be wrong with a record, or with the place it is to go to.

use std::io;
use std::path::{Path, PathBuf};

use super::VERSION;

/// What is wrong with bytes that should be a record.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Flaw {
    /// No record, or a damaged one.
    #[error("not a receipt: {0}")]
    NotAReceipt(String),
    /// Of a later version of the schema.
    #[error(
        "a receipt of version {0}, and this ounce reads up to version {VERSION}; use a newer ounce"
    )]
    Newer(u64),
    /// Its values do not give the hash it carries.
    #[error(
        "edited by hand: its values do not give its content_sha256; run what it describes again for one that counts"
    )]
    Edited,
}

/// Errors of reading, writing and finding records; `Display` is the one line a user sees.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)] // each variant's message is its documentation
pub enum ReceiptError {
    #[error("{}: no such file or folder", .0.display())]
    NotFound(PathBuf),
    #[error("{}: {flaw}", path.display())]
    Flawed { path: PathBuf, flaw: Flaw },
    #[error("cannot {action} {}: {source}", path.display())]
    Io {
        action: &'static str,
        path: PathBuf,
        source: io::Error,
    },
    #[error("no space left for the receipt {}; delete something, or name another place with --receipt=PATH", .0.display())]
    NoSpace(PathBuf),
    #[error("{}: is there already and is not a receipt, so it stays as it is; name another file", .0.display())]
    Occupied(PathBuf),
    #[error("no receipts in {} yet; ounce plan MODEL --receipt writes one", .0.display())]
    Empty(PathBuf),
    #[error(
        "no receipt in {} has a name or hash that begins with \"{reference}\"; ounce receipts list shows what is there",
        folder.display()
    )]
    Unknown { reference: String, folder: PathBuf },
    #[error("{n} receipts have a name or hash that begins with \"{reference}\"; write more of it")]
    Ambiguous { reference: String, n: usize },
}

impl ReceiptError {
    /// Wraps an error of the operating system, with a full disk and a missing file told apart.
    pub(super) fn io(action: &'static str, path: &Path, source: io::Error) -> ReceiptError {
        use io::ErrorKind::{NotFound, QuotaExceeded, StorageFull};
        match source.kind() {
            StorageFull | QuotaExceeded => ReceiptError::NoSpace(path.to_owned()),
            NotFound if action == "read" => ReceiptError::NotFound(path.to_owned()),
            _ => ReceiptError::Io {
                action,
                path: path.to_owned(),
                source,
            },
        }
    }
}
