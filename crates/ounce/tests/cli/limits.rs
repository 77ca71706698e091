//! Under limits far below the weights: models load, decode as they do without, and keep their plans.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use ounce_gguf::TensorType;
use ounce_gguf::write::Writer;
use serde_json::Value;

use crate::harness::{Said, command, ounce, real, run_with, scratch, sparse};
use crate::measure::{actual, kept};

/// Runs the binary from a shell that first does `before`.
fn after(before: &str, args: &[&str]) -> Said {
    let plain = command(args);
    let mut shell = Command::new("sh");
    shell
        .args(["-c", &format!("{before}; exec \"$0\" \"$@\"")])
        .arg(plain.get_program())
        .args(args);
    for (key, value) in plain.get_envs() {
        match value {
            Some(value) => shell.env(key, value),
            None => shell.env_remove(key),
        };
    }
    run_with(shell, b"")
}

const MODELS: [&str; 2] = [
    "SmolLM2-135M-Instruct.Q4_1.gguf",
    "gemma-3-270m-q4_k_m.gguf",
];
const PROMPT: [&str; 7] = [
    "-p",
    "The capital of France is",
    "--raw",
    "--temp",
    "0",
    "-n",
    "16",
];

fn run<'a>(model: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    [&["run", model][..], &PROMPT, more].concat()
}

#[test]
fn real_models_under_96_megabytes_of_data() {
    for file in MODELS {
        let Some(path) = real(file) else { return };
        let args = run(&path, &[]);
        let free = ounce(&args).ok().out;
        assert!(free.split_whitespace().count() > 4, "{free}");
        for limit in ["ulimit -d 98304", "ulimit -d 98304 -v 2000000"] {
            assert_eq!(after(limit, &args).ok().out, free, "{file}, {limit}");
        }
        let strict = [args.as_slice(), &["--strict-memory"]].concat();
        assert_eq!(after("ulimit -d 98304", &strict).ok().out, free, "{file}");
        // What cannot fit is refused in one line, before anything is allocated.
        let refused = [
            args.as_slice(),
            &["-c", "8192", "-ctk", "f32", "-ctv", "f32"],
        ]
        .concat();
        after("ulimit -d 98304", &refused).fails(3, &["ulimit -d", "what fits: -c"]);
        if !cfg!(debug_assertions) {
            let said = after(
                "ulimit -d 98304",
                &["measure", &path, "-c", "512", "--json", "--no-receipt"],
            );
            kept(&actual(said));
        }
    }
}

