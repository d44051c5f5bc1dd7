//! Visits the accounts of a state: decides which tables have a row for each, and collects rows in
//! batches.

use std::io::Write;
use std::path::Path;
use std::sync::OnceLock;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use parking_lot::Mutex;
use parquet::file::metadata::KeyValue;
use slotpress_base::{Error, IoContext, Progress, Result, text};
use slotpress_format::ledger::activation::StakeHistory;
use slotpress_format::{
    BankFile, REDUCED_STAKE_CHANGES, Record, STAKE, STAKE_HISTORY, TokenData, VOTE, parse_feature, parse_stake_history,
};
use slotpress_read::{StateFacts, StatePart, StateVisitor, StateWorker, StorageRef, require_newer_state};

use super::filter::parse_token;
use super::output::{ExportOutput, slot_dir};
use super::parts::{Parts, to_csv};
use super::report::{Manifest, TableFields};
use super::rows::StakeRules;
use super::table::{RowBatch, Table};
use super::{ExportOptions, RowOrder, SCHEMA_VERSION};

const STANDARD_OUTPUT: &str = "standard output";

pub(super) fn no_bank_error() -> Error {
    Error::damaged("the bank file cannot be read, so the slot of the state is unknown")
}

struct ExportStart {
    bank: BankFile,
    manifest: Manifest,
    parts: Vec<StatePart>,
    stakes: StakeRules,
}

impl ExportStart {
    /// Returns the slot in which the accounts of a storage were written; `None` in archives of
    /// Firedancer, which do not record it.
    fn storage_slot(&self, storage: StorageRef) -> Option<u64> {
        let part = self.parts.iter().rev().find(|part| part.first_storage <= storage.number)?;
        (!part.is_from_firedancer).then_some(storage.slot)
    }
}

pub(super) struct Exporter<'a, 's> {
    options: &'a ExportOptions,
    place: Option<&'a ExportOutput>,
    parts: Vec<Parts<'a>>,
    stream: Option<Mutex<&'s mut (dyn Write + Send + 's)>>,
    progress: &'a dyn Progress,
    old: Option<BankFile>,
    begun: OnceLock<ExportStart>,
    /// Batches of workers that have ended. New workers continue them.
    idle: Mutex<Vec<Vec<RowBatch>>>,
    unparsed: AtomicU64,
    cut_off: AtomicU64,
    streamed_rows: AtomicU64,
    streamed_bytes: AtomicU64,
}

