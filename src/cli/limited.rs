//! Tells what limited the speed of a run: the cores, other programs, or input and output. Printed
//! at the end with `-v`.

use slotpress::Elapsed;
use slotpress_base::threads::available_threads;
use slotpress_base::{LoadWatch, OtherLoad, Stopwatch};

/// Use of all cores together, in percent, at or above which the cores are said to limit the work.
const BUSY_PERCENT: f64 = 85.0;

/// Measures processor use of this process and of others since the program began.
#[derive(Debug)]
pub struct SpeedReport {
    stopwatch: Stopwatch,
    load: Option<LoadWatch>,
}

impl Default for SpeedReport {
    fn default() -> Self {
        Self { stopwatch: Stopwatch::start(), load: LoadWatch::start() }
    }
}

impl SpeedReport {
    pub fn describe(&self) -> String {
        describe(&self.stopwatch.elapsed(), available_threads(), self.load.and_then(|load| load.others()))
    }
}

fn describe(taken: &Elapsed, cores: usize, others: Option<OtherLoad>) -> String {
    let busy_percent = (taken.cpu_percent() / cores.max(1) as f64).min(100.0);
    let is_crowded =
        |load: OtherLoad| load.is_notable() && load.percent() + taken.cpu_percent() / load.cores as f64 >= BUSY_PERCENT;
    let limit = match others {
        _ if busy_percent >= BUSY_PERCENT => "the cores",
        Some(load) if is_crowded(load) => "other programs on these cores",
        _ => "input, output, --max-rate or --threads, not the cores",
    };
    let others = others.map(|load| format!("; {load}")).unwrap_or_default();
    format!("limited by {limit} (slotpress used {busy_percent:.0} % of the cores{others})")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn cores_and_other_programs() {
        let told = |cpu: u64, others: Option<f64>| {
            let taken = Elapsed { wall: Duration::from_secs(10), cpu: Duration::from_secs(cpu) };
            describe(&taken, 2, others.map(|used_cores| OtherLoad { used_cores, cores: 2 }))
        };
        assert_eq!(told(19, None), "limited by the cores (slotpress used 95 % of the cores)");
        assert_eq!(
            told(8, Some(1.1)),
            "limited by other programs on these cores (slotpress used 40 % of the cores; other programs used 1.1 of 2 cores)"
        );
        let waiting =
            "limited by input, output, --max-rate or --threads, not the cores (slotpress used 40 % of the cores";
        assert_eq!(told(8, None), format!("{waiting})"));
        assert_eq!(told(8, Some(0.3)), format!("{waiting}; other programs used 0.3 of 2 cores)"));
    }
}
