//! Reads one archive or ledger of a state: all records once, and some again.

use std::collections::HashSet;

use slotpress_base::{EscapePath, Result};
use slotpress_format::BankFile;

use crate::state::storages::StorageReader;
use crate::verify::job::VerifyJob;
use crate::{
    AccountsPass, ArchiveInput, ArchivePass, ArchiveRules, Check, CheckMode, FailurePlace, Failures, OpenArchive, Rule,
    SeenSlots, StateBuilder, StatePart, Task,
};

/// An archive or a ledger that has been read and judged by itself. Pair and state are judged later.
pub struct JudgedPart {
    pub facts: StatePart,
    pub storages: StorageReader,
    pub failures: Failures,
    pub bank: Option<BankFile>,
    pub storage_count: u32,
    pub tar_bytes: u64,
    pub frames: u64,
    /// True if an index, or the storages list of a ledger, names all storages.
    pub has_index: bool,
}

impl JudgedPart {
    /// Reads an archive, and adds what is wrong with it to `failures`.
    pub fn read(
        archive: &ArchiveInput,
        failures: Failures,
        state: &StateBuilder,
        seen_slots: &SeenSlots,
        job: &VerifyJob<'_>,
    ) -> Result<Self> {
        let VerifyJob { options, progress, .. } = *job;
        let archive = archive.open(&options.io_policy)?;
        if let Some(error) = &archive.index_error {
            failures.at(FailurePlace::default()).add_error(Rule::Index, error)?;
            if job.second_pass_visitor().is_some() {
                archive.warn_of_damaged_index(progress);
            }
        }
        progress.stage(job.stage(), archive.source.length_bytes());
        let first_storage = state.storage_count();
        let records = AccountsPass::new(state, &failures, job.first_task());
        let rules = ArchiveRules::from_archive(&archive, archive.base_slot(), seen_slots, &failures)
            .with_records(job.reads_records().then_some(&records));
        let is_quick = options.check.mode == CheckMode::Quick && !job.reads_records();
        let wanted_only = is_quick && options.expect_roots.is_empty();
        let pass = ArchivePass::new(options.threads, progress).wanted_only(wanted_only);
        let read = archive.read(&pass.newest_first(true).check_hashes(true), &rules);
        let mut contents = read.map_err(|error| error.with_place_if_damaged(archive.path().escaped()))?;
        let (entries, bank) = rules.finish(&archive, &mut contents)?;
        if let Some(why) = options.state_skip_reason() {
            failures.skip(Check::Records, why);
        }
        let has_index = archive.tail.is_some();
        if wanted_only && has_index {
            failures.skip(Check::Frames, "quick check: only those of the first files were read");
            failures.skip(Check::Entries, "quick check: entries were taken from the index");
        }
        drop(rules);
        let storages = entries.iter().filter(|entry| entry.is_storage());
        Ok(Self {
            facts: StatePart {
                path: archive.path().to_path_buf(),
                root: archive.root(),
                first_storage,
                is_from_firedancer: contents.is_from_firedancer,
            },
            failures,
            storage_count: u32::try_from(storages.count()).unwrap_or(u32::MAX),
            tar_bytes: contents.tar_bytes,
            frames: contents.frames.frames,
            bank,
            storages: StorageReader::Archive(Box::new(archive)),
            has_index,
        })
    }

    pub fn read_records(
        &self,
        state: &StateBuilder,
        task: Task<'_>,
        wanted: Option<&HashSet<u32>>,
        job: &VerifyJob<'_>,
    ) -> Result<()> {
        let first_storage = self.facts.first_storage;
        let numbers = first_storage..first_storage.saturating_add(self.storage_count);
        if wanted.is_some_and(|wanted| !wanted.iter().any(|number| numbers.contains(number))) {
            return Ok(());
        }
        let records = AccountsPass::new(state, &self.failures, task);
        self.storages.read(first_storage, wanted, &records, job.options.threads, job.progress)
    }

    pub fn archive(&self) -> Option<&OpenArchive> {
        match &self.storages {
            StorageReader::Archive(archive) => Some(archive),
            StorageReader::Ledger(_) => None,
        }
    }

    pub fn base_slot(&self) -> Option<u64> {
        self.archive()?.base_slot()
    }
}
