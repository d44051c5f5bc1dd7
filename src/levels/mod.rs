//! Measures compression levels and codecs on the user's data, and recommends one.
//!
//! [`measure()`] compresses frames of an input at every level with the encoder of
//! [`archive`](crate::archive), decompresses them with the decoder of [`restore`](crate::restore),
//! checks the result, and reports a [`LevelRow`] for each. [`recommend()`] chooses among the rows.

// `input` holds frames in memory. `pieces` measures storages, records and frames of any size on their own,
// and `link` computes times over a network link. `src/cli/levels` prints the results.

pub(crate) mod codec;
pub(crate) mod input;
pub(crate) mod link;
pub(crate) mod measure;
pub(crate) mod pieces;
pub(crate) mod recommend;
mod sample;
mod source;
pub(crate) mod statistics;

use std::time::Duration;

use derive_setters::Setters;
use serde::Serialize;
use slotpress_base::{Error, Progress, Result, THREADS_MAX, available_threads};
use slotpress_format::{FRAME_SIZE_BYTES_DEFAULT, LedgerPaths};

pub use self::codec::FrameCodec;
use self::codec::REFERENCE_CODEC;
use self::input::{Input, SAMPLE_BYTES_DEFAULT};
use self::measure::measure_levels;
pub use self::recommend::{CodecChoice, Recommendation, recommend};
pub use self::statistics::Summary;
use self::statistics::Warning;
use crate::archive::encode::{ZSTD_LEVEL_MAX, ZSTD_LEVEL_MIN, is_zstd_level};

/// Options of [`measure()`]: the input, codecs and limits.
#[derive(Clone, Debug, Setters)]
#[non_exhaustive]
pub struct MeasureOptions {
    /// Path of a ledger, an archive, an unpacked archive or any file. The other paths of
    /// [`LedgerPaths`] apply only to a ledger or an unpacked archive.
    pub input: LedgerPaths,
    /// Slot of a ledger's bank snapshot. Default: that of the newest complete one.
    #[setters(strip_option)]
    pub slot: Option<u64>,
    /// Measures the incremental archive that a ledger would yield on this base slot. Default: none,
    /// the full archive.
    #[setters(strip_option)]
    pub base_slot: Option<u64>,
    /// Codecs with levels. Default: zstd levels 1 to 10.
    pub codecs: Vec<FrameCodec>,
    /// Maximum length of the content that is held in memory and measured, in bytes; a longer input is sampled.
    /// Default: 1 GiB, from which the size of a ledger's archive is estimated to within about 1%.
    pub sample_bytes: u64,
    /// Seed for choosing the sampled frames: the same seed chooses the same frames. Default: 0.
    pub seed: u64,
    /// Length of a frame before compression, from 64 KiB to 32 MiB. Default: 8 MiB, as in
    /// `archive`.
    pub frame_size_bytes: u64,
    /// Minimum number of runs per measurement, 1 or more. Default: 3.
    pub repeat: usize,
    /// Minimum total time of the runs per measurement. Default: none.
    pub min_time: Duration,
    /// Time for all codecs together. When little of it is left, a codec gets fewer runs; when it is used
    /// up, the remaining codecs are left out. Default: none.
    #[setters(strip_option)]
    pub budget: Option<Duration>,
    /// Threads that read, compress and decompress, 1 to 1024. Default: one per core.
    pub threads: usize,
}

impl MeasureOptions {
    /// Creates options with defaults.
    pub fn new(input: impl Into<LedgerPaths>) -> Self {
        Self {
            input: input.into(),
            slot: None,
            base_slot: None,
            codecs: (1..=10).map(FrameCodec::zstd).collect(),
            sample_bytes: SAMPLE_BYTES_DEFAULT,
            seed: 0,
            frame_size_bytes: FRAME_SIZE_BYTES_DEFAULT,
            repeat: 3,
            min_time: Duration::ZERO,
            budget: None,
            threads: available_threads(),
        }
    }

    /// Measures only zstd, at these levels.
    #[must_use]
    pub fn levels(self, levels: impl IntoIterator<Item = i32>) -> Self {
        self.codecs(levels.into_iter().map(FrameCodec::zstd).collect())
    }
}

/// Measures size, speed, CPU time and memory of each codec when compressing with the encoder of
/// `archive`, and when decompressing with the decoder of `restore`. Blocks until all are measured, or
/// the budget is used up.
///
/// # Errors
/// The input cannot be read, a level does not exist, a codec does not restore the same bytes, or
/// `progress` is interrupted.
pub fn measure(options: &MeasureOptions, progress: &dyn Progress) -> Result<Vec<LevelRow>> {
    let is_invalid = |codec: &&FrameCodec| codec.name == REFERENCE_CODEC && !is_zstd_level(codec.level);
    if let Some(FrameCodec { level, .. }) = options.codecs.iter().find(is_invalid) {
        return Err(Error::usage(format!(
            "zstd has no level {level}, only 1 to {ZSTD_LEVEL_MAX} and {ZSTD_LEVEL_MIN} to -1"
        )));
    }
    crate::archive::encoding::check_frame_size(options.frame_size_bytes)?;
    let threads = options.threads.clamp(1, THREADS_MAX);
    let options = options.clone().threads(threads);
    let input = Input::read(&options, progress)?;
    let mut rows = Vec::new();
    measure_levels(&input, &options, progress, &mut rows)?;
    Ok(rows)
}

