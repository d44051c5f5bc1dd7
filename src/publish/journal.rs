//! What a run remembers for the next one, in one small file that is replaced whole: a run may be killed anywhere.
//!
//! What is pinned and what is ready tells the directory itself; what is published tell the targets.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{Read, Write};
use std::path::PathBuf;
use std::sync::Arc;

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use slotpress_base::{Error, IoContext, KeptDir, Result, ShowPath};
use slotpress_format::ArchiveName;
use slotpress_read::Unpublished;
use slotpress_read::catalog::Archive;
use slotpress_stores::UploadState;

/// The file.
const NAME: &str = "journal.json";

/// Larger is no journal of ours.
const BYTES_MAX: u64 = 16 << 20;

/// Refused archives that are remembered, the newest: a validator's directory holds some ten.
const REFUSED_MAX: usize = 1000;

/// The journal, which all threads write: what is changed is on disk when the change returns.
#[derive(Debug)]
pub struct Journal {
    dir: Arc<KeptDir>,
    entries: Mutex<Entries>,
}

/// All that is remembered.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Entries {
    /// How the state of what is ready was checked, by name: written before the archive is made.
    pub states: BTreeMap<String, StateCheck>,
    /// What the validator's files were when they were pinned, by name.
    pub pins: BTreeMap<String, Identity>,
    /// What failed its checks, by name.
    pub refused: BTreeMap<String, Identity>,
    /// When the last incremental archive was begun, in seconds since 1970.
    pub incremental_unix_seconds: Option<u64>,
    /// The newest slot that was there when this directory was first looked at.
    pub first_slot: Option<u64>,
    /// What each target is to go on with, by its name.
    pub targets: BTreeMap<String, TargetEntries>,
    /// Uploads that were begun, by the store's file. The tags of their parts are in a file of their own ([`PartsLog`]).
    pub uploads: BTreeMap<String, BegunUpload>,
}

/// What is known of a target.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct TargetEntries {
    /// Archives that are out of its index, and not deleted yet.
    #[serde(alias = "condemned")]
    pub pending_deletes: BTreeSet<String>,
}

/// An upload that was begun: of which bytes, and what the store needs to go on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BegunUpload {
    /// The tag of the archive: another one of this name is not gone on with. Empty where nothing is.
    pub of: String,
    /// How far it is.
    pub state: UploadState,
}

/// How a state was checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum StateCheck {
    /// Capitalization and lattice hash are the bank file's.
    Checked,
    /// Everything else was.
    Unchecked,
}

impl StateCheck {
    /// As the index has it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Checked => "checked",
            Self::Unchecked => "unchecked",
        }
    }
}

/// Which file it was.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    device: u64,
    inode: u64,
    size_bytes: u64,
    modified_ns: u64,
}

impl Identity {
    /// Whether it has the bytes that the other one had, as far as length and time tell: a copy is another file.
    pub fn is_same_content(&self, other: &Self) -> bool {
        self.size_bytes == other.size_bytes
            && (self.modified_ns == other.modified_ns || (self.device, self.inode) != (other.device, other.inode))
    }
}

impl From<&Archive> for Identity {
    fn from(archive: &Archive) -> Self {
        let (file, size_bytes, modified_ns) = (archive.file_id, archive.size_bytes, archive.modified_ns);
        Self { device: file.device, inode: file.inode, size_bytes, modified_ns }
    }
}

impl Journal {
    /// Reads what the run before has left; a directory without a journal has nothing to go on with.
    ///
    /// # Errors
    /// The disk fails, or the file is not a journal.
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

    /// Looks at it.
    pub fn read<R>(&self, look: impl FnOnce(&Entries) -> R) -> R {
        look(&self.entries.lock())
    }

    /// Changes it, and replaces it on disk where something has changed.
    ///
    /// # Errors
    /// The disk fails or is full.
    pub fn change<R>(&self, change: impl FnOnce(&mut Entries) -> R) -> Result<R> {
        // Held while it is written, so that no older one comes after a newer one.
        let mut entries = self.entries.lock();
        let mut new = entries.clone();
        let result = change(&mut new);
        if new != *entries {
            let file = Unpublished::create_in(&self.dir)?;
            // Plain structures with string keys: cannot fail.
            let text = serde_json::to_vec(&new).unwrap_or_default();
            file.file().write_all(&text).or_path("write", file.path())?;
            file.publish(NAME, true)?;
            *entries = new;
        }
        Ok(result)
    }
}

/// The tags of an upload's parts, one line each, in a file of its own: one that arrives is appended, so that remembering it
/// costs the same however many there are. The first line is the upload's id.
#[derive(Debug)]
pub struct PartsLog {
    file: File,
    path: PathBuf,
    /// The length of each part in bytes.
    pub part_bytes: u64,
    /// Parts that are in it.
    pub count: usize,
}

