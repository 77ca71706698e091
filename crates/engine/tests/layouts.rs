//! Files of other layouts than the goldens: split in parts, with blocks for multi-token prediction, with scaled rope.

mod support;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use ounce_engine::{Model, Session};
use ounce_gguf::write::Writer;
use ounce_gguf::{Header, TensorInfo, TensorType, Value, parse};
use support::{data, logits, npy, params, relative_squared_error, tokens};

/// A file taken apart, to be put together otherwise.
struct Source {
    bytes: Vec<u8>,
    header: Header,
}

impl Source {
    fn open(name: &str) -> Source {
        let bytes = std::fs::read(data(&format!("golden/{name}"))).unwrap();
        let header = parse(&bytes).unwrap();
        Source { bytes, header }
    }

    /// A writer with the metadata, but for the keys in `replaced`.
    fn writer(&self, replaced: &[&str]) -> Writer {
        let kept = self
            .header
            .metadata
            .iter()
            .filter(|(k, _)| !replaced.contains(k));
        kept.fold(Writer::new(), |w, (k, v)| w.value(k, v, &self.bytes))
    }

    /// The file of `w` with these tensors added, their data copied.
    fn write(&self, path: &Path, mut w: Writer, tensors: &[&TensorInfo]) {
        let before = w.data_len();
        for t in tensors {
            w = w.tensor(&t.name, &t.dims, t.ty);
        }
        let mut out = w.file();
        let start = parse(&out).unwrap().data_offset as usize;
        let mut at = before as usize;
        for t in tensors {
            at = at.next_multiple_of(32);
            let from = t.offset as usize;
            let n = t.n_bytes as usize;
            out[start + at..start + at + n].copy_from_slice(&self.bytes[from..from + n]);
            at += n;
        }
        std::fs::write(path, out).unwrap();
    }
}

fn scratch(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("layouts");
    std::fs::create_dir_all(&folder).unwrap();
    folder.join(name)
}

fn logits_of(path: &Path) -> Vec<f32> {
    let model = Arc::new(Model::open(path).unwrap());
    logits(
        &mut Session::new(model, params(64)).unwrap(),
        &tokens(),
        &[40],
    )
}

#[test]
fn a_split_model_is_its_parts() {
    let source = Source::open("llama.f32.gguf");
    let tensors: Vec<&TensorInfo> = source.header.tensors.iter().collect();
    let n = tensors.len();
    let parts = [&tensors[..n / 3], &tensors[n / 3..n / 2], &tensors[n / 2..]];
    let path = |i: usize| scratch(&format!("split-{:05}-of-00003.gguf", i + 1));
    for (i, part) in parts.iter().enumerate() {
        let w = if i == 0 {
            source.writer(&[])
        } else {
            Writer::new()
        };
        let w = w
            .value("split.no", &Value::U16(i as u16), &[])
            .value("split.count", &Value::U16(3), &[])
            .value("split.tensors.count", &Value::I32(n as i32), &[]);
        source.write(&path(i), w, part);
    }
    assert!(relative_squared_error(&logits_of(&path(0)), &npy("llama.npy")).sqrt() < 1e-4);
    // A part that is missing is named.
    std::fs::remove_file(path(1)).unwrap();
    let error = Model::open(&path(0)).err().unwrap().to_string();
    assert!(error.contains("split-00002-of-00003.gguf"), "{error}");
}

/// Blocks for multi-token prediction are there, and not run: their weights would be nonsense.
#[test]
fn blocks_for_multi_token_prediction_are_accepted() {
    let source = Source::open("qwen35.f32.gguf");
    let n = source
        .header
        .metadata
        .required_u32("qwen35.block_count")
        .unwrap();
    let w = source
        .writer(&["qwen35.block_count"])
        .u32("qwen35.block_count", n + 1)
        .u32("qwen35.nextn_predict_layers", 1)
        .tensor(
            &format!("blk.{n}.nextn.eh_proj.weight"),
            &[128, 64],
            TensorType::F32,
        )
        // Even of a type that has no kernel: nothing reads it.
        .tensor(
            &format!("blk.{n}.attn_q.weight"),
            &[256, 64],
            TensorType::IQ1_S,
        );
    let path = scratch("mtp.gguf");
    source.write(&path, w, &source.header.tensors.iter().collect::<Vec<_>>());
    assert!(relative_squared_error(&logits_of(&path), &npy("qwen35.npy")).sqrt() < 1e-4);
}

