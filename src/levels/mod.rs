//! Measures zstd levels and other codecs on the user's data, and recommends one.
//!
//! An [`input::Input`] holds frames of content in memory; [`measure::measure_levels`] compresses and decompresses them
//! at every level with the encoders that `archive` and `restore` use, checks the result, and passes on a [`LevelRow`]
//! as soon as it is ready. [`recommend`] chooses, each `view` makes a section of a [`report`], which is rendered for
//! terminals, pages, CSV and JSON.
//! `docs/levels.md` explains the numbers.

pub mod codec;
pub mod content;
pub mod doubts;
pub mod flags;
pub mod frames;
pub mod input;
pub mod latency;
pub mod link;
pub mod measure;
pub mod picture;
pub mod recommend;
pub mod report;
pub mod runs;
pub mod sample;
pub mod simple;
pub mod sizes;
mod source;
pub mod statistics;
pub mod units;
pub mod view;

use std::time::Duration;

use serde::Serialize;
use slotpress_base::Elapsed;

pub use crate::levels::simple::{MeasureOptions, measure};
pub use crate::levels::statistics::{Summary, Warning};

/// The number of runs, and of threads.
#[derive(Clone, Copy, Debug)]
pub struct RepeatOptions {
    /// Minimum number of runs of each measurement, 1 or more.
    pub repeat: usize,
    /// Minimum time of the runs of each measurement.
    pub min_time: Duration,
    /// Workers, for compressing and for decompressing, 1 to 1024.
    pub threads: usize,
    /// Time for all codecs together: runs beyond the first are left out to keep to it, and codecs for which nothing is left.
    pub budget: Option<Duration>,
}

/// The measurements of a codec at a level.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[non_exhaustive]
pub struct LevelRow {
    /// The codec's name.
    pub codec: String,
    /// The level; 0 if the codec has none.
    pub level: i32,
    /// Bytes that were compressed.
    pub input_bytes: u64,
    /// Bytes of all frames.
    pub output_bytes: u64,
    /// Times to compress, in seconds.
    pub compress: Summary,
    /// What each run of compressing took.
    #[serde(skip)]
    pub compress_runs: Vec<Elapsed>,
    /// Times to decompress, in seconds.
    pub decompress: Summary,
    /// CPU load while compressing, in percent: 200 is two busy cores.
    pub cpu_percent: f64,
    /// CPU load while decompressing, in percent.
    pub decompress_cpu_percent: f64,
    /// CPU time of the workers for one run of compressing, in seconds.
    pub compress_cpu_seconds: f64,
    /// Memory of the workers.
    pub peak_memory_bytes: u64,
    /// For a sample: the error of the ratio and of the estimated size, in percent, that about 95 of 100 samples stay
    /// within.
    pub size_error_percent: Option<f64>,
    /// For a sample: the estimated bytes of all frames of the input.
    pub estimated_output_bytes: Option<u64>,
    /// Reasons to doubt the numbers.
    pub warnings: Vec<Warning>,
}

impl LevelRow {
    /// For people: `zstd 3`, `lz4`.
    pub fn label(&self) -> String {
        codec::label(&self.codec, self.level)
    }

    /// Whether it is the same codec at the same level.
    pub fn is_same_codec(&self, other: &Self) -> bool {
        (&self.codec, self.level) == (&other.codec, other.level)
    }

    /// Input for each byte of output.
    pub fn ratio(&self) -> f64 {
        self.input_bytes as f64 / (self.output_bytes as f64).max(1.0)
    }

    /// Saving in percent of the input; negative if the output is larger.
    pub fn saving_percent(&self) -> f64 {
        saving_percent(self.input_bytes, self.output_bytes)
    }

    /// Input in megabytes (10^6 bytes, as `zstd -b` counts) per second of compressing.
    pub fn compress_mb_per_second(&self) -> f64 {
        speed(self.input_bytes, self.compress.median)
    }

