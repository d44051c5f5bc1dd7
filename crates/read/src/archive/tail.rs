//! Reads the end of an archive that slotpress wrote: the index with the frame hashes, and the seek table.
//!
//! If the tail is damaged, or does not fit the file's length, the archive is read in order, without it. With a
//! valid tail, each frame is compared with the tail when the frame is read.

use std::ops::Range;

use slotpress_base::{Error, IoContext, Progress, Result, prefix_mut, range_bytes, saturating_add_to, to_usize};
use slotpress_format::{
    ArchiveRoot, END_OF_ARCHIVE_BYTES, Entry, FrameHash, FrameSpan, INDEX_FRAME_BYTES_MAX, Index,
    SEEK_TABLE_FOOTER_BYTES, SeekTableItem, parse_seek_table, seek_table_len,
};

use super::source::Source;
use super::walk::WHOLE_FRAME_BYTES_MAX;

/// Returns the offset at which the first read of an archive's end begins. Seek table and index of a mainnet
/// archive (55,000 frames, 430,000 storages) fit into 8 MiB, so one read is enough. In a smaller archive, the
/// read covers an eighth of the archive, so that a reader of an arriving archive does not have to wait for
/// most of it.
pub fn tail_read_offset(length_bytes: u64) -> u64 {
    length_bytes.saturating_sub((length_bytes / 8).clamp(256 * 1024, 8 * 1024 * 1024))
}

/// Limit on the length of the seek table: almost five times what 450 GB of tar needs in the smallest frames.
const SEEK_TABLE_BYTES_MAX: u64 = 256 * 1024 * 1024;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DataFrame {
    pub offset_bytes: u64,
    pub compressed_bytes: u32,
    pub content_bytes: u32,
}

impl DataFrame {
    pub fn end_bytes(&self) -> u64 {
        self.offset_bytes.saturating_add(u64::from(self.compressed_bytes))
    }

    pub fn range(&self) -> Range<u64> {
        self.offset_bytes..self.end_bytes()
    }
}

/// Seek table and index that agree with each other and with the file's length.
#[derive(Debug)]
pub struct Tail {
    pub index: Index,
    pub hashes: Option<TailHashes>,
    pub frames: Vec<DataFrame>,
    /// Length of index and seek table.
    pub length_bytes: u64,
}

#[derive(Debug)]
pub struct TailHashes {
    pub frames: Vec<FrameHash>,
    /// Hash over the archive's length and tail, and therefore over the hashes of all frames.
    pub root: ArchiveRoot,
    /// Offset of the tail, which begins with the index.
    pub offset_bytes: u64,
}

struct LastBytes<'a> {
    source: &'a dyn Source,
    start: u64,
    bytes: Vec<u8>,
}

impl LastBytes<'_> {
    fn get(&mut self, range: Range<u64>) -> Result<&[u8]> {
        let missing_bytes = self.start.saturating_sub(range.start);
        if missing_bytes > 0 {
            let mut bytes = vec![0; to_usize(missing_bytes)];
            self.source.read_exact_at(&mut bytes, range.start).or_path("read", self.source.path())?;
            bytes.extend_from_slice(&self.bytes);
            (self.bytes, self.start) = (bytes, range.start);
        }
        let index_of = |offset: u64| to_usize(offset.saturating_sub(self.start));
        Ok(self.bytes.get(index_of(range.start)..index_of(range.end)).unwrap_or_default())
    }

    fn seek_table(&mut self, length_bytes: u64) -> Result<Option<(Vec<SeekTableItem>, u64)>> {
        let Some(footer_offset) = length_bytes.checked_sub(SEEK_TABLE_FOOTER_BYTES as u64) else { return Ok(None) };
        self.get(tail_read_offset(length_bytes)..length_bytes)?;
        let table_bytes = self.get(footer_offset..length_bytes)?.first_chunk().and_then(seek_table_len);
        let Some(table_bytes) = table_bytes.filter(|bytes| *bytes <= SEEK_TABLE_BYTES_MAX) else { return Ok(None) };
        let table_offset = length_bytes.checked_sub(table_bytes).ok_or_else(misfit_error)?;
        Ok(Some((parse_seek_table(self.get(table_offset..length_bytes)?)?, table_offset)))
    }
}

