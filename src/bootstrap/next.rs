//! What follows on what happened, for `fetch` and `bootstrap`. No I/O: [`Left`] is all that decides, and [`Left::after`] the only
//! place where it is decided.
//!
//! After each failure, what was shown to be of no use is taken away, and the rest is ranked again, as at the start. So a run
//! always ends: there are finitely many archives, and sources are asked again a few times only.

use std::collections::BTreeSet;

use serde::Serialize;
use slotpress_base::{Error, ErrorKind, Hint, one_line};
use slotpress_format::{ArchiveName, Root};
use slotpress_net::find::rank::{Offered, Ranking};
use slotpress_net::find::{Bad, Node};
use slotpress_net::{Candidate, Offer, Remote};

use super::choose::Choice;

/// Advice after a failed download.
pub const KEPT_HINT: &str = "received bytes are kept: run the same command again to continue";

/// Limit on steps that take nothing away: each may cost a whole download.
const AGAIN_MAX: usize = 8;

/// An archive that was chosen, and where it comes from.
#[derive(Clone, Debug)]
pub struct Taken {
    pub name: ArchiveName,
    /// The source that is asked first: a URL without secrets, or a path.
    pub place: String,
    /// True if it lies in the archives directory.
    pub is_in_place: bool,
    pub root: Option<Root>,
    /// Its servers, by their origins; none of a local file.
    pub servers: Vec<String>,
}

impl Taken {
    /// An archive that does not lie in the archives directory.
    pub fn of(choice: &Choice) -> Self {
        let servers = choice.remotes().iter().map(Remote::origin).collect();
        let (name, place) = (choice.name.clone(), choice.first_place());
        Self { name, place, is_in_place: false, root: choice.root, servers }
    }
}

/// What was asked for: a full archive, and what goes on it.
#[derive(Clone, Debug)]
pub struct Asked {
    pub full: Taken,
    pub incremental: Option<Taken>,
}

impl Asked {
    pub fn newest(&self) -> &Taken {
        self.incremental.as_ref().unwrap_or(&self.full)
    }

    fn names(&self) -> Vec<ArchiveName> {
        [Some(&self.full), self.incremental.as_ref()].into_iter().flatten().map(|taken| taken.name.clone()).collect()
    }
}

/// What became of what was asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Happened {
    /// The server announced ranges, and sends none.
    NoRanges,
    /// It is wrong, and a part of it is of an earlier run.
    KeptIsWrong,
    /// The source has another archive under its name now.
    PublishedAgain,
    /// It does not come, is wrong or not what it was, or cannot be used here. The sources of which that is known, if it is of
    /// others than the first.
    Unusable(Vec<String>),
    /// What was read is wrong; of two archives, either may be.
    Refused,
    /// No trusted server confirms it.
    Unconfirmed,
    /// No source has an incremental archive on the full one any more.
    Vanished,
    /// Nothing that another archive would change.
    Final,
}

/// What is done next.
#[derive(Clone, Debug)]
pub enum Step {
    /// The same archive from the same source.
    Again,
    /// The same archive from another source.
    OtherSource,
    /// Another archive, or pair of archives.
    NextArchive,
    /// The same, in place of one that goes on a full archive of this node.
    WithoutBase,
    /// The full archive without an incremental one.
    FullAlone,
    /// The sources are asked again.
    AskAgain,
    End(Error),
}

/// A better state than that with which the run ended.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the names say it")]
pub struct GivenUp {
    pub archives: Vec<ArchiveName>,
    pub slot: u64,
    #[serde(rename = "reason")]
    pub why: String,
    #[serde(skip)]
    is_remote: bool,
}

/// What is left to choose from.
#[derive(Clone, Debug, Default)]
pub struct Left {
    /// What the sources have.
    pub found: Ranking,
    /// What this node has, expects, and knows to be of no use.
    pub node: Node,
    /// Servers that announce ranges but do not send them.
    pub unranged: BTreeSet<String>,
    /// The newest state that was given up.
    pub given_up: Option<GivenUp>,
    /// Steps that took nothing away.
    pub again: usize,
}

impl Left {
    pub fn candidates(&self) -> Vec<Candidate> {
        self.found.rank(&self.node).0
    }

    /// The best candidate. An older state of which everything is here is none as long as there is another.
    pub fn best(&self) -> Option<Candidate> {
        let mut candidates = self.candidates();
        let best = candidates.iter().position(|candidate| !self.is_last_resort(candidate)).unwrap_or(0);
        (best < candidates.len()).then(|| candidates.swap_remove(best))
    }

    fn is_last_resort(&self, candidate: &Candidate) -> bool {
        let is_here = |offer: &Offer| {
            let mut all = self.found.offers.iter().map(|(offer, ..)| offer).filter(|other| other.name == offer.name);
            all.all(Offer::is_local)
        };
        let is_better = |given_up: &GivenUp| given_up.is_remote && given_up.slot > candidate.slot();
        self.given_up.as_ref().is_some_and(is_better) && candidate.offers().all(is_here)
    }

    /// True if nothing better is left than what goes on a full archive at its place, or that alone. What was refused with this one
    /// may still go on one of another place.
    pub fn is_best_on(&self, full: &Taken) -> bool {
        let slot = self.newest_on(full).map_or(full.name.slot, |newest| newest.name.slot);
        self.best().is_some_and(|best| best.full.name == full.name && best.slot() <= slot)
    }

