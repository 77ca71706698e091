//! The real models through the binary. They are in the folder that `OUNCE_TEST_MODELS` names.

use serde_json::Value;

use crate::harness::{ounce, real};

#[test]
fn smollm2_answers_within_its_memory() {
    let Some(model) = real("SmolLM2-135M-Instruct.Q4_1.gguf") else {
        return;
    };
    let args = [
        "run",
        &model,
        "-p",
        "What is the capital of France? Answer in one word.",
        "--temp",
        "0",
        "-n",
        "24",
        "-c",
        "512",
        "--json",
    ];
    let json: Value = serde_json::from_str(&ounce(&args).ok().out).unwrap();
    assert!(json["text"].as_str().unwrap().contains("Paris"), "{json:#}");
    let peak = json["peak_resident_bytes"].as_u64().unwrap();
    assert!(peak <= 98_362_432 + 60_000_000, "peak {peak}");
}

#[test]
fn gemma3_completes_without_a_template() {
    let Some(model) = real("gemma-3-270m-q4_k_m.gguf") else {
        return;
    };
    let said = ounce(&[
        "run",
        &model,
        "-p",
        "The capital of France is",
        "--temp",
        "0",
        "-n",
        "8",
    ])
    .ok();
    assert!(said.out.contains("France"), "{}", said.out);
    assert!(said.err.contains("no chat template"), "{}", said.err);
}

#[test]
fn show_names_what_the_files_hold() {
    let Some(model) = real("gemma-3-270m-q4_k_m.gguf") else {
        return;
    };
    let text = ounce(&["show", &model]).ok().out;
    for part in ["gemma3", "268.1 M", "Q5_0", "32768"] {
        assert!(text.contains(part), "{part}: {text}");
    }
}
