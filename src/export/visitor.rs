//! Visits the accounts of a state: decides which tables have a row for an account, and collects rows
//! in batches.

use std::io::Write;
use std::path::Path;
use std::sync::OnceLock;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use parking_lot::Mutex;
use parquet::file::metadata::KeyValue;
use slotpress_base::{Error, IoContext, Progress, Result, text};
use slotpress_format::ledger::activation::{StakeHistory, StakeRules};
use slotpress_format::{
    BankFile, REDUCED_STAKE_CHANGES, Record, STAKE, STAKE_HISTORY, TokenData, VOTE, parse_feature, parse_stake_history,
};
use slotpress_read::{StateFacts, StatePart, StateVisitor, StateWorker, StorageRef, VerifyReport, require_newer_state};

use super::filter::parse_token;
use super::output::{ExportOutput, slot_dir};
use super::parts::{TableWriter, to_csv};
use super::report::{Manifest, TableFields};
use super::table::{ADDED, Cell, RowBatch, Table};
use super::{ExportOptions, RowOrder, SCHEMA_VERSION};

const STANDARD_OUTPUT: &str = "standard output";

pub(super) fn no_bank_error() -> Error {
    Error::damaged("the bank file cannot be read, so the slot of the state is unknown")
}

/// Facts about a state that are known before its first account is read.
struct StateContext {
    bank: BankFile,
    manifest: Manifest,
    parts: Vec<StatePart>,
    stakes: StakeRules,
}

impl StateContext {
    /// Returns the slot in which the accounts of a storage were written; `None` in archives of
    /// Firedancer, which do not record it.
    fn storage_slot(&self, storage: StorageRef) -> Option<u64> {
        let mut parts = self.parts.iter().rev();
        let part = parts.find(|part| part.first_storage <= storage.number)?;
        (!part.is_from_firedancer).then_some(storage.slot)
    }
}

pub(super) struct Exporter<'a, 's> {
    options: &'a ExportOptions,
    output: Option<&'a ExportOutput>,
    writers: Vec<TableWriter<'a>>,
    stream: Option<Mutex<&'s mut (dyn Write + Send + 's)>>,
    progress: &'a dyn Progress,
    old_bank: Option<BankFile>,
    context: OnceLock<StateContext>,
    /// Batches of workers that have ended. New workers continue them.
    idle_batches: Mutex<Vec<Vec<RowBatch>>>,
    unparsed_accounts: AtomicU64,
    streamed_rows: AtomicU64,
    streamed_bytes: AtomicU64,
}

impl<'a, 's> Exporter<'a, 's> {
    pub fn new(
        options: &'a ExportOptions,
        output: Option<&'a ExportOutput>,
        writers: Vec<TableWriter<'a>>,
        stream: Option<Mutex<&'s mut (dyn Write + Send + 's)>>,
        progress: &'a dyn Progress,
    ) -> Self {
        Self {
            options,
            output,
            writers,
            stream,
            progress,
            old_bank: None,
            context: OnceLock::new(),
            idle_batches: Mutex::default(),
            unparsed_accounts: AtomicU64::new(0),
            streamed_rows: AtomicU64::new(0),
            streamed_bytes: AtomicU64::new(0),
        }
    }

    fn write_batch(&self, batch: &mut RowBatch) -> Result<()> {
        let RowBatch { table, rows, .. } = batch;
        if rows.row_count() == 0 {
            return Ok(());
        }
        let Some(stream) = &self.stream else {
            let writer = self.writers.iter().find(|writer| writer.table == *table);
            return writer.map_or(Ok(()), |writer| writer.write(rows));
        };
        let text = to_csv(rows.bytes());
        self.streamed_rows.fetch_add(rows.row_count() as u64, Relaxed);
        rows.clear();
        self.stream_text(&mut **stream.lock(), &text?)
    }

    fn stream_text(&self, stream: &mut (dyn Write + Send), text: &[u8]) -> Result<()> {
        self.streamed_bytes.fetch_add(text.len() as u64, Relaxed);
        let path = Path::new(STANDARD_OUTPUT);
        stream.write_all(text).or_path("write", path)
    }

    /// Writes the remaining rows of the older state. All later rows are from the new state.
    pub fn end_old_state(&mut self) -> Result<()> {
        self.write_idle_batches()?;
        self.old_bank = Some(self.context.take().ok_or_else(no_bank_error)?.bank);
        self.idle_batches.get_mut().clear();
        self.unparsed_accounts = AtomicU64::new(0);
        Ok(())
    }

    /// Completes all files. Returns the manifest, and the fields of each table.
    pub fn finish(mut self, report: &VerifyReport) -> Result<(Manifest, Vec<TableFields>)> {
        self.write_idle_batches()?;
        let mut manifest = self.context.take().ok_or_else(no_bank_error)?.manifest;
        manifest.accounts = report.counts.accounts;
        manifest.unparsed_accounts = *self.unparsed_accounts.get_mut();
        let batches = self.idle_batches.get_mut().iter().flatten();
        manifest.cut_off_extensions = batches.map(|batch| batch.cut_off_extensions).sum();
        if let (Some(stream), Some(table)) = (&self.stream, self.options.tables.first()) {
            let path = Path::new(STANDARD_OUTPUT);
            stream.lock().flush().or_path("write", path)?;
            let mut fields = TableFields::new(*table, RowOrder::Unordered, Vec::new());
            fields.rows = *self.streamed_rows.get_mut();
            fields.bytes = *self.streamed_bytes.get_mut();
            return Ok((manifest, vec![fields]));
        }
        let mut tables = Vec::new();
        for writer in &self.writers {
            let table = writer.table;
            let dir = format!("{}/{}", table.name(), slot_dir(manifest.slot));
            let mut files = writer.finish(self.progress)?;
            for (number, file) in files.iter_mut().enumerate() {
                file.path = format!("{dir}/part-{number:05}.parquet");
            }
            let order = self.options.row_order(table);
            tables.push(TableFields::new(table, order, files));
        }
        Ok((manifest, tables))
    }

    fn write_idle_batches(&self) -> Result<()> {
        for batch in self.idle_batches.lock().iter_mut().flatten() {
            self.write_batch(batch)?;
        }
        Ok(())
    }

    fn wants(&self, table: Table) -> bool {
        self.options.tables.contains(&table)
    }

    /// Adds a row if the account has one in the batch's table. Returns false if the program that owns the
    /// account cannot have written its data.
    fn push_row(
        &self,
        batch: &mut RowBatch,
        record: &Record<'_>,
        token: &Option<TokenData<'_>>,
        context: &StateContext,
        slot: Option<u64>,
    ) -> Result<bool> {
        let header = record.header;
        let data = record.data;
        match (batch.table, token) {
            // With a filter by mint or wallet, the table of accounts has only token accounts.
            (Table::Accounts, Some(TokenData::Mint(_))) if self.options.filter.selects_tokens() => Ok(true),
            (Table::Accounts, _) => batch.push_account(header, data, slot).map(|()| true),
            (Table::TokenAccounts, Some(TokenData::Account(account))) => {
                batch.push_token(header, account, slot).map(|()| true)
            }
            (Table::Mints, Some(TokenData::Mint(mint))) => batch.push_mint(header, mint, slot).map(|()| true),
            (Table::Stakes, _) if header.owner == STAKE => batch.push_stake(header, data, &context.stakes, slot),
            (Table::Votes, _) if header.owner == VOTE => batch.push_vote(header, data, context.stakes.epoch, slot),
            (Table::Programs, _) => batch.push_program(header, data, slot),
            _ => Ok(true),
        }
    }
}

