//! Sorts the records of a storage so that similar ones are adjacent, which compresses better.
//!
//! The order of a storage's records has no meaning. Some bytes of each record have no meaning
//! either (docs/snapshot-format.md#records): `write_version`, the bytes after the executable flag,
//! the stored hash, and the padding after the data. Clustering sorts records and zeroes those
//! bytes. Everything else, and every length, stays the same.
//!
//! A storage that spans several frames is sorted in pieces, one per frame. Whole records of a piece are
//! sorted within it; a record that is cut at an end of the piece stays in place. So a sorted piece
//! fills the same range of the file as before, and memory depends on the size of the frame, not of the
//! storage. From the previous piece, only the [`RecordPosition`] at its end is needed.
//!
//! To move little memory, keys are sorted instead of records: one walk over the headers computes a
//! key of 8 bytes per record, and one pass copies the records in the order of the sorted keys.

use std::ops::Range;

use slotpress_format::ledger::record::{align8, field};
use slotpress_format::{RECORD_HEADER_BYTES, RecordStart};

/// Position of the walk over a storage's records at the end of a piece.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RecordPosition {
    /// The next record begins at this offset of the storage.
    RecordAt(u64),
    /// The piece ends inside the header of the record at this offset. The bytes are the
    /// header's beginning.
    Header(u64, Vec<u8>),
    /// No records follow in the storage, or the walk gave up in an earlier piece. The rest stays unchanged.
    Ended,
    /// The walk gives up in this piece: its bytes are not valid records, or the records are too many.
    /// The rest of the storage stays unchanged.
    GivenUp,
}

pub const STORAGE_START: RecordPosition = RecordPosition::RecordAt(0);

/// Sorts the records of one piece after another, and reuses its memory: about 60 bytes per record.
#[derive(Debug, Default)]
pub struct Clusterer {
    records: Vec<Range<u32>>,
    /// Sort key of each record; the lowest bits are its index in `records`.
    keys: Vec<u64>,
    address_hashes: Vec<u64>,
    table: Vec<u64>,
}

/// Width of a record's index in a key. A record has at least 136 bytes, so a frame of 32 MiB holds
/// fewer than 2^18 records.
const INDEX_BITS: u32 = 18;
const RECORDS_MAX: usize = 1 << INDEX_BITS;

impl Clusterer {
    /// Finds the records of `piece`, which starts at `piece_offset` in a storage of `storage_bytes`.
    /// `position` is the walk's position at the end of the previous piece. Returns the position at
    /// the end of this piece. If it is [`RecordPosition::GivenUp`], [`Self::copy_sorted`] moves no
    /// record.
    pub fn walk(
        &mut self,
        piece: &[u8],
        piece_offset: u64,
        storage_bytes: u64,
        position: &RecordPosition,
    ) -> RecordPosition {
        self.records.clear();
        self.keys.clear();
        self.address_hashes.clear();
        let piece_end = piece_offset + piece.len() as u64;
        let mut offset = match position {
            RecordPosition::Ended | RecordPosition::GivenUp => return RecordPosition::Ended,
            RecordPosition::RecordAt(offset) => *offset,
            RecordPosition::Header(offset, bytes) => {
                let mut header = [0; RECORD_HEADER_BYTES];
                let (before, after) = header.split_at_mut(bytes.len().min(RECORD_HEADER_BYTES));
                // The walk over the previous piece refused headers that do not fit into the
                // storage, so the rest of this header must be in this piece.
                let Some(rest) = piece.get(..after.len()) else { return RecordPosition::GivenUp };
                before.copy_from_slice(&bytes[..before.len()]);
                after.copy_from_slice(rest);
                match record_bytes(&header) {
                    Some(0) => return RecordPosition::Ended,
                    Some(length) if offset.saturating_add(length) <= storage_bytes => align8(offset + length),
                    _ => return RecordPosition::GivenUp,
                }
            }
        };
        loop {
            if offset >= storage_bytes {
                return RecordPosition::Ended;
            }
            if offset >= piece_end {
                return RecordPosition::RecordAt(offset);
            }
            // The offset is in the piece: the previous record ends at the piece's start, or later.
            let start = (offset - piece_offset) as usize;
            prefetch(piece, start + WALK_AHEAD_BYTES, RECORD_HEADER_BYTES * 2);
            let Some(header) = piece[start..].first_chunk::<RECORD_HEADER_BYTES>() else {
                if offset + RECORD_HEADER_BYTES as u64 > storage_bytes {
                    return self.give_up();
                }
                return RecordPosition::Header(offset, piece[start..].to_vec());
            };
            let length = match record_bytes(header) {
                Some(0) => return RecordPosition::Ended,
                Some(length) if offset + length <= storage_bytes => length,
                _ => return self.give_up(),
            };
            let next = align8(offset + length);
            let stored_end = next.min(storage_bytes);
            if stored_end <= piece_end {
                if self.records.len() == RECORDS_MAX {
                    return self.give_up();
                }
                let data = &piece[start + RECORD_HEADER_BYTES..start + length as usize];
                self.keys.push(sort_key(header, data) << INDEX_BITS | self.records.len() as u64);
                self.address_hashes
                    .push(hash_pair(u64_at(header, field::PUBKEY.start), u64_at(header, field::PUBKEY.end - 8)));
                self.records.push(start as u32..(stored_end - piece_offset) as u32);
            }
            offset = next;
        }
    }

