//! Dequantisation against ggml's own, bit for bit (`tests/data/quant`).

use ounce_kernels::TensorType;
use ounce_kernels::quant::{dequantize_row, has_kernel};
use std::path::PathBuf;

/// Rows and data bytes of a little-endian, C-order, two-dimensional `.npy` file.
fn npy(name: &str, descr: &str) -> (usize, Vec<u8>) {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("../../tests/data/quant")
        .join(name);
    let bytes = std::fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    assert_eq!(&bytes[..8], b"\x93NUMPY\x01\x00", "{name}: npy version 1");
    let data = 10 + usize::from(u16::from_le_bytes([bytes[8], bytes[9]]));
    let header = std::str::from_utf8(&bytes[10..data]).unwrap();
    assert!(
        header.contains(&format!("'descr': '{descr}', 'fortran_order': False")),
        "{name}: {header}"
    );
    let shape = header.split_once("'shape': (").unwrap().1;
    let rows = shape.split_once(',').unwrap().0.parse().unwrap();
    (rows, bytes[data..].to_vec())
}

#[test]
fn dequantization_is_bit_equal_to_ggml() {
    use TensorType::*;
    for ty in [
        F16, BF16, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q2_K, Q3_K, Q4_K, Q5_K, Q6_K, IQ4_NL, IQ4_XS,
        IQ3_S, TQ1_0, TQ2_0,
    ] {
        let (rows, raw) = npy(&format!("{ty}.raw.npy"), "|u1");
        let (want_rows, want) = npy(&format!("{ty}.f32.npy"), "<f4");
        assert_eq!((rows, want_rows, want.len()), (3, 3, 3 * 256 * 4), "{ty}");
        let mut got = [0f32; 256];
        for (r, bytes) in raw.chunks_exact(raw.len() / rows).enumerate() {
            dequantize_row(ty, bytes, &mut got);
            for (i, got) in got.iter().enumerate() {
                let at = (r * 256 + i) * 4;
                let want = f32::from_le_bytes(want[at..at + 4].try_into().unwrap());
                assert_eq!(
                    got.to_bits(),
                    want.to_bits(),
                    "{ty} row {r} weight {i}: {got} is not {want}"
                );
            }
        }
    }
}

#[test]
fn f32_is_itself() {
    let x = [1.5f32, -0.0, f32::NAN, f32::INFINITY, 1e-42];
    let bytes: Vec<u8> = x.iter().flat_map(|x| x.to_le_bytes()).collect();
    let mut y = [0.0; 5];
    dequantize_row(TensorType::F32, &bytes, &mut y);
    assert_eq!(x.map(f32::to_bits), y.map(f32::to_bits));
}

#[test]
fn types_without_a_kernel_are_known() {
    let without: Vec<&str> = TensorType::ALL
        .iter()
        .filter(|&&ty| !has_kernel(ty))
        .map(|ty| ty.name())
        .collect();
    assert_eq!(
        without,
        [
            "Q8_1", "Q8_K", "IQ2_XXS", "IQ2_XS", "IQ3_XXS", "IQ1_S", "IQ2_S", "I8", "I16", "I32",
            "I64", "F64", "IQ1_M"
        ]
    );
}

#[test]
fn any_bytes_dequantise_without_a_panic() {
    let mut state = 1u64;
    for &ty in TensorType::ALL.iter().filter(|&&ty| has_kernel(ty)) {
        for n_blocks in 1..=9 {
            let mut bytes = vec![0u8; n_blocks * ty.block_bytes()];
            for b in &mut bytes {
                state = state
                    .wrapping_mul(6364136223846793005)
                    .wrapping_add(1442695040888963407);
                *b = (state >> 56) as u8;
            }
            dequantize_row(ty, &bytes, &mut vec![0.0; n_blocks * ty.block_len()]);
        }
    }
}

#[test]
#[should_panic(expected = "bytes of a Q4_0 row of 64")]
fn a_row_of_the_wrong_length_is_refused() {
    dequantize_row(TensorType::Q4_0, &[0; 35], &mut [0.0; 64]);
}
