//! Checks accounts that a client reads after loading an archive and before its first block, except
//! vote and stake accounts. Ignores missing or unreadable accounts where the client does. Pure.

use slotpress_base::Result;
use slotpress_format::{
    BankFile, CERTIFICATE, EPOCH_REWARDS, EpochRewards, FEATURE, OLD_CERTIFICATE, OLD_REWARD_STAKES, RENT,
    REWARD_STAKES, SHORTER_SLOTS, SLOT_HASHES, check_rent, check_slot_hashes, parse_certificate, parse_feature,
    parse_reward_stakes,
};

use super::findings::{FindingPlace, Findings};
use super::rule::Rule;
use crate::state::well_known::{WellKnownAccount, WellKnownAccounts};

/// Checks sysvars, features and the accounts of Alpenglow, some of them against the bank file.
pub fn judge_accounts(accounts: &WellKnownAccounts, bank: &BankFile, findings: &Findings) -> Result<()> {
    let broken = |rule, address, expected: &str, found: &dyn ToString| {
        findings.add_at(rule, &FindingPlace::account(address), expected, found.to_string())
    };
    let rent = "the Rent sysvar, which gives the price of a byte";
    match accounts.get(&RENT).map(|account| check_rent(&account.data)) {
        Some(Ok(())) => {}
        Some(Err(error)) => broken(Rule::Rent, RENT, rent, &error)?,
        None => broken(Rule::Rent, RENT, rent, &"no account")?,
    }
    if let Some(Err(error)) = accounts.get(&SLOT_HASHES).map(|it| check_slot_hashes(&it.data, it.data_bytes)) {
        broken(Rule::SlotHashes, SLOT_HASHES, "a list of slots and hashes", &error)?;
    }
    let rewards = active_rewards(accounts);
    if let Some(rewards) = &rewards {
        // In the first block, Agave requires fewer partitions than the epoch has slots.
        let slots = bank.epoch_schedule().slots_of_epoch_of(bank.slot);
        let most = slots.end().saturating_sub(*slots.start());
        if rewards.partitions == 0 || rewards.partitions > most {
            let expected = format!("rewards paid out in 1 to {most} blocks");
            broken(Rule::EpochRewards, EPOCH_REWARDS, &expected, &rewards.partitions)?;
        }
        if rewards.distributed_lamports > rewards.lamports {
            let expected = format!("at most {} lamports paid out", rewards.lamports);
            broken(Rule::EpochRewards, EPOCH_REWARDS, &expected, &rewards.distributed_lamports)?;
        }
    }
    for (rule, [certificate, stakes]) in
        [(Rule::OldAlpenglow, [OLD_CERTIFICATE, OLD_REWARD_STAKES]), (Rule::Alpenglow, [CERTIFICATE, REWARD_STAKES])]
    {
        let result = judge_certificate(accounts.get(&certificate), bank);
        let is_since = match result {
            Ok(is_since) => is_since,
            Err(found) => {
                broken(rule, certificate, "the certificate of the change to Alpenglow", &found)?;
                continue;
            }
        };
        // Agave from 4.3 on reads these stakes whenever rewards are paid out.
        let is_read = rewards.is_some() && (is_since || rule == Rule::Alpenglow);
        if let Some(found) = is_read.then(|| reward_stakes_fault(accounts.get(&stakes), is_since, bank)).flatten() {
            let epoch = bank.epoch().saturating_sub(1);
            broken(rule, stakes, &format!("the stakes of epoch {epoch}, by which rewards are paid out"), &found)?;
        }
    }
    judge_slot_time(accounts, bank, findings)
}

/// Returns the EpochRewards sysvar while rewards are paid out. Like Agave, ignores a sysvar that
/// cannot be read.
pub fn active_rewards(accounts: &WellKnownAccounts) -> Option<EpochRewards> {
    let account = accounts.get(&EPOCH_REWARDS)?;
    EpochRewards::parse(&account.data).ok().filter(|rewards| rewards.is_active)
}

/// True if at least one version of Agave considers the chain to be on Alpenglow.
pub fn is_of_alpenglow(accounts: &WellKnownAccounts) -> bool {
    [OLD_CERTIFICATE, CERTIFICATE].iter().any(|address| accounts.get(address).is_some_and(|it| it.data_bytes > 0))
}

