//! The tokenizer of a GGUF file: text to token ids and back, equal to llama.cpp's.
//!
//! `special.rs` cuts a text at its special tokens; what is between goes to `bpe.rs` (after `pretokenize.rs` has cut it into
//! pieces) or to `spm.rs`. All share the one `vocab.rs`, which holds each token as the bytes it stands for: a BPE
//! vocabulary's byte alphabet and a SentencePiece vocabulary's `▁` are translated once, at load.

mod bpe;
mod detokenize;
mod error;
mod pretokenize;
mod size;
mod special;
mod spm;
mod vocab;

use std::borrow::Cow;

use ounce_gguf::{Array, Header, Metadata, ValueKind};

pub use detokenize::Detokenizer;
pub use error::TokenizerError;
pub use size::planned_bytes;
pub use vocab::TokenKind;

use bpe::{Bpe, ByteDecoder};
use pretokenize::PreTokenizer;
use special::{Defaults, Part, SpecialTokens};
use spm::{Neighbours, SPACE, Spm};
use vocab::{MAX_TEXT, MAX_TOKENS, Vocab};

/// Text to token ids and back.
pub struct Tokenizer {
    vocab: Vocab,
    special: SpecialTokens,
    model: Model,
    names_no_pretokenizer: bool,
}

enum Model {
    Bpe(Box<Bpe>),
    Spm(Spm),
}

impl Tokenizer {
    /// From the metadata of a file; `bytes` are those its header was parsed from.
    ///
    /// # Errors
    /// A model or pre-tokenizer that is not supported, or metadata that is missing, of the wrong type or inconsistent.
    pub fn from_gguf(header: &Header, bytes: &[u8]) -> Result<Tokenizer, TokenizerError> {
        let metadata = &header.metadata;
        let tokens = metadata.required_array("tokenizer.ggml.tokens")?;
        if tokens.len == 0 {
            return Err(TokenizerError::NoTokens);
        }
        check_size("tokenizer.ggml.tokens", tokens)?;
        match metadata.required_str("tokenizer.ggml.model")? {
            "gpt2" => load_bpe(metadata, tokens, bytes),
            "llama" => load_spm(metadata, tokens, bytes),
            other => Err(TokenizerError::Model(other.to_owned())),
        }
    }

    /// What a user should know about this tokenizer.
    pub fn note(&self) -> Option<&'static str> {
        self.names_no_pretokenizer.then_some(
            "the file names no pre-tokenizer (tokenizer.ggml.pre); the default one may cut text otherwise than the model learned it",
        )
    }

    /// Token ids of `text`, without a begin-of-sequence token. Control tokens written out in the text are recognised only
    /// if `parse_special`; user-defined ones always are. A byte that the vocabulary cannot express is left out.
    pub fn encode(&self, text: &str, parse_special: bool) -> Vec<u32> {
        let mut out = Vec::with_capacity(text.len() / 3 + 1);
        let mut after_special = true;
        self.special
            .partition(&self.vocab, text, parse_special, &mut |part| match part {
                Part::Token(id) => {
                    out.push(id);
                    after_special = true;
                }
                Part::Text(text) => {
                    match &self.model {
                        Model::Bpe(bpe) => bpe.encode(&self.vocab, text, &mut out),
                        Model::Spm(spm) => {
                            let space = if spm.add_space_prefix && after_special {
                                " "
                            } else {
                                ""
                            };
                            let text = format!("{space}{}", text.replace(SPACE, " "));
                            spm.encode(&self.vocab, &text, &mut out);
                        }
                    }
                    after_special = false;
                }
            });
        out
    }

    /// The text of tokens that are a text from its start; control tokens are not shown.
    pub fn decode(&self, ids: &[u32]) -> String {
        let mut detokenizer = Detokenizer::from_start(self);
        let mut text = String::new();
        ids.iter()
            .for_each(|&id| text.push_str(detokenizer.push(id)));
        text.push_str(detokenizer.finish());
        text
    }

    /// Bytes a token stands for. Control and unknown tokens stand for nothing, or with `render_special` for their name;
    /// unused tokens and ids outside the vocabulary stand for nothing.
    pub fn token_bytes(&self, id: u32, render_special: bool) -> Cow<'_, [u8]> {
        if !self.vocab.is_token(id) {
            return Cow::Borrowed(&[]);
        }
        Cow::Borrowed(match self.vocab.kind(id) {
            TokenKind::Normal | TokenKind::UserDefined | TokenKind::Byte => self.vocab.bytes(id),
            TokenKind::Control | TokenKind::Unknown if render_special => self.vocab.bytes(id),
            TokenKind::Control | TokenKind::Unknown | TokenKind::Unused => &[],
        })
    }

    /// Kind of a token; `None` for ids outside the vocabulary.
    pub fn kind(&self, id: u32) -> Option<TokenKind> {
        self.vocab.is_token(id).then(|| self.vocab.kind(id))
    }

    /// Number of tokens.
    pub fn n_vocab(&self) -> usize {
        self.vocab.n_tokens()
    }

    /// The begin-of-sequence token.
    pub fn bos(&self) -> Option<u32> {
        self.special.bos
    }

    /// The end-of-sequence token.
    pub fn eos(&self) -> Option<u32> {
        self.special.eos
    }

    /// Whether prompts start with [`Tokenizer::bos`].
    pub fn add_bos(&self) -> bool {
        self.special.add_bos
    }

    /// Whether prompts end with [`Tokenizer::eos`].
    pub fn add_eos(&self) -> bool {
        self.special.add_eos
    }

    /// Whether the token ends a text: those the metadata names and those whose name says so.
    pub fn is_eog(&self, id: u32) -> bool {
        self.special.is_end_of_generation(id)
    }

    /// Whether encoding puts a space before a text.
    fn adds_space_prefix(&self) -> bool {
        matches!(&self.model, Model::Spm(spm) if spm.add_space_prefix)
    }

    /// Bytes on the heap, without the compiled patterns.
    pub fn memory_bytes(&self) -> usize {
        let model = match &self.model {
            Model::Bpe(bpe) => bpe.memory_bytes() + size_of::<Bpe>(),
            Model::Spm(spm) => spm.memory_bytes(),
        };
        self.vocab.memory_bytes() + self.special.memory_bytes() + model
    }
}

