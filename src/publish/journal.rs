//! The journal keeps the facts that the next run needs and cannot find elsewhere. It is a small file
//! that is replaced as a whole, because a run may be killed at any time.
//!
//! Archives are found without the journal: pinned and ready archives in their directories, published
//! archives on the targets.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use slotpress_base::{Error, EscapePath, IoContext, KeptDir, Result, read_at_most};
use slotpress_format::ArchiveName;
use slotpress_read::{ListedArchive, StagedFile, unix_ns};
use slotpress_stores::UploadState;

const FILE_NAME: &str = "journal.json";

/// Maximum number of bytes that are read from the file. With [`REFUSED_MAX`] entries and an unfinished upload
/// of 10,000 parts for each of several targets, the file is still shorter. Parsing a longer file fails.
const FILE_BYTES_MAX: u64 = 16 << 20;

/// Maximum number of refused archives in the journal: a hundred times as many as a validator's directory
/// usually contains.
const REFUSED_MAX: usize = 1000;

/// The journal, shared by all threads. A change is on disk when [`PublishJournal::change`] returns.
#[derive(Debug)]
pub struct PublishJournal {
    dir: Arc<KeptDir>,
    entries: Mutex<JournalEntries>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct JournalEntries {
    /// Identity that each of the validator's files had when it was pinned, by name.
    pub pins: BTreeMap<String, FileIdentity>,
    /// Identity of each file that failed its checks, by name.
    pub refused: BTreeMap<String, FileIdentity>,
    /// Start of the last incremental archive's preparation, in Unix seconds.
    pub incremental_unix_seconds: Option<u64>,
    pub targets: BTreeMap<String, TargetEntries>,
    /// Unfinished uploads, by the URL of the object.
    pub uploads: BTreeMap<String, UnfinishedUpload>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct TargetEntries {
    /// Archives that were removed from the target's index, but not deleted yet. Earlier builds wrote
    /// `condemned`.
    #[serde(alias = "condemned")]
    pub pending_deletes: BTreeSet<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnfinishedUpload {
    /// Tag of the archive's content. The upload is resumed only for an archive with the same tag.
    #[serde(rename = "of")]
    pub archive_tag: String,
    pub state: UploadState,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileIdentity {
    device: u64,
    inode: u64,
    size_bytes: u64,
    modified_ns: u64,
}

impl FileIdentity {
    /// True if both files presumably have the same content: if their lengths are equal, and their
    /// modification times too if they are the same inode. A copy has another inode, and may have any
    /// modification time.
    pub fn has_same_content_as(&self, other: &Self) -> bool {
        self.size_bytes == other.size_bytes
            && (self.modified_ns == other.modified_ns || (self.device, self.inode) != (other.device, other.inode))
    }

    /// True if the file was modified within this time before `now`. False if the file was modified after
    /// `now`: the clock has jumped back since then.
    pub fn is_modified_within(&self, time: Duration, now: SystemTime) -> bool {
        let age_ns = unix_ns(now).checked_sub(self.modified_ns);
        age_ns.is_some_and(|age_ns| Duration::from_nanos(age_ns) < time)
    }
}

impl From<&ListedArchive> for FileIdentity {
    fn from(archive: &ListedArchive) -> Self {
        Self {
            device: archive.file_id.device,
            inode: archive.file_id.inode,
            size_bytes: archive.size_bytes,
            modified_ns: archive.modified_ns,
        }
    }
}

impl PublishJournal {
    /// Reads the journal. A missing file is an empty journal; a file that is not a journal is an error.
    pub fn open(dir: Arc<KeptDir>) -> Result<Self> {
        let mut entries = JournalEntries::default();
        if dir.stat_entry(FILE_NAME)?.is_some() {
            let path = dir.path_of(FILE_NAME);
            let json = read_at_most(dir.open_file(FILE_NAME)?, FILE_BYTES_MAX, &path)?;
            entries = serde_json::from_slice(&json).map_err(|error| {
                Error::damaged(format!("{} is not a journal of slotpress: {error}", path.escaped()))
                    .with_hint("remove it: no archive is lost, because the targets say what is published")
            })?;
        }
        Ok(Self { dir, entries: Mutex::new(entries) })
    }

    pub fn refused_files(&self) -> Vec<(ArchiveName, FileIdentity)> {
        let parse = |(name, identity): (&String, &FileIdentity)| Some((ArchiveName::parse(name)?, *identity));
        let entries = self.entries.lock();
        entries.refused.iter().filter_map(parse).collect()
    }

    pub fn read<R>(&self, read: impl FnOnce(&JournalEntries) -> R) -> R {
        read(&self.entries.lock())
    }

    /// Changes the entries, and replaces the file if they differ.
    pub fn change<R>(&self, change: impl FnOnce(&mut JournalEntries) -> R) -> Result<R> {
        // Keep the lock until the file is written: an older version must not overwrite a newer one.
        let mut entries = self.entries.lock();
        let mut changed = entries.clone();
        let result = change(&mut changed);
        if changed != *entries {
            let file = StagedFile::create_in(&self.dir)?.replace(true);
            let json = serde_json::to_vec(&changed).or_path("encode", file.path())?;
            file.file().write_all(&json).or_path("write", file.path())?;
            file.publish(FILE_NAME)?;
            *entries = changed;
        }
        Ok(result)
    }
}

impl JournalEntries {
    /// Records a file that failed its checks. If there are more than `REFUSED_MAX`, forgets the archive
    /// with the lowest slot.
    pub fn refuse(&mut self, name: &ArchiveName, identity: FileIdentity) {
        self.refused.insert(name.to_string(), identity);
        while self.refused.len() > REFUSED_MAX {
            let slot_of = |name: &&String| ArchiveName::parse(name).map(|name| name.slot);
            let Some(lowest) = self.refused.keys().min_by_key(slot_of).cloned() else { return };
            self.refused.remove(&lowest);
        }
    }
}
