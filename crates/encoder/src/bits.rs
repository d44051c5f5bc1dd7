//! Bits as zstd's entropy coders write them: from the lowest bit of each byte on. Decoders read them from the end.

/// Bits that a word holds at most before it is flushed: the rest of the last byte, and as many as one flush leaves room for.
pub(crate) const WORD_BITS: u32 = 56;

/// Writes bits into a buffer, which has 8 bytes more than what is written.
pub(crate) struct BitWriter<'a> {
    to: &'a mut [u8],
    at: usize,
    word: u64,
    bits: u32,
}

impl<'a> BitWriter<'a> {
    pub(crate) fn new(to: &'a mut [u8]) -> Self {
        Self { to, at: 0, word: 0, bits: 0 }
    }

    /// Adds the lowest `count` bits of `value`: [`WORD_BITS`] between two flushes.
    #[inline(always)]
    pub(crate) fn push(&mut self, value: u64, count: u32) {
        debug_assert!(self.bits + count < 64);
        self.word |= (value & ((1 << count) - 1)) << self.bits;
        self.bits += count;
    }

    #[inline(always)]
    pub(crate) fn flush(&mut self) {
        self.to[self.at..self.at + 8].copy_from_slice(&self.word.to_le_bytes());
        let bytes = self.bits / 8;
        self.at += bytes as usize;
        self.word >>= 8 * bytes;
        self.bits %= 8;
    }

    /// Fills up the last byte; the bytes that were written.
    pub(crate) fn finish(mut self) -> usize {
        self.flush();
        self.at + usize::from(self.bits > 0)
    }

    /// Marks the end by a bit that is set, for decoders that begin there.
    pub(crate) fn finish_stream(mut self) -> usize {
        self.flush();
        self.push(1, 1);
        self.finish()
    }
}
