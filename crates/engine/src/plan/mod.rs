//! What a session will allocate, computed from the header and the graph before anything is allocated.
//! The session allocates from these numbers; nothing is sized twice.

mod choose;
mod device;
mod fit;
mod propose;
mod section;

pub use choose::{Open, choose};
pub use device::{Device, Pool, ProfileError};
pub use fit::{Fit, Verdict, default_context, headroom};
pub use propose::Proposal;
pub use section::{Kind, Section, name};

use ounce_kernels::Isa;
use ounce_kernels::ops::{ActBuf, AttnScratch, KvType};

use crate::EngineError;
use crate::cache::KvLayout;
use crate::memory::Residency;
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
    /// How the weights are held.
    pub residency: Residency,
}

/// What a process holds before it opens a model, where the kernel does not say.
const RUNTIME_BASE: u64 = 6 << 20;
/// What the code of a forward pass, the allocator's free lists and the stacks add to it (measured on x86-64).
const RUNTIME_GROWTH: u64 = 1700 << 10;
/// What the code of patterns adds, and what building a table of merges leaves in the allocator's free lists.
const RUNTIME_BPE: u64 = 900 << 10;
/// What a thread adds.
const RUNTIME_THREAD: u64 = 112 << 10;
/// Pages that the kernel maps around one that is touched, if it has them: a row of a sparse table costs as many.
const FAULT_AROUND: u64 = 64 << 10;
/// Header and graph where no allocator counts them: what a tensor takes in names, shapes, ops and tables.
const HEADER_TENSOR: usize = 2 << 10;

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
        let has_merges = spec
            .file
            .header()
            .metadata
            .get("tokenizer.ggml.merges")
            .is_some();
        let base = spec.base_bytes().unwrap_or(RUNTIME_BASE)
            + RUNTIME_GROWTH
            + if has_merges { RUNTIME_BPE } else { 0 }
            + params.n_threads as u64 * RUNTIME_THREAD;
        let slots = |bytes: usize| bytes.saturating_mul(params.n_slots);
        let mut sections = weights(spec, &params);
        sections.extend([
            section(name::KV_CACHE, slots(kv.cache_bytes()), Kind::Reserved),
            section(name::KV_STAGE, kv.stage_bytes(), Kind::Reserved),
            section(name::STATE, slots(4 * state_len), Kind::Committed),
            section(name::SLAB, 4 * slab.len, Kind::Reserved),
            section(name::ACTS, ActBuf::bytes(rows, max_cols), Kind::Committed),
            section(
                name::ATTENTION,
                AttnScratch::bytes(params.n_threads, dk, dv, n_head, n_head_kv),
                Kind::Committed,
            ),
            section(
                name::SAMPLER,
                slots(Sampler::bytes(hp.n_vocab)),
                Kind::Committed,
            ),
            section(name::TOKENS, slots(4 * params.n_ctx), Kind::Reserved),
            section(
                name::TOKENIZER,
                crate::tokenizer::planned_bytes(spec.file.header()),
                Kind::Committed,
            ),
            section(name::HEADER, header, Kind::Committed),
            Section {
                name: name::BASE,
                bytes: base,
                kind: Kind::Committed,
            },
        ]);
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
        self.sum(Kind::is_own)
    }

    /// Bytes that are mapped from files: resident while used, reclaimable.
    pub fn mapped_bytes(&self) -> u64 {
        self.sum(Kind::is_reclaimable)
    }

    /// Bytes of files that stay in memory.
    pub fn locked_bytes(&self) -> u64 {
        self.sum(|kind| kind == Kind::Locked)
    }

    fn sum(&self, of: impl Fn(Kind) -> bool) -> u64 {
        let counted = self.sections.iter().filter(|s| of(s.kind));
        counted.map(|s| s.bytes).fold(0, u64::saturating_add)
    }
}

/// The weights as they are held: what passes read of the mapping, or the whole of the files.
fn weights(spec: &ModelSpec, params: &SessionParams) -> Vec<Section> {
    let whole = |kind| Section {
        name: name::WEIGHTS,
        bytes: spec.file.n_bytes(),
        kind,
    };
    match params.residency {
        Residency::Locked => vec![whole(Kind::Locked)],
        Residency::Direct => vec![whole(Kind::Committed)],
        Residency::Mapped => {
            let read = Section {
                bytes: spec.read_bytes(),
                ..whole(Kind::Mapped)
            };
            let rows = spec.graph.sparse_table().map(|table| Section {
                name: name::ROWS,
                bytes: (params.n_ctx as u64 * params.n_slots as u64)
                    .saturating_mul(FAULT_AROUND)
                    .min(table.n_bytes() as u64),
                kind: Kind::ByRow,
            });
            std::iter::once(read).chain(rows).collect()
        }
    }
}

/// What sizes the scratch of attention: widths of key and value heads, query heads, key/value heads.
pub(crate) fn heads(spec: &ModelSpec) -> [usize; 4] {
    let hp = &spec.hparams;
    [hp.head_dim_k, hp.head_dim_v, hp.n_head, hp.n_head_kv]
}
