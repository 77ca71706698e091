//! `y = x · Wᵀ`: the products that take nearly all of a model's time.
//!
//! One token is a matrix-vector product and reads every weight once (`matvec.rs`); more are a
//! matrix-matrix product, which unpacks 16 rows by 256 columns at a time and multiplies them with all
//! tokens (`matmul.rs`). Quantised weights meet activations of int8, float weights those of f32.

mod float;
#[cfg(target_arch = "x86_64")]
mod matmul;
#[cfg(target_arch = "x86_64")]
mod matvec;
#[cfg(target_arch = "x86_64")]
mod panel;
mod scalar;
#[cfg(target_arch = "x86_64")]
mod tile_avx2;
#[cfg(target_arch = "x86_64")]
mod tile_avx512;

use super::acts::{ActBuf, ActSpan};
#[cfg(target_arch = "x86_64")]
use crate::quant::{Avx2, Vnni};
use crate::quant::{Block, Float, WithBlock, WithFloat, has_kernel, with_block, with_float};
use crate::{Cpu, Isa, Mat, SharedSlice};
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};

/// One product of [`linear`].
pub struct LinearOut<'a> {
    /// Weights `[rows][cols]`.
    pub w: Mat<'a>,
    /// Added to every token's row: `[rows]`.
    pub bias: Option<&'a [f32]>,
    /// The result: `[n_tokens][rows]`.
    pub y: &'a mut [f32],
}

/// Rows that are worked on together, and of which every thread takes a whole number.
const TILE_ROWS: usize = 16;

/// Matrices that one round of the pool takes on.
const MAX_JOBS: usize = 16;

/// Bytes of weights, times tokens, below which waking the pool costs more than it gains.
const WORTH_THREADS: usize = 32 << 10;

/// `y = x·Wᵀ (+ bias)` for every matrix in `outs`, all of which read the same `x` `[n_tokens][cols]`.
///
/// `acts` must have been made for as many tokens and columns. Nothing is allocated here: what a thread
/// unpacks (6 KiB of a quantised matrix, 16 KiB of a float one) lies on its stack.
///
/// # Panics
/// When shapes do not fit each other, or a weight's type has no kernel ([`has_kernel`]).
pub fn linear(
    cpu: &Cpu,
    acts: &mut ActBuf,
    x: &[f32],
    n_tokens: usize,
    outs: &mut [LinearOut<'_>],
) {
    let Some(first) = outs.first() else { return };
    let cols = first.w.cols;
    assert_eq!(x.len(), n_tokens * cols, "x is not [{n_tokens}][{cols}]");
    for out in outs.iter() {
        let Mat { ty, rows, .. } = out.w;
        assert!(has_kernel(ty), "no kernel for {ty}");
        assert_eq!(out.w.cols, cols, "matrices of one call read the same x");
        assert_eq!(
            out.y.len(),
            n_tokens * rows,
            "y is not [{n_tokens}][{rows}]"
        );
        assert!(
            out.bias.is_none_or(|b| b.len() == rows),
            "bias is not [{rows}]"
        );
    }
    if n_tokens == 0 {
        return;
    }
    let quantized = outs
        .iter()
        .any(|out| with_float(out.w.ty, IsFloat).is_none());
    let q: &[ActSpan] = if quantized {
        acts.quantize(cpu, x, n_tokens, cols)
    } else {
        &[]
    };
    let x = Input { x, q, n_tokens };
    for outs in outs.chunks_mut(MAX_JOBS) {
        multiply(cpu, &x, outs);
    }
}

struct IsFloat;
impl WithFloat for IsFloat {
    type Out = ();
    fn call<F: Float>(self) {}
}

/// The input in both forms.
struct Input<'a> {
    /// `[n_tokens][cols]`.
    x: &'a [f32],
    /// `[span][n_tokens]`; empty when no weight asks for it.
    q: &'a [ActSpan],
    n_tokens: usize,
}

