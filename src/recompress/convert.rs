//! An archive of Firedancer's into one that Agave loads: what becomes of each entry.
//!
//! Firedancer writes all storages under the snapshot's slot, a bank file without stakes, and a status cache of one slot. Agave
//! loads one storage of a slot, takes the stakes from the bank file, and wants every slot of the slot history in the status
//! cache. All of that follows from the accounts; but the bank file comes before them, so that the source is read twice: here
//! for what they tell, and then as ever, with the entries changed on their way. The state stays as it is, and so do its
//! hash and the archive's name.

use std::borrow::Cow;
use std::collections::HashMap;
use std::path::Path;

use parking_lot::Mutex;
use slotpress_base::{Error, Hint, Progress, Result, ShowPath, split_at_most, to_usize};
use slotpress_format::ledger::rebuilt_bank::cannot;
use slotpress_format::{Entry, EntryKind, Genesis, RebuiltBank, RentEpochs, STATUS_CACHE_SLOTS_MAX, STORAGE_BYTES_MAX};
use slotpress_read::archive::{Archive, front};
use slotpress_read::{
    ArchiveRules, Contents, EntrySink, Findings, FirstPass, FoundAccounts, IndexPolicy, Pass, SeenSlots, SizeLimit,
    StateOutcome, Visitor, judge_base, read_in_order,
};

use super::base::Base;
use super::input::Input;
use super::reading::Decoded;
use super::state::{finish_state, new_state_check};
use super::{RecompressOptions, is_refused};

/// What becomes of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It stays as it is.
    Stays,
    /// It holds nothing, and is left out.
    Goes,
    /// A storage becomes this entry, or a part of it.
    Storage {
        /// The new storage.
        entry: Entry,
        /// Whether this is its first part.
        begins: bool,
        /// Whether this is its last part.
        ends: bool,
    },
    /// The bank file is replaced.
    BankFile(Entry),
    /// The status cache gets slots in front.
    StatusCache(Entry),
}

/// An archive for Agave, before it is written.
#[derive(Debug)]
pub struct Conversion {
    source: Vec<Entry>,
    fates: Vec<Fate>,
    /// What changes inside storages.
    pub rent_epochs: RentEpochPlaces,
    /// Its bank file.
    pub bank: RebuiltBank,
    /// What takes the place of the first 8 bytes of the status cache.
    pub status_cache_front: Vec<u8>,
    /// What the check of the state said.
    pub outcome: StateOutcome,
}

/// The rent epochs that vote accounts get, by the entry's number: the offset of each, in ascending order, and its value.
#[derive(Debug, Default)]
pub struct RentEpochPlaces(HashMap<u32, Vec<(u64, u64)>>);

impl RentEpochPlaces {
    /// Puts the rent epochs of vote accounts into a piece of an entry's content.
    pub fn put<'b>(&self, number: u32, offset_bytes: u64, bytes: &'b [u8]) -> Cow<'b, [u8]> {
        let mut bytes = Cow::Borrowed(bytes);
        let epochs = self.0.get(&number).map(Vec::as_slice).unwrap_or_default();
        let end = offset_bytes + bytes.len() as u64;
        let first = epochs.partition_point(|(at, _)| at + 8 <= offset_bytes);
        for (at, epoch) in epochs[first..].iter().take_while(|(at, _)| *at < end) {
            for (at, byte) in (*at..).zip(epoch.to_le_bytes()).filter(|(at, _)| (offset_bytes..end).contains(at)) {
                bytes.to_mut()[to_usize(at - offset_bytes)] = byte;
            }
        }
        bytes
    }
}

/// The count of slots that a status cache begins with, in bytes.
pub const STATUS_CACHE_COUNT_BYTES: usize = 8;

/// Bytes of Firedancer's bank file that are held: of mainnet it has some 10 MB, all in the stakes of two or three epochs.
const BANK_BYTES_MAX: u64 = 256 * 1024 * 1024;

/// A storage is no longer than this as long as there are slots for more.
const STORAGE_BYTES_AIM: u64 = 64 * 1024 * 1024;

