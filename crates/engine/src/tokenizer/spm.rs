//! SentencePiece: characters are joined pair by pair, always the pair that makes the token with the best score.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

use super::vocab::Vocab;

/// No symbol.
const NONE: u32 = u32::MAX;

/// SentencePiece's stand-in for a space.
pub(super) const SPACE: &str = "\u{2581}";

/// The SentencePiece model.
pub(super) struct Spm {
    /// Of each token.
    pub scores: Vec<f32>,
    /// Token of each byte, for characters that are no token; `None` where the vocabulary has none.
    pub bytes: Box<[Option<u32>; 256]>,
    /// Text at the start, and after a special token, gets a space before it.
    pub add_space_prefix: bool,
    pub neighbours: Neighbours,
}

/// Which bytes stand side by side in some token. Two characters whose bytes do not are never joined, so a text may be cut
/// between them: above all before the space of a word, which keeps lists and queues short.
pub(super) struct Neighbours(Box<[[bool; 256]; 256]>);

impl Neighbours {
    pub fn new() -> Neighbours {
        Neighbours(Box::new([[false; 256]; 256]))
    }

    /// Takes in the bytes of a token.
    pub fn add(&mut self, token: &[u8]) {
        for pair in token.windows(2) {
            self.0[usize::from(pair[0])][usize::from(pair[1])] = true;
        }
    }
}

impl Spm {
    /// Appends the tokens of `text`, in which a space is a space: the vocabulary's `▁` were replaced when it was loaded.
    pub fn encode(&self, vocab: &Vocab, text: &str, out: &mut Vec<u32>) {
        let bytes = text.as_bytes();
        let mut work = Work::default();
        let mut start = 0;
        for (at, _) in text.char_indices().skip(1) {
            if !self.neighbours.0[usize::from(bytes[at - 1])][usize::from(bytes[at])] {
                self.join(vocab, &text[start..at], &mut work, out);
                start = at;
            }
        }
        self.join(vocab, &text[start..], &mut work, out);
    }

    fn join(&self, vocab: &Vocab, text: &str, work: &mut Work, out: &mut Vec<u32>) {
        let Work { symbols, queue } = work;
        symbols.clear();
        for (i, (start, c)) in text.char_indices().enumerate() {
            symbols.push(Symbol {
                start,
                len: c.len_utf8(),
                prev: (i as u32).checked_sub(1).unwrap_or(NONE),
                next: i as u32 + 1,
            });
        }
        let Some(last) = symbols.last_mut() else {
            return;
        };
        last.next = NONE;
        for left in 0..symbols.len() as u32 - 1 {
            self.propose(vocab, text, symbols, queue, left);
        }
        while let Some(Join { left, len, .. }) = queue.pop() {
            let Symbol {
                start,
                len: n_left,
                prev,
                next,
            } = symbols[left as usize];
            // One of the two may have been joined with another since.
            if n_left == 0 || next == NONE || n_left + symbols[next as usize].len != len {
                continue;
            }
            let after = symbols[next as usize].next;
            symbols[next as usize].len = 0;
            symbols[left as usize] = Symbol {
                start,
                len,
                prev,
                next: after,
            };
            if after != NONE {
                symbols[after as usize].prev = left;
            }
            if prev != NONE {
                self.propose(vocab, text, symbols, queue, prev);
            }
            self.propose(vocab, text, symbols, queue, left);
        }
        let mut at = 0;
        while at != NONE {
            let Symbol {
                start, len, next, ..
            } = symbols[at as usize];
            let bytes = &text.as_bytes()[start..start + len];
            match vocab.find(bytes) {
                Some(token) => out.push(token),
                None => self.fall_back(bytes, out),
            }
            at = next;
        }
    }

    fn fall_back(&self, character: &[u8], out: &mut Vec<u32>) {
        // The vocabulary speaks of spaces as `▁`, and so do its bytes.
        let bytes = if character == b" " {
            SPACE.as_bytes()
        } else {
            character
        };
        out.extend(bytes.iter().filter_map(|&b| self.bytes[usize::from(b)]));
    }

    fn propose(
        &self,
        vocab: &Vocab,
        text: &str,
        symbols: &[Symbol],
        queue: &mut BinaryHeap<Join>,
        left: u32,
    ) {
        let Symbol {
            start, len, next, ..
        } = symbols[left as usize];
        if next == NONE {
            return;
        }
        let len = len + symbols[next as usize].len;
        if let Some(token) = vocab.find(&text.as_bytes()[start..start + len]) {
            queue.push(Join {
                score: self.scores[token as usize],
                left,
                len,
            });
        }
    }

    /// Bytes on the heap.
    pub fn memory_bytes(&self) -> usize {
        self.scores.capacity() * 4 + size_of_val(&*self.bytes) + size_of_val(&*self.neighbours.0)
    }
}

/// A part of the text: a doubly linked list, so that joining is one step.
#[derive(Clone, Copy)]
struct Symbol {
    start: usize,
    /// In bytes; 0 once joined with the one before it.
    len: usize,
    prev: u32,
    next: u32,
}

/// Buffers used again from piece to piece.
#[derive(Default)]
struct Work {
    symbols: Vec<Symbol>,
    queue: BinaryHeap<Join>,
}

/// Joining the symbol at `left` with the one after it, to a token of `len` bytes. The greatest is done first.
struct Join {
    score: f32,
    left: u32,
    len: usize,
}

impl Ord for Join {
    fn cmp(&self, other: &Join) -> Ordering {
        self.score
            .total_cmp(&other.score)
            .then(other.left.cmp(&self.left))
    }
}

impl PartialOrd for Join {
    fn partial_cmp(&self, other: &Join) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Join {
    fn eq(&self, other: &Join) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Join {}
