//! Any bytes as a receipt: refused, or one whose hash does not depend on its layout.
#![no_main]

use libfuzzer_sys::fuzz_target;
use ounce_engine::receipt::{Receipt, diff};

fuzz_target!(|bytes: &[u8]| {
    let Ok(receipt) = Receipt::parse(bytes) else { return };
    let again = Receipt::parse(receipt.to_json().as_bytes()).unwrap();
    assert_eq!(receipt.is_intact(), again.is_intact());
    assert_eq!(diff(&receipt, &again), []);
    assert!(receipt.file_name().bytes().all(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b)));
});
