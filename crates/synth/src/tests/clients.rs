//! Reads a ledger from disk, and makes the checks that Agave and Firedancer make when they load a state
//! (docs/snapshot-format.md#archive; Agave's checks are in `bank_from_snapshot_archives` of the
//! `solana-runtime` crate).

use std::io::BufRead;

use slotpress_format::ledger::leaders::compute_leader;
use slotpress_format::ledger::stakes::StakesKind;
use slotpress_format::{Address, BankHashParts, Hash, Voter, parse_status_cache};

use super::*;
use crate::sysvars::{SLOT_HISTORY, SLOT_HISTORY_SLOTS, SYSVAR_OWNER};

struct VoteAccountFields {
    address: Key,
    stake: u64,
    lamports: u64,
    data: Vec<u8>,
}

/// Parts of a bank file that `ledger::bank_file` skips.
struct BankParts {
    queue: Vec<(Key, u64)>,
    queue_last_index: u64,
    queue_last_hash: Key,
    vote_accounts: Vec<VoteAccountFields>,
    delegations: Vec<DelegationFields>,
    history: Vec<[u64; 4]>,
    epochs: Vec<EpochParts>,
}

struct DelegationFields {
    stake_account: Key,
    voter: Key,
    /// Lamports, activation epoch, deactivation epoch, rate.
    fields: [u64; 4],
}

struct EpochParts {
    epoch: u64,
    vote_accounts: Vec<VoteAccountFields>,
    total_stake: u64,
    nodes: Vec<NodeFields>,
    authorized_voters: Vec<(Key, Key)>,
}

#[derive(PartialEq, Debug)]
struct NodeFields {
    address: Key,
    vote_accounts: Vec<Key>,
    stake: u64,
}

struct StakesFields {
    vote_accounts: Vec<VoteAccountFields>,
    delegations: Vec<DelegationFields>,
    history: Vec<[u64; 4]>,
}

fn read_list<R: BufRead, T>(reader: &mut FieldReader<R>, mut item: impl FnMut(&mut FieldReader<R>) -> T) -> Vec<T> {
    let count = reader.u64().expect("a count");
    (0..count).map(|_| item(reader)).collect()
}

fn read_key<R: BufRead>(reader: &mut FieldReader<R>) -> Key {
    reader.array().expect("a key")
}

fn read_number<R: BufRead>(reader: &mut FieldReader<R>) -> u64 {
    reader.u64().expect("a number")
}

fn read_stakes<R: BufRead>(reader: &mut FieldReader<R>, kind: StakesKind) -> StakesFields {
    let vote_accounts = read_list(reader, |reader| {
        let address = read_key(reader);
        let stake = read_number(reader);
        let lamports = read_number(reader);
        let data = read_list(reader, |reader| reader.u8().expect("a byte"));
        assert_eq!(read_key(reader), keys::VOTE);
        assert_eq!(reader.u8().expect("a flag"), 0, "not executable");
        assert_eq!(read_number(reader), u64::MAX, "the rent epoch");
        VoteAccountFields { address, stake, lamports, data }
    });
    let delegations = read_list(reader, |reader| {
        let stake_account = read_key(reader);
        let voter = read_key(reader);
        let fields = [0; 4].map(|_| read_number(reader));
        if kind == StakesKind::Epoch {
            read_number(reader);
        }
        DelegationFields { stake_account, voter, fields }
    });
    reader.skip(16).expect("unused, epoch");
    let history = read_list(reader, |reader| [0; 4].map(|_| read_number(reader)));
    StakesFields { vote_accounts, delegations, history }
}

