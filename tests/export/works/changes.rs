//! Exported changes equal those that a comparison of both whole tables finds.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Output;

use slotpress::export::{DataPart, ExportOptions, ExportTo, RowOrder, Table, export};
use slotpress::verify::{CheckOptions, StateCheck, VerifyOptions};
use slotpress::{ArchiveInput, NoProgress, Snapshot};
use tempfile::TempDir;

use super::engines::{python_command, run_json_script};
use super::tables::{ALL_TABLES, make_synthetic_pair};
use crate::common::records::{RECORD_HEADER_BYTES, field, record_ranges, stake_field, u64_at};
use crate::common::seeded_rng::SeededRng;
use crate::common::strace::number_from_env;
use crate::common::*;
use crate::export::{
    PAGE, assert_exported, csv_lines, dir_on_disk, export_rows, fixture_pair, key_column_count, list_files,
    read_manifest, read_manifests, run_export, stderr_of,
};

/// States of a cluster, oldest first.
pub struct Chain {
    _dir: TempDir,
    /// Archives of each day's state.
    pub days: Vec<Vec<PathBuf>>,
}

impl Chain {
    fn new(dir: TempDir, days: Vec<Vec<PathBuf>>) -> Self {
        Self { _dir: dir, days }
    }

    pub fn archives_of_day(&self, day: usize) -> Vec<&Path> {
        self.days[day].iter().map(PathBuf::as_path).collect()
    }

    /// Returns the flags that select changes since the day before; none on the first day.
    pub fn flags_since_day_before(&self, day: usize) -> Vec<&str> {
        if day > 0 { since_flags(&self.archives_of_day(day - 1)) } else { Vec::new() }
    }

    pub fn slot(&self, day: usize) -> u64 {
        let name = name(self.days[day].last().expect("an archive"));
        let parts: Vec<&str> = name.split('-').collect();
        parts[parts.len() - 2].parse().expect("a slot")
    }
}

fn since_flags<'a>(old: &[&'a Path]) -> Vec<&'a str> {
    std::iter::once("--since").chain(old.iter().map(|path| text(path))).collect()
}

/// Returns two chains of states that Agave's own code made: first one of a bank, in which an epoch ends, then
/// one of a validator.
pub fn agave_chains() -> Vec<Chain> {
    let [full, incremental] = fixture_pair("agave-4.2.2");
    let of_bank = Chain::new(temp_dir(), vec![vec![full.clone()], vec![full, incremental]]);
    let [full, incremental] =
        ["snapshot-3500-", "incremental-snapshot-3500-3550-"].map(|prefix| fixture_of("agave-validator-4.2.2", prefix));
    let ledger = ledger_of("agave-validator-4.2.2", 3575);
    let dir = temp_dir();
    let last = archive(ledger.path(), dir.path(), &[]);
    vec![of_bank, Chain::new(dir, vec![vec![full.clone()], vec![full, incremental], vec![last]])]
}

/// Returns a chain of synthetic states with all kinds of accounts.
fn synthetic_chain() -> Chain {
    let made = make_synthetic_pair(&["--size", "4MiB"]);
    let full = made.full.clone();
    let incremental = made.incremental.clone();
    Chain::new(made.dir, vec![vec![full.clone()], vec![full, incremental]])
}

/// Returns a copy of a chain in which `alter` has changed records. It is called with the day and the bytes of
/// each record.
fn alter_chain(chain: &Chain, alter: impl Fn(usize, &mut [u8])) -> Chain {
    let dir = temp_dir();
    let altered_day = |(day, archives): (usize, &Vec<PathBuf>)| {
        let to = dir.path().join(day.to_string());
        fs::create_dir(&to).expect("made");
        let altered_archive = |archive: &PathBuf| {
            let mut entries = entries(archive);
            let storages = entries.iter_mut().filter(|entry| entry.path.starts_with("accounts/"));
            for TarEntry { content, .. } in storages {
                for range in record_ranges(content) {
                    alter(day, &mut content[range]);
                }
            }
            let path = to.join(name(archive));
            write_archive(&path, &entries);
            path
        };
        archives.iter().map(altered_archive).collect::<Vec<PathBuf>>()
    };
    let days = chain.days.iter().enumerate().map(altered_day).collect();
    Chain::new(dir, days)
}

