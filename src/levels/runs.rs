//! Repeated runs, and the row that they make.

use slotpress_base::Elapsed;

use crate::levels::LevelRow;
use crate::levels::codec::FrameCodec;
use crate::levels::latency::Latency;
use crate::levels::statistics::{LOST_PERCENT_MAX, RUN_TIME_MIN, Summary, Warning, median, run_warning};

/// Runs that count.
pub struct Runs {
    /// What they do, for warnings.
    what: &'static str,
    /// What each took.
    pub taken: Vec<Elapsed>,
    /// What the workers took, added up; zero if they were not measured.
    pub busy: Elapsed,
    /// Times of single pieces, if each was timed.
    pub latency: Latency,
}

impl Runs {
    /// Empty.
    pub fn new(what: &'static str) -> Self {
        Self { what, taken: Vec::new(), busy: Elapsed::default(), latency: Latency::default() }
    }

    fn seconds(&self) -> Vec<f64> {
        self.taken.iter().map(|taken| taken.wall.as_secs_f64()).collect()
    }

    fn median(&self, of: impl Fn(&Elapsed) -> f64) -> f64 {
        median(&self.taken.iter().map(of).collect::<Vec<_>>())
    }

    fn warnings(&self) -> Vec<Warning> {
        let mut warnings: Vec<Warning> = run_warning(self.what, &self.seconds()).into_iter().collect();
        // A worker only computes: if it took more time than CPU time, it had to wait for a core.
        let lost_percent = 100.0 - self.busy.cpu_percent();
        let is_measured = !self.busy.wall.is_zero() && median(&self.seconds()) >= RUN_TIME_MIN.as_secs_f64();
        if is_measured && lost_percent > LOST_PERCENT_MAX {
            warnings.push(Warning::OtherLoad { lost_percent });
        }
        warnings
    }
}

/// The row of a codec; memory is up to the caller.
pub fn row(codec: &FrameCodec, input_bytes: u64, output_bytes: u64, compress: &Runs, decompress: &Runs) -> LevelRow {
    let mut warnings = compress.warnings();
    for warning in decompress.warnings() {
        let is_known = |known: &Warning| std::mem::discriminant(known) == std::mem::discriminant(&warning);
        if !warnings.iter().any(is_known) {
            warnings.push(warning);
        }
    }
    LevelRow {
        codec: codec.name.to_string(),
        level: codec.level,
        input_bytes,
        output_bytes,
        compress: Summary::of(&compress.seconds()),
        compress_runs: compress.taken.clone(),
        decompress: Summary::of(&decompress.seconds()),
        cpu_percent: compress.median(Elapsed::cpu_percent),
        compress_cpu_seconds: compress.median(|taken| taken.cpu.as_secs_f64()),
        decompress_cpu_percent: decompress.median(Elapsed::cpu_percent),
        warnings,
        ..LevelRow::default()
    }
}