impl Conversion {
    /// What becomes of an entry, which must be the one of this number that was surveyed.
    pub fn fate(&self, number: u32, entry: &Entry) -> Result<Fate> {
        let known = self.source.get(number as usize).zip(self.fates.get(number as usize));
        let known = known.filter(|(surveyed, _)| *surveyed == entry);
        known.map(|(_, fate)| *fate).ok_or_else(|| Error::failed("the archive has changed while it was read"))
    }

    /// The new entries, in their order.
    pub fn entries(&self) -> Vec<Entry> {
        let entry_of = |(entry, fate): (&Entry, &Fate)| match fate {
            Fate::Stays => Some(*entry),
            Fate::Goes | Fate::Storage { begins: false, .. } => None,
            Fate::Storage { entry, .. } | Fate::BankFile(entry) | Fate::StatusCache(entry) => Some(*entry),
        };
        self.source.iter().zip(&self.fates).filter_map(entry_of).collect()
    }
}

/// The error for what cannot be read twice, or not be checked.
pub fn not_possible() -> Error {
    Error::usage("an archive for Agave is made of a file, into a directory, with its state checked")
        .with_hint("save what comes from a pipe in a file first")
}

/// Reads a source of Firedancer's for what its accounts tell, and checks its state; `None` for an archive that is not
/// Firedancer's.
///
/// # Errors
/// The source is damaged; something that Agave asks for cannot be had of it.
pub fn survey(
    input: &Input<'_>,
    base: Option<(&Base, u64)>,
    base_slot: Option<u64>,
    options: &RecompressOptions,
    written: Option<&Path>,
    progress: &dyn Progress,
) -> Result<Option<Conversion>> {
    let Input::File { archive, .. } = input else { return Err(not_possible()) };
    if !front::is_of_firedancer(archive)? {
        return Ok(None);
    }
    if base_slot.is_some() && base.is_none() {
        let why = "the stakes of an incremental archive are those of its full one too";
        return Err(Error::usage(why).with_hint(Hint::GiveFullArchive));
    }
    let result = read(archive, input, base, base_slot, options, written, progress);
    result.map(Some).map_err(|error| error.within_damaged(input.place()))
}

fn read(
    archive: &Archive,
    input: &Input<'_>,
    base: Option<(&Base, u64)>,
    base_slot: Option<u64>,
    options: &RecompressOptions,
    written: Option<&Path>,
    progress: &dyn Progress,
) -> Result<Conversion> {
    progress.stage("Surveying", input.length_bytes());
    let state = new_state_check(input, base.map(|(base, _)| base), written, options)?.keeping_accounts();
    let (findings, seen_slots) = (Findings::refusing(is_refused), SeenSlots::default());
    let (size_limit, records) = (SizeLimit::new(options.check.max_bytes), state.first_pass());
    let reader = FirstPass {
        rules: ArchiveRules::new(base_slot, false, input.length_bytes(), &seen_slots, &findings),
        size_limit: &size_limit,
        records: Some(&records),
        contents: Surveyed::default(),
    };
    // In order, and not by an index: what contradicts it in the middle would have to be taken out of the sums again.
    let mut sink = reader.new_sink();
    let pass = Pass::new(options.threads, progress);
    let mut read = read_in_order(archive.stream(progress), &pass, &reader, sink.as_mut())?;
    drop(sink);
    let slots_of_cache = match &read.documents.status_cache {
        Some(Ok(cache)) => cache.slots.clone(),
        _ => Vec::new(),
    };
    let judged = reader.rules.finish(archive, &mut read)?;
    let Some((bank, map)) = judged.bank else { return Err(Error::damaged("the archive holds no bank file")) };
    if !bank.is_of_firedancer() {
        return Err(Error::damaged("the bank file is Firedancer's in its first bytes only"));
    }
    let Surveyed { entries, bank_file, .. } = reader.contents;
    let entries = entries.into_inner();
    let bank_file = bank_file.into_inner();
    let input_bytes = archive.length_bytes();
    let decoded = Decoded { entries, bank, map, input_bytes, left_out: 0 };
    let (outcome, state) = finish_state(state, &decoded, input, base, None, options, progress)?;
    let Decoded { entries, bank, .. } = decoded;
    let mut accounts = state.into_accounts()?;
    if accounts.are_rewards_active && options.incremental.is_some() {
        progress.warn(
            "rewards were being paid out, and to whom is not in the archive: use it with its incremental archive only",
        );
    } else if accounts.are_rewards_active {
        return Err(cannot("rewards: those of the last epoch were being paid out, and to whom is not in the archive")
            .with_hint("take an archive of a later slot: the payment takes the first minutes of an epoch"));
    }
    if bank_file.len() as u64 != bank.length_bytes {
        return Err(Error::failed(format!("a bank file of more than {BANK_BYTES_MAX} bytes")));
    }
    let status_cache_front = status_cache_front(&slots_of_cache, &accounts.newest_slots, bank.slot)?;
    let known =
        options.incremental.as_deref().map(|path| rent_epochs_of(path, bank.slot, options, progress)).transpose()?;
    let rent_epochs = set_rent_epochs(&mut accounts, &entries, &known.unwrap_or_default());
    let genesis = options.genesis.as_deref().map(Genesis::read).transpose()?;
    let bank_file = RebuiltBank::new(bank_file, &bank, accounts.staked, genesis.as_ref())?;
    let mut fates = place_storages(&entries, base_slot.unwrap_or_default(), bank.slot)?;
    for (entry, fate) in entries.iter().zip(&mut fates) {
        match entry.kind {
            EntryKind::BankFile(_) => {
                *fate = Fate::BankFile(Entry { content_bytes: bank_file.length_bytes(), ..*entry });
            }
            EntryKind::StatusCache => {
                let added = (status_cache_front.len() - STATUS_CACHE_COUNT_BYTES) as u64;
                *fate = Fate::StatusCache(Entry { content_bytes: entry.content_bytes + added, ..*entry });
            }
            _ => {}
        }
    }
    Ok(Conversion { source: entries, fates, rent_epochs, bank: bank_file, status_cache_front, outcome })
}

