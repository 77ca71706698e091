//! Instruction sets.

/// Instruction set family the kernels are written for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Isa {
    /// The readable reference.
    Scalar,
    /// AVX2 + FMA + F16C.
    Avx2,
    /// AVX-512 F/BW/VL/DQ, with VNNI and BF16 where present.
    Avx512,
    /// ARM64 NEON.
    Neon,
}

/// `OUNCE_ISA` names a set that does not exist or that this CPU lacks.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct IsaError(pub String);

impl Isa {
    /// The best set this CPU has, or the one `OUNCE_ISA` forces.
    pub fn choose() -> Result<Isa, IsaError> {
        Ok(Isa::Scalar)
    }
}
