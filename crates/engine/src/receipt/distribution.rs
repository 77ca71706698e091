//! What many measured values come to.

use serde::Serialize;

/// Order statistics of a set of values, in their unit.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Distribution {
    /// How many values.
    pub n: usize,
    /// The smallest.
    pub min: f64,
    /// The middle one in order of size; of an even number, the mean of the two in the middle.
    pub median: f64,
    /// The 95th percentile by nearest rank: the smallest value that at least 95 % of all do not exceed.
    pub p95: f64,
    /// The largest.
    pub max: f64,
}

impl Distribution {
    /// Of these values, in any order; `None` where there are none, or one is not finite.
    pub fn of(values: &[f64]) -> Option<Distribution> {
        let mut sorted = values.to_vec();
        sorted.sort_unstable_by(f64::total_cmp);
        let n = sorted.len();
        if n == 0 || sorted.iter().any(|x| !x.is_finite()) {
            return None;
        }
        Some(Distribution {
            n,
            min: sorted[0],
            median: f64::midpoint(sorted[(n - 1) / 2], sorted[n / 2]),
            p95: sorted[(95 * n).div_ceil(100) - 1],
            max: sorted[n - 1],
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn known_sets() {
        let of = |values: &[f64]| {
            let d = Distribution::of(values).unwrap();
            (d.n, d.min, d.median, d.p95, d.max)
        };
        assert_eq!(of(&[3.0]), (1, 3.0, 3.0, 3.0, 3.0));
        assert_eq!(of(&[4.0, 1.0]), (2, 1.0, 2.5, 4.0, 4.0));
        let hundred: Vec<f64> = (1..=100).rev().map(f64::from).collect();
        assert_eq!(of(&hundred), (100, 1.0, 50.5, 95.0, 100.0));
        assert_eq!(of(&hundred[..20]), (20, 81.0, 90.5, 99.0, 100.0));
        assert_eq!(Distribution::of(&[]), None);
        assert_eq!(Distribution::of(&[1.0, f64::NAN]), None);
        assert_eq!(Distribution::of(&[f64::INFINITY]), None);
    }

    proptest! {
        #[test]
        fn by_definition(values in prop::collection::vec(-1e9..1e9f64, 1..200)) {
            let d = Distribution::of(&values).unwrap();
            let at_most = |x: f64| values.iter().filter(|&&v| v <= x).count();
            prop_assert!(values.contains(&d.p95) && 100 * at_most(d.p95) >= 95 * d.n);
            for &smaller in values.iter().filter(|&&v| v < d.p95) {
                prop_assert!(100 * at_most(smaller) < 95 * d.n);
            }
            let below = values.iter().filter(|&&v| v < d.median).count();
            let above = values.iter().filter(|&&v| v > d.median).count();
            prop_assert!(2 * below <= d.n && 2 * above <= d.n);
            prop_assert!(d.min <= d.median && d.median <= d.max && d.p95 <= d.max);
        }
    }
}
