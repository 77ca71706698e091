//! Headers, sound and unsound: each error by its name, and none of any kind a panic.

use ounce_gguf::write::Writer;
use ounce_gguf::{Error, Header, TensorType, Value, ValueKind, parse, split};
use proptest::prelude::*;

/// A small header with every kind of value, a vocabulary and tensors.
fn writer() -> Writer {
    Writer::new()
        .str("general.architecture", "llama")
        .u32("llama.block_count", 2)
        .f32("llama.eps", 1e-6)
        .bool("yes", true)
        .strings("tokenizer.ggml.tokens", &[b"a", b"\xff\xfe", b""])
        .f32s("tokenizer.ggml.scores", &[0.0, -1.0, -2.0])
        .i32s("tokenizer.ggml.token_type", &[1, 1, 3])
        .u32("tokenizer.ggml.bos_token_id", 2)
        .tensor("token_embd.weight", &[32, 3], TensorType::Q4_0)
        .tensor("norm", &[7], TensorType::F32)
}

#[track_caller]
fn fails(w: Writer) -> Error {
    parse(&w.file()).expect_err("must be refused")
}

#[test]
fn a_sound_header_says_what_was_written() {
    for version in [2, 3] {
        let bytes = writer().version(version).file();
        let h = parse(&bytes).unwrap();
        assert_eq!(
            (h.version, h.alignment, h.file_len),
            (version, 32, bytes.len() as u64)
        );
        let m = &h.metadata;
        assert_eq!(m.required_str("general.architecture"), Ok("llama"));
        assert_eq!(m.required_u32("llama.block_count"), Ok(2));
        assert_eq!(
            (m.f32("llama.eps"), m.f32("llama.block_count")),
            (Ok(Some(1e-6)), Ok(Some(2.0)))
        );
        assert_eq!((m.bool("yes"), m.bool("no")), (Ok(Some(true)), Ok(None)));
        let tokens: Vec<&[u8]> = m
            .required_array("tokenizer.ggml.tokens")
            .unwrap()
            .strings(&bytes)
            .unwrap()
            .collect();
        assert_eq!(tokens, [b"a".as_slice(), b"\xff\xfe", b""]);
        let scores: Vec<f32> = m
            .required_array("tokenizer.ggml.scores")
            .unwrap()
            .f32s(&bytes)
            .unwrap()
            .collect();
        assert_eq!(scores, [0.0, -1.0, -2.0]);
        let types: Vec<i64> = m
            .required_array("tokenizer.ggml.token_type")
            .unwrap()
            .i64s(&bytes)
            .unwrap()
            .collect();
        assert_eq!(types, [1, 1, 3]);
        let keys: Vec<&str> = m.iter().map(|(k, _)| k).collect();
        assert_eq!(
            (keys[0], keys[7], m.len()),
            ("general.architecture", "tokenizer.ggml.bos_token_id", 8)
        );
        let t = h.tensor("token_embd.weight").unwrap();
        assert_eq!(
            (t.dims.as_slice(), t.ty, t.n_elements(), t.n_bytes),
            ([32, 3].as_slice(), TensorType::Q4_0, 96, 54)
        );
        assert_eq!(
            (t.offset, h.tensor("norm").unwrap().offset),
            (h.data_offset, h.data_offset + 64)
        );
        assert!(h.tensor("nothing").is_none() && h.header_len <= h.data_offset);
    }
}

