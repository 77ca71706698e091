//! The two real models against exact arithmetic: mean |Δ log-probability of the next token| not larger than the peer's.

mod support;

use ounce_engine::{Session, SessionParams};
use ounce_kernels::ops::KvType;
use serde_json::Value;
use support::{data, params, real};

fn numbers(v: &Value) -> Vec<f64> {
    v.as_array()
        .unwrap()
        .iter()
        .map(|x| x.as_f64().unwrap())
        .collect()
}

fn log_probabilities(reference: &str, file: &str) {
    let Some(model) = real(file) else { return };
    let json: Value =
        serde_json::from_slice(&std::fs::read(data(&format!("golden/{reference}.json"))).unwrap())
            .unwrap();
    let tokens: Vec<u32> = serde_json::from_value(json["tokens"].clone()).unwrap();
    let exact = numbers(&json["exact"]["logprob_next"]);
    let peer = numbers(&json["peer"]["logprob_next"]);
    let mut session = Session::new(
        model,
        SessionParams {
            type_k: KvType::F32,
            type_v: KvType::F32,
            ..params(tokens.len() + 8)
        },
    )
    .unwrap();
    let mut ours = Vec::new();
    session
        .eval_all(&tokens, 512, |row| {
            if let Some(&next) = tokens.get(ours.len() + 1) {
                let max = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
                let sum: f64 = row.iter().map(|&x| f64::from(x - max).exp()).sum();
                ours.push(f64::from(row[next as usize] - max) - sum.ln());
            }
            Ok::<(), ounce_engine::EngineError>(())
        })
        .unwrap();
    assert_eq!(ours.len(), exact.len());
    let distance = |a: &[f64]| {
        a.iter()
            .zip(&exact)
            .map(|(a, b)| (a - b).abs())
            .sum::<f64>()
            / exact.len() as f64
    };
    let (ours, peer) = (distance(&ours), distance(&peer));
    println!("{file}: mean |Δ log-probability| {ours:.5}, peer {peer:.5}");
    assert!(
        ours <= peer,
        "{file}: {ours} is larger than the peer's {peer}"
    );
}

#[test]
fn smollm2() {
    log_probabilities("smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf");
}

#[test]
fn gemma3_270m() {
    log_probabilities("gemma3-270m", "gemma-3-270m-q4_k_m.gguf");
}