/// Where the rent epoch of a record is.
const RENT_EPOCH_AT: u64 = 56;

/// Gives the vote accounts that Firedancer wrote their rent epochs; returns where those of the archive's own entries are.
/// Of a full archive of Firedancer's below it, the conversion does the same.
fn set_rent_epochs(accounts: &mut FoundAccounts, entries: &[Entry], epochs: &RentEpochs) -> RentEpochPlaces {
    let is_storage = |(_, entry): &(u32, &Entry)| matches!(entry.kind, EntryKind::Storage { .. });
    let storages: Vec<u32> = (0..).zip(entries).filter(is_storage).map(|(number, _)| number).collect();
    let mut places: HashMap<u32, Vec<(u64, u64)>> = HashMap::new();
    for (address, account) in &mut accounts.staked.vote_accounts {
        let Some((storage, offset_bytes)) = accounts.vote_records.get(address) else { continue };
        let own = storages.get(*storage as usize);
        if own.is_none() && *storage < accounts.rent_epochs_lost_from {
            continue;
        }
        account.rent_epoch = epochs.of(address);
        if let Some(number) = own {
            places.entry(*number).or_default().push((offset_bytes + RENT_EPOCH_AT, account.rent_epoch));
        }
    }
    places.values_mut().for_each(|places| places.sort_unstable());
    RentEpochPlaces(places)
}

/// The rent epochs of vote accounts in an incremental archive of Agave's, which is to go on the full one of `base_slot`; none
/// of one of Firedancer's.
fn rent_epochs_of(
    path: &Path,
    base_slot: u64,
    options: &RecompressOptions,
    progress: &dyn Progress,
) -> Result<RentEpochs> {
    let read = || {
        let archive = Archive::open(path, IndexPolicy::Hint, &options.io_policy)?;
        let named = archive.name.as_ref().map_or(Some(base_slot), |name| name.base_slot);
        judge_base(named, Some(base_slot), None, &Findings::refusing(|_| true))?;
        progress.stage("Surveying", Some(archive.length_bytes()));
        Ok(RentEpochs::of_stakes(&front::whole_bank(&archive, options.threads, progress)?.stakes))
    };
    read().map_err(|error: Error| error.within_damaged(path.shown()))
}

