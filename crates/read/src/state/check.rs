//! Whether the state of what is restored or recompressed is checked on the way, and what the result rests on.
//!
//! Checksums of frames find damage, and an index or a storage map finds storages that are missing. Neither tells whether
//! the accounts are those that the bank file stands for: who changes an account can write every checksum, index and hash
//! anew. Only the state (capitalization and lattice hash over the newest version of every account) shows that, and so it is
//! always checked, unless [`CheckMode::Frames`] asks to go without. Whose state it is, no archive can prove.

use std::path::{Path, PathBuf};

use derive_setters::Setters;
use serde::{Serialize, Serializer};
use slotpress_base::{Error, Hint, Progress, Result};
use slotpress_format::{BankFile, Hash};

use super::accounts::{Accounts, AccountsPass, Task};
use super::finish::{ReadAgain, StateCounts, finish_check, log_bytes};
use super::spill::spill_dir;
use super::stakes::{FoundAccounts, StakeAccounts};
use crate::rules::documents::judge_expectations;
use crate::{Check, Findings, Rule};

/// What is checked while an archive streams by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CheckMode {
    /// Everything, with the state: that the accounts are those of the bank file.
    #[default]
    State,
    /// Frames, entries and documents only.
    Frames,
}

/// The memory for finding superseded records unless told otherwise, in bytes: the records of mainnet take ten times as
/// much, so that most of them are spilled; half of a validator's memory is not ours to take.
pub const STATE_MEMORY_BYTES_DEFAULT: u64 = 1 << 30;

/// What to check, and what is expected: for verifying, visiting, restoring and recompressing alike.
#[derive(Clone, Debug, Setters)]
#[non_exhaustive]
pub struct CheckOptions {
    /// What is checked.
    pub mode: CheckMode,
    /// The most memory for finding superseded records, in bytes.
    pub memory_bytes: u64,
    /// Where what does not fit is spilled; otherwise beside the output, or where the system has temporary files.
    #[setters(into)]
    pub temporary_dir: Option<PathBuf>,
    /// The snapshot hash that the state must have. Restoring and recompressing check the state then, whatever the mode.
    #[setters(into)]
    pub expect_hash: Option<Hash>,
    /// The slot that the state must have.
    #[setters(into)]
    pub expect_slot: Option<u64>,
    /// The most bytes that archives may unpack to, in bytes of their entries with headers and padding.
    #[setters(into)]
    pub max_bytes: Option<u64>,
}

impl Default for CheckOptions {
    fn default() -> Self {
        Self {
            mode: CheckMode::State,
            memory_bytes: STATE_MEMORY_BYTES_DEFAULT,
            temporary_dir: None,
            expect_hash: None,
            expect_slot: None,
            max_bytes: None,
        }
    }
}

impl CheckOptions {
    /// Where to spill, beside an output or without one.
    #[doc(hidden)]
    pub fn spill_dir(&self, output_dir: Option<&Path>) -> PathBuf {
        self.temporary_dir.clone().unwrap_or_else(|| spill_dir(output_dir))
    }

    /// Whether the state is checked. `is_part`: of an incremental archive without its full one.
    ///
    /// # Errors
    /// It should be, but of an incremental archive alone it cannot be.
    #[doc(hidden)]
    pub fn checks_state(&self, is_part: bool) -> Result<bool> {
        match self.mode {
            CheckMode::Frames if self.expect_hash.is_none() => Ok(false),
            CheckMode::Frames if is_part => Err(incremental_alone().with_hint(Hint::LeaveOutExpectHash)),
            _ if is_part => Err(incremental_alone()),
            _ => Ok(true),
        }
    }
}

/// The error for the state of an incremental archive without its full one.
pub fn incremental_alone() -> Error {
    Error::failed("the state of an incremental archive alone cannot be checked").with_hint(Hint::GiveFullArchive)
}

/// What is known of the state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StateOutcome {
    /// Capitalization and lattice hash are the bank file's.
    Checked {
        /// Accounts in the state.
        accounts: u64,
    },
    /// Not checked, and why.
    NotChecked(String),
}

impl StateOutcome {
    /// Not checked, since that was not asked for.
    pub fn not_asked() -> Self {
        Self::NotChecked("not asked for".to_string())
    }
}

/// What tells that no storage is missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Completeness {
    /// The state: accounts that are missing would be missed.
    ByState,
    /// The bank file's storage map.
    ByMap,
    /// The archive's index.
    ByIndex,
    /// Nothing.
    NotChecked,
}

impl Completeness {
    /// In words: "by …", or "not checked".
    pub fn as_str(self) -> &'static str {
        match self {
            Self::ByState => "by state",
            Self::ByMap => "by map",
            Self::ByIndex => "by index",
            Self::NotChecked => "not checked",
        }
    }
}