    /// True if something else is better by now than an incremental archive on the full one in use, after a failure, or if what was
    /// to be fetched has vanished.
    pub fn is_beaten(&self, choice: &Choice, planned: &Asked, has_failed: bool) -> bool {
        let is_older = planned.incremental.as_ref().is_some_and(|planned| choice.name.slot < planned.name.slot);
        (has_failed || is_older) && !self.is_best_on(&planned.full)
    }

    pub fn wants_incremental(&self, full: &ArchiveName) -> bool {
        let is_enough = self.node.expected.is_any() && self.node.expected.is_named(full);
        self.found.wants_incremental && self.node.only.is_none() && !is_enough
    }

    /// Adds what a source has now.
    pub fn add(&mut self, offers: impl IntoIterator<Item = Offered>) {
        for (offer, source, is_operator) in offers {
            let is_known = |(known, ..): &Offered| known.name == offer.name && known.place == offer.place;
            if !self.found.offers.iter().any(is_known) {
                self.found.offers.push((offer, source, is_operator));
            }
        }
    }

    /// The archives of a candidate, each with everybody who has it.
    pub fn choices(&self, candidate: &Candidate) -> (Choice, Option<Choice>) {
        let offers = self.found.offers.iter().map(|(offer, ..)| offer);
        // Not a full archive with which the incremental one failed.
        let may_go = |full: &&Offer| {
            let place = full.shown();
            self.node.allows(full, None)
                && candidate.incremental.as_ref().is_none_or(|on| self.node.allows(on, Some(&place)))
        };
        let fulls: Vec<_> = offers.clone().filter(may_go).collect();
        let place = candidate.full.shown();
        let on: Vec<_> = offers.filter(|offer| self.node.allows(offer, Some(&place))).collect();
        let incremental = candidate.incremental.as_ref().map(|offer| Choice::of(offer, &on));
        (Choice::of(&candidate.full, &fulls), incremental)
    }

    /// The newest incremental archive on a full one that is in use.
    pub fn newest_on(&self, full: &Taken) -> Option<Choice> {
        let newest = self.found.newest_on(&full.name, &full.place, &self.node, None)?;
        let offers = self.found.offers.iter().map(|(offer, ..)| offer);
        let allowed: Vec<_> = offers.filter(|offer| self.node.allows(offer, Some(&full.place))).collect();
        Some(Choice::of(newest, &allowed))
    }

    /// Decides what follows. Changes nothing but itself.
    pub fn after(&mut self, asked: &Asked, happened: &Happened, error: &Error) -> Step {
        use Happened::{Final, KeptIsWrong, NoRanges, PublishedAgain, Refused, Vanished};
        let (of, may_be_again) = (asked.newest(), self.again < AGAIN_MAX);
        match happened {
            Final => return Step::End(error.clone()),
            NoRanges if may_be_again => {
                self.unranged.extend(of.servers.iter().cloned());
                return self.once_more(Step::Again);
            }
            KeptIsWrong if may_be_again => return self.once_more(Step::Again),
            // It may be begun again, unless another server still has the earlier one.
            PublishedAgain if may_be_again => {
                self.found.offers.retain(|(offer, ..)| offer.name != of.name || offer.shown() != of.place);
            }
            // What is left has none that goes on it, as long as that is not told too often.
            Vanished if may_be_again => self.again += 1,
            Vanished => {
                let is_on_it = |name: &ArchiveName| name.base_slot == Some(asked.full.name.slot);
                self.found.offers.retain(|(offer, ..)| !is_on_it(&offer.name));
            }
            _ => self.put_away(asked, happened, error),
        }
        self.give_up(asked, error);
        // A newer one may have taken its place.
        if asked.incremental.is_some() && may_be_again && !matches!(happened, Refused | Vanished) {
            return self.once_more(Step::AskAgain);
        }
        let Some(best) = self.best() else {
            return match may_be_again && matches!(happened, PublishedAgain | Refused) {
                true => self.once_more(Step::AskAgain),
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

    fn once_more(&mut self, step: Step) -> Step {
        self.again += 1;
        step
    }

    /// Notes what is not used any more.
    fn put_away(&mut self, asked: &Asked, happened: &Happened, error: &Error) {
        let Taken { name, place, is_in_place, root, .. } = asked.newest().clone();
        let is_refused = *happened == Happened::Refused;
        let bad = Bad {
            name,
            place: Some(place).filter(|_| *happened != Happened::Unconfirmed),
            is_in_place,
            // What does not come from one source may come from another; what is wrong is so wherever it comes from.
            root: root.filter(|_| is_refused),
            // No other full archive of the name can take the place of one in the directory.
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

    /// Remembers the newest state that was not to be had.
    fn give_up(&mut self, asked: &Asked, error: &Error) {
        let newest = asked.newest();
        if self.given_up.as_ref().is_none_or(|known| known.slot < newest.name.slot) {
            let (archives, slot, is_remote) = (asked.names(), newest.name.slot, !newest.servers.is_empty());
            self.given_up = Some(GivenUp { archives, slot, why: one_line(&error.to_string()), is_remote });
        }
    }
}

/// Error for when no source sends anything, and the node has an older state.
pub fn only_here(best: &Candidate, why: &str, kind: ErrorKind) -> Error {
    let here: Vec<String> = best.offers().map(Offer::shown).collect();
    let message = format!("{why}; what is left is here, of slot {}: {}", best.slot(), here.join(", "));
    Error::new(kind, message).with_hint(Hint::UseRestore)
}

#[cfg(test)]
#[allow(clippy::expect_used, clippy::indexing_slicing)]
pub mod tests;
