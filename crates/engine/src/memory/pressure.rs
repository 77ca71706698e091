//! How short memory is, for this machine and for this process's cgroups, and what is to be done about it.
//!
//! Read once a request: a few small files of the kernel. Where a file is missing its signal is missing, and the others
//! decide.

use std::path::{Path, PathBuf};

use super::{Size, caps};

/// What the signals say is to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Nothing.
    Calm,
    /// Give back what can be had again ([`crate::Session::trim`]), for this reason.
    Tight(String),
    /// Refuse new work, for this reason.
    Critical(String),
}

/// Memory that can still be had before something must be swapped or killed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Room {
    /// Bytes; page cache that can be dropped counts as available, mapped weights included.
    pub available: u64,
    /// Of how many: the machine's memory, or the limit of a cgroup.
    pub total: u64,
    /// Whose: `MemAvailable`, or the cgroup's file.
    pub name: String,
}

/// The least room there is; `None` where the kernel does not say.
pub fn room() -> Option<Room> {
    let rooms = rooms(&caps::memory_cgroups());
    rooms.into_iter().min_by_key(|r| r.available)
}

/// The machine's room, and that of each cgroup with a limit.
fn rooms(groups: &[(PathBuf, bool)]) -> Vec<Room> {
    let machine = caps::meminfo().map(|m| Room {
        available: m.available,
        total: m.total,
        name: "MemAvailable".to_owned(),
    });
    let limited = groups
        .iter()
        .filter_map(|(folder, is_v2)| group_room(folder, *is_v2));
    machine.into_iter().chain(limited).collect()
}

fn group_room(folder: &Path, is_v2: bool) -> Option<Room> {
    let (limit, usage) = match is_v2 {
        true => ("memory.max", "memory.current"),
        false => ("memory.limit_in_bytes", "memory.usage_in_bytes"),
    };
    let total: u64 = text(folder, limit)?.trim().parse().ok()?;
    let used: u64 = text(folder, usage)?.trim().parse().ok()?;
    // Version 1 says "none" with a number near the largest.
    (total < 1 << 60).then(|| Room {
        available: total.saturating_sub(
            used.saturating_sub(page_cache(&text(folder, "memory.stat").unwrap_or_default())),
        ),
        total,
        name: folder.join(limit).display().to_string(),
    })
}

fn text(folder: &Path, file: &str) -> Option<String> {
    std::fs::read_to_string(folder.join(file)).ok()
}

/// The number after `key` on a line of its own.
fn field(text: &str, key: &str) -> Option<u64> {
    let line = text
        .lines()
        .find(|l| l.split_ascii_whitespace().next() == Some(key))?;
    line.split_ascii_whitespace().nth(1)?.parse().ok()
}

/// Bytes of a `memory.stat` that can be dropped. Version 1 counts those of the groups below under names of their own.
fn page_cache(stat: &str) -> u64 {
    let of = |total: &str, own: &str| field(stat, total).or_else(|| field(stat, own)).unwrap_or(0);
    of("total_inactive_file", "inactive_file")
        .saturating_add(of("total_active_file", "active_file"))
}

/// Share of the last 10 seconds, in %, in which some task waited for memory: `some avg10=` of a PSI file.
fn stalled(psi: &str) -> Option<f32> {
    let some = psi.lines().find_map(|l| l.strip_prefix("some "))?;
    let avg10 = some
        .split_ascii_whitespace()
        .find_map(|w| w.strip_prefix("avg10="))?;
    avg10
        .parse()
        .ok()
        .filter(|x: &f32| (0.0..=100.0).contains(x))
}

/// What happened in a cgroup since it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Events {
    /// The group was held at its limit: `high` and `max` of version 2, `memory.failcnt` of version 1.
    held: u64,
    /// Memory ran out in it: the larger of `oom` and `oom_kill`, for a kill counts as both.
    out: u64,
}

impl Events {
    /// Reads `memory.events` of version 2.
    fn of_v2(text: &str) -> Events {
        let of = |key| field(text, key).unwrap_or(0);
        Events {
            held: u64::saturating_add(of("high"), of("max")),
            out: of("oom").max(of("oom_kill")),
        }
    }