/// The first bytes of the addresses of sysvars.
const SYSVAR_PREFIX: [u8; 3] = [6, 167, 213];

/// On the second day, closes a third of the accounts by changing the addresses in their records, and gives
/// another third a different owner.
fn close_and_give_away(day: usize, record: &mut [u8]) {
    if day != 1 || is_sysvar(record) {
        return;
    }
    match record[field::PUBKEY.start] % 3 {
        0 => change_address(record),
        1 => change_owner(record),
        _ => {}
    }
}

fn is_sysvar(record: &[u8]) -> bool {
    record[field::PUBKEY].starts_with(&SYSVAR_PREFIX)
}

/// Changes the last byte of the address in a record, so that its account is closed and another one exists.
fn change_address(record: &mut [u8]) {
    record[field::PUBKEY.end - 1] ^= 1;
}

fn change_owner(record: &mut [u8]) {
    record[field::OWNER].fill(7);
}

const STAKE_ACCOUNT_BYTES: usize = 200;

/// The kind of a delegated stake, in a stake account's data.
const DELEGATED: [u8; 4] = 2u32.to_le_bytes();

/// Sets the activation epoch of each delegated stake to 1.
fn activate_in_epoch_1(_: usize, record: &mut [u8]) {
    let data = &mut record[RECORD_HEADER_BYTES..];
    if data.len() == STAKE_ACCOUNT_BYTES && data[stake_field::KIND] == DELEGATED {
        data[stake_field::ACTIVATION_EPOCH].copy_from_slice(&1u64.to_le_bytes());
    }
}

/// Returns chains, each with the flags that reading it needs. In two altered chains, accounts are closed or
/// get a different owner on the second day, and are as before on the third, if there is one. In another altered
/// chain, the end of an epoch changes stakes although their accounts stay the same.
pub fn chains() -> Vec<(Chain, &'static [&'static str])> {
    let (mut agave_chains, synth) = (agave_chains(), synthetic_chain());
    let unchecked: &[&str] = &["--check", "frames"];
    let altered = [
        alter_chain(&agave_chains[0], activate_in_epoch_1),
        alter_chain(&agave_chains[1], close_and_give_away),
        alter_chain(&synth, close_and_give_away),
    ];
    agave_chains.push(synth);
    let intact = agave_chains.into_iter().map(|chain| (chain, &[][..]));
    intact.chain(altered.into_iter().map(|chain| (chain, unchecked))).collect()
}

pub const TABLES: [&str; 6] = ["accounts", "token-accounts", "mints", "stakes", "votes", "programs"];

/// A row of a whole table.
struct TableRow {
    line: String,
    /// The row without the storage slot: a row in which only that slot differs is unchanged.
    compared: String,
}

/// Returns the rows of a whole table by their key. Texts in these chains contain no commas.
fn rows_by_key(inputs: &[&Path], table: &str, flags: &[&str]) -> BTreeMap<String, TableRow> {
    let rows = export_rows(inputs, &[&["--table", table], flags].concat());
    let with_key = rows.into_iter().map(|line| {
        let mut cells: Vec<&str> = line.split(',').collect();
        let key = cells[..key_column_count(table)].join(",");
        let slot_column = if table == "accounts" { 3 } else { cells.len() - 1 };
        cells[slot_column] = "";
        let compared = cells.join(",");
        (key, TableRow { line, compared })
    });
    with_key.collect()
}

