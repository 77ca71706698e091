//! Pulls one model and prints where it is: `cargo run --example pull -- smollm2`.
use std::time::Instant;

use ounce_store::{Event, ModelRef, Store, StoreError};

fn main() -> Result<(), StoreError> {
    let text = std::env::args()
        .nth(1)
        .unwrap_or_else(|| "smollm2".to_owned());
    let start = Instant::now();
    let mut show = |event| match event {
        Event::Progress { done, total } => eprint!("\r{done} of {total:?} bytes   "),
        other => eprintln!("\n[{:.1} s] {other:?}", start.elapsed().as_secs_f32()),
    };
    let model = text
        .parse::<ModelRef>()
        .and_then(|r| Store::open()?.pull(&r, &mut show));
    match model {
        Ok(model) => println!("{model:#?}"),
        Err(error) => {
            eprintln!("\nerror: {error}");
            std::process::exit(1);
        }
    }
    for line in Store::open()?.list()? {
        println!("{line:?}");
    }
    Ok(())
}
