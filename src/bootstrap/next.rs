//! Decides which archives a run may still use, and which to try next. Does no I/O: [`Selection`] is
//! the whole state of a run.
//!
//! Each failure is recorded with its reason, which excludes archives or sources. The remaining archives
//! are ranked again as at the start. So a run always ends: there are finitely many archives, a source
//! that fails often may not add new archives, and repetitions are limited.

use std::collections::BTreeMap;

use serde::Serialize;
use slotpress_base::{Error, ErrorKind, hint, one_line};
use slotpress_format::ArchiveName;
use slotpress_net::find::rank::Ranking;
use slotpress_net::find::{FailedArchive, Node};
use slotpress_net::{Candidate, Offer, Remote};

use super::choose::ChosenArchive;
use crate::restore::unsupported_compression_error;

pub const KEPT_HINT: &str = "received bytes are kept: run the same command again to continue";

/// Limit on repetitions for each source that fails. Each repetition may be a whole download.
const REPETITIONS_MAX: usize = 8;

/// Limit on the repetitions for all sources together: a cluster may name other servers each time.
const ALL_REPETITIONS_MAX: usize = 64;

/// Archives that are tried together.
#[derive(Clone, Debug)]
pub struct Attempt {
    pub full: ChosenArchive,
    pub incremental: Option<ChosenArchive>,
}

impl Attempt {
    /// Returns the incremental archive if there is one, otherwise the full archive.
    pub fn newest(&self) -> &ChosenArchive {
        self.incremental.as_ref().unwrap_or(&self.full)
    }

    /// Returns the archives, the full one first.
    pub fn archives(&self) -> impl Iterator<Item = &ChosenArchive> {
        std::iter::once(&self.full).chain(&self.incremental)
    }
}

/// The reason why an archive, or the kept part of it, cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FaultReason {
    /// The bytes are wrong, and an earlier run fetched some of them.
    OldBytes,
    /// The source now has a different archive under the same name.
    Replaced,
    /// The archive cannot be fetched, is wrong, has changed, or cannot be used on this node. Lists the
    /// sources that sent wrong bytes: the run no longer fetches the archive from these or from the first source.
    Unusable(Vec<String>),
    /// The restore found that the state is wrong. If there are two archives, either may be at fault.
    Refused,
    /// Too few trusted servers confirm the archive.
    Unconfirmed,
}

/// Next step after a full archive was read.
#[derive(Clone, Debug)]
pub enum NextStep {
    /// Read this incremental archive.
    Incremental(ChosenArchive),
    /// Use the state of the full archive alone.
    FullAlone,
    /// Begin again with a different full archive, which leads to a better state.
    OtherFull,
}

/// A state that is newer than the run's result, but could not be used.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct AbandonedState {
    /// Names of its archives: the full one, then the incremental one.
    pub archives: Vec<ArchiveName>,
    /// Slot of the state.
    pub slot: u64,
    /// Error that ended the last attempt, on one line.
    pub reason: String,
    #[serde(skip)]
    is_remote: bool,
}

/// Offers that a run may still use, and the failures so far.
#[derive(Clone, Debug, Default)]
pub struct Selection {
    pub ranking: Ranking,
    /// Archives of this node, the expected state, and archives that have failed.
    pub node: Node,
    pub abandoned: Option<AbandonedState>,
    /// Number of repetitions for each source that has failed. A source cannot use up another source's
    /// repetitions.
    pub repetitions: BTreeMap<String, usize>,
    /// True if the sources must be asked again, because they may have other archives by now.
    pub is_outdated: bool,
    pub last_failure: Option<Error>,
    /// Warning about the last failure. It is reported when another attempt begins.
    pub pending_warning: Option<String>,
}

impl Selection {
    /// Returns all candidates, best first.
    pub fn candidates(&self) -> Vec<Candidate> {
        self.ranking.rank(&self.node).candidates
    }

    /// Returns the best candidate. Returns a last resort only if there is no other candidate.
    fn best(&self) -> Option<Candidate> {
        let mut candidates = self.candidates();
        candidates.sort_by_key(|candidate| self.is_last_resort(candidate));
        candidates.into_iter().next()
    }

