//! Report of an export: its manifests, and where they were written.

use std::path::Path;

use serde::Serialize;
use serde_json::Value;
use slotpress_base::{Elapsed, text};
use slotpress_format::{ArchiveRoot, BankFile, CLOCK, Hash, parse_block_time};
use slotpress_read::{CheckMode, StateCheck, StateFacts, StatePart};

use super::filter::Filter;
use super::parts::ExportedFile;
use super::table::Table;
use super::{DataPart, ExportOptions, RowOrder, SCHEMA_VERSION, TableFormat};

/// Fields that the manifests of all tables of an export share: which state was exported, and how.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct Manifest {
    /// Version of slotpress that made the export.
    pub version: &'static str,
    /// Version of the columns.
    pub schema_version: u32,
    /// Slot of the state.
    pub slot: u64,
    /// Epoch of that slot.
    pub epoch: u64,
    /// Time of the slot by the cluster's clock, in seconds since 1970; `None` if the state has none.
    pub block_time: Option<i64>,
    /// Number of blocks since genesis.
    pub block_height: u64,
    /// Bank hash of that slot.
    pub bank_hash: Hash,
    /// Snapshot hash of the state.
    pub hash: Hash,
    /// Sum of the lamports of all accounts, as the bank file states it.
    #[serde(serialize_with = "text::display")]
    pub capitalization_lamports: u64,
    /// Result of the check of the state.
    pub state: StateCheck,
    /// Number of accounts in the state, exported or not.
    pub accounts: u64,
    /// Snapshot hash that the operator expected.
    pub expected_hash: Option<Hash>,
    /// Slot that the operator expected.
    pub expected_slot: Option<u64>,
    /// Slot of the older state, if the tables have only the changes since that state.
    pub since_slot: Option<u64>,
    /// Snapshot hash of the older state.
    pub since_hash: Option<Hash>,
    /// Archives or ledger of the exported state, newest first.
    pub archives: Vec<SourceFields>,
    /// Filters of the export.
    pub filter: Filter,
    /// Exported part of each account's data.
    pub data: DataPart,
    /// Format of the files.
    pub format: TableFormat,
    /// Number of accounts whose data the program that owns them cannot have written. They are only in the
    /// table of accounts.
    pub unparsed_accounts: u64,
    /// Number of token accounts and mints with an extension that is truncated.
    pub cut_off_extensions: u64,
}

impl Manifest {
    /// Creates the manifest with the fields that are known before the first account is exported.
    pub(super) fn new(facts: &StateFacts<'_>, since: Option<&BankFile>, options: &ExportOptions) -> Self {
        let bank = facts.bank;
        let name_of = |path: &Path| {
            let name = path.file_name().unwrap_or(path.as_os_str());
            name.to_string_lossy().into_owned()
        };
        let clock = facts.well_known.get(&CLOCK);
        let source = |part: &StatePart| SourceFields { name: name_of(&part.path), root: part.root };
        Self {
            version: env!("CARGO_PKG_VERSION"),
            schema_version: SCHEMA_VERSION,
            slot: bank.slot,
            epoch: bank.epoch(),
            block_time: clock.and_then(|clock| parse_block_time(&clock.data).ok()),
            block_height: bank.block_height,
            bank_hash: bank.hash,
            hash: bank.snapshot_hash(),
            capitalization_lamports: bank.capitalization,
            // If the check is requested but cannot be made, the export fails.
            state: match options.verify.check.mode {
                CheckMode::State => StateCheck::Checked,
                _ => StateCheck::NotChecked,
            },
            accounts: 0,
            expected_hash: options.verify.check.expect_hash,
            expected_slot: options.verify.check.expect_slot,
            since_slot: since.map(|bank| bank.slot),
            since_hash: since.map(BankFile::snapshot_hash),
            archives: facts.parts.iter().map(source).collect(),
            filter: options.filter.clone(),
            data: options.data,
            format: options.format,
            unparsed_accounts: 0,
            cut_off_extensions: 0,
        }
    }

    pub(super) fn table_json(&self, fields: &TableFields) -> String {
        #[derive(Serialize)]
        struct TableManifest<'a> {
            #[serde(flatten)]
            facts: &'a Manifest,
            #[serde(flatten)]
            table: &'a TableFields,
        }
        text::json(&TableManifest { facts: self, table: fields }) + "\n"
    }

    pub(super) fn to_value(&self) -> Value {
        serde_json::to_value(self).unwrap_or_default()
    }
}

/// An archive or ledger that was read.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct SourceFields {
    /// Name of the file.
    pub name: String,
    /// Root of an archive's frame hashes, which covers all its bytes; `None` without frame hashes.
    pub root: Option<ArchiveRoot>,
}

/// A table that was written.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct TableFields {
    /// The table that was written.
    pub table: Table,
    /// Order of its rows.
    pub order: RowOrder,
    /// Number of rows in all files.
    pub rows: u64,
    /// Size of all files.
    pub bytes: u64,
    /// The files; empty for a stream.
    pub files: Vec<ExportedFile>,
}

impl TableFields {
    pub(super) fn new(table: Table, order: RowOrder, files: Vec<ExportedFile>) -> Self {
        Self {
            table,
            order,
            rows: files.iter().map(|file| file.rows).sum(),
            bytes: files.iter().map(|file| file.bytes).sum(),
            files,
        }
    }
}

/// Result of the function [`export()`](super::export()).
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct ExportReport {
    /// Path or URL of each table's manifest; none for a stream.
    pub manifests: Vec<String>,
    /// Fields that the manifests share.
    #[serde(flatten)]
    pub facts: Manifest,
    /// The tables that were written.
    pub tables: Vec<TableFields>,
    /// Time and CPU time.
    #[serde(flatten)]
    pub elapsed: Elapsed,
}