    fn give_up(&mut self) -> RecordPosition {
        self.records.clear();
        self.keys.clear();
        RecordPosition::GivenUp
    }

    /// Copies a piece to `output`, which has the same length, after [`Self::walk`] has read it. Sorts
    /// the records, and zeroes meaningless bytes. If two records have the same address, their order
    /// shows which is newer, so the piece is copied unchanged, and false is returned.
    pub fn copy_sorted(&mut self, piece: &[u8], output: &mut [u8]) -> bool {
        let (Some(first), Some(last)) = (self.records.first().cloned(), self.records.last().cloned()) else {
            output.copy_from_slice(piece);
            return true;
        };
        if self.has_address_twice() {
            output.copy_from_slice(piece);
            return false;
        }
        let mut copied = first.start as usize;
        output[..copied].copy_from_slice(&piece[..copied]);
        // The last record of a storage may lack its padding. It stays last, since lengths would
        // change otherwise.
        let is_last_unpadded = last.len() % 8 != 0;
        let sortable = self.keys.len() - usize::from(is_last_unpadded);
        self.keys[..sortable].sort_unstable();
        let range_of = |key: &u64| {
            let range = &self.records[(*key as usize) & (RECORDS_MAX - 1)];
            range.start as usize..range.end as usize
        };
        for (number, key) in self.keys.iter().enumerate() {
            if let Some(range) = self.keys.get(number + COPY_AHEAD_RECORDS).map(range_of) {
                prefetch(piece, range.start, range.len().min(COPY_AHEAD_BYTES_MAX));
            }
            let record = &piece[range_of(key)];
            let copy = &mut output[copied..copied + record.len()];
            copy.copy_from_slice(record);
            copied += record.len();
            if let Some(header) = copy.first_chunk_mut::<RECORD_HEADER_BYTES>() {
                header[..8].fill(0);
                header[field::MEANINGLESS].fill(0);
            }
            let data_end = RECORD_HEADER_BYTES + u64_at(record, field::DATA_LEN.start) as usize;
            copy[data_end..].fill(0);
        }
        output[copied..].copy_from_slice(&piece[copied..]);
        true
    }

    /// True if the 64-bit hashes of two addresses are equal. If two different addresses have the same
    /// hash, the piece stays unchanged, and merely compresses worse.
    fn has_address_twice(&mut self) -> bool {
        let bits = (self.address_hashes.len() * 2).next_power_of_two().trailing_zeros().max(4);
        self.table.clear();
        self.table.resize(1 << bits, 0);
        let mask = self.table.len() - 1;
        for hash in &self.address_hashes {
            // Zero marks an empty slot of the table.
            let hash = (*hash).max(1);
            let mut index = (hash >> (64 - bits)) as usize;
            while self.table[index] != 0 {
                if self.table[index] == hash {
                    return true;
                }
                index = (index + 1) & mask;
            }
            self.table[index] = hash;
        }
        false
    }
}

