//! Matrix times vector over quantised weights, for AVX2 and AVX-512: each weight byte is read once and
//! stays in registers.

use super::Chunk;
use crate::ops::acts::ActSpan;
use crate::quant::{Avx2, Block, Span, Vnni, X86, span_bytes};
use std::arch::x86_64::*;

/// With byte products by `vpmaddubsw`.
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) fn avx2<B: Block>(v: Avx2, chunk: &mut Chunk<'_>) {
    matvec::<B, _>(v, chunk);
}

/// With byte products by `vpdpbusd`.
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
pub(super) fn avx512<B: Block>(v: Vnni, chunk: &mut Chunk<'_>) {
    matvec::<B, _>(v, chunk);
}

#[inline(always)]
fn matvec<B: Block, V: X86>(v: V, chunk: &mut Chunk<'_>) {
    let row_bytes = chunk.w.row_bytes();
    for (i, r) in chunk.rows.clone().enumerate() {
        let row = &chunk.w.data[r * row_bytes..(r + 1) * row_bytes];
        let dot = row_dot::<B, V>(v, row, chunk.x.q);
        chunk.y.token(0)[i] = dot + chunk.bias(r);
    }
}

/// Sums in flight: one alone would have every addition wait for the one before.
type Sums = [__m256; 4];

#[inline(always)]
fn row_dot<B: Block, V: X86>(v: V, row: &[u8], x: &[ActSpan]) -> f32 {
    let mut span = Span::zero(v);
    // SAFETY: `v` proves AVX.
    let mut sums = unsafe { [_mm256_setzero_ps(); 4] };
    let full = row.chunks_exact(span_bytes::<B>());
    let tail = full.remainder();
    for (bytes, x) in full.zip(x) {
        B::unpack(v, bytes, &mut span);
        add_dot::<B, V>(v, &span, x, &mut sums);
    }
    if !tail.is_empty() {
        // What the tail leaves of the span must be zero.
        span = Span::zero(v);
        B::unpack(v, tail, &mut span);
        add_dot::<B, V>(v, &span, &x[row.len() / span_bytes::<B>()], &mut sums);
    }
    // SAFETY: `v` proves AVX2.
    unsafe {
        let (a, b) = (
            _mm256_add_ps(sums[0], sums[1]),
            _mm256_add_ps(sums[2], sums[3]),
        );
        sum_of_lanes(_mm256_add_ps(a, b))
    }
}

/// The sum of eight lanes.
#[inline]
#[target_feature(enable = "avx2")]
pub(super) fn sum_of_lanes(v: __m256) -> f32 {
    let v = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps::<1>(v));
    let v = _mm_add_ps(v, _mm_movehl_ps(v, v));
    _mm_cvtss_f32(_mm_add_ss(v, _mm_movehdup_ps(v)))
}

/// Types over the whole range of a byte are multiplied as signed bytes and have no minimum; the others
/// as unsigned ones, their offset being part of the minimum.
const fn is_signed<B: Block>() -> bool {
    B::OFFSET == 128
}

/// Products of weights `32 * i..` with activations, added by fours: lanes in the order of the weights.
#[inline(always)]
fn dot4<B: Block, V: X86>(v: V, w: &Span<V>, x: &ActSpan, i: usize) -> __m256 {
    let x = v.load_i8(x.q[32 * i..].first_chunk().expect("32 of a span"));
    let dot = if is_signed::<B>() {
        v.dot4_signed(v.xor(w.q[i], v.splat(128)), x)
    } else {
        v.dot4(w.q[i], x)
    };
    // SAFETY: `v` proves AVX.
    unsafe { _mm256_cvtepi32_ps(dot) }
}

/// Adds the products of a span, spread over all lanes of `sums`.
#[inline(always)]
fn add_dot<B: Block, V: X86>(v: V, w: &Span<V>, x: &ActSpan, sums: &mut Sums) {
    if B::GROUP == 32 {
        add_groups_of_32::<B, V>(v, w, x, sums);
    } else {
        add_groups_of_16::<B, V>(v, w, x, sums);
    }
}

#[inline(always)]
fn add_groups_of_32<B: Block, V: X86>(v: V, w: &Span<V>, x: &ActSpan, sums: &mut Sums) {
    // SAFETY: `v` proves AVX2 and FMA; loads and stores are of eight floats inside the arrays named.
    unsafe {
        let scale = _mm256_loadu_ps(w.scale.as_ptr());
        let mut both = [0.0; 8];
        _mm256_storeu_ps(
            both.as_mut_ptr(),
            _mm256_mul_ps(scale, _mm256_load_ps(x.d.as_ptr())),
        );
        for (i, &both) in both.iter().enumerate() {
            let dot = dot4::<B, V>(v, w, x, i);
            sums[i % 4] = _mm256_fmadd_ps(dot, _mm256_set1_ps(both), sums[i % 4]);
        }
        if !is_signed::<B>() {
            let offset = _mm256_set1_ps(f32::from(B::OFFSET));
            let min = _mm256_fmadd_ps(scale, offset, _mm256_loadu_ps(w.min.as_ptr()));
            sums[0] = _mm256_fnmadd_ps(min, _mm256_load_ps(x.sum32.as_ptr()), sums[0]);
        }
    }
}

#[inline(always)]
fn add_groups_of_16<B: Block, V: X86>(v: V, w: &Span<V>, x: &ActSpan, sums: &mut Sums) {
    /// Activations have a scale for each two groups.
    const TWICE: [[i32; 8]; 2] = [[0, 0, 1, 1, 2, 2, 3, 3], [4, 4, 5, 5, 6, 6, 7, 7]];
    /// Lanes 0..4 of a product are of its first 16 weights, lanes 4..8 of the others.
    const GROUPS: [[i32; 8]; 4] = [
        [0, 0, 0, 0, 1, 1, 1, 1],
        [2, 2, 2, 2, 3, 3, 3, 3],
        [4, 4, 4, 4, 5, 5, 5, 5],
        [6, 6, 6, 6, 7, 7, 7, 7],
    ];
    // SAFETY: `v` proves AVX2 and FMA; loads are of eight numbers inside the arrays named.
    unsafe {
        let d = _mm256_load_ps(x.d.as_ptr());
        let offset = _mm256_set1_ps(f32::from(B::OFFSET));
        for half in 0..2 {
            let scale = _mm256_loadu_ps(w.scale.as_ptr().add(8 * half));
            let twice = _mm256_loadu_si256(TWICE[half].as_ptr().cast());
            let both = _mm256_mul_ps(scale, _mm256_permutevar8x32_ps(d, twice));
            for i in 0..4 {
                let groups = _mm256_loadu_si256(GROUPS[i].as_ptr().cast());
                let both = _mm256_permutevar8x32_ps(both, groups);
                sums[i] = _mm256_fmadd_ps(dot4::<B, V>(v, w, x, 4 * half + i), both, sums[i]);
            }
            let min = _mm256_fmadd_ps(scale, offset, _mm256_loadu_ps(w.min.as_ptr().add(8 * half)));
            sums[half] = _mm256_fnmadd_ps(
                min,
                _mm256_load_ps(x.sum16.as_ptr().add(8 * half)),
                sums[half],
            );
        }
    }
}
