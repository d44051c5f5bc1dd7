//! Which record is the newest version of its account, for a billion accounts in the memory that is given.
//!
//! # How
//!
//! Every record is hashed as it streams by, in any order, and added to the sum; what it takes to find the superseded
//! ones afterwards is logged: 16 bytes a record, in 1,024 partitions by fingerprint. At the end each partition is sorted
//! on its own; of each account the record of the highest slot stays, and the others' storages are read once more to
//! subtract them. That costs a second hash only for what is superseded: little, since validators cut obsolete records
//! when they archive. An incremental archive, whose accounts do supersede many of the full one, spread over all of it,
//! is read before it: what it holds is skipped in the full one before it is hashed or logged.
//!
//! Against the alternatives: a table that is asked for every record costs a cache miss each, needs newest-first order
//! to spare hashing, which streams do not have, and cannot spill. A pass that finds the newest first would decode
//! everything twice.
//!
//! # Memory
//!
//! The log grows to 16 bytes a record (16 GB for a billion) while it fits in what was given. Beyond that, full chunks go to one
//! unnamed temporary file, and sorting needs one partition for each thread, a thousandth of the log. The list of superseded records is
//! worked off in rounds when it would not fit.
//!
//! # Fingerprints
//!
//! 96 bits of blake3, keyed anew for each run with random bytes from the system: whoever made the archive cannot know
//! which keys would collide. Among n accounts two collide with a probability of n² / 2^97: 6e-12 for a billion. A
//! collision could only make a sound archive look damaged, or hide a difference that its maker could not have aimed at.

use {
    crate::error::{Error, IoContext, Result},
    rayon::prelude::*,
    std::{
        fs::File,
        os::unix::fs::FileExt,
        path::{Path, PathBuf},
        sync::{
            Mutex, PoisonError,
            atomic::{AtomicU64, Ordering::Relaxed},
        },
    },
};

/// Partitions of the log: by the first 10 bits of the fingerprint.
const PARTITIONS: usize = 1024;

/// Items in a chunk: 32 KiB, so that all partitions together take at least 32 MiB.
const CHUNK_ITEMS: usize = 2048;

/// Bytes of an item.
pub const ITEM_BYTES: u64 = 16;

/// The least memory that the log works in.
pub const LOG_BYTES_MIN: u64 = PARTITIONS as u64 * CHUNK_ITEMS as u64 * ITEM_BYTES;

const MORE_MEMORY: &str = "give more --memory, or a --temporary-dir with room for 16 bytes per account";

/// Identifies an account within one run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fingerprint([u32; 3]);

/// Makes fingerprints, with a key that nobody else knows.
#[derive(Clone)]
pub struct Fingerprinter([u8; blake3::KEY_LEN]);

impl Fingerprinter {
    /// With a random key.
    pub fn new() -> Result<Self> {
        let path = Path::new("/dev/urandom");
        let mut key = [0; 32];
        let file = File::open(path).or_path("open", path)?;
        std::io::Read::read_exact(&mut &file, &mut key).or_path("read", path)?;
        Ok(Self(key))
    }

    /// The fingerprint of an account.
    pub fn of(&self, pubkey: &[u8; 32]) -> Fingerprint {
        let hash = blake3::keyed_hash(&self.0, pubkey);
        let word = |at: usize| {
            let mut word = [0; 4];
            word.copy_from_slice(&hash.as_bytes()[at..at + 4]);
            u32::from_le_bytes(word)
        };
        Fingerprint([word(0), word(4), word(8)])
    }
}

/// One record in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version {
    /// The account.
    pub fingerprint: Fingerprint,
    /// Twice the storage's number, and 1 for a tombstone: records of one storage are neighbours when sorted.
    tagged_storage: u32,
}

impl Version {
    /// A record in a storage; storages are numbered from 0, below 2^31.
    pub fn new(fingerprint: Fingerprint, storage: u32, is_tombstone: bool) -> Self {
        Self { fingerprint, tagged_storage: storage << 1 | u32::from(is_tombstone) }
    }

    /// The storage's number.
    pub fn storage(&self) -> u32 {
        self.tagged_storage >> 1
    }

    /// Whether it closes the account.
    pub fn is_tombstone(&self) -> bool {
        self.tagged_storage & 1 == 1
    }

    fn partition(&self) -> usize {
        (self.fingerprint.0[0] >> (32 - PARTITIONS.ilog2())) as usize
    }

