//! Rope frequencies: the base, and the ways of stretching them over a longer context.

use super::file::ModelFile;
use super::hparams::{Hparams, Keys};
use crate::EngineError;

/// What a rope op needs: pair `j` of position `p` turns by `p · theta_scale^j / divisors[j]`.
#[derive(Clone, Debug)]
pub struct RopeFreqs {
    /// `base^(-2/n_rot)`.
    pub theta_scale: f32,
    /// What stretches each of the `n_rot / 2` pairs over a longer context; 1 leaves it.
    pub divisors: Vec<f32>,
    /// Attention scale of YaRN, a factor of cos and sin; 1 otherwise.
    pub mscale: f32,
}

impl RopeFreqs {
    /// Unscaled frequencies `base^(-2j/n_rot)` (Su et al., "RoFormer", arXiv 2104.09864).
    pub fn plain(n_rot: usize, base: f32) -> RopeFreqs {
        RopeFreqs {
            theta_scale: base.powf(-2.0 / n_rot as f32),
            divisors: vec![1.0; n_rot / 2],
            mscale: 1.0,
        }
    }

    /// The model's own: `rope.freq_base`, `rope.scaling.*`, and the divisors in `rope_freqs.weight` (Llama 3.1+).
    ///
    /// # Errors
    /// A key of the wrong type or range, a scaling type that is not known, a mis-shaped `rope_freqs.weight`.
    pub fn load(file: &ModelFile, hp: &Hparams) -> Result<RopeFreqs, EngineError> {
        let keys = Keys::new(file)?;
        let base = keys.f32_or("rope.freq_base", 10_000.0)?;
        if base <= 1.0 {
            return Err(keys.bad("rope.freq_base", format!("{base} is not above 1")));
        }
        let mut freqs = Self::plain(hp.n_rot, base);
        // Old files say `rope.scale_linear`.
        let factor = keys.f32_or(
            "rope.scaling.factor",
            keys.f32_or("rope.scale_linear", 1.0)?,
        )?;
        if factor <= 0.0 {
            return Err(keys.bad("rope.scaling.factor", format!("{factor} is not positive")));
        }
        let n_orig = keys.count_or(
            "rope.scaling.original_context_length",
            i32::MAX as u32,
            hp.n_ctx_train,
        )? as f32;
        match keys.str("rope.scaling.type")?.unwrap_or(if factor == 1.0 {
            "none"
        } else {
            "linear"
        }) {
            "none" => {}
            "linear" => freqs.divisors.fill(factor),
            "llama3" => {
                let low = keys.f32_or("rope.scaling.low_freq_factor", 1.0)?;
                let high = keys.f32_or("rope.scaling.high_freq_factor", 4.0)?;
                freqs.rescale(|f| llama3(f, factor, low, high, n_orig));
            }
            "yarn" => freqs.yarn(
                hp.n_rot,
                base,
                factor,
                n_orig,
                keys.f32_or("rope.scaling.attn_factor", 1.0)?,
            ),
            other => {
                return Err(keys.bad(
                    "rope.scaling.type",
                    format!("\"{other}\" is not one of none, linear, llama3, yarn"),
                ));
            }
        }
        if let Some(divisors) = file.optional_vector("rope_freqs.weight", hp.n_rot / 2)? {
            freqs
                .divisors
                .iter_mut()
                .zip(file.vec(&divisors))
                .for_each(|(d, by)| *d *= by);
        }
        Ok(freqs)
    }

    /// The unscaled frequency of pair `j`, in radians per position.
    fn frequency(&self, j: usize) -> f32 {
        self.theta_scale.powi(j as i32)
    }

    /// Replaces each pair's frequency by what `f` makes of it.
    fn rescale(&mut self, f: impl Fn(f32) -> f32) {
        for j in 0..self.divisors.len() {
            let frequency = self.frequency(j);
            self.divisors[j] = frequency / f(frequency);
        }
    }

    /// YaRN: interpolate the slow pairs, keep the fast ones, ramp between (Peng et al., arXiv 2309.00071).
    fn yarn(&mut self, n_rot: usize, base: f32, factor: f32, n_orig: f32, attn_factor: f32) {
        const BETA_FAST: f32 = 32.0;
        const BETA_SLOW: f32 = 1.0;
        let pair_with_turns = |turns: f32| {
            n_rot as f32 * (n_orig / (turns * 2.0 * std::f32::consts::PI)).ln() / (2.0 * base.ln())
        };
        let low = pair_with_turns(BETA_FAST).floor().max(0.0);
        let high = pair_with_turns(BETA_SLOW).ceil().min(n_rot as f32 - 1.0);
        for (j, d) in self.divisors.iter_mut().enumerate() {
            let keep = 1.0 - ((j as f32 - low) / (high - low).max(0.001)).clamp(0.0, 1.0);
            *d = 1.0 / ((1.0 - keep) / factor + keep);
        }
        self.mscale = attn_factor * (1.0 + 0.1 * factor.ln());
    }
}

/// The Llama 3.1 rule: keep short wavelengths, divide long ones by `factor`, blend between.
fn llama3(freq: f32, factor: f32, low: f32, high: f32, n_orig: f32) -> f32 {
    let wavelength = 2.0 * std::f32::consts::PI / freq;
    if wavelength < n_orig / high {
        freq
    } else if wavelength > n_orig / low {
        freq / factor
    } else {
        let blend = (n_orig / wavelength - low) / (high - low);
        (1.0 - blend) * freq / factor + blend * freq
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_frequencies() {
        let f = RopeFreqs::plain(8, 10_000.0);
        for (j, want) in [1.0, 0.1, 0.01, 0.001].into_iter().enumerate() {
            assert!((f.frequency(j) / want - 1.0).abs() < 1e-6, "{j}");
        }
        assert_eq!(f.divisors, [1.0; 4]);
    }

    /// Values from the Llama 3.1 reference (factor 8, low 1, high 4, 8192): first pair kept, last divided by 8.
    #[test]
    fn llama3_keeps_fast_and_divides_slow() {
        assert_eq!(llama3(1.0, 8.0, 1.0, 4.0, 8192.0), 1.0);
        let slow = 2.455_141e-6;
        assert_eq!(llama3(slow, 8.0, 1.0, 4.0, 8192.0), slow / 8.0);
        let mid = llama3(0.0017, 8.0, 1.0, 4.0, 8192.0);
        assert!(mid < 0.0017 && mid > 0.0017 / 8.0);
    }

    #[test]
    fn yarn_interpolates_the_slow_end_only() {
        let mut scaled = RopeFreqs::plain(128, 1e6);
        scaled.yarn(128, 1e6, 4.0, 32_768.0, 1.0);
        assert_eq!((scaled.divisors[0], scaled.divisors[63]), (1.0, 4.0));
        assert!(scaled.divisors.is_sorted());
        assert!((scaled.mscale - 1.138_629_4).abs() < 1e-6);
    }
}
