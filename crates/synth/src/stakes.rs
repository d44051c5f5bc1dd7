//! Vote accounts and delegations of each epoch.
//!
//! The bank's own stakes have accounts with the same contents, which Agave compares. The stakes of other
//! epochs have no accounts, and no client looks for them.
//!
//! On mainnet, a delegation recurs in the stakes of the next epoch after about 150 MB, too far away for the
//! compression levels in use. In a small file, it would recur after a short distance, so here each epoch has its
//! own sample of delegations.

use slotpress_format::Voter;

use super::accounts::OtherAccount;
use super::bank::OTHER_BYTES;
use super::rng::{Rng, derive_number};
use super::staking::{self, STAKE_BYTES, SynthDelegation, VOTE_BYTES};
use super::universe::{Purpose, Universe};
use super::{chain, keys};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StakeCounts {
    pub voters: u64,
    /// Number of delegations. Each vote account has at least one.
    pub delegations: u64,
}

/// Number of epochs whose stakes a bank keeps.
pub const EPOCHS: u64 = 6;
/// Smallest size of a bank file, unless a sixteenth of the storages is less. In a smaller file, blockhashes
/// would outweigh stakes.
const BANK_BYTES_MIN: u64 = 400 * 1024;
const STORAGE_BYTES_PER_BANK_BYTE: u64 = 409;
const DELEGATION_BYTES: u64 = 104;
const VOTE_ACCOUNT_BYTES: u64 = VOTE_BYTES + 97;
/// Bytes that a voter adds to an epoch's nodes and authorized voters.
const VOTER_ENTRY_BYTES: u64 = 144;
/// Limit on vote accounts, above the number that have stake on mainnet.
const VOTERS_MAX: u64 = 2_000;

impl StakeCounts {
    /// Chooses the counts for a ledger of this size, so that its bank file has the same share of the bytes as on
    /// mainnet.
    pub fn new(storage_bytes: u64, storage_count: u64) -> Self {
        let bank_bytes = (storage_bytes / STORAGE_BYTES_PER_BANK_BYTE).max(BANK_BYTES_MIN.min(storage_bytes / 16));
        let other_bytes = OTHER_BYTES + storage_count * 32;
        let stakes_bytes = bank_bytes.saturating_sub(other_bytes).max(bank_bytes / 4) / (EPOCHS + 1);
        let voters = (stakes_bytes / 6 / VOTE_ACCOUNT_BYTES).clamp(1, VOTERS_MAX);
        let voter_bytes = voters * (VOTE_ACCOUNT_BYTES + VOTER_ENTRY_BYTES);
        let delegations = stakes_bytes.saturating_sub(voter_bytes) / DELEGATION_BYTES;
        Self { voters, delegations: delegations.max(voters) }
    }

    /// Returns the number of vote accounts among which delegations choose, as a thousand times its
    /// logarithm to base 2. Interpolates [`VOTER_BITS_PERMILLE`].
    fn voter_bits_permille(self) -> u64 {
        let [first, .., last] = VOTER_BITS_PERMILLE;
        let delegation_bits = log2_permille(self.delegations).clamp(first.0, last.0);
        let pairs = VOTER_BITS_PERMILLE.windows(2);
        let pair = pairs.map(|pair| (pair[0], pair[1])).find(|(_, high)| delegation_bits <= high.0);
        let (low, high) = pair.unwrap_or((first, last));
        low.1 + (high.1 - low.1) * (delegation_bits - low.0) / (high.0 - low.0)
    }
}

/// Returns a thousand times the logarithm to base 2, interpolated between powers of two; 0 for 0.
fn log2_permille(value: u64) -> u64 {
    let Some(power) = value.checked_ilog2() else { return 0 };
    u64::from(power) * 1000 + (((u128::from(value) - (1 << power)) * 1000) >> power) as u64
}

/// Number of delegations below which all epochs have the same voters. Otherwise, a voter would recur only
/// within its epoch.
const DELEGATIONS_SMALL: u64 = 2048;

/// Number added to the sample of the bank's own stakes, which differ from the epoch stakes of the same epoch.
const OWN_SAMPLE: u64 = 1 << 20;

/// Numbers of delegations, and the numbers of vote accounts among which they choose, each as a thousand times
/// its logarithm to base 2. A sample smaller than mainnet's has fewer vote accounts, so that each recurs about
/// as often. With the measured numbers, the compression ratio of the bank file is mainnet's at all sizes.
const VOTER_BITS_PERMILLE: [(u64, u64); 7] = [
    (9_100, 7_100),
    (9_500, 7_500),
    (10_500, 8_900),
    (11_000, 9_000),
    (12_500, 10_200),
    (13_500, 10_800),
    (15_000, 11_200),
];

