//! Writes an archive's file: frames in order, then the index with their hashes, and the seek table.

use std::io::Write;
use std::path::Path;

use slotpress_base::{Error, IoContext, Result, ShowPath};
use slotpress_format::{
    END_OF_ARCHIVE_BYTES, Entry, EntryKind, FrameHash, Index, Root, SeekTableItem, seek_table_frame,
};

use crate::archive::encode::{ArchiveFormat, Codec, EncodedFrame};
use crate::archive::lz4;

/// Writes the frames of an archive in order. Keeps 40 bytes per frame, for the seek table and the
/// frame hashes.
pub struct ArchiveWriter<'a, W> {
    to: W,
    path: &'a Path,
    codec: Codec,
    frames: Vec<SeekTableItem>,
    hashes: Vec<FrameHash>,
    frame_count: u64,
    unclustered_pieces: u64,
    written_bytes: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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

impl<'a, W: Write> ArchiveWriter<'a, W> {
    /// Makes a writer. Error messages name `path`.
    pub fn new(to: W, path: &'a Path, codec: &Codec) -> Self {
        let (frames, hashes, codec) = (Vec::new(), Vec::new(), codec.clone());
        Self { to, path, codec, frames, hashes, frame_count: 0, unclustered_pieces: 0, written_bytes: 0 }
    }

    pub fn frame(&mut self, frame: &EncodedFrame<'_>) -> Result<()> {
        slotpress_base::threads::panic_point("frame writer");
        if self.codec.format == ArchiveFormat::Lz4 && self.frame_count == 0 {
            self.put(&lz4::frame_header())?;
        }
        self.frame_count += 1;
        self.unclustered_pieces += frame.left_as_is;
        if self.is_framed() {
            let too_large = |_| Error::failed("a frame is longer than 4 GiB");
            let compressed_bytes = u32::try_from(frame.bytes.len()).map_err(too_large)?;
            let content_bytes = u32::try_from(frame.content_bytes).map_err(too_large)?;
            self.frames.push(SeekTableItem { compressed_bytes, content_bytes });
        }
        self.hashes.extend(frame.hash);
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
        if self.codec.format == ArchiveFormat::Lz4 {
            self.put(&lz4::END_MARK)?;
        }
        let root = match self.is_framed() {
            true => {
                let settings =
                    [Some(self.codec.settings().as_str()), note].into_iter().flatten().collect::<Vec<_>>().join(" ");
                let writer = concat!("slotpress ", env!("CARGO_PKG_VERSION")).to_string();
                let hashes = std::mem::take(&mut self.hashes);
                let index = Index { writer, settings, frame_size_bytes, hashes, entries: entries.collect() };
                Some(self.put_tail(&index)?)
            }
            false => None,
        };
        self.to.flush().or_path("write", self.path)?;
        let Self { written_bytes: length_bytes, frame_count: frames, unclustered_pieces, .. } = self;
        Ok(WrittenArchive { length_bytes, frames, unclustered_pieces, root })
    }

    /// Writes index and seek table. Returns the root.
    fn put_tail(&mut self, index: &Index) -> Result<Root> {
        let index = index.to_frame()?;
        let compressed_bytes = index.len() as u32; // a skippable frame is below 4 GiB
        self.frames.push(SeekTableItem { compressed_bytes, content_bytes: 0 });
        let table = seek_table_frame(&self.frames).ok_or_else(|| {
            let message = format!("{}: {} frames are too many for a seek table", self.path.shown(), self.frames.len());
            Error::failed(message).with_hint("choose larger frames")
        })?;
        let tail = [index.as_slice(), &table];
        let tail_bytes = index.len() as u64 + table.len() as u64;
        let root = Root::new(self.written_bytes + tail_bytes, tail);
        tail.iter().try_for_each(|frame| self.put(frame))?;
        Ok(root)
    }

    /// True if frames can be decoded independently, and an index can follow them. Only zstd
    /// allows that.
    fn is_framed(&self) -> bool {
        self.codec.is_zstd()
    }

    fn put(&mut self, bytes: &[u8]) -> Result<()> {
        self.to.write_all(bytes).or_path("write", self.path)?;
        self.written_bytes += bytes.len() as u64;
        Ok(())
    }
}
