//! The full archive of an incremental one that is recompressed. It is read only to check the state
//! that both make up.
//!
//! It is read after the incremental one, so that accounts in both archives are not hashed twice. Its
//! index is not used, because it may be wrong.

use slotpress_base::{Error, IoPolicy, PageCacheWatch, Result, Stage};
use slotpress_read::{
    AccountsPass, ArchiveInput, ArchivePass, ArchiveRules, Failures, OpenArchive, PairMember, Rule, SeenSlots,
    StateBuilder, Task, judge_pair,
};

use super::run::RecompressJob;

pub struct BaseArchive {
    pub archive: OpenArchive,
    /// Last field, so that it is dropped last. Its drop removes the file's pages from the page cache,
    /// except those that were there before.
    _watch: PageCacheWatch,
}

impl BaseArchive {
    /// Opens the full archive, and checks that the incremental one builds on it, as far as the names show.
    pub fn open(base: &ArchiveInput, incremental: PairMember<'_>, io_policy: &IoPolicy) -> Result<Self> {
        let file = base.source.is_none().then_some(&base.path);
        let _watch = io_policy.io_hint.watch(file);
        let archive = base.open(io_policy)?.without_index();
        let full = PairMember::from_archive(&archive, None);
        judge_pair(full, incremental, &Failures::strict())?;
        Ok(Self { archive, _watch })
    }

    pub fn add_accounts_to(
        &self,
        accounts: &StateBuilder,
        incremental: PairMember<'_>,
        RecompressJob { options, progress, .. }: RecompressJob<'_>,
    ) -> Result<()> {
        progress.stage(Stage::Verifying, self.archive.source.length_bytes());
        let failures = Failures::with_refused(Rule::is_refused_for_output).for_base(true);
        let seen_slots = SeenSlots::default();
        let records = AccountsPass::new(accounts, &failures, Task::HashAndLog(None));
        let rules =
            ArchiveRules::from_archive(&self.archive, None, &seen_slots, &failures).with_records(Some(&records));
        let pass = ArchivePass::new(options.encoding.threads, progress);
        let mut read = self.archive.read(&pass, &rules)?;
        let (_, bank) = rules.finish(&self.archive, &mut read)?;
        let Some(bank) = bank else { return Err(Error::damaged("the archive holds no bank file")) };
        let full = PairMember::from_archive(&self.archive, Some(&bank));
        judge_pair(full, incremental, &Failures::strict())
    }
}
