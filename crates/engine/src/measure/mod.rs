//! What a model really costs: load, prefill and every decode step, and the plan held against it section by section.
//!
//! The figures come from the kernel's accounts of this process, from the allocator and from the regions, never from the
//! plan. Where one cannot be read it is absent.

mod drift;
mod energy;
mod plot;

use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

pub use drift::{Held, SectionActual, TOLERANCE, held};
pub use energy::EnergyMeter;
pub use plot::svg;

use crate::memory::alloc::{self, grown_by};
use crate::memory::probe::{self, Resident, Rss};
use crate::memory::{Faults, smaps};
use crate::sample::SampleParams;
use crate::{EngineError, Model, Sampler, Session};

/// The state of the process before a load.
pub struct Before {
    at: Instant,
    resident: Option<Resident>,
    faults: Option<Faults>,
    heap: Option<alloc::Heap>,
}

impl Before {
    /// Now.
    pub fn load() -> Before {
        Before {
            resident: probe::resident(),
            faults: Faults::now(),
            heap: alloc::heap(),
            at: Instant::now(),
        }
    }
}

/// What a load did.
#[derive(Clone, Debug)]
pub struct Load {
    /// From before the header was read to a model that can run.
    pub wall: Duration,
    /// Tensors of the file.
    pub n_tensors: usize,
    /// Bytes on the heap that are neither the header, the forward pass nor the tokenizer, and copies of weights.
    pub materialised: Option<u64>,
    /// Resident memory before.
    pub before: Option<Resident>,
    /// And after.
    pub after: Option<Resident>,
    /// Faults and reads of the load.
    pub faults: Option<Faults>,
}

impl Load {
    /// What happened since `before`, of which `model` is the result.
    pub fn since(before: &Before, model: &Model) -> Load {
        let wall = before.at.elapsed();
        let spec = &model.spec;
        let copied = match spec.file.is_copied() {
            true => spec.file.n_bytes(),
            false => 0,
        };
        let known = spec.heap_bytes().zip(model.tokenizer_heap());
        let grown = before.heap.zip(alloc::heap());
        let materialised = grown.zip(known).map(|((then, now), (header, tokenizer))| {
            let grown = now.live.saturating_sub(then.live);
            copied + grown.saturating_sub(header + tokenizer) as u64
        });
        Load {
            wall,
            n_tensors: spec.file.header().tensors.len(),
            materialised,
            before: before.resident,
            after: probe::resident(),
            faults: Faults::now()
                .zip(before.faults)
                .map(|(now, then)| now.since(&then)),
        }
    }
}

/// One decode step.
#[derive(Clone, Copy, Debug)]
pub struct Step {
    /// Time of the pass and of choosing the token it was given.
    pub wall: Duration,
    /// Resident memory after it.
    pub rss: Option<Rss>,
    /// Faults and reads of the step.
    pub faults: Option<Faults>,
    /// Allocations of the step.
    pub allocations: Option<usize>,
    /// Energy of the device.
    pub joules: Option<f64>,
}

/// What is measured.
#[derive(Clone, Copy, Debug)]
pub struct MeasureParams {
    /// Decode steps of the steady state.
    pub n_steps: usize,
    /// Decode steps before it.
    pub n_warmup: usize,
    /// Whether the plan says that the weights are streamed: then they cannot all be resident.
    pub streams: bool,
}

impl MeasureParams {
    /// Tokens of the prompt that leave exactly these steps of a context.
    ///
    /// # Errors
    /// The context is too small for the steps and a prompt of one token.
    pub fn n_prompt(&self, n_ctx: usize) -> Result<usize, EngineError> {
        let steps = self.n_steps.saturating_add(self.n_warmup);
        match n_ctx.checked_sub(steps) {
            Some(n) if n > 0 => Ok(n),
            _ => Err(EngineError::Parameter {
                what: "the context",
                wanted: "larger than --steps and --warmup together",
                found: n_ctx.to_string(),
            }),
        }
    }
}

/// A prefill and decode steps, with the context full at the end.
#[derive(Clone, Debug)]
pub struct Measurement {
    /// Tokens of the prompt.
    pub n_prompt: usize,
    /// Time of the prefill.
    pub prefill: Duration,
    /// Faults and reads of the prefill.
    pub prefill_faults: Option<Faults>,
    /// Every decode step, those of the warm-up first.
    pub steps: Vec<Step>,
    /// Steps of the warm-up.
    pub n_warmup: usize,
    /// The sensor that joules come from; `None` where none can be read.
    pub energy: Option<&'static str>,
    /// Plan and actual at the end.
    pub held: Held,
}