fn parse_bank(path: &Path) -> BankParts {
    let mut reader = FieldReader::open(path, "the bank file").expect("a bank file");
    let queue_last_index = read_number(&mut reader);
    assert_eq!(reader.u8().expect("a flag"), 1);
    let queue_last_hash = read_key(&mut reader);
    let queue = read_list(&mut reader, |reader| {
        let hash = read_key(reader);
        let _fee = read_number(reader);
        let index = read_number(reader);
        let _time = read_number(reader);
        (hash, index)
    });
    reader.skip(8 + 8 + 64 + 8).expect("age, ancestors, hashes, parent");
    read_list(&mut reader, |reader| reader.skip(16));
    reader.skip(5 * 8 + 9 + 8 + 16 + 8 + 8 + 8 + 3 * 8 + 32 + 16 + 33 + 8).expect("fields");
    reader.skip(8 + 33 + 8 + 8 + 8 + 1 + 33 + 6 * 8).expect("rent collector, epoch schedule, inflation");
    let StakesFields { vote_accounts, delegations, history } = read_stakes(&mut reader, StakesKind::Bank);
    reader.skip(4 * 8 + 1).expect("unused");
    read_list(&mut reader, |reader| {
        reader.skip(8).expect("a slot");
        read_list(reader, |reader| reader.skip(16));
    });
    reader.skip(8 + 8 + 64 + 5 * 8 + 16 + 8 + 2).expect("fields");
    let epochs = read_list(&mut reader, |reader| {
        let epoch = read_number(reader);
        reader.skip(4).expect("a tag");
        let vote_accounts = read_stakes(reader, StakesKind::Epoch).vote_accounts;
        let total_stake = read_number(reader);
        let nodes = read_list(reader, |reader| NodeFields {
            address: read_key(reader),
            vote_accounts: read_list(reader, read_key),
            stake: read_number(reader),
        });
        let authorized_voters = read_list(reader, |reader| (read_key(reader), read_key(reader)));
        EpochParts { epoch, vote_accounts, total_stake, nodes, authorized_voters }
    });
    reader.skip(1 + 2048 + 1 + 32).expect("lattice hash, block id");
    reader.expect_end().expect("the end");
    BankParts { queue, queue_last_index, queue_last_hash, vote_accounts, delegations, history, epochs }
}

/// Results of a slot in the status cache.
struct StatusSlot {
    slot: u64,
    is_root: bool,
    blockhashes: Vec<StatusBlockhash>,
}

struct StatusBlockhash {
    hash: Key,
    /// Offset at which the hashes of transactions are cut.
    offset: u64,
    transactions: u64,
}

fn parse_status_slots(path: &Path) -> Vec<StatusSlot> {
    let mut reader = FieldReader::open(path, "the status cache").expect("a status cache");
    let slots = read_list(&mut reader, |reader| {
        let slot = read_number(reader);
        let is_root = reader.u8().expect("a flag") == 1;
        let blockhashes = read_list(reader, |reader| {
            let hash = read_key(reader);
            let offset = read_number(reader);
            let results = read_list(reader, |reader| {
                reader.skip(20).expect("a transaction");
                if reader.u32().expect("a result") == 1 {
                    reader.skip(4 + 1 + 4 + 4).expect("an instruction's error");
                }
            });
            StatusBlockhash { hash, offset, transactions: results.len() as u64 }
        });
        StatusSlot { slot, is_root, blockhashes }
    });
    reader.expect_end().expect("the end");
    slots
}

fn assert_clients_load(state: &SynthState) {
    let read = read_state(state);
    let accounts = newest_accounts(&read);
    let bank_snapshot = state.path.join(format!("snapshots/{}", state.slot));
    let parts = parse_bank(&bank_snapshot.join(state.slot.to_string()));
    let status = parse_status_slots(&bank_snapshot.join("status_cache"));

    assert_blockhashes_are_valid(&read, &parts);
    assert_bank_hash_is_valid(&read.bank);
    let history = &accounts[&SLOT_HISTORY];
    assert_eq!(history.0.owner, SYSVAR_OWNER);
    assert_status_cache_is_valid(&status, &parts, &slots_of_history(history.1, state.slot));
    let fields = FieldReader::open(&bank_snapshot.join("status_cache"), "the status cache").expect("a status cache");
    parse_status_cache(fields, state.slot).expect("slotpress reads it");
    assert_stakes_have_accounts(&parts, &accounts);
    assert_epochs_are_valid(&read.bank, &parts);
}

/// Checks that indexes are consecutive, and blockhashes distinct.
fn assert_blockhashes_are_valid(read: &ReadState, parts: &BankParts) {
    let mut queue = parts.queue.clone();
    queue.sort_by_key(|(_, index)| *index);
    assert_eq!(queue.len(), 301);
    assert!(queue.windows(2).all(|pair| pair[0].1 + 1 == pair[1].1), "no gaps");
    assert_eq!(queue.last(), Some(&(parts.queue_last_hash, parts.queue_last_index)));
    assert_eq!(queue.iter().map(|(hash, _)| hash).collect::<HashSet<_>>().len(), queue.len(), "no duplicates");
    assert_eq!(parts.queue_last_index, read.bank.block_height);
}

fn assert_bank_hash_is_valid(bank: &BankFile) {
    let parts = BankHashParts {
        parent_hash: bank.parent_hash,
        signature_count: bank.signature_count,
        last_blockhash: bank.blockhashes.last.expect("a blockhash"),
        lattice_hash: &bank.lattice_hash,
        hard_fork_count: 0, // the only hard fork was before the parent
    };
    assert_eq!(parts.hash(), bank.hash);
    assert_ne!(bank.hash, Hash([0; 32]));
    assert!((bank.slot - 2..bank.slot).contains(&bank.parent_slot), "{} and {}", bank.parent_slot, bank.slot);
    assert_eq!((bank.ticks_per_slot, bank.genesis_creation_time), (64, 1_584_368_940), "as in genesis.bin");
    assert_eq!(bank.max_tick_height, (bank.slot + 1) * 64);
}

