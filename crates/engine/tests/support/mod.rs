//! What the tests of this crate share: where data lies, numpy files, sessions.
#![allow(dead_code)] // each test binary uses a part

use std::path::PathBuf;
use std::sync::Arc;

use ounce_engine::memory::Residency;
use ounce_engine::{Model, Session, SessionParams};
use ounce_kernels::Isa;
use ounce_kernels::ops::KvType;

/// A file under `tests/data`.
pub fn data(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("../../tests/data")
        .join(name)
}

/// A model of `tests/data/golden`.
pub fn golden(name: &str) -> Arc<Model> {
    Arc::new(Model::open(&data(&format!("golden/{name}"))).unwrap())
}

/// A real model, or `None` when `OUNCE_TEST_MODELS` is not set; under CI a missing model is a failure.
pub fn real(file: &str) -> Option<Arc<Model>> {
    let Some(folder) = std::env::var_os("OUNCE_TEST_MODELS") else {
        assert!(
            std::env::var_os("CI").is_none(),
            "CI must set OUNCE_TEST_MODELS"
        );
        eprintln!("not run: OUNCE_TEST_MODELS is not set");
        return None;
    };
    Some(Arc::new(
        Model::open(&PathBuf::from(folder).join(file)).unwrap(),
    ))
}

/// Session parameters of the goldens: f32 cache, two threads.
pub fn params(n_ctx: usize) -> SessionParams {
    SessionParams {
        n_ctx,
        n_ubatch: 512,
        n_outputs: 8,
        type_k: KvType::F32,
        type_v: KvType::F32,
        n_slots: 1,
        residency: Residency::Mapped,
        n_threads: 2,
        isa: Isa::choose().unwrap(),
    }
}

/// Logits of every position, fed in chunks of these lengths (the last one repeats).
pub fn logits(session: &mut Session, tokens: &[u32], chunks: &[usize]) -> Vec<f32> {
    let mut out = Vec::new();
    let mut rest = tokens;
    let mut i = 0;
    while !rest.is_empty() {
        let n = chunks[i.min(chunks.len() - 1)].min(rest.len());
        session
            .eval_all(&rest[..n], n, |row| {
                out.extend_from_slice(row);
                Ok::<(), ounce_engine::EngineError>(())
            })
            .unwrap();
        rest = &rest[n..];
        i += 1;
    }
    out
}

/// The floats of a numpy file of float32.
pub fn npy(name: &str) -> Vec<f32> {
    let bytes = std::fs::read(data(&format!("golden/{name}"))).unwrap();
    assert_eq!(&bytes[..8], b"\x93NUMPY\x01\x00");
    let start = 10 + usize::from(u16::from_le_bytes([bytes[8], bytes[9]]));
    assert!(String::from_utf8_lossy(&bytes[10..start]).contains("'<f4'"));
    bytes[start..]
        .chunks_exact(4)
        .map(|b| f32::from_le_bytes(b.try_into().unwrap()))
        .collect()
}

/// The ids of the goldens.
pub fn tokens() -> Vec<u32> {
    serde_json::from_slice(&std::fs::read(data("golden/tokens.json")).unwrap()).unwrap()
}

/// Σ(a-b)² / Σb².
pub fn relative_squared_error(a: &[f32], b: &[f32]) -> f64 {
    assert_eq!(a.len(), b.len());
    let error: f64 = a.iter().zip(b).map(|(x, y)| f64::from(x - y).powi(2)).sum();
    error / b.iter().map(|y| f64::from(*y).powi(2)).sum::<f64>()
}
