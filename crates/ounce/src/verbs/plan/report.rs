//! A plan and what a device makes of it, as one value that tables, JSON documents and receipts are made from.

use std::path::Path;

use ounce_engine::Plan;
use ounce_engine::memory::read_rate;
use ounce_engine::model::ModelSpec;
use ounce_engine::plan::{Device, Fit, Proposal, Verdict};
use ounce_gguf::TensorInfo;
use serde_json::{Value, json};

/// The backend this build has.
pub const CPU: &str = "cpu";

/// A plan, and what a device makes of it.
pub struct Report<'a> {
    pub plan: &'a Plan,
    pub fit: &'a Fit,
    pub device: &'a Device,
    pub backend: &'a str,
    pub proposals: &'a [Proposal],
    /// Tensors of types that no kernel reads.
    pub no_kernel: &'a [&'a TensorInfo],
    /// Whether the context was not asked for.
    pub chosen: bool,
    /// What storage gives where weights stream from it.
    pub storage: Option<Storage>,
}

/// What storage gives a plan that streams.
#[derive(Clone, Copy)]
pub struct Storage {
    pub bytes_per_second: f64,
    /// If every byte of a step came from there.
    pub tokens_per_second: f64,
}

impl Storage {
    /// Measures it for a plan that streams, on the largest file of the model.
    pub fn measure(spec: &ModelSpec, fit: &Fit) -> Option<Storage> {
        let Verdict::Streams { per_token, .. } = fit.verdict else {
            return None;
        };
        let len = |path: &&Path| path.metadata().map_or(0, |m| m.len());
        let bytes_per_second = read_rate(spec.file.paths().max_by_key(len)?)?;
        Some(Storage {
            bytes_per_second,
            tokens_per_second: bytes_per_second / per_token.max(1) as f64,
        })
    }
}

/// Bytes a tensor would take if it were unpacked to F32, as an engine without a kernel for its type would hold it.
pub fn unpacked_bytes(t: &TensorInfo) -> u64 {
    t.n_elements().saturating_mul(4)
}

impl Report<'_> {
    /// The plan as `--json` prints it and as receipts hold it.
    pub fn document(&self) -> Value {
        let Report {
            plan, fit, device, ..
        } = self;
        let p = &plan.params;
        let sections: Vec<Value> = plan
        .sections()
        .iter()
        .map(|s| {
            let pool = if s.kind.is_own() { "heap" } else { "memory" };
            json!({ "name": s.name, "bytes": s.bytes, "pool": pool, "behaviour": s.kind.name() })
        })
        .collect();
        let (missing, per_token, over) = match fit.verdict {
            Verdict::Fits => (0, 0, 0),
            Verdict::Streams { missing, per_token } => (missing, per_token, 0),
            Verdict::DoesNotFit { over, .. } => (0, 0, over),
        };
        let no_kernel: Vec<Value> = self
            .no_kernel
            .iter()
            .map(|t| {
                json!({
                    "name": t.name,
                    "type": t.ty.name(),
                    "bytes": t.n_bytes,
                    "unpacked_bytes": unpacked_bytes(t),
                })
            })
            .collect();
        let name = if no_kernel.is_empty() {
            fit.verdict.name()
        } else {
            "no_kernel"
        };
        let proposals: Vec<Value> = self
        .proposals
        .iter()
        .map(|p| json!({ "flags": p.flags, "saves_bytes": p.saves, "verdict": p.verdict.name() }))
        .collect();
        json!({
            "device": {
                "name": device.name,
                "backend": self.backend,
                "total_bytes": device.total,
                "heap_bytes": device.heap.known(),
                "heap_limit": device.heap.limit,
                "memory_bytes": device.memory.known(),
                "memory_limit": device.memory.limit,
                "swap_free_bytes": device.swap_free,
                "zram_bytes": device.zram,
            },
            "n_ctx": p.n_ctx,
            "n_ctx_chosen": self.chosen,
            "n_ubatch": p.n_ubatch,
            "n_slots": p.n_slots,
            "n_threads": p.n_threads,
            "type_k": p.type_k.name(),
            "type_v": p.type_v.name(),
            "sections": sections,
            "headroom_bytes": fit.headroom,
            "heap_needed_bytes": fit.heap,
            "memory_needed_bytes": fit.memory,
            "verdict": name,
            "weights_without_room_bytes": missing,
            "streamed_bytes_per_token": per_token,
            "storage_bytes_per_second": self.storage.map(|s| s.bytes_per_second),
            "streamed_tokens_per_second": self.storage.map(|s| s.tokens_per_second),
            "over_bytes": over,
            "proposals": proposals,
            "without_kernel": no_kernel,
        })
    }
}