/// What takes the place of the count that a status cache of `cached` slots begins with: a larger count, and an empty item for
/// each of the newest slots that it lacks. Agave wants them all (`verify_slot_deltas` in the `solana-runtime` crate), and none
/// that the slot history does not know.
fn status_cache_front(cached: &[u64], newest: &[u64], bank_slot: u64) -> Result<Vec<u8>> {
    if newest.first() != Some(&bank_slot) {
        return Err(cannot("the status cache: the slot history does not end at the bank's slot"));
    }
    if let Some(slot) = cached.iter().find(|slot| !newest.contains(slot)) {
        return Err(cannot(&format!("the status cache: its slot {slot} is not in the slot history")));
    }
    let lacking: Vec<u64> = newest.iter().copied().filter(|slot| !cached.contains(slot)).collect();
    debug_assert!(newest.len() as u64 <= STATUS_CACHE_SLOTS_MAX);
    let mut front = ((cached.len() + lacking.len()) as u64).to_le_bytes().to_vec();
    for slot in lacking {
        front.extend_from_slice(&slot.to_le_bytes());
        front.push(1); // a root
        front.extend_from_slice(&0u64.to_le_bytes());
    }
    Ok(front)
}

/// Gives each storage a slot of its own, in ascending order, the last of which is `slot`; all are above `base_slot`. Where there
/// are more storages than slots, neighbours become one. Of the records of an account the last in the stream is then that of
/// the highest slot, as it is for Firedancer.
fn place_storages(entries: &[Entry], base_slot: u64, slot: u64) -> Result<Vec<Fate>> {
    let slots = slot.saturating_sub(base_slot);
    let mut aim_bytes = STORAGE_BYTES_AIM;
    let alone = groups(entries, 0)?;
    let (groups, count) = match alone {
        (_, count) if count <= slots => alone,
        _ => loop {
            let found = groups(entries, aim_bytes)?;
            match found.1 <= slots {
                true => break found,
                false if aim_bytes >= STORAGE_BYTES_MAX => {
                    return Err(cannot(&format!("slots: there are {slots} for all storages")));
                }
                false => aim_bytes = aim_bytes.saturating_mul(2).min(STORAGE_BYTES_MAX),
            }
        },
    };
    // Of each new storage: its first part, its last, its length.
    let mut spans = vec![(usize::MAX, 0usize, 0u64); to_usize(count)];
    for (at, entry) in entries.iter().enumerate() {
        if let Some((first, last, bytes)) = groups[at].and_then(|group| spans.get_mut(to_usize(group))) {
            (*first, *last, *bytes) = (at.min(*first), at, *bytes + entry.content_bytes);
        }
    }
    let fate = |(at, entry): (usize, &Entry)| match (entry.kind, groups[at]) {
        (EntryKind::Storage { .. }, None) => Fate::Goes,
        (_, None) => Fate::Stays,
        (_, Some(group)) => {
            let (first, last, content_bytes) = spans[to_usize(group)];
            let kind = EntryKind::Storage { slot: slot - count + 1 + group, id: group as u32 + 1 };
            Fate::Storage { entry: Entry { kind, content_bytes }, begins: at == first, ends: at == last }
        }
    };
    Ok(entries.iter().enumerate().map(fate).collect())
}

/// For each entry the number of the new storage that it goes into, and how many of those there are: neighbours together as
/// long as they have `aim_bytes` at most.
fn groups(entries: &[Entry], aim_bytes: u64) -> Result<(Vec<Option<u64>>, u64)> {
    let (mut count, mut group_bytes, mut is_open) = (0u64, 0u64, false);
    let mut groups = Vec::with_capacity(entries.len());
    for entry in entries {
        if !matches!(entry.kind, EntryKind::Storage { .. }) {
            is_open = false;
            groups.push(None);
            continue;
        }
        if entry.content_bytes == 0 {
            groups.push(None);
            continue;
        }
        // Records start at multiples of 8.
        let fits = is_open && group_bytes.is_multiple_of(8) && group_bytes + entry.content_bytes <= aim_bytes;
        if !fits {
            (count, group_bytes, is_open) = (count + 1, 0, true);
        }
        group_bytes += entry.content_bytes;
        if u32::try_from(count).is_err() {
            return Err(cannot("ids for all storages"));
        }
        groups.push(Some(count - 1));
    }
    Ok((groups, count))
}

/// The entries, and the bytes of the bank file.
#[derive(Default)]
struct Surveyed {
    entries: Mutex<Vec<Entry>>,
    bank_file: Mutex<Vec<u8>>,
}

impl Contents for Surveyed {
    const ARE_FOR_SINK: bool = true;

