//! An archive that was chosen, and all places that have it.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use serde::ser::SerializeStruct;
use serde::{Serialize, Serializer};
use slotpress_base::ShowPath;
use slotpress_format::{ArchiveName, Root};
use slotpress_net::{Offer, OfferPlace, Remote};

/// An archive that was chosen.
#[derive(Clone, Debug)]
#[allow(missing_docs, reason = "the names say it")]
pub struct ChosenArchive {
    pub name: ArchiveName,
    pub length_bytes: Option<u64>,
    /// Root of the archive, if its offer states one.
    pub root: Option<Root>,
    pub place: ChosenPlaces,
    /// True if a file of its name is in the archives directory.
    pub(super) is_in_place: bool,
}

/// Places that have an archive.
#[derive(Clone, Debug)]
#[allow(missing_docs, reason = "the names say it")]
pub enum ChosenPlaces {
    /// A local file.
    Local(PathBuf),
    /// Servers, best first.
    Servers(Vec<Remote>),
}

impl Serialize for ChosenArchive {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut fields = serializer.serialize_struct("ChosenArchive", 5)?;
        fields.serialize_field("name", &self.name)?;
        fields.serialize_field("slot", &self.name.slot)?;
        fields.serialize_field("hash", &self.name.hash)?;
        fields.serialize_field("file_bytes", &self.length_bytes)?;
        fields.serialize_field("from", &self.shown())?;
        fields.end()
    }
}

impl ChosenArchive {
    /// True if the archive is a local file.
    pub fn is_local(&self) -> bool {
        matches!(self.place, ChosenPlaces::Local(_))
    }

    /// Servers that have the archive, best first; empty for a local file.
    pub(super) fn remotes(&self) -> &[Remote] {
        match &self.place {
            ChosenPlaces::Local(_) => &[],
            ChosenPlaces::Servers(remotes) => remotes,
        }
    }

    /// True if the archive takes no room in this archives directory: it is there, or the file system
    /// clones it.
    pub fn takes_no_room(&self, dir: &Path) -> bool {
        matches!(&self.place, ChosenPlaces::Local(path) if lies_in(path, dir) || may_clone(path, dir))
    }

    /// Collects all places that have the archive `best`, and puts `best` first. If one place is a
    /// local file, returns only that file, unless a server says that the archive is longer. Leaves
    /// out offers with another root: they are other archives of the same name.
    pub(super) fn of(best: &Offer, all: &[&Offer]) -> Self {
        let is_same = |offer: &Offer| {
            offer.name == best.name && best.root.zip(offer.root).is_none_or(|(best, root)| best == root)
        };
        let same = || std::iter::once(best).chain(all.iter().copied()).filter(|offer| is_same(offer));
        let is_cut = |local: &Offer| {
            let mut remote = same().filter(|offer| matches!(offer.place, OfferPlace::Remote(_)));
            remote.any(|remote| remote.length_bytes.zip(local.length_bytes).is_some_and(|(all, local)| local < all))
        };
        let local = same().find_map(|offer| match &offer.place {
            OfferPlace::Local(path) if !is_cut(offer) => Some((path.clone(), offer.length_bytes)),
            _ => None,
        });
        let (place, length_bytes) = match local {
            Some((path, length_bytes)) => (ChosenPlaces::Local(path), length_bytes),
            None => {
                let mut remotes: Vec<Remote> = Vec::new();
                for offer in same() {
                    if let OfferPlace::Remote(remote) = &offer.place
                        && !remotes.iter().any(|known| known.url == remote.url)
                    {
                        remotes.push(remote.clone());
                    }
                }
                let first = same().find(|offer| !offer.is_local());
                (ChosenPlaces::Servers(remotes), first.and_then(|first| first.length_bytes))
            }
        };
        Self { name: best.name.clone(), length_bytes, root: best.root, place, is_in_place: false }
    }

    /// Path, or URL without secrets, of the place that is read first.
    pub fn first_place(&self) -> String {
        match &self.place {
            ChosenPlaces::Local(path) => path.shown(),
            ChosenPlaces::Servers(remotes) => {
                remotes.first().map_or(String::new(), |remote| slotpress_net::shown(&remote.url))
            }
        }
    }

    /// The source for which a failure counts: the server that is asked first, or the path.
    pub(super) fn counted_for(&self) -> String {
        self.remotes().first().map_or_else(|| self.first_place(), Remote::origin)
    }

    /// Text that describes all places, without secrets.
    pub fn shown(&self) -> String {
        let first = self.first_place();
        match &self.place {
            ChosenPlaces::Servers(remotes) if remotes.len() > 1 => format!("{first} and {} more", remotes.len() - 1),
            _ => first,
        }
    }
}

/// True if an archive is in the directory or in its subdirectory `remote`, so that it is not copied.
/// True if both are on one file system of a kind that clones files. If it does not, the restore
/// counts the copy.
fn may_clone(path: &Path, dir: &Path) -> bool {
    /// XFS and Btrfs, in `statfs(2)`.
    const CLONING: [u64; 2] = [0x5846_5342, 0x9123_683e];
    let Ok(dir) = std::path::absolute(dir) else { return false };
    let above = dir.ancestors().find_map(|above| above.metadata().ok().map(|found| (above, found.dev())));
    let Some((above, device)) = above else { return false };
    path.metadata().is_ok_and(|found| found.dev() == device)
        && rustix::fs::statfs(above).is_ok_and(|stat| CLONING.contains(&(stat.f_type as u64)))
}

fn lies_in(path: &Path, dir: &Path) -> bool {
    let path = std::path::absolute(path).ok();
    let parent = path.and_then(|path| path.parent().and_then(|parent| parent.canonicalize().ok()));
    [dir.to_path_buf(), dir.join("remote")].iter().any(|dir| parent.is_some() && parent == dir.canonicalize().ok())
}
