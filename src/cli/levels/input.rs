//! Flags that the commands of `levels` share: input, codecs, number of runs.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use slotpress::levels::{FrameCodec, LevelRow, MeasureOptions};
use slotpress::program::{
    CLUSTERED_CODEC, Input, InputKind, REFERENCE_CODEC, SAMPLE_BYTES_DEFAULT, add_clustered, check_frame_size,
    measure_levels, parse_codecs, parse_levels,
};
use slotpress::{Error, Progress, Result};
use slotpress_base::quantity;

use super::page::{FileArgs, InputInfo, collect_provenance};
use crate::cli::arguments::{DirectoryArgs, ThreadArgs};
use crate::cli::ui::Ui;
use crate::cli::{memory, values};

#[derive(Debug, Args)]
pub struct SourceArgs {
    /// A ledger directory, an archive, an unpacked archive, or any file
    // The parser requires it, unless there is a subcommand, which has an input of its own.
    #[arg(value_name = "INPUT", required = true)]
    path: Option<PathBuf>,
    /// Sample size [default: the whole input, up to 1 GiB, or 256 MiB for `levels frames`]
    ///
    /// The sample is spread evenly over the input.
    #[arg(long, value_name = "SIZE", value_parser = values::parse_size)]
    sample: Option<u64>,
    /// Random seed of the sample
    #[arg(long, value_name = "N", default_value_t = 0)]
    seed: u64,
    /// The bank snapshot of a ledger [default: the newest complete one]
    #[arg(long, value_parser = values::parse_slot)]
    slot: Option<u64>,
    /// Measure the incremental archive based on the full archive of this slot
    #[arg(long, value_parser = values::parse_slot, value_name = "SLOT")]
    base_slot: Option<u64>,
    #[command(flatten)]
    directories: DirectoryArgs,
}

impl SourceArgs {
    pub fn path(&self) -> &Path {
        self.path.as_deref().unwrap_or(Path::new(""))
    }

    /// Returns options for reading the input with `threads` threads, and holding at most `held_bytes` of it in
    /// memory.
    pub fn options(&self, threads: usize, held_bytes: u64) -> MeasureOptions {
        let options = MeasureOptions::new(self.directories.paths(self.path()));
        let mut options = options.sample_bytes(held_bytes).seed(self.seed).threads(threads);
        options.slot = self.slot;
        options.base_slot = self.base_slot;
        options
    }

    /// Returns how many bytes of content to hold in memory: `--sample`, or else `bytes_max`, but at most a quarter
    /// of what the tightest memory limit leaves.
    pub fn choose_held_bytes(&self, bytes_max: u64) -> u64 {
        memory::requested_memory_or(self.sample, bytes_max)
    }

    /// Reads the input or a sample of it. Warns if the input is too large to be measured as a whole.
    pub fn read(&self, options: &MeasureOptions, ui: &Ui) -> Result<Input> {
        let input = Input::read(options, ui)?;
        if input.is_sampled() && self.sample.is_none() {
            let [total, sample] = [input.total_bytes, input.content_bytes()].map(quantity::bytes);
            ui.warn(&format!(
                "the input has {total}; a sample of {sample} is measured (--sample sets a different size)"
            ));
        }
        Ok(input)
    }

    pub fn describe(&self, input: &Input, method: &str) -> InputInfo {
        let path = self.path().canonicalize().unwrap_or_else(|_| self.path().to_path_buf());
        let [total, measured] = [input.total_bytes, input.content_bytes()].map(quantity::bytes);
        let amount = if total == measured { total } else { format!("sample of {measured} from {total}") };
        let name = path.file_name().unwrap_or("/".as_ref());
        InputInfo {
            name: name.to_string_lossy().into_owned(),
            about: format!("{}, {amount}, {method}, in memory", input.kind.as_str()),
            provenance: collect_provenance(self.path()),
        }
    }
}

#[derive(Debug, Args)]
pub struct RepeatArgs {
    /// Minimum number of runs of each measurement
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    repeat: u32,
    /// Minimum time for the runs of each measurement
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = values::parse_duration)]
    min_time: Duration,
}

impl RepeatArgs {
    pub fn apply(&self, options: MeasureOptions) -> MeasureOptions {
        options.repeat(self.repeat as usize).min_time(self.min_time)
    }
}

#[derive(Debug, Args)]
pub struct MeasureArgs {
    #[command(flatten)]
    source: SourceArgs,
    /// Frame size before compression, 64KiB to 32MiB
    #[arg(long, value_name = "SIZE", default_value = "8MiB", value_parser = values::parse_size)]
    pub frame_size: u64,
    /// Levels of zstd, single or as ranges: 1-10, or 1,3,-5--1 [default: 1-10]
    #[arg(long, value_name = "LIST", allow_hyphen_values = true)]
    levels: Option<String>,
    /// Codecs to compare, with levels: zstd,lz4,zlib:1,6,9 [default: zstd]
    ///
    /// Without this flag, `levels` without a subcommand also measures clustered. The codecs are zstd (the levels
    /// of --levels, or its own), clustered (zstd with `--layout clustered`; default 1 to 3), lz4 (as `archive
    /// --format lz4`), zlib (1 to 9; default 1, 6 and 9), bzip2 (1 to 9; default 9), snappy, lzo (1 and 999;
    /// default both) and none (a copy in memory).
    #[arg(long, value_name = "LIST")]
    codec: Option<String>,
    #[command(flatten)]
    repeat: RepeatArgs,
    /// Time for measuring all levels; reading the input is not included
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = values::parse_duration)]
    budget: Duration,
    #[command(flatten)]
    pub files: FileArgs,
    #[command(flatten)]
    workers: ThreadArgs,
}

