//! What the quantised cache types cost: the mean Kullback-Leibler divergence, in nats a token, of the next-token
//! distribution from that of a run with an f16 cache:
//! `cargo run --release -p ounce-engine --example kv_quality -- MODEL.gguf… [--text FILE] [--json]`.
//!
//! The text (by default `tests/data/text/kv_quality.txt`) is cut into windows of the context's length,
//! and KL(f16 ‖ type) averaged over the last half of the positions of each, 2048 in all. K and V have the same type.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use ounce_engine::memory::Residency;
use ounce_engine::{EngineError, Model, Session, SessionParams};
use ounce_kernels::ops::KvType;
use ounce_kernels::{Isa, default_threads};
use serde_json::json;

type Failure = Box<dyn std::error::Error>;

const TYPES: [KvType; 3] = [KvType::Q8_0, KvType::Q4_0, KvType::Tq4];
/// Tokens of text that are used, and the context of the longest windows.
const N_TOKENS: usize = 4096;
const CONTEXTS: [usize; 2] = [512, N_TOKENS];
/// Positions whose logits are held at once: a row may be a megabyte.
const CHUNK: usize = 32;
const TEXT: &str = "tests/data/text/kv_quality.txt";

fn main() -> Result<(), Failure> {
    let (mut models, mut text, mut json) = (Vec::new(), None, false);
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--json" => json = true,
            "--text" => text = Some(read(Path::new(&args.next().ok_or("--text needs a file")?))?),
            _ => models.push(arg),
        }
    }
    if models.is_empty() {
        return Err("name a model file: kv_quality MODEL.gguf… [--text FILE] [--json]".into());
    }
    let own = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .join(TEXT);
    let text = text.map_or_else(|| read(&own), Ok)?;
    let mut results = Vec::new();
    for path in &models {
        let name = Path::new(path).file_name().unwrap_or_default();
        let name = name.to_string_lossy();
        let model = Arc::new(Model::open(Path::new(path))?);
        let tokens = model.tokenizer.encode(&text, false);
        if tokens.len() < N_TOKENS {
            let n = tokens.len();
            return Err(format!("{name}: the text has {n} tokens of {N_TOKENS}").into());
        }
        for n_ctx in CONTEXTS {
            let means = divergences(&model, &tokens[..N_TOKENS], n_ctx)?;
            for (ty, kl) in TYPES.iter().zip(means) {
                if json {
                    results.push(json!({
                        "model": name, "n_ctx": n_ctx, "type_k": ty.name(), "type_v": ty.name(),
                        "n_positions": N_TOKENS / 2, "mean_kl_nats": kl,
                    }));
                } else {
                    println!("{name:40} {n_ctx:5} {:5} {kl:10.6}", ty.name());
                }
            }
        }
    }
    if json {
        println!("{}", serde_json::to_string_pretty(&results)?);
    }
    Ok(())
}

fn read(path: &Path) -> Result<String, Failure> {
    std::fs::read_to_string(path).map_err(|e| format!("{}: {e}", path.display()).into())
}

/// Mean divergence of each of [`TYPES`] over windows of `n_ctx` tokens. All sessions go through a window together, so
/// that no more than [`CHUNK`] rows of logits are held.
fn divergences(
    model: &Arc<Model>,
    tokens: &[u32],
    n_ctx: usize,
) -> Result<[f64; TYPES.len()], Failure> {
    let never = AtomicBool::new(false);
    let session = |ty| {
        let params = SessionParams {
            n_ctx,
            n_ubatch: 256,
            n_outputs: CHUNK,
            n_slots: 1,
            residency: Residency::Mapped,
            type_k: ty,
            type_v: ty,
            n_threads: default_threads(),
            isa: Isa::choose()?,
        };
        Ok::<_, Failure>(Session::new(Arc::clone(model), params)?)
    };
    let mut exact = session(KvType::F16)?;
    let mut others = Vec::new();
    for ty in TYPES {
        others.push(session(ty)?);
    }
    let (mut sums, mut n) = ([0.0; TYPES.len()], 0);
    for window in tokens.chunks_exact(n_ctx) {
        let mut window = window.to_vec();
        if let Some(bos) = model.tokenizer.bos().filter(|_| model.tokenizer.add_bos()) {
            window[0] = bos;
        }
        let (first, last) = window.split_at(n_ctx / 2);
        for session in others.iter_mut().chain([&mut exact]) {
            session.reset();
            session.prefill(first, &never)?;
        }
        for chunk in last.chunks(CHUNK) {
            let mut rows = Vec::new();
            exact.eval_all(chunk, CHUNK, |row| {
                rows.push(log_probabilities(row));
                Ok::<(), EngineError>(())
            })?;
            for (session, sum) in others.iter_mut().zip(&mut sums) {
                let mut rows = rows.iter();
                session.eval_all(chunk, CHUNK, |row| {
                    *sum += rows.next().map_or(f64::NAN, |p| divergence(p, row));
                    Ok::<(), EngineError>(())
                })?;
            }
            n += chunk.len();
        }
    }
    Ok(sums.map(|sum| sum / n as f64))
}

/// `ln Σ e^x`.
fn log_sum(x: &[f32]) -> f64 {
    let max = x.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let sum: f64 = x.iter().map(|x| f64::from((x - max).exp())).sum();
    f64::from(max) + sum.ln()
}

fn log_probabilities(logits: &[f32]) -> Vec<f32> {
    let log_sum = log_sum(logits);
    let log_p = logits.iter().map(|x| (f64::from(*x) - log_sum) as f32);
    log_p.collect()
}

/// `Σ p (ln p - ln q)`.
fn divergence(log_p: &[f32], logits: &[f32]) -> f64 {
    let log_sum = log_sum(logits);
    log_p
        .iter()
        .zip(logits)
        .map(|(p, q)| f64::from(p.exp()) * (f64::from(*p) - (f64::from(*q) - log_sum)))
        .sum()
}
