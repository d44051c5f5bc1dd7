//! The tables, and batches of their rows.

use std::sync::Arc;

use arrow_schema::{Field, Schema, SchemaRef};
use serde::Serialize;
use slotpress_base::{Error, Result};
use slotpress_format::ledger::programs::TOKEN_2022;
use slotpress_format::{Address, Extensions, RecordHeader, TokenAccount, extension_name};

use super::cells::{AddressTexts, push_cell};
use super::parts::{GROUP_BYTES, GROUP_ROWS};
use super::rows::{address_cell, text_cell};
use super::schema::{CHANGE, Column, DATA};
use super::sort::SortRun;
use super::{DataPart, ExportOptions};

/// A table of accounts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Table {
    /// All accounts of the state.
    Accounts,
    /// Token accounts of the programs Token and Token-2022, with their fields.
    TokenAccounts,
    /// Mints of these programs, with Token-2022's own metadata.
    Mints,
    /// Stake accounts, with their stake in the state's epoch.
    Stakes,
    /// Vote accounts, with their fields.
    Votes,
    /// Programs, with a hash of their code.
    Programs,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Cell<'a> {
    Null,
    Address(&'a [u8; 32]),
    Integer(i64),
    Amount(u64),
    Boolean(bool),
    Text(&'a str),
    Bytes(&'a [u8]),
    /// Three numbers of 8 bytes for each epoch: the epoch, and the credits at its end and at its start.
    Credits(&'a [u8]),
}

/// Cell for the change of a row that only the new state has.
pub(super) const ADDED: Cell<'static> = Cell::Text("added");

impl Table {
    /// Returns the name of the table in paths and SQL.
    pub fn name(self) -> &'static str {
        match self {
            Self::Accounts => "accounts",
            Self::TokenAccounts => "token_accounts",
            Self::Mints => "mints",
            Self::Stakes => "stakes",
            Self::Votes => "votes",
            Self::Programs => "programs",
        }
    }

    /// Returns the columns that the table has in an export with these options.
    pub(super) fn exported_columns(self, options: &ExportOptions) -> Vec<Column> {
        let mut columns = self.columns().to_vec();
        if options.has_change_column() {
            columns.insert(self.key_column_count(), CHANGE);
        }
        if self == Self::Accounts && options.data != DataPart::None {
            columns.push(DATA);
        }
        columns
    }

    /// Returns the number of columns by which rows are sorted: the first ones, up to and including the
    /// address.
    pub(super) fn key_column_count(self) -> usize {
        let address = self.columns().iter().position(|column| column.name == "address");
        address.map_or(0, |number| number + 1)
    }

    pub(super) fn schema(self, options: &ExportOptions) -> SchemaRef {
        let columns = self.exported_columns(options).into_iter();
        let fields = columns.map(|column| Field::new(column.name, column.kind.data_type(), column.is_nullable));
        Arc::new(Schema::new(fields.collect::<Vec<_>>()))
    }

    pub(super) fn csv_header(self, options: &ExportOptions) -> String {
        let columns = self.exported_columns(options);
        let names: Vec<&str> = columns.iter().map(|column| column.name).collect();
        names.join(",") + "\n"
    }
}

pub(super) struct RowBatch {
    pub table: Table,
    key_column_count: usize,
    data: DataPart,
    /// Cell after the key of each row; `None` in CSV.
    change: Option<Cell<'static>>,
    pub rows: SortRun,
    /// Number of accounts with a truncated extension.
    pub cut_off_extensions: u64,
    /// A cache for each column of the key; empty if rows are not sorted.
    texts: Vec<AddressTexts>,
}

impl RowBatch {
    pub fn new(table: Table, options: &ExportOptions, change: Option<Cell<'static>>) -> Self {
        let key_column_count = table.key_column_count();
        let row_bytes_max = options.row_bytes_max(table);
        let is_sorted = options.is_sorted(table);
        let rows = if is_sorted {
            SortRun::new(options.run_bytes(), usize::MAX, row_bytes_max)
        } else {
            SortRun::new(GROUP_BYTES as u64, GROUP_ROWS, row_bytes_max)
        };
        let text_columns = if is_sorted { key_column_count } else { 0 };
        let texts = (0..text_columns).map(|_| AddressTexts::new()).collect();
        Self { table, key_column_count, data: options.data, change, rows, cut_off_extensions: 0, texts }
    }

    pub fn push_account(&mut self, header: &RecordHeader, data: &[u8], slot: Option<u64>) -> Result<()> {
        let row = [
            Cell::Address(&header.owner),
            Cell::Address(&header.pubkey),
            lamports_cell(header)?,
            storage_slot_cell(slot, &header.pubkey)?,
            integer_cell("data length", data.len() as u64, &header.pubkey)?,
            Cell::Boolean(header.executable == 1),
        ];
        match self.data.select(data) {
            None => self.push(&row),
            Some(data) => self.push(&[&row[..], &[Cell::Bytes(data)]].concat()),
        }
        Ok(())
    }

    pub fn push_token(&mut self, header: &RecordHeader, account: &TokenAccount<'_>, slot: Option<u64>) -> Result<()> {
        let names = self.extension_names(account.extensions);
        let row = [
            Cell::Address(&account.mint),
            Cell::Address(&header.pubkey),
            Cell::Address(&account.owner),
            Cell::Address(&header.owner),
            Cell::Amount(account.amount),
            address_cell(account.delegate.as_ref()),
            Cell::Amount(account.delegated_amount),
            Cell::Text(if account.is_frozen { "frozen" } else { "initialized" }),
            Cell::Boolean(account.native_reserve.is_some()),
            address_cell(account.close_authority.as_ref()),
            text_cell((header.owner == TOKEN_2022).then_some(names.as_str())),
            lamports_cell(header)?,
            storage_slot_cell(slot, &header.pubkey)?,
        ];
        self.push(&row);
        Ok(())
    }

    /// Returns the names of extensions, up to one that is truncated, which is counted.
    pub(super) fn extension_names(&mut self, extensions: Extensions<'_>) -> String {
        let mut names = String::new();
        for extension in extensions {
            let Ok((kind, _)) = extension else {
                self.cut_off_extensions += 1;
                break;
            };
            // Limit the length, because a hostile account may repeat an extension.
            if names.len() < EXTENSIONS_CHARS_MAX {
                names.push_str(if names.is_empty() { "" } else { " " });
                match extension_name(kind) {
                    Some(name) => names.push_str(name),
                    None => names.push_str(&format!("extension{kind}")),
                }
            }
        }
        names
    }

    pub(super) fn push(&mut self, row: &[Cell<'_>]) {
        let (key, rest) = row.split_at(self.key_column_count.min(row.len()));
        let change = self.change;
        let texts = &mut self.texts;
        self.rows.push(|row| {
            for (column, cell) in key.iter().chain(&change).chain(rest).enumerate() {
                push_cell(row, *cell, texts.get_mut(column));
            }
        });
    }
}

/// Length at which no more names are added to an account's list of extensions: enough for each of them once.
const EXTENSIONS_CHARS_MAX: usize = 512;

pub(super) fn lamports_cell<'a>(header: &RecordHeader) -> Result<Cell<'a>> {
    integer_cell("balance in lamports", header.lamports, &header.pubkey)
}

pub(super) fn storage_slot_cell<'a>(slot: Option<u64>, account: &[u8; 32]) -> Result<Cell<'a>> {
    slot.map_or(Ok(Cell::Null), |slot| integer_cell("storage slot", slot, account))
}

/// Returns a cell for a number of an account. Fails if the number is too large for a signed integer.
fn integer_cell<'a>(noun: &str, number: u64, account: &[u8; 32]) -> Result<Cell<'a>> {
    i64::try_from(number).map(Cell::Integer).map_err(|_| {
        let account = Address(*account);
        let message = format!("the {noun} of account {account} is {number}: a column of int64 ends at {}", i64::MAX);
        Error::failed(message)
            .with_hint("the state is not damaged; exclude the account with a filter, such as by owner")
    })
}

/// Returns the error for rows that the Parquet library refuses.
pub(super) fn not_written_error(error: &dyn std::error::Error) -> Error {
    Error::failed(format!("rows cannot be written: {error}"))
}
