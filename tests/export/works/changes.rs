//! Changes between states: those that a comparison of both whole tables finds.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use slotpress::tables::{DataPart, ExportInput, ExportOptions, ExportTo, RowOrder, Table, export};
use slotpress::verify::{CheckOptions, VerifyOptions};
use slotpress::{NamedArchive, NoProgress, Snapshot};
use tempfile::TempDir;

use super::engines::{answer, python};
use super::tables::{ALL, synthetic};
use crate::common::draws::Draws;
use crate::common::strace::number_of;
use crate::common::*;
use crate::export::{dir_on_disk, files, lines_of, manifest, manifests, pair, rows, run};

/// Archives of a state each, oldest first.
pub struct Chain {
    _dir: TempDir,
    pub days: Vec<Vec<PathBuf>>,
}

impl Chain {
    fn of(dir: TempDir, days: Vec<Vec<PathBuf>>) -> Self {
        Self { _dir: dir, days }
    }

    pub fn day(&self, number: usize) -> Vec<&Path> {
        self.days[number].iter().map(PathBuf::as_path).collect()
    }

    /// Flags for what changed since the day before; none at the first day.
    pub fn since(&self, number: usize) -> Vec<&str> {
        if number > 0 { since_flags(&self.day(number - 1)) } else { Vec::new() }
    }

    pub fn slot(&self, number: usize) -> u64 {
        let name = name(self.days[number].last().expect("an archive"));
        let parts: Vec<&str> = name.split('-').collect();
        parts[parts.len() - 2].parse().expect("a slot")
    }
}

fn since_flags<'a>(old: &[&'a Path]) -> Vec<&'a str> {
    std::iter::once("--since").chain(old.iter().map(|path| text(path))).collect()
}

/// Chains by Agave's own code: its bank's, with the end of an epoch, and a validator's.
pub fn of_agave() -> Vec<Chain> {
    let [full, incremental] = pair("agave-4.2.2");
    let of_bank = Chain::of(temp_dir(), vec![vec![full.clone()], vec![full, incremental]]);
    let [full, incremental] =
        ["snapshot-3500-", "incremental-snapshot-3500-3550-"].map(|prefix| fixture_of("agave-validator-4.2.2", prefix));
    let (ledger, dir) = (ledger_of("agave-validator-4.2.2", 3575), temp_dir());
    let last = archive(ledger.path(), dir.path(), &[]);
    vec![of_bank, Chain::of(dir, vec![vec![full.clone()], vec![full, incremental], vec![last]])]
}

/// A chain of synthetic states with all kinds of accounts.
fn of_synth() -> Chain {
    let made = synthetic(&["--size", "4MiB"]);
    let (full, incremental) = (made.full.clone(), made.incremental.clone());
    Chain::of(made.dir, vec![vec![full.clone()], vec![full, incremental]])
}

/// A chain with records that are altered on each of its days.
fn altered(chain: &Chain, alter: impl Fn(usize, &mut [u8])) -> Chain {
    let dir = temp_dir();
    let in_dir = |(day, archives): (usize, &Vec<PathBuf>)| {
        let to = dir.path().join(day.to_string());
        fs::create_dir(&to).expect("made");
        let one = |archive: &PathBuf| {
            let mut all = entries(archive);
            let storages = all.iter_mut().filter(|entry| entry.path.starts_with("accounts/"));
            for TarEntry { content, .. } in storages {
                let mut at = 0;
                while at + 136 <= content.len() {
                    let length = u64::from_le_bytes(content[at + 8..at + 16].try_into().expect("8 bytes")) as usize;
                    alter(day, &mut content[at..at + 136 + length]);
                    at += (136 + length).next_multiple_of(8);
                }
            }
            let path = to.join(name(archive));
            fs::write(&path, zstd::encode_all(make_tar(&all).as_slice(), 1).expect("compressed")).expect("written");
            path
        };
        archives.iter().map(one).collect::<Vec<PathBuf>>()
    };
    let days = chain.days.iter().enumerate().map(in_dir).collect();
    Chain::of(dir, days)
}

