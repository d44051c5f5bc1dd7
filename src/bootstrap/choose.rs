//! Archives that a run has chosen, and the places that have them.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use serde::ser::SerializeStruct;
use serde::{Serialize, Serializer};
use slotpress_base::EscapePath;
use slotpress_format::{ArchiveName, ArchiveRoot};
use slotpress_net::{Offer, OfferPlace, Remote};
use slotpress_read::REMOTE_DIR;

/// An archive that a run has chosen, and all places that have it.
#[derive(Clone, Debug)]
#[allow(missing_docs, reason = "the names say it")]
pub struct ChosenArchive {
    pub name: ArchiveName,
    pub file_bytes: Option<u64>,
    /// Root of the archive, if its offer states one.
    pub root: Option<ArchiveRoot>,
    /// Path of the archive, if it is a local file.
    pub path: Option<PathBuf>,
    /// Servers that have the archive, best first; empty for a local file.
    pub(super) remotes: Vec<Remote>,
    /// True if the path is in the snapshots directory.
    pub(super) is_in_place: bool,
}

impl Serialize for ChosenArchive {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut fields = serializer.serialize_struct("ChosenArchive", 5)?;
        fields.serialize_field("name", &self.name)?;
        fields.serialize_field("slot", &self.name.slot)?;
        fields.serialize_field("hash", &self.name.hash)?;
        fields.serialize_field("file_bytes", &self.file_bytes)?;
        fields.serialize_field("from", &self.describe())?;
        fields.end()
    }
}

impl ChosenArchive {
    pub fn is_local(&self) -> bool {
        self.path.is_some()
    }

    /// Returns true if the archive takes no space in a snapshots directory, because it is already there or
    /// the file system can clone it.
    pub fn takes_no_room(&self, dir: &Path) -> bool {
        let Some(path) = &self.path else { return false };
        is_in_snapshots_dir(path, dir) || may_clone(path, dir)
    }

    /// Collects all places that have the archive `best`, and puts `best` first. If one place is a
    /// local file, returns only that file, unless a server says that the archive is longer. Leaves
    /// out offers with a different root: those are different archives with the same name.
    pub(super) fn from_offer(best: &Offer, offers: &[&Offer]) -> Self {
        let is_same_root = |root: Option<ArchiveRoot>| root.is_none() || best.root.is_none() || root == best.root;
        let mut same_archive = offers.to_vec();
        same_archive.retain(|offer| offer.name == best.name && is_same_root(offer.root));
        same_archive.insert(0, best);
        let (locals, remotes): (Vec<_>, Vec<_>) = same_archive.into_iter().partition(|offer| offer.is_local());
        let longest = remotes.iter().filter_map(|offer| offer.file_bytes).max();
        let may_be_whole = |local: &&Offer| local.file_bytes.is_none() || local.file_bytes >= longest;
        let local = locals.into_iter().find(may_be_whole);
        let first = local.or(remotes.first().copied());
        let mut chosen = Self {
            name: best.name.clone(),
            file_bytes: first.and_then(|first| first.file_bytes),
            root: best.root,
            path: None,
            remotes: Vec::new(),
            is_in_place: false,
        };
        if let Some(OfferPlace::Local(path)) = local.map(|local| &local.place) {
            chosen.path = Some(path.clone());
            return chosen;
        }
        for remote in remotes.into_iter().filter_map(Offer::remote) {
            if !chosen.remotes.iter().any(|known| known.url == remote.url) {
                chosen.remotes.push(remote.clone());
            }
        }
        chosen
    }

    /// Returns the path of the local file, or the URL of the first server without secrets.
    pub fn first_location(&self) -> String {
        match (&self.path, self.remotes.first()) {
            (Some(path), _) => path.escaped(),
            (None, Some(remote)) => slotpress_net::show_url(&remote.url),
            (None, None) => String::new(),
        }
    }

    /// Returns the source that is blamed for a failure: the server that is asked first, or the path.
    pub(super) fn source_at_fault(&self) -> String {
        match self.remotes.first() {
            Some(remote) => remote.origin(),
            None => self.first_location(),
        }
    }

    /// Names the first place, without secrets, and says how many more there are.
    pub fn describe(&self) -> String {
        let first = self.first_location();
        match self.remotes.len() {
            0 | 1 => first,
            places => format!("{first} and {} more", places - 1),
        }
    }
}

/// Returns true if the file and the directory are on the same file system, of a kind that can clone files.
/// This is a guess: if the clone fails, `restore` copies the file and counts its bytes.
fn may_clone(path: &Path, dir: &Path) -> bool {
    /// XFS and Btrfs, in `statfs(2)`.
    const CLONING: [u64; 2] = [0x5846_5342, 0x9123_683e];
    let dir = std::path::absolute(dir).unwrap_or_default();
    let Some(existing) = dir.ancestors().find(|dir| dir.exists()) else { return false };
    let device = |path: &Path| path.metadata().ok().map(|metadata| metadata.dev());
    device(path).is_some()
        && device(path) == device(existing)
        && rustix::fs::statfs(existing).is_ok_and(|stat| CLONING.contains(&(stat.f_type as u64)))
}

/// Returns true if the file is in the snapshots directory `dir` or in its subdirectory `remote`.
fn is_in_snapshots_dir(path: &Path, dir: &Path) -> bool {
    let path = std::path::absolute(path).unwrap_or_default();
    let Some(parent) = path.parent().and_then(|parent| parent.canonicalize().ok()) else { return false };
    let dirs = [dir.to_path_buf(), dir.join(REMOTE_DIR)];
    let mut dirs = dirs.iter().filter_map(|dir| dir.canonicalize().ok());
    dirs.any(|dir| dir == parent)
}
