//! Files of a restore in the making: written under temporary directories, owned as the target is, removed when the
//! restore does not finish.

use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;

use rustix::fs::{Mode, OFlags};
use slotpress_base::{Error, Found, IoContext, KeptDir, Owner, Result, SpaceWatch, WriteBehind};
use slotpress_read::WorkDir;

use crate::restore::assign::Destination;

/// Directories of this prefix are where a restore collects its files, beside their final place. A validator does not
/// look at them. Each is locked while its restore runs; the next restore removes those that a killed one left.
pub const PARTIAL_PREFIX: &str = "slotpress-partial-";

/// The name of the bank file while it is in a partial directory; its final name is its slot.
pub const BANK_FILE_PARTIAL: &str = "bank-file";

/// A temporary directory beside the final place of its content. What is in it goes when it is dropped, wherever it lies,
/// unless it is kept.
#[derive(Debug)]
pub struct PartialDir {
    /// Its path before it was moved, for messages.
    pub path: PathBuf,
    work: WorkDir,
}

impl PartialDir {
    /// Makes an empty one in `parent`, locked, of the name that `kind` tells and something random.
    pub fn create(parent: &Arc<KeptDir>, kind: &str, owner: &Owner) -> Result<Self> {
        let work = WorkDir::create_in(parent, &format!("{PARTIAL_PREFIX}{kind}-"))?;
        let path = work.path().to_path_buf();
        owner.take(work.dir()).or_path("change the owner of", &path)?;
        Ok(Self { path, work })
    }

    /// Itself, wherever it lies by now.
    pub fn dir(&self) -> &KeptDir {
        self.work.dir()
    }

    /// What it is, by which it is known wherever it lies.
    pub fn found(&self) -> &Found {
        self.work.found()
    }

    /// Makes a new file in it for writing; with `is_shared`, several workers may each open it and write a part.
    pub fn create_file(&self, name: &str, owner: &Owner, is_shared: bool) -> Result<File> {
        let exclusive = if is_shared { OFlags::empty() } else { OFlags::EXCL };
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC | exclusive;
        let file = rustix::fs::openat(self.work.dir(), name, flags, Mode::from_raw_mode(0o644))
            .or_path("create", &self.path.join(name))?;
        owner.take(&file).or_path("change the owner of", &self.path.join(name))?;
        Ok(file.into())
    }

    /// Opens a file in it for reading.
    pub fn open_file(&self, name: &str) -> Result<File> {
        self.dir().open_file(name)
    }

    /// Removes the files in it: the next archive brings its own.
    pub fn clear(&self) -> Result<()> {
        self.work.clear()
    }

    /// Makes a directory in it.
    pub fn create_dir(&self, name: &str, owner: &Owner) -> Result<KeptDir> {
        let made = self.dir().make_dir(name)?;
        owner.take(&made).or_path("change the owner of", made.path())?;
        Ok(made)
    }

    /// Renames a file in it, to a name in it or in a directory in it.
    pub fn rename_within(&self, from: &str, to_dir: &KeptDir, to: &str) -> Result<()> {
        self.dir().rename(from, to_dir, to).or_path("rename", &self.path.join(from))
    }

    /// Writes everything under it to disk.
    pub fn sync(&self) -> Result<()> {
        // One call for all files; a call for each of 430,000 takes minutes.
        rustix::fs::syncfs(self.work.dir()).or_path("sync", &self.path)
    }

    /// Moves it to its final place, where at most an empty directory may be.
    pub fn place(&mut self, to_dir: &KeptDir, to: &str) -> Result<()> {
        self.work.move_to(to_dir, to)
    }

    /// The restore is complete: it stays.
    pub fn keep(self) {
        self.work.keep();
    }
}

/// Where the files of one archive go.
#[derive(Debug)]
pub struct Places<'a> {
    /// The partial directories of the accounts paths.
    pub roots: &'a [PartialDir],
    /// The partial directory for version, status cache and bank file.
    pub bank_snapshot: &'a PartialDir,
    /// Who owns what is written.
    pub owner: Owner,
    /// Whether several writers may each write a part of one file.
    pub is_shared: bool,
    /// Looks after the free space.
    pub watch: SpaceWatch,
    /// Takes the files that are written.
    pub write_behind: &'a WriteBehind,
}

/// Writes entries, one after another, as a parser finds them.
#[derive(Debug)]
pub struct EntryWriter<'a> {
    places: &'a Places<'a>,
    current: Option<(File, Destination)>,
    /// What was written of it.
    written: Range<u64>,
}

impl<'a> EntryWriter<'a> {
    /// A writer without a current entry.
    pub fn new(places: &'a Places<'a>) -> Self {
        Self { places, current: None, written: 0..0 }
    }

    /// Makes an entry the current one.
    pub fn begin(&mut self, destination: Destination) -> Result<()> {
        self.end()?;
        let Places { roots, bank_snapshot, owner, is_shared, .. } = self.places;
        let file = match destination {
            Destination::Nothing => return Ok(()),
            Destination::Version => bank_snapshot.create_file("version", owner, *is_shared)?,
            Destination::StatusCache => bank_snapshot.create_file("status_cache", owner, *is_shared)?,
            Destination::BankFile => bank_snapshot.create_file(BANK_FILE_PARTIAL, owner, *is_shared)?,
            Destination::Storage { root, slot, id } => {
                roots[usize::from(root)].create_file(&format!("{slot}.{id}"), owner, *is_shared)?
            }
        };
        self.current = Some((file, destination));
        Ok(())
    }

    /// Writes some of the current entry's content.
    pub fn content(&mut self, offset_bytes: u64, bytes: &[u8]) -> Result<()> {
        let Some((file, destination)) = &self.current else { return Ok(()) };
        self.places.watch.before_writing(bytes.len() as u64, file, &self.places.bank_snapshot.path)?;
        file.write_all_at(bytes, offset_bytes).map_err(|error| self.error(destination, &error))?;
        if self.written.is_empty() {
            self.written.start = offset_bytes;
        }
        self.written.end = offset_bytes + bytes.len() as u64;
        Ok(())
    }

    /// The current entry is complete, or the rest of it is another writer's.
    pub fn end(&mut self) -> Result<()> {
        let Some((file, destination)) = self.current.take() else { return Ok(()) };
        let written = std::mem::take(&mut self.written);
        self.places.write_behind.add(file, written).map_err(|error| self.error(&destination, &error))
    }

    fn error(&self, destination: &Destination, error: &std::io::Error) -> Error {
        let (dir, name) = match destination {
            Destination::Storage { root, slot, id } => (&self.places.roots[usize::from(*root)], format!("{slot}.{id}")),
            _ => (self.places.bank_snapshot, format!("{destination:?}")),
        };
        Error::io("write", &dir.path.join(name), error)
    }
}
