//! Which archive is fetched, and from whom: of what sources offer, the best state, and everybody who has its archives.

use serde::ser::SerializeStruct;
use serde::{Serialize, Serializer};
use slotpress_base::ShowPath;
use slotpress_format::ArchiveName;
use slotpress_net::{Candidate, Offer, Place, Remote};

use super::expected::Expected;
use crate::restore::dry_run::lies_in;

#[derive(Clone, Debug)]
#[allow(missing_docs, reason = "the names say it")]
pub struct Choice {
    pub name: ArchiveName,
    pub length_bytes: Option<u64>,
    /// Where it is: one file, or servers, the best first.
    pub place: Places,
}

/// Where an archive is.
#[derive(Clone, Debug)]
#[allow(missing_docs, reason = "the names say it")]
pub enum Places {
    /// On a local disk.
    Local(std::path::PathBuf),
    Servers(Vec<Remote>),
}

impl Serialize for Choice {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut fields = serializer.serialize_struct("Choice", 5)?;
        fields.serialize_field("name", &self.name)?;
        fields.serialize_field("slot", &self.name.slot)?;
        fields.serialize_field("hash", &self.name.hash)?;
        fields.serialize_field("file_bytes", &self.length_bytes)?;
        fields.serialize_field("from", &self.shown())?;
        fields.end()
    }
}

impl Choice {
    /// Whether it is here already.
    pub fn is_local(&self) -> bool {
        matches!(self.place, Places::Local(_))
    }

    /// Whether it is in this archives directory already: it is neither fetched nor copied.
    pub fn is_in(&self, dir: &std::path::Path) -> bool {
        matches!(&self.place, Places::Local(path) if lies_in(path, dir))
    }

    /// Everybody who has what `best` is, `best` first. A file on a local disk is enough, unless servers say that the archive
    /// is longer. Who says that it has another root has other bytes under the same name.
    fn of(best: &Offer, all: &[Offer]) -> Self {
        let is_same = |offer: &Offer| {
            offer.name == best.name && best.root.zip(offer.root).is_none_or(|(best, root)| best == root)
        };
        let same = || std::iter::once(best).chain(all).filter(|offer| is_same(offer));
        let is_cut = |local: &Offer| {
            let mut remote = same().filter(|offer| matches!(offer.place, Place::Remote(_)));
            remote.any(|remote| remote.length_bytes.zip(local.length_bytes).is_some_and(|(all, local)| local < all))
        };
        let local = same().find_map(|offer| match &offer.place {
            Place::Local(path) if !is_cut(offer) => Some((path.clone(), offer.length_bytes)),
            _ => None,
        });
        let (place, length_bytes) = match local {
            Some((path, length_bytes)) => (Places::Local(path), length_bytes),
            None => {
                let mut remotes: Vec<Remote> = Vec::new();
                for offer in same() {
                    if let Place::Remote(remote) = &offer.place
                        && !remotes.iter().any(|known| known.url == remote.url)
                    {
                        remotes.push(remote.clone());
                    }
                }
                (Places::Servers(remotes), best.length_bytes)
            }
        };
        Self { name: best.name.clone(), length_bytes, place }
    }

    /// The file or server that is read first, without secrets.
    pub fn first_place(&self) -> String {
        match &self.place {
            Places::Local(path) => path.shown(),
            Places::Servers(remotes) => {
                remotes.first().map_or(String::new(), |remote| slotpress_net::shown(&remote.url))
            }
        }
    }

    /// Where it is, without secrets.
    pub fn shown(&self) -> String {
        let first = self.first_place();
        match &self.place {
            Places::Servers(remotes) if remotes.len() > 1 => format!("{first} and {} more", remotes.len() - 1),
            _ => first,
        }
    }
}

/// The archives of candidates: the full ones in their order, and the incremental ones.
pub fn offers_of(candidates: &[Candidate]) -> Vec<Offer> {
    let fulls = candidates.iter().map(|candidate| &candidate.full);
    fulls.chain(candidates.iter().filter_map(|candidate| candidate.incremental.as_ref())).cloned().collect()
}

/// The first full archive; of several that were begun before, the first of those.
pub fn full(offers: &[Offer], is_begun: impl Fn(&ArchiveName) -> bool) -> Option<Choice> {
    let fulls = || offers.iter().filter(|offer| offer.name.base_slot.is_none());
    let best = fulls().find(|offer| is_begun(&offer.name)).or(fulls().next())?;
    Some(Choice::of(best, offers))
}

pub fn named(offers: &[Offer], name: &ArchiveName) -> Option<Choice> {
    Some(Choice::of(offers.iter().find(|offer| offer.name == *name)?, offers))
}

/// The name of the newest archive of the state that a full one is part of.
pub fn newest_name(offers: &[Offer], full: &ArchiveName, expected: Expected) -> ArchiveName {
    if expected.is_any() && expected.is_named(full) {
        return full.clone();
    }
    incremental(offers, full, expected).map_or_else(|| full.clone(), |choice| choice.name)
}

/// The newest incremental archive on a full one, or that of the state that is expected.
pub fn incremental(offers: &[Offer], full: &ArchiveName, expected: Expected) -> Option<Choice> {
    let is_fit = |offer: &&Offer| offer.goes_on(full) && expected.is_named(&offer.name);
    let newest = offers.iter().filter(is_fit).map(|offer| offer.name.slot).max()?;
    let best = offers.iter().filter(is_fit).find(|offer| offer.name.slot == newest)?;
    Some(Choice::of(best, offers))
}
