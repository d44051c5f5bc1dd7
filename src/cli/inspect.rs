//! Runs `slotpress inspect` on an archive or a ledger, or on the accounts in it.

use std::fmt::Write;
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use clap::Args;
use serde_json::json;
use slotpress::inspect::{ArchiveInspection, BankFields, inspect_archive, inspect_ledger};
use slotpress::types::{Address, ArchiveName};
use slotpress::verify::{CheckOptions, VerifyOptions};
use slotpress::{Error, Result, Snapshot};
use slotpress_base::EscapePath;
use slotpress_read::{AccountsSummary, RecordTotals, check_pair, find_account, inspect_accounts, merge_versions};

use super::arguments::WorkArgs;
use super::json::merge;
use super::network::{StateArgs, StateInput};
use super::planned::{self, DECODING_WORKER_BYTES, LOOKING_WORKER_BYTES};
use super::tables::{Table, TableOf, Unit, columns_of_results};
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
    #[arg(long, value_name = "KEY|NAME", value_parser = values::parse_owner, help_heading = "Accounts")]
    owner: Option<Address>,
    /// Find the newest version of one account; --json has all of its data
    #[arg(long, value_name = "KEY", conflicts_with_all = ["by_owner", "owner"], value_parser = values::parse_pubkey, help_heading = "Accounts")]
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
    let threads = args.work.threads(worker_bytes, other_bytes, ui)?;
    let input = args.state.open(is_by_owner || args.account.is_some(), ui)?;
    if let Some(pubkey) = args.account {
        run_account(input.snapshot(), pubkey, threads, first, ui)?;
    } else if is_by_owner {
        let check = CheckOptions::default().memory_bytes(memory_bytes);
        let options = VerifyOptions::default().threads(threads).check(check);
        run_accounts(&input, args.owner, &options, ui)?;
    } else {
        print_inspection(&input, threads, ui)?;
    }
    input.print_transfers(ui);
    Ok(())
}

fn print_inspection(input: &StateInput, threads: usize, ui: &Ui) -> Result<()> {
    if let StateInput::Ledger(paths, slot) = input {
        let found = inspect_ledger(paths, *slot, threads, ui)?;
        let forks = hard_forks(&found.bank);
        let rows = [&["kind: bank snapshot, {layout}"], BANK, LEDGER, &[&*forks]].concat();
        ui.print_report("inspect", &found.path.escaped(), &found, &rows);
    }
    if let StateInput::Archives(full, Some(incremental)) = input {
        check_pair(full, incremental)?;
    }
    for archive in input.archives() {
        print_archive(&inspect_archive(archive, threads, ui)?, ui);
    }
    Ok(())
}

fn print_archive(found: &ArchiveInspection, ui: &Ui) {
    let kind = match found.name.as_ref().and_then(|name| name.base_slot) {
        Some(_) => "kind: incremental archive on slot {base_slot}, snapshot version {version}",
        None => "kind: full archive, snapshot version {version}",
    };
    let name = match found.name_matches {
        Some(true) => "",
        Some(false) => "name: does not match the contents: the bank file is of another slot or hash",
        None => "name: not an archive's name: no validator would find it",
    };
    let made_by = match (&found.writer, found.is_from_firedancer) {
        (Some(_), true) => "made by: {writer}, {settings}, with an index, of an archive of Firedancer's",
        (Some(_), false) => "made by: {writer}, {settings}, with an index",
        (None, true) => "made by: Firedancer; no index: decoded from the first byte to the last",
        (None, false) => "made by: no index: decoded from the first byte to the last",
    };
    let mut frames = String::new();
    if found.frames.frames > 0 {
        frames += match found.frames.content_bytes_max {
            0 => "frames: {frames}, no size stated",
            _ => "frames: {frames}, up to {frame_bytes_max} of tar",
        };
        frames += match found.frames.frames_with_checksum {
            0 => ", no checksums",
            number if number == found.frames.frames => ", with checksums",
            _ => ", {frames_with_checksum} with checksums",
        };
    }
    let forks = hard_forks(&found.bank);
    let mut clients = Vec::new();
    let refusals = found.clients.iter().map(|reader| (reader.client, &reader.refusals));
    for (name, refusals) in merge_versions(refusals.collect()) {
        let label = if clients.is_empty() { "clients" } else { "" };
        clients.push(match refusals.join("; ").as_str() {
            "" => format!("{label}: {name}: reads it"),
            refusals => format!("{label}: {name}: NO: {refusals}"),
        });
    }
    let mut rows = [&[kind, name], BANK, ARCHIVE, &[&*frames, made_by, "root: {root}", &*forks]].concat();
    rows.extend(clients.iter().map(String::as_str));
    ui.print_report("inspect", &found.path.escaped(), found, &rows);
}

/// Returns a row with the slots of hard forks, and the number of restarts at each.
fn hard_forks(bank: &BankFields) -> String {
    let forks = bank.hard_forks.iter().map(|fork| format!("{} ({})", fork.slot, fork.count));
    let forks = Vec::from_iter(forks).join(", ");
    format!("hard forks: {forks}")
}

const BANK: &[&str] = &[
    "slot: {slot}, epoch {epoch}, block height {block_height}",
    "hash: {snapshot_hash}",
    "bank hash: {bank_hash}",
    "parent: slot {parent_slot}, {parent_hash}",
    "supply: {capitalization_lamports}; {transaction_count} transactions since genesis",
];

