mod support;
use ounce_engine::{Session, SessionParams};
use support::*;
#[test]
fn show() {
    let model = golden("gemma3.f32.gguf");
    let want = npy("gemma3.npy");
    let nv = model.hparams.n_vocab;
    for isa in [ounce_kernels::Isa::Avx2, ounce_kernels::Isa::Scalar] {
    let mut s = Session::new(model.clone(), SessionParams{isa, ..params(64)}).unwrap();
    let got = logits(&mut s, &tokens(), &[40]);
    let e: Vec<String> = got.chunks(nv).zip(want.chunks(nv)).map(|(a,b)| format!("{:.1e}", relative_squared_error(a,b).sqrt())).collect();
    println!("{e:?}");
    }
}
