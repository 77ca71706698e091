//! The vocabulary: every token's bytes in one arena, found by id and by bytes.

use std::hash::BuildHasher;

use hashbrown::hash_table::Entry;
use hashbrown::{DefaultHashBuilder, HashTable};

use super::TokenizerError;

/// More tokens than any known vocabulary has (the largest hold about 262 000).
pub(super) const MAX_TOKENS: usize = 1 << 22;

/// More bytes than the texts of any known vocabulary have (the largest have some 3 million). Offsets are u32, and merges
/// add up to twice their text.
pub(super) const MAX_TEXT: u64 = 1 << 28;

/// What a token is for; numbered as `tokenizer.ggml.token_type`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum TokenKind {
    /// Text.
    Normal = 1,
    /// Stands for text that the vocabulary cannot express.
    Unknown = 2,
    /// Steers the model and is no text, such as the begin-of-sequence token.
    Control = 3,
    /// Text that is matched as a whole, before anything else.
    UserDefined = 4,
    /// Never produced and never shown.
    Unused = 5,
    /// One byte, for text that no other token covers.
    Byte = 6,
}

impl TokenKind {
    /// Of the number in the file. Numbers without a meaning are tokens without a use, as in llama.cpp.
    pub(super) fn from_number(n: i64) -> TokenKind {
        match n {
            1 => TokenKind::Normal,
            2 => TokenKind::Unknown,
            3 => TokenKind::Control,
            4 => TokenKind::UserDefined,
            6 => TokenKind::Byte,
            _ => TokenKind::Unused,
        }
    }
}

/// Byte strings with ids: the tokens first, then symbols that only merges know.
pub(super) struct Vocab {
    bytes: Vec<u8>,
    /// Where each entry ends in `bytes`; it starts where the one before it ends.
    ends: Vec<u32>,
    kinds: Vec<TokenKind>,
    table: HashTable<u32>,
    hasher: DefaultHashBuilder,
}

impl Vocab {
    /// Room for `n` tokens of `n_bytes` together.
    pub fn with_capacity(n: usize, n_bytes: usize) -> Vocab {
        Vocab {
            bytes: Vec::with_capacity(n_bytes),
            ends: Vec::with_capacity(n),
            kinds: Vec::with_capacity(n),
            table: HashTable::with_capacity(n),
            hasher: DefaultHashBuilder::default(),
        }
    }

    /// Tokens, without the symbols of merges.
    pub fn n_tokens(&self) -> usize {
        self.kinds.len()
    }

    /// Appends a token. One that is not `findable` is known by its id alone.
    pub fn push_token(
        &mut self,
        bytes: &[u8],
        kind: TokenKind,
        findable: bool,
    ) -> Result<(), TokenizerError> {
        debug_assert_eq!(
            self.ends.len(),
            self.kinds.len(),
            "tokens come before symbols"
        );
        let second = self.ends.len() as u32;
        let first = if findable {
            self.intern(bytes)
        } else {
            self.append(bytes)
        };
        if first != second {
            return Err(TokenizerError::DuplicateToken {
                text: String::from_utf8_lossy(bytes).into_owned(),
                first,
                second,
            });
        }
        self.kinds.push(kind);
        Ok(())
    }

    /// Id of `bytes`, as a new symbol if they are no token.
    pub fn intern(&mut self, bytes: &[u8]) -> u32 {
        let next = self.ends.len() as u32;
        let Vocab {
            bytes: arena,
            ends,
            table,
            hasher,
            ..
        } = self;
        let slot = table.entry(
            hasher.hash_one(bytes),
            |&id| entry(arena, ends, id) == bytes,
            |&id| hasher.hash_one(entry(arena, ends, id)),
        );
        match slot {
            Entry::Occupied(slot) => *slot.get(),
            Entry::Vacant(slot) => {
                slot.insert(next);
                self.append(bytes)
            }
        }
    }

    /// As [`Vocab::intern`], for bytes that are likely those of `id` or of the one after it.
    pub fn intern_after(&mut self, id: u32, bytes: &[u8]) -> u32 {
        let is_found = |&id: &u32| {
            (!self.is_token(id) || self.kind(id) == TokenKind::Normal) && self.bytes(id) == bytes
        };
        let near = id..(id + 2).min(self.ends.len() as u32);
        match near.into_iter().find(is_found) {
            Some(id) => id,
            None => self.intern(bytes),
        }
    }

    fn append(&mut self, bytes: &[u8]) -> u32 {
        self.bytes.extend_from_slice(bytes);
        self.ends.push(self.bytes.len() as u32);
        self.ends.len() as u32 - 1
    }

    /// Bytes of a token or symbol.
    pub fn bytes(&self, id: u32) -> &[u8] {
        entry(&self.bytes, &self.ends, id)
    }

    /// The token or symbol of these bytes.
    pub fn find(&self, bytes: &[u8]) -> Option<u32> {
        let hash = self.hasher.hash_one(bytes);
        self.table
            .find(hash, |&id| self.bytes(id) == bytes)
            .copied()
    }

    /// Whether the id is a token's, not a symbol's.
    pub fn is_token(&self, id: u32) -> bool {
        (id as usize) < self.kinds.len()
    }

    pub fn kind(&self, id: u32) -> TokenKind {
        self.kinds[id as usize]
    }

    pub fn set_kind(&mut self, id: u32, kind: TokenKind) {
        self.kinds[id as usize] = kind;
    }

    /// Gives back what was reserved and not used.
    pub fn shrink(&mut self) {
        self.bytes.shrink_to_fit();
        self.ends.shrink_to_fit();
    }

    /// Bytes on the heap.
    pub fn memory_bytes(&self) -> usize {
        self.bytes.capacity()
            + self.ends.capacity() * 4
            + self.kinds.capacity()
            + self.table.allocation_size()
    }
}

fn entry<'a>(bytes: &'a [u8], ends: &[u32], id: u32) -> &'a [u8] {
    let id = id as usize;
    let start = if id == 0 { 0 } else { ends[id - 1] };
    &bytes[start as usize..ends[id] as usize]
}
