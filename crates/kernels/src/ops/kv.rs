//! Rows of the key/value cache: their types, how floats become them and come back.

use std::fmt;
use std::str::FromStr;

use super::{for_isa, split, tq4};
use crate::quant::{bf16_to_f32, f16_to_f32, f32_to_bf16, f32_to_f16};
use crate::{Cpu, Isa, SharedSlice};

/// Type of the cache's elements. The quantised ones have the layout of the tensor types of the same name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KvType {
    /// 32-bit floats.
    F32,
    /// 16-bit floats.
    F16,
    /// The upper halves of 32-bit floats.
    BF16,
    /// Blocks of 32 bytes with a scale.
    Q8_0,
    /// Blocks of 32 half bytes with a scale.
    Q4_0,
    /// As large as [`KvType::Q4_0`] and closer: each head is rotated by a random Hadamard transform, then stored in
    /// blocks of the tensor type IQ4_NL. What is stored is the rotated head.
    Tq4,
}

/// A name that is no cache type.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("\"{0}\" is not a cache type; the types are f32, f16, bf16, q8_0, q4_0, tq4")]
pub struct KvTypeError(String);

const BLOCK: usize = 32;

impl KvType {
    /// Every type.
    pub const ALL: [KvType; 6] = [
        KvType::F32,
        KvType::F16,
        KvType::BF16,
        KvType::Q8_0,
        KvType::Q4_0,
        KvType::Tq4,
    ];

    /// Elements of a block; a head must be a multiple of it.
    pub fn block_len(self) -> usize {
        match self {
            KvType::Q8_0 | KvType::Q4_0 => BLOCK,
            KvType::Tq4 => tq4::BLOCK,
            _ => 1,
        }
    }

    /// Bytes of `n` elements, a whole number of blocks.
    pub fn row_bytes(self, n: usize) -> usize {
        n / self.block_len()
            * match self {
                KvType::F32 => 4,
                KvType::F16 | KvType::BF16 => 2,
                KvType::Q8_0 => 2 + BLOCK,
                KvType::Q4_0 => 2 + BLOCK / 2,
                KvType::Tq4 => tq4::BYTES,
            }
    }

    /// The name the command line knows it by.
    pub fn name(self) -> &'static str {
        match self {
            KvType::F32 => "f32",
            KvType::F16 => "f16",
            KvType::BF16 => "bf16",
            KvType::Q8_0 => "q8_0",
            KvType::Q4_0 => "q4_0",
            KvType::Tq4 => "tq4",
        }
    }

    /// Whether the rows hold rotated heads: queries must be rotated to meet such keys, and what is summed of such
    /// values rotated back.
    pub(crate) fn is_rotated(self) -> bool {
        self == KvType::Tq4
    }
}

impl fmt::Display for KvType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for KvType {
    type Err = KvTypeError;

    fn from_str(name: &str) -> Result<KvType, KvTypeError> {
        KvType::ALL
            .into_iter()
            .find(|t| t.name() == name)
            .ok_or_else(|| KvTypeError(name.to_owned()))
    }
}

/// The rows that attention reads, by position. Positions below `n_past` lie in a ring of `n_slots`, position `p` at slot
/// `p % n_slots`; those from `n_past` on lie in `fresh`, in order. A layer that sees everything has all rows in the ring,
/// `n_slots` being the context, and none in `fresh`.
#[derive(Clone, Copy)]
pub struct KvRows<'a> {
    /// Type of the elements.
    pub ty: KvType,
    /// The ring.
    pub past: &'a [u8],
    /// Rows of the ring.
    pub n_slots: usize,
    /// Positions before those of `fresh`.
    pub n_past: usize,
    /// The chunk's own rows, if they are not in the ring yet.
    pub fresh: &'a [u8],
    /// Rows of `fresh`.
    pub n_fresh: usize,
    /// Bytes of a row: all heads of a position.
    pub row_bytes: usize,
}

impl KvRows<'_> {
    /// The bytes of a position's head `h`, each head having `head_bytes`.
    #[inline]
    pub(crate) fn head(&self, position: usize, h: usize, head_bytes: usize) -> &[u8] {
        let (rows, row) = match position.checked_sub(self.n_past) {
            None => (self.past, position % self.n_slots),
            Some(row) => (self.fresh, row),
        };
        let start = row * self.row_bytes + h * head_bytes;
        &rows[start..start + head_bytes]
    }
}

