//! Block types, one file each.
