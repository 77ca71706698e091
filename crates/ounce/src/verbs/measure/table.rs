//! A measurement as a table for people.

use ounce_engine::Session;
use ounce_engine::measure::{Load, Measurement, SectionActual};
use ounce_engine::memory::Faults;
use ounce_engine::memory::probe::Resident;
use ounce_engine::receipt::{Distribution, Fingerprint};

use super::milliseconds;
use crate::out::{self, plain};

/// Prints all of it.
pub fn print(
    session: &Session,
    device: &Fingerprint,
    load: &Load,
    m: &Measurement,
) -> Result<(), out::StdoutError> {
    out::line(title(session))?;
    print_device(device)?;
    print_load(load)?;
    print_steps(m)?;
    print_sections(m)
}

fn print_device(device: &Fingerprint) -> Result<(), out::StdoutError> {
    let named = device.board.as_ref().or(device.cpu.as_ref());
    let cpus = device
        .threads_usable
        .map_or("?".to_owned(), |n| n.to_string());
    let memory = device.memory_total_bytes.map_or("?".to_owned(), out::bytes);
    out::line(format_args!(
        "device    {}, {cpus} CPUs usable, {memory} memory, {} kernels",
        named.map_or("a CPU without a name".to_owned(), |name| plain(name)),
        device.isa,
    ))?;
    if !device.cpu_features.is_empty() {
        out::line(format_args!(
            "features  {}",
            plain(&device.cpu_features.join(" "))
        ))?;
    }
    if !device.limits.is_empty() {
        let limits: Vec<String> = device
            .limits
            .iter()
            .map(|l| format!("{} {}", plain(&l.name), out::bytes(l.bytes)))
            .collect();
        out::line(format_args!("limits    {}", limits.join(", ")))?;
    }
    Ok(())
}

fn print_load(load: &Load) -> Result<(), out::StdoutError> {
    let rss = |r: Option<Resident>| r.map_or("?".to_owned(), |r| out::bytes(r.total()));
    out::line(format_args!(
        "load      {:.0} ms, {} tensors, {} materialised, resident {} before and {} after, {}",
        load.wall.as_secs_f64() * 1e3,
        load.n_tensors,
        load.materialised.map_or("?".to_owned(), out::bytes),
        rss(load.before),
        rss(load.after),
        faults(load.faults)
    ))
}

fn faults(f: Option<Faults>) -> String {
    f.map_or("faults not counted".to_owned(), |f| {
        format!("{} major and {} minor faults", f.major, f.minor)
    })
}

fn print_steps(m: &Measurement) -> Result<(), out::StdoutError> {
    let seconds = m.prefill.as_secs_f64();
    out::line(format_args!(
        "prefill   {} tokens in {:.0} ms, {:.1} tokens/s, {}",
        m.n_prompt,
        seconds * 1e3,
        m.n_prompt as f64 / seconds,
        faults(m.prefill_faults)
    ))?;
    out::line("step        ms   anonymous        file   major   minor  allocations")?;
    let number = |n: Option<u64>| n.map_or("?".to_owned(), |n| n.to_string());
    for (i, s) in m.steps.iter().enumerate() {
        out::line(format_args!(
            "{:>4}{}{:>9.2}  {:>10}  {:>10}  {:>6}  {:>6}  {:>11}",
            i + 1,
            if i < m.n_warmup { "w" } else { " " },
            s.wall.as_secs_f64() * 1e3,
            s.rss.map_or("?".to_owned(), |r| out::bytes(r.anon)),
            s.rss.map_or("?".to_owned(), |r| out::bytes(r.file)),
            number(s.faults.map(|f| f.major)),
            number(s.faults.map(|f| f.minor)),
            number(s.allocations.map(|n| n as u64)),
        ))?;
    }
    let joules = m.joules_per_token();
    let Some(ms) = Distribution::of(&milliseconds(m)) else {
        return Ok(());
    };
    out::line(format_args!(
        "steady    median {:.2} ms a token ({:.1} tokens/s), from {:.2} to {:.2}; {} allocations, {} major faults{}",
        ms.median,
        1e3 / ms.median,
        ms.min,
        ms.max,
        number(m.allocations().map(|n| n as u64)),
        number(m.major_faults()),
        joules
            .zip(m.energy)
            .map_or(String::new(), |(j, sensor)| format!(
                "; {j:.3} J a token ({sensor})"
            )),
    ))
}

fn print_sections(m: &Measurement) -> Result<(), out::StdoutError> {
    out::line("section                    plan    actual    drift")?;
    for s in m.held.sections.iter().filter(|s| !is_empty(s)) {
        out::line(format_args!(
            "  {:<22} {:>8}  {:>8}  {:>7}{}",
            s.section.name,
            out::bytes(s.section.bytes),
            s.actual.map_or("?".to_owned(), out::bytes),
            s.drift()
                .map_or("?".to_owned(), |d| format!("{:+.1} %", d * 1e2)),
            match s.is_kept() {
                Some(false) => "  off by more than 10 %",
                _ => "",
            }
        ))?;
    }
    let held = &m.held;
    let resident = held.resident.map(|r| r.total());
    out::line(format_args!(
        "  {:<22} {:>8}  {:>8}  peak {}",
        "resident in all",
        out::bytes(held.planned),
        resident.map_or("?".to_owned(), out::bytes),
        held.resident.map_or("?".to_owned(), |r| out::bytes(r.peak)),
    ))?;
    out::line(match held.is_kept() {
        Some(true) => "the plan was kept",
        Some(false) => "the plan was not kept",
        None => "the plan was not checked: /proc/self/smaps or status cannot be read here",
    })
}

fn is_empty(s: &SectionActual) -> bool {
    s.section.bytes == 0 && s.actual.is_none_or(|n| n == 0)
}

/// What was measured, in one line.
pub fn title(session: &Session) -> String {
    let p = &session.plan().params;
    let file = session.model().spec.file.path().file_name();
    format!(
        "{}, context {}, cache {}/{}, {} threads, {}",
        file.unwrap_or_default().to_string_lossy(),
        p.n_ctx,
        p.type_k,
        p.type_v,
        p.n_threads,
        p.isa
    )
}
