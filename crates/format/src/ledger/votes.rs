//! Parses the state of vote accounts, in every layout version that Agave reads.

use slotpress_base::{array_at, to_usize, u64_at};

/// Versions of the layout: `VoteState1_14_11`, `VoteStateV3`, `VoteStateV4`.
pub(super) const STATE_1_14_11: u32 = 1;
pub(super) const STATE_3: u32 = 2;
pub(super) const STATE_4: u32 = 3;

/// Length of the prior voters (32 of 48 bytes), their index and a flag, up to version 3.
pub(super) const PRIOR_VOTERS_BYTES: usize = 32 * 48 + 8 + 1;

/// Length of an authorized voter: the epoch since which the voter is authorized, and an address.
const VOTER_BYTES: usize = 8 + 32;

/// Agave's limit on votes, authorized voters and epochs of credits.
const ITEMS_MAX: u64 = 255;

#[derive(Clone, Copy, Debug)]
pub struct VoteState<'a> {
    /// Name of the layout's version.
    pub version: &'static str,
    /// Identity of the validator.
    pub node: [u8; 32],
    /// Address that may withdraw, and change the commission.
    pub authorized_withdrawer: [u8; 32],
    /// Share of inflation rewards that the validator keeps, in basis points.
    pub commission_bps: u16,
    pub v4: Option<VoteFieldsV4>,
    pub last_vote_slot: Option<u64>,
    /// Newest slot that the validator can no longer roll back.
    pub root_slot: Option<u64>,
    /// Authorized voters, each of [`VOTER_BYTES`].
    voters: &'a [u8],
    /// Credits by epoch, oldest first. Each item has three little-endian u64: the epoch, and the credits at
    /// its end and at its start.
    pub epoch_credits: &'a [u8],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VoteFieldsV4 {
    /// Account that receives the validator's share of inflation rewards.
    pub inflation_rewards_collector: [u8; 32],
    /// Account that receives the validator's share of block revenue.
    pub block_revenue_collector: [u8; 32],
    /// Share of block revenue that the validator keeps, in basis points.
    pub block_revenue_commission_bps: u16,
    /// Compressed BLS public key for the validator's votes in Alpenglow.
    pub bls_key: Option<[u8; 48]>,
}

impl<'a> VoteState<'a> {
    /// Parses a vote account's data as Agave does (`VoteStateView` in the `solana-vote` crate).
    /// Returns `None` if Agave would refuse it.
    pub fn parse(data: &'a [u8]) -> Option<Self> {
        let input = &mut &*data;
        let version = u32::from_le_bytes(take_array(input)?);
        let node = take_array(input)?;
        let authorized_withdrawer = take_array(input)?;
        let (name, commission_bps, v4) = match version {
            STATE_1_14_11 | STATE_3 => {
                let name = if version == STATE_3 { "3" } else { "1.14.11" };
                (name, u16::from(u8::from_le_bytes(take_array(input)?)).saturating_mul(100), None)
            }
            STATE_4 => {
                let inflation_rewards_collector = take_array(input)?;
                let block_revenue_collector = take_array(input)?;
                let commission_bps = u16::from_le_bytes(take_array(input)?);
                let block_revenue_commission_bps = u16::from_le_bytes(take_array(input)?);
                take_bytes(input, 8)?; // pending rewards
                let bls_key = take_optional_array(input)?;
                let v4 = VoteFieldsV4 {
                    inflation_rewards_collector,
                    block_revenue_collector,
                    block_revenue_commission_bps,
                    bls_key,
                };
                ("4", commission_bps, Some(v4))
            }
            _ => return None,
        };
        // A vote is a slot (u64) and its lockout (u32). Since version 3, a latency (u8) comes first.
        let votes = take_list(input, if version <= STATE_1_14_11 { 12 } else { 13 })?;
        let last_vote_slot = votes.last_chunk::<12>().and_then(|vote| vote.first_chunk()).copied();
        let root_slot = take_optional_array(input)?.map(u64::from_le_bytes);
        let voters = take_list(input, VOTER_BYTES)?;
        if matches!(version, STATE_1_14_11 | STATE_3) {
            take_bytes(input, PRIOR_VOTERS_BYTES)?;
        }
        let epoch_credits = take_list(input, 3 * 8)?;
        take_bytes(input, 2 * 8)?; // last timestamp
        Some(Self {
            version: name,
            node,
            authorized_withdrawer,
            commission_bps,
            v4,
            last_vote_slot: last_vote_slot.map(u64::from_le_bytes),
            root_slot,
            voters,
            epoch_credits,
        })
    }

    /// Returns the address that may vote in an epoch.
    pub fn authorized_voter(&self, epoch: u64) -> Option<[u8; 32]> {
        let (voters, _) = self.voters.as_chunks::<VOTER_BYTES>();
        let voter = voters.iter().rev().find(|voter| u64_at::<0, _>(voter) <= epoch)?;
        Some(array_at::<8, 32, _>(voter))
    }
}

/// Takes the next `count` bytes from `input`.
pub(super) fn take_bytes<'a>(input: &mut &'a [u8], count: usize) -> Option<&'a [u8]> {
    let (bytes, after) = input.split_at_checked(count)?;
    *input = after;
    Some(bytes)
}

pub(super) fn take_array<const N: usize>(input: &mut &[u8]) -> Option<[u8; N]> {
    let (array, after) = input.split_first_chunk()?;
    *input = after;
    Some(*array)
}

