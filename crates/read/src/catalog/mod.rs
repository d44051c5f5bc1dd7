//! What archives a directory holds: their names, which belong together, how old they are, which a node would choose, and
//! which may go.
//!
//! [`Catalog`] and [`prune::plan`] are pure; [`scan`] looks at directories, [`usable`] decides what of them is an archive,
//! [`prune::remove`] removes files, [`partials`] are downloads that did not end. Not here: what is inside an archive, and
//! anything of a server.

pub mod listed;
pub mod listing;
pub mod partials;
pub mod prune;
pub mod scan;
#[cfg(test)]
mod tests;
pub mod usable;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::Duration;

use serde::ser::SerializeStruct;
use serde::{Serialize, Serializer};
use slotpress_format::ledger::names::Extension;
use slotpress_format::{ArchiveName, Root, SlotTime};

use self::usable::{Fault, Unusable};

/// A file that has the name of an archive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Archive {
    /// What its name says. Written again, it is the file's name.
    pub name: ArchiveName,
    /// The directory that was asked for.
    pub dir: PathBuf,
    /// Whether it lies in the subdirectory `remote` of it, where Agave puts what it has downloaded.
    pub is_remote: bool,
    /// Its length in bytes.
    pub size_bytes: u64,
    /// When it was modified, in nanoseconds since 1970.
    pub modified_ns: u64,
    /// Which file it is.
    pub file_id: FileId,
    /// What its frame hashes say, where it has them and they were read.
    pub hashes: Option<FrameHashes>,
}

/// Where an archive's frame hashes are, and the one number that stands for every byte of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameHashes {
    /// blake3 over the archive's length and everything from `offset_bytes` to its end.
    pub root: Root,
    /// Where the frame that holds them starts in the file.
    pub offset_bytes: u64,
    /// How many there are.
    pub frames: u64,
}

/// What tells a file from another one that has taken its name: device and inode.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileId {
    /// The device it is on.
    pub device: u64,
    /// Its number there.
    pub inode: u64,
}

impl Archive {
    /// The file's path.
    pub fn path(&self) -> PathBuf {
        let dir = if self.is_remote { self.dir.join(REMOTE) } else { self.dir.clone() };
        self.name.path_in(&dir)
    }

    /// How long ago it was modified, where the clock tells.
    pub fn age(&self, now_ns: u64) -> Duration {
        Duration::from_nanos(now_ns.saturating_sub(self.modified_ns))
    }

    /// What tells its bytes from others, as HTTP has it: what stands for every byte where that is known, so that mirrors
    /// agree; else its length and time. Strong, with its quotes.
    pub fn etag(&self) -> String {
        if let Some(FrameHashes { root, .. }) = self.hashes {
            return format!("\"{root}\"");
        }
        let mut hasher = blake3::Hasher::new();
        hasher.update(&self.size_bytes.to_le_bytes()).update(&self.modified_ns.to_le_bytes());
        format!("\"{}\"", hasher.finalize().to_hex().get(..32).unwrap_or_default())
    }

    /// Whether it holds a whole state.
    pub fn is_full(&self) -> bool {
        self.name.base_slot.is_none()
    }

    /// The newest first; of one slot, what most clients read first.
    fn order(&self) -> (Reverse<u64>, usize, [u8; 32], bool, PathBuf) {
        (Reverse(self.name.slot), rank(self.name.extension), self.name.hash.0, self.is_remote, self.dir.clone())
    }
}

/// The subdirectory for what was downloaded.
pub const REMOTE: &str = "remote";

/// `.tar.zst` is read by Agave and Firedancer, `.tar.lz4` by Agave, `.tar` by Firedancer; the others by neither.
fn rank(extension: Extension) -> usize {
    match extension {
        Extension::TarZstd => 0,
        Extension::TarLz4 => 1,
        Extension::Tar => 2,
        Extension::TarBzip2 | Extension::TarGzip => 3,
    }
}

/// What a node that starts without a state would take.
#[derive(Clone, Copy, Debug)]
pub struct Choice<'a> {
    /// The newest full archive.
    pub full: &'a Archive,
    /// The newest incremental one on it.
    pub incremental: Option<&'a Archive>,
}

