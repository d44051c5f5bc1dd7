//! Whether the state of what is restored or recompressed is checked on the way, and what the result rests on.
//!
//! Frames with checksums find damage of frames; a storage map or an index tells that no storage is missing. Where both
//! are there, a bit that flipped on the way, or a piece that was lost, cannot stay unnoticed. Archives by others lack
//! one or the other: of those, only the state itself (capitalization and lattice hash over the newest version of every
//! account) tells that they are whole.

use {
    super::{
        accounts::{Accounts, AccountsPass, Task},
        settle::{ReadAgain, Settled, log_bytes, settle},
    },
    crate::{
        archive::Archive,
        rules::{clients::Rule, documents::judge_expectations, findings::Findings},
    },
    derive_setters::Setters,
    serde::{Serialize, Serializer},
    slotpress_base::{error::Result, progress::Progress},
    slotpress_format::ledger::{bank_file::BankFile, names::Hash},
    std::path::Path,
};

/// What is checked while an archive streams by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CheckMode {
    /// The state, unless every frame carries a checksum, and a storage map or an index tells that nothing is missing.
    #[default]
    Auto,
    /// The state.
    State,
    /// Frames, entries and documents only.
    Frames,
}

/// The memory for finding superseded records unless told otherwise, in bytes: the records of mainnet take ten times as
/// much, so that most of them are spilled; half of a validator's memory is not ours to take.
pub const STATE_MEMORY_BYTES_DEFAULT: u64 = 1 << 30;

/// How to check the state.
#[derive(Clone, Debug, Setters)]
#[setters(strip_option)]
#[non_exhaustive]
pub struct CheckOptions {
    /// What is checked.
    pub mode: CheckMode,
    /// A state that cannot be checked is an error.
    pub is_required: bool,
    /// The most memory for finding superseded records, in bytes. What does not fit is spilled beside the output.
    pub memory_bytes: u64,
    /// The snapshot hash that the state must have. Implies [`CheckMode::State`].
    pub expect_hash: Option<Hash>,
    /// The slot that the state must have.
    pub expect_slot: Option<u64>,
    /// The most bytes that the archives may unpack to, in bytes of their entries with headers and padding.
    pub max_bytes: Option<u64>,
}

impl Default for CheckOptions {
    fn default() -> Self {
        Self {
            mode: CheckMode::Auto,
            is_required: false,
            memory_bytes: STATE_MEMORY_BYTES_DEFAULT,
            expect_hash: None,
            expect_slot: None,
            max_bytes: None,
        }
    }
}

/// Why a state is not checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WhyNot {
    /// It is an incremental archive alone.
    Part,
    /// Nobody asked for it.
    Frames,
    /// Damage cannot stay unnoticed.
    Checksums,
}

impl WhyNot {
    /// In words.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Part => "an incremental archive alone is part of a state only",
            Self::Frames => "`CheckMode::Frames`",
            Self::Checksums => "every frame carries a checksum",
        }
    }
}

impl CheckOptions {
    /// Why the state is not checked of what is a part of one, or of archives whose frames all carry checksums; `None`
    /// where it is.
    #[doc(hidden)]
    pub fn why_not(&self, is_part: bool, has_frame_checksums: bool) -> Option<WhyNot> {
        let is_asked = self.mode == CheckMode::State || self.expect_hash.is_some() || self.is_required;
        match self.mode {
            _ if is_part => Some(WhyNot::Part),
            _ if is_asked => None,
            CheckMode::Frames => Some(WhyNot::Frames),
            CheckMode::Auto if has_frame_checksums => Some(WhyNot::Checksums),
            CheckMode::Auto | CheckMode::State => None,
        }
    }
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

impl From<WhyNot> for StateOutcome {
    fn from(why_not: WhyNot) -> Self {
        Self::NotChecked(why_not.as_str().to_string())
    }
}

/// What tells that no storage is missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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

/// Whether an archive's index says that every frame carries a checksum, as far as that is told.
pub fn has_frame_checksums(archive: &Archive) -> bool {
    archive.tail.as_ref().is_some_and(|tail| !tail.index.settings.contains("no-checksum"))
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
        let accounts = Accounts::spilling_to_disk(memory_bytes, spill_dir, log_bytes(storages_bytes))?;
        Ok(Self { accounts, findings: Findings::refusing(refused) })
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
        let Settled { accounts, .. } =
            settle(&self.accounts, Some(bank), &self.findings, threads, progress, read_again)?;
        Ok(StateOutcome::Checked { accounts })
    }
}

/// Refuses a state that is not the one that was asked for, or that could not be checked although it had to be; warns of
/// one that is a part only, or could not be read again.
pub fn judge_outcome(
    outcome: &StateOutcome,
    why_not: Option<WhyNot>,
    bank: &BankFile,
    options: &CheckOptions,
    progress: &dyn Progress,
) -> Result<()> {
    judge_expectations(options.expect_slot, options.expect_hash, bank, &Findings::refusing(|_| true))?;
    let StateOutcome::NotChecked(why) = outcome else { return Ok(()) };
    if options.is_required {
        return Err(slotpress_base::error::Error::damaged(format!("the state is not checked: {why}"))
            .hint("`is_required` asks for it; leave it out to go without"));
    }
    if matches!(why_not, None | Some(WhyNot::Part)) {
        progress.warn(&format!("the state is not checked: {why}"));
    }
    Ok(())
}
