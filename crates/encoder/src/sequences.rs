//! The sequences of a frame as they are found, written block by block.

use crate::block::Block;
use crate::frame;

/// The most content that a block holds, in bytes: zstd's format.
pub(crate) const BLOCK_BYTES_MAX: usize = 128 << 10;

/// The shortest match that is worth a sequence, in bytes.
pub(crate) const MATCH_BYTES_MIN: usize = 4;

/// How far back a match may lie, in bytes: the window of frames. Both clients read 2^25.
pub(crate) const OFFSET_MAX: usize = 1 << frame::WINDOW_LOG;

/// The frame that is being made, from its begin to its end.
#[derive(Debug)]
pub(crate) struct Sequences {
    frame: Vec<u8>,
    block: Block,
    /// The last three offsets, the newest first; and these before the block.
    repeated: [u32; 3],
    repeated_before: [u32; 3],
    /// Where the block that is being made begins.
    block_start: usize,
    /// Where the last match ended: what follows is literals so far.
    matched_to: usize,
    matched_bytes: usize,
}

impl Sequences {
    pub(crate) fn new(codes_literals: bool) -> Self {
        Self {
            frame: Vec::new(),
            block: Block::new(codes_literals),
            repeated: [0; 3],
            repeated_before: [0; 3],
            block_start: 0,
            matched_to: 0,
            matched_bytes: 0,
        }
    }

    /// Begins a frame, which replaces what `to` holds.
    pub(crate) fn begin(&mut self, to: Vec<u8>, content_bytes: usize, has_checksum: bool) {
        self.frame = to;
        self.frame.clear();
        frame::begin(content_bytes, has_checksum, &mut self.frame);
        self.block.begin();
        (self.repeated, self.repeated_before) = ([1, 4, 8], [1, 4, 8]);
        (self.block_start, self.matched_to, self.matched_bytes) = (0, 0, 0);
    }

    /// Takes what there is of the frame.
    pub(crate) fn take(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.frame)
    }

    /// Bytes that matches cover.
    pub(crate) fn matched_bytes(&self) -> usize {
        self.matched_bytes
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        self.block.memory_bytes()
    }

    /// Bytes that the block may still take, from `at` on.
    pub(crate) fn room(&self, at: usize) -> usize {
        BLOCK_BYTES_MAX - (at - self.block_start)
    }

    /// Bytes of the block before `at`.
    pub(crate) fn block_bytes(&self, at: usize) -> usize {
        at - self.block_start
    }

    /// Bytes of `content` from `at` on are those that lie `offset` before. Matches come in order, none before the end of the
    /// last one, and all within the block's room.
    #[inline]
    pub(crate) fn matched(&mut self, content: &[u8], at: usize, bytes: usize, offset: usize) {
        debug_assert!(at >= self.matched_to && bytes >= MATCH_BYTES_MIN && bytes <= self.room(at));
        debug_assert!((1..=OFFSET_MAX.min(at)).contains(&offset));
        // Offsets are below 2^24.
        let offset = self.repeat(offset as u32, at == self.matched_to);
        self.block.add(content, self.matched_to, at, bytes, offset);
        self.matched_to = at + bytes;
        self.matched_bytes += bytes;
    }

    /// What stands for an offset: 1 to 3 for one of the last three, otherwise 3 more than itself. Without literals before it,
    /// the newest cannot be meant, and 3 is one less than it.
    #[inline(always)]
    fn repeat(&mut self, offset: u32, is_adjacent: bool) -> u32 {
        let [first, second, third] = self.repeated;
        if offset == first && !is_adjacent {
            return 1;
        }
        let shift = u32::from(is_adjacent);
        if offset == second {
            self.repeated = [second, first, third];
            return 2 - shift;
        }
        self.repeated = [offset, first, second];
        if offset == third {
            3 - shift
        } else if is_adjacent && offset + 1 == first {
            3
        } else {
            offset + 3
        }
    }

    /// Ends the block at `at`.
    pub(crate) fn cut(&mut self, content: &[u8], at: usize) {
        if at == self.block_start && !content.is_empty() {
            return;
        }
        let is_last = at == content.len();
        if !self.block.write(
            &content[self.block_start..at],
            self.matched_to - self.block_start,
            is_last,
            &mut self.frame,
        ) {
            // Decoders know nothing of its offsets.
            self.repeated = self.repeated_before;
        }
        self.repeated_before = self.repeated;
        (self.block_start, self.matched_to) = (at, at);
    }
}