impl PartsLog {
    /// Its name in the journal's directory.
    fn name_of(key: &str) -> String {
        format!("upload-{}.parts", blake3::hash(key.as_bytes()).to_hex())
    }

    /// Adds the parts that follow, and syncs them.
    ///
    /// # Errors
    /// The disk fails or is full.
    pub fn append(&mut self, tags: &[String]) -> Result<()> {
        let lines: String = tags.iter().map(|tag| format!("{tag}\n")).collect();
        let written = self.file.write_all(lines.as_bytes()).and_then(|()| self.file.sync_data());
        written.or_path("write", &self.path)?;
        self.count = self.count.saturating_add(tags.len());
        Ok(())
    }
}

impl Journal {
    /// Remembers an upload, and the parts that are there already; those that follow go into the log.
    ///
    /// # Errors
    /// The disk fails or is full.
    pub fn begin_upload(&self, key: &str, of: String, mut state: UploadState) -> Result<PartsLog> {
        let (name, tags) = (PartsLog::name_of(key), std::mem::take(&mut state.tags));
        let new = Unpublished::create_in(&self.dir)?;
        let file = new.file().try_clone().or_path("write", new.path())?;
        let path = self.dir.path_of(&name);
        let mut log = PartsLog { file, path, part_bytes: state.part_bytes, count: 0 };
        log.file.write_all(format!("{}\n", state.upload_id).as_bytes()).or_path("write", &log.path)?;
        log.append(&tags)?;
        // The parts first: an upload without them is begun anew.
        new.publish(&name, true)?;
        self.change(|entries| drop(entries.uploads.insert(key.to_string(), BegunUpload { of, state })))?;
        Ok(log)
    }

    /// What was remembered of an upload, with its parts.
    ///
    /// # Errors
    /// The disk fails.
    pub fn upload(&self, key: &str) -> Result<Option<BegunUpload>> {
        let Some(mut begun) = self.read(|entries| entries.uploads.get(key).cloned()) else { return Ok(None) };
        let name = PartsLog::name_of(key);
        if self.dir.found(&name)?.is_some() {
            let mut text = Vec::new();
            let read = self.dir.open_file(&name)?.take(BYTES_MAX).read_to_end(&mut text);
            read.or_path("read", &self.dir.path_of(&name))?;
            // A line that a killed run has not finished is none.
            text.truncate(text.iter().rposition(|byte| *byte == b'\n').unwrap_or(0));
            let text = String::from_utf8_lossy(&text);
            let mut lines = text.lines();
            if lines.next() == Some(&begun.state.upload_id) {
                begun.state.tags = lines.map(str::to_string).collect();
            }
        }
        Ok(Some(begun))
    }

    /// Forgets an upload.
    ///
    /// # Errors
    /// The disk fails or is full.
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
    /// What was ready is not any more: what was sent of it is not gone on with.
    pub fn forget(&mut self, name: &ArchiveName) {
        let name = name.to_string();
        self.states.remove(&name);
        let of_it = self.uploads.iter_mut().filter(|(key, _)| key.rsplit('/').next() == Some(&name));
        of_it.for_each(|(_, begun)| begun.of.clear());
    }

    /// Remembers that a file failed, and forgets the oldest of very many.
    pub fn refuse(&mut self, name: &ArchiveName, identity: Identity) {
        self.refused.insert(name.to_string(), identity);
        while self.refused.len() > REFUSED_MAX {
            let slot_of = |name: &&String| ArchiveName::parse(name).map(|name| name.slot);
            let Some(oldest) = self.refused.keys().min_by_key(slot_of).cloned() else { return };
            self.refused.remove(&oldest);
        }
    }

    /// Whether this very file failed: one that was written anew is tried again.
    pub fn has_refused(&self, archive: &Archive) -> bool {
        self.refused.get(&archive.name.to_string()) == Some(&Identity::from(archive))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Remembering a part appends a line, and rewrites nothing, however many parts there are.
    #[test]
    fn the_cost_of_a_part_is_constant() {
        const KEY: &str = "s3://bucket/snapshot-1-x.tar.zst";
        let dir = tempfile::tempdir().expect("a directory");
        let journal = Journal::open(Arc::new(KeptDir::open(dir.path()).expect("opens"))).expect("opens");
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
        // A line that a kill has cut is not a part.
        log.file.write_all(b"half").expect("written");
        let journal = Journal::open(Arc::new(KeptDir::open(dir.path()).expect("opens"))).expect("opens");
        let begun = journal.upload(KEY).expect("read").expect("begun");
        assert_eq!((begun.state.tags.len(), begun.of.as_str(), begun.state.tags[0].as_str()), (10_000, "tag", "first"));
        journal.end_upload(KEY).expect("ended");
        assert!(journal.upload(KEY).expect("read").is_none() && !parts.exists());
    }
}
