//! Any bytes as the header of a safetensors file, before as many bytes of tensors as the first eight say: refused, or
//! tensors that fill them.
#![no_main]

use libfuzzer_sys::fuzz_target;
use ounce_engine::safetensors::parse;

fuzz_target!(|bytes: &[u8]| {
    let Some((len, json)) = bytes.split_first_chunk() else { return };
    let len = u64::from_le_bytes(*len);
    let Ok(tensors) = parse(json, len) else { return };
    assert_eq!(tensors.iter().map(|t| t.n_bytes).sum::<u64>(), len);
    for t in &tensors {
        let _ = t.n_elements();
        let _ = t.bytes_as(4.85, 256);
    }
});
