//! The end of an archive that slotpress made: its seek table and its index, which tell where every entry lies.
//!
//! Both are hints. A tail that is missing, damaged or contradicts the file is no tail: the archive is then read in
//! order, by its frames alone.

use {
    crate::{
        error::{Error, IoContext, Result},
        format::{
            entry::{BLOCK_BYTES, END_OF_ARCHIVE_BYTES, Entry},
            frames::FrameSpan,
            index::{INDEX_FRAME_BYTES_MAX, INDEX_FRAME_KIND, Index},
            seek_table::{SEEK_TABLE_FOOTER_BYTES, parse_seek_table, seek_table_bytes},
            zstd_frame::{FrameStart, SKIPPABLE_HEADER_BYTES, parse_frame_start},
        },
        restore::walk::WHOLE_FRAME_BYTES_MAX,
    },
    std::{fs::File, os::unix::fs::FileExt, path::Path},
};

/// A frame of the archive that holds tar.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DataFrame {
    /// Where it starts in the file.
    pub offset_bytes: u64,
    /// Its length in the file.
    pub compressed_bytes: u32,
    /// Bytes of tar inside.
    pub content_bytes: u32,
}

/// Seek table and index, which agree with each other and with the file's length.
#[derive(Debug)]
pub struct Tail {
    /// The entries.
    pub index: Index,
    /// The frames that hold tar, in order.
    pub frames: Vec<DataFrame>,
    /// Bytes of skippable frames: marks, index, seek table.
    pub skippable_bytes: u64,
}

impl Tail {
    /// Reads the tail of a file. `Ok(None)`: there is none. An error: there is one, but it makes no sense.
    pub fn read(file: &File, path: &Path, length_bytes: u64) -> Result<Option<Self>> {
        let Some(footer_at) = length_bytes.checked_sub(SEEK_TABLE_FOOTER_BYTES as u64) else { return Ok(None) };
        let mut footer = [0; SEEK_TABLE_FOOTER_BYTES];
        file.read_exact_at(&mut footer, footer_at).or_path("read", path)?;
        let Some(table_bytes) = seek_table_bytes(&footer) else { return Ok(None) };
        let wrong = || Error::damaged("the seek table at the archive's end does not fit the file");
        let table_at = length_bytes.checked_sub(table_bytes).ok_or_else(wrong)?;
        let mut table = vec![0; table_bytes as usize];
        file.read_exact_at(&mut table, table_at).or_path("read", path)?;
        let items = parse_seek_table(&table)?;
        drop(table);

        let mut frames = Vec::with_capacity(items.len() / 2 + 1);
        let mut at = 0;
        for item in &items {
            if item.content_bytes > 0 {
                if u64::from(item.content_bytes) > WHOLE_FRAME_BYTES_MAX {
                    return Ok(None);
                }
                frames.push(DataFrame {
                    offset_bytes: at,
                    compressed_bytes: item.compressed_bytes,
                    content_bytes: item.content_bytes,
                });
            } else if !is_skippable(file, path, at, item.compressed_bytes)? {
                // Every other reader would find tar there.
                return Err(Error::damaged("the seek table at the archive's end hides a frame"));
            }
            at += u64::from(item.compressed_bytes);
        }
        if at != table_at {
            return Err(wrong());
        }
        let Some(index_bytes) = items.last().map(|item| u64::from(item.compressed_bytes)) else { return Ok(None) };
        let Some(index) = read_index(file, path, table_at, index_bytes)? else { return Ok(None) };
        let content_bytes: u64 = frames.iter().map(|frame| u64::from(frame.content_bytes)).sum();
        let compressed_bytes: u64 = frames.iter().map(|frame| u64::from(frame.compressed_bytes)).sum();
        if index.tar_bytes() != content_bytes {
            return Err(wrong());
        }
        let tail = Self { index, frames, skippable_bytes: length_bytes - compressed_bytes };
        if tail.spans().any(|(_, span)| span.offset_bytes > 0 && span.offset_bytes < BLOCK_BYTES) {
            return Err(Error::damaged("the archive's index cuts an entry inside its header"));
        }
        Ok(Some(tail))
    }

    /// Every frame, with what it covers of the entries.
    pub fn spans(&self) -> impl Iterator<Item = (DataFrame, FrameSpan)> + '_ {
        let lengths = self.index.entries.iter().map(Entry::tar_bytes).chain([END_OF_ARCHIVE_BYTES]);
        let mut lengths = lengths.enumerate();
        // The entry that the next frame starts with, where in it, and its length.
        let mut entry = lengths.next();
        let mut offset_bytes = 0;
        self.frames.iter().map(move |frame| {
            let (number, _) = entry.unwrap_or((self.index.entries.len() + 1, 0));
            let length_bytes = u64::from(frame.content_bytes);
            let span = FrameSpan { first_entry: number as u64, offset_bytes, length_bytes };
            offset_bytes += length_bytes;
            while let Some((_, length)) = entry.filter(|(_, length)| offset_bytes >= *length) {
                offset_bytes -= length;
                entry = lengths.next();
            }
            (*frame, span)
        })
    }
}

/// Whether the bytes at an offset are one skippable frame of exactly the given length.
fn is_skippable(file: &File, path: &Path, at: u64, length_bytes: u32) -> Result<bool> {
    let mut header = [0; SKIPPABLE_HEADER_BYTES];
    if (length_bytes as usize) < SKIPPABLE_HEADER_BYTES {
        return Ok(false);
    }
    match file.read_exact_at(&mut header, at) {
        Ok(()) => {}
        Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => return Ok(false),
        Err(error) => return Err(Error::io("read", path, &error)),
    }
    Ok(matches!(parse_frame_start(&header), Ok(FrameStart::Skippable { content_bytes, .. })
        if u64::from(content_bytes) + SKIPPABLE_HEADER_BYTES as u64 == u64::from(length_bytes)))
}

fn read_index(file: &File, path: &Path, table_at: u64, index_bytes: u64) -> Result<Option<Index>> {
    if index_bytes > INDEX_FRAME_BYTES_MAX || index_bytes < SKIPPABLE_HEADER_BYTES as u64 {
        return Ok(None);
    }
    let Some(index_at) = table_at.checked_sub(index_bytes) else { return Ok(None) };
    let mut frame = vec![0; index_bytes as usize];
    file.read_exact_at(&mut frame, index_at).or_path("read", path)?;
    match parse_frame_start(&frame)? {
        FrameStart::Skippable { kind: INDEX_FRAME_KIND, content_bytes }
            if u64::from(content_bytes) + SKIPPABLE_HEADER_BYTES as u64 == index_bytes =>
        {
            Index::parse_frame(&frame).map(Some)
        }
        _ => Ok(None),
    }
}
