//! Database engines read the tables as they were written, with the same sums and accounts.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use serde::de::DeserializeOwned;

use super::changes::agave_chains;
use crate::common::*;
use crate::export::{PAGE, assert_exported, export_rows, fixture_pair, stderr_of};

/// Runs a script in the Python that has the engines.
pub fn python_command(script: &str) -> Command {
    let mut command = Command::new(std::env::var_os("ENGINES_PYTHON").unwrap_or("python3".into()));
    command.args(["-c", script]);
    command
}

/// Runs a script with this text on its standard input. Returns the JSON that it prints.
pub fn run_json_script<T: DeserializeOwned>(script: &mut Command, input: &str) -> T {
    let mut child = script.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("runs");
    child.stdin.take().expect("its input").write_all(input.as_bytes()).expect("sent");
    let output = child.wait_with_output().expect("ended");
    assert!(output.status.success());
    serde_json::from_slice(&output.stdout).expect("JSON")
}

/// Reads tables with each engine; prints numbers of rows, sums, slots, the row of one account, and the total
/// length of all lists of credits.
const READ_TABLES_SCRIPT: &str = r#"
import sys, json, glob
root, address = sys.argv[1:]
tables = {name: f"{root}/{name}" for name in ("accounts", "token_accounts", "votes")}
pattern = {name: f"{path}/*/*.parquet" for name, path in tables.items()}
found = {}
def note(engine, count, lamports, tokens, amount, slots, row, votes, credits):
    found[engine] = [int(count), int(lamports), int(tokens), int(amount), [int(s) for s in slots], [str(v) for v in row], int(votes), int(credits)]

import duckdb
def one(sql): return duckdb.sql(sql).fetchall()[0]
a, t, v = (f"read_parquet('{pattern[n]}', hive_partitioning=true)" for n in tables)
note("duckdb", *one(f"select count(*), sum(lamports) from {a}"), *one(f"select count(*), sum(amount) from {t}"),
     [r[0] for r in duckdb.sql(f"select distinct snapshot_slot from {a}").fetchall()],
     one(f"select owner, lamports, data_length, executable from {a} where address = '{address}'"),
     *one(f"select count(*), sum(len(epoch_credits)) from {v}"))

import pyarrow.dataset as ds, pyarrow.compute as pc
a, t, v = (ds.dataset(tables[n], partitioning="hive").to_table() for n in tables)
row = a.filter(pc.equal(a["address"], address)).to_pylist()[0]
note("pyarrow", a.num_rows, pc.sum(a["lamports"]).as_py(), t.num_rows, pc.sum(t["amount"]).as_py(),
     set(a["snapshot_slot"].to_pylist()), [row[k] for k in ("owner", "lamports", "data_length", "executable")],
     v.num_rows, pc.sum(pc.list_value_length(v["epoch_credits"])).as_py())

import polars as pl
a, t, v = (pl.scan_parquet(pattern[n], hive_partitioning=True).collect() for n in tables)
row = a.filter(pl.col("address") == address).select("owner", "lamports", "data_length", "executable").row(0)
note("polars", a.height, a["lamports"].sum(), t.height, t["amount"].sum(), a["snapshot_slot"].unique().to_list(), row,
     v.height, v["epoch_credits"].list.len().sum())

from datafusion import SessionContext
context = SessionContext()
for n in tables:
    context.register_parquet(n, tables[n], table_partition_cols=[("snapshot_slot", __import__("pyarrow").int64())], file_extension=".parquet")
def one(sql): return list(context.sql(sql).to_pylist()[0].values())
note("datafusion", *one("select count(*), sum(lamports) from accounts"), *one("select count(*), sum(amount) from token_accounts"),
     one("select distinct snapshot_slot from accounts"),
     one(f"select owner, lamports, data_length, executable from accounts where address = '{address}'"),
     *one("select count(*), sum(coalesce(array_length(epoch_credits), 0)) from votes"))
print(json.dumps(found))
"#;