    fn of_v1(failcnt: &str, oom_control: &str) -> Events {
        Events {
            held: failcnt.trim().parse().unwrap_or(0),
            out: field(oom_control, "oom_kill").unwrap_or(0),
        }
    }

    fn read(folder: &Path, is_v2: bool) -> Events {
        if !is_v2 {
            return Events::of_v1(
                &text(folder, "memory.failcnt").unwrap_or_default(),
                &text(folder, "memory.oom_control").unwrap_or_default(),
            );
        }
        // Without `.local` a group counts what happens to its neighbours below the same parent, too.
        let found = text(folder, "memory.events.local").or_else(|| text(folder, "memory.events"));
        Events::of_v2(&found.unwrap_or_default())
    }
}

/// A cgroup's counters as they were when last looked at.
#[derive(Debug)]
struct Group {
    folder: PathBuf,
    is_v2: bool,
    seen: Events,
}

/// Everything that the verdict rests on.
#[derive(Clone, Debug, Default)]
struct Signals {
    /// Each is judged by its own size: a small cgroup with little left says nothing about a machine that has none.
    rooms: Vec<Room>,
    /// The largest share, and whose file says it.
    stalled: Option<(f32, String)>,
    /// Since the last look, with the group they happened in.
    held: Option<(u64, String)>,
    out: Option<(u64, String)>,
}

impl Signals {
    /// Critical: memory ran out in a cgroup of ours since the last look; or less than 2 % is available (at most 128 MB);
    /// or less than 5 % (at most 512 MB) while tasks wait for memory 40 % of the time. Waiting alone is not: weights that
    /// are streamed from storage wait by design. Tight: less than 10 % (at most 1 GB); or waiting 10 % of the time; or a
    /// cgroup of ours was held at its limit since the last look.
    fn verdict(self) -> Verdict {
        let waiting = self.stalled.as_ref().map_or(0.0, |s| s.0);
        let waits = |(share, file): (f32, String)| {
            format!("tasks waited for memory {share:.0} % of the last 10 s ({file})")
        };
        if let Some((n, folder)) = self.out {
            return Verdict::Critical(format!("memory ran out {n} times in cgroup {folder}"));
        }
        let below = |percent: u64, most: u64| {
            let short = |r: &&Room| r.available < (r.total / 100 * percent).min(most);
            self.rooms.iter().find(short).map(|room| {
                format!(
                    "{} of {} are left ({})",
                    Size(room.available),
                    Size(room.total),
                    room.name
                )
            })
        };
        if let Some(left) = below(2, 128 << 20) {
            return Verdict::Critical(left);
        }
        if let Some(left) = below(5, 512 << 20)
            && waiting >= 40.0
        {
            let waits = self.stalled.map(waits).unwrap_or_default();
            return Verdict::Critical(format!("{left} and {waits}"));
        }
        if let Some(left) = below(10, 1 << 30) {
            return Verdict::Tight(left);
        }
        if waiting >= 10.0 {
            return Verdict::Tight(self.stalled.map(waits).unwrap_or_default());
        }
        if let Some((n, folder)) = self.held {
            return Verdict::Tight(format!("cgroup {folder} was held at its limit {n} times"));
        }
        Verdict::Calm
    }
}

/// Watches the pressure from its making on.
#[derive(Debug)]
pub struct Pressure {
    groups: Vec<Group>,
}

impl Default for Pressure {
    fn default() -> Pressure {
        Pressure::new()
    }
}

impl Pressure {
    /// Notes the counters of this process's cgroups, so that only what happens from now on counts.
    pub fn new() -> Pressure {
        Pressure::of(caps::memory_cgroups())
    }

    pub(crate) fn of(folders: Vec<(PathBuf, bool)>) -> Pressure {
        let group = |(folder, is_v2): (PathBuf, bool)| Group {
            seen: Events::read(&folder, is_v2),
            folder,
            is_v2,
        };
        Pressure {
            groups: folders.into_iter().map(group).collect(),
        }
    }

