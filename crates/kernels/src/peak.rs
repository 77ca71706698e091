//! What this machine can do at most: the ceilings that kernels are held against.

use std::hint::black_box;
use std::time::{Duration, Instant};

use crate::ops::for_isa;
use crate::{Cpu, Isa};

/// How long a ceiling is looked for: long enough for a clock to settle.
const TIME: Duration = Duration::from_millis(400);

/// Bytes a second that all threads together read `data` with, the best of several passes. Over weights in the page cache
/// this is what a decode step could reach if it did nothing but read.
pub fn read_rate(cpu: &Cpu, data: &[u8]) -> f64 {
    let n = cpu.pool.n_threads();
    let part = data.len().div_ceil(n).next_multiple_of(64);
    let seconds = best(&|| {
        cpu.pool.run(&|i| {
            let start = (i * part).min(data.len());
            let mine = &data[start..(start + part).min(data.len())];
            for_isa!(cpu.isa, sum, (mine: &[u8]));
        });
    });
    data.len() as f64 / seconds
}

/// Reads everything; a sum keeps the reads from being left out.
#[inline(always)]
fn sum(data: &[u8]) {
    let mut sums = [0u64; 32];
    for x in data.as_chunks::<256>().0 {
        for (sum, x) in sums.iter_mut().zip(x.as_chunks::<8>().0) {
            *sum = sum.wrapping_add(u64::from_le_bytes(*x));
        }
    }
    black_box(sums);
}

/// Multiply-adds a second of bytes into 32-bit sums that all threads together reach from registers, with the fastest
/// instructions that the kernels of `cpu` use for products of quantised weights.
pub fn int8_rate(cpu: &Cpu) -> f64 {
    const ROUNDS: usize = 20_000;
    let macs = std::sync::atomic::AtomicUsize::new(0);
    let seconds = best(&|| {
        macs.store(0, std::sync::atomic::Ordering::Relaxed);
        cpu.pool.run(&|_| {
            let done = match cpu.isa {
                #[cfg(target_arch = "x86_64")]
                Isa::Avx512 if x86::has_vnni() => {
                    // SAFETY: the CPU was asked just now.
                    unsafe { x86::vnni(ROUNDS) }
                }
                #[cfg(target_arch = "x86_64")]
                // SAFETY: `Isa` is chosen only where the CPU has these features.
                Isa::Avx2 | Isa::Avx512 => unsafe { x86::avx2(ROUNDS) },
                _ => plain(ROUNDS),
            };
            macs.fetch_add(done, std::sync::atomic::Ordering::Relaxed);
        });
    });
    macs.into_inner() as f64 / seconds
}

/// Multiply-adds of plain Rust, as many as are returned.
fn plain(rounds: usize) -> usize {
    const N: usize = 64;
    let (a, b) = (black_box([3i8; N]), black_box([5i8; N]));
    let mut sums = [0i32; N];
    for _ in 0..rounds {
        for ((sum, a), b) in sums.iter_mut().zip(black_box(&a)).zip(&b) {
            *sum = sum.wrapping_add(i32::from(*a) * i32::from(*b));
        }
    }
    black_box(sums);
    rounds * N
}

/// Seconds of the best run within [`TIME`], of two at least.
fn best(f: &dyn Fn()) -> f64 {
    let (begin, mut best) = (Instant::now(), f64::INFINITY);
    let mut runs = 0;
    while runs < 2 || begin.elapsed() < TIME {
        let start = Instant::now();
        f();
        best = best.min(start.elapsed().as_secs_f64());
        runs += 1;
    }
    best
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::*;
    use std::hint::black_box;

    /// Sums in flight: enough to hide the latency of a product.
    const SUMS: usize = 12;

    pub fn has_vnni() -> bool {
        is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512vnni")
    }

    /// 64 products an instruction.
    #[target_feature(enable = "avx512f,avx512vnni")]
    pub fn vnni(rounds: usize) -> usize {
        let (a, b) = (
            _mm512_set1_epi8(black_box(3)),
            _mm512_set1_epi8(black_box(5)),
        );
        let mut sums = [_mm512_setzero_si512(); SUMS];
        for _ in 0..rounds {
            sums = sums.map(|sum| _mm512_dpbusd_epi32(sum, a, b));
        }
        black_box(sums.map(|sum| _mm512_reduce_add_epi32(sum)));
        rounds * SUMS * 64
    }

    /// 32 products in three instructions.
    #[target_feature(enable = "avx2")]
    pub fn avx2(rounds: usize) -> usize {
        let a = [3, 7, 11].map(|x| _mm256_set1_epi8(black_box(x)));
        let b = [5, 13].map(|x| _mm256_set1_epi8(black_box(x)));
        let ones = _mm256_set1_epi16(black_box(1));
        let mut sums = [[_mm256_setzero_si256(); 3]; 2];
        for round in 0..rounds {
            // Products that change, lest they be computed once.
            let change = _mm256_set1_epi32((round & 1) as i32);
            for (sums, b) in sums.iter_mut().zip(b) {
                let b = _mm256_xor_si256(b, change);
                for (sum, a) in sums.iter_mut().zip(a) {
                    let fours = _mm256_madd_epi16(_mm256_maddubs_epi16(a, b), ones);
                    *sum = _mm256_add_epi32(*sum, fours);
                }
            }
        }
        black_box(sums);
        rounds * 6 * 32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ceilings_are_positive_numbers_in_every_instruction_set() {
        let data = vec![1u8; 1 << 20];
        for isa in [Isa::Scalar, Isa::Avx2, Isa::detect()] {
            if !isa.is_available() {
                continue;
            }
            let cpu = Cpu::new(isa, 2);
            assert!(read_rate(&cpu, &data) > 1e6);
            assert!(int8_rate(&cpu) > 1e6);
        }
    }
}
