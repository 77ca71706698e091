//! One sequence of tokens: prefill in chunks, decode token by token, nothing allocated after the start.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use ounce_kernels::Cpu;
use ounce_kernels::ops::{ActBuf, AttnScratch};

use crate::EngineError;
use crate::cache::KvCache;
use crate::cpu::{CpuBackend, Pass};
use crate::memory::alloc::grown_by;
use crate::memory::smaps::{Area, resident_in};
use crate::memory::{Pressure, Region, Verdict};
use crate::model::Model;
use crate::plan::{Plan, SessionParams, heads, name};

/// A context of a model with its caches.
pub struct Session {
    model: Arc<Model>,
    plan: Plan,
    backend: CpuBackend,
    kv: KvCache,
    states: Region,
    slab: Region,
    /// What has been fed, position by position.
    tokens: Vec<u32>,
    pressure: Pressure,
    /// What sections on the heap took of it, where that is counted.
    heap: [(&'static str, Option<usize>); 3],
}

impl Session {
    /// Allocates what the plan says.
    ///
    /// # Errors
    /// The parameters do not fit the model, or the address space is refused.
    pub fn new(model: Arc<Model>, params: SessionParams) -> Result<Session, EngineError> {
        Session::from_plan(Arc::clone(&model), Plan::new(&model.spec, params)?)
    }

    /// Allocates a plan made for this model.
    ///
    /// # Errors
    /// The address space is refused.
    pub fn from_plan(model: Arc<Model>, plan: Plan) -> Result<Session, EngineError> {
        let p = &plan.params;
        let [dk, dv, n_head, n_head_kv] = heads(&model.spec);
        let cpu = Cpu::new(p.isa, p.n_threads);
        let (acts, acts_heap) =
            grown_by(|| ActBuf::new(p.n_ubatch.max(p.n_outputs), plan.max_cols));
        let (attn, attn_heap) =
            grown_by(|| AttnScratch::new(p.n_threads, dk, dv, n_head, n_head_kv));
        let (tokens, tokens_heap) = grown_by(|| Vec::with_capacity(p.n_ctx));
        Ok(Session {
            backend: CpuBackend::new(cpu, acts, attn),
            kv: KvCache::new(plan.kv.clone())?,
            states: Region::reserve(name::STATE, 4 * plan.state_len)?,
            slab: Region::reserve(name::SLAB, 4 * plan.slab.len)?,
            tokens,
            pressure: Pressure::new(),
            heap: [
                (name::ACTS, acts_heap),
                (name::ATTENTION, attn_heap),
                (name::TOKENS, tokens_heap),
            ],
            model,
            plan,
        })
    }

    /// The model.
    pub fn model(&self) -> &Arc<Model> {
        &self.model
    }

    /// What was allocated.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Positions the context holds.
    pub fn n_ctx(&self) -> usize {
        self.plan.params.n_ctx
    }

    /// The tokens fed so far; the next one gets position `tokens().len()`.
    pub fn tokens(&self) -> &[u32] {
        &self.tokens
    }

    /// Forgets everything and gives the pages of the caches back.
    pub fn reset(&mut self) {
        self.kv.release();
        self.states.release();
        self.tokens.clear();
    }

    /// Gives back what is idle or can be computed again, and forgets nothing: the forward slab, the stage of the cache, and
    /// pages of the cache beyond [`Session::tokens`]. [`Session::logits`] are zeros until the next pass.
    pub fn trim(&mut self) {
        self.kv.trim(self.tokens.len());
        self.slab.release();
    }

    /// What the sections of the plan that belong to this session hold: regions by their resident pages among `areas`,
    /// sections on the heap as the allocator counted them. `None` for what cannot be read.
    pub fn held(&self, areas: Option<&[Area]>) -> Vec<(&'static str, Option<u64>)> {
        let resident = |r: &Region| areas.map(|areas| resident_in(areas, &r.range()));
        let [cache, stage] = self.kv.regions();
        let regions = [
            (name::KV_CACHE, resident(cache)),
            (name::KV_STAGE, resident(stage)),
            (name::STATE, resident(&self.states)),
            (name::SLAB, resident(&self.slab)),
        ];
        let heap = self.heap.iter().map(|&(n, b)| (n, b.map(|b| b as u64)));
        regions.into_iter().chain(heap).collect()
    }

    /// A session that watches other cgroups than this process's.
    #[cfg(test)]
    pub(crate) fn watch(&mut self, pressure: Pressure) {
        self.pressure = pressure;
    }

    /// How short memory is; events in cgroups count from the last call on.
    pub fn pressure(&mut self) -> Verdict {
        self.pressure.look()
    }

    /// Forgets what follows the first `n` tokens, or everything where that is not possible: a recurrent state cannot
    /// go back, nor can a sliding window that has dropped rows. Returns how many tokens are kept.
    pub fn rewind(&mut self, n: usize) -> usize {
        if n < self.tokens.len() {
            if self.plan.state_len == 0 && self.kv.can_rewind(self.tokens.len()) && n > 0 {
                self.tokens.truncate(n);
            } else {
                self.reset();
            }
        }
        self.tokens.len()
    }

    /// Feeds `tokens` in chunks of `n_ubatch`; afterwards [`Session::logits`] are those of the last one.
    /// Returns how many were fed: fewer than given only when `cancel` was raised between chunks.
    ///
    /// # Errors
    /// The context cannot hold them, or an id is not in the vocabulary; nothing is fed then. The model's file changed or
    /// cannot be read any more; the session is empty then and its model of no further use.
    pub fn prefill(&mut self, tokens: &[u32], cancel: &AtomicBool) -> Result<usize, EngineError> {
        self.check(tokens)?;
        let mut fed = 0;
        for chunk in tokens.chunks(self.plan.params.n_ubatch) {
            if cancel.load(Ordering::Relaxed) {
                return Ok(fed);
            }
            self.body(chunk)?;
            fed += chunk.len();
            if fed == tokens.len() {
                self.head(chunk.len() - 1, 1)?;
            }
        }
        Ok(fed)
    }

    /// Feeds one token; returns the logits of the next, `[n_vocab]`.
    ///
    /// # Errors
    /// The context is full, the id is not in the vocabulary, or the model's file changed; see [`Session::prefill`].
    pub fn decode(&mut self, token: u32) -> Result<&mut [f32], EngineError> {
        self.check(&[token])?;
        self.body(&[token])?;
        self.head(0, 1)?;
        Ok(self.logits())
    }

    /// Feeds `tokens` in chunks of at most `chunk` and hands every position's logits to `each`, in order.
    ///
    /// # Errors
    /// As [`Session::prefill`], and whatever `each` returns.
    pub fn eval_all<E: From<EngineError>>(
        &mut self,
        tokens: &[u32],
        chunk: usize,
        mut each: impl FnMut(&[f32]) -> Result<(), E>,
    ) -> Result<(), E> {
        self.check(tokens)?;
        let n_vocab = self.model.spec.hparams.n_vocab;
        let step = self.plan.params.n_outputs;
        for chunk in tokens.chunks(chunk.clamp(1, self.plan.params.n_ubatch)) {
            self.body(chunk)?;
            for first in (0..chunk.len()).step_by(step) {
                let n = step.min(chunk.len() - first);
                self.head(first, n)?;
                for row in self.outputs(n).chunks_exact(n_vocab) {
                    each(row)?;
                }
            }
        }
        Ok(())
    }

    /// Logits of the last position fed, `[n_vocab]`; the sampler may change them.
    pub fn logits(&mut self) -> &mut [f32] {
        self.outputs(1)
    }

    fn outputs(&mut self, n: usize) -> &mut [f32] {
        let logits = self
            .model
            .spec
            .graph
            .logits
            .expect("every architecture ends in logits");
        let start = self.plan.slab.offsets[logits.0];
        let len = n * self.model.spec.hparams.n_vocab;
        &mut self.slab.floats_mut()[start..start + len]
    }

    fn check(&self, tokens: &[u32]) -> Result<(), EngineError> {
        let n_vocab = self.model.spec.hparams.n_vocab;
        if let Some(&id) = tokens.iter().find(|&&id| id as usize >= n_vocab) {
            return Err(EngineError::TokenId { id, n_vocab });
        }
        let n_ctx = self.n_ctx();
        if self.tokens.len() + tokens.len() > n_ctx {
            return Err(match tokens.len() {
                1 => EngineError::ContextFull { n_ctx },
                n => EngineError::PromptTooLong {
                    n_prompt: self.tokens.len() + n,
                    n_ctx,
                },
            });
        }
        Ok(())
    }

    fn body(&mut self, tokens: &[u32]) -> Result<(), EngineError> {
        let pos0 = self.tokens.len();
        self.pass(tokens, pos0, 0, tokens.len(), false);
        self.weights_held()?;
        self.tokens.extend_from_slice(tokens);
        Ok(())
    }

    fn head(&mut self, first_output: usize, n: usize) -> Result<(), EngineError> {
        self.pass(&[], 0, first_output, n, true);
        self.weights_held()
    }

    /// Forgets everything when the weights that the last pass read were not those of the file.
    fn weights_held(&mut self) -> Result<(), EngineError> {
        let held = self.model.spec.file.check();
        if held.is_err() {
            self.reset();
        }
        held
    }

    fn pass(&mut self, tokens: &[u32], pos0: usize, first_output: usize, n: usize, head: bool) {
        let graph = &self.model.spec.graph;
        let mut pass = Pass {
            model: &self.model,
            layout: &self.plan.slab,
            slab: self.slab.floats_mut(),
            kv: &mut self.kv,
            states: self.states.floats_mut(),
            state_offsets: &self.plan.state_offsets,
            tokens,
            pos0,
            first_output,
            n,
        };
        self.backend
            .run(if head { &graph.head } else { &graph.body }, &mut pass);
    }
}
