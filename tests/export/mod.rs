//! `slotpress export`: the accounts of a state as tables.

mod works {
    mod agave;
    mod buckets;
    pub mod changes;
    pub mod engines;
    mod mixes;
    mod model;
    mod order;
    mod postgres;
    mod rows;
    mod subset;
    pub mod tables;
}
mod refused {
    mod inputs;
}
mod survives {
    mod ends;
    mod random;
    mod spilling;
}

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Output;

use arrow_array::cast::AsArray;
use arrow_array::types::{Decimal128Type, Int64Type};
use arrow_array::{Array, ArrayRef};
use arrow_schema::DataType;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::common::*;

/// The page of the command, whose commands and queries are run.
pub const PAGE: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/export.md"));

pub fn run_export(inputs: &[&Path], out: &Path, flags: &[&str]) -> Output {
    let mut command = slotpress();
    command.arg("export").args(inputs).args([OsStr::new("-o"), out.as_ref()]).args(flags);
    command.output().expect("runs")
}

/// Runs an export that must succeed.
pub fn assert_exported(inputs: &[&Path], out: &Path, flags: &[&str]) {
    let output = run_export(inputs, out, flags);
    assert!(output.status.success(), "{inputs:?} {flags:?}: {}", stderr_of(&output));
}

/// Runs an export that must fail with this exit code and message, and leave no file.
pub fn assert_refused(inputs: &[&Path], flags: &[&str], code: i32, message: &str) {
    let out = temp_dir();
    let output = run_export(inputs, out.path(), flags);
    let stderr = stderr_of(&output);
    assert_eq!(output.status.code(), Some(code), "{flags:?}: {stderr}");
    assert!(stderr.contains(message), "{flags:?}: {stderr}");
    assert_eq!(relative_paths(out.path()), Vec::<String>::new(), "{flags:?}: {stderr}");
}

pub fn stderr_of(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Makes a directory on a disk, because rows are not spilled to a file system in memory.
pub fn dir_on_disk() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory")
}

/// Exports a table to standard output. Returns its rows, sorted, without the header.
pub fn export_rows(inputs: &[&Path], flags: &[&str]) -> Vec<String> {
    let output = run_export(inputs, Path::new("-"), flags);
    assert!(output.status.success(), "{}", stderr_of(&output));
    let text = String::from_utf8(output.stdout).expect("text");
    let mut rows: Vec<String> = text.lines().skip(1).map(String::from).collect();
    rows.sort();
    rows
}

/// Converts a Parquet file to the lines that the table has in CSV, beginning with the header.
pub fn csv_lines(path: &Path) -> Vec<String> {
    let reader = ParquetRecordBatchReaderBuilder::try_new(File::open(path).expect("opened")).expect("a table");
    let names: Vec<String> = reader.schema().fields().iter().map(|field| field.name().clone()).collect();
    let mut lines = vec![names.join(",")];
    for batch in reader.build().expect("rows") {
        let batch = batch.expect("rows");
        let line = |row| batch.columns().iter().map(|column| csv_cell(column, row)).collect::<Vec<_>>().join(",");
        lines.extend((0..batch.num_rows()).map(line));
    }
    lines
}

fn csv_cell(column: &ArrayRef, row: usize) -> String {
    if column.is_null(row) {
        return String::new();
    }
    match column.data_type() {
        DataType::Int64 => column.as_primitive::<Int64Type>().value(row).to_string(),
        DataType::Decimal128(..) => column.as_primitive::<Decimal128Type>().value(row).to_string(),
        DataType::Boolean => column.as_boolean().value(row).to_string(),
        DataType::Binary => column.as_binary::<i32>().value(row).iter().map(|byte| format!("{byte:02x}")).collect(),
        DataType::List(_) => {
            let items = column.as_list::<i32>().value(row);
            let item = |row| [0, 1, 2].map(|field| csv_cell(items.as_struct().column(field), row)).join(":");
            (0..items.len()).map(item).collect::<Vec<_>>().join(" ")
        }
        _ => {
            let text = column.as_string::<i32>().value(row);
            let shown = text.replace(char::is_control, "\u{fffd}").replace('"', "\"\"");
            if shown != text || text.contains(',') { format!("\"{shown}\"") } else { shown }
        }
    }
}

/// Returns the number of columns by which a table is sorted. `table` may be spelled with `-` or `_`.
pub fn key_column_count(table: &str) -> usize {
    if ["accounts", "token_accounts", "stakes"].contains(&&*table.replace('-', "_")) { 2 } else { 1 }
}

/// Returns the pair of archives of a chain.
pub fn fixture_pair(chain: &str) -> [PathBuf; 2] {
    [fixture_of(chain, "snapshot-26-"), fixture_of(chain, "incremental-snapshot-26-40-")]
}

/// Returns all files below a directory, relative to it, sorted.
pub fn list_files(dir: &Path) -> Vec<String> {
    tree(dir).into_iter().filter_map(|(path, content)| content.map(|_| path)).collect()
}

pub fn sha256_hex(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Returns one manifest per slot, oldest first, merged from the manifests of that slot's tables.
pub fn read_manifests(dir: &Path) -> Vec<Value> {
    let mut slots: BTreeMap<u64, Value> = BTreeMap::new();
    for table in ["accounts", "token_accounts", "mints", "stakes", "votes", "programs"].map(|table| dir.join(table)) {
        let names = if table.exists() { relative_paths(&table) } else { Vec::new() };
        for name in names.iter().filter(|name| name.starts_with("_manifest-")) {
            let manifest: Value = serde_json::from_slice(&fs::read(table.join(name)).expect("read")).expect("JSON");
            let fields = ["table", "order", "rows", "bytes", "files"].map(|field| (field, manifest[field].clone()));
            let merged = slots.entry(manifest["slot"].as_u64().expect("a slot")).or_insert_with(|| manifest.clone());
            match merged["tables"].as_array_mut() {
                Some(tables) => tables.push(fields.into_iter().collect()),
                None => merged["tables"] = vec![fields.into_iter().collect::<Value>()].into(),
            }
        }
    }
    slots.into_values().collect()
}

/// Returns the manifest of the newest slot in a directory.
pub fn read_manifest(dir: &Path) -> Value {
    read_manifests(dir).pop().expect("a manifest")
}

/// Returns the names of the tables for slot 40. Checks that the output has their files and manifests, and no
/// other files.
pub fn checked_table_names(out: &Path) -> Vec<String> {
    let manifest = read_manifest(out);
    let tables = manifest["tables"].as_array().expect("a list");
    let paths = tables.iter().flat_map(|table| table["files"].as_array().expect("a list")).map(|file| &file["path"]);
    let mut listed: Vec<String> = paths.map(|path| path.as_str().expect("a path").to_string()).collect();
    let names: Vec<String> = tables.iter().map(|table| table["table"].as_str().expect("a name").to_string()).collect();
    listed.extend(names.iter().map(|name| format!("{name}/_manifest-40.json")));
    listed.sort();
    assert_eq!(list_files(out), listed);
    names
}
