//! Root-mean-square norms (Zhang, Sennrich, arXiv 1910.07467).

use super::math::{silu, sum_of_squares};
use super::{for_isa, split};
use crate::Cpu;

/// `y = x / sqrt(mean(x²) + eps) · w`, for each row of `w.len()`.
///
/// # Panics
/// When `x` and `y` differ in length or are no whole number of rows.
pub fn rms_norm(cpu: &Cpu, x: &[f32], w: &[f32], eps: f32, y: &mut [f32]) {
    assert_eq!(x.len(), y.len());
    assert_eq!(x.len() % w.len(), 0, "whole rows of {}", w.len());
    let n = w.len();
    split::rows(cpu, y, n, 2 * n, &|first, y| {
        let x = &x[first * n..first * n + y.len()];
        for_isa!(cpu.isa, norm_rows, (x: &[f32], w: &[f32], eps: f32, y: &mut [f32]));
    });
}

/// As [`rms_norm`], `x` being replaced.
///
/// # Panics
/// When `x` is no whole number of rows.
pub fn rms_norm_inplace(cpu: &Cpu, x: &mut [f32], w: &[f32], eps: f32) {
    assert_eq!(x.len() % w.len(), 0, "whole rows of {}", w.len());
    let n = w.len();
    split::rows(cpu, x, n, 2 * n, &|_, x| {
        for_isa!(cpu.isa, norm_rows_inplace, (x: &mut [f32], w: &[f32], eps: f32));
    });
}

/// `x = rms_norm(x, w) · silu(z)`, for each row (head) of `w.len()`.
///
/// # Panics
/// When `x` and `z` differ in length or are no whole number of rows.
pub fn gated_norm(cpu: &Cpu, x: &mut [f32], z: &[f32], w: &[f32], eps: f32) {
    assert_eq!(x.len(), z.len());
    assert_eq!(x.len() % w.len(), 0, "whole rows of {}", w.len());
    let n = w.len();
    split::rows(cpu, x, n, 8 * n, &|first, x| {
        let z = &z[first * n..first * n + x.len()];
        for_isa!(cpu.isa, gated_rows, (x: &mut [f32], z: &[f32], w: &[f32], eps: f32));
    });
}

#[inline(always)]
fn inverse_rms(x: &[f32], eps: f32) -> f32 {
    let mean = (sum_of_squares(x) / x.len() as f64) as f32;
    1.0 / (mean + eps).sqrt()
}

#[inline(always)]
fn norm_rows(x: &[f32], w: &[f32], eps: f32, y: &mut [f32]) {
    for (x, y) in x.chunks_exact(w.len()).zip(y.chunks_exact_mut(w.len())) {
        let r = inverse_rms(x, eps);
        for ((y, x), w) in y.iter_mut().zip(x).zip(w) {
            *y = x * r * w;
        }
    }
}

#[inline(always)]
fn norm_rows_inplace(x: &mut [f32], w: &[f32], eps: f32) {
    for x in x.chunks_exact_mut(w.len()) {
        let r = inverse_rms(x, eps);
        for (x, w) in x.iter_mut().zip(w) {
            *x = *x * r * w;
        }
    }
}

#[inline(always)]
fn gated_rows(x: &mut [f32], z: &[f32], w: &[f32], eps: f32) {
    for (x, z) in x.chunks_exact_mut(w.len()).zip(z.chunks_exact(w.len())) {
        let r = inverse_rms(x, eps);
        for ((x, z), w) in x.iter_mut().zip(z).zip(w) {
            *x = *x * r * w * silu(*z);
        }
    }
}
