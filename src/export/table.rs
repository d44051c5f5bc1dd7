//! Columns of tables, and batches of rows. No column is unsigned: engines and table formats have no
//! unsigned type in common.

use std::sync::Arc;

use arrow_schema::{DataType, Field, Fields, Schema, SchemaRef};
use serde::Serialize;
use slotpress_base::{Error, Result};
use slotpress_format::ledger::programs::TOKEN_2022;
use slotpress_format::{Address, Extensions, RecordHeader, TokenAccount, extension_name};

use super::cells::{AddressTexts, push_cell};
use super::parts::{GROUP_BYTES, GROUP_ROWS};
use super::rows::{self, address_cell, text_cell};
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
    /// For each epoch three numbers of 8 bytes: the epoch, and the credits at its end and at its start.
    Credits(&'a [u8]),
}

/// Cell for the change of a row that the older state does not have.
pub(super) const ADDED: Cell<'static> = Cell::Text("added");

#[derive(Clone, Copy)]
pub(super) struct Column {
    pub name: &'static str,
    kind: &'static str,
    nullable: bool,
}

impl Column {
    /// Parses a name and a type, which ends with `?` if the column may be null. The type `amount` is for
    /// numbers that may be too large for a signed 64-bit integer.
    fn parse(column: &'static str) -> Self {
        let (name, kind) = column.split_once(':').unwrap_or((column, ""));
        let not_null = kind.trim_end_matches('?');
        Self { name, kind: not_null, nullable: kind != not_null }
    }
}

const ACCOUNTS: &str = "owner:address address:address lamports:integer storage_slot:integer? data_length:integer
    executable:boolean";

const TOKEN_ACCOUNTS: &str = "mint:address address:address owner:address token_program:address amount:amount
    delegate:address? delegated_amount:amount state:text is_native:boolean close_authority:address? extensions:text?
    lamports:integer storage_slot:integer?";

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

    /// Returns the columns that the table has in any export.
    pub(super) fn columns(self) -> impl Iterator<Item = Column> {
        let columns = match self {
            Self::Accounts => ACCOUNTS,
            Self::TokenAccounts => TOKEN_ACCOUNTS,
            Self::Mints => rows::MINTS,
            Self::Stakes => rows::STAKES,
            Self::Votes => rows::VOTES,
            Self::Programs => rows::PROGRAMS,
        };
        columns.split_whitespace().map(Column::parse)
    }

    /// Returns the columns that the table has in an export with these options.
    fn exported_columns(self, options: &ExportOptions) -> Vec<Column> {
        let has_change_column = options.has_change_column();
        let has_data = self == Self::Accounts && options.data != DataPart::None;
        let mut columns = Vec::new();
        for column in self.columns() {
            let is_address = column.name == "address";
            columns.push(column);
            if is_address && has_change_column {
                columns.push(Column::parse("change:text"));
            }
        }
        if has_data {
            columns.push(Column::parse("data:bytes"));
        }
        columns
    }

    /// Returns the number of columns by which rows are sorted: the first ones, up to and including the
    /// address.
    pub(super) fn key_column_count(self) -> usize {
        let address = self.columns().position(|column| column.name == "address");
        address.map_or(0, |number| number + 1)
    }

    pub(super) fn schema(self, options: &ExportOptions) -> SchemaRef {
        let fields = self.exported_columns(options).into_iter().map(|column| {
            let kind = match column.kind {
                "address" | "text" => DataType::Utf8,
                "integer" => DataType::Int64,
                "amount" => AMOUNT,
                "boolean" => DataType::Boolean,
                "credits" => DataType::List(Arc::new(Field::new("element", DataType::Struct(credits_fields()), false))),
                _ => DataType::Binary,
            };
            Field::new(column.name, kind, column.nullable)
        });
        Arc::new(Schema::new(fields.collect::<Vec<_>>()))
    }

    pub(super) fn csv_header(self, options: &ExportOptions) -> String {
        let columns = self.exported_columns(options);
        let names: Vec<&str> = columns.iter().map(|column| column.name).collect();
        names.join(",") + "\n"
    }
}

/// Decimal type with enough digits for the largest `u64`.
const AMOUNT: DataType = DataType::Decimal128(20, 0);