/// A product, divided into chunks of rows.
struct Job<'a> {
    w: Mat<'a>,
    bias: Option<&'a [f32]>,
    y: SharedSlice<'a, f32>,
    chunk_rows: usize,
}

impl Job<'_> {
    fn n_chunks(&self) -> usize {
        self.w.rows.div_ceil(self.chunk_rows)
    }

    fn rows(&self, chunk: usize) -> Range<usize> {
        chunk * self.chunk_rows..((chunk + 1) * self.chunk_rows).min(self.w.rows)
    }
}

/// Divides the rows of all matrices into chunks of like bytes and lets the threads take them in turn,
/// so that a slow thread (another program's core, a small core) takes fewer.
fn multiply(cpu: &Cpu, x: &Input<'_>, outs: &mut [LinearOut<'_>]) {
    let kernels = Kernels::of(cpu.isa);
    let total: usize = outs.iter().map(|out| out.w.data.len()).sum();
    let n_threads = if total * x.n_tokens < WORTH_THREADS {
        1
    } else {
        cpu.pool.n_threads()
    };
    // Many tokens make even the smallest chunk worth taking alone.
    let chunk_bytes = if x.n_tokens > 1 {
        0
    } else {
        (total / (8 * n_threads)).min(64 << 10)
    };
    let mut outs = outs.iter_mut();
    let jobs: [Option<Job<'_>>; MAX_JOBS] = std::array::from_fn(|_| {
        outs.next().map(|out| {
            let rows = chunk_bytes / out.w.row_bytes().max(1);
            let chunk_rows = rows.next_multiple_of(TILE_ROWS).max(TILE_ROWS);
            Job {
                w: out.w,
                bias: out.bias,
                y: SharedSlice::new(out.y),
                chunk_rows,
            }
        })
    });
    let jobs = || jobs.iter().flatten();
    let n_chunks: usize = jobs().map(Job::n_chunks).sum();
    let next = AtomicUsize::new(0);
    let work = |_thread: usize| loop {
        let mut chunk = next.fetch_add(1, Ordering::Relaxed);
        if chunk >= n_chunks {
            return;
        }
        for job in jobs() {
            if chunk < job.n_chunks() {
                let rows = job.rows(chunk);
                // SAFETY: each chunk is taken once, and no other has these rows of this job's y.
                let y = unsafe { Rows::new(&job.y, job.w.rows, rows.clone()) };
                kernels.run(job, rows, x, y);
                break;
            }
            chunk -= job.n_chunks();
        }
    };
    if n_threads == 1 {
        work(0)
    } else {
        cpu.pool.run(&work)
    }
}

/// Some of the rows of a matrix, in every token's row of `y`: the part of it that one thread writes.
struct Rows<'a> {
    y: &'a SharedSlice<'a, f32>,
    stride: usize,
    rows: Range<usize>,
}

impl<'a> Rows<'a> {
    /// # Safety
    /// Until the result is dropped, nobody else uses `rows` of any token of `y`, whose tokens lie
    /// `stride` apart.
    unsafe fn new(y: &'a SharedSlice<'a, f32>, stride: usize, rows: Range<usize>) -> Rows<'a> {
        assert!(rows.start <= rows.end && rows.end <= stride);
        Rows { y, stride, rows }
    }

    /// The place of all these rows in token `t`.
    fn token(&mut self, t: usize) -> &mut [f32] {
        let at = t * self.stride;
        // SAFETY: inside the rows that `new` was promised; `&mut self` keeps two of these apart.
        unsafe { self.y.slice_mut(at + self.rows.start..at + self.rows.end) }
    }
}

/// The instruction set, proven present.
#[derive(Clone, Copy)]
enum Kernels {
    Scalar,
    #[cfg(target_arch = "x86_64")]
    Avx2(Avx2),
    #[cfg(target_arch = "x86_64")]
    Avx512(Avx2, Vnni),
}