/// The first bytes of the addresses of sysvars.
const SYSVAR: [u8; 3] = [6, 167, 213];

/// On the second day, closes a third of the accounts, whose records are of others then, and gives
/// another third to another owner.
fn close_and_give_away(day: usize, record: &mut [u8]) {
    match record[16] % 3 {
        _ if day != 1 || record[16..].starts_with(&SYSVAR) => {}
        0 => record[47] ^= 1,
        1 => record[64..96].fill(7),
        _ => {}
    }
}

/// Delegates stakes in epoch 1.
fn delegate_in_epoch_1(_: usize, record: &mut [u8]) {
    if record.len() == 136 + 200 && record[136..140] == 2u32.to_le_bytes() {
        record[136 + 164..136 + 172].copy_from_slice(&1u64.to_le_bytes());
    }
}

/// Chains with the flags with which they can be read. In one that is altered, accounts are closed on
/// the second day, or have another owner, and are as before on the third; in another one, the end of
/// an epoch changes stakes whose accounts stay the same.
pub fn chains() -> Vec<(Chain, &'static [&'static str])> {
    let (mut of_agave, synth) = (of_agave(), of_synth());
    let unchecked: &[&str] = &["--check", "frames"];
    let altered = [
        altered(&of_agave[0], delegate_in_epoch_1),
        altered(&of_agave[1], close_and_give_away),
        altered(&synth, close_and_give_away),
    ];
    of_agave.push(synth);
    let sound = of_agave.into_iter().map(|chain| (chain, &[][..]));
    sound.chain(altered.into_iter().map(|chain| (chain, unchecked))).collect()
}

pub const TABLES: [&str; 6] = ["accounts", "token-accounts", "mints", "stakes", "votes", "programs"];

/// Number of columns by which a table is sorted.
fn key_columns(table: &str) -> usize {
    if ["accounts", "token-accounts", "stakes"].contains(&table) { 2 } else { 1 }
}

/// Rows of a whole table by their key, without the slot of the storage. None of these chains has
/// commas in a text.
fn keyed(inputs: &[&Path], table: &str, flags: &[&str]) -> BTreeMap<String, (String, String)> {
    let rows = rows(inputs, &[&["--table", table], flags].concat());
    let keyed = rows.into_iter().map(|row| {
        let mut cells: Vec<&str> = row.split(',').collect();
        let key = cells[..key_columns(table)].join(",");
        let slot_at = if table == "accounts" { 3 } else { cells.len() - 1 };
        cells[slot_at] = "";
        (key, (cells.join(","), row.clone()))
    });
    keyed.collect()
}

/// The rows of changes as a comparison of two whole tables finds them.
fn expected(old: &[&Path], new: &[&Path], table: &str, flags: &[&str]) -> Vec<String> {
    let (old, new) = (keyed(old, table, flags), keyed(new, table, flags));
    let keys: BTreeSet<&String> = old.keys().chain(new.keys()).collect();
    let changes = keys.into_iter().filter_map(|key| {
        let (change, row) = match (old.get(key), new.get(key)) {
            (Some((before, _)), Some((after, _))) if before == after => return None,
            (Some(_), Some((_, row))) => ("changed", row),
            (None, Some((_, row))) => ("added", row),
            (Some((_, row)), None) => ("closed", row),
            (None, None) => return None,
        };
        Some(format!("{key},{change}{}", &row[key.len()..]))
    });
    changes.collect()
}

/// Exports changes; returns the lines of each table, with a header.
fn changes(old: &[&Path], new: &[&Path], out: &Path, flags: &[&str]) -> BTreeMap<String, Vec<String>> {
    let since = since_flags(old);
    let done = run(new, out, &[&since[..], flags].concat());
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    let slot = manifests(out).last().expect("a manifest")["slot"].as_u64().expect("a slot");
    let lines = |path: &String| lines_of(&out.join(path));
    let of_slot = |path: &String| path.contains(&format!("snapshot_slot={slot}/"));
    let table = |path: &String| path.split('/').next().expect("a table").replace('_', "-");
    files(out).iter().filter(|path| of_slot(path)).map(|path| (table(path), lines(path))).collect()
}

