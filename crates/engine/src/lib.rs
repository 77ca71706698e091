//! What a model is and what it costs: file → header → plan → mapped weights → graph → kernels → sampler.

#![deny(unsafe_code)]

pub mod bench;
pub mod cache;
mod cpu;
mod error;
pub mod generate;
pub mod measure;
#[allow(unsafe_code)]
pub mod memory;
pub mod model;
pub mod plan;
pub mod receipt;
pub mod safetensors;
pub mod sample;
pub mod session;
pub mod template;
pub mod tokenizer;

pub use error::EngineError;
pub use generate::{GenerateParams, Generation, StopReason, generate};
pub use model::Model;
pub use plan::{Plan, SessionParams};
pub use sample::{SampleParams, Sampler};
pub use session::Session;