/// The template of a chat is rendered in what the plan leaves, and the mapped file counts once against `ulimit -v`.
#[test]
fn a_chat_prompt_under_tight_limits() {
    let Some(path) = real(MODELS[0]) else { return };
    let chat = ["run", &path, "-p", "Hi", "--temp", "0", "-n", "2"];
    let with = |more: &[&'static str]| [&chat[..], more].concat();
    let large = ["-c", "8192", "-ctk", "f32", "-ctv", "f32"];
    let free = ounce(&with(&large)).ok().out;
    let strict = with(&[&large[..], &["--strict-memory", "--headroom", "64M"]].concat());
    assert_eq!(ounce(&strict).ok().out, free);
    assert_eq!(after("ulimit -d 500000", &with(&large)).ok().out, free);
    let small = with(&["-c", "512"]);
    after("ulimit -v 210000", &small).ok();
    // Refused by the kernel where the plan was overruled: the code of memory that ran out.
    let forced = with(&[&large[..], &["--force"]].concat());
    after("ulimit -v 300000", &forced).fails(71, &["cannot reserve", "ulimit -v"]);
}

/// The shapes of Qwen2.5-1.5B in Q4_K_M, all holes but the row of one token, which therefore follows itself.
fn qwen_1_5b() -> (String, u64) {
    let path = scratch("limits").join("qwen2.5-1.5b-q4_k_m.gguf");
    let (n_embd, n_ff, n_layer, n_kv, n_vocab) = (1536, 8960, 28, 256, 151_936u64);
    let mut w = Writer::new().str("general.architecture", "qwen2");
    for (key, n) in [
        ("block_count", n_layer),
        ("context_length", 32_768),
        ("embedding_length", n_embd),
        ("feed_forward_length", n_ff),
        ("attention.head_count", 12),
        ("attention.head_count_kv", 2),
    ] {
        w = w.u32(&format!("qwen2.{key}"), n as u32);
    }
    w = w
        .f32("qwen2.attention.layer_norm_rms_epsilon", 1e-6)
        .f32("qwen2.rope.freq_base", 1e6);
    // Symbols of the bytes, pairs of them and triples: as many tokens and merges as the real vocabulary has.
    let symbols: Vec<char> = (0x21u32..0x7f)
        .chain(0xa1..0xad)
        .chain(0xae..0x100)
        .chain(0x100..0x144)
        .map(|c| char::from_u32(c).unwrap())
        .collect();
    assert_eq!(symbols.len(), 256);
    let mut tokens: Vec<String> = symbols.iter().map(|c| c.to_string()).collect();
    let mut merges: Vec<String> = Vec::new();
    'full: for left in 0.. {
        for right in &symbols {
            if tokens.len() as u64 == n_vocab {
                break 'full;
            }
            let left: String = tokens[left].clone();
            merges.push(format!("{left} {right}"));
            tokens.push(format!("{left}{right}"));
        }
    }
    let (tokens, merges) = (bytes(&tokens), bytes(&merges));
    w = w
        .str("tokenizer.ggml.model", "gpt2")
        .str("tokenizer.ggml.pre", "qwen2")
        .strings("tokenizer.ggml.tokens", &tokens)
        .strings("tokenizer.ggml.merges", &merges)
        .u32("tokenizer.ggml.eos_token_id", 255);
    let (q4, q6, f) = (TensorType::Q4_K, TensorType::Q6_K, TensorType::F32);
    w = w.tensor("output_norm.weight", &[n_embd], f).tensor(
        "token_embd.weight",
        &[n_embd, n_vocab],
        q6,
    );
    for i in 0..n_layer {
        // llama.cpp's Q4_K_M gives every second of these more bits.
        let more = if i % 2 == 0 { q6 } else { q4 };
        for (tail, dims, ty) in [
            ("attn_norm.weight", &[n_embd][..], f),
            ("attn_q.weight", &[n_embd, n_embd], q4),
            ("attn_q.bias", &[n_embd], f),
            ("attn_k.weight", &[n_embd, n_kv], q4),
            ("attn_k.bias", &[n_kv], f),
            ("attn_v.weight", &[n_embd, n_kv], more),
            ("attn_v.bias", &[n_kv], f),
            ("attn_output.weight", &[n_embd, n_embd], q4),
            ("ffn_norm.weight", &[n_embd], f),
            ("ffn_gate.weight", &[n_embd, n_ff], q4),
            ("ffn_up.weight", &[n_embd, n_ff], q4),
            ("ffn_down.weight", &[n_ff, n_embd], more),
        ] {
            w = w.tensor(&format!("blk.{i}.{tail}"), dims, ty);
        }
    }
    sparse(&path, &w);
    let file = File::options().write(true).open(&path).unwrap();
    let data = w.header().len() as u64;
    let ones: Vec<u8> = std::iter::repeat_n(1f32.to_le_bytes(), n_embd as usize)
        .flatten()
        .collect();
    file.write_all_at(&ones, data).unwrap();
    // Blocks of 256 in 210 bytes: low bits, high bits, 16 scales of 1, and d = 1 as f16: 256 times -32.
    let block = [&[0u8; 192][..], &[1; 16], &[0x00, 0x3c]].concat();
    let row = block.repeat(n_embd as usize / 256);
    let a = symbols.iter().position(|&c| c == 'a').unwrap() as u64;
    file.write_all_at(&row, data + ones.len() as u64 + a * row.len() as u64)
        .unwrap();
    let size = file.metadata().unwrap().len();
    (path.display().to_string(), size)
}

fn bytes(texts: &[String]) -> Vec<&[u8]> {
    texts.iter().map(String::as_bytes).collect()
}

