//! Where bytes live: file mappings that are read in place, and planned regions that are committed by use.
//! The only place in this crate where `unsafe` is allowed.

mod arena;
mod map;
pub mod probe;

pub use arena::Region;
pub use map::Mapping;
