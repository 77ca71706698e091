//! Byte-level BPE: a piece's bytes are merged pair by pair, always the pair whose merge was learned first.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::hash::BuildHasher;

use hashbrown::hash_table::Entry;
use hashbrown::{DefaultHashBuilder, HashTable};

use super::TokenizerError;
use super::pretokenize::PreTokenizer;
use super::vocab::Vocab;

/// No symbol.
const NONE: u32 = u32::MAX;

/// The byte for each character that stands for one in a vocabulary. GPT-2's alphabet: printable Latin-1 characters stand
/// for themselves, the other bytes for U+0100 and up, in order.
fn byte_of(c: char) -> Option<u8> {
    let stands_for_itself = |b: u8| matches!(b, b'!'..=b'~' | 0xa1..=0xac | 0xae..=0xff);
    match u32::from(c) {
        c @ 0..=0xff => Some(c as u8).filter(|&b| stands_for_itself(b)),
        c @ 0x100..=0x143 => (0..=255)
            .filter(|&b| !stands_for_itself(b))
            .nth(c as usize - 0x100),
        _ => None,
    }
}

/// Turns text in the alphabet of a vocabulary into bytes.
pub(super) struct ByteDecoder([Option<u8>; 0x144]);

impl ByteDecoder {
    pub fn new() -> ByteDecoder {
        ByteDecoder(std::array::from_fn(|c| {
            char::from_u32(c as u32).and_then(byte_of)
        }))
    }

    /// Appends the bytes to `out`; false, with `out` as it was, if a character is not of the alphabet.
    pub fn decode(&self, text: &[u8], out: &mut Vec<u8>) -> bool {
        let before = out.len();
        let mut rest = text;
        while let Some(&first) = rest.first() {
            // UTF-8 by hand: the alphabet's characters have one byte or two, and a vocabulary has a million of them.
            let (c, n) = match rest {
                [a, b @ 0x80..=0xbf, ..] if a >> 5 == 0b110 => {
                    (usize::from(a & 0x1f) << 6 | usize::from(b & 0x3f), 2)
                }
                _ if first.is_ascii() => (usize::from(first), 1),
                _ => (usize::MAX, 1),
            };
            let Some(&Some(byte)) = self.0.get(c) else {
                out.truncate(before);
                return false;
            };
            out.push(byte);
            rest = &rest[n..];
        }
        true
    }
}

/// Merges in the order they were learned, found by the pair they join.
struct Merges {
    pairs: Vec<[u32; 2]>,
    merged: Vec<u32>,
    table: HashTable<u32>,
    hasher: DefaultHashBuilder,
}

impl Merges {
    fn with_capacity(n: usize) -> Merges {
        Merges {
            pairs: Vec::with_capacity(n),
            merged: Vec::with_capacity(n),
            table: HashTable::with_capacity(n),
            hasher: DefaultHashBuilder::default(),
        }
    }

    /// Appends a merge, unless its pair has one already.
    fn push(&mut self, pair: [u32; 2], merged: u32) {
        let Merges {
            pairs,
            table,
            hasher,
            ..
        } = self;
        let rank = pairs.len() as u32;
        let slot = table.entry(
            hash(hasher, pair),
            |&r| pairs[r as usize] == pair,
            |&r| hash(hasher, pairs[r as usize]),
        );
        if let Entry::Vacant(slot) = slot {
            slot.insert(rank);
            self.pairs.push(pair);
            self.merged.push(merged);
        }
    }

    fn rank(&self, pair: [u32; 2]) -> Option<u32> {
        self.table
            .find(hash(&self.hasher, pair), |&r| {
                self.pairs[r as usize] == pair
            })
            .copied()
    }
}

fn hash(hasher: &DefaultHashBuilder, pair: [u32; 2]) -> u64 {
    hasher.hash_one(u64::from(pair[0]) << 32 | u64::from(pair[1]))
}

/// The byte-level BPE model.
pub(super) struct Bpe {
    pre: PreTokenizer,
    merges: Merges,
    /// Symbol of each byte.
    bytes: [u32; 256],
}