/// Returns the slots with a block, newest first.
fn slots_of_history(data: &[u8], bank_slot: u64) -> Vec<u64> {
    let expected_bytes = 1 + 8 + SLOT_HISTORY_SLOTS as usize / 8 + 8 + 8;
    assert_eq!((data.len(), data[0]), (expected_bytes, 1));
    let word = |index: u64| {
        let offset = 1 + 8 * index as usize;
        u64::from_le_bytes(data[offset..offset + 8].try_into().expect("8 bytes"))
    };
    let word_count = SLOT_HISTORY_SLOTS / 64;
    assert_eq!((word(0), word(1 + word_count)), (word_count, SLOT_HISTORY_SLOTS));
    let next_slot = word(2 + word_count);
    assert_eq!(next_slot, bank_slot + 1, "the newest slot is the bank's");
    let has_block = |slot: &u64| {
        let bit = slot % SLOT_HISTORY_SLOTS;
        word(1 + bit / 64) >> (bit % 64) & 1 == 1
    };
    (next_slot - SLOT_HISTORY_SLOTS..next_slot).rev().filter(has_block).collect()
}

fn assert_status_cache_is_valid(status: &[StatusSlot], parts: &BankParts, history: &[u64]) {
    assert!(status.len() <= 300);
    assert!(status.iter().all(|slot| slot.is_root), "all are rooted");
    let slots: Vec<u64> = status.iter().map(|slot| slot.slot).collect();
    assert_eq!(slots.iter().collect::<HashSet<_>>().len(), slots.len(), "each slot once");
    assert_eq!(slots, history[..slots.len()], "the newest slots of the slot history");

    let queue: HashSet<Key> = parts.queue.iter().map(|(hash, _)| *hash).collect();
    let mut offsets = HashMap::new();
    let mut transactions = 0;
    for StatusSlot { slot, blockhashes, .. } in status {
        let mut seen = HashSet::new();
        for StatusBlockhash { hash, offset, transactions: count } in blockhashes {
            assert!(seen.insert(hash), "each blockhash once in slot {slot}");
            assert!(queue.contains(hash), "the queue has the blockhash");
            assert_ne!(*hash, parts.queue_last_hash, "not the newest");
            assert_eq!(offsets.insert(*hash, *offset).unwrap_or(*offset), *offset, "one offset throughout");
            assert!(*offset < 32 - 20);
            transactions += count;
        }
    }
    assert!(transactions >= 300, "{transactions}");
    assert!(offsets.values().collect::<HashSet<_>>().len() > 5, "{offsets:?}");
}

/// Checks that every vote account and delegation in the bank file equals an account.
fn assert_stakes_have_accounts(parts: &BankParts, accounts: &HashMap<Key, (RecordHeader, &[u8])>) {
    assert!(!parts.vote_accounts.is_empty());
    assert!(parts.delegations.len() >= parts.vote_accounts.len());
    let mut in_effect: HashMap<Key, u64> = HashMap::new();
    for delegation in &parts.delegations {
        let (header, data) = &accounts[&delegation.stake_account];
        assert_eq!((header.owner, data.len(), data[0]), (keys::STAKE, 200, 2));
        let numbers = [156, 164, 172, 180, 4].map(|at| u64::from_le_bytes(data[at..at + 8].try_into().expect("8")));
        assert_eq!((&data[124..156], &numbers[..4]), (&delegation.voter[..], &delegation.fields[..]));
        assert_eq!(header.lamports, numbers[0] + numbers[4], "stake and rent reserve");
        // A delegation that ends in the running epoch is still in effect.
        if delegation.fields[2] > parts.history[0][0] {
            *in_effect.entry(delegation.voter).or_default() += delegation.fields[0];
        }
        let is_cached = parts.vote_accounts.iter().any(|vote_account| vote_account.address == delegation.voter);
        let exists = accounts.contains_key(&delegation.voter);
        assert!(is_cached || !exists, "the bank file lacks a vote account");
    }
    for VoteAccountFields { address, stake, lamports, data } in &parts.vote_accounts {
        let (header, account_data) = &accounts[address];
        assert_eq!((header.owner, header.lamports, *account_data), (keys::VOTE, *lamports, &data[..]));
        assert_eq!(Some(stake), in_effect.get(address));
    }
    // The bank file must have all vote accounts and delegated stakes.
    let is_vote_account = |account: &&(RecordHeader, &[u8])| account.0.owner == keys::VOTE && account.0.lamports > 0;
    assert_eq!(accounts.values().filter(is_vote_account).count(), parts.vote_accounts.len());
    let is_delegated =
        |account: &&(RecordHeader, &[u8])| account.0.owner == keys::STAKE && account.1.first() == Some(&2);
    assert_eq!(accounts.values().filter(is_delegated).count(), parts.delegations.len());
    // The sysvar must equal the bank file's stake history.
    let sysvar = accounts.values().find(|(header, data)| header.owner == SYSVAR_OWNER && data.len() == 16_392);
    let mut expected = (parts.history.len() as u64).to_le_bytes().to_vec();
    expected.extend(parts.history.iter().flatten().flat_map(|field| field.to_le_bytes()));
    assert_eq!(sysvar.expect("the stake history").1[..expected.len()], expected);
}

