//! Writes an archive's file: frames in order, then the index with their hashes, and the seek table.

use slotpress_base::{Error, Progress, Result};
use slotpress_format::{ArchiveRoot, END_OF_ARCHIVE_BYTES, Entry, FrameHash, Index, SeekTableItem, seek_table_frame};

use crate::archive::encode::{ArchiveFormat, Codec, FrameSummary};
use crate::archive::lz4;
use crate::archive::sink::Sink;

/// Writes the frames of an archive in order. Keeps 40 bytes per frame, for the seek table and the
/// frame hashes.
pub struct ArchiveWriter<'a> {
    sink: &'a mut dyn Sink,
    codec: &'a Codec,
    progress: &'a dyn Progress,
    frames: Vec<SeekTableItem>,
    hashes: Vec<FrameHash>,
    written: WrittenArchive,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WrittenArchive {
    pub length_bytes: u64,
    pub frames: u64,
    /// Sum over the frames; see [`FrameSummary::unclustered_pieces`].
    pub unclustered_pieces: u64,
    pub root: Option<ArchiveRoot>,
}

pub fn count_storages(entries: &[Entry]) -> u64 {
    entries.iter().filter(|entry| entry.is_storage()).count() as u64
}

pub fn tar_stream_bytes(entries: &[Entry]) -> u64 {
    entries.iter().map(Entry::tar_bytes).sum::<u64>() + END_OF_ARCHIVE_BYTES
}

impl<'a> ArchiveWriter<'a> {
    pub fn new(sink: &'a mut dyn Sink, codec: &'a Codec, progress: &'a dyn Progress) -> Self {
        Self { sink, codec, progress, frames: Vec::new(), hashes: Vec::new(), written: WrittenArchive::default() }
    }

    pub fn write_frame(&mut self, bytes: &[u8], frame: &FrameSummary) -> Result<()> {
        slotpress_base::threads::panic_point("frame writer");
        if self.codec.format == ArchiveFormat::Lz4 && self.written.frames == 0 {
            self.write_bytes(&lz4::frame_header())?;
        }
        self.written.frames += 1;
        self.written.unclustered_pieces += frame.unclustered_pieces;
        self.hashes.extend(frame.hash);
        self.record_frame(bytes, frame.content_bytes)?;
        self.write_bytes(bytes)
    }

    /// Writes everything that follows the last frame, which is nothing in a plain tar. `note` is appended
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
                // An archive of 4 TiB in the smallest frames has half as many frames as the table can hold.
                let table = seek_table_frame(&self.frames)
                    .ok_or_else(|| Error::failed("there are too many frames for a seek table"))?;
                let length_bytes = self.written.length_bytes + (index.len() + table.len()) as u64;
                self.written.root = Some(ArchiveRoot::new(length_bytes, [index.as_slice(), &table]));
                self.write_bytes(&index)?;
                self.write_bytes(&table)?;
            }
            ArchiveFormat::Lz4 => self.write_bytes(&lz4::END_MARK)?,
            ArchiveFormat::None => {}
        }
        self.sink.flush()?;
        Ok(self.written)
    }

    fn record_frame(&mut self, frame: &[u8], content_bytes: u64) -> Result<()> {
        let too_large = |_| Error::failed("a frame is longer than 4 GiB");
        let compressed_bytes = u32::try_from(frame.len()).map_err(too_large)?;
        let content_bytes = u32::try_from(content_bytes).map_err(too_large)?;
        self.frames.push(SeekTableItem { compressed_bytes, content_bytes });
        Ok(())
    }

    fn write_bytes(&mut self, bytes: &[u8]) -> Result<()> {
        self.sink.write(bytes, self.progress)?;
        self.written.length_bytes += bytes.len() as u64;
        Ok(())
    }
}
