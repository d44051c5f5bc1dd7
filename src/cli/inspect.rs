//! Runs `slotpress inspect` on an archive or a ledger. `inspect_accounts` prints results about
//! accounts.

use std::path::PathBuf;

use clap::Args;
use slotpress::inspect::{ArchiveInspection, BankFields, LedgerInspection, inspect_archive, inspect_ledger};
use slotpress::{AccountsInput, Address, CheckOptions, Error, Result, VerifyOptions};
use slotpress_base::text::ShowPath;
use slotpress_read::{Compression, check_pair, lines_of};

use super::arguments::{DirectoryArgs, WorkerArgs};
use super::inspect_accounts::{run_account, run_accounts};
use super::network::{FOR_LEDGERS, NetworkArgs, Reads, StateInput};
use super::planned::{self, DECODING_WORKER_BYTES, LOOKING_WORKER_BYTES};
use super::ui::Ui;
use super::values;

/// Show what is in an archive or a ledger
#[derive(Debug, Args)]
pub struct InspectArgs {
    /// An archive, or a full and an incremental one, whose accounts are those of both together; by
    /// path or URL; or a ledger directory. From a directory of archives, a server, a mirror or a
    /// store, it shows what a node would choose
    #[arg(value_name = "ARCHIVE|LEDGER|DIR|URL", required = true)]
    inputs: Vec<PathBuf>,
    /// The bank snapshot of a ledger [default: the newest complete one]
    #[arg(long, value_parser = values::slot)]
    slot: Option<u64>,
    #[command(flatten)]
    pub(super) directories: DirectoryArgs,
    #[command(flatten)]
    workers: WorkerArgs,
    /// Read all records: accounts and bytes by owner, tombstones, superseded records
    #[arg(long, help_heading = "Accounts")]
    pub(super) by_owner: bool,
    /// Only the accounts of this program, by its address or its name in the table of --by-owner;
    /// implies --by-owner
    #[arg(long, value_name = "KEY|NAME", value_parser = values::owner, help_heading = "Accounts")]
    owner: Option<Address>,
    /// With --by-owner: memory limit for finding superseded records; what does not fit goes to
    /// TMPDIR or /tmp, or to /var/tmp if those are in memory [default: half of the free memory]
    #[arg(long, value_name = "SIZE", value_parser = values::size, help_heading = "Accounts")]
    memory: Option<u64>,
    /// Find the newest version of one account; --json has all of its data
    #[arg(long, value_name = "KEY", conflicts_with = "by_owner", value_parser = values::pubkey, help_heading = "Accounts")]
    account: Option<Address>,
    #[command(flatten)]
    network: NetworkArgs,
}

fn is_by_owner(args: &InspectArgs) -> bool {
    args.by_owner || (args.owner.is_some() && args.account.is_none())
}

/// Refuses flags that need another flag. clap's `requires` cannot do it: it does not see that an
/// environment variable may set the other flag.
fn check_flags(args: &InspectArgs) -> Result<()> {
    if args.memory.is_some() && !is_by_owner(args) {
        return Err(Error::usage("--memory goes with --by-owner").with_hint("add --by-owner"));
    }
    match args.owner.is_some() && args.account.is_some() {
        true => Err(Error::usage("--owner adds up the accounts of a program, --account looks for one account")
            .with_hint("leave out one of them")),
        false => Ok(()),
    }
}

pub fn run(args: &InspectArgs, ui: &Ui) -> Result<()> {
    check_flags(args)?;
    // Memory for summing accounts, in addition to the workers' buffers.
    let memory_bytes = planned::memory_or(args.memory, values::memory_or_half(None));
    let is_by_owner = is_by_owner(args);
    let other_bytes = if is_by_owner { memory_bytes } else { 0 };
    let worker_bytes = if args.inputs[0].is_dir() { LOOKING_WORKER_BYTES } else { DECODING_WORKER_BYTES };
    let threads = args.workers.that_fit(|| Ok(worker_bytes), other_bytes, ui)?;
    let not_for_archives = Error::usage(FOR_LEDGERS).with_hint("--by-owner adds up the accounts of an archive");
    let of_ledger = (&args.directories, args.slot);
    let reads = match is_by_owner || args.account.is_some() {
        true => Reads::Again("looking into its accounts reads parts of it twice"),
        false => Reads::Once,
    };
    let input = StateInput::open(&args.inputs, of_ledger, not_for_archives, reads, &args.network, ui)?;
    if !run_on_accounts(args, input.accounts(args.slot), threads, ui)? {
        if let StateInput::Ledger(paths) = &input {
            print_ledger(&inspect_ledger(paths, args.slot, threads, ui)?, ui);
        }
        if let StateInput::Archives(full, Some(incremental)) = &input {
            check_pair(full.named(), incremental.named())?;
        }
        for archive in input.archives() {
            print_archive(&inspect_archive(archive.named(), threads, ui)?, archive.is_stream(), ui);
        }
    }
    input.print_transfers(ui);
    Ok(())
}

/// Runs `--account` or `--by-owner`; returns false if neither was given.
fn run_on_accounts(args: &InspectArgs, input: AccountsInput<'_>, threads: usize, ui: &Ui) -> Result<bool> {
    if let Some(pubkey) = args.account {
        run_account(input, pubkey, threads, &args.inputs[0], ui)?;
    } else if is_by_owner(args) {
        let check = CheckOptions::default().memory_bytes(planned::memory_or(args.memory, values::memory_or_half(None)));
        run_accounts(input, args.owner, &VerifyOptions::default().threads(threads).check(check), ui)?;
    }
    Ok(args.account.is_some() || is_by_owner(args))
}

