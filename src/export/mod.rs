//! Exports the accounts of a state as tables that database engines read. Contains only the newest
//! version of each account.
//!
//! [`visit_state`] shows accounts to workers, which turn them into batches of rows ([`table`]).
//! Writers write these to files with temporary names ([`parts`]). The files get their final names
//! only after the state was found to be right ([`place`]).

pub mod filter;
mod in_dir;
#[cfg(feature = "stores")]
mod in_store;
pub mod parts;
pub mod place;
mod programs;
mod report;
mod rows;
pub mod table;

use std::io::Write;
use std::path::Path;
use std::sync::OnceLock;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use derive_setters::Setters;
use parking_lot::Mutex;
use serde::Serialize;
use slotpress_base::{Error, IoContext, Progress, Result, SpaceWatch, Stopwatch, text};
use slotpress_format::ledger::activation::StakeHistory;
use slotpress_format::ledger::programs::{TOKEN, TOKEN_2022};
use slotpress_format::{
    REDUCED_STAKE_CHANGES, Record, STAKE, STAKE_HISTORY, TokenData, VOTE, parse_feature, parse_stake_history,
};
use slotpress_read::{
    AccountsInput, StateFacts, StateOutcome, StatePart, StateVisitor, StateWorker, StorageRef, VisitOptions,
    visit_state,
};

use filter::Filter;
use parts::{Parts, Room};
use place::{ExportTo, OutputPlace};
use programs::{PROGRAMS_BYTES_MAX, Programs};
pub use report::{ExportReport, Manifest, SourceFields, TableFields};
use rows::StakeRules;
use table::{BATCH_BYTES_MAX, Batch, Rows, Table};

const STANDARD_OUTPUT: &str = "standard output";

/// Version of the columns. Changes whenever they do.
pub const SCHEMA_VERSION: u32 = 1;

/// Format of the files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum TableFormat {
    /// Parquet, compressed with zstd.
    #[default]
    Parquet,
    /// Text with a line of column names. Bytes are hexadecimal digits.
    Csv,
}

/// Form of addresses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum AddressForm {
    /// Base58 text.
    #[default]
    Base58,
    /// 32 bytes; in Parquet only.
    Binary,
}

/// Part of an account's data that is exported.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum DataPart {
    /// None of it. Its length is exported in any case.
    #[default]
    None,
    /// All of it.
    Full,
    /// A slice of it.
    Slice {
        /// Offset of the first byte.
        offset: u32,
        /// Number of bytes; fewer if the data ends before.
        length: u32,
    },
}

