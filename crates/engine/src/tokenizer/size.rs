//! What a tokenizer will hold on the heap, from the header alone.

use ounce_gguf::{Header, Metadata};

use super::text_bytes;

/// Compiled patterns of a pre-tokenizer, and what matching them caches.
const PATTERNS: usize = 512 << 10;
/// Tables of fixed size: byte symbols, neighbours, special tokens.
const FIXED: usize = 80 << 10;

/// Bytes of [`super::Tokenizer::memory_bytes`] for this header, and its patterns; 0 for one without a vocabulary.
pub fn planned_bytes(header: &Header) -> usize {
    let metadata = &header.metadata;
    let Some((n, text)) = counts(metadata, "tokenizer.ggml.tokens") else {
        return 0;
    };
    // Text, end and kind of each token, and the table that finds them.
    let vocab = text + 5 * n + table(n);
    let model = match counts(metadata, "tokenizer.ggml.merges") {
        // The pair, what it becomes, and the table that finds it.
        Some((n, _)) => 12 * n + table(n) + PATTERNS,
        // A score a token.
        None => 4 * n,
    };
    vocab + model + FIXED
}

fn counts(metadata: &Metadata, key: &str) -> Option<(usize, usize)> {
    let array = metadata.array(key).ok()??;
    Some((usize::try_from(array.len).ok()?, text_bytes(array)))
}

/// Bytes of a hash table of `n` ids: the buckets are a power of two, at most seven eighths full, of an id and a byte of
/// control each.
fn table(n: usize) -> usize {
    (n * 8 / 7 + 1).next_power_of_two() * 5
}
