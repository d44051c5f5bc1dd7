//! `slotpress archive`

use {
    super::{manners::MannersArgs, ui::Ui, values},
    crate::{
        archive::{
            ArchiveOptions, ArchiveReport, archive,
            encode::{Codec, ZSTD_LEVEL_DEFAULT},
        },
        error::Result,
        progress::Progress,
    },
    clap::{Args, ValueEnum},
    serde::Serialize,
    std::path::PathBuf,
};

/// Make a full or incremental snapshot archive from what a stopped validator left on disk
///
/// LEDGER is the validator's ledger directory, or the directory into which an archive was unpacked. The validator must
/// be stopped, gracefully: slotpress takes its lock, and refuses a bank snapshot that is not complete.
#[derive(Debug, Args)]
pub struct ArchiveArgs {
    /// The ledger directory of a stopped validator, or an unpacked archive
    ledger: PathBuf,
    /// The directory for the archive; its name follows from slot and hash
    #[arg(short, long = "output", value_name = "OUT_DIR")]
    output: PathBuf,
    /// Make an incremental archive on the full archive of this slot
    #[arg(long, value_name = "SLOT")]
    base_slot: Option<u64>,
    /// The bank snapshot to archive [default: the newest complete one]
    #[arg(long)]
    slot: Option<u64>,
    /// The validator's --snapshots directory [default: LEDGER]
    #[arg(long, value_name = "DIR")]
    snapshots: Option<PathBuf>,
    /// The validator's --accounts paths; may be given more than once [default: LEDGER/accounts]
    #[arg(long, value_name = "DIR")]
    accounts: Vec<PathBuf>,
    /// The zstd level: 1 to 22, or negative for less and faster
    #[arg(long, value_name = "N", default_value_t = ZSTD_LEVEL_DEFAULT, value_parser = values::zstd_level,
          allow_negative_numbers = true)]
    zstd_level: i32,
    /// zstd for .tar.zst; none for a plain .tar, which Firedancer reads and Agave does not
    #[arg(long, value_enum, default_value_t)]
    format: FormatArg,
    /// Worker threads [default: all cores that the process may use]
    #[arg(long, value_name = "N", value_parser = values::threads)]
    threads: Option<usize>,
    /// The most memory for buffers; fewer workers run where it does not suffice
    #[arg(long, value_name = "SIZE", value_parser = values::size)]
    memory: Option<u64>,
    /// Bytes of tar in one zstd frame, 64KiB to 32MiB
    #[arg(long, value_name = "SIZE", default_value = "8MiB", value_parser = values::size)]
    frame_size: u64,
    /// Leave out the checksum of each frame
    #[arg(long)]
    no_checksum: bool,
    /// Replace an archive of the same name
    #[arg(long)]
    force: bool,
    /// Accept a base slot that is not that of the newest full archive
    #[arg(long)]
    force_base: bool,
    #[command(flatten)]
    manners: MannersArgs,
}

/// What the file name ends in.
#[derive(Clone, Copy, Debug, Default, ValueEnum)]
pub enum FormatArg {
    #[default]
    Zstd,
    None,
}

impl FormatArg {
    /// The codec that flags ask for.
    pub fn codec(self, level: i32, has_checksum: bool) -> Codec {
        match self {
            Self::Zstd => Codec::Zstd { level, has_checksum },
            Self::None => Codec::None,
        }
    }
}

/// How a codec is called in JSON, and its level.
pub fn format_and_level(codec: &Codec) -> (&'static str, Option<i32>) {
    match codec {
        Codec::Zstd { level, .. } => ("zstd", Some(*level)),
        Codec::None => ("none", None),
    }
}

#[derive(Serialize)]
#[serde(tag = "type", rename = "archive")]
struct ArchiveLine<'a> {
    path: String,
    slot: u64,
    base_slot: Option<u64>,
    hash: String,
    format: &'a str,
    zstd_level: Option<i32>,
    storages: u64,
    frames: u64,
    input_bytes: u64,
    output_bytes: u64,
    elapsed_seconds: f64,
    cpu_seconds: f64,
}

pub fn run(args: &ArchiveArgs, ui: &Ui) -> Result<()> {
    let codec = args.format.codec(args.zstd_level, !args.no_checksum);
    if codec == Codec::None {
        ui.warn("a plain .tar: Firedancer reads it, Agave does not");
    }
    let options = ArchiveOptions {
        paths: values::ledger_paths(&args.ledger, &args.snapshots, &args.accounts),
        out_dir: args.output.clone(),
        slot: args.slot,
        base_slot: args.base_slot,
        codec,
        frame_size_bytes: args.frame_size,
        threads: values::threads_or_all(args.threads),
        memory_bytes: args.memory,
        replace: args.force,
        force_base: args.force_base,
        manners: args.manners.apply(ui),
    };
    let report = archive(&options, ui)?;
    print_report(&report, &options.codec, ui);
    Ok(())
}

/// Prints what was archived.
pub fn print_report(report: &ArchiveReport, codec: &Codec, ui: &Ui) {
    let ArchiveReport { path, name, storages, input_bytes, output_bytes, frames, threads, taken } = report;
    let (format, zstd_level) = format_and_level(codec);
    if ui.is_json() {
        ui.print_json(&ArchiveLine {
            path: path.display().to_string(),
            slot: name.slot,
            base_slot: name.base_slot,
            hash: name.hash.to_string(),
            format,
            zstd_level,
            storages: *storages,
            frames: *frames,
            input_bytes: *input_bytes,
            output_bytes: *output_bytes,
            elapsed_seconds: taken.elapsed.as_secs_f64(),
            cpu_seconds: taken.cpu.as_secs_f64(),
        });
        return;
    }
    let kind = match name.base_slot {
        Some(base) => format!("incremental, slot {} on {base}", name.slot),
        None => format!("full, slot {}", name.slot),
    };
    let level = zstd_level.map_or_else(|| "plain tar".to_string(), |level| format!("zstd level {level}"));
    ui.print(&path.display().to_string());
    ui.print(&format!(
        "  {kind}, {}, {level}, {}",
        values::count_of(*storages, "storage"),
        values::count_of(*frames, "frame")
    ));
    ui.print(&format!(
        "  size     {} from {} (ratio {})",
        values::show_bytes(*output_bytes),
        values::show_bytes(*input_bytes),
        values::show_ratio(*input_bytes, *output_bytes)
    ));
    ui.print(&format!(
        "  elapsed  {} at {}, CPU load {:.0} %, {}",
        values::show_duration(taken.elapsed),
        values::show_rate(*input_bytes, taken.elapsed),
        taken.cpu_percent(),
        values::count_of(*threads as u64, "worker")
    ));
}