#[test]
fn what_a_comparison_finds() {
    let mut kinds = BTreeSet::new();
    let mut effective_alone = 0;
    for (number, (chain, flags)) in chains().into_iter().enumerate() {
        let out = temp_dir();
        let first = run(&chain.day(0), out.path(), &[&["--table", ALL], flags].concat());
        assert!(first.status.success(), "{}", String::from_utf8_lossy(&first.stderr));
        for day in 1..chain.days.len() {
            let (old, new) = (chain.day(day - 1), chain.day(day));
            let found = changes(&old, &new, out.path(), &[&["--table", ALL], flags].concat());
            for table in TABLES {
                let at = format!("chain {number}, day {day}, {table}");
                let mut expected = expected(&old, &new, table, flags);
                let mut rows = found[table][1..].to_vec();
                let header: Vec<&str> = found[table][0].split(',').collect();
                assert_eq!(header[key_columns(table) - 1..=key_columns(table)], ["address", "change"], "{at}");
                let keys: Vec<Vec<&str>> =
                    rows.iter().map(|row| row.split(',').take(key_columns(table)).collect()).collect();
                assert!(keys.is_sorted_by(|one, next| one < next), "{at}");
                rows.sort();
                expected.sort();
                assert!(rows == expected, "{at}: {} and {}", rows.len(), expected.len());
                kinds.extend(
                    rows.iter()
                        .map(|row| (table, row.split(',').nth(key_columns(table)).expect("a change").to_string())),
                );
            }
            effective_alone += stakes_of_unchanged_accounts(&found);
            let manifests = manifests(out.path());
            let [.., before, last] = &manifests[..] else { panic!("two manifests") };
            assert_eq!((&last["since_slot"], &last["since_hash"]), (&before["slot"], &before["hash"]));
        }
    }
    for table in TABLES {
        let of_table: Vec<&str> = kinds.iter().filter(|(of, _)| *of == table).map(|(_, kind)| kind.as_str()).collect();
        let expected: &[&str] = match table {
            // Few accounts vote, and all of them go on. No code is replaced.
            "votes" => &["changed"],
            "programs" => &["added", "closed"],
            _ => &["added", "changed", "closed"],
        };
        assert_eq!(of_table, expected, "{table}");
    }
    assert!(effective_alone > 0, "stakes change at the end of an epoch, without their accounts");
}

/// Chains whose accounts change at random from day to day, with random tables, filters, threads and
/// days left out. `EXPORT_CHAINS` sets their number (200 in a long run), `EXPORT_SEED` the first.
#[test]
fn random_chains() {
    let [of_bank, of_validator] = of_agave().try_into().unwrap_or_else(|_| panic!("two chains"));
    let bases = [of_bank, of_validator, of_synth()];
    let first = number_of("EXPORT_SEED", 1);
    for seed in first..first + number_of("EXPORT_CHAINS", 20) {
        let mut draws = Draws(seed);
        let chain = altered(&bases[draws.below(bases.len())], |day, record| {
            let address = u64::from_le_bytes(record[16..24].try_into().expect("8 bytes"));
            match Draws(seed ^ address ^ (day as u64 + 1).rotate_left(40)).below(10) {
                // Beyond the last record, all is zero.
                _ if record[16..].starts_with(&SYSVAR) || record[16..48] == [0; 32] => {}
                0 => record[47] ^= 1,
                1 => record[64..96].fill(7),
                2 => record[48] ^= 1,
                3 => record[136..].iter_mut().rev().take(8).for_each(|byte| *byte ^= 1),
                _ => {}
            }
        });
        let tables = &TABLES[draws.below(3)..4 + draws.below(3)];
        let (tables, filter): (&[&str], &[&str]) = match draws.below(5) {
            0 => (&["accounts"], &["--owner", "system"]),
            1 => (&["accounts"], &["--data-size", "200", "--data", "full"]),
            2 => (&["accounts"], &["--data", "0:64"]),
            _ => (tables, &[]),
        };
        let threads = (1 + draws.below(3)).to_string();
        let filter = [filter, &["--check", "frames"]].concat();
        let listed = tables.join(",");
        let flags = [&["--table", &listed, "--threads", &threads][..], &filter].concat();
        let out = temp_dir();
        let first = run(&chain.day(0), out.path(), &flags);
        assert!(first.status.success(), "{seed}: {}", String::from_utf8_lossy(&first.stderr));
        let (mut before, last) = (0, chain.days.len() - 1);
        while before < last {
            let day = before + 1 + draws.below(last - before);
            let (old, new) = (chain.day(before), chain.day(day));
            let found = changes(&old, &new, out.path(), &flags);
            for table in tables {
                let (mut found, mut expected) = (found[*table][1..].to_vec(), expected(&old, &new, table, &filter));
                found.sort();
                expected.sort();
                assert!(found == expected, "{seed}, {table}: {} and {}", found.len(), expected.len());
            }
            before = day;
        }
    }
}

