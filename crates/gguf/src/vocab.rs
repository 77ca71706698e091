//! The vocabulary in the metadata: lists that belong together have one length, special ids are within it.

use crate::{Error, Metadata};

/// Checks the `tokenizer.ggml.*` keys against each other. A file without a vocabulary passes.
///
/// # Errors
/// [`Error::VocabLength`] or [`Error::SpecialId`], naming the key.
pub fn check_vocab(metadata: &Metadata) -> Result<(), Error> {
    let Some(tokens) = metadata.array("tokenizer.ggml.tokens")? else {
        return Ok(());
    };
    let n_vocab = tokens.len;
    for key in ["tokenizer.ggml.scores", "tokenizer.ggml.token_type"] {
        if let Some(list) = metadata.array(key)?
            && list.len != n_vocab
        {
            return Err(Error::VocabLength {
                key: key.to_owned(),
                found: list.len,
                wanted: n_vocab,
            });
        }
    }
    for (key, value) in metadata.iter() {
        let is_id = key
            .strip_prefix("tokenizer.ggml.")
            .is_some_and(|k| k.ends_with("_token_id"));
        if !is_id {
            continue;
        }
        // -1, and its unsigned form, stand for "none" in files of some converters.
        let id = match value.as_u64() {
            Some(id) if id == u64::from(u32::MAX) => continue,
            Some(id) => id,
            None if matches!(value, crate::Value::I32(-1) | crate::Value::I64(-1)) => continue,
            None => {
                metadata.u32(key)?;
                continue;
            }
        };
        if id >= n_vocab {
            return Err(Error::SpecialId {
                key: key.to_owned(),
                id,
                n_vocab,
            });
        }
    }
    Ok(())
}
