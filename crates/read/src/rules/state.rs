//! Compares the state of the accounts with the bank file. No I/O.

use std::collections::HashSet;

use slotpress_base::{Result, to_usize};
use slotpress_format::{
    BankFile, FEATURE, SHORTER_SLOTS, SLOT_HISTORY, STATUS_CACHE_SLOTS_MAX, parse_feature, parse_newest_slots,
};

use super::failures::{FailurePlace, Failures};
use super::rule::Rule;
use crate::state::stakes::StakeAccounts;
use crate::state::sums::StateSum;
use crate::state::well_known::WellKnownAccounts;

/// Compares a state with the bank file: the sums over all accounts, the sysvars, and the vote and stake
/// accounts.
pub fn judge_state(
    state: &StateSum,
    well_known: &WellKnownAccounts,
    stakes: &StakeAccounts,
    bank: &BankFile,
    failures: &Failures,
) -> Result<()> {
    if state.lamports != u128::from(bank.capitalization) {
        failures.add(Rule::Capitalization, bank.capitalization, state.lamports)?;
    }
    let history = well_known.get(&SLOT_HISTORY).filter(|account| account.lamports > 0);
    match history.map(|account| parse_newest_slots(&account.data, to_usize(STATUS_CACHE_SLOTS_MAX))) {
        None => failures.add(Rule::SlotHistory, "the account of that address", "none")?,
        Some(Err(error)) => failures.at(FailurePlace::default()).add_error(Rule::SlotHistory, &error)?,
        Some(Ok(history)) => {
            if let Some(cached) = &bank.cached_slots {
                judge_cached_slots(cached, &history, bank, failures)?;
            }
        }
    }
    if state.lattice != bank.lattice_hash {
        failures.add(Rule::LatticeHash, bank.snapshot_hash(), state.lattice.snapshot_hash())?;
    }
    // Bank files of Firedancer may lack stakes.
    if bank.lacks_stakes() {
        return Ok(());
    }
    judge_slot_time(well_known, bank, failures)?;
    stakes.judge(&bank.stakes, failures)
}

/// Compares the slots of the status cache with the slot history. Agave and Firedancer require the
/// newest slots, as many as a cache can hold.
fn judge_cached_slots(cached: &[u64], history: &[u64], bank: &BankFile, failures: &Failures) -> Result<()> {
    let failures = failures.at(FailurePlace::entry("snapshots/status_cache"));
    if history.first() != Some(&bank.slot) {
        let found = history.first().map_or("none".to_string(), u64::to_string);
        let expected = format!("slot {} as the newest of the slot history", bank.slot);
        return failures.add(Rule::CachedSlots, expected, found);
    }
    let slots_of_history: HashSet<u64> = history.iter().copied().collect();
    if let Some(slot) = cached.iter().find(|slot| !slots_of_history.contains(slot)) {
        return failures.add(Rule::CachedSlots, "slots of the slot history", format!("slot {slot}"));
    }
    let cached: HashSet<u64> = cached.iter().copied().collect();
    let Some(missing) = history.iter().find(|slot| !cached.contains(slot)) else { return Ok(()) };
    let is_new = bank.slot.saturating_sub(*missing) < cached.len() as u64;
    let is_gap = !is_new && !cached.is_empty();
    if is_gap && bank.lacks_stakes() && cached.len() == 1 {
        // This has already been reported as `FewCachedSlots`.
        return Ok(());
    }
    let rule = if is_gap { Rule::CachedSlotsGap } else { Rule::CachedSlots };
    failures.add(rule, format!("slot {missing}"), "a cache without it")
}

/// Compares the duration of slots with the active features that make them shorter. A feature takes
/// effect in the epoch after its activation.
fn judge_slot_time(well_known: &WellKnownAccounts, bank: &BankFile, failures: &Failures) -> Result<()> {
    let is_effective = |feature: &[u8; 32]| {
        let account = well_known.get(feature).filter(|account| account.owner == FEATURE && account.data.len() >= 9);
        let slot = account.and_then(|account| parse_feature(&account.data).ok().flatten());
        slot.is_some_and(|slot| slot <= bank.slot && bank.epoch_at(slot) < bank.epoch())
    };
    let Some(shortest) = SHORTER_SLOTS.iter().find(|params| is_effective(&params.feature)) else { return Ok(()) };
    match shortest.find_mismatch(bank) {
        Some(mismatch) => {
            let failures = failures.at(FailurePlace::account(shortest.feature));
            failures.add(Rule::SlotTime, mismatch.expected, mismatch.found)
        }
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use slotpress_format::ledger::programs::address;
    use slotpress_format::{EpochSchedule, SlotParams};

    use super::*;
    use crate::state::well_known::WellKnownAccount;

    fn bank() -> BankFile {
        let epoch_schedule = EpochSchedule { slots_per_epoch: 100, ..EpochSchedule::default() };
        BankFile { slot: 700, epoch_schedule, vote_account_count: 1, ..BankFile::default() }
    }

    fn broken_rules(bank: &BankFile, features: &[([u8; 32], Vec<u8>)]) -> Vec<Rule> {
        let account = |data: &Vec<u8>| WellKnownAccount { lamports: 1, owner: FEATURE, data: data.as_slice().into() };
        let accounts = features.iter().map(|(address, data)| (*address, account(data))).collect();
        let failures = Failures::new();
        judge_slot_time(&accounts, bank, &failures).expect("collected");
        failures.broken_rules().into_keys().collect()
    }

    /// A feature takes effect in the epoch after its activation. If several are active,
    /// the one with the shortest slots applies.
    #[test]
    fn slots_are_as_long_as_the_shortest_active_feature_requires() {
        let [shortest, shorter, ..] = SHORTER_SLOTS;
        let feature = |slot: Option<u64>| match slot {
            Some(slot) => [&[1][..], &slot.to_le_bytes()].concat(),
            None => vec![0; 9],
        };
        let with = |params: &SlotParams| BankFile {
            ns_per_slot: params.ns_per_slot,
            slots_per_year: params.slots_per_year,
            ..bank()
        };
        let active = |params: &SlotParams, slot| (params.feature, feature(slot));
        let usual = BankFile { ns_per_slot: 400_000_000, slots_per_year: 78_892_314.984, ..bank() };
        for (slot, rules) in
            [(Some(699), vec![Rule::SlotTime]), (Some(700), vec![]), (Some(701), vec![]), (None, vec![])]
        {
            assert_eq!(broken_rules(&usual, &[active(&shorter, slot)]), rules, "{slot:?}");
        }
        assert_eq!(broken_rules(&with(&shorter), &[active(&shorter, Some(1))]), []);
        let both = [active(&shorter, Some(1)), active(&shortest, Some(2))];
        assert_eq!(broken_rules(&with(&shortest), &both), []);
        assert_eq!(broken_rules(&with(&shorter), &both), [Rule::SlotTime]);
        let hashes = |number| BankFile { hashes_per_tick: Some(number), ..with(&shortest) };
        assert_eq!(broken_rules(&hashes(31_250), &both), []);
        assert_eq!(broken_rules(&hashes(5), &both), [Rule::SlotTime]);
        assert_eq!(
            broken_rules(&hashes(5), &[(address("iBRLjhJnkmDZgNoZRDMW11d8ZV7HvsL3vAyRjZB5npW"), vec![1; 8])]),
            []
        );
    }
}
