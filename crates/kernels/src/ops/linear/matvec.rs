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
    for (i, r) in chunk.rows.clone().enumerate() {
        let dot = row_dot::<B, V>(v, chunk.w.row(r), chunk.x.q);
        chunk.y.token(0)[i] = dot + chunk.bias(r);
    }
}

#[inline(always)]
fn row_dot<B: Block, V: X86>(v: V, row: &[u8], x: &[ActSpan]) -> f32 {
    let mut span = Span::zero(v);
    // SAFETY: `v` proves AVX.
    let mut sums = unsafe { _mm256_setzero_ps() };
    let full = row.chunks_exact(span_bytes::<B>());
    let tail = full.remainder();
    for (bytes, x) in full.zip(x) {
        B::unpack(v, bytes, &mut span);
        sums = add_dot::<B, V>(v, &span, x, sums);
    }
    if !tail.is_empty() {
        // What the tail leaves of the span must be zero.
        span = Span::zero(v);
        B::unpack(v, tail, &mut span);
        sums = add_dot::<B, V>(v, &span, &x[row.len() / span_bytes::<B>()], sums);
    }
    // SAFETY: `v` proves AVX2.
    unsafe { sum_of_lanes(sums) }
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
fn dot4<B: Block, V: X86>(v: V, w: &Span<V>, x: &ActSpan, i: usize) -> __m256i {
    let x = v.load_i8(x.q[32 * i..].first_chunk().expect("32 of a span"));
    if is_signed::<B>() {
        v.dot4_signed(v.xor(w.q[i], v.splat(128)), x)
    } else {
        v.dot4(w.q[i], x)
    }
}

/// `sums` plus the products of a span, in any lanes.
#[inline(always)]
fn add_dot<B: Block, V: X86>(v: V, w: &Span<V>, x: &ActSpan, mut sums: __m256) -> __m256 {
    // SAFETY: `v` proves AVX2 and FMA; loads are of eight floats inside the arrays named.
    unsafe {
        let d = _mm256_load_ps(x.d.as_ptr());
        let offset = _mm256_set1_ps(f32::from(B::OFFSET));
        if B::GROUP == 32 {
            let scale = _mm256_loadu_ps(w.scale.as_ptr());
            let mut both = [0.0; 8];
            _mm256_storeu_ps(both.as_mut_ptr(), _mm256_mul_ps(scale, d));
            for (i, &both) in both.iter().enumerate() {
                sums = _mm256_fmadd_ps(
                    _mm256_cvtepi32_ps(dot4::<B, V>(v, w, x, i)),
                    _mm256_set1_ps(both),
                    sums,
                );
            }
            if !is_signed::<B>() {
                let min = _mm256_fmadd_ps(scale, offset, _mm256_loadu_ps(w.min.as_ptr()));
                sums = _mm256_fnmadd_ps(min, _mm256_load_ps(x.sum32.as_ptr()), sums);
            }
        } else {
            for half in 0..2 {
                let scale = _mm256_loadu_ps(w.scale.as_ptr().add(8 * half));
                let first = 4 * half as i32;
                let pairs = _mm256_add_epi32(
                    _mm256_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3),
                    _mm256_set1_epi32(first),
                );
                let both = _mm256_mul_ps(scale, _mm256_permutevar8x32_ps(d, pairs));
                for i in 0..4 {
                    // Lanes 0..4 of a product are of its first 16 weights, lanes 4..8 of the others.
                    let two = 2 * i as i32;
                    let lanes = _mm256_add_epi32(
                        _mm256_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1),
                        _mm256_set1_epi32(two),
                    );
                    let both = _mm256_permutevar8x32_ps(both, lanes);
                    sums = _mm256_fmadd_ps(
                        _mm256_cvtepi32_ps(dot4::<B, V>(v, w, x, 4 * half + i)),
                        both,
                        sums,
                    );
                }
                let min =
                    _mm256_fmadd_ps(scale, offset, _mm256_loadu_ps(w.min.as_ptr().add(8 * half)));
                sums = _mm256_fnmadd_ps(min, _mm256_load_ps(x.sum16.as_ptr().add(8 * half)), sums);
            }
        }
    }
    sums
}
