//! The real binary, as a user meets it: verbs, flags, errors, exit codes.

mod errors;
mod harness;
mod house;
mod hub;
mod plan;
mod real;
mod run;
mod show;
mod verbs;
