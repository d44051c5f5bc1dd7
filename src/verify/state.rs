//! The end of the state check: superseded records are found, read again and subtracted; what remains is compared.

use {
    crate::{
        error::{IoContext, Result},
        ledger::bank_file::BankFile,
        progress::Progress,
        verify::{
            NamedArchive, VerifyOptions,
            accounts::{Accounts, Task},
            judge::judge_state,
            report::{Check, Counts, Findings},
            version::ITEM_BYTES,
        },
    },
    std::{collections::HashSet, fs},
};

/// Bytes of a typical record, rather too few: what a temporary directory must have room for follows from it.
const RECORD_BYTES_TYPICAL: u64 = 256;

/// A zstd archive's ratio, rather too high.
pub const RATIO_TYPICAL: u64 = 6;

/// Bytes that the archives decode to, roughly.
pub fn archives_bytes(archives: &[&NamedArchive]) -> Result<u64> {
    archives.iter().try_fold(0u64, |sum, archive| {
        let length = fs::metadata(&archive.path).or_path("read", &archive.path)?.len();
        Ok(sum.saturating_add(length.saturating_mul(RATIO_TYPICAL)))
    })
}

/// Bytes that a log of all records takes, of archives or storages of this many bytes.
pub fn log_bytes(storages_bytes: u64) -> u64 {
    (storages_bytes / RECORD_BYTES_TYPICAL).saturating_mul(ITEM_BYTES)
}

/// A state in the making, of this many bytes of storages.
pub fn new_accounts(options: &VerifyOptions, storages_bytes: u64) -> Result<Accounts> {
    Accounts::new(options.memory_bytes, &options.temporary_dir, log_bytes(storages_bytes))
}

/// What is known once superseded records are out of the sum.
#[derive(Clone, Copy, Debug, Default)]
pub struct Settled {
    accounts: u64,
    superseded: u64,
}

impl Settled {
    /// Adds what was counted.
    pub fn write_into(&self, counts: &mut Counts, accounts: &Accounts) {
        let sums = accounts.sums();
        counts.records = sums.records;
        counts.tombstones = sums.tombstones;
        counts.accounts = self.accounts;
        counts.superseded = self.superseded + sums.skipped;
        counts.spilled_bytes = accounts.spilled_bytes();
    }
}

/// Subtracts superseded records with the help of `read_again`, and judges the state, unless that check is skipped.
pub fn settle(
    accounts: &Accounts,
    bank: Option<&BankFile>,
    findings: &Findings,
    options: &VerifyOptions,
    progress: &dyn Progress,
    read_again: &mut dyn FnMut(&Task<'_>, &HashSet<u32>) -> Result<()>,
) -> Result<Settled> {
    let mut settled = Settled::default();
    if options.is_quick {
        findings.skip(Check::State, "--quick");
        return Ok(settled);
    }
    if bank.is_none() {
        findings.skip(Check::State, "no bank file could be read");
    }
    progress.stage("Sorting", None);
    accounts.find_superseded(options.threads, &mut |round| {
        progress.check()?;
        settled.accounts += round.accounts;
        settled.superseded += round.count;
        if round.has_duplicates() {
            // Which of them counts is not ours to say.
            findings.skip(Check::State, "an account is twice in one storage");
        }
        let wanted: HashSet<u32> = round.storages().collect();
        match wanted.is_empty() {
            true => Ok(()),
            false => read_again(&Task::Subtract(&round), &wanted),
        }
    })?;
    if let Some(bank) = bank.filter(|_| !findings.is_skipped(Check::State)) {
        judge_state(&accounts.sums(), bank, findings);
    }
    Ok(settled)
}
