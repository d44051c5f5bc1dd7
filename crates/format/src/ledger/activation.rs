//! Computes how much of a delegation is in effect in an epoch.
//!
//! The rule (`Delegation::stake_v2` in the `solana-stake-interface` crate): a delegation takes
//! effect, and ends, over several epochs. In each epoch, the cluster's total change is limited to a
//! share of the stake that was effective in the epoch before.

use std::collections::BTreeMap;

/// Stake of the whole cluster in a past epoch, or of one delegation, in lamports.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClusterStake {
    pub effective: u64,
    pub activating: u64,
    pub deactivating: u64,
}

pub type StakeHistory = BTreeMap<u64, ClusterStake>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Term {
    pub stake: u64,
    /// Epoch in which the stake was delegated. `u64::MAX` for a delegation of the genesis, which is
    /// effective at once.
    pub activation_epoch: u64,
    /// Epoch in which its end was requested; `u64::MAX` if it was not.
    pub deactivation_epoch: u64,
}

/// Share of the effective stake that may change in an epoch, in ten thousandths. `RATE_REDUCED`
/// applies once the feature `reduce_stake_warmup_cooldown` is active.
const RATE_FIRST: u128 = 2_500;
const RATE_REDUCED: u128 = 900;
const RATE_UNIT: u128 = 10_000;

impl Term {
    /// Returns the lamports in effect in `epoch`. The reduced share applies from the epoch
    /// `reduced_from` on.
    pub fn effective(&self, epoch: u64, history: &StakeHistory, reduced_from: Option<u64>) -> u64 {
        let mut left = self.activated(epoch, history, reduced_from);
        if epoch <= self.deactivation_epoch {
            return left;
        }
        // If the history does not reach back to this epoch, the stake has ended.
        if !history.contains_key(&self.deactivation_epoch) {
            return 0;
        }
        for (rate, cluster) in steps(self.deactivation_epoch, epoch, history, reduced_from) {
            if cluster.deactivating == 0 || left == 0 {
                break;
            }
            let change = allowance(left, cluster.deactivating, cluster.effective, rate);
            left = left.saturating_sub(change.max(1));
        }
        left
    }

    /// Returns the lamports of the delegation that are in effect, take effect and lose it in `epoch`.
    /// What loses effect is still in effect (`Delegation::stake_activating_and_deactivating_v2`).
    pub fn status(&self, epoch: u64, history: &StakeHistory, reduced_from: Option<u64>) -> ClusterStake {
        let effective = self.effective(epoch, history, reduced_from);
        let is_activating = (self.activation_epoch..self.deactivation_epoch).contains(&epoch);
        ClusterStake {
            effective,
            activating: if is_activating { self.stake.saturating_sub(effective) } else { 0 },
            deactivating: if epoch >= self.deactivation_epoch { effective } else { 0 },
        }
    }

    /// Returns the lamports activated by `epoch`, as if nothing had been deactivated.
    fn activated(&self, epoch: u64, history: &StakeHistory, reduced_from: Option<u64>) -> u64 {
        let Self { stake, activation_epoch, deactivation_epoch } = *self;
        if activation_epoch == u64::MAX {
            return stake;
        }
        if activation_epoch == deactivation_epoch || epoch <= activation_epoch {
            return 0;
        }
        // If the history does not reach back to this epoch, all of the stake is in effect.
        if !history.contains_key(&activation_epoch) {
            return stake;
        }
        let mut left = stake;
        for (rate, cluster) in steps(activation_epoch, epoch.min(deactivation_epoch), history, reduced_from) {
            if cluster.activating == 0 || left == 0 {
                break;
            }
            let change = allowance(left, cluster.activating, cluster.effective, rate);
            left = left.saturating_sub(change.max(1));
        }
        stake.saturating_sub(left)
    }
}

/// Yields, for each epoch after `start`, the share that may change in it, and the cluster's stake in
/// the epoch before. Ends after `until`, but not before the first one, or where the history ends.
fn steps(
    start: u64,
    until: u64,
    history: &StakeHistory,
    reduced_from: Option<u64>,
) -> impl Iterator<Item = (u128, ClusterStake)> {
    let end = until.max(start.saturating_add(1));
    (start..end).map_while(move |before| {
        let is_reduced = reduced_from.is_some_and(|from| before.saturating_add(1) >= from);
        let rate = if is_reduced { RATE_REDUCED } else { RATE_FIRST };
        history.get(&before).map(|cluster| (rate, *cluster))
    })
}