    fn entry(&self, entry: &Entry) -> Result<()> {
        self.entries.lock().push(*entry);
        Ok(())
    }

    fn new_sink(&self) -> Box<dyn EntrySink + '_> {
        Box::new(BankFileSink { to: &self.bank_file, is_bank_file: false })
    }
}

/// Takes the bank file, as long as it is not too long.
struct BankFileSink<'a> {
    to: &'a Mutex<Vec<u8>>,
    is_bank_file: bool,
}

impl EntrySink for BankFileSink<'_> {
    fn begin(&mut self, _: u32, entry: &Entry, _: u64) -> Result<()> {
        self.is_bank_file = matches!(entry.kind, EntryKind::BankFile(_));
        if self.is_bank_file {
            self.to.lock().clear();
        }
        Ok(())
    }

    fn content(&mut self, _: u64, bytes: &[u8]) -> Result<()> {
        if self.is_bank_file {
            let mut held = self.to.lock();
            let room = to_usize(BANK_BYTES_MAX).saturating_sub(held.len());
            held.extend_from_slice(split_at_most(bytes, room).0);
        }
        Ok(())
    }

    fn end(&mut self, _: &Entry) -> Result<()> {
        self.is_bank_file = false;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn storages(lengths: &[u64]) -> Vec<Entry> {
        let storage =
            |(id, length): (u32, &u64)| Entry { kind: EntryKind::Storage { slot: 100, id }, content_bytes: *length };
        (0..).zip(lengths).map(storage).collect()
    }

    /// Slot, length, and how many parts it has, of each new storage.
    fn placed(entries: &[Entry], base_slot: u64, slot: u64) -> Vec<(u64, u64, usize)> {
        let fates = place_storages(entries, base_slot, slot).expect("placed");
        let mut placed: Vec<(u64, u64, usize)> = Vec::new();
        let mut is_open = false;
        for fate in fates {
            if let Fate::Storage { entry, begins, ends } = fate {
                let EntryKind::Storage { slot, id } = entry.kind else { panic!("a storage") };
                assert_eq!(begins, !is_open);
                is_open = !ends;
                if begins {
                    assert_eq!(id as usize, placed.len() + 1);
                    placed.push((slot, entry.content_bytes, 0));
                }
                placed.last_mut().expect("begun").2 += 1;
            }
        }
        assert!(!is_open);
        placed
    }

    #[test]
    fn each_storage_has_a_slot() {
        assert_eq!(placed(&storages(&[8, 0, 16]), 0, 100), [(99, 8, 1), (100, 16, 1)]);
        assert_eq!(placed(&storages(&[8, 16, 24]), 97, 100), [(98, 8, 1), (99, 16, 1), (100, 24, 1)]);
        // More storages than slots: neighbours together.
        assert_eq!(placed(&storages(&[8, 16, 24]), 99, 100), [(100, 48, 3)]);
        const M: u64 = 1 << 20;
        assert_eq!(placed(&storages(&[32 * M; 5]), 97, 100), [(98, 64 * M, 2), (99, 64 * M, 2), (100, 32 * M, 1)]);
        assert_eq!(placed(&storages(&[32 * M; 5]), 98, 100), [(99, 128 * M, 4), (100, 32 * M, 1)]);
        // A record does not begin where it would not be found.
        assert!(place_storages(&storages(&[9, 16]), 99, 100).is_err());
        assert!(place_storages(&storages(&[STORAGE_BYTES_MAX, 8]), 99, 100).is_err(), "no storage is so long");
        assert!(place_storages(&storages(&[8]), 100, 100).is_err(), "no slot");
        let mut apart = storages(&[8, 8]);
        apart.insert(1, Entry { kind: EntryKind::StatusCache, content_bytes: 1 });
        assert!(place_storages(&apart, 99, 100).is_err(), "something between them");
    }

    proptest! {
        /// Whatever lengths there are, what is placed is all of it, in its order, in slots that are free.
        #[test]
        fn nothing_is_lost(lengths in proptest::collection::vec(0u64..1000, 1..60), slots in 1u64..80) {
            let entries = storages(&lengths.iter().map(|length| length * 8).collect::<Vec<_>>());
            let placed = placed(&entries, 100 - slots, 100);
            prop_assert!(placed.len() as u64 <= slots);
            prop_assert_eq!(placed.iter().map(|it| it.1).sum::<u64>(), entries.iter().map(|it| it.content_bytes).sum::<u64>());
            prop_assert_eq!(placed.iter().map(|it| it.2).sum::<usize>(), lengths.iter().filter(|it| **it > 0).count());
            prop_assert!(placed.windows(2).all(|pair| pair[0].0 + 1 == pair[1].0));
            prop_assert!(placed.last().is_none_or(|it| it.0 == 100));
        }
    }

    proptest! {
        /// However a content comes in pieces.
        #[test]
        fn rent_epochs_are_put_in_their_places(
            gaps in proptest::collection::vec(1u64..4, 0..6),
            cuts in proptest::collection::vec(0usize..200, 0..8),
        ) {
            let places: Vec<(u64, u64)> =
                gaps.iter().scan(0, |at, gap| { *at += gap * 8; Some((*at, u64::MAX - *at)) }).collect();
            let rent_epochs = RentEpochPlaces(HashMap::from([(7, places.clone())]));
            let content = vec![1; 200];
            let mut expected = content.clone();
            for (at, epoch) in &places {
                expected[*at as usize..*at as usize + 8].copy_from_slice(&epoch.to_le_bytes());
            }
            let mut cuts = [&cuts[..], &[0, 200]].concat();
            cuts.sort_unstable();
            let pieces = |number| -> Vec<u8> {
                let piece = |ends: &[usize]| rent_epochs.put(number, ends[0] as u64, &content[ends[0]..ends[1]]).into_owned();
                cuts.windows(2).flat_map(piece).collect()
            };
            prop_assert!(pieces(7) == expected);
            prop_assert!(pieces(6) == content, "another entry");
        }
    }

    /// Those of the archive itself, and of a full one of Firedancer's below it; Agave's full archive stays as it is.
    #[test]
    fn vote_accounts_get_rent_epochs() {
        use slotpress_format::{StakedAccounts, Stakes, StoredAccount, VoteAccount};
        let account =
            |rent_epoch| StoredAccount { lamports: 1, is_executable: false, rent_epoch, data: Box::default() };
        // Of two storages and a base of one.
        let records = [([1; 32], (1, 800)), ([2; 32], (1, 8)), ([3; 32], (0, 16)), ([4; 32], (2, 0))];
        let stakes = Stakes {
            vote_accounts: vec![([1; 32], VoteAccount::new(1, &[0; 32], false, 7, &[]))],
            ..Stakes::default()
        };
        let mut entries = storages(&[1000, 1000]);
        entries.insert(0, Entry { kind: EntryKind::Version, content_bytes: 5 });
        for (rent_epochs_lost_from, of_base) in [(u32::MAX, 5), (2, u64::MAX)] {
            let vote_accounts = records.iter().map(|(address, _)| (*address, account(5))).collect();
            let mut accounts = FoundAccounts {
                staked: StakedAccounts { vote_accounts, ..StakedAccounts::default() },
                vote_records: records.into_iter().collect(),
                rent_epochs_lost_from,
                newest_slots: Vec::new(),
                are_rewards_active: false,
            };
            let places = set_rent_epochs(&mut accounts, &entries, &RentEpochs::of_stakes(&stakes));
            let found: Vec<u64> = accounts.staked.vote_accounts.values().map(|it| it.rent_epoch).collect();
            assert_eq!(found, [7, u64::MAX, u64::MAX, of_base]);
            let expected = [(1, vec![(72, u64::MAX)]), (2, vec![(64, u64::MAX), (856, 7)])];
            assert_eq!(places.0, HashMap::from(expected), "by the number of the entry");
        }
    }

    #[test]
    fn the_status_cache_gets_the_slots_that_it_lacks() {
        let front = status_cache_front(&[9], &[9, 7, 3], 9).expect("made");
        let item = |slot: u64| [&slot.to_le_bytes()[..], &[1], &[0; 8]].concat();
        assert_eq!(front, [&3u64.to_le_bytes()[..], &item(7), &item(3)].concat());
        assert!(status_cache_front(&[9], &[8, 7], 9).is_err(), "a history of another slot");
        assert!(status_cache_front(&[9, 5], &[9, 7], 9).is_err(), "a slot without a block");
    }
}
