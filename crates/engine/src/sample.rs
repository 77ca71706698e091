//! From logits to a token: penalties, then the filters in llama.cpp's order, then temperature and the draw.

use std::collections::VecDeque;

use rand_core::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;

use ounce_gguf::Metadata;

use crate::EngineError;

/// How the next token is chosen.
#[derive(Clone, Debug, PartialEq)]
pub struct SampleParams {
    /// 0 takes the most likely token.
    pub temperature: f32,
    /// Keeps the k most likely; 0 keeps all.
    pub top_k: usize,
    /// Keeps the most likely that together reach this probability; 1 keeps all (Holtzman et al., arXiv 1904.09751).
    pub top_p: f32,
    /// Keeps those at least this fraction as likely as the best; 0 keeps all (Nguyen et al., arXiv 2407.01082).
    pub min_p: f32,
    /// Keeps those whose surprise is closest to the expected one; 1 keeps all (Meister et al., arXiv 2202.00666).
    pub typical_p: f32,
    /// Divides (positive) or multiplies (negative) the logits of recent tokens; 1 is off (Keskar et al., arXiv 1909.05858).
    pub repeat_penalty: f32,
    /// Tokens that the penalties look back on.
    pub repeat_last_n: usize,
    /// Subtracted for each occurrence.
    pub frequency_penalty: f32,
    /// Subtracted once for a token that occurred.
    pub presence_penalty: f32,
    /// Added to the logits of these tokens.
    pub logit_bias: Vec<(u32, f32)>,
    /// Same seed, same text.
    pub seed: u64,
}

impl Default for SampleParams {
    /// llama.cpp's defaults; the seed is left at 0 for the caller to choose.
    fn default() -> SampleParams {
        SampleParams {
            temperature: 0.8,
            top_k: 40,
            top_p: 0.95,
            min_p: 0.05,
            typical_p: 1.0,
            repeat_penalty: 1.0,
            repeat_last_n: 64,
            frequency_penalty: 0.0,
            presence_penalty: 0.0,
            logit_bias: Vec::new(),
            seed: 0,
        }
    }
}

impl SampleParams {
    /// The defaults, with what the model's own metadata states (`general.sampling.*`) in their place.
    ///
    /// # Errors
    /// A key of the wrong type, or a value out of range.
    pub fn for_model(metadata: &Metadata) -> Result<SampleParams, EngineError> {
        let mut p = SampleParams::default();
        let f32s = [
            ("temp", &mut p.temperature),
            ("top_p", &mut p.top_p),
            ("min_p", &mut p.min_p),
            ("penalty_repeat", &mut p.repeat_penalty),
        ];
        for (key, field) in f32s {
            if let Some(x) = metadata.f32(&format!("general.sampling.{key}"))? {
                *field = x;
            }
        }
        let counts = [
            ("top_k", &mut p.top_k),
            ("penalty_last_n", &mut p.repeat_last_n),
        ];
        for (key, field) in counts {
            if let Some(n) = metadata.u32(&format!("general.sampling.{key}"))? {
                *field = n as usize;
            }
        }
        p.check()?;
        Ok(p)
    }

    /// Refuses what makes no sense.
    ///
    /// # Errors
    /// The first parameter out of range, by name.
    pub fn check(&self) -> Result<(), EngineError> {
        let bad = |what, wanted, found: f32| {
            Err(EngineError::Parameter {
                what,
                wanted,
                found: found.to_string(),
            })
        };
        let checks: [(&'static str, &'static str, f32, bool); 7] = [
            (
                "temperature",
                "a number of at least 0",
                self.temperature,
                self.temperature >= 0.0,
            ),
            (
                "top-p",
                "between 0 and 1",
                self.top_p,
                (0.0..=1.0).contains(&self.top_p),
            ),
            (
                "min-p",
                "between 0 and 1",
                self.min_p,
                (0.0..=1.0).contains(&self.min_p),
            ),
            (
                "typical-p",
                "between 0 and 1",
                self.typical_p,
                (0.0..=1.0).contains(&self.typical_p),
            ),
            (
                "repeat penalty",
                "a number above 0",
                self.repeat_penalty,
                self.repeat_penalty > 0.0,
            ),
            (
                "frequency penalty",
                "a number",
                self.frequency_penalty,
                true,
            ),
            ("presence penalty", "a number", self.presence_penalty, true),
        ];
        for (what, wanted, x, ok) in checks {
            if !ok || !x.is_finite() {
                return bad(what, wanted, x);
            }
        }
        Ok(())
    }
}