#[test]
fn every_scalar_kind_is_read_and_converted() {
    let w = Writer::new()
        .raw("u8", 0, &[200])
        .raw("i8", 1, &[0xff])
        .raw("u16", 2, &65_535u16.to_le_bytes())
        .raw("i16", 3, &(-2i16).to_le_bytes())
        .raw("i32", 5, &(-3i32).to_le_bytes())
        .raw("u64", 10, &u64::MAX.to_le_bytes())
        .raw("i64", 11, &(1i64 << 40).to_le_bytes())
        .raw("f64", 12, &0.5f64.to_le_bytes());
    let h = parse(&w.file()).unwrap();
    let m = &h.metadata;
    assert_eq!(
        (m.u32("u8"), m.u32("u16")),
        (Ok(Some(200)), Ok(Some(65_535)))
    );
    assert_eq!(
        (m.u64("u64"), m.u64("i64")),
        (Ok(Some(u64::MAX)), Ok(Some(1 << 40)))
    );
    assert_eq!(
        (m.f32("i8"), m.f32("i16"), m.f32("f64")),
        (Ok(Some(-1.0)), Ok(Some(-2.0)), Ok(Some(0.5)))
    );
    for (key, text) in [
        ("i32", "-3"),
        ("u64", "18446744073709551615"),
        ("f64", "0.5"),
    ] {
        let error = m.u32(key).unwrap_err().to_string();
        assert!(error.contains(key) && error.contains(text), "{error}");
    }
    assert!(m.str("u8").is_err() && m.array("u8").is_err() && m.bool("u8").is_err());
    assert_eq!(
        m.required_u32("none"),
        Err(Error::MissingKey("none".into()))
    );
}

#[test]
fn every_array_kind_is_walked_and_decoded() {
    let array = |kind: ValueKind, n: u64, data: &[u8]| {
        [&(kind as u32).to_le_bytes(), &n.to_le_bytes()[..], data].concat()
    };
    let cases = [
        (ValueKind::U8, [1u8, 255].to_vec(), [1.0, 255.0]),
        (ValueKind::I8, [1u8, 255].to_vec(), [1.0, -1.0]),
        (
            ValueKind::U16,
            [1u16, 65_535].map(u16::to_le_bytes).concat(),
            [1.0, 65_535.0],
        ),
        (
            ValueKind::I16,
            [1i16, -1].map(i16::to_le_bytes).concat(),
            [1.0, -1.0],
        ),
        (
            ValueKind::U32,
            [1u32, 1 << 31].map(u32::to_le_bytes).concat(),
            [1.0, 2_147_483_648.0],
        ),
        (
            ValueKind::I32,
            [1i32, -1].map(i32::to_le_bytes).concat(),
            [1.0, -1.0],
        ),
        (
            ValueKind::I64,
            [1i64, -1].map(i64::to_le_bytes).concat(),
            [1.0, -1.0],
        ),
        (
            ValueKind::F32,
            [1f32, -0.5].map(f32::to_le_bytes).concat(),
            [1.0, -0.5],
        ),
        (
            ValueKind::F64,
            [1f64, -0.5].map(f64::to_le_bytes).concat(),
            [1.0, -0.5],
        ),
    ];
    for (kind, data, want) in cases {
        let bytes = Writer::new().raw("a", 9, &array(kind, 2, &data)).file();
        let h = parse(&bytes).unwrap();
        let a = h.metadata.required_array("a").unwrap();
        assert_eq!((a.kind, a.len), (kind, 2));
        let got: Vec<f64> = match kind {
            ValueKind::F32 | ValueKind::F64 => a.f64s(&bytes).unwrap().collect(),
            _ => a.i64s(&bytes).unwrap().map(|x| x as f64).collect(),
        };
        assert_eq!(got, want, "{kind}");
        assert!(a.strings(&bytes).is_err());
        // Other bytes than those parsed are an error, not a panic.
        assert!(matches!(
            a.i64s(&bytes[..4]).err().or(a.f64s(&bytes[..4]).err()),
            Some(Error::ArrayBytes { .. } | Error::ArrayKind { .. })
        ));
    }
    let nested = array(ValueKind::Array, 1, &array(ValueKind::U8, 1, &[0]));
    assert!(matches!(fails(Writer::new().raw("a", 9, &nested)), Error::NestedArray(k) if k == "a"));
    assert!(matches!(
        fails(Writer::new().raw("a", 9, &array(ValueKind::Bool, 1, &[2]))),
        Error::Bool { found: 2, .. }
    ));
}

