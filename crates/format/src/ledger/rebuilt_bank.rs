//! Rebuilds a bank file of Firedancer for Agave: fills in the stakes, and the fields that follow
//! from them. Corrects a few others, such as the slot time that Firedancer assumed. The rest is
//! copied.
//!
//! Firedancer's loader takes vote accounts, delegations and the stake history from the accounts, so
//! its bank files lack them. Agave takes them from the bank file, and compares them with the
//! accounts (`new_from_snapshot` in the `solana-runtime` crate).

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;

use slotpress_base::{Error, ErrorKind, Hint, Result, to_usize};

use crate::ledger::activation::StakeHistory;
use crate::ledger::stakes::{Keep, STORED_DELEGATION_BYTES, Voters, read_stakes, skip_nodes_and_voters};
use crate::ledger::votes::VoteState;
use crate::{BankFile, Delegation, FieldReader, Genesis, Hash, ScheduledLeader, Stakes, StoredAccount, VOTE, Voter};

#[derive(Clone, Debug, Default)]
pub struct StakedAccounts {
    pub vote_accounts: BTreeMap<[u8; 32], StoredAccount>,
    pub delegations: Vec<([u8; 32], Delegation)>,
    pub history: StakeHistory,
    /// Activation slot of the feature `reduce_stake_warmup_cooldown`. Since then, a smaller share
    /// of the stake may warm up or cool down in an epoch.
    pub reduced_since: Option<u64>,
    /// Seconds since the start of the epoch by the cluster's clock; `None` if the clock was never
    /// set, or the epoch has just begun.
    pub seconds_of_epoch: Option<u64>,
}

/// Rent epochs of vote accounts. Firedancer does not keep them, but Agave compares those in the
/// bank file with those in the accounts.
#[derive(Clone, Debug, Default)]
pub struct RentEpochs(HashMap<[u8; 32], u64>);

/// Rent epoch that Agave gives a rent-exempt account; on mainnet, all vote accounts have it.
const RENT_EPOCH_EXEMPT: u64 = u64::MAX;

impl RentEpochs {
    /// Takes the rent epochs from the stakes of a bank file that Agave wrote.
    pub fn of_stakes(stakes: &Stakes) -> Self {
        Self(stakes.vote_accounts.iter().map(|(address, account)| (*address, account.rent_epoch)).collect())
    }

    /// Returns the rent epoch of a vote account. If it is unknown, returns that of a
    /// rent-exempt account.
    pub fn of(&self, address: &[u8; 32]) -> u64 {
        self.0.get(address).copied().unwrap_or(RENT_EPOCH_EXEMPT)
    }
}

#[derive(Debug)]
pub struct RebuiltBank {
    source: Vec<u8>,
    delegations: Vec<([u8; 32], Delegation)>,
    pieces: Vec<Piece>,
}

#[derive(Debug)]
enum Piece {
    Kept(Range<usize>),
    Made(Vec<u8>),
    Delegations,
}

