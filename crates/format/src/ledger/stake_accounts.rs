//! Parses the state of stake accounts (`StakeStateV2` in the `solana-stake-interface` crate).

use slotpress_base::{array_at, u64_at};

use crate::Delegation;

/// Length of the rent reserve, the authorities and the lockup, after the kind.
const META_BYTES: usize = 8 + 32 + 32 + 8 + 8 + 32;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StakeAccount {
    Uninitialized,
    Initialized(StakeMeta),
    Delegated {
        meta: StakeMeta,
        delegation: Delegation,
        /// Credits of the vote account up to which the stake has been rewarded.
        credits_observed: u64,
    },
    /// A kind that the program no longer writes.
    RewardsPool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StakeMeta {
    /// Lamports that cannot be delegated.
    pub rent_exempt_reserve: u64,
    pub staker: [u8; 32],
    pub withdrawer: [u8; 32],
    /// Time before which nothing can be withdrawn, in seconds since 1970.
    pub lockup_timestamp: i64,
    /// Epoch before which nothing can be withdrawn.
    pub lockup_epoch: u64,
    /// Address that may lift the lockup.
    pub lockup_custodian: [u8; 32],
}

impl StakeAccount {
    /// Parses the data of an account of the stake program. Returns `None` if the program cannot
    /// have written it.
    pub fn parse(data: &[u8]) -> Option<Self> {
        let (kind, rest) = data.split_first_chunk()?;
        let meta = || rest.first_chunk().map(StakeMeta::parse);
        match u32::from_le_bytes(*kind) {
            0 => Some(Self::Uninitialized),
            1 => meta().map(Self::Initialized),
            2 => Some(Self::Delegated {
                meta: meta()?,
                delegation: Delegation::parse(data)?,
                credits_observed: Delegation::parse_credits_observed(data),
            }),
            3 => Some(Self::RewardsPool),
            _ => None,
        }
    }
}

impl StakeMeta {
    fn parse(bytes: &[u8; META_BYTES]) -> Self {
        Self {
            rent_exempt_reserve: u64_at::<0, _>(bytes),
            staker: array_at::<8, 32, _>(bytes),
            withdrawer: array_at::<40, 32, _>(bytes),
            lockup_timestamp: i64::from_le_bytes(array_at::<72, 8, _>(bytes)),
            lockup_epoch: u64_at::<80, _>(bytes),
            lockup_custodian: array_at::<88, 32, _>(bytes),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn delegated() -> Vec<u8> {
        let mut data = [&[2, 0, 0, 0][..], &2_282_880u64.to_le_bytes(), &[1; 32], &[2; 32]].concat();
        data.extend([&(-5i64).to_le_bytes()[..], &9u64.to_le_bytes(), &[3; 32], &[4; 32]].concat());
        [70u64, 6, u64::MAX, 0, 33].iter().for_each(|number| data.extend(number.to_le_bytes()));
        data.push(1);
        data
    }

    #[test]
    fn every_state_is_parsed() {
        let mut data = delegated();
        assert_eq!(data.len(), 197);
        let Some(StakeAccount::Delegated { meta, delegation, credits_observed }) = StakeAccount::parse(&data) else {
            panic!("the account is not delegated")
        };
        let expected = StakeMeta {
            rent_exempt_reserve: 2_282_880,
            staker: [1; 32],
            withdrawer: [2; 32],
            lockup_timestamp: -5,
            lockup_epoch: 9,
            lockup_custodian: [3; 32],
        };
        assert_eq!((meta, delegation.voter(), credits_observed), (expected, [4; 32], 33));
        let stake = delegation.stake();
        assert_eq!((stake.lamports, stake.activation_epoch, stake.deactivation_epoch), (70, 6, u64::MAX));
        data[0] = 1;
        assert_eq!(StakeAccount::parse(&data), Some(StakeAccount::Initialized(expected)));
        assert_eq!(StakeAccount::parse(&[0; 200]), Some(StakeAccount::Uninitialized));
        data[0] = 3;
        assert_eq!(StakeAccount::parse(&data), Some(StakeAccount::RewardsPool));
        data[0] = 4;
        assert_eq!(StakeAccount::parse(&data), None);
    }

    #[test]
    fn truncated_states_are_refused() {
        let data = delegated();
        assert!((0..data.len()).all(|cut| StakeAccount::parse(&data[..cut]).is_none()));
        let initialized = [&[1, 0, 0, 0][..], &data[4..]].concat();
        let is_complete = |cut: &usize| StakeAccount::parse(&initialized[..*cut]).is_some();
        assert_eq!((0..data.len()).find(is_complete), Some(4 + META_BYTES));
    }

    proptest! {
        #[test]
        fn hostile_states_never_panic(data in proptest::collection::vec(any::<u8>(), 0..250), kind in 0u8..5) {
            let _ = (StakeAccount::parse(&data), StakeAccount::parse(&[&[kind, 0, 0, 0][..], &data].concat()));
        }
    }
}
