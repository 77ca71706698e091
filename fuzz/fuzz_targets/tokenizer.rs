//! A vocabulary out of any bytes, then the bytes themselves as a text.
#![no_main]

use libfuzzer_sys::fuzz_target;
use ounce_engine::tokenizer::{Detokenizer, Tokenizer};

fuzz_target!(|bytes: &[u8]| {
    let Ok(header) = ounce_gguf::parse(bytes) else { return };
    let Ok(tokenizer) = Tokenizer::from_gguf(&header, bytes) else { return };
    let text = String::from_utf8_lossy(&bytes[bytes.len() / 2..]);
    for special in [false, true] {
        let ids = tokenizer.encode(&text, special);
        let mut out = Detokenizer::new(&tokenizer);
        for id in ids {
            assert!((id as usize) < tokenizer.n_vocab());
            out.push(id);
        }
        out.finish();
    }
});