/// Compares two whole tables. Returns the rows of their changes, sorted.
fn expected_changes(old: &[&Path], new: &[&Path], table: &str, flags: &[&str]) -> Vec<String> {
    let old = rows_by_key(old, table, flags);
    let new = rows_by_key(new, table, flags);
    let keys: BTreeSet<&String> = old.keys().chain(new.keys()).collect();
    let changes = keys.into_iter().filter_map(|key| {
        let (change, row) = match (old.get(key), new.get(key)) {
            (Some(before), Some(after)) if before.compared == after.compared => return None,
            (Some(_), Some(row)) => ("changed", row),
            (None, Some(row)) => ("added", row),
            (Some(row), None) => ("closed", row),
            (None, None) => return None,
        };
        Some(format!("{key},{change}{}", &row.line[key.len()..]))
    });
    let mut changes: Vec<String> = changes.collect();
    changes.sort();
    changes
}

/// Returns rows without the header, sorted.
fn sort_rows(lines: &[String]) -> Vec<String> {
    let mut rows = lines[1..].to_vec();
    rows.sort();
    rows
}

/// Exports changes. Returns the lines of each table, with a header.
fn export_changes(old: &[&Path], new: &[&Path], out: &Path, flags: &[&str]) -> BTreeMap<String, Vec<String>> {
    let since = since_flags(old);
    assert_exported(new, out, &[&since[..], flags].concat());
    let slot = read_manifests(out).last().expect("a manifest")["slot"].as_u64().expect("a slot");
    let lines = |path: &String| csv_lines(&out.join(path));
    let is_new = |path: &&String| path.contains(&format!("snapshot_slot={slot}/"));
    let table = |path: &String| path.split('/').next().expect("a table").replace('_', "-");
    list_files(out).iter().filter(is_new).map(|path| (table(path), lines(path))).collect()
}

/// Asserts that an exported table of changes has the columns, the order and the rows that a comparison of both whole
/// tables finds. Returns the kinds of its changes.
fn assert_expected_changes(lines: &[String], expected: &[String], table: &str, label: &str) -> BTreeSet<String> {
    let key_columns = key_column_count(table);
    let header: Vec<&str> = lines[0].split(',').collect();
    assert_eq!(header[key_columns - 1..=key_columns], ["address", "change"], "{label}");
    let key = |row: &String| row.split(',').take(key_columns).map(str::to_string).collect::<Vec<String>>();
    assert!(lines[1..].is_sorted_by(|row, next| key(row) < key(next)), "{label}");
    let rows = sort_rows(lines);
    assert!(rows == expected, "{label}: {} and {}", rows.len(), expected.len());
    rows.iter().map(|row| row.split(',').nth(key_columns).expect("a change").to_string()).collect()
}

#[test]
fn changes_are_those_that_a_comparison_finds() {
    let mut found_kinds: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
    let mut stakes_changed_alone = 0;
    for (number, (chain, flags)) in chains().into_iter().enumerate() {
        let all_tables = [&["--table", ALL_TABLES], flags].concat();
        let out = temp_dir();
        assert_exported(&chain.archives_of_day(0), out.path(), &all_tables);
        for day in 1..chain.days.len() {
            let old = chain.archives_of_day(day - 1);
            let new = chain.archives_of_day(day);
            let found = export_changes(&old, &new, out.path(), &all_tables);
            for table in TABLES {
                let label = format!("chain {number}, day {day}, {table}");
                let expected = expected_changes(&old, &new, table, flags);
                let kinds = assert_expected_changes(&found[table], &expected, table, &label);
                found_kinds.entry(table).or_default().extend(kinds);
            }
            stakes_changed_alone += count_stakes_of_unchanged_accounts(&found);
            let manifests = read_manifests(out.path());
            let [.., before, last] = &manifests[..] else { panic!("two manifests") };
            assert_eq!(last["since_slot"], before["slot"]);
            assert_eq!(last["since_hash"], before["hash"]);
        }
    }
    for table in TABLES {
        let expected: &[&str] = match table {
            // No vote account is added or closed, and no code of a program is replaced.
            "votes" => &["changed"],
            "programs" => &["added", "closed"],
            _ => &["added", "changed", "closed"],
        };
        assert!(found_kinds[table].iter().eq(expected), "{table}: {:?}", found_kinds[table]);
    }
    assert!(stakes_changed_alone > 0, "stakes change at the end of an epoch, without their accounts");
}

