//! Special tokens: which there are, which end a text, and where they stand in a text.

use std::collections::BinaryHeap;

use ounce_gguf::Metadata;

use super::TokenizerError;
use super::vocab::{TokenKind, Vocab};

/// Tokens that end a text, by name, for the metadata seldom lists them all. Source: llama.cpp's `llama-vocab.cpp`.
const END_OF_GENERATION: &[&str] = &[
    "<|eot_id|>",
    "<|im_end|>",
    "<|end|>",
    "<|return|>",
    "<|call|>",
    "<|calls|>",
    "<|flush|>",
    "<end_of_turn>",
    "<|endoftext|>",
    "</s>",
    "<|eom_id|>",
    "<EOT>",
    "_<EOT>",
    "[EOT]",
    "[EOS]",
    "<|end_of_text|>",
    "<end_of_utterance>",
    "<eos>",
    "<turn|>",
    "<|tool_response>",
    "<｜end▁of▁sentence｜>",
    "[e~[",
];

/// A role in filling in the middle of code: control tokens that not every file marks as such.
struct FillInTheMiddle {
    /// Where the metadata may name it.
    keys: &'static [&'static str],
    /// Names to look for if it does not.
    names: &'static [&'static str],
    /// Whether it ends a text too.
    ends: bool,
}

/// Source: llama.cpp's `llama-vocab.cpp`.
const FILL_IN_THE_MIDDLE: &[FillInTheMiddle] = &[
    FillInTheMiddle {
        keys: &[
            "tokenizer.ggml.fim_pre_token_id",
            "tokenizer.ggml.prefix_token_id",
        ],
        names: &[
            "<|fim_prefix|>",
            "<fim-prefix>",
            "<fim_prefix>",
            "<｜fim▁begin｜>",
            "<PRE>",
            "<|code_prefix|>",
            "<|prefix|>",
        ],
        ends: false,
    },
    FillInTheMiddle {
        keys: &[
            "tokenizer.ggml.fim_suf_token_id",
            "tokenizer.ggml.suffix_token_id",
        ],
        names: &[
            "<|fim_suffix|>",
            "<fim-suffix>",
            "<fim_suffix>",
            "<｜fim▁hole｜>",
            "<SUF>",
            "<|code_suffix|>",
            "<|suffix|>",
        ],
        ends: false,
    },
    FillInTheMiddle {
        keys: &[
            "tokenizer.ggml.fim_mid_token_id",
            "tokenizer.ggml.middle_token_id",
        ],
        names: &[
            "<|fim_middle|>",
            "<fim-middle>",
            "<fim_middle>",
            "<｜fim▁end｜>",
            "<MID>",
            "<|code_middle|>",
            "<|middle|>",
        ],
        ends: false,
    },
    FillInTheMiddle {
        keys: &["tokenizer.ggml.fim_pad_token_id"],
        names: &["<|fim_pad|>", "<fim-pad>", "<fim_pad>", "<PAD>", "[PAD]"],
        ends: true,
    },
    FillInTheMiddle {
        keys: &["tokenizer.ggml.fim_rep_token_id"],
        names: &[
            "<|fim_repo|>",
            "<|repo_name|>",
            "<fim-repo>",
            "<REPO>",
            "<reponame>",
        ],
        ends: true,
    },
    FillInTheMiddle {
        keys: &["tokenizer.ggml.fim_sep_token_id"],
        names: &["<|file_sep|>"],
        ends: true,
    },
];

/// Control tokens of the harmony format that are shown, for they structure the answer.
const SHOWN: &[&str] = &["<|channel|>", "<|message|>", "<|start|>", "<|constrain|>"];

/// Special tokens of Phi-3 that leave the white space after them.
const NOT_STRIPPING: &[&[u8]] = &[b"<unk>", b"<s>", b"<|endoftext|>"];

/// Tokens with a role.
pub(super) struct SpecialTokens {
    pub bos: Option<u32>,
    pub eos: Option<u32>,
    pub add_bos: bool,
    pub add_eos: bool,
    /// Tokens that end a text, in order.
    end_of_generation: Vec<u32>,
    /// Tokens matched as a whole, sorted by their bytes.
    whole: Vec<u32>,
    /// Whether one of them starts with this byte.
    first: [bool; 256],
    /// White space after a special token is part of it: Phi-3's tokens, whose files cannot say so.
    strips_right: bool,
}

