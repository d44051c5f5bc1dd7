//! Decides what `fetch` and `bootstrap` do after a failure. Pure: [`Left`] is the whole state, and
//! [`Left::after`] makes all decisions.
//!
//! Each failure removes archives or sources that cannot be used, and the others are ranked again as
//! at the start. So a run always ends: there are finitely many archives, and the number of steps
//! that remove nothing or ask the sources again is limited.

use std::collections::BTreeMap;

use serde::Serialize;
use slotpress_base::{Error, ErrorKind, hint, one_line};
use slotpress_format::{ArchiveName, Root};
use slotpress_net::find::rank::{Offered, Ranking};
use slotpress_net::find::{Bad, Node};
use slotpress_net::{Candidate, Offer, Remote};

use super::choose::ChosenArchive;
use crate::restore::unread;

/// Hint after a failed download.
pub const KEPT_HINT: &str = "received bytes are kept: run the same command again to continue";

/// Limit on the steps that remove nothing or ask the sources again, for each source that fails. Each
/// may cost a whole download.
const AGAIN_MAX: usize = 8;

/// Limit on these steps for all sources together: a cluster may name other servers each time.
const AGAIN_IN_ALL_MAX: usize = 64;

/// An archive that was chosen, and where it comes from.
#[derive(Clone, Debug)]
pub struct Taken {
    pub name: ArchiveName,
    /// The source that is asked first: a URL without secrets, or a path.
    pub place: String,
    /// True if the archive is in the archives directory.
    pub is_in_place: bool,
    pub root: Option<Root>,
    /// Origins of its servers, that which is asked first at the front; empty for a local file.
    pub servers: Vec<String>,
}

impl Taken {
    /// Describes an archive that is not in the archives directory.
    pub fn of(choice: &ChosenArchive) -> Self {
        let servers = choice.remotes().iter().map(Remote::origin).collect();
        let (name, place) = (choice.name.clone(), choice.first_place());
        Self { name, place, is_in_place: false, root: choice.root, servers }
    }

    /// The source for which a failure counts: the server that is asked first, or the path.
    fn counted_for(&self) -> &str {
        self.servers.first().unwrap_or(&self.place)
    }
}

/// The archives of the attempt that failed.
#[derive(Clone, Debug)]
pub struct Asked {
    pub full: Taken,
    pub incremental: Option<Taken>,
}

impl Asked {
    /// The archive that failed: the incremental one if there is one.
    pub fn newest(&self) -> &Taken {
        self.incremental.as_ref().unwrap_or(&self.full)
    }

    fn names(&self) -> Vec<ArchiveName> {
        [Some(&self.full), self.incremental.as_ref()].into_iter().flatten().map(|taken| taken.name.clone()).collect()
    }
}

/// How an attempt failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Happened {
    /// The archive is wrong, and an earlier run fetched a part of it.
    KeptIsWrong,
    /// The source now has another archive under the same name.
    PublishedAgain,
    /// The archive cannot be fetched, is wrong, has changed, or cannot be used on this node. Lists
    /// the sources that sent wrong bytes. They and the first source are not used for it again.
    Unusable(Vec<String>),
    /// The restore found the state to be wrong. If there are two archives, either may be at fault.
    Refused,
    /// Too few trusted servers confirm the archive.
    Unconfirmed,
    /// No usable incremental archive is left for the copy of the full archive in use.
    Vanished,
    /// No other archive would help.
    Final,
}

/// What to do next.
#[derive(Clone, Debug)]
pub enum Step {
    /// The same archive from the same source.
    Again,
    /// The same archive from another source.
    OtherSource,
    /// Another archive or pair of archives.
    NextArchive,
    /// Another archive or pair, after a pair with a full archive of this node failed.
    WithoutBase,
    /// The full archive without an incremental one.
    FullAlone,
    /// Ask the sources again.
    AskAgain,
    /// End the run.
    End(Error),
}

/// A state that is newer than the result of the run, but failed.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct GivenUp {
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

/// What is left to choose from: offers of the sources, and what has failed.
#[derive(Clone, Debug, Default)]
pub struct Left {
    /// Offers of the sources.
    pub found: Ranking,
    /// Archives of this node, the expected state, and what has failed.
    pub node: Node,
    /// The newest state that was given up.
    pub given_up: Option<GivenUp>,
    /// Number of steps that removed nothing or asked the sources again, by the server that had
    /// failed. Counted for each, so that one server cannot use up what is meant for the others.
    pub again: BTreeMap<String, usize>,
}

impl Left {
    /// All candidates, best first.
    pub fn candidates(&self) -> Vec<Candidate> {
        self.found.rank(&self.node).0
    }

    /// The best candidate; a last resort only if there is no other.
    pub fn best(&self) -> Option<Candidate> {
        let mut candidates = self.candidates();
        let best = candidates.iter().position(|candidate| !self.is_last_resort(candidate)).unwrap_or(0);
        (best < candidates.len()).then(|| candidates.swap_remove(best))
    }

