//! Where tables go. Names are given after the verdict, and the manifest's is the commit: it comes last, a run that fails takes back the
//! names it gave, and what a killed run left is taken back by the next one ([`in_dir`], [`in_store`]).
//!
//! What goes into a store is written to a scratch directory, and sent after the verdict: nothing is in the bucket before, and memory does
//! not grow with the number of files.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use slotpress_base::{Error, KeptDir, Progress, Result, panic_point, text};
use slotpress_read::{WorkDir, check_output_dir};
#[cfg(feature = "stores")]
use slotpress_stores::Store;

use super::Manifest;
use super::in_dir;
#[cfg(feature = "stores")]
use super::in_store;
use super::table::Table;
use crate::restore::made_dirs::MadeDirs;

/// Directories that a killed run leaves.
pub const WORK_PREFIX: &str = "slotpress-partial-export-";

/// Where tables go.
pub enum ExportTo<'a> {
    /// A directory, which is made if it is missing.
    Dir(PathBuf),
    /// A store, and a directory for files on their way there.
    #[cfg(feature = "stores")]
    Store(&'a Store, PathBuf),
    /// A stream: rows of one table as CSV, before the verdict.
    Stream(&'a mut (dyn std::io::Write + Send + 'a)),
}

/// A place for files, open.
pub(super) struct Place<'a> {
    // Removed before the directory that was made for it.
    pub work: WorkDir,
    made: MadeDirs,
    to: To<'a>,
}

enum To<'a> {
    Dir(Arc<KeptDir>),
    #[cfg(feature = "stores")]
    Store(&'a Store),
    #[cfg(not(feature = "stores"))]
    #[allow(dead_code)]
    Nowhere(&'a ()),
}

pub(super) fn partition(slot: u64) -> String {
    format!("snapshot_slot={slot}")
}

pub(super) fn manifest_name(slot: u64) -> String {
    format!("_manifest-{slot}.json")
}

pub(super) fn text_of(manifest: &Manifest) -> String {
    text::json(manifest) + "\n"
}

pub(super) fn exists(path: &Path) -> Error {
    Error::exists(path).with_hint("an export replaces nothing: remove what is there, or choose another output")
}

/// Says that the names of an unfinished export are gone.
pub(super) fn tell_taken_back(slot: u64, place: &str, progress: &dyn Progress) {
    progress.warn(&format!("{place}: removed what an export of slot {slot} left that ended before its manifest"));
}

impl<'a> Place<'a> {
    pub fn dir(path: &Path, progress: &dyn Progress) -> Result<Self> {
        check_dir(path)?;
        let mut made = MadeDirs::default();
        let dir = made.open_or_make(path)?;
        Ok(Self { work: work_in(&dir, progress)?, made, to: To::Dir(dir) })
    }

    #[cfg(feature = "stores")]
    pub fn store(store: &'a Store, scratch: &Path, progress: &dyn Progress) -> Result<Self> {
        let work = work_in(&Arc::new(KeptDir::open(scratch)?), progress)?;
        Ok(Self { work, made: MadeDirs::default(), to: To::Store(store) })
    }

    /// Refuses a slot of which there are tables already.
    pub fn check_free(&self, tables: &[Table], slot: u64, progress: &dyn Progress) -> Result<()> {
        match &self.to {
            To::Dir(dir) => in_dir::check_free(dir, tables, slot),
            #[cfg(feature = "stores")]
            To::Store(store) => in_store::check_free(store, tables, slot, progress)
                .inspect_err(|_| in_store::forget(store, slot, progress)),
            #[cfg(not(feature = "stores"))]
            To::Nowhere(_) => progress.check(),
        }
    }

    /// The state was judged right: gives all files their names. Returns where the manifest is.
    pub fn publish(self, manifest: &Manifest, progress: &dyn Progress) -> Result<String> {
        // The work directory goes before what was made for it.
        let Self { mut made, to, work } = self;
        panic_point("export publisher");
        progress.check()?;
        let published = match &to {
            To::Dir(dir) => in_dir::publish(dir, work, manifest, progress),
            #[cfg(feature = "stores")]
            To::Store(store) => in_store::publish(store, &work, manifest, progress),
            #[cfg(not(feature = "stores"))]
            To::Nowhere(()) => Ok(String::new()),
        }?;
        made.keep();
        Ok(published)
    }
}

/// Refuses a file; what is missing is made.
pub(super) fn check_dir(path: &Path) -> Result<()> {
    if path.exists() { check_output_dir(path) } else { Ok(()) }
}

fn work_in(dir: &Arc<KeptDir>, progress: &dyn Progress) -> Result<WorkDir> {
    in_dir::take_back_killed(dir, progress)?;
    WorkDir::create_in(dir, WORK_PREFIX)
}
