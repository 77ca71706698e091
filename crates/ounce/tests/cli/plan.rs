//! `ounce plan`: verdicts, proposals that hold when pasted, and nothing read but the header.

use ounce_gguf::TensorType;
use ounce_gguf::write::Writer;
use serde_json::{Value, json};

use crate::harness::{Said, model, ounce, scratch, sparse};

fn parsed(said: &Said) -> Value {
    serde_json::from_str(&said.out).unwrap_or_else(|e| panic!("{e}: {said:?}"))
}

fn plan(path: &str, flags: &str) -> (Option<i32>, Value) {
    let mut args = vec!["plan", path, "--json"];
    args.extend(flags.split_whitespace());
    let said = ounce(&args);
    (said.code, parsed(&said))
}

/// Whether a mix called "M" gives `attn_v` and `ffn_down` of layer `i` of `n` more bits, as llama.cpp's `use_more_bits` has
/// it.
fn has_more_bits(i: u64, n: u64) -> bool {
    i < n / 8 || i >= 7 * n / 8 || (i - n / 8) % 3 == 2
}

/// A Qwen3.5 of these dimensions: its header, and as much hole as its weights would take as Q4_K_M. `tied`: the output
/// matrix is the embedding table.
fn qwen35(name: &str, [n_embd, n_layer, n_head, n_kv, n_ff, n_v]: [u64; 6], tied: bool) -> String {
    let (vocab, head, k, d) = (248_320, 256, 16, 128);
    let u = |w: Writer, key: &str, n: u64| w.u32(&format!("qwen35.{key}"), n as u32);
    let mut w = Writer::new().str("general.architecture", "qwen35");
    for (key, n) in [
        ("block_count", n_layer),
        ("context_length", 262_144),
        ("embedding_length", n_embd),
        ("feed_forward_length", n_ff),
        ("attention.head_count", n_head),
        ("attention.head_count_kv", n_kv),
        ("attention.key_length", head),
        ("attention.value_length", head),
        ("rope.dimension_count", 64),
        ("ssm.conv_kernel", 4),
        ("ssm.inner_size", d * n_v),
        ("ssm.state_size", d),
        ("ssm.time_step_rank", n_v),
        ("ssm.group_count", k),
        ("full_attention_interval", 4),
    ] {
        w = u(w, key, n);
    }
    w = w.f32("qwen35.attention.layer_norm_rms_epsilon", 1e-6);
    let (q, q6, f) = (TensorType::Q4_K, TensorType::Q6_K, TensorType::F32);
    let table = if tied { q6 } else { q };
    w = w
        .tensor("token_embd.weight", &[n_embd, vocab], table)
        .tensor("output_norm.weight", &[n_embd], f);
    if !tied {
        w = w.tensor("output.weight", &[n_embd, vocab], q6);
    }
    for i in 0..n_layer {
        let more = if has_more_bits(i, n_layer) { q6 } else { q };
        let (kd, vd) = (d * k, d * n_v);
        let mut add = |tail: &str, dims: &[u64], ty| {
            let w0 = std::mem::take(&mut w);
            w = w0.tensor(&format!("blk.{i}.{tail}"), dims, ty);
        };
        add("attn_norm.weight", &[n_embd], f);
        add("post_attention_norm.weight", &[n_embd], f);
        if (i + 1) % 4 == 0 {
            add("attn_q.weight", &[n_embd, 2 * n_head * head], q);
            add("attn_k.weight", &[n_embd, n_kv * head], q);
            add("attn_v.weight", &[n_embd, n_kv * head], more);
            add("attn_output.weight", &[n_head * head, n_embd], q);
            add("attn_q_norm.weight", &[head], f);
            add("attn_k_norm.weight", &[head], f);
        } else {
            add("attn_qkv.weight", &[n_embd, 2 * kd + vd], q);
            add("attn_gate.weight", &[n_embd, vd], q);
            add("ssm_conv1d.weight", &[4, 2 * kd + vd], f);
            add("ssm_dt.bias", &[n_v], f);
            add("ssm_a", &[n_v], f);
            add("ssm_beta.weight", &[n_embd, n_v], q);
            add("ssm_alpha.weight", &[n_embd, n_v], q);
            add("ssm_norm.weight", &[d], f);
            add("ssm_out.weight", &[vd, n_embd], q);
        }
        add("ffn_gate.weight", &[n_embd, n_ff], q);
        add("ffn_up.weight", &[n_embd, n_ff], q);
        add("ffn_down.weight", &[n_ff, n_embd], more);
    }
    let path = scratch("plan").join(name);
    sparse(&path, &w);
    path.display().to_string()
}