/// Finds the first record of a piece from the middle of a storage, when the bytes before the piece
/// are not available. Tries every aligned offset, and chooses the one that begins the longest chain
/// of records.
#[cfg(feature = "levels")]
pub fn find_position(piece: &[u8], piece_offset: u64, storage_bytes: u64) -> RecordPosition {
    use slotpress_format::RECORD_ALIGNMENT;
    let first = align8(piece_offset);
    let count = (piece_offset + piece.len() as u64).saturating_sub(first).div_ceil(RECORD_ALIGNMENT);
    // For each aligned offset, 0 if no record can begin there; else 1 plus the number of records that
    // follow each other from there.
    let mut chains: Vec<u32> = vec![0; count as usize];
    let mut position = RecordPosition::Ended;
    let mut longest_chain = 1;
    for number in (0..chains.len()).rev() {
        let offset = first + number as u64 * RECORD_ALIGNMENT;
        chains[number] = match piece[(offset - piece_offset) as usize..].first_chunk().map(record_bytes) {
            // The chain may end here: at an end mark, or at a header that the end of the piece cuts.
            Some(Some(0)) | None => 1,
            Some(Some(length)) if offset + length <= storage_bytes => {
                let next = ((align8(offset + length) - first) / RECORD_ALIGNMENT) as usize;
                match chains.get(next).copied().unwrap_or(1) {
                    0 => 0,
                    next_chain => next_chain + 1,
                }
            }
            Some(_) => 0,
        };
        if chains[number] > longest_chain {
            position = RecordPosition::RecordAt(offset);
            longest_chain = chains[number];
        }
    }
    position
}

/// Returns the length of the record that begins with this header, without padding: 0 for the end
/// mark, `None` if the header is not valid.
fn record_bytes(header: &[u8; RECORD_HEADER_BYTES]) -> Option<u64> {
    match RecordStart::parse(header) {
        RecordStart::End => Some(0),
        RecordStart::Record { data_len } if header[field::EXECUTABLE] <= 1 => {
            Some((RECORD_HEADER_BYTES + data_len) as u64)
        }
        _ => None,
    }
}

/// Widths of the fields of a sort key in bits, from the highest bits down: data length, owner, start of
/// data.
const LENGTH_BITS: u32 = 11;
const OWNER_BITS: u32 = 9;
const START_BITS: u32 = 26;
/// Parts of the start of data: its first bits, which distinguish kinds of data, and a hash of its
/// first 32 bytes.
const PREFIX_BITS: u32 = 12;
const HASH_BITS: u32 = START_BITS - PREFIX_BITS;
/// Parts of a balance, which replaces a missing start of data: the position of its highest bit, and the
/// bits after that.
const MAGNITUDE_BITS: u32 = 6;
const MANTISSA_BITS: u32 = START_BITS - MAGNITUDE_BITS;
const KEY_BITS: u32 = LENGTH_BITS + OWNER_BITS + START_BITS;
const _: () = assert!(KEY_BITS + INDEX_BITS == u64::BITS);

/// Computes a key that places similar records side by side. It consists of the data length, the owner, and
/// the first 32 bytes of data, such as the mint of a token account. If there is less data, the balance
/// takes its place. Long fields are hashed to a few bits: only equality matters, and after a collision,
/// records merely compress a little worse.
fn sort_key(header: &[u8; RECORD_HEADER_BYTES], data: &[u8]) -> u64 {
    let length = (data.len() as u64).min((1 << LENGTH_BITS) - 1);
    let owner = highest_bits(
        hash_pair(u64_at(header, field::OWNER.start), u64_at(header, field::OWNER.start + 16)),
        OWNER_BITS,
    );
    let start = match data.first_chunk::<32>() {
        Some(start) => {
            let hash = hash_pair(
                hash_pair(u64_at(start, 0), u64_at(start, 8)),
                hash_pair(u64_at(start, 16), u64_at(start, 24)),
            );
            highest_bits(u64_at(start, 0).swap_bytes(), PREFIX_BITS) << HASH_BITS | highest_bits(hash, HASH_BITS)
        }
        None => {
            let balance = u64_at(header, field::LAMPORTS.start);
            let zeros = balance.leading_zeros().min(63);
            let magnitude = u64::from(63 - zeros);
            // The highest bit is left out: it is set in every balance except 0.
            magnitude << MANTISSA_BITS | highest_bits(balance << zeros << 1, MANTISSA_BITS)
        }
    };
    (length << OWNER_BITS | owner) << START_BITS | start
}

