//! How busy other programs keep the machine, from `/proc/stat`.

#![warn(missing_docs)]

use std::{fmt, fs};

use crate::Stopwatch;

/// Measures the load by other programs from its start to a call of [`LoadWatch::others`].
#[derive(Clone, Copy, Debug)]
pub struct LoadWatch {
    stopwatch: Stopwatch,
    start: Ticks,
}

/// Average number of cores that other programs, the kernel and the host used.
#[allow(missing_docs, reason = "the names say it")]
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct OtherLoad {
    pub used_cores: f64,
    pub cores: usize,
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct Ticks {
    busy: u64,
    all: u64,
    cores: usize,
}

/// Fewest ticks that give a result. A core counts one every 10 ms.
const TICKS_MIN: u64 = 20;

impl LoadWatch {
    /// Starts measuring. Returns `None` if the system does not report the load.
    pub fn start() -> Option<Self> {
        Some(Self { stopwatch: Stopwatch::start(), start: Ticks::now()? })
    }

    /// Returns the load since the start, or `None` if the time was too short, or the system does
    /// not report the load.
    pub fn others(&self) -> Option<OtherLoad> {
        let own_cores = self.stopwatch.elapsed().cpu_percent() / 100.0;
        between(self.start, Ticks::now()?, own_cores)
    }
}

fn between(start: Ticks, end: Ticks, own_cores: f64) -> Option<OtherLoad> {
    let all = end.all.checked_sub(start.all).filter(|all| *all >= TICKS_MIN)?;
    let busy_cores = end.busy.saturating_sub(start.busy) as f64 / all as f64 * end.cores as f64;
    Some(OtherLoad { used_cores: (busy_cores - own_cores).max(0.0), cores: end.cores })
}

impl Ticks {
    fn now() -> Option<Self> {
        Self::of(&fs::read_to_string("/proc/stat").ok()?)
    }

    fn of(stat: &str) -> Option<Self> {
        // The fields are user, nice, system, idle, iowait, irq, softirq and steal. Guest time is
        // part of user.
        let line = stat.lines().find_map(|line| line.strip_prefix("cpu "))?;
        let ticks: Vec<u64> = line.split_whitespace().take(8).map_while(|word| word.parse().ok()).collect();
        let all: u64 = ticks.iter().sum();
        let idle = ticks.get(3)? + ticks.get(4)?;
        let is_core = |line: &&str| line.starts_with("cpu") && !line.starts_with("cpu ");
        Some(Self { busy: all - idle, all, cores: stat.lines().filter(is_core).count().max(1) })
    }
}

impl OtherLoad {
    /// Returns the load as a share of the machine in percent.
    pub fn percent(&self) -> f64 {
        100.0 * self.used_cores / self.cores.max(1) as f64
    }

    /// True if the load may have affected measurements.
    pub fn is_notable(&self) -> bool {
        /// Load in percent up to which the background activity of a machine is normal.
        const PERCENT_MAX: f64 = 10.0;
        self.percent() > PERCENT_MAX
    }
}

/// Writes `other programs used 1.3 of 2 cores`.
impl fmt::Display for OtherLoad {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "other programs used {:.1} of {} cores", self.used_cores, self.cores)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STAT: &str = "cpu  100 0 50 800 50 0 10 40 7 0\ncpu0 1 2 3\ncpu1 1 2 3\nintr 5\n";

    #[test]
    fn what_others_used() {
        let start = Ticks::of(STAT).expect("ticks");
        assert_eq!(start, Ticks { busy: 200, all: 1050, cores: 2 });
        // One second of two cores: 150 of 200 ticks are busy, and this program used one core.
        let end = Ticks { busy: 350, all: 1250, cores: 2 };
        let load = between(start, end, 1.0).expect("long enough");
        assert_eq!((load.to_string().as_str(), load.is_notable()), ("other programs used 0.5 of 2 cores", true));
        assert!(!between(start, end, 1.45).expect("long enough").is_notable());
        assert_eq!(between(start, Ticks { all: 1060, ..end }, 0.0), None);
        assert_eq!(between(end, start, 0.0), None);
        assert_eq!(Ticks::of("cpu  1 2\n"), None);
    }
}
