//! Checks each archive after it was unpacked, and the state after the last one.

use std::collections::HashSet;

use slotpress_base::{Error, ErrorKind, EscapePath, Result, Stage, hint};
use slotpress_format::{BankFile, GENESIS_FILE_NAME, Genesis};
use slotpress_read::{
    AccountsPass, Assurance, Failures, PairMember, Rule, StateBuilder, Task, judge_expected, judge_pair,
};

use crate::restore::TargetOptions;
use crate::restore::input::{ArchiveToRestore, RestoreInput};
use crate::restore::unpack::{UnpackedArchive, Unpacker};

impl ArchiveToRestore {
    /// Judges whether this archive builds on the full archive that was unpacked before, if any. `bank` is the
    /// bank file of this archive, if it has been read.
    pub fn judge_pair(&self, full: Option<(&Self, &UnpackedArchive)>, bank: Option<&BankFile>) -> Result<()> {
        let Some((full, unpacked)) = full else { return Ok(()) };
        let full = PairMember::from_archive(&full.archive, Some(&unpacked.bank));
        let incremental = PairMember::from_archive(&self.archive, bank);
        judge_pair(full, incremental, &Failures::strict())
    }
}

impl Unpacker<'_> {
    pub fn check_state(&self, newest: &UnpackedArchive, input: &RestoreInput<'_>) -> Result<Assurance> {
        let bank = &newest.bank;
        let mut accounts = None;
        if let Some(state) = &self.state {
            let checked = self.check_accounts(state, bank);
            accounts = Some(checked.map_err(|error| hint_at_full_archive(error, input))?);
        }
        let check = &self.job.options.check;
        judge_expected(check, bank.slot, bank.snapshot_hash(), &Failures::strict())?;
        let has_index = input.archives().all(|archive| archive.tail.is_some());
        Ok(Assurance::new(accounts, has_index))
    }

    /// Compares the state in the unpacked storages with the bank file. Returns the number of accounts.
    fn check_accounts(&self, state: &StateBuilder, bank: &BankFile) -> Result<u64> {
        let progress = self.job.progress;
        let threads = self.job.options.threads;
        let failures = &Failures::with_refused(Rule::is_refused);
        let read_again = &mut |task: Task<'_>, _: &HashSet<u32>| {
            progress.stage(Stage::Subtracting, None);
            let Task::Subtract(superseded) = task else { return Ok(()) };
            if !superseded.duplicates.is_empty() {
                let error = Error::damaged("an account occurs twice in one storage");
                return Err(error.with_hint(hint::USE_VERIFY));
            }
            self.read_superseded(superseded, &AccountsPass::new(state, failures, task))
        };
        state.require_state(bank, failures, threads, progress, read_again)
    }
}

fn hint_at_full_archive(error: Error, input: &RestoreInput<'_>) -> Error {
    match input.opened.as_slice() {
        [only] if only.archive.name.is_none() && error.kind() == ErrorKind::Damaged => {
            error.with_hint("if it is an incremental archive, pass its full archive first")
        }
        _ => error,
    }
}

/// If genesis blocks are known, refuses an archive of a chain that began with a different genesis block:
/// Agave would not start. Ignores an unreadable genesis in the ledger, which the validator reports.
pub fn check_chain(bank: &BankFile, options: &TargetOptions) -> Result<()> {
    let path = options.paths.ledger.join(GENESIS_FILE_NAME);
    let mut known = options.genesis.clone();
    let mut place = "the genesis that was fetched".to_string();
    if known.is_empty() {
        known.extend(Genesis::read(&path));
        place = path.escaped();
    }
    if known.is_empty() || known.iter().any(|genesis| genesis.matches(bank)) {
        return Ok(());
    }
    Err(Error::damaged(format!("the archive is from a different chain than {place}"))
        .with_hint("use archives and a genesis of one cluster; genesis.bin in the ledger shows which cluster it is"))
}
