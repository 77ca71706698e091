//! From tokens back to text, one token at a time.

use super::Tokenizer;

/// Turns tokens into text as they come. Bytes of a character that is not complete yet are held back; bytes that can be
/// no character become U+FFFD. Control tokens are not shown.
pub struct Detokenizer<'a> {
    tokenizer: &'a Tokenizer,
    /// Bytes that may be the start of a character, at most three.
    held: Vec<u8>,
    text: String,
    /// A leading space that encoding has added is yet to be dropped.
    drop_space: bool,
}

impl<'a> Detokenizer<'a> {
    /// For tokens that go on from others, as an answer goes on from its prompt.
    pub fn new(tokenizer: &'a Tokenizer) -> Detokenizer<'a> {
        Detokenizer {
            tokenizer,
            held: Vec::new(),
            text: String::new(),
            drop_space: false,
        }
    }

    /// For the tokens of a text from its start, without the space that some models put before it.
    pub fn from_start(tokenizer: &'a Tokenizer) -> Detokenizer<'a> {
        Detokenizer {
            drop_space: tokenizer.adds_space_prefix(),
            ..Detokenizer::new(tokenizer)
        }
    }

    /// The text that is certain with this token and was not before. An id outside the vocabulary has none.
    pub fn push(&mut self, id: u32) -> &str {
        self.text.clear();
        let bytes = self.tokenizer.token_bytes(id, false);
        let space = std::mem::take(&mut self.drop_space) && bytes.first() == Some(&b' ');
        self.held.extend_from_slice(&bytes[usize::from(space)..]);
        let mut rest = &self.held[..];
        loop {
            match std::str::from_utf8(rest) {
                Ok(valid) => {
                    self.text.push_str(valid);
                    self.held.clear();
                    break;
                }
                Err(e) => {
                    let (valid, after) = rest.split_at(e.valid_up_to());
                    self.text
                        .push_str(std::str::from_utf8(valid).unwrap_or_default());
                    match e.error_len() {
                        Some(n) => {
                            self.text.push(char::REPLACEMENT_CHARACTER);
                            rest = &after[n..];
                        }
                        None => {
                            let n = self.held.len() - after.len();
                            self.held.drain(..n);
                            break;
                        }
                    }
                }
            }
        }
        &self.text
    }

    /// What was held back, at the end of the tokens.
    pub fn finish(&mut self) -> &str {
        self.text.clear();
        if !self.held.is_empty() {
            self.held.clear();
            self.text.push(char::REPLACEMENT_CHARACTER);
        }
        &self.text
    }
}
