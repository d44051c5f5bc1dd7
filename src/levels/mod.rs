//! Measuring levels and other codecs on one's own data, and choosing one.
//!
//! An [`input::Input`] holds frames of content in memory; [`measure::measure_levels`] compresses and decompresses them at
//! every level with the encoders that `archive` and `restore` use, checks that each comes back, and hands over a
//! [`LevelRow`] as soon as it is ready. [`end_to_end`] does the same with whole archives on disk. [`recommend`] chooses,
//! a `view` makes a [`report`] of what was measured, which is shown in every format that people and programs read.
//! `docs/levels.md` tells how to read them.

pub mod codec;
pub mod content;
pub mod doubts;
pub mod end_to_end;
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

use {
    crate::levels::statistics::{Summary, Warning},
    serde::Serialize,
    std::time::Duration,
};

/// How often to repeat what is measured.
#[derive(Clone, Copy, Debug)]
pub struct RepeatOptions {
    /// At least so many runs of each measurement.
    pub repeat: usize,
    /// And at least so much time.
    pub min_time: Duration,
    /// Workers, for compressing and for decompressing.
    pub threads: usize,
}

/// What a level costs and what it saves.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct LevelRow {
    /// The codec's name.
    pub codec: String,
    /// The level; 0 of a codec that has none.
    pub level: i32,
    /// Bytes that were compressed.
    pub input_bytes: u64,
    /// Bytes of all frames.
    pub output_bytes: u64,
    /// Times to compress, in seconds.
    pub compress: Summary,
    /// Times to decompress, in seconds.
    pub decompress: Summary,
    /// CPU load while compressing: 200 % is two cores busy all the time.
    pub cpu_percent: f64,
    /// CPU load while decompressing.
    pub decompress_cpu_percent: f64,
    /// CPU time of the workers for one run of compressing, in seconds.
    pub compress_cpu_seconds: f64,
    /// What the workers take; in an end-to-end run, the process.
    pub peak_memory_bytes: u64,
    /// For a sample: the error of the ratio and of the estimated size, in percent; about 95 of 100 samples are no
    /// further off.
    pub size_error_percent: Option<f64>,
    /// For a sample: the size of the whole.
    pub estimated_output_bytes: Option<u64>,
    /// What is doubtful about it.
    pub warnings: Vec<Warning>,
}

impl LevelRow {
    /// What people call it: `zstd 3`, `lz4`.
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

    /// Size in percent of another level's.
    pub fn size_percent_of(&self, reference: &Self) -> f64 {
        100.0 * self.output_bytes as f64 / (reference.output_bytes as f64).max(1.0)
    }

    /// Time to compress, as a multiple of another level's: CPU time where the workers of either had to wait for cores, since
    /// elapsed time then measures what else ran.
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

/// The row that others are set against: zstd level 1 where it is measured, the first one measured otherwise.
pub fn reference_row(rows: &[LevelRow]) -> Option<&LevelRow> {
    rows.iter().find(|row| row.codec == REFERENCE_CODEC && row.level == REFERENCE_LEVEL).or(rows.first())
}

/// The codec of the row that the others are set against.
pub const REFERENCE_CODEC: &str = "zstd";

/// The level that the others are set against.
pub const REFERENCE_LEVEL: i32 = 1;

/// Rows as a table shows them: codecs in the order in which they were first measured, each by level.
pub fn in_order(rows: &[LevelRow]) -> Vec<&LevelRow> {
    let first = |row: &LevelRow| rows.iter().position(|other| other.codec == row.codec);
    let mut sorted: Vec<&LevelRow> = rows.iter().collect();
    sorted.sort_by_key(|row| (first(row), row.level));
    sorted
}

/// Whether rows need the name of their codec to be told apart.
pub fn has_codecs(rows: &[LevelRow]) -> bool {
    rows.iter().any(|row| row.codec != REFERENCE_CODEC)
}
