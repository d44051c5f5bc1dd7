//! Rows in order: those of an export without, in the same bytes whatever the memory and the
//! threads.

use std::fs::File;
use std::path::Path;

use parquet::file::properties::ReaderProperties;
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::file::serialized_reader::ReadOptionsBuilder;
use parquet::record::RowAccessor;
use serde_json::Value;
use slotpress::tables::{DataPart, ExportOptions, ExportTo, RowOrder, Table, export};
use slotpress::verify::{CheckOptions, VerifyOptions};
use slotpress::{NamedArchive, NoProgress, Result, Snapshot};

use super::tables::{ALL, Synthetic, synthetic, without_change};
use crate::common::*;
use crate::export::{dir_on_disk, files, lines_of, manifest, rows, run};

/// Number of columns by which a table is sorted.
fn key_columns(table: &str) -> usize {
    if ["accounts", "token_accounts", "stakes"].contains(&table) { 2 } else { 1 }
}

fn keys_of(lines: &[String], columns: usize) -> Vec<Vec<&str>> {
    lines.iter().map(|line| line.split(',').take(columns).collect()).collect()
}

/// The tables of an export, and each with its files.
fn tables(dir: &Path) -> Vec<(String, Value, Vec<std::path::PathBuf>)> {
    let manifest = manifest(dir);
    let tables = manifest["tables"].as_array().expect("a list").iter().map(|fields| {
        let files = fields["files"].as_array().expect("a list").iter();
        let paths = files.map(|file| dir.join(file["path"].as_str().expect("a path"))).collect();
        (fields["table"].as_str().expect("a name").to_string(), fields.clone(), paths)
    });
    tables.collect()
}

fn key(key: &Value) -> Vec<&str> {
    key.as_array().expect("a key").iter().map(|part| part.as_str().unwrap_or_default()).collect()
}

/// Keys of a Parquet file, and what its footer says of them.
fn judge_parquet(path: &Path, columns: usize) -> Vec<Vec<String>> {
    let options = ReadOptionsBuilder::new()
        .with_page_index()
        .with_reader_properties(ReaderProperties::builder().set_read_bloom_filter(true).build());
    let reader =
        SerializedFileReader::new_with_options(File::open(path).expect("opened"), options.build()).expect("a table");
    let mut keys: Vec<Vec<String>> = Vec::new();
    for row in reader.get_row_iter(None).expect("rows") {
        let row = row.expect("a row");
        keys.push((0..columns).map(|at| row.get_string(at).cloned().unwrap_or_default()).collect());
    }
    let (metadata, mut row_number) = (reader.metadata(), 0);
    for (number, group) in metadata.row_groups().iter().enumerate() {
        let sorting: Vec<_> = group.sorting_columns().expect("sorting columns").iter().collect();
        let places: Vec<_> = sorting.iter().map(|by| (by.column_idx as usize, by.descending, by.nulls_first)).collect();
        assert_eq!(places, (0..columns).map(|at| (at, false, true)).collect::<Vec<_>>());
        let next = row_number + group.num_rows() as usize;
        let statistics = group.column(0).statistics().expect("statistics");
        let [least, greatest] = [statistics.min_bytes_opt(), statistics.max_bytes_opt()]
            .map(|bytes| bytes.map(|bytes| String::from_utf8(bytes.to_vec()).expect("text")));
        let not_null: Vec<&String> =
            keys[row_number..next].iter().map(|key| &key[0]).filter(|part| !part.is_empty()).collect();
        assert_eq!((least.as_ref(), greatest.as_ref()), (not_null.first().copied(), not_null.last().copied()));
        let key = group.column(columns - 1);
        assert!(key.offset_index_offset().is_some() && key.column_index_offset().is_some());
        let filter = reader.get_row_group(number).expect("a group").get_column_bloom_filter(columns - 1).cloned();
        let filter = filter.expect("a Bloom filter");
        assert!(keys[row_number..next].iter().all(|key| filter.check(key[columns - 1].as_str())));
        row_number = next;
    }
    assert_eq!(row_number, keys.len());
    keys
}

#[test]
fn every_table() {
    for mix in ["tokens", "programs", "mainnet"] {
        let made = synthetic(&["--mix", mix, "--size", "8MiB"]);
        let archives = [made.full.as_path(), &made.incremental];
        let out = temp_dir();
        let done = run(&archives, out.path(), &["--table", ALL]);
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        for (table, fields, paths) in &tables(out.path()) {
            assert_eq!((&fields["order"], paths.len()), (&"clustered".into(), 1), "{table}");
            let mut lines = without_change(lines_of(&paths[0]));
            let columns = key_columns(table);
            let keys = keys_of(&lines, columns);
            assert!(keys.is_sorted_by(|one, next| one < next), "{mix}: {table}");
            let file = &fields["files"][0];
            if let (Some(first), Some(last)) = (keys.first(), keys.last()) {
                assert_eq!((&key(&file["least_key"]), &key(&file["greatest_key"])), (first, last), "{table}");
            }
            let in_parquet = judge_parquet(&paths[0], columns);
            assert!(in_parquet == keys, "{mix}: {table}");
            assert_eq!(fields["rows"], lines.len());
            lines.sort();
            assert!(lines == rows(&archives, &["--table", &table.replace('_', "-")]), "{mix}: {table}");
        }
    }
}

fn export_into(dir: &Path, made: &Synthetic, options: &ExportOptions) -> Result<()> {
    let [full, incremental] = [&made.full, &made.incremental].map(NamedArchive::from_path);
    let input = Snapshot::pair(&full, &incremental);
    let report = export(input, ExportTo::Dir(dir.to_path_buf()), options, &NoProgress)?;
    assert_eq!(report.facts.state, "checked");
    Ok(())
}

