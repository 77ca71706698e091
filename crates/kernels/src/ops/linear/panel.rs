//! 16 rows by 256 columns of a quantised matrix, unpacked for the tile kernels: the one form that all
//! block types take, and all the memory that unpacking needs.

use super::TILE_ROWS;
use crate::Mat;
use crate::quant::{Block, Lanes, SPAN, Span, span_bytes};

/// Columns lie in fours, so that a 4-byte dot product has a row in each lane; so do scales and minima.
#[repr(C, align(64))]
pub(super) struct Panel {
    /// `[column / 4][row][column % 4]`.
    pub q: [[u8; 4 * TILE_ROWS]; SPAN / 4],
    /// `[group][row]`.
    pub scale: [[f32; TILE_ROWS]; SPAN / 16],
    /// `[group][row]`; a weight is `scale * q - min`, the type's offset being part of `min`.
    pub min: [[f32; TILE_ROWS]; SPAN / 16],
    /// Groups that hold columns of the matrix.
    pub n_groups: usize,
}

impl Panel {
    /// A panel of zeros.
    pub fn new() -> Panel {
        Panel {
            q: [[0; 4 * TILE_ROWS]; SPAN / 4],
            scale: [[0.0; TILE_ROWS]; SPAN / 16],
            min: [[0.0; TILE_ROWS]; SPAN / 16],
            n_groups: 0,
        }
    }

    /// Unpacks span `s` of `n_rows` rows from row `first`; the other rows of the panel keep what they had.
    #[inline(always)]
    pub fn fill<B: Block, L: Lanes>(
        &mut self,
        l: L,
        w: &Mat<'_>,
        first: usize,
        n_rows: usize,
        s: usize,
    ) {
        let mut span = Span::zero(l);
        let at = s * span_bytes::<B>();
        let n_bytes = span_bytes::<B>().min(w.row_bytes() - at);
        self.n_groups = n_bytes / B::BYTES * B::LEN / B::GROUP;
        let mut row_q = [0; SPAN];
        for r in 0..n_rows {
            B::unpack(l, &w.row(first + r)[at..at + n_bytes], &mut span);
            for (q, out) in span.q.iter().zip(row_q.as_chunks_mut::<32>().0) {
                l.store(*q, out);
            }
            for (four, out) in row_q.as_chunks::<4>().0.iter().zip(&mut self.q) {
                out[4 * r..4 * r + 4].copy_from_slice(four);
            }
            for g in 0..SPAN / B::GROUP {
                self.scale[g][r] = span.scale[g];
                self.min[g][r] = span.min[g] + span.scale[g] * f32::from(B::OFFSET);
            }
        }
    }
}
