//! Exports the newest version of each account as tables.
//!
//! In a directory or store, tables are Parquet files; accounts for test validators are JSON files. A
//! stream receives one table as CSV. Files get their final names only after the state was checked.
//!
//! ```no_run
//! use slotpress::{NoProgress, Snapshot};
//! use slotpress::export::{ExportOptions, ExportTo, Filter, export};
//!
//! let snapshot = Snapshot::archive("/mnt/snapshots/snapshot-350006937-….tar.zst");
//! let stake_program = "Stake11111111111111111111111111111111111111".parse()?;
//! let filter = Filter::default().owners([stake_program].into());
//! let options = ExportOptions::new(snapshot).filter(filter);
//! let report = export(&options, ExportTo::Dir("/mnt/tables".into()), &NoProgress)?;
//! println!("{} rows at slot {}", report.tables[0].rows, report.facts.slot);
//! # Ok::<(), slotpress::Error>(())
//! ```

// `visit_state` passes accounts to workers (`visitor`), which turn them into batches of rows (`table`).
// `parts` writes the rows to files with temporary names, and `output` gives the files their final names.
mod cells;
mod changes;
mod column;
mod filter;
mod order;
mod output;
mod parts;
mod report;
mod rows;
mod schema;
mod sort;
mod subset;
mod table;
mod visitor;

use derive_setters::Setters;
use parking_lot::Mutex;
use serde::Serialize;
use serde_json::{Value, json};
use slotpress_base::{Error, Progress, Result, SpaceWatch, Stopwatch};
use slotpress_format::{ArchiveName, Hash};
use slotpress_read::{Snapshot, VerifyOptions, visit_state};

pub use filter::{Filter, Memcmp};
use output::ExportOutput;
pub use output::ExportTo;
pub use parts::ExportedFile;
use parts::{ENCODER_BYTES, FILE_BYTES, GROUP_BYTES, TableWriter};
pub use report::{ExportReport, Manifest, SourceFields, TableFields};
use sort::SortRun;
pub use table::Table;
use visitor::Exporter;

/// Version of the columns, which changes whenever they do.
pub const SCHEMA_VERSION: u32 = 3;

/// Minimum bytes of rows that a worker sorts at a time for one table.
const RUN_BYTES_MIN: u64 = 8 << 20;
/// Memory for the largest row with data: an account with 10 MiB, in the row and as a decoded record.
const DATA_ROW_BYTES_MAX: u64 = 22 << 20;
/// Ample memory for the largest row without data: a mint, whose metadata has at most 64 KiB.
const ROW_BYTES_MAX: u64 = 1 << 20;

/// Format of the files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum TableFormat {
    /// Parquet, compressed with zstd.
    #[default]
    Parquet,
    /// Text with a line of column names, for a stream only. Bytes are written as hexadecimal digits.
    Csv,
    /// One JSON file per account, with all its data, as test validators load it. Adds the code of
    /// programs. Requires a filter, and exports only the table of accounts.
    #[serde(rename = "test-validator")]
    TestValidator,
    /// One JSON object with the same accounts, keyed by address, as surfpool loads it.
    Surfpool,
}

impl TableFormat {
    /// True if the files contain whole accounts instead of rows.
    fn has_whole_accounts(self) -> bool {
        matches!(self, Self::TestValidator | Self::Surfpool)
    }
}

/// Part of an account's data that is exported.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum DataPart {
    /// No data, only its length.
    #[default]
    None,
    /// All data, whatever its length.
    Full,
    /// A slice of the data.
    Slice {
        /// Offset of the first byte.
        offset: u32,
        /// Number of bytes; fewer if the data ends earlier.
        length: u32,
    },
}

impl DataPart {
    /// Returns the part of an account's data; `None` if no data is exported.
    fn select(self, data: &[u8]) -> Option<&[u8]> {
        match self {
            Self::None => None,
            Self::Full => Some(data),
            Self::Slice { offset, length } => {
                let rest = data.get(offset as usize..).unwrap_or_default();
                Some(rest.get(..length as usize).unwrap_or(rest))
            }
        }
    }
}

/// Order of a table's rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum RowOrder {
    /// Rows are sorted by the first columns up to `address`: accounts by owner, token accounts by mint, stakes by
    /// voter. Each file covers its own key range.
    #[serde(rename = "clustered")]
    Clustered,
    /// Rows are written as they are read.
    #[serde(rename = "none")]
    Unordered,
}

