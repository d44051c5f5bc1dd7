//! Runs `slotpress archive`, and prints its preview and report.

use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::json;
use slotpress::{
    ArchiveName, ArchiveOptions, ArchivePreview, ArchiveReport, Error, ErrorKind, NewArchive, Progress, Result, Root,
    Sink, archive, plan_archive,
};
use slotpress_base::text::ShowPath;

use super::arguments::DirectoryArgs;
use super::codec::{self, EncodingArgs};
use super::io_policy::IoPolicyArgs;
use super::network::ConnectionArgs;
use super::output::Output;
use super::restore::shell_word;
use super::ui::Ui;
use super::values::{count_of, show_bytes};
use super::{check, stdout, values};

/// Make a full or incremental archive of a stopped validator's ledger
///
/// LEDGER is the validator's ledger directory, or the directory into which an archive was unpacked.
/// The validator must have been stopped gracefully: slotpress takes its lock, and refuses a bank
/// snapshot that is not complete.
#[derive(Debug, Args)]
pub struct ArchiveArgs {
    /// The ledger directory of a stopped validator, or an unpacked archive
    ledger: PathBuf,
    /// The directory or store (s3://BUCKET/PREFIX) for the archive, or - for standard output; the
    /// file name is computed from slot and hash
    #[arg(short, long = "output", value_name = "TARGET")]
    output: PathBuf,
    /// Make an incremental archive, based on the full archive of this slot
    #[arg(long, value_parser = values::slot, value_name = "SLOT")]
    base_slot: Option<u64>,
    /// The bank snapshot to archive [default: the newest complete one]
    #[arg(long, value_parser = values::slot)]
    slot: Option<u64>,
    #[command(flatten)]
    directories: DirectoryArgs,
    #[command(flatten)]
    encoding: EncodingArgs,
    /// Memory limit for buffers; fewer workers run if it is too small for all
    #[arg(long, value_name = "SIZE", value_parser = values::size, env = "SLOTPRESS_MEMORY")]
    memory: Option<u64>,
    /// Replace an archive of the same name
    #[arg(long)]
    force: bool,
    /// If an archive of the same name exists, leave it as it is, unchecked, and end with exit code
    /// 0
    #[arg(long, conflicts_with = "force")]
    skip_existing: bool,
    /// Read the archive back, including all accounts, before it gets its name
    #[arg(long)]
    verify: bool,
    /// Write nothing; show the name, the estimated size, needed and free space, and what would be
    /// refused
    #[arg(long)]
    dry_run: bool,
    /// Accept a base slot other than that of the newest full archive
    #[arg(long)]
    force_base: bool,
    #[command(flatten)]
    io_policy: IoPolicyArgs,
    #[command(flatten)]
    connection: ConnectionArgs,
}

pub fn run(args: &ArchiveArgs, ui: &Ui) -> Result<()> {
    values::check_ledger(&args.ledger)?;
    let is_stdout = codec::is_stdout(&args.output, ui)?;
    let output = Output::open(&args.output, args.memory, &args.connection)?;
    let options = ArchiveOptions::new(&args.ledger)
        .paths(args.directories.paths(&args.ledger))
        .slot(args.slot)
        .base_slot(args.base_slot)
        .force_base(args.force_base)
        .encoding(args.encoding.options(output.left_of(args.memory), output.memory_bytes(), &args.io_policy, ui)?)
        .read_back(args.verify.then(|| values::read_back(args.memory)));
    if args.dry_run {
        if is_stdout || output.is_store() {
            return Err(Error::usage("--dry-run needs an output directory: it compares sizes with the space there"));
        }
        let plan = plan_archive(&options, output.sink(args.force)?, ui);
        return match plan.and_then(|plan| plan.preview(ui)) {
            Err(error) if args.skip_existing => skip_existing(error, ui),
            preview => print_preview(&preview?, ui),
        };
    }
    let mut stdout = is_stdout.then(|| stdout::for_data(ui)).transpose()?;
    let sink = match &mut stdout {
        Some(stdout) => Sink::stream(stdout),
        None => output.sink(args.force)?,
    };
    let report = match archive(&options, sink, ui) {
        Err(error) if args.skip_existing => return skip_existing(error, ui),
        // An interrupted run may fail with a broken pipe: report the interruption instead.
        Err(error) if error.kind() == ErrorKind::Failed => return Err(ui.check().err().unwrap_or(error)),
        report => report?,
    };
    print_report(&report, ui);
    Ok(())
}

