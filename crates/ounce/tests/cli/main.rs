//! The real binary, as a user meets it: verbs, flags, errors, exit codes.

mod bench;
mod errors;
mod harness;
mod house;
mod hub;
#[cfg(target_os = "linux")]
mod limits;
#[cfg(target_os = "linux")]
mod measure;
mod plan;
mod plan_folder;
mod real;
mod receipts;
mod run;
mod show;
mod synthetic;
mod verbs;
