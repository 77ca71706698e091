//! Resident pages by address, from `/proc/self/smaps`: what a section really holds.

use std::ops::Range;

/// One mapping of this process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Area {
    /// Addresses.
    pub range: Range<usize>,
    /// Resident bytes.
    pub rss: u64,
    /// Of these, pages that belong to no file.
    pub anonymous: u64,
    /// What is mapped: a path, `[heap]`, `[stack]`, or nothing.
    pub name: String,
}

/// The mappings of this process; `None` where the kernel does not let it read them.
pub fn areas() -> Option<Vec<Area>> {
    let text = std::fs::read_to_string("/proc/self/smaps").ok()?;
    Some(parse(&text))
}

/// Areas of a text in the format of `proc_pid_smaps(5)`; lines that are not understood are passed over.
fn parse(text: &str) -> Vec<Area> {
    let mut areas: Vec<Area> = Vec::new();
    for line in text.lines() {
        let mut words = line.split_ascii_whitespace();
        let Some(first) = words.next() else { continue };
        let kib = |area: Option<&mut Area>, word: Option<&str>, set: fn(&mut Area, u64)| {
            if let (Some(area), Some(n)) = (area, word.and_then(|w| w.parse::<u64>().ok())) {
                set(area, n.saturating_mul(1024));
            }
        };
        match first {
            "Rss:" => kib(areas.last_mut(), words.next(), |a, n| a.rss = n),
            "Anonymous:" => kib(areas.last_mut(), words.next(), |a, n| a.anonymous = n),
            _ => areas.extend(head(first, line)),
        }
    }
    areas
}

/// The first line of an area: `start-end perms offset device inode name`.
fn head(first: &str, line: &str) -> Option<Area> {
    let (start, end) = first.split_once('-')?;
    let hex = |s| usize::from_str_radix(s, 16).ok();
    let name = line.splitn(6, ' ').nth(5).unwrap_or("").trim();
    Some(Area {
        range: hex(start)?..hex(end)?,
        rss: 0,
        anonymous: 0,
        name: name.to_owned(),
    })
}

/// Resident bytes of the areas that lie wholly within `range`.
pub fn resident_in(areas: &[Area], range: &Range<usize>) -> u64 {
    let inside = |a: &&Area| a.range.start >= range.start && a.range.end <= range.end;
    areas.iter().filter(inside).map(|a| a.rss).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::Region;

    #[test]
    fn areas_are_read() {
        let text = "55d0-55e0 r-xp 00001000 08:01 131 /usr/bin/a b\nSize: 64 kB\nRss:  12 kB\nAnonymous: 4 kB\n\
                    VmFlags: rd ex\n7f00-7f10 rw-p 00000000 00:00 0 \nRss: 8 kB\nnonsense\n";
        let areas = parse(text);
        assert_eq!(areas.len(), 2);
        assert_eq!((areas[0].rss, areas[0].anonymous), (12_288, 4096));
        assert_eq!(
            (areas[0].name.as_str(), areas[1].name.as_str()),
            ("/usr/bin/a b", "")
        );
        assert_eq!(resident_in(&areas, &(0x7000..0x8000)), 8192);
    }

    proptest::proptest! {
        #[test]
        fn garbage_never_panics(text in "[ -~\n]{0,200}") {
            parse(&text);
        }
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn a_region_counts_what_was_written() {
        let mut region = Region::reserve("test", 64 * 4096).unwrap();
        let count = |r: &Region| resident_in(&areas().unwrap(), &r.range());
        assert_eq!(count(&region), 0);
        region.bytes_mut()[..3 * 4096].fill(1);
        assert_eq!(count(&region), 3 * 4096);
        region.release();
        assert_eq!(count(&region), 0);
    }
}
