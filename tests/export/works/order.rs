//! Sorted exports have the same rows as unsorted ones. Memory and threads do not change the bytes.

use std::fs::File;
use std::path::{Path, PathBuf};

use parquet::file::properties::ReaderProperties;
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::file::serialized_reader::ReadOptionsBuilder;
use parquet::record::RowAccessor;
use serde_json::Value;
use slotpress::export::{DataPart, ExportOptions, ExportTo, RowOrder, Table, export};
use slotpress::verify::{CheckOptions, StateCheck, VerifyOptions};
use slotpress::{NoProgress, Result, Snapshot};

use super::tables::{ALL_TABLES, SyntheticPair, make_synthetic_pair, remove_change};
use crate::common::*;
use crate::export::{
    assert_exported, csv_lines, dir_on_disk, export_rows, fixture_pair, key_column_count, list_files, read_manifest,
    run_export, stderr_of,
};

fn keys_in(lines: &[String], columns: usize) -> Vec<Vec<&str>> {
    lines.iter().map(|line| line.split(',').take(columns).collect()).collect()
}

struct ExportedTable {
    name: String,
    /// Fields of the table in the manifest.
    fields: Value,
    files: Vec<PathBuf>,
}

fn exported_tables(dir: &Path) -> Vec<ExportedTable> {
    let manifest = read_manifest(dir);
    let tables = manifest["tables"].as_array().expect("a list").iter().map(|fields| {
        let files = fields["files"].as_array().expect("a list").iter();
        ExportedTable {
            name: fields["table"].as_str().expect("a name").to_string(),
            fields: fields.clone(),
            files: files.map(|file| dir.join(file["path"].as_str().expect("a path"))).collect(),
        }
    });
    tables.collect()
}

fn key_parts(key: &Value) -> Vec<&str> {
    key.as_array().expect("a key").iter().map(|part| part.as_str().unwrap_or_default()).collect()
}

/// Returns the keys of a Parquet file. Checks that its footer describes them.
fn read_checked_keys(path: &Path, columns: usize) -> Vec<Vec<String>> {
    let options = ReadOptionsBuilder::new()
        .with_page_index()
        .with_reader_properties(ReaderProperties::builder().set_read_bloom_filter(true).build());
    let reader =
        SerializedFileReader::new_with_options(File::open(path).expect("opened"), options.build()).expect("a table");
    let mut keys: Vec<Vec<String>> = Vec::new();
    for row in reader.get_row_iter(None).expect("rows") {
        let row = row.expect("a row");
        keys.push((0..columns).map(|column| row.get_string(column).cloned().unwrap_or_default()).collect());
    }
    let mut row_number = 0;
    for (number, group) in reader.metadata().row_groups().iter().enumerate() {
        let sorting: Vec<_> = group.sorting_columns().expect("sorting columns").iter().collect();
        assert_eq!(sorting.len(), columns);
        for (column, sorting_column) in sorting.into_iter().enumerate() {
            assert_eq!(sorting_column.column_idx as usize, column);
            assert!(!sorting_column.descending);
            assert!(sorting_column.nulls_first);
        }
        let next = row_number + group.num_rows() as usize;
        let statistics = group.column(0).statistics().expect("statistics");
        let [least, greatest] = [statistics.min_bytes_opt(), statistics.max_bytes_opt()]
            .map(|bytes| bytes.map(|bytes| String::from_utf8(bytes.to_vec()).expect("text")));
        let not_null: Vec<&String> =
            keys[row_number..next].iter().map(|key| &key[0]).filter(|part| !part.is_empty()).collect();
        assert_eq!(least.as_ref(), not_null.first().copied());
        assert_eq!(greatest.as_ref(), not_null.last().copied());
        let key = group.column(columns - 1);
        assert!(key.offset_index_offset().is_some());
        assert!(key.column_index_offset().is_some());
        let filter = reader.get_row_group(number).expect("a group").get_column_bloom_filter(columns - 1).cloned();
        let filter = filter.expect("a Bloom filter");
        assert!(keys[row_number..next].iter().all(|key| filter.check(key[columns - 1].as_str())));
        row_number = next;
    }
    assert_eq!(row_number, keys.len());
    keys
}

