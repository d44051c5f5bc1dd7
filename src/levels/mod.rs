//! Measures zstd levels and other codecs on the user's data, and recommends one.
//!
//! An [`Input`] holds frames of content in memory; [`measure_levels`] compresses and decompresses them at every level with
//! the encoders that `archive` and `restore` use, checks the result, and passes on a [`LevelRow`] as soon as it is ready.
//! [`recommend()`] chooses among the rows. [`measure_sizes`], [`measure_frames`] and [`LinkReport`] answer what follows:
//! by size, by frame size, over a link. Nothing here words a report. `docs/levels.md` explains the numbers.

mod codec;
mod frames;
mod input;
mod latency;
mod link;
mod measure;
mod recommend;
mod sample;
mod sizes;
mod source;
mod statistics;
mod units;

use std::path::PathBuf;
use std::time::Duration;

use derive_setters::Setters;
use serde::Serialize;
use slotpress_base::{Elapsed, Error, Progress, Result, THREADS_MAX, available_threads};
use slotpress_format::{FRAME_SIZE_BYTES_DEFAULT, LedgerPaths};

pub use self::codec::list::{add_clustered, parse_codecs, parse_levels};
pub use self::codec::{CLUSTERED_CODEC, FrameCodec, REFERENCE_CODEC, label};
pub use self::frames::bundle::UnitChoice;
pub use self::frames::{
    BundleRow, BundleUnit, FIRST_PASS_MAX, FrameSizeRow, FramesOptions, FramesReport, PIECES_MAX, UnitKind,
    measure_frames,
};
pub use self::input::{Input, InputKind, MEMORY_BYTES_MAX};
pub use self::latency::Latency;
pub use self::link::break_even::{BreakEven, Range, Sooner};
pub use self::link::network::{CongestionControl, Limit, Link, MSS_BYTES, WINDOW_BYTES};
pub use self::link::recommend::LinkRecommendation;
pub use self::link::{
    LinkQuestion, LinkReport, LinkRow, Load, PLACE_BYTES_PER_SECOND, READ_BYTES_PER_SECOND, Stage, StageTimes, Way,
};
pub use self::measure::measure_levels;
pub use self::recommend::{Choice, Recommendation, is_plain, pareto_curve, recommend};
pub use self::sizes::{SizeClassRow, SizeUnit, SizesReport, measure_sizes};
pub use self::statistics::{Summary, Warning};
use crate::archive::encode::{ZSTD_LEVEL_MAX, ZSTD_LEVEL_MIN, is_zstd_level};

/// What is measured, and how often.
#[derive(Clone, Debug, Setters)]
#[non_exhaustive]
pub struct MeasureOptions {
    /// A ledger or an unpacked archive, with its other directories; or, as `ledger`, any archive or file.
    pub paths: LedgerPaths,
    /// The bank snapshot of a ledger; the newest complete one by default.
    pub slot: Option<u64>,
    /// Take a ledger as its incremental archive on this slot.
    pub base_slot: Option<u64>,
    /// Codecs at levels; zstd from 1 to 10 by default.
    pub codecs: Vec<FrameCodec>,
    /// Sample size in bytes, held in memory; `None`: the whole input, up to `memory_bytes_max`.
    #[setters(into)]
    pub sample_bytes: Option<u64>,
    /// The seed of the sample.
    pub seed: u64,
    /// Maximum bytes of content in memory if no sample size is given.
    pub memory_bytes_max: u64,
    /// Bytes of content in a frame, 64 KiB to 32 MiB.
    pub frame_size_bytes: u64,
    /// Minimum number of runs of each measurement, 1 or more; 3 by default.
    pub repeat: usize,
    /// Minimum time of the runs of each measurement.
    pub min_time: Duration,
    /// Time for all codecs together: runs beyond the first are left out to keep to it, and codecs for which nothing is left.
    pub budget: Option<Duration>,
    /// Threads that read, compress and decompress, 1 to 1024.
    pub threads: usize,
}

