//! The `ounce` binary.
#![forbid(unsafe_code)]
fn main() {}