    fn to_bytes(self) -> [u8; ITEM_BYTES as usize] {
        let mut bytes = [0; ITEM_BYTES as usize];
        let [a, b, c] = self.fingerprint.0;
        for (to, word) in bytes.chunks_exact_mut(4).zip([a, b, c, self.tagged_storage]) {
            to.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    fn from_bytes(bytes: &[u8]) -> Self {
        let mut words = [0; 4];
        for (word, from) in words.iter_mut().zip(bytes.chunks_exact(4)) {
            *word = u32::from_le_bytes([from[0], from[1], from[2], from[3]]);
        }
        let [a, b, c, tagged_storage] = words;
        Self { fingerprint: Fingerprint([a, b, c]), tagged_storage }
    }
}

/// What was found out about superseded records.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Superseded {
    /// Superseded records with lamports, whose contribution must be subtracted.
    pub to_subtract: Vec<Version>,
    /// Records of an account that its storage holds more than once.
    pub duplicates: Vec<Version>,
    /// How many records are superseded, tombstones too.
    pub count: u64,
    /// Newest versions with lamports.
    pub accounts: u64,
}

/// The log.
pub struct VersionLog {
    partitions: Vec<Mutex<Partition>>,
    memory_bytes: AtomicU64,
    room_bytes: u64,
    held_bytes: AtomicU64,
    spill_dir: PathBuf,
    spill: Mutex<Option<File>>,
    spilled_bytes: AtomicU64,
}

#[derive(Default)]
struct Partition {
    chunks: Vec<Vec<Version>>,
    /// Where full chunks of this partition are in the file.
    spilled: Vec<u64>,
}

impl VersionLog {
    /// Keeps to `memory_bytes`, and spills into `spill_dir` beyond that, where `room_bytes` must be free then.
    pub fn new(memory_bytes: u64, spill_dir: &Path, room_bytes: u64) -> Self {
        Self {
            partitions: (0..PARTITIONS).map(|_| Mutex::default()).collect(),
            memory_bytes: AtomicU64::new(memory_bytes.max(LOG_BYTES_MIN)),
            room_bytes,
            held_bytes: AtomicU64::new(0),
            spill_dir: spill_dir.to_path_buf(),
            spill: Mutex::new(None),
            spilled_bytes: AtomicU64::new(0),
        }
    }

    /// Takes memory away that something else needs.
    pub fn reserve(&self, bytes: u64) {
        let left = self.memory_bytes.load(Relaxed).saturating_sub(bytes);
        self.memory_bytes.store(left.max(LOG_BYTES_MIN), Relaxed);
    }

    /// Bytes in the temporary file.
    pub fn spilled_bytes(&self) -> u64 {
        self.spilled_bytes.load(Relaxed)
    }

    /// Takes a worker's records, and empties the batch.
    pub fn append(&self, batch: &mut Vec<Version>) -> Result<()> {
        batch.sort_unstable_by_key(Version::partition);
        for run in batch.chunk_by(|a, b| a.partition() == b.partition()) {
            let mut partition = self.partitions[run[0].partition()].lock().unwrap_or_else(PoisonError::into_inner);
            for item in run {
                if partition.chunks.last().is_none_or(|chunk| chunk.len() == CHUNK_ITEMS) {
                    self.make_room(&mut partition)?;
                }
                if let Some(chunk) = partition.chunks.last_mut() {
                    chunk.push(*item);
                }
            }
        }
        batch.clear();
        Ok(())
    }

    /// A new chunk for the partition; when memory is full, its full chunks go to the file first.
    fn make_room(&self, partition: &mut Partition) -> Result<()> {
        let chunk_bytes = CHUNK_ITEMS as u64 * ITEM_BYTES;
        if self.held_bytes.load(Relaxed) + chunk_bytes > self.memory_bytes.load(Relaxed) {
            while let Some(chunk) = partition.chunks.pop() {
                partition.spilled.push(self.write_chunk(&chunk)?);
                self.held_bytes.fetch_sub(chunk_bytes, Relaxed);
            }
        }
        // The partitions' first chunks are always allowed: they are what the least memory is.
        partition.chunks.push(Vec::with_capacity(CHUNK_ITEMS));
        self.held_bytes.fetch_add(chunk_bytes, Relaxed);
        Ok(())
    }

    fn write_chunk(&self, chunk: &[Version]) -> Result<u64> {
        let bytes: Vec<u8> = chunk.iter().flat_map(|version| version.to_bytes()).collect();
        let mut spill = self.spill.lock().unwrap_or_else(PoisonError::into_inner);
        let file = match &mut *spill {
            Some(file) => file,
            none => none.insert(self.open_spill()?),
        };
        let offset = self.spilled_bytes.fetch_add(bytes.len() as u64, Relaxed);
        file.write_all_at(&bytes, offset).map_err(|error| self.spill_error("write", &error))?;
        Ok(offset)
    }

