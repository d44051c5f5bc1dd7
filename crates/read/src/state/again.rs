//! Reads the records of some storages of an archive again.

use std::collections::HashSet;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;

use slotpress_base::{Progress, Result};
use slotpress_format::{Entry, EntryKind};

use crate::archive::Archive;
use crate::archive::by_index::Extent;
use crate::archive::visit::Problem;
use crate::{EntryUse, Pass, RecordVisitor, StorageRef, Visitor};

/// Passes the records of all storages, or of the `wanted` ones, to `records`. `first_storage` is
/// the number of the archive's first storage. With `is_strict`, unreadable records are an error;
/// other problems never are.
pub fn read_again(
    archive: &Archive,
    first_storage: u32,
    wanted: Option<&HashSet<u32>>,
    records: &dyn RecordVisitor,
    is_strict: bool,
    threads: usize,
    progress: &dyn Progress,
) -> Result<()> {
    let visitor = Again { records, wanted, is_strict, next_storage: AtomicU32::new(first_storage) };
    let extent = if wanted.is_some() { Extent::Wanted } else { Extent::Everything };
    let pass = Pass { extent, ..Pass::new(threads, progress) };
    archive.read(&pass, &visitor).map(drop)
}

struct Again<'a> {
    records: &'a dyn RecordVisitor,
    is_strict: bool,
    wanted: Option<&'a HashSet<u32>>,
    next_storage: AtomicU32,
}

impl Visitor for Again<'_> {
    fn entry(&self, _: u32, entry: &Entry) -> Result<EntryUse> {
        let EntryKind::Storage { slot, id } = entry.kind else { return Ok(EntryUse::default()) };
        let storage = StorageRef { number: self.next_storage.fetch_add(1, Relaxed), slot, id };
        let is_wanted = self.wanted.is_none_or(|wanted| wanted.contains(&storage.number));
        Ok(EntryUse { records_of: is_wanted.then_some(storage), ..EntryUse::default() })
    }

    fn problem(&self, problem: Problem<'_>) -> Result<()> {
        match problem {
            problem @ Problem::LostRecords { .. } if self.is_strict => Err(problem.into_error()),
            _ => Ok(()),
        }
    }

    fn records(&self) -> Option<&dyn RecordVisitor> {
        Some(self.records)
    }

    fn check(&self) -> Result<()> {
        self.records.check()
    }
}
