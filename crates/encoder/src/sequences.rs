//! The sequences of a frame, cut into blocks.

use crate::libzstd::{Sequence, WINDOW_LOG};

/// The most content that a block holds, in bytes: zstd's format.
pub(crate) const BLOCK_BYTES_MAX: usize = 128 << 10;

/// The shortest match that is worth a sequence, in bytes; libzstd sizes its tables by it.
pub(crate) const MATCH_BYTES_MIN: usize = 4;

/// So many are never too many.
const SEQUENCES_MIN: usize = 4096;

/// How far back a match may lie, in bytes.
pub(crate) const OFFSET_MAX: usize = 1 << WINDOW_LOG;

/// The sequences of a frame, as they are found from its begin to its end.
#[derive(Debug, Default)]
pub(crate) struct Sequences {
    list: Vec<Sequence>,
    /// Where the block that is being made begins.
    block_start: usize,
    /// Where the last match ended: what follows is literals so far.
    matched_to: usize,
    blocks: usize,
    matched_bytes: usize,
}

impl Sequences {
    pub(crate) fn clear(&mut self) {
        self.list.clear();
        (self.block_start, self.matched_to, self.blocks, self.matched_bytes) = (0, 0, 0, 0);
    }

    pub(crate) fn list(&self) -> &[Sequence] {
        &self.list
    }

    pub(crate) fn blocks(&self) -> usize {
        self.blocks
    }

    /// Whether there are so many that they take more memory than the content before `at`: no frame of records has matches as
    /// short as that.
    pub(crate) fn are_too_many(&self, at: usize) -> bool {
        self.list.len() > SEQUENCES_MIN.max(at / size_of::<Sequence>())
    }

    /// Bytes that matches cover.
    pub(crate) fn matched_bytes(&self) -> usize {
        self.matched_bytes
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        self.list.capacity() * size_of::<Sequence>()
    }

    /// Bytes that the block may still take, from `at` on.
    pub(crate) fn room(&self, at: usize) -> usize {
        BLOCK_BYTES_MAX - (at - self.block_start)
    }

    /// Bytes of the block before `at`.
    pub(crate) fn block_bytes(&self, at: usize) -> usize {
        at - self.block_start
    }

    /// Bytes from `at` on are those that lie `offset` before. Matches come in order, none before the end of the last one,
    /// and all within the block's room.
    #[inline]
    pub(crate) fn matched(&mut self, at: usize, bytes: usize, offset: usize) {
        debug_assert!(at >= self.matched_to && bytes >= MATCH_BYTES_MIN && bytes <= self.room(at));
        debug_assert!((1..=OFFSET_MAX.min(at)).contains(&offset));
        // 32 MiB of content at most.
        let literals = (at - self.matched_to) as u32;
        self.list.push(Sequence { offset: offset as u32, litLength: literals, matchLength: bytes as u32, rep: 0 });
        self.matched_to = at + bytes;
        self.matched_bytes += bytes;
    }

    /// Ends the block at `at`.
    pub(crate) fn cut(&mut self, at: usize) {
        if at > self.block_start {
            let literals = (at - self.matched_to) as u32;
            self.list.push(Sequence { offset: 0, litLength: literals, matchLength: 0, rep: 0 });
            (self.block_start, self.matched_to) = (at, at);
            self.blocks += 1;
        }
    }
}