    fn open_spill(&self) -> Result<File> {
        let stat = rustix::fs::statvfs(&self.spill_dir).or_path("read the free space of", &self.spill_dir)?;
        let free_bytes = stat.f_bavail.saturating_mul(stat.f_frsize);
        if free_bytes < self.room_bytes {
            return Err(Error::failed(format!(
                "not enough space under {}: about {} bytes needed, {free_bytes} free",
                self.spill_dir.display(),
                self.room_bytes
            ))
            .hint(MORE_MEMORY));
        }
        tempfile::tempfile_in(&self.spill_dir).map_err(|error| self.spill_error("create a temporary file in", &error))
    }

    fn spill_error(&self, doing: &str, error: &std::io::Error) -> Error {
        Error::io(doing, &self.spill_dir, error).hint(MORE_MEMORY)
    }

    /// Everything in one partition, sorted by account; takes it out of the log.
    fn take_sorted(&self, partition: &Mutex<Partition>) -> Result<Vec<Version>> {
        let Partition { chunks, spilled } =
            std::mem::take(&mut *partition.lock().unwrap_or_else(PoisonError::into_inner));
        let held: usize = chunks.iter().map(Vec::len).sum();
        let mut items = Vec::with_capacity(held + spilled.len() * CHUNK_ITEMS);
        self.held_bytes.fetch_sub((chunks.len() * CHUNK_ITEMS) as u64 * ITEM_BYTES, Relaxed);
        for chunk in chunks {
            items.extend_from_slice(&chunk);
        }
        let mut bytes = vec![0; CHUNK_ITEMS * ITEM_BYTES as usize];
        for offset in spilled {
            let spill = self.spill.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(file) = &*spill {
                file.read_exact_at(&mut bytes, offset).map_err(|error| self.spill_error("read", &error))?;
            }
            drop(spill);
            items.extend(bytes.chunks_exact(ITEM_BYTES as usize).map(Version::from_bytes));
        }
        items.sort_unstable();
        Ok(items)
    }

    /// Finds the superseded records, and hands them over in rounds that fit in memory. `slot_of` tells the slot of a
    /// storage. Nothing is left in the log.
    pub fn find_superseded(
        &self,
        threads: usize,
        slot_of: &(dyn Fn(u32) -> u64 + Sync),
        on_round: &mut dyn FnMut(Superseded) -> Result<()>,
    ) -> Result<()> {
        let round_items_max = (self.memory_bytes.load(Relaxed) / 4 / ITEM_BYTES) as usize;
        let mut round = Superseded::default();
        for group in self.partitions.chunks(threads.max(1)) {
            let found: Vec<Superseded> = group
                .par_iter()
                .map(|partition| Ok(superseded_among(&self.take_sorted(partition)?, slot_of)))
                .collect::<Result<_>>()?;
            for found in found {
                round.count += found.count;
                round.accounts += found.accounts;
                round.to_subtract.extend(found.to_subtract);
                round.duplicates.extend(found.duplicates);
            }
            if round.to_subtract.len() + round.duplicates.len() > round_items_max {
                on_round(std::mem::take(&mut round))?;
            }
        }
        on_round(round)
    }

    /// The accounts in the log so far, for asking; `None` when they do not fit in a half of the memory. The log keeps
    /// them.
    pub fn known_accounts(&self) -> Option<KnownAccounts> {
        if self.spilled_bytes() > 0 {
            return None;
        }
        let lock = |partition: &Mutex<Partition>| -> Vec<Fingerprint> {
            let partition = partition.lock().unwrap_or_else(PoisonError::into_inner);
            partition.chunks.iter().flatten().map(|version| version.fingerprint).collect()
        };
        let items: usize = self
            .partitions
            .iter()
            .map(|partition| {
                let partition = partition.lock().unwrap_or_else(PoisonError::into_inner);
                partition.chunks.iter().map(Vec::len).sum::<usize>()
            })
            .sum();
        if items as u64 * size_of::<Fingerprint>() as u64 > self.memory_bytes.load(Relaxed) / 2 {
            return None;
        }
        let partitions = self
            .partitions
            .par_iter()
            .map(|partition| {
                let mut fingerprints = lock(partition);
                fingerprints.sort_unstable();
                fingerprints.dedup();
                fingerprints
            })
            .collect();
        Some(KnownAccounts { partitions })
    }
}

/// Accounts that can be asked for.
pub struct KnownAccounts {
    partitions: Vec<Vec<Fingerprint>>,
}

impl KnownAccounts {
    /// Whether the account is among them.
    pub fn contains(&self, fingerprint: &Fingerprint) -> bool {
        let partition = Version { fingerprint: *fingerprint, tagged_storage: 0 }.partition();
        self.partitions[partition].binary_search(fingerprint).is_ok()
    }