const ARCHIVE: &[&str] = &[
    "storages: {storages}, {storage_bytes}, the largest {storage_bytes_max}",
    "other files: bank file {bank_file_bytes}, status cache {status_cache_bytes}",
    "size: {file_bytes} from {tar_bytes} of tar (ratio {tar_bytes/file_bytes})",
];

const LEDGER: &[&str] = &[
    "storages: {storages}, {storage_bytes} without obsolete records, {file_bytes} on disk",
    "split: [{split_storages} on disk, an append vec in an archive]",
    "emptied: [{emptied_storages} of which nothing remains]",
    "in use: [{in_use}: a validator or another slotpress holds the ledger's lock]",
];

/// Maximum number of rows in the table of owners; `--json` prints all.
const OWNER_ROWS_MAX: usize = 20;

/// Limit on the data of an account that is printed as text: all of nearly every account, in at most
/// 64 lines.
const DATA_BYTES_MAX: usize = 1024;

fn run_accounts(input: &StateInput, owner: Option<Address>, options: &VerifyOptions, ui: &Ui) -> Result<()> {
    let found = inspect_accounts(input.snapshot(), owner, options, ui)?;
    ui.print_object("accounts", &found);
    for owner in &found.owners {
        ui.print_object("owner", owner);
    }
    let mut paths = vec![found.path.escaped()];
    for incremental in input.archives().skip(1) {
        paths.push(incremental.path.escaped());
    }
    ui.print_part(&paths.join("\n"), &found, ACCOUNTS);
    let table = owner_table(&found).lines(columns_of_results());
    ui.say(&format!("\n{}", table.join("\n")));
    Ok(())
}

const ACCOUNTS: &[&str] = &[
    "only owner: {owner}",
    "accounts: {accounts}, {stored_bytes} in storages",
    "tombstones: {tombstones}, {tombstone_bytes}",
    "superseded: {superseded_records}, {superseded_bytes}, by newer ones",
    "obsolete: {obsolete_records}, {obsolete_bytes}, on disk only",
];

/// Returns the owners with the most bytes, and the sum of all others.
fn owner_table(found: &AccountsSummary) -> Table {
    let mut rows: Vec<(String, RecordTotals)> = Vec::new();
    let mut rest = RecordTotals::default();
    for (number, row) in found.owners.iter().enumerate() {
        match row.name {
            _ if number >= OWNER_ROWS_MAX => rest.add(&row.totals),
            Some(name) => rows.push((format!("{}\n  {name}", row.owner), row.totals)),
            None => rows.push((row.owner.to_string(), row.totals)),
        }
    }
    if let Some(more) = found.owners.len().checked_sub(OWNER_ROWS_MAX + 1) {
        let count = values::show_count(more as u64 + 1);
        rows.push((format!("{count} more"), rest));
    }
    let all_bytes = found.totals.stored_bytes.max(1) as f64;
    TableOf::new("", "", &rows)
        .add_shown("OWNER", Unit::Text, |(owner, _)| owner.clone())
        .add_shown("ACCOUNTS", Unit::Count, |(_, totals)| totals.accounts)
        .add_shown("BYTES", Unit::Bytes, |(_, totals)| totals.stored_bytes)
        .add_shown("%", Unit::Percent, |(_, totals)| 100.0 * totals.stored_bytes as f64 / all_bytes)
        .finish()
}

/// Finds one account and prints it. `shown` is the input as the user named it.
fn run_account(input: Snapshot<'_>, pubkey: Address, threads: usize, shown: &Path, ui: &Ui) -> Result<()> {
    let Some(found) = find_account(input, pubkey, threads, ui)? else {
        let place = shown.escaped();
        let error = Error::failed(format!("{place}: no storage holds the account {pubkey}"));
        let base = ArchiveName::from_path(shown).and_then(|name| name.base_slot);
        let hint = "an incremental archive holds what changed after its base: look into the full archive of slot";
        return Err(match base {
            Some(base) => error.with_hint(format!("{hint} {base} too")),
            None => error,
        });
    };
    let more = json!({ "path": shown.to_string_lossy(), "data_base64": STANDARD.encode(&found.data) });
    let state = if found.is_closed { "state: closed: its newest record has no lamports" } else { "" };
    let rows = [&[state], ACCOUNT].concat();
    ui.print_report("account", &pubkey.to_string(), &merge(&found, more), &rows);
    let data = &found.data[..found.data.len().min(DATA_BYTES_MAX)];
    for (number, bytes) in data.chunks(16).enumerate() {
        ui.say(&hex_row(number * 16, bytes));
    }
    if data.len() < found.data.len() {
        ui.say("  … (`--json` has all)");
    }
    Ok(())
}

const ACCOUNT: &[&str] = &[
    "owner: {owner}[ ({name})]",
    "balance: {lamports}",
    "executable: {executable}",
    "slot: {slot}",
    "storage: {storage}, record at offset {offset_bytes}",
    "data: {data_bytes}",
];

fn hex_row(offset: usize, bytes: &[u8]) -> String {
    let mut text = format!("  {offset:08x} ");
    for byte in bytes {
        let _ = write!(text, " {byte:02x}");
    }
    let plain = |byte: &u8| match byte {
        b' '..=b'~' => char::from(*byte),
        _ => '.',
    };
    format!("{text:<60} {}", bytes.iter().map(plain).collect::<String>())
}
