//! The loop from a prompt to a text: prefill, sample, decode, until something ends it.

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::EngineError;
use crate::memory::{Faults, ThrashWatch, Verdict};
use crate::sample::Sampler;
use crate::session::Session;
use crate::tokenizer::Detokenizer;

/// When to stop.
#[derive(Clone, Debug, Default)]
pub struct GenerateParams {
    /// Tokens at most; `None` goes on to the end of the text or of the context.
    pub n_predict: Option<usize>,
    /// Ends at, and leaves out, the first of these in the text.
    pub stop: Vec<String>,
    /// Goes on past the end-of-generation token.
    pub ignore_eos: bool,
    /// When the context is full, drops the older half of what follows the first `n_keep` tokens and goes on.
    pub context_shift: bool,
    /// Tokens that a context shift never drops.
    pub n_keep: usize,
    /// Starts although memory is critically short.
    pub ignore_pressure: bool,
    /// Is told what the user should know while tokens come, each thing once, as one line.
    pub on_note: Option<fn(&str)>,
}

/// What ended a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StopReason {
    /// An end-of-generation token.
    EndOfGeneration,
    /// A stop string.
    StopString,
    /// `n_predict` tokens.
    Length,
    /// The context is full.
    ContextFull,
    /// The caller or its user.
    Cancelled,
}

impl StopReason {
    /// The word for it, as OpenAI and ollama spell the common ones.
    pub fn name(self) -> &'static str {
        match self {
            StopReason::EndOfGeneration | StopReason::StopString => "stop",
            StopReason::Length => "length",
            StopReason::ContextFull => "context_full",
            StopReason::Cancelled => "cancelled",
        }
    }
}

/// What a generation did and how long it took.
#[derive(Clone, Debug)]
pub struct Generation {
    /// Tokens of the prompt.
    pub n_prompt: usize,
    /// Of these, already in the session from before.
    pub n_cached: usize,
    /// Tokens generated, the end-of-generation token included.
    pub n_generated: usize,
    /// What ended it.
    pub stop: StopReason,
    /// Time of the prefill.
    pub prefill: Duration,
    /// From the call to the first token chosen.
    pub first_token: Duration,
    /// Time of the decode steps.
    pub decode: Duration,
    /// Decode steps timed: one fewer than tokens, for the first comes from the prefill.
    pub n_decoded: usize,
}

impl Generation {
    /// Prompt tokens per second, of those really fed.
    pub fn prefill_rate(&self) -> f64 {
        (self.n_prompt - self.n_cached) as f64 / self.prefill.as_secs_f64().max(1e-9)
    }

    /// Decoded tokens per second.
    pub fn decode_rate(&self) -> f64 {
        self.n_decoded as f64 / self.decode.as_secs_f64().max(1e-9)
    }
}

