//! Writing an archive file: frames with their `pzstd` marks, then the index, then the seek table.

use {
    crate::{
        archive::encode::{Codec, EncodedFrame},
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
    is_framed: bool,
    frames: Vec<SeekTableItem>,
    written_bytes: u64,
}

impl<'a, W: Write> ArchiveWriter<'a, W> {
    /// Writes to `to`; `path` names it in errors.
    pub fn new(to: W, path: &'a Path, codec: &Codec) -> Self {
        Self { to, path, is_framed: *codec != Codec::None, frames: Vec::new(), written_bytes: 0 }
    }

    /// Writes the next frame.
    pub fn frame(&mut self, frame: &EncodedFrame<'_>) -> Result<()> {
        if self.is_framed {
            let too_large = |_| Error::failed("a frame of 4 GiB");
            let compressed_bytes = u32::try_from(frame.bytes.len()).map_err(too_large)?;
            self.put(&pzstd_frame(compressed_bytes))?;
            self.frames.push(SeekTableItem { compressed_bytes: PZSTD_FRAME_BYTES as u32, content_bytes: 0 });
            let content_bytes = u32::try_from(frame.content_bytes).map_err(too_large)?;
            self.frames.push(SeekTableItem { compressed_bytes, content_bytes });
        }
        self.put(frame.bytes)
    }

    /// Writes what follows the last frame; returns the length of the archive in bytes. A plain tar ends with its
    /// last block.
    pub fn finish(
        mut self,
        entries: impl Iterator<Item = Entry>,
        settings: String,
        frame_size_bytes: u64,
    ) -> Result<u64> {
        if self.is_framed {
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
        Ok(self.written_bytes)
    }

    fn put(&mut self, bytes: &[u8]) -> Result<()> {
        self.to.write_all(bytes).or_path("write", self.path)?;
        self.written_bytes += bytes.len() as u64;
        Ok(())
    }
}