impl Kernels {
    /// AVX-512 without VNNI gains nothing over AVX2 here and uses its kernels.
    fn of(isa: Isa) -> Kernels {
        match isa {
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2 | Isa::Avx512 => {
                let avx2 =
                    Avx2::detect().expect("an AVX2 instruction set was chosen on a CPU without it");
                match (isa, Vnni::detect()) {
                    (Isa::Avx512, Some(vnni)) => Kernels::Avx512(avx2, vnni),
                    _ => Kernels::Avx2(avx2),
                }
            }
            _ => Kernels::Scalar,
        }
    }

    /// Computes `rows` of a job into `y`.
    fn run(self, job: &Job<'_>, rows: Range<usize>, x: &Input<'_>, y: Rows<'_>) {
        let mut chunk = Chunk {
            w: &job.w,
            bias: job.bias,
            rows,
            x,
            y,
        };
        let block = with_block(job.w.ty, OfBlocks(self, &mut chunk));
        if block.is_none() {
            with_float(job.w.ty, OfFloats(self, &mut chunk)).expect("a type with a kernel");
        }
    }
}

/// Some rows of a product: what a kernel is given.
struct Chunk<'a> {
    w: &'a Mat<'a>,
    bias: Option<&'a [f32]>,
    rows: Range<usize>,
    x: &'a Input<'a>,
    y: Rows<'a>,
}

impl Chunk<'_> {
    /// The bias of row `r`.
    fn bias(&self, r: usize) -> f32 {
        self.bias.map_or(0.0, |b| b[r])
    }

    /// What the products of all tokens are added to.
    fn set_to_bias(&mut self) {
        for t in 0..self.x.n_tokens {
            match self.bias {
                Some(bias) => self.y.token(t).copy_from_slice(&bias[self.rows.clone()]),
                None => self.y.token(t).fill(0.0),
            }
        }
    }
}

struct OfBlocks<'a, 'b>(Kernels, &'a mut Chunk<'b>);

impl WithBlock for OfBlocks<'_, '_> {
    type Out = ();

    fn call<B: Block>(self) {
        let OfBlocks(kernels, chunk) = self;
        match (kernels, chunk.x.n_tokens) {
            (Kernels::Scalar, 1) => scalar::matvec::<B>(chunk),
            (Kernels::Scalar, _) => scalar::matmul::<B>(chunk),
            // SAFETY: the values in `Kernels` prove the target features, here and below.
            #[cfg(target_arch = "x86_64")]
            (Kernels::Avx2(v), 1) => unsafe { matvec::avx2::<B>(v, chunk) },
            #[cfg(target_arch = "x86_64")]
            // SAFETY: see above.
            (Kernels::Avx2(v), _) => unsafe { matmul::avx2::<B>(v, chunk) },
            #[cfg(target_arch = "x86_64")]
            // SAFETY: see above.
            (Kernels::Avx512(_, v), 1) => unsafe { matvec::avx512::<B>(v, chunk) },
            #[cfg(target_arch = "x86_64")]
            // SAFETY: see above.
            (Kernels::Avx512(_, v), _) => unsafe { matmul::avx512::<B>(v, chunk) },
        }
    }
}

struct OfFloats<'a, 'b>(Kernels, &'a mut Chunk<'b>);

impl WithFloat for OfFloats<'_, '_> {
    type Out = ();

    fn call<F: Float>(self) {
        let OfFloats(kernels, chunk) = self;
        match (kernels, chunk.x.n_tokens) {
            (Kernels::Scalar, 1) => float::matvec_scalar::<F>(chunk),
            (Kernels::Scalar, _) => float::matmul_scalar::<F>(chunk),
            #[cfg(target_arch = "x86_64")]
            // SAFETY: `v` proves the target features.
            (Kernels::Avx2(v) | Kernels::Avx512(v, _), 1) => unsafe {
                float::matvec_avx2::<F>(v, chunk)
            },
            #[cfg(target_arch = "x86_64")]
            // SAFETY: `v` proves the target features.
            (Kernels::Avx2(v) | Kernels::Avx512(v, _), _) => unsafe {
                float::matmul_avx2::<F>(v, chunk)
            },
        }
    }
}
