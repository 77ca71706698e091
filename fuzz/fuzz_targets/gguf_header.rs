//! Any bytes as a GGUF: parsed or refused; what was parsed is what the file holds.
#![no_main]

use libfuzzer_sys::fuzz_target;
use ounce_gguf::{Value, ValueKind, parse, split};

fuzz_target!(|bytes: &[u8]| {
    let Ok(header) = parse(bytes) else { return };
    for (key, value) in header.metadata.iter() {
        let m = &header.metadata;
        let _ = (m.str(key), m.u32(key), m.u64(key), m.f32(key), m.bool(key), m.array(key));
        if let Value::Array(a) = value {
            // Checked at parse: every element is there.
            let n = match a.kind {
                ValueKind::String => a.strings(bytes).unwrap().count(),
                ValueKind::F32 | ValueKind::F64 => a.f64s(bytes).unwrap().count(),
                _ => a.i64s(bytes).unwrap().count(),
            };
            assert_eq!(n as u64, a.len);
        }
    }
    for t in &header.tensors {
        assert!(t.offset >= header.data_offset && t.offset + t.n_bytes <= bytes.len() as u64);
        assert_eq!(header.tensor(&t.name).unwrap(), t);
    }
    if let Ok(names) = split::part_names("m-00001-of-00002.gguf", &header.metadata) {
        assert!(!names.is_empty());
    }
    let _ = split::merge(vec![header]);
});
