//! Logits of every architecture against the reference, however the tokens are fed.

mod support;

use ounce_engine::{Session, SessionParams};
use ounce_kernels::Isa;
use ounce_kernels::ops::KvType;
use support::{golden, logits, npy, params, relative_squared_error, tokens};

/// At once, token by token, and in uneven chunks.
const FEEDS: [&[usize]; 3] = [&[40], &[1], &[3, 1, 17, 2, 9]];

fn isas() -> Vec<Isa> {
    let best = Isa::choose().unwrap();
    if best == Isa::Scalar {
        vec![best]
    } else {
        vec![best, Isa::Scalar]
    }
}

fn f32_model(arch: &str) {
    let model = golden(&format!("{arch}.f32.gguf"));
    let want = npy(&format!("{arch}.npy"));
    let tokens = tokens();
    let n_vocab = model.spec.hparams.n_vocab;
    assert_eq!(want.len(), tokens.len() * n_vocab);
    for isa in isas() {
        for feed in FEEDS {
            let mut session =
                Session::new(model.clone(), SessionParams { isa, ..params(64) }).unwrap();
            let got = logits(&mut session, &tokens, feed);
            for (pos, (got, want)) in got.chunks(n_vocab).zip(want.chunks(n_vocab)).enumerate() {
                let error = relative_squared_error(got, want).sqrt();
                assert!(
                    error <= 1e-4,
                    "{arch}, {isa}, fed {feed:?}, position {pos}: relative RMS error {error:e}"
                );
            }
        }
    }
}

#[test]
fn llama() {
    f32_model("llama");
}

#[test]
fn qwen2() {
    f32_model("qwen2");
}

#[test]
fn qwen3() {
    f32_model("qwen3");
}

#[test]
fn qwen3moe() {
    f32_model("qwen3moe");
}

#[test]
fn gemma3() {
    f32_model("gemma3");
}

#[test]
fn qwen35() {
    f32_model("qwen35");
}

/// The error to exact arithmetic is not larger than llama.cpp's own.
fn quantised_model(arch: &str) {
    let model = golden(&format!("{arch}.Q4_K_M.gguf"));
    let exact = npy(&format!("{arch}.Q4_K_M.exact.npy"));
    let peer = relative_squared_error(&npy(&format!("{arch}.Q4_K_M.peer.npy")), &exact);
    for isa in isas() {
        for feed in FEEDS {
            let mut session =
                Session::new(model.clone(), SessionParams { isa, ..params(64) }).unwrap();
            let ours = relative_squared_error(&logits(&mut session, &tokens(), feed), &exact);
            println!(
                "{arch}, {isa}, fed {feed:?}: relative squared error {ours:.6}, peer {peer:.6}"
            );
            assert!(
                ours <= peer,
                "{arch}, {isa}, fed {feed:?}: {ours} is larger than the peer's {peer}"
            );
        }
    }
}

#[test]
fn llama_q4_k_m() {
    quantised_model("llama");
}

#[test]
fn qwen35_q4_k_m() {
    quantised_model("qwen35");
}

/// Every cache type gives nearly the logits of the f32 cache: the bound is what the type's rounding costs.
#[test]
fn cache_types() {
    let tokens = tokens();
    for (arch, types) in [
        (
            "qwen3",
            &[
                (KvType::F16, 1e-5),
                (KvType::BF16, 1e-3),
                (KvType::Q8_0, 1e-3),
                (KvType::Q4_0, 0.2),
                (KvType::Tq4, 0.03),
            ][..],
        ),
        (
            "gemma3",
            &[
                (KvType::F16, 1e-5),
                (KvType::BF16, 1e-3),
                (KvType::Q8_0, 1e-3),
                (KvType::Q4_0, 0.2),
                (KvType::Tq4, 0.06),
            ][..],
        ),
        ("llama", &[(KvType::F16, 1e-5), (KvType::BF16, 1e-3)][..]),
    ] {
        let model = golden(&format!("{arch}.f32.gguf"));
        let want = npy(&format!("{arch}.npy"));
        for &(ty, bound) in types {
            for feed in FEEDS {
                let mut session = Session::new(
                    model.clone(),
                    SessionParams {
                        type_k: ty,
                        type_v: ty,
                        ..params(64)
                    },
                )
                .unwrap();
                let error = relative_squared_error(&logits(&mut session, &tokens, feed), &want);
                assert!(error < bound, "{arch}, {ty}, fed {feed:?}: {error}");
            }
        }
    }
}

/// K and V may differ: only what is of a rotated type is rotated.
#[test]
fn cache_types_of_keys_and_values_are_independent() {
    let tokens = tokens();
    for (type_k, type_v) in [(KvType::Tq4, KvType::F16), (KvType::F16, KvType::Tq4)] {
        for arch in ["qwen3", "gemma3"] {
            let params = SessionParams {
                type_k,
                type_v,
                ..params(64)
            };
            let mut session = Session::new(golden(&format!("{arch}.f32.gguf")), params).unwrap();
            let want = npy(&format!("{arch}.npy"));
            let error = relative_squared_error(&logits(&mut session, &tokens, &[3, 1, 17]), &want);
            assert!(error < 0.2, "{arch}, {type_k} and {type_v}: {error}");
        }
    }
}

/// A head of 16 holds no block of 32: refused by name, not rounded up.
#[test]
fn cache_types_that_do_not_fit_the_heads_are_refused() {
    for ty in [KvType::Q8_0, KvType::Q4_0, KvType::Tq4] {
        let params = SessionParams {
            type_k: ty,
            ..params(64)
        };
        let session = Session::new(golden("llama.f32.gguf"), params);
        let error = session.err().unwrap().to_string();
        assert!(error.contains(ty.name()) && error.contains("16"), "{error}");
    }
}

/// A session that was reset, or went back, gives the same logits as a fresh one.
#[test]
fn reset_and_rewind() {
    let tokens = tokens();
    for arch in ["llama", "gemma3", "qwen35"] {
        let model = golden(&format!("{arch}.f32.gguf"));
        let mut session = Session::new(model, params(64)).unwrap();
        let first = logits(&mut session, &tokens, &[40]);
        session.reset();
        assert!(session.tokens().is_empty());
        assert_eq!(
            logits(&mut session, &tokens, &[40]),
            first,
            "{arch} after reset"
        );
        // llama can go back to any position; a window that has dropped rows and a recurrent state start anew.
        let kept = session.rewind(25);
        assert_eq!(kept, if arch == "llama" { 25 } else { 0 }, "{arch}");
        let n_vocab = first.len() / tokens.len();
        let again = logits(&mut session, &tokens[kept..], &[40]);
        let error = relative_squared_error(&again, &first[kept * n_vocab..]);
        assert!(error < 1e-10, "{arch} after rewind: {error}");
    }
}
