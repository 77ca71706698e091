//! From what the user wrote to an open model, and the flags that size a context.

use std::path::PathBuf;
use std::sync::Arc;

use ounce_engine::{Model, SessionParams};
use ounce_kernels::ops::KvType;
use ounce_kernels::{Isa, IsaError, default_threads};
use ounce_store::{ModelRef, Pull, Resolved, Store};

use crate::progress::Progress;

type Failure = Box<dyn std::error::Error>;

/// Finds the model's files; what is not on this machine is pulled, with a progress bar.
pub fn resolve(reference: &str, pull: Pull) -> Result<Resolved, Failure> {
    let reference: ModelRef = reference.parse()?;
    let mut progress = Progress::new();
    Ok(Store::open()?.resolve(&reference, pull, &mut |event| progress.show(event))?)
}

/// The model's (first) file.
pub fn resolve_file(reference: &str) -> Result<PathBuf, Failure> {
    let resolved = resolve(reference, Pull::IfMissing)?;
    resolved
        .paths
        .into_iter()
        .next()
        .ok_or_else(|| format!("{reference}: no file").into())
}

/// The model, mapped and checked.
pub fn open_model(reference: &str) -> Result<Arc<Model>, Failure> {
    Ok(Arc::new(Model::open(&resolve_file(reference)?)?))
}

/// The flags that size a context.
#[derive(clap::Args, Clone, Debug)]
pub struct ContextArgs {
    /// Tokens the context holds.
    #[arg(short = 'c', long, value_name = "N", allow_negative_numbers = true, value_parser = clap::value_parser!(u32).range(1..))]
    ctx_size: Option<u32>,
    /// Threads; the default is the physical cores this process may use.
    #[arg(short = 't', long, value_name = "N", allow_negative_numbers = true, value_parser = clap::value_parser!(u32).range(1..=1024))]
    threads: Option<u32>,
    /// Prompt tokens fed at most at once (an upper bound of -ub).
    #[arg(short = 'b', long, value_name = "N", allow_negative_numbers = true, default_value_t = 2048, value_parser = clap::value_parser!(u32).range(1..))]
    batch_size: u32,
    /// Tokens of a prefill chunk; short form -ub.
    #[arg(long, value_name = "N", allow_negative_numbers = true, default_value_t = 512, value_parser = clap::value_parser!(u32).range(1..))]
    ubatch_size: u32,
    /// Cache type of keys: f32, f16, bf16, q8_0, q4_0, tq4 (as small as q4_0, nearer to f16); short form -ctk.
    #[arg(long, value_name = "T", default_value = "f16")]
    cache_type_k: KvType,
    /// Cache type of values; short form -ctv.
    #[arg(long, value_name = "T", default_value = "f16")]
    cache_type_v: KvType,
}

impl ContextArgs {
    /// Whether the user asked for a context size.
    pub fn names_context(&self) -> bool {
        self.ctx_size.is_some()
    }

    /// Whether the user asked for a number of threads.
    pub fn names_threads(&self) -> bool {
        self.threads.is_some()
    }

    /// Parameters of a session, with a context of `default_ctx` where none was asked for.
    ///
    /// # Errors
    /// `OUNCE_ISA` names an instruction set this CPU lacks.
    pub fn params(&self, default_ctx: usize) -> Result<SessionParams, IsaError> {
        Ok(SessionParams {
            n_ctx: self.ctx_size.map_or(default_ctx, |n| n as usize),
            n_ubatch: self.ubatch_size.min(self.batch_size) as usize,
            n_outputs: 1,
            type_k: self.cache_type_k,
            type_v: self.cache_type_v,
            n_slots: 1,
            n_threads: self.threads.map_or_else(default_threads, |n| n as usize),
            isa: Isa::choose()?,
        })
    }
}

/// The context when none is asked for: 4096 as ollama has it, or the model's own where that is smaller.
pub fn default_context(model: &Model) -> usize {
    model.spec.hparams.n_ctx_train.min(4096)
}