/// Exports chains whose accounts change at random from day to day, with random tables, filters and
/// threads. Random days are left out. `EXPORT_CHAINS` sets the number of chains (200 in a long run), and
/// `EXPORT_SEED` the first seed.
#[test]
fn changes_of_random_chains_are_those_that_a_comparison_finds() {
    let [of_bank, of_validator] = agave_chains().try_into().unwrap_or_else(|_| panic!("two chains"));
    let bases = [of_bank, of_validator, synthetic_chain()];
    let first = number_from_env("EXPORT_SEED", 1);
    for seed in first..first + number_from_env("EXPORT_CHAINS", 20) {
        let mut rng = SeededRng::new(seed);
        let chain = alter_chain(&bases[rng.below(bases.len())], |day, record| {
            // All bytes after the last record are zero.
            if is_sysvar(record) || record[field::PUBKEY] == [0; 32] {
                return;
            }
            let address = u64_at(record, field::PUBKEY.start);
            match SeededRng::new(seed ^ address ^ (day as u64 + 1).rotate_left(40)).below(10) {
                0 => change_address(record),
                1 => change_owner(record),
                2 => record[field::LAMPORTS.start] ^= 1,
                3 => record[RECORD_HEADER_BYTES..].iter_mut().rev().take(8).for_each(|byte| *byte ^= 1),
                _ => {}
            }
        });
        let tables = &TABLES[rng.below(3)..4 + rng.below(3)];
        let (tables, filter): (&[&str], &[&str]) = match rng.below(5) {
            0 => (&["accounts"], &["--owner", "system"]),
            1 => (&["accounts"], &["--data-size", "200", "--data", "full"]),
            2 => (&["accounts"], &["--data", "0:64"]),
            _ => (tables, &[]),
        };
        let threads = (1 + rng.below(3)).to_string();
        let filter = [filter, &["--check", "frames"]].concat();
        let listed = tables.join(",");
        let flags = [&["--table", &listed, "--threads", &threads][..], &filter].concat();
        let out = temp_dir();
        assert_exported(&chain.archives_of_day(0), out.path(), &flags);
        let mut before = 0;
        let last = chain.days.len() - 1;
        while before < last {
            let day = before + 1 + rng.below(last - before);
            let old = chain.archives_of_day(before);
            let new = chain.archives_of_day(day);
            let found = export_changes(&old, &new, out.path(), &flags);
            for table in tables {
                let found = sort_rows(&found[*table]);
                let expected = expected_changes(&old, &new, table, &filter);
                assert!(found == expected, "{seed}, {table}: {} and {}", found.len(), expected.len());
            }
            before = day;
        }
    }
}

/// Counts the rows of changed stakes whose accounts did not change.
fn count_stakes_of_unchanged_accounts(found: &BTreeMap<String, Vec<String>>) -> usize {
    let accounts: BTreeSet<&str> = found["accounts"].iter().filter_map(|row| row.split(',').nth(1)).collect();
    let addresses =
        found["stakes"].iter().filter(|row| row.contains(",changed,")).filter_map(|row| row.split(',').nth(1));
    addresses.filter(|address| !accounts.contains(address)).count()
}

/// An account that stops passing a filter is reported as closed, and one that starts passing it as added.
#[test]
fn filters_select_from_both_states() {
    let chain = alter_chain(&agave_chains().pop().expect("a chain"), close_and_give_away);
    let old = chain.archives_of_day(0);
    let new = chain.archives_of_day(1);
    for flags in [
        &["--owner", "system", "--check", "frames"][..],
        &["--data-size", "200", "--data", "full", "--check", "frames"],
        &["--data", "0:64", "--check", "frames"],
    ] {
        let out = temp_dir();
        assert_exported(&old, out.path(), flags);
        let found = sort_rows(&export_changes(&old, &new, out.path(), flags)["accounts"]);
        let expected = expected_changes(&old, &new, "accounts", flags);
        assert!(!expected.is_empty(), "{flags:?}");
        assert!(found == expected, "{flags:?}: {} and {}", found.len(), expected.len());
    }
}