#[test]
fn what_is_no_gguf_is_told_apart() {
    assert_eq!(parse(&[]).unwrap_err(), Error::Empty);
    for (bytes, hint) in [
        (&b"PK\x03\x04...."[..], "zip"),
        (b"<!DOCTYPE html>", "web page"),
        (b"version https://git-lfs", "Git LFS"),
        (b"\x10\0\0\0\0\0\0\0{\"a\":1}", "safetensors"),
        (b"ggjt", "\"ggjt\""),
        (b"GG", "\"GG\""),
    ] {
        let error = parse(bytes).unwrap_err();
        assert!(
            matches!(error, Error::NotGguf { .. }) && error.to_string().contains(hint),
            "{error}"
        );
    }
    assert_eq!(fails(Writer::new().version(1)), Error::Version(1));
    assert_eq!(fails(Writer::new().version(4)), Error::Version(4));
    assert_eq!(
        fails(Writer::new().version(3u32.swap_bytes())),
        Error::BigEndian(0x0300_0000)
    );
}

#[test]
fn metadata_that_cannot_be_is_refused_by_key() {
    assert_eq!(
        fails(Writer::new().u32("k", 1).u32("k", 2)),
        Error::DuplicateKey("k".into())
    );
    assert_eq!(
        fails(Writer::new().raw("k", 13, &[0; 8])),
        Error::ValueType {
            key: "k".into(),
            id: 13
        }
    );
    assert_eq!(
        fails(Writer::new().raw("k", 7, &[2])),
        Error::Bool {
            key: "k".into(),
            found: 2
        }
    );
    assert!(matches!(
        fails(Writer::new().u32("", 1)),
        Error::BadKey { .. }
    ));
    assert!(matches!(
        fails(Writer::new().u32(&"k".repeat(65_536), 1)),
        Error::BadKey { .. }
    ));
    let not_utf8 = [1u64.to_le_bytes().as_slice(), &[0xff]].concat();
    assert!(matches!(
        fails(Writer::new().raw("k", 8, &not_utf8)),
        Error::NotUtf8 { .. }
    ));
    // Counts that the file cannot hold are refused before anything is allocated.
    for huge in [u64::MAX, 1 << 40] {
        let string = huge.to_le_bytes();
        assert!(
            matches!(fails(Writer::new().raw("k", 8, &string)), Error::Count { count, .. } if count == huge)
        );
        let array = [4u32.to_le_bytes().as_slice(), &huge.to_le_bytes()].concat();
        assert!(
            matches!(fails(Writer::new().raw("k", 9, &array)), Error::Count { count, .. } if count == huge)
        );
        let mut bytes = writer().file();
        bytes[8..16].copy_from_slice(&huge.to_le_bytes());
        assert!(matches!(parse(&bytes).unwrap_err(), Error::Count { count, .. } if count == huge));
        bytes[8..16].copy_from_slice(&0u64.to_le_bytes());
        bytes[16..24].copy_from_slice(&huge.to_le_bytes());
        assert!(matches!(parse(&bytes).unwrap_err(), Error::Count { count, .. } if count == huge));
    }
    for bad in [0, 1, 4, 24, 33, 1 << 17] {
        let bytes = Writer::new()
            .raw("general.alignment", 4, &u32::to_le_bytes(bad))
            .file();
        assert_eq!(parse(&bytes).unwrap_err(), Error::Alignment(bad.into()));
    }
    assert_eq!(
        parse(
            &Writer::new()
                .alignment(64)
                .tensor("t", &[3], TensorType::F32)
                .file()
        )
        .unwrap()
        .data_offset
            % 64,
        0
    );
}

