//! Flags that several commands of `levels` have: input, codecs, number of runs.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use slotpress::codec::{check_frame_size, clustering_bytes};
use slotpress::levels::codec::FrameCodec;
use slotpress::levels::codec::list::{CodecList, zstd_levels};
use slotpress::levels::content::{InputOptions, MEMORY_BYTES_MAX};
use slotpress::levels::input::Input;
use slotpress::levels::report::Subject;
use slotpress::levels::{CLUSTERED_CODEC, REFERENCE_CODEC, RepeatOptions};
use slotpress::{Error, LedgerPaths, Progress, Result};
use slotpress_base::quantity;

use super::provenance;
use crate::cli::arguments::{DirectoryArgs, WorkerArgs};
use crate::cli::ui::Ui;
use crate::cli::{planned, values};

/// The input.
#[derive(Debug, Args)]
pub struct SourceArgs {
    /// A ledger directory, an archive, an unpacked archive, or any file
    #[arg(value_name = "INPUT")]
    pub path: PathBuf,
    /// Sample size; the sample is spread evenly over the input [default: all, up to 1 GiB; 256 MiB for frames]
    #[arg(long, value_name = "SIZE", value_parser = values::size)]
    sample: Option<u64>,
    /// Random seed of the sample
    #[arg(long, value_name = "N", default_value_t = 0, hide_short_help = true)]
    pub seed: u64,
    /// The bank snapshot of a ledger [default: the newest complete one]
    #[arg(long, value_parser = values::slot)]
    pub slot: Option<u64>,
    /// Measure the incremental archive based on the full archive of this slot
    #[arg(long, value_parser = values::slot, value_name = "SLOT")]
    pub base_slot: Option<u64>,
    #[command(flatten)]
    directories: DirectoryArgs,
}

/// The input, workers, and the frame size.
#[derive(Debug, Args)]
pub struct InputArgs {
    #[command(flatten)]
    pub source: SourceArgs,
    #[command(flatten)]
    workers: WorkerArgs,
    /// Frame size before compression, 64KiB to 32MiB
    #[arg(long, value_name = "SIZE", default_value = "8MiB", value_parser = values::size)]
    pub frame_size: u64,
}

impl SourceArgs {
    /// The input's path, and a ledger's other directories.
    pub fn paths(&self) -> LedgerPaths {
        match self.path.is_dir() || self.directories.is_given() {
            true => self.directories.paths(&self.path),
            false => LedgerPaths::new(&self.path),
        }
    }

    /// Reads the input in frames of one size, or a sample of it. Without `--sample`, it is limited in size; a warning
    /// says so.
    pub fn read(&self, frame_size_bytes: u64, threads: usize, bytes_max: u64, ui: &Ui) -> Result<Input> {
        self.read_held(frame_size_bytes, threads, self.held_bytes(bytes_max), ui)
    }

    /// The maximum bytes that are held in memory: `--sample`, or a part of the available memory.
    fn held_bytes(&self, bytes_max: u64) -> u64 {
        planned::memory_or(self.sample, bytes_max.min(MEMORY_BYTES_MAX))
    }

    fn read_held(&self, frame_size_bytes: u64, threads: usize, held_bytes: u64, ui: &Ui) -> Result<Input> {
        let options = InputOptions {
            paths: self.paths(),
            slot: self.slot,
            base_slot: self.base_slot,
            frame_size_bytes,
            sample_bytes: self.sample,
            seed: self.seed,
            memory_bytes_max: held_bytes.min(MEMORY_BYTES_MAX),
            threads,
        };
        let input = Input::read(&options, ui)?;
        if input.is_sampled() && self.sample.is_none() {
            ui.warn(&format!(
                "the input has {}; a sample of {} is measured (use --sample for another size)",
                quantity::bytes(input.total_bytes),
                quantity::bytes(input.content_bytes())
            ));
        }
        Ok(input)
    }

    /// The description of the input, for headings.
    pub fn subject(&self, input: &Input, threads: usize) -> Subject {
        Subject {
            name: self.name(),
            kind: input.kind.as_str(),
            total_bytes: input.total_bytes,
            measured_bytes: input.content_bytes(),
            frame_size_bytes: input.frame_size_bytes,
            threads,
            provenance: self.provenance(),
        }
    }

    /// The origin of the numbers, for pages.
    pub fn provenance(&self) -> Vec<(&'static str, String)> {
        provenance::of_this_run(&self.path)
    }

    fn name(&self) -> String {
        let path = self.path.canonicalize().unwrap_or_else(|_| self.path.to_path_buf());
        path.file_name().map_or_else(|| "/".to_string(), |name| name.to_string_lossy().into_owned())
    }
}

impl InputArgs {
    /// Refuses a wrong frame size before anything is read.
    pub fn check(&self) -> Result<()> {
        check_frame_size(self.frame_size)
    }