impl MeasureOptions {
    /// Levels 1 to 10 on a ledger, an archive, an unpacked archive, or any file; on all cores.
    pub fn new(input: impl Into<PathBuf>) -> Self {
        Self {
            paths: LedgerPaths::new(input),
            slot: None,
            base_slot: None,
            codecs: (1..=10).map(FrameCodec::zstd).collect(),
            sample_bytes: None,
            seed: 0,
            memory_bytes_max: MEMORY_BYTES_MAX,
            frame_size_bytes: FRAME_SIZE_BYTES_DEFAULT,
            repeat: 3,
            min_time: Duration::ZERO,
            budget: None,
            threads: available_threads(),
        }
    }

    /// Sets the codecs: levels of zstd.
    #[must_use]
    pub fn levels(self, levels: impl IntoIterator<Item = i32>) -> Self {
        self.codecs(levels.into_iter().map(FrameCodec::zstd).collect())
    }
}

/// Measures codecs: size, speed, CPU time and memory of compressing and decompressing, with the encoders that `archive`
/// and `restore` use. Every one must bring back the same bytes.
///
/// # Errors
/// The input cannot be read, a level does not exist, or a codec does not bring back the same bytes.
pub fn measure(options: &MeasureOptions, progress: &dyn Progress) -> Result<Vec<LevelRow>> {
    let is_wrong = |codec: &&FrameCodec| codec.name == REFERENCE_CODEC && !is_zstd_level(codec.level);
    if let Some(FrameCodec { level, .. }) = options.codecs.iter().find(is_wrong) {
        return Err(Error::usage(format!(
            "zstd has no level {level}: 1 to {ZSTD_LEVEL_MAX}, or {ZSTD_LEVEL_MIN} to -1"
        )));
    }
    crate::archive::check_frame_size(options.frame_size_bytes)?;
    let options = options.clone().threads(options.threads.clamp(1, THREADS_MAX));
    let input = Input::read(&options, progress)?;
    let mut rows = Vec::new();
    measure_levels(&input, &options, progress, &mut |row| {
        rows.push(row);
        Ok(())
    })?;
    Ok(rows)
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

    /// Input in bytes per second of compressing.
    pub fn compress_bytes_per_second(&self) -> f64 {
        self.input_bytes as f64 / self.compress.median.max(1e-9)
    }

    /// Input in bytes per second of decompressing.
    pub fn decompress_bytes_per_second(&self) -> f64 {
        self.input_bytes as f64 / self.decompress.median.max(1e-9)
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
}

fn saving_percent(before_bytes: u64, after_bytes: u64) -> f64 {
    100.0 * (1.0 - after_bytes as f64 / (before_bytes as f64).max(1.0))
}

/// The reference: zstd level 1 if it was measured, otherwise the first row.
pub fn reference_row(rows: &[LevelRow]) -> Option<&LevelRow> {
    rows.iter().find(|row| row.codec == REFERENCE_CODEC && row.level == codec::REFERENCE_LEVEL).or(rows.first())
}

/// Rows in the order of tables: codecs as they were first measured, each by level.
pub fn in_order(rows: &[LevelRow]) -> Vec<&LevelRow> {
    let first = |row: &LevelRow| rows.iter().position(|other| other.codec == row.codec);
    let mut sorted: Vec<&LevelRow> = rows.iter().collect();
    sorted.sort_by_key(|row| (first(row), row.level));
    sorted
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A row with fixed numbers, which follow from the level.
    pub(crate) fn row(level: i32) -> LevelRow {
        let step = f64::from(level);
        let summary =
            |median: f64| Summary { median, min: median * 0.99, max: median * 1.02, deviation: median * 0.01, runs: 3 };
        LevelRow {
            codec: "zstd".to_string(),
            level,
            input_bytes: 1_000_000_000,
            output_bytes: (300_000_000.0 - 1e7 * step.max(0.0).sqrt() - 1e6 * step) as u64,
            compress: summary(1.5 * 1.4f64.powf(step)),
            decompress: summary(0.6),
            cpu_percent: 198.4,
            compress_cpu_seconds: 1.984 * 1.5 * 1.4f64.powf(step),
            decompress_cpu_percent: 199.0,
            peak_memory_bytes: 64 << 20,
            ..LevelRow::default()
        }
    }

    pub(crate) fn rows() -> Vec<LevelRow> {
        [1, -1, 2, 3, 4].map(row).into()
    }
}
