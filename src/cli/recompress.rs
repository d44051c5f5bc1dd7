//! Runs `slotpress recompress`, and prints its report.

use std::path::{Path, PathBuf};

use clap::Args;
use slotpress::program::decoding_side_bytes;
use slotpress::recompress::{RecompressOptions, recompress};
use slotpress::{ArchiveInput, Error, Result};
use slotpress_base::EscapePath;

use super::archive::NEW_ARCHIVE_ROW;
use super::arguments::{COMPLETE_ROW, CheckArgs, STATE_ROW};
use super::network::{ConnectionArgs, choose_archives, open_local, refuse_url};
use super::output::{NewArchiveArgs, Output, path_or_name};
use super::ui::Ui;
use super::values;

/// Recompress an archive: smaller, checked, and with an index
///
/// Reads archives of slotpress, Agave and Firedancer (since September 2026) in one pass. The new archive has the
/// same entries in the same order. If the archive is damaged, or does not match its name, nothing is written.
#[derive(Debug, Args)]
pub struct RecompressArgs {
    /// The archive, or - for standard input. From several archives or a directory of archives,
    /// slotpress uses those that a node would choose
    #[arg(value_name = "ARCHIVE|DIR|-", required = true)]
    archives: Vec<PathBuf>,
    /// The directory or store (s3://BUCKET/PREFIX) for the new archive, or - for standard output
    #[arg(short, long, value_name = "TARGET")]
    output: PathBuf,
    /// The base slot of an incremental archive from standard input
    #[arg(long, value_parser = values::parse_slot, value_name = "SLOT")]
    base_slot: Option<u64>,
    #[command(flatten)]
    new_archive: NewArchiveArgs,
    /// The full archive on which an incremental one is based, to check the state of both together;
    /// it is only read
    #[arg(long, value_name = "FULL_ARCHIVE", help_heading = "Check")]
    base: Option<PathBuf>,
    #[command(flatten)]
    check: CheckArgs,
    #[command(flatten)]
    connection: ConnectionArgs,
}

pub fn run(args: &RecompressArgs, ui: &Ui) -> Result<()> {
    for archive in args.archives.iter().chain(&args.base) {
        refuse_url(archive, &|url| {
            format!("`slotpress fetch {url} -o DIR` fetches it; then recompress the file in DIR")
        })?;
    }
    let archives = choose_archives(&args.archives, None, ui)?;
    let is_stream = |archive: &Path| archive.as_os_str() == "-";
    if args.base_slot.is_some() && !is_stream(&archives[0]) {
        return Err(Error::usage("--base-slot is for standard input only: a file has the base slot in its name"));
    }
    if archives.len() > 1 && (args.output.as_os_str() == "-" || args.base.is_some()) {
        let message = "a full and an incremental archive become two new archives, which need a directory or a store";
        return Err(Error::usage(message).with_hint("pass a directory or a store as --output, and leave out --base"));
    }
    let new_archive = &args.new_archive;
    let memory_bytes = new_archive.resources.memory;
    let mut output = Output::open(&args.output, memory_bytes, &args.connection, ui)?;
    let check = args.check.options(memory_bytes);
    let other_bytes = decoding_side_bytes(new_archive.encoding.frame_size) + check.memory_bytes;
    let encoding = new_archive.options(&output, other_bytes, ui)?;
    for (number, archive) in archives.iter().enumerate() {
        let archive = open_local(archive)?;
        let mut options = RecompressOptions::new(archive).encoding(encoding.clone()).check(check.clone());
        options.base_slot = args.base_slot;
        options.base = if number > 0 { Some(&archives[0]) } else { args.base.as_ref() }.map(ArchiveInput::from);
        if number + 1 < archives.len() {
            // The expected hash and slot are those of both archives together, so only the last run compares them.
            options.check.expect_hash = None;
            options.check.expect_slot = None;
        }
        let report = new_archive.write(&mut output, ui, |sink| recompress(&options, sink, ui))?;
        if let Some(report) = &report {
            let path = path_or_name(&report.archive).escaped();
            ui.print_report("recompress", &path, report, REPORT_ROWS);
        }
    }
    Ok(())
}

const REPORT_ROWS: &[&str] = &[
    NEW_ARCHIVE_ROW,
    "size: {output_bytes}, {output_bytes%input_bytes} of {input_bytes} (ratio {tar_bytes/output_bytes} to the tar)",
    "elapsed: {elapsed_seconds} at {tar_bytes/elapsed_seconds}, CPU load {cpu_seconds%elapsed_seconds}",
    "root: {root}",
    STATE_ROW,
    COMPLETE_ROW,
];
