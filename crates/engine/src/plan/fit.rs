//! Whether a plan fits a device, and what would.

use ounce_kernels::ops::KvType;

use super::{Device, Plan, Pool, SessionParams};
use crate::EngineError;
use crate::model::ModelSpec;

/// Smallest context that is proposed or chosen.
const MIN_CTX: usize = 512;
/// Share of a pool that a context chosen without being asked for may fill, in percent.
const COMFORT: u64 = 75;

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

/// Settings that fit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Proposal {
    /// As flags, ready to paste.
    pub flags: String,
    /// Bytes less than what was asked for.
    pub saves: u64,
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
    pub fn new(spec: &ModelSpec, plan: &Plan, device: &Device, headroom: Option<u64>) -> Fit {
        let room = |pool: &Pool| headroom.unwrap_or_else(|| self::headroom(pool.bytes));
        let heap = plan.heap_bytes().saturating_add(room(&device.heap));
        let fixed = plan.heap_bytes().saturating_add(plan.locked_bytes());
        let fixed = fixed.saturating_add(room(&device.memory));
        let memory = fixed.saturating_add(plan.mapped_bytes());
        let over_heap = heap.saturating_sub(device.heap.bytes);
        let over_memory = fixed.saturating_sub(device.memory.bytes);
        let verdict = if over_heap.max(over_memory) > 0 {
            let pool = if over_heap >= over_memory {
                &device.heap
            } else {
                &device.memory
            };
            Verdict::DoesNotFit {
                over: over_heap.max(over_memory),
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

    /// Whether no more than three quarters of each pool are used. Weights that stream even at the smallest context say
    /// nothing about a larger one: then the heap pool alone counts.
    fn is_comfortable(&self, device: &Device, always_streams: bool) -> bool {
        let part = |pool: &Pool| pool.bytes / 100 * COMFORT;
        self.heap <= part(&device.heap) && (always_streams || self.memory <= part(&device.memory))
    }

    /// Settings near to those of `plan` that are committed within the pool, the mildest first: a smaller cache type, a
    /// smaller context, both, fewer slots, a smaller chunk. Each has been planned.
    ///
    /// # Errors
    /// None of its own: settings that the model refuses are passed over.
    pub fn proposals(
        spec: &ModelSpec,
        plan: &Plan,
        device: &Device,
        headroom: Option<u64>,
    ) -> Vec<Proposal> {
        let p = &plan.params;
        let types = [p.type_k, KvType::Q8_0, KvType::Tq4];
        let smaller =
            |ty: &&KvType| ty.row_bytes(64) < p.type_k.row_bytes(64).max(p.type_v.row_bytes(64));
        let contexts = || {
            std::iter::successors(Some(p.n_ctx), |n| Some(n / 2))
                .take_while(|&n| n >= MIN_CTX.min(p.n_ctx))
        };
        let mut found: Vec<Proposal> = Vec::new();
        let mut first = |mut candidates: &mut dyn Iterator<Item = SessionParams>| {
            let fits = (&mut candidates).find_map(|params| {
                let other = Plan::new(spec, params).ok()?;
                let fit = Fit::new(spec, &other, device, headroom);
                let saves = plan.heap_bytes().saturating_sub(other.heap_bytes());
                let fits = !matches!(fit.verdict, Verdict::DoesNotFit { .. }) && saves > 0;
                fits.then(|| Proposal {
                    flags: flags(&other.params),
                    saves,
                })
            });
            found.extend(fits);
        };
        for ty in types.iter().filter(smaller) {
            first(&mut std::iter::once(with_types(p, *ty)));
        }
        first(
            &mut contexts()
                .skip(1)
                .map(|n_ctx| SessionParams { n_ctx, ..p.clone() }),
        );
        for ty in types.iter().filter(smaller) {
            first(&mut contexts().skip(1).map(|n_ctx| SessionParams {
                n_ctx,
                ..with_types(p, *ty)
            }));
        }
        first(&mut (1..p.n_slots).rev().map(|n_slots| SessionParams {
            n_slots,
            ..p.clone()
        }));
        let chunks = || {
            std::iter::successors(Some(p.n_ubatch / 2), |n| Some(n / 2)).take_while(|&n| n >= 32)
        };
        first(&mut chunks().map(|n_ubatch| SessionParams {
            n_ubatch,
            ..p.clone()
        }));
        first(&mut contexts().skip(1).flat_map(|n_ctx| {
            chunks().map(move |n_ubatch| SessionParams {
                n_ctx,
                n_ubatch,
                ..with_types(p, KvType::Q8_0)
            })
        }));
        found.dedup_by(|a, b| a.flags == b.flags);
        found
    }
}

fn with_types(p: &SessionParams, ty: KvType) -> SessionParams {
    SessionParams {
        type_k: ty,
        type_v: ty,
        ..p.clone()
    }
}

fn flags(p: &SessionParams) -> String {
    let slots = match p.n_slots {
        1 => String::new(),
        n => format!(" -np {n}"),
    };
    format!(
        "-c {} -ctk {} -ctv {} -ub {}{slots}",
        p.n_ctx, p.type_k, p.type_v, p.n_ubatch
    )
}

/// The context when none is asked for: the largest of the model's own, halved and halved again, that leaves a quarter of
/// each pool free; the smallest of them where none does.
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
