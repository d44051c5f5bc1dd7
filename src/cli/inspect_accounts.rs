//! Prints the results of `slotpress inspect --by-owner` and `--account`.

use std::fmt::Write;
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Serialize;
use slotpress::{AccountsInput, Address, ArchiveName, Error, Result, VerifyOptions};
use slotpress_base::text::{self, ShowPath};
use slotpress_read::{AccountsSummary, FoundAccount, RecordTotals, find_account, inspect_accounts, owner_name};

use super::inspect::field;
use super::lines::table;
use super::ui::Ui;
use super::values::{count_of, show_bytes, show_count};

/// Maximum number of rows in the table of owners; `--json` prints all.
const OWNER_ROWS_MAX: usize = 20;

/// How much of an account's data is printed as text: all of nearly every account, in at most 64
/// lines.
const DATA_BYTES_MAX: usize = 1024;

/// The `account` report in `--json`.
#[derive(Serialize)]
struct AccountFields<'a> {
    #[serde(serialize_with = "text::path")]
    path: &'a Path,
    #[serde(flatten)]
    found: &'a FoundAccount,
    data_base64: String,
}

pub fn run_accounts(input: AccountsInput<'_>, owner: Option<Address>, options: &VerifyOptions, ui: &Ui) -> Result<()> {
    let incremental = match &input {
        AccountsInput::Archives(_, incremental) => incremental.map(|archive| archive.path.clone()),
        _ => None,
    };
    let found = inspect_accounts(input, owner, options, ui)?;
    match ui.is_json() {
        true => print_json(&found, ui),
        false => print_tables(&found, incremental.as_deref(), owner, ui),
    }
    Ok(())
}

fn print_json(found: &AccountsSummary, ui: &Ui) {
    ui.print_report("accounts", found);
    for owner in found.owner_rows() {
        ui.print_report("owner", &owner);
        if ui.is_pipe_broken() {
            return;
        }
    }
}

fn print_tables(found: &AccountsSummary, incremental: Option<&Path>, owner: Option<Address>, ui: &Ui) {
    let totals = &found.totals;
    [Some(found.path.as_path()), incremental].into_iter().flatten().for_each(|path| ui.print_verbatim(&path.shown()));
    if let Some(owner) = owner {
        field(ui, "only owner", &owner_text(&owner));
    }
    let text = |records, bytes| format!("{}, {}", count_of(records, "record"), show_bytes(bytes));
    let (accounts, bytes) = (count_of(totals.accounts, "account"), show_bytes(totals.stored_bytes));
    ui.print(&format!("  accounts     {accounts}, {bytes} in storages"));
    field(ui, "tombstones", &text(totals.tombstones, totals.tombstone_bytes));
    let superseded = text(found.superseded_records, found.superseded_bytes);
    ui.print(&format!("  superseded   {superseded}, by newer ones"));
    if let Some(obsolete) = &found.obsolete {
        let obsolete = text(obsolete.records, obsolete.bytes);
        ui.print(&format!("  obsolete     {obsolete}, on disk only"));
    }

    ui.print("");
    let row = |name: String, totals: &RecordTotals| {
        let share = 100.0 * totals.stored_bytes as f64 / found.totals.stored_bytes.max(1) as f64;
        vec![name, show_count(totals.accounts), show_bytes(totals.stored_bytes), format!("{share:.1}")]
    };
    let named = |owner: &Address| owner_name(owner).map_or(owner.to_string(), |name| format!("{owner}\n  {name}"));
    let shown = found.owners.iter().take(OWNER_ROWS_MAX);
    let mut rows: Vec<Vec<String>> = shown.map(|(owner, totals)| row(named(owner), totals)).collect();
    let mut rest = RecordTotals::default();
    let hidden = found.owners.iter().skip(OWNER_ROWS_MAX);
    let hidden = hidden.map(|(_, totals)| rest.add(totals)).count() as u64;
    if rest != RecordTotals::default() {
        rows.push(row(format!("{} more", show_count(hidden)), &rest));
    }
    let lines = table(&["OWNER", "ACCOUNTS", "BYTES", "%"], rows, &[0], ui.columns() - 2);
    lines.iter().for_each(|line| ui.print_verbatim(&format!("  {line}")));
}

fn owner_text(owner: &Address) -> String {
    owner_name(owner).map_or_else(|| owner.to_string(), |name| format!("{owner} ({name})"))
}

/// Finds one account and prints it. `shown` is the input as the user named it.
pub fn run_account(input: AccountsInput<'_>, pubkey: Address, threads: usize, shown: &Path, ui: &Ui) -> Result<()> {
    let Some(found) = find_account(input, pubkey, threads, ui)? else {
        let error = Error::failed(format!("{}: no storage holds the account {pubkey}", shown.shown()));
        let base = ArchiveName::from_path(shown).and_then(|name| name.base_slot);
        let hint = "an incremental archive holds what changed after its base: look into the full archive of slot";
        return Err(match base {
            Some(base) => error.with_hint(format!("{hint} {base} too")),
            None => error,
        });
    };
    let (slot, storage_id, offset_bytes) = (found.slot, found.storage_id, found.offset_bytes);
    if ui.is_json() {
        let data_base64 = STANDARD.encode(&found.data);
        ui.print_report("account", &AccountFields { path: shown, found: &found, data_base64 });
        return Ok(());
    }
    ui.print(&pubkey.to_string());
    if found.is_closed() {
        field(ui, "state", "closed: its newest record has no lamports");
    }
    field(ui, "owner", &owner_text(&found.owner));
    ui.print(&format!("  balance      {} lamports", show_count(found.lamports)));
    field(ui, "executable", if found.is_executable { "yes" } else { "no" });
    ui.print(&format!("  slot         {slot}"));
    ui.print(&format!("  storage      {slot}.{storage_id}, record at offset {offset_bytes}"));
    let data = &found.data[..found.data.len().min(DATA_BYTES_MAX)];
    let [all, shown] = [found.data.len(), data.len()].map(|bytes| bytes as u64);
    let cut = (shown < all).then(|| format!(", of which the first {} (`--json` has all)", show_count(shown)));
    field(ui, "data", &(count_of(all, "byte") + &cut.unwrap_or_default()));
    for (number, bytes) in data.chunks(16).enumerate() {
        ui.print(&hex_row(number * 16, bytes));
    }
    Ok(())
}

fn hex_row(offset: usize, bytes: &[u8]) -> String {
    let mut text = format!("  {offset:08x} ");
    for byte in bytes {
        let _ = write!(text, " {byte:02x}");
    }
    let plain = |byte: &u8| if byte.is_ascii_graphic() || *byte == b' ' { char::from(*byte) } else { '.' };
    format!("{text:<60} {}", bytes.iter().map(plain).collect::<String>())
}
