//! Reading the records of an archive or a ledger, all or those of some storages, as `verify` reads them.

use {
    crate::{
        archive::{
            Archive, Pass,
            by_index::Extent,
            named::NamedArchive,
            visit::{EntryUse, Problem, RecordVisitor, RecordWorker, StorageRef, Visitor},
        },
        plan::Plan,
        rules::findings::Findings,
        state::accounts::tell_fault,
        verify::{ledger::read_storages, lost_records},
    },
    slotpress_base::{
        error::{Error, ErrorKind, Result},
        progress::Progress,
    },
    slotpress_format::{
        archive::entry::{Entry, EntryKind},
        ledger::{
            directory::{LedgerPaths, find_bank_snapshot},
            lock::LedgerLock,
            records::{Record, RecordFault, RecordFaultKind, RecordSink},
        },
    },
    std::{
        collections::HashSet,
        path::PathBuf,
        sync::atomic::{AtomicU32, Ordering::Relaxed},
    },
};

/// A storage that can be read on its own.
#[derive(Clone, Copy, Debug)]
pub struct ScanStorage {
    /// Its number: in the order of the archive, or of the plan.
    pub number: u32,
    /// Its slot.
    pub slot: u64,
    /// Its length in bytes.
    pub content_bytes: u64,
}

/// An open archive or ledger.
pub struct Scan<'a> {
    source: Source,
    /// What is read: the archive, or the bank snapshot's directory.
    pub path: PathBuf,
    threads: usize,
    findings: Findings,
    progress: &'a dyn Progress,
}

enum Source {
    Archive(Box<Archive>),
    Ledger { plan: Box<Plan>, _lock: Option<LedgerLock> },
}

impl<'a> Scan<'a> {
    /// Opens an archive of any maker.
    pub fn archive(input: &NamedArchive, threads: usize, progress: &'a dyn Progress) -> Result<Self> {
        let archive = input.open()?;
        archive.warn_of_index(progress);
        let (source, path) = (Source::Archive(Box::new(archive)), input.path.clone());
        Ok(Self { source, path, threads, findings: Findings::new(), progress })
    }

    /// Opens a stopped validator's ledger, or an unpacked archive: the bank snapshot of a slot, or the newest. Holds the
    /// ledger's lock until it is dropped.
    pub fn ledger(paths: &LedgerPaths, slot: Option<u64>, threads: usize, progress: &'a dyn Progress) -> Result<Self> {
        let lock = match paths.is_unpacked_archive() {
            true => None,
            false => Some(LedgerLock::acquire(&paths.ledger)?),
        };
        progress.stage("Planning", None);
        let snapshot = find_bank_snapshot(paths, slot, threads)?;
        let path = snapshot.dir.clone();
        let plan = Box::new(Plan::new(snapshot, None, threads, progress)?);
        let source = Source::Ledger { plan, _lock: lock };
        Ok(Self { source, path, threads, findings: Findings::new(), progress })
    }

    /// Threads that work, 1 to 1024.
    pub fn threads(&self) -> usize {
        self.threads
    }

    /// The storages, where any of them can be read without those before it.
    pub fn storages(&self) -> Option<Vec<ScanStorage>> {
        let kinds: Vec<(u64, u64)> = match &self.source {
            Source::Archive(archive) => {
                let entries = archive.tail.as_ref()?.index.entries.iter();
                let slot_of = |kind| match kind {
                    EntryKind::Storage { slot, .. } => Some(slot),
                    _ => None,
                };
                entries.filter_map(|entry| Some((slot_of(entry.kind)?, entry.content_bytes))).collect()
            }
            Source::Ledger { plan, .. } => {
                plan.storages.iter().map(|storage| (storage.file.slot, storage.content_bytes)).collect()
            }
        };
        let storage = |(number, (slot, content_bytes))| ScanStorage { number, slot, content_bytes };
        Some((0..).zip(kinds).map(storage).collect())
    }