fn highest_bits(number: u64, bits: u32) -> u64 {
    number >> (u64::BITS - bits)
}

fn hash_pair(first: u64, second: u64) -> u64 {
    const ODD: u64 = 0x9e37_79b9_7f4a_7c15; // 2^64 divided by the golden ratio
    (first.wrapping_mul(ODD).rotate_left(29) ^ second).wrapping_mul(ODD)
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    let mut array = [0; 8];
    array.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(array)
}

/// Distance at which the walk prefetches, in bytes. The address of the next header is known only after
/// this header is read.
const WALK_AHEAD_BYTES: usize = 1024;
/// Distance at which copying prefetches, in records. Records are read in sorted order, which the
/// processor cannot predict.
const COPY_AHEAD_RECORDS: usize = 4;
/// Limit on the bytes that are prefetched per record. In a longer record, the processor recognizes
/// the sequential read itself.
const COPY_AHEAD_BYTES_MAX: usize = 512;

/// Asks the processor to load the cache lines of `bytes`. Affects only speed.
#[inline]
pub(crate) fn prefetch(bytes: &[u8], start: usize, length: usize) {
    #[cfg(target_arch = "x86_64")]
    for line in bytes.get(start..).unwrap_or_default().iter().take(length).step_by(64) {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: every x86_64 processor has this instruction, and it accepts any address.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(std::ptr::from_ref(line).cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (bytes, start, length);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[derive(Clone, Debug)]
    struct Account {
        address: u16,
        owner: u8,
        lamports: u64,
        is_executable: bool,
        data: Vec<u8>,
        noise: u8,
    }

    fn accounts() -> impl Strategy<Value = Vec<Account>> {
        let data = prop_oneof![
            Just(Vec::new()),
            proptest::collection::vec(any::<u8>(), 0..200),
            (any::<bool>(), 0usize..300).prop_map(|(bit, length)| vec![u8::from(bit); length]),
        ];
        let account = (0u8..4, prop_oneof![Just(0), any::<u64>()], any::<bool>(), data, any::<u8>());
        proptest::collection::vec(account, 0..40).prop_map(|accounts| {
            let with_address = |(number, (owner, lamports, is_executable, data, noise))| Account {
                address: number as u16 + 1,
                owner,
                lamports,
                is_executable,
                data,
                noise,
            };
            accounts.into_iter().enumerate().map(with_address).collect()
        })
    }

    fn storage(accounts: &[Account], is_last_padded: bool) -> Vec<u8> {
        let mut bytes = Vec::new();
        for (number, account) in accounts.iter().enumerate() {
            let start = bytes.len();
            bytes.resize(start + RECORD_HEADER_BYTES, account.noise);
            let header = &mut bytes[start..];
            header[8..16].copy_from_slice(&(account.data.len() as u64).to_le_bytes());
            header[16..48].fill(0);
            header[16..18].copy_from_slice(&account.address.to_le_bytes());
            header[48..56].copy_from_slice(&account.lamports.to_le_bytes());
            header[56..64].fill(0xff);
            header[64..96].fill(account.owner);
            header[96] = u8::from(account.is_executable);
            bytes.extend_from_slice(&account.data);
            if is_last_padded || number + 1 < accounts.len() {
                bytes.resize(bytes.len().next_multiple_of(8), account.noise);
            }
        }
        bytes
    }

    fn sorted_records(mut storage: &[u8]) -> Vec<Vec<u8>> {
        let mut records = Vec::new();
        while !storage.is_empty() {
            let length = RECORD_HEADER_BYTES + u64_at(storage, 8) as usize;
            records.push([&storage[8..97], &storage[RECORD_HEADER_BYTES..length]].concat());
            storage = storage.get(length.next_multiple_of(8)..).unwrap_or_default();
        }
        records.sort();
        records
    }

    fn cluster(storage: &[u8]) -> (Vec<u8>, bool) {
        let mut clusterer = Clusterer::default();
        let mut to = vec![0xee; storage.len()];
        let position = clusterer.walk(storage, 0, storage.len() as u64, &STORAGE_START);
        assert!(matches!(position, RecordPosition::Ended | RecordPosition::GivenUp), "{position:?}");
        let is_sorted = clusterer.copy_sorted(storage, &mut to);
        (to, is_sorted && position == RecordPosition::Ended)
    }

    proptest! {
        #[test]
        fn clustering_changes_only_order_and_noise(accounts in accounts(), is_last_padded in any::<bool>()) {
            let storage = storage(&accounts, is_last_padded);
            let (clustered, is_sorted) = cluster(&storage);
            prop_assert!(is_sorted);
            prop_assert_eq!(sorted_records(&storage), sorted_records(&clustered));
            // Records with other meaningless bytes produce the same result.
            let noiseless = accounts.iter().map(|account| Account { noise: 0, ..account.clone() });
            let noiseless = self::storage(&noiseless.collect::<Vec<_>>(), is_last_padded);
            prop_assert_eq!(cluster(&noiseless).0, clustered.clone());
            prop_assert_eq!(cluster(&clustered).0, clustered, "clustering again changes nothing");
        }

        #[test]
        fn pieces_keep_all_records(accounts in accounts(), size in 1usize..2000, is_last_padded in any::<bool>()) {
            let storage = storage(&accounts, is_last_padded);
            // Pieces shorter than a header do not occur.
            let size = size.max(RECORD_HEADER_BYTES);
            let mut clusterer = Clusterer::default();
            let mut position = STORAGE_START;
            let mut whole = Vec::new();
            for (number, piece) in storage.chunks(size).enumerate() {
                let mut to = vec![0xee; piece.len()];
                position = clusterer.walk(piece, (number * size) as u64, storage.len() as u64, &position);
                prop_assert!(position != RecordPosition::GivenUp);
                prop_assert!(clusterer.copy_sorted(piece, &mut to));
                whole.extend_from_slice(&to);
            }
            prop_assert!(storage.is_empty() || position == RecordPosition::Ended);
            prop_assert_eq!(sorted_records(&storage), sorted_records(&whole));
        }

        #[test]
        fn bytes_that_are_not_records_stay_unchanged(
            mut bytes in proptest::collection::vec(any::<u8>(), 1..600),
            kind in 0u8..3,
        ) {
            // Makes the bytes resemble records: a short length, and a valid flag.
            if kind > 0 && bytes.len() >= RECORD_HEADER_BYTES {
                bytes[9..16].fill(0);
                bytes[field::EXECUTABLE] = kind - 1;
            }
            let (clustered, is_sorted) = cluster(&bytes);
            prop_assert!(is_sorted || clustered == bytes);
        }

        #[test]
        fn a_damaged_storage_is_sorted_or_unchanged(
            accounts in accounts(),
            position in any::<prop::sample::Index>(),
            value in any::<u8>(),
        ) {
            let mut bytes = storage(&accounts, true);
            prop_assume!(!bytes.is_empty());
            let position = position.index(bytes.len());
            bytes[position] = value;
            let (clustered, is_sorted) = cluster(&bytes);
            if !is_sorted {
                prop_assert_eq!(&clustered, &bytes);
            }
        }
    }

    #[test]
    fn records_with_the_same_address_keep_their_order() {
        let account = Account { address: 1, owner: 9, lamports: 5, is_executable: false, data: vec![1; 9], noise: 3 };
        let versions = [account.clone(), Account { owner: 1, data: Vec::new(), ..account }];
        let storage = storage(&versions, true);
        assert_eq!(cluster(&storage), (storage, false));
    }

    #[test]
    fn bytes_after_the_end_mark_stay_unchanged() {
        let account = Account { address: 1, owner: 9, lamports: 5, is_executable: false, data: vec![1; 9], noise: 0 };
        let sorted_first = Account { address: 2, owner: 1, data: Vec::new(), ..account.clone() };
        let mut storage = storage(&[account, sorted_first], true);
        let records = storage.len();
        storage.resize(records + 200, 0);
        storage.extend_from_slice(&[0xff; 300]);
        let (clustered, is_sorted) = cluster(&storage);
        assert!(is_sorted);
        assert_ne!(clustered[..records], storage[..records]);
        assert_eq!(clustered[records..], storage[records..]);
    }
}