/// Continues `prompt` and hands text to `on_text` as soon as it is certain. Tokens that the session already holds as
/// a prefix of the prompt are not fed again. After a cancel the session holds what had been fed and can go on.
///
/// # Errors
/// The prompt is empty or does not fit the context, or memory is critically short (nothing is fed then), or the logits
/// are not finite.
pub fn generate(
    session: &mut Session,
    sampler: &mut Sampler,
    prompt: &[u32],
    params: &GenerateParams,
    cancel: &AtomicBool,
    on_text: &mut dyn FnMut(&str) -> ControlFlow<()>,
) -> Result<Generation, EngineError> {
    let start = Instant::now();
    let n_ctx = session.n_ctx();
    if prompt.is_empty() {
        return Err(EngineError::Parameter {
            what: "the prompt",
            wanted: "at least one token",
            found: "empty".into(),
        });
    }
    if prompt.len() >= n_ctx {
        return Err(EngineError::PromptTooLong {
            n_prompt: prompt.len(),
            n_ctx,
        });
    }
    make_room(session, params.ignore_pressure)?;
    let common = session
        .tokens()
        .iter()
        .zip(prompt)
        .take_while(|(a, b)| a == b)
        .count();
    // The last prompt token is always fed, for its logits.
    let n_cached = session.rewind(common.min(prompt.len() - 1));
    let mut result = Generation {
        n_prompt: prompt.len(),
        n_cached,
        n_generated: 0,
        stop: StopReason::Cancelled,
        prefill: Duration::ZERO,
        first_token: Duration::ZERO,
        decode: Duration::ZERO,
        n_decoded: 0,
    };
    prompt.iter().for_each(|&t| sampler.accept(t));
    let fed = session.prefill(&prompt[n_cached..], cancel)?;
    result.prefill = start.elapsed();
    if fed < prompt.len() - n_cached {
        return Ok(result);
    }
    let model = std::sync::Arc::clone(session.model());
    let mut text = Detokenizer::new(&model.tokenizer);
    let mut held = StopFilter::new(&params.stop);
    let mut thrash = ThrashWatch::new(model.spec.file.n_bytes());
    loop {
        if params.n_predict.is_some_and(|n| result.n_generated >= n) {
            result.stop = StopReason::Length;
            break;
        }
        if cancel.load(Ordering::Relaxed) {
            break;
        }
        let token = sampler.sample(session.logits())?;
        result.n_generated += 1;
        if result.n_generated == 1 {
            result.first_token = start.elapsed();
        }
        if model.tokenizer.is_eog(token) && !params.ignore_eos {
            result.stop = StopReason::EndOfGeneration;
            break;
        }
        let (certain, stopped) = held.push(text.push(token));
        if !certain.is_empty() && on_text(certain).is_break() {
            break;
        }
        if stopped {
            result.stop = StopReason::StopString;
            return Ok(result);
        }
        if session.tokens().len() == n_ctx {
            if !params.context_shift {
                result.stop = StopReason::ContextFull;
                break;
            }
            shift(session, params.n_keep, cancel)?;
        }
        let step = Instant::now();
        session.decode(token)?;
        result.decode += step.elapsed();
        result.n_decoded += 1;
        if let Some(tell) = params.on_note
            && let Some(line) = Faults::now().and_then(|now| thrash.token(now))
        {
            tell(&line);
        }
    }
    let rest = text.finish();
    let (certain, stopped) = held.push(rest);
    let _ = on_text(certain);
    if stopped {
        result.stop = StopReason::StopString;
    } else {
        let _ = on_text(held.finish());
    }
    Ok(result)
}

/// When memory is short, gives back what this session does not need; when that is critically so, refuses the request.
fn make_room(session: &mut Session, ignore_pressure: bool) -> Result<(), EngineError> {
    match session.pressure() {
        Verdict::Calm => Ok(()),
        Verdict::Critical(why) if !ignore_pressure => {
            session.trim();
            Err(EngineError::Pressure(why))
        }
        Verdict::Tight(_) | Verdict::Critical(_) => {
            session.trim();
            Ok(())
        }
    }
}

/// Keeps the first `n_keep` tokens and the newer half of the others. They are fed again, which is right for every
/// architecture: rotated keys, windows and recurrent states alike.
fn shift(session: &mut Session, n_keep: usize, cancel: &AtomicBool) -> Result<(), EngineError> {
    let tokens = session.tokens();
    let n_keep = n_keep.min(tokens.len() / 2);
    let n_drop = (tokens.len() - n_keep).div_ceil(2);
    let kept: Vec<u32> = tokens[..n_keep]
        .iter()
        .chain(&tokens[n_keep + n_drop..])
        .copied()
        .collect();
    session.reset();
    session.prefill(&kept, cancel)?;
    Ok(())
}

/// Holds back text that may turn out to be the start of a stop string.
struct StopFilter<'a> {
    stop: &'a [String],
    held: String,
    out: String,
}