    /// Returns the best candidate.
    ///
    /// # Errors
    /// No candidate is left, or only a last resort.
    pub fn require_best(&self) -> Result<Candidate, Error> {
        match self.best() {
            None => Err(self.node.no_source_error(&self.last_error())),
            Some(best) if self.is_last_resort(&best) => {
                let why = self.last_error();
                Err(only_local_error(&best, &why.to_string(), why.kind()))
            }
            Some(best) => Ok(best),
        }
    }

    pub fn last_error(&self) -> Error {
        let no_snapshot = || Error::new(ErrorKind::Network, "no source has a usable snapshot");
        self.last_failure.clone().unwrap_or_else(no_snapshot)
    }

    /// Returns true if a newer state of a source was abandoned, and only this node has the candidate's
    /// archives. The run then ends with an error, since nobody asked for an older state.
    fn is_last_resort(&self, candidate: &Candidate) -> bool {
        let Some(abandoned) = &self.abandoned else { return false };
        let mut remotes = self.ranking.offers.iter().filter(|offer| !offer.is_local());
        let has_remote = remotes.any(|remote| candidate.offers().any(|offer| offer.name == remote.name));
        abandoned.is_remote && abandoned.slot > candidate.slot() && !has_remote
    }

    pub fn wants_incremental_on(&self, full: &ChosenArchive) -> bool {
        self.ranking.wants_incremental_on(&full.name, &self.node)
    }

    /// Chooses the next step after a full archive was read. `planned_slot` is the slot of the
    /// incremental archive with which the full archive was chosen. `has_failed` is true if an
    /// incremental archive has failed since.
    pub fn choose_next(&self, full: &ChosenArchive, planned_slot: Option<u64>, has_failed: bool) -> NextStep {
        let newest = self.newest_incremental_on(full);
        let slot = newest.as_ref().unwrap_or(full).name.slot;
        let is_worse = has_failed || planned_slot.is_some_and(|planned| slot < planned);
        // Slots are compared too: the best candidate may be the same full archive from another place,
        // with a newer incremental archive that has failed with the full archive in use.
        let is_best =
            |best: &Candidate| !self.is_last_resort(best) && best.full.name == full.name && best.slot() <= slot;
        if is_worse && !self.best().as_ref().is_some_and(is_best) {
            return NextStep::OtherFull;
        }
        newest.map_or(NextStep::FullAlone, NextStep::Incremental)
    }

    /// Adds offers that are not known yet and whose slot the cluster may have reached. Ignores sources
    /// that have failed too often.
    pub fn add_offers(&mut self, offers: impl IntoIterator<Item = Offer>) {
        for offer in offers {
            let is_known = contains_offer(&self.ranking.offers, &offer);
            if !is_known && self.ranking.is_plausible(&offer) && !self.has_failed_often(&offer) {
                self.ranking.offers.push(offer);
            }
        }
    }

    /// Replaces the offers and the facts about this node. Keeps the failures.
    pub fn replace_offers(&mut self, mut found: Self) {
        let known = &self.ranking.offers;
        let offers = &mut found.ranking.offers;
        offers.retain(|offer| contains_offer(known, offer) || !self.has_failed_often(offer));
        self.ranking = found.ranking;
        found.node.failed = std::mem::take(&mut self.node.failed);
        self.node = found.node;
        let old_slot = self.abandoned.as_ref().map(|old| old.slot);
        let newer = found.abandoned.filter(|new| old_slot < Some(new.slot));
        self.abandoned = newer.or(self.abandoned.take());
    }

    /// Returns true if a server has failed so often that it may not add new archives. A cluster may name
    /// other servers each time, so the failures of such servers count together.
    fn has_failed_often(&self, offer: &Offer) -> bool {
        let Some(server) = offer.remote().map(Remote::origin) else { return false };
        let repetitions = self.repetitions.get(&server).copied().unwrap_or_default();
        let failed = self.node.failed.len();
        self.node.count_faults(offer).saturating_add(repetitions) >= REPETITIONS_MAX
            || (!offer.is_named_by_operator() && failed.saturating_add(self.all_repetitions()) >= ALL_REPETITIONS_MAX)
    }

