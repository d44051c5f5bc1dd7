//! One pass over one archive: what it reads into, and what comes out.

use {
    crate::{
        error::Result,
        ledger::names::ArchiveName,
        progress::Progress,
        restore::{
            documents::Documents,
            input::{ArchiveFile, Compression},
            tail::Tail,
        },
        verify::{
            accounts::{Accounts, StorageRef, Task},
            entries::EntryChecker,
            report::{Check, Counts, Findings, Place},
        },
    },
    std::{
        collections::HashSet,
        path::{Path, PathBuf},
    },
};

/// An archive to verify.
pub struct SourceArchive {
    /// The file.
    pub file: ArchiveFile,
    /// Its path, as it was given.
    pub path: PathBuf,
    /// What its name says.
    pub name: Option<ArchiveName>,
    /// Its seek table and index.
    pub tail: Option<Tail>,
}

impl SourceArchive {
    /// Opens an archive. An index that makes no sense is a failure; the archive is then read in order.
    pub fn open(path: &Path, name: Option<ArchiveName>, findings: &Findings) -> Result<Self> {
        let file = ArchiveFile::open(path)?;
        let tail = match file.compression {
            Compression::Zstd => Tail::read(&file.file, path, file.length_bytes).or_else(|error| {
                if error.kind() != crate::ErrorKind::Damaged {
                    return Err(error);
                }
                findings.add_error(Check::Frames, crate::format::clients::Rule::Index, Place::default(), &error);
                Ok(None)
            })?,
            _ => None,
        };
        Ok(Self { file, path: path.to_path_buf(), name, tail })
    }

    /// The base slot that its name gives.
    pub fn base_slot(&self) -> Option<u64> {
        self.name.as_ref().and_then(|name| name.base_slot)
    }
}

/// What to read, and how.
pub struct Pass<'a> {
    /// The archive.
    pub archive: &'a SourceArchive,
    /// The state in the making.
    pub accounts: &'a Accounts,
    /// Where failures go.
    pub findings: &'a Findings,
    /// What to do with records; `None` to pass over them.
    pub task: Option<&'a Task<'a>>,
    /// The storages of interest; `None` for all. Their numbers start at `first_storage`.
    pub wanted: Option<&'a HashSet<u32>>,
    /// The number of the archive's first storage.
    pub first_storage: u32,
    /// Workers.
    pub threads: usize,
    /// Who is told.
    pub progress: &'a dyn Progress,
}

impl Pass<'_> {
    /// Whether this is the pass that looks at everything, not one that only subtracts.
    pub fn is_first(&self) -> bool {
        self.wanted.is_none()
    }

    /// Numbers the archive's next storage: anew in the first pass, as then in another.
    pub fn storage_ref(&self, nth: u32, slot: u64, id: u32) -> StorageRef {
        match self.is_first() {
            true => self.accounts.add_storage(slot, id),
            false => StorageRef { number: self.first_storage + nth, slot, id },
        }
    }

    /// Whether a storage's records are to be read.
    pub fn is_wanted(&self, storage: StorageRef) -> bool {
        self.task.is_some() && self.wanted.is_none_or(|wanted| wanted.contains(&storage.number))
    }
}

/// What a pass found out.
#[derive(Debug, Default)]
pub struct Passed {
    /// Version, status cache, bank file.
    pub documents: Documents,
    /// The entries.
    pub entries: EntryChecker,
    /// Frames and bytes.
    pub counts: Counts,
}
