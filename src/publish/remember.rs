//! The journal: what a run must remember for the next one. It is a small file that is replaced as a
//! whole, because a run may be killed at any time.
//!
//! Archives are found without it: pinned and ready ones in their directories, published ones on the
//! targets. The journal adds what these do not show.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{Read, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use slotpress_base::{Error, IoContext, KeptDir, Result, ShowPath};
use slotpress_format::ArchiveName;
use slotpress_read::catalog::Archive;
use slotpress_read::{Unpublished, unix_ns};
use slotpress_stores::UploadState;

const NAME: &str = "journal.json";

/// Limit on the file's length, in bytes. A longer file is not a journal.
const BYTES_MAX: u64 = 16 << 20;

/// Maximum number of refused archives to remember: those of the highest slots. A validator's
/// directory holds about ten.
const REFUSED_MAX: usize = 1000;

/// The journal, shared by all threads. A change is on disk when [`PublishJournal::change`] returns.
#[derive(Debug)]
pub struct PublishJournal {
    dir: Arc<KeptDir>,
    entries: Mutex<Entries>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Entries {
    /// Identity of each file of the validator when it was pinned, by name.
    pub pins: BTreeMap<String, Identity>,
    pub refused: BTreeMap<String, Identity>,
    /// Start of the last incremental archive's preparation, in Unix seconds.
    pub incremental_unix_seconds: Option<u64>,
    pub targets: BTreeMap<String, TargetEntries>,
    /// Unfinished uploads, by the URL of the object. The tags of their parts are in a separate file
    /// ([`PartsLog`]).
    pub uploads: BTreeMap<String, BegunUpload>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct TargetEntries {
    /// Archives removed from the target's index, but not deleted yet.
    #[serde(alias = "condemned")]
    pub pending_deletes: BTreeSet<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BegunUpload {
    /// Tag of the archive's content. The upload is not resumed for an archive of the same name with
    /// another tag.
    pub of: String,
    pub state: UploadState,
}

/// Identity of a file, to recognize it in the next run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    device: u64,
    inode: u64,
    size_bytes: u64,
    modified_ns: u64,
}

impl Identity {
    /// True if both presumably have the same content: equal lengths and, for the same inode, equal
    /// modification times. A copy of a file (another inode) may have another time.
    pub fn is_same_content(&self, other: &Self) -> bool {
        self.size_bytes == other.size_bytes
            && (self.modified_ns == other.modified_ns || (self.device, self.inode) != (other.device, other.inode))
    }
}

impl Identity {
    /// True if the file was modified within this time before `now`. A time in the future is that of
    /// a clock that has jumped back since.
    pub fn is_modified_within(&self, time: Duration, now: SystemTime) -> bool {
        let age_ns = unix_ns(now).checked_sub(self.modified_ns);
        age_ns.is_some_and(|age_ns| Duration::from_nanos(age_ns) < time)
    }
}

impl From<&Archive> for Identity {
    fn from(archive: &Archive) -> Self {
        let (file, size_bytes, modified_ns) = (archive.file_id, archive.size_bytes, archive.modified_ns);
        Self { device: file.device, inode: file.inode, size_bytes, modified_ns }
    }
}

impl PublishJournal {
    /// Reads the journal; a missing file is an empty journal. Fails if the file is not a journal.
    pub fn open(dir: Arc<KeptDir>) -> Result<Self> {
        let mut entries = Entries::default();
        if dir.found(NAME)?.is_some() {
            let (path, mut text) = (dir.path_of(NAME), Vec::new());
            dir.open_file(NAME)?.take(BYTES_MAX).read_to_end(&mut text).or_path("read", &path)?;
            entries = serde_json::from_slice(&text).map_err(|error| {
                Error::damaged(format!("{} is not a journal of slotpress: {error}", path.shown()))
                    .with_hint("remove it: what is published already is known from the targets, nothing is lost")
            })?;
        }
        Ok(Self { dir, entries: Mutex::new(entries) })
    }

    pub fn read<R>(&self, look: impl FnOnce(&Entries) -> R) -> R {
        look(&self.entries.lock())
    }

    /// Changes the entries, and replaces the file if they differ.
    pub fn change<R>(&self, change: impl FnOnce(&mut Entries) -> R) -> Result<R> {
        // Keep the lock until the file is written: an older version must not overwrite a newer one.
        let mut entries = self.entries.lock();
        let mut new = entries.clone();
        let result = change(&mut new);
        if new != *entries {
            let file = Unpublished::create_in(&self.dir)?;
            // Cannot fail: the structures are plain, and map keys are strings.
            let text = serde_json::to_vec(&new).unwrap_or_default();
            file.file().write_all(&text).or_path("write", file.path())?;
            file.publish(NAME, true)?;
            *entries = new;
        }
        Ok(result)
    }
}

/// The tags of an upload's parts, one per line after the upload's id. Tags are appended, so the
/// cost of recording a part does not grow with their number.
#[derive(Debug)]
pub struct PartsLog {
    file: File,
    path: PathBuf,
    pub part_bytes: u64,
    pub count: usize,
}

impl PartsLog {
    fn name_of(key: &str) -> String {
        format!("upload-{}.parts", blake3::hash(key.as_bytes()).to_hex())
    }

    pub fn append(&mut self, tags: &[String]) -> Result<()> {
        let lines: String = tags.iter().map(|tag| format!("{tag}\n")).collect();
        let written = self.file.write_all(lines.as_bytes()).and_then(|()| self.file.sync_data());
        written.or_path("write", &self.path)?;
        self.count = self.count.saturating_add(tags.len());
        Ok(())
    }
}

impl PublishJournal {
    /// Records a new upload and its parts so far. Further parts are appended to the returned log.
    pub fn begin_upload(&self, key: &str, of: String, mut state: UploadState) -> Result<PartsLog> {
        let (name, tags) = (PartsLog::name_of(key), std::mem::take(&mut state.tags));
        let new = Unpublished::create_in(&self.dir)?;
        let file = new.file().try_clone().or_path("write", new.path())?;
        let path = self.dir.path_of(&name);
        let mut log = PartsLog { file, path, part_bytes: state.part_bytes, count: 0 };
        log.file.write_all(format!("{}\n", state.upload_id).as_bytes()).or_path("write", &log.path)?;
        log.append(&tags)?;
        // Write the parts before the journal: an upload whose parts are missing would start over.
        new.publish(&name, true)?;
        self.change(|entries| drop(entries.uploads.insert(key.to_string(), BegunUpload { of, state })))?;
        Ok(log)
    }

    pub fn upload(&self, key: &str) -> Result<Option<BegunUpload>> {
        let Some(mut begun) = self.read(|entries| entries.uploads.get(key).cloned()) else { return Ok(None) };
        let name = PartsLog::name_of(key);
        if self.dir.found(&name)?.is_some() {
            let mut text = Vec::new();
            let read = self.dir.open_file(&name)?.take(BYTES_MAX).read_to_end(&mut text);
            read.or_path("read", &self.dir.path_of(&name))?;
            // A killed run may have left an incomplete last line: ignore it.
            text.truncate(text.iter().rposition(|byte| *byte == b'\n').unwrap_or(0));
            let text = String::from_utf8_lossy(&text);
            let mut lines = text.lines();
            if lines.next() == Some(&begun.state.upload_id) {
                begun.state.tags = lines.map(str::to_string).collect();
            }
        }
        Ok(Some(begun))
    }

    /// Forgets the unfinished uploads of an archive. The store's lifecycle rule removes their parts.
    pub fn forget(&self, name: &ArchiveName) -> Result<()> {
        let name = name.to_string();
        let is_of_it = |key: &&String| key.rsplit('/').next() == Some(&name);
        let keys: Vec<String> = self.read(|entries| entries.uploads.keys().filter(is_of_it).cloned().collect());
        keys.iter().try_for_each(|key| self.end_upload(key))
    }

    pub fn end_upload(&self, key: &str) -> Result<()> {
        self.change(|entries| drop(entries.uploads.remove(key)))?;
        let name = PartsLog::name_of(key);
        match self.dir.found(&name)? {
            Some(_) => self.dir.remove_file(&name).or_path("remove", &self.dir.path_of(&name)),
            None => Ok(()),
        }
    }
}

impl Entries {
    /// Records a file that failed its checks. Beyond the limit, forgets the archive of the oldest
    /// slot.
    pub fn refuse(&mut self, name: &ArchiveName, identity: Identity) {
        self.refused.insert(name.to_string(), identity);
        while self.refused.len() > REFUSED_MAX {
            let slot_of = |name: &&String| ArchiveName::parse(name).map(|name| name.slot);
            let Some(oldest) = self.refused.keys().min_by_key(slot_of).cloned() else { return };
            self.refused.remove(&oldest);
        }
    }

    /// Names of the files that failed their checks.
    pub fn refused_names(&self) -> impl Iterator<Item = ArchiveName> {
        self.refused.keys().filter_map(|name| ArchiveName::parse(name))
    }

    /// True if this file failed before. A file that was written anew has another identity, and is
    /// tried again.
    pub fn has_refused(&self, archive: &Archive) -> bool {
        self.refused.get(&archive.name.to_string()) == Some(&Identity::from(archive))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Appending a part costs the same for any number of parts, and does not rewrite the journal.
    #[test]
    fn the_cost_of_a_part_is_constant() {
        const KEY: &str = "s3://bucket/snapshot-1-x.tar.zst";
        let dir = tempfile::tempdir().expect("a directory");
        let journal = PublishJournal::open(Arc::new(KeptDir::open(dir.path()).expect("opens"))).expect("opens");
        let state: UploadState =
            serde_json::from_str(r#"{"upload_id": "id", "part_bytes": 8388608, "tags": ["first"]}"#).expect("a state");
        let mut log = journal.begin_upload(KEY, "tag".to_string(), state).expect("begun");
        let parts = dir.path().join(PartsLog::name_of(KEY));
        let length = || std::fs::metadata(&parts).expect("there").len();
        let before = std::fs::read(dir.path().join(NAME)).expect("there");
        for number in 1..10_000 {
            let length_before = length();
            log.append(&[format!("\"{number:032x}\"")]).expect("appended");
            assert_eq!(length() - length_before, 35);
        }
        assert_eq!(std::fs::read(dir.path().join(NAME)).expect("there"), before);
        // A kill may cut the last line: an incomplete one is not a part.
        log.file.write_all(b"half").expect("written");
        let journal = PublishJournal::open(Arc::new(KeptDir::open(dir.path()).expect("opens"))).expect("opens");
        let begun = journal.upload(KEY).expect("read").expect("begun");
        assert_eq!((begun.state.tags.len(), begun.of.as_str(), begun.state.tags[0].as_str()), (10_000, "tag", "first"));
        journal.end_upload(KEY).expect("ended");
        assert!(journal.upload(KEY).expect("read").is_none() && !parts.exists());
    }
}
