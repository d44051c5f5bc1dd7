//! Catalogs of archives: which belong together, which a node would choose, which may be deleted.
//!
//! [`Catalog`] and [`prune::plan_prune`] do no I/O. [`scan`] reads directories, [`usable`] decides
//! which files are archives, [`prune::remove_archive`] deletes files, and [`partials`] finds unfinished
//! downloads.

#![warn(missing_docs)]

pub mod keep;
pub mod list_parser;
#[allow(missing_docs, reason = "only the workspace uses it")]
pub mod list_writer;
pub mod partials;
pub mod prune;
pub mod scan;
#[cfg(test)]
mod tests;
#[allow(missing_docs, reason = "only the workspace uses it")]
pub mod usable;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use serde::ser::SerializeStruct;
use serde::{Serialize, Serializer};
use slotpress_base::EscapePath;
use slotpress_base::clock::{self, since_1970};
use slotpress_format::{ArchiveName, ArchiveRoot, EpochSchedule, FrameHashesLocation, Hash, SlotTime};

use self::keep::KeepReason;
use crate::rules::clients::clients_that_read;

/// A file that is named like an archive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedArchive {
    /// Parsed file name; formats to the same name again.
    pub name: ArchiveName,
    /// The directory that was scanned.
    pub dir: PathBuf,
    /// True if the file is in the subdirectory `remote`, where Agave puts downloads.
    pub is_remote: bool,
    /// Length of the file in bytes; 0 if it is unknown.
    pub size_bytes: u64,
    /// Modification time, in nanoseconds since 1970.
    pub modified_ns: u64,
    /// Time of the newest blockhash in the bank file, in seconds since 1970; `None` if it is unknown.
    pub bank_unix_seconds: Option<u64>,
    /// True if the program has tried to read the time from the bank file, even without success.
    #[doc(hidden)]
    pub is_bank_read: bool,
    /// Reason why `publish` keeps the archive, according to the target's list of archives.
    pub keep_reason: Option<KeepReason>,
    #[doc(hidden)]
    pub file_id: FileId,
    /// Frame hashes, if the archive has them and they were read.
    #[doc(hidden)]
    pub hashes: Option<FrameHashes>,
}

/// Position of an archive's frame hashes, and the root over them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameHashes {
    /// blake3 over the archive's length and its bytes from the index to the end. The index holds the hashes
    /// of all frames, so the root changes with any byte of the archive.
    pub root: ArchiveRoot,
    /// Position and number of the frame hashes.
    pub location: FrameHashesLocation,
    /// For results of `rebase`: snapshot hash of the full archive on which the archive builds.
    pub rebased_on: Option<Hash>,
}

/// Identifies a file, even if another file takes its name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileId {
    /// Device number of the file system (`st_dev`).
    pub device: u64,
    /// Inode number of the file (`st_ino`).
    pub inode: u64,
}

/// Fault that makes a file with an archive's name unusable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum FileFault {
    /// It has no bytes.
    Empty,
    /// It does not begin like an archive.
    NotAnArchive,
    /// Its end is missing: it was truncated, or is still being written.
    #[serde(rename = "cut")]
    Truncated,
    /// It cannot be opened or read.
    Unreadable,
}

impl fmt::Display for FileFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Empty => "it is empty",
            Self::NotAnArchive => "its first bytes are not those of an archive",
            Self::Truncated => "its end is missing: it was truncated, or is still being written",
            Self::Unreadable => "it cannot be read",
        })
    }
}

/// An unusable file that is named like an archive.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct UnusableFile {
    /// The file that cannot be used.
    pub archive: ListedArchive,
    /// Fault that makes it unusable.
    pub fault: FileFault,
}

impl fmt::Display for UnusableFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = self.archive.path().escaped();
        write!(f, "{path} is not used: {}", self.fault)
    }
}

impl Serialize for UnusableFile {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        let mut fields = serializer.serialize_struct("Unusable", 6)?;
        fields.serialize_field("name", &self.archive.name)?;
        fields.serialize_field("file", &self.archive.path().to_string_lossy())?;
        fields.serialize_field("size_bytes", &self.archive.size_bytes)?;
        fields.serialize_field("age_seconds", &self.archive.age(clock::now()).as_secs())?;
        fields.serialize_field("fault", &self.fault)?;
        fields.serialize_field("reason", &self.fault.to_string())?;
        fields.end()
    }
}

