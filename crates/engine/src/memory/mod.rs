//! Where bytes live: file mappings that are read in place, planned regions that are committed by use, the heap; and what
//! the system allows and what it counts. The only place in this crate where `unsafe` is allowed.

pub mod alloc;
mod arena;
pub mod caps;
mod direct;
mod faults;
mod guard;
mod map;
pub mod pressure;
pub mod probe;
mod residency;
mod sigbus;
mod size;
pub mod smaps;
mod storage;

pub use arena::{Region, page_size};
pub use faults::{Faults, ThrashWatch};
pub use guard::{limit_data, prefer_us_for_oom};
pub use map::{EXIT_FILE_CHANGED, Mapping};
pub use pressure::{Pressure, Verdict};
pub use residency::Residency;
pub use size::Size;
pub use storage::read_rate;