/// Returns how many of a delegation's `lamports` may change in an epoch: their part of the total
/// change, which is limited to a share of the effective stake.
fn allowance(lamports: u64, all: u64, effective: u64, rate: u128) -> u64 {
    let product = u128::from(lamports).saturating_mul(u128::from(effective)).saturating_mul(rate);
    let change = product.checked_div(u128::from(all).saturating_mul(RATE_UNIT)).unwrap_or_default();
    u64::try_from(change).unwrap_or(u64::MAX).min(lamports)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn history(entries: &[(u64, u64, u64, u64)]) -> StakeHistory {
        let entry = |(epoch, effective, activating, deactivating): &(u64, u64, u64, u64)| {
            (*epoch, ClusterStake { effective: *effective, activating: *activating, deactivating: *deactivating })
        };
        entries.iter().map(entry).collect()
    }

    fn term(stake: u64, activation_epoch: u64, deactivation_epoch: u64) -> Term {
        Term { stake, activation_epoch, deactivation_epoch }
    }

    #[test]
    fn some_terms_need_no_history() {
        let none = StakeHistory::new();
        assert_eq!(term(7, u64::MAX, u64::MAX).effective(0, &none, None), 7, "from genesis");
        assert_eq!(term(7, 3, 3).effective(5, &none, None), 0, "ended at once");
        assert_eq!([2, 3, 4].map(|epoch| term(7, 3, u64::MAX).effective(epoch, &none, None)), [0, 0, 7]);
        assert_eq!([5, 6].map(|epoch| term(7, 3, 5).effective(epoch, &none, None)), [7, 0]);
    }

    /// At most a quarter of the effective stake changes in an epoch, and 9 % after the reduction.
    #[test]
    fn no_more_than_a_share_changes_at_a_time() {
        let warming = history(&[(3, 1000, 1000, 0), (4, 1250, 750, 0), (5, 1562, 438, 0)]);
        let up = |reduced| [3, 4, 5, 6].map(|epoch| term(500, 3, u64::MAX).effective(epoch, &warming, reduced));
        assert_eq!(up(None), [0, 125, 281, 500 - 24]);
        assert_eq!(up(Some(5)), [0, 125, 125 + 56, 181 + 102]);
        let cooling = history(&[(8, 1000, 0, 500), (9, 750, 0, 250)]);
        let down = |epoch| term(100, 1, 8).effective(epoch, &cooling, None);
        assert_eq!([8, 9, 10].map(down), [100, 50, 13]);
        assert_eq!(down(20), 13, "as far as the history reaches");
        let tiny = history(&[(3, 1, 1_000_000, 0)]);
        assert_eq!(term(10, 3, u64::MAX).effective(4, &tiny, None), 1, "a lamport at least");
    }

    /// The rest of a delegation takes effect until its end is requested; then all that is in effect
    /// loses it.
    #[test]
    fn stake_takes_effect_and_loses_it() {
        let history = history(&[(3, 1000, 1000, 0), (4, 1250, 750, 0), (5, 1500, 0, 500), (6, 1125, 0, 125)]);
        let statuses = |term: Term, epochs: [u64; 4]| {
            epochs.map(|epoch| {
                let found = term.status(epoch, &history, None);
                assert_eq!(found.effective, term.effective(epoch, &history, None));
                [found.effective, found.activating, found.deactivating]
            })
        };
        assert_eq!(statuses(term(500, 3, u64::MAX), [2, 3, 4, 9]), [[0; 3], [0, 500, 0], [125, 375, 0], [281, 219, 0]]);
        assert_eq!(statuses(term(500, 3, 4), [3, 4, 5, 6]), [[0, 500, 0], [125, 0, 125], [125, 0, 125], [125, 0, 125]]);
        assert_eq!(statuses(term(400, 1, 5), [4, 5, 6, 7]), [[400, 0, 0], [400, 0, 400], [100, 0, 100], [0; 3]]);
        assert_eq!(statuses(term(7, 3, 3), [2, 3, 4, 5]), [[0; 3]; 4], "ended at once");
        assert_eq!(statuses(term(7, u64::MAX, u64::MAX), [0, 3, 4, 5]), [[7, 0, 0]; 4], "from genesis");
    }
}