/// Files have the same bytes even if rows do not fit in memory.
#[test]
fn memory_does_not_change_the_bytes() {
    let made = make_synthetic_pair(&["--size", "40MiB"]);
    let [full, incremental] = [&made.full, &made.incremental].map(ArchiveInput::from_path);
    let old = Snapshot::archive(full.clone());
    let new = Snapshot::pair(full, incremental);
    let mut expected = None;
    for (memory_bytes, threads) in [(1 << 30, 1), (0, 2)] {
        let out = temp_dir();
        let spilled = dir_on_disk();
        let mut options = ExportOptions::new(old.clone()).memory_bytes(memory_bytes).data(DataPart::Full);
        options.tables = vec![Table::Accounts, Table::TokenAccounts, Table::Stakes];
        let check = CheckOptions::default().memory_bytes(memory_bytes).temporary_dir(spilled.path().to_path_buf());
        options.verify = VerifyOptions::default().threads(threads).check(check);
        let to = || ExportTo::Dir(out.path().to_path_buf());
        export(&options, to(), &NoProgress).expect("exported");
        options = options.snapshot(new.clone()).since(old.clone());
        assert_eq!(options.order, None::<RowOrder>);
        let report = export(&options, to(), &NoProgress).expect("exported");
        assert_eq!(report.facts.state, StateCheck::Checked);
        assert!(report.tables.iter().all(|table| table.rows > 0));
        assert_eq!(relative_paths(spilled.path()), Vec::<String>::new());
        let tables = read_manifests(out.path()).pop().expect("a manifest")["tables"].clone();
        assert_eq!(expected.get_or_insert_with(|| tables.clone()), &tables, "{memory_bytes}");
    }
}

fn run_since(new: &[&Path], old: &[&Path], out: &Path, flags: &[&str]) -> Output {
    run_export(new, out, &[&since_flags(old)[..], flags].concat())
}

fn assert_usage_error(output: &Output, message: &str) {
    let stderr = stderr_of(output);
    assert_eq!(output.status.code(), Some(2), "{stderr}");
    assert!(stderr.contains(message), "{stderr}");
}

/// Checks that changes are refused, and that the output stays as it was.
fn assert_changes_refused(new: &[&Path], old: &[&Path], out: &Path, flags: &[&str], message: &str) {
    let before = tree(out);
    assert_usage_error(&run_since(new, old, out, flags), message);
    assert!(tree(out) == before, "{flags:?}");
}

#[test]
fn changes_must_follow_the_newest_state() {
    let chain = agave_chains().pop().expect("a chain");
    let first = chain.archives_of_day(0);
    let second = chain.archives_of_day(1);
    let third = chain.archives_of_day(2);
    let out = temp_dir();
    let out = out.path();
    assert_changes_refused(&second, &first, out, &[], "must follow an exported state, and none exists");
    assert_exported(&first, out, &["--table", "accounts,stakes"]);
    for (flags, message) in [
        (&["--owner", "stake"][..], "its `filter` is"),
        (&["--data", "0:8"], "its `data` is \"none\", not"),
        (&["--table", "accounts,votes"], "must follow an exported state, and none exists"),
    ] {
        assert_changes_refused(&second, &first, out, flags, message);
    }
    let message = "since slot 3550 do not follow the newest state there: slot 3500, hash";
    assert_changes_refused(&third, &second, out, &[], message);
    let [other_chain, _] = fixture_pair("agave-4.2.2");
    assert_changes_refused(&second, &[&other_chain], out, &[], "since slot 26 do not follow");
}

