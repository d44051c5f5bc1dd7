//! Finds the next tar header after a lost part of the stream. The header may then be at any offset,
//! not only at a multiple of 512: other programs cut frames anywhere, and need not state how much a
//! frame contains.

use crate::{BLOCK, TarHeader};

/// Magic of GNU and POSIX headers. `MAGIC_OFFSET` is its place in a header.
const MAGIC: &[u8] = b"ustar";
const MAGIC_OFFSET: usize = 257;

#[derive(Debug, Default)]
pub struct HeaderSearch {
    carried: Vec<u8>,
    passed_bytes: u64,
}

impl HeaderSearch {
    /// Takes the next piece. Returns all bytes from the first header on, or `None` if there is
    /// none yet.
    ///
    /// A header must have the right checksum and a name that a snapshot archive may contain.
    /// Account data may imitate one; that can only make a damaged archive look worse.
    pub fn look_into(&mut self, bytes: &[u8]) -> Option<Vec<u8>> {
        self.carried.extend_from_slice(bytes);
        let all = &self.carried;
        let is_header = |start: &usize| {
            let block = all.get(*start..).and_then(|rest| rest.first_chunk());
            let header = block.and_then(|block| TarHeader::parse(block).ok());
            header.is_some_and(|header| header.oddity().is_none() && header.entry().is_some())
        };
        let magics = all.get(MAGIC_OFFSET..).unwrap_or_default().windows(MAGIC.len()).enumerate();
        let found = magics.filter(|(_, bytes)| *bytes == MAGIC).map(|(start, _)| start).find(is_header);
        let passed = found.unwrap_or_else(|| all.len().saturating_sub(BLOCK - 1));
        self.passed_bytes = self.passed_bytes.saturating_add(passed as u64);
        self.carried.drain(..passed);
        found.map(|_| std::mem::take(&mut self.carried))
    }

    /// Number of bytes that are known to be in front of the header.
    pub fn passed_bytes(&self) -> u64 {
        self.passed_bytes
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{Entry, EntryKind};

    proptest! {
        /// The header and the bytes after it are found at any position, however the stream is cut.
        #[test]
        fn headers_are_found(
            before in proptest::collection::vec(any::<u8>(), 0..1500),
            after in proptest::collection::vec(any::<u8>(), 0..700),
            has_false_magic: bool,
            piece in 1usize..1200,
        ) {
            let header = Entry { kind: EntryKind::Storage { slot: 7, id: 9 }, content_bytes: 1000 }.header();
            let mut stream = before.clone();
            if has_false_magic {
                stream.extend_from_slice(MAGIC);
            }
            let start = stream.len();
            stream.extend_from_slice(&header);
            stream.extend_from_slice(&after);
            let mut search = HeaderSearch::default();
            let mut pieces = stream.chunks(piece);
            let mut found = pieces.by_ref().find_map(|piece| search.look_into(piece)).expect("found");
            prop_assert_eq!(search.passed_bytes(), start as u64);
            pieces.for_each(|piece| found.extend_from_slice(piece));
            prop_assert_eq!(found, &stream[start..]);
        }

        #[test]
        fn nothing_is_kept_that_is_no_header(bytes in proptest::collection::vec(any::<u8>(), 0..5000), piece in 1usize..900) {
            let mut search = HeaderSearch::default();
            for piece in bytes.chunks(piece) {
                prop_assert!(search.look_into(piece).is_none());
                prop_assert!(search.carried.len() < BLOCK);
            }
        }
    }
}