#[test]
fn a_file_four_times_the_heap_cap() {
    let (path, size) = qwen_1_5b();
    assert!(size > 900 << 20, "{size}");
    let plan = ounce(&["plan", &path, "--profile", "mobile-256m", "--json"])
        .ok()
        .out;
    let plan: Value = serde_json::from_str(&plan).unwrap();
    assert_eq!(plan["device"]["heap_limit"], "heap cap");
    assert!(plan["n_ctx"].as_u64().unwrap() >= 1024, "{plan:#}");
    for (limit, flags) in [
        ("ulimit -d 262144", &[][..]),
        ("ulimit -d 262144", &["--strict-memory"]),
        ("true", &["--heap-cap", "256M"]),
    ] {
        let mut args = vec![
            "run", &path, "-p", "a", "--raw", "--temp", "0", "-n", "4", "-v",
        ];
        args.extend(flags);
        let said = after(limit, &args).ok();
        assert_eq!(said.out, "aaaa\n", "{}", said.err);
    }
    if !cfg!(debug_assertions) {
        let args = [
            "measure",
            &path,
            "-c",
            "64",
            "--steps",
            "4",
            "--warmup",
            "2",
            "--json",
            "--no-receipt",
        ];
        let m = actual(after("ulimit -d 262144", &args));
        kept(&m);
        assert!(
            m["load"]["materialised_bytes"].as_u64().unwrap() < 566_000,
            "{m:#}"
        );
    }
}

/// A new memory cgroup below this process's own, removed at the end; `None` where none can be made.
struct Group {
    folder: PathBuf,
    is_v2: bool,
}

impl Group {
    fn new(bytes: u64) -> Option<Group> {
        let text = std::fs::read_to_string("/proc/self/cgroup").ok()?;
        let own = |is_mine: &dyn Fn(&str) -> bool| {
            text.lines().find_map(|l| {
                let mut parts = l.splitn(3, ':').skip(1);
                let controllers = parts.next()?;
                is_mine(controllers).then_some(parts.next()?.to_owned())
            })
        };
        let v1 = own(&|c| c.split(',').any(|c| c == "memory"));
        let (root, path, is_v2) = match v1 {
            Some(path) => ("/sys/fs/cgroup/memory", path, false),
            None => ("/sys/fs/cgroup", own(&|c| c.is_empty())?, true),
        };
        let name = format!("ounce-test-{}", std::process::id());
        let folder = Path::new(root)
            .join(path.trim_start_matches('/'))
            .join(name);
        std::fs::create_dir(&folder).ok()?;
        let group = Group { folder, is_v2 };
        let (limit, no_swap) = match is_v2 {
            true => ("memory.max", ("memory.swap.max", "0")),
            false => ("memory.limit_in_bytes", ("memory.swappiness", "0")),
        };
        std::fs::write(group.folder.join(limit), bytes.to_string()).ok()?;
        // A kernel without swap has no such file.
        let _ = std::fs::write(group.folder.join(no_swap.0), no_swap.1);
        Some(group)
    }

    /// The shell's way in.
    fn enter(&self) -> String {
        let tasks = if self.is_v2 { "cgroup.procs" } else { "tasks" };
        format!("echo $$ > '{}'", self.folder.join(tasks).display())
    }

    fn kills(&self) -> u64 {
        let file = if self.is_v2 {
            "memory.events"
        } else {
            "memory.oom_control"
        };
        let text = std::fs::read_to_string(self.folder.join(file)).unwrap_or_default();
        let line = text.lines().find_map(|l| l.strip_prefix("oom_kill "));
        line.and_then(|n| n.trim().parse().ok()).unwrap_or(0)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir(&self.folder);
    }
}

#[test]
fn half_of_the_weights_in_a_cgroup() {
    for file in MODELS {
        let Some(path) = real(file) else { return };
        let args = run(&path, &["-c", "512"]);
        let free = ounce(&args).ok().out;
        let half = std::fs::metadata(&path).unwrap().len() / 2;
        let Some(group) = Group::new(half) else {
            eprintln!("not run: no memory cgroup can be made here");
            return;
        };
        // A copy made within the group, whose pages are charged to it.
        let copy = scratch("limits").join(file).display().to_string();
        let _ = std::fs::remove_file(&copy);
        let before = format!("{}; cp '{path}' '{copy}'", group.enter());
        let mut args = args.clone();
        args[1] = &copy;
        let said = after(&before, &args).ok();
        assert_eq!(said.out, free, "{file}: {}", said.err);
        assert!(
            said.err.contains("of the weights have no room"),
            "{}",
            said.err
        );
        assert_eq!(group.kills(), 0);
        std::fs::remove_file(&copy).unwrap();
    }
}
