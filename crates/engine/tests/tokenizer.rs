//! The tokenizer against llama.cpp's ids, against its own decoding, and against odd vocabularies.

use std::io::Read;
use std::path::PathBuf;
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use ounce_engine::tokenizer::{Detokenizer, TokenKind, Tokenizer, TokenizerError};
use ounce_gguf::write::Writer;
use proptest::prelude::*;

fn data(name: &str) -> Vec<u8> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("../../tests/data/tokenizer")
        .join(name);
    std::fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

fn unpacked(name: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    flate2::read::GzDecoder::new(&data(name)[..])
        .read_to_end(&mut bytes)
        .unwrap();
    bytes
}

fn load(bytes: &[u8]) -> Result<Tokenizer, TokenizerError> {
    Tokenizer::from_gguf(&ounce_gguf::parse(bytes).unwrap(), bytes)
}

fn check(tokenizer: &Tokenizer, golden: &str) {
    let cases: Vec<serde_json::Value> = serde_json::from_slice(&data(golden)).unwrap();
    assert!(cases.len() > 100);
    for case in &cases {
        let text = case["text"].as_str().unwrap();
        for (key, parse_special) in [("ids", false), ("ids_special", true)] {
            let wanted: Vec<u32> = serde_json::from_value(case[key].clone()).unwrap();
            assert_eq!(
                tokenizer.encode(text, parse_special),
                wanted,
                "{golden}, {key}: {text:?}"
            );
        }
        assert_eq!(
            tokenizer.decode(&tokenizer.encode(text, false)),
            text,
            "{golden}"
        );
    }
}

static LLAMA_BPE: LazyLock<Tokenizer> =
    LazyLock::new(|| load(&unpacked("ggml-vocab-llama-bpe.gguf.gz")).unwrap());
static LLAMA_SPM: LazyLock<Tokenizer> =
    LazyLock::new(|| load(&unpacked("ggml-vocab-llama-spm.gguf.gz")).unwrap());
static SMOLLM2: LazyLock<Tokenizer> =
    LazyLock::new(|| load(&unpacked("SmolLM2-135M-Instruct.vocab.gguf.gz")).unwrap());

#[test]
fn llama_bpe() {
    check(&LLAMA_BPE, "llama-bpe.json");
}

#[test]
fn llama_spm() {
    check(&LLAMA_SPM, "llama-spm.json");
}

#[test]
fn smollm2() {
    check(&SMOLLM2, "SmolLM2-135M-Instruct.Q4_1.json");
}

#[test]
fn qwen2_and_qwen35() {
    let bytes = unpacked("ggml-vocab-qwen2.gguf.gz");
    check(&load(&bytes).unwrap(), "qwen2.json");
    // The same vocabulary with the other pre-tokenizer.
    let at = bytes
        .windows(18)
        .position(|w| w == b"tokenizer.ggml.pre")
        .unwrap()
        + 18
        + 4;
    assert_eq!(&bytes[at + 8..at + 13], b"qwen2");
    let mut qwen35 = bytes[..at].to_vec();
    qwen35.extend_from_slice(&6u64.to_le_bytes());
    qwen35.extend_from_slice(b"qwen35");
    qwen35.extend_from_slice(&bytes[at + 13..]);
    check(&load(&qwen35).unwrap(), "qwen35.json");
}

/// The vocabulary is too large to keep here; CI pulls the model.
#[test]
fn gemma3() {
    let Some(models) = std::env::var_os("OUNCE_TEST_MODELS") else {
        assert!(
            std::env::var_os("CI").is_none(),
            "CI must set OUNCE_TEST_MODELS"
        );
        eprintln!("OUNCE_TEST_MODELS is not set: gemma3 is not checked");
        return;
    };
    let path = PathBuf::from(models).join("gemma-3-270m-q4_k_m.gguf");
    let bytes = std::fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    check(&load(&bytes).unwrap(), "gemma-3-270m-q4_k_m.json");
}

#[test]
fn special_tokens_and_their_roles() {
    let t = &*LLAMA_BPE;
    let id = |name: &str| t.encode(name, true)[0];
    assert_eq!(
        (t.n_vocab(), t.bos(), t.eos(), t.add_bos()),
        (128_256, Some(128_000), Some(128_001), true)
    );
    for name in ["<|eot_id|>", "<|end_of_text|>"] {
        assert!(t.is_eog(id(name)), "{name}");
    }
    assert!(!t.is_eog(id("<|begin_of_text|>")) && !t.is_eog(5) && !t.is_eog(u32::MAX));
    assert_eq!(t.kind(id("<|eot_id|>")), Some(TokenKind::Control));
    assert_eq!(t.kind(128_256), None);
    assert_eq!(t.token_bytes(128_000, false).len(), 0);
    assert_eq!(&*t.token_bytes(128_000, true), b"<|begin_of_text|>");
    assert_eq!(t.token_bytes(u32::MAX, true).len(), 0);
    assert!(!SMOLLM2.add_bos() && SMOLLM2.is_eog(2) && SMOLLM2.is_eog(0) && !SMOLLM2.is_eog(1));
    assert!(LLAMA_SPM.add_bos() && LLAMA_SPM.is_eog(2));
}