impl<'a, 's> Exporter<'a, 's> {
    pub fn new(
        options: &'a ExportOptions,
        place: Option<&'a ExportOutput>,
        parts: Vec<Parts<'a>>,
        stream: Option<Mutex<&'s mut (dyn Write + Send + 's)>>,
        progress: &'a dyn Progress,
    ) -> Self {
        Self {
            options,
            place,
            parts,
            stream,
            progress,
            old: None,
            begun: OnceLock::new(),
            idle: Mutex::default(),
            unparsed: AtomicU64::new(0),
            cut_off: AtomicU64::new(0),
            streamed_rows: AtomicU64::new(0),
            streamed_bytes: AtomicU64::new(0),
        }
    }

    fn write(&self, batch: &mut RowBatch) -> Result<()> {
        let RowBatch { table, rows, .. } = batch;
        if rows.row_count() == 0 {
            return Ok(());
        }
        let Some(stream) = &self.stream else {
            let parts = self.parts.iter().find(|parts| parts.table == *table);
            return parts.map_or(Ok(()), |parts| parts.write(rows));
        };
        let text = to_csv(rows.bytes());
        self.streamed_rows.fetch_add(rows.row_count() as u64, Relaxed);
        rows.clear();
        self.stream_text(&mut **stream.lock(), &text?)
    }

    fn stream_text(&self, stream: &mut (dyn Write + Send), text: &[u8]) -> Result<()> {
        self.streamed_bytes.fetch_add(text.len() as u64, Relaxed);
        stream.write_all(text).or_path("write", Path::new(STANDARD_OUTPUT))
    }

    /// Ends the older state: the next rows are of the new one.
    pub fn end_old_state(&mut self) -> Result<()> {
        self.write_rest()?;
        self.old = Some(self.begun.take().ok_or_else(no_bank_error)?.bank);
        self.idle.get_mut().clear();
        self.unparsed = AtomicU64::new(0);
        self.cut_off = AtomicU64::new(0);
        Ok(())
    }

    /// Completes all files. Returns what their manifests say.
    pub fn finish(mut self) -> Result<(Manifest, Vec<TableFields>)> {
        self.write_rest()?;
        let mut facts = self.begun.take().ok_or_else(no_bank_error)?.manifest;
        facts.unparsed_accounts = *self.unparsed.get_mut();
        facts.cut_off_extensions = *self.cut_off.get_mut();
        if let (Some(stream), Some(table)) = (&self.stream, self.options.tables.first()) {
            stream.lock().flush().or_path("write", Path::new(STANDARD_OUTPUT))?;
            let [rows, bytes] = [&self.streamed_rows, &self.streamed_bytes].map(|counter| counter.load(Relaxed));
            let order = RowOrder::Unordered;
            return Ok((facts, vec![TableFields { table: *table, order, rows, bytes, files: Vec::new() }]));
        }
        let mut tables = Vec::new();
        for parts in &self.parts {
            let dir = format!("{}/{}", parts.table.name(), slot_dir(facts.slot));
            let mut files = parts.finish(self.progress)?;
            for (number, file) in files.iter_mut().enumerate() {
                file.path = format!("{dir}/part-{number:05}.parquet");
            }
            tables.push(TableFields::new(parts.table, self.options.row_order(parts.table), files));
        }
        Ok((facts, tables))
    }

    fn write_rest(&self) -> Result<()> {
        self.idle.lock().iter_mut().flatten().try_for_each(|batch| self.write(batch))
    }

    fn wants(&self, table: Table) -> bool {
        self.options.tables.contains(&table)
    }

    /// Adds a row if the account has one in the batch's table. Returns false if its program cannot
    /// have written it.
    fn push(
        &self,
        batch: &mut RowBatch,
        record: &Record<'_>,
        token: &Option<TokenData<'_>>,
        begun: &ExportStart,
        slot: Option<u64>,
    ) -> Result<bool> {
        let header = record.header;
        let data = record.data;
        let is_cut_off = match (batch.table, token) {
            // With a filter of mints or wallets, only token accounts are wanted.
            (Table::Accounts, Some(TokenData::Mint(_))) if self.options.filter.selects_tokens() => return Ok(true),
            (Table::Accounts, _) => return batch.push_account(header, data, slot).map(|()| true),
            (Table::TokenAccounts, Some(TokenData::Account(account))) => batch.push_token(header, account, slot)?,
            (Table::Mints, Some(TokenData::Mint(mint))) => batch.push_mint(header, mint, slot)?,
            (Table::Stakes, _) if header.owner == STAKE => return batch.push_stake(header, data, &begun.stakes, slot),
            (Table::Votes, _) if header.owner == VOTE => {
                return batch.push_vote(header, data, begun.stakes.epoch, slot);
            }
            (Table::Programs, _) => return batch.push_program(header, data, slot),
            _ => return Ok(true),
        };
        self.cut_off.fetch_add(u64::from(is_cut_off), Relaxed);
        Ok(true)
    }
}