/// Result of measuring a codec at one level.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[non_exhaustive]
pub struct LevelRow {
    /// Codec of the row, and its level.
    #[serde(flatten)]
    pub codec: FrameCodec,
    /// Length of the measured content, in bytes.
    pub input_bytes: u64,
    /// Compressed length of the content, in bytes.
    pub output_bytes: u64,
    /// Seconds that a run of compressing took on all threads.
    pub compress: Summary,
    /// Seconds that a run of decompressing took on all threads.
    pub decompress: Summary,
    /// CPU load while compressing, in percent: 100 is one core.
    pub compress_cpu_percent: f64,
    /// CPU load while decompressing, in percent: 100 is one core.
    pub decompress_cpu_percent: f64,
    /// CPU time of all workers per run of compressing, in seconds.
    pub compress_cpu_seconds: f64,
    /// Memory of all workers, in bytes: contexts and buffers, when compressing or when
    /// decompressing, whichever takes more.
    pub peak_memory_bytes: u64,
    /// For a sample: error of the ratio and of the estimated size, in percent; about 95 of 100
    /// samples stay within it.
    pub size_error_percent: Option<f64>,
    /// For a sample: estimated length of all compressed frames of the whole input, in bytes.
    pub estimated_output_bytes: Option<u64>,
    #[doc(hidden)]
    pub warnings: Vec<Warning>,
}

impl LevelRow {
    /// Returns the bytes of input per byte of output.
    pub fn ratio(&self) -> f64 {
        self.input_bytes as f64 / (self.output_bytes as f64).max(1.0)
    }

    /// Returns the percentage of the input that is saved; negative if the output is larger.
    pub fn saving_percent(&self) -> f64 {
        100.0 * (1.0 - self.output_bytes as f64 / (self.input_bytes as f64).max(1.0))
    }

    /// Returns the bytes of input compressed per second.
    pub fn compress_bytes_per_second(&self) -> f64 {
        self.input_bytes as f64 / self.compress.median.max(1e-9)
    }

    /// Returns the bytes of input decompressed per second.
    pub fn decompress_bytes_per_second(&self) -> f64 {
        self.input_bytes as f64 / self.decompress.median.max(1e-9)
    }

    /// Returns the size of the output in percent of another row's.
    pub fn size_percent_of(&self, reference: &Self) -> f64 {
        100.0 * self.output_bytes as f64 / (reference.output_bytes as f64).max(1.0)
    }

    /// Returns the time of compressing as a multiple of another row's. Compares CPU times if the
    /// workers of either row had to wait for cores, because elapsed time then depends on other
    /// programs.
    pub fn time_factor_of(&self, reference: &Self) -> f64 {
        let cpu = self.compress_cpu_seconds;
        let reference_cpu = reference.compress_cpu_seconds;
        if self.compares_cpu_time_with(reference) && cpu > 0.0 && reference_cpu > 0.0 {
            cpu / reference_cpu
        } else {
            self.compress.median / reference.compress.median.max(1e-9)
        }
    }

    /// True if the workers had to wait for cores.
    pub fn waited_for_cores(&self) -> bool {
        self.warnings.iter().any(|warning| warning.about == "load")
    }

    /// True if [`LevelRow::time_factor_of`] compares CPU times.
    pub fn compares_cpu_time_with(&self, reference: &Self) -> bool {
        self.waited_for_cores() || reference.waited_for_cores()
    }
}

/// Chooses the row for comparisons: zstd level 1 if it was measured, else the first row.
#[doc(hidden)]
pub fn reference_row(rows: &[LevelRow]) -> Option<&LevelRow> {
    rows.iter().find(|row| row.codec == FrameCodec::default()).or(rows.first())
}

/// Sorts rows for tables: codecs in the order of their first rows, each by level.
#[doc(hidden)]
pub fn sort_rows(rows: &[LevelRow]) -> Vec<&LevelRow> {
    let first_index = |row: &LevelRow| rows.iter().position(|other| other.codec.name == row.codec.name);
    let mut sorted: Vec<&LevelRow> = rows.iter().collect();
    sorted.sort_by_key(|row| (first_index(row), row.codec.level));
    sorted
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(crate) fn row(level: i32) -> LevelRow {
        let level_number = f64::from(level);
        let summary = |median: f64| Summary { median, min: median * 0.99, max: median * 1.02, runs: 3 };
        LevelRow {
            codec: FrameCodec::zstd(level),
            input_bytes: 1_000_000_000,
            output_bytes: (300_000_000.0 - 1e7 * level_number.max(0.0).sqrt() - 1e6 * level_number) as u64,
            compress: summary(1.5 * 1.4f64.powf(level_number)),
            decompress: summary(0.6),
            compress_cpu_percent: 198.4,
            compress_cpu_seconds: 1.984 * 1.5 * 1.4f64.powf(level_number),
            decompress_cpu_percent: 199.0,
            peak_memory_bytes: 64 << 20,
            ..LevelRow::default()
        }
    }

    pub(crate) fn rows() -> Vec<LevelRow> {
        [1, -1, 2, 3, 4].map(row).into()
    }
}