/// What a vocabulary has unless the metadata says otherwise.
pub(super) struct Defaults {
    pub bos: Option<u32>,
    pub eos: Option<u32>,
    pub add_bos: bool,
}

impl SpecialTokens {
    /// From the metadata and the names in the vocabulary, whose kinds it corrects where a name says more than the file.
    pub fn new(
        metadata: &Metadata,
        vocab: &mut Vocab,
        defaults: Defaults,
    ) -> Result<SpecialTokens, TokenizerError> {
        // Ids out of range were refused when the header was parsed, all but those that stand for "none".
        let id = |key: &str| {
            let id = metadata.get(key).and_then(|v| v.as_u64())?;
            u32::try_from(id).ok().filter(|&id| vocab.is_token(id))
        };
        let in_range = |id: Option<u32>| id.filter(|&id| vocab.is_token(id));
        let bos = id("tokenizer.ggml.bos_token_id").or(in_range(defaults.bos));
        let eos = id("tokenizer.ggml.eos_token_id").or(in_range(defaults.eos));
        let mut end_of_generation: Vec<u32> = [
            eos,
            id("tokenizer.ggml.eot_token_id"),
            id("tokenizer.ggml.eom_token_id"),
        ]
        .into_iter()
        .flatten()
        .collect();
        let named = |name: &&str| vocab.find(name.as_bytes()).filter(|&id| vocab.is_token(id));
        let mut control: Vec<u32> = END_OF_GENERATION.iter().filter_map(named).collect();
        end_of_generation.extend(&control);
        for role in FILL_IN_THE_MIDDLE {
            let told = role.keys.iter().find_map(|key| id(key));
            let found = told.or_else(|| role.names.iter().find_map(named));
            control.extend(found.filter(|_| told.is_none()));
            end_of_generation.extend(found.filter(|_| role.ends));
        }
        let shown: Vec<u32> = SHOWN.iter().filter_map(named).collect();
        let has = |name: &str| named(&name).is_some();
        // Harmony and its kin end a part of the answer with <|end|>, not the answer.
        let parts = (has("<|return|>") && has("<|call|>"))
            || ((has("<|call|>") || has("<|calls|>")) && has("<|flush|>"));
        let end = named(&"<|end|>").filter(|_| parts);
        // Gemma 4 keeps a </s> that is text.
        let text = named(&"</s>").filter(|_| has("<|tool_response>"));
        end_of_generation.retain(|&id| Some(id) != end && Some(id) != text);
        end_of_generation.sort_unstable();
        end_of_generation.dedup();
        control
            .iter()
            .for_each(|&id| vocab.set_kind(id, TokenKind::Control));
        shown
            .iter()
            .chain(&end)
            .for_each(|&id| vocab.set_kind(id, TokenKind::UserDefined));
        text.iter()
            .for_each(|&id| vocab.set_kind(id, TokenKind::Normal));

        let add_bos = flag(
            metadata,
            "tokenizer.ggml.add_bos_token",
            "tokenizer.ggml.bos_token_id",
            bos,
        )?;
        let add_eos = flag(
            metadata,
            "tokenizer.ggml.add_eos_token",
            "tokenizer.ggml.eos_token_id",
            eos,
        )?;
        let name = metadata.str("general.name")?.unwrap_or("").to_lowercase();
        let mut whole: Vec<u32> = (0..vocab.n_tokens() as u32)
            .filter(|&id| is_whole(vocab, id))
            .collect();
        whole.sort_by(|&a, &b| vocab.bytes(a).cmp(vocab.bytes(b)));
        let mut first = [false; 256];
        whole
            .iter()
            .for_each(|&id| first[usize::from(vocab.bytes(id)[0])] = true);
        Ok(SpecialTokens {
            bos,
            eos,
            add_bos: add_bos.unwrap_or(defaults.add_bos && bos.is_some()),
            add_eos: add_eos.unwrap_or(false),
            end_of_generation,
            whole,
            first,
            strips_right: name.contains("phi-3") || name.contains("phi3"),
        })
    }

    /// Whether the token ends a text.
    pub fn is_end_of_generation(&self, id: u32) -> bool {
        self.end_of_generation.binary_search(&id).is_ok()
    }