    /// Returns true if another archive is less than half as long as this one. The source may overstate
    /// the length: if the disk has no space for it, the other archive is tried.
    pub fn may_be_overstated(&self, choice: &ChosenArchive) -> bool {
        let half_bytes = choice.file_bytes.unwrap_or_default() / 2;
        let is_full = choice.name.base_slot.is_none();
        let offers = self.ranking.offers.iter();
        let mut others = offers.filter(|other| other.is_full() || !is_full);
        others.any(|other| other.file_bytes.is_some_and(|length| length < half_bytes))
    }

    /// Returns the archives of a candidate, each with all places that have it.
    pub fn choose_archives(&self, candidate: &Candidate) -> Attempt {
        let incremental = candidate.incremental.as_ref();
        let mut fulls: Vec<&Offer> = self.ranking.offers.iter().collect();
        fulls.retain(|full| self.node.allows(full, None));
        if let Some(incremental) = incremental {
            // Exclude places of the full archive with which the incremental archive has failed.
            fulls.retain(|full| self.node.allows(incremental, Some(&full.location())));
        }
        let full = ChosenArchive::from_offer(&candidate.full, &fulls);
        let location = candidate.full.location();
        Attempt { full, incremental: incremental.map(|offer| self.choose_incremental(offer, &location)) }
    }

    /// Returns an incremental archive on the full archive at `full_location`, with all places that have it.
    fn choose_incremental(&self, incremental: &Offer, full_location: &str) -> ChosenArchive {
        let mut allowed: Vec<&Offer> = self.ranking.offers.iter().collect();
        allowed.retain(|offer| self.node.allows(offer, Some(full_location)));
        ChosenArchive::from_offer(incremental, &allowed)
    }

    /// Returns the newest incremental archive on the full archive in use.
    pub fn newest_incremental_on(&self, full: &ChosenArchive) -> Option<ChosenArchive> {
        let location = full.first_location();
        let ranking = &self.ranking;
        let newest = ranking.newest_incremental_on(&full.name, &location, &self.node, None)?;
        Some(self.choose_incremental(newest, &location))
    }

    /// Records why the newest archive of an attempt is not used.
    pub fn record_failure(&mut self, attempt: &Attempt, reason: &FaultReason, error: &Error) {
        let failed = attempt.newest();
        let repetitions = self.repetitions.get(&failed.source_at_fault()).copied();
        let may_repeat = repetitions < Some(REPETITIONS_MAX) && self.all_repetitions() < ALL_REPETITIONS_MAX;
        self.last_failure = Some(error.clone());
        match reason {
            FaultReason::OldBytes if may_repeat => return self.count_repetition(failed),
            // The source no longer has the archive that it offered. Another source may still have it.
            // Asking again finds the new archive.
            FaultReason::Replaced if may_repeat => {
                let location = failed.first_location();
                let offers = &mut self.ranking.offers;
                offers.retain(|offer| offer.name != failed.name || offer.location() != location);
            }
            _ => self.exclude(attempt, reason, error),
        }
        self.record_abandoned(attempt, error);
        // A newer incremental archive may have replaced this one at the source.
        let may_be_replaced = attempt.incremental.is_some() && *reason != FaultReason::Refused;
        let may_return = matches!(reason, FaultReason::Replaced | FaultReason::Refused);
        if may_repeat && (may_be_replaced || may_return && self.best().is_none()) {
            self.is_outdated = true;
            self.count_repetition(failed);
        }
    }

    /// Records that no source offers the planned incremental archive any more.
    pub fn record_vanished(&mut self, planned: &Attempt) {
        let full = planned.full.first_location();
        let message = format!("no source has an incremental archive on {full} any more");
        let error = Error::new(ErrorKind::Network, message);
        self.record_abandoned(planned, &error);
        self.count_repetition(planned.newest());
        self.pending_warning = Some(error.to_string());
        self.last_failure = Some(error);
    }

