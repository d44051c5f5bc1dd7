//! Reads the end of an archive that slotpress made: frame hashes, index and seek table.
//!
//! A tail that is damaged, or does not fit the file's length, is passed over: the archive is read in
//! order. Each frame is checked against a valid tail when it is read.

use std::ops::Range;

use slotpress_base::bytes::count;
use slotpress_base::{Error, IoContext, Result, split_at_most, to_usize};
use slotpress_format::archive::frame_hashes::{self};
use slotpress_format::{
    END_OF_ARCHIVE_BYTES, Entry, FRAME_HASHES_KIND, FrameHash, FrameSpan, FrameStart, INDEX_FRAME_BYTES_MAX,
    INDEX_FRAME_KIND, Index, Root, SEEK_TABLE_FOOTER_BYTES, SKIPPABLE_HEADER_BYTES, SeekTableItem, parse_frame_start,
    parse_seek_table, seek_table_bytes, skippable_frame_bytes,
};

use super::source::Source;
use super::walk::WHOLE_FRAME_BYTES_MAX;

/// Offset of the first read at the end of a file. Seek table, index and frame hashes of a mainnet
/// archive (55,000 frames, 430,000 storages) fit into 8 MiB, so one read is enough. In a small
/// archive, the read covers an eighth, so that a reader of an arriving archive need not wait for
/// most of it.
pub fn first_read_at(length_bytes: u64) -> u64 {
    length_bytes.saturating_sub((length_bytes / 8).clamp(256 * 1024, 8 * 1024 * 1024))
}

/// Limit on the seek table: twice what 450 GB of tar need in the smallest frames, each with a
/// skippable frame before it.
const SEEK_TABLE_BYTES_MAX: u64 = 256 * 1024 * 1024;

/// Limit on skippable bytes in front of a frame: enough for the frames that `pzstd` puts there, or
/// padding of less than 4 KiB.
pub const GAP_BYTES_MAX: u64 = 4096;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DataFrame {
    pub offset_bytes: u64,
    pub compressed_bytes: u32,
    pub content_bytes: u32,
    /// Length of the skippable frames right before it, at most [`GAP_BYTES_MAX`].
    pub gap_bytes: u32,
}

impl DataFrame {
    pub fn end_bytes(&self) -> u64 {
        self.offset_bytes.saturating_add(u64::from(self.compressed_bytes))
    }

    /// Range of the frame and the skippable frames in front of it.
    pub fn range(&self) -> Range<u64> {
        self.offset_bytes.saturating_sub(u64::from(self.gap_bytes))..self.end_bytes()
    }
}

/// Seek table and index that agree with each other and with the file's length.
#[derive(Debug)]
pub struct Tail {
    pub index: Index,
    pub hashes: Option<Hashes>,
    pub frames: Vec<DataFrame>,
    /// Total length of skippable frames: hashes, index, seek table, and those in front of frames.
    pub skippable_bytes: u64,
    /// True if only frame hashes, index and seek table follow the last frame, in the layout that
    /// slotpress writes.
    pub is_plain: bool,
}

#[derive(Debug)]
pub struct Hashes {
    /// Hash of each data frame, with the skippable frames in front of it.
    pub frames: Vec<FrameHash>,
    /// Hash over all frame hashes and the tail; stands for all bytes of the archive.
    pub root: Root,
    pub offset_bytes: u64,
}

/// The last bytes of a source; reads more of them on request.
struct LastBytes<'a> {
    source: &'a dyn Source,
    start: u64,
    bytes: Vec<u8>,
}

