//! What a session will allocate, computed from the header and the graph before anything is allocated.
//! The session allocates from these numbers; nothing is sized twice.

mod device;
mod fit;

pub use device::{Device, Pool, ProfileError};
pub use fit::{Fit, Proposal, Verdict, default_context, headroom};

use ounce_kernels::Isa;
use ounce_kernels::ops::{ActBuf, AttnScratch, KvType};

use crate::EngineError;
use crate::cache::KvLayout;
use crate::model::ModelSpec;
use crate::model::slab::SlabLayout;
use crate::sample::Sampler;

/// What the user asks of a session.
#[derive(Clone, Debug)]
pub struct SessionParams {
    /// Positions the context holds.
    pub n_ctx: usize,
    /// Tokens of a prefill chunk.
    pub n_ubatch: usize,
    /// Rows whose logits are computed at once.
    pub n_outputs: usize,
    /// Cache type of keys.
    pub type_k: KvType,
    /// Cache type of values.
    pub type_v: KvType,
    /// Sequences at once, each with a cache of its own; a [`crate::Session`] is one of them.
    pub n_slots: usize,
    /// Threads.
    pub n_threads: usize,
    /// Instruction set of the kernels.
    pub isa: Isa,
}

/// Code, libraries and stacks: resident when a small model runs, without its sections (measured, x86-64 and ARM64).
const RUNTIME_BASE: usize = 8 << 20;
/// What a thread adds to it.
const RUNTIME_THREAD: usize = 64 << 10;
/// Header and graph where no allocator counts them: what a tensor takes in names, shapes, ops and tables.
const HEADER_TENSOR: usize = 2 << 10;

/// One line of the plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Section {
    /// What it is.
    pub name: &'static str,
    /// Bytes.
    pub bytes: u64,
    /// How the bytes behave.
    pub kind: Kind,
}

/// How the bytes of a section behave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Clean file pages: resident while used, taken back by the kernel when it must.
    Mapped,
    /// Address space that costs memory as it is used.
    Reserved,
    /// Memory held from load to end.
    Committed,
}

impl Kind {
    /// The word for it.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Mapped => "mapped",
            Kind::Reserved => "reserved",
            Kind::Committed => "committed",
        }
    }
}

/// The layouts a session allocates from.
pub struct Plan {
    /// What was asked.
    pub params: SessionParams,
    pub(crate) kv: KvLayout,
    pub(crate) slab: SlabLayout,
    pub(crate) state_offsets: Vec<usize>,
    pub(crate) state_len: usize,
    pub(crate) max_cols: usize,
    sections: Vec<Section>,
}

impl Plan {
    /// Sizes everything for `params`.
    ///
    /// # Errors
    /// A context larger than the model's, a zero count, a cache type that does not fit the heads.
    pub fn new(spec: &ModelSpec, params: SessionParams) -> Result<Plan, EngineError> {
        let hp = &spec.hparams;
        for (what, n) in [
            ("the context", params.n_ctx),
            ("the prefill chunk", params.n_ubatch),
            ("the number of threads", params.n_threads),
            ("the number of slots", params.n_slots),
        ] {
            if n == 0 {
                return Err(EngineError::Parameter {
                    what,
                    wanted: "at least 1",
                    found: "0".into(),
                });
            }
        }
        if params.n_ctx > hp.n_ctx_train {
            return Err(EngineError::ContextTooLarge {
                asked: params.n_ctx,
                trained: hp.n_ctx_train,
            });
        }
        // A chunk never holds more tokens than the context.
        let params = SessionParams {
            n_ubatch: params.n_ubatch.min(params.n_ctx),
            n_outputs: params.n_outputs.clamp(1, params.n_ctx),
            ..params
        };
        let graph = &spec.graph;
        let n_ubatch = params.n_ubatch;
        let kv = KvLayout::new(graph, params.n_ctx, n_ubatch, params.type_k, params.type_v)?;
        let slab = SlabLayout::new(graph, n_ubatch, params.n_outputs);
        let mut state_len = 0;
        let mut state_offsets = Vec::with_capacity(graph.states.len());
        for n in &graph.states {
            state_offsets.push(state_len);
            state_len += n;
        }
        let max_cols = graph.max_cols();
        let rows = n_ubatch.max(params.n_outputs);
        let [dk, dv, n_head, n_head_kv] = heads(spec);
        let section = |name, bytes: usize, kind| Section {
            name,
            bytes: bytes as u64,
            kind,
        };
        let header = spec
            .heap_bytes()
            .unwrap_or(spec.file.header().tensors.len() * HEADER_TENSOR);
        let slots = |bytes: usize| bytes.saturating_mul(params.n_slots);
        let sections = vec![
            Section {
                name: "weights",
                bytes: spec.file.n_bytes(),
                kind: Kind::Mapped,
            },
            section("KV cache", slots(kv.cache_bytes()), Kind::Reserved),
            section("KV stage", kv.stage_bytes(), Kind::Reserved),
            section("recurrent state", slots(4 * state_len), Kind::Committed),
            section("forward slab", 4 * slab.len, Kind::Reserved),
            section(
                "quantised activations",
                ActBuf::bytes(rows, max_cols),
                Kind::Committed,
            ),
            section(
                "attention scratch",
                AttnScratch::bytes(params.n_threads, dk, dv, n_head, n_head_kv),
                Kind::Committed,
            ),
            section(
                "sampler",
                slots(Sampler::bytes(hp.n_vocab)),
                Kind::Committed,
            ),
            section("token buffers", slots(4 * params.n_ctx), Kind::Reserved),
            section(
                "tokenizer",
                crate::tokenizer::planned_bytes(spec.file.header()),
                Kind::Committed,
            ),
            section("header and graph", header, Kind::Committed),
            section(
                "runtime base",
                RUNTIME_BASE + params.n_threads * RUNTIME_THREAD,
                Kind::Committed,
            ),
        ];
        Ok(Plan {
            params,
            kv,
            slab,
            state_offsets,
            state_len,
            max_cols,
            sections,
        })
    }

    /// The sections, in the order of the data's way.
    pub fn sections(&self) -> &[Section] {
        &self.sections
    }

    /// Bytes of all sections that are the process's own: what a limit on its memory must allow.
    pub fn heap_bytes(&self) -> u64 {
        let own = self.sections.iter().filter(|s| s.kind != Kind::Mapped);
        own.map(|s| s.bytes).fold(0, u64::saturating_add)
    }

    /// Bytes that are mapped from files: resident while used, reclaimable.
    pub fn mapped_bytes(&self) -> u64 {
        let mapped = self.sections.iter().filter(|s| s.kind == Kind::Mapped);
        mapped.map(|s| s.bytes).fold(0, u64::saturating_add)
    }
}

/// What sizes the scratch of attention: widths of key and value heads, query heads, key/value heads.
pub(crate) fn heads(spec: &ModelSpec) -> [usize; 4] {
    let hp = &spec.hparams;
    [hp.head_dim_k, hp.head_dim_v, hp.n_head, hp.n_head_kv]
}
