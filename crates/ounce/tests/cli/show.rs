//! `show`: everything a file says, from its header alone.

use std::io::{Seek, SeekFrom, Write};
use std::time::Instant;

use ounce_gguf::TensorType;
use ounce_gguf::write::Writer;
use serde_json::Value;

use crate::harness::{model, ounce, scratch};

#[test]
fn the_report_and_the_document_agree_with_the_file() {
    let path = model("llama.f32.gguf");
    let text = ounce(&["show", &path, "--tensors", "--template"]).ok().out;
    for part in [
        "llama",
        "F32",
        "blk.0.attn_q.weight",
        "general.architecture",
        "<|im_start|>",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let json: Value = serde_json::from_str(&ounce(&["show", &path, "--json"]).ok().out).unwrap();
    assert_eq!(json["metadata"]["general.architecture"], "llama");
    assert_eq!(
        json["metadata"]["llama.attention.layer_norm_rms_epsilon"],
        1e-6
    );
    assert_eq!(json["metadata"]["tokenizer.ggml.tokens"]["len"], 515);
    assert_eq!(json["types"][0]["type"], "F32");
    let tensors = json["tensors"].as_array().unwrap();
    let embd = tensors
        .iter()
        .find(|t| t["name"] == "token_embd.weight")
        .unwrap();
    assert_eq!(embd["shape"], serde_json::json!([64, 515]));
    let elements: u64 = tensors
        .iter()
        .map(|t| {
            t["shape"]
                .as_array()
                .unwrap()
                .iter()
                .map(|d| d.as_u64().unwrap())
                .product::<u64>()
        })
        .sum();
    assert_eq!(json["parameters"].as_u64().unwrap(), elements);
}

/// A file of 40 GB, nearly all of it holes, is shown without being read.
#[test]
#[cfg(target_os = "linux")]
fn a_huge_file_is_shown_from_its_header() {
    const SIZE: u64 = 40_000_000_000;
    let path = scratch("huge").join("huge.gguf");
    let cols = 4096;
    let rows = SIZE / 2 / cols;
    let writer = Writer::new().str("general.architecture", "llama").tensor(
        "token_embd.weight",
        &[cols, rows],
        TensorType::F16,
    );
    let header = writer.header();
    let mut file = std::fs::File::create(&path).unwrap();
    file.write_all(&header).unwrap();
    file.set_len(header.len() as u64 + writer.data_len())
        .unwrap();
    // The last byte exists, so that the file is what it says to its end.
    file.seek(SeekFrom::End(-1)).unwrap();
    file.write_all(&[0]).unwrap();
    drop(file);
    let path = path.display().to_string();
    let start = Instant::now();
    let said = ounce(&["show", &path]).ok();
    let took = start.elapsed();
    assert!(said.out.contains("40 GB"), "{}", said.out);
    assert!(took.as_millis() < 1000, "{took:?}");
    // Peak of the program, its binary included; the file alone would be 40 GB.
    let peak = peak_resident(&["show", &path]);
    assert!(peak < 64 << 20, "{peak} bytes resident");
    std::fs::remove_file(&path).unwrap();
}

/// Peak resident bytes of a run, as the shell's `ulimit`-free view of `/proc` gives it: sampled by the child itself.
#[cfg(target_os = "linux")]
fn peak_resident(args: &[&str]) -> u64 {
    let mut child = crate::harness::command(args)
        .stdout(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let path = format!("/proc/{}/status", child.id());
    let mut peak = 0;
    loop {
        if let Ok(text) = std::fs::read_to_string(&path)
            && let Some(line) = text.lines().find(|l| l.starts_with("VmHWM:"))
        {
            let kib: u64 = line
                .split_ascii_whitespace()
                .nth(1)
                .unwrap()
                .parse()
                .unwrap();
            peak = peak.max(kib * 1024);
        }
        if child.try_wait().unwrap().is_some() {
            return peak;
        }
    }
}