/// Number of rows of changed stakes whose accounts did not change.
fn stakes_of_unchanged_accounts(found: &BTreeMap<String, Vec<String>>) -> usize {
    let accounts: BTreeSet<&str> = found["accounts"].iter().filter_map(|row| row.split(',').nth(1)).collect();
    let addresses =
        found["stakes"].iter().filter(|row| row.contains(",changed,")).filter_map(|row| row.split(',').nth(1));
    addresses.filter(|address| !accounts.contains(address)).count()
}

/// What leaves a filter is closed, and what enters it is added.
#[test]
fn filters_are_of_both_states() {
    let chain = altered(&of_agave().pop().expect("a chain"), close_and_give_away);
    let (old, new) = (chain.day(0), chain.day(1));
    for flags in [
        &["--owner", "system", "--check", "frames"][..],
        &["--data-size", "200", "--data", "full", "--check", "frames"],
        &["--data", "0:64", "--check", "frames"],
    ] {
        let out = temp_dir();
        let first = run(&old, out.path(), flags);
        assert!(first.status.success(), "{}", String::from_utf8_lossy(&first.stderr));
        let mut found = changes(&old, &new, out.path(), flags)["accounts"][1..].to_vec();
        let mut expected = expected(&old, &new, "accounts", flags);
        found.sort();
        expected.sort();
        assert!(!expected.is_empty() && found == expected, "{flags:?}: {} and {}", found.len(), expected.len());
    }
}

/// Rows that do not fit in memory, and little room for the others: the same bytes.
#[test]
fn the_same_bytes_whatever_the_memory() {
    let made = synthetic(&["--size", "40MiB"]);
    let [full, incremental] = [&made.full, &made.incremental].map(NamedArchive::from_path);
    let (old, new) = (Snapshot::archive(&full), Snapshot::pair(&full, &incremental));
    let mut expected = None;
    for (memory_bytes, threads) in [(1 << 30, 1), (0, 2)] {
        let (out, spilled) = (temp_dir(), dir_on_disk());
        let mut options = ExportOptions::default().memory_bytes(memory_bytes).data(DataPart::Full);
        options.tables = vec![Table::Accounts, Table::TokenAccounts, Table::Stakes];
        let check = CheckOptions::default().memory_bytes(memory_bytes).temporary_dir(spilled.path().to_path_buf());
        options.visit = VerifyOptions::default().threads(threads).check(check);
        let to = || ExportTo::Dir(out.path().to_path_buf());
        export(old, to(), &options, &NoProgress).expect("exported");
        options.changes = true;
        assert_eq!(options.order, None::<RowOrder>);
        let report =
            export(ExportInput { snapshot: new, since: Some(old) }, to(), &options, &NoProgress).expect("exported");
        assert!(report.facts.state == "checked" && report.tables.iter().all(|table| table.rows > 0));
        assert_eq!(names(spilled.path()), Vec::<String>::new());
        let tables = manifests(out.path()).pop().expect("a manifest")["tables"].clone();
        assert_eq!(expected.get_or_insert_with(|| tables.clone()), &tables, "{memory_bytes}");
    }
}

