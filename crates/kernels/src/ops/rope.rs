//! Rotary position embedding (Su et al., arXiv 2104.09864).

use super::{for_isa, split};
use crate::Cpu;

/// Which two dimensions of a head make a pair that is rotated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RopeKind {
    /// Neighbours: `(2j, 2j + 1)`.
    Norm,
    /// Halves of the rotated part: `(j, j + n_rot / 2)`.
    Neox,
}

/// The angles of a rope: pair `j` of position `p` turns by `p · theta_scale^j / divisors[j]` radians.
#[derive(Clone, Copy, Debug)]
pub struct Angles<'a> {
    /// `base^(-2/n_rot)`.
    pub theta_scale: f32,
    /// What stretches each pair over a longer context; 1 leaves it. `[n_rot / 2]`.
    pub divisors: &'a [f32],
    /// Factor of cos and sin.
    pub mscale: f32,
}

/// cos and sin for `n_tokens` positions from `pos0` on: `out[t]` is `n_rot/2` cosines, then as many sines.
///
/// # Panics
/// When `out` is not `[n_tokens][n_rot]`.
pub fn rope_angles(cpu: &Cpu, angles: Angles<'_>, pos0: usize, n_tokens: usize, out: &mut [f32]) {
    let half = angles.divisors.len();
    assert_eq!(out.len(), n_tokens * 2 * half);
    split::rows(cpu, out, 2 * half, 40 * half, &|first, out| {
        for (t, row) in out.chunks_exact_mut(2 * half).enumerate() {
            let (cos, sin) = row.split_at_mut(half);
            // Power by power in single precision, as ggml does: far positions get the angles that other engines give them.
            let mut theta = (pos0 + first + t) as f32;
            for ((c, s), divisor) in cos.iter_mut().zip(sin).zip(angles.divisors) {
                let (sine, cosine) = (theta / divisor).sin_cos();
                *c = cosine * angles.mscale;
                *s = sine * angles.mscale;
                theta *= angles.theta_scale;
            }
        }
    });
}

/// Rotates every head of `x` `[n_tokens][n_heads][head_dim]` by its token's angles (from [`rope_angles`]). Dimensions
/// from `n_rot` on, the length of a token's angles, stay as they are.
///
/// # Panics
/// When the shapes do not fit.
pub fn rope(
    cpu: &Cpu,
    x: &mut [f32],
    n_tokens: usize,
    n_heads: usize,
    head_dim: usize,
    kind: RopeKind,
    angles: &[f32],
) {
    let width = n_heads * head_dim;
    assert_eq!(x.len(), n_tokens * width);
    if n_tokens == 0 {
        return;
    }
    let n_rot = angles.len() / n_tokens;
    assert!(n_rot <= head_dim && angles.len() == n_rot * n_tokens);
    split::rows(cpu, x, width, 2 * width, &|first, x| {
        let angles = &angles[first * n_rot..];
        match kind {
            RopeKind::Norm => {
                for_isa!(cpu.isa, norm, (x: &mut [f32], width: usize, head_dim: usize, n_rot: usize, angles: &[f32]))
            }
            RopeKind::Neox => {
                for_isa!(cpu.isa, neox, (x: &mut [f32], width: usize, head_dim: usize, n_rot: usize, angles: &[f32]))
            }
        }
    });
}

#[inline(always)]
fn norm(x: &mut [f32], width: usize, head_dim: usize, n_rot: usize, angles: &[f32]) {
    for (row, angles) in x.chunks_exact_mut(width).zip(angles.chunks_exact(n_rot)) {
        let (cos, sin) = angles.split_at(n_rot / 2);
        for head in row.chunks_exact_mut(head_dim) {
            for ((pair, c), s) in head[..n_rot].chunks_exact_mut(2).zip(cos).zip(sin) {
                let (a, b) = (pair[0], pair[1]);
                pair[0] = a * c - b * s;
                pair[1] = a * s + b * c;
            }
        }
    }
}

#[inline(always)]
fn neox(x: &mut [f32], width: usize, head_dim: usize, n_rot: usize, angles: &[f32]) {
    for (row, angles) in x.chunks_exact_mut(width).zip(angles.chunks_exact(n_rot)) {
        let (cos, sin) = angles.split_at(n_rot / 2);
        for head in row.chunks_exact_mut(head_dim) {
            let (low, high) = head[..n_rot].split_at_mut(n_rot / 2);
            for (((a, b), c), s) in low.iter_mut().zip(high).zip(cos).zip(sin) {
                (*a, *b) = (*a * c - *b * s, *a * s + *b * c);
            }
        }
    }
}
