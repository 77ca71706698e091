//! The device as others would recognise it: parts, sizes and limits. No serial number, no name of a host or a user.
//!
//! Read from `/proc` and `/sys`, the same on Linux and Android. What a system does not tell is absent, never guessed.

use std::fs::read_to_string;

use ounce_kernels::Isa;
use serde::Serialize;

use super::arguments::text_without_paths;
use crate::memory::{caps, page_size};

/// What a record says of the device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Fingerprint {
    /// What was planned for: `this machine`, or the name of a profile. The other fields are of this machine in any case.
    pub planned_for: String,
    /// Name of the board, from the device tree.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub board: Option<String>,
    /// What the CPU calls itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu: Option<String>,
    /// ARM's numbers of the kinds of cores.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub cpu_parts: Vec<CpuPart>,
    /// Vector extensions of an x86 CPU, all features of an ARM CPU, as the kernel names them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub cpu_features: Vec<String>,
    /// Instruction set of the kernels.
    pub isa: String,
    /// Logical CPUs that are online.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpus_online: Option<usize>,
    /// Threads that this process may run at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub threads_usable: Option<usize>,
    /// Physical memory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_total_bytes: Option<u64>,
    /// Memory page.
    pub page_size_bytes: usize,
    /// Release of the kernel.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kernel: Option<String>,
    /// Limits on the memory of this process.
    pub limits: Vec<MemoryLimit>,
}

/// A kind of ARM core.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CpuPart {
    /// `CPU implementer`, in hexadecimal: 0x41 is Arm.
    pub implementer: String,
    /// `CPU part`, in hexadecimal.
    pub part: String,
    /// How many of them are online.
    pub cpus: usize,
}

/// A limit on the memory of this process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct MemoryLimit {
    /// Who sets it.
    pub name: String,
    /// The limit.
    pub bytes: u64,
}

impl Fingerprint {
    /// This device, with kernels for `isa`; `planned_for` is `this machine`, or the name of a profile.
    pub fn here(planned_for: &str, isa: Isa) -> Fingerprint {
        let cpuinfo = CpuInfo::parse(&read_to_string("/proc/cpuinfo").unwrap_or_default());
        Fingerprint {
            planned_for: planned_for.to_owned(),
            board: line("/proc/device-tree/model"),
            cpu: cpuinfo.model,
            cpu_parts: cpuinfo.parts,
            cpu_features: cpuinfo.features,
            isa: isa.name().to_owned(),
            cpus_online: (cpuinfo.cpus > 0).then_some(cpuinfo.cpus),
            threads_usable: std::thread::available_parallelism().ok().map(usize::from),
            memory_total_bytes: caps::meminfo().map(|m| m.total),
            page_size_bytes: page_size(),
            kernel: line("/proc/sys/kernel/osrelease"),
            limits: limits(),
        }
    }
}

/// The limits in force; of nested cgroups, which their names do not tell apart here, the tightest.
fn limits() -> Vec<MemoryLimit> {
    let mut found: Vec<MemoryLimit> = Vec::new();
    let all = caps::process_limits().into_iter();
    for limit in all.chain(caps::cgroup_limits()) {
        let name = text_without_paths(&limit.name);
        match found.iter_mut().find(|l| l.name == name) {
            Some(known) => known.bytes = known.bytes.min(limit.limit),
            None => found.push(MemoryLimit {
                name,
                bytes: limit.limit,
            }),
        }
    }
    found
}

/// The text of a file of one line; device trees end theirs with a NUL.
fn line(path: &str) -> Option<String> {
    let text = read_to_string(path).ok()?;
    let text = text.trim_matches(|c: char| c.is_whitespace() || c == '\0');
    (!text.is_empty()).then(|| text.to_owned())
}

/// What is kept of `/proc/cpuinfo`.
#[derive(Debug, Default, PartialEq, Eq)]
struct CpuInfo {
    model: Option<String>,
    parts: Vec<CpuPart>,
    features: Vec<String>,
    cpus: usize,
}

