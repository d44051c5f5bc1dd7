//! Reads the records of all or some storages of an archive or a ledger.

use std::collections::HashSet;
use std::path::PathBuf;

use slotpress_base::{ErrorKind, IoPolicy, Progress, Result};
use slotpress_format::{EntryKind, LedgerLock, LedgerPaths, find_bank_snapshot};

use crate::archive::Archive;
use crate::verify::ledger::read_storages;
use crate::verify::lost_records;
use crate::{NamedArchive, Plan, RecordVisitor, read_again};

#[derive(Clone, Copy, Debug)]
pub struct ScanStorage {
    pub number: u32,
    pub slot: u64,
    pub content_bytes: u64,
}

pub struct Scan<'a> {
    opened: Opened,
    path: PathBuf,
    /// Worker threads, 1 to 1024.
    pub threads: usize,
    progress: &'a dyn Progress,
}

enum Opened {
    Archive(Box<Archive>),
    Ledger { plan: Box<Plan>, _lock: Option<LedgerLock> },
}

impl<'a> Scan<'a> {
    pub fn archive(input: &NamedArchive, threads: usize, progress: &'a dyn Progress) -> Result<Self> {
        let archive = input.open(&IoPolicy::default())?;
        archive.warn_of_index(progress);
        Ok(Self { opened: Opened::Archive(Box::new(archive)), path: input.path.clone(), threads, progress })
    }

    /// Opens the bank snapshot of `slot`, or the newest, in a stopped validator's ledger or an
    /// unpacked archive. The result holds the ledger's lock until it is dropped.
    pub fn ledger(paths: &LedgerPaths, slot: Option<u64>, threads: usize, progress: &'a dyn Progress) -> Result<Self> {
        let lock = match paths.is_unpacked_archive() {
            true => None,
            false => Some(LedgerLock::acquire(&paths.ledger)?),
        };
        progress.stage("Planning", None);
        let snapshot = find_bank_snapshot(paths, slot, threads)?;
        let path = snapshot.dir.clone();
        let plan = Box::new(Plan::new(snapshot, None, threads, progress)?);
        Ok(Self { opened: Opened::Ledger { plan, _lock: lock }, path, threads, progress })
    }

    /// Returns the storages; `None` for an archive without an index, which must be read in order.
    pub fn storages(&self) -> Option<Vec<ScanStorage>> {
        let kinds: Vec<(u64, u64)> = match &self.opened {
            Opened::Archive(archive) => {
                let entries = archive.tail.as_ref()?.index.entries.iter();
                let slot_of = |kind| match kind {
                    EntryKind::Storage { slot, .. } => Some(slot),
                    _ => None,
                };
                entries.filter_map(|entry| Some((slot_of(entry.kind)?, entry.content_bytes))).collect()
            }
            Opened::Ledger { plan, .. } => {
                plan.storages.iter().map(|storage| (storage.file.slot, storage.content_bytes)).collect()
            }
        };
        let storage = |(number, (slot, content_bytes))| ScanStorage { number, slot, content_bytes };
        Some((0..).zip(kinds).map(storage).collect())
    }

    /// Passes the records of all storages, or of the wanted ones, to a visitor.
    pub fn read(&self, visitor: &dyn RecordVisitor, wanted: Option<&HashSet<u32>>) -> Result<()> {
        const STAGE: &str = "Searching";
        let (threads, progress) = (self.threads, self.progress);
        let read = match &self.opened {
            Opened::Ledger { plan, .. } => {
                progress.stage(STAGE, wanted.is_none().then_some(plan.content_bytes()));
                read_storages(plan, visitor, wanted, threads, progress, &|_, error| Err(error))
            }
            Opened::Archive(archive) => {
                progress.stage(STAGE, wanted.is_none().then_some(archive.length_bytes()));
                read_again(archive, 0, wanted, visitor, true, threads, progress)
            }
        };
        match read {
            Err(error) if error.kind() == ErrorKind::Damaged => Err(lost_records(&self.path)),
            read => read,
        }
    }
}