/// Snapshot and settings of an export.
#[derive(Clone, Debug, Setters)]
#[non_exhaustive]
pub struct ExportOptions {
    /// The snapshot whose accounts are exported.
    #[setters(into)]
    pub snapshot: Snapshot,
    /// Exports only what changed since this older snapshot, which must be the output's latest state. The
    /// rows must be clustered. Default: none; then all accounts are exported.
    #[setters(into, strip_option)]
    pub since: Option<Snapshot>,
    /// Tables to write, each once. Default: the table of all accounts.
    pub tables: Vec<Table>,
    /// Accounts to export. Default: all.
    pub filter: Filter,
    /// Part of each account's data to export. Default: none, only its length.
    pub data: DataPart,
    /// Order of rows. Default: clustered in tables without data, under a filter, and with
    /// [`since`](Self::since); unordered in others and in a stream.
    #[setters(strip_option)]
    pub order: Option<RowOrder>,
    /// Format of the files. Default: Parquet.
    pub format: TableFormat,
    /// Settings for reading and checking the state. Default: checks the state on all cores, in 1
    /// GiB of memory.
    pub verify: VerifyOptions,
    /// Memory in bytes for writing files, in addition to the memory for reading. With more, more rows
    /// are sorted at a time. Default: 1 GiB.
    pub memory_bytes: u64,
    /// Size at which a file is completed, for tests.
    #[doc(hidden)]
    #[setters(skip)]
    pub file_bytes: u64,
}

impl ExportOptions {
    /// Creates options that export all accounts of a snapshot.
    pub fn new(snapshot: impl Into<Snapshot>) -> Self {
        Self {
            snapshot: snapshot.into(),
            since: None,
            tables: vec![Table::Accounts],
            filter: Filter::default(),
            data: DataPart::None,
            order: None,
            format: TableFormat::Parquet,
            verify: VerifyOptions::default(),
            memory_bytes: 1 << 30,
            file_bytes: FILE_BYTES,
        }
    }

    /// Returns the memory for the rows of one worker, and for encoding them if they are not sorted.
    pub fn worker_bytes(&self) -> u64 {
        let table_bytes = |table: &Table| {
            let bytes_max = if self.is_sorted(*table) { RUN_BYTES_MIN } else { GROUP_BYTES as u64 };
            SortRun::reserved_bytes(bytes_max, self.row_bytes_max(*table))
        };
        let all_sorted = self.tables.iter().all(|table| self.is_sorted(*table));
        let encoder_bytes = if all_sorted { 0 } else { ENCODER_BYTES };
        self.tables.iter().map(table_bytes).sum::<u64>() + encoder_bytes
    }

    /// Returns the minimum of [`memory_bytes`](Self::memory_bytes), which is enough for encoding the rows
    /// of a file.
    pub fn memory_bytes_min(&self) -> u64 {
        if self.format == TableFormat::Csv { RUN_BYTES_MIN } else { ENCODER_BYTES }
    }

    fn row_bytes_max(&self, table: Table) -> u64 {
        if table == Table::Accounts && self.data != DataPart::None { DATA_ROW_BYTES_MAX } else { ROW_BYTES_MAX }
    }

    /// Returns the fields of the manifests that are compared with those of published manifests.
    fn planned_fields(&self, slot: u64, since: Option<(u64, Hash)>) -> Value {
        json!({
            "schema_version": SCHEMA_VERSION, "slot": slot, "filter": self.filter, "data": self.data,
            "format": self.format, "since_slot": since.map(|(slot, _)| slot), "since_hash": since.map(|(_, hash)| hash),
        })
    }

    pub(crate) fn row_order(&self, table: Table) -> RowOrder {
        // Sorting all data would need as much space in the temporary directory as the data itself.
        let is_large = table == Table::Accounts && self.data != DataPart::None && self.filter.is_empty();
        if self.since.is_some() {
            return RowOrder::Clustered;
        }
        self.order.unwrap_or(if is_large { RowOrder::Unordered } else { RowOrder::Clustered })
    }

    fn is_sorted(&self, table: Table) -> bool {
        self.format != TableFormat::Csv && self.row_order(table) == RowOrder::Clustered
    }

    /// True if the output has a column that shows how each row changed. All files have it, even those of
    /// whole states, because all files of a table need the same columns.
    fn has_change_column(&self) -> bool {
        self.format != TableFormat::Csv
    }

    /// Returns the bytes of rows that a worker sorts at a time for one table. Workers and tables share half
    /// of the memory for writing files.
    fn run_bytes(&self) -> u64 {
        let runs = (self.tables.len() * self.verify.threads).max(1) as u64;
        RUN_BYTES_MIN + self.memory_bytes / 2 / runs * 4 / 5
    }