    /// True if a newer state of a source was given up, and all archives of the candidate are on
    /// this node only. The run then ends with an error, and does not use an older state unasked.
    fn is_last_resort(&self, candidate: &Candidate) -> bool {
        let is_here = |offer: &Offer| {
            let mut all = self.found.offers.iter().map(|(offer, ..)| offer).filter(|other| other.name == offer.name);
            all.all(Offer::is_local)
        };
        let is_better = |given_up: &GivenUp| given_up.is_remote && given_up.slot > candidate.slot();
        self.given_up.as_ref().is_some_and(is_better) && candidate.offers().all(is_here)
    }

    /// True if no better candidate is left than the full archive in use, alone or with an
    /// incremental one. Compares slots too: the best candidate may be the same full archive from
    /// another place, with a newer incremental archive that failed with the copy in use.
    pub fn is_best_on(&self, full: &Taken) -> bool {
        let slot = self.newest_on(full).map_or(full.name.slot, |newest| newest.name.slot);
        self.best().is_some_and(|best| best.full.name == full.name && best.slot() <= slot)
    }

    /// True if `choice`, an incremental archive on the full one in use, should not be fetched,
    /// because another candidate is now better. Always false without a failure, unless `choice` is
    /// older than the planned incremental archive.
    pub fn is_beaten(&self, choice: &ChosenArchive, planned: &Asked, has_failed: bool) -> bool {
        let is_older = planned.incremental.as_ref().is_some_and(|planned| choice.name.slot < planned.name.slot);
        (has_failed || is_older) && !self.is_best_on(&planned.full)
    }

    /// True if an incremental archive on this full one is wanted.
    pub fn wants_incremental(&self, full: &ArchiveName) -> bool {
        let is_enough = self.node.expected.is_any() && self.node.expected.is_named(full);
        self.found.wants_incremental && self.node.only.is_none() && !is_enough
    }

    /// Adds offers that are not known yet, and whose slot the cluster may have reached.
    pub fn add(&mut self, offers: impl IntoIterator<Item = Offered>) {
        for (offer, source, is_operator) in offers {
            let is_known = |(known, ..): &Offered| known.name == offer.name && known.place == offer.place;
            if self.found.is_possible(&offer) && !self.found.offers.iter().any(is_known) {
                self.found.offers.push((offer, source, is_operator));
            }
        }
    }

    /// The archives of a candidate, each with all places that have it.
    pub fn choices(&self, candidate: &Candidate) -> (ChosenArchive, Option<ChosenArchive>) {
        let offers = self.found.offers.iter().map(|(offer, ..)| offer);
        // Leaves out places of the full archive with which the incremental one failed.
        let may_go = |full: &&Offer| {
            let place = full.shown();
            self.node.allows(full, None)
                && candidate.incremental.as_ref().is_none_or(|on| self.node.allows(on, Some(&place)))
        };
        let fulls: Vec<_> = offers.clone().filter(may_go).collect();
        let place = candidate.full.shown();
        let on: Vec<_> = offers.filter(|offer| self.node.allows(offer, Some(&place))).collect();
        let incremental = candidate.incremental.as_ref().map(|offer| ChosenArchive::of(offer, &on));
        (ChosenArchive::of(&candidate.full, &fulls), incremental)
    }

    /// The newest incremental archive on the full one in use.
    pub fn newest_on(&self, full: &Taken) -> Option<ChosenArchive> {
        let newest = self.found.newest_on(&full.name, &full.place, &self.node, None)?;
        let offers = self.found.offers.iter().map(|(offer, ..)| offer);
        let allowed: Vec<_> = offers.filter(|offer| self.node.allows(offer, Some(&full.place))).collect();
        Some(ChosenArchive::of(newest, &allowed))
    }

    /// Records a failure, and decides what to do next.
    pub fn after(&mut self, asked: &Asked, happened: &Happened, error: &Error) -> Step {
        use Happened::{Final, KeptIsWrong, PublishedAgain, Refused, Vanished};
        let of = asked.newest();
        let may_be_again = self.again_at(of) < AGAIN_MAX && self.again.values().sum::<usize>() < AGAIN_IN_ALL_MAX;
        match happened {
            Final => return Step::End(error.clone()),
            KeptIsWrong if may_be_again => return self.once_more(of, Step::Again),
            // The source no longer has what it offered. Another source may still have it; asking
            // again finds the new archive.
            PublishedAgain if may_be_again => {
                self.found.offers.retain(|(offer, ..)| offer.name != of.name || offer.shown() != of.place);
            }
            // Keep the known incremental archives: they may be used with the same full archive from
            // another place. At the limit of steps, remove all that are based on its slot.
            Vanished if may_be_again => self.count(of),
            Vanished => {
                let is_on_it = |name: &ArchiveName| name.base_slot == Some(asked.full.name.slot);
                self.found.offers.retain(|(offer, ..)| !is_on_it(&offer.name));
            }
            _ => self.mark_bad(asked, happened, error),
        }
        self.give_up(asked, error);
        // A newer incremental archive may have replaced this one at the source.
        if asked.incremental.is_some() && may_be_again && !matches!(happened, Refused | Vanished) {
            return self.once_more(of, Step::AskAgain);
        }
        let Some(best) = self.best() else {
            return match may_be_again && matches!(happened, PublishedAgain | Refused) {
                true => self.once_more(of, Step::AskAgain),
                false => Step::End(self.node.nothing_left(error)),
            };
        };
        if self.is_last_resort(&best) {
            return Step::End(only_here(&best, &error.to_string(), error.kind()));
        }
        let is_still_on_offer = best.offers().any(|offer| offer.name == of.name);
        match best.full.name == asked.full.name {
            _ if is_still_on_offer && *happened != Vanished => Step::OtherSource,
            true if best.incremental.is_none() && asked.incremental.is_some() => Step::FullAlone,
            false if asked.full.servers.is_empty() => Step::WithoutBase,
            _ => Step::NextArchive,
        }
    }