/// When a command measures clustered records.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum ClusteredRows {
    /// Unless `--codec` is given.
    ByDefault,
    /// Only if `--codec` names them.
    OnRequest,
}

pub struct Measurements {
    pub input: Input,
    pub info: InputInfo,
    pub threads: usize,
    /// At least one row.
    pub rows: Vec<LevelRow>,
    /// The error that ended the measurement after these rows: the user interrupted it, or a codec failed.
    pub result: Result<()>,
}

impl MeasureArgs {
    fn codecs(&self) -> Result<Vec<FrameCodec>> {
        let levels = parse_levels(self.levels.as_deref().unwrap_or("1-10"))?;
        let codec = self.codec.as_deref().unwrap_or(REFERENCE_CODEC);
        let codecs = parse_codecs(codec, &levels)?;
        let names_zstd = |item: &str| item.trim() == REFERENCE_CODEC;
        if self.levels.is_some() && !codec.split(',').any(names_zstd) {
            return Err(Error::usage(
                "--levels has no effect: it sets the levels of a plain `zstd`, and --codec contains none",
            )
            .with_hint("write levels after the codec: --codec zlib:1,9"));
        }
        Ok(codecs)
    }

    /// Measures the levels, and the clustered rows if the command has them. Starts at most as many workers as fit
    /// into memory together with the content and its compressed copy, for the codec that needs the most memory.
    pub fn measure(&self, clustered: ClusteredRows, ui: &Ui) -> Result<Measurements> {
        let mut codecs = self.codecs()?;
        let adds_clustered = clustered == ClusteredRows::ByDefault && self.codec.is_none();
        if adds_clustered {
            add_clustered(&mut codecs);
        }
        check_frame_size(self.frame_size)?;
        self.files.check(self.source.path())?;
        let held_bytes = self.source.choose_held_bytes(SAMPLE_BYTES_DEFAULT);
        let worker_bytes = || {
            let mut bytes_max = 0;
            for codec in &codecs {
                bytes_max = codec.worker_bytes(self.frame_size)?.max(bytes_max);
            }
            Ok(bytes_max)
        };
        // The content, and its compressed copy.
        let other_bytes = held_bytes.saturating_mul(2);
        let threads = memory::threads_that_fit(self.workers.threads, worker_bytes, other_bytes, ui)?;
        let mut options = self.repeat.apply(self.source.options(threads, held_bytes));
        options.frame_size_bytes = self.frame_size;
        options.codecs = codecs;
        options.budget = Some(self.budget);
        let input = self.source.read(&options, ui)?;
        // A plain file has no records to cluster.
        if adds_clustered && input.kind == InputKind::File {
            options.codecs.retain(|codec| codec.name == REFERENCE_CODEC);
        }
        let workers = quantity::count_of(threads as u64, "worker");
        let method = format!("frames of {}, {workers}", quantity::bytes(self.frame_size));
        let info = self.source.describe(&input, &method);
        let levels = quantity::count_of(options.codecs.len() as u64, "level");
        let budget = values::show_age(self.budget);
        ui.status(&format!("measuring {levels} for at most {budget} (--budget)"));
        let mut rows = Vec::new();
        let unmeasured = measure_levels(&input, &options, ui, &mut rows);
        if rows.is_empty() {
            unmeasured?;
            return Err(Error::failed("no level was measured"));
        }
        let result = unmeasured.map(|codecs| {
            if !codecs.is_empty() {
                let codecs = codecs.iter().map(FrameCodec::to_string).collect::<Vec<_>>().join(", ");
                ui.warn(&format!("not measured within {budget}: {codecs}; raise --budget, or lower --sample"));
            }
        });
        Ok(Measurements { input, info, threads, rows, result })
    }
}

/// Parses `--codec` of a command that measures one codec at one level.
pub fn parse_one_codec(text: &str) -> Result<FrameCodec> {
    match parse_codecs(text, &[1])?.as_slice() {
        [codec] if codec.name == CLUSTERED_CODEC => {
            Err(Error::usage("clustering needs whole frames of an archive, which are not measured here")
                .with_hint("`slotpress levels` measures clustered frames"))
        }
        [codec] => Ok(*codec),
        codecs => {
            let message = format!("--codec {text} names {} codecs and levels, not one", codecs.len());
            Err(Error::usage(message).with_hint("name one, such as --codec zstd:3 or --codec zlib:6"))
        }
    }
}