impl CpuInfo {
    /// Reads lines of `key : value`. The serial number that some ARM boards print at the end is not among the keys.
    fn parse(text: &str) -> CpuInfo {
        let mut info = CpuInfo::default();
        let mut implementer = None;
        for (key, value) in text.lines().filter_map(|l| l.split_once(':')) {
            let (key, value) = (key.trim(), value.trim());
            match key {
                "processor" => info.cpus += 1,
                "model name" if info.model.is_none() => info.model = Some(value.to_owned()),
                // x86 lists everything the CPU can; ARM's list is short.
                "flags" if info.features.is_empty() => {
                    let kept = value.split_ascii_whitespace().filter(|f| is_vector(f));
                    info.features = kept.map(str::to_owned).collect();
                }
                "Features" if info.features.is_empty() => {
                    let all = value.split_ascii_whitespace();
                    info.features = all.map(str::to_owned).collect();
                }
                "CPU implementer" => implementer = Some(value),
                "CPU part" => {
                    let Some(implementer) = implementer else {
                        continue;
                    };
                    let is_it = |p: &&mut CpuPart| p.implementer == implementer && p.part == value;
                    match info.parts.iter_mut().find(is_it) {
                        Some(known) => known.cpus += 1,
                        None => info.parts.push(CpuPart {
                            implementer: implementer.to_owned(),
                            part: value.to_owned(),
                            cpus: 1,
                        }),
                    }
                }
                _ => {}
            }
        }
        info
    }
}

/// Whether a feature of an x86 CPU is about vectors or matrices: the others do not bear on speed.
fn is_vector(feature: &str) -> bool {
    const STARTS: [&str; 6] = ["avx", "amx", "fma", "f16c", "sse4_", "ssse3"];
    STARTS.iter().any(|start| feature.starts_with(start))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_x86_cpu() {
        let cpu = "processor\t: 0\nmodel name\t: AMD EPYC\nflags\t\t: fpu sse4_2 avx2 fma rdrand avx512_vnni\n\n";
        let info = CpuInfo::parse(&cpu.repeat(2));
        assert_eq!(info.model.as_deref(), Some("AMD EPYC"));
        assert_eq!(info.features, ["sse4_2", "avx2", "fma", "avx512_vnni"]);
        assert_eq!((info.cpus, info.parts.len()), (2, 0));
    }

    #[test]
    fn a_phone_with_two_kinds_of_cores_and_a_serial_number() {
        let core = |n: u32, part: &str| {
            format!(
                "processor\t: {n}\nBogoMIPS\t: 38.40\nFeatures\t: fp asimd aes asimddp\nCPU implementer\t: 0x41\n\
                 CPU architecture: 8\nCPU part\t: {part}\n\n"
            )
        };
        let text = format!(
            "{}{}{}Hardware\t: X\nSerial\t\t: 10000000abcdef\n",
            core(0, "0xd05"),
            core(1, "0xd05"),
            core(2, "0xd44")
        );
        let info = CpuInfo::parse(&text);
        let parts: Vec<_> = info
            .parts
            .iter()
            .map(|p| (p.implementer.as_str(), p.part.as_str(), p.cpus))
            .collect();
        assert_eq!(parts, [("0x41", "0xd05", 2), ("0x41", "0xd44", 1)]);
        assert_eq!(info.features, ["fp", "asimd", "aes", "asimddp"]);
        assert_eq!((info.model.clone(), info.cpus), (None, 3));
        assert!(!format!("{info:?}").contains("abcdef"));
    }

    #[test]
    fn what_is_not_told_is_absent() {
        assert_eq!(CpuInfo::parse(""), CpuInfo::default());
        assert_eq!(
            CpuInfo::parse("CPU part : 0x1\nnonsense\n").parts,
            Vec::new()
        );
        let mut device = Fingerprint::here("vm-2gb", Isa::Scalar);
        assert!(device.page_size_bytes >= 4096 && device.isa == "scalar");
        (device.cpu, device.board) = (None, None);
        let json = serde_json::to_value(&device).unwrap();
        assert!(json.get("cpu").is_none() && json["planned_for"] == "vm-2gb");
    }
}