fn refused(new: &[&Path], old: &[&Path], out: &Path, flags: &[&str], (code, words): (i32, &str)) {
    let before = tree(out);
    let since = since_flags(old);
    let done = run(new, out, &[&since[..], flags].concat());
    let said = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.code() == Some(code) && said.contains(words), "{flags:?}: {:?}: {said}", done.status);
    assert!(tree(out) == before, "{flags:?}");
}

#[test]
fn only_what_follows_is_taken() {
    let chain = of_agave().pop().expect("a chain");
    let (first, second, third) = (chain.day(0), chain.day(1), chain.day(2));
    let out = temp_dir();
    let out = out.path();
    refused(&second, &first, out, &[], (2, "must follow a state that is there, and there is none"));
    assert!(run(&first, out, &["--table", "accounts,stakes"]).status.success());
    for (flags, words) in [
        (&["--owner", "stake"][..], "its `filter` is"),
        (&["--data", "0:8"], "its `data` is \"none\", not"),
        (&["--table", "accounts,votes"], "must follow a state that is there, and there is none"),
    ] {
        refused(&second, &first, out, flags, (2, words));
    }
    refused(&third, &second, out, &[], (2, "since slot 3550 do not follow the newest state there: slot 3500, hash"));
    let other = pair("agave-4.2.2");
    refused(&second, &[&other[0]], out, &[], (2, "since slot 26 do not follow"));
    let since = |old: &[&Path], new: &[&Path], flags: &[&str]| {
        let since = since_flags(old);
        let done = run(new, out, &[&since[..], flags].concat());
        (done.status.code(), String::from_utf8_lossy(&done.stderr).into_owned())
    };
    assert_eq!(since(&first, &third, &[]).0, Some(0));
    // A state in between is refused, with changes and as a whole; a further table of the last is not.
    refused(&second, &first, out, &[], (2, "the newest state there: slot 3575, hash"));
    let whole = run(&second, out, &[]);
    let said = String::from_utf8_lossy(&whole.stderr);
    assert!(whole.status.code() == Some(2) && said.contains("has changes of slot 3575 since 3500"), "{said}");
    let done = since(&first, &third, &["--table", "stakes"]);
    assert_eq!(done.0, Some(0), "{}", done.1);
    let done = since(&second, &third, &["--table", "stakes"]);
    assert!(done.0 == Some(2) && done.1.contains("the newest state there: slot 3500, hash"), "{}", done.1);
    assert_eq!(run(&third, out, &["--table", "stakes"]).status.code(), Some(5));
    // Changes do not go on with what an older version wrote.
    let older = temp_dir();
    assert!(run(&first, older.path(), &[]).status.success());
    let mut manifest = manifest(older.path());
    manifest["schema_version"] = 2.into();
    fs::write(older.path().join("accounts/_manifest-3500.json"), manifest.to_string()).expect("written");
    for words in ["its `schema_version` is 2, not 3", "choose another output"] {
        refused(&second, &first, older.path(), &[], (2, words));
    }
    // Ledgers have no name from which their slot is known before they are read.
    let ledger = ledger_of("agave-validator-4.2.2", 3575);
    let out = temp_dir();
    assert!(run(&second, out.path(), &[]).status.success());
    let done = run(&[ledger.path()], out.path(), &["--since", text(second[0]), text(second[1])]);
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    let whole = run(&[ledger.path()], out.path(), &["--since", text(ledger.path())]);
    let said = String::from_utf8_lossy(&whole.stderr);
    assert!(
        whole.status.code() == Some(2) && said.contains("the older state is of slot 3575, the new one of 3575"),
        "{said}"
    );
}