#[test]
fn every_table_is_sorted() {
    for mix in ["tokens", "programs", "mainnet"] {
        let made = make_synthetic_pair(&["--mix", mix, "--size", "8MiB"]);
        let archives = [made.full.as_path(), &made.incremental];
        let out = temp_dir();
        assert_exported(&archives, out.path(), &["--table", ALL_TABLES]);
        for ExportedTable { name: table, fields, files } in &exported_tables(out.path()) {
            assert_eq!(fields["order"], "clustered", "{table}");
            assert_eq!(files.len(), 1, "{table}");
            let mut lines = remove_change(csv_lines(&files[0]));
            let columns = key_column_count(table);
            let keys = keys_in(&lines, columns);
            assert!(keys.is_sorted_by(|key, next| key < next), "{mix}: {table}");
            let file = &fields["files"][0];
            if let (Some(first), Some(last)) = (keys.first(), keys.last()) {
                assert_eq!(&key_parts(&file["least_key"]), first, "{table}");
                assert_eq!(&key_parts(&file["greatest_key"]), last, "{table}");
            }
            assert!(read_checked_keys(&files[0], columns) == keys, "{mix}: {table}");
            assert_eq!(fields["rows"], lines.len());
            lines.sort();
            assert!(lines == export_rows(&archives, &["--table", &table.replace('_', "-")]), "{mix}: {table}");
        }
    }
}

fn export_into(dir: &Path, options: &ExportOptions) -> Result<()> {
    let report = export(options, ExportTo::Dir(dir.to_path_buf()), &NoProgress)?;
    assert_eq!(report.facts.state, StateCheck::Checked);
    Ok(())
}

/// Rows can be spilled only if the directory for them exists. So without that directory, an export fails
/// if and only if it would spill rows.
#[test]
fn memory_and_threads_do_not_change_the_bytes() {
    let made = make_synthetic_pair(&["--size", "40MiB"]);
    let out = temp_dir();
    let missing = out.path().join("missing");
    let mut expected = None;
    for (memory_bytes, threads, spills) in [(1 << 30, 1, false), (0, 2, true), (0, 1, true), (1 << 30, 4, false)] {
        let snapshot = Snapshot::pair(&made.full, &made.incremental);
        let mut options = ExportOptions::new(snapshot).memory_bytes(memory_bytes).data(DataPart::Full);
        options.tables = vec![Table::Accounts, Table::TokenAccounts, Table::Stakes];
        options.order = Some(RowOrder::Clustered);
        // Each row group is written to its own file.
        options.file_bytes = 1;
        let options_in = |dir: &Path| {
            let check = CheckOptions::default().memory_bytes(memory_bytes).temporary_dir(dir.to_path_buf());
            options.clone().verify(VerifyOptions::default().threads(threads).check(check))
        };
        let label = format!("{memory_bytes}-{threads}");
        let fails = export_into(&out.path().join(format!("{label}-missing")), &options_in(&missing)).is_err();
        assert_eq!(fails, spills, "{label}");
        let dir = out.path().join(&label);
        let spilled = dir_on_disk();
        export_into(&dir, &options_in(spilled.path())).expect("exported");
        assert_eq!(relative_paths(spilled.path()), Vec::<String>::new());
        let tables = read_manifest(&dir)["tables"].clone();
        let (expected_files, expected_tables) = expected.get_or_insert_with(|| (list_files(&dir), tables.clone()));
        assert_eq!(&list_files(&dir), expected_files, "{label}");
        assert!(tables == *expected_tables, "{label}");
        for table in tables.as_array().expect("a list") {
            let files = table["files"].as_array().expect("a list");
            assert_eq!(files.len() > 1, table["table"] != "stakes", "{label}: {table}");
            let are_apart =
                |file: &Value, next: &Value| key_parts(&file["greatest_key"]) < key_parts(&next["least_key"]);
            assert!(files.is_sorted_by(are_apart), "{label}: {table}");
        }
    }
}