/// `rope_freqs.weight` of ones and a linear factor of 1 change nothing; other divisors do, and equally by both ways.
#[test]
fn rope_scaling_by_tensor_and_by_key() {
    let source = Source::open("llama.f32.gguf");
    let all: Vec<&TensorInfo> = source.header.tensors.iter().collect();
    let with_divisors = |name: &str, by: f32| {
        let path = scratch(name);
        let w = source
            .writer(&[])
            .tensor("rope_freqs.weight", &[8], TensorType::F32);
        source.write(&path, w, &all);
        let mut bytes = std::fs::read(&path).unwrap();
        let at = parse(&bytes)
            .unwrap()
            .tensor("rope_freqs.weight")
            .unwrap()
            .offset as usize;
        (0..8).for_each(|i| bytes[at + 4 * i..at + 4 * i + 4].copy_from_slice(&by.to_le_bytes()));
        std::fs::write(&path, bytes).unwrap();
        logits_of(&path)
    };
    assert!(
        relative_squared_error(&with_divisors("freqs1.gguf", 1.0), &npy("llama.npy")).sqrt() < 1e-4
    );
    let path = scratch("linear.gguf");
    let w = source
        .writer(&[])
        .str("llama.rope.scaling.type", "linear")
        .f32("llama.rope.scaling.factor", 4.0);
    source.write(&path, w, &all);
    let linear = logits_of(&path);
    assert_eq!(with_divisors("freqs4.gguf", 4.0), linear);
    assert!(relative_squared_error(&linear, &npy("llama.npy")) > 1e-3);
    let path = scratch("unknown.gguf");
    source.write(
        &path,
        source.writer(&[]).str("llama.rope.scaling.type", "spiral"),
        &all,
    );
    let error = Model::open(&path).err().unwrap().to_string();
    assert!(
        error.contains("llama.rope.scaling.type") && error.contains("spiral"),
        "{error}"
    );
}

#[test]
fn hyperparameters_that_contradict_are_refused_by_key() {
    let source = Source::open("llama.f32.gguf");
    let all: Vec<&TensorInfo> = source.header.tensors.iter().collect();
    for (key, value, words) in [
        (
            "llama.block_count",
            Value::U32(0),
            &["block_count", "0"][..],
        ),
        ("llama.block_count", Value::U32(3), &["blk.2.", "missing"]),
        ("llama.embedding_length", Value::U32(65), &["65"]),
        (
            "llama.attention.head_count_kv",
            Value::U32(3),
            &["head_count_kv", "3"],
        ),
        (
            "llama.attention.layer_norm_rms_epsilon",
            Value::String("x".into()),
            &["layer_norm_rms_epsilon"],
        ),
        (
            "llama.rope.dimension_count",
            Value::U32(17),
            &["dimension_count", "17"],
        ),
        ("llama.rope.freq_base", Value::F32(f32::NAN), &["freq_base"]),
        ("llama.context_length", Value::U32(0), &["context_length"]),
        (
            "llama.feed_forward_length",
            Value::U32(97),
            &["blk.0.ffn_gate.weight", "97"],
        ),
        ("tokenizer.ggml.model", Value::String("t5".into()), &["t5"]),
        (
            "tokenizer.ggml.pre",
            Value::String("klingon".into()),
            &["klingon"],
        ),
    ] {
        let path = scratch("contradiction.gguf");
        source.write(&path, source.writer(&[key]).value(key, &value, &[]), &all);
        let error = Model::open(&path).err().expect(key).to_string();
        assert!(error.contains("contradiction.gguf"), "{error}");
        assert!(words.iter().all(|w| error.contains(w)), "{key}: {error}");
    }
}
