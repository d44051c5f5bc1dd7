//! The blockhash queue of a bank file: blockhashes that transactions may still use, each with its
//! index. The file lists them in no particular order (docs/snapshot-format.md#bank-file).

use std::collections::HashSet;
use std::io::BufRead;

use slotpress_base::Result;

use crate::{FieldReader, Hash};

/// Maximum number of blockhashes that a validator keeps: the newest one, and those of the 300
/// blocks before it.
pub const BLOCKHASHES_MAX: u64 = 301;

/// Number of newest blockhashes that transactions may use. Firedancer refuses duplicates
/// among them.
pub const BLOCKHASHES_RECENT: usize = 151;

/// Blockhash queue of a bank file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[warn(missing_docs)]
pub struct BlockhashQueue {
    /// Hash of the last block's entries.
    pub last: Option<Hash>,
    /// Number of blockhashes in the file.
    pub count: u64,
    /// Time of the newest blockhash in milliseconds since 1970, by the clock of the node that wrote
    /// the file. 0 if unknown, as in Firedancer's files.
    pub newest_ms: u64,
    /// Index and blockhash, ascending by index. If the queue is too long, only the items that come
    /// first in the file.
    hashes: Vec<(u64, Hash)>,
}

#[warn(missing_docs)]
impl BlockhashQueue {
    /// Parses a queue, and keeps its first [`BLOCKHASHES_MAX`] items.
    pub(crate) fn parse<R: BufRead>(r: &mut FieldReader<R>) -> Result<Self> {
        let _last_index = r.u64()?;
        let last = r.optional_hash("the last blockhash")?;
        let count = r.count("the blockhash queue", ITEM_BYTES)?;
        let mut hashes = Vec::new();
        let mut newest = (0, 0);
        for _ in 0..count.min(BLOCKHASHES_MAX) {
            let hash = Hash(r.array()?);
            r.skip(8)?; // lamports per signature
            let (index, time_ms) = (r.u64()?, r.u64()?);
            hashes.push((index, hash));
            newest = newest.max((index, time_ms));
        }
        r.skip(count.saturating_sub(BLOCKHASHES_MAX).saturating_mul(ITEM_BYTES))?;
        let _max_age = r.u64()?;
        hashes.sort_unstable();
        Ok(Self { last, count, newest_ms: newest.1, hashes })
    }

    /// Returns the first two neighbouring indexes that are not consecutive.
    pub fn gap(&self) -> Option<(u64, u64)> {
        let indexes = || self.hashes.iter().map(|(index, _)| *index);
        indexes().zip(indexes().skip(1)).find(|(one, next)| one.checked_add(1) != Some(*next))
    }

    /// Returns the newest blockhash, which Firedancer uses as the last one. Returns `None` if the
    /// queue is too long.
    pub fn newest(&self) -> Option<Hash> {
        self.hashes.last().map(|(_, hash)| *hash).filter(|_| self.count <= BLOCKHASHES_MAX)
    }

    /// Iterates over the blockhashes that a transaction may use, newest first.
    pub fn recent(&self) -> impl Iterator<Item = Hash> {
        self.hashes.iter().rev().take(BLOCKHASHES_RECENT).map(|(_, hash)| *hash)
    }

    /// Returns a hash that occurs twice among the newest `BLOCKHASHES_RECENT`.
    pub fn duplicate(&self) -> Option<Hash> {
        let mut seen = HashSet::new();
        self.recent().find(|hash| !seen.insert(*hash))
    }
}

/// Length of an item: hash, lamports per signature, index, and timestamp.
const ITEM_BYTES: u64 = 32 + 8 + 8 + 8;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn queue(items: &[(u64, u8)]) -> BlockhashQueue {
        let mut bytes = [&[0; 8][..], &[1], &[9; 32], &(items.len() as u64).to_le_bytes()].concat();
        for (index, hash) in items {
            bytes.extend_from_slice(&[*hash; 32]);
            bytes.extend_from_slice(&5000u64.to_le_bytes());
            bytes.extend_from_slice(&index.to_le_bytes());
            bytes.extend_from_slice(&[7; 8]);
        }
        bytes.extend_from_slice(&300u64.to_le_bytes());
        let mut r = FieldReader::new(&bytes[..], bytes.len() as u64, "the bank file");
        let queue = BlockhashQueue::parse(&mut r).expect("a queue");
        r.end().expect("to its end");
        queue
    }

    #[test]
    fn gaps_and_duplicates() {
        let sound = queue(&[(7, 1), (5, 2), (6, 3)]);
        assert_eq!((sound.last, sound.count), (Some(Hash([9; 32])), 3));
        assert_eq!(sound.newest_ms, u64::from_le_bytes([7; 8]));
        assert_eq!((sound.gap(), sound.duplicate()), (None, None));
        assert_eq!(queue(&[(7, 1), (5, 2)]).gap(), Some((5, 7)));
        assert_eq!(queue(&[(7, 1), (6, 2), (7, 3)]).gap(), Some((7, 7)), "an index twice");
        assert_eq!(queue(&[(7, 1), (6, 1)]).duplicate(), Some(Hash([1; 32])));
        assert_eq!((queue(&[]).gap(), queue(&[]).duplicate()), (None, None));
    }

    /// Duplicates beyond the newest 151 are accepted.
    #[test]
    fn old_duplicates_do_not_matter() {
        let items = |twice: u64| (0..200).map(|at| (at, if at == twice { 199 } else { at as u8 })).collect::<Vec<_>>();
        assert_eq!(queue(&items(48)).duplicate(), None);
        assert_eq!(queue(&items(49)).duplicate(), Some(Hash([199; 32])));
    }

    /// A queue that is too long is read to its end, but not kept.
    #[test]
    fn bounded() {
        let items: Vec<(u64, u8)> = (0..1000).map(|at| (at, at as u8)).collect();
        let long = queue(&items);
        assert_eq!((long.count, long.hashes.len() as u64), (1000, BLOCKHASHES_MAX));
    }

    proptest! {
        #[test]
        fn hostile_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
            let mut r = FieldReader::new(&bytes[..], bytes.len() as u64, "the bank file");
            if let Ok(queue) = BlockhashQueue::parse(&mut r) {
                let _ = (queue.gap(), queue.duplicate());
            }
        }
    }
}
