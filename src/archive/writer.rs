//! Writing an archive file: frames with their `pzstd` marks, then the index, then the seek table.

use {
    crate::{
        archive::{
            encode::{Codec, EncodedFrame, Format},
            lz4,
        },
        error::{Error, IoContext, Result},
        format::{
            entry::Entry,
            index::Index,
            seek_table::{SeekTableItem, seek_table_frame},
            zstd_frame::{PZSTD_FRAME_BYTES, pzstd_frame},
        },
    },
    std::{io::Write, path::Path},
};

/// Writes frames in order, and remembers them for the seek table (8 bytes each).
pub struct ArchiveWriter<'a, W> {
    to: W,
    path: &'a Path,
    codec: Codec,
    frames: Vec<SeekTableItem>,
    totals: FrameTotals,
    written_bytes: u64,
}

/// The frames of an archive, counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FrameTotals {
    /// Frames that hold tar.
    pub frames: u64,
    /// Of those, frames that are stored raw.
    pub stored_frames: u64,
}

impl<'a, W: Write> ArchiveWriter<'a, W> {
    /// Writes to `to`; `path` names it in errors.
    pub fn new(to: W, path: &'a Path, codec: &Codec) -> Self {
        Self { to, path, codec: codec.clone(), frames: Vec::new(), totals: FrameTotals::default(), written_bytes: 0 }
    }

    /// Writes the next frame.
    pub fn frame(&mut self, frame: &EncodedFrame<'_>) -> Result<()> {
        if self.codec.format == Format::Lz4 && self.totals.frames == 0 {
            self.put(&lz4::frame_header(self.codec.has_checksum))?;
        }
        self.totals.frames += 1;
        self.totals.stored_frames += u64::from(frame.is_stored);
        if self.is_framed() {
            let too_large = |_| Error::failed("a frame of 4 GiB");
            let compressed_bytes = u32::try_from(frame.bytes.len()).map_err(too_large)?;
            self.put(&pzstd_frame(compressed_bytes))?;
            self.frames.push(SeekTableItem { compressed_bytes: PZSTD_FRAME_BYTES as u32, content_bytes: 0 });
            let content_bytes = u32::try_from(frame.content_bytes).map_err(too_large)?;
            self.frames.push(SeekTableItem { compressed_bytes, content_bytes });
        }
        self.put(frame.bytes)
    }

    /// Writes what follows the last frame; returns the length of the archive in bytes, and what its frames are. A plain
    /// tar ends with its last block.
    pub fn finish(mut self, entries: impl Iterator<Item = Entry>, frame_size_bytes: u64) -> Result<(u64, FrameTotals)> {
        if self.codec.format == Format::Lz4 {
            self.put(&lz4::END_MARK)?;
        }
        if self.is_framed() {
            let settings = self.codec.settings();
            let writer = concat!("slotpress ", env!("CARGO_PKG_VERSION")).to_string();
            let index = Index { writer, settings, frame_size_bytes, entries: entries.collect() };
            let frame = index.to_frame()?;
            self.put(&frame)?;
            let compressed_bytes = frame.len() as u32; // a skippable frame is below 4 GiB
            self.frames.push(SeekTableItem { compressed_bytes, content_bytes: 0 });
            let table = seek_table_frame(&self.frames).ok_or_else(|| {
                Error::failed("more frames than a seek table can list").hint("choose a larger --frame-size")
            })?;
            self.put(&table)?;
        }
        self.to.flush().or_path("write", self.path)?;
        Ok((self.written_bytes, self.totals))
    }

    /// Whether frames can stand alone, and an index can follow them: with zstd.
    fn is_framed(&self) -> bool {
        matches!(self.codec.format, Format::Zstd { .. })
    }

    fn put(&mut self, bytes: &[u8]) -> Result<()> {
        self.to.write_all(bytes).or_path("write", self.path)?;
        self.written_bytes += bytes.len() as u64;
        Ok(())
    }
}
