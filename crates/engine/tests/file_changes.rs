//! A model file that shrinks, is overwritten or loses its storage while it is in use costs the request, not the process.
#![cfg(target_os = "linux")]

mod support;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ounce_engine::{EngineError, Model, Session};
use support::{data, params, tokens};

static NEVER: AtomicBool = AtomicBool::new(false);

fn copy(name: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("changes-{name}.gguf"));
    restore(&path);
    path
}

fn restore(path: &Path) {
    std::fs::copy(data("golden/gemma3.f32.gguf"), path).unwrap();
}

fn cut(path: &Path, len: u64) {
    let file = std::fs::File::options().write(true).open(path).unwrap();
    file.set_len(len).unwrap();
}

/// Writes the file's pages out and has the kernel drop those that no mapping holds.
fn drop_cache(path: &Path) {
    let args = ["oflag=nocache", "conv=notrunc,fdatasync", "count=0"];
    let of = format!("of={}", path.display());
    let done = Command::new("dd").arg(of).args(args).output().unwrap();
    assert!(done.status.success(), "{done:?}");
}

fn session(path: &Path) -> Session {
    let model = Arc::new(Model::open(path).unwrap());
    Session::new(model, params(4096)).unwrap()
}

/// The first greedy tokens after the prompt of the goldens.
fn greedy(session: &mut Session) -> Vec<u32> {
    session.prefill(&tokens(), &NEVER).unwrap();
    let mut said = Vec::new();
    for _ in 0..16 {
        let best = session.logits().iter().enumerate();
        let best = best.max_by(|a, b| a.1.total_cmp(b.1)).unwrap().0 as u32;
        said.push(best);
        session.decode(best).unwrap();
    }
    said
}

fn names(e: &EngineError, path: &Path) {
    let text = e.to_string();
    assert!(e.is_file_changed(), "{text}");
    assert!(text.starts_with(&path.display().to_string()), "{text}");
    assert_eq!(text.lines().count(), 1, "{text}");
}

/// The error of a decode loop during which `change` happens to the file.
fn error_in_mid_decode(session: &mut Session, change: impl FnOnce() + Send) -> EngineError {
    let started = AtomicBool::new(false);
    std::thread::scope(|s| {
        s.spawn(|| {
            while !started.load(Ordering::Relaxed) {
                std::hint::spin_loop();
            }
            change();
        });
        for i in 0..1_000_000 {
            if session.tokens().len() == session.n_ctx() {
                session.reset();
            }
            if let Err(e) = session.decode(i % 64) {
                return e;
            }
            started.store(i > 8, Ordering::Relaxed);
        }
        panic!("the change was never noticed");
    })
}

#[test]
fn a_change_in_mid_decode_is_an_error_and_a_restored_file_loads_again() {
    type Change = fn(&Path);
    let changes: [(&str, bool, Change); 5] = [
        ("cut", false, |p| cut(p, 4096)),
        ("cut-uncached", true, |p| cut(p, 4096)),
        ("cut-to-nothing", false, |p| cut(p, 0)),
        ("cut-by-a-byte", false, |p| {
            cut(p, p.metadata().unwrap().len() - 1);
        }),
        ("overwritten", false, |p| {
            // A clock of coarse ticks must have moved on since the copy.
            std::thread::sleep(Duration::from_millis(50));
            restore(p);
        }),
    ];
    for (name, uncached, change) in changes {
        let path = copy(name);
        let want = greedy(&mut session(&path));
        if uncached {
            drop_cache(&path);
        }
        let mut session_ = session(&path);
        names(&error_in_mid_decode(&mut session_, || change(&path)), &path);
        assert!(session_.tokens().is_empty(), "{name}: the pass is kept");
        // The model stays failed, whatever the file holds now.
        restore(&path);
        let again = session_.prefill(&tokens(), &NEVER).unwrap_err();
        names(&again, &path);
        let mut rows = 0;
        let all = session_.eval_all(&tokens(), 64, |_| {
            rows += 1;
            Ok::<(), EngineError>(())
        });
        names(&all.unwrap_err(), &path);
        assert_eq!(rows, 0, "{name}: logits of a failed pass were handed out");
        assert_eq!(greedy(&mut session(&path)), want, "{name}");
        std::fs::remove_file(&path).unwrap();
    }
}

/// Pages of the weights that were never read are gone before the first pass touches them.
#[test]
fn a_cut_before_the_first_pass() {
    let path = copy("before");
    drop_cache(&path);
    let mut session = session(&path);
    cut(&path, path.metadata().unwrap().len() / 2);
    names(&session.prefill(&tokens(), &NEVER).unwrap_err(), &path);
    std::fs::remove_file(&path).unwrap();
}

#[test]
fn another_file_under_the_same_name_is_no_change() {
    let path = copy("renamed");
    let mut session = session(&path);
    let want = greedy(&mut session);
    session.reset();
    let other = copy("renamed-other");
    std::fs::write(&other, b"not a model").unwrap();
    std::fs::rename(&other, &path).unwrap();
    assert_eq!(greedy(&mut session), want);
    std::fs::remove_file(&path).unwrap();
}
