//! Nothing on the heap per token: prefill and decode after the first step allocate nothing.

mod support;

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use ounce_engine::sample::SampleParams;
use ounce_engine::{Sampler, Session, SessionParams};
use ounce_kernels::ops::KvType;
use support::{golden, params, tokens};

struct Counting;

static ALLOCATIONS: AtomicUsize = AtomicUsize::new(0);

// SAFETY: every call goes to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller's promises are passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        // SAFETY: the caller's promises are passed on.
        unsafe { System.dealloc(ptr, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// One test, for the count is that of the whole process.
#[test]
fn steps_allocate_nothing() {
    let never = AtomicBool::new(false);
    let prompt = tokens();
    let sampling = [
        SampleParams {
            temperature: 0.0,
            ..SampleParams::default()
        },
        SampleParams {
            repeat_penalty: 1.1,
            ..SampleParams::default()
        },
    ];
    let mut n_quantised = 0;
    for file in [
        "llama.f32",
        "qwen2.f32",
        "qwen3.f32",
        "gemma3.f32",
        "qwen3moe.f32",
        "qwen35.f32",
        "llama.Q4_K_M",
        "qwen35.Q4_K_M",
    ] {
        let model = golden(&format!("{file}.gguf"));
        let n_vocab = model.spec.hparams.n_vocab;
        for ty in KvType::ALL {
            let params = SessionParams {
                type_k: ty,
                type_v: ty,
                ..params(256)
            };
            // A head of 16 holds no block.
            if !model.spec.hparams.head_dim_k.is_multiple_of(ty.block_len()) {
                continue;
            }
            n_quantised += usize::from(ty.block_len() > 1);
            let mut session = Session::new(Arc::clone(&model), params).unwrap();
            // What is made once, on first use: worker threads' own start, tables.
            session.prefill(&prompt, &never).unwrap();
            for sampling in &sampling {
                let mut sampler = Sampler::new(sampling.clone(), n_vocab).unwrap();
                let before = ALLOCATIONS.load(Ordering::Relaxed);
                session.prefill(&prompt, &never).unwrap();
                for _ in 0..32 {
                    let token = sampler.sample(session.logits()).unwrap();
                    session.decode(token).unwrap();
                }
                let count = ALLOCATIONS.load(Ordering::Relaxed) - before;
                assert_eq!(
                    count, 0,
                    "{file}, {ty}: allocations in 1 prefill and 32 decode steps"
                );
            }
        }
    }
    assert!(n_quantised > 0, "no model's heads hold a block");
}