impl DataPart {
    fn of(self, data: &[u8]) -> Option<&[u8]> {
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

/// Settings of an export.
#[derive(Clone, Debug, Setters)]
#[non_exhaustive]
pub struct ExportOptions {
    /// Tables to write, each once. Default: that of all accounts.
    pub tables: Vec<Table>,
    /// Accounts to export. Default: all.
    pub filter: Filter,
    /// Part of each account's data to export. Default: none, only its length.
    pub data: DataPart,
    /// Format of the files. Default: Parquet.
    pub format: TableFormat,
    /// Form of addresses. Default: base58.
    pub addresses: AddressForm,
    /// Settings for reading and checking the state. Default: checks the state, on all cores, with 1
    /// GiB.
    pub visit: VisitOptions,
    /// Memory for files that are being written, besides that of the visit, in bytes. With more,
    /// more files are written at a time. Default: 1 GiB.
    pub memory_bytes: u64,
}

impl Default for ExportOptions {
    fn default() -> Self {
        Self {
            tables: vec![Table::Accounts],
            filter: Filter::default(),
            data: DataPart::None,
            format: TableFormat::Parquet,
            addresses: AddressForm::Base58,
            visit: VisitOptions::default(),
            memory_bytes: 1 << 30,
        }
    }
}

impl ExportOptions {
    /// Memory that the batches of one worker take.
    pub fn worker_bytes(&self) -> u64 {
        BATCH_BYTES_MAX * self.tables.len() as u64
    }

    /// Least value of [`memory_bytes`](Self::memory_bytes): enough for one file per table.
    pub fn memory_bytes_min(&self) -> u64 {
        Room::bytes_min(self.tables.len()) + self.programs_bytes()
    }

    /// Memory for programs that wait for their code.
    fn programs_bytes(&self) -> u64 {
        if self.tables.contains(&Table::Programs) { PROGRAMS_BYTES_MAX } else { 0 }
    }

    /// Number of files per table that are written at a time.
    pub fn writers(&self) -> usize {
        self.room().writers
    }

    /// Checks that the output has no tables of a slot.
    ///
    /// # Errors
    /// The output has such tables, or the disk or store fails.
    pub fn check_free(&self, to: ExportTo<'_>, slot: u64, progress: &dyn Progress) -> Result<()> {
        match to {
            ExportTo::Dir(dir) => in_dir::check_free_in(&dir, &self.tables, slot),
            #[cfg(feature = "stores")]
            ExportTo::Store(store, _) => in_store::check_free(store, &self.tables, slot, progress),
            ExportTo::Stream(_) => progress.check(),
        }
    }

    fn room(&self) -> Room {
        let memory_bytes = self.memory_bytes.saturating_sub(self.programs_bytes());
        Room::new(memory_bytes, self.tables.len(), self.visit.threads)
    }

    fn check(&self, is_stream: bool) -> Result<()> {
        self.filter.check()?;
        if self.tables.is_empty() {
            return Err(Error::usage("there is no table to export"));
        }
        if is_stream && (self.tables.len() > 1 || self.format != TableFormat::Csv) {
            return Err(Error::usage("a stream takes one table, as CSV").with_hint("export into a directory"));
        }
        match (self.format, self.addresses) {
            (TableFormat::Csv, AddressForm::Binary) => Err(Error::usage("CSV has addresses as base58 only")),
            _ => Ok(()),
        }
    }
}

/// Writes the accounts of a state as tables. Files get their names only if the state is right, or
/// if the caller asked not to check it. A stream gets rows before that is known.
///
/// # Errors
/// See [`visit_accounts`](crate::visit_accounts). Also fails if an incremental archive is given
/// without its full one, if the output has tables of the slot, or if the disk or store fails.
pub fn export(
    input: AccountsInput<'_>,
    to: ExportTo<'_>,
    options: &ExportOptions,
    progress: &dyn Progress,
) -> Result<ExportReport> {
    let stopwatch = Stopwatch::start();
    options.check(matches!(to, ExportTo::Stream(_)))?;
    if let AccountsInput::Archives(full, None) = &input
        && full.name.as_ref().is_some_and(|name| name.base_slot.is_some())
    {
        return Err(
            Error::usage("an incremental archive alone is no whole state").with_hint("give its full archive too")
        );
    }
    let mut stream = None;
    let place = match to {
        ExportTo::Dir(dir) => Some(OutputPlace::dir(&dir, progress)?),
        #[cfg(feature = "stores")]
        ExportTo::Store(store, scratch) => Some(OutputPlace::store(store, &scratch, progress)?),
        ExportTo::Stream(to) => {
            stream = Some(Mutex::new(to));
            None
        }
    };
    let (watch, room) = (SpaceWatch::default(), options.room());
    let facts = {
        let parts = match &place {
            Some(place) => {
                let new = |table: &Table| Parts::new(*table, options, room, place.work.dir(), &watch);
                options.tables.iter().map(new).collect()
            }
            None => Vec::new(),
        };
        let exporter = Exporter {
            options,
            place: place.as_ref(),
            parts,
            stream,
            progress,
            begun: OnceLock::new(),
            idle: Mutex::default(),
            programs: Programs::default(),
            unparsed: AtomicU64::new(0),
            cut_off: AtomicU64::new(0),
            streamed: Default::default(),
        };
        let report = visit_state(input, &options.visit, progress, &exporter)?;
        let tables = exporter.finish()?;
        let Exporter { begun, unparsed, cut_off, .. } = exporter;
        let mut facts = begun.into_inner().ok_or_else(no_bank)?.manifest;
        (facts.unparsed_accounts, facts.cut_off_extensions) = (unparsed.into_inner(), cut_off.into_inner());
        facts.accounts = report.accounts;
        facts.state = match report.state {
            StateOutcome::Checked { .. } => "checked",
            StateOutcome::NotChecked(_) => "not checked",
        };
        facts.tables = tables;
        facts
    };
    let manifest = place.map(|place| place.publish(&facts, progress)).transpose()?;
    Ok(ExportReport { manifest, facts, elapsed: stopwatch.elapsed() })
}

fn no_bank() -> Error {
    Error::damaged("the bank file cannot be read: it is not known of which slot the state is")
}

/// Facts that are known before the first account is exported.
struct Begun {
    manifest: Manifest,
    parts: Vec<StatePart>,
    stakes: StakeRules,
}

impl Begun {
    /// Slot in which the accounts of a storage were written; `None` in archives of Firedancer,
    /// whose storages do not tell it.
    fn slot_of(&self, storage: StorageRef) -> Option<u64> {
        let part = self.parts.iter().rev().find(|part| part.first_storage <= storage.number)?;
        (!part.is_of_firedancer).then_some(storage.slot)
    }
}

struct Exporter<'a, 's> {
    options: &'a ExportOptions,
    place: Option<&'a OutputPlace<'a>>,
    parts: Vec<Parts<'a>>,
    stream: Option<Mutex<&'s mut (dyn Write + Send + 's)>>,
    progress: &'a dyn Progress,
    begun: OnceLock<Begun>,
    /// Batches of workers that have ended, for the next ones.
    idle: Mutex<Vec<Vec<Batch>>>,
    programs: Programs,
    unparsed: AtomicU64,
    cut_off: AtomicU64,
    /// Number of rows and bytes that were written to a stream.
    streamed: (AtomicU64, AtomicU64),
}

impl Exporter<'_, '_> {
    fn write(&self, batch: &mut Batch) -> Result<()> {
        let Some((rows, count)) = batch.take()? else { return Ok(()) };
        if let Some(stream) = &self.stream {
            let Rows::Csv(text) = rows else { return Err(Error::failed("a stream takes CSV only")) };
            self.streamed.0.fetch_add(count, Relaxed);
            return self.stream_text(&mut **stream.lock(), &text);
        }
        self.parts.iter().find(|parts| parts.table == batch.table()).map_or(Ok(()), |parts| parts.write(rows, count))
    }