/// True if the chain changed to Alpenglow before the bank's epoch.
///
/// # Errors
/// The certificate is invalid; the text says why.
fn judge_certificate(account: Option<&WellKnownAccount>, bank: &BankFile) -> std::result::Result<bool, String> {
    let Some(account) = account.filter(|account| account.data_bytes > 0) else { return Ok(false) };
    let slot = parse_certificate(&account.data, account.data_bytes).map_err(|error| error.to_string())?;
    Ok(bank.epoch_of(slot) <= bank.epoch().saturating_sub(1))
}

/// Returns what is wrong with the stakes from which Agave computes rewards; `None` if nothing is.
fn reward_stakes_fault(account: Option<&WellKnownAccount>, is_since: bool, bank: &BankFile) -> Option<String> {
    match account.filter(|account| account.data_bytes > 0) {
        None => is_since.then(|| "none".to_string()),
        Some(account) => match parse_reward_stakes(&account.data, account.data_bytes) {
            Err(error) => Some(error.to_string()),
            Ok(epoch) if is_since && epoch != bank.epoch().saturating_sub(1) => Some(format!("those of epoch {epoch}")),
            Ok(_) => None,
        },
    }
}

/// Compares the duration of slots with the active features that make them shorter. A feature takes
/// effect in the epoch after its activation. Does not check bank files of Firedancer without
/// stakes: they have the genesis's duration, and conversion corrects it.
fn judge_slot_time(accounts: &WellKnownAccounts, bank: &BankFile, findings: &Findings) -> Result<()> {
    let is_effective = |feature: &[u8; 32]| {
        let account = accounts.get(feature).filter(|account| account.owner == FEATURE && account.data_bytes >= 9);
        let slot = account.and_then(|account| parse_feature(&account.data).ok().flatten());
        slot.is_some_and(|slot| slot <= bank.slot && bank.epoch_of(slot) < bank.epoch())
    };
    let Some(shortest) = SHORTER_SLOTS.iter().find(|params| is_effective(&params.feature)) else { return Ok(()) };
    if bank.lacks_stakes() {
        return Ok(());
    }
    match shortest.contradiction(bank) {
        Some((expected, found)) => {
            findings.add_at(Rule::SlotTime, &FindingPlace::account(shortest.feature), expected, found)
        }
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use slotpress_format::ledger::programs::address;

    use super::*;

    /// A bank in slot 700. Epochs have 100 slots, so it is in epoch 7.
    fn bank() -> BankFile {
        BankFile { slot: 700, slots_per_epoch: 100, vote_account_count: 1, ..BankFile::default() }
    }

    fn account(owner: [u8; 32], data: &[u8]) -> WellKnownAccount {
        WellKnownAccount { owner, data: data.into(), data_bytes: data.len() as u64 }
    }

    fn numbers(numbers: &[u64]) -> Vec<u8> {
        numbers.iter().flat_map(|number| number.to_le_bytes()).collect()
    }

    fn rewards(partitions: u64, [lamports, distributed]: [u64; 2], active: u8) -> Vec<u8> {
        let front = numbers(&[5, partitions, 0, 0, 0, 0, 77, 0, lamports, distributed]);
        [front, vec![active]].concat()
    }

    /// Rules that these accounts break; a valid Rent sysvar is added to them.
    fn broken(changes: &[([u8; 32], Vec<u8>)]) -> Vec<Rule> {
        broken_for(&bank(), changes)
    }

    fn broken_for(bank: &BankFile, changes: &[([u8; 32], Vec<u8>)]) -> Vec<Rule> {
        let mut accounts = WellKnownAccounts::from([(RENT, account([1; 32], &[1; 17]))]);
        accounts.extend(changes.iter().map(|(address, data)| (*address, account(FEATURE, data))));
        let findings = Findings::new();
        judge_accounts(&accounts, bank, &findings).expect("collected");
        findings.broken_rules().into_keys().collect()
    }

    #[test]
    fn sysvars() {
        assert_eq!(broken(&[]), []);
        let findings = Findings::new();
        judge_accounts(&WellKnownAccounts::new(), &bank(), &findings).expect("collected");
        assert_eq!(findings.broken_rules().into_keys().collect::<Vec<_>>(), [Rule::Rent], "no account");
        assert_eq!(broken(&[(RENT, vec![1; 16])]), [Rule::Rent]);
        assert_eq!(broken(&[(SLOT_HASHES, numbers(&[0]))]), []);
        assert_eq!(broken(&[(SLOT_HASHES, numbers(&[1]))]), [Rule::SlotHashes]);
        assert_eq!(broken(&[(SLOT_HASHES, Vec::new())]), [Rule::SlotHashes], "empty");
    }

    #[test]
    fn rewards_that_can_be_paid_out() {
        let of = |partitions, lamports, active| broken(&[(EPOCH_REWARDS, rewards(partitions, lamports, active))]);
        for good in [1, 99] {
            assert_eq!(of(good, [10, 10], 1), []);
        }
        for bad in [0, 100, 1 << 40] {
            assert_eq!(of(bad, [10, 10], 1), [Rule::EpochRewards], "{bad} blocks");
            assert_eq!(of(bad, [10, 10], 0), [], "none are paid out");
        }
        assert_eq!(of(1, [10, 11], 1), [Rule::EpochRewards]);
        assert_eq!(of(0, [10, 10], 2), [], "an invalid flag: Agave ignores the sysvar");
    }

    #[test]
    fn alpenglow() {
        let certificate = |slot: u64, signers: u64| [numbers(&[slot]), vec![0; 224], numbers(&[signers])].concat();
        let stakes = |epoch: u64| numbers(&[epoch, 0]);
        let paid = (EPOCH_REWARDS, rewards(1, [0, 0], 1));
        for (rule, at, stakes_at, are_always_read) in [
            (Rule::OldAlpenglow, OLD_CERTIFICATE, OLD_REWARD_STAKES, false),
            (Rule::Alpenglow, CERTIFICATE, REWARD_STAKES, true),
        ] {
            assert_eq!(broken(&[(at, Vec::new())]), [], "an account without data");
            assert_eq!(broken(&[(at, certificate(7, 0))]), []);
            assert_eq!(broken(&[(at, certificate(7, 1))]), [rule]);
            assert_eq!(broken(&[(at, vec![1])]), [rule]);
            // The stakes of epoch 6 are needed if the chain changed to Alpenglow before epoch 7.
            assert_eq!(broken(&[(at, certificate(699, 0)), paid.clone()]), [rule], "no stakes");
            assert_eq!(broken(&[(at, certificate(700, 0)), paid.clone()]), []);
            for (epoch, is_good) in [(6, true), (5, false)] {
                let accounts = [(at, certificate(699, 0)), paid.clone(), (stakes_at, stakes(epoch))];
                assert_eq!(broken(&accounts).is_empty(), is_good, "of epoch {epoch}");
            }
            let damaged = broken(&[paid.clone(), (stakes_at, vec![1])]);
            assert_eq!(damaged, if are_always_read { vec![rule] } else { vec![] });
            assert_eq!(broken(&[(stakes_at, vec![1])]), [], "no rewards are paid out");
        }
    }

    /// A feature takes effect in the epoch after its activation. Of several, the one with the
    /// shortest slots counts.
    #[test]
    fn slot_time() {
        let [shortest, shorter, ..] = SHORTER_SLOTS;
        let feature = |slot: Option<u64>| match slot {
            Some(slot) => [&[1][..], &slot.to_le_bytes()].concat(),
            None => vec![0; 9],
        };
        let with = |params: &slotpress_format::SlotParams| BankFile {
            ns_per_slot: params.ns_per_slot,
            slots_per_year: params.slots_per_year,
            ..bank()
        };
        let active = |params: &slotpress_format::SlotParams, slot| (params.feature, feature(slot));
        let usual = BankFile { ns_per_slot: 400_000_000, slots_per_year: 78_892_314.984, ..bank() };
        for (slot, rules) in
            [(Some(699), vec![Rule::SlotTime]), (Some(700), vec![]), (Some(701), vec![]), (None, vec![])]
        {
            assert_eq!(broken_for(&usual, &[active(&shorter, slot)]), rules, "{slot:?}");
        }
        assert_eq!(broken_for(&with(&shorter), &[active(&shorter, Some(1))]), []);
        let both = [active(&shorter, Some(1)), active(&shortest, Some(2))];
        assert_eq!(broken_for(&with(&shortest), &both), []);
        assert_eq!(broken_for(&with(&shorter), &both), [Rule::SlotTime]);
        let hashes = |number| BankFile { hashes_per_tick: Some(number), ..with(&shortest) };
        assert_eq!(broken_for(&hashes(31_250), &both), []);
        assert_eq!(broken_for(&hashes(5), &both), [Rule::SlotTime]);
        assert_eq!(broken_for(&hashes(5), &[(address("iBRLjhJnkmDZgNoZRDMW11d8ZV7HvsL3vAyRjZB5npW"), vec![1; 8])]), []);
        let of_firedancer = BankFile { vote_account_count: 0, ..usual };
        assert_eq!(broken_for(&of_firedancer, &both), [], "conversion corrects it");
    }
}