#[derive(Clone, Copy, Debug)]
pub struct SynthStakes {
    universe: Universe,
    pub counts: StakeCounts,
    /// Number of the sample of vote accounts and delegations.
    sample: u64,
    epoch: u64,
    slot: u64,
}

impl SynthStakes {
    /// Makes the stakes of the bank in an epoch. The vote accounts depend on the slot, but the delegations do
    /// not.
    pub fn for_bank(universe: Universe, counts: StakeCounts, epoch: u64, slot: u64) -> Self {
        Self { universe, counts, sample: OWN_SAMPLE + epoch, epoch, slot }
    }

    pub fn for_epoch(universe: Universe, counts: StakeCounts, epoch: u64) -> Self {
        Self { universe, counts, sample: epoch, epoch, slot: (epoch - 1) * chain::SLOTS_PER_EPOCH }
    }

    pub fn vote_address(&self, voter: u64) -> [u8; 32] {
        let sample = if self.counts.delegations < DELEGATIONS_SMALL { 0 } else { self.sample };
        self.universe.shared_key(Purpose::Voters, sample << 16 | voter)
    }

    /// Returns the stream for the properties of a vote account that do not depend on the slot. It begins with
    /// the address of the node.
    fn voter_rng(&self, voter: u64) -> Rng {
        Rng::new(derive_number(self.universe.number(Purpose::VoteAccounts, self.sample), voter))
    }

    pub fn vote_account(&self, voter: u64) -> OtherAccount {
        let mut account_rng = self.voter_rng(voter);
        let mut slot_rng = Rng::new(derive_number(account_rng.clone().next(), self.slot));
        let mut data = Vec::with_capacity(VOTE_BYTES as usize);
        let lamports = chain::rent_exempt_lamports(VOTE_BYTES) + slot_rng.log_uniform(36);
        staking::write_vote_account(&mut account_rng, &mut slot_rng, self.slot, &mut data);
        data.resize(VOTE_BYTES as usize, 0);
        OtherAccount::new(self.vote_address(voter), keys::VOTE, lamports, data)
    }

    pub fn delegation(&self, number: u64) -> SynthDelegation {
        let mut rng = Rng::new(derive_number(self.universe.number(Purpose::Delegations, self.sample), number));
        let stake_account = rng.key();
        let voter = match number {
            _ if number < self.counts.voters => number,
            _ if rng.chance_permille(400) => rng.zipf(4),
            _ => {
                let bits = self.counts.voter_bits_permille();
                let rounds_up = rng.chance_permille(bits % 1000);
                rng.zipf(bits / 1000 + u64::from(rounds_up))
            }
        };
        let activation_epoch = self.epoch - rng.log_uniform(9);
        let is_active = rng.chance_permille(930) || number < self.counts.voters;
        let deactivation_epoch =
            if is_active { u64::MAX } else { activation_epoch.max(self.epoch + 1 - rng.log_uniform(6)) };
        // Two in three stakes are whole numbers of SOL, as pools and wallets split them.
        let lamports = if rng.chance_permille(667) { 1_000_000_000 * rng.log_uniform(12) } else { rng.log_uniform(41) };
        // Most stakes of a voter were last rewarded in the same epoch, so they have observed the same credits.
        let reward_epoch = if rng.chance_permille(850) { self.epoch } else { activation_epoch };
        let credits_observed = derive_number(voter, reward_epoch) >> 35;
        SynthDelegation { stake_account, voter, lamports, activation_epoch, deactivation_epoch, credits_observed }
    }

