//! Computes the leader of a slot from the stakes of its epoch, as both clients do. Agave refuses a
//! bank file that names a different leader.
//!
//! The rule (`solana-leader-schedule` crate): vote accounts with stake are sorted by stake, then by
//! address, both descending. For every four slots of the epoch, one vote account is drawn with a
//! probability in proportion to its stake, using ChaCha20 seeded with the epoch.

use std::cmp::Reverse;

use chacha20::ChaCha20Rng;
use chacha20::rand_core::{Rng as _, SeedableRng};

const SLOTS_PER_LEADER: u64 = 4;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Voter {
    pub stake: u64,
    pub address: [u8; 32],
    pub node: [u8; 32],
}

/// Returns the leader of the slot with this index in the epoch. Returns `None` if there is no stake, or if
/// the sum of the stakes overflows a `u64`.
pub fn compute_leader(epoch: u64, slot_index: u64, mut voters: Vec<Voter>) -> Option<Voter> {
    voters.retain(|voter| voter.stake > 0);
    voters.sort_unstable_by_key(|voter| Reverse((voter.stake, voter.address)));
    let total_stake = voters.iter().try_fold(0u64, |sum, voter| sum.checked_add(voter.stake))?;
    let mut seed = [0; 32];
    seed.first_chunk_mut::<8>()?.copy_from_slice(&epoch.to_le_bytes());
    let mut rng = ChaCha20Rng::from_seed(seed);
    // Draws with a larger low half are repeated, because accepting them would favor some leaders. The limit
    // leaves out 2^64 modulo the total stake.
    let low_max = u64::MAX.wrapping_sub(total_stake.wrapping_neg().checked_rem(total_stake)?);
    #[expect(clippy::cast_possible_truncation, reason = "only the low half is compared")]
    let mut draw = || {
        loop {
            let product = u128::from(rng.next_u64()).wrapping_mul(u128::from(total_stake));
            if product as u64 <= low_max {
                return (product >> 64) as u64;
            }
        }
    };
    for _ in 0..slot_index / SLOTS_PER_LEADER {
        draw();
    }
    let mut drawn_stake = draw();
    for voter in voters {
        match drawn_stake.checked_sub(voter.stake) {
            Some(remaining_stake) => drawn_stake = remaining_stake,
            None => return Some(voter),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the leaders of the first slots of an epoch, as indexes of `stakes`.
    fn leaders(epoch: u64, stakes: &[u64], slots: u64) -> Vec<u8> {
        let voter = |(index, stake): (u8, &u64)| Voter { stake: *stake, address: [index; 32], node: [index; 32] };
        let voters: Vec<Voter> = (0..).zip(stakes).map(voter).collect();
        (0..slots).map(|slot| compute_leader(epoch, slot, voters.clone()).expect("a leader").node[0]).collect()
    }

    /// Schedules from the tests of Agave's own crate.
    #[test]
    fn leaders_are_those_of_agave() {
        let four_times_each = |leaders: &[u8]| leaders.iter().flat_map(|leader| [*leader; 4]).collect::<Vec<u8>>();
        assert_eq!(leaders(1, &[10, 20, 30], 48), four_times_each(&[1, 1, 2, 1, 1, 0, 0, 1, 2, 1, 0, 1]));
        assert_eq!(leaders(1, &[30, 10, 20], 48), four_times_each(&[2, 2, 0, 2, 2, 1, 1, 2, 0, 2, 1, 2]));
        assert_eq!(leaders(457_469, &[10, 20, 30], 48), four_times_each(&[1, 2, 2, 2, 2, 2, 2, 1, 0, 2, 2, 0]));
        assert_eq!(compute_leader(1, 0, Vec::new()), None);
    }
}
