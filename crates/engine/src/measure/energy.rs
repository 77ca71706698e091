//! Energy of the device, where a sensor can be read: RAPL on x86, INA3221 on Jetson, the battery on Android.

use std::fs::File;
use std::path::Path;
use std::time::Duration;

/// A sensor that is open.
pub struct EnergyMeter {
    sensor: Sensor,
    /// Of a counter the joules, of a power sensor the watts, when the step began.
    start: Option<f64>,
}

enum Sensor {
    /// Microjoules that count up and wrap.
    Counters(Vec<Counter>),
    /// Watts now, as millivolts times milliamperes (Jetson) or microvolts times microamperes (battery).
    Power {
        voltage: File,
        current: File,
        /// Watts of one unit of the product.
        scale: f64,
    },
}

struct Counter {
    energy: File,
    /// Joules at which it begins again.
    wraps_at: f64,
    /// What it last stood at.
    last: f64,
    /// Joules of the rounds that were seen to end.
    rounds: f64,
}

impl Counter {
    /// Joules that do not wrap, if it is read once a round: a round takes minutes.
    fn total(&mut self) -> Option<f64> {
        let now = number(&self.energy)? * 1e-6;
        if now < self.last {
            self.rounds += self.wraps_at;
        }
        self.last = now;
        Some(self.rounds + now)
    }
}

impl EnergyMeter {
    /// The first sensor that can be read; most systems have none, or keep it for the superuser.
    pub fn find() -> Option<EnergyMeter> {
        EnergyMeter::find_under(Path::new("/sys"))
    }

    fn find_under(sys: &Path) -> Option<EnergyMeter> {
        let sensor = rapl(sys)
            .or_else(|| ina3221(sys))
            .or_else(|| battery(sys))?;
        let mut meter = EnergyMeter {
            sensor,
            start: None,
        };
        meter.read().is_some().then_some(meter)
    }

    /// What the sensor is.
    pub fn name(&self) -> &'static str {
        match &self.sensor {
            Sensor::Counters(_) => "RAPL, packages",
            Sensor::Power { scale, .. } if *scale == 1e-6 => "INA3221, input",
            Sensor::Power { .. } => "battery",
        }
    }

    /// A step begins. Allocates nothing.
    pub fn start(&mut self) {
        self.start = self.read();
    }

    /// A step of `wall` ends: joules of it. Allocates nothing.
    pub fn stop(&mut self, wall: Duration) -> Option<f64> {
        let (start, end) = (self.start.take()?, self.read()?);
        Some(match &self.sensor {
            Sensor::Counters(_) => end - start,
            Sensor::Power { .. } => (start + end) / 2.0 * wall.as_secs_f64(),
        })
    }

    fn read(&mut self) -> Option<f64> {
        match &mut self.sensor {
            Sensor::Counters(all) => all.iter_mut().map(Counter::total).sum(),
            // The battery's current is negative while it is drained, on some phones.
            Sensor::Power {
                voltage,
                current,
                scale,
            } => Some((number(voltage)? * number(current)? * *scale).abs()),
        }
    }
}

/// The number at the start of a file of sysfs, read without the heap.
fn number(file: &File) -> Option<f64> {
    let mut text = [0u8; 32];
    #[cfg(unix)]
    let n = std::os::unix::fs::FileExt::read_at(file, &mut text, 0).ok()?;
    #[cfg(not(unix))]
    let n = {
        let _ = file;
        0
    };
    std::str::from_utf8(&text[..n]).ok()?.trim().parse().ok()
}

fn number_of(path: &Path) -> Option<f64> {
    number(&File::open(path).ok()?)
}

/// Folders in `folder`, sorted by name.
fn folders(folder: &Path) -> Vec<std::path::PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut all: Vec<_> = entries.map(|e| e.path()).collect();
    all.sort();
    all
}

/// Whole packages: `intel-rapl:0`, not its parts `intel-rapl:0:0`, which it contains, nor `psys`, the platform that
/// contains it.
fn rapl(sys: &Path) -> Option<Sensor> {
    let mut counters = Vec::new();
    for zone in folders(&sys.join("class/powercap")) {
        let name = zone.file_name()?.to_string_lossy().into_owned();
        let is_package =
            || std::fs::read_to_string(zone.join("name")).is_ok_and(|n| n.starts_with("package-"));
        if name.starts_with("intel-rapl:") && name.matches(':').count() == 1 && is_package() {
            counters.push(Counter {
                energy: File::open(zone.join("energy_uj")).ok()?,
                wraps_at: number_of(&zone.join("max_energy_range_uj"))? * 1e-6,
                last: 0.0,
                rounds: 0.0,
            });
        }
    }
    (!counters.is_empty()).then_some(Sensor::Counters(counters))
}

