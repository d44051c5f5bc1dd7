//! The blockhash queue of a bank file: blockhashes that transactions may still use, in no particular
//! order (docs/snapshot-format.md#bank-file).

use std::io::BufRead;

use slotpress_base::Result;

use crate::{FieldReader, Hash};

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BlockhashQueue {
    /// Blockhash of the bank's own block.
    pub last: Option<Hash>,
    /// Time of the newest blockhash in milliseconds since 1970, by the clock of the node that wrote
    /// the file. 0 in files of Firedancer, which does not write the time.
    pub newest_ms: u64,
}

impl BlockhashQueue {
    pub(crate) fn parse<R: BufRead>(reader: &mut FieldReader<R>) -> Result<Self> {
        let _last_index = reader.u64()?;
        let last = reader.optional_hash("the last blockhash")?;
        let mut newest_index = 0;
        let mut newest_ms = 0;
        for _ in 0..reader.count("the blockhash queue", ITEM_BYTES)? {
            reader.skip(32 + 8)?; // hash, lamports per signature
            let index = reader.u64()?;
            let time_ms = reader.u64()?;
            (newest_index, newest_ms) = (newest_index, newest_ms).max((index, time_ms));
        }
        let _max_age = reader.u64()?;
        Ok(Self { last, newest_ms })
    }
}

/// Length of an item: hash, lamports per signature, index, and timestamp.
const ITEM_BYTES: u64 = 32 + 8 + 8 + 8;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Makes and parses a queue. Each item has an index, and the byte of its hash and time.
    fn make_and_parse_queue(items: &[(u64, u8)]) -> BlockhashQueue {
        let mut bytes = [&[0; 8][..], &[1], &[9; 32], &(items.len() as u64).to_le_bytes()].concat();
        for (index, byte) in items {
            bytes.extend_from_slice(&[*byte; 32]);
            bytes.extend_from_slice(&5000u64.to_le_bytes());
            bytes.extend_from_slice(&index.to_le_bytes());
            bytes.extend_from_slice(&[*byte; 8]);
        }
        bytes.extend_from_slice(&300u64.to_le_bytes());
        let mut reader = FieldReader::new(&bytes[..], bytes.len() as u64, "the bank file");
        let queue = BlockhashQueue::parse(&mut reader).expect("a queue");
        reader.expect_end().expect("to its end");
        queue
    }

    #[test]
    fn the_newest_blockhash_has_the_highest_index() {
        let queue = make_and_parse_queue(&[(5, 2), (7, 1), (6, 3)]);
        assert_eq!((queue.last, queue.newest_ms), (Some(Hash([9; 32])), u64::from_le_bytes([1; 8])));
    }

    proptest! {
        #[test]
        fn hostile_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
            let mut reader = FieldReader::new(&bytes[..], bytes.len() as u64, "the bank file");
            let _ = BlockhashQueue::parse(&mut reader);
        }
    }
}
