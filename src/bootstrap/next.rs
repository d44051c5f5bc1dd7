//! Decides which archives a run may still use, and which come next. Pure: [`Selection`] is the
//! whole state of a run.
//!
//! Each failure is recorded with its reason, which excludes archives or sources; other archives are
//! ranked again as at the start. So a run always ends: there are finitely many archives, a source
//! that fails often adds no new ones, and repeated requests are counted.

use std::collections::BTreeMap;

use serde::Serialize;
use slotpress_base::{Error, ErrorKind, hint, one_line};
use slotpress_format::ArchiveName;
use slotpress_net::find::rank::Ranking;
use slotpress_net::find::{FailedArchive, Node};
use slotpress_net::{Candidate, Offer, Remote};

use super::choose::ChosenArchive;
use crate::restore::unsupported_compression_error;

/// Hint after a failed download.
pub const KEPT_HINT: &str = "received bytes are kept: run the same command again to continue";

/// Limit on repetitions for each source that fails. Each repetition may cost a whole download.
const AGAIN_MAX: usize = 8;

/// Limit for all sources together, because a cluster may name other servers each time.
const AGAIN_IN_ALL_MAX: usize = 64;

/// Archives that are tried together.
#[derive(Clone, Debug)]
pub struct Attempt {
    pub full: ChosenArchive,
    pub incremental: Option<ChosenArchive>,
}

impl Attempt {
    /// The archive that is tried: the incremental one if there is one.
    pub fn newest(&self) -> &ChosenArchive {
        self.incremental.as_ref().unwrap_or(&self.full)
    }

    /// The archives, the full one first.
    pub fn archives(&self) -> impl Iterator<Item = &ChosenArchive> {
        std::iter::once(&self.full).chain(&self.incremental)
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reason {
    /// It is wrong, and an earlier run fetched a part of it.
    KeptIsWrong,
    /// The source now has another archive under the same name.
    PublishedAgain,
    /// It cannot be fetched, is wrong, has changed, or cannot be used on this node. Lists the sources
    /// that sent wrong bytes. They and the first source are not used for it again.
    Unusable(Vec<String>),
    /// The restore found the state to be wrong. If there are two archives, either may be at fault.
    Refused,
    /// Too few trusted servers confirm it.
    Unconfirmed,
}

/// Archive that is used after a full one was read.
#[derive(Clone, Debug)]
pub enum Next {
    Take(ChosenArchive),
    /// Nothing: the full archive alone gives the state.
    Alone,
    /// Another full archive: it gives a better state.
    Leave,
}

/// A state that is newer than the result of the run, but failed.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct AbandonedState {
    /// Names of its archives: the full one, then the incremental one.
    pub archives: Vec<ArchiveName>,
    /// Slot of the state.
    pub slot: u64,
    /// Error that ended the last attempt, on one line.
    #[serde(rename = "reason")]
    pub why: String,
    #[serde(skip)]
    is_remote: bool,
}

/// Offers that are left to choose from, and what has failed.
#[derive(Clone, Debug, Default)]
pub struct Selection {
    pub ranking: Ranking,
    /// Archives of this node, the expected state, and what has failed.
    pub node: Node,
    pub given_up: Option<AbandonedState>,
    /// Number of repetitions for each server that has failed. No server can use up the repetitions of
    /// another.
    pub repetitions: BTreeMap<String, usize>,
    /// True if the sources may have other archives by now, and are to be asked again.
    pub is_outdated: bool,
    pub last: Option<Error>,
    /// Warning about the last error, which is given when another attempt begins.
    pub pending_warning: Option<String>,
}

impl Selection {
    /// Returns all candidates, best first.
    pub fn candidates(&self) -> Vec<Candidate> {
        self.ranking.rank(&self.node).candidates
    }

    /// Returns the best candidate; a last resort only if there is no other.
    fn best(&self) -> Option<Candidate> {
        let mut candidates = self.candidates();
        candidates.sort_by_key(|candidate| self.is_last_resort(candidate));
        candidates.into_iter().next()
    }

    /// Returns the best candidate.
    ///
    /// # Errors
    /// None is left, or only archives of this node.
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
        let none = || Error::new(ErrorKind::Network, "no source has a usable snapshot");
        self.last.clone().unwrap_or_else(none)
    }

    /// Returns true if a newer state of a source was given up, and all archives of the candidate are
    /// on this node only. The run then ends with an error, and does not use an older state unasked.
    fn is_last_resort(&self, candidate: &Candidate) -> bool {
        let Some(given_up) = &self.given_up else { return false };
        let offers = &self.ranking.offers;
        let is_remote = |offer: &Offer| offers.iter().any(|other| other.name == offer.name && !other.is_local());
        given_up.is_remote && given_up.slot > candidate.slot() && !candidate.offers().any(is_remote)
    }

