//! Checks that version, bank file and status cache parse to their last byte, and agree with each other
//! and with the archive's name. Also checks what clients require of bank file and status cache to
//! continue the chain. No I/O.

use slotpress_base::{Error, ErrorKind, Result};
use slotpress_format::{
    ArchiveRoot, BankFile, Breach, Demand, EntryKind, SNAPSHOT_VERSION, ScheduledLeader, StatusCache, is_known_version,
};

use super::clients::rule_broken_by;
use super::failures::{FailurePlace, Failures, FailuresAt};
use super::rule::{Check, Rule};
use crate::{Documents, OpenArchive, ParsedBank};

pub fn judge_documents(documents: Documents, entry_slot: Option<u64>, failures: &Failures) -> Result<Option<BankFile>> {
    if let Some(version) = &documents.version {
        judge_version(version, &failures.at(FailurePlace::entry("version")))?;
    }
    let bank_failures = &failures.at(match entry_slot {
        Some(slot) => FailurePlace::entry(EntryKind::BankFile(slot)),
        None => FailurePlace::entry("the bank file"),
    });
    let mut bank = match documents.bank {
        None => {
            failures.skip(Check::Bank, "no bank file could be read");
            None
        }
        Some(Err(error)) => {
            judge_unreadable(Rule::BankFile, &error, bank_failures)?;
            None
        }
        Some(Ok(ParsedBank { bank, end_error })) => {
            if let Some(error) = end_error {
                judge_unreadable(Rule::BankFileEnd, &error, bank_failures)?;
            }
            judge_bank(&bank, entry_slot, bank_failures)?;
            judge_client_requirements(&bank, bank_failures)?;
            Some(bank)
        }
    };
    let cache_failures = &failures.at(FailurePlace::entry(EntryKind::StatusCache));
    match documents.status_cache {
        None => failures.skip(Check::Bank, "no status cache could be read"),
        Some(Err(error)) => judge_unreadable(Rule::StatusCache, &error, cache_failures)?,
        Some(Ok(cache)) => judge_status_cache(&cache, bank.as_mut(), cache_failures)?,
    }
    Ok(bank)
}

/// Records that a document cannot be parsed. Returns an I/O error, which says nothing about the contents.
fn judge_unreadable(rule: Rule, error: &Error, failures: &FailuresAt<'_>) -> Result<()> {
    match error.kind() {
        ErrorKind::Damaged => failures.add_error(rule, error),
        _ => Err(error.clone()),
    }
}

fn judge_version(version: &[u8], failures: &FailuresAt<'_>) -> Result<()> {
    if !is_known_version(version) {
        let found = format!("{:?}", slotpress_base::text::one_line(&String::from_utf8_lossy(version)));
        return failures.add(Rule::Version, SNAPSHOT_VERSION, found);
    }
    let length = SNAPSHOT_VERSION.len();
    if version.len() == length {
        return Ok(());
    }
    let expected = format!("{SNAPSHOT_VERSION} in {length} bytes");
    failures.add(Rule::VersionLength, expected, format!("{} bytes", version.len()))
}

fn judge_status_cache(cache: &StatusCache, mut bank: Option<&mut BankFile>, failures: &FailuresAt<'_>) -> Result<()> {
    if let Some(bank) = &mut bank {
        if bank.lacks_stakes() && cache.slots.len() == 1 {
            failures.add(Rule::FewCachedSlots, "all slots of the slot history, or 300", 1)?;
        }
        bank.cached_slots = Some(cache.slots.as_slice().into());
    }
    let bank_slot = bank.map_or(u64::MAX, |bank| bank.slot);
    if let Some(slot) = cache.slots.iter().find(|slot| **slot > bank_slot) {
        failures.add(Rule::StatusCache, format!("slots up to {bank_slot}"), slot)?;
    }
    if cache.needs_agave_4_4() {
        let found = match cache.transaction_error_max {
            error @ 39.. => format!("transaction error {error}"),
            _ => format!("instruction error {}", cache.instruction_error_max),
        };
        let expected = "transaction errors up to 38, instruction errors up to 53";
        failures.add(Rule::NewerErrors, expected, found)?;
    }
    judge_breaches(&cache.breaches, failures)?;
    match cache.blockhash_count {
        0 => failures.add(Rule::NoTransactions, "a blockhash that transactions named", "none"),
        _ => Ok(()),
    }
}

fn judge_bank(bank: &BankFile, entry_slot: Option<u64>, failures: &FailuresAt<'_>) -> Result<()> {
    if let Some(slot) = entry_slot.filter(|slot| *slot != bank.slot) {
        failures.add(Rule::BankFile, format!("slot {slot}"), format!("slot {}", bank.slot))?;
    }
    let require = |name: &str, is_valid: bool, expected: String, found: u64| {
        if is_valid {
            Ok(())
        } else {
            failures.add(Rule::BankField, format!("{name} {expected}"), format!("{name} {found}"))
        }
    };
    let require_equal = |name, found: u64, expected: u64| require(name, found == expected, expected.to_string(), found);
    let slot = bank.slot;
    require_equal("slot of the accounts", bank.accounts_slot, slot)?;
    require("parent slot", bank.parent_slot < slot || slot == 0, format!("below {slot}"), bank.parent_slot)?;
    require("block height", bank.block_height <= slot, format!("up to {slot}"), bank.block_height)?;
    require_equal("stakes epoch", bank.stakes_epoch, bank.epoch())?;
    let ticks = slot.saturating_add(1).saturating_mul(bank.ticks_per_slot);
    if bank.max_tick_height != ticks {
        failures.add(Rule::MaxTickHeight, ticks, bank.max_tick_height)?;
    }
    if let Some(hashes) = bank.hashes_per_tick.filter(|hashes| *hashes < 2) {
        let rule = if hashes == 0 { Rule::NoHashesPerTick } else { Rule::HashesPerTick };
        failures.add(rule, "none, or at least 2", hashes)?;
    }
    require_equal("tick height", bank.tick_height, ticks)
}

