//! A weight matrix as it lies in the file.

use crate::TensorType;

/// `rows` rows of `cols` elements, row-major, in the file's own blocks. Never owns, never copies.
#[derive(Clone, Copy, Debug)]
pub struct Mat<'a> {
    /// Block type of every row.
    pub ty: TensorType,
    /// Output width (ggml `ne1`).
    pub rows: usize,
    /// Input width (ggml `ne0`), a multiple of the block length.
    pub cols: usize,
    /// Exactly `rows * row_bytes` bytes.
    pub data: &'a [u8],
}

impl<'a> Mat<'a> {
    /// A view of `data`; `None` when the length is not `rows` times the bytes of a row of `cols`.
    pub fn new(ty: TensorType, rows: usize, cols: usize, data: &'a [u8]) -> Option<Mat<'a>> {
        let row_bytes = usize::try_from(ty.row_bytes(cols as u64)?).ok()?;
        (row_bytes.checked_mul(rows)? == data.len()).then_some(Mat {
            ty,
            rows,
            cols,
            data,
        })
    }

    /// Bytes of one row.
    #[inline]
    pub fn row_bytes(&self) -> usize {
        self.cols / self.ty.block_len() * self.ty.block_bytes()
    }

    /// The bytes of row `r`.
    ///
    /// # Panics
    /// When there is no such row.
    #[inline]
    pub fn row(&self, r: usize) -> &'a [u8] {
        let n = self.row_bytes();
        &self.data[r * n..(r + 1) * n]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whole_rows_of_whole_blocks_are_a_matrix() {
        let data = [7u8; 3 * 36];
        let w = Mat::new(TensorType::Q4_0, 3, 64, &data).unwrap();
        assert_eq!((w.row_bytes(), w.row(2).len()), (36, 36));
        assert!(Mat::new(TensorType::Q4_0, 3, 63, &data).is_none());
        assert!(Mat::new(TensorType::Q4_0, 2, 64, &data).is_none());
        assert!(Mat::new(TensorType::F32, usize::MAX, 64, &data).is_none());
        assert!(Mat::new(TensorType::F32, 3, usize::MAX, &data).is_none());
    }
}
