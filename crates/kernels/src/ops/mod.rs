//! Operations over rows of floats, one file each.
pub mod acts;
pub mod linear;