    /// Threads and memory: as many workers as fit, with the most demanding of some codecs, beside the content and its
    /// compressed copy.
    ///
    /// # Errors
    /// Not even one fits.
    pub fn plan(&self, bytes_max: u64, codecs: &[FrameCodec], ui: &Ui) -> Result<Planned> {
        let held_bytes = self.source.held_bytes(bytes_max);
        let worker_bytes = || worker_bytes(codecs, self.frame_size);
        let threads = self.workers.that_fit(worker_bytes, held_bytes.saturating_mul(2), ui)?;
        Ok(Planned { threads, held_bytes })
    }

    /// Reads the input, or a sample of it.
    pub fn read(&self, planned: Planned, ui: &Ui) -> Result<(Input, Subject)> {
        let input = self.source.read_held(self.frame_size, planned.threads, planned.held_bytes, ui)?;
        let subject = self.source.subject(&input, planned.threads);
        Ok((input, subject))
    }
}

/// Threads and memory of a run.
#[derive(Clone, Copy, Debug)]
pub struct Planned {
    /// Workers.
    pub threads: usize,
    /// Bytes of the input that are held in memory at most.
    held_bytes: u64,
}

/// Memory of one worker with the most demanding of some codecs: its context after use, because most of it is allocated
/// then, and a frame before, compressed, and after.
fn worker_bytes(codecs: &[FrameCodec], frame_size_bytes: u64) -> Result<u64> {
    let frame = vec![0; frame_size_bytes as usize];
    let mut compressed = Vec::new();
    let mut bytes_of = |codec: &FrameCodec| -> Result<u64> {
        let mut encoder = codec.new_encoder()?;
        encoder.encode(&frame, &mut compressed)?;
        let buffers_bytes = (codec.encoded_bytes_max(frame.len()) + 2 * frame.len()) as u64;
        Ok(encoder.context_bytes() as u64 + buffers_bytes + clustering_bytes(codec.layout(), false, frame_size_bytes))
    };
    codecs.iter().try_fold(0, |most, codec| bytes_of(codec).map(|bytes| most.max(bytes)))
}

/// The codecs to compare.
#[derive(Debug, Args)]
pub struct CodecArgs {
    /// Levels of zstd and ranges: 1-10, or 1,3,-5--1 [default: 1-10]
    #[arg(long, value_name = "LIST", allow_hyphen_values = true)]
    levels: Option<String>,
    /// Codecs to compare, with levels: zstd,lz4,zlib:1,6,9 [default: zstd; in the table also clustered]
    ///
    /// zstd (levels of --levels, or its own), clustered (zstd with `--layout clustered`; 1 to 3), lz4 (as `archive --format lz4`), zlib (1 to 9; default 1, 6
    /// and 9), bzip2 (1 to 9; 9), snappy, lzo (1 and 999), none (a copy in memory); where it is built in, lz4hc (3 to
    /// 12; 9).
    #[arg(long, value_name = "LIST")]
    codec: Option<String>,
}

impl CodecArgs {
    /// What `--codec` and `--levels` ask for.
    pub fn list(&self) -> Result<CodecList> {
        let levels = zstd_levels(self.levels.as_deref().unwrap_or("1-10"))?;
        let codec = self.codec.as_deref().unwrap_or(REFERENCE_CODEC);
        let list = CodecList::parse(codec, &levels)?;
        let names_zstd = |item: &str| item.trim() == REFERENCE_CODEC;
        if self.levels.is_some() && !codec.split(',').any(names_zstd) {
            return Err(Error::usage("--levels applies to zstd, but --codec has no zstd without its own levels")
                .with_hint("give levels behind the codec: --codec zlib:1,9"));
        }
        Ok(list)
    }

    /// Whether they are named, and not the default ones.
    pub fn is_named(&self) -> bool {
        self.codec.is_some()
    }
}

/// The number of runs.
#[derive(Debug, Args)]
pub struct RepeatArgs {
    /// Minimum number of runs of each measurement
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    repeat: u32,
    /// Minimum time for the runs of each measurement, in seconds
    #[arg(long, value_name = "S", default_value = "1", value_parser = values::duration)]
    min_time: Duration,
}

impl RepeatArgs {
    /// The same as options.
    pub fn options(&self, threads: usize) -> RepeatOptions {
        RepeatOptions { repeat: self.repeat as usize, min_time: self.min_time, threads, budget: None }
    }
}

/// Reads the one codec of a command that measures only one.
pub fn one_codec(text: &str) -> Result<FrameCodec> {
    let list: CodecList = text.parse()?;
    match list.codecs() {
        [codec] if codec.name == CLUSTERED_CODEC => {
            Err(Error::usage("records are clustered in whole frames of an archive, not in what is measured here")
                .with_hint("`slotpress levels` measures them"))
        }
        [codec] => Ok(*codec),
        codecs => Err(Error::usage(format!("--codec {text} are {} codecs and levels", codecs.len()))
            .with_hint("one is measured here, such as --codec zstd:3 or --codec zlib:6")),
    }
}
