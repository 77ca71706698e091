//! From what the user wrote to an open model, and the flags that size a context.

use std::path::PathBuf;

use ounce_engine::SessionParams;
use ounce_engine::memory::Residency;
use ounce_engine::plan::Open;
use ounce_kernels::ops::KvType;
use ounce_kernels::{Isa, IsaError, default_threads};
use ounce_store::{ModelRef, Pull, Resolved, Store};

use crate::progress::Progress;

/// Tokens of a prefill chunk where none are asked for, as llama.cpp has it.
const DEFAULT_UBATCH: u32 = 512;

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

/// The flags that size a context.
#[derive(clap::Args, Clone, Debug)]
pub struct ContextArgs {
    /// Tokens the context holds [default: the largest of the model's own that fits comfortably].
    #[arg(short = 'c', long, value_name = "N", allow_negative_numbers = true, value_parser = clap::value_parser!(u32).range(1..))]
    ctx_size: Option<u32>,
    /// Threads; the default is the physical cores this process may use.
    #[arg(short = 't', long, value_name = "N", allow_negative_numbers = true, value_parser = clap::value_parser!(u32).range(1..=1024))]
    threads: Option<u32>,
    /// Prompt tokens fed at most at once (an upper bound of -ub).
    #[arg(short = 'b', long, value_name = "N", allow_negative_numbers = true, default_value_t = 2048, value_parser = clap::value_parser!(u32).range(1..))]
    batch_size: u32,
    /// Tokens of a prefill chunk; short form -ub [default: 512, or less where that does not fit].
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = clap::value_parser!(u32).range(1..))]
    ubatch_size: Option<u32>,
    /// Cache type of keys: f32, f16, bf16, q8_0, q4_0, tq4 (as small as q4_0, nearer to f16); short form -ctk.
    #[arg(long, value_name = "T", default_value = "f16")]
    cache_type_k: KvType,
    /// Cache type of values; short form -ctv.
    #[arg(long, value_name = "T", default_value = "f16")]
    cache_type_v: KvType,
}

impl ContextArgs {
    /// What is left to choose.
    pub fn open(&self) -> Open {
        Open {
            n_ctx: self.ctx_size.is_none(),
            n_ubatch: self.ubatch_size.is_none(),
        }
    }

    /// Whether the user asked for a number of threads.
    pub fn names_threads(&self) -> bool {
        self.threads.is_some()
    }

    /// Parameters of a session; a context that was not asked for is 1, to be chosen.
    ///
    /// # Errors
    /// `OUNCE_ISA` names an instruction set this CPU lacks.
    pub fn params(&self) -> Result<SessionParams, IsaError> {
        let n_ubatch = self.ubatch_size.unwrap_or(DEFAULT_UBATCH);
        Ok(SessionParams {
            n_ctx: self.ctx_size.map_or(1, |n| n as usize),
            n_ubatch: n_ubatch.min(self.batch_size) as usize,
            n_outputs: 1,
            type_k: self.cache_type_k,
            type_v: self.cache_type_v,
            n_slots: 1,
            n_threads: self.threads.map_or_else(default_threads, |n| n as usize),
            isa: Isa::choose()?,
            residency: Residency::Mapped,
        })
    }
}