impl Bpe {
    /// From the lines of `tokenizer.ggml.merges`. Parts that are no tokens become symbols of the vocabulary.
    pub fn new<'a>(
        pre: PreTokenizer,
        vocab: &mut Vocab,
        lines: impl Iterator<Item = &'a [u8]>,
        n_lines: usize,
    ) -> Result<Bpe, TokenizerError> {
        let decoder = ByteDecoder::new();
        let bytes = std::array::from_fn(|b| vocab.intern(&[b as u8]));
        let mut merges = Merges::with_capacity(n_lines);
        let mut joined = Vec::new();
        let mut merged = 0;
        for (index, line) in lines.enumerate() {
            // The first part may itself start with a space in a damaged file, never be empty.
            let Some(at) = line.iter().skip(1).position(|&b| b == b' ') else {
                let text = String::from_utf8_lossy(line).chars().take(40).collect();
                return Err(TokenizerError::Merge { index, text });
            };
            joined.clear();
            let n_left = match decoder.decode(&line[..at + 1], &mut joined) {
                true => joined.len(),
                false => continue,
            };
            // A part outside the alphabet can never come from bytes, so the merge is without effect.
            if !decoder.decode(&line[at + 2..], &mut joined) {
                continue;
            }
            let pair = [
                vocab.intern(&joined[..n_left]),
                vocab.intern(&joined[n_left..]),
            ];
            // Most files list merges in the order of the tokens they make.
            merged = vocab.intern_after(merged, &joined);
            merges.push(pair, merged);
        }
        Ok(Bpe { pre, merges, bytes })
    }

    /// Whether prompts start with the begin-of-sequence token unless the file says otherwise.
    pub fn add_bos(&self) -> bool {
        self.pre.add_bos
    }

    /// Appends the tokens of `text`.
    pub fn encode(&self, vocab: &Vocab, text: &str, out: &mut Vec<u32>) {
        let mut work = Work::default();
        self.pre.split(text, &mut |piece| {
            // Positions are u32.
            for piece in piece.as_bytes().chunks(NONE as usize) {
                match vocab
                    .find(piece)
                    .filter(|&id| self.pre.ignore_merges && vocab.is_token(id))
                {
                    Some(token) => out.push(token),
                    None => self.merge(vocab, piece, &mut work, out),
                }
            }
        });
    }

    fn merge(&self, vocab: &Vocab, piece: &[u8], work: &mut Work, out: &mut Vec<u32>) {
        let Work { symbols, queue } = work;
        symbols.clear();
        let n = piece.len() as u32;
        symbols.extend((0..n).map(|i| Symbol {
            id: self.bytes[usize::from(piece[i as usize])],
            prev: i.checked_sub(1).unwrap_or(NONE),
            next: if i + 1 < n { i + 1 } else { NONE },
        }));
        for left in 1..n {
            self.propose(symbols, queue, left - 1);
        }
        while let Some(Reverse((rank, left))) = queue.pop() {
            let Symbol { id, prev, next } = symbols[left as usize];
            // The pair may have changed since it was proposed.
            if next == NONE || [id, symbols[next as usize].id] != self.merges.pairs[rank as usize] {
                continue;
            }
            let after = symbols[next as usize].next;
            symbols[next as usize] = Symbol {
                id: NONE,
                prev: NONE,
                next: NONE,
            };
            symbols[left as usize] = Symbol {
                id: self.merges.merged[rank as usize],
                prev,
                next: after,
            };
            if after != NONE {
                symbols[after as usize].prev = left;
            }
            if prev != NONE {
                self.propose(symbols, queue, prev);
            }
            self.propose(symbols, queue, left);
        }
        let mut at = if symbols.is_empty() { NONE } else { 0 };
        while at != NONE {
            let Symbol { id, next, .. } = symbols[at as usize];
            if vocab.is_token(id) {
                out.push(id);
            } else {
                // As llama.cpp does it: byte by byte, and a byte without a token is lost.
                let byte_ids = vocab.bytes(id).iter().map(|&b| self.bytes[usize::from(b)]);
                out.extend(byte_ids.filter(|&id| vocab.is_token(id)));
            }
            at = next;
        }
    }

    /// Queues the merge of the symbol at `left` with the one after it, if there is such a merge.
    fn propose(&self, symbols: &[Symbol], queue: &mut BinaryHeap<Reverse<(u32, u32)>>, left: u32) {
        let Symbol { id, next, .. } = symbols[left as usize];
        if next != NONE
            && let Some(rank) = self.merges.rank([id, symbols[next as usize].id])
        {
            queue.push(Reverse((rank, left)));
        }
    }

    /// Bytes on the heap, without the compiled patterns.
    pub fn memory_bytes(&self) -> usize {
        let m = &self.merges;
        m.pairs.capacity() * 8 + m.merged.capacity() * 4 + m.table.allocation_size()
    }
}

/// A part of the piece: a doubly linked list, so that a merge is one step.
#[derive(Clone, Copy)]
struct Symbol {
    id: u32,
    prev: u32,
    next: u32,
}

/// Buffers used again from piece to piece.
#[derive(Default)]
struct Work {
    symbols: Vec<Symbol>,
    /// (rank, position) of merges that may be done: the lowest rank first, then the leftmost.
    queue: BinaryHeap<Reverse<(u32, u32)>>,
}
