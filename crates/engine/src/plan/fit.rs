//! Whether a plan fits a device, and what would.

use super::{Device, Plan, Pool, SessionParams};
use crate::EngineError;
use crate::model::ModelSpec;

/// Smallest context that is proposed or chosen.
pub(super) const MIN_CTX: usize = 512;
/// Largest context that is chosen where none is comfortable.
const MODEST_CTX: usize = 4096;
/// Share of a pool that a context chosen without being asked for may fill, in percent.
const COMFORT: u64 = 75;
/// Share of a pool beyond which a plan that fits is told how it would take less, in percent.
const TIGHT: u64 = 80;

/// Room left in a pool: 6 % of it, at least 64 MB but never more than a quarter, at most 1 GB.
pub fn headroom(pool: u64) -> u64 {
    let floor = (64 << 20).min(pool / 4);
    (pool / 100 * 6).clamp(floor, 1 << 30)
}

/// The outcome, in the order of the exit codes 0, 2, 3.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Everything is resident at once.
    Fits,
    /// What is committed fits; pages of the weights are read from storage again and again.
    Streams {
        /// Bytes of weights for which there is no room.
        missing: u64,
        /// Bytes a decode step reads, all of them from storage in the worst case: a cache that is too small for a loop
        /// over all weights holds, at each step, the wrong ones.
        per_token: u64,
    },
    /// What is committed or locked does not fit its pool.
    DoesNotFit {
        /// Bytes too many.
        over: u64,
        /// The limit of the pool, as a user knows it.
        limit: String,
    },
}

impl Verdict {
    /// The word for it in JSON documents.
    pub fn name(&self) -> &'static str {
        match self {
            Verdict::Fits => "fits",
            Verdict::Streams { .. } => "streams",
            Verdict::DoesNotFit { .. } => "does_not_fit",
        }
    }
}

/// A plan held against a device.
#[derive(Clone, Debug)]
pub struct Fit {
    /// Room left free in the heap pool.
    pub headroom: u64,
    /// Committed bytes, headroom included.
    pub heap: u64,
    /// The same and the mapped weights.
    pub memory: u64,
    /// The outcome.
    pub verdict: Verdict,
}

impl Fit {
    /// Holds `plan` against `device`; `headroom` overrides the proportional one.
    pub fn new<'a>(
        spec: &ModelSpec,
        plan: &Plan,
        device: &'a Device,
        headroom: Option<u64>,
    ) -> Fit {
        let room = |pool: &Pool| headroom.unwrap_or_else(|| self::headroom(pool.bytes));
        let heap = plan.heap_bytes().saturating_add(room(&device.heap));
        let fixed = plan.heap_bytes().saturating_add(plan.locked_bytes());
        let fixed = fixed.saturating_add(room(&device.memory));
        let memory = fixed.saturating_add(plan.mapped_bytes());
        let over = |pool: &'a Pool, needed: u64| (pool, needed.saturating_sub(pool.bytes));
        let mut worst = over(&device.heap, heap);
        for next in [
            over(&device.memory, fixed),
            over(&device.lock, plan.locked_bytes()),
        ] {
            if next.1 > worst.1 {
                worst = next;
            }
        }
        let verdict = if let (pool, over @ 1..) = worst {
            Verdict::DoesNotFit {
                over,
                limit: pool.limit.clone(),
            }
        } else if memory > device.memory.bytes {
            Verdict::Streams {
                missing: memory - device.memory.bytes,
                per_token: spec.graph.step_bytes(),
            }
        } else {
            Verdict::Fits
        };
        Fit {
            headroom: room(&device.heap),
            heap,
            memory,
            verdict,
        }
    }

    /// The fuller of the pools that are filled beyond 80 %, and its share in percent.
    pub fn tight<'a>(&self, device: &'a Device) -> Option<(&'a Pool, u64)> {
        let share = |used: u64, pool: &Pool| {
            (u128::from(used) * 100 / u128::from(pool.bytes.max(1))) as u64
        };
        [(&device.memory, self.memory), (&device.heap, self.heap)]
            .map(|(pool, used)| (pool, share(used, pool)))
            .into_iter()
            .filter(|&(_, percent)| percent > TIGHT)
            .max_by_key(|&(_, percent)| percent)
    }

    /// Whether no more than three quarters of each pool are used. Weights that stream even at the smallest context say
    /// nothing about a larger one: then the heap pool alone counts.
    pub fn is_comfortable(&self, device: &Device, always_streams: bool) -> bool {
        let part = |pool: &Pool| pool.bytes / 100 * COMFORT;
        self.heap <= part(&device.heap) && (always_streams || self.memory <= part(&device.memory))
    }
}

/// The context when none is asked for: the largest of the model's own, halved and halved again, that leaves a quarter of
/// each pool free. Where none does, the largest up to 4096 that fits and streams nothing; where none does that either, the
/// smallest.
///
/// # Errors
/// The other parameters do not suit the model.
pub fn default_context(
    spec: &ModelSpec,
    params: &SessionParams,
    device: &Device,
    headroom: Option<u64>,
) -> Result<usize, EngineError> {
    let fit = |n_ctx: usize| {
        let params = SessionParams {
            n_ctx,
            ..params.clone()
        };
        let plan = Plan::new(spec, params)?;
        Ok::<Fit, EngineError>(Fit::new(spec, &plan, device, headroom))
    };
    let largest = spec.hparams.n_ctx_train;
    let halved = std::iter::successors(Some(largest), |n| Some(n / 2));
    let contexts = || halved.clone().take_while(|&n| n >= MIN_CTX.min(largest));
    let smallest = contexts().last().unwrap_or(largest);
    let always_streams = matches!(fit(smallest)?.verdict, Verdict::Streams { .. });
    for n_ctx in contexts() {
        if fit(n_ctx)?.is_comfortable(device, always_streams) {
            return Ok(n_ctx);
        }
    }
    for n_ctx in contexts().filter(|&n| n <= MODEST_CTX) {
        if fit(n_ctx)?.verdict == Verdict::Fits {
            return Ok(n_ctx);
        }
    }
    Ok(smallest)
}

#[cfg(test)]
mod tests {
    use super::headroom;

    #[test]
    fn headroom_is_proportional_and_bounded() {
        let mb = |n: u64| n << 20;
        assert_eq!(headroom(mb(96)), mb(24));
        assert_eq!(headroom(mb(256)), mb(64));
        assert_eq!(headroom(mb(512)), mb(64));
        assert_eq!(headroom(mb(8000)), mb(8000) / 100 * 6);
        assert_eq!(headroom(mb(64_000)), mb(1024));
    }
}
