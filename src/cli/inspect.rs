//! Runs `slotpress inspect` on an archive or a ledger, or on the accounts in it.

use std::fmt::Write;
use std::path::PathBuf;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use clap::Args;
use serde_json::json;
use slotpress::inspect::{ArchiveInspection, BankFields, InspectOptions, inspect_archive, inspect_ledger};
use slotpress::types::Address;
use slotpress::verify::{CheckOptions, VerifyOptions};
use slotpress::{Error, Result, Snapshot};
use slotpress_base::EscapePath;
use slotpress_read::{AccountsSummary, RecordTotals, check_pair, find_account, inspect_accounts, merge_versions};

use super::arguments::ResourceArgs;
use super::json::merge;
use super::memory::{self, DECODING_WORKER_BYTES, INSPECTING_WORKER_BYTES};
use super::network::{StateArgs, print_transfers};
use super::tables::{Table, TableBuilder, Unit, result_columns};
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
    /// Find the newest version of one account; --json prints all of its data
    #[arg(long, value_name = "KEY", conflicts_with_all = ["by_owner", "owner"], value_parser = values::parse_pubkey, help_heading = "Accounts")]
    account: Option<Address>,
    #[command(flatten)]
    resources: ResourceArgs,
    #[command(flatten)]
    state: StateArgs,
}

pub fn run(args: &InspectArgs, ui: &Ui) -> Result<()> {
    let is_by_owner = args.by_owner || args.owner.is_some();
    // Memory for summing accounts, in addition to the workers' buffers.
    let memory_bytes = memory::requested_memory_or_half_of_free(args.resources.memory);
    let other_bytes = if is_by_owner { memory_bytes } else { 0 };
    let reads_twice = is_by_owner || args.account.is_some();
    let input = args.state.open(reads_twice, ui)?;
    let worker_bytes = match input {
        Snapshot::Ledger { .. } => INSPECTING_WORKER_BYTES,
        Snapshot::Archive(_) | Snapshot::Pair { .. } => DECODING_WORKER_BYTES,
    };
    let threads = args.resources.threads(worker_bytes, other_bytes, ui)?;
    if let Some(address) = args.account {
        print_account(&input, address, threads, &args.state.inputs, ui)?;
    } else if is_by_owner {
        let check = CheckOptions::default().memory_bytes(memory_bytes);
        let options = VerifyOptions::default().threads(threads).check(check);
        print_accounts(&input, args.owner, &options, ui)?;
    } else {
        print_inspection(&input, threads, ui)?;
    }
    print_transfers(&input, ui);
    Ok(())
}

fn print_inspection(input: &Snapshot, threads: usize, ui: &Ui) -> Result<()> {
    let options = InspectOptions::default().threads(threads);
    if let Snapshot::Ledger { paths, slot, .. } = input {
        let ledger = inspect_ledger(paths, *slot, &options, ui)?;
        let forks = hard_forks_row(&ledger.bank);
        let kind = "kind: bank snapshot, {layout}";
        let rows = [&[kind], BANK_ROWS, LEDGER_ROWS, &[&*forks]].concat();
        ui.print_report("inspect", &ledger.path.escaped(), &ledger, &rows);
    }
    if let Snapshot::Pair { full, incremental } = input {
        check_pair(full, incremental)?;
    }
    for archive in input.archives() {
        print_archive(&inspect_archive(archive, &options, ui)?, ui);
    }
    Ok(())
}