fn print_archive(found: &ArchiveInspection, is_stream: bool, ui: &Ui) {
    let (entries, file_bytes) = (&found.entries, found.file_bytes);
    if ui.is_json() {
        return ui.print_report("inspect", found);
    }
    ui.print_verbatim(&found.path.shown());
    let kind = match found.name.as_ref().and_then(|name| name.base_slot) {
        Some(base) => format!("incremental archive on slot {base}"),
        None => "full archive".to_string(),
    };
    ui.print(&format!("  kind         {kind}, snapshot version {}", found.version));
    match found.name_matches {
        Some(true) => {}
        Some(false) => field(ui, "name", "does not match the contents: the bank file is of another slot or hash"),
        None => field(ui, "name", "not an archive's name: no validator would find it"),
    }
    print_bank(&found.bank, ui);
    let storages = values::show_count(entries.storages);
    let [all, largest] = [entries.storage_bytes, entries.storage_bytes_max].map(values::show_bytes);
    ui.print(&format!("  storages     {storages}, {all}, the largest {largest}"));
    let [bank, cache] = [entries.bank_file_bytes, entries.status_cache_bytes].map(values::show_bytes);
    ui.print(&format!("  other files  bank file {bank}, status cache {cache}"));
    let [file, tar] = [file_bytes, entries.tar_bytes].map(values::show_bytes);
    let ratio = values::show_ratio(entries.tar_bytes, file_bytes);
    ui.print(&format!("  size         {file} from {tar} of tar (ratio {ratio})"));
    if found.compression == Compression::Zstd {
        field(ui, "frames", &frames_text(found));
    }
    let written = found.writer.as_ref().zip(found.settings.as_ref());
    let written = written.map(|(name, settings)| format!("{name}, {settings}, with an index"));
    let made_by = match (written, found.is_of_firedancer) {
        (Some(by), true) => format!("{by}, of an archive of Firedancer's"),
        (Some(by), false) => by,
        (None, true) => format!("Firedancer; {}", how_read(is_stream)),
        (None, false) => how_read(is_stream).to_string(),
    };
    field(ui, "made by", &made_by);
    if let Some(root) = found.root {
        ui.print(&format!("  root         {root}"));
    }
    let mut label = "clients";
    let refusals_of = found.clients.iter().map(|reading| (reading.client, &reading.refusals)).collect();
    for (name, refusals) in lines_of(refusals_of) {
        let verdict = if refusals.is_empty() { "reads it".to_string() } else { format!("NO: {}", refusals.join("; ")) };
        field(ui, std::mem::take(&mut label), &format!("{name}: {verdict}"));
    }
}

fn how_read(is_stream: bool) -> &'static str {
    match is_stream {
        true => "decoded from the first byte to the last, as it was sent",
        false => "no index: decoded from the first byte to the last",
    }
}

fn frames_text(found: &ArchiveInspection) -> String {
    let frames = &found.frames;
    let sizes = match frames.content_bytes_max {
        0 => "no size stated".to_string(),
        largest => format!("up to {} of tar", values::show_bytes(largest)),
    };
    let checksums = match frames.frames_with_checksum {
        0 => "no checksums",
        count if count == frames.frames => "with checksums",
        _ => "some with checksums",
    };
    format!("{}, {sizes}, {checksums}", values::show_count(frames.frames))
}

pub fn print_ledger(found: &LedgerInspection, ui: &Ui) {
    if ui.is_json() {
        return ui.print_report("inspect", found);
    }
    ui.print_verbatim(&found.path.shown());
    ui.print(&format!("  kind         bank snapshot, {}", found.layout));
    print_bank(&found.bank, ui);
    let storages = values::show_count(found.storages);
    let [kept, on_disk] = [found.storage_bytes, found.file_bytes].map(values::show_bytes);
    ui.print(&format!("  storages     {storages}, {kept} without obsolete records, {on_disk} on disk"));
    let storages = |count: u64| Some(values::count_of(count, "storage")).filter(|_| count > 0);
    if let Some(split) = storages(found.split_storages) {
        ui.print(&format!("  split        {split} on disk, an append vec in an archive"));
    }
    if let Some(emptied) = storages(found.emptied_storages) {
        ui.print(&format!("  emptied      {emptied} of which nothing remains"));
    }
    if found.is_in_use == Some(true) {
        field(ui, "in use", "a validator or another slotpress holds the ledger's lock");
    }
}

fn print_bank(bank: &BankFields, ui: &Ui) {
    let (slot, epoch, height) = (bank.slot, bank.epoch, bank.block_height);
    ui.print(&format!("  slot         {slot}, epoch {epoch}, block height {height}"));
    ui.print(&format!("  hash         {}", bank.snapshot_hash));
    ui.print(&format!("  bank hash    {}", bank.bank_hash));
    ui.print(&format!("  parent       slot {}, {}", bank.parent_slot, bank.parent_hash));
    let [supply, transactions] = [bank.capitalization, bank.transaction_count].map(values::show_count);
    ui.print(&format!("  supply       {supply} lamports; {transactions} transactions since genesis"));
    let forks: Vec<String> = bank.hard_forks.iter().map(|(slot, count)| format!("{slot} ({count})")).collect();
    if !forks.is_empty() {
        field(ui, "hard forks", &forks.join(", "));
    }
}

pub fn field(ui: &Ui, name: &str, value: &str) {
    ui.print(&format!("  {name:<12} {value}"));
}
