//! Instruction sets: what this CPU has, and which one is used.

use std::fmt;
use std::str::FromStr;

/// Instruction set family the kernels are written for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Isa {
    /// The readable reference; runs everywhere.
    Scalar,
    /// AVX2, FMA and F16C.
    Avx2,
    /// AVX-512 F, BW, VL, DQ and VNNI on top of [`Isa::Avx2`].
    Avx512,
    /// ARM64 NEON. Runs the scalar kernels until it has its own.
    Neon,
}

/// `OUNCE_ISA` names a set that does not exist or that this CPU lacks.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IsaError {
    /// No such set.
    #[error("OUNCE_ISA is \"{0}\", which is not one of scalar, avx2, avx512, neon")]
    Unknown(String),
    /// The CPU lacks it.
    #[error("OUNCE_ISA is {0}, which this CPU does not have; it has {1}")]
    Missing(Isa, String),
}

impl Isa {
    /// All sets, the best last.
    const ALL: [Isa; 4] = [Isa::Scalar, Isa::Neon, Isa::Avx2, Isa::Avx512];

    /// The best set this CPU has, or the one that `OUNCE_ISA` forces.
    ///
    /// # Errors
    /// [`IsaError`] when `OUNCE_ISA` asks for what is not there.
    pub fn choose() -> Result<Isa, IsaError> {
        let Some(name) = std::env::var_os("OUNCE_ISA").filter(|name| !name.is_empty()) else {
            return Ok(Isa::detect());
        };
        let isa: Isa = name.to_string_lossy().parse()?;
        if isa.is_available() {
            Ok(isa)
        } else {
            Err(IsaError::Missing(isa, available()))
        }
    }

    /// The best set this CPU has.
    pub fn detect() -> Isa {
        Isa::ALL
            .into_iter()
            .rev()
            .find(|isa| isa.is_available())
            .unwrap_or(Isa::Scalar)
    }

    /// Whether this CPU has it.
    pub fn is_available(self) -> bool {
        match self {
            Isa::Scalar => true,
            Isa::Neon => cfg!(target_arch = "aarch64"),
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2 => {
                is_x86_feature_detected!("avx2")
                    && is_x86_feature_detected!("fma")
                    && is_x86_feature_detected!("f16c")
            }
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512 => {
                Isa::Avx2.is_available()
                    && is_x86_feature_detected!("avx512f")
                    && is_x86_feature_detected!("avx512bw")
                    && is_x86_feature_detected!("avx512vl")
                    && is_x86_feature_detected!("avx512dq")
                    && is_x86_feature_detected!("avx512vnni")
            }
            #[cfg(not(target_arch = "x86_64"))]
            Isa::Avx2 | Isa::Avx512 => false,
        }
    }

    /// The name `OUNCE_ISA` knows it by.
    pub fn name(self) -> &'static str {
        match self {
            Isa::Scalar => "scalar",
            Isa::Avx2 => "avx2",
            Isa::Avx512 => "avx512",
            Isa::Neon => "neon",
        }
    }
}

fn available() -> String {
    let names: Vec<&str> = Isa::ALL
        .into_iter()
        .filter(|isa| isa.is_available())
        .map(Isa::name)
        .collect();
    names.join(", ")
}

impl fmt::Display for Isa {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Isa {
    type Err = IsaError;

    fn from_str(name: &str) -> Result<Isa, IsaError> {
        Isa::ALL
            .into_iter()
            .find(|isa| isa.name() == name)
            .ok_or_else(|| IsaError::Unknown(name.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_parse_back_and_scalar_is_everywhere() {
        for isa in Isa::ALL {
            assert_eq!(isa.name().parse(), Ok(isa));
        }
        assert!(
            "sse9"
                .parse::<Isa>()
                .unwrap_err()
                .to_string()
                .contains("sse9")
        );
        assert!(Isa::Scalar.is_available() && Isa::detect().is_available());
    }
}
