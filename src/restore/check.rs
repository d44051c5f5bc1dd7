//! Checks each archive after it was unpacked, and the state after the last one.

use std::collections::HashSet;

use slotpress_base::{Error, ErrorKind, EscapePath, Result, Stage, hint};
use slotpress_format::{BankFile, GENESIS_FILE_NAME, Genesis};
use slotpress_read::{
    AccountsPass, Assurance, Failures, PairMember, Rule, StateBuilder, Task, judge_expected, judge_pair,
};

use crate::restore::TargetOptions;
use crate::restore::input::{Opened, RestoreInput};
use crate::restore::unpack::{Unpacked, Unpacker};

impl Opened {
    /// Judges whether this archive belongs to the full one that was unpacked before it. `bank` is the
    /// bank file of this archive, once it was read.
    pub fn judge_pair(&self, full: Option<(&Self, &Unpacked)>, bank: Option<&BankFile>) -> Result<()> {
        let Some((opened, full)) = full else { return Ok(()) };
        let full = PairMember::from_archive(&opened.archive, Some(&full.bank));
        judge_pair(full, PairMember::from_archive(&self.archive, bank), &Failures::strict())
    }
}

impl Unpacker<'_> {
    pub fn check_state(&self, newest: &Unpacked, input: &RestoreInput<'_>) -> Result<Assurance> {
        let accounts = match &self.state {
            Some(state) => Some(self.read_state(state, &newest.bank).map_err(|error| explain(error, input))?),
            None => None,
        };
        let check = &self.run.options.check;
        judge_expected(check, newest.bank.slot, newest.bank.snapshot_hash(), &Failures::strict())?;
        let has_index = input.archives().all(|archive| archive.tail.is_some());
        Ok(Assurance::new(accounts, has_index))
    }

    /// Compares the accounts that were unpacked with the bank file. Returns their number.
    fn read_state(&self, state: &StateBuilder, bank: &BankFile) -> Result<u64> {
        let progress = self.run.progress;
        let threads = self.run.options.threads;
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

fn explain(error: Error, input: &RestoreInput<'_>) -> Error {
    match input.opened.as_slice() {
        [Opened { archive, .. }] if archive.name.is_none() && error.kind() == ErrorKind::Damaged => {
            error.with_hint("if it is an incremental archive, give its full archive first")
        }
        _ => error,
    }
}

/// Refuses an archive whose chain did not begin with the known genesis, if one is known: Agave
/// compares the two, and would not start. A genesis in the ledger that cannot be read is left to
/// the validator.
pub fn check_chain(bank: &BankFile, options: &TargetOptions) -> Result<()> {
    let path = options.paths.ledger.join(GENESIS_FILE_NAME);
    let (known, shown) = if options.genesis.is_empty() {
        (Genesis::read(&path).into_iter().collect(), path.escaped())
    } else {
        (options.genesis.clone(), "the genesis that was fetched".to_string())
    };
    if known.is_empty() || known.iter().any(|genesis| genesis.matches(bank)) {
        return Ok(());
    }
    Err(Error::damaged(format!("the archive is of another chain than {shown}"))
        .with_hint("take archives and genesis of one cluster; genesis.bin in the ledger says which cluster that is"))
}
