//! Runs `slotpress rebase`, and prints its report.

use std::io;
use std::path::PathBuf;

use clap::Args;
use slotpress::program::decoding_side_bytes;
use slotpress::rebase::{RebaseOptions, rebase};
use slotpress::{Error, Result};
use slotpress_base::EscapePath;

use super::archive::NEW_ARCHIVE_ROW;
use super::arguments::ExpectedArgs;
use super::network::{READ_TWICE, StateArgs, open_archive, print_transfer, print_transfers};
use super::output::{NewArchiveArgs, Output, path_or_name};
use super::ui::Ui;

/// Make an incremental archive of a new state on any older full archive
///
/// A node that still has the old full archive then needs only the new archive. Agave and Firedancer load the two
/// like any other pair. The new archive holds every account that changed, and closes the accounts that the new
/// state no longer has. All archives are verified, and read twice; an archive at a URL is transferred twice.
#[derive(Debug, Args)]
pub struct RebaseArgs {
    /// The older full archive that nodes still have, or its URL
    #[arg(long, value_name = "OLD_FULL")]
    onto: PathBuf,
    /// The directory or store (s3://BUCKET/PREFIX) for the new archive
    #[arg(short, long, value_name = "TARGET", required_unless_present = "dry_run")]
    output: Option<PathBuf>,
    /// Read everything, and say how large the archive would be; write only temporary files
    #[arg(long, conflicts_with_all = ["force", "skip_existing"])]
    dry_run: bool,
    #[command(flatten)]
    new_archive: NewArchiveArgs,
    #[command(flatten)]
    expected: ExpectedArgs,
    #[command(flatten)]
    state: StateArgs,
}

const REPORT_ROWS: &[&str] = &[
    "onto: snapshot-{base_slot}-{base_hash}",
    NEW_ARCHIVE_ROW,
    "accounts: {accounts_changed} changed, {accounts_new} new, {accounts_closed} closed; {accounts_unchanged} left out",
    "size: {output_bytes} ({tar_bytes} of tar), {output_bytes%state_bytes} of the new state's {state_bytes}",
    "elapsed: {elapsed_seconds} at {input_bytes/elapsed_seconds}, CPU load {cpu_seconds%elapsed_seconds}",
    "root: {root}",
    "state: checked: the full archive with these changes is the new state",
];

pub fn run(args: &RebaseArgs, ui: &Ui) -> Result<()> {
    let new_archive = &args.new_archive;
    let network = &args.state.network;
    let memory = new_archive.resources.memory;
    let check = args.expected.options(memory);
    let mut output = match &args.output {
        Some(output) if output.as_os_str() == "-" => {
            return Err(Error::usage(
                "rebase cannot write to a pipe: the archive must be checked before it gets its final name",
            )
            .with_hint("write it into a directory"));
        }
        Some(output) if !args.dry_run => Output::open(output, memory, &network.connection, ui)?,
        _ => Output::Discard(io::sink()),
    };
    let other_bytes = decoding_side_bytes(new_archive.encoding.frame_size) + check.memory_bytes;
    let encoding = new_archive.options(&output, other_bytes, ui)?;
    let onto = open_archive(&args.onto, READ_TWICE, network, ui)?;
    let state = args.state.open(READ_TWICE, ui)?;
    let options = RebaseOptions::new(state, onto).encoding(encoding).check(check);
    let Some(report) = new_archive.write(&mut output, ui, |sink| rebase(&options, sink, ui))? else {
        return Ok(());
    };
    let path = path_or_name(&report.archive).escaped();
    ui.print_report("rebase", &path, &report, REPORT_ROWS);
    print_transfers(&options.state, ui);
    print_transfer(&options.onto, ui);
    Ok(())
}
