//! The CPU backend's handle: the instruction set chosen at start, the threads, and their scratch.

use crate::{Isa, Pool};

/// Chosen once at start and passed to every op.
pub struct Cpu {
    /// Private, and checked by [`Cpu::new`]: the ops rely on the CPU having it.
    pub(crate) isa: Isa,
    /// Worker threads.
    pub pool: Pool,
}

impl Cpu {
    /// `n_threads` threads (the caller is one of them) on instruction set `isa`.
    ///
    /// # Panics
    /// When this CPU lacks `isa`; [`Isa::choose`] never returns such a one.
    pub fn new(isa: Isa, n_threads: usize) -> Cpu {
        assert!(isa.is_available(), "this CPU has no {isa}");
        Cpu {
            isa,
            pool: Pool::new(n_threads),
        }
    }

    /// The instruction set.
    pub fn isa(&self) -> Isa {
        self.isa
    }
}
