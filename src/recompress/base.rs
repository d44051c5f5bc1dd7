//! The full archive of an incremental one that is recompressed. It is read only to check the state
//! that both make up.
//!
//! It is read after the incremental one, so that accounts in both are not hashed twice. As for the
//! source, its index is not used.

use std::collections::HashSet;
use std::path::Path;

use slotpress_base::{Error, IoPolicy, Result, ShowPath, Watch};
use slotpress_format::BankFile;
use slotpress_read::archive::Archive;
use slotpress_read::rules::pair::Member;
use slotpress_read::{
    AccountsPass, ArchiveRules, Findings, FirstPass, IndexPolicy, Pass, Rule, SeenSlots, StateCheck, check_base,
    check_pair, judge_chains, read_again,
};

use super::plan::Job;

/// The open full archive.
pub struct Base {
    archive: Archive,
    /// Slot on which the incremental archive builds.
    slot: u64,
    /// Dropped last. Removes pages of the first bytes from the page cache if they were not there
    /// before.
    _watch: Watch,
}

impl Base {
    /// Opens the full archive, and checks by names that the incremental one, whose base is
    /// `base_slot`, builds on it.
    pub fn open(path: &Path, base_slot: u64, incremental: Member<'_>, io_policy: &IoPolicy) -> Result<Self> {
        let _watch = io_policy.io_hint.watch([path]);
        let archive = Archive::open(path, IndexPolicy::Ignore, io_policy)?;
        check_pair((path, archive.name.as_ref()), incremental)?;
        check_base(Some(base_slot), archive.name.as_ref().map(|name| name.slot))?;
        Ok(Self { archive, slot: base_slot, _watch })
    }

    pub fn length_bytes(&self) -> u64 {
        self.archive.length_bytes()
    }

    /// Adds the full archive's accounts to the state check, and applies the rules to the archive.
    /// `newest` is the bank file of the incremental one.
    pub fn add_to(&self, state: &StateCheck, newest: &BankFile, job: Job<'_>) -> Result<()> {
        self.read(state, newest, job).map_err(|error| error.within_damaged(self.archive.path().shown()))
    }

    fn read(&self, state: &StateCheck, newest: &BankFile, Job { options, progress, .. }: Job<'_>) -> Result<()> {
        progress.stage("Verifying", Some(self.length_bytes()));
        let (findings, seen_slots) = (Findings::refusing(Rule::is_refused_of_source).below(true), SeenSlots::default());
        let records = state.first_pass();
        let rules = ArchiveRules::of_archive(&self.archive, None, &seen_slots, &findings);
        let visitor = FirstPass { rules, records: Some(&records), contents: None };
        let mut read = self.archive.read(&Pass::new(options.encoding.threads, progress), &visitor)?;
        let judged = visitor.rules.finish(&self.archive, &mut read)?;
        let Some(bank) = judged.bank else { return Err(Error::damaged("the archive holds no bank file")) };
        check_base(Some(self.slot), Some(bank.slot))?;
        judge_chains(&bank, newest, &Findings::refusing(|_| true))
    }

    /// Reads wanted storages again. The archive's first storage has the number `first_storage`.
    pub fn read_again(
        &self,
        first_storage: u32,
        wanted: &HashSet<u32>,
        records: &AccountsPass<'_>,
        Job { options, progress, .. }: Job<'_>,
    ) -> Result<()> {
        if wanted.iter().any(|number| *number >= first_storage) {
            read_again(&self.archive, first_storage, Some(wanted), records, false, options.encoding.threads, progress)?;
        }
        Ok(())
    }
}
