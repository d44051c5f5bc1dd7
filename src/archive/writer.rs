//! Writes an archive's file: frames in order, then the index with their hashes, and the seek table.

use slotpress_base::{Error, Result};
use slotpress_format::{
    END_OF_ARCHIVE_BYTES, Entry, EntryKind, FrameHash, Index, Root, SeekTableItem, seek_table_frame,
};

use crate::archive::encode::{ArchiveFormat, Codec, EncodedFrame};
use crate::archive::lz4;
use crate::archive::sink::Sink;

/// Writes the frames of an archive in order. Keeps 40 bytes per frame, for the seek table and the
/// frame hashes.
pub struct ArchiveWriter<'a> {
    to: &'a mut dyn Sink,
    codec: &'a Codec,
    frames: Vec<SeekTableItem>,
    hashes: Vec<FrameHash>,
    written: WrittenArchive,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WrittenArchive {
    pub length_bytes: u64,
    pub frames: u64,
    /// Storages whose records kept their order although the layout is clustered. A storage counts
    /// once for each frame that holds a part of it.
    pub unclustered_pieces: u64,
    pub root: Option<Root>,
}

/// Returns the number of storages among entries, and the length in bytes of the entries' tar.
pub fn storages_and_tar_bytes(entries: &[Entry]) -> (u64, u64) {
    let storages = entries.iter().filter(|entry| matches!(entry.kind, EntryKind::Storage { .. })).count() as u64;
    (storages, entries.iter().map(Entry::tar_bytes).sum::<u64>() + END_OF_ARCHIVE_BYTES)
}

impl<'a> ArchiveWriter<'a> {
    pub fn new(to: &'a mut dyn Sink, codec: &'a Codec) -> Self {
        Self { to, codec, frames: Vec::new(), hashes: Vec::new(), written: WrittenArchive::default() }
    }

    pub fn write_frame(&mut self, frame: &EncodedFrame<'_>) -> Result<()> {
        slotpress_base::threads::panic_point("frame writer");
        if self.codec.format == ArchiveFormat::Lz4 && self.written.frames == 0 {
            self.put(&lz4::frame_header())?;
        }
        self.written.frames += 1;
        self.written.unclustered_pieces += frame.left_as_is;
        self.hashes.extend(frame.hash);
        self.record_frame(frame.bytes, frame.content_bytes)?;
        self.put(frame.bytes)
    }

    /// Writes everything that follows the last frame: nothing after a plain tar. `note` is appended
    /// to the settings in the index.
    pub fn finish(
        mut self,
        entries: impl Iterator<Item = Entry>,
        note: Option<&str>,
        frame_size_bytes: u64,
    ) -> Result<WrittenArchive> {
        match self.codec.format {
            ArchiveFormat::Zstd { .. } => {
                let mut settings = self.codec.settings();
                if let Some(note) = note {
                    settings += &format!(" {note}");
                }
                let writer = concat!("slotpress ", env!("CARGO_PKG_VERSION")).to_string();
                let hashes = std::mem::take(&mut self.hashes);
                let index = Index { writer, settings, frame_size_bytes, hashes, entries: entries.collect() };
                let index = index.to_frame()?;
                self.record_frame(&index, 0)?;
                // An archive of 4 TiB in the smallest frames has half as many as the table can hold.
                let table = seek_table_frame(&self.frames)
                    .ok_or_else(|| Error::failed("there are too many frames for a seek table"))?;
                let length_bytes = self.written.length_bytes + (index.len() + table.len()) as u64;
                self.written.root = Some(Root::new(length_bytes, [index.as_slice(), &table]));
                self.put(&index)?;
                self.put(&table)?;
            }
            ArchiveFormat::Lz4 => self.put(&lz4::END_MARK)?,
            ArchiveFormat::None => {}
        }
        self.to.flush()?;
        Ok(self.written)
    }

    fn record_frame(&mut self, frame: &[u8], content_bytes: u64) -> Result<()> {
        let too_large = |_| Error::failed("a frame is longer than 4 GiB");
        let compressed_bytes = u32::try_from(frame.len()).map_err(too_large)?;
        let content_bytes = u32::try_from(content_bytes).map_err(too_large)?;
        self.frames.push(SeekTableItem { compressed_bytes, content_bytes });
        Ok(())
    }

    fn put(&mut self, bytes: &[u8]) -> Result<()> {
        self.to.write(bytes)?;
        self.written.length_bytes += bytes.len() as u64;
        Ok(())
    }
}
