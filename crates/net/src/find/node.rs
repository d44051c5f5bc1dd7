//! What a node has, what it expects of the state, and what it found to be of no use.

use slotpress_base::{Error, ErrorKind, Hint};
use slotpress_format::{ArchiveName, Hash, Root};
use slotpress_read::CheckOptions;

use super::Candidate;
use crate::Offer;

/// Candidates that an error names.
const NAMED_MAX: usize = 8;

/// The slot or hash that the operator asked for. Names tell both before a byte is downloaded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Expected {
    slot: Option<u64>,
    hash: Option<Hash>,
}

impl Expected {
    /// Takes them from the options that also check the restored state.
    pub fn of_check(check: &CheckOptions) -> Self {
        Self { slot: check.expect_slot, hash: check.expect_hash }
    }

    pub fn is_any(self) -> bool {
        self != Self::default()
    }

    pub fn is_named(self, name: &ArchiveName) -> bool {
        self.slot.is_none_or(|slot| slot == name.slot) && self.hash.is_none_or(|hash| hash == name.hash)
    }

    /// Error for when none of these candidates leads to the state.
    pub fn is_nowhere(self, candidates: &[Candidate]) -> Error {
        let found: Vec<String> = candidates.iter().take(NAMED_MAX).map(|one| one.slot().to_string()).collect();
        let slot = self.slot.map(|slot| format!("slot {slot}"));
        let hash = self.hash.map(|hash| format!("hash {hash}"));
        let asked: Vec<String> = slot.into_iter().chain(hash).collect();
        let message = format!("no source has the state of {} (found: slots {})", asked.join(", "), found.join(", "));
        Error::damaged(message).with_hint(Hint::UseFind)
    }
}

/// An archive that is not used in this run, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bad {
    pub name: ArchiveName,
    /// Its source: a URL without secrets, or a path. `None` for all of them.
    pub place: Option<String>,
    /// True if it lies in the archives directory: then no archive of this name can be fetched there.
    pub is_in_place: bool,
    /// Stands for its bytes, wherever they are.
    pub root: Option<Root>,
    /// The place of the full archive with which it failed, where either of the two may be wrong.
    pub with: Option<String>,
    pub why: String,
}

impl Bad {
    fn is(&self, offer: &Offer) -> bool {
        let is_there = self.place.as_ref().is_none_or(|place| *place == offer.shown());
        let are_its_bytes = self.root.is_some() && self.root == offer.root;
        self.name == offer.name && (self.is_in_place || is_there || are_its_bytes)
    }
}

/// What a node has, asks for, and knows to be of no use.
#[derive(Clone, Debug, Default)]
pub struct Node {
    pub expected: Expected,
    /// The only archive that is asked for, if it is asked for by its URL.
    pub only: Option<ArchiveName>,
    /// Slots of the full archives in the archives directory. A state on an older one is refused there: a validator would make its
    /// next incremental archive on the newer one, and closed accounts would come back.
    pub full_slots: Vec<u64>,
    /// Bytes that an earlier run left of an archive, or this one fetched.
    pub kept: Vec<(ArchiveName, u64)>,
    pub bad: Vec<Bad>,
}

impl Node {
    /// True if an offer may be used; an incremental archive, on a full one from `full_place`.
    pub fn allows(&self, offer: &Offer, full_place: Option<&str>) -> bool {
        !self.bad.iter().any(|bad| bad.is(offer) && (bad.with.is_none() || bad.with.as_deref() == full_place))
    }

    pub fn kept_bytes(&self, name: &ArchiveName) -> u64 {
        self.kept.iter().find(|(kept, _)| kept == name).map_or(0, |(_, bytes)| *bytes)
    }

    pub fn keeps(&mut self, name: &ArchiveName, bytes: u64) {
        self.kept.retain(|(kept, _)| kept != name);
        self.kept.push((name.clone(), bytes));
    }

    /// Number of archives from this offer's server that are not used.
    pub fn faults_of(&self, offer: &Offer) -> usize {
        let Some(server) = server_of(&offer.shown()) else { return 0 };
        let is_its = |bad: &&Bad| bad.place.as_deref().and_then(server_of).as_ref() == Some(&server);
        self.bad.iter().filter(is_its).count()
    }

    /// Error for when nothing is left: `last`, and the reasons for the others.
    pub fn nothing_left(&self, last: &Error) -> Error {
        let in_place = self.bad.iter().filter(|bad| bad.is_in_place).find_map(|bad| bad.place.as_ref());
        let hint = match (in_place, last.hint()) {
            _ if last.kind() == ErrorKind::Unsupported => last.hint().cloned().unwrap_or(Hint::ConvertFile),
            (Some(place), _) => format!("move {place} away, so that another source's can be fetched").into(),
            (None, Some(hint)) => hint.clone(),
            (None, None) => Hint::from("give other sources, or try again later"),
        };
        if self.bad.len() < 2 {
            return last.clone().with_hint(hint);
        }
        let whys = self.bad.iter().take(NAMED_MAX).map(|bad| match &bad.place {
            Some(place) if !bad.why.contains(place) => format!("{place}: {}", bad.why),
            _ => bad.why.clone(),
        });
        let more = if self.bad.len() > NAMED_MAX { "; and others" } else { "" };
        let message = format!("no source is left: {}{more}", Vec::from_iter(whys).join("; "));
        Error::new(last.kind(), message).with_hint(hint)
    }
}

fn server_of(place: &str) -> Option<String> {
    crate::parse_url(place).ok().map(|url| crate::origin_of(&url))
}
