//! Where the time went: what `-v` tells at the end.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use slotpress::machine::{LoadWatch, OtherLoad, Stopwatch};
use slotpress::{Elapsed, Part};
use slotpress_base::threads::available_threads;

/// Cores that are busy for this much of the time are what bounds the work.
const BUSY_PERCENT: f64 = 85.0;

/// The time that all workers spent on each part of the work, since the program began.
#[derive(Debug)]
pub struct Spent {
    stopwatch: Stopwatch,
    load: Option<LoadWatch>,
    nanoseconds: [AtomicU64; Part::ALL.len()],
}

impl Default for Spent {
    fn default() -> Self {
        Self { stopwatch: Stopwatch::start(), load: LoadWatch::start(), nanoseconds: Default::default() }
    }
}

impl Spent {
    /// Adds time.
    pub fn add(&self, part: Part, time: Duration) {
        let nanoseconds = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        self.nanoseconds[part as usize].fetch_add(nanoseconds, Relaxed);
    }

    /// In a line; `None` where nothing was told.
    pub fn describe(&self) -> Option<String> {
        let parts: Vec<(Part, f64)> = Part::ALL
            .into_iter()
            .zip(&self.nanoseconds)
            .map(|(part, sum)| (part, Duration::from_nanos(sum.load(Relaxed)).as_secs_f64()))
            .collect();
        let others = self.load.and_then(|load| load.others());
        describe(&parts, &self.stopwatch.elapsed(), available_threads(), others)
    }
}

fn describe(parts: &[(Part, f64)], taken: &Elapsed, cores: usize, others: Option<OtherLoad>) -> Option<String> {
    let sum: f64 = parts.iter().map(|(_, seconds)| seconds).sum();
    if sum <= 0.0 {
        return None;
    }
    let shares: Vec<String> = parts
        .iter()
        .filter(|(_, seconds)| *seconds > 0.0)
        .map(|(part, seconds)| format!("{} {:.0} %", part.as_str(), 100.0 * seconds / sum))
        .collect();
    let busy_percent = (taken.cpu_percent() / cores.max(1) as f64).min(100.0);
    let slowest = parts.iter().max_by(|one, other| one.1.total_cmp(&other.1)).map(|(part, _)| *part);
    let is_crowded =
        |load: OtherLoad| load.is_notable() && load.percent() + taken.cpu_percent() / load.cores as f64 >= BUSY_PERCENT;
    let limit = match slowest {
        _ if busy_percent >= BUSY_PERCENT => "the cores",
        // A busy machine makes every part slow: neither the disk nor the level is to blame.
        _ if others.is_some_and(is_crowded) => "other programs on these cores",
        Some(Part::Reading) => "reading the input, or --max-rate",
        Some(Part::Writing) => "the output disk",
        _ => "other programs on these cores, or too few threads",
    };
    let shares = shares.join(", ");
    let others = others.map(|load| format!("; {load}")).unwrap_or_default();
    Some(format!("time: {shares}; limited by {limit} (slotpress used {busy_percent:.0} % of the cores{others})"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slowest_part_is_named() {
        let taken = |cpu: u64| Elapsed { wall: Duration::from_secs(10), cpu: Duration::from_secs(cpu) };
        let told = |parts: &[(Part, f64)], cpu| describe(parts, &taken(cpu), 2, None).unwrap_or_default();
        let archiving = [(Part::Reading, 1.0), (Part::Compressing, 9.0), (Part::Writing, 0.0)];
        assert_eq!(
            told(&archiving, 19),
            "time: reading 10 %, compressing 90 %; limited by the cores (slotpress used 95 % of the cores)"
        );
        let disk = [(Part::Reading, 6.0), (Part::Compressing, 3.0), (Part::Writing, 1.0)];
        assert_eq!(
            told(&disk, 5),
            "time: reading 60 %, compressing 30 %, writing 10 %; limited by reading the input, or --max-rate (slotpress used 25 % of \
             the cores)"
        );
        assert_eq!(told(&[(Part::Reading, 0.0)], 5), "");
    }

    /// Neither the disk nor the level is blamed for what other programs take.
    #[test]
    fn the_load_of_the_machine_is_told() {
        let taken = Elapsed { wall: Duration::from_secs(10), cpu: Duration::from_secs(8) };
        let disk = [(Part::Reading, 6.0), (Part::Compressing, 3.0)];
        let told =
            |used_cores| describe(&disk, &taken, 2, Some(OtherLoad { used_cores, cores: 2 })).unwrap_or_default();
        assert_eq!(
            told(1.1),
            "time: reading 67 %, compressing 33 %; limited by other programs on these cores (slotpress used 40 % of the cores; \
             other programs used 1.1 of 2 cores)"
        );
        assert!(told(0.3).contains("limited by reading the input, or --max-rate"), "{}", told(0.3));
    }
}
