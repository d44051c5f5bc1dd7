//! The full archive below an incremental one that is recompressed: it is read only to check the state that the two make up.
//!
//! It is read after the incremental one, so that accounts which that holds need not be hashed again. Its index is not
//! followed: what contradicts an index in the middle of the reading would have to be taken out of the sum again.

use std::collections::HashSet;
use std::path::Path;

use slotpress_base::{Error, IoPolicy, Result, ShowPath, Watch};
use slotpress_format::{BankFile, StorageMapItem};
use slotpress_read::archive::Archive;
use slotpress_read::conversion::lacks_stakes;
use slotpress_read::rules::pair::Member;
use slotpress_read::{
    AccountsPass, ArchiveRules, Findings, FirstPass, IndexPolicy, Pass, Rule, SeenSlots, SizeLimit, StateCheck,
    check_base, check_pair, judge_chains, judge_storage_map, read_again,
};

use super::plan::Job;

pub struct Base {
    archive: Archive,
    /// The slot on which the incremental archive builds.
    slot: u64,
    /// True if its bank file holds no stakes, as Firedancer wrote it: what goes on it in Agave goes on what is converted from it.
    pub lacks_stakes: bool,
    /// Dropped last: what looking at the first bytes brought into the page cache.
    _watch: Watch,
}

impl Base {
    /// Opens it. The incremental archive, which builds on `base_slot`, must build on it, as far as names tell.
    pub fn open(path: &Path, base_slot: u64, incremental: Member<'_>, io_policy: &IoPolicy) -> Result<Self> {
        let _watch = io_policy.io_hint.watch([path]);
        let archive = Archive::open(path, IndexPolicy::Ignore, io_policy)?;
        check_pair((path, archive.name.as_ref()), incremental)?;
        check_base(Some(base_slot), archive.name.as_ref().map(|name| name.slot))?;
        let lacks_stakes = lacks_stakes(&archive)?;
        Ok(Self { archive, slot: base_slot, lacks_stakes, _watch })
    }

    pub fn length_bytes(&self) -> u64 {
        self.archive.length_bytes()
    }

    /// Adds its accounts to the state, and judges it, and what the incremental archive's storage map says of its storages.
    pub fn add_to(&self, state: &StateCheck, newest: &Newest<'_>, job: Job<'_>) -> Result<()> {
        self.read(state, newest, job).map_err(|error| error.within_damaged(self.archive.path().shown()))
    }

    fn read(&self, state: &StateCheck, newest: &Newest<'_>, Job { options, progress, .. }: Job<'_>) -> Result<()> {
        progress.stage("Verifying", Some(self.length_bytes()));
        let (findings, seen_slots) = (Findings::refusing(Rule::is_refused_of_source), SeenSlots::default());
        let records = state.first_pass();
        let rules = ArchiveRules::of_archive(&self.archive, None, &seen_slots, &findings);
        let visitor = FirstPass { rules, size_limit: &SizeLimit::new(None), records: Some(&records), contents: () };
        let mut read = self.archive.read(&Pass::new(options.encoding.threads, progress), &visitor)?;
        let judged = visitor.rules.finish(&self.archive, &mut read)?;
        let Some((bank, map)) = judged.bank else { return Err(Error::damaged("the archive holds no bank file")) };
        check_base(Some(self.slot), Some(bank.slot))?;
        judge_chains(&bank, newest.bank, &Findings::refusing(|_| true))?;
        let mut storages = judged.entries.storages().to_vec();
        judge_storage_map(&map, &storages, None, true, &findings)?;
        storages.extend_from_slice(newest.storages);
        // Where the full archive has no map, its storages may be others than those that the newer map names: Firedancer's are.
        judge_storage_map(newest.map, &storages, Some(self.slot), !map.is_empty(), &findings)
    }

    /// Reads those of its storages again that are wanted, the first of which has the number `first_storage`.
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

pub struct Newest<'a> {
    pub bank: &'a BankFile,
    pub storages: &'a [(u64, u64)],
    pub map: &'a [StorageMapItem],
}
