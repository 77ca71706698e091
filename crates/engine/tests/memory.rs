//! Memory is reserved at the start and committed by use. Linux only: it reads /proc/self.
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
fn a_long_context_costs_what_is_in_it() {
    let anon = || resident().unwrap().anon;
    for arch in ["llama", "qwen3", "gemma3", "qwen35"] {
        let model = golden(&format!("{arch}.f32.gguf"));
        let asked = SessionParams {
            n_ubatch: 64,
            type_k: KvType::F16,
            type_v: KvType::F16,
            ..params(32_768)
        };
        let mut session = Session::new(model, asked).unwrap();
        let tokens: Vec<u32> = tokens().iter().cycle().take(64).copied().collect();
        // Scratch and slab are touched here, so that what follows is the cache alone.
        session.prefill(&tokens, &NEVER).unwrap();
        session.reset();
        let empty = anon();
        let sections: Vec<_> = session
            .plan()
            .sections()
            .iter()
            .filter(|s| s.name == "KV cache")
            .collect();
        let reserved = sections[0].bytes;
        for _ in 0..32 {
            session.prefill(&tokens, &NEVER).unwrap();
        }
        let used = anon() - empty;
        // A sixteenth of the context: as much of the global layers' cache, and whole windows, which are small.
        assert!(
            used < reserved / 12 + (1 << 20),
            "{arch}: {used} of {reserved} after a sixteenth of the context"
        );
        session.reset();
        let after = anon().saturating_sub(empty);
        assert!(after < (1 << 18), "{arch}: {after} bytes kept after reset");
    }
}
