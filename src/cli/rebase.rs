//! Runs `slotpress rebase`, and prints its report.

use std::io;
use std::path::PathBuf;

use clap::Args;
use slotpress::{
    ArchiveOptions, ChangeCounts, CheckOptions, Error, Hash, RebaseInput, RebaseOptions, RebaseReport, Result, Sink,
    ledger_as_archive, rebase,
};
use slotpress_read::STATE_MEMORY_BYTES_DEFAULT;

use super::archive::{print_root, shown_path, skip_existing};
use super::arguments::DirectoryArgs;
use super::codec::{self, EncodingArgs};
use super::io_policy::IoPolicyArgs;
use super::network::{ArchiveInput, FOR_LEDGERS, NetworkArgs, Reads, StateInput};
use super::output::Output;
use super::ui::Ui;
use super::{planned, values};

/// Make an incremental archive of a new state on any older full archive
///
/// A node that still has the old full archive then needs only this one, and Agave and Firedancer
/// load the two as any pair: it holds every account that changed, and closes those that the new
/// state does not have. All archives are verified on the way. They are read twice; a URL is
/// transferred twice.
#[derive(Debug, Args)]
pub struct RebaseArgs {
    /// The full archive of the new state, and the incremental one on it if there is one, by path or
    /// URL; or the ledger directory of a stopped validator
    #[arg(value_name = "NEW", required = true)]
    new: Vec<PathBuf>,
    /// The older full archive that nodes still have, or its URL
    #[arg(long, value_name = "OLD_FULL")]
    onto: PathBuf,
    /// The directory or store (s3://BUCKET/PREFIX) for the new archive
    #[arg(short, long = "output", value_name = "TARGET", required_unless_present = "dry_run")]
    output: Option<PathBuf>,
    /// The bank snapshot of a ledger [default: the newest complete one]
    #[arg(long, value_parser = values::slot)]
    slot: Option<u64>,
    #[command(flatten)]
    directories: DirectoryArgs,
    #[command(flatten)]
    encoding: EncodingArgs,
    /// Memory limit for buffers (fewer workers run if it is too small for all), and the same again
    /// for comparing the states; data that does not fit is spilled to the output directory
    /// [default: 1GiB for comparing]
    #[arg(long, value_name = "SIZE", value_parser = values::size, env = "SLOTPRESS_MEMORY")]
    memory: Option<u64>,
    /// Expected snapshot hash of the new state, as a trusted node advertises it
    #[arg(long, value_name = "HASH", value_parser = values::hash, help_heading = "Check")]
    expect_hash: Option<Hash>,
    /// Expected slot of the new state
    #[arg(long, value_parser = values::slot, value_name = "SLOT", help_heading = "Check")]
    expect_slot: Option<u64>,
    /// Replace an archive of the same name
    #[arg(long)]
    force: bool,
    /// If an archive of the same name exists, leave it as it is, unchecked, and end with exit code
    /// 0
    #[arg(long, conflicts_with = "force")]
    skip_existing: bool,
    /// Read everything, and say how large the archive would be; write only temporary files
    #[arg(long, conflicts_with_all = ["force", "skip_existing"])]
    dry_run: bool,
    #[command(flatten)]
    io_policy: IoPolicyArgs,
    #[command(flatten)]
    network: NetworkArgs,
}

const READS: Reads = Reads::Again("it is read twice");

pub fn run(args: &RebaseArgs, ui: &Ui) -> Result<()> {
    let check = CheckOptions::default()
        .memory_bytes(planned::memory_or(args.memory, STATE_MEMORY_BYTES_DEFAULT))
        .expect_hash(args.expect_hash)
        .expect_slot(args.expect_slot);
    let output = match &args.output {
        Some(output) if output.as_os_str() == "-" => {
            return Err(Error::usage("the archive is checked before it gets its name, so it cannot go to a pipe")
                .with_hint("write it into a directory"));
        }
        Some(output) if !args.dry_run => Some(Output::open(output, args.memory, &args.network.connection)?),
        _ => None,
    };
    let output_bytes = output.as_ref().map_or(0, Output::memory_bytes);
    let other_bytes = args.encoding.decoding_bytes() + check.memory_bytes + output_bytes;
    let memory_bytes = output.as_ref().map_or(args.memory, |output| output.left_of(args.memory));
    let encoding = args.encoding.options(memory_bytes, other_bytes, &args.io_policy, ui)?;
    let options = RebaseOptions::default().encoding(encoding.clone()).check(check);
    let onto = ArchiveInput::open(&args.onto, READS, &args.network, ui)?;
    let (of_ledger, not_for_archives) = ((&args.directories, args.slot), Error::usage(FOR_LEDGERS));
    let state = StateInput::open(&args.new, of_ledger, not_for_archives, READS, &args.network, ui)?;
    let ledger;
    let (new, incremental) = match &state {
        StateInput::Archives(full, incremental) => (full.named(), incremental.as_ref().map(ArchiveInput::named)),
        StateInput::Ledger(paths) => {
            let options = ArchiveOptions::new(&paths.ledger).paths(paths.clone()).slot(args.slot).encoding(encoding);
            ledger = ledger_as_archive(&options, ui)?;
            (&ledger, None)
        }
    };
    let input = RebaseInput { new, incremental, onto: onto.named() };
    let mut nothing = io::sink();
    let sink = match &output {
        Some(output) => output.sink(args.force)?,
        None => Sink::stream(&mut nothing),
    };
    match rebase(input, sink, &options, ui) {
        Ok(report) => print_report(&report, ui),
        Err(error) if args.skip_existing => return skip_existing(error, ui),
        Err(error) => return Err(error),
    }
    state.archives().chain([&onto]).for_each(|input| input.print_transfer(ui));
    Ok(())
}

fn print_report(report: &RebaseReport, ui: &Ui) {
    let RebaseReport { archive, base_hash, changes, new_bytes, tar_bytes, input_bytes, .. } = report;
    if !ui.print_head("rebase", report, &shown_path(archive)) {
        return;
    }
    let ChangeCounts { accounts_changed, accounts_new, accounts_closed, accounts_unchanged, .. } = changes;
    let base_slot = archive.name.base_slot.unwrap_or_default();
    ui.print(&format!("  onto     snapshot-{base_slot}-{base_hash}"));
    ui.print(&format!("  {}, {}", values::count_of(archive.storages, "storage"), codec::show_codec(archive)));
    ui.print(&format!(
        "  accounts {} changed, {} new, {} closed; {} left out",
        values::show_count(*accounts_changed),
        values::show_count(*accounts_new),
        values::show_count(*accounts_closed),
        values::show_count(*accounts_unchanged)
    ));
    ui.print(&format!(
        "  size     {} ({} of tar), {:.1} % of the new state's {}",
        values::show_bytes(archive.output_bytes),
        values::show_bytes(*tar_bytes),
        100.0 * archive.output_bytes as f64 / (*new_bytes).max(1) as f64,
        values::show_bytes(*new_bytes)
    ));
    ui.print(&format!("  elapsed  {}", values::show_speed(*input_bytes, &archive.elapsed)));
    print_root(archive.root, ui);
    ui.print("  state    checked: the full archive with these changes is the new state");
}
