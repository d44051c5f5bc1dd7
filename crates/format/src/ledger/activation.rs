//! Computes how much of a delegation is in effect in an epoch.
//!
//! The rule (`Delegation::stake_v2` in the `solana-stake-interface` crate): a delegation takes
//! effect, and ends, over several epochs. In each epoch, the cluster's total change is limited to a
//! share of the stake that was effective in the epoch before.

use std::collections::BTreeMap;
use std::ops::Range;

/// Lamports in effect, taking effect, and losing effect in an epoch: of one delegation, or of all
/// delegations of the cluster. Stake that is losing effect also counts as effective.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StakeActivation {
    pub effective: u64,
    pub activating: u64,
    pub deactivating: u64,
}

pub type StakeHistory = BTreeMap<u64, StakeActivation>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DelegatedStake {
    pub lamports: u64,
    /// Epoch in which the stake was delegated. `u64::MAX` for a delegation from the genesis, which
    /// is effective at once.
    pub activation_epoch: u64,
    /// Epoch in which the end of the delegation was requested; `u64::MAX` if it was not.
    pub deactivation_epoch: u64,
}

/// The epoch of a state, and the rules by which stake takes and loses effect up to this epoch.
#[derive(Clone, Debug, Default)]
pub struct StakeRules {
    pub epoch: u64,
    pub history: StakeHistory,
    /// Epoch from which a smaller share of the stake changes in each epoch.
    pub reduced_from: Option<u64>,
}

/// Share of the effective stake that may change in an epoch, in ten thousandths. `RATE_REDUCED`
/// applies once the feature `reduce_stake_warmup_cooldown` is active.
const RATE_FIRST: u128 = 2_500;
const RATE_REDUCED: u128 = 900;
const RATE_UNIT: u128 = 10_000;

impl StakeRules {
    /// Returns how many lamports of a delegation have not changed by epoch `epochs.end`, if the change began in
    /// epoch `epochs.start`. At least one epoch passes, even if the range is empty. In each epoch, the cluster's
    /// change is limited to a share of its effective stake in the epoch before. The delegation changes by a
    /// proportional part of this change, and by at least one lamport. `changing_stake` selects the cluster's
    /// stake that changes in the same direction.
    fn unchanged_lamports(
        &self,
        mut lamports: u64,
        epochs: Range<u64>,
        changing_stake: impl Fn(&StakeActivation) -> u64,
    ) -> u64 {
        for epoch_before in epochs.start..epochs.end.max(epochs.start.saturating_add(1)) {
            let Some(cluster) = self.history.get(&epoch_before) else { break };
            let is_reduced = self.reduced_from.is_some_and(|from| epoch_before.saturating_add(1) >= from);
            let rate = if is_reduced { RATE_REDUCED } else { RATE_FIRST };
            let product = u128::from(lamports).saturating_mul(u128::from(cluster.effective)).saturating_mul(rate);
            let total = u128::from(changing_stake(cluster)).saturating_mul(RATE_UNIT);
            let Some(change) = product.checked_div(total) else { break };
            lamports = lamports.saturating_sub(u64::try_from(change).unwrap_or(u64::MAX).max(1));
        }
        lamports
    }
}

impl DelegatedStake {
    /// Returns the lamports of the delegation in effect, taking effect, and losing effect
    /// (`Delegation::stake_activating_and_deactivating_v2`).
    pub fn activation(&self, rules: &StakeRules) -> StakeActivation {
        let effective = self.effective_lamports(rules);
        let mut activation = StakeActivation { effective, ..StakeActivation::default() };
        if (self.activation_epoch..self.deactivation_epoch).contains(&rules.epoch) {
            activation.activating = self.lamports.saturating_sub(effective);
        }
        if rules.epoch >= self.deactivation_epoch {
            activation.deactivating = effective;
        }
        activation
    }

    fn effective_lamports(&self, rules: &StakeRules) -> u64 {
        let activated = self.activated_lamports(rules);
        if rules.epoch <= self.deactivation_epoch {
            return activated;
        }
        // If the history does not reach back to the deactivation epoch, the stake has ended.
        if !rules.history.contains_key(&self.deactivation_epoch) {
            return 0;
        }
        let epochs = self.deactivation_epoch..rules.epoch;
        rules.unchanged_lamports(activated, epochs, |cluster| cluster.deactivating)
    }

