//! Tables whose whole history engines read as one Delta table.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::{Value, json};
use slotpress::tables::Table;
use slotpress::{AccountsInput, ExportOptions, ExportTo, NamedArchive, NoProgress, export};

use super::changes::{Chain, TABLES, chains, manifests, of_agave};
use super::engines::{answer, python};
use super::tables::{ALL, synthetic};
use crate::common::*;
use crate::export::{files, run};

/// Exports a day of a chain, since the day before if there is one. Returns exit code and messages.
pub fn export_day(chain: &Chain, day: usize, out: &Path, flags: &[&str]) -> (Option<i32>, String) {
    let done = run(&chain.day(day), out, &[&["--delta"], flags, &chain.since(day)[..]].concat());
    (done.status.code(), String::from_utf8_lossy(&done.stderr).into_owned())
}

fn exported(chain: &Chain, day: usize, out: &Path, flags: &[&str]) {
    let (code, said) = export_day(chain, day, out, flags);
    assert_eq!(code, Some(0), "{said}");
}

/// Slots by version of a table, by the log alone.
pub fn versions(out: &Path, table: &str) -> Vec<u64> {
    let log = out.join(table).join("_delta_log");
    let mut names: Vec<String> = if log.exists() { files(&log) } else { Vec::new() };
    // A killed run leaves a temporary file, which the next one removes.
    names.retain(|name| !name.starts_with("tmp-"));
    assert!(names.iter().enumerate().all(|(number, name)| *name == format!("{number:020}.json")), "{names:?}");
    let slot = |name: &String| {
        let text = fs::read_to_string(log.join(name)).expect("read");
        let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
        let slot = lines[0]["commitInfo"]["slotpress"]["slot"].as_u64().expect("a slot");
        for add in lines.iter().filter_map(|line| line.get("add")) {
            let path = add["path"].as_str().expect("a path");
            assert!(path.starts_with(&format!("snapshot_slot={slot}/part-")), "{path}");
            let length = fs::metadata(out.join(table).join(path)).expect("there").len();
            assert_eq!(
                (add["size"].as_u64(), add["partitionValues"]["snapshot_slot"].as_str()),
                (Some(length), Some(&*slot.to_string()))
            );
        }
        slot
    };
    names.iter().map(slot).collect()
}

/// Compares the newest rows at each version with the whole table of that day: read by delta-rs, by
/// polars, and by DuckDB from the paths in the log.
const SCRIPT: &str = r#"
import sys, json, duckdb, polars
from deltalake import DeltaTable
days, wholes, tables = json.loads(sys.stdin.read())
found = []
for table in tables:
    path = f"{days}/{table}"
    assert DeltaTable(path).version() == len(wholes) - 1
    for version, whole in enumerate(wholes):
        columns = duckdb.sql(f"select * exclude (storage_slot, snapshot_slot) from read_parquet('{whole}/{table}/*/*.parquet', hive_partitioning = true)")
        names = ", ".join(f'"{name}"' for name in columns.columns)
        expected = sorted(map(repr, columns.fetchall()))
        duckdb.sql(f"""set variable files = (select list('{path}/' || "add".path) from read_json('{path}/_delta_log/*.json', filename = true, format = 'newline_delimited',
            columns = {{'add': 'struct(path varchar)'}}) where "add" is not null and parse_filename(filename) <= '{version:020}.json')""")
        of_delta_rs = DeltaTable(path, version=version).to_pyarrow_table()
        of_polars = polars.read_delta(path, version=version)
        of_duckdb = duckdb.sql("select * from read_parquet(getvariable('files'), hive_partitioning = true)").to_arrow_table()
        for engine, rows in (("delta-rs", of_delta_rs), ("polars", of_polars), ("duckdb", of_duckdb)):
            at = duckdb.sql(f"""select {names} from rows
                qualify row_number() over (partition by address order by snapshot_slot desc, change = 'closed') = 1 and change <> 'closed'""").fetchall()
            found.append([engine, table, version, len(expected), sorted(map(repr, at)) == expected])
print(json.dumps(found))
"#;

