//! Reading the records of an archive or a ledger, all or those of some storages, with the readers of `verify`.

use {
    crate::{
        archive::plan::Plan,
        error::{Error, ErrorKind, Result},
        format::{clients::Rule, entry::EntryKind},
        ledger::{
            directory::{LedgerPaths, find_bank_snapshot},
            lock::LedgerLock,
            names::ArchiveName,
        },
        progress::Progress,
        verify::{
            accounts::{Accounts, RecordVisitor, Task},
            in_order::read_in_order,
            indexed::read_indexed,
            ledger::LedgerPass,
            pass::{Pass, SourceArchive},
            report::Findings,
            state::RATIO_TYPICAL,
        },
    },
    std::{
        collections::HashSet,
        path::{Path, PathBuf},
    },
};

/// Whose records to read.
#[derive(Clone, Copy, Debug)]
pub enum AccountsInput<'a> {
    /// An archive of any maker.
    Archive(&'a Path),
    /// A stopped validator's ledger, or an unpacked archive: the bank snapshot of a slot, or the newest.
    Ledger(&'a LedgerPaths, Option<u64>),
}

/// What a ledger has on disk that an archive of it would not hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ObsoleteTotals {
    /// Obsolete records of storages that are not emptied.
    pub records: u64,
    /// Their bytes, as records of an append vec.
    pub bytes: u64,
}

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
    Archive(Box<SourceArchive>),
    Ledger { plan: Box<Plan>, _lock: Option<LedgerLock> },
}

impl<'a> Scan<'a> {
    /// Opens what is to be read. Holds a ledger's lock until it is dropped.
    pub fn open(input: AccountsInput<'_>, threads: usize, progress: &'a dyn Progress) -> Result<Self> {
        let findings = Findings::new();
        let (source, path) = match input {
            AccountsInput::Archive(path) => {
                let source = SourceArchive::open(path, ArchiveName::of_path(path), &findings)?;
                (Source::Archive(Box::new(source)), path.to_path_buf())
            }
            AccountsInput::Ledger(paths, slot) => {
                let lock = match paths.is_unpacked_archive() {
                    true => None,
                    false => Some(LedgerLock::acquire(&paths.ledger)?),
                };
                progress.stage("Planning", None);
                let snapshot = find_bank_snapshot(paths, slot)?;
                let path = snapshot.dir.clone();
                let plan = Box::new(Plan::new(snapshot, None, progress)?);
                (Source::Ledger { plan, _lock: lock }, path)
            }
        };
        Ok(Self { source, path, threads, findings, progress })
    }

    /// Workers.
    pub fn threads(&self) -> usize {
        self.threads
    }

    /// Bytes of tar or of storages, roughly: rather too many.
    pub fn content_bytes_estimate(&self) -> u64 {
        match &self.source {
            Source::Archive(archive) => archive.file.length_bytes.saturating_mul(RATIO_TYPICAL),
            Source::Ledger { plan, .. } => plan.content_bytes(),
        }
    }

    /// What only a ledger has.
    pub fn obsolete(&self) -> Option<ObsoleteTotals> {
        match &self.source {
            Source::Archive(_) => None,
            Source::Ledger { plan, .. } => {
                Some(ObsoleteTotals { records: plan.obsolete_records, bytes: plan.obsolete_bytes })
            }
        }
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
        // The state is not made up: the memory that it would take is never asked for.
        let accounts = Accounts::new(0, &std::env::temp_dir(), 0)?;
        let task = Task::Visit(visitor);
        let (findings, threads, progress) = (&self.findings, self.threads, self.progress);
        match &self.source {
            Source::Archive(archive) => {
                progress.stage(stage, wanted.is_none().then_some(archive.file.length_bytes));
                let (accounts, task) = (&accounts, Some(&task));
                let pass = Pass { archive, accounts, findings, task, wanted, first_storage: 0, threads, progress };
                let mut seen_slots = HashSet::new();
                match &archive.tail {
                    Some(tail) => read_indexed(&pass, tail, &mut seen_slots),
                    None => read_in_order(&pass, &mut seen_slots),
                }?;
            }
            Source::Ledger { plan, .. } => {
                let total: u64 = plan.storages.iter().map(|storage| storage.content_bytes).sum();
                progress.stage(stage, wanted.is_none().then_some(total));
                LedgerPass { plan, accounts: &accounts, findings, threads, progress }.read(&task, wanted)?;
            }
        }
        match self.has_lost_records() {
            true => Err(Error::damaged("not all of its records can be read")
                .within(self.path.display())
                .hint("`slotpress verify` says what is damaged, and where")),
            false => Ok(()),
        }
    }

    fn has_lost_records(&self) -> bool {
        let rules = [Rule::RecordCutOff, Rule::DataLength];
        self.findings.has_lost_accounts() || rules.into_iter().any(|rule| self.findings.has(rule))
    }

    /// Whether an error means that the index is worthless; it is then forgotten, and reading can start anew.
    pub fn distrust_index(&mut self, error: &Error) -> bool {
        let is_lost = self.has_lost_records();
        let Source::Archive(archive) = &mut self.source else { return false };
        if error.kind() != ErrorKind::Damaged || is_lost || archive.tail.is_none() {
            return false;
        }
        archive.tail = None;
        self.findings = Findings::new();
        self.progress.warn(&format!("{}: {error}; reading it without its index", self.path.display()));
        true
    }

    /// Tells of departures that did not keep any record from being read.
    pub fn warn_of_departures(self) {
        let report = self.findings.into_report(&[], vec![self.path]);
        let Some(first) = report.failures.first() else { return };
        let count = report.failures.len() as u64 + report.unlisted_count - 1;
        let more = if count == 0 { String::new() } else { format!(", and {count} more") };
        self.progress.warn(&format!("{}{more}: `slotpress verify` says where", first.message));
    }
}