impl StateVisitor for Exporter<'_, '_> {
    fn begin(&self, facts: &StateFacts<'_>) -> Result<()> {
        let options = self.options;
        if let Some(old) = &self.old_bank {
            require_newer_state(old, facts.bank)?;
        }
        let manifest = Manifest::new(facts, self.old_bank.as_ref(), options);
        let is_old = options.since.is_some() && self.old_bank.is_none();
        if let Some(output) = self.output
            && !is_old
        {
            output.check_new_tables(&manifest.to_value(), &options.tables, self.progress)?;
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
        // Footers and context are still empty: only the new state sets footers, and `end_old_state` empties the
        // context.
        let footer = footer.map(|(key, value)| KeyValue::new(key.to_string(), value));
        if !is_old {
            for writer in &self.writers {
                let _ = writer.footer.set(footer.to_vec());
            }
        }
        let has_epochs = self.wants(Table::Stakes) || self.wants(Table::Votes);
        let stakes = if has_epochs { read_stake_rules(facts)? } else { StakeRules::default() };
        let bank = facts.bank.clone();
        let _ = self.context.set(StateContext { bank, manifest, parts: facts.parts.clone(), stakes });
        match (&self.stream, options.tables.first()) {
            (Some(stream), Some(table)) => self.stream_text(&mut **stream.lock(), table.csv_header(options).as_bytes()),
            _ => Ok(()),
        }
    }

    fn new_worker(&self) -> Box<dyn StateWorker + '_> {
        let idle = self.idle_batches.lock().pop();
        let change = if self.options.since.is_some() {
            // True in rows of the new state. `find_changes` replaces this cell.
            Some(Cell::Boolean(self.old_bank.is_some()))
        } else {
            self.options.has_change_column().then_some(ADDED)
        };
        let new_batch = |table: &Table| RowBatch::new(*table, self.options, change);
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
        // Without a bank file, the export fails when it ends.
        let Some(context) = exporter.context.get() else { return Ok(()) };
        if is_superseded || header.lamports == 0 || !filter.allows(header, data) {
            return Ok(());
        }
        let slot = context.storage_slot(storage);
        let needs_token =
            filter.selects_tokens() || exporter.wants(Table::TokenAccounts) || exporter.wants(Table::Mints);
        let token = needs_token.then(|| parse_token(header, data)).flatten();
        let mut is_parsed = token != Some(TokenData::Unknown);
        if filter.allows_token(header, &token) {
            for batch in &mut self.batches {
                is_parsed &= exporter.push_row(batch, record, &token, context, slot)?;
                if batch.rows.is_full() {
                    exporter.write_batch(batch)?;
                }
            }
        }
        exporter.unparsed_accounts.fetch_add(u64::from(!is_parsed), Relaxed);
        Ok(())
    }
}

fn read_stake_rules(facts: &StateFacts<'_>) -> Result<StakeRules> {
    let data_of = |address: [u8; 32]| {
        let data = &*facts.well_known.get(&address)?.data;
        (!data.is_empty()).then_some(data)
    };
    let history = data_of(STAKE_HISTORY).map_or_else(|| Ok(StakeHistory::new()), parse_stake_history)?;
    let reduced = data_of(REDUCED_STAKE_CHANGES).and_then(|feature| parse_feature(feature).ok().flatten());
    let reduced_from = reduced.map(|slot| facts.bank.epoch_at(slot));
    Ok(StakeRules { epoch: facts.bank.epoch(), history, reduced_from })
}

impl Drop for ExportWorker<'_, '_, '_> {
    fn drop(&mut self) {
        let batches = std::mem::take(&mut self.batches);
        self.exporter.idle_batches.lock().push(batches);
    }
}