impl RebuiltBank {
    /// Rebuilds a bank file from its bytes, its parsed fields and the accounts. The genesis is
    /// needed only for a cluster whose slots are shorter than Firedancer assumes, or whose ticks
    /// have no fixed number of hashes.
    ///
    /// # Errors
    /// Agave requires something that cannot be determined.
    pub fn new(source: Vec<u8>, bank: &BankFile, accounts: StakedAccounts, genesis: Option<&Genesis>) -> Result<Self> {
        let leader = leader_of(bank)?;
        let epoch = bank.epoch();
        let genesis = genesis.map(|genesis| check_genesis(genesis, bank)).transpose()?;
        // Features only shorten slots: a bank file whose slots are longer than those of the genesis
        // is wrong.
        let faster = genesis.filter(|genesis| genesis.ns_per_slot() < bank.ns_per_slot);
        check_slot_time(faster.map_or(bank.ns_per_slot, Genesis::ns_per_slot), accounts.seconds_of_epoch, bank)?;
        if accounts.vote_accounts.is_empty() {
            return Err(cannot("the stakes: there is no vote account"));
        }
        let mut stakes: HashMap<[u8; 32], u64> = HashMap::new();
        let reduced_from = accounts.reduced_since.map(|slot| bank.epoch_of(slot));
        for (_, delegation) in &accounts.delegations {
            let effective = delegation.term().effective(epoch, &accounts.history, reduced_from);
            let stake = stakes.entry(delegation.voter()).or_default();
            *stake = stake.checked_add(effective).ok_or_else(|| cannot("the stakes: they add up to too much"))?;
        }
        let mut before = Vec::new();
        put(&mut before, &[accounts.vote_accounts.len() as u64]);
        for (address, account) in &accounts.vote_accounts {
            before.extend_from_slice(address);
            put(&mut before, &[stakes.get(address).copied().unwrap_or_default()]);
            put(&mut before, &[account.lamports, account.data.len() as u64]);
            before.extend_from_slice(&account.data);
            before.extend_from_slice(&VOTE);
            before.push(u8::from(account.is_executable));
            put(&mut before, &[account.rent_epoch]);
        }
        put(&mut before, &[accounts.delegations.len() as u64]);
        let mut after = Vec::new();
        put(&mut after, &[0, epoch, accounts.history.len() as u64]);
        // The history is written newest first.
        for (epoch, cluster) in accounts.history.iter().rev() {
            put(&mut after, &[*epoch, cluster.effective, cluster.activating, cluster.deactivating]);
        }
        let epoch_stakes = rebuild_epoch_stakes(&source, bank, &accounts.vote_accounts)?;
        let at = bank.places;
        let mut made = vec![
            (at.leader..at.leader.saturating_add(32), vec![Piece::Made(leader.0.to_vec())]),
            (at.stakes..at.stakes_end, vec![Piece::Made(before), Piece::Delegations, Piece::Made(after)]),
            // A rooted bank has had transactions or ticks.
            (at.is_delta..at.is_delta.saturating_add(1), vec![Piece::Made(vec![1])]),
            (at.epoch_stakes..at.epoch_stakes_end, vec![Piece::Made(epoch_stakes)]),
        ];
        if let Some(genesis) = faster {
            let slots_per_year = genesis.slots_per_year().to_le_bytes().to_vec();
            let (slot_at, rent_at) = (at.ns_per_slot, at.rent_slots_per_year);
            let year_at = slot_at.saturating_add(16 + 8);
            made.push((
                slot_at..slot_at.saturating_add(16),
                vec![Piece::Made(genesis.ns_per_slot().to_le_bytes().to_vec())],
            ));
            made.push((year_at..year_at.saturating_add(8), vec![Piece::Made(slots_per_year.clone())]));
            made.push((rent_at..rent_at.saturating_add(8), vec![Piece::Made(slots_per_year)]));
        }
        // If a chain has no fixed number of hashes in a tick, Firedancer writes 0 or its own
        // number, and Agave writes none.
        let option = source.get(to_usize(at.hashes_per_tick)..).and_then(|rest| rest.first_chunk::<9>());
        let is_free = genesis.is_some_and(|genesis| genesis.hashes_per_tick.is_none());
        if option.is_some_and(|option| option[0] == 1 && (is_free || *option == [1, 0, 0, 0, 0, 0, 0, 0, 0])) {
            made.push((at.hashes_per_tick..at.hashes_per_tick.saturating_add(9), vec![Piece::Made(vec![0])]));
        }
        made.sort_by_key(|(range, _)| range.start);
        let (mut pieces, mut end) = (Vec::new(), 0);
        for (range, made) in made {
            pieces.push(Piece::Kept(end..to_usize(range.start)));
            pieces.extend(made);
            end = to_usize(range.end);
        }
        pieces.push(Piece::Kept(end..source.len()));
        Ok(Self { source, delegations: accounts.delegations, pieces })
    }

    /// Refuses a bank file that cannot be rebuilt, whatever the accounts contain.
    ///
    /// # Errors
    /// Agave requires something that cannot be determined.
    pub fn check(source: &[u8], bank: &BankFile, genesis: Option<&Genesis>) -> Result<()> {
        leader_of(bank)?;
        genesis.map(|genesis| check_genesis(genesis, bank)).transpose()?;
        rebuild_epoch_stakes(source, bank, &BTreeMap::new()).map(drop)
    }

    pub fn length_bytes(&self) -> u64 {
        let bytes = |piece: &Piece| match piece {
            Piece::Kept(range) => range.len(),
            Piece::Made(bytes) => bytes.len(),
            Piece::Delegations => self.delegations.len().saturating_mul(STORED_DELEGATION_BYTES),
        };
        self.pieces.iter().map(|piece| bytes(piece) as u64).fold(0, u64::saturating_add)
    }

    /// Passes all bytes to `to`, in order.
    pub fn write(&self, to: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()> {
        for piece in &self.pieces {
            match piece {
                Piece::Kept(range) => to(self.source.get(range.clone()).unwrap_or_default())?,
                Piece::Made(bytes) => to(bytes)?,
                Piece::Delegations => {
                    for (address, delegation) in &self.delegations {
                        to(address)?;
                        to(delegation.bytes())?;
                    }
                }
            }
        }
        Ok(())
    }
}

fn leader_of(bank: &BankFile) -> Result<Hash> {
    match bank.scheduled_leader {
        ScheduledLeader::Node(leader) => Ok(leader),
        _ => Err(cannot("the leader of its slot: the epoch stakes do not tell it")),
    }
}

fn check_genesis<'a>(genesis: &'a Genesis, bank: &BankFile) -> Result<&'a Genesis> {
    match genesis.is_of(bank) {
        true => Ok(genesis),
        false => Err(Error::usage("the genesis is not that of the archive's chain")
            .with_hint("give the genesis.bin of the cluster that the archive is from")),
    }
}

/// Tolerance in seconds: the clock and the start of the epoch are whole seconds, so each may be off
/// by one.
const CLOCK_SLACK_SECONDS: u128 = 2;

