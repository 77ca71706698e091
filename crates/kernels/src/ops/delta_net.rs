//! The gated delta rule, token by token (Yang et al., "Gated Delta Networks", arXiv 2412.06464).

use super::math::{LANES, dot, sigmoid, sum_lanes};
use super::{for_isa, split};
use crate::{Cpu, SharedSlice};

/// Value rows of the state that one unit of work keeps in cache.
const ROWS: usize = 32;

/// The input of [`gated_delta_net`].
#[derive(Clone, Copy)]
pub struct GatedDeltaNet<'a> {
    /// `[n_tokens][q | k | v]`, q and k `[nk][d]`, v `[nv][d]`; q and k are normalised here.
    pub qkv: &'a [f32],
    /// `[n_tokens][nv]`: logarithm of the decay, at most 0.
    pub g: &'a [f32],
    /// `[n_tokens][nv]`: how much of the error is written.
    pub beta: &'a [f32],
    /// Tokens.
    pub n_tokens: usize,
    /// Key heads.
    pub nk: usize,
    /// Value heads; head `h` reads key head `h mod nk`.
    pub nv: usize,
    /// Width of a head.
    pub d: usize,
    /// Least norm of q and k.
    pub eps: f32,
}

/// Per value head and token, with S `[value][key]`, q and k divided by their norms and q by `sqrt(d)`:
/// `S *= e^g; e = beta (v - S k); S += e kᵀ; o = S q`.
///
/// `state` `[nv][d][d]` has the value dimension outside, so that `S k` and `S q` read it in order; `out` is
/// `[n_tokens][nv * d]`.
///
/// # Panics
/// When the shapes do not fit.
pub fn gated_delta_net(cpu: &Cpu, a: &GatedDeltaNet<'_>, state: &mut [f32], out: &mut [f32]) {
    let width = (2 * a.nk + a.nv) * a.d;
    assert_eq!(a.qkv.len(), a.n_tokens * width);
    assert!(a.g.len() == a.n_tokens * a.nv && a.beta.len() == a.g.len());
    assert_eq!(state.len(), a.nv * a.d * a.d);
    assert_eq!(out.len(), a.n_tokens * a.nv * a.d);
    let parts = a.d.div_ceil(ROWS);
    let (state, out) = (SharedSlice::new(state), SharedSlice::new(out));
    split::ranges(cpu, a.nv * parts, a.n_tokens * ROWS * a.d * 2, &|units| {
        for unit in units {
            let (head, first) = (unit / parts, unit % parts * ROWS);
            let rows = first..(first + ROWS).min(a.d);
            let start = head * a.d;
            // SAFETY: a unit has these value rows of this head to itself.
            let s =
                unsafe { state.slice_mut((start + rows.start) * a.d..(start + rows.end) * a.d) };
            for t in 0..a.n_tokens {
                let at = t * a.nv * a.d + start;
                // SAFETY: as above; the outputs are those of the unit's rows.
                let o = unsafe { out.slice_mut(at + rows.start..at + rows.end) };
                let token = Token::new(a, t, head, width);
                let v = &token.v[rows.clone()];
                let token_ref = &token;
                for_isa!(cpu.isa, step, (token_ref: &Token<'_>, v: &[f32], s: &mut [f32], o: &mut [f32]));
            }
        }
    });
}

/// What one head reads of one token.
struct Token<'a> {
    q: &'a [f32],
    k: &'a [f32],
    v: &'a [f32],
    decay: f32,
    beta: f32,
    eps: f32,
}

impl<'a> Token<'a> {
    fn new(a: &GatedDeltaNet<'a>, t: usize, head: usize, width: usize) -> Token<'a> {
        let row = &a.qkv[t * width..(t + 1) * width];
        let (q, rest) = row.split_at(a.nk * a.d);
        let (k, v) = rest.split_at(a.nk * a.d);
        let part = |x: &'a [f32], h: usize| &x[h * a.d..(h + 1) * a.d];
        let key = head % a.nk;
        Token {
            q: part(q, key),
            k: part(k, key),
            v: part(v, head),
            decay: a.g[t * a.nv + head].exp(),
            beta: a.beta[t * a.nv + head],
            eps: a.eps,
        }
    }
}

/// One pass over the rows of the state: `S q` of the new state follows from that of the old one,
/// `o = e^g (S q) + (k·q) e`, so that a row is read once for both products and written once.
#[inline(always)]
fn step(t: &Token<'_>, v: &[f32], state: &mut [f32], out: &mut [f32]) {
    let d = t.k.len();
    let inverse = |x: &[f32]| 1.0 / dot(x, x).sqrt().max(t.eps);
    let k_norm = inverse(t.k);
    let q_norm = inverse(t.q) / (d as f32).sqrt();
    let kq = dot(t.k, t.q) * k_norm * q_norm;
    for ((s, v), o) in state.chunks_exact_mut(d).zip(v).zip(out) {
        let (sk, sq) = dot2(s, t.k, t.q);
        let e = t.beta * (v - t.decay * k_norm * sk);
        let ek = e * k_norm;
        for (s, k) in s.iter_mut().zip(t.k) {
            *s = ek.mul_add(*k, t.decay * *s);
        }
        *o = t.decay * q_norm * sq + kq * e;
    }
}

/// `(Σ s·a, Σ s·b)`, reading `s` once.
#[inline(always)]
fn dot2(s: &[f32], a: &[f32], b: &[f32]) -> (f32, f32) {
    let (mut sa, mut sb) = ([0.0f32; LANES], [0.0f32; LANES]);
    let n = s.len() / LANES * LANES;
    for ((s, a), b) in s
        .chunks_exact(LANES)
        .zip(a.chunks_exact(LANES))
        .zip(b.chunks_exact(LANES))
    {
        for i in 0..LANES {
            sa[i] = s[i].mul_add(a[i], sa[i]);
            sb[i] = s[i].mul_add(b[i], sb[i]);
        }
    }
    (
        sum_lanes(sa) + dot(&s[n..], &a[n..]),
        sum_lanes(sb) + dot(&s[n..], &b[n..]),
    )
}

/// In: the projections. Out: `alpha = ssm_a · softplus(alpha + dt_bias)`, the logarithm of the decay, and
/// `beta = sigmoid(beta)`. Rows of `dt_bias.len()` heads.
///
/// # Panics
/// When the shapes do not fit.
pub fn delta_net_gates(
    _cpu: &Cpu,
    alpha: &mut [f32],
    beta: &mut [f32],
    dt_bias: &[f32],
    ssm_a: &[f32],
) {
    assert!(
        alpha.len() == beta.len()
            && alpha.len().is_multiple_of(dt_bias.len())
            && dt_bias.len() == ssm_a.len()
    );
    for row in alpha.chunks_exact_mut(dt_bias.len()) {
        for ((x, dt), a) in row.iter_mut().zip(dt_bias).zip(ssm_a) {
            let y = *x + dt;
            // Past 20 the logarithm adds less than a float can show.
            *x = a * if y > 20.0 { y } else { y.exp().ln_1p() };
        }
    }
    beta.iter_mut().for_each(|b| *b = sigmoid(*b));
}
