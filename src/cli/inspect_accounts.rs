//! Prints the results of `slotpress inspect --by-owner` and `--account`.

use std::fmt::Write;
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::json;
use slotpress::types::{Address, ArchiveName};
use slotpress::verify::VerifyOptions;
use slotpress::{Error, Result, Snapshot};
use slotpress_base::text::ShowPath;
use slotpress_read::{AccountsSummary, RecordTotals, find_account, inspect_accounts};

use super::json::Both;
use super::lines::columns_of_results;
use super::render::Row;
use super::tables::{Table, TableOf, Unit};
use super::ui::Ui;
use super::values::show_count;

/// Maximum number of rows in the table of owners; `--json` prints all.
const OWNER_ROWS_MAX: usize = 20;

/// How much of an account's data is printed as text: all of nearly every account, in at most 64
/// lines.
const DATA_BYTES_MAX: usize = 1024;

pub fn run_accounts(input: Snapshot<'_>, owner: Option<Address>, options: &VerifyOptions, ui: &Ui) -> Result<()> {
    let incremental = match &input {
        Snapshot::Archives { incremental, .. } => incremental.map(|archive| archive.path.clone()),
        _ => None,
    };
    let found = inspect_accounts(input, owner, options, ui)?;
    ui.object("accounts", &found);
    for owner in &found.owners {
        if ui.is_pipe_broken() {
            return Ok(());
        }
        ui.object("owner", owner);
    }
    let paths: Vec<String> =
        [Some(&found.path), incremental.as_ref()].into_iter().flatten().map(|it| it.shown()).collect();
    ui.part(&paths.join("\n"), &found, ACCOUNTS);
    ui.say(&format!("\n{}", table_of_owners(&found).lines(columns_of_results()).join("\n")));
    Ok(())
}

const ACCOUNTS: &[Row<'_>] = &[
    ("only owner", "{owner}"),
    ("accounts", "{accounts}, {stored_bytes} in storages"),
    ("tombstones", "{tombstones}, {tombstone_bytes}"),
    ("superseded", "{superseded_records}, {superseded_bytes}, by newer ones"),
    ("obsolete", "{obsolete_records}, {obsolete_bytes}, on disk only"),
];

/// The owners with most bytes, and the sum of all others.
fn table_of_owners(found: &AccountsSummary) -> Table {
    let mut rows: Vec<(String, RecordTotals)> = found
        .owners
        .iter()
        .take(OWNER_ROWS_MAX)
        .map(|row| (row.name.map_or(row.owner.to_string(), |name| format!("{}\n  {name}", row.owner)), row.totals))
        .collect();
    let mut rest = RecordTotals::default();
    found.owners.iter().skip(OWNER_ROWS_MAX).for_each(|row| rest.add(&row.totals));
    if rest != RecordTotals::default() {
        rows.push((format!("{} more", show_count((found.owners.len() - OWNER_ROWS_MAX) as u64)), rest));
    }
    let all_bytes = found.totals.stored_bytes.max(1) as f64;
    TableOf::new("", "", &rows)
        .shown("OWNER", Unit::Text, |(owner, _)| owner.clone())
        .shown("ACCOUNTS", Unit::Count, |(_, totals)| totals.accounts)
        .shown("BYTES", Unit::Bytes, |(_, totals)| totals.stored_bytes)
        .shown("%", Unit::Percent, |(_, totals)| 100.0 * totals.stored_bytes as f64 / all_bytes)
        .finish()
}

/// Finds one account and prints it. `shown` is the input as the user named it.
pub fn run_account(input: Snapshot<'_>, pubkey: Address, threads: usize, shown: &Path, ui: &Ui) -> Result<()> {
    let Some(found) = find_account(input, pubkey, threads, ui)? else {
        let error = Error::failed(format!("{}: no storage holds the account {pubkey}", shown.shown()));
        let base = ArchiveName::from_path(shown).and_then(|name| name.base_slot);
        let hint = "an incremental archive holds what changed after its base: look into the full archive of slot";
        return Err(match base {
            Some(base) => error.with_hint(format!("{hint} {base} too")),
            None => error,
        });
    };
    let more = json!({ "path": shown.to_string_lossy(), "data_base64": STANDARD.encode(&found.data) });
    let state = if found.is_closed { "closed: its newest record has no lamports" } else { "[]" };
    let rows = [&[("state", state)], ACCOUNT].concat();
    ui.report("account", &pubkey.to_string(), &Both { first: &found, second: &more }, &rows);
    let data = &found.data[..found.data.len().min(DATA_BYTES_MAX)];
    for (number, bytes) in data.chunks(16).enumerate() {
        ui.say(&hex_row(number * 16, bytes));
    }
    if data.len() < found.data.len() {
        ui.say("  … (`--json` has all)");
    }
    Ok(())
}

const ACCOUNT: &[Row<'_>] = &[
    ("owner", "{owner}[ ({name})]"),
    ("balance", "{lamports}"),
    ("executable", "{executable}"),
    ("slot", "{slot}"),
    ("storage", "{storage}, record at offset {offset_bytes}"),
    ("data", "{data_bytes}"),
];

fn hex_row(offset: usize, bytes: &[u8]) -> String {
    let mut text = format!("  {offset:08x} ");
    for byte in bytes {
        let _ = write!(text, " {byte:02x}");
    }
    let plain = |byte: &u8| if byte.is_ascii_graphic() || *byte == b' ' { char::from(*byte) } else { '.' };
    format!("{text:<60} {}", bytes.iter().map(plain).collect::<String>())
}