pub fn judge_name(archive: &OpenArchive, bank: Option<&BankFile>, failures: &Failures) -> Result<()> {
    let Some(name) = &archive.name else {
        let expected = "snapshot-SLOT-HASH.tar.zst or incremental-snapshot-BASE-SLOT-HASH.tar.zst";
        return failures.add(Rule::NameUnknown, expected, "a different name");
    };
    if let Some(base) = name.base_slot.filter(|base| *base >= name.slot) {
        failures.add(Rule::BaseIsSlot, format!("a slot above {base}"), name.slot)?;
    }
    let compression = archive.compression;
    if compression != name.compression {
        let expected = name.compression.extension();
        failures.add(Rule::ExtensionWrong, expected, compression.extension())?;
    }
    if let Some(rule) = rule_broken_by(compression) {
        failures.add(rule, "zstd", compression.name())?;
    }
    let Some(bank) = bank else {
        failures.skip(Check::Name, "no bank file could be read");
        return Ok(());
    };
    if name.slot != bank.slot {
        let expected = format!("slot {}", name.slot);
        let found = format!("slot {}", bank.slot);
        failures.add(Rule::NameMismatch, expected, found)?;
    }
    let hash = bank.snapshot_hash();
    if name.hash == hash { Ok(()) } else { failures.add(Rule::NameMismatch, name.hash, hash) }
}

/// Compares the root of an archive with the root that the caller expects. `root` is `None` if the archive
/// has no usable frame hashes.
pub fn judge_root(expected: Option<ArchiveRoot>, root: Option<ArchiveRoot>, failures: &Failures) -> Result<()> {
    let Some(expected) = expected.filter(|expected| root != Some(*expected)) else { return Ok(()) };
    let found = root.map_or("no frame hashes that could be used".to_string(), |root| root.to_string());
    failures.add(Rule::RootNotExpected, format!("root {expected}"), found)
}

/// Returns a rule that the bank file breaks because Firedancer wrote it, and that no version of Agave
/// tolerates; `None` if it breaks no such rule.
pub fn rule_against_agave(bank: &BankFile) -> Option<Rule> {
    match (bank.lacks_stakes(), bank.hashes_per_tick) {
        (true, _) => Some(Rule::NoStakes),
        (false, Some(0)) => Some(Rule::NoHashesPerTick),
        (false, _) => None,
    }
}

fn rule_of_demand(demand: Demand) -> Rule {
    match demand {
        Demand::VoteAccountStake => Rule::NoStake,
        Demand::VoteAccountLimit => Rule::VoteAccountLimit,
        Demand::FiredancerLimit => Rule::FiredancerLimit,
    }
}

fn judge_breaches(breaches: &[Breach], failures: &FailuresAt<'_>) -> Result<()> {
    breaches.iter().try_for_each(|Breach { demand, expected, found, offset_bytes, account }| {
        let place = FailurePlace { account: *account, ..failures.place.clone().with_offset(*offset_bytes) };
        FailuresAt { place, ..*failures }.add(rule_of_demand(*demand), expected, found)
    })
}

fn judge_client_requirements(bank: &BankFile, failures: &FailuresAt<'_>) -> Result<()> {
    match bank.compute_hash() {
        Some(hash) if hash == bank.hash => {}
        Some(hash) => failures.add(Rule::BankHash, hash, bank.hash)?,
        None => failures.add(Rule::BankHash, "a last blockhash, which the bank hash covers", "none")?,
    }
    // Agave reads leader and stakes from the bank file. Firedancer derives them from the accounts, and did
    // not write them before September 2026.
    let scheduled_leader = if bank.lacks_stakes() {
        let expected = "the vote accounts and delegations of the state";
        failures.add(Rule::NoStakes, expected, "no vote account, no delegation")?;
        ScheduledLeader::Unknown
    } else {
        bank.scheduled_leader
    };
    match scheduled_leader {
        ScheduledLeader::Node(leader) if leader != bank.leader => {
            failures.add(Rule::Leader, leader, bank.leader)?;
        }
        ScheduledLeader::NoStake => {
            let expected = format!("stakes of epoch {}", bank.epoch());
            failures.add(Rule::Leader, expected, "no node has stake in them")?;
        }
        ScheduledLeader::Node(_) | ScheduledLeader::Unknown => {}
    }
    if bank.block_id.is_none() {
        failures.add(Rule::BlockId, "a block id", "none")?;
    }
    if let Some(account) = bank.invalid_vote_account {
        let expected = "a vote account that Agave can read";
        let place = FailurePlace { account: Some(account), ..failures.place.clone() };
        FailuresAt { place, ..*failures }.add(Rule::InvalidVoteAccount, expected, "a different account")?;
    }
    judge_breaches(&bank.breaches, failures)
}