    pub fn delegations(&self) -> impl ExactSizeIterator<Item = SynthDelegation> + '_ {
        (0..self.counts.delegations as usize).map(|number| self.delegation(number as u64))
    }

    /// Returns the vote accounts with their effective stake. All stakes take and lose effect in the epoch after
    /// the request, because too little stake changes in an epoch to reach the rate limit.
    pub fn voters(&self) -> Vec<Voter> {
        let mut voters: Vec<Voter> = (0..self.counts.voters)
            .map(|voter| Voter { stake: 0, address: self.vote_address(voter), node: self.voter_rng(voter).key() })
            .collect();
        for delegation in self.delegations() {
            if let Some(voter) = voters.get_mut(delegation.voter as usize)
                && delegation.deactivation_epoch >= self.epoch
            {
                voter.stake += delegation.lamports;
            }
        }
        voters
    }

    /// Makes up the stake history in a running epoch. Each entry has the epoch, and the effective, activating and
    /// deactivating stake. The newest entry comes first.
    pub fn history(&self, epoch: u64) -> Vec<[u64; 4]> {
        let effective = self.delegations().filter(|stake| stake.deactivation_epoch >= self.epoch);
        let effective: u64 = effective.map(|stake| stake.lamports).sum();
        let entries = (self.counts.delegations / 2_000).clamp(1, 512);
        (1..=entries)
            .map(|back| {
                let epoch = epoch - back;
                let mut rng = Rng::new(self.universe.number(Purpose::StakeHistory, epoch));
                let mut draw_part = |part: u64| rng.pick(effective / part + 1);
                [epoch, effective - draw_part(64), draw_part(128), draw_part(128)]
            })
            .collect()
    }

    /// Returns the stake account of a delegation.
    pub fn stake_account(&self, number: u64) -> OtherAccount {
        let delegation = self.delegation(number);
        let mut rng = Rng::new(derive_number(self.universe.number(Purpose::StakeAccounts, self.sample), number));
        let mut data = Vec::with_capacity(STAKE_BYTES as usize);
        let vote_address = self.vote_address(delegation.voter);
        staking::write_delegated_stake(&self.universe, &mut rng, &delegation, vote_address, &mut data);
        data.resize(STAKE_BYTES as usize, 0);
        let lamports = chain::rent_exempt_lamports(STAKE_BYTES) + delegation.lamports;
        OtherAccount::new(delegation.stake_account, keys::STAKE, lamports, data)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EPOCH: u64 = chain::epoch_of(chain::FIRST_SLOT);

    fn stakes(delegations: u64) -> SynthStakes {
        SynthStakes::for_bank(
            Universe::new(1, crate::AccountMix::Mainnet),
            StakeCounts { voters: 5, delegations },
            EPOCH,
            chain::FIRST_SLOT,
        )
    }

    #[test]
    fn every_voter_has_stake_and_sums_agree() {
        for count in [5, 6, 3_000] {
            let stakes = stakes(count);
            let voters = stakes.voters();
            assert_eq!(voters.len(), 5);
            assert!(voters.iter().all(|voter| voter.stake > 0));
            let in_effect = stakes.delegations().filter(|stake| stake.deactivation_epoch >= EPOCH);
            let to_open_accounts = in_effect.filter(|stake| stake.voter < 5).map(|stake| stake.lamports).sum::<u64>();
            assert_eq!(voters.iter().map(|voter| voter.stake).sum::<u64>(), to_open_accounts);
            for stake in stakes.delegations() {
                assert!(stake.activation_epoch < EPOCH);
                assert!(stake.activation_epoch <= stake.deactivation_epoch);
            }
        }
    }

    #[test]
    fn stake_accounts_agree_with_their_delegations() {
        let stakes = stakes(100);
        for number in 0..100 {
            let delegation = stakes.delegation(number);
            let OtherAccount { pubkey, lamports, data, .. } = stakes.stake_account(number);
            assert_eq!(pubkey, delegation.stake_account);
            let u64_at = |offset: usize| u64::from_le_bytes(data[offset..offset + 8].try_into().expect("8 bytes"));
            assert_eq!((data.len(), &data[..4]), (200, &[2, 0, 0, 0][..]));
            assert_eq!(lamports, u64_at(4) + delegation.lamports);
            assert_eq!(data[124..156], stakes.vote_address(delegation.voter));
            let fields = [156, 164, 172, 188].map(u64_at);
            let expected = [
                delegation.lamports,
                delegation.activation_epoch,
                delegation.deactivation_epoch,
                delegation.credits_observed,
            ];
            assert_eq!(fields, expected);
            assert_eq!(f64::from_bits(u64_at(180)), staking::WARMUP_RATE);
        }
        for (number, voter) in (0..).zip(stakes.voters()) {
            assert_eq!(stakes.vote_account(number).data[4..36], voter.node);
        }
    }

    #[test]
    fn small_ledgers_have_few_stakes_and_large_ones_many() {
        assert_eq!(StakeCounts::new(1 << 20, 512).voters, 1);
        let mainnet = StakeCounts::new(450_000_000_000, 430_000);
        assert_eq!(mainnet.voters, 2_000);
        assert!((1_000_000..2_000_000).contains(&mainnet.delegations), "{mainnet:?}");
        for counts in [StakeCounts::new(1, 1), StakeCounts::new(1 << 20, 1 << 20), StakeCounts::new(1 << 26, 512)] {
            assert!(counts.voters > 0);
            assert!(counts.delegations >= counts.voters);
        }
    }
}
