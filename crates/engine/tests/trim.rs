//! What a trimmed session gives back, and that it loses nothing. Linux only: it reads /proc/self.
#![cfg(target_os = "linux")]

mod support;

use std::sync::atomic::AtomicBool;

use ounce_engine::memory::probe::resident;
use ounce_engine::{Session, SessionParams};
use ounce_kernels::ops::KvType;
use support::{golden, params, tokens};

static NEVER: AtomicBool = AtomicBool::new(false);

/// One test, for the figures are those of the whole process.
#[test]
fn trimming_gives_idle_pages_back_and_forgets_nothing() {
    let anon = || resident().unwrap().anon;
    for arch in ["llama", "gemma3", "qwen35"] {
        let asked = || SessionParams {
            n_ubatch: 512,
            type_k: KvType::F16,
            type_v: KvType::F16,
            ..params(32_768)
        };
        let model = golden(&format!("{arch}.f32.gguf"));
        let mut session = Session::new(model.clone(), asked()).unwrap();
        let long: Vec<u32> = tokens().iter().cycle().take(4096).copied().collect();
        session.prefill(&long, &NEVER).unwrap();
        // Where it can go back, most rows of the cache are of no more use; where not, all are.
        let kept = session.rewind(100);
        let before = anon();
        session.trim();
        let freed = before - anon();
        let slab = session
            .plan()
            .sections()
            .iter()
            .find(|s| s.name == "forward slab")
            .unwrap()
            .bytes;
        assert!(freed > slab / 2, "{arch}: {freed} of a slab of {slab}");
        if kept > 0 {
            // Rows 100 to 4096 of every layer, less a page for each K and V.
            let row: usize = model
                .spec
                .graph
                .kv
                .iter()
                .map(|kv| 2 * kv.n_head_kv * (kv.head_dim_k + kv.head_dim_v))
                .sum();
            let rows = (3996 * row - 4096 * 2 * model.spec.graph.kv.len()) as u64;
            assert!(
                freed > slab / 2 + rows,
                "{arch}: {freed}, a slab of {slab} and rows of {rows}"
            );
        }
        // What is left of the session goes on as if nothing had happened.
        let mut fresh = Session::new(model, asked()).unwrap();
        fresh.prefill(&long[..kept.max(1)], &NEVER).unwrap();
        if kept == 0 {
            session.prefill(&long[..1], &NEVER).unwrap();
        }
        for &token in &tokens()[..8] {
            let wanted = fresh.decode(token).unwrap().to_vec();
            session.trim();
            let found = session.decode(token).unwrap();
            assert!(found == wanted, "{arch}: the logits differ after a trim");
        }
    }
}