    /// Decides what is used with a full archive that was read. `planned` is the slot of the
    /// incremental archive with which it was chosen; `has_failed` tells whether one has failed since.
    pub fn next_on(&self, full: &ChosenArchive, planned: Option<u64>, has_failed: bool) -> Next {
        let newest = self.newest_on(full);
        let slot = newest.as_ref().unwrap_or(full).name.slot;
        // Compares slots too: the best candidate may be the same full archive from another place, with
        // a newer incremental archive that failed with the copy in use.
        let is_best =
            |best: &Candidate| !self.is_last_resort(best) && best.full.name == full.name && best.slot() <= slot;
        let must_win = has_failed || planned.is_some_and(|planned| slot < planned);
        match newest {
            _ if must_win && !self.best().as_ref().is_some_and(is_best) => Next::Leave,
            Some(newest) => Next::Take(newest),
            None => Next::Alone,
        }
    }

    /// Adds offers that are not known yet, and whose slot the cluster may have reached. A source that
    /// has failed often adds none.
    pub fn add(&mut self, offers: impl IntoIterator<Item = Offer>) {
        for offer in offers {
            let is_known = is_among(&self.ranking.offers, &offer);
            if !is_known && self.ranking.is_plausible(&offer) && !self.is_worn_out(&offer) {
                self.ranking.offers.push(offer);
            }
        }
    }

    /// Replaces the offers, and the facts about this node. Keeps the failures.
    pub fn renew(&mut self, mut found: Self) {
        let known = &self.ranking.offers;
        let offers = &mut found.ranking.offers;
        offers.retain(|offer| is_among(known, offer) || !self.is_worn_out(offer));
        self.ranking = found.ranking;
        found.node.failed = std::mem::take(&mut self.node.failed);
        self.node = found.node;
        let known_slot = self.given_up.as_ref().map(|known| known.slot);
        let newer = found.given_up.filter(|newer| known_slot < Some(newer.slot));
        self.given_up = newer.or(self.given_up.take());
    }

    /// Returns true if a server has failed so often that it may add no new archives. A cluster may
    /// name other servers each time, so their failures count together.
    fn is_worn_out(&self, offer: &Offer) -> bool {
        let Some(server) = offer.remote().map(Remote::origin) else { return false };
        let again = self.repetitions.get(&server).copied().unwrap_or_default();
        let of_all = self.node.failed.len().saturating_add(self.total_repetitions());
        self.node.count_faults(offer).saturating_add(again) >= AGAIN_MAX
            || (!offer.is_named_by_operator() && of_all >= AGAIN_IN_ALL_MAX)
    }

    /// Returns true if another archive is less than half as long as this one. If the disk has no room
    /// for the length that the source states, that archive is tried instead.
    pub fn is_overstated(&self, choice: &ChosenArchive) -> bool {
        let length_bytes = choice.length_bytes.unwrap_or_default();
        self.ranking.offers.iter().any(|other| {
            let is_shorter = other.length_bytes.is_some_and(|other| other < length_bytes / 2);
            is_shorter && (other.is_full() || choice.name.base_slot.is_some())
        })
    }

    /// Returns the archives of a candidate, each with all places that have it.
    pub fn choose_archives(&self, candidate: &Candidate) -> Attempt {
        let incremental = candidate.incremental.as_ref();
        let mut fulls: Vec<&Offer> = self.ranking.offers.iter().collect();
        fulls.retain(|full| self.node.allows(full, None));
        if let Some(incremental) = incremental {
            // Leaves out places of the full archive with which the incremental one failed.
            fulls.retain(|full| self.node.allows(incremental, Some(&full.location())));
        }
        let full = ChosenArchive::from_offer(&candidate.full, &fulls);
        let place = candidate.full.location();
        Attempt { full, incremental: incremental.map(|offer| self.choose_on(offer, &place)) }
    }

    /// Returns an incremental archive on the full one at a place, with all places that have it.
    fn choose_on(&self, incremental: &Offer, full_place: &str) -> ChosenArchive {
        let mut allowed: Vec<&Offer> = self.ranking.offers.iter().collect();
        allowed.retain(|offer| self.node.allows(offer, Some(full_place)));
        ChosenArchive::from_offer(incremental, &allowed)
    }

    /// Returns the newest incremental archive on the full one in use.
    pub fn newest_on(&self, full: &ChosenArchive) -> Option<ChosenArchive> {
        let place = full.first_place();
        let newest = self.ranking.newest_incremental_on(&full.name, &place, &self.node, None)?;
        Some(self.choose_on(newest, &place))
    }

    /// Records why the newest archive of an attempt is not used.
    pub fn record(&mut self, tried: &Attempt, reason: &Reason, error: &Error) {
        let failed = tried.newest();
        let again = self.repetitions.get(&failed.source_at_fault()).copied();
        let may_be_again = again < Some(AGAIN_MAX) && self.total_repetitions() < AGAIN_IN_ALL_MAX;
        self.last = Some(error.clone());
        match reason {
            Reason::KeptIsWrong if may_be_again => return self.count_repetition(failed),
            // The source no longer has what it offered. Another source may still have it; asking
            // again finds the new archive.
            Reason::PublishedAgain if may_be_again => {
                let place = failed.first_place();
                let offers = &mut self.ranking.offers;
                offers.retain(|offer| offer.name != failed.name || offer.location() != place);
            }
            _ => self.mark_bad(tried, reason, error),
        }
        self.give_up(tried, error);
        // A newer incremental archive may have replaced this one at the source.
        let is_replaced = tried.incremental.is_some() && *reason != Reason::Refused;
        let may_return = || matches!(reason, Reason::PublishedAgain | Reason::Refused) && self.best().is_none();
        if may_be_again && (is_replaced || may_return()) {
            self.is_outdated = true;
            self.count_repetition(failed);
        }
    }

