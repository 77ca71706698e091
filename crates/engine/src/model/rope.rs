//! Rope frequencies: the base, and the ways of stretching them over a longer context.

use super::file::ModelFile;
use super::hparams::{Hparams, Keys};
use crate::EngineError;

/// What a rope op needs: `inv_freq[j]` is the angle a position adds to pair `j`; `mscale` multiplies cos and sin.
#[derive(Clone, Debug)]
pub struct RopeFreqs {
    /// Radians per position, `n_rot / 2` of them.
    pub inv_freq: Vec<f32>,
    /// Attention scale of YaRN; 1 otherwise.
    pub mscale: f32,
}

impl RopeFreqs {
    /// Unscaled frequencies `base^(-2j/n_rot)` (Su et al., "RoFormer", arXiv 2104.09864).
    pub fn plain(n_rot: usize, base: f32) -> RopeFreqs {
        let inv_freq = (0..n_rot / 2).map(|j| f64::from(base).powf(-2.0 * j as f64 / n_rot as f64) as f32).collect();
        RopeFreqs { inv_freq, mscale: 1.0 }
    }

    /// The model's own: `rope.freq_base`, `rope.scaling.*`, and the divisors in `rope_freqs.weight` (Llama 3.1+).
    ///
    /// # Errors
    /// A key of the wrong type or range, a scaling type that is not known, a mis-shaped `rope_freqs.weight`.
    pub fn load(file: &ModelFile, hp: &Hparams) -> Result<RopeFreqs, EngineError> {
        let keys = Keys::new(file)?;
        let base = keys.f32_or("rope.freq_base", 10_000.0)?;
        if base <= 0.0 {
            return Err(keys.bad("rope.freq_base", format!("{base} is not positive")));
        }
        let mut freqs = Self::plain(hp.n_rot, base);
        // Old files say `rope.scale_linear`.
        let factor = keys.f32_or("rope.scaling.factor", keys.f32_or("rope.scale_linear", 1.0)?)?;
        if factor <= 0.0 {
            return Err(keys.bad("rope.scaling.factor", format!("{factor} is not positive")));
        }
        let n_orig = keys.count_or("rope.scaling.original_context_length", i32::MAX as u32, hp.n_ctx_train)? as f32;
        match keys.str("rope.scaling.type")?.unwrap_or(if factor == 1.0 { "none" } else { "linear" }) {
            "none" => {}
            "linear" => freqs.inv_freq.iter_mut().for_each(|f| *f /= factor),
            "llama3" => {
                let low = keys.f32_or("rope.scaling.low_freq_factor", 1.0)?;
                let high = keys.f32_or("rope.scaling.high_freq_factor", 4.0)?;
                freqs.inv_freq.iter_mut().for_each(|f| *f = llama3(*f, factor, low, high, n_orig));
            }
            "yarn" => freqs.yarn(hp.n_rot, base, factor, n_orig, keys.f32_or("rope.scaling.attn_factor", 1.0)?),
            other => return Err(keys.bad("rope.scaling.type", format!("\"{other}\" is not one of none, linear, llama3, yarn"))),
        }
        if let Some(divisors) = file.optional_vector("rope_freqs.weight", hp.n_rot / 2)? {
            freqs.inv_freq.iter_mut().zip(file.vec(&divisors)).for_each(|(f, d)| *f /= d);
        }
        Ok(freqs)
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
        for (j, f) in self.inv_freq.iter_mut().enumerate() {
            let keep = 1.0 - ((j as f32 - low) / (high - low).max(0.001)).clamp(0.0, 1.0);
            *f = *f / factor * (1.0 - keep) + *f * keep;
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
        let f = RopeFreqs::plain(8, 10_000.0).inv_freq;
        for (got, want) in f.iter().zip([1.0, 0.1, 0.01, 0.001]) {
            assert!((got / want - 1.0).abs() < 1e-6, "{got} {want}");
        }
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
        let plain = RopeFreqs::plain(128, 1e6);
        let mut scaled = plain.clone();
        scaled.yarn(128, 1e6, 4.0, 32_768.0, 1.0);
        assert_eq!(scaled.inv_freq[0], plain.inv_freq[0]);
        assert!((scaled.inv_freq[63] - plain.inv_freq[63] / 4.0).abs() < 1e-12);
        assert!((scaled.mscale - 1.138_629_4).abs() < 1e-6);
    }
}
