//! Model names to files.
#![forbid(unsafe_code)]