/// 0.8B, 2B and 4B on a Jetson with at least 8k context; a request beyond it is refused, and each proposal holds.
#[test]
fn qwen35_on_an_orin() {
    for (name, dims) in [
        ("qwen35-0.8b.gguf", [1024, 24, 8, 2, 3584, 16]),
        ("qwen35-2b.gguf", [2048, 24, 8, 2, 6144, 16]),
        ("qwen35-4b.gguf", [2560, 32, 16, 4, 9216, 32]),
    ] {
        let path = qwen35(name, dims, true);
        let (code, fits) = plan(&path, "--profile orin-8gb");
        assert_eq!(code, Some(0), "{name}: {fits:#}");
        assert!(fits["n_ctx"].as_u64().unwrap() >= 8192, "{name}: {fits:#}");
        let (code, _) = plan(&path, "--profile orin-8gb -c 8192");
        assert_eq!(code, Some(0), "{name}");
        let (code, refused) = plan(&path, "--profile orin-8gb -c 262144 -ctk f32 -ctv f32");
        assert_eq!(code, Some(3), "{name}: {refused:#}");
        proposals_hold(&path, "orin-8gb", &refused);
    }
}

/// 9B has room on a Jetson, with 8k of context; with 32k its weights are streamed, and with all of its context in f32 it is
/// refused.
#[test]
fn qwen35_9b_on_an_orin() {
    let path = qwen35("qwen35-9b.gguf", [4096, 32, 16, 4, 12_288, 32], false);
    let (code, fits) = plan(&path, "--profile orin-8gb -c 8192");
    assert_eq!((code, &fits["verdict"]), (Some(0), &json!("fits")));
    let (code, streams) = plan(&path, "--profile orin-8gb -c 32768");
    assert_eq!((code, &streams["verdict"]), (Some(2), &json!("streams")));
    let (code, refused) = plan(&path, "--profile orin-8gb -c 262144 -ctk f32 -ctv f32");
    assert_eq!(
        (code, &refused["verdict"]),
        (Some(3), &json!("does_not_fit"))
    );
    proposals_hold(&path, "orin-8gb", &refused);
}

/// At least two settings are proposed, those that stream nothing first, and each, when pasted, saves what it says and gets
/// the verdict it says.
fn proposals_hold(path: &str, profile: &str, asked: &Value) {
    let proposals = asked["proposals"].as_array().unwrap();
    assert!(proposals.len() >= 2, "{path}: {asked:#}");
    proposals
        .iter()
        .for_each(|p| holds(path, profile, asked, p));
    let fits = |p: &Value| p["verdict"] == "fits";
    assert!(proposals.is_sorted_by_key(|p| !fits(p)), "{asked:#}");
}

fn holds(path: &str, profile: &str, asked: &Value, proposal: &Value) {
    let held = |json: &Value| {
        let sections = json["sections"].as_array().unwrap().iter();
        let held = sections.filter(|s| s["pool"] == "heap" || s["behaviour"] == "locked");
        held.map(|s| s["bytes"].as_u64().unwrap()).sum::<u64>()
    };
    let flags = proposal["flags"].as_str().unwrap();
    let (code, again) = plan(path, &format!("--profile {profile} {flags}"));
    assert_eq!(again["verdict"], proposal["verdict"], "{flags}: {again:#}");
    assert_ne!(code, Some(3), "{flags}: {again:#}");
    let saves = proposal["saves_bytes"].as_u64().unwrap();
    assert!(saves > 0, "{path}: {flags}");
    // What the process holds before it plans is measured anew by each run.
    let differs = (held(asked) - held(&again)).abs_diff(saves);
    assert!(differs < 4 << 20, "{path}: {flags}: {differs}");
}

