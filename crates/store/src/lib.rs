//! Model names to files: pull, resume, verify, list.
//!
//! A [`ModelRef`] is what a user writes; [`Store::resolve`] turns it into GGUF files on
//! this machine, fetching them if that is allowed. Pulled models live in
//! `$OUNCE_HOME/models/<folder>/` with a sidecar `model.json`. A file has its final name
//! only once its size, hash and first bytes have been checked.
//!
//! The crate prints nothing: progress and notes go to a callback as [`Event`]s.
#![forbid(unsafe_code)]

mod download;
mod error;
mod event;
mod fetch;
mod hash;
mod http;
mod huggingface;
mod local;
mod named;
mod ollama;
mod parse;
mod partial;
mod pip;
mod proxy;
mod quant;
mod record;
mod reference;
mod scratch;
mod settings;
mod shelf;
mod source;
mod space;
mod store;
mod url;
mod wheel;
mod wheels;

pub use error::StoreError;
pub use event::{Event, Events};
pub use named::{NAMED_MODELS, NamedModel, NamedSource, Pin, find as find_named};
pub use ollama::OllamaExtras;
pub use proxy::Proxies;
pub use record::FileRecord;
pub use reference::ModelRef;
pub use settings::Settings;
pub use store::{Listed, Owner, Pull, Resolved, Store};
