//! The readable products over quantised weights: the oracle, and what CPUs without SIMD kernels use.

use super::Chunk;
use crate::ops::acts::ActSpan;
use crate::quant::{Block, Scalar, Span, span_bytes};

/// One token.
pub(super) fn matvec<B: Block>(chunk: &mut Chunk<'_>) {
    for (i, r) in chunk.rows.clone().enumerate() {
        let mut sum = chunk.bias(r);
        let mut span = Span::zero(Scalar);
        for (bytes, x) in chunk.w.row(r).chunks(span_bytes::<B>()).zip(chunk.x.q) {
            B::unpack(Scalar, bytes, &mut span);
            sum += dot::<B>(&span, bytes.len() / B::BYTES * B::LEN, x);
        }
        chunk.y.token(0)[i] = sum;
    }
}

/// Many tokens: each span is unpacked once for all of them.
pub(super) fn matmul<B: Block>(chunk: &mut Chunk<'_>) {
    let n_tokens = chunk.x.n_tokens;
    chunk.set_to_bias();
    for (i, r) in chunk.rows.clone().enumerate() {
        let mut span = Span::zero(Scalar);
        for (s, bytes) in chunk.w.row(r).chunks(span_bytes::<B>()).enumerate() {
            B::unpack(Scalar, bytes, &mut span);
            for t in 0..n_tokens {
                let x = &chunk.x.q[s * n_tokens + t];
                chunk.y.token(t)[i] += dot::<B>(&span, bytes.len() / B::BYTES * B::LEN, x);
            }
        }
    }
}

/// The product of the first `n` weights of a span with a token's activations.
fn dot<B: Block>(w: &Span<Scalar>, n: usize, x: &ActSpan) -> f32 {
    let mut sum = 0.0;
    for g in 0..n / B::GROUP {
        let mut integers = 0i32;
        for i in g * B::GROUP..(g + 1) * B::GROUP {
            let w = i32::from(w.q[i / 32][i % 32]) - i32::from(B::OFFSET);
            integers += w * i32::from(x.q[i]);
        }
        let x_sum = if B::GROUP == 16 {
            x.sum16[g]
        } else {
            x.sum32[g]
        };
        sum += w.scale[g] * x.d[g * B::GROUP / 32] * integers as f32 - w.min[g] * x_sum;
    }
    sum
}