#[test]
fn long_texts_take_no_more_than_their_share_of_time() {
    for t in [&*LLAMA_BPE, &*LLAMA_SPM] {
        for text in [
            "abcdefghij".repeat(20_000),
            "\n".repeat(200_000),
            " ".repeat(200_000),
            "<|eot_id".repeat(20_000),
        ] {
            let start = Instant::now();
            assert!(!t.encode(&text, true).is_empty());
            assert!(
                start.elapsed() < Duration::from_secs(20),
                "{:?} for {:?}…",
                start.elapsed(),
                &text[..10]
            );
        }
    }
}

/// A byte-level vocabulary of a few letters and merges, and the metadata given.
fn tiny(merges: &[&[u8]], change: impl Fn(Writer) -> Writer) -> Result<Tokenizer, TokenizerError> {
    let tokens: &[&[u8]] = &[
        b"a",
        b"b",
        b"c",
        b"ab",
        b"<x>",
        b"<xy>",
        "Ġ".as_bytes(),
        b"y>z",
    ];
    let writer = Writer::new()
        .str("tokenizer.ggml.model", "gpt2")
        .strings("tokenizer.ggml.tokens", tokens)
        .i32s("tokenizer.ggml.token_type", &[1, 1, 1, 1, 3, 4, 1, 4])
        .strings("tokenizer.ggml.merges", merges);
    load(&change(writer).file())
}

#[test]
fn merges_in_order_and_through_symbols_that_are_no_tokens() {
    let gpt2 = |w: Writer| w.str("tokenizer.ggml.pre", "gpt-2");
    let t = tiny(&[b"b c", b"a b"], gpt2).unwrap();
    // "bc" is merged first and is no token: its bytes come out.
    assert_eq!(t.encode("abc", false), [0, 1, 2]);
    assert_eq!(t.encode("ab ab", false), [3, 6, 3]);
    // Bytes without a token are left out, as llama.cpp does.
    assert_eq!(t.encode("aza", false), [0, 0]);
    assert!(t.note().is_none());
    assert!(tiny(&[], |w| w).unwrap().note().is_some());
}

#[test]
fn user_defined_tokens_are_always_seen_and_the_longer_goes_first() {
    let t = tiny(&[b"a b"], |w| w).unwrap();
    assert_eq!(t.encode("a<x>b", false), [0, 1]);
    assert_eq!(t.encode("a<x>b", true), [0, 4, 1]);
    assert_eq!(t.encode("a<xy>b", false), [0, 5, 1]);
    assert_eq!(t.encode("<xy>z", false), [5]);
    assert_eq!(t.encode("y>z<xy>", false), [7, 5]);
    assert_eq!(t.decode(&[0, 4, 5]), "a<xy>");
}

/// One token a letter, and these with their kinds.
fn with_special(w: Writer, special: &[(&str, i32)]) -> Tokenizer {
    let letters = ["a", "b", "x", "<", ">", "|"].map(|t| (t, 1));
    let (tokens, kinds): (Vec<&[u8]>, Vec<i32>) = letters
        .iter()
        .chain(special)
        .map(|&(text, kind)| (text.as_bytes(), kind))
        .unzip();
    load(
        &w.strings("tokenizer.ggml.tokens", &tokens)
            .i32s("tokenizer.ggml.token_type", &kinds)
            .file(),
    )
    .unwrap()
}

// llama.cpp gives these ids and kinds for the same files.
#[test]
fn tokens_for_filling_in_the_middle_are_control_tokens_whatever_the_file_says() {
    let writer = || {
        Writer::new()
            .str("tokenizer.ggml.model", "gpt2")
            .str("tokenizer.ggml.pre", "qwen2")
            .strings("tokenizer.ggml.merges", &[])
    };
    let special = [("<PRE>", 4), ("<MID>", 1), ("<|file_sep|>", 4), ("<b>", 4)];
    let t = with_special(writer(), &special);
    for id in 6..9 {
        assert_eq!(t.kind(id), Some(TokenKind::Control), "{id}");
    }
    assert_eq!(t.encode("a<MID>b<b>", true), [0, 7, 1, 9]);
    assert_eq!(t.encode("<b>a", false), [9, 0]);
    assert_eq!(
        (6..10).map(|id| t.is_eog(id)).collect::<Vec<_>>(),
        [false, false, true, false]
    );
    // Where the metadata names the token, its kind stays.
    let t = with_special(writer().u32("tokenizer.ggml.fim_pre_token_id", 9), &special);
    assert_eq!(t.kind(6), Some(TokenKind::UserDefined));
}

