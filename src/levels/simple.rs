//! Measures zstd levels in one call, for programs that embed this library.

use std::path::PathBuf;
use std::time::Duration;

use derive_setters::Setters;
use slotpress_base::{Error, Progress, Result, THREADS_MAX, available_threads};
use slotpress_format::{FRAME_SIZE_BYTES_DEFAULT, LedgerPaths};

use super::codec::FrameCodec;
use super::content::{InputOptions, MEMORY_BYTES_MAX};
use super::input::Input;
use super::measure::measure_levels;
use super::{LevelRow, RepeatOptions};
use crate::archive::encode::{ZSTD_LEVEL_MAX, ZSTD_LEVEL_MIN, is_zstd_level};

/// The input, the levels, and the number of runs.
#[derive(Clone, Debug, Setters)]
#[non_exhaustive]
pub struct MeasureOptions {
    /// A ledger, an archive, an unpacked archive, or any file.
    #[setters(into)]
    pub input: PathBuf,
    /// zstd levels, from [`ZSTD_LEVEL_MIN`] to [`ZSTD_LEVEL_MAX`]; 1 to 10 by default.
    #[setters(into)]
    pub levels: Vec<i32>,
    /// Sample size in bytes, held in memory; `None`: the whole input, up to 1 GiB.
    #[setters(into)]
    pub sample_bytes: Option<u64>,
    /// Bytes of content in a frame, 64 KiB to 32 MiB.
    pub frame_size_bytes: u64,
    /// Minimum number of runs of each level, 1 or more; 3 by default.
    pub repeat: usize,
    /// Threads, 1 to 1024.
    pub threads: usize,
}

impl MeasureOptions {
    /// Levels 1 to 10 on an input, on all cores.
    pub fn new(input: impl Into<PathBuf>) -> Self {
        Self {
            input: input.into(),
            levels: (1..=10).collect(),
            sample_bytes: None,
            frame_size_bytes: FRAME_SIZE_BYTES_DEFAULT,
            repeat: 3,
            threads: available_threads(),
        }
    }
}

/// Measures zstd levels: size, speed, CPU time and memory of compressing and decompressing, with the encoders that
/// `archive` and `restore` use. Every level must bring back the same bytes.
///
/// # Errors
/// The input cannot be read, a level does not exist, or a level does not bring back the same bytes.
pub fn measure(options: &MeasureOptions, progress: &dyn Progress) -> Result<Vec<LevelRow>> {
    if let Some(level) = options.levels.iter().find(|level| !is_zstd_level(**level)) {
        return Err(Error::usage(format!(
            "zstd has no level {level}: 1 to {ZSTD_LEVEL_MAX}, or {ZSTD_LEVEL_MIN} to -1"
        )));
    }
    crate::archive::check_frame_size(options.frame_size_bytes)?;
    let threads = options.threads.clamp(1, THREADS_MAX);
    let input = InputOptions {
        paths: LedgerPaths { ledger: options.input.clone(), ..LedgerPaths::default() },
        slot: None,
        base_slot: None,
        frame_size_bytes: options.frame_size_bytes,
        sample_bytes: options.sample_bytes,
        seed: 0,
        memory_bytes_max: MEMORY_BYTES_MAX,
        threads,
    };
    let input = Input::read(&input, progress)?;
    let codecs: Vec<FrameCodec> = options.levels.iter().copied().map(FrameCodec::zstd).collect();
    let repeat = RepeatOptions { repeat: options.repeat.max(1), min_time: Duration::ZERO, threads, budget: None };
    let mut rows = Vec::new();
    measure_levels(&input, &codecs, &repeat, progress, &mut |row| {
        rows.push(row);
        Ok(())
    })?;
    Ok(rows)
}
