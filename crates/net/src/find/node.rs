//! Restrictions on the choice for one node: the archives that it has, the state that it expects, and
//! archives that have failed in this run.

use std::collections::BTreeMap;

use slotpress_base::{Error, ErrorKind, hint};
use slotpress_format::{ArchiveName, ArchiveRoot, Hash};
use slotpress_read::CheckOptions;

use super::{Candidate, list_reasons};
use crate::Offer;

/// Slot or hash of the state that the operator expects, or both. Archive names contain both, so archives of
/// other states are not even downloaded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ExpectedState {
    slot: Option<u64>,
    hash: Option<Hash>,
}

impl ExpectedState {
    /// Copies slot and hash from the options that also check the restored state.
    pub fn from_check(check: &CheckOptions) -> Self {
        Self { slot: check.expect_slot, hash: check.expect_hash }
    }

    pub fn is_set(self) -> bool {
        self != Self::default()
    }

    /// True if the archive has the expected state, or if no state is expected.
    pub fn matches(self, name: &ArchiveName) -> bool {
        self.slot.is_none_or(|slot| slot == name.slot) && self.hash.is_none_or(|hash| hash == name.hash)
    }

    /// Returns the error for candidates without the expected state.
    pub fn not_found_error(self, candidates: &[Candidate]) -> Error {
        let slot = self.slot.map(|slot| format!("slot {slot}"));
        let hash = self.hash.map(|hash| format!("hash {hash}"));
        let expected: Vec<String> = slot.into_iter().chain(hash).collect();
        let offered = candidates.iter().map(|candidate| format!("{} has slot {}", candidate.source, candidate.slot()));
        let message = list_reasons(&format!("no source has the state with {}", expected.join(" and ")), offered);
        Error::damaged(message).with_hint(hint::USE_FIND)
    }
}

/// An archive that has failed and is not used again in this run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FailedArchive {
    pub name: ArchiveName,
    /// URL of the archive without secrets, or its path. `None` if all archives of this name are bad.
    pub location: Option<String>,
    /// True if the archive is in the archives directory. Then no other archive of its name can be fetched.
    pub is_in_place: bool,
    /// Root of its frame hashes. An archive with the same root is bad wherever it comes from.
    pub root: Option<ArchiveRoot>,
    /// Location of the full archive with which this incremental archive failed, if either may be wrong. The
    /// incremental archive may still be tried with another full archive.
    pub full_location: Option<String>,
    pub reason: String,
}

impl FailedArchive {
    fn server(&self) -> Option<&str> {
        self.location.as_deref().and_then(server_of)
    }

    fn covers(&self, offer: &Offer) -> bool {
        let has_same_root = self.root.is_some() && self.root == offer.root;
        let is_same_location = || self.location.as_ref().is_none_or(|location| *location == offer.location());
        self.name == offer.name && (self.is_in_place || has_same_root || is_same_location())
    }
}

/// Number of incremental archives of one server that are tried with one copy of a full archive. Each
/// attempt may cost a whole restore.
const PAIR_FAULTS_MAX: usize = 3;

/// The node that will boot from the state.
#[derive(Clone, Debug, Default)]
pub struct Node {
    pub expected: ExpectedState,
    /// The requested archive, if the operator named it by its URL. Then no other archive is used.
    pub requested: Option<ArchiveName>,
    /// Slots of the full archives in the archives directory. If one of them lies between a base and the slot of
    /// an incremental archive, the pair is refused: the validator would base its next incremental archive on
    /// the full archive between them, and accounts that were closed in the meantime would reappear.
    pub full_slots: Vec<u64>,
    /// For each archive name, the number of bytes that this or an earlier run has fetched.
    pub(super) kept_bytes_by_name: BTreeMap<String, u64>,
    pub failed: Vec<FailedArchive>,
}

impl Node {
    /// True if an offer may be tried. It must not have failed by itself, nor together with the full archive at
    /// `full_location`. An offer is also refused if `PAIR_FAULTS_MAX` incremental archives of its server have
    /// failed together with that full archive.
    pub fn allows(&self, offer: &Offer, full_location: Option<&str>) -> bool {
        let mut failed_pairs = Vec::new();
        for failed in &self.failed {
            let is_pair = failed.full_location.is_some() && failed.full_location.as_deref() == full_location;
            if failed.covers(offer) && (is_pair || failed.full_location.is_none()) {
                return false;
            }
            if is_pair {
                failed_pairs.push(failed);
            }
        }
        if failed_pairs.len() < PAIR_FAULTS_MAX {
            return true;
        }
        let location = offer.location();
        let Some(server) = server_of(&location) else { return true };
        failed_pairs.iter().filter(|failed| failed.server() == Some(server)).count() < PAIR_FAULTS_MAX
    }

    pub fn kept_bytes(&self, name: &ArchiveName) -> u64 {
        self.kept_bytes_by_name.get(&name.to_string()).copied().unwrap_or(0)
    }

    pub fn record_kept(&mut self, name: &ArchiveName, bytes: u64) {
        self.kept_bytes_by_name.insert(name.to_string(), bytes);
    }

    /// Returns the number of failed archives that count against this offer's server. If either archive
    /// of a pair may be wrong, the failure counts against the server of the full archive. It counts
    /// against incremental archives only if the same server sent both.
    pub fn count_faults(&self, offer: &Offer) -> usize {
        if self.failed.is_empty() {
            return 0;
        }
        let location = offer.location();
        let Some(server) = server_of(&location) else { return 0 };
        let is_fault = |failed: &&FailedArchive| match &failed.full_location {
            Some(full_location) => {
                server_of(full_location) == Some(server) && (offer.is_full() || failed.server() == Some(server))
            }
            None => failed.server() == Some(server),
        };
        self.failed.iter().filter(is_fault).count()
    }

    /// Returns the error for a run that has no candidate left: the last error or, if several archives have
    /// failed, an error with the reason for each.
    pub fn no_source_error(&self, last: &Error) -> Error {
        let in_place =
            self.failed.iter().filter(|failed| failed.is_in_place).find_map(|failed| failed.location.as_ref());
        let hint = match (in_place, last.hint()) {
            (_, Some(hint)) if last.kind() == ErrorKind::Unsupported => hint.to_string(),
            (Some(location), _) => {
                format!("move {location} away, so that the archive of a different source can be fetched")
            }
            (None, Some(hint)) => hint.to_string(),
            (None, None) => "use other sources, or try again later".to_string(),
        };
        if self.failed.len() < 2 {
            return last.clone().with_hint(hint);
        }
        let reasons = self.failed.iter().map(|failed| match &failed.location {
            Some(location) if !failed.reason.contains(location) => format!("{location}: {}", failed.reason),
            _ => failed.reason.clone(),
        });
        Error::new(last.kind(), list_reasons("no source is left", reasons)).with_hint(hint)
    }
}

/// Returns the scheme, host and port of a URL; `None` for a path.
fn server_of(location: &str) -> Option<&str> {
    let (scheme, rest) = location.split_once("://")?;
    let host_bytes = rest.find('/').unwrap_or(rest.len());
    location.get(..scheme.len().saturating_add(3).saturating_add(host_bytes))
}