fn print_archive(archive: &ArchiveInspection, ui: &Ui) {
    let kind = match archive.name.as_ref().and_then(|name| name.base_slot) {
        Some(_) => "kind: incremental archive on slot {base_slot}, snapshot version {version}",
        None => "kind: full archive, snapshot version {version}",
    };
    let name = match archive.name_matches {
        Some(true) => "",
        Some(false) => "name: does not match the contents: the bank file has a different slot or hash",
        None => "name: not the name of an archive: no validator would find the file",
    };
    let made_by = match (&archive.writer, archive.is_from_firedancer) {
        (Some(_), true) => "made by: {writer}, {settings}, from an archive made by Firedancer",
        (Some(_), false) => "made by: {writer}, {settings}",
        (None, true) => "made by: Firedancer",
        (None, false) => "",
    };
    let index = match archive.writer {
        Some(_) => "index: yes",
        None => "index: none: the archive is decoded from its first byte to its last",
    };
    let mut frames = String::new();
    if archive.frames.frames > 0 {
        frames += match archive.frames.frame_bytes_max {
            0 => "frames: {frames}, no size stated",
            _ => "frames: {frames}, up to {frame_bytes_max} of tar",
        };
        frames += match archive.frames.frames_with_checksum {
            0 => ", no checksums",
            number if number == archive.frames.frames => ", with checksums",
            _ => ", {frames_with_checksum} with checksums",
        };
    }
    let forks = hard_forks_row(&archive.bank);
    let mut clients = Vec::new();
    let refusals = archive.clients.iter().map(|reader| (reader.client, &reader.refusals));
    for (name, refusals) in merge_versions(refusals.collect()) {
        let label = if clients.is_empty() { "clients" } else { "" };
        clients.push(match refusals.join("; ").as_str() {
            "" => format!("{label}: {name}: reads it"),
            refusals => format!("{label}: {name}: NO: {refusals}"),
        });
    }
    let other_rows = [&*frames, made_by, index, "root: {root}", &*forks];
    let mut rows = [&[kind, name], BANK_ROWS, ARCHIVE_ROWS, &other_rows].concat();
    rows.extend(clients.iter().map(String::as_str));
    ui.print_report("inspect", &archive.path.escaped(), archive, &rows);
}

/// Returns a row with the slots of hard forks, and the number of restarts at each.
fn hard_forks_row(bank: &BankFields) -> String {
    let forks = bank.hard_forks.iter().map(|fork| format!("{} ({})", fork.slot, fork.count));
    format!("hard forks: {}", Vec::from_iter(forks).join(", "))
}

const BANK_ROWS: &[&str] = &[
    "slot: {slot}, epoch {epoch}, block height {block_height}",
    "hash: {snapshot_hash}",
    "bank hash: {bank_hash}",
    "parent: slot {parent_slot}, {parent_hash}",
    "capitalization: {capitalization_lamports}; {transaction_count} transactions since genesis",
];

const ARCHIVE_ROWS: &[&str] = &[
    "storages: {storages}, {storage_bytes}, the largest {storage_bytes_max}",
    "other files: bank file {bank_file_bytes}, status cache {status_cache_bytes}",
    "size: {file_bytes} from {tar_bytes} of tar (ratio {tar_bytes/file_bytes})",
];

const LEDGER_ROWS: &[&str] = &[
    "storages: {storages}, {storage_bytes} without obsolete records, {file_bytes} on disk",
    "split: [{split_storages} on disk, each one append vec in an archive]",
    "emptied: [{emptied_storages} whose records are all obsolete]",
    "in use: [{in_use}: a validator or another slotpress holds the ledger's lock]",
];

/// Maximum number of rows in the table of owners; `--json` prints all.
const OWNER_ROWS_MAX: usize = 20;

/// Maximum number of printed bytes of an account's data: 64 lines. Nearly every account has less data.
const DATA_BYTES_MAX: usize = 1024;

fn print_accounts(input: &Snapshot, owner: Option<Address>, options: &VerifyOptions, ui: &Ui) -> Result<()> {
    let summary = inspect_accounts(input, owner, options, ui)?;
    ui.print_object("accounts", &summary);
    for owner in &summary.owners {
        ui.print_object("owner", owner);
    }
    let mut paths = vec![summary.path.escaped()];
    for incremental in input.archives().skip(1) {
        paths.push(incremental.path.escaped());
    }
    ui.print_part(&paths.join("\n"), &summary, ACCOUNTS_ROWS);
    let table = owners_table(&summary).lines(result_columns());
    ui.say(&format!("\n{}", table.join("\n")));
    Ok(())
}