impl<'a> StopFilter<'a> {
    fn new(stop: &'a [String]) -> StopFilter<'a> {
        StopFilter {
            stop,
            held: String::new(),
            out: String::new(),
        }
    }

    /// The text that is certain now, and whether a stop string was met.
    fn push(&mut self, text: &str) -> (&str, bool) {
        self.held.push_str(text);
        self.out.clear();
        let stops = || self.stop.iter().filter(|s| !s.is_empty());
        if let Some(at) = stops().filter_map(|s| self.held.find(s.as_str())).min() {
            self.out.push_str(&self.held[..at]);
            self.held.clear();
            return (&self.out, true);
        }
        let keep = stops().map(|s| overlap(&self.held, s)).max().unwrap_or(0);
        self.out.extend(self.held.drain(..self.held.len() - keep));
        (&self.out, false)
    }

    fn finish(&mut self) -> &str {
        &self.held
    }
}

/// Length of the longest end of `text` that is a proper start of `stop`.
fn overlap(text: &str, stop: &str) -> usize {
    (1..stop.len().min(text.len() + 1))
        .rev()
        .find(|&n| stop.is_char_boundary(n) && text.ends_with(&stop[..n]))
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::Pressure;

    fn run(stop: &[&str], pieces: &[&str]) -> (String, bool) {
        let stop: Vec<String> = stop.iter().map(|s| s.to_string()).collect();
        let mut f = StopFilter::new(&stop);
        let mut out = String::new();
        for p in pieces {
            let (text, stopped) = f.push(p);
            out.push_str(text);
            if stopped {
                return (out, true);
            }
        }
        out.push_str(f.finish());
        (out, false)
    }

    /// In a cgroup where memory ran out, or that was held at its limit, since the session was made.
    #[test]
    fn under_pressure_a_session_is_trimmed_and_new_work_refused() {
        let path = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../../tests/data/golden/llama.f32.gguf"
        );
        let model = std::sync::Arc::new(crate::Model::open(path.as_ref()).unwrap());
        let params = crate::SessionParams {
            n_ctx: 64,
            n_ubatch: 64,
            n_outputs: 1,
            n_slots: 1,
            residency: crate::memory::Residency::Mapped,
            type_k: ounce_kernels::ops::KvType::F16,
            type_v: ounce_kernels::ops::KvType::F16,
            n_threads: 1,
            isa: ounce_kernels::Isa::choose().unwrap(),
        };
        let n_vocab = model.spec.hparams.n_vocab;
        let mut session = Session::new(model, params).unwrap();
        let mut sampler = Sampler::new(crate::SampleParams::default(), n_vocab).unwrap();
        let group = std::env::temp_dir().join(format!("ounce-pressed-{}", std::process::id()));
        std::fs::create_dir_all(&group).unwrap();
        let events = |max: u32, oom: u32| {
            let text = format!("high 0\nmax {max}\noom {oom}\noom_kill 0\n");
            std::fs::write(group.join("memory.events"), text).unwrap();
        };
        let mut ask = |session: &mut Session, ignore_pressure| {
            let params = GenerateParams {
                n_predict: Some(1),
                ignore_pressure,
                ..GenerateParams::default()
            };
            let never = AtomicBool::new(false);
            let mut ignore = |_: &str| ControlFlow::Continue(());
            generate(
                session,
                &mut sampler,
                &[5, 6, 7],
                &params,
                &never,
                &mut ignore,
            )
        };
        events(0, 0);
        session.watch(Pressure::of(vec![(group.clone(), true)]));
        ask(&mut session, true).unwrap();
        assert!(session.logits().iter().any(|&x| x != 0.0));
        let held = session.tokens().to_vec();
        events(9, 2);
        let text = ask(&mut session, false).unwrap_err().to_string();
        for part in ["ran out 2 times", "ounce-pressed", "try again"] {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert!(
            session.logits().iter().all(|&x| x == 0.0),
            "the slab was given back"
        );
        assert_eq!(session.tokens(), held, "nothing is forgotten");
        events(9, 3);
        ask(&mut session, true).unwrap();
        events(12, 3);
        make_room(&mut session, false).unwrap();
        assert!(
            session.logits().iter().all(|&x| x == 0.0),
            "held at the limit: trimmed"
        );
        std::fs::remove_dir_all(group).unwrap();
    }

    #[test]
    fn stop_strings_are_found_across_pieces_and_left_out() {
        assert_eq!(run(&["END"], &["a E", "N", "D b"]), ("a ".into(), true));
        assert_eq!(run(&["END"], &["a E", "N", "X"]), ("a ENX".into(), false));
        assert_eq!(
            run(&["\n\n", "é!"], &["x\n", "y é", "!"]),
            ("x\ny ".into(), true)
        );
        assert_eq!(run(&["aab"], &["aa", "ab"]), ("a".into(), true));
        assert_eq!(run(&[], &["a", "b"]), ("ab".into(), false));
        assert_eq!(run(&["ab", "b"], &["xab"]), ("x".into(), true));
    }

    #[test]
    fn held_text_comes_out_at_the_end() {
        assert_eq!(run(&["STOP"], &["go ST"]), ("go ST".into(), false));
    }
}
