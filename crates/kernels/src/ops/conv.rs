//! Depthwise causal convolution over the tokens, then SiLU.

use super::math::silu;
use super::{for_isa, split};
use crate::{Cpu, SharedSlice};

/// Widest kernel.
pub const MAX_CONV_KERNEL: usize = 8;
/// Channels worked on together.
const CHANNELS: usize = 64;

/// `y[t][c] = silu(Σ_j w[c][j] · x[t - k + 1 + j][c])`, tap `k - 1` being the current token. Inputs before the chunk come
/// from `state` `[k - 1][channels]`, the oldest first, which is left holding the chunk's last `k - 1` inputs.
///
/// # Panics
/// When the shapes do not fit or `k` is not in `1..=MAX_CONV_KERNEL`.
pub fn causal_conv1d_silu(
    cpu: &Cpu,
    x: &[f32],
    w: &[f32],
    k: usize,
    state: &mut [f32],
    y: &mut [f32],
) {
    assert!((1..=MAX_CONV_KERNEL).contains(&k));
    let n_ch = w.len() / k;
    assert!(
        w.len() == k * n_ch
            && state.len() == (k - 1) * n_ch
            && x.len() == y.len()
            && x.len().is_multiple_of(n_ch)
    );
    let n_tokens = x.len() / n_ch;
    let (state, y) = (SharedSlice::new(state), SharedSlice::new(y));
    split::ranges(
        cpu,
        n_ch.div_ceil(CHANNELS),
        n_tokens * CHANNELS * (k + 8),
        &|groups| {
            for g in groups {
                let channels = g * CHANNELS..((g + 1) * CHANNELS).min(n_ch);
                let at = |row: usize| row * n_ch + channels.start..row * n_ch + channels.end;
                // Rows of state and y as this group's own columns.
                let mut window = [[0.0f32; CHANNELS]; MAX_CONV_KERNEL];
                let mut taps = [[0.0f32; CHANNELS]; MAX_CONV_KERNEL];
                let len = channels.len();
                for j in 0..k {
                    for (i, c) in channels.clone().enumerate() {
                        taps[j][i] = w[c * k + j];
                    }
                    if j + 1 < k {
                        // SAFETY: no two groups share a channel, and this reference is the only one alive.
                        window[j][..len].copy_from_slice(unsafe { state.slice_mut(at(j)) });
                    }
                }
                for t in 0..n_tokens {
                    window[k - 1][..len].copy_from_slice(&x[at(t)]);
                    let (window_ref, taps_ref) = (&window[..k], &taps[..k]);
                    // SAFETY: as above.
                    let out = unsafe { y.slice_mut(at(t)) };
                    for_isa!(cpu.isa, step, (window_ref: &[[f32; CHANNELS]], taps_ref: &[[f32; CHANNELS]], out: &mut [f32]));
                    window.copy_within(1..k, 0);
                }
                for (j, row) in window[..k - 1].iter().enumerate() {
                    // SAFETY: as above.
                    unsafe { state.slice_mut(at(j)) }.copy_from_slice(&row[..len]);
                }
            }
        },
    );
}

#[inline(always)]
fn step(window: &[[f32; CHANNELS]], taps: &[[f32; CHANNELS]], out: &mut [f32]) {
    let mut sums = [0.0f32; CHANNELS];
    for (x, w) in window.iter().zip(taps) {
        for i in 0..CHANNELS {
            sums[i] = x[i].mul_add(w[i], sums[i]);
        }
    }
    for (y, s) in out.iter_mut().zip(sums) {
        *y = silu(s);
    }
}
