//! A SIGBUS that is not about a mapped model goes to whoever took care of it before.
#![cfg(target_os = "linux")]

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};

use ounce_engine::memory::{Mapping, page_size};

/// Addresses that the handler of the host program was called for.
static SEEN: AtomicUsize = AtomicUsize::new(0);
static SENT: AtomicBool = AtomicBool::new(false);

/// What a virtual machine does: makes the page readable that was touched, and goes on.
extern "C" fn host(_signal: i32, info: *mut libc::siginfo_t, _context: *mut libc::c_void) {
    // SAFETY: the kernel passes a valid siginfo; `mmap` puts a page over one of the test's own mapping.
    unsafe {
        if (*info).si_code <= 0 {
            SENT.store(true, SeqCst);
            return;
        }
        let page = (*info).si_addr() as usize & !(page_size() - 1);
        SEEN.store(page, SeqCst);
        libc::mmap(
            page as *mut libc::c_void,
            page_size(),
            libc::PROT_READ,
            libc::MAP_FIXED | libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
            -1,
            0,
        );
    }
}

/// One test, for the handler is that of the whole process.
#[test]
fn other_handlers_keep_their_signals() {
    // SAFETY: `host` has the signature that SA_SIGINFO asks for.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = host as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO;
        assert_eq!(
            libc::sigaction(libc::SIGBUS, &action, std::ptr::null_mut()),
            0
        );
    }
    let file = |name: &str| {
        let path = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        std::fs::write(&path, vec![1; 4 * page_size()]).unwrap();
        path
    };
    let cut = |path: &std::path::Path| {
        let file = std::fs::File::options().write(true).open(path).unwrap();
        file.set_len(page_size() as u64).unwrap();
    };
    let (ours, theirs) = (file("sigbus-ours"), file("sigbus-theirs"));
    let model = Mapping::open(&ours).unwrap();
    // SAFETY: a mapping of a file of the test's own, which `host` looks after.
    let other = unsafe { memmap2::Mmap::map(&std::fs::File::open(&theirs).unwrap()).unwrap() };
    cut(&theirs);
    cut(&ours);

    assert_eq!(std::hint::black_box(&other)[2 * page_size()], 0);
    assert_eq!(
        SEEN.swap(0, SeqCst),
        other.as_ptr() as usize + 2 * page_size()
    );

    assert_eq!(model.bytes()[2 * page_size()], 0);
    assert_eq!(SEEN.load(SeqCst), 0, "ours is not told to others");
    assert!(model.check().is_err());

    // SAFETY: sends a signal to this thread.
    unsafe { libc::raise(libc::SIGBUS) };
    assert!(SENT.load(SeqCst));
    std::fs::remove_file(ours).unwrap();
    std::fs::remove_file(theirs).unwrap();
}
