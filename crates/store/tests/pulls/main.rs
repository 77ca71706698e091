//! Pulls against servers and a pip of the test's own. No test leaves this machine.
#![forbid(unsafe_code)]

mod bench;
mod fake_web;
mod hub;
mod plain_url;
mod registry;
mod verbs;
#[cfg(unix)]
mod wheels;