/// Stores heads of `head_dim` floats as `ty`, rounding to nearest (even).
///
/// # Panics
/// When `out` is not as long as `x` takes, `x` is no whole number of heads, or a head no whole number of blocks.
pub fn kv_store(cpu: &Cpu, ty: KvType, head_dim: usize, x: &[f32], out: &mut [u8]) {
    /// Elements to a piece of work: a multiple of every block, those of rotations too.
    const PIECE: usize = 256;
    assert_eq!(x.len() % head_dim, 0);
    assert_eq!(head_dim % ty.block_len(), 0);
    assert_eq!(out.len(), ty.row_bytes(x.len()));
    let out = SharedSlice::new(out);
    let cost = PIECE * if ty.is_rotated() { 32 } else { 4 };
    split::ranges(cpu, x.len().div_ceil(PIECE), cost, &|pieces| {
        let (start, end) = (pieces.start * PIECE, (pieces.end * PIECE).min(x.len()));
        // SAFETY: pieces do not overlap and are whole blocks.
        let out = unsafe { out.slice_mut(ty.row_bytes(start)..ty.row_bytes(end)) };
        store(cpu.isa, ty, head_dim, &x[start..end], out);
    });
}

fn store(isa: Isa, ty: KvType, head_dim: usize, x: &[f32], out: &mut [u8]) {
    match (ty, isa) {
        (KvType::Tq4, _) => tq4::store(isa, head_dim, x, out),
        #[cfg(target_arch = "x86_64")]
        // SAFETY: `Isa` is chosen only where the CPU has F16C.
        (KvType::F16, Isa::Avx2 | Isa::Avx512) => unsafe { x86::store_f16(x, out) },
        _ => for_isa!(isa, store_plain, (ty: KvType, x: &[f32], out: &mut [u8])),
    }
}

#[inline(always)]
fn store_plain(ty: KvType, x: &[f32], out: &mut [u8]) {
    match ty {
        KvType::F32 => store_all(x, out, f32::to_le_bytes),
        KvType::BF16 => store_all(x, out, |x| f32_to_bf16(x).to_le_bytes()),
        KvType::F16 => store_all(x, out, |x| f32_to_f16(x).to_le_bytes()),
        KvType::Q8_0 => {
            for (x, out) in x.chunks_exact(BLOCK).zip(out.chunks_exact_mut(2 + BLOCK)) {
                let max = x.iter().fold(0.0f32, |m, x| m.max(x.abs()));
                let d = max / 127.0;
                let id = if d == 0.0 { 0.0 } else { 1.0 / d };
                out[..2].copy_from_slice(&f32_to_f16(d).to_le_bytes());
                for (q, x) in out[2..].iter_mut().zip(x) {
                    *q = (x * id).round_ties_even() as i8 as u8;
                }
            }
        }
        KvType::Q4_0 => {
            for (x, out) in x
                .chunks_exact(BLOCK)
                .zip(out.chunks_exact_mut(2 + BLOCK / 2))
            {
                // The element of largest magnitude, with its sign, becomes -8 exactly.
                let max = x
                    .iter()
                    .fold(0.0f32, |m, x| if x.abs() > m.abs() { *x } else { m });
                let d = max / -8.0;
                let id = if d == 0.0 { 0.0 } else { 1.0 / d };
                out[..2].copy_from_slice(&f32_to_f16(d).to_le_bytes());
                let q = |x: f32| ((x * id + 8.5) as u8).min(15);
                for (i, byte) in out[2..].iter_mut().enumerate() {
                    *byte = q(x[i]) | q(x[i + BLOCK / 2]) << 4;
                }
            }
        }
        KvType::Tq4 => unreachable!("`store` has sent it to its own file"),
    }
}

#[inline(always)]
fn store_all<const N: usize>(x: &[f32], out: &mut [u8], f: impl Fn(f32) -> [u8; N]) {
    for (x, out) in x.iter().zip(out.chunks_exact_mut(N)) {
        out.copy_from_slice(&f(*x));
    }
}