    /// Shows every record to a visitor, or those of the storages that are wanted.
    pub fn read(&self, stage: &str, visitor: &dyn RecordVisitor, wanted: Option<&HashSet<u32>>) -> Result<()> {
        let (threads, progress) = (self.threads, self.progress);
        let records = ToldFaults { inner: visitor, findings: &self.findings };
        match &self.source {
            Source::Archive(archive) => {
                progress.stage(stage, wanted.is_none().then_some(archive.length_bytes()));
                let scanning =
                    Scanning { records, findings: &self.findings, wanted, next_storage: AtomicU32::default() };
                let extent = if wanted.is_some() { Extent::Wanted } else { Extent::Everything };
                archive.read(&Pass { extent, ..Pass::new(threads, progress) }, &scanning)?;
            }
            Source::Ledger { plan, .. } => {
                let total: u64 = plan.storages.iter().map(|storage| storage.content_bytes).sum();
                progress.stage(stage, wanted.is_none().then_some(total));
                read_storages(plan, &records, wanted, threads, progress, &|_, error| Err(error))?;
            }
        }
        match self.has_lost_records() {
            true => Err(lost_records(&self.path)),
            false => Ok(()),
        }
    }

    fn has_lost_records(&self) -> bool {
        self.findings.has_lost_accounts()
    }

    /// Whether an error means that the index is worthless; it is then forgotten, and reading can start anew.
    pub fn distrust_index(&mut self, error: &Error) -> bool {
        let is_lost = self.has_lost_records();
        let Source::Archive(archive) = &mut self.source else { return false };
        if error.kind() != ErrorKind::Damaged || is_lost || archive.tail.is_none() {
            return false;
        }
        archive.distrust_index(error.clone());
        archive.warn_of_index(self.progress);
        self.findings = Findings::new();
        true
    }

    /// Tells of departures that did not keep any record from being read.
    pub fn warn_of_departures(self) {
        let (failures, per_rule, _) = self.findings.into_parts();
        let Some(first) = failures.first() else { return };
        let count = per_rule.values().sum::<u64>().saturating_sub(1);
        let more = if count == 0 { String::new() } else { format!(", and {count} more") };
        self.progress.warn(&format!("{}{more}: verifying it says where", first.message));
    }
}

/// Reads the records of an archive's storages, as well as they can be read.
struct Scanning<'a> {
    records: ToldFaults<'a>,
    findings: &'a Findings,
    wanted: Option<&'a HashSet<u32>>,
    next_storage: AtomicU32,
}

impl Visitor for Scanning<'_> {
    fn entry(&self, _: u32, entry: &Entry) -> Result<EntryUse> {
        let EntryKind::Storage { slot, id } = entry.kind else { return Ok(EntryUse::default()) };
        let storage = StorageRef { number: self.next_storage.fetch_add(1, Relaxed), slot, id };
        let is_wanted = self.wanted.is_none_or(|wanted| wanted.contains(&storage.number));
        Ok(EntryUse { records_of: is_wanted.then_some(storage), ..EntryUse::default() })
    }

    fn problem(&self, problem: Problem<'_>) -> Result<()> {
        if let Problem::LostRecords { .. } = problem {
            self.findings.lose_accounts();
        }
        Ok(())
    }

    fn records(&self) -> Option<&dyn RecordVisitor> {
        Some(&self.records)
    }

    fn check(&self) -> Result<()> {
        self.records.check()
    }
}

/// Shows records to a visitor, and tells what is wrong with storages.
struct ToldFaults<'a> {
    inner: &'a dyn RecordVisitor,
    findings: &'a Findings,
}

impl RecordVisitor for ToldFaults<'_> {
    fn new_worker(&self) -> Box<dyn RecordWorker + '_> {
        Box::new(ToldFaultsWorker {
            inner: self.inner.new_worker(),
            findings: self.findings,
            storage: StorageRef::default(),
        })
    }

    fn check(&self) -> Result<()> {
        self.inner.check()
    }
}

struct ToldFaultsWorker<'a> {
    inner: Box<dyn RecordWorker + 'a>,
    findings: &'a Findings,
    storage: StorageRef,
}

impl RecordWorker for ToldFaultsWorker<'_> {
    fn begin(&mut self, storage: StorageRef) {
        self.storage = storage;
        self.inner.begin(storage);
    }
}

impl RecordSink for ToldFaultsWorker<'_> {
    fn record(&mut self, record: Record<'_>) {
        self.inner.record(record);
    }

    fn fault(&mut self, fault: RecordFault) {
        if matches!(fault.kind, RecordFaultKind::CutOff | RecordFaultKind::Tail | RecordFaultKind::DataLength) {
            self.findings.lose_accounts();
        }
        // Findings that only collect return no error.
        let _ = tell_fault(self.storage, fault, self.findings);
    }
}
