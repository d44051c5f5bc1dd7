//! Parses the stakes in bank files (docs/snapshot-format.md#bank-file). Also parses the parts of stake
//! and vote accounts that Agave compares with these stakes when it loads a snapshot. `stake_accounts` and
//! `votes` parse all fields of such accounts.

use std::collections::BTreeMap;
use std::io::BufRead;

use slotpress_base::{Result, array_at, to_usize, u64_at};

use crate::ledger::activation::DelegatedStake;
use crate::ledger::demands::firedancer;
use crate::ledger::votes::STATE_4;
use crate::{ACCOUNT_DATA_BYTES_MAX, AccountView, Address, Demand, FieldReader, VOTE, VoteState, Voter};

/// Limit on the vote accounts of one epoch. Mainnet has a few thousand.
pub const VOTE_ACCOUNTS_MAX: usize = 1_000_000;

/// Limit on delegations. Mainnet has 1.5 million. 4 million delegations take 400 MB of memory.
pub const DELEGATIONS_MAX: usize = 4_000_000;

/// Offset of the delegation in a stake account, after the kind (2 in a delegated account) and 120
/// bytes of rent reserve, authorities and lockup.
const DELEGATION_AT: usize = 4 + 120;

/// Length of the state of a delegated stake account, which ends with the credits and the flags.
const STAKE_STATE_BYTES: usize = DELEGATION_AT + DELEGATION_BYTES + 8 + 1;

/// Length of a delegation: voter, stake, activation epoch, deactivation epoch, and 8 bytes that
/// once held a rate.
const DELEGATION_BYTES: usize = 32 + 8 + 8 + 8 + 8;

/// Length of the part of a delegation that Agave 4.4 compares with the state. Earlier versions also compare
/// the rest, and later versions do not compare delegations.
const STAKE_BYTES: usize = DELEGATION_BYTES - 8;

/// Delegation of a stake account: voter, amount and term.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Delegation([u8; DELEGATION_BYTES]);

impl Delegation {
    pub fn voter(&self) -> [u8; 32] {
        array_at::<0, 32, _>(&self.0)
    }

    pub fn stake(&self) -> DelegatedStake {
        DelegatedStake {
            lamports: u64_at::<32, _>(&self.0),
            activation_epoch: u64_at::<40, _>(&self.0),
            deactivation_epoch: u64_at::<48, _>(&self.0),
        }
    }

    /// Returns the last 8 bytes, as the rate that they once held.
    fn rate(&self) -> f64 {
        f64::from_le_bytes(array_at::<STAKE_BYTES, 8, _>(&self.0))
    }

    /// True if two delegations are equal except for the bytes that once held a rate.
    pub fn is_same_stake(&self, other: &Self) -> bool {
        array_at::<0, STAKE_BYTES, _>(&self.0) == array_at::<0, STAKE_BYTES, _>(&other.0)
    }

    /// Parses the delegation in a stake account's data. Returns `None` if the account is not delegated, or
    /// if the data is truncated.
    pub fn parse(data: &[u8]) -> Option<Self> {
        let state = data.first_chunk::<STAKE_STATE_BYTES>().filter(|state| state.starts_with(&[2, 0, 0, 0]))?;
        Some(Self(array_at::<DELEGATION_AT, DELEGATION_BYTES, _>(state)))
    }

