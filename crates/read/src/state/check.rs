//! Decides whether the state is checked while an archive is restored or recompressed, and records
//! the evidence for the result.
//!
//! Frame checksums reveal damage, and an index reveals missing storages. Neither shows whether the accounts
//! match the bank file: an attacker who changes an account can rewrite every checksum, index and frame hash.
//! Only the capitalization and the lattice hash over the newest version of every account show this. They are
//! checked in the mode [`CheckMode::State`], and in all modes if a hash is expected. No archive can prove that
//! its state is the cluster's.

use std::fmt;
use std::path::{Path, PathBuf};

use derive_setters::Setters;
use serde::Serialize;
use slotpress_base::{Error, Result, hint};
use slotpress_format::Hash;

use super::spill::choose_spill_dir;
use crate::{Failures, Rule};

/// Extent of the checks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[warn(missing_docs)]
pub enum CheckMode {
    /// All checks, including the check of the state, which compares the accounts with the bank file.
    #[default]
    State,
    /// Checks of frames, entries and documents only.
    Frames,
    /// Only what the documents and the index show. If an archive has an index and no root is expected,
    /// `verify` reads only the frames that hold documents. For other jobs, the same as `Frames`.
    Quick,
}

pub const STATE_MEMORY_BYTES_DEFAULT: u64 = 1 << 30;

/// Checks and expected values, for verifying, visiting, restoring and recompressing.
#[derive(Clone, Debug, Setters)]
#[non_exhaustive]
#[warn(missing_docs)]
pub struct CheckOptions {
    /// Extent of the checks. Default: all, with the state.
    pub mode: CheckMode,
    /// Memory for finding superseded records, in bytes. What does not fit is spilled. Default: 1 GiB, to leave
    /// memory for a validator on the same machine. The log of mainnet's billion records takes 20 GB.
    pub memory_bytes: u64,
    /// Directory for spilling. Default: the first of the output directory, the system's directory for temporary
    /// files, and `/var/tmp` that is on a disk.
    #[setters(into, strip_option)]
    pub temporary_dir: Option<PathBuf>,
    /// Snapshot hash that the state must have. Restoring and recompressing then check the state in
    /// every mode. Default: any.
    #[setters(strip_option)]
    pub expect_hash: Option<Hash>,
    /// Slot that the state must have. Default: any.
    #[setters(strip_option)]
    pub expect_slot: Option<u64>,
}

impl Default for CheckOptions {
    fn default() -> Self {
        Self {
            mode: CheckMode::State,
            memory_bytes: STATE_MEMORY_BYTES_DEFAULT,
            temporary_dir: None,
            expect_hash: None,
            expect_slot: None,
        }
    }
}

impl CheckOptions {
    #[doc(hidden)]
    pub fn spill_dir(&self, output_dir: Option<&Path>) -> PathBuf {
        self.temporary_dir.clone().unwrap_or_else(|| choose_spill_dir(output_dir))
    }

    /// Replaces [`CheckMode::Quick`], which may leave out frames, with [`CheckMode::Frames`].
    #[doc(hidden)]
    pub fn of_all_frames(self) -> Self {
        if self.mode == CheckMode::Quick { self.mode(CheckMode::Frames) } else { self }
    }

    /// True if the state should be checked. `is_part` is true for an incremental archive without its
    /// full archive.
    ///
    /// # Errors
    /// The state of a part should be checked, which is impossible.
    #[doc(hidden)]
    pub fn checks_state(&self, is_part: bool) -> Result<bool> {
        match self.mode {
            CheckMode::State if is_part => Err(unpaired_error()),
            CheckMode::State => Ok(true),
            _ if self.expect_hash.is_none() => Ok(false),
            _ if is_part => Err(unpaired_error().with_hint(hint::LEAVE_OUT_EXPECT_HASH)),
            _ => Ok(true),
        }
    }
}

pub fn unpaired_error() -> Error {
    Error::failed("the state of an incremental archive alone cannot be checked").with_hint(hint::PASS_FULL_ARCHIVE)
}

/// Result of comparing capitalization and lattice hash with the bank file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[warn(missing_docs)]
pub enum StateCheck {
    /// They match the bank file.
    #[serde(rename = "checked")]
    Checked,
    /// They were not compared.
    #[serde(rename = "not checked")]
    NotChecked,
}

/// Shows the text of reports.
impl fmt::Display for StateCheck {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(formatter)
    }
}

/// Evidence that no storage is missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
#[warn(missing_docs)]
pub enum Completeness {
    /// The state check, which notices missing accounts.
    #[serde(rename = "proved by state hash")]
    ByState,
    /// The index of the archive.
    #[serde(rename = "proved by index")]
    ByIndex,
    /// No evidence: the state was not checked, and there is no index.
    #[serde(rename = "not checked")]
    NotChecked,
}

impl Completeness {
    pub(crate) fn new(is_state_checked: bool, has_index: bool) -> Self {
        match (is_state_checked, has_index) {
            (true, _) => Self::ByState,
            (false, true) => Self::ByIndex,
            (false, false) => Self::NotChecked,
        }
    }
}

/// The checks that a result relies on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
#[warn(missing_docs)]
pub struct Assurance {
    /// Result of the check of the state.
    pub state: StateCheck,
    /// Reason why the state was not checked; `None` if it was.
    pub state_reason: Option<&'static str>,
    /// Number of accounts in the state; `None` if the state was not checked.
    pub accounts_checked: Option<u64>,
    /// Evidence that no storage is missing.
    pub complete: Completeness,
}

impl Assurance {
    /// Derives the evidence from the index and the check of the state. `accounts_checked` is `None` if that
    /// check was not requested.
    #[doc(hidden)]
    pub fn new(accounts_checked: Option<u64>, has_index: bool) -> Self {
        let (state, state_reason) = match accounts_checked {
            Some(_) => (StateCheck::Checked, None),
            None => (StateCheck::NotChecked, Some("not asked for")),
        };
        let complete = Completeness::new(accounts_checked.is_some(), has_index);
        Self { state, state_reason, accounts_checked, complete }
    }
}

pub fn judge_expected(options: &CheckOptions, found_slot: u64, found_hash: Hash, failures: &Failures) -> Result<()> {
    if let Some(slot) = options.expect_slot
        && slot != found_slot
    {
        failures.add(Rule::NotExpected, format!("slot {slot}"), format!("slot {found_slot}"))?;
    }
    match options.expect_hash {
        Some(hash) if hash != found_hash => failures.add(Rule::NotExpected, hash, found_hash),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_state_of_a_part_cannot_be_checked() {
        let frames = CheckOptions::default().mode(CheckMode::Frames);
        let hash = Hash([1; 32]);
        for (options, is_whole_checked, hint_of_part) in [
            (frames.clone(), false, None),
            (frames.expect_hash(hash), true, Some(hint::LEAVE_OUT_EXPECT_HASH)),
            (CheckOptions::default(), true, Some(hint::PASS_FULL_ARCHIVE)),
            (CheckOptions::default().expect_hash(hash), true, Some(hint::PASS_FULL_ARCHIVE)),
        ] {
            assert_eq!(options.checks_state(false).expect("of a whole state"), is_whole_checked);
            let result = options.checks_state(true);
            assert_eq!(result.as_ref().err().and_then(|error| error.hint()), hint_of_part);
            assert_eq!(result.ok(), hint_of_part.is_none().then_some(false));
        }
    }
}