#[derive(Clone, Copy)]
struct Candidate {
    id: u32,
    logit: f32,
    p: f32,
}

/// A sampler with its state: the draw's generator and the tokens the penalties look back on.
pub struct Sampler {
    params: SampleParams,
    rng: Pcg64Mcg,
    recent: VecDeque<u32>,
    candidates: Vec<Candidate>,
}

impl Sampler {
    /// A sampler for a vocabulary of `n_vocab`; nothing is allocated afterwards.
    ///
    /// # Errors
    /// A parameter out of range, a bias for a token that is not in the vocabulary.
    pub fn new(params: SampleParams, n_vocab: usize) -> Result<Sampler, EngineError> {
        params.check()?;
        if let Some(&(id, _)) = params
            .logit_bias
            .iter()
            .find(|(id, _)| *id as usize >= n_vocab)
        {
            return Err(EngineError::TokenId { id, n_vocab });
        }
        Ok(Sampler {
            rng: Pcg64Mcg::seed_from_u64(params.seed),
            recent: VecDeque::with_capacity(params.repeat_last_n + 1),
            candidates: Vec::with_capacity(n_vocab),
            params,
        })
    }

    /// Bytes that [`Sampler::new`] allocates for a vocabulary of `n_vocab` with the default look-back.
    pub fn bytes(n_vocab: usize) -> usize {
        let recent = SampleParams::default().repeat_last_n + 1;
        n_vocab * size_of::<Candidate>() + recent * size_of::<u32>()
    }

    /// Tells the penalties that `token` is part of the text.
    pub fn accept(&mut self, token: u32) {
        if self.params.repeat_last_n == 0 {
            return;
        }
        if self.recent.len() == self.params.repeat_last_n {
            self.recent.pop_front();
        }
        self.recent.push_back(token);
    }

    /// Chooses a token and accepts it; `logits` `[n_vocab]` are changed by bias and penalties.
    ///
    /// # Errors
    /// No logit is finite.
    pub fn sample(&mut self, logits: &mut [f32]) -> Result<u32, EngineError> {
        for &(id, bias) in &self.params.logit_bias {
            logits[id as usize] += bias;
        }
        self.penalise(logits);
        let token = if self.params.temperature == 0.0 {
            argmax(logits)?
        } else {
            self.draw(logits)?
        };
        self.accept(token);
        Ok(token)
    }

    fn penalise(&mut self, logits: &mut [f32]) {
        let p = &self.params;
        if p.repeat_penalty == 1.0 && p.frequency_penalty == 0.0 && p.presence_penalty == 0.0 {
            return;
        }
        for (i, &id) in self.recent.iter().enumerate() {
            let Some(logit) = logits.get_mut(id as usize) else {
                continue;
            };
            if !self.recent.iter().take(i).any(|&earlier| earlier == id) {
                *logit = if *logit > 0.0 {
                    *logit / p.repeat_penalty
                } else {
                    *logit * p.repeat_penalty
                };
                *logit -= p.presence_penalty;
            }
            *logit -= p.frequency_penalty;
        }
    }

