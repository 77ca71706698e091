//! Settings that the user left open, chosen so that the plan fits.

use super::{Device, Fit, Plan, SessionParams, Verdict, default_context};
use crate::EngineError;
use crate::model::ModelSpec;

/// Smallest prefill chunk that is chosen.
const MIN_UBATCH: usize = 64;

/// What the user did not ask for.
#[derive(Clone, Copy, Debug, Default)]
pub struct Open {
    /// The context.
    pub n_ctx: bool,
    /// The prefill chunk.
    pub n_ubatch: bool,
}

/// `params` with what is `open` chosen: the largest context that fits comfortably (see [`default_context`]), and a
/// smaller chunk only where the plan does not fit with the one in `params`. Where nothing fits, the chunk stays.
///
/// # Errors
/// The other parameters do not suit the model.
pub fn choose(
    spec: &ModelSpec,
    params: &SessionParams,
    open: Open,
    device: &Device,
    headroom: Option<u64>,
) -> Result<SessionParams, EngineError> {
    let with_chunk = |n_ubatch: usize| {
        let mut p = SessionParams {
            n_ubatch,
            ..params.clone()
        };
        if open.n_ctx {
            p.n_ctx = default_context(spec, &p, device, headroom)?;
        }
        Ok::<SessionParams, EngineError>(p)
    };
    let asked = with_chunk(params.n_ubatch)?;
    let chunks = std::iter::successors(Some(params.n_ubatch), |n| Some(n / 2))
        .take_while(|&n| n >= MIN_UBATCH || n == params.n_ubatch)
        .take(if open.n_ubatch { usize::MAX } else { 1 });
    for n_ubatch in chunks {
        let p = with_chunk(n_ubatch)?;
        let fit = Fit::new(spec, &Plan::new(spec, p.clone())?, device, headroom);
        if !matches!(fit.verdict, Verdict::DoesNotFit { .. }) {
            return Ok(p);
        }
    }
    Ok(asked)
}
