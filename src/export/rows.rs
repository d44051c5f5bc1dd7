//! Rows of the tables of mints, stakes, votes and programs. Their cells are in the order of the columns in
//! `schema`.

use sha2::{Digest, Sha256};
use slotpress_base::Result;
use slotpress_format::ledger::activation::StakeRules;
use slotpress_format::ledger::programs::TOKEN_2022;
use slotpress_format::{Delegation, LoaderAccount, Mint, RecordHeader, StakeAccount, VoteState};

use super::filter::to_hex;
use super::table::{Cell, RowBatch, lamports_cell, storage_slot_cell};

/// Returns a cell that is null if there is no number, or if the number exceeds `i64::MAX`.
fn optional_integer_cell<'a>(number: Option<u64>) -> Cell<'a> {
    let number = number.and_then(|number| i64::try_from(number).ok());
    number.map_or(Cell::Null, Cell::Integer)
}

pub(super) fn address_cell(key: Option<&[u8; 32]>) -> Cell<'_> {
    key.map_or(Cell::Null, Cell::Address)
}

pub(super) fn text_cell(text: Option<&str>) -> Cell<'_> {
    text.map_or(Cell::Null, Cell::Text)
}

impl RowBatch {
    pub fn push_mint(&mut self, header: &RecordHeader, mint: &Mint<'_>, slot: Option<u64>) -> Result<()> {
        let names = self.extension_names(mint.extensions);
        let metadata = mint.metadata();
        self.push(&[
            Cell::Address(&header.pubkey),
            Cell::Address(&header.owner),
            Cell::Integer(mint.decimals.into()),
            Cell::Amount(mint.supply),
            address_cell(mint.mint_authority.as_ref()),
            address_cell(mint.freeze_authority.as_ref()),
            Cell::Boolean(mint.is_initialized),
            text_cell((header.owner == TOKEN_2022).then_some(names.as_str())),
            text_cell(metadata.map(|metadata| metadata.name)),
            text_cell(metadata.map(|metadata| metadata.symbol)),
            text_cell(metadata.map(|metadata| metadata.uri)),
            lamports_cell(header)?,
            storage_slot_cell(slot, &header.pubkey)?,
        ]);
        Ok(())
    }

    /// Adds a row to the table of stakes. Returns false if the account cannot be parsed.
    pub fn push_stake(
        &mut self,
        header: &RecordHeader,
        data: &[u8],
        rules: &StakeRules,
        slot: Option<u64>,
    ) -> Result<bool> {
        let Some(account) = StakeAccount::parse(data) else { return Ok(false) };
        let (state, meta) = match &account {
            StakeAccount::Uninitialized => ("uninitialized", None),
            StakeAccount::Initialized(meta) => ("initialized", Some(meta)),
            StakeAccount::Delegated { meta, .. } => ("delegated", Some(meta)),
            StakeAccount::RewardsPool => ("rewardsPool", None),
        };
        let (delegation, credits) = match &account {
            StakeAccount::Delegated { delegation, credits_observed, .. } => (Some(delegation), Some(*credits_observed)),
            _ => (None, None),
        };
        let voter = delegation.map(Delegation::voter);
        let stake = delegation.map(Delegation::stake);
        let in_epoch = stake.as_ref().map(|stake| stake.activation(rules)).unwrap_or_default();
        let amount = |amount: Option<u64>| amount.map_or(Cell::Null, Cell::Amount);
        self.push(&[
            address_cell(voter.as_ref()),
            Cell::Address(&header.pubkey),
            Cell::Text(state),
            address_cell(meta.map(|meta| &meta.staker)),
            address_cell(meta.map(|meta| &meta.withdrawer)),
            meta.map_or(Cell::Null, |meta| Cell::Integer(meta.lockup_timestamp)),
            amount(meta.map(|meta| meta.lockup_epoch)),
            address_cell(meta.map(|meta| &meta.lockup_custodian)),
            amount(meta.map(|meta| meta.rent_exempt_reserve)),
            amount(stake.as_ref().map(|stake| stake.lamports)),
            optional_integer_cell(stake.as_ref().map(|stake| stake.activation_epoch)),
            optional_integer_cell(stake.as_ref().map(|stake| stake.deactivation_epoch)),
            amount(credits),
            Cell::Amount(in_epoch.effective),
            Cell::Amount(in_epoch.activating),
            Cell::Amount(in_epoch.deactivating),
            lamports_cell(header)?,
            storage_slot_cell(slot, &header.pubkey)?,
        ]);
        Ok(true)
    }

    /// Adds a row to the table of votes, unless the account is not initialized. Returns false if the account
    /// cannot be parsed.
    pub fn push_vote(&mut self, header: &RecordHeader, data: &[u8], epoch: u64, slot: Option<u64>) -> Result<bool> {
        let Some(state) = VoteState::parse(data) else { return Ok(data.starts_with(&[0; 4])) };
        let voter = state.authorized_voter(epoch);
        let v4 = state.v4.as_ref();
        self.push(&[
            Cell::Address(&header.pubkey),
            Cell::Text(state.version),
            Cell::Address(&state.node),
            address_cell(voter.as_ref()),
            Cell::Address(&state.authorized_withdrawer),
            Cell::Integer(state.commission_bps.into()),
            v4.map_or(Cell::Null, |fields| Cell::Integer(fields.block_revenue_commission_bps.into())),
            address_cell(v4.map(|fields| &fields.inflation_rewards_collector)),
            address_cell(v4.map(|fields| &fields.block_revenue_collector)),
            v4.and_then(|fields| fields.bls_key.as_ref()).map_or(Cell::Null, |key| Cell::Bytes(key)),
            optional_integer_cell(state.root_slot),
            optional_integer_cell(state.last_vote_slot),
            Cell::Credits(state.epoch_credits),
            lamports_cell(header)?,
            storage_slot_cell(slot, &header.pubkey)?,
        ]);
        Ok(true)
    }

    /// Adds a row to the table of programs, if the account is a program or contains a program's code.
    /// Returns false if the loader that owns the account cannot have written its data.
    pub fn push_program(&mut self, header: &RecordHeader, data: &[u8], slot: Option<u64>) -> Result<bool> {
        let (programdata, code) = match LoaderAccount::parse(&header.owner, header.executable == 1, data) {
            None => return Ok(false),
            Some(LoaderAccount::Other) => return Ok(true),
            Some(LoaderAccount::Program(programdata)) => (Some(programdata), None),
            Some(LoaderAccount::Code(code)) => (None, Some(code)),
        };
        let sha256 = code.map(|code| to_hex(&Sha256::digest(code.code)));
        self.push(&[
            Cell::Address(&header.pubkey),
            Cell::Address(&header.owner),
            address_cell(programdata.as_ref()),
            address_cell(code.as_ref().and_then(|code| code.upgrade_authority.as_ref())),
            optional_integer_cell(code.and_then(|code| code.deploy_slot)),
            optional_integer_cell(code.map(|code| code.code.len() as u64)),
            text_cell(sha256.as_deref()),
            lamports_cell(header)?,
            storage_slot_cell(slot, &header.pubkey)?,
        ]);
        Ok(true)
    }
}
