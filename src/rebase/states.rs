//! Logs the accounts of two states, in 36 bytes per record, while each state is verified.
//!
//! An item has the account's fingerprint, a hash of its content, and the position of its record.
//! Fingerprint and hash have random keys, so that nobody can make up accounts whose fingerprints or hashes
//! collide. The result does not depend on the keys.

use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;

use highway::{HighwayHash, HighwayHasher, Key};
use parking_lot::Mutex;
use slotpress_base::{Error, IoContext, Result};
use slotpress_format::{Record, VOTE};
use slotpress_read::{
    Fingerprint, Fingerprinter, LogBatch, LogItem, StateVisitor, StateWorker, StorageRef, VersionLog,
};

pub const ITEM_BYTES: u64 = StateItem::BYTES as u64;

/// The states in a log, in the order in which they are read.
const STATES: usize = 2;

/// Number of bits below the storage number in [`StateItem::place`]: for the number of the state, and the
/// tombstone flag.
const STORAGE_SHIFT: u32 = STATES.ilog2() + 1;

/// Records start at multiples of 8 bytes.
const OFFSET_UNIT_BYTES: u64 = 8;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct StateItem {
    pub fingerprint: Fingerprint,
    place: u32,
    offset_units: u32,
    /// Hash of lamports, owner, executable flag and data.
    pub content: [u8; 16],
}

impl StateItem {
    pub fn state_number(&self) -> usize {
        (self.place >> 1) as usize % STATES
    }

    pub fn storage(&self) -> u32 {
        self.place >> STORAGE_SHIFT
    }

    pub fn is_tombstone(&self) -> bool {
        self.place & 1 == 1
    }

    pub fn offset_bytes(&self) -> u64 {
        u64::from(self.offset_units) * OFFSET_UNIT_BYTES
    }
}

impl LogItem for StateItem {
    const BYTES: usize = 36;

    fn fingerprint(&self) -> &Fingerprint {
        &self.fingerprint
    }

    fn append_to(&self, bytes: &mut Vec<u8>) {
        let [a, b, c] = self.fingerprint.0;
        for word in [a, b, c, self.place, self.offset_units] {
            bytes.extend_from_slice(&word.to_le_bytes());
        }
        bytes.extend_from_slice(&self.content);
    }

    fn from_bytes(bytes: &[u8]) -> Self {
        let words = bytes.as_chunks().0;
        let word = |number: usize| u32::from_le_bytes(words[number]);
        let mut content = [0; 16];
        content.copy_from_slice(&bytes[20..36]);
        Self { fingerprint: Fingerprint([word(0), word(1), word(2)]), place: word(3), offset_units: word(4), content }
    }
}

#[derive(Debug)]
pub struct ReadState {
    /// Number that each item of the state has ([`StateItem::state_number`]).
    pub number: usize,
    /// Slots of the storages, by their numbers.
    pub slots: Vec<u64>,
}

pub struct StateLog {
    fingerprinter: Fingerprinter,
    /// Keyed hash of an account's content. HighwayHash is well tested, and takes a quarter of
    /// blake3's time for accounts. Hashes are never shown, so nobody can learn the key, and nobody
    /// can make up an account with the hash of its predecessor.
    content_hasher: HighwayHasher,
    pub items: VersionLog<StateItem>,
    state_number: AtomicU32,
    slots: [Mutex<Vec<u64>>; STATES],
    error: Mutex<Option<Error>>,
}

impl StateLog {
    /// Creates a log that uses at most `memory_bytes`, and then spills to `spill_dir`, where
    /// `space_bytes` must be free.
    pub fn new(memory_bytes: u64, spill_dir: &Path, space_bytes: u64) -> Result<Self> {
        let mut key = [[0; 8]; 4];
        let random = Path::new("/dev/urandom");
        File::open(random).and_then(|mut file| file.read_exact(key.as_flattened_mut())).or_path("read", random)?;
        let items = VersionLog::new(memory_bytes, spill_dir, space_bytes);
        items.check_expected_space(memory_bytes)?;
        Ok(Self {
            fingerprinter: Fingerprinter::new()?,
            content_hasher: HighwayHasher::new(Key(key.map(u64::from_le_bytes))),
            items,
            state_number: AtomicU32::new(0),
            slots: std::array::from_fn(|_| Mutex::default()),
            error: Mutex::default(),
        })
    }

    pub fn end_state(&self) -> Result<ReadState> {
        if let Some(error) = self.error.lock().clone() {
            return Err(error);
        }
        let number = self.state_number.fetch_add(1, Relaxed) as usize;
        let slots = std::mem::take(&mut *self.slots[number].lock());
        Ok(ReadState { number, slots })
    }

    /// Hashes the content of an account in the state with this number. A vote account has different hashes in the
    /// two states: clients compare vote accounts whole, including a rent epoch that no hash covers, so they must
    /// always be written.
    fn hash_content(&self, record: &Record<'_>, number: u32) -> [u8; 16] {
        let header = record.header;
        let salt = if header.owner == VOTE { number + 1 } else { 0 };
        let mut hasher = self.content_hasher.clone();
        let flags = u64::from(header.executable != 0) | u64::from(salt) << 1;
        hasher.append([header.lamports.to_le_bytes(), flags.to_le_bytes()].as_flattened());
        hasher.append(&header.owner);
        hasher.append(record.data);
        let [low, high] = hasher.finalize128();
        (u128::from(high) << 64 | u128::from(low)).to_le_bytes()
    }
}

impl StateVisitor for StateLog {
    fn new_worker(&self) -> Box<dyn StateWorker + '_> {
        let state_number = self.state_number.load(Relaxed);
        Box::new(LoggingWorker { log: self, state_number, storage: None, batch: LogBatch::default() })
    }
}

struct LoggingWorker<'a> {
    log: &'a StateLog,
    state_number: u32,
    storage: Option<u32>,
    batch: LogBatch<StateItem>,
}

impl StateWorker for LoggingWorker<'_> {
    fn record(&mut self, storage: StorageRef, record: &Record<'_>, _: bool) -> Result<()> {
        let number = storage.number;
        if self.storage != Some(number) {
            let storages_max = 1u32 << (32 - STORAGE_SHIFT);
            if number >= storages_max {
                let message = format!("a state has more than {storages_max} storages, the most that can be rebased");
                return Err(Error::failed(message)
                    .with_hint("rebase an archive that the validator wrote itself: it merges small storages"));
            }
            let mut slots = self.log.slots[self.state_number as usize].lock();
            if slots.len() <= number as usize {
                slots.resize(number as usize + 1, 0);
            }
            slots[number as usize] = storage.slot;
            self.storage = Some(number);
        }
        let is_tombstone = record.header.lamports == 0;
        let item = StateItem {
            fingerprint: self.log.fingerprinter.fingerprint(&record.header.pubkey),
            place: number << STORAGE_SHIFT | self.state_number << 1 | u32::from(is_tombstone),
            offset_units: (record.offset_bytes / OFFSET_UNIT_BYTES) as u32,
            content: if is_tombstone { [0; 16] } else { self.log.hash_content(record, self.state_number) },
        };
        if self.batch.push(item) { self.log.items.append(&mut self.batch) } else { Ok(()) }
    }
}

impl Drop for LoggingWorker<'_> {
    fn drop(&mut self) {
        if let Err(error) = self.log.items.append(&mut self.batch) {
            self.log.error.lock().get_or_insert(error);
        }
    }
}