/// Kind of each token, in order; all normal where the file says nothing.
fn kinds<'a>(
    metadata: &Metadata,
    bytes: &'a [u8],
) -> Result<Box<dyn Iterator<Item = TokenKind> + 'a>, TokenizerError> {
    Ok(match metadata.array("tokenizer.ggml.token_type")? {
        Some(array) => Box::new(array.i64s(bytes)?.map(TokenKind::from_number)),
        None => Box::new(std::iter::repeat(TokenKind::Normal)),
    })
}

/// The byte that a token's text names, as in `<0x0A>`.
fn named_byte(text: &[u8]) -> Option<u8> {
    let digits = text.strip_prefix(b"<0x")?.strip_suffix(b">")?;
    let is_hex = digits.len() == 2
        && digits
            .iter()
            .all(|b| matches!(b, b'0'..=b'9' | b'A'..=b'F'));
    if !is_hex {
        return None;
    }
    u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
}

fn load_bpe(
    metadata: &Metadata,
    tokens: &Array,
    bytes: &[u8],
) -> Result<Tokenizer, TokenizerError> {
    let named = metadata
        .str("tokenizer.ggml.pre")?
        .filter(|name| !name.is_empty());
    let pre = PreTokenizer::new(named.unwrap_or(pretokenize::DEFAULT))?;
    let decoder = ByteDecoder::new();
    let mut vocab = Vocab::with_capacity(tokens.len as usize, text_bytes(tokens));
    let mut decoded = Vec::new();
    for (text, kind) in tokens.strings(bytes)?.zip(kinds(metadata, bytes)?) {
        decoded.clear();
        let in_alphabet = decoder.decode(text, &mut decoded);
        match (kind, named_byte(text)) {
            (TokenKind::Byte, Some(byte)) => vocab.push_token(&[byte], kind, false)?,
            (TokenKind::Normal, _) if in_alphabet => {
                vocab.push_token(&decoded, kind, !text.is_empty())?
            }
            // Special tokens are their text; merges reach those that are spelt the same in the alphabet.
            _ => vocab.push_token(
                text,
                kind,
                !text.is_empty() && (!in_alphabet || decoded == text),
            )?,
        }
    }
    let merges = metadata.required_array("tokenizer.ggml.merges")?;
    check_size("tokenizer.ggml.merges", merges)?;
    let n_merges = merges.len as usize;
    let bpe = Bpe::new(pre, &mut vocab, merges.strings(bytes)?, n_merges)?;
    vocab.shrink();
    let defaults = Defaults {
        bos: None,
        eos: None,
        add_bos: bpe.add_bos(),
    };
    let special = SpecialTokens::new(metadata, &mut vocab, defaults)?;
    Ok(Tokenizer {
        vocab,
        special,
        model: Model::Bpe(Box::new(bpe)),
        names_no_pretokenizer: named.is_none(),
    })
}