    /// Bytes that they take.
    pub fn memory_bytes(&self) -> u64 {
        self.partitions.iter().map(|partition| (partition.len() * size_of::<Fingerprint>()) as u64).sum()
    }
}

/// Of sorted records, those that a newer one supersedes.
fn superseded_among(sorted: &[Version], slot_of: &dyn Fn(u32) -> u64) -> Superseded {
    let mut found = Superseded::default();
    for versions in sorted.chunk_by(|a, b| a.fingerprint == b.fingerprint) {
        let rank = |version: &Version| slot_of(version.storage());
        let newest = match versions {
            [only] => only,
            _ => {
                // Of two in one storage the later in the order counts as newest: there is a failure anyway.
                let newest = versions.iter().max_by_key(|version| rank(version)).unwrap_or(&versions[0]);
                let mut is_newest_passed = false;
                for (at, version) in versions.iter().enumerate() {
                    let is_neighbour =
                        |other: Option<&Version>| other.is_some_and(|it| it.storage() == version.storage());
                    let is_twice = is_neighbour(versions.get(at + 1)) || is_neighbour(versions[..at].last());
                    if version == newest && !std::mem::replace(&mut is_newest_passed, true) {
                        continue;
                    }
                    found.count += 1;
                    if is_twice {
                        found.duplicates.push(*version);
                    } else if !version.is_tombstone() {
                        found.to_subtract.push(*version);
                    }
                }
                newest
            }
        };
        found.accounts += u64::from(!newest.is_tombstone());
    }
    found
}

#[cfg(test)]
mod tests {
    use {super::*, proptest::prelude::*, std::collections::HashMap};

    proptest! {
        /// With much memory or the least, what is superseded is what a plain map says.
        #[test]
        fn superseded_records_are_found(
            records in proptest::collection::hash_set((0u8..40, 0u32..20), 0..300),
            seed: u64,
        ) {
            let printer = Fingerprinter::new().expect("random bytes");
            let slot_of = |storage: u32| u64::from(storage.wrapping_mul(7) % 23);
            let mut newest: HashMap<u8, (u64, u32)> = HashMap::new();
            let is_tombstone = |key: u8, storage: u32| (seed >> ((u32::from(key) + storage) % 64)) & 1 == 1;
            let log = VersionLog::new(0, &std::env::temp_dir(), 0);
            let mut batch = Vec::new();
            for (key, storage) in &records {
                batch.push(Version::new(printer.of(&[*key; 32]), *storage, is_tombstone(*key, *storage)));
                let entry = newest.entry(*key).or_insert((slot_of(*storage), *storage));
                *entry = (*entry).max((slot_of(*storage), *storage));
            }
            log.append(&mut batch).expect("appended");
            let known = log.known_accounts().expect("small");
            for (key, _) in &records {
                prop_assert!(known.contains(&printer.of(&[*key; 32])));
            }
            prop_assert!(!known.contains(&printer.of(&[200; 32])));
            let mut found = Superseded::default();
            log.find_superseded(2, &slot_of, &mut |round| { found = round; Ok(()) }).expect("found");
            let expected = records.iter().filter(|(key, storage)| newest[key].1 != *storage);
            prop_assert_eq!(found.count, expected.clone().count() as u64);
            let subtract = expected.filter(|(key, storage)| !is_tombstone(*key, *storage)).count();
            prop_assert_eq!(found.to_subtract.len(), subtract);
            let accounts = newest.iter().filter(|(key, (_, storage))| !is_tombstone(**key, *storage)).count();
            prop_assert_eq!(found.accounts, accounts as u64);
        }
    }

    /// What does not fit in memory comes back from the file.
    #[test]
    fn spilling_loses_nothing() {
        let printer = Fingerprinter::new().expect("random bytes");
        let log = VersionLog::new(0, &std::env::temp_dir(), 0);
        let accounts = 3 * PARTITIONS as u32 * CHUNK_ITEMS as u32 / 2;
        let mut batch = Vec::new();
        for account in 0..accounts {
            let mut key = [0; 32];
            key[..4].copy_from_slice(&account.to_le_bytes());
            batch.push(Version::new(printer.of(&key), account % 7, false));
            if account % 10 == 0 {
                batch.push(Version::new(printer.of(&key), 8, false));
            }
            if batch.len() > 50_000 {
                log.append(&mut batch).expect("appended");
            }
        }
        log.append(&mut batch).expect("appended");
        assert!(log.spilled_bytes() > 0);
        assert!(log.held_bytes.load(Relaxed) <= LOG_BYTES_MIN);
        let (mut superseded, mut found) = (0, 0);
        log.find_superseded(2, &u64::from, &mut |round| {
            superseded += round.to_subtract.len();
            found += round.accounts;
            Ok(())
        })
        .expect("found");
        assert_eq!((superseded as u32, found), (accounts.div_ceil(10), u64::from(accounts)));
    }
}
