//! How fast a model runs, and how fast this machine could run it at most.

use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use ounce_kernels::{Cpu, peak};

use crate::measure::prompt;
use crate::{EngineError, Session};

/// What is timed: a prompt or a generation, after tokens that are in the cache already. Named as llama-bench names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Test {
    /// `n` tokens fed at once.
    Prompt {
        /// Tokens.
        n: usize,
        /// Tokens before them.
        depth: usize,
    },
    /// `n` tokens fed one by one.
    Generation {
        /// Tokens.
        n: usize,
        /// Tokens before them.
        depth: usize,
    },
}

impl Test {
    /// Tokens that are timed.
    pub fn n_tokens(&self) -> usize {
        let (Test::Prompt { n, .. } | Test::Generation { n, .. }) = *self;
        n
    }

    /// Tokens before them.
    pub fn depth(&self) -> usize {
        let (Test::Prompt { depth, .. } | Test::Generation { depth, .. }) = *self;
        depth
    }

    /// Positions that the context must hold.
    pub fn n_ctx(&self) -> usize {
        self.depth().saturating_add(self.n_tokens())
    }
}

impl std::fmt::Display for Test {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let kind = match self {
            Test::Prompt { .. } => "pp",
            Test::Generation { .. } => "tg",
        };
        write!(f, "{kind}{}", self.n_tokens())?;
        match self.depth() {
            0 => Ok(()),
            depth => write!(f, " @ d{depth}"),
        }
    }
}

/// What this machine can do at most, measured with the threads of the session.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ceilings {
    /// Bytes a second, read from the weights where they lie.
    pub read_bytes_per_second: f64,
    /// Multiply-adds a second of bytes into 32-bit sums.
    pub int8_macs_per_second: f64,
}

impl Ceilings {
    /// Measures for about a second; reads all weights, which leaves them in the page cache.
    pub fn measure(session: &Session) -> Ceilings {
        let p = &session.plan().params;
        let cpu = Cpu::new(p.isa, p.n_threads);
        Ceilings {
            read_bytes_per_second: peak::read_rate(&cpu, session.model().spec.file.bytes()),
            int8_macs_per_second: peak::int8_rate(&cpu),
        }
    }

    /// Tokens a second that nothing but reading weights and cache (a generation), or reading the weights once and
    /// multiplying (a prompt), would allow: attention itself, norms and the like count as free.
    pub fn limit(&self, test: Test, session: &Session) -> f64 {
        let graph = &session.model().spec.graph;
        let n = test.n_tokens() as f64;
        let weights = graph.step_bytes() as f64;
        let seconds = match test {
            Test::Generation { depth, .. } => {
                // The middle of the generation stands for all of it.
                let context = context_bytes(session, depth + test.n_tokens() / 2) as f64;
                n * (weights + context) / self.read_bytes_per_second
            }
            Test::Prompt { .. } => {
                let [body, head] = graph.step_macs().map(|macs| macs as f64);
                let products = (n * body + head) / self.int8_macs_per_second;
                products.max(weights / self.read_bytes_per_second)
            }
        };
        n / seconds
    }
}

/// Bytes of keys, values and recurrent states that one token reads with `n` positions before it; states are written too.
fn context_bytes(session: &Session, n: usize) -> usize {
    let (graph, p) = (&session.model().spec.graph, &session.plan().params);
    let layers = graph.kv.iter().map(|kv| {
        let row = p.type_k.row_bytes(kv.n_head_kv * kv.head_dim_k)
            + p.type_v.row_bytes(kv.n_head_kv * kv.head_dim_v);
        row * kv.window.map_or(n, |w| w.min(n))
    });
    layers.sum::<usize>() + 2 * 4 * graph.states.iter().sum::<usize>()
}

/// Brings the session to the depth of `test` and times it once. `None` where `cancel` was raised.
///
/// # Errors
/// See [`Session::prefill`].
pub fn run(
    session: &mut Session,
    test: Test,
    cancel: &AtomicBool,
) -> Result<Option<Duration>, EngineError> {
    let n_vocab = session.model().spec.hparams.n_vocab;
    let tokens = prompt(test.n_ctx(), n_vocab);
    let (before, timed) = tokens.split_at(test.depth());
    // What is there already of these tokens stays, where the model can go back to it.
    let kept = match before.len() {
        0 => {
            session.reset();
            0
        }
        n => session.rewind(n),
    };
    if session.prefill(&before[kept..], cancel)? < before.len() - kept {
        return Ok(None);
    }
    let start = Instant::now();
    match test {
        Test::Prompt { .. } => {
            if session.prefill(timed, cancel)? < timed.len() {
                return Ok(None);
            }
        }
        Test::Generation { .. } => {
            for &token in timed {
                if cancel.load(std::sync::atomic::Ordering::Relaxed) {
                    return Ok(None);
                }
                session.decode(token)?;
            }
        }
    }
    Ok(Some(start.elapsed()))
}
