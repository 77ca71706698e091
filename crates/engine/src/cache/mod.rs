//! What a sequence leaves behind: keys and values, and recurrent state.

mod kv;

pub use kv::{KvCache, KvLayout};