impl StateVisitor for Exporter<'_, '_> {
    fn begin(&self, facts: &StateFacts<'_>) -> Result<()> {
        let options = self.options;
        if let Some(old) = &self.old {
            require_newer_state(old, facts.bank)?;
        }
        let manifest = Manifest::new(facts, self.old.as_ref(), options);
        let is_old = options.changes && self.old.is_none();
        if let (Some(place), false) = (self.place, is_old) {
            place.check_free(&manifest.to_value(), &options.tables, self.progress)?;
        }
        let footer = [
            ("slotpress.schema_version", SCHEMA_VERSION.to_string()),
            ("slotpress.slot", manifest.slot.to_string()),
            ("slotpress.hash", manifest.hash.to_string()),
            ("slotpress.bank_hash", manifest.bank_hash.to_string()),
            ("slotpress.archives", text::json(&manifest.archives)),
            ("slotpress.filter", text::json(&manifest.filter)),
            ("slotpress.since_slot", text::json(&manifest.since_slot)),
        ];
        let footer = footer.map(|(key, value)| KeyValue::new(key.to_string(), value)).to_vec();
        if !is_old {
            self.parts.iter().for_each(|parts| drop(parts.footer.set(footer.clone())));
        }
        let has_epochs = self.wants(Table::Stakes) || self.wants(Table::Votes);
        let stakes = if has_epochs { read_stake_rules(facts)? } else { StakeRules::default() };
        let _ = self.begun.set(ExportStart { bank: facts.bank.clone(), manifest, parts: facts.parts.clone(), stakes });
        match (&self.stream, options.tables.first()) {
            (Some(stream), Some(table)) => self.stream_text(&mut **stream.lock(), table.csv_header(options).as_bytes()),
            _ => Ok(()),
        }
    }

    fn new_worker(&self) -> Box<dyn StateWorker + '_> {
        let idle = self.idle.lock().pop();
        let is_new = self.options.changes.then_some(self.old.is_some());
        let new_batch = |table: &Table| RowBatch::new(*table, self.options, is_new);
        let batches = idle.unwrap_or_else(|| self.options.tables.iter().map(new_batch).collect());
        Box::new(ExportWorker { exporter: self, batches })
    }
}

struct ExportWorker<'w, 'a, 's> {
    exporter: &'w Exporter<'a, 's>,
    batches: Vec<RowBatch>,
}

impl StateWorker for ExportWorker<'_, '_, '_> {
    fn record(&mut self, storage: StorageRef, record: &Record<'_>, is_superseded: bool) -> Result<()> {
        let header = record.header;
        let data = record.data;
        let exporter = self.exporter;
        let filter = &exporter.options.filter;
        // Without a bank file, the export fails at its end.
        let Some(begun) = exporter.begun.get() else { return Ok(()) };
        if is_superseded || header.lamports == 0 || !filter.allows(header, data) {
            return Ok(());
        }
        let slot = begun.storage_slot(storage);
        let is_parsed = filter.selects_tokens() || exporter.wants(Table::TokenAccounts) || exporter.wants(Table::Mints);
        let token = if is_parsed { parse_token(header, data) } else { None };
        let mut is_known = token != Some(TokenData::Unknown);
        if filter.allows_token(header, &token) {
            for batch in &mut self.batches {
                is_known &= exporter.push(batch, record, &token, begun, slot)?;
                if batch.rows.is_full() {
                    exporter.write(batch)?;
                }
            }
        }
        exporter.unparsed.fetch_add(u64::from(!is_known), Relaxed);
        Ok(())
    }
}

fn read_stake_rules(facts: &StateFacts<'_>) -> Result<StakeRules> {
    let data = |address: [u8; 32]| {
        facts.well_known.get(&address).map(|account| &*account.data).filter(|data| !data.is_empty())
    };
    let history = data(STAKE_HISTORY).map_or_else(|| Ok(StakeHistory::new()), parse_stake_history)?;
    let reduced = data(REDUCED_STAKE_CHANGES).and_then(|feature| parse_feature(feature).ok().flatten());
    let reduced_from = reduced.map(|slot| facts.bank.epoch_at(slot));
    Ok(StakeRules { epoch: facts.bank.epoch(), history, reduced_from })
}

impl Drop for ExportWorker<'_, '_, '_> {
    fn drop(&mut self) {
        self.exporter.idle.lock().push(std::mem::take(&mut self.batches));
    }
}