    /// Records that no source has the incremental archive any more with which a full one was chosen.
    pub fn record_lost(&mut self, planned: &Attempt) {
        let full = planned.full.first_place();
        let message = format!("no source has an incremental archive on {full} any more");
        let error = Error::new(ErrorKind::Network, message);
        self.give_up(planned, &error);
        self.count_repetition(planned.newest());
        self.pending_warning = Some(error.to_string());
        self.last = Some(error);
    }

    /// Removes archives that Agave does not read, since a restore refuses them. If they offer a newer
    /// state than what is left, remembers it as given up.
    ///
    /// # Errors
    /// Without them, nothing is left, or only archives of this node.
    pub fn leave_out_unread(&mut self) -> Result<(), Error> {
        let is_unread = |offer: &Offer| !offer.name.compression.is_read_by_agave();
        if !self.ranking.offers.iter().any(is_unread) {
            return Ok(());
        }
        let mut candidates = self.candidates();
        candidates.retain(|candidate| candidate.offers().any(is_unread));
        let newest = candidates.iter().max_by_key(|candidate| candidate.slot());
        let newest = newest.map(|newest| self.choose_archives(newest));
        self.ranking.offers.retain(|offer| !is_unread(offer));
        let Some(newest) = newest else { return Ok(()) };
        if self.best().is_some_and(|best| best.slot() >= newest.newest().name.slot) {
            return Ok(());
        }
        let is_unread = |archive: &&ChosenArchive| !archive.name.compression.is_read_by_agave();
        let archive = newest.archives().find(is_unread).unwrap_or(&newest.full);
        let error = unsupported_compression_error(&archive.first_place(), archive.name.compression);
        self.give_up(&newest, &error);
        self.last = Some(error);
        self.require_best().map(drop)
    }

    fn total_repetitions(&self) -> usize {
        self.repetitions.values().sum()
    }

    fn count_repetition(&mut self, archive: &ChosenArchive) {
        let again = self.repetitions.entry(archive.source_at_fault()).or_default();
        *again = again.saturating_add(1);
    }

    /// Records the archive as bad: only at its source, or wherever it is found.
    fn mark_bad(&mut self, tried: &Attempt, reason: &Reason, error: &Error) {
        let newest = tried.newest();
        let is_refused = *reason == Reason::Refused;
        // A full archive that is in the archives directory stays there, so the incremental archive
        // cannot be tried with another copy of it: it is bad with any full archive.
        let is_one_of_two = is_refused && tried.incremental.is_some() && !tried.full.is_in_place;
        let failed = FailedArchive {
            name: newest.name.clone(),
            place: (*reason != Reason::Unconfirmed).then(|| newest.first_place()),
            is_in_place: newest.is_in_place,
            // If the content is wrong, the same bytes are wrong from any source. If a source does
            // not send the bytes, another one may.
            root: if is_refused { newest.root } else { None },
            full_place: is_one_of_two.then(|| tried.full.first_place()),
            why: one_line(&error.to_string()),
        };
        if let Reason::Unusable(places) = reason {
            for place in places.iter().filter(|place| failed.place.as_ref() != Some(*place)) {
                self.node.failed.push(FailedArchive { place: Some(place.clone()), ..failed.clone() });
            }
        }
        self.node.failed.push(failed);
    }

    /// Remembers the newest state that failed.
    fn give_up(&mut self, tried: &Attempt, error: &Error) {
        let newest = tried.newest();
        let slot = newest.name.slot;
        if self.given_up.as_ref().map(|known| known.slot) < Some(slot) {
            let names = tried.archives().map(|archive| archive.name.clone());
            self.given_up = Some(AbandonedState {
                archives: names.collect(),
                slot,
                why: one_line(&error.to_string()),
                is_remote: !newest.is_local(),
            });
        }
    }
}

fn is_among(known: &[Offer], offer: &Offer) -> bool {
    known.iter().any(|known| known.name == offer.name && known.place == offer.place)
}

/// Returns the error for a run that has no usable archive of a source, and whose node has some.
pub fn only_local_error(best: &Candidate, why: &str, kind: ErrorKind) -> Error {
    let slot = best.slot();
    let here: Vec<String> = best.offers().map(Offer::location).collect();
    let here = here.join(", ");
    let message = format!("{why}; only archives of this node are left, of slot {slot}: {here}");
    Error::new(kind, message).with_hint(hint::USE_RESTORE)
}

#[cfg(test)]
#[allow(clippy::expect_used, clippy::indexing_slicing)]
pub mod tests;
