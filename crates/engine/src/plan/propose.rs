//! Settings near to those asked for that a device serves better.

use std::iter::successors;

use ounce_kernels::ops::KvType;

use super::fit::MIN_CTX;
use super::{Device, Fit, Plan, SessionParams, Verdict};
use crate::memory::Residency;
use crate::model::ModelSpec;

/// Smallest prefill chunk that is proposed.
const MIN_UBATCH: usize = 32;
/// Proposals at most: nobody reads more.
const MOST: usize = 6;
/// Proposals at least, if so many settings serve.
const LEAST: usize = 2;
/// Cache types that are proposed, from large to small.
const TYPES: [KvType; 3] = [KvType::F16, KvType::Q8_0, KvType::Tq4];

/// Settings that have been planned, and take less than those asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Proposal {
    /// As flags, ready to paste.
    pub flags: String,
    /// Bytes that the process holds less, for itself or locked.
    pub saves: u64,
    /// What the device makes of them: fits or streams.
    pub verdict: Verdict,
}

impl Fit {
    /// What would serve better than `plan`; settings with which no weights are streamed come first.
    ///
    /// - It does not fit: settings that do. Of each kind of change (see [`changes`]) the mildest that fits, and the mildest
    ///   that does so without streaming.
    /// - It streams: settings that do not.
    /// - It fits, but fills more than 80 % of a pool: a cache in tq4.
    ///
    /// Settings that the model refuses, or that save nothing, are passed over.
    pub fn proposals(
        spec: &ModelSpec,
        plan: &Plan,
        device: &Device,
        headroom: Option<u64>,
    ) -> Vec<Proposal> {
        let p = &plan.params;
        let asked = Fit::new(spec, plan, device, headroom);
        let may_stream = matches!(asked.verdict, Verdict::DoesNotFit { .. });
        let held = |plan: &Plan| plan.heap_bytes().saturating_add(plan.locked_bytes());
        let propose = |params: &SessionParams| {
            let other = Plan::new(spec, params.clone()).ok()?;
            let verdict = Fit::new(spec, &other, device, headroom).verdict;
            let saves = held(plan).saturating_sub(held(&other));
            let serves = match verdict {
                Verdict::Fits => true,
                Verdict::Streams { .. } => may_stream,
                Verdict::DoesNotFit { .. } => false,
            };
            (serves && saves > 0).then(|| Proposal {
                flags: flags(&other.params),
                saves,
                verdict,
            })
        };
        if asked.verdict == Verdict::Fits {
            let tight = asked.tight(device).is_some();
            let tq4 = tight.then(|| propose(&with_types(p, KvType::Tq4)));
            return tq4.flatten().into_iter().collect();
        }
        let mut types = TYPES.to_vec();
        types.retain(|&ty| {
            let larger = p.type_k.row_bytes(64).max(p.type_v.row_bytes(64));
            ty.row_bytes(64) < larger && Plan::new(spec, with_types(p, ty)).is_ok()
        });
        let mut found: Vec<Proposal> = Vec::new();
        for kind in changes(p, &types) {
            let mut serving = kind.iter().filter_map(propose).peekable();
            let mildest = serving.peek().cloned();
            let fits = serving.find(|p| p.verdict == Verdict::Fits);
            for new in mildest.into_iter().chain(fits) {
                if !found.contains(&new) {
                    found.push(new);
                }
            }
        }
        if found.len() < LEAST {
            let all = combinations(p, &types);
            // Nothing takes less than the last: where it does not serve, none does.
            let some_serve = all.last().and_then(propose).is_some();
            for new in all.iter().filter(|_| some_serve).filter_map(propose) {
                if !found.contains(&new) {
                    found.push(new);
                }
                if found.len() == LEAST {
                    break;
                }
            }
        }
        found.sort_by_key(|p| p.verdict != Verdict::Fits);
        found.truncate(MOST);
        found
    }
}

/// Kinds of change, each from mild to harsh: a smaller cache type at each context, a smaller context, fewer slots, a smaller
/// chunk, weights that are mapped.
fn changes(p: &SessionParams, types: &[KvType]) -> Vec<Vec<SessionParams>> {
    let typed = types.iter().map(|&ty| with_types(p, ty));
    let at_each = |q: SessionParams| contexts(p).map(|n| with_context(&q, n)).collect();
    let mut kinds: Vec<Vec<SessionParams>> = typed.map(at_each).collect();
    kinds.push(contexts(p).skip(1).map(|n| with_context(p, n)).collect());
    let fewer = (1..p.n_slots).rev();
    kinds.push(fewer.map(|n| with_slots(p, n)).collect());
    kinds.push(chunks(p).skip(1).map(|n| with_chunk(p, n)).collect());
    kinds.push(vec![mapped(p)]);
    kinds
}

/// Every combination of changes, the smallest chunk, context and cache last.
fn combinations(p: &SessionParams, types: &[KvType]) -> Vec<SessionParams> {
    let mut all = Vec::new();
    let slots = successors(Some(p.n_slots), |n| Some(n / 2)).take_while(|&n| n >= 1);
    let as_mapped = mapped(p);
    for n_slots in slots {
        for q in [p, &as_mapped] {
            let typed = std::iter::once(q.clone()).chain(types.iter().map(|&ty| with_types(q, ty)));
            for q in typed {
                for n_ctx in contexts(p) {
                    let q = with_slots(&with_context(&q, n_ctx), n_slots);
                    all.extend(chunks(p).map(|n| with_chunk(&q, n)));
                }
            }
        }
    }
    all
}

/// The context, halved and halved again.
fn contexts(p: &SessionParams) -> impl Iterator<Item = usize> + use<> {
    let least = MIN_CTX.min(p.n_ctx);
    successors(Some(p.n_ctx), |n| Some(n / 2)).take_while(move |&n| n >= least)
}

/// The chunk, halved and halved again.
fn chunks(p: &SessionParams) -> impl Iterator<Item = usize> + use<> {
    let least = MIN_UBATCH.min(p.n_ubatch);
    successors(Some(p.n_ubatch), |n| Some(n / 2)).take_while(move |&n| n >= least)
}

fn with_context(p: &SessionParams, n_ctx: usize) -> SessionParams {
    SessionParams { n_ctx, ..p.clone() }
}

fn with_chunk(p: &SessionParams, n_ubatch: usize) -> SessionParams {
    SessionParams {
        n_ubatch,
        ..p.clone()
    }
}

fn with_slots(p: &SessionParams, n_slots: usize) -> SessionParams {
    SessionParams {
        n_slots,
        ..p.clone()
    }
}

fn with_types(p: &SessionParams, ty: KvType) -> SessionParams {
    SessionParams {
        type_k: ty,
        type_v: ty,
        ..p.clone()
    }
}

fn mapped(p: &SessionParams) -> SessionParams {
    SessionParams {
        residency: Residency::Mapped,
        ..p.clone()
    }
}

fn flags(p: &SessionParams) -> String {
    let slots = match p.n_slots {
        1 => String::new(),
        n => format!(" -np {n}"),
    };
    let residency = match p.residency {
        Residency::Mapped => "",
        Residency::Locked => " --mlock",
        Residency::Direct => " --direct",
    };
    format!(
        "-c {} -ctk {} -ctv {} -ub {}{slots}{residency}",
        p.n_ctx, p.type_k, p.type_v, p.n_ubatch
    )
}