    fn stream_text(&self, stream: &mut (dyn Write + Send), text: &[u8]) -> Result<()> {
        self.streamed.1.fetch_add(text.len() as u64, Relaxed);
        stream.write_all(text).or_path("write", Path::new(STANDARD_OUTPUT))
    }

    /// Writes the rows that are left, and completes all files.
    fn finish(&self) -> Result<Vec<TableFields>> {
        for batches in &mut *self.idle.lock() {
            batches.iter_mut().try_for_each(|batch| self.write(batch))?;
        }
        let Some(slot) = self.begun.get().map(|begun| begun.manifest.slot) else { return Err(no_bank()) };
        let mut batch = Batch::new(Table::Programs, self.options);
        self.programs.join(|program, code| {
            batch.push_program(program, code)?;
            if batch.is_full() { self.write(&mut batch) } else { Ok(()) }
        })?;
        self.write(&mut batch)?;
        if let (Some(stream), Some(table)) = (&self.stream, self.options.tables.first()) {
            stream.lock().flush().or_path("write", Path::new(STANDARD_OUTPUT))?;
            let [rows, bytes] = [&self.streamed.0, &self.streamed.1].map(|counter| counter.load(Relaxed));
            return Ok(vec![TableFields { table: *table, rows, bytes, files: Vec::new() }]);
        }
        let extension = if self.options.format == TableFormat::Csv { "csv" } else { "parquet" };
        let finished = self.parts.iter().map(|parts| {
            let mut files = parts.finish()?;
            for (number, file) in files.iter_mut().enumerate() {
                let partition = place::partition(slot);
                file.path = format!("{}/{partition}/part-{number:05}.{extension}", parts.table.name());
            }
            let [rows, bytes] = [files.iter().map(|file| file.rows).sum(), files.iter().map(|file| file.bytes).sum()];
            Ok(TableFields { table: parts.table, rows, bytes, files })
        });
        finished.collect()
    }
}

impl StateVisitor for Exporter<'_, '_> {
    fn begin(&self, facts: &StateFacts<'_>) -> Result<()> {
        let (options, bank) = (self.options, facts.bank);
        if let Some(place) = self.place {
            place.check_free(&options.tables, bank.slot, self.progress)?;
        }
        let name = |path: &Path| path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned();
        let source = |part: &StatePart| SourceFields { name: name(&part.path), root: part.root };
        let manifest = Manifest {
            version: env!("CARGO_PKG_VERSION"),
            schema_version: SCHEMA_VERSION,
            slot: bank.slot,
            epoch: bank.epoch(),
            block_height: bank.block_height,
            bank_hash: bank.hash,
            hash: bank.snapshot_hash(),
            capitalization: bank.capitalization,
            state: "not checked",
            accounts: 0,
            expected_hash: options.visit.check.expect_hash,
            expected_slot: options.visit.check.expect_slot,
            archives: facts.parts.iter().map(source).collect(),
            filter: options.filter.clone(),
            data: options.data,
            format: options.format,
            addresses: options.addresses,
            unparsed_accounts: 0,
            cut_off_extensions: 0,
            tables: Vec::new(),
        };
        let footer = [
            ("slotpress.schema_version", SCHEMA_VERSION.to_string()),
            ("slotpress.slot", manifest.slot.to_string()),
            ("slotpress.hash", manifest.hash.to_string()),
            ("slotpress.bank_hash", manifest.bank_hash.to_string()),
            ("slotpress.archives", text::json(&manifest.archives)),
            ("slotpress.filter", text::json(&manifest.filter)),
        ];
        for parts in &self.parts {
            let _ = parts.footer.set(footer.iter().map(|(key, value)| ((*key).to_string(), value.clone())).collect());
        }
        let has_epochs = self.wants(Table::Stakes) || self.wants(Table::Votes);
        let stakes = if has_epochs { stake_rules(facts)? } else { StakeRules::default() };
        let _ = self.begun.set(Begun { manifest, parts: facts.parts.clone(), stakes });
        match (&self.stream, options.tables.first()) {
            (Some(stream), Some(table)) => self.stream_text(&mut **stream.lock(), table.csv_header(options).as_bytes()),
            _ => Ok(()),
        }
    }