/// Refuses an impossible slot duration. Validators keep the cluster's clock between 0.75 and 2.5
/// times the time that the slots of the epoch should take.
fn check_slot_time(ns_per_slot: u128, seconds_of_epoch: Option<u64>, bank: &BankFile) -> Result<()> {
    let Some(seconds) = seconds_of_epoch.map(u128::from) else { return Ok(()) };
    let slots = u128::from(bank.slot.saturating_sub(bank.first_slot_of_epoch()));
    let meant = ns_per_slot.saturating_mul(slots) / 1_000_000_000;
    let least = (meant.saturating_mul(3) / 4).saturating_sub(CLOCK_SLACK_SECONDS);
    let most = (meant.saturating_mul(5) / 2).saturating_add(CLOCK_SLACK_SECONDS);
    match (least..=most).contains(&seconds) {
        true => Ok(()),
        false => Err(cannot(&format!(
            "the time of a slot: {} ms in the bank file, but {slots} slots took {seconds} s",
            ns_per_slot / 1_000_000
        ))
        .with_hint(Hint::GiveGenesis)),
    }
}

/// Rebuilds the epoch stakes, with the nodes and authorized voters of their vote accounts. The
/// authorized voters come from the current vote accounts, which also hold those of
/// neighbouring epochs.
fn rebuild_epoch_stakes(
    source: &[u8],
    bank: &BankFile,
    vote_accounts: &BTreeMap<[u8; 32], StoredAccount>,
) -> Result<Vec<u8>> {
    let range = to_usize(bank.places.epoch_stakes)..to_usize(bank.places.epoch_stakes_end);
    let section = source.get(range).unwrap_or_default();
    let mut r = FieldReader::new(section, section.len() as u64, "the epoch stakes");
    let count = r.count("the epoch stakes", 8 + 4)?;
    let mut made = count.to_le_bytes().to_vec();
    let mut epochs = Vec::new();
    for _ in 0..count {
        let start = to_usize(r.position());
        let epoch = r.u64()?;
        r.skip(4)?;
        let mut voters = Voters::default();
        read_stakes(&mut r, "the epoch stakes", true, Keep::Voters(&mut voters))?;
        if voters.has_more {
            return Err(cannot("the epoch stakes: there are too many vote accounts"));
        }
        made.extend_from_slice(section.get(start..to_usize(r.position())).unwrap_or_default());
        skip_nodes_and_voters(&mut r)?;
        put_nodes_and_voters(&mut made, epoch, &voters.by_address(), vote_accounts)?;
        epochs.push(epoch);
    }
    // Agave requires the stakes of the epochs whose leaders are known: this one and the next.
    let epoch = bank.epoch();
    match [epoch, epoch.saturating_add(1)].into_iter().find(|epoch| !epochs.contains(epoch)) {
        Some(missing) => Err(cannot(&format!("the stakes of epoch {missing}"))),
        None => Ok(made),
    }
}

/// Does what `parse_epoch_vote_accounts` in the `solana-runtime` crate does.
fn put_nodes_and_voters(
    to: &mut Vec<u8>,
    epoch: u64,
    voters: &[Voter],
    vote_accounts: &BTreeMap<[u8; 32], StoredAccount>,
) -> Result<()> {
    let too_much = || cannot(&format!("the stakes of epoch {epoch}: they add up to too much"));
    let mut total = 0u64;
    let mut nodes: BTreeMap<[u8; 32], (Vec<[u8; 32]>, u64)> = BTreeMap::new();
    let mut authorized = Vec::new();
    for voter in voters.iter().filter(|voter| voter.stake > 0) {
        total = total.checked_add(voter.stake).ok_or_else(too_much)?;
        let state = vote_accounts.get(&voter.address).and_then(|account| VoteState::parse(&account.data));
        let Some(by) = state.and_then(|state| state.authorized_voter(epoch)) else { continue };
        let (accounts, stake) = nodes.entry(voter.node).or_default();
        accounts.push(voter.address);
        *stake = stake.saturating_add(voter.stake);
        authorized.push((voter.address, by));
    }
    put(to, &[total, nodes.len() as u64]);
    for (node, (accounts, stake)) in nodes {
        to.extend_from_slice(&node);
        put(to, &[accounts.len() as u64]);
        accounts.iter().for_each(|address| to.extend_from_slice(address));
        put(to, &[stake]);
    }
    put(to, &[authorized.len() as u64]);
    for (address, by) in authorized {
        to.extend_from_slice(&address);
        to.extend_from_slice(&by);
    }
    Ok(())
}

fn put(to: &mut Vec<u8>, numbers: &[u64]) {
    numbers.iter().for_each(|number| to.extend_from_slice(&number.to_le_bytes()));
}

/// Returns the error for a part that Agave requires and the archive does not give. `what` names the
/// part, then the reason.
pub fn cannot(what: &str) -> Error {
    Error::new(ErrorKind::Unsupported, format!("it cannot be converted for Agave, which needs {what}"))
        .with_hint("take an archive of another validator: of Agave, or of a newer Firedancer")
}