#[test]
fn engines_find_the_same_sums_and_accounts() {
    needs!("engines");
    let archives = fixture_pair("agave-4.2.2");
    let inputs = archives.each_ref().map(|archive| archive.as_path());
    let out = temp_dir();
    assert_exported(&inputs, out.path(), &["--table", "accounts,token-accounts"]);
    // Only this validator has voted for several epochs.
    let validator = fixture_of("agave-validator-4.2.2", "snapshot-3500-");
    assert_exported(&[&validator], out.path(), &["--table", "votes"]);
    let accounts = export_rows(&inputs, &[]);
    let field = |row: &str, column: usize| row.split(',').nth(column).expect("a field").to_string();
    let number = |row: &String, column: usize| field(row, column).parse::<u64>().expect("a number");
    let sum = |rows: &[String], column: usize| rows.iter().map(|row| number(row, column)).sum();
    let tokens = export_rows(&inputs, &["--table", "token-accounts"]);
    let lamports: u64 = sum(&accounts, 2);
    let amount: u64 = sum(&tokens, 4);
    let votes = export_rows(&[&validator], &["--table", "votes"]);
    let credits: usize = votes.iter().map(|row| field(row, 12).split_whitespace().count()).sum();
    assert!(credits > 0);
    let account = &accounts[accounts.len() / 2];
    let executable = if field(account, 5) == "true" { "True" } else { "False" };
    let expected = serde_json::json!([
        accounts.len(),
        lamports,
        tokens.len(),
        amount,
        [40],
        [field(account, 0), field(account, 2), field(account, 4), executable.to_string()],
        votes.len(),
        credits
    ]);
    let output = python_command(READ_TABLES_SCRIPT).arg(out.path()).arg(field(account, 1)).output().expect("runs");
    assert!(output.status.success(), "{}", stderr_of(&output));
    let found: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    for engine in ["duckdb", "pyarrow", "polars", "datafusion"] {
        assert_eq!(found[engine], expected, "{engine}");
    }
}

/// Prints the number of rows and the lamports of each partition, as the page's Delta table has them, and as
/// the files have them.
const DELTA_SUMS_SCRIPT: &str = r#"
import sys, json, duckdb
from deltalake import DeltaTable
exec(sys.stdin.read())
lamports = {}
for slot, amount in zip(*[DeltaTable("days/accounts").to_pyarrow_table()[name].to_pylist() for name in ("snapshot_slot", "lamports")]):
    rows, sum = lamports.get(slot, (0, 0))
    lamports[slot] = (rows + 1, sum + amount)
expected = duckdb.sql("select snapshot_slot, count(*), sum(lamports) from read_parquet('days/accounts/*/*.parquet', hive_partitioning = true) group by 1 order by 1").fetchall()
print(json.dumps([[[slot, *lamports[slot]] for slot in sorted(lamports)], [[int(each) for each in row] for row in expected]]))
"#;

#[test]
fn the_delta_table_in_the_docs_has_all_partitions() {
    needs!("engines");
    let python_of_page = PAGE.split("```").find_map(|part| part.strip_prefix("python")).expect("Python");
    let chain = agave_chains().pop().expect("a chain");
    let dir = temp_dir();
    for day in 0..chain.days.len() {
        assert_exported(&chain.archives_of_day(day), &dir.path().join("days"), &chain.flags_since_day_before(day));
    }
    let [found, expected]: [Vec<[u64; 3]>; 2] =
        run_json_script(python_command(DELTA_SUMS_SCRIPT).current_dir(dir.path()), python_of_page);
    assert_eq!(found, expected);
    assert_eq!(found.len(), 3);
}

/// Runs the page's statements; prints the rows of the last nine, which are its queries.
const RUN_SQL_SCRIPT: &str = r#"
import sys, json, duckdb
statements = [each for each in sys.stdin.read().split(";") if each.strip()]
found = [duckdb.sql(each) for each in statements]
rows = [[str(row) for row in each.fetchall()] for each in found if each is not None]
print(json.dumps(rows[-9:]))
"#;

fn run_sql(dir: &Path, sql: &str) -> Vec<Vec<String>> {
    run_json_script(python_command(RUN_SQL_SCRIPT).current_dir(dir), sql)
}

/// Runs the commands and queries of docs/export.md as printed. The page's views ignore an export without a
/// manifest.
#[test]
fn questions_of_the_page_are_answered() {
    needs!("engines");
    let (_, questions) = PAGE.split_once("## Questions").expect("questions");
    let (intro, rest) = questions.split_once("```sql").expect("SQL");
    let (sql, _) = rest.split_once("```").expect("its end");
    let dir = temp_dir();
    let commands: Vec<&str> = intro.split('`').filter(|part| part.starts_with("slotpress ")).collect();
    assert!(commands.len() >= 3, "{commands:?}");
    for command in commands {
        let words = command.split_whitespace().skip(1);
        slotpress().current_dir(dir.path()).args(words).assert().success();
    }
    let answers = run_sql(dir.path(), sql);
    assert_eq!(answers.len(), 9, "{answers:?}");
    assert!(answers.iter().all(|rows| !rows.is_empty()), "{answers:?}");
    // A run that is killed before it writes its manifest leaves this.
    let tables = dir.path().join("tables/accounts");
    let partition = tables.join(&relative_paths(&tables)[1]);
    fs::create_dir(tables.join("snapshot_slot=1")).expect("made");
    fs::copy(partition.join("part-00000.parquet"), tables.join("snapshot_slot=1/part-00000.parquet")).expect("copied");
    // The other queries do not define the order of rows with equal values.
    assert_eq!(run_sql(dir.path(), sql)[7..], answers[7..]);
}