    fn new_worker(&self) -> Box<dyn StateWorker + '_> {
        let idle = self.idle.lock().pop();
        let new = || self.options.tables.iter().map(|table| Batch::new(*table, self.options)).collect();
        Box::new(Worker { exporter: self, batches: idle.unwrap_or_else(new) })
    }
}

struct Worker<'w, 'a, 's> {
    exporter: &'w Exporter<'a, 's>,
    batches: Vec<Batch>,
}

impl Exporter<'_, '_> {
    fn wants(&self, table: Table) -> bool {
        self.options.tables.contains(&table)
    }

    /// Adds a row if the account has one in the batch's table. Returns false if its program cannot
    /// have written it.
    fn push(
        &self,
        batch: &mut Batch,
        record: &Record<'_>,
        token: &Option<TokenData<'_>>,
        begun: &Begun,
        slot: Option<u64>,
    ) -> Result<bool> {
        let (header, data) = (record.header, record.data);
        let is_cut_off = match (batch.table(), token) {
            // With a filter of mints or wallets, only token accounts are wanted.
            (Table::Accounts, Some(TokenData::Mint(_))) if self.options.filter.is_of_tokens() => return Ok(true),
            (Table::Accounts, _) => return batch.push_account(header, data, slot).map(|()| true),
            (Table::TokenAccounts, Some(TokenData::Account(account))) => batch.push_token(header, account, slot)?,
            (Table::Mints, Some(TokenData::Mint(mint))) => batch.push_mint(header, mint, slot)?,
            (Table::Stakes, _) if header.owner == STAKE => return batch.push_stake(header, data, &begun.stakes, slot),
            (Table::Votes, _) if header.owner == VOTE => {
                return batch.push_vote(header, data, begun.stakes.epoch, slot);
            }
            _ => return Ok(true),
        };
        self.cut_off.fetch_add(u64::from(is_cut_off), Relaxed);
        Ok(true)
    }
}

impl StateWorker for Worker<'_, '_, '_> {
    fn record(&mut self, storage: StorageRef, record: &Record<'_>, is_superseded: bool) -> Result<()> {
        let (header, data, exporter) = (record.header, record.data, self.exporter);
        let filter = &exporter.options.filter;
        // Without a bank file, the export fails at its end.
        let Some(begun) = exporter.begun.get().filter(|_| !is_superseded && header.lamports > 0) else { return Ok(()) };
        let (is_wanted, slot) = (filter.allows(header, data), begun.slot_of(storage));
        // Code may be in an account that the filters do not allow.
        let mut is_known = true;
        if exporter.wants(Table::Programs) {
            is_known = exporter.programs.keep(header, data, is_wanted && !filter.is_of_tokens(), slot)?;
        }
        if !is_wanted {
            return Ok(());
        }
        let is_2022 = header.owner == TOKEN_2022;
        let is_parsed = filter.is_of_tokens() || exporter.wants(Table::TokenAccounts) || exporter.wants(Table::Mints);
        let token = (is_parsed && (is_2022 || header.owner == TOKEN)).then(|| TokenData::parse(data, is_2022));
        let is_allowed = match &token {
            Some(TokenData::Account(account)) => filter.allows_token(account),
            Some(TokenData::Mint(_)) => filter.allows_mint(&header.pubkey),
            _ => !filter.is_of_tokens(),
        };
        is_known &= token != Some(TokenData::Unknown);
        for batch in self.batches.iter_mut().filter(|_| is_allowed) {
            is_known &= exporter.push(batch, record, &token, begun, slot)?;
            if batch.is_full() {
                exporter.write(batch)?;
            }
        }
        exporter.unparsed.fetch_add(u64::from(!is_known), Relaxed);
        Ok(())
    }
}

fn stake_rules(facts: &StateFacts<'_>) -> Result<StakeRules> {
    let data = |address: [u8; 32]| facts.well_known.get(&address).map(|it| &*it.data).filter(|data| !data.is_empty());
    let history = data(STAKE_HISTORY).map_or_else(|| Ok(StakeHistory::new()), parse_stake_history)?;
    let reduced = data(REDUCED_STAKE_CHANGES).and_then(|feature| parse_feature(feature).ok().flatten());
    let reduced_from = reduced.map(|slot| facts.bank.epoch_of(slot));
    Ok(StakeRules { epoch: facts.bank.epoch(), history, reduced_from })
}

impl Drop for Worker<'_, '_, '_> {
    fn drop(&mut self) {
        self.exporter.idle.lock().push(std::mem::take(&mut self.batches));
    }
}
