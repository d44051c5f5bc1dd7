//! What a run remembers for the next one, in one small file that is replaced whole: a run may be killed anywhere.
//!
//! What is pinned and what is ready tells the directory itself; what is published tell the targets.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use slotpress_base::{Error, IoContext, KeptDir, Result, ShowPath};
use slotpress_format::ArchiveName;
use slotpress_read::Unpublished;
use slotpress_read::catalog::Archive;

use super::plan::{Key, key};
use super::upload::Begun;

/// The file.
pub const NAME: &str = "journal.json";

/// Larger is no journal of ours.
const BYTES_MAX: u64 = 16 << 20;

/// Refused archives that are remembered, the newest: a validator's directory holds some ten.
const REFUSED_MAX: usize = 1000;

/// All of it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Journal {
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
    pub targets: BTreeMap<String, TargetNotes>,
    /// Uploads that were begun, by the store's file.
    pub uploads: BTreeMap<String, Begun>,
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
        Self {
            device: archive.file_id.device,
            inode: archive.file_id.inode,
            size_bytes: archive.size_bytes,
            modified_ns: archive.modified_ns,
        }
    }
}

/// What is known of a target.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct TargetNotes {
    /// Archives that are out of its index, and not deleted yet.
    pub condemned: Vec<String>,
}

impl Journal {
    /// Reads it; a directory without one has nothing to go on with.
    ///
    /// # Errors
    /// The disk fails, or the file is not a journal.
    pub fn load(dir: &KeptDir) -> Result<Self> {
        if dir.found(NAME)?.is_none() {
            return Ok(Self::default());
        }
        let path = dir.path_of(NAME);
        let mut text = Vec::new();
        dir.open_file(NAME)?.take(BYTES_MAX).read_to_end(&mut text).or_path("read", &path)?;
        serde_json::from_slice(&text).map_err(|error| {
            Error::damaged(format!("{} is not a journal of slotpress: {error}", path.shown()))
                .with_hint("remove it: what is published already is known from the targets, nothing is lost")
        })
    }

    /// Replaces it on disk.
    ///
    /// # Errors
    /// The disk fails or is full.
    pub fn save(&self, dir: &Arc<KeptDir>) -> Result<()> {
        let file = Unpublished::create_in(dir)?;
        // Plain structures with string keys: cannot fail.
        let text = serde_json::to_vec(self).unwrap_or_default();
        file.file().write_all(&text).or_path("write", file.path())?;
        file.publish(NAME, true).map(drop)
    }

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

    /// What was refused and is still there.
    pub fn refused_keys<'a>(&self, archives: impl IntoIterator<Item = &'a Archive>) -> impl Iterator<Item = Key> {
        archives.into_iter().filter(|archive| self.has_refused(archive)).map(|archive| key(&archive.name))
    }
}