impl Tail {
    /// Reads the tail. `Ok(None)` if there is no tail of this version, or if the length of the source is
    /// unknown.
    ///
    /// # Errors
    /// There is a tail, but it contradicts itself or the file
    /// ([`Damaged`](slotpress_base::error::ErrorKind::Damaged)); or the source cannot be read.
    pub fn read(source: &dyn Source) -> Result<Option<Self>> {
        let Some(length_bytes) = source.length_bytes() else { return Ok(None) };
        let mut last_bytes = LastBytes { source, start: length_bytes, bytes: Vec::new() };
        let Some((items, table_offset)) = last_bytes.seek_table(length_bytes)? else { return Ok(None) };
        let Some(frames) = data_frames(&items) else { return Ok(None) };
        let index_offset = frames.last().map_or(0, DataFrame::end_bytes);
        let index_bytes = table_offset.checked_sub(index_offset).ok_or_else(misfit_error)?;
        if index_bytes > INDEX_FRAME_BYTES_MAX {
            return Ok(None);
        }
        let Some(mut index) = Index::parse_frame(last_bytes.get(index_offset..table_offset)?)? else { return Ok(None) };
        let lengths = frames.iter().map(|frame| u64::from(frame.content_bytes));
        let content_bytes = lengths.fold(0, u64::saturating_add);
        if index.tar_bytes() != content_bytes
            || items.last().map(|item| u64::from(item.compressed_bytes)) != Some(index_bytes)
        {
            return Err(misfit_error());
        }
        let hashes = match std::mem::take(&mut index.hashes) {
            hashes if hashes.is_empty() => None,
            hashes if hashes.len() == frames.len() => {
                let root = ArchiveRoot::new(length_bytes, [last_bytes.get(index_offset..length_bytes)?]);
                Some(TailHashes { frames: hashes, root, offset_bytes: index_offset })
            }
            _ => return Err(Error::damaged("the archive's index is damaged: not one hash for each frame")),
        };
        Ok(Some(Self { index, hashes, frames, length_bytes: length_bytes.saturating_sub(index_offset) }))
    }

    pub fn spans(&self) -> impl Iterator<Item = (DataFrame, FrameSpan)> + '_ {
        let entry_lengths = self.index.entries.iter().map(Entry::tar_bytes);
        let mut lengths = entry_lengths.chain([END_OF_ARCHIVE_BYTES]).enumerate();
        // Number and length of the entry in which the next frame starts.
        let mut entry = lengths.next();
        let mut offset_bytes = 0u64;
        self.frames.iter().map(move |frame| {
            let (number, _) = entry.unwrap_or((self.index.entries.len().saturating_add(1), 0));
            let length_bytes = u64::from(frame.content_bytes);
            let span = FrameSpan { first_entry: number as u64, offset_bytes, length_bytes };
            saturating_add_to(&mut offset_bytes, length_bytes);
            while let Some(offset_in_next) = entry.and_then(|(_, length)| offset_bytes.checked_sub(length)) {
                offset_bytes = offset_in_next;
                entry = lengths.next();
            }
            (*frame, span)
        })
    }
}

fn misfit_error() -> Error {
    Error::damaged("the seek table at the archive's end does not fit the file")
}

/// Returns the frames of a seek table whose last item is an index. `None` if the last item is something else, or
/// if another frame has no content or is too large to be read as a whole.
fn data_frames(items: &[SeekTableItem]) -> Option<Vec<DataFrame>> {
    let (_, items) = items.split_last().filter(|(index, _)| index.content_bytes == 0)?;
    let mut offset_bytes = 0u64;
    let frame = |item: &SeekTableItem| {
        let SeekTableItem { compressed_bytes, content_bytes } = *item;
        let frame = DataFrame { offset_bytes, compressed_bytes, content_bytes };
        offset_bytes = frame.end_bytes();
        (1..=WHOLE_FRAME_BYTES_MAX).contains(&u64::from(content_bytes)).then_some(frame)
    };
    items.iter().map(frame).collect()
}

/// Bytes that are read and then hashed at a time, so that they stay in a core's cache.
const HASHED_PIECE_BYTES: usize = 256 * 1024;

/// Compares frames with their hashes, without decoding them. Skips frames for whose range `was_compared` is
/// true. Returns the root, or `None` if the archive has no frame hashes.
///
/// # Errors
/// A frame does not match its hash ([`Damaged`](slotpress_base::ErrorKind::Damaged)); the source cannot be read;
/// or the run is interrupted.
pub fn check_hashes(
    source: &dyn Source,
    tail: &Tail,
    was_compared: &dyn Fn(&Range<u64>) -> bool,
    progress: &dyn Progress,
) -> Result<Option<ArchiveRoot>> {
    let Some(hashes) = &tail.hashes else { return Ok(None) };
    let mut piece = Vec::new();
    for (frame, hash) in tail.frames.iter().zip(&hashes.frames) {
        let range = frame.range();
        if was_compared(&range) {
            continue;
        }
        progress.check()?;
        if hash_range(source, &range, &mut piece)? != *hash {
            let start = range.start;
            let why = format!("the frame at offset {start} does not match its hash");
            return Err(Error::damaged(why).with_hint("fetch it from another source").at_offset(start));
        }
        progress.advance(range_bytes(&range), 0);
    }
    Ok(Some(hashes.root))
}

fn hash_range(source: &dyn Source, range: &Range<u64>, piece: &mut Vec<u8>) -> Result<FrameHash> {
    let mut hasher = blake3::Hasher::new();
    piece.resize(HASHED_PIECE_BYTES, 0);
    let mut offset = range.start;
    while offset < range.end {
        let piece = prefix_mut(piece, to_usize(range.end.saturating_sub(offset)));
        source.read_exact_at(piece, offset).or_path("read", source.path())?;
        hasher.update(piece);
        saturating_add_to(&mut offset, piece.len() as u64);
    }
    Ok(hasher.finalize().into())
}