/// Takes an optional array, after a byte that is 1 if there is an array and 0 otherwise.
fn take_optional_array<const N: usize>(input: &mut &[u8]) -> Option<Option<[u8; N]>> {
    match take_array(input)? {
        [0] => Some(None),
        [1] => take_array(input).map(Some),
        _ => None,
    }
}

fn take_list<'a>(input: &mut &'a [u8], item_bytes: usize) -> Option<&'a [u8]> {
    let count = u64::from_le_bytes(take_array(input)?);
    if count > ITEMS_MAX {
        return None;
    }
    take_bytes(input, to_usize(count).saturating_mul(item_bytes))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Offset of the BLS key's flag in version 4.
    const BLS_FLAG_AT: usize = 4 + 4 * 32 + 2 + 2 + 8;

    fn to_le_bytes(numbers: &[u64]) -> Vec<u8> {
        numbers.iter().flat_map(|number| number.to_le_bytes()).collect()
    }

    /// Makes a state field by field: two votes (slots 11 and 12), the root 10, voters since epochs
    /// 3 and 5, credits of epochs 4 and 5.
    fn state(version: u32) -> Vec<u8> {
        let mut data = [&version.to_le_bytes()[..], &[7; 32]].concat();
        match version {
            STATE_4 => {
                data.extend([&[9; 32][..], &[1; 32], &[2; 32]].concat());
                data.extend([650u16.to_le_bytes(), 10_000u16.to_le_bytes()].concat());
                data.extend([&[0; 8][..], &[1], &[5; 48]].concat());
            }
            _ => data.extend([&[9; 32][..], &[6]].concat()),
        }
        data.extend(to_le_bytes(&[2]));
        for slot in [11u64, 12] {
            data.extend(if version <= STATE_1_14_11 { &[][..] } else { &[3] });
            data.extend([&slot.to_le_bytes()[..], &[2, 0, 0, 0]].concat());
        }
        data.extend([&[1][..], &to_le_bytes(&[10])].concat());
        data.extend([to_le_bytes(&[2, 3]), vec![4; 32], to_le_bytes(&[5]), vec![8; 32]].concat());
        if version != STATE_4 {
            data.extend([0; PRIOR_VOTERS_BYTES]);
        }
        data.extend(to_le_bytes(&[2, 4, 30, 0, 5, 70, 30, 12, 99]));
        data
    }

    #[test]
    fn every_version_is_parsed() {
        for (version, name) in [(STATE_1_14_11, "1.14.11"), (STATE_3, "3"), (STATE_4, "4")] {
            let data = [state(version), vec![0; 100]].concat();
            let parsed = VoteState::parse(&data).expect("a state");
            assert_eq!((parsed.version, parsed.node, parsed.authorized_withdrawer), (name, [7; 32], [9; 32]));
            assert_eq!((parsed.root_slot, parsed.last_vote_slot), (Some(10), Some(12)), "{name}");
            let voters = [2, 3, 4, 5, 9].map(|epoch| parsed.authorized_voter(epoch));
            let old = Some([4; 32]);
            let new = Some([8; 32]);
            assert_eq!(voters, [None, old, old, new, new], "{name}");
            assert_eq!(parsed.commission_bps, if version == STATE_4 { 650 } else { 600 });
            assert_eq!(parsed.epoch_credits, to_le_bytes(&[4, 30, 0, 5, 70, 30]));
            let v4 = VoteFieldsV4 {
                inflation_rewards_collector: [1; 32],
                block_revenue_collector: [2; 32],
                block_revenue_commission_bps: 10_000,
                bls_key: Some([5; 48]),
            };
            assert_eq!(parsed.v4, (version == STATE_4).then_some(v4), "{name}");
        }
        assert!(VoteState::parse(&[0; 3762]).is_none(), "not initialized");
    }

    #[test]
    fn truncated_or_too_long_states_are_refused() {
        for version in [STATE_1_14_11, STATE_3, STATE_4] {
            let data = state(version);
            assert!((0..data.len()).all(|cut| VoteState::parse(&data[..cut]).is_none()), "{version}");
            let votes_at = data.windows(8).position(|window| window == 2u64.to_le_bytes()).expect("a count");
            for count in [256, u64::MAX] {
                let mut data = data.clone();
                data[votes_at..votes_at + 8].copy_from_slice(&count.to_le_bytes());
                assert!(VoteState::parse(&[data, vec![0; 9000]].concat()).is_none(), "{version}: {count}");
            }
        }
        let mut data = state(STATE_4);
        data[BLS_FLAG_AT] = 2;
        assert!(VoteState::parse(&data).is_none());
        data[BLS_FLAG_AT] = 0;
        data.drain(BLS_FLAG_AT + 1..BLS_FLAG_AT + 49);
        let key = VoteState::parse(&data).and_then(|state| state.v4).expect("fields").bls_key;
        assert_eq!(key, None);
        assert!([4u32, u32::MAX].iter().all(|version| VoteState::parse(&version.to_le_bytes().repeat(1000)).is_none()));
    }

    proptest! {
        #[test]
        fn hostile_states_never_panic(data in proptest::collection::vec(any::<u8>(), 0..500), version in 0u8..5) {
            let data = [&[version, 0, 0, 0][..], &data, &[0; 3000]].concat();
            if let Some(state) = VoteState::parse(&data) {
                prop_assert!(state.epoch_credits.len() <= 255 * 3 * 8);
                let _ = state.authorized_voter(7);
            }
        }
    }
}
