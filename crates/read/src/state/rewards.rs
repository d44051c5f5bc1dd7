//! Checks that Agave can compute the rewards of the last epoch. Agave computes them when it loads a
//! snapshot that was made while rewards were being paid out, and ends if a number does not fit.

use std::collections::BTreeMap;

use slotpress_base::Result;
use slotpress_format::ledger::activation::Term;
use slotpress_format::{
    BankFile, Delegation, EPOCH_REWARDS, EpochRewards, Hash, REDUCED_STAKE_CHANGES, Stakes, parse_feature,
};

use super::stakes::StakeAccounts;
use super::well_known::WellKnownAccounts;
use crate::rules::accounts::{active_rewards, is_of_alpenglow};
use crate::{Check, FindingPlace, Findings, Rule};

/// Largest reward in lamports that Agave can pay to a stake account.
const REWARD_MAX: u128 = i64::MAX as u128;

/// Limit on the stake accounts whose points are computed epoch by epoch. In a sound state these are
/// few: stakes that were deactivated but not withdrawn.
const EXACT_MAX: usize = 10_000;

/// An epoch, and the credits of a vote account at the end and at the start of the epoch.
type EpochCredits = (u64, u64, u64);

/// Checks that no reward is larger than Agave can compute. Checks nothing since Alpenglow, where
/// rewards do not depend on points.
pub fn judge_rewards(
    stakes: &StakeAccounts,
    known: &WellKnownAccounts,
    bank: &BankFile,
    findings: &Findings,
) -> Result<()> {
    let Some(rewards) = active_rewards(known).filter(|_| !is_of_alpenglow(known)) else { return Ok(()) };
    if bank.stakes.has_more_credits {
        findings.skip(Check::State, "the epoch stakes hold more vote accounts than are kept");
        return Ok(());
    }
    let reduced = known.get(&REDUCED_STAKE_CHANGES).and_then(|feature| parse_feature(&feature.data).ok().flatten());
    let reduced_from = reduced.map(|slot| bank.epoch_of(slot));
    match too_large(stakes, &rewards, &bank.stakes, bank.epoch().saturating_sub(1), reduced_from) {
        Some(address) => {
            let expected = format!("rewards of at most {REWARD_MAX} lamports");
            let found = format!("more for the stake account {}", Hash(address));
            findings.add_at(Rule::EpochRewards, &FindingPlace::account(EPOCH_REWARDS), expected, found)
        }
        None => Ok(()),
    }
}

/// Finds a stake account whose reward Agave cannot compute.
fn too_large(
    accounts: &StakeAccounts,
    rewards: &EpochRewards,
    stakes: &Stakes,
    rewarded_epoch: u64,
    reduced_from: Option<u64>,
) -> Option<[u8; 32]> {
    if rewards.lamports == 0 || rewards.points == 0 {
        return None;
    }
    let fits = |points: u128| {
        let product = points.checked_mul(rewards.lamports.into());
        product.is_some_and(|product| product / rewards.points <= REWARD_MAX)
    };
    let mut exact = 0;
    accounts.find_delegation(|address, delegation, observed| {
        let term = delegation.term();
        let credits = credits_of(&stakes.credits, delegation)?;
        if term.activation_epoch == rewarded_epoch || fits(points_at_most(&term, &credits, observed)) {
            return None;
        }
        exact += 1;
        let stake_in = |epoch| term.effective(epoch, &stakes.history, reduced_from);
        (exact > EXACT_MAX || !fits(points(&stake_in, &credits, observed))).then_some(*address)
    })
}

fn credits_of(credits: &BTreeMap<[u8; 32], Box<[u8]>>, delegation: &Delegation) -> Option<Vec<EpochCredits>> {
    let number = |bytes: &[u8]| bytes.first_chunk().copied().map_or(0, u64::from_le_bytes);
    let items = credits.get(&delegation.voter())?.chunks_exact(3 * 8);
    Some(items.map(|item| (number(item), number(&item[8..]), number(&item[16..]))).collect())
}

/// Upper bound of the points: those of a stake that is wholly active in every epoch, or `u128::MAX`
/// if the credits decrease.
fn points_at_most(term: &Term, credits: &[EpochCredits], observed: u64) -> u128 {
    points(&|_| term.stake, credits, observed)
}

/// Points of a stake account, summed over the epochs: its stake in the epoch times the credits of
/// its vote account that were not rewarded yet (`tower_epoch_credits_iter` in the `solana-runtime`
/// crate).
fn points(stake_in: &dyn Fn(u64) -> u64, credits: &[EpochCredits], mut observed: u64) -> u128 {
    let before = observed;
    if credits.last().is_none_or(|(_, end, _)| *end <= before) {
        return 0;
    }
    let mut points = 0u128;
    for (epoch, end, start) in credits {
        let earned = match (before < *start, before < *end) {
            (true, _) => end.checked_sub(*start),
            (false, true) => end.checked_sub(observed),
            (false, false) => Some(0),
        };
        let Some(earned) = earned else { return u128::MAX };
        observed = observed.max(*end);
        points = points.saturating_add(u128::from(stake_in(*epoch)) * u128::from(earned));
    }
    points
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Points of a stake account with 10 lamports in each epoch, which was rewarded up to
    /// `observed` credits.
    fn points_of(credits: &[EpochCredits], observed: u64) -> u128 {
        points(&|_| 10, credits, observed)
    }

    #[test]
    fn points_are_stake_times_credits() {
        let credits = [(4, 100, 0), (5, 150, 100), (6, 175, 150)];
        for (observed, expected) in [(0, 1750), (100, 750), (120, 550), (150, 250), (174, 10), (175, 0), (900, 0)] {
            assert_eq!(points_of(&credits, observed), expected, "{observed}");
        }
        assert_eq!(points_of(&[], 0), 0);
        // The stake may differ from epoch to epoch.
        assert_eq!(points(&|epoch| if epoch == 5 { 3 } else { 0 }, &credits, 0), 150);
        assert_eq!(points(&|_| u64::MAX, &[(4, u64::MAX, 0)], 0), u128::from(u64::MAX) * u128::from(u64::MAX));
    }

    #[test]
    fn decreasing_credits_give_the_maximum() {
        assert_eq!(points_of(&[(4, 10, 20)], 5), u128::MAX);
        assert_eq!(points_of(&[(4, 30, 20), (5, 25, 40)], 10), u128::MAX);
    }
}