    /// Reads all signals; events are those since the last look.
    pub fn look(&mut self) -> Verdict {
        let folders: Vec<_> = self
            .groups
            .iter()
            .map(|g| (g.folder.clone(), g.is_v2))
            .collect();
        let mut signals = Signals {
            rooms: rooms(&folders),
            ..Signals::default()
        };
        let of_groups = folders
            .into_iter()
            .map(|(folder, _)| folder.join("memory.pressure"));
        for file in std::iter::once(PathBuf::from("/proc/pressure/memory")).chain(of_groups) {
            let share = std::fs::read_to_string(&file)
                .ok()
                .and_then(|t| stalled(&t));
            if let Some(share) = share
                && signals.stalled.as_ref().is_none_or(|s| share > s.0)
            {
                signals.stalled = Some((share, file.display().to_string()));
            }
        }
        for group in &mut self.groups {
            let now = Events::read(&group.folder, group.is_v2);
            for (n, before, signal) in [
                (now.held, group.seen.held, &mut signals.held),
                (now.out, group.seen.out, &mut signals.out),
            ] {
                if n > before && signal.is_none() {
                    *signal = Some((n - before, group.folder.display().to_string()));
                }
            }
            group.seen = now;
        }
        signals.verdict()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn room(available: u64, total: u64) -> Signals {
        Signals {
            rooms: vec![Room {
                available,
                total,
                name: "MemAvailable".into(),
            }],
            ..Signals::default()
        }
    }

    fn both(mut a: Signals, b: Signals) -> Signals {
        a.rooms.extend(b.rooms);
        a
    }

    fn waiting(signals: Signals, share: f32) -> Signals {
        Signals {
            stalled: Some((share, "/proc/pressure/memory".into())),
            ..signals
        }
    }

    #[test]
    fn thresholds() {
        const GIB: u64 = 1 << 30;
        const MIB: u64 = 1 << 20;
        let word = |s: Signals| match s.verdict() {
            Verdict::Calm => "calm",
            Verdict::Tight(_) => "tight",
            Verdict::Critical(_) => "critical",
        };
        for (signals, wanted) in [
            (Signals::default(), "calm"),
            (room(4 * GIB, 8 * GIB), "calm"),
            (room(800 * MIB, 8 * GIB), "tight"),
            (room(120 * MIB, 8 * GIB), "critical"),
            (room(2 * GIB, 64 * GIB), "calm"),
            (room(130 * MIB, 64 * GIB), "tight"),
            (room(20 * MIB, 256 * MIB), "tight"),
            (room(4 * MIB, 256 * MIB), "critical"),
            (room(0, 0), "calm"),
            (
                both(room(100 * MIB, 300 * MIB), room(120 * MIB, 8 * GIB)),
                "critical",
            ),
            (
                both(room(120 * MIB, 8 * GIB), room(100 * MIB, 300 * MIB)),
                "critical",
            ),
            (
                both(room(20 * MIB, 256 * MIB), room(4 * GIB, 8 * GIB)),
                "tight",
            ),
            (waiting(room(4 * GIB, 8 * GIB), 9.9), "calm"),
            (waiting(room(4 * GIB, 8 * GIB), 95.0), "tight"),
            (waiting(room(300 * MIB, 8 * GIB), 39.0), "tight"),
            (waiting(room(300 * MIB, 8 * GIB), 40.0), "critical"),
            (
                Signals {
                    held: Some((3, "/g".into())),
                    ..room(4 * GIB, 8 * GIB)
                },
                "tight",
            ),
            (
                Signals {
                    out: Some((1, "/g".into())),
                    ..room(4 * GIB, 8 * GIB)
                },
                "critical",
            ),
        ] {
            assert_eq!(word(signals.clone()), wanted, "{signals:?}");
        }
        let Verdict::Critical(why) = waiting(room(300 << 20, 8 << 30), 41.0).verdict() else {
            panic!("must be critical");
        };
        assert_eq!(
            why,
            "315 MB of 8.6 GB are left (MemAvailable) and tasks waited for memory 41 % of the last 10 s (/proc/pressure/memory)"
        );
    }

    #[test]
    fn texts_of_the_kernel_are_read() {
        let psi = "some avg10=12.50 avg60=1.00 avg300=0.00 total=9\nfull avg10=50.00 avg60=0.00 avg300=0.00 total=1\n";
        assert_eq!(stalled(psi), Some(12.5));
        for bad in [
            "",
            "full avg10=1.00",
            "some avg60=1.00",
            "some avg10=NaN",
            "some avg10=-1",
        ] {
            assert_eq!(stalled(bad), None, "{bad}");
        }
        let v2 = "low 0\nhigh 3\nmax 4\noom 1\noom_kill 2\noom_group_kill 9\n";
        assert_eq!(Events::of_v2(v2), Events { held: 7, out: 2 });
        let v1 = Events::of_v1("12\n", "oom_kill_disable 0\nunder_oom 0\noom_kill 5\n");
        assert_eq!(v1, Events { held: 12, out: 5 });
        assert_eq!(page_cache("anon 5\ninactive_file 7\nactive_file 4\n"), 11);
        assert_eq!(
            page_cache("inactive_file 1\ntotal_inactive_file 7\ntotal_active_file 4\n"),
            11
        );
    }

    /// Both versions as the kernel lays them out, in a folder of ours.
    #[test]
    fn what_happens_in_a_group_counts_once() {
        let root = std::env::temp_dir().join(format!("ounce-cgroup-{}", std::process::id()));
        for is_v2 in [true, false] {
            let folder = root.join(if is_v2 { "v2" } else { "v1" });
            std::fs::create_dir_all(&folder).unwrap();
            let write = |file: &str, text: &str| std::fs::write(folder.join(file), text).unwrap();
            let (limit, usage) = match is_v2 {
                true => ("memory.max", "memory.current"),
                false => ("memory.limit_in_bytes", "memory.usage_in_bytes"),
            };
            write(limit, "100000\n");
            write(usage, "99000\n");
            write("memory.stat", "inactive_file 50000\nactive_file 9000\n");
            let events = |held: u64, out: u64| {
                write(
                    "memory.events.local",
                    &format!("high {held}\nmax 0\noom 0\noom_kill {out}\n"),
                );
                write("memory.failcnt", &format!("{held}\n"));
                write(
                    "memory.oom_control",
                    &format!("under_oom 0\noom_kill {out}\n"),
                );
            };
            events(5, 1);
            let room = group_room(&folder, is_v2).unwrap();
            assert_eq!((room.available, room.total), (60_000, 100_000));
            let mut pressure = Pressure::of(vec![(folder.clone(), is_v2)]);
            // Whatever this machine's own memory says, it is not about this group.
            let says = |p: &mut Pressure, word: &str| match p.look() {
                Verdict::Calm => false,
                Verdict::Tight(why) | Verdict::Critical(why) => why.contains(word),
            };
            assert!(!says(&mut pressure, "limit") && !says(&mut pressure, "ran out"));
            events(5, 3);
            assert!(says(&mut pressure, "ran out 2 times"));
            assert!(!says(&mut pressure, "ran out"));
            // All but a percent of the limit is held by what cannot be dropped.
            write("memory.stat", "inactive_file 0\nactive_file 0\n");
            assert!(matches!(pressure.look(), Verdict::Critical(why) if why.contains(limit)));
            write(limit, "max\n");
            assert_eq!(group_room(&folder, is_v2), None);
        }
        std::fs::remove_dir_all(root).unwrap();
    }

    proptest::proptest! {
        #[test]
        fn garbage_never_panics(text in "(some|high|max|oom|avg10|inactive_file|[ -~\n=]){0,60}", n: u64, m: u64, share: f32) {
            stalled(&text);
            page_cache(&text);
            Events::of_v2(&text);
            Events::of_v1(&text, &text);
            waiting(room(n, m), share).verdict();
        }
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn this_machine_has_room() {
        let room = super::room().unwrap();
        assert!(
            room.available > 0 && room.available <= room.total,
            "{room:?}"
        );
    }
}