/// Where runs are spilled, the directory for them must be there: so where it is missing, an export
/// that succeeds has spilled nothing, and one that fails would have.
#[test]
fn the_same_bytes_whatever_the_memory_and_the_threads() {
    let made = synthetic(&["--size", "40MiB"]);
    let (out, missing) = (temp_dir(), temp_dir().path().join("missing"));
    let mut expected = None;
    for (memory_bytes, threads, spills) in [(1 << 30, 1, false), (0, 2, true), (0, 1, true), (1 << 30, 4, false)] {
        let mut options = ExportOptions::default().memory_bytes(memory_bytes).data(DataPart::Full);
        options.tables = vec![Table::Accounts, Table::TokenAccounts, Table::Stakes];
        options.order = Some(RowOrder::Clustered);
        // So every row group has a file.
        options.file_bytes = 1;
        let options_in = |dir: &Path| {
            let check = CheckOptions::default().memory_bytes(memory_bytes).temporary_dir(dir.to_path_buf());
            options.clone().visit(VerifyOptions::default().threads(threads).check(check))
        };
        let at = format!("{memory_bytes}-{threads}");
        let fails = export_into(&out.path().join(format!("{at}-missing")), &made, &options_in(&missing)).is_err();
        assert_eq!(fails, spills, "{at}");
        let (dir, spilled) = (out.path().join(&at), dir_on_disk());
        export_into(&dir, &made, &options_in(spilled.path())).expect("exported");
        assert_eq!(names(spilled.path()), Vec::<String>::new());
        let tables = manifest(&dir)["tables"].clone();
        let expected = expected.get_or_insert_with(|| (files(&dir), tables.clone()));
        assert!((files(&dir), &tables) == (expected.0.clone(), &expected.1), "{at}");
        for table in tables.as_array().expect("a list") {
            let files = table["files"].as_array().expect("a list");
            assert_eq!(files.len() > 1, table["table"] != "stakes", "{at}: {table}");
            let are_apart = |one: &Value, next: &Value| key(&one["greatest_key"]) < key(&next["least_key"]);
            assert!(files.is_sorted_by(are_apart), "{at}: {table}");
        }
    }
}

/// The program takes at least so much memory: `--memory 1B` is refused with it.
fn least_memory(made: &Synthetic, flags: &[&str]) -> String {
    let refused = run(&[&made.full], temp_dir().path(), &[flags, &["--memory", "1"]].concat());
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    let (_, least) = said.split_once("the files that it fills take ").unwrap_or_else(|| panic!("{said}"));
    least.split_whitespace().take(2).collect()
}

#[test]
fn the_same_bytes_in_the_least_memory_of_the_program() {
    let made = synthetic(&["--mix", "tokens", "--size", "48MiB"]);
    let archives = [made.full.as_path(), &made.incremental];
    let out = temp_dir();
    let flags = ["--table", "accounts,token-accounts", "--data", "full", "--order", "clustered"];
    let least = least_memory(&made, &flags);
    let export = |memory: &str, threads: &str| {
        let limits = ["--memory", memory, "--threads", threads];
        run(&archives, &out.path().join(memory), &[&flags[..], &limits].concat())
    };
    let [plenty, little] = [("2GiB", "3"), (&*least, "1")].map(|(memory, threads)| {
        let done = export(memory, threads);
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        tree(&out.path().join(memory))
    });
    assert!(plenty.len() == 8 && plenty == little, "{:?}", plenty.keys());
}

/// The same bytes as in more.
#[test]
fn six_tables_in_little_memory() {
    let made = synthetic(&["--mix", "tokens", "--size", "48MiB"]);
    let out = temp_dir();
    let [plenty, little] = ["2GiB", "512MiB"].map(|memory| {
        let flags = ["--table", ALL, "--memory", memory];
        let done = run(&[&made.full, &made.incremental], &out.path().join(memory), &flags);
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        tree(&out.path().join(memory))
    });
    assert!(plenty.len() == 24 && plenty == little, "{:?}", plenty.keys());
}

#[test]
fn which_tables_are_in_order() {
    let made = synthetic(&["--size", "4MiB"]);
    let some = rows(&[&made.full], &[])[0].split(',').next().expect("an owner").to_string();
    for (flags, expected) in [
        (vec![], "clustered"),
        (vec!["--order", "none"], "none"),
        (vec!["--data", "0:8"], "none"),
        (vec!["--data", "0:8", "--order", "clustered"], "clustered"),
        (vec!["--data", "full", "--owner", &some], "clustered"),
        (vec!["--data", "full", "--data-size", "0", "--order", "none"], "none"),
    ] {
        let out = temp_dir();
        assert!(run(&[&made.full], out.path(), &flags).status.success(), "{flags:?}");
        let (_, fields, _) = tables(out.path()).remove(0);
        assert_eq!(fields["order"], expected, "{flags:?}");
        assert_eq!(fields["files"][0].get("least_key").is_some(), expected == "clustered", "{flags:?}");
    }
    let out = temp_dir();
    assert!(run(&[&made.full], out.path(), &["--table", "accounts,stakes", "--data", "0:8"]).status.success());
    let orders: Vec<Value> = tables(out.path()).into_iter().map(|(_, fields, _)| fields["order"].clone()).collect();
    assert_eq!(orders, ["none", "clustered"]);
    let streamed = run(&[&made.full], Path::new("-"), &["--order", "clustered"]);
    assert!(streamed.status.code() == Some(2) && streamed.stdout.is_empty());
}
