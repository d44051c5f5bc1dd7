//! Reads one archive or ledger of a state: all records once, and some again.

use std::collections::HashSet;
use std::path::PathBuf;

use slotpress_base::{Result, ShowPath};
use slotpress_format::BankFile;

use crate::archive::Archive;
use crate::state::accounts::Accounts;
use crate::state::second_pass::StatePart;
use crate::state::storages::{Storages, read_again, read_storages};
use crate::verify::job::Job;
use crate::{
    AccountsPass, ArchiveRules, Check, FindingPlace, Findings, FirstPass, NamedArchive, Pass, Rule, SeenSlots, Task,
};

/// An archive or a ledger that has been read and judged except for its state.
pub struct Part {
    pub path: PathBuf,
    pub storages: Storages,
    pub findings: Findings,
    pub bank: Option<BankFile>,
    pub storage_count: u32,
    pub tar_bytes: u64,
    pub frames: u64,
    pub first_storage: u32,
    /// True if Firedancer wrote the archive, or the one from which it was recompressed.
    pub is_of_firedancer: bool,
    /// True if an index, or a ledger's list, names all storages.
    pub has_index: bool,
}

impl Part {
    /// Reads an archive. `is_below` is true for the full archive of a pair.
    pub fn read(
        archive: &NamedArchive,
        is_below: bool,
        accounts: &Accounts,
        seen_slots: &SeenSlots,
        job: &Job<'_>,
    ) -> Result<Self> {
        let Job { options, progress, .. } = *job;
        let findings = Findings::new().below(is_below);
        let archive = opened(archive, &findings, job)?;
        progress.stage(job.stage(), Some(archive.length_bytes()));
        let first_storage = accounts.storage_count();
        let records = AccountsPass { accounts, findings: &findings, task: job.first_task() };
        let rules = ArchiveRules::of_archive(&archive, archive.base_slot(), seen_slots, &findings);
        let visitor = FirstPass { rules, records: job.reads_records().then_some(&records), contents: None };
        let is_wanted_only = options.is_quick && options.expect_roots.is_empty();
        let read = archive.read(&pass_of(job, is_wanted_only), &visitor);
        let mut read = read.map_err(|error| error.within_damaged(archive.path().shown()))?;
        let judged = visitor.rules.finish(&archive, &mut read)?;
        if let Some(why) = options.why_not_state() {
            findings.skip(Check::Records, why);
        }
        let (has_index, path) = (archive.tail.is_some(), archive.path_buf());
        if is_wanted_only && has_index {
            findings.skip(Check::Frames, "quick check: only those of the first files were read");
            findings.skip(Check::Entries, "quick check: entries were taken from the index");
        }
        drop(visitor);
        Ok(Self {
            path,
            findings,
            storage_count: u32::try_from(judged.entries.storages().len()).unwrap_or(u32::MAX),
            tar_bytes: read.tar_bytes,
            frames: read.frames.frames,
            first_storage,
            is_of_firedancer: read.is_of_firedancer || judged.bank.as_ref().is_some_and(BankFile::lacks_stakes),
            bank: judged.bank,
            storages: Storages::Archive(Box::new(archive)),
            has_index,
        })
    }

    /// Reads the records of all or the wanted storages again.
    pub fn read_again(
        &self,
        accounts: &Accounts,
        task: Task<'_>,
        wanted: Option<&HashSet<u32>>,
        job: &Job<'_>,
    ) -> Result<()> {
        let numbers = self.first_storage..self.first_storage.saturating_add(self.storage_count);
        match wanted {
            Some(wanted) if !wanted.iter().any(|number| numbers.contains(number)) => return Ok(()),
            Some(_) => {}
            None => job.progress.stage("Visiting", Some(self.storages.length_bytes())),
        }
        self.read_records(accounts, task, wanted, job)
    }

    /// Passes the records of all or the wanted storages to the state check.
    pub fn read_records(
        &self,
        accounts: &Accounts,
        task: Task<'_>,
        wanted: Option<&HashSet<u32>>,
        job: &Job<'_>,
    ) -> Result<()> {
        let records = AccountsPass { accounts, findings: &self.findings, task };
        let (threads, progress) = (job.options.threads, job.progress);
        match &self.storages {
            Storages::Archive(archive) => {
                read_again(archive, self.first_storage, wanted, &records, wanted.is_none(), threads, progress)
                    .map_err(|error| error.within_damaged(self.path.shown()))
            }
            Storages::Ledger(plan) => read_storages(plan, &records, wanted, threads, progress, &|storage, error| {
                self.findings.lose_accounts();
                self.findings.add_error(Rule::Ledger, &FindingPlace::storage(storage.slot, storage.id), &error)
            }),
        }
    }

    /// The archive; `None` for a ledger.
    pub fn archive(&self) -> Option<&Archive> {
        match &self.storages {
            Storages::Archive(archive) => Some(archive),
            Storages::Ledger(_) => None,
        }
    }

    pub fn base_slot(&self) -> Option<u64> {
        self.archive()?.base_slot()
    }

    pub fn described(&self) -> StatePart {
        StatePart {
            path: self.path.clone(),
            root: self.archive().and_then(Archive::root),
            first_storage: self.first_storage,
            is_of_firedancer: self.is_of_firedancer,
        }
    }
}

fn opened(archive: &NamedArchive, findings: &Findings, job: &Job<'_>) -> Result<Archive> {
    let archive = archive.open(&job.options.io_policy)?;
    if let Some(error) = &archive.index_error {
        findings.add_error(Rule::Index, &FindingPlace::default(), error)?;
        if job.visitor.is_some() {
            archive.warn_of_index(job.progress);
        }
    }
    Ok(archive)
}

fn pass_of<'a>(job: &Job<'a>, is_wanted_only: bool) -> Pass<'a> {
    let pass = Pass::new(job.options.threads, job.progress);
    Pass { is_wanted_only, is_newest_first: true, checks_hashes: true, ..pass }
}