    /// Input in megabytes per second of decompressing.
    pub fn decompress_mb_per_second(&self) -> f64 {
        speed(self.input_bytes, self.decompress.median)
    }

    /// Input in bytes per second of compressing.
    pub fn compress_bytes_per_second(&self) -> f64 {
        1e6 * self.compress_mb_per_second()
    }

    /// Input in bytes per second of decompressing.
    pub fn decompress_bytes_per_second(&self) -> f64 {
        1e6 * self.decompress_mb_per_second()
    }

    /// Size in percent of that of another row.
    pub fn size_percent_of(&self, reference: &Self) -> f64 {
        100.0 * self.output_bytes as f64 / (reference.output_bytes as f64).max(1.0)
    }

    /// Time to compress as a multiple of that of another row: CPU time if the workers of either had to wait for cores,
    /// because elapsed time then depends on other programs.
    pub fn time_factor_of(&self, reference: &Self) -> f64 {
        let cpu = (self.compress_cpu_seconds, reference.compress_cpu_seconds);
        match self.is_by_cpu_against(reference) && cpu.0 > 0.0 && cpu.1 > 0.0 {
            true => cpu.0 / cpu.1,
            false => self.compress.median / reference.compress.median.max(1e-9),
        }
    }

    /// Whether the workers had to wait for cores.
    pub fn has_waited(&self) -> bool {
        self.warnings.iter().any(|warning| matches!(warning, Warning::OtherLoad { .. }))
    }

    /// Whether [`LevelRow::time_factor_of`] compares CPU times.
    pub fn is_by_cpu_against(&self, reference: &Self) -> bool {
        self.has_waited() || reference.has_waited()
    }

    /// The same with CPU time in place of elapsed time.
    fn by_cpu_time(&self) -> Self {
        let median = self.compress_cpu_seconds;
        let scale = median / self.compress.median.max(1e-9);
        let Summary { min, max, deviation, runs, .. } = self.compress;
        let compress = Summary { median, min: min * scale, max: max * scale, deviation: deviation * scale, runs };
        Self { compress, ..self.clone() }
    }
}

fn saving_percent(before_bytes: u64, after_bytes: u64) -> f64 {
    100.0 * (1.0 - after_bytes as f64 / (before_bytes as f64).max(1.0))
}

/// Megabytes per second.
pub fn speed(bytes: u64, seconds: f64) -> f64 {
    bytes as f64 / 1e6 / seconds.max(1e-9)
}

/// The reference: zstd level 1 if it was measured, otherwise the first row.
pub fn reference_row(rows: &[LevelRow]) -> Option<&LevelRow> {
    rows.iter().find(|row| row.codec == REFERENCE_CODEC && row.level == REFERENCE_LEVEL).or(rows.first())
}

/// zstd on clustered records (`--layout clustered`), as a codec.
pub const CLUSTERED_CODEC: &str = "clustered";

/// The codec of the reference.
pub const REFERENCE_CODEC: &str = "zstd";

/// The level of the reference.
pub const REFERENCE_LEVEL: i32 = 1;

/// Rows in the order of tables: codecs as they were first measured, each by level.
pub fn in_order(rows: &[LevelRow]) -> Vec<&LevelRow> {
    let first = |row: &LevelRow| rows.iter().position(|other| other.codec == row.codec);
    let mut sorted: Vec<&LevelRow> = rows.iter().collect();
    sorted.sort_by_key(|row| (first(row), row.level));
    sorted
}

/// Whether there are rows of other codecs than zstd.
pub fn has_codecs(rows: &[LevelRow]) -> bool {
    rows.iter().any(|row| row.codec != REFERENCE_CODEC)
}

/// The characters of the longest name, if some rows are of other codecs than zstd.
pub fn codec_width(rows: &[LevelRow]) -> Option<usize> {
    has_codecs(rows).then(|| rows.iter().map(|row| row.label().len()).max().unwrap_or_default())
}