#[test]
fn vocabularies_that_contradict_themselves() {
    let tokens = || Writer::new().strings("tokenizer.ggml.tokens", &[b"a", b"b"]);
    assert!(
        matches!(fails(tokens().f32s("tokenizer.ggml.scores", &[0.0])), Error::VocabLength { key, found: 1, wanted: 2 } if key.ends_with("scores"))
    );
    assert!(
        matches!(fails(tokens().i32s("tokenizer.ggml.token_type", &[1; 3])), Error::VocabLength { key, .. } if key.ends_with("token_type"))
    );
    assert!(matches!(
        fails(tokens().u32("tokenizer.ggml.eos_token_id", 2)),
        Error::SpecialId {
            id: 2,
            n_vocab: 2,
            ..
        }
    ));
    assert!(matches!(
        fails(tokens().str("tokenizer.ggml.eos_token_id", "2")),
        Error::KeyType { .. }
    ));
    assert!(
        parse(
            &tokens()
                .raw("tokenizer.ggml.padding_token_id", 5, &(-1i32).to_le_bytes())
                .file()
        )
        .is_ok()
    );
    assert!(
        parse(
            &tokens()
                .u32("tokenizer.ggml.padding_token_id", u32::MAX)
                .file()
        )
        .is_ok()
    );
}

#[test]
fn tensors_that_cannot_be_are_refused_by_name() {
    let raw =
        |dims: &[u64], ty: u32, offset: u64| fails(Writer::new().raw_tensor("t", dims, ty, offset));
    assert!(matches!(raw(&[], 0, 0), Error::DimensionCount { n: 0, .. }));
    assert!(matches!(
        raw(&[1; 5], 0, 0),
        Error::DimensionCount { n: 5, .. }
    ));
    for dims in [
        &[0][..],
        &[1, 0],
        &[u64::MAX, 2],
        &[1 << 32, 1 << 32],
        &[1 << 62, 2],
    ] {
        assert!(
            matches!(raw(dims, 0, 0), Error::Dimensions { .. }),
            "{dims:?}"
        );
    }
    assert!(matches!(
        raw(&[1 << 62], 0, 0),
        Error::Dimensions { .. } | Error::TruncatedData { .. }
    ));
    assert_eq!(
        raw(&[32], 4, 0),
        Error::UnknownType {
            name: "t".into(),
            id: 4
        }
    );
    assert!(matches!(
        raw(&[33], 2, 0),
        Error::Block {
            cols: 33,
            block: 32,
            ..
        }
    ));
    assert!(matches!(
        raw(&[32], 0, 8),
        Error::TensorAlignment {
            offset: 8,
            alignment: 32,
            ..
        }
    ));
    assert!(matches!(raw(&[8], 0, 0), Error::TruncatedData { .. }));
    assert!(matches!(
        raw(&[8], 0, u64::MAX - 31),
        Error::TruncatedData { .. }
    ));
    assert!(matches!(
        fails(Writer::new().raw_tensor("", &[1], 0, 0)),
        Error::BadTensorName { .. }
    ));
    assert!(matches!(
        fails(Writer::new().raw_tensor(&"n".repeat(64), &[1], 0, 0)),
        Error::BadTensorName { .. }
    ));
    assert!(
        parse(
            &Writer::new()
                .tensor(&"n".repeat(63), &[1], TensorType::F32)
                .file()
        )
        .is_ok()
    );
    assert_eq!(
        fails(writer().tensor("norm", &[1], TensorType::F32)),
        Error::DuplicateTensor("norm".into())
    );
    let overlap = Writer::new()
        .tensor("a", &[16], TensorType::F32)
        .raw_tensor("b", &[8], 0, 32);
    assert!(matches!(fails(overlap), Error::Overlap { .. }));
}

#[test]
fn every_truncation_is_an_error_of_one_line() {
    let whole = writer().file();
    for len in 0..whole.len() - 1 {
        // The padding behind the last tensor may go; its data may not.
        match parse(&whole[..len]) {
            Ok(h) => assert!(
                h.tensors.iter().all(|t| t.offset + t.n_bytes <= len as u64),
                "{len}"
            ),
            Err(e) => assert_eq!(e.to_string().lines().count(), 1, "{len}"),
        }
    }
}