#[test]
fn states_that_do_not_fit() {
    let chain = of_agave().pop().expect("a chain");
    let (first, second) = (chain.day(0), chain.day(1));
    let [other, _] = pair("agave-4.2.2");
    let (dir, out, of_other) = (temp_dir(), temp_dir(), temp_dir());
    assert!(run(&[&other], of_other.path(), &[]).status.success());
    let done = run(&first, of_other.path(), &["--since", text(&other)]);
    let said = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.code() == Some(2) && said.contains("the states are of different clusters"), "{said}");
    assert!(run(&first, out.path(), &[]).status.success());
    let before = tree(out.path());
    // A flaw of either state: nothing is named.
    let mut entries = entries(first[0]);
    let storage = entries.iter_mut().find(|entry| entry.path.starts_with("accounts/")).expect("a storage");
    storage.content[48] ^= 1;
    let forged = dir.path().join(name(first[0]));
    fs::write(&forged, zstd::encode_all(make_tar(&entries).as_slice(), 1).expect("compressed")).expect("written");
    for (new, since) in
        [(&second[..], [&forged].map(|path| text(path))), (&[forged.as_path(), second[1]], [text(first[0])])]
    {
        let done = run(new, out.path(), &["--since", since[0]]);
        assert_eq!(done.status.code(), Some(3), "{}", String::from_utf8_lossy(&done.stderr));
    }
    assert!(tree(out.path()) == before);
    for (flags, words) in [
        (&["-o", "-"][..], "changes are found by sorting"),
        (&["-o", text(out.path()), "--order", "none"], "changes are found by sorting"),
        (&["-o", text(out.path()), "--format", "test-validator", "--owner", "stake"], "takes whole states"),
    ] {
        let mut command = slotpress();
        command.arg("export").args(&second).args(flags).arg("--since").args(&first);
        let done = command.output().expect("runs");
        let said = String::from_utf8_lossy(&done.stderr);
        assert!(done.status.code() == Some(2) && said.contains(words) && done.stdout.is_empty(), "{flags:?}: {said}");
    }
    assert_eq!(manifest(out.path())["slot"], 3500);
}

/// Prints the rows of each table at each day by the page's SQL, and those of whole tables of that day.
const SCRIPT: &str = r#"
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
        found.append([slot, table, len(rows), sorted(map(repr, at)) == sorted(map(repr, rows))])
print(json.dumps(found))
"#;

/// The state at each kept day by the SQL of docs/export.md is the whole export of that day.
#[test]
fn the_state_at_each_day() {
    needs!("engines");
    let page = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/export.md")).expect("the page");
    let (_, section) = page.split_once("## Changes").expect("the section");
    let sql = section.split("```").find_map(|part| part.strip_prefix("sql")).expect("SQL");
    for (number, (chain, flags)) in chains().into_iter().enumerate() {
        let flags = [&["--table", ALL], flags].concat();
        let tables: Vec<String> = TABLES.iter().map(|table| table.replace('-', "_")).collect();
        let (out, mut wholes) = (temp_dir(), Vec::new());
        let days = out.path().join("days");
        for day in 0..chain.days.len() {
            let (since, whole) = (chain.since(day), out.path().join(day.to_string()));
            for (to, more) in [(&days, &since[..]), (&whole, &[])] {
                let done = run(&chain.day(day), to, &[&flags[..], more].concat());
                assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
            }
            wholes.push((chain.slot(day), whole));
            if day == 0 {
                // Before there are changes.
                let question = serde_json::json!([sql, days, wholes, tables]).to_string();
                let found: Vec<(u64, String, u64, bool)> = answer(&mut python(SCRIPT), &question);
                assert!(found.iter().all(|(.., is_equal)| *is_equal), "chain {number}: {found:?}");
            }
        }
        let question = serde_json::json!([sql, days, wholes, tables]).to_string();
        let found: Vec<(u64, String, u64, bool)> = answer(&mut python(SCRIPT), &question);
        assert_eq!(found.len(), chain.days.len() * TABLES.len());
        assert!(found.iter().all(|(.., is_equal)| *is_equal), "chain {number}: {found:?}");
        assert!(found.iter().filter(|(_, _, rows, _)| *rows > 0).count() >= 4 * chain.days.len(), "{found:?}");
    }
}