/// A state between two others is refused, both as changes and as a whole. Another table of the newest state is
/// accepted.
#[test]
fn no_state_comes_between_others() {
    let chain = agave_chains().pop().expect("a chain");
    let first = chain.archives_of_day(0);
    let second = chain.archives_of_day(1);
    let third = chain.archives_of_day(2);
    let out = temp_dir();
    let out = out.path();
    assert_exported(&first, out, &["--table", "accounts,stakes"]);
    assert_exported(&third, out, &since_flags(&first));
    assert_changes_refused(&second, &first, out, &[], "the newest state there: slot 3575, hash");
    assert_usage_error(&run_export(&second, out, &[]), "has changes of slot 3575 since 3500");
    let stakes = run_since(&third, &first, out, &["--table", "stakes"]);
    assert_eq!(stakes.status.code(), Some(0), "{}", stderr_of(&stakes));
    let stakes = run_since(&third, &second, out, &["--table", "stakes"]);
    assert_usage_error(&stakes, "the newest state there: slot 3500, hash");
    assert_eq!(run_export(&third, out, &["--table", "stakes"]).status.code(), Some(5));
}

#[test]
fn changes_do_not_continue_tables_of_an_older_schema() {
    let chain = agave_chains().pop().expect("a chain");
    let out = temp_dir();
    assert_exported(&chain.archives_of_day(0), out.path(), &[]);
    let mut manifest = read_manifest(out.path());
    manifest["schema_version"] = 2.into();
    fs::write(out.path().join("accounts/_manifest-3500.json"), manifest.to_string()).expect("written");
    for message in ["its `schema_version` is 2, not 3", "choose another output"] {
        assert_changes_refused(&chain.archives_of_day(1), &chain.archives_of_day(0), out.path(), &[], message);
    }
}

/// A ledger's slot is known only once the ledger has been read.
#[test]
fn changes_of_a_ledger_follow_archives() {
    let chain = agave_chains().pop().expect("a chain");
    let second = chain.archives_of_day(1);
    let ledger = ledger_of("agave-validator-4.2.2", 3575);
    let out = temp_dir();
    assert_exported(&second, out.path(), &[]);
    assert_exported(&[ledger.path()], out.path(), &["--since", text(second[0]), text(second[1])]);
    let since_itself = run_export(&[ledger.path()], out.path(), &["--since", text(ledger.path())]);
    assert_usage_error(&since_itself, "the older state is of slot 3575, the new one of 3575");
}

#[test]
fn states_of_different_clusters_are_refused() {
    let chain = agave_chains().pop().expect("a chain");
    let [other_chain, _] = fixture_pair("agave-4.2.2");
    let out = temp_dir();
    assert_exported(&[&other_chain], out.path(), &[]);
    let output = run_export(&chain.archives_of_day(0), out.path(), &["--since", text(&other_chain)]);
    assert_usage_error(&output, "the states are of different clusters");
}

#[test]
fn both_states_are_checked() {
    let chain = agave_chains().pop().expect("a chain");
    let first = chain.archives_of_day(0);
    let second = chain.archives_of_day(1);
    let dir = temp_dir();
    let out = temp_dir();
    assert_exported(&first, out.path(), &[]);
    let before = tree(out.path());
    let mut entries = entries(first[0]);
    let storage = entries.iter_mut().find(|entry| entry.path.starts_with("accounts/")).expect("a storage");
    storage.content[field::LAMPORTS.start] ^= 1;
    let forged = dir.path().join(name(first[0]));
    write_archive(&forged, &entries);
    let forged_old = run_export(&second, out.path(), &["--since", text(&forged)]);
    assert_eq!(forged_old.status.code(), Some(3), "{}", stderr_of(&forged_old));
    let forged_new = run_export(&[forged.as_path(), second[1]], out.path(), &["--since", text(first[0])]);
    assert_eq!(forged_new.status.code(), Some(3), "{}", stderr_of(&forged_new));
    assert!(tree(out.path()) == before);
    assert_eq!(read_manifest(out.path())["slot"], 3500);
}