fn part(no: u32, count: u32, tensor: &str) -> Writer {
    let w = Writer::new()
        .raw("split.no", 2, &(no as u16).to_le_bytes())
        .raw("split.count", 2, &(count as u16).to_le_bytes());
    w.raw("split.tensors.count", 5, &2i32.to_le_bytes())
        .tensor(tensor, &[4], TensorType::F32)
}

fn header(w: Writer) -> Header {
    parse(&w.file()).unwrap()
}

#[test]
fn split_models_are_put_together() {
    let first = header(part(0, 2, "a"));
    assert_eq!(
        split::part_names("m-00001-of-00002.gguf", &first.metadata).unwrap(),
        ["m-00001-of-00002.gguf", "m-00002-of-00002.gguf"]
    );
    // Any part leads to all.
    let second = header(part(1, 2, "b"));
    assert_eq!(
        split::part_names("m-00002-of-00002.gguf", &second.metadata)
            .unwrap()
            .len(),
        2
    );
    assert!(
        split::part_names("renamed.gguf", &first.metadata)
            .unwrap_err()
            .to_string()
            .contains("-00001-of-00002.gguf")
    );
    assert_eq!(
        split::part_names("x.gguf", &header(writer()).metadata).unwrap(),
        ["x.gguf"]
    );
    let huge = header(Writer::new().u32("split.count", 1 << 30));
    assert!(split::part_names("x.gguf", &huge.metadata).is_err());

    let whole = split::merge(vec![first.clone(), second.clone()]).unwrap();
    let files: Vec<(&str, u16)> = whole
        .tensors
        .iter()
        .map(|t| (t.name.as_str(), t.file))
        .collect();
    assert_eq!(files, [("a", 0), ("b", 1)]);
    assert_eq!(whole.tensor("b").unwrap().file, 1);
    for (parts, word) in [
        (vec![second.clone(), first.clone()], "part 1 says"),
        (vec![first.clone()], "there are 2 parts"),
        (
            vec![first.clone(), header(part(1, 3, "b"))],
            "there are 3 parts",
        ),
        (vec![first.clone(), header(part(1, 2, "a"))], "twice"),
        (vec![], "no parts"),
    ] {
        let error = split::merge(parts).unwrap_err().to_string();
        assert!(error.contains(word), "{word}: {error}");
    }
    let short = header(part(0, 1, "a"));
    assert!(
        split::merge(vec![short])
            .unwrap_err()
            .to_string()
            .contains("2 tensors")
    );
}

#[test]
fn the_reference_files_parse() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/data/golden");
    let mut n = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|e| e == "gguf") {
            let bytes = std::fs::read(&path).unwrap();
            let h = parse(&bytes).unwrap();
            assert!(
                h.tensors.len() > 10 && h.tensor("token_embd.weight").is_some(),
                "{}",
                path.display()
            );
            n += 1;
        }
    }
    assert_eq!(n, 8);
}

proptest! {
    #[test]
    fn damage_never_panics(at in any::<prop::sample::Index>(), byte: u8, cut in any::<prop::sample::Index>()) {
        let mut bytes = writer().file();
        let at = at.index(bytes.len());
        bytes[at] = byte;
        let cut = cut.index(bytes.len());
        for bytes in [&bytes[..], &bytes[..cut]] {
            if let Ok(h) = parse(bytes) {
                for (_, value) in h.metadata.iter() {
                    if let Value::Array(a) = value {
                        let _ = (a.strings(bytes).map(Iterator::count), a.i64s(bytes).map(Iterator::count), a.f64s(bytes).map(Iterator::count));
                    }
                }
                prop_assert!(h.tensors.iter().all(|t| t.offset + t.n_bytes <= bytes.len() as u64));
            }
        }
    }
}