impl Serialize for Completeness {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

/// What a result rests on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(into = "AssuranceFields")]
#[non_exhaustive]
pub struct Assurance {
    /// What is known of the state.
    pub state: StateOutcome,
    /// What tells that nothing is missing.
    pub complete: Completeness,
}

impl Assurance {
    /// Of a state that was checked or not, the bank file's storage map, and whether there is an index.
    pub fn new(state: StateOutcome, bank: &BankFile, has_index: bool) -> Self {
        let complete = match &state {
            StateOutcome::Checked { .. } => Completeness::ByState,
            StateOutcome::NotChecked(_) if bank.storage_count > 0 => Completeness::ByMap,
            StateOutcome::NotChecked(_) if has_index => Completeness::ByIndex,
            StateOutcome::NotChecked(_) => Completeness::NotChecked,
        };
        Self { state, complete }
    }
}

/// How it is written down.
#[derive(Serialize)]
struct AssuranceFields {
    state: &'static str,
    state_reason: Option<String>,
    accounts_checked: Option<u64>,
    complete: Completeness,
}

impl From<Assurance> for AssuranceFields {
    fn from(Assurance { state, complete }: Assurance) -> Self {
        match state {
            StateOutcome::Checked { accounts } => {
                Self { state: "checked", state_reason: None, accounts_checked: Some(accounts), complete }
            }
            StateOutcome::NotChecked(why) => {
                Self { state: "not checked", state_reason: Some(why), accounts_checked: None, complete }
            }
        }
    }
}

/// The check of a state that is read once.
pub struct StateCheck {
    accounts: Accounts,
    findings: Findings,
}

impl StateCheck {
    /// Gets ready for storages of this many bytes. What does not fit in memory is spilled into `spill_dir`, whose room is
    /// looked at first; any rule that `refused` tells ends the work.
    pub fn new(memory_bytes: u64, spill_dir: &Path, storages_bytes: u64, refused: fn(Rule) -> bool) -> Result<Self> {
        let accounts = Accounts::new(memory_bytes, spill_dir, log_bytes(storages_bytes))?;
        accounts.check_room_foreseen(memory_bytes)?;
        Ok(Self { accounts, findings: Findings::refusing(refused) })
    }

    /// Keeps what the stakes of a bank file can be made of.
    #[must_use]
    pub fn keeping_accounts(mut self) -> Self {
        self.accounts.stakes = StakeAccounts::keeping_accounts();
        self
    }

    /// What the accounts tell, once the check is finished.
    pub fn into_accounts(self) -> Result<FoundAccounts> {
        self.accounts.stakes.into_accounts()
    }

    /// What has been read so far is newer than everything that follows: of its accounts, older versions are skipped.
    pub fn everything_so_far_is_newer(&mut self, threads: usize) -> Result<()> {
        self.accounts.everything_so_far_is_newer(threads)
    }

    /// Firedancer wrote what is older.
    pub fn older_are_of_firedancer(&self) {
        self.accounts.older_are_of_firedancer();
    }

    /// What looks at records the first time.
    pub fn first_pass(&self) -> AccountsPass<'_> {
        self.pass(Task::Add)
    }

    /// What looks at records for a task.
    pub fn pass<'a>(&'a self, task: Task<'a>) -> AccountsPass<'a> {
        AccountsPass { accounts: &self.accounts, findings: &self.findings, task }
    }

    /// Everything has been read: has superseded records read again, and compares.
    pub fn finish(
        &self,
        bank: &BankFile,
        threads: usize,
        progress: &dyn Progress,
        read_again: ReadAgain<'_>,
    ) -> Result<StateOutcome> {
        self.accounts.check()?;
        let StateCounts { accounts, .. } =
            finish_check(&self.accounts, Some(bank), &self.findings, threads, progress, read_again)?;
        // Whatever kept it from being compared: it is not checked then.
        if let Some(why) = self.findings.skipped(Check::State) {
            return Err(Error::damaged(format!("the state cannot be checked: {why}")));
        }
        Ok(StateOutcome::Checked { accounts })
    }
}

/// Refuses a state, as its bank file or the name of its archive tells it, that is not the one that was asked for.
pub fn judge_expected(slot: u64, hash: Hash, options: &CheckOptions) -> Result<()> {
    judge_expectations(options, slot, hash, &Findings::refusing(|_| true))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_state_of_a_part_cannot_be_checked() {
        let frames = CheckOptions::default().mode(CheckMode::Frames);
        let hash = Hash([1; 32]);
        for (options, of_whole, hint_of_part) in [
            (frames.clone(), false, None),
            (frames.expect_hash(hash), true, Some(Hint::LeaveOutExpectHash)),
            (CheckOptions::default(), true, Some(Hint::GiveFullArchive)),
            (CheckOptions::default().expect_hash(hash), true, Some(Hint::GiveFullArchive)),
        ] {
            assert_eq!(options.checks_state(false).expect("of a whole state"), of_whole);
            let of_part = options.checks_state(true);
            assert_eq!(of_part.as_ref().err().and_then(|error| error.hint()), hint_of_part.as_ref());
            assert_eq!(of_part.ok(), hint_of_part.is_none().then_some(false));
        }
    }
}
