//! Bytes as people read them.

use std::fmt;

/// Shows bytes in powers of 1000, as the sizes of downloads are given: `98 MB`, `1.3 GB`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size(pub u64);

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [&str; 6] = ["kB", "MB", "GB", "TB", "PB", "EB"];
        if self.0 < 1000 {
            return write!(f, "{} B", self.0);
        }
        let mut x = self.0 as f64 / 1000.0;
        let mut unit = 0;
        while x >= 999.5 && unit + 1 < UNITS.len() {
            x /= 1000.0;
            unit += 1;
        }
        let digits = usize::from(x < 9.95);
        write!(f, "{x:.digits$} {}", UNITS[unit])
    }
}

#[cfg(test)]
mod tests {
    use super::Size;

    #[test]
    fn sizes_in_units() {
        for (n, wanted) in [
            (0, "0 B"),
            (999, "999 B"),
            (1000, "1.0 kB"),
            (9960, "10 kB"),
            (98_362_432, "98 MB"),
            (999_600, "1.0 MB"),
            (1_270_000_000, "1.3 GB"),
            (u64::MAX, "18 EB"),
        ] {
            assert_eq!(Size(n).to_string(), wanted);
        }
    }
}
