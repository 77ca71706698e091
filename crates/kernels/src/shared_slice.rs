//! One mutable slice, written by many threads at once, each at its own places.

use std::marker::PhantomData;
use std::ops::Range;

/// A `&mut [T]` that threads may share, as long as no two of them touch the same elements.
///
/// The borrow checker cannot see that threads divide an output among themselves (say by rows of a
/// matrix, which are columns of `y`), so the promise is the caller's: see [`SharedSlice::slice_mut`].
/// Bounds are still checked on every access.
pub struct SharedSlice<'a, T> {
    ptr: *mut T,
    len: usize,
    _owner: PhantomData<&'a mut [T]>,
}

// SAFETY: it stands for a `&mut [T]`, which may go to another thread when `T` may.
unsafe impl<T: Send> Send for SharedSlice<'_, T> {}
// SAFETY: a shared reference gives access only through `slice_mut` and `write`, whose callers
// promise that no two threads touch the same element; each element then has one user at a time, as if sent.
unsafe impl<T: Send> Sync for SharedSlice<'_, T> {}

impl<'a, T> SharedSlice<'a, T> {
    /// Takes the slice over for as long as the threads work on it.
    pub fn new(slice: &'a mut [T]) -> SharedSlice<'a, T> {
        SharedSlice {
            ptr: slice.as_mut_ptr(),
            len: slice.len(),
            _owner: PhantomData,
        }
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        self.len
    }

    /// True when there are no elements.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The elements of `range`, for writing.
    ///
    /// # Panics
    /// When `range` does not lie inside the slice.
    ///
    /// # Safety
    /// While the result lives, no other reference to any element of `range` may be used, from this
    /// thread or another.
    #[allow(clippy::mut_from_ref)] // Handing out disjoint parts is what the type is for.
    pub unsafe fn slice_mut(&self, range: Range<usize>) -> &mut [T] {
        assert!(
            range.start <= range.end && range.end <= self.len,
            "range {range:?} outside a shared slice of {}",
            self.len
        );
        // SAFETY: the range was checked to lie inside the slice that `new` borrowed mutably for 'a;
        // the caller promises that nobody else uses these elements.
        unsafe {
            std::slice::from_raw_parts_mut(self.ptr.add(range.start), range.end - range.start)
        }
    }

    /// Writes element `i`: for outputs whose parts interleave, where no range is one thread's own.
    ///
    /// # Panics
    /// When `i` is not inside the slice.
    ///
    /// # Safety
    /// No other thread may read or write element `i` at the same time, and no reference to it may live.
    pub unsafe fn write(&self, i: usize, value: T) {
        assert!(
            i < self.len,
            "index {i} outside a shared slice of {}",
            self.len
        );
        // SAFETY: in bounds, inside memory borrowed mutably for 'a, and this thread's own by promise.
        unsafe { *self.ptr.add(i) = value };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_fill_their_own_parts() {
        let mut data = vec![0u32; 100];
        let shared = SharedSlice::new(&mut data);
        std::thread::scope(|s| {
            for t in 0..4 {
                let shared = &shared;
                s.spawn(move || {
                    // SAFETY: thread t alone touches t*25..t*25+24 and, after that reference died, t*25+24.
                    unsafe {
                        shared.slice_mut(t * 25..t * 25 + 24).fill(t as u32 + 1);
                        shared.write(t * 25 + 24, 9);
                    }
                });
            }
        });
        for (i, &v) in data.iter().enumerate() {
            assert_eq!(v, if i % 25 == 24 { 9 } else { i as u32 / 25 + 1 });
        }
    }

    #[test]
    #[should_panic(expected = "outside a shared slice of 4")]
    fn a_range_past_the_end_panics() {
        let mut data = [0u8; 4];
        let shared = SharedSlice::new(&mut data);
        // SAFETY: the only reference.
        let _ = unsafe { shared.slice_mut(2..5) };
    }

    #[test]
    #[should_panic(expected = "outside a shared slice of 0")]
    fn a_write_past_the_end_panics() {
        let mut data: [u8; 0] = [];
        // SAFETY: the only reference.
        unsafe { SharedSlice::new(&mut data).write(0, 1) };
    }
}