const ACCOUNTS_ROWS: &[&str] = &[
    "only owner: {owner}",
    "accounts: {accounts}, {stored_bytes} in storages",
    "tombstones: {tombstones}, {tombstone_bytes}",
    "superseded: {superseded_records}, {superseded_bytes}, by newer ones",
    "obsolete: {obsolete_records}, {obsolete_bytes}, on disk only",
];

/// Returns a table of the owners with the most bytes, and the sum of all others.
fn owners_table(summary: &AccountsSummary) -> Table {
    let mut rows: Vec<(String, RecordTotals)> = Vec::new();
    let mut omitted = RecordTotals::default();
    for (number, row) in summary.owners.iter().enumerate() {
        match row.name {
            _ if number >= OWNER_ROWS_MAX => omitted.add(&row.totals),
            Some(name) => rows.push((format!("{}\n  {name}", row.owner), row.totals)),
            None => rows.push((row.owner.to_string(), row.totals)),
        }
    }
    let omitted_count = summary.owners.len().saturating_sub(OWNER_ROWS_MAX) as u64;
    if omitted_count > 0 {
        let count = values::show_count(omitted_count);
        rows.push((format!("{count} more"), omitted));
    }
    let total_bytes = summary.totals.stored_bytes.max(1) as f64;
    TableBuilder::new("", "", &rows)
        .add_visible("OWNER", Unit::Text, |(owner, _)| owner.clone())
        .add_visible("ACCOUNTS", Unit::Count, |(_, totals)| totals.accounts)
        .add_visible("BYTES", Unit::Bytes, |(_, totals)| totals.stored_bytes)
        .add_visible("%", Unit::Percent, |(_, totals)| 100.0 * totals.stored_bytes as f64 / total_bytes)
        .finish()
}

/// Finds an account and prints it. `paths` are the paths of the input, as the user wrote them.
fn print_account(input: &Snapshot, address: Address, threads: usize, paths: &[PathBuf], ui: &Ui) -> Result<()> {
    let Some(account) = find_account(input, address, threads, ui)? else {
        let places = Vec::from_iter(paths.iter().map(|path| path.escaped())).join(" and ");
        let error = Error::failed(format!("{places}: no storage holds the account {address}"));
        let base_slot = match input {
            Snapshot::Archive(archive) => archive.name.as_ref().and_then(|name| name.base_slot),
            _ => None,
        };
        let hint = "an incremental archive holds only what changed since its base: also pass the full archive of slot";
        return Err(match base_slot {
            Some(base_slot) => error.with_hint(format!("{hint} {base_slot}")),
            None => error,
        });
    };
    let path_and_data = json!({ "path": paths[0].to_string_lossy(), "data_base64": STANDARD.encode(&account.data) });
    let mut rows = ACCOUNT_ROWS.to_vec();
    if account.is_closed {
        rows.insert(0, "state: closed: its newest record has no lamports");
    }
    let fields = merge(&account, path_and_data);
    ui.print_report("account", &address.to_string(), &fields, &rows);
    let data = &account.data[..account.data.len().min(DATA_BYTES_MAX)];
    for (number, bytes) in data.chunks(16).enumerate() {
        ui.say(&hex_row(number * 16, bytes));
    }
    if data.len() < account.data.len() {
        ui.say("  … (--json prints all of it)");
    }
    Ok(())
}

const ACCOUNT_ROWS: &[&str] = &[
    "owner: {owner}[ ({owner_name})]",
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
    let show_byte = |byte: &u8| match byte {
        b' '..=b'~' => char::from(*byte),
        _ => '.',
    };
    let characters = bytes.iter().map(show_byte).collect::<String>();
    format!("{text:<60} {characters}")
}