impl ListedArchive {
    /// Creates the description of an archive in a directory or at a URL. All other facts are unknown, and
    /// so is the size if it is 0.
    pub fn new(name: ArchiveName, dir: impl Into<PathBuf>, size_bytes: u64) -> Self {
        Self {
            name,
            dir: dir.into(),
            is_remote: false,
            size_bytes,
            modified_ns: 0,
            bank_unix_seconds: None,
            is_bank_read: false,
            keep_reason: None,
            file_id: FileId::default(),
            hashes: None,
        }
    }

    /// Returns the path of the file.
    pub fn path(&self) -> PathBuf {
        let dir = if self.is_remote { self.dir.join(REMOTE_DIR) } else { self.dir.clone() };
        self.name.path_in(&dir)
    }

    /// Returns the time since the modification, or 0 if that is in the future.
    pub fn age(&self, now: SystemTime) -> Duration {
        Duration::from_nanos(unix_ns(now).saturating_sub(self.modified_ns))
    }

    /// Returns the strong HTTP entity tag, in quotes: the root if it is known, so that mirrors agree, or
    /// else a hash of the length and the modification time.
    pub fn etag(&self) -> String {
        if let Some(FrameHashes { root, .. }) = self.hashes {
            return format!("\"{root}\"");
        }
        let mut hasher = blake3::Hasher::new();
        hasher.update(&self.size_bytes.to_le_bytes()).update(&self.modified_ns.to_le_bytes());
        let hash = hasher.finalize().to_hex();
        format!("\"{}\"", hash.get(..32).unwrap_or_default())
    }

    /// Returns the snapshot hash of the full archive on which a result of `rebase` builds, if it is
    /// known.
    pub fn rebased_on(&self) -> Option<Hash> {
        self.hashes?.rebased_on
    }

    /// True if the archive is known to be a result of `rebase`.
    pub fn is_rebased(&self) -> bool {
        self.rebased_on().is_some()
    }

    /// True if the archive holds a whole state.
    pub fn is_full(&self) -> bool {
        self.name.base_slot.is_none()
    }

    /// Returns the sort key: the newest slot comes first; within a slot, the format that most clients read.
    fn sort_key(&self) -> (Reverse<u64>, Reverse<usize>, [u8; 32], bool, PathBuf) {
        let readers = clients_that_read(self.name.compression).len();
        (Reverse(self.name.slot), Reverse(readers), self.name.hash.0, self.is_remote, self.dir.clone())
    }
}

/// Subdirectory for downloads, as in Agave.
pub const REMOTE_DIR: &str = "remote";

/// The archives from which a node without a state would start.
#[derive(Clone, Copy, Debug)]
pub struct NodeChoice<'a> {
    /// The newest full archive.
    pub full: &'a ListedArchive,
    /// The newest incremental archive on it, if there is one.
    pub incremental: Option<&'a ListedArchive>,
}

/// The archives in directories or in a store, and the unusable files that are named like archives.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Catalog {
    archives: Vec<ListedArchive>,
    unusable: Vec<UnusableFile>,
    /// Duration of a slot; the default until a bank file or a list states it.
    #[doc(hidden)]
    pub slot_time: SlotTime,
    /// Division of slots into epochs, if it was read.
    #[doc(hidden)]
    pub epoch_schedule: Option<EpochSchedule>,
    slot_time_archive: Option<ArchiveName>,
}

/// Serializes the choice, the counts and the slot time. Each archive is serialized separately.
impl Serialize for Catalog {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        let choice = self.choice();
        let mut fields = serializer.serialize_struct("Catalog", 6)?;
        fields.serialize_field("full", &choice.map(|choice| &choice.full.name))?;
        let incremental = choice.and_then(|choice| Some(&choice.incremental?.name));
        fields.serialize_field("incremental", &incremental)?;
        fields.serialize_field("archives", &self.archives.len())?;
        fields.serialize_field("unusable", &self.unusable.len())?;
        fields.serialize_field("slot_ms", &self.slot_time.milliseconds())?;
        fields.serialize_field("slot_time_source", &self.slot_time.source())?;
        fields.end()
    }
}

impl Catalog {
    /// Creates a sorted catalog. Of several files with the same name, keeps the first.
    pub fn new(archives: impl IntoIterator<Item = ListedArchive>) -> Self {
        let mut seen = BTreeSet::new();
        let mut archives: Vec<ListedArchive> = archives.into_iter().collect();
        archives.retain(|archive| seen.insert(archive.name.to_string()));
        Self::with_copies(archives)
    }