    /// Removes archives that Agave does not read, since a restore refuses them. If they offered a newer
    /// state than what is left, remembers it as given up.
    ///
    /// # Errors
    /// Without them, nothing is left, or only archives of this node.
    pub fn leave_out_unread(&mut self) -> Result<(), Error> {
        let is_unread = |offer: &Offer| !offer.name.extension.is_read_by_agave();
        if !self.found.offers.iter().any(|(offer, ..)| is_unread(offer)) {
            return Ok(());
        }
        let newest =
            self.candidates().into_iter().filter(|one| one.offers().any(is_unread)).max_by_key(Candidate::slot);
        self.found.offers.retain(|(offer, ..)| !is_unread(offer));
        let best = self.best();
        let Some(newest) = newest.filter(|newest| best.as_ref().is_none_or(|best| best.slot() < newest.slot())) else {
            return Ok(());
        };
        let offer = newest.offers().find(|offer| is_unread(offer)).unwrap_or(&newest.full);
        let error = unread(&offer.shown(), offer.name.extension);
        self.given_up = Some(GivenUp {
            archives: newest.offers().map(|offer| offer.name.clone()).collect(),
            slot: newest.slot(),
            why: error.to_string(),
            is_remote: newest.remotes().next().is_some(),
        });
        match best {
            None => Err(error),
            Some(best) if self.is_last_resort(&best) => Err(only_here(&best, &error.to_string(), error.kind())),
            Some(_) => Ok(()),
        }
    }

    fn again_at(&self, of: &Taken) -> usize {
        self.again.get(of.counted_for()).copied().unwrap_or_default()
    }

    fn count(&mut self, of: &Taken) {
        let again = self.again.entry(of.counted_for().to_string()).or_default();
        *again = again.saturating_add(1);
    }

    fn once_more(&mut self, of: &Taken, step: Step) -> Step {
        self.count(of);
        step
    }

    /// Records the archive as bad: only at its source, or wherever it is found.
    fn mark_bad(&mut self, asked: &Asked, happened: &Happened, error: &Error) {
        let Taken { name, place, is_in_place, root, .. } = asked.newest().clone();
        let is_refused = *happened == Happened::Refused;
        let bad = Bad {
            name,
            place: Some(place).filter(|_| *happened != Happened::Unconfirmed),
            is_in_place,
            // If the content is wrong, the same bytes are wrong from any source. If a source does
            // not send the bytes, another one may.
            root: root.filter(|_| is_refused),
            // A full archive that is in the archives directory stays there, so the incremental
            // archive cannot be tried with another copy of it: it is bad with any full archive.
            with: asked
                .incremental
                .as_ref()
                .filter(|_| is_refused && !asked.full.is_in_place)
                .map(|_| asked.full.place.clone()),
            why: one_line(&error.to_string()),
        };
        if let Happened::Unusable(places) = happened {
            let others = places.iter().filter(|place| bad.place.as_ref() != Some(*place));
            self.node.bad.extend(others.map(|place| Bad { place: Some(place.clone()), ..bad.clone() }));
        }
        self.node.bad.push(bad);
    }

    /// Remembers the newest state that failed.
    fn give_up(&mut self, asked: &Asked, error: &Error) {
        let newest = asked.newest();
        if self.given_up.as_ref().is_none_or(|known| known.slot < newest.name.slot) {
            let (archives, slot, is_remote) = (asked.names(), newest.name.slot, !newest.servers.is_empty());
            self.given_up = Some(GivenUp { archives, slot, why: one_line(&error.to_string()), is_remote });
        }
    }
}

/// Error for a run in which no source gives a usable archive, and only the node's own archives are
/// left.
pub fn only_here(best: &Candidate, why: &str, kind: ErrorKind) -> Error {
    let here: Vec<String> = best.offers().map(Offer::shown).collect();
    let message = format!("{why}; only archives of this node are left, of slot {}: {}", best.slot(), here.join(", "));
    Error::new(kind, message).with_hint(hint::USE_RESTORE)
}

#[cfg(test)]
#[allow(clippy::expect_used, clippy::indexing_slicing)]
pub mod tests;