#[test]
fn changes_in_other_forms_are_usage_errors() {
    let chain = agave_chains().pop().expect("a chain");
    let out = temp_dir();
    for (flags, message) in [
        (&["-o", "-"][..], "changes are found by sorting"),
        (&["-o", text(out.path()), "--order", "none"], "changes are found by sorting"),
        (
            &["-o", text(out.path()), "--format", "test-validator", "--owner", "stake"],
            "loads the accounts of a state, not changes",
        ),
    ] {
        let mut command = slotpress();
        command.arg("export").args(chain.archives_of_day(1)).args(flags).arg("--since").args(chain.archives_of_day(0));
        let output = command.output().expect("runs");
        assert_usage_error(&output, message);
        assert!(output.stdout.is_empty(), "{flags:?}");
    }
    assert_eq!(relative_paths(out.path()), Vec::<String>::new());
}

/// Compares the rows that the page's SQL finds for each table and day with the whole table of that day.
const COMPARE_SCRIPT: &str = r#"
import sys, json, duckdb
sql, days, wholes, tables = json.loads(sys.stdin.read())
duckdb.sql(sql)
found = []
for slot, whole in wholes:
    for table in tables:
        columns = duckdb.sql(f"select * exclude (storage_slot, snapshot_slot, change) from read_parquet('{whole}/{table}/*/*.parquet', hive_partitioning = true)")
        names = ", ".join(f'"{name}"' for name in columns.columns)
        at = duckdb.sql(f"select {names} from state_at('{days}', '{table}', {slot})").fetchall()
        rows = columns.fetchall()
        is_equal = sorted(map(repr, at)) == sorted(map(repr, rows))
        found.append({"slot": slot, "table": table, "rows": len(rows), "is_equal": is_equal})
print(json.dumps(found))
"#;

/// A table at a slot: the number of its rows, and whether the SQL finds the same.
#[derive(Debug, serde::Deserialize)]
#[allow(dead_code, reason = "slot and table are for messages")]
struct ComparedTable {
    slot: u64,
    table: String,
    rows: u64,
    is_equal: bool,
}

fn compare_states(sql: &str, days: &Path, wholes: &[(u64, PathBuf)], tables: &[String]) -> Vec<ComparedTable> {
    let question = serde_json::json!([sql, days, wholes, tables]).to_string();
    run_json_script(&mut python_command(COMPARE_SCRIPT), &question)
}

/// The SQL in docs/export.md must find the rows of the whole export of each day.
#[test]
fn sql_in_the_docs_finds_the_whole_state_of_each_day() {
    needs!("engines");
    let (_, section) = PAGE.split_once("## Changes").expect("the section");
    let sql = section.split("```").find_map(|part| part.strip_prefix("sql")).expect("SQL");
    for (number, (chain, flags)) in chains().into_iter().enumerate() {
        let flags = [&["--table", ALL_TABLES], flags].concat();
        let tables: Vec<String> = TABLES.iter().map(|table| table.replace('-', "_")).collect();
        let out = temp_dir();
        let mut wholes = Vec::new();
        let days = out.path().join("days");
        for day in 0..chain.days.len() {
            let since = chain.flags_since_day_before(day);
            let whole = out.path().join(day.to_string());
            assert_exported(&chain.archives_of_day(day), &days, &[&flags[..], &since].concat());
            assert_exported(&chain.archives_of_day(day), &whole, &flags);
            wholes.push((chain.slot(day), whole));
            if day == 0 {
                // The SQL must also work before there are changes.
                let compared = compare_states(sql, &days, &wholes, &tables);
                assert!(compared.iter().all(|table| table.is_equal), "chain {number}: {compared:?}");
            }
        }
        let compared = compare_states(sql, &days, &wholes, &tables);
        assert_eq!(compared.len(), chain.days.len() * TABLES.len());
        assert!(compared.iter().all(|table| table.is_equal), "chain {number}: {compared:?}");
        let with_rows = compared.iter().filter(|table| table.rows > 0).count();
        assert!(with_rows >= 4 * chain.days.len(), "{compared:?}");
    }
}