#[test]
fn every_version_is_a_day() {
    needs!("engines");
    for (number, (chain, flags)) in chains().into_iter().enumerate() {
        let flags = [&["--table", ALL], flags].concat();
        let (out, mut wholes) = (temp_dir(), Vec::new());
        let days = out.path().join("days");
        for day in 0..chain.days.len() {
            exported(&chain, day, &days, &flags);
            let whole = out.path().join(day.to_string());
            assert!(run(&chain.day(day), &whole, &flags).status.success());
            wholes.push(whole);
        }
        let tables: Vec<String> = TABLES.iter().map(|table| table.replace('-', "_")).collect();
        let slots: Vec<u64> = (0..chain.days.len()).map(|day| chain.slot(day)).collect();
        assert!(tables.iter().all(|table| versions(&days, table) == slots));
        let found: Value = answer(&mut python(SCRIPT), &json!([days, wholes, tables]).to_string());
        let found = found.as_array().expect("a list");
        assert_eq!(found.len(), 3 * TABLES.len() * slots.len());
        assert!(found.iter().all(|one| one[4] == true), "chain {number}: {found:?}");
    }
}

/// Prints the number of files, and of those that statistics leave for the mint in the middle; and the
/// rows of it in these, and in all.
const PRUNED: &str = r#"
import sys, json
from deltalake import DeltaTable
from pyarrow import dataset
table = DeltaTable(json.loads(sys.stdin.read())).to_pyarrow_dataset()
mints = table.to_table(columns=["mint"])["mint"].to_pylist()
mint = sorted(mints)[len(mints) // 2]
left = list(table.get_fragments(filter=dataset.field("mint") == mint))
rows = sum(one.count_rows(filter=dataset.field("mint") == mint) for one in left)
print(json.dumps([len(list(table.get_fragments())), len(left), rows, mints.count(mint)]))
"#;

#[test]
fn statistics_leave_few_files() {
    needs!("engines");
    let (made, out) = (synthetic(&["--size", "64MiB", "--mix", "tokens"]), temp_dir());
    let mut options = ExportOptions::default().delta(true);
    options.tables = vec![Table::TokenAccounts];
    options.file_bytes = 1;
    let full = NamedArchive::from_path(&made.full);
    let to = ExportTo::Dir(out.path().to_path_buf());
    export(AccountsInput::Archives(&full, None), None, to, &options, &NoProgress).expect("exported");
    let found: Vec<u64> = answer(&mut python(PRUNED), &json!(out.path().join("token_accounts")).to_string());
    let [files, left, rows, of_mint] = found[..] else { panic!("{found:?}") };
    assert!(files >= 5 && left <= 2 && rows == of_mint && rows > 0, "{found:?}");
}

/// What others write into a log is kept, and understood as far as it must be.
#[test]
fn logs_of_other_programs() {
    let chain = of_agave().pop().expect("a chain");
    let out = temp_dir();
    let log = out.path().join("accounts/_delta_log");
    exported(&chain, 0, out.path(), &[]);
    let first = fs::read_to_string(log.join(format!("{:020}.json", 0))).expect("read");
    let metadata = first.lines().find(|line| line.contains("metaData")).expect("metadata");
    let write = |name: &str, text: &str| fs::write(log.join(name), text).expect("written");
    for (text, words) in [
        (
            r#"{"protocol":{"minReaderVersion":3,"minWriterVersion":7,"readerFeatures":["deletionVectors"]}}"#
                .to_string(),
            "another protocol",
        ),
        (
            r#"{"protocol":{"minReaderVersion":1,"minWriterVersion":2,"writerFeatures":[]}}"#.to_string(),
            "another protocol",
        ),
        (r#"{"protocol":1}"#.to_string(), "another protocol"),
        (metadata.replace("lamports", "sol"), "has other columns"),
        (metadata.replace("\"partitionColumns\":[\"snapshot_slot\"]", "\"partitionColumns\":[]"), "has other columns"),
        ("{\"metaData\":{}}".to_string(), "has other columns"),
        ("\u{9b}31m".to_string(), "is no version"),
    ] {
        assert_ne!(text, metadata);
        write("00000000000000000001.json", &text);
        let before = tree(out.path());
        for more in [&[][..], &["--dry-run"]] {
            let (code, said) = export_day(&chain, 1, out.path(), more);
            assert!(
                code == Some(2) && said.contains(words) && said.contains("001.json") && !said.contains('\u{9b}'),
                "{text}: {said}"
            );
            assert!(tree(out.path()) == before, "{text}");
        }
    }
    // Compaction, a checkpoint and a hint of it, and the same columns once more.
    write("00000000000000000001.json", &format!("{metadata}\n{{\"commitInfo\":{{\"operation\":\"OPTIMIZE\"}}}}\n\n"));
    write("00000000000000000004.checkpoint.parquet", "PAR1");
    write("00000000000000000005.00000000000000000009.compacted.json", "none");
    for hint in ["{\"version\":7}", "{\"version\":18446744073709551615}", "none"] {
        write("_last_checkpoint", hint);
        let copy = temp_dir();
        copy_tree(out.path(), &copy.path().join("copy"));
        exported(&chain, 1, &copy.path().join("copy"), &[]);
        let next = if hint.contains("7}") { 8 } else { 5 };
        assert!(copy.path().join(format!("copy/accounts/_delta_log/{next:020}.json")).exists(), "{hint}");
    }
    // A log that slotpress did not begin.
    let other = temp_dir();
    fs::create_dir_all(other.path().join("accounts/_delta_log")).expect("made");
    fs::write(other.path().join("accounts/_delta_log/00000000000000000000.json"), "{\"commitInfo\":{}}")
        .expect("written");
    let (code, said) = export_day(&chain, 0, other.path(), &[]);
    assert!(code == Some(2) && said.contains("has no version by slotpress"), "{said}");
}

#[test]
fn histories_begin_once() {
    let chain = of_agave().pop().expect("a chain");
    let out = temp_dir();
    exported(&chain, 0, out.path(), &["--table", "accounts"]);
    exported(&chain, 0, out.path(), &["--table", "stakes"]);
    for (day, flags, words) in [
        (1, &["--format", "csv"][..], "a Delta table has Parquet files"),
        (1, &["--addresses", "binary"], "a Delta table has Parquet files"),
        (1, &["--table", "accounts,votes"], "without the table votes"),
    ] {
        let (code, said) = export_day(&chain, day, out.path(), flags);
        assert!(code == Some(2) && said.contains(words), "{flags:?}: {said}");
    }
    // A second whole state would have no rows for what was closed.
    let done = run(&chain.day(1), out.path(), &["--delta"]);
    let said = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.code() == Some(2) && said.contains("the history of the table has begun"), "{said}");
    let [first, _] = [0, 1].map(|day| chain.day(day));
    let done = run(&chain.day(1), out.path(), &["--since", text(first[0])]);
    let said = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.code() == Some(2) && said.contains("its `delta` is true, not false"), "{said}");
    exported(&chain, 1, out.path(), &["--table", "accounts"]);
    exported(&chain, 1, out.path(), &["--table", "stakes"]);
    exported(&chain, 2, out.path(), &["--table", "accounts,stakes"]);
    for table in ["accounts", "stakes"] {
        assert_eq!(versions(out.path(), table), [3500, 3550, 3575]);
    }
    assert!(manifests(out.path()).iter().all(|manifest| manifest["delta"] == true));
    // Without order, too.
    let out = temp_dir();
    exported(&chain, 0, out.path(), &["--order", "none", "--data", "0:8"]);
    exported(&chain, 1, out.path(), &["--data", "0:8"]);
    assert_eq!(versions(out.path(), "accounts"), [3500, 3550]);
}