    fn draw(&mut self, logits: &[f32]) -> Result<u32, EngineError> {
        let p = &self.params;
        let c = &mut self.candidates;
        c.clear();
        c.extend(
            logits
                .iter()
                .enumerate()
                .filter(|(_, l)| l.is_finite())
                .map(|(id, &logit)| Candidate {
                    id: id as u32,
                    logit,
                    p: 0.0,
                }),
        );
        if c.is_empty() {
            return Err(EngineError::NotFinite);
        }
        // Most likely first; equal ones by id, so that the same seed gives the same text everywhere.
        let by_logit =
            |a: &Candidate, b: &Candidate| b.logit.total_cmp(&a.logit).then(a.id.cmp(&b.id));
        if p.top_k > 0 && p.top_k < c.len() {
            c.select_nth_unstable_by(p.top_k - 1, by_logit);
            c.truncate(p.top_k);
        }
        c.sort_unstable_by(by_logit);
        if p.typical_p < 1.0 {
            typical(c, p.typical_p);
            c.sort_unstable_by(by_logit);
        }
        if p.top_p < 1.0 {
            softmax(c, 1.0);
            let mut sum = 0.0;
            let keep = c.iter().position(|x| {
                sum += x.p;
                sum >= p.top_p
            });
            c.truncate(keep.map_or(c.len(), |i| i + 1));
        }
        if p.min_p > 0.0 {
            // p_i / p_best is e^(l_i - l_best), whatever the other tokens.
            let least = c[0].logit + p.min_p.ln();
            let keep = c.iter().position(|x| x.logit < least).unwrap_or(c.len());
            c.truncate(keep.max(1));
        }
        softmax(c, p.temperature);
        // 24 bits: exactly what an f32 in [0, 1) can hold.
        let mut at = (self.rng.next_u64() >> 40) as f32 / (1u32 << 24) as f32;
        for x in c.iter() {
            at -= x.p;
            if at < 0.0 {
                return Ok(x.id);
            }
        }
        Ok(c[c.len() - 1].id)
    }
}

/// The most likely token; the first of equals.
///
/// # Errors
/// No logit is finite.
pub fn argmax(logits: &[f32]) -> Result<u32, EngineError> {
    let mut best: Option<(usize, f32)> = None;
    for (i, &l) in logits.iter().enumerate() {
        if l.is_finite() && best.is_none_or(|(_, b)| l > b) {
            best = Some((i, l));
        }
    }
    best.map(|(i, _)| i as u32).ok_or(EngineError::NotFinite)
}

/// Probabilities at temperature `t` of candidates sorted by logit.
fn softmax(c: &mut [Candidate], t: f32) {
    let max = c[0].logit;
    let mut sum = 0.0;
    for x in c.iter_mut() {
        x.p = ((x.logit - max) / t).exp();
        sum += x.p;
    }
    c.iter_mut().for_each(|x| x.p /= sum);
}