fn load_spm(
    metadata: &Metadata,
    tokens: &Array,
    bytes: &[u8],
) -> Result<Tokenizer, TokenizerError> {
    let mut vocab = Vocab::with_capacity(tokens.len as usize, text_bytes(tokens));
    let mut byte_tokens = Box::new([None; 256]);
    let mut neighbours = Neighbours::new();
    let mut spaced = Vec::new();
    for (id, (text, kind)) in tokens
        .strings(bytes)?
        .zip(kinds(metadata, bytes)?)
        .enumerate()
    {
        let byte = named_byte(text);
        if let Some(byte) = byte {
            byte_tokens[usize::from(byte)] = Some(id as u32);
        }
        // A space in the file is not the `▁` that the space of a text becomes, so no text has this token.
        let findable = !text.is_empty() && !text.contains(&b' ');
        let n_spaces = replace_space_signs(text, &mut spaced);
        let (text, findable) = match (kind, byte) {
            (TokenKind::Byte, Some(byte)) => (&[byte][..], false),
            (TokenKind::Normal, _) => (&spaced[..], findable),
            _ => (text, findable && n_spaces == 0),
        };
        neighbours.add(text);
        vocab.push_token(text, kind, findable)?;
    }
    let scores = match metadata.array("tokenizer.ggml.scores")? {
        None => vec![0.0; vocab.n_tokens()],
        Some(array) if matches!(array.kind, ValueKind::F32 | ValueKind::F64) => {
            array.f32s(bytes)?.collect()
        }
        Some(array) => array.i64s(bytes)?.map(|x| x as f32).collect(),
    };
    // -0 and 0 are one score.
    let scores = scores.into_iter().map(|x: f32| x + 0.0).collect();
    let add_space_prefix = metadata
        .bool("tokenizer.ggml.add_space_prefix")?
        .unwrap_or(true);
    let defaults = Defaults {
        bos: Some(1),
        eos: Some(2),
        add_bos: true,
    };
    vocab.shrink();
    let special = SpecialTokens::new(metadata, &mut vocab, defaults)?;
    let spm = Spm {
        scores,
        bytes: byte_tokens,
        add_space_prefix,
        neighbours,
    };
    Ok(Tokenizer {
        vocab,
        special,
        model: Model::Spm(spm),
        names_no_pretokenizer: false,
    })
}

/// Puts `text` into `out` with a space for each `▁`, and counts them.
fn replace_space_signs(text: &[u8], out: &mut Vec<u8>) -> usize {
    out.clear();
    let mut n = 0;
    let mut rest = text;
    while let [first, after @ ..] = rest {
        rest = match rest.strip_prefix(SPACE.as_bytes()) {
            Some(after) => {
                out.push(b' ');
                n += 1;
                after
            }
            None => {
                out.push(*first);
                after
            }
        };
    }
    n
}

/// Refuses an array of strings that is larger than any vocabulary and would not fit the ids and offsets of ours.
fn check_size(key: &'static str, array: &Array) -> Result<(), TokenizerError> {
    let sizes = [
        (array.len, "entries", MAX_TOKENS as u64),
        (text_bytes(array) as u64, "bytes of text", MAX_TEXT),
    ];
    match sizes.into_iter().find(|(found, _, most)| found > most) {
        None => Ok(()),
        Some((found, what, most)) => Err(TokenizerError::TooLarge {
            key,
            found,
            what,
            most,
        }),
    }
}

/// Bytes of the strings of an array together.
fn text_bytes(array: &Array) -> usize {
    (array.span.end - array.span.start).saturating_sub(array.len * 8) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrays_beyond_any_vocabulary_are_refused() {
        let check = |len: u64, bytes: u64| {
            let array = Array {
                kind: ValueKind::String,
                len,
                span: 0..len * 8 + bytes,
            };
            check_size("k", &array).map_err(|e| e.to_string())
        };
        assert_eq!(check(MAX_TOKENS as u64, MAX_TEXT), Ok(()));
        assert_eq!(
            check(MAX_TOKENS as u64 + 1, 0).unwrap_err(),
            "\"k\" has 4194305 entries; at most 4194304 are supported"
        );
        assert_eq!(
            check(1, MAX_TEXT + 1).unwrap_err(),
            "\"k\" has 268435457 bytes of text; at most 268435456 are supported"
        );
    }
}