/// The floats that a head's bytes stand for, rotated where the type is.
pub(crate) fn load(isa: Isa, ty: KvType, bytes: &[u8], out: &mut [f32]) {
    match (ty, isa) {
        (KvType::Tq4, _) => tq4::load(isa, bytes, out),
        #[cfg(target_arch = "x86_64")]
        // SAFETY: `Isa` is chosen only where the CPU has F16C.
        (KvType::F16, Isa::Avx2 | Isa::Avx512) => unsafe { x86::load_f16(bytes, out) },
        _ => for_isa!(isa, load_plain, (ty: KvType, bytes: &[u8], out: &mut [f32])),
    }
}

#[inline(always)]
fn load_plain(ty: KvType, bytes: &[u8], out: &mut [f32]) {
    match ty {
        KvType::F32 => load_all(bytes, out, f32::from_le_bytes),
        KvType::BF16 => load_all(bytes, out, |b| bf16_to_f32(u16::from_le_bytes(b))),
        KvType::F16 => load_all(bytes, out, |b| f16_to_f32(u16::from_le_bytes(b))),
        KvType::Q8_0 => {
            for (b, out) in bytes
                .chunks_exact(2 + BLOCK)
                .zip(out.chunks_exact_mut(BLOCK))
            {
                let d = f16_to_f32(u16::from_le_bytes([b[0], b[1]]));
                for (x, q) in out.iter_mut().zip(&b[2..]) {
                    *x = d * f32::from(*q as i8);
                }
            }
        }
        KvType::Q4_0 => {
            for (b, out) in bytes
                .chunks_exact(2 + BLOCK / 2)
                .zip(out.chunks_exact_mut(BLOCK))
            {
                let d = f16_to_f32(u16::from_le_bytes([b[0], b[1]]));
                let (low, high) = out.split_at_mut(BLOCK / 2);
                for ((l, h), q) in low.iter_mut().zip(high).zip(&b[2..]) {
                    *l = d * f32::from((q & 15) as i8 - 8);
                    *h = d * f32::from((q >> 4) as i8 - 8);
                }
            }
        }
        KvType::Tq4 => unreachable!("`load` has sent it to its own file"),
    }
}

#[inline(always)]
fn load_all<const N: usize>(bytes: &[u8], out: &mut [f32], f: impl Fn([u8; N]) -> f32) {
    for (b, x) in bytes.chunks_exact(N).zip(out) {
        let mut array = [0; N];
        array.copy_from_slice(b);
        *x = f(array);
    }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::*;

    use crate::quant::{f16_to_f32, f32_to_f16};

    #[target_feature(enable = "avx2,fma,f16c")]
    pub fn load_f16(bytes: &[u8], out: &mut [f32]) {
        let (b8, x8) = (bytes.chunks_exact(16), out.chunks_exact_mut(8));
        for (b, x) in b8.zip(x8) {
            // SAFETY: `b` is 16 bytes and `x` is 8 floats; the instructions allow any alignment.
            unsafe {
                _mm256_storeu_ps(
                    x.as_mut_ptr(),
                    _mm256_cvtph_ps(_mm_loadu_si128(b.as_ptr().cast())),
                )
            };
        }
        let done = out.len() / 8 * 8;
        for (b, x) in bytes[2 * done..].chunks_exact(2).zip(&mut out[done..]) {
            *x = f16_to_f32(u16::from_le_bytes([b[0], b[1]]));
        }
    }

    #[target_feature(enable = "avx2,fma,f16c")]
    pub fn store_f16(x: &[f32], out: &mut [u8]) {
        let (x8, b8) = (x.chunks_exact(8), out.chunks_exact_mut(16));
        for (x, b) in x8.zip(b8) {
            // SAFETY: `x` is 8 floats and `b` is 16 bytes; the instructions allow any alignment.
            unsafe {
                let half =
                    _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(_mm256_loadu_ps(x.as_ptr()));
                _mm_storeu_si128(b.as_mut_ptr().cast(), half);
            }
        }
        let done = x.len() / 8 * 8;
        for (x, b) in x[done..].iter().zip(out[2 * done..].chunks_exact_mut(2)) {
            b.copy_from_slice(&f32_to_f16(*x).to_le_bytes());
        }
    }
}
