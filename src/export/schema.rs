//! The columns of each table. No column is unsigned, because no unsigned type is common to all engines and
//! table formats.

use std::sync::Arc;

use ColumnKind::{Address, Amount, Boolean, Bytes, Credits, Integer, Text};
use arrow_schema::{DataType, Field, Fields};

use super::table::Table;

#[derive(Clone, Copy, Debug)]
pub(super) struct Column {
    pub name: &'static str,
    pub kind: ColumnKind,
    pub is_nullable: bool,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum ColumnKind {
    Address,
    Text,
    Integer,
    /// Numbers that may be too large for a signed 64-bit integer.
    Amount,
    Boolean,
    Bytes,
    Credits,
}

const fn column(name: &'static str, kind: ColumnKind) -> Column {
    Column { name, kind, is_nullable: false }
}

const fn nullable(name: &'static str, kind: ColumnKind) -> Column {
    Column { name, kind, is_nullable: true }
}

impl Table {
    /// Returns the columns that the table has in any export.
    #[rustfmt::skip]
    pub(super) fn columns(self) -> &'static [Column] {
        match self {
            Self::Accounts => const { &[
                column("owner", Address), column("address", Address), column("lamports", Integer),
                nullable("storage_slot", Integer), column("data_length", Integer), column("executable", Boolean),
            ] },
            Self::TokenAccounts => const { &[
                column("mint", Address), column("address", Address), column("owner", Address),
                column("token_program", Address), column("amount", Amount), nullable("delegate", Address),
                column("delegated_amount", Amount), column("state", Text), column("is_native", Boolean),
                nullable("close_authority", Address), nullable("extensions", Text), column("lamports", Integer),
                nullable("storage_slot", Integer),
            ] },
            Self::Mints => const { &[
                column("address", Address), column("token_program", Address), column("decimals", Integer),
                column("supply", Amount), nullable("mint_authority", Address), nullable("freeze_authority", Address),
                column("is_initialized", Boolean), nullable("extensions", Text), nullable("name", Text),
                nullable("symbol", Text), nullable("uri", Text), column("lamports", Integer),
                nullable("storage_slot", Integer),
            ] },
            Self::Stakes => const { &[
                nullable("voter", Address), column("address", Address), column("state", Text),
                nullable("staker", Address), nullable("withdrawer", Address), nullable("lockup_timestamp", Integer),
                nullable("lockup_epoch", Amount), nullable("lockup_custodian", Address),
                nullable("rent_exempt_reserve", Amount), nullable("delegated_lamports", Amount),
                nullable("activation_epoch", Integer), nullable("deactivation_epoch", Integer),
                nullable("credits_observed", Amount), column("effective_lamports", Amount),
                column("activating_lamports", Amount), column("deactivating_lamports", Amount),
                column("lamports", Integer), nullable("storage_slot", Integer),
            ] },
            Self::Votes => const { &[
                column("address", Address), column("version", Text), column("node", Address),
                nullable("authorized_voter", Address), column("authorized_withdrawer", Address),
                column("commission_bps", Integer), nullable("block_revenue_commission_bps", Integer),
                nullable("inflation_rewards_collector", Address), nullable("block_revenue_collector", Address),
                nullable("bls_key", Bytes), nullable("root_slot", Integer), nullable("last_vote_slot", Integer),
                column("epoch_credits", Credits), column("lamports", Integer), nullable("storage_slot", Integer),
            ] },
            Self::Programs => const { &[
                column("address", Address), column("loader", Address), nullable("programdata_address", Address),
                nullable("upgrade_authority", Address), nullable("deploy_slot", Integer),
                nullable("code_length", Integer), nullable("code_sha256", Text), column("lamports", Integer),
                nullable("storage_slot", Integer),
            ] },
        }
    }
}

/// Follows the address in files.
pub(super) const CHANGE: Column = column("change", Text);
/// Last column of the table of accounts, if data is exported.
pub(super) const DATA: Column = column("data", Bytes);

/// Decimal type with enough digits for the largest `u64`.
pub(super) const AMOUNT: DataType = DataType::Decimal128(20, 0);

impl ColumnKind {
    pub fn data_type(self) -> DataType {
        match self {
            Address | Text => DataType::Utf8,
            Integer => DataType::Int64,
            Amount => AMOUNT,
            Boolean => DataType::Boolean,
            Bytes => DataType::Binary,
            Credits => DataType::List(Arc::new(credits_element())),
        }
    }
}

/// Returns the field for an item of a list of credits.
pub(super) fn credits_element() -> Field {
    Field::new("element", DataType::Struct(credits_fields()), false)
}

/// Returns the fields of an epoch's credits. The epoch is null where the list marks the change to Alpenglow.
pub(super) fn credits_fields() -> Fields {
    Fields::from(vec![
        Field::new("epoch", DataType::Int64, true),
        Field::new("credits", AMOUNT, false),
        Field::new("previous_credits", AMOUNT, false),
    ])
}