#[test]
fn phi3_tokens_take_the_white_space_after_them() {
    let t = |name: &str| {
        let w = Writer::new()
            .str("general.name", name)
            .str("tokenizer.ggml.model", "llama")
            .bool("tokenizer.ggml.add_space_prefix", false);
        let special = [("<|x|>", 3), ("<s>", 3), ("\u{2581}", 1), ("<b>", 4)];
        with_special(w, &special)
    };
    for (text, phi3, other) in [
        ("<|x|>  a", &[6, 0][..], &[6, 8, 8, 0][..]),
        ("<s> a", &[7, 8, 0], &[7, 8, 0]),
        ("<b> a ", &[9, 0, 8], &[9, 8, 0, 8]),
        (" <|x|> <s>", &[8, 6, 7], &[8, 6, 8, 7]),
    ] {
        assert_eq!(t("Phi-3 mini").encode(text, true), phi3, "{text}");
        assert_eq!(t("Llama").encode(text, true), other, "{text}");
    }
}

#[test]
fn faulty_metadata_is_refused_with_its_key() {
    let error = |change: &dyn Fn(Writer) -> Writer| tiny(&[], change).err().unwrap().to_string();
    assert!(error(&|w| w.str("tokenizer.ggml.pre", "nonsense")).contains("\"nonsense\""));
    assert!(
        error(&|w| w.bool("tokenizer.ggml.add_bos_token", true))
            .contains("tokenizer.ggml.bos_token_id")
    );
    assert!(
        tiny(&[b"ab"], |w| w)
            .err()
            .unwrap()
            .to_string()
            .contains("tokenizer.ggml.merges")
    );
    let of = |w: Writer| load(&w.file()).err().unwrap().to_string();
    let tokens: &[&[u8]] = &[b"a", b"b", b"a"];
    assert!(of(Writer::new()).contains("tokenizer.ggml.tokens"));
    let w = Writer::new().strings("tokenizer.ggml.tokens", tokens);
    assert!(of(w.clone()).contains("tokenizer.ggml.model"));
    assert!(of(w.clone().str("tokenizer.ggml.model", "bert")).contains("\"bert\""));
    assert!(of(w.clone().str("tokenizer.ggml.model", "llama")).contains("twice, as 0 and 2"));
    assert!(
        of(Writer::new()
            .str("tokenizer.ggml.model", "llama")
            .strings("tokenizer.ggml.tokens", &[]))
        .contains("0 entries")
    );
}

#[test]
fn text_that_is_incomplete_or_no_text_is_held_or_replaced() {
    let t = &*SMOLLM2;
    let ids = t.encode("é\u{1f600}", false);
    let mut d = Detokenizer::new(t);
    let mut text = String::new();
    for &id in &ids {
        text.push_str(d.push(id));
    }
    assert_eq!((text.as_str(), d.finish()), ("é\u{1f600}", ""));
    let emoji = t.encode("\u{1f600}", false);
    assert!(
        emoji.len() > 1,
        "the test needs a character of several tokens"
    );
    assert_eq!(d.push(emoji[0]), "");
    assert_eq!(d.finish(), "\u{fffd}");
    assert_eq!(d.push(*emoji.last().unwrap()), "\u{fffd}");
    assert_eq!(d.push(u32::MAX), "");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn decoding_gives_the_text_back(text in "\\PC{0,40}|[ \\n\\t<>|a-c\u{300}-\u{310}]{0,40}|(<\\|im_end\\|>| |x){0,9}") {
        for t in [&*LLAMA_BPE, &*LLAMA_SPM] {
            // SentencePiece writes spaces as ▁ and cannot tell the two apart.
            if !text.contains('\u{2581}') {
                prop_assert_eq!(t.decode(&t.encode(&text, false)), &*text);
            }
        }
    }

    #[test]
    fn streaming_equals_decoding_at_once(ids in prop::collection::vec(0u32..49_200, 0..40)) {
        let mut d = Detokenizer::from_start(&SMOLLM2);
        let mut text = String::new();
        for &id in &ids {
            text.push_str(d.push(id));
        }
        text.push_str(d.finish());
        let bytes: Vec<u8> = ids.iter().flat_map(|&id| SMOLLM2.token_bytes(id, false).into_owned()).collect();
        prop_assert_eq!(text, String::from_utf8_lossy(&bytes));
    }
}
