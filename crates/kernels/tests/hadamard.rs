//! The random Hadamard transform: orthogonal, its inverse undoes it, and its forms agree to the bit.

mod support;

use ounce_kernels::Isa;
use ounce_kernels::ops::{rotate_heads, unrotate_heads};
use proptest::prelude::*;
use support::random;

fn rotated(isa: Isa, head_dim: usize, x: &[f32]) -> Vec<f32> {
    let mut y = x.to_vec();
    rotate_heads(isa, head_dim, &mut y);
    y
}

fn dot(a: &[f32], b: &[f32]) -> f64 {
    let products = a.iter().zip(b).map(|(a, b)| f64::from(*a) * f64::from(*b));
    products.sum()
}

/// A unit vector becomes its row of the Walsh-Hadamard matrix, of one sign or the other, in its own block only.
#[test]
fn unit_vectors_become_rows_of_the_matrix() {
    for (head_dim, block) in [(1, 1), (4, 4), (64, 64), (96, 32), (256, 256), (512, 256)] {
        let mut n_negative = 0;
        for j in 0..head_dim {
            let mut x = vec![0.0; head_dim];
            x[j] = 1.0;
            let y = rotated(Isa::detect(), head_dim, &x);
            let start = j / block * block;
            n_negative += usize::from(y[start] < 0.0);
            for (i, got) in y.iter().enumerate() {
                let want = if i / block != j / block {
                    0.0
                } else if ((i % block) & (j % block)).count_ones() % 2 == 0 {
                    y[start]
                } else {
                    -y[start]
                };
                assert_eq!(*got, want, "{head_dim}: column {j}, row {i}");
            }
            assert!((y[start].abs() - (block as f32).sqrt().recip()).abs() < 1e-7);
        }
        // The signs are random: neither all alike nor far from half and half.
        let half = head_dim / 2;
        assert!(head_dim < 32 || n_negative.abs_diff(half) <= head_dim / 4);
    }
}

proptest! {
    #[test]
    fn it_is_orthogonal_and_undone(n in 1usize..40, heads in 1usize..4, wide in any::<bool>(), seed in any::<u64>()) {
        let head_dim = if wide { 32 * n } else { n };
        let (a, b) = (random(heads * head_dim, seed), random(heads * head_dim, seed ^ 1));
        let (ra, rb) = (rotated(Isa::Scalar, head_dim, &a), rotated(Isa::Scalar, head_dim, &b));
        let tolerance = 1e-6 * (dot(&a, &a) * dot(&b, &b)).sqrt();
        prop_assert!((dot(&ra, &rb) - dot(&a, &b)).abs() <= tolerance);
        let mut back = ra.clone();
        unrotate_heads(Isa::Scalar, head_dim, &mut back);
        for (x, y) in a.iter().zip(&back) {
            prop_assert!((x - y).abs() < 1e-5, "{x} came back as {y}");
        }
        // The other form, there and back.
        let mut other = rotated(Isa::detect(), head_dim, &a);
        prop_assert_eq!(&other, &ra);
        unrotate_heads(Isa::detect(), head_dim, &mut other);
        prop_assert_eq!(&other, &back);
    }
}