    /// Returns the lamports that have been activated, as if nothing had been deactivated.
    fn activated_lamports(&self, rules: &StakeRules) -> u64 {
        if self.activation_epoch == u64::MAX {
            return self.lamports;
        }
        if self.activation_epoch == self.deactivation_epoch || rules.epoch <= self.activation_epoch {
            return 0;
        }
        // If the history does not reach back to the activation epoch, all of the stake is in effect.
        if !rules.history.contains_key(&self.activation_epoch) {
            return self.lamports;
        }
        let epochs = self.activation_epoch..rules.epoch.min(self.deactivation_epoch);
        let inactive = rules.unchanged_lamports(self.lamports, epochs, |cluster| cluster.activating);
        self.lamports.saturating_sub(inactive)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Makes the history of consecutive epochs. Each has the effective, activating and deactivating
    /// lamports of the cluster.
    fn history(first_epoch: u64, epochs: &[[u64; 3]]) -> StakeHistory {
        let epochs = epochs.iter().map(|&[effective, activating, deactivating]| StakeActivation {
            effective,
            activating,
            deactivating,
        });
        (first_epoch..).zip(epochs).collect()
    }

    fn stake(lamports: u64, activation_epoch: u64, deactivation_epoch: u64) -> DelegatedStake {
        DelegatedStake { lamports, activation_epoch, deactivation_epoch }
    }

    fn rules(epoch: u64, history: &StakeHistory) -> StakeRules {
        StakeRules { epoch, history: history.clone(), reduced_from: None }
    }

    fn effective(stake: DelegatedStake, epoch: u64, history: &StakeHistory) -> u64 {
        stake.effective_lamports(&rules(epoch, history))
    }

    #[test]
    fn some_stakes_need_no_history() {
        let no_history = StakeHistory::new();
        assert_eq!(effective(stake(7, u64::MAX, u64::MAX), 0, &no_history), 7, "from genesis");
        assert_eq!(effective(stake(7, 3, 3), 5, &no_history), 0, "ended at once");
        assert_eq!([2, 3, 4].map(|epoch| effective(stake(7, 3, u64::MAX), epoch, &no_history)), [0, 0, 7]);
        assert_eq!([5, 6].map(|epoch| effective(stake(7, 3, 5), epoch, &no_history)), [7, 0]);
    }

    /// At most a quarter of the effective stake takes effect in an epoch, and 9% after the reduction.
    #[test]
    fn a_limited_share_takes_effect_in_an_epoch() {
        let history = history(3, &[[1000, 1000, 0], [1250, 750, 0], [1562, 438, 0]]);
        let in_epochs = |reduced_from| {
            [3, 4, 5, 6].map(|epoch| {
                let rules = StakeRules { reduced_from, ..rules(epoch, &history) };
                stake(500, 3, u64::MAX).effective_lamports(&rules)
            })
        };
        assert_eq!(in_epochs(None), [0, 125, 281, 500 - 24]);
        assert_eq!(in_epochs(Some(5)), [0, 125, 125 + 56, 181 + 102]);
    }

    #[test]
    fn a_limited_share_loses_effect_in_an_epoch() {
        let history = history(8, &[[1000, 0, 500], [750, 0, 250]]);
        assert_eq!([8, 9, 10].map(|epoch| effective(stake(100, 1, 8), epoch, &history)), [100, 50, 13]);
        assert_eq!(effective(stake(100, 1, 8), 20, &history), 13, "as far as the history reaches");
    }

    #[test]
    fn at_least_a_lamport_takes_effect_in_an_epoch() {
        assert_eq!(effective(stake(10, 3, u64::MAX), 4, &history(3, &[[1, 1_000_000, 0]])), 1);
    }

    /// More of a delegation takes effect until its end is requested. Then all stake in effect loses effect.
    #[test]
    fn stake_takes_effect_and_loses_it() {
        let history = history(3, &[[1000, 1000, 0], [1250, 750, 0], [1500, 0, 500], [1125, 0, 125]]);
        let in_epochs = |stake: DelegatedStake, epochs: [u64; 4]| {
            epochs.map(|epoch| {
                let activation = stake.activation(&rules(epoch, &history));
                [activation.effective, activation.activating, activation.deactivating]
            })
        };
        let activated = in_epochs(stake(500, 3, u64::MAX), [2, 3, 4, 9]);
        assert_eq!(activated, [[0; 3], [0, 500, 0], [125, 375, 0], [281, 219, 0]]);
        let ended_early = in_epochs(stake(500, 3, 4), [3, 4, 5, 6]);
        assert_eq!(ended_early, [[0, 500, 0], [125, 0, 125], [125, 0, 125], [125, 0, 125]]);
        let ended = in_epochs(stake(400, 1, 5), [4, 5, 6, 7]);
        assert_eq!(ended, [[400, 0, 0], [400, 0, 400], [100, 0, 100], [0; 3]]);
        assert_eq!(in_epochs(stake(7, 3, 3), [2, 3, 4, 5]), [[0; 3]; 4], "ended at once");
        assert_eq!(in_epochs(stake(7, u64::MAX, u64::MAX), [0, 3, 4, 5]), [[7, 0, 0]; 4], "from genesis");
    }
}
