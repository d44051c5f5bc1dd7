//! Publishes tables in a directory or store ([`in_dir`], [`in_store`]), after the state was found
//! to be right.
//!
//! The manifest is the commit: it gets its name last. A run that fails takes back the names that it
//! has given; after a kill, the next run does. Files for a store are first written to a scratch
//! directory, and sent after the check, so that nothing unchecked is in the bucket, and memory does
//! not grow with the number of files.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::Value;
use slotpress_base::{Error, KeptDir, Progress, Result, panic_point};
use slotpress_read::{WorkDir, check_output_dir};
#[cfg(feature = "stores")]
use slotpress_stores::Store;

#[cfg(feature = "stores")]
use super::added::slot_of;
#[cfg(feature = "stores")]
use super::in_store;
use super::{Manifest, in_dir};
use crate::restore::made_dirs::MadeDirs;

/// Prefix of work directories, which killed runs leave.
pub const WORK_PREFIX: &str = "slotpress-partial-export-";

/// Output of an export.
pub enum ExportTo<'a> {
    /// A directory, which is created if it is missing.
    Dir(PathBuf),
    /// A store, and a scratch directory for its files.
    #[cfg(feature = "stores")]
    Store(&'a Store, PathBuf),
    /// A stream, which gets the rows of one table as CSV before the state is known to be right.
    Stream(&'a mut (dyn std::io::Write + Send + 'a)),
}

/// An open output for files.
pub(super) struct OutputPlace {
    // Dropped, and so removed, before the directory that was created for it.
    pub work: WorkDir,
    made: MadeDirs,
    to: To,
}

/// A directory or store.
enum To {
    Dir(Arc<KeptDir>),
    #[cfg(feature = "stores")]
    Store(Box<Store>),
}

pub(super) fn partition(slot: u64) -> String {
    format!("snapshot_slot={slot}")
}

pub(super) fn manifest_name(slot: u64) -> String {
    format!("_manifest-{slot}.json")
}

/// Slot of a manifest of this name.
pub(super) fn manifest_slot(name: &str) -> Option<u64> {
    name.strip_prefix("_manifest-")?.strip_suffix(".json")?.parse().ok()
}

pub(super) fn exists(path: &Path) -> Error {
    Error::exists(path).with_hint("an export replaces nothing: remove what is there, or choose another output")
}

/// Warns that an unfinished export was removed.
pub(super) fn tell_taken_back(slot: u64, place: &str, progress: &dyn Progress) {
    progress.warn(&format!("{place}: removed what an export of slot {slot} left that ended before its manifest"));
}

impl OutputPlace {
    pub fn dir(path: &Path, progress: &dyn Progress) -> Result<Self> {
        check_dir(path)?;
        let mut made = MadeDirs::default();
        let dir = made.open_or_make(path)?;
        Ok(Self { work: work_in(&dir, progress)?, made, to: To::Dir(dir) })
    }

    #[cfg(feature = "stores")]
    pub fn store(store: &Store, scratch: &Path, progress: &dyn Progress) -> Result<Self> {
        let work = work_in(&Arc::new(KeptDir::open(scratch)?), progress)?;
        Ok(Self { work, made: MadeDirs::default(), to: To::Store(Box::new(store.clone())) })
    }

    /// Refuses tables if the output has them already, or others that these cannot be added to.
    pub fn check_free(&self, ours: &Value, progress: &dyn Progress) -> Result<()> {
        progress.check()?;
        match &self.to {
            To::Dir(dir) => in_dir::check_free(dir, ours).map(drop),
            #[cfg(feature = "stores")]
            To::Store(store) => in_store::check_free(store, ours, progress)
                .inspect_err(|_| in_store::forget(store, slot_of(ours), progress)),
        }
    }

    /// Gives all files their names, after the state was found to be right. Returns the path or URL
    /// of the manifest.
    pub fn publish(self, manifest: &Manifest, progress: &dyn Progress) -> Result<String> {
        // The order of drops matters: the work directory is removed before the one that contains
        // it.
        let Self { mut made, to, work } = self;
        panic_point("export publisher");
        progress.check()?;
        let published = match &to {
            To::Dir(dir) => in_dir::publish(dir, work, manifest, progress),
            #[cfg(feature = "stores")]
            To::Store(store) => in_store::publish(store, &work, manifest, progress),
        }?;
        made.keep();
        Ok(published)
    }
}

/// Refuses a path that exists and is not a directory. A missing one will be created.
fn check_dir(path: &Path) -> Result<()> {
    if path.exists() { check_output_dir(path) } else { Ok(()) }
}

fn work_in(dir: &Arc<KeptDir>, progress: &dyn Progress) -> Result<WorkDir> {
    in_dir::take_back_killed(dir, progress)?;
    WorkDir::create(dir, WORK_PREFIX)
}