fn print_preview(preview: &ArchivePreview, ui: &Ui) -> Result<()> {
    let dir = preview.path.parent().unwrap_or(Path::new(".")).shown();
    let [estimated, free] = [preview.estimated_bytes, preview.free_bytes].map(show_bytes);
    let [input, sample] = [preview.input_bytes, preview.sample_bytes].map(show_bytes);
    if ui.print_head("archive_preview", preview, &preview.path.shown()) {
        ui.print(&format!("  {}, {}", kind_of(&preview.name), count_of(preview.storages, "storage")));
        ui.print(&format!("  size     about {estimated} from {input}, estimated from a sample of {sample}"));
        ui.print(&format!("  space    about {estimated} needed, {free} free in {dir}"));
        ui.print("Nothing was written.");
    }
    match preview.has_room() {
        true => Ok(()),
        false => {
            let message = format!("not enough space in {dir}: about {estimated} needed, {free} free");
            let hint = "free some space, or choose a directory on another disk";
            Err(Error::new(ErrorKind::NoSpace, message).with_hint(hint))
        }
    }
}

fn kind_of(name: &ArchiveName) -> String {
    match name.base_slot {
        Some(base) => format!("incremental, slot {} on {base}", name.slot),
        None => format!("full, slot {}", name.slot),
    }
}

/// With `--skip-existing`, turns the error about an existing archive into a notice; passes on every
/// other error.
pub fn skip_existing(error: Error, ui: &Ui) -> Result<()> {
    let Some(path) = error.existing_path() else { return Err(error) };
    let skipped = json!({ "path": path.to_string_lossy(), "reason": "exists already" });
    if ui.print_head("skipped", &skipped, &path.shown()) {
        ui.print("  skipped: it exists already, and was neither read nor changed");
    }
    Ok(())
}

pub fn print_report(report: &ArchiveReport, ui: &Ui) {
    let (archive, input_bytes) = (&report.archive, report.input_bytes);
    let (name, path) = (&archive.name, shown_path(archive));
    if !ui.print_head("archive", report, &path) {
        return;
    }
    let codec = codec::show_codec(archive);
    ui.print(&format!("  {}, {}, {codec}", kind_of(name), count_of(archive.storages, "storage")));
    let [output, input] = [archive.output_bytes, input_bytes].map(show_bytes);
    let ratio = values::show_ratio(input_bytes, archive.output_bytes);
    ui.print(&format!("  size     {output} from {input} (ratio {ratio})"));
    print_root(archive.root, ui);
    let workers = count_of(report.threads as u64, "worker");
    ui.print(&format!("  elapsed  {}, {workers}", values::show_speed(input_bytes, &archive.elapsed)));
    check::print_read_back(&report.read_back, ui);
    if name.base_slot.is_some() && report.read_back.as_ref().is_none_or(|read_back| read_back.accounts.is_none()) {
        ui.print("To check that it fits its full archive:");
        let full = report.base.as_ref().map_or("FULL".to_string(), |base| shell_word(base));
        let path = archive.path.as_ref().map_or(path, |path| shell_word(path));
        ui.print_verbatim(&format!("  slotpress verify {full} {path}"));
    }
}

/// Path of an archive, or only its name if it went into a stream.
pub fn shown_path(archive: &NewArchive) -> String {
    archive.path.as_ref().map_or_else(|| archive.name.to_string(), |path| path.shown())
}

pub fn print_root(root: Option<Root>, ui: &Ui) {
    if let Some(root) = root {
        ui.print(&format!("  root     {root}"));
    }
}