    /// Cuts `text` into special tokens and the text between them. Control tokens are seen only if `parse_special`.
    ///
    /// A longer token goes before a shorter one wherever they overlap, and among equals the one further left.
    pub fn partition<'t>(
        &self,
        vocab: &Vocab,
        text: &'t str,
        parse_special: bool,
        part: &mut dyn FnMut(Part<'t>),
    ) {
        let bytes = text.as_bytes();
        let seen = |id: u32| parse_special || vocab.kind(id) == TokenKind::UserDefined;
        let mut queue: BinaryHeap<Match> = (0..bytes.len())
            .filter(|&at| self.first[usize::from(bytes[at])])
            .filter_map(|at| self.longest(vocab, bytes, at, usize::MAX, &seen))
            .collect();
        let mut taken = vec![false; if queue.is_empty() { 0 } else { bytes.len() }];
        let mut found: Vec<(usize, usize, u32)> = Vec::new();
        while let Some(Match { len, id, at }) = queue.pop() {
            let end = at + len;
            if taken[at] {
                continue;
            }
            // Those taken are at least as long as this, so one that overlaps covers an end of it.
            if taken[end - 1] {
                queue.extend(self.longest(vocab, bytes, at, len, &seen));
                continue;
            }
            let mut stop = end;
            if self.strips_right && !NOT_STRIPPING.contains(&vocab.bytes(id)) {
                let is_space = |b: u8| matches!(b, b' ' | b'\t'..=b'\r');
                while stop < bytes.len() && is_space(bytes[stop]) && !taken[stop] {
                    stop += 1;
                }
            }
            taken[at..stop].fill(true);
            found.push((at, stop, id));
        }
        found.sort_unstable();
        let mut done = 0;
        for (start, end, id) in found {
            if done < start {
                part(Part::Text(&text[done..start]));
            }
            part(Part::Token(id));
            done = end;
        }
        if done < text.len() {
            part(Part::Text(&text[done..]));
        }
    }

    /// The longest token at `at` that is shorter than `limit`.
    fn longest(
        &self,
        vocab: &Vocab,
        bytes: &[u8],
        at: usize,
        limit: usize,
        seen: &dyn Fn(u32) -> bool,
    ) -> Option<Match> {
        let mut range = &self.whole[..];
        let mut best = None;
        for (k, &b) in bytes[at..].iter().enumerate().take(limit.saturating_sub(1)) {
            // The tokens in `range` share the first k bytes.
            let low = range.partition_point(|&id| vocab.bytes(id).get(k).is_none_or(|&x| x < b));
            let high = range.partition_point(|&id| vocab.bytes(id).get(k).is_none_or(|&x| x <= b));
            range = &range[low..high];
            let Some(&id) = range.first() else { break };
            if vocab.bytes(id).len() == k + 1 && seen(id) {
                best = Some(Match { len: k + 1, id, at });
            }
        }
        best
    }

    /// Bytes on the heap.
    pub fn memory_bytes(&self) -> usize {
        (self.end_of_generation.capacity() + self.whole.capacity()) * 4
    }
}

fn flag(
    metadata: &Metadata,
    flag: &'static str,
    key: &'static str,
    id: Option<u32>,
) -> Result<Option<bool>, TokenizerError> {
    match metadata.bool(flag)? {
        Some(true) if id.is_none() => Err(TokenizerError::NoSuchId { flag, key }),
        set => Ok(set),
    }
}

fn is_whole(vocab: &Vocab, id: u32) -> bool {
    let special = matches!(
        vocab.kind(id),
        TokenKind::Control | TokenKind::UserDefined | TokenKind::Unknown
    );
    // What is not UTF-8 cannot stand in a text, and must not cut one.
    special && !vocab.bytes(id).is_empty() && std::str::from_utf8(vocab.bytes(id)).is_ok()
}

/// A part of a text.
pub(super) enum Part<'t> {
    /// A special token.
    Token(u32),
    /// Text between special tokens, not empty.
    Text(&'t str),
}

/// A special token at a place in the text; the greatest is taken first.
#[derive(PartialEq, Eq)]
struct Match {
    len: usize,
    id: u32,
    at: usize,
}

impl Ord for Match {
    fn cmp(&self, other: &Match) -> std::cmp::Ordering {
        self.len
            .cmp(&other.len)
            .then(other.id.cmp(&self.id))
            .then(other.at.cmp(&self.at))
    }
}

impl PartialOrd for Match {
    fn partial_cmp(&self, other: &Match) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
