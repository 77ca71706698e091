//! 16 rows by 256 columns of a quantised matrix, unpacked for the tile kernels: the one form that all
//! block types take, and all the memory that unpacking needs.

use super::TILE_ROWS;
use crate::Mat;
use crate::quant::{Block, SPAN, Span, X86, span_bytes};

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

    /// Unpacks span `s` of `n_rows` rows from row `first` by way of `spans`, which start as zeros; the other rows of
    /// the panel hold what nobody reads.
    #[inline(always)]
    pub fn fill<B: Block, L: X86>(
        &mut self,
        l: L,
        spans: &mut [Span<L>; 8],
        w: &Mat<'_>,
        first: usize,
        n_rows: usize,
        s: usize,
    ) {
        let at = s * span_bytes::<B>();
        let n_bytes = span_bytes::<B>().min(w.row_bytes() - at);
        self.n_groups = n_bytes / B::BYTES * B::LEN / B::GROUP;
        for from in (0..n_rows).step_by(8) {
            for (r, span) in spans.iter_mut().enumerate().take(n_rows - from) {
                B::unpack(l, &w.row(first + from + r)[at..at + n_bytes], span);
            }
            for (k, fours) in self.q.as_chunks_mut::<8>().0.iter_mut().enumerate() {
                let columns = l.transpose(spans.each_ref().map(|span| span.q[k]));
                for (four, column) in fours.iter_mut().zip(columns) {
                    l.store(column, &mut four.as_chunks_mut().0[from / 8]);
                }
            }
            for k in 0..SPAN / B::GROUP / 8 {
                let eight = |of: &[f32; SPAN / 16]| l.load_words(&of.as_chunks().0[k]);
                let scale = l.transpose(spans.each_ref().map(|span| eight(&span.scale)));
                let min = l.transpose(spans.each_ref().map(|span| eight(&span.min)));
                for j in 0..8 {
                    let (scales, mins) = (&mut self.scale[8 * k + j], &mut self.min[8 * k + j]);
                    let scales = &mut scales.as_chunks_mut::<8>().0[from / 8];
                    let mins = &mut mins.as_chunks_mut::<8>().0[from / 8];
                    l.store_words(scale[j], scales);
                    l.store_words(min[j], mins);
                    for (min, scale) in mins.iter_mut().zip(scales) {
                        *min += *scale * f32::from(B::OFFSET);
                    }
                }
            }
        }
    }
}
