//! Operations over rows of floats, one file each.