/// Fields of an epoch's credits. The epoch is null where the list marks the change to Alpenglow.
pub(super) fn credits_fields() -> Fields {
    Fields::from(vec![
        Field::new("epoch", DataType::Int64, true),
        Field::new("credits", AMOUNT, false),
        Field::new("previous_credits", AMOUNT, false),
    ])
}

pub(super) struct RowBatch {
    pub table: Table,
    key_column_count: usize,
    data: DataPart,
    /// Cell after the key of each row; `None` in CSV.
    change: Option<Cell<'static>>,
    pub rows: SortRun,
    /// For each column of the key, the texts of its addresses; empty if rows are not sorted.
    texts: Vec<AddressTexts>,
}

impl RowBatch {
    /// Creates an empty batch. If the rows of two states are sorted together, `is_new` is true for rows
    /// of the new state.
    pub fn new(table: Table, options: &ExportOptions, is_new: Option<bool>) -> Self {
        let key_column_count = table.key_column_count();
        let row_bytes_max = options.row_bytes_max(table);
        let is_sorted = options.is_sorted(table);
        let added = options.has_change_column().then_some(ADDED);
        let change = is_new.map(Cell::Boolean).or(added);
        let rows = if is_sorted {
            SortRun::new(options.run_bytes(), usize::MAX, row_bytes_max)
        } else {
            SortRun::new(GROUP_BYTES as u64, GROUP_ROWS, row_bytes_max)
        };
        let text_columns = if is_sorted { key_column_count } else { 0 };
        let texts = (0..text_columns).map(|_| AddressTexts::new()).collect();
        Self { table, key_column_count, data: options.data, change, rows, texts }
    }

    pub fn push_account(&mut self, header: &RecordHeader, data: &[u8], slot: Option<u64>) -> Result<()> {
        let row = [
            Cell::Address(&header.owner),
            Cell::Address(&header.pubkey),
            integer_cell("lamports", header.lamports, &header.pubkey)?,
            storage_slot_cell(slot, &header.pubkey)?,
            integer_cell("bytes of data", data.len() as u64, &header.pubkey)?,
            Cell::Boolean(header.executable == 1),
        ];
        match self.data.select(data) {
            None => self.push(&row),
            Some(data) => self.push(&[&row[..], &[Cell::Bytes(data)]].concat()),
        }
        Ok(())
    }

    /// Adds a row of the table of token accounts. Returns true if an extension is truncated.
    pub fn push_token(&mut self, header: &RecordHeader, account: &TokenAccount<'_>, slot: Option<u64>) -> Result<bool> {
        let (names, is_truncated) = extension_names(account.extensions);
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
            integer_cell("lamports", header.lamports, &header.pubkey)?,
            storage_slot_cell(slot, &header.pubkey)?,
        ];
        self.push(&row);
        Ok(is_truncated)
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

/// Limit on the length of an account's list of extensions: enough for each extension once.
const EXTENSIONS_CHARS_MAX: usize = 512;

/// Returns the names of extensions, and true if one is truncated.
pub(super) fn extension_names(extensions: Extensions<'_>) -> (String, bool) {
    let mut names = String::new();
    for extension in extensions {
        let Ok((kind, _)) = extension else { return (names, true) };
        // Bounded, because a hostile account may repeat an extension.
        if names.len() < EXTENSIONS_CHARS_MAX {
            names.push_str(if names.is_empty() { "" } else { " " });
            match extension_name(kind) {
                Some(name) => names.push_str(name),
                None => names.push_str(&format!("extension{kind}")),
            }
        }
    }
    (names, false)
}

pub(super) fn storage_slot_cell<'a>(slot: Option<u64>, account: &[u8; 32]) -> Result<Cell<'a>> {
    slot.map_or(Ok(Cell::Null), |slot| integer_cell("storage slot", slot, account))
}

/// Returns a cell for a number of an account. Fails if the number is too large for a signed integer.
pub(super) fn integer_cell<'a>(noun: &str, number: u64, account: &[u8; 32]) -> Result<Cell<'a>> {
    i64::try_from(number).map(Cell::Integer).map_err(|_| {
        let account = Address(*account);
        Error::failed(format!("the account {account} has {number} {noun}: a column of int64 ends at {}", i64::MAX))
            .with_hint("the state is not damaged; leave the account out by a filter, such as by its owner")
    })
}

/// Makes the error for rows that the writer of the file format does not accept.
pub(super) fn not_written_error(error: &dyn std::error::Error) -> Error {
    Error::failed(format!("rows cannot be written: {error}"))
}
