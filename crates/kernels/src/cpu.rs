//! The CPU backend's handle: the instruction set chosen at start, the threads, and their scratch.

use crate::{Isa, Pool};

/// Chosen once at start and passed to every op.
pub struct Cpu {
    /// Instruction set the kernels use.
    pub isa: Isa,
    /// Worker threads.
    pub pool: Pool,
}

impl Cpu {
    /// `n_threads` threads (the caller is one of them) on instruction set `isa`.
    pub fn new(isa: Isa, n_threads: usize) -> Cpu {
        Cpu {
            isa,
            pool: Pool::new(n_threads),
        }
    }
}