/// The rail that feeds the module: `VDD_IN`, on some boards `5V_IN`.
fn ina3221(sys: &Path) -> Option<Sensor> {
    for chip in folders(&sys.join("class/hwmon")) {
        if std::fs::read_to_string(chip.join("name")).is_ok_and(|n| n.trim() == "ina3221") {
            for i in 1..=3 {
                let label = std::fs::read_to_string(chip.join(format!("in{i}_label")));
                if label.is_ok_and(|l| matches!(l.trim(), "VDD_IN" | "5V_IN")) {
                    return Some(Sensor::Power {
                        voltage: File::open(chip.join(format!("in{i}_input"))).ok()?,
                        current: File::open(chip.join(format!("curr{i}_input"))).ok()?,
                        scale: 1e-6,
                    });
                }
            }
        }
    }
    None
}

fn battery(sys: &Path) -> Option<Sensor> {
    let folder = sys.join("class/power_supply/battery");
    Some(Sensor::Power {
        voltage: File::open(folder.join("voltage_now")).ok()?,
        current: File::open(folder.join("current_now")).ok()?,
        scale: 1e-12,
    })
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;
    use std::path::PathBuf;

    struct Tree(PathBuf);

    impl Tree {
        fn new(name: &str) -> Tree {
            let root =
                std::env::temp_dir().join(format!("ounce-energy-{}-{name}", std::process::id()));
            std::fs::create_dir_all(&root).unwrap();
            Tree(root)
        }

        fn put(&self, path: &str, text: &str) {
            let path = self.0.join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
    }

    impl Drop for Tree {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn counters_are_added_and_wrap() {
        let t = Tree::new("rapl");
        assert!(EnergyMeter::find_under(&t.0).is_none());
        for (zone, name, uj) in [
            ("intel-rapl:0", "package-0", "9000000\n"),
            ("intel-rapl:1", "package-1\n", "1000000\n"),
            ("intel-rapl:2", "psys\n", "x"),
            ("intel-rapl:0:0", "core\n", "x"),
        ] {
            t.put(&format!("class/powercap/{zone}/name"), name);
            t.put(&format!("class/powercap/{zone}/energy_uj"), uj);
            t.put(
                &format!("class/powercap/{zone}/max_energy_range_uj"),
                "10000000\n",
            );
        }
        let mut m = EnergyMeter::find_under(&t.0).unwrap();
        m.start();
        t.put("class/powercap/intel-rapl:1/energy_uj", "3500000\n");
        assert_eq!(m.stop(Duration::from_secs(1)), Some(2.5));
        m.start();
        t.put("class/powercap/intel-rapl:0/energy_uj", "500000\n");
        assert_eq!(m.stop(Duration::from_secs(1)), Some(1.5));
        assert_eq!(m.stop(Duration::from_secs(1)), None, "not started");
        // One wraps while the other goes on by more than that takes off.
        m.start();
        t.put("class/powercap/intel-rapl:0/energy_uj", "400000\n");
        t.put("class/powercap/intel-rapl:1/energy_uj", "9500000\n");
        let joules = m.stop(Duration::from_secs(1)).unwrap();
        assert!((joules - 15.9).abs() < 1e-9, "{joules}");
    }

    #[test]
    fn power_is_multiplied_by_time() {
        let t = Tree::new("ina");
        t.put("class/hwmon/hwmon3/name", "ina3221\n");
        t.put("class/hwmon/hwmon3/in1_label", "VDD_CPU\n");
        t.put("class/hwmon/hwmon3/in2_label", "VDD_IN\n");
        t.put("class/hwmon/hwmon3/in2_input", "5000\n");
        t.put("class/hwmon/hwmon3/curr2_input", "2000\n");
        let mut m = EnergyMeter::find_under(&t.0).unwrap();
        assert_eq!(m.name(), "INA3221, input");
        m.start();
        t.put("class/hwmon/hwmon3/curr2_input", "4000\n");
        let joules = m.stop(Duration::from_millis(500)).unwrap();
        assert!((joules - 7.5).abs() < 1e-9, "{joules}");
    }

    #[test]
    fn a_battery_that_is_drained_counts_positive() {
        let t = Tree::new("battery");
        t.put("class/power_supply/battery/voltage_now", "4000000\n");
        t.put("class/power_supply/battery/current_now", "-500000\n");
        let mut m = EnergyMeter::find_under(&t.0).unwrap();
        m.start();
        let joules = m.stop(Duration::from_secs(1)).unwrap();
        assert!((joules - 2.0).abs() < 1e-9, "{joules}");
        t.put("class/power_supply/battery/voltage_now", "unknown\n");
        m.start();
        assert_eq!(m.stop(Duration::from_secs(1)), None);
    }
}
