//! What a run remembers for the next one, in one small file that is replaced whole: a run may be killed anywhere.
//!
//! What is pinned and what is ready tells the directory itself; what is published tell the targets.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Write};
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
    pub states: BTreeMap<String, State>,
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
    /// Uploads that were begun, by the store's file.
    pub uploads: BTreeMap<String, Begun>,
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
pub struct Begun {
    /// The tag of the archive: another one of this name is not gone on with. Empty where nothing is.
    pub of: String,
    /// How far it is.
    pub state: UploadState,
}

/// How a state was checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// Capitalization and lattice hash are the bank file's.
    Checked,
    /// Everything else was.
    Unchecked,
}

impl State {
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
