//! Verifies one archive: the first reading of all records, and the second reading of superseded
//! ones.

use std::collections::HashSet;

use slotpress_base::{Error, Result, ShowPath};
use slotpress_format::BankFile;

use crate::archive::Archive;
use crate::archive::by_index::Extent;
use crate::state::accounts::Accounts;
use crate::state::storages::read_again;
use crate::verify::Job;
use crate::{
    AccountsPass, ArchiveRules, Check, FindingPlace, Findings, FirstPass, HashCheck, JudgedArchive, NamedArchive, Pass,
    Rule, SeenSlots, Task,
};

/// An archive that has been read and judged except for its state.
pub struct VerifiedArchive {
    pub archive: Archive,
    pub findings: Findings,
    pub judged: JudgedArchive,
    pub tar_bytes: u64,
    pub frames: u64,
    pub first_storage: u32,
    /// True if Firedancer wrote the archive, or the one from which it was recompressed.
    pub is_of_firedancer: bool,
}

impl VerifiedArchive {
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
        let archive = archive.open(&options.io_policy)?;
        if let Some(error) = &archive.index_error {
            findings.add_error(Rule::Index, &FindingPlace::default(), error)?;
            if job.visitor.is_some() {
                archive.warn_of_index(progress);
            }
        }
        progress.stage(job.stage(), Some(archive.length_bytes()));
        let first_storage = accounts.storage_count();
        let records = AccountsPass { accounts, findings: &findings, task: job.first_task() };
        let visitor = FirstPass {
            rules: ArchiveRules::of_archive(&archive, archive.base_slot(), seen_slots, &findings),
            records: job.reads_records().then_some(&records),
            contents: (),
        };
        let hashes = match options.expect_roots.is_empty() {
            true => HashCheck::Decoded,
            false => HashCheck::All,
        };
        // On a server, each frame's header would take a request.
        let reads_headers = archive.source.file().is_some() || hashes == HashCheck::All;
        let extent = match options.is_quick {
            true if reads_headers => Extent::WantedAndHeaders,
            true => Extent::Wanted,
            false => Extent::Everything,
        };
        let pass = Pass { extent, is_newest_first: true, hashes, ..Pass::new(options.threads, progress) };
        let within = |error: Error| error.within_damaged(archive.path().shown());
        let mut read = archive.read(&pass, &visitor).map_err(within)?;
        let judged = visitor.rules.finish(&archive, &mut read)?;
        if let Some(why) = options.why_not_state() {
            findings.skip(Check::Records, why);
        }
        if let Some(tail) = archive.tail.as_ref().filter(|_| options.is_quick) {
            let what = match hashes == HashCheck::All && tail.hashes.is_some() {
                true => "quick check: the hashes of all, and the content of the first",
                false if reads_headers => "quick check: all headers, and the content of the first",
                false => "quick check of a server: the content of the first",
            };
            findings.skip(Check::Frames, what);
            findings.skip(Check::Entries, "quick check: entries were taken from the index");
        }
        drop(visitor);
        let lacks_stakes = judged.bank.as_ref().is_some_and(BankFile::lacks_stakes);
        let (tar_bytes, frames, is_of_firedancer) =
            (read.tar_bytes, read.frames.frames, read.is_of_firedancer || lacks_stakes);
        Ok(Self { archive, findings, judged, tar_bytes, frames, first_storage, is_of_firedancer })
    }

    pub fn read_again(
        &self,
        accounts: &Accounts,
        task: Task<'_>,
        wanted: Option<&HashSet<u32>>,
        job: &Job<'_>,
    ) -> Result<()> {
        let count = u32::try_from(self.judged.entries.storages().len()).unwrap_or(u32::MAX);
        let numbers = self.first_storage..self.first_storage.saturating_add(count);
        match wanted {
            Some(wanted) if !wanted.iter().any(|number| numbers.contains(number)) => return Ok(()),
            Some(_) => {}
            None => job.progress.stage("Visiting", Some(self.archive.length_bytes())),
        }
        let records = AccountsPass { accounts, findings: &self.findings, task };
        let threads = job.options.threads;
        let (archive, first_storage) = (&self.archive, self.first_storage);
        read_again(archive, first_storage, wanted, &records, wanted.is_none(), threads, job.progress)
            .map_err(|error| error.within_damaged(archive.path().shown()))
    }

    pub fn bank(&self) -> Option<&BankFile> {
        self.judged.bank.as_ref()
    }

    pub fn storages(&self) -> &[(u64, u64)] {
        self.judged.entries.storages()
    }
}