    /// Like [`new`](Self::new), for archives of which only names and lengths are known, such as objects
    /// in a store. Archives without bytes are listed as unusable.
    pub fn from_lengths(archives: impl IntoIterator<Item = ListedArchive>) -> Self {
        let (archives, empty): (Vec<_>, Vec<_>) = archives.into_iter().partition(|archive| archive.size_bytes > 0);
        let unusable = empty.into_iter().map(|archive| UnusableFile { archive, fault: FileFault::Empty }).collect();
        Self { unusable, ..Self::new(archives) }
    }

    /// Like [`new`](Self::new), but keeps all files that have the same name.
    pub fn with_copies(mut archives: Vec<ListedArchive>) -> Self {
        let fulls = archives.iter().filter(|archive| archive.is_full());
        let full_slots: BTreeSet<u64> = fulls.map(|full| full.name.slot).collect();
        archives.sort_by_cached_key(|archive| {
            let base = archive.name.base_slot.unwrap_or(archive.name.slot);
            // Incremental archives follow the last full archive of their base slot.
            (!full_slots.contains(&base), Reverse(base), !archive.is_full(), archive.sort_key())
        });
        Self { archives, ..Self::default() }
    }

    /// Returns the usable archives: full ones, newest first, each followed by its incremental ones,
    /// newest first. Incremental archives whose full one is missing come last.
    pub fn archives(&self) -> &[ListedArchive] {
        &self.archives
    }

    /// Sets the reason for keeping each archive to that of the archive of the same name in `published`, a list by
    /// `publish`; to none if it is not there.
    #[doc(hidden)]
    pub fn set_keep_reasons<'a>(&mut self, published: impl IntoIterator<Item = &'a ListedArchive>) {
        let reasons: BTreeMap<String, Option<KeepReason>> =
            published.into_iter().map(|archive| (archive.name.to_string(), archive.keep_reason)).collect();
        for archive in &mut self.archives {
            archive.keep_reason = reasons.get(&archive.name.to_string()).copied().flatten();
        }
    }

    /// Returns the unusable files that are named like archives. They are not among the archives.
    pub fn unusable(&self) -> &[UnusableFile] {
        &self.unusable
    }

    /// Finds an archive by its file name.
    pub fn find(&self, file_name: &str) -> Option<&ListedArchive> {
        let name = ArchiveName::parse(file_name)?;
        self.archives.iter().find(|archive| archive.name == name)
    }

    /// Finds the full archive for an incremental one, if it is in the catalog.
    pub fn base_of(&self, incremental: &ListedArchive) -> Option<&ListedArchive> {
        let base = incremental.name.base_slot?;
        self.archives.iter().find(|archive| archive.is_full() && archive.name.slot == base)
    }

    /// Returns the archives that a node would choose. Leaves out formats that no client reads. Also leaves
    /// out rebased archives, because a node may have a full archive at a slot between the two slots of a
    /// rebased archive.
    pub fn choice(&self) -> Option<NodeChoice<'_>> {
        let is_readable =
            |archive: &&ListedArchive| !clients_that_read(archive.name.compression).is_empty() && !archive.is_rebased();
        let readable = || self.archives.iter().filter(is_readable);
        let full = readable().find(|archive| archive.is_full())?;
        let base_slot = Some(full.name.slot);
        let incremental = readable().find(|archive| archive.name.base_slot == base_slot);
        Some(NodeChoice { full, incremental })
    }

    /// Returns the age of an archive's bank, computed from the time in its bank file. If that time is
    /// unknown, the age is computed from the next newer archive with a known time, and the slots between
    /// the two. The file's modification time is not used, because copying changes it.
    pub fn age_of(&self, archive: &ListedArchive, now: SystemTime) -> Option<Duration> {
        Some(since_1970(now).saturating_sub(self.bank_time_of(archive)?))
    }

    fn bank_time_of(&self, archive: &ListedArchive) -> Option<Duration> {
        let dated = self.archives.iter().filter_map(|newer| {
            let slots = newer.name.slot.checked_sub(archive.name.slot)?;
            Some((slots, Duration::from_secs(newer.bank_unix_seconds?)))
        });
        let (slots, bank_time) = dated.min_by_key(|(slots, _)| *slots)?;
        Some(bank_time.saturating_sub(self.slot_time.duration(slots)))
    }

    /// Returns the newest slot of any archive.
    pub fn newest_slot(&self) -> Option<u64> {
        self.archives.iter().map(|archive| archive.name.slot).max()
    }
}

/// Returns nanoseconds since 1970, or 0 for earlier times.
pub fn unix_ns(time: SystemTime) -> u64 {
    u64::try_from(since_1970(time).as_nanos()).unwrap_or(u64::MAX)
}