/// Keeps the candidates whose surprise is closest to the entropy, up to a probability of `typical_p`.
fn typical(c: &mut Vec<Candidate>, typical_p: f32) {
    softmax(c, 1.0);
    let entropy: f32 = c
        .iter()
        .filter(|x| x.p > 0.0)
        .map(|x| -x.p * x.p.ln())
        .sum();
    let distance = |x: &Candidate| (-x.p.ln() - entropy).abs();
    c.sort_unstable_by(|a, b| distance(a).total_cmp(&distance(b)).then(a.id.cmp(&b.id)));
    let mut sum = 0.0;
    let keep = c.iter().position(|x| {
        sum += x.p;
        sum > typical_p
    });
    c.truncate(keep.map_or(c.len(), |i| i + 1));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sampler(params: SampleParams) -> Sampler {
        Sampler::new(params, 4).unwrap()
    }

    /// Draws often; which ids came up.
    fn support(params: SampleParams, logits: [f32; 4]) -> Vec<u32> {
        let mut s = sampler(SampleParams {
            repeat_last_n: 0,
            ..params
        });
        let mut seen: Vec<u32> = (0..2000)
            .map(|_| s.sample(&mut logits.clone()).unwrap())
            .collect();
        seen.sort_unstable();
        seen.dedup();
        seen
    }

    const OFF: SampleParams = SampleParams {
        temperature: 1.0,
        top_k: 0,
        top_p: 1.0,
        min_p: 0.0,
        typical_p: 1.0,
        repeat_penalty: 1.0,
        repeat_last_n: 64,
        frequency_penalty: 0.0,
        presence_penalty: 0.0,
        logit_bias: Vec::new(),
        seed: 1,
    };
    /// Probabilities 0.5, 0.3, 0.15, 0.05.
    fn logits() -> [f32; 4] {
        [0.5f32.ln(), 0.3f32.ln(), 0.15f32.ln(), 0.05f32.ln()]
    }

    #[test]
    fn greedy_takes_the_best_and_the_first_of_equals() {
        let mut s = sampler(SampleParams {
            temperature: 0.0,
            ..OFF
        });
        assert_eq!(s.sample(&mut [0.0, 3.0, 3.0, 1.0]).unwrap(), 1);
        assert_eq!(
            s.sample(&mut [f32::NAN, f32::NEG_INFINITY, -7.0, f32::NAN])
                .unwrap(),
            2
        );
        assert!(matches!(
            s.sample(&mut [f32::NAN; 4]),
            Err(EngineError::NotFinite)
        ));
    }

    #[test]
    fn filters_keep_what_they_say() {
        assert_eq!(support(OFF, logits()), [0, 1, 2, 3]);
        assert_eq!(support(SampleParams { top_k: 2, ..OFF }, logits()), [0, 1]);
        assert_eq!(
            support(SampleParams { top_p: 0.79, ..OFF }, logits()),
            [0, 1]
        );
        assert_eq!(support(SampleParams { top_p: 0.0, ..OFF }, logits()), [0]);
        assert_eq!(
            support(SampleParams { min_p: 0.2, ..OFF }, logits()),
            [0, 1, 2]
        );
        // Entropy 1.142; surprises 0.69, 1.20, 1.90, 3.00: id 1 is the most typical, then 0.
        assert_eq!(
            support(
                SampleParams {
                    typical_p: 0.2,
                    ..OFF
                },
                logits()
            ),
            [1]
        );
        assert_eq!(
            support(
                SampleParams {
                    typical_p: 0.4,
                    ..OFF
                },
                logits()
            ),
            [0, 1]
        );
    }

    #[test]
    fn draws_follow_the_probabilities() {
        let mut s = sampler(SampleParams {
            repeat_last_n: 0,
            ..OFF
        });
        let hits = (0..10_000)
            .filter(|_| s.sample(&mut logits()).unwrap() == 0)
            .count();
        assert!((4700..5300).contains(&hits), "{hits}");
    }

    #[test]
    fn the_seed_decides_the_text() {
        let draw = |seed| {
            let mut s = sampler(SampleParams { seed, ..OFF });
            (0..50)
                .map(|_| s.sample(&mut logits()).unwrap())
                .collect::<Vec<_>>()
        };
        assert_eq!(draw(7), draw(7));
        assert_ne!(draw(7), draw(8));
    }

    #[test]
    fn penalties_and_bias_change_the_logits_as_llama_cpp_does() {
        let mut s = sampler(SampleParams {
            temperature: 0.0,
            repeat_penalty: 2.0,
            frequency_penalty: 0.25,
            presence_penalty: 0.5,
            ..OFF
        });
        s.accept(0);
        s.accept(0);
        s.accept(1);
        let mut l = [4.0, -1.0, 0.5, 0.0];
        s.sample(&mut l).unwrap();
        assert_eq!(l, [4.0 / 2.0 - 0.5 - 0.5, -2.0 - 0.5 - 0.25, 0.5, 0.0]);
        let mut s = sampler(SampleParams {
            temperature: 0.0,
            logit_bias: vec![(3, 10.0)],
            ..OFF
        });
        assert_eq!(s.sample(&mut [1.0, 2.0, 3.0, 0.0]).unwrap(), 3);
    }

    #[test]
    fn nonsense_is_refused_by_name() {
        for (p, word) in [
            (
                SampleParams {
                    temperature: f32::NAN,
                    ..OFF
                },
                "temperature",
            ),
            (
                SampleParams {
                    temperature: -1.0,
                    ..OFF
                },
                "temperature",
            ),
            (SampleParams { top_p: 1.5, ..OFF }, "top-p"),
            (SampleParams { min_p: -0.1, ..OFF }, "min-p"),
            (
                SampleParams {
                    repeat_penalty: 0.0,
                    ..OFF
                },
                "repeat",
            ),
            (
                SampleParams {
                    frequency_penalty: f32::INFINITY,
                    ..OFF
                },
                "frequency",
            ),
        ] {
            assert!(p.check().unwrap_err().to_string().contains(word));
        }
    }
}