    fn check(&self, is_stream: bool) -> Result<()> {
        let refuse = |message: &str, hint: &'static str| Err(Error::usage(message).with_hint(hint));
        self.filter.check()?;
        if self.tables.is_empty() {
            return refuse("there is no table to export", "name at least one table");
        }
        if is_stream && self.order == Some(RowOrder::Clustered) {
            let message = "rows are written to a stream as they are read, so they cannot be sorted";
            return refuse(message, "export into a directory");
        }
        if self.since.is_some() && (is_stream || self.order == Some(RowOrder::Unordered)) {
            let message = "changes are found by sorting the rows of both states, and written as files";
            return refuse(message, "export into a directory, in order");
        }
        if is_stream && (self.tables.len() > 1 || self.format != TableFormat::Csv) {
            let message = "only one table can be written to a stream, as CSV";
            return refuse(message, "export into a directory");
        }
        if !is_stream && self.format == TableFormat::Csv {
            return refuse("CSV is written to standard output only", "export as Parquet into a directory");
        }
        if let Some(table) = self.tables.iter().find(|table| !self.filter.selects_from(**table)) {
            let message = format!("a filter by mint or wallet excludes all rows of the table {}", table.name());
            return refuse(&message, "export this table in another run, without that filter");
        }
        let has_whole_accounts = self.format.has_whole_accounts();
        if has_whole_accounts && self.since.is_some() {
            let message = "a test validator loads the accounts of a state, not changes";
            return refuse(message, "export the whole state");
        }
        let is_plain = self.tables == [Table::Accounts] && self.data == DataPart::None;
        if has_whole_accounts && (!is_plain || self.filter.is_empty()) {
            let message =
                "for a test validator, only whole accounts that a filter selects are exported, and no other tables";
            return refuse(message, "select accounts with at least one filter, such as by address");
        }
        if self.filter.with_mints && !has_whole_accounts {
            let message = "mints of token accounts are only added for a test validator";
            return refuse(message, "choose a format for test validators");
        }
        Ok(())
    }
}

fn archive_name(snapshot: &Snapshot) -> Option<&ArchiveName> {
    snapshot.archives().next_back()?.name.as_ref()
}

/// Writes the accounts of a state as tables. Files get their names only if the state passes its checks, or
/// if the options disable them. Rows are written to a stream before the state is checked.
///
/// With [`since`](ExportOptions::since), checks both states, and compares an expected slot or hash
/// with the new state only.
///
/// # Errors
/// See [`visit_accounts`](crate::accounts::visit_accounts). Also fails if the options contradict each other,
/// if the full archive of an incremental archive is missing, if the output already has the slot, if the latest
/// state in the output is not `since`, or if the disk or store fails.
pub fn export(options: &ExportOptions, destination: ExportTo<'_>, progress: &dyn Progress) -> Result<ExportReport> {
    let stopwatch = Stopwatch::start();
    let ExportOptions { snapshot, since, .. } = options;
    options.check(matches!(destination, ExportTo::Stream(_)))?;
    if snapshot.is_incremental_alone() || since.as_ref().is_some_and(Snapshot::is_incremental_alone) {
        return Err(
            Error::usage("an incremental archive alone is not a whole state").with_hint("pass its full archive too")
        );
    }
    let mut stream = None;
    let output = match destination {
        ExportTo::Dir(dir) => Some(ExportOutput::open_dir(&dir, progress)?),
        ExportTo::Store { store, scratch } => Some(ExportOutput::open_store(store, &scratch, progress)?),
        ExportTo::Stream(writer) => {
            stream = Some(Mutex::new(writer));
            None
        }
    };
    let since_name = since.as_ref().and_then(archive_name);
    let has_all_names = since.is_none() || since_name.is_some();
    if let (Some(output), Some(name)) = (&output, archive_name(snapshot))
        && has_all_names
    {
        // Refuse an occupied output before the state is read.
        let planned = options.planned_fields(name.slot, since_name.map(|name| (name.slot, name.hash)));
        output.check_new_tables(&planned, &options.tables, progress)?;
    }
    let watch = SpaceWatch::default();
    let (facts, tables) = match &output {
        Some(output) if options.format.has_whole_accounts() => subset::write_accounts(options, output, progress)?,
        output => {
            let mut writers = Vec::new();
            if let Some(output) = output {
                for table in &options.tables {
                    let dir = output.work.dir();
                    writers.push(TableWriter::new(*table, options, dir, &watch)?);
                }
            }
            let mut exporter = Exporter::new(options, output.as_ref(), writers, stream, progress);
            if let Some(since) = since {
                let mut verify = options.verify.clone();
                verify.check.expect_hash = None;
                verify.check.expect_slot = None;
                visit_state(since, &verify, progress, &exporter)?;
                exporter.end_old_state()?;
            }
            let report = visit_state(snapshot, &options.verify, progress, &exporter)?;
            exporter.finish(&report)?
        }
    };
    let manifests = output.map(|output| output.publish(&facts, &tables, progress)).transpose()?.unwrap_or_default();
    Ok(ExportReport { manifests, facts, tables, elapsed: stopwatch.elapsed() })
}