/// Archives, full ones from the newest on, each followed by what builds on it; last those whose full archive is not here.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Catalog {
    archives: Vec<Archive>,
    unusable: Vec<Unusable>,
    /// How long slots take, as far as that was read.
    pub slot_time: SlotTime,
    /// The archive whose bank file was looked into for it.
    slot_time_from: Option<ArchiveName>,
}

/// What a node would choose, and how much there is: archives are reports of their own.
impl Serialize for Catalog {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        let choice = self.choice();
        let mut fields = serializer.serialize_struct("Catalog", 6)?;
        fields.serialize_field("full", &choice.map(|choice| &choice.full.name))?;
        fields.serialize_field("incremental", &choice.and_then(|choice| Some(&choice.incremental?.name)))?;
        fields.serialize_field("archives", &self.archives.len())?;
        fields.serialize_field("unusable", &self.unusable.len())?;
        fields.serialize_field("slot_ms", &self.slot_time.milliseconds())?;
        fields.serialize_field("slot_time_source", &self.slot_time.source())?;
        fields.end()
    }
}

impl Catalog {
    /// Puts archives in order. Of several files of one name, the first given stays.
    pub fn new(archives: impl IntoIterator<Item = Archive>) -> Self {
        let mut seen = BTreeSet::new();
        let archives = archives.into_iter().filter(|archive| seen.insert(archive.name.to_string())).collect();
        Self::with_copies(archives)
    }

    /// The same of archives of which only the length is known, as of objects in a store.
    pub fn by_length(archives: impl IntoIterator<Item = Archive>) -> Self {
        let (archives, empty): (Vec<_>, Vec<_>) = archives.into_iter().partition(|archive| archive.size_bytes > 0);
        let unusable = empty.into_iter().map(|archive| Unusable { archive, fault: Fault::Empty }).collect();
        Self { unusable, ..Self::new(archives) }
    }

    /// The same, with all files of one name.
    pub fn with_copies(mut archives: Vec<Archive>) -> Self {
        archives.sort_by_cached_key(Archive::order);
        let (fulls, incrementals): (Vec<_>, Vec<_>) = archives.into_iter().partition(Archive::is_full);
        let mut by_base: BTreeMap<u64, Vec<Archive>> = BTreeMap::new();
        for archive in incrementals {
            by_base.entry(archive.name.base_slot.unwrap_or_default()).or_default().push(archive);
        }
        let mut sorted: Vec<Archive> = Vec::new();
        for full in fulls {
            // Behind the last of the full archives of one slot.
            let slot = full.name.slot;
            if let Some(last) = sorted.last().filter(|last| last.name.slot != slot || !last.is_full()) {
                let before = last.name.base_slot.unwrap_or(last.name.slot);
                sorted.extend(by_base.remove(&before).unwrap_or_default());
            }
            sorted.push(full);
        }
        if let Some(last) = sorted.last() {
            let before = last.name.base_slot.unwrap_or(last.name.slot);
            sorted.extend(by_base.remove(&before).unwrap_or_default());
        }
        sorted.extend(by_base.into_values().rev().flatten());
        Self { archives: sorted, ..Self::default() }
    }

    /// All of them that are of use.
    pub fn archives(&self) -> &[Archive] {
        &self.archives
    }

    /// What has the name of an archive, and is of no use: shown, and never counted.
    pub fn unusable(&self) -> &[Unusable] {
        &self.unusable
    }

    /// The archive of this file name.
    pub fn find(&self, file_name: &str) -> Option<&Archive> {
        let name = ArchiveName::parse(file_name)?;
        self.archives.iter().find(|archive| archive.name == name)
    }

    /// The full archive that an incremental one builds on, where it is here.
    pub fn base_of(&self, incremental: &Archive) -> Option<&Archive> {
        let base = incremental.name.base_slot?;
        self.archives.iter().find(|archive| archive.is_full() && archive.name.slot == base)
    }

    /// What a node would choose. Archives that neither client reads are left out.
    pub fn choice(&self) -> Option<Choice<'_>> {
        let is_read = |archive: &&Archive| rank(archive.name.extension) < 3;
        let full = self.archives.iter().filter(is_read).find(|archive| archive.is_full())?;
        let incremental =
            self.archives.iter().filter(is_read).find(|archive| archive.name.base_slot == Some(full.name.slot));
        Some(Choice { full, incremental })
    }

    /// The newest slot.
    pub fn newest_slot(&self) -> Option<u64> {
        self.archives.iter().map(|archive| archive.name.slot).max()
    }
}