/// Nearly full, streamed, locked, copied, many sequences: what would serve better is proposed, and nothing where all is well.
#[test]
fn each_verdict_has_its_proposals() {
    let path = qwen35(
        "qwen35-proposals.gguf",
        [4096, 32, 16, 4, 12_288, 32],
        false,
    );
    let orin = |flags: &str| plan(&path, &format!("--profile orin-8gb {flags}")).1;
    for (flags, verdict) in [
        ("-c 32768", "streams"),
        ("-c 32768 --mlock", "does_not_fit"),
        ("-c 1024 -np 64 --direct", "does_not_fit"),
        ("-c 262144", "does_not_fit"),
    ] {
        let asked = orin(flags);
        assert_eq!(asked["verdict"], verdict, "{flags}: {asked:#}");
        proposals_hold(&path, "orin-8gb", &asked);
        let first = &asked["proposals"][0];
        assert_eq!(first["verdict"], "fits", "{flags}: {asked:#}");
    }
    let full = orin("-c 8192");
    assert_eq!(full["verdict"], "fits");
    let proposals = full["proposals"].as_array().unwrap();
    assert_eq!(proposals.len(), 1, "{full:#}");
    let flags = proposals[0]["flags"].as_str().unwrap();
    assert!(flags.contains("-c 8192 -ctk tq4 -ctv tq4"), "{flags}");
    holds(&path, "orin-8gb", &full, &proposals[0]);
    // There is nothing smaller.
    let tq4 = orin("-c 8192 -ctk tq4 -ctv tq4");
    assert_eq!(tq4["proposals"], json!([]), "{tq4:#}");
    let (_, roomy) = plan(&path, "--profile pi-8gb -c 512 --heap-cap 8G");
    assert_eq!(
        (&roomy["verdict"], &roomy["proposals"]),
        (&json!("fits"), &json!([]))
    );
    let said = ounce(&["plan", &path, "--profile", "orin-8gb", "-c", "8192"]).ok();
    assert!(
        said.out
            .contains("% of memory available on orin-8gb are filled"),
        "{}",
        said.out
    );
    // No setting makes weights smaller.
    let (code, refused) = plan(&path, "--profile orin-8gb -c 512 --heap-cap 20M");
    assert_eq!((code, &refused["proposals"]), (Some(3), &json!([])));
}

/// Where one kind of change is all there is, its next step is proposed too.
#[test]
fn two_proposals_where_two_exist() {
    let path = qwen35("qwen35-two.gguf", [4096, 32, 16, 4, 12_288, 32], false);
    let flags = "-c 32768 -ub 32 -ctk tq4 -ctv tq4";
    let (code, refused) = plan(
        &path,
        &format!("--profile orin-8gb --heap-cap 300M {flags}"),
    );
    assert_eq!(code, Some(3), "{refused:#}");
    proposals_hold(&path, "orin-8gb --heap-cap 300M", &refused);
}

/// A plan takes less than 50 ms on a warm file (about 5 here): the best of five runs of the binary, starting it included.
#[test]
#[cfg(not(debug_assertions))]
fn a_plan_takes_less_than_50_ms() {
    let mut paths = vec![qwen35(
        "qwen35-timed.gguf",
        [4096, 32, 16, 4, 12_288, 32],
        false,
    )];
    paths.extend(crate::harness::real("SmolLM2-135M-Instruct.Q4_1.gguf"));
    paths.extend(crate::harness::real("gemma-3-270m-q4_k_m.gguf"));
    for path in paths {
        for flags in ["", "--heap-cap 20M"] {
            let run = || {
                let start = std::time::Instant::now();
                plan(&path, flags);
                start.elapsed()
            };
            let best = (0..5).map(|_| run()).min().unwrap();
            assert!(best.as_millis() < 50, "{path} {flags}: {best:?}");
        }
    }
}

#[test]
fn weights_larger_than_memory_are_streamed() {
    let path = qwen35("large.gguf", [4096, 48, 16, 4, 12_288, 32], true);
    let (code, streams) = plan(&path, "--profile mobile-2gb -c 512 -ub 64");
    assert_eq!(code, Some(2), "{streams:#}");
    assert_eq!(streams["verdict"], "streams");
    assert!(streams["streamed_bytes_per_token"].as_u64().unwrap() > 1 << 30);
}

#[test]
fn slots_multiply_and_caps_bound() {
    let path = model("llama.f32.gguf");
    let kv = |json: &Value| {
        let sections = json["sections"].as_array().unwrap();
        let kv = sections.iter().find(|s| s["name"] == "KV cache").unwrap();
        kv["bytes"].as_u64().unwrap()
    };
    let (_, one) = plan(&path, "-c 1024");
    let (_, four) = plan(&path, "-c 1024 -np 4");
    assert_eq!(4 * kv(&one), kv(&four));
    let (code, capped) = plan(&path, "-c 1024 --heap-cap 12M");
    assert_eq!(capped["device"]["heap_limit"], "heap cap");
    assert_eq!(capped["headroom_bytes"], 3 << 20);
    assert_eq!(code, Some(if capped["over_bytes"] == 0 { 0 } else { 3 }));
    let text = ounce(&["plan", &path, "-c", "1024"]).ok().out;
    for word in ["KV cache", "forward slab", "headroom", "fits"] {
        assert!(text.contains(word), "{word}: {text}");
    }
}

#[test]
fn flags_that_make_no_sense() {
    let path = model("llama.f32.gguf");
    ounce(&["plan", &path, "--profile", "pdp-11"]).error(&["pdp-11", "orin-8gb"]);
    ounce(&["plan", &path, "--heap-cap", "lots"]).fails(64, &["lots"]);
    ounce(&["plan", &path, "-np", "0"]).fails(64, &["0"]);
    ounce(&["plan", "/no/such.gguf"]).error(&["/no/such.gguf"]);
}
