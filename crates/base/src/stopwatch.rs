//! Measures wall-clock time, and the CPU time of all threads or of one.

#![warn(missing_docs)]

use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};
use serde::{Serialize, Serializer};

use crate::text;

/// Measures a run from its start.
#[derive(Clone, Copy, Debug)]
pub struct Stopwatch {
    clock: ClockId,
    start: Instant,
    cpu_start: Duration,
}

/// The time that a run took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Elapsed {
    /// Time by the wall clock.
    #[serde(rename = "elapsed_seconds", serialize_with = "text::seconds")]
    pub wall: Duration,
    /// CPU time of all threads of the process, or of the thread that was measured.
    #[serde(rename = "cpu_seconds", serialize_with = "text::seconds")]
    pub cpu: Duration,
}

impl Elapsed {
    #[doc(hidden)]
    pub fn new(wall: Duration, cpu: Duration) -> Self {
        Self { wall, cpu }
    }

    /// Returns the CPU load in percent. 200 means that two cores were busy all the time.
    pub fn cpu_percent(&self) -> f64 {
        100.0 * self.cpu.as_secs_f64() / self.wall.as_secs_f64().max(1e-9)
    }

    /// Serializes only the wall-clock seconds, for reports without CPU time.
    #[doc(hidden)]
    pub fn serialize_wall_seconds<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        text::seconds(&self.wall, serializer)
    }
}

impl Stopwatch {
    /// Starts measuring, for all threads of the process.
    pub fn start() -> Self {
        Self::with_clock(ClockId::ProcessCPUTime)
    }

    /// Starts measuring this thread, on which the result must be read, too. If a thread only computes,
    /// less CPU time than wall-clock time means that it waited for a core.
    pub fn start_on_thread() -> Self {
        Self::with_clock(ClockId::ThreadCPUTime)
    }

    fn with_clock(clock: ClockId) -> Self {
        Self { clock, start: Instant::now(), cpu_start: cpu_time(clock) }
    }

    /// Returns the time since the start.
    pub fn elapsed(&self) -> Elapsed {
        Elapsed::new(self.start.elapsed(), cpu_time(self.clock).saturating_sub(self.cpu_start))
    }
}

fn cpu_time(clock: ClockId) -> Duration {
    let time = clock_gettime(clock);
    Duration::new(time.tv_sec.try_into().unwrap_or(0), time.tv_nsec.try_into().unwrap_or(0))
}