impl LastBytes<'_> {
    fn get(&mut self, range: Range<u64>) -> Result<&[u8]> {
        let missing = self.start.saturating_sub(range.start);
        if missing > 0 {
            let mut more = vec![0; to_usize(missing)];
            self.source.read_exact_at(&mut more, range.start).or_path("read", self.source.path())?;
            more.extend_from_slice(&self.bytes);
            (self.bytes, self.start) = (more, range.start);
        }
        let within = |at: u64| to_usize(at.saturating_sub(self.start));
        Ok(self.bytes.get(within(range.start)..within(range.end)).unwrap_or_default())
    }

    /// The seek table, its offset, and true if it has the layout that slotpress writes; `None` if
    /// there is none.
    fn seek_table(&mut self, length_bytes: u64) -> Result<Option<(Vec<SeekTableItem>, u64, bool)>> {
        let Some(footer_at) = length_bytes.checked_sub(SEEK_TABLE_FOOTER_BYTES as u64) else { return Ok(None) };
        self.get(first_read_at(length_bytes)..length_bytes)?;
        let footer = self.get(footer_at..length_bytes)?.first_chunk().copied();
        let table_bytes = footer.as_ref().and_then(seek_table_bytes).filter(|bytes| *bytes <= SEEK_TABLE_BYTES_MAX);
        let Some(table_bytes) = table_bytes else { return Ok(None) };
        let is_plain = footer.is_some_and(|footer| footer[4] == 0);
        let table_at = length_bytes.checked_sub(table_bytes).ok_or_else(unfit)?;
        Ok(Some((parse_seek_table(self.get(table_at..length_bytes)?)?, table_at, is_plain)))
    }
}

impl Tail {
    /// Reads the tail. `Ok(None)` if there is none, or if the source does not know its length.
    ///
    /// # Errors
    /// [`Damaged`](slotpress_base::error::ErrorKind::Damaged): there is a tail, but it contradicts
    /// itself or the file. Other kinds: the source cannot be read.
    pub fn read(source: &dyn Source) -> Result<Option<Self>> {
        let Some(length_bytes) = source.length_bytes() else { return Ok(None) };
        let mut last = LastBytes { source, start: length_bytes, bytes: Vec::new() };
        let Some((items, table_at, has_plain_table)) = last.seek_table(length_bytes)? else { return Ok(None) };
        let Some(frames) = data_frames(&items, table_at)? else { return Ok(None) };
        let frames_end = frames.last().map_or(0, DataFrame::end_bytes);
        let Some(between_bytes) = bytes_before_index(&items, frames_end, table_at)? else { return Ok(None) };
        let after_frames = last.get(frames_end..table_at)?;
        let (between, index_frame) = split_at_most(after_frames, to_usize(between_bytes));
        if !is_whole_frame(index_frame, INDEX_FRAME_KIND)? {
            return Ok(None);
        }
        // Readers that do not use the seek table would decode frames that it hides.
        check_skippable(after_frames)?;
        let index = Index::parse_frame(index_frame)?;
        let has_nothing_between = between.is_empty();
        let hashes = if is_whole_frame(between, FRAME_HASHES_KIND).unwrap_or(false) {
            let hashes = frame_hashes::parse_frame(between, frames.len())?;
            let root = Root::new(length_bytes, [last.get(frames_end..length_bytes)?]);
            Some(Hashes { frames: hashes, root, offset_bytes: frames_end })
        } else {
            None
        };
        let is_plain = has_plain_table && (hashes.is_some() || has_nothing_between);
        let sum = |bytes: fn(&DataFrame) -> u32| frames.iter().map(bytes).map(u64::from).fold(0, u64::saturating_add);
        if index.tar_bytes() != sum(|frame| frame.content_bytes) {
            return Err(unfit());
        }
        let skippable_bytes = length_bytes.saturating_sub(sum(|frame| frame.compressed_bytes));
        Ok(Some(Self { index, hashes, frames, skippable_bytes, is_plain }))
    }