    /// Parses the vote account's credits up to which a delegated stake account has been rewarded.
    pub fn parse_credits_observed(data: &[u8]) -> u64 {
        let bytes = data.get(DELEGATION_AT.saturating_add(DELEGATION_BYTES)..).and_then(|rest| rest.first_chunk());
        bytes.copied().map_or(0, u64::from_le_bytes)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VoteAccount {
    /// blake3 hash of the fields that Agave compares, except the rent epoch: lamports, owner,
    /// executable flag, data.
    pub digest: [u8; 32],
    /// Epoch in which rent was due. It no longer has a meaning, but Agave compares it.
    pub rent_epoch: u64,
    /// Identity of the validator, if the account can be parsed.
    pub node: Option<[u8; 32]>,
    pub is_initialized: bool,
}

impl VoteAccount {
    pub fn new(account: &AccountView<'_>, rent_epoch: u64) -> Self {
        let AccountView { owner, lamports, executable, data, .. } = *account;
        let mut hasher = blake3::Hasher::new();
        hasher.update(&lamports.to_le_bytes()).update(owner).update(&[u8::from(executable)]).update(data);
        let state = if *owner == VOTE { VoteState::parse(data) } else { None };
        Self {
            digest: hasher.finalize().into(),
            rent_epoch,
            node: state.map(|state| state.node),
            is_initialized: is_initialized(data),
        }
    }
}

/// True if a vote account is initialized, as `VoteStateVersions::is_correct_size_and_initialized` decides:
/// any state of version 4 is, and an older one if a byte before the prior voters is not zero.
fn is_initialized(data: &[u8]) -> bool {
    let has_non_zero = |end: usize| data.get(4..end).is_some_and(|bytes| bytes.iter().any(|byte| *byte != 0));
    match data.len() {
        3762 => data.starts_with(&STATE_4.to_le_bytes()) || has_non_zero(4 + 114),
        3731 => has_non_zero(4 + 82),
        _ => false,
    }
}

/// Stakes of a bank, which must agree with its accounts.
#[derive(Clone, Debug, Default)]
pub struct Stakes {
    /// Vote accounts by address, in the file's order.
    pub vote_accounts: Vec<([u8; 32], VoteAccount)>,
    /// Delegations by the stake account's address, in the file's order.
    pub delegations: Vec<([u8; 32], Delegation)>,
    /// True if the file has more delegations or vote accounts than these.
    pub is_truncated: bool,
}

/// Adds an item, unless there are already `max` items. Returns true if the item was added.
fn push_within<T>(items: &mut Vec<T>, item: T, max: usize) -> bool {
    let has_room = items.len() < max;
    if has_room {
        items.push(item);
    }
    has_room
}

/// Voters by address. If an address occurs twice, its later voter is kept.
pub type Voters = BTreeMap<[u8; 32], Voter>;

/// Destination of the stakes that are kept when a bank file is read.
pub enum StakesDestination<'a> {
    All(&'a mut Stakes),
    /// Keeps only the voters, up to one more than [`VOTE_ACCOUNTS_MAX`].
    Voters(&'a mut Voters),
    Nothing,
}

#[derive(Clone, Copy, Debug, Default)]
pub struct StakesSummary {
    pub vote_account_count: u64,
    pub delegation_count: u64,
    pub epoch: u64,
    pub invalid_vote_account: Option<Address>,
    pub account_without_stake: Option<Address>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StakesKind {
    Bank,
    /// Stakes of an epoch, in which credits follow each delegation.
    Epoch,
}

pub fn read_stakes<R: BufRead>(
    reader: &mut FieldReader<R>,
    kind: StakesKind,
    mut destination: StakesDestination<'_>,
) -> Result<StakesSummary> {
    let (name, credits_bytes) = match kind {
        StakesKind::Bank => ("the stakes", 0),
        StakesKind::Epoch => ("the epoch stakes", 8),
    };
    // An account has lamports, data, owner, executable flag and rent epoch.
    let vote_account_count = reader.count(name, 32 + 8 + 8 + 8 + 32 + 1 + 8)?;
    let mut summary = StakesSummary { vote_account_count, ..StakesSummary::default() };
    for _ in 0..summary.vote_account_count {
        let address = reader.array::<32>()?;
        let stake = reader.u64()?;
        let account = read_vote_account(reader, &address)?;
        if account.node.is_none() {
            summary.invalid_vote_account.get_or_insert(Address(address));
        }
        if stake == 0 {
            summary.account_without_stake.get_or_insert(Address(address));
        }
        match &mut destination {
            StakesDestination::All(Stakes { vote_accounts, is_truncated, .. }) => {
                *is_truncated |= !push_within(vote_accounts, (address, account), VOTE_ACCOUNTS_MAX);
            }
            StakesDestination::Voters(voters) if voters.len() <= VOTE_ACCOUNTS_MAX => {
                voters.extend(account.node.map(|node| (address, Voter { stake, address, node })));
            }
            StakesDestination::Voters(_) | StakesDestination::Nothing => {}
        }
    }
    let item_bytes = 32u64.saturating_add(DELEGATION_BYTES as u64).saturating_add(credits_bytes);
    summary.delegation_count = reader.count("the delegations", item_bytes)?;
    if let StakesDestination::All(Stakes { delegations, .. }) = &mut destination {
        delegations.reserve_exact(to_usize(summary.delegation_count).min(DELEGATIONS_MAX));
    }
    for _ in 0..summary.delegation_count {
        let address = reader.array()?;
        let delegation = Delegation(reader.array()?);
        reader.skip(credits_bytes)?;
        let rate = delegation.rate();
        if kind == StakesKind::Bank && rate > 1.0 {
            reader.record_breach(Some(Address(address)), Demand::FiredancerLimit, "a rate of at most 1", rate);
        }
        if let StakesDestination::All(Stakes { delegations, is_truncated, .. }) = &mut destination {
            *is_truncated |= !push_within(delegations, (address, delegation), DELEGATIONS_MAX);
        }
    }
    reader.skip(8)?; // always 0
    summary.epoch = reader.u64()?;
    let history = reader.skip_items("the stake history", 4 * 8)?;
    reader.check_limit(("epochs of the stake history", firedancer::ITEMS_MAX), history);
    Ok(summary)
}

/// Skips the fields after an epoch's stakes: their sum, the nodes, the authorized voters.
pub fn skip_nodes_and_voters<R: BufRead>(reader: &mut FieldReader<R>) -> Result<()> {
    reader.skip(8)?; // total stake
    let nodes = reader.count("the vote accounts of nodes", 32 + 8 + 8)?;
    reader.check_limit(("nodes of an epoch", firedancer::GROUPS_MAX), nodes);
    for _ in 0..nodes {
        reader.skip(32)?;
        let accounts = reader.skip_items("the vote accounts of a node", 32)?;
        reader.check_limit(("vote accounts of a node", firedancer::ITEMS_MAX), accounts);
        reader.skip(8)?;
    }
    let voters = reader.skip_items("the authorized voters", 64)?;
    reader.check_limit(("authorized voters of an epoch", firedancer::ITEMS_MAX), voters);
    Ok(())
}

fn read_vote_account<R: BufRead>(reader: &mut FieldReader<R>, pubkey: &[u8; 32]) -> Result<VoteAccount> {
    let lamports = reader.u64()?;
    let data_bytes = reader.count("a vote account's data", 1)?;
    if data_bytes > ACCOUNT_DATA_BYTES_MAX {
        return Err(reader.damage_error(format!("a vote account of {data_bytes} bytes, more than an account can hold")));
    }
    let mut data = vec![0; to_usize(data_bytes)];
    reader.read_exact(&mut data)?;
    let owner = reader.array()?;
    let executable = reader.flag("a vote account")?;
    let account = AccountView { pubkey, owner: &owner, lamports, executable, data: &data };
    Ok(VoteAccount::new(&account, reader.u64()?))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::ledger::votes::{PRIOR_VOTERS_BYTES, STATE_1_14_11, STATE_3};

    /// Makes a vote account's state of the given version, with two votes, a root, one voter, and
    /// credits of one epoch. Also returns the length of the state without the zeros after it.
    fn state(version: u32) -> (Vec<u8>, usize) {
        let mut data = version.to_le_bytes().to_vec();
        data.extend([7; 32]);
        data.extend([8; 32]);
        match version {
            STATE_4 => {
                data.extend([9; 2 * 32 + 2 + 2 + 8]);
                data.extend([&[1][..], &[5; 48]].concat());
            }
            _ => data.push(5),
        }
        data.extend(2u64.to_le_bytes());
        data.extend(vec![3; 2 * if version == STATE_1_14_11 { 12 } else { 13 }]);
        data.extend([&[1][..], &[4; 8]].concat());
        data.extend([&1u64.to_le_bytes()[..], &[6; 40]].concat());
        if version != STATE_4 {
            data.extend([0; PRIOR_VOTERS_BYTES]);
        }
        data.extend([&1u64.to_le_bytes()[..], &[2; 24]].concat());
        data.extend([1; 16]);
        let end = data.len();
        data.resize(if version == STATE_1_14_11 { 3731 } else { 3762 }, 0);
        (data, end)
    }

    fn vote_account(data: &[u8], owner: &[u8; 32], rent_epoch: u64) -> VoteAccount {
        let account = AccountView { pubkey: &[3; 32], owner, lamports: 5, executable: false, data };
        VoteAccount::new(&account, rent_epoch)
    }

    #[test]
    fn vote_accounts_of_every_version_are_parsed() {
        for version in [STATE_1_14_11, STATE_3, STATE_4] {
            let (data, state_bytes) = state(version);
            let account = |data: &[u8]| vote_account(data, &VOTE, u64::MAX);
            let whole = account(&data);
            assert_eq!((whole.node, whole.is_initialized), (Some([7; 32]), true), "{version}");
            let without_zeros = account(&data[..state_bytes]);
            assert_eq!((without_zeros.node, without_zeros.is_initialized), (Some([7; 32]), false), "{version}");
            assert!((0..state_bytes).all(|cut| account(&data[..cut]).node.is_none()), "{version}");
        }
        for version in [0u32, 4, u32::MAX] {
            assert_eq!(vote_account(&[&version.to_le_bytes()[..], &[0; 3758]].concat(), &VOTE, 0).node, None);
        }
        assert!(!is_initialized(&[0; 3762]));
        assert!(!is_initialized(&[0; 3731]));
    }

    #[test]
    fn vote_accounts_are_compared_by_their_fields() {
        for version in [STATE_1_14_11, STATE_3, STATE_4] {
            let (data, _) = state(version);
            let account = vote_account(&data, &VOTE, u64::MAX);
            let with_another_owner = vote_account(&data, &[1; 32], u64::MAX);
            assert_eq!(with_another_owner.node, None);
            assert_ne!(with_another_owner.digest, account.digest);
            let with_another_rent_epoch = vote_account(&data, &VOTE, 0);
            assert_ne!(with_another_rent_epoch, account);
            assert_eq!(with_another_rent_epoch.digest, account.digest, "the digest leaves out the rent epoch");
        }
    }

    #[test]
    fn delegations_are_parsed_and_compared() {
        let mut data = vec![0; 200];
        data[0] = 2;
        data[124..156].fill(7);
        data[156] = 1;
        let delegation = Delegation::parse(&data).expect("delegated");
        assert_eq!(delegation.voter(), [7; 32]);
        data[124 + 56] = 9; // the bytes that once held a rate
        let other_rate = Delegation::parse(&data).expect("delegated");
        assert!(other_rate != delegation);
        assert!(other_rate.is_same_stake(&delegation));
        data[124 + 48] = 9;
        assert!(!Delegation::parse(&data).expect("delegated").is_same_stake(&delegation));
        data[188] = 5;
        assert_eq!(Delegation::parse_credits_observed(&data), 5);
        assert_eq!(Delegation::parse_credits_observed(&data[..190]), 0);
        assert_eq!(Delegation::parse(&data[..196]), None);
        data[0] = 1;
        assert_eq!(Delegation::parse(&data), None, "initialized only");
    }

    proptest! {
        #[test]
        fn hostile_accounts_never_panic(data in proptest::collection::vec(any::<u8>(), 0..400), version in 0u8..5) {
            let data = [&[version, 0, 0, 0][..], &data].concat();
            let _ = (vote_account(&data, &VOTE, 0), Delegation::parse(&data));
        }
    }
}