    /// Removes archives that Agave does not read, since a restore refuses them. If one of their states
    /// is newer than all others, records it as abandoned.
    ///
    /// # Errors
    /// Nothing else is left, or only archives of this node.
    pub fn exclude_unread_by_agave(&mut self) -> Result<(), Error> {
        let is_unread = |offer: &Offer| !offer.name.compression.is_read_by_agave();
        let mut candidates = self.candidates();
        candidates.retain(|candidate| candidate.offers().any(is_unread));
        let newest = candidates.iter().max_by_key(|candidate| candidate.slot());
        let newest = newest.map(|newest| self.choose_archives(newest));
        self.ranking.offers.retain(|offer| !is_unread(offer));
        let Some(newest) = newest else { return Ok(()) };
        let slot = newest.newest().name.slot;
        if self.best().is_some_and(|best| best.slot() >= slot) {
            return Ok(());
        }
        let is_unread = |archive: &&ChosenArchive| !archive.name.compression.is_read_by_agave();
        let archive = newest.archives().find(is_unread).unwrap_or(&newest.full);
        let error = unsupported_compression_error(&archive.first_location(), archive.name.compression);
        self.record_abandoned(&newest, &error);
        self.last_failure = Some(error);
        self.require_best().map(drop)
    }

    fn all_repetitions(&self) -> usize {
        self.repetitions.values().sum()
    }

    fn count_repetition(&mut self, archive: &ChosenArchive) {
        let source = archive.source_at_fault();
        let repetitions = self.repetitions.entry(source).or_default();
        *repetitions = repetitions.saturating_add(1);
    }

    /// Excludes the newest archive of an attempt, at its source or wherever it is found.
    fn exclude(&mut self, attempt: &Attempt, reason: &FaultReason, error: &Error) {
        let newest = attempt.newest();
        let is_refused = *reason == FaultReason::Refused;
        // A full archive in the snapshots directory stays there. The incremental archive cannot be tried with
        // a different copy of the full archive, and is therefore excluded with any full archive.
        let is_one_of_two = is_refused && attempt.incremental.is_some() && !attempt.full.is_in_place;
        let failed = FailedArchive {
            name: newest.name.clone(),
            location: (*reason != FaultReason::Unconfirmed).then(|| newest.first_location()),
            is_in_place: newest.is_in_place,
            // If the content is wrong, the same bytes are wrong from any source. If a source does
            // not send the bytes, another one may.
            root: if is_refused { newest.root } else { None },
            full_location: is_one_of_two.then(|| attempt.full.first_location()),
            reason: one_line(&error.to_string()),
        };
        if let FaultReason::Unusable(locations) = reason {
            for location in locations {
                let elsewhere = FailedArchive { location: Some(location.clone()), ..failed.clone() };
                if elsewhere != failed {
                    self.node.failed.push(elsewhere);
                }
            }
        }
        self.node.failed.push(failed);
    }

    /// Remembers the state of this attempt if it is the newest one that was abandoned.
    fn record_abandoned(&mut self, attempt: &Attempt, error: &Error) {
        let newest = attempt.newest();
        let slot = newest.name.slot;
        if self.abandoned.as_ref().map(|known| known.slot) < Some(slot) {
            let names = attempt.archives().map(|archive| archive.name.clone());
            self.abandoned = Some(AbandonedState {
                archives: names.collect(),
                slot,
                reason: one_line(&error.to_string()),
                is_remote: !newest.is_local(),
            });
        }
    }
}

fn contains_offer(offers: &[Offer], offer: &Offer) -> bool {
    let is_same = |known: &Offer| known.name == offer.name && known.place == offer.place;
    offers.iter().any(is_same)
}

/// Returns the error for a run in which no server's archive is left, but only archives of this node.
pub fn only_local_error(best: &Candidate, why: &str, kind: ErrorKind) -> Error {
    let slot = best.slot();
    let paths = Vec::from_iter(best.offers().map(Offer::location)).join(", ");
    let message = format!("{why}; only archives of this node are left, of slot {slot}: {paths}");
    Error::new(kind, message).with_hint(hint::USE_RESTORE)
}

#[cfg(test)]
#[allow(clippy::expect_used, clippy::indexing_slicing)]
pub mod tests;