/// Returns the least value of `--memory`, from the message that refuses one byte.
fn minimum_memory(made: &SyntheticPair, flags: &[&str]) -> String {
    let refused = run_export(&[&made.full], temp_dir().path(), &[flags, &["--memory", "1"]].concat());
    let stderr = stderr_of(&refused);
    let (_, least) = stderr.split_once("the files that it writes need ").unwrap_or_else(|| panic!("{stderr}"));
    least.split_whitespace().take(2).collect()
}

#[test]
fn the_least_memory_does_not_change_the_bytes() {
    let made = make_synthetic_pair(&["--mix", "tokens", "--size", "48MiB"]);
    let archives = [made.full.as_path(), &made.incremental];
    let out = temp_dir();
    let flags = ["--table", "accounts,token-accounts", "--data", "full", "--order", "clustered"];
    let least = minimum_memory(&made, &flags);
    let export = |memory: &str, threads: &str| {
        let limits = ["--memory", memory, "--threads", threads];
        let out = out.path().join(memory);
        assert_exported(&archives, &out, &[&flags[..], &limits].concat());
        tree(&out)
    };
    let plenty = export("2GiB", "3");
    let little = export(&least, "1");
    assert_eq!(plenty.len(), 8, "{:?}", plenty.keys());
    assert!(plenty == little, "{:?}", plenty.keys());
}

#[test]
fn little_memory_does_not_change_the_bytes_of_six_tables() {
    let made = make_synthetic_pair(&["--mix", "tokens", "--size", "48MiB"]);
    let out = temp_dir();
    let [plenty, little] = ["2GiB", "512MiB"].map(|memory| {
        let out = out.path().join(memory);
        assert_exported(&[&made.full, &made.incremental], &out, &["--table", ALL_TABLES, "--memory", memory]);
        tree(&out)
    });
    assert_eq!(plenty.len(), 24, "{:?}", plenty.keys());
    assert!(plenty == little, "{:?}", plenty.keys());
}

#[test]
fn tables_are_sorted_by_default_unless_they_have_the_data_of_all_accounts() {
    let made = make_synthetic_pair(&["--size", "4MiB"]);
    let owner = export_rows(&[&made.full], &[])[0].split(',').next().expect("an owner").to_string();
    for (flags, expected) in [
        (vec![], "clustered"),
        (vec!["--order", "none"], "none"),
        (vec!["--data", "0:8"], "none"),
        (vec!["--data", "0:8", "--order", "clustered"], "clustered"),
        (vec!["--data", "full", "--owner", &owner], "clustered"),
        (vec!["--data", "full", "--data-size", "0", "--order", "none"], "none"),
    ] {
        let out = temp_dir();
        assert_exported(&[&made.full], out.path(), &flags);
        let fields = exported_tables(out.path()).remove(0).fields;
        assert_eq!(fields["order"], expected, "{flags:?}");
        assert_eq!(fields["files"][0].get("least_key").is_some(), expected == "clustered", "{flags:?}");
    }
    let out = temp_dir();
    assert_exported(&[&made.full], out.path(), &["--table", "accounts,stakes", "--data", "0:8"]);
    let orders: Vec<Value> =
        exported_tables(out.path()).into_iter().map(|table| table.fields["order"].clone()).collect();
    assert_eq!(orders, ["none", "clustered"]);
}

#[test]
fn a_sorted_stream_is_a_usage_error() {
    let [full, _] = fixture_pair("agave-4.2.2");
    let output = run_export(&[&full], Path::new("-"), &["--order", "clustered"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(output.stdout.is_empty());
}
