//! Packs a stream of entries into frames, cut exactly where [`FrameCutter`] cuts a plan.
//!
//! [`FrameCutter`]: crate::archive::frames::FrameCutter

use slotpress_base::{Result, split_at_most, to_usize};

use crate::{BLOCK_LEN, END_OF_ARCHIVE, END_OF_ARCHIVE_BYTES, Entry, padding_bytes};

/// Fills frames with the tar bytes of entries, one after another.
#[derive(Debug)]
pub struct FrameAssembler {
    frame_size_bytes: usize,
    frame: Vec<u8>,
}

/// Receives a finished frame, and returns a buffer for the next one.
pub type OnFrame<'a> = dyn FnMut(Vec<u8>) -> Result<Vec<u8>> + 'a;

impl FrameAssembler {
    /// Makes frames of at most `frame_size_bytes` tar bytes. The first frame is written into `buffer`.
    pub fn new(frame_size_bytes: u64, buffer: Vec<u8>) -> Self {
        Self { frame_size_bytes: to_usize(frame_size_bytes), frame: buffer }
    }

    /// Writes an entry's header. If the whole entry does not fit into the current frame, starts a
    /// new frame.
    pub fn begin(&mut self, entry: &Entry, on_frame: &mut OnFrame<'_>) -> Result<()> {
        self.make_room(entry.tar_bytes(), on_frame)?;
        self.append(&entry.header(), on_frame)
    }

    /// Pads the current entry to a whole block.
    pub fn end(&mut self, entry: &Entry, on_frame: &mut OnFrame<'_>) -> Result<()> {
        let (padding, _) = split_at_most(&[0; BLOCK_LEN], to_usize(padding_bytes(entry.content_bytes)));
        self.append(padding, on_frame)
    }

    /// Writes the end of the archive, and passes the last frame on.
    pub fn finish(mut self, on_frame: &mut OnFrame<'_>) -> Result<()> {
        self.make_room(END_OF_ARCHIVE_BYTES, on_frame)?;
        self.append(&END_OF_ARCHIVE, on_frame)?;
        on_frame(self.frame).map(drop)
    }

    /// Starts a new frame, unless the current one is empty or has room for `wanted_bytes` more.
    fn make_room(&mut self, wanted_bytes: u64, on_frame: &mut OnFrame<'_>) -> Result<()> {
        let total_bytes = wanted_bytes.saturating_add(self.frame.len() as u64);
        if !self.frame.is_empty() && total_bytes > self.frame_size_bytes as u64 {
            self.start_frame(on_frame)?;
        }
        Ok(())
    }

    /// Writes the next bytes of the current entry. Cuts an entry only if it is larger than a frame.
    pub fn append(&mut self, mut bytes: &[u8], on_frame: &mut OnFrame<'_>) -> Result<()> {
        while !bytes.is_empty() {
            if self.frame.len() == self.frame_size_bytes {
                self.start_frame(on_frame)?;
            }
            let (part, rest) = split_at_most(bytes, self.frame_size_bytes.saturating_sub(self.frame.len()));
            self.frame.extend_from_slice(part);
            bytes = rest;
        }
        Ok(())
    }

    fn start_frame(&mut self, on_frame: &mut OnFrame<'_>) -> Result<()> {
        self.frame = on_frame(std::mem::take(&mut self.frame))?;
        self.frame.clear();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{BLOCK_LEN, EntryKind, FrameCutter};

    proptest! {
        #[test]
        fn streams_are_cut_where_plans_are(
            lengths in proptest::collection::vec(0u64..6000, 0..20), blocks in 1u64..12, piece_bytes in 1usize..3000,
        ) {
            let frame_size_bytes = blocks * BLOCK_LEN as u64 + 100;
            let entries: Vec<Entry> = lengths.iter().enumerate().map(|(slot, length)| Entry {
                kind: EntryKind::Storage { slot: slot as u64, id: 0 },
                content_bytes: *length,
            }).collect();
            let mut frames = Vec::new();
            let mut on_frame = |frame: Vec<u8>| { frames.push(frame); Ok(Vec::new()) };
            let mut assembler = FrameAssembler::new(frame_size_bytes, Vec::new());
            let mut tar = Vec::new();
            for entry in &entries {
                let content = vec![entry.content_bytes as u8; entry.content_bytes as usize];
                assembler.begin(entry, &mut on_frame).expect("started");
                for piece in content.chunks(piece_bytes) {
                    assembler.append(piece, &mut on_frame).expect("appended");
                }
                assembler.end(entry, &mut on_frame).expect("ended");
                tar.extend_from_slice(&entry.header());
                tar.extend_from_slice(&content);
                tar.resize(tar.len().next_multiple_of(BLOCK_LEN), 0);
            }
            assembler.finish(&mut on_frame).expect("finished");
            tar.extend_from_slice(&END_OF_ARCHIVE);
            let lengths = entries.iter().map(Entry::tar_bytes).chain([END_OF_ARCHIVE_BYTES]);
            let planned: Vec<u64> = FrameCutter::new(lengths, frame_size_bytes).map(|span| span.length_bytes).collect();
            prop_assert_eq!(frames.iter().map(|frame| frame.len() as u64).collect::<Vec<_>>(), planned);
            prop_assert_eq!(frames.concat(), tar);
        }
    }
}