impl Measurement {
    /// The steps after the warm-up.
    pub fn steady(&self) -> &[Step] {
        &self.steps[self.n_warmup..]
    }

    /// Allocations of the steady state, where they are counted.
    pub fn allocations(&self) -> Option<usize> {
        self.steady().iter().map(|s| s.allocations).sum()
    }

    /// Mean energy of a token in the steady state, where a sensor can be read.
    pub fn joules_per_token(&self) -> Option<f64> {
        let all: Option<f64> = self.steady().iter().map(|s| s.joules).sum();
        Some(all? / self.steady().len() as f64)
    }

    /// Major faults of the steady state, where they are counted.
    pub fn major_faults(&self) -> Option<u64> {
        self.steady().iter().map(|s| Some(s.faults?.major)).sum()
    }
}

/// Fills the context of an empty `session`: a prompt of ids spread over the vocabulary, then decode steps that sample with
/// the default settings, the seed fixed; the end-of-generation token ends none.
///
/// # Errors
/// See [`MeasureParams::n_prompt`] and [`Session::prefill`].
pub fn measure(
    session: &mut Session,
    params: MeasureParams,
    cancel: &AtomicBool,
) -> Result<Option<Measurement>, EngineError> {
    let n_vocab = session.model().spec.hparams.n_vocab;
    let n_prompt = params.n_prompt(session.n_ctx())?;
    let (sampler, sampler_heap) = grown_by(|| Sampler::new(SampleParams::default(), n_vocab));
    let mut sampler = sampler?;
    let (_, text_heap) = grown_by(|| session.model().tokenizer.encode(TEXT, false).len());
    let mut meter = EnergyMeter::find();
    let mut steps = Vec::with_capacity(params.n_warmup + params.n_steps);
    let prompt = prompt(n_prompt, n_vocab);
    let before = Faults::now();
    let start = Instant::now();
    if session.prefill(&prompt, cancel)? < n_prompt {
        return Ok(None);
    }
    let prefill = start.elapsed();
    let prefill_faults = since(before);
    for _ in 0..params.n_warmup + params.n_steps {
        if cancel.load(std::sync::atomic::Ordering::Relaxed) {
            return Ok(None);
        }
        let (faults, heap) = (Faults::now(), alloc::heap());
        if let Some(m) = &mut meter {
            m.start();
        }
        let start = Instant::now();
        let token = sampler.sample(session.logits())?;
        session.decode(token)?;
        let wall = start.elapsed();
        let step = Step {
            wall,
            joules: meter.as_mut().and_then(|m| m.stop(wall)),
            allocations: heap
                .zip(alloc::heap())
                .map(|(then, now)| now.allocations - then.allocations),
            faults: since(faults),
            rss: Rss::now(),
        };
        steps.push(step);
    }
    Ok(Some(Measurement {
        n_prompt,
        prefill,
        prefill_faults,
        steps,
        n_warmup: params.n_warmup,
        held: held(
            session,
            sampler_heap,
            text_heap,
            smaps::areas().as_deref(),
            params.streams,
        ),
        energy: meter.map(|m| m.name()),
    }))
}

fn since(before: Option<Faults>) -> Option<Faults> {
    before
        .zip(Faults::now())
        .map(|(then, now)| now.since(&then))
}

/// A text that every branch of a pre-tokenizer sees: what matching caches belongs to the tokenizer.
const TEXT: &str = "In 1969, they'd seen 384,400 km of sky; isn't that    far?\n\n\tfn main() { let x = [1, 2]; }\r\n\
    Größe, naïve, Żółć, Привет мир, Ελλάδα, 你好，世界。こんにちは、안녕하세요 🙂👍🏽 مرحبا שלום हिन्दी ไทย\n";

/// Ids spread over the whole vocabulary, the same every time: steps of the golden ratio.
pub(crate) fn prompt(n: usize, n_vocab: usize) -> Vec<u32> {
    let step = (n_vocab as f64 * 0.618_033_988_749_895) as usize;
    (1..=n).map(|i| (i * step % n_vocab) as u32).collect()
}