/// A log that is gone does not begin anew with changes.
#[test]
fn a_history_that_is_gone() {
    let chain = of_agave().pop().expect("a chain");
    let out = temp_dir();
    exported(&chain, 0, out.path(), &[]);
    exported(&chain, 1, out.path(), &[]);
    fs::remove_dir_all(out.path().join("accounts/_delta_log")).expect("removed");
    let (code, said) = export_day(&chain, 2, out.path(), &[]);
    assert!(code == Some(1) && said.contains("the history of the table is gone"), "{said}");
    assert_eq!(manifests(out.path()).len(), 2);
}

/// Several runs at once, of tables of one slot and of one table: each history has one version of it.
#[test]
fn several_runs_at_once() {
    let chain = of_agave().pop().expect("a chain");
    let out = temp_dir();
    let tables = ["accounts", "stakes", "votes", "accounts"];
    let start = |table: &&str| {
        let mut command = Command::new(slotpress_path());
        command.arg("export").args(chain.day(0)).arg("-o").arg(out.path()).args(["--delta", "--table", table]);
        command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("starts")
    };
    let runs: Vec<_> = tables.iter().map(start).collect();
    let mut codes = Vec::new();
    for run in runs {
        let output = run.wait_with_output().expect("ended");
        codes.push((output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned()));
    }
    let done = codes.iter().filter(|(code, _)| *code == Some(0)).count();
    assert!(done == 3 && codes.iter().all(|(code, _)| [Some(0), Some(5)].contains(code)), "{codes:?}");
    for table in ["accounts", "stakes", "votes"] {
        assert_eq!(versions(out.path(), table), [3500]);
    }
}
