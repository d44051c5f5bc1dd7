//! Runs `slotpress archive`, and prints its preview and report.

use std::path::PathBuf;

use clap::Args;
use slotpress::Result;
use slotpress::archive::{ArchiveOptions, ArchiveReport, archive, preview_archive};
use slotpress::verify::CheckOptions;
use slotpress_base::EscapePath;

use super::arguments::{DirectoryArgs, say_read_back};
use super::memory::requested_memory_or_half_of_free;
use super::network::ConnectionArgs;
use super::output::{NewArchiveArgs, Output, path_or_name};
use super::ui::Ui;
use super::values::{self, quote_for_shell};

/// Make a full or incremental archive of a stopped validator's ledger
///
/// LEDGER is the validator's ledger directory, or the directory into which an archive was unpacked.
/// The validator must have been stopped gracefully: slotpress locks the ledger, and refuses a bank
/// snapshot that is not complete.
#[derive(Debug, Args)]
pub struct ArchiveArgs {
    /// The ledger directory of a stopped validator, or an unpacked archive
    ledger: PathBuf,
    /// The directory or store (s3://BUCKET/PREFIX) for the archive, or - for standard output; the
    /// file name is computed from slot and hash
    #[arg(short, long, value_name = "TARGET")]
    output: PathBuf,
    /// Make an incremental archive, based on the full archive of this slot
    #[arg(long, value_parser = values::parse_slot, value_name = "SLOT")]
    base_slot: Option<u64>,
    /// The bank snapshot to archive [default: the newest complete one]
    #[arg(long, value_parser = values::parse_slot)]
    slot: Option<u64>,
    #[command(flatten)]
    directories: DirectoryArgs,
    /// Read the archive back, with all accounts, before it is renamed into place
    #[arg(long)]
    verify: bool,
    /// Write nothing; show the name, the estimated size, needed and free space, and what would be refused
    #[arg(long)]
    dry_run: bool,
    /// Accept a base slot other than that of the newest full archive
    #[arg(long)]
    force_base: bool,
    #[command(flatten)]
    new_archive: NewArchiveArgs,
    #[command(flatten)]
    connection: ConnectionArgs,
}

const PREVIEW_ROWS: &[&str] = &[
    "slot: {slot}[ on {base_slot}], {storages}",
    "size: about {estimated_bytes} from {input_bytes}, estimated from a sample of {sample_bytes}",
    "space: about {estimated_bytes} needed, {free_bytes} free",
];

const REPORT_ROWS: &[&str] = &[
    NEW_ARCHIVE_ROW,
    "size: {output_bytes} from {input_bytes} (ratio {input_bytes/output_bytes})",
    "root: {root}",
    "elapsed: {elapsed_seconds} at {input_bytes/elapsed_seconds}, CPU load {cpu_seconds%elapsed_seconds}, {threads}",
];

/// Row about a new archive, for every command that makes one.
pub const NEW_ARCHIVE_ROW: &str = "slot: {slot}[ on {base_slot}], {storages}, {format}[ level {zstd_level}], {frames}";

pub fn run(args: &ArchiveArgs, ui: &Ui) -> Result<()> {
    values::check_ledger(&args.ledger)?;
    let new_archive = &args.new_archive;
    let memory = new_archive.resources.memory;
    let mut output = Output::open(&args.output, memory, &args.connection, ui)?;
    let mut options = ArchiveOptions::new(&args.ledger)
        .paths(args.directories.paths(&args.ledger))
        .force_base(args.force_base)
        .encoding(new_archive.options(&output, 0, ui)?);
    options.slot = args.slot;
    options.base_slot = args.base_slot;
    if args.verify {
        let memory_bytes = requested_memory_or_half_of_free(memory);
        options = options.read_back(CheckOptions::default().memory_bytes(memory_bytes));
    }
    if args.dry_run {
        let preview = new_archive.write(&mut output, ui, |sink| preview_archive(&options, sink, ui))?;
        let Some(preview) = preview else { return Ok(()) };
        let path = preview.path.escaped();
        ui.print_report("archive_preview", &path, &preview, PREVIEW_ROWS);
        ui.say("Nothing was written.");
        return preview.check_space();
    }
    let report = new_archive.write(&mut output, ui, |sink| archive(&options, sink, ui))?;
    if let Some(report) = report {
        print_report(&report, ui);
    }
    Ok(())
}

fn print_report(report: &ArchiveReport, ui: &Ui) {
    let path = path_or_name(&report.archive);
    ui.print_report("archive", &path.escaped(), report, REPORT_ROWS);
    if let Some(read_back) = &report.read_back {
        say_read_back(read_back, ui);
    }
    let is_state_checked = report.read_back.as_ref().is_some_and(|report| report.accounts.is_some());
    if report.archive.name.base_slot.is_some() && !is_state_checked {
        let full = report.base.as_ref().map_or("FULL".to_string(), |base| quote_for_shell(base));
        ui.say("To check that it fits its full archive:");
        let incremental = quote_for_shell(&path);
        ui.say(&format!("  slotpress verify {full} {incremental}"));
    }
}
