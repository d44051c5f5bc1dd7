//! Runs `slotpress inspect` on an archive or a ledger. `inspect_accounts` prints results about
//! accounts.

use clap::Args;
use slotpress::Result;
use slotpress::inspect::{ArchiveInspection, BankFields, inspect_archive, inspect_ledger};
use slotpress::types::Address;
use slotpress::verify::{CheckOptions, VerifyOptions};
use slotpress_base::text::ShowPath;
use slotpress_read::{check_pair, lines_of};

use super::arguments::WorkArgs;
use super::inspect_accounts::{run_account, run_accounts};
use super::network::{StateArgs, StateInput};
use super::planned::{self, DECODING_WORKER_BYTES, LOOKING_WORKER_BYTES};
use super::render::Row;
use super::ui::Ui;
use super::values;

/// Show what is in an archive or a ledger
#[derive(Debug, Args)]
pub struct InspectArgs {
    /// Read all records: accounts and bytes by owner, tombstones, superseded records
    #[arg(long, help_heading = "Accounts")]
    by_owner: bool,
    /// Only the accounts of this program, by its address or its name in the table of --by-owner;
    /// implies --by-owner
    #[arg(long, value_name = "KEY|NAME", value_parser = values::owner, help_heading = "Accounts")]
    owner: Option<Address>,
    /// Find the newest version of one account; --json has all of its data
    #[arg(long, value_name = "KEY", conflicts_with_all = ["by_owner", "owner"], value_parser = values::pubkey, help_heading = "Accounts")]
    account: Option<Address>,
    #[command(flatten)]
    work: WorkArgs,
    #[command(flatten)]
    state: StateArgs,
}

pub fn run(args: &InspectArgs, ui: &Ui) -> Result<()> {
    let is_by_owner = args.by_owner || args.owner.is_some();
    // Memory for summing accounts, in addition to the workers' buffers.
    let memory_bytes = planned::memory_or_half(args.work.memory);
    let other_bytes = if is_by_owner { memory_bytes } else { 0 };
    let first = &args.state.inputs[0];
    let worker_bytes = if first.is_dir() { LOOKING_WORKER_BYTES } else { DECODING_WORKER_BYTES };
    let threads = args.work.workers.that_fit(|| Ok(worker_bytes), other_bytes, ui)?;
    let input = args.state.open(is_by_owner || args.account.is_some(), ui)?;
    if let Some(pubkey) = args.account {
        run_account(input.snapshot(), pubkey, threads, first, ui)?;
    } else if is_by_owner {
        let check = CheckOptions::default().memory_bytes(memory_bytes);
        run_accounts(input.snapshot(), args.owner, &VerifyOptions::default().threads(threads).check(check), ui)?;
    } else {
        show(&input, threads, ui)?;
    }
    input.show_transfers(ui);
    Ok(())
}

fn show(input: &StateInput, threads: usize, ui: &Ui) -> Result<()> {
    if let StateInput::Ledger(paths, slot) = input {
        let found = inspect_ledger(paths, *slot, threads, ui)?;
        let forks = hard_forks(&found.bank);
        let rows = [&[("kind", "bank snapshot, {layout}")], BANK, LEDGER, &[("hard forks", &*forks)]].concat();
        ui.report("inspect", &found.path.shown(), &found, &rows);
    }
    if let StateInput::Archives(full, Some(incremental)) = input {
        check_pair(full, incremental)?;
    }
    input.archives().try_for_each(|archive| show_archive(&inspect_archive(archive, threads, ui)?, ui))
}

fn show_archive(found: &ArchiveInspection, ui: &Ui) -> Result<()> {
    let name = match found.name_matches {
        Some(true) => "",
        Some(false) => "does not match the contents: the bank file is of another slot or hash",
        None => "not an archive's name: no validator would find it",
    };
    let made_by = match (&found.writer, found.is_of_firedancer) {
        (Some(_), true) => "{writer}, {settings}, with an index, of an archive of Firedancer's",
        (Some(_), false) => "{writer}, {settings}, with an index",
        (None, true) => "Firedancer; no index: decoded from the first byte to the last",
        (None, false) => "no index: decoded from the first byte to the last",
    };
    let kind = match found.name.as_ref().and_then(|name| name.base_slot) {
        Some(_) => "incremental archive on slot {base_slot}, snapshot version {version}",
        None => "full archive, snapshot version {version}",
    };
    let frames = match &found.frames {
        frames if frames.content_bytes_max == 0 => "{frames}, no size stated",
        _ => "{frames}, up to {frame_bytes_max} of tar",
    };
    let checksums = match &found.frames {
        frames if frames.frames_with_checksum == 0 => ", no checksums",
        frames if frames.frames_with_checksum == frames.frames => ", with checksums",
        _ => ", {frames_with_checksum} with checksums",
    };
    let frames = if found.frames.frames == 0 { String::new() } else { format!("{frames}{checksums}") };
    let forks = hard_forks(&found.bank);
    let refusals_of = found.clients.iter().map(|reading| (reading.client, &reading.refusals)).collect();
    let verdict = |(name, refusals): (String, &Vec<&str>)| {
        if refusals.is_empty() { format!("{name}: reads it") } else { format!("{name}: NO: {}", refusals.join("; ")) }
    };
    let verdicts: Vec<String> = lines_of(refusals_of).into_iter().map(verdict).collect();
    let labels = ["clients"].into_iter().chain(std::iter::repeat(""));
    let clients: Vec<Row<'_>> = labels.zip(verdicts.iter().map(String::as_str)).collect();
    let last: &[Row<'_>] = &[("made by", made_by), ("root", "{root}"), ("hard forks", &forks)];
    let rows = [&[("kind", kind), ("name", name)], BANK, ARCHIVE, &[("frames", &*frames)], last, &clients].concat();
    ui.report("inspect", &found.path.shown(), found, &rows);
    Ok(())
}

/// The slots of hard forks, and how many restarts each counts.
fn hard_forks(bank: &BankFields) -> String {
    let forks: Vec<String> = bank.hard_forks.iter().map(|(slot, count)| format!("{slot} ({count})")).collect();
    forks.join(", ")
}

const BANK: &[Row<'_>] = &[
    ("slot", "{slot}, epoch {epoch}, block height {block_height}"),
    ("hash", "{snapshot_hash}"),
    ("bank hash", "{bank_hash}"),
    ("parent", "slot {parent_slot}, {parent_hash}"),
    ("supply", "{capitalization_lamports}; {transaction_count} transactions since genesis"),
];

const ARCHIVE: &[Row<'_>] = &[
    ("storages", "{storages}, {storage_bytes}, the largest {storage_bytes_max}"),
    ("other files", "bank file {bank_file_bytes}, status cache {status_cache_bytes}"),
    ("size", "{file_bytes} from {tar_bytes} of tar (ratio {tar_bytes/file_bytes})"),
];

const LEDGER: &[Row<'_>] = &[
    ("storages", "{storages}, {storage_bytes} without obsolete records, {file_bytes} on disk"),
    ("split", "[{split_storages} on disk, an append vec in an archive]"),
    ("emptied", "[{emptied_storages} of which nothing remains]"),
    ("in use", "[{in_use}: a validator or another slotpress holds the ledger's lock]"),
];