/// Checks that this epoch and the next one have stakes, whose parts agree, and that the leader is that of the
/// leader schedule.
fn assert_epochs_are_valid(bank: &BankFile, parts: &BankParts) {
    let epochs: Vec<u64> = parts.epochs.iter().map(|epoch| epoch.epoch).collect();
    assert_eq!(epochs.iter().max(), Some(&(bank.epoch() + 1)));
    assert!(epochs.contains(&bank.epoch()));
    for epoch in &parts.epochs {
        let stakes = epoch.vote_accounts.iter().map(|vote_account| vote_account.stake);
        assert_eq!(epoch.total_stake, stakes.sum::<u64>());
        let nodes = epoch.vote_accounts.iter().map(|vote_account| NodeFields {
            address: vote_account.data[4..36].try_into().expect("a key"),
            vote_accounts: vec![vote_account.address],
            stake: vote_account.stake,
        });
        assert_eq!(epoch.nodes, nodes.collect::<Vec<_>>());
        let has_voter = |(voter, node): (&(Key, Key), &NodeFields)| *voter == (node.vote_accounts[0], node.address);
        assert!(epoch.authorized_voters.iter().zip(&epoch.nodes).all(has_voter));
        if epoch.epoch == bank.epoch() {
            let voters = epoch.nodes.iter().map(|node| Voter {
                stake: node.stake,
                address: node.vote_accounts[0],
                node: node.address,
            });
            let leader = compute_leader(epoch.epoch, bank.slot % bank.epoch_schedule.slots_per_epoch, voters.collect());
            assert_eq!(leader.map(|leader| Address(leader.node)), Some(bank.leader));
        }
    }
}

#[test]
fn clients_load_both_states() {
    let temporary = tempfile::tempdir().expect("a directory");
    let out = temporary.path().join("ledger");
    // A ledger with one storage, a full state that ends before a slot without a block, and a ledger with more
    // storages than blockhashes.
    for (size, storage_count) in [(SIZE_BYTES_MIN, Some(1)), (1 << 20, Some(19)), (16 << 20, None)] {
        let incremental_bytes = Some(INCREMENTAL_BYTES_MIN);
        let report = make(&SynthOptions { incremental_bytes, storage_count, ..options(&out, size) });
        report.states.iter().for_each(assert_clients_load);
        fs::remove_dir_all(&out).expect("removed");
    }
}

/// The ledger has so many storages that its slots reach into the next epoch.
#[test]
fn stakes_of_a_large_ledger_fit_its_epochs() {
    let options = options(Path::new(""), 1 << 30).storage_count(500_000u64).incremental_bytes(1u64 << 20);
    let layout = SynthLayout::new(&options);
    let last_storage = layout.storage_count() - 1;
    let epoch = chain::epoch_of(SynthLayout::slot(last_storage));
    assert_eq!(epoch, chain::epoch_of(chain::FIRST_SLOT) + 1);
    let stakes = layout.stakes(last_storage);
    assert!(stakes.delegations().all(|stake| stake.activation_epoch < epoch));
    assert_eq!(stakes.delegation(3), layout.stakes(0).delegation(3));
    assert_eq!(stakes.history(epoch)[0][0], epoch - 1);
    // The stake account of each delegation must be in exactly one storage.
    let ranges =
        (0..layout.storage_count()).map(|storage| layout.delegations(storage)).filter(|range| !range.is_empty());
    let mut next_delegation = 0;
    for range in ranges {
        assert_eq!(range.start, next_delegation);
        next_delegation = range.end;
    }
    assert_eq!(next_delegation, stakes.counts.delegations);
}
