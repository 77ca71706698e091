//! Records from outside: size, depth, shape, version and hash are checked before anything is believed.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use serde_json::Value;

use super::{Flaw, Receipt, ReceiptError, SCHEMA, VERSION};

/// No record comes near this; a larger file is something else.
const MAX_BYTES: u64 = 16 << 20;

impl Receipt {
    /// A record out of the bytes of a file. Its hash is not looked at: see [`Receipt::is_intact`].
    ///
    /// # Errors
    /// Not JSON (nested at most 128 deep), not a record, or of a later version.
    pub fn parse(bytes: &[u8]) -> Result<Receipt, Flaw> {
        let not = |why: &str| Flaw::NotAReceipt(why.to_owned());
        let value: Value = serde_json::from_slice(bytes).map_err(|e| not(&e.to_string()))?;
        let Value::Object(document) = value else {
            return Err(not("no JSON object"));
        };
        if document.get("schema").and_then(Value::as_str) != Some(SCHEMA) {
            return Err(not(&format!("its schema is not \"{SCHEMA}\"")));
        }
        match document.get("version").and_then(Value::as_u64) {
            None | Some(0) => return Err(not("it has no version")),
            Some(VERSION) => {}
            Some(newer) => return Err(Flaw::Newer(newer)),
        }
        let receipt = Receipt { document };
        for path in [
            &["kind"][..],
            &["created"],
            &["file", "name"],
            &["ran", "version"],
            &["content_sha256"],
        ] {
            if receipt.get(path).and_then(Value::as_str).is_none() {
                return Err(not(&format!("the text \"{}\" is missing", path.join("."))));
            }
        }
        if !receipt.get(&["device"]).is_some_and(Value::is_object) {
            return Err(not("the object \"device\" is missing"));
        }
        Ok(receipt)
    }

    /// The record in a file, edited or not.
    ///
    /// # Errors
    /// No regular file, unreadable, larger than 16 MiB, or as [`Receipt::parse`].
    pub fn read_unverified(path: &Path) -> Result<Receipt, ReceiptError> {
        let fail = |e| ReceiptError::io("read", path, e);
        let flawed = |flaw| ReceiptError::Flawed {
            path: path.to_owned(),
            flaw,
        };
        // Before it is opened, which for a pipe would wait for a writer.
        if !std::fs::metadata(path).map_err(fail)?.is_file() {
            return Err(flawed(Flaw::NotAReceipt("not a regular file".into())));
        }
        let mut bytes = Vec::new();
        let file = File::open(path).map_err(fail)?;
        file.take(MAX_BYTES + 1)
            .read_to_end(&mut bytes)
            .map_err(fail)?;
        if bytes.len() as u64 > MAX_BYTES {
            return Err(flawed(Flaw::NotAReceipt("larger than 16 MiB".into())));
        }
        Receipt::parse(&bytes).map_err(flawed)
    }

    /// The record in a file, as it was written.
    ///
    /// # Errors
    /// As [`Receipt::read_unverified`], or its values do not give its hash.
    pub fn read(path: &Path) -> Result<Receipt, ReceiptError> {
        let receipt = Receipt::read_unverified(path)?;
        match receipt.is_intact() {
            true => Ok(receipt),
            false => Err(ReceiptError::Flawed {
                path: path.to_owned(),
                flaw: Flaw::Edited,
            }),
        }
    }
}
