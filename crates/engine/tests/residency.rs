//! However the weights are held, the logits are the same to the bit.

mod support;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use ounce_engine::memory::Residency;
use ounce_engine::model::file::ModelFile;
use ounce_engine::plan::{Device, Fit, Plan, Pool, Verdict};
use ounce_engine::{EngineError, Model, Session, SessionParams};
use support::{data, params, tokens};

static NEVER: AtomicBool = AtomicBool::new(false);

#[test]
fn a_copied_model_says_the_same() {
    type Hold = fn(&mut ModelFile, &mut dyn FnMut(u64, u64)) -> Result<(), EngineError>;
    let logits = |hold: Hold| {
        let mut model = Model::open(&data("golden/llama.Q4_K_M.gguf")).unwrap();
        let (n_bytes, mut last) = (model.spec.file.n_bytes(), (0, 0));
        let file = &mut model.spec.file;
        hold(file, &mut |done, total| last = (done, total)).unwrap();
        assert_eq!(last, (n_bytes, n_bytes));
        let is_copied = model.spec.file.is_copied();
        let mut session = Session::new(Arc::new(model), params(256)).unwrap();
        session.prefill(&tokens(), &NEVER).unwrap();
        (session.decode(7).unwrap().to_vec(), is_copied)
    };
    let mapped = logits(|file, progress| file.prefetch(progress));
    let copied = logits(|file, progress| file.make_direct(progress));
    assert!(!mapped.1 && copied.1);
    assert_eq!(mapped.0, copied.0);
}

#[test]
fn what_is_locked_is_held_against_its_own_limit() {
    let spec = &support::golden("llama.Q4_K_M.gguf").spec;
    let mut device = Device::profile("vm-2gb", None).unwrap();
    let params = SessionParams {
        residency: Residency::Locked,
        ..params(256)
    };
    let plan = Plan::new(spec, params).unwrap();
    assert_eq!(Fit::new(spec, &plan, &device, None).verdict, Verdict::Fits);
    let limit = "ulimit -l".to_owned();
    device.lock = Pool {
        bytes: plan.locked_bytes() - 1,
        limit: limit.clone(),
    };
    assert_eq!(
        Fit::new(spec, &plan, &device, None).verdict,
        Verdict::DoesNotFit { over: 1, limit }
    );
}