    /// Every frame, with the part of the tar stream that it covers.
    pub fn spans(&self) -> impl Iterator<Item = (DataFrame, FrameSpan)> + '_ {
        let lengths = self.index.entries.iter().map(Entry::tar_bytes).chain([END_OF_ARCHIVE_BYTES]);
        let mut lengths = lengths.enumerate();
        // Number and length of the entry that the next frame starts in.
        let mut entry = lengths.next();
        let mut offset_bytes = 0u64;
        self.frames.iter().map(move |frame| {
            let (number, _) = entry.unwrap_or((self.index.entries.len().saturating_add(1), 0));
            let length_bytes = u64::from(frame.content_bytes);
            let span = FrameSpan { first_entry: number as u64, offset_bytes, length_bytes };
            count(&mut offset_bytes, length_bytes);
            while let Some(left) = entry.and_then(|(_, length)| offset_bytes.checked_sub(length)) {
                offset_bytes = left;
                entry = lengths.next();
            }
            (*frame, span)
        })
    }
}

/// Length of what lies between the last frame and the index; `None` if there is no room for an
/// index.
fn bytes_before_index(items: &[SeekTableItem], frames_end: u64, table_at: u64) -> Result<Option<u64>> {
    let index_bytes = items.last().map(|item| u64::from(item.compressed_bytes));
    let index_bytes =
        index_bytes.filter(|bytes| (SKIPPABLE_HEADER_BYTES as u64..=INDEX_FRAME_BYTES_MAX).contains(bytes));
    let index_at = index_bytes.and_then(|bytes| table_at.checked_sub(bytes));
    match index_at.and_then(|index_at| index_at.checked_sub(frames_end)) {
        Some(bytes) if bytes > INDEX_FRAME_BYTES_MAX => Err(leaves_out()),
        bytes => Ok(bytes),
    }
}

fn unfit() -> Error {
    Error::damaged("the seek table at the archive's end does not fit the file")
}

fn leaves_out() -> Error {
    Error::damaged("the seek table at the archive's end leaves too much out")
}

/// The frames with content in a seek table that begins at `table_at`; `None` if one is too large to
/// be read as a whole.
fn data_frames(items: &[SeekTableItem], table_at: u64) -> Result<Option<Vec<DataFrame>>> {
    let mut frames = Vec::with_capacity((items.len() / 2).saturating_add(1));
    let (mut at, mut gap_at) = (0u64, 0);
    for item in items {
        if item.content_bytes > 0 {
            if u64::from(item.content_bytes) > WHOLE_FRAME_BYTES_MAX {
                return Ok(None);
            }
            let gap_bytes = at.saturating_sub(gap_at);
            let gap_bytes = u32::try_from(gap_bytes).ok().filter(|_| gap_bytes <= GAP_BYTES_MAX);
            let frame = DataFrame {
                offset_bytes: at,
                compressed_bytes: item.compressed_bytes,
                content_bytes: item.content_bytes,
                gap_bytes: gap_bytes.ok_or_else(leaves_out)?,
            };
            gap_at = frame.end_bytes();
            frames.push(frame);
        }
        count(&mut at, u64::from(item.compressed_bytes));
    }
    if at == table_at { Ok(Some(frames)) } else { Err(unfit()) }
}

/// True if the bytes are one whole skippable frame of this kind.
fn is_whole_frame(bytes: &[u8], kind: u8) -> Result<bool> {
    Ok(match parse_frame_start(bytes)? {
        FrameStart::Skippable { kind: found, content_bytes } => {
            found == kind && skippable_frame_bytes(content_bytes) == bytes.len() as u64
        }
        _ => false,
    })
}

/// Refuses anything but whole skippable frames: other readers would decode a data frame that the
/// seek table hides.
pub fn check_skippable(mut bytes: &[u8]) -> Result<()> {
    let hidden = || Error::damaged("the seek table at the archive's end hides a frame");
    while !bytes.is_empty() {
        let Ok(FrameStart::Skippable { content_bytes, .. }) = parse_frame_start(bytes) else {
            return Err(hidden());
        };
        bytes = bytes.get(to_usize(skippable_frame_bytes(content_bytes))..).ok_or_else(hidden)?;
    }
    Ok(())
}
