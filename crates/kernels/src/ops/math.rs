//! Elementary functions without branches or tables, so that loops over them vectorise.

/// `e^x` with a relative error below 2e-7 (the polynomial is Cephes' `expf`). NaN stays NaN.
#[inline(always)]
pub fn exp(x: f32) -> f32 {
    const LOG2_E: f32 = std::f32::consts::LOG2_E;
    const LN2_HIGH: f32 = 0.693_359_4;
    const LN2_LOW: f32 = -2.121_944_4e-4;
    /// Adding it rounds to an integer, left in the low bits.
    const ROUND: f32 = 12_582_912.0;
    // Comparisons rather than min and max: those would turn NaN into a number.
    let x = if x < -86.9 { -86.9 } else { x };
    let x = if x > 88.722_84 { 88.722_84 } else { x };
    let t = x * LOG2_E + ROUND;
    let n = t - ROUND;
    let r = x - n * LN2_HIGH - n * LN2_LOW;
    let p = 1.987_569_1e-4;
    let p = p * r + 1.398_199_9e-3;
    let p = p * r + 8.333_452e-3;
    let p = p * r + 4.166_579_6e-2;
    let p = p * r + 1.666_666_5e-1;
    let p = p * r + 5.000_000_3e-1;
    let y = p * r * r + r + 1.0;
    // 2^(n-1) twice: n itself may be one more than an exponent can hold.
    let half = f32::from_bits((t.to_bits() << 23).wrapping_add(126 << 23));
    y * half * 2.0
}

/// `1 / (1 + e^-x)`.
#[inline(always)]
pub fn sigmoid(x: f32) -> f32 {
    1.0 / (1.0 + exp(-x))
}

/// `x · sigmoid(x)` (Elfwing et al., arXiv 1702.03118).
#[inline(always)]
pub fn silu(x: f32) -> f32 {
    x * sigmoid(x)
}

/// Parts of a sum: two registers of AVX2, one of AVX-512.
pub const LANES: usize = 16;

/// The sum of the parts, halves first. Sums of products are made in this order everywhere, which is also llama.cpp's for
/// prefill: the references then differ from us by little more than the last bit.
#[inline(always)]
pub fn sum_lanes(mut s: [f32; LANES]) -> f32 {
    for n in [8, 4, 2, 1] {
        for i in 0..n {
            s[i] += s[i + n];
        }
    }
    s[0]
}

/// Σ a·b.
#[inline(always)]
pub fn dot(a: &[f32], b: &[f32]) -> f32 {
    let mut sums = [0.0f32; LANES];
    let (a, b) = (a.chunks_exact(LANES), b.chunks_exact(LANES));
    let (ra, rb) = (a.remainder(), b.remainder());
    for (a, b) in a.zip(b) {
        for i in 0..LANES {
            sums[i] = a[i].mul_add(b[i], sums[i]);
        }
    }
    for (i, (a, b)) in ra.iter().zip(rb).enumerate() {
        sums[i] = a.mul_add(*b, sums[i]);
    }
    sum_lanes(sums)
}

/// Σ x², in double precision.
#[inline(always)]
pub fn sum_of_squares(x: &[f32]) -> f64 {
    let mut sums = [0.0f64; 8];
    let chunks = x.chunks_exact(8);
    let rest = chunks.remainder();
    for x in chunks {
        for i in 0..8 {
            sums[i] += f64::from(x[i] * x[i]);
        }
    }
    sums.iter().sum::<f64>() + rest.iter().map(|x| f64::from(x * x)).sum::<f64>()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exp_is_close_everywhere() {
        for i in -8690..=8870 {
            let x = i as f32 * 0.01;
            let want = f64::from(x).exp();
            let error = (f64::from(exp(x)) / want - 1.0).abs();
            assert!(error < 2e-7, "{x}: {error:e}");
        }
        assert_eq!(exp(0.0), 1.0);
        assert_eq!(exp(100.0), f32::INFINITY);
        assert!(exp(-1000.0) < 2e-38 && exp(f32::NEG_INFINITY) >= 0.0);
        assert!(exp(f32::NAN).is_nan());
    }

    #[test]
    fn gates_match_their_definitions() {
        for i in -200..=200 {
            let x = i as f32 * 0.1;
            let d = f64::from(x);
            assert!(
                (f64::from(silu(x)) - d / (1.0 + (-d).exp())).abs() < 1e-6 * d.abs().max(1.0),
                "silu {x}"
            );
        }
        assert_eq!(silu(-100.0), -100.0 * sigmoid(-100.0));
        assert!(silu(-100.0).abs() < 1e-30 && silu(f32::NAN).is_nan());
    }
}
