//! Fills frames with tar bytes: headers, contents (read directly into place), padding. Any worker
//! can fill any frame.

use slotpress_base::{IoHint, Result, copy_at_most, panic_point, split_at_most, to_usize};
use slotpress_format::{BLOCK_LEN, END_OF_ARCHIVE_BYTES, Entry, FrameSpan, StorageFile};

use crate::Plan;
use crate::plan::file::{OpenStorage, dir_of};
use crate::plan::split::SplitStorage;
use crate::plan::{PlannedFile, PlannedStorage};

struct EntryPart {
    number: usize,
    /// Offset in the entry, from the start of its header.
    offset: u64,
    length_bytes: u64,
}

impl Plan {
    /// Returns the lengths in bytes of all entries, and of the zeros at the end of the archive.
    pub fn entry_lengths(&self) -> impl Iterator<Item = u64> + Send + '_ {
        self.entries().map(|entry| entry.tar_bytes()).chain([END_OF_ARCHIVE_BYTES])
    }

    /// Writes the tar bytes of a frame into `buf`, which must have the frame's length.
    pub fn fill(&self, span: &FrameSpan, mut buf: &mut [u8]) -> Result<()> {
        panic_point("source");
        for part in self.parts_of(span) {
            let (bytes, rest) = buf.split_at_mut(to_usize(part.length_bytes));
            self.fill_entry(part.number, part.offset, bytes)?;
            buf = rest;
        }
        // Zeros end the archive.
        buf.fill(0);
        Ok(())
    }

    /// True if, according to the kernel, a storage of the frame is not in the page cache. Checks only one
    /// storage, because the others seldom differ.
    pub fn is_cold(&self, span: &FrameSpan) -> bool {
        let mut parts = self.parts_of(span).filter_map(|part| Some((self.storage(part.number)?, part)));
        // The frame may hold only the last bytes of its first storage, so the second one is preferred.
        let first = parts.next();
        let second = parts.next();
        second.or(first).is_some_and(|(storage, part)| {
            self.is_storage_cold(storage, part.offset.saturating_sub(BLOCK_LEN as u64), part.length_bytes)
        })
    }

    pub fn is_storage_cold(&self, storage: &PlannedStorage, offset: u64, part_bytes: u64) -> bool {
        let StorageFile { file_bytes, .. } = storage.file;
        let range = offset.min(file_bytes)..offset.saturating_add(part_bytes).min(file_bytes);
        let opened =
            dir_of(&storage.file, &self.storage_dirs).and_then(|dir| dir.open_storage(&storage.file.file_name()));
        // If the file cannot be opened, reading it reports the error.
        opened.is_ok_and(|file| self.io_hint.is_cold(&file, &range, file_bytes))
    }

    fn storage(&self, number: usize) -> Option<&PlannedStorage> {
        self.storages.get(number.checked_sub(self.files.len())?)
    }

    fn entry(&self, number: usize) -> Option<Entry> {
        let file = self.files.get(number).map(|file| file.entry);
        file.or_else(|| self.storage(number).map(PlannedStorage::entry))
    }

    fn parts_of(&self, span: &FrameSpan) -> impl Iterator<Item = EntryPart> {
        let mut offset = span.offset_bytes;
        let mut remaining_bytes = span.length_bytes;
        (to_usize(span.first_entry)..).map_while(move |number| {
            if remaining_bytes == 0 {
                return None;
            }
            let length_bytes = self.entry(number)?.tar_bytes().saturating_sub(offset).min(remaining_bytes);
            remaining_bytes = remaining_bytes.saturating_sub(length_bytes);
            Some(EntryPart { number, offset: std::mem::take(&mut offset), length_bytes })
        })
    }

    fn fill_entry(&self, number: usize, mut offset: u64, mut buf: &mut [u8]) -> Result<()> {
        let Some(entry) = self.entry(number) else { return Ok(()) };
        if offset < BLOCK_LEN as u64 {
            let header = entry.header();
            let copied = copy_at_most(split_at_most(&header, to_usize(offset)).1, buf);
            buf = buf.split_at_mut(copied).1;
            offset = offset.saturating_add(copied as u64);
        }
        let content_offset = offset.saturating_sub(BLOCK_LEN as u64);
        let content_bytes = entry.content_bytes.saturating_sub(content_offset).min(buf.len() as u64);
        let (data, padding) = buf.split_at_mut(to_usize(content_bytes));
        padding.fill(0);
        match (self.files.get(number), self.storage(number)) {
            _ if data.is_empty() => Ok(()),
            (Some(file), _) => read_file(file, content_offset, data, self.io_hint),
            (None, Some(storage)) => self.read_storage(storage, content_offset, data),
            (None, None) => Ok(()),
        }
    }

    /// Reads part of a storage as it is archived, that is, as an append vec without obsolete
    /// records.
    pub fn read_storage(&self, storage: &PlannedStorage, offset: u64, buf: &mut [u8]) -> Result<()> {
        let dir = dir_of(&storage.file, &self.storage_dirs)?;
        let PlannedStorage { obsolete_list_offset, obsolete_count, .. } = *storage;
        if storage.file.is_split() {
            let obsolete = match &self.obsolete_accounts {
                Some(lists) => lists.read_items(obsolete_list_offset, obsolete_count, true)?,
                None => Vec::new(),
            };
            let opened = SplitStorage::open(dir, &storage.file, self.io_hint)?;
            return opened.read(self.checkpoints_of(storage), &obsolete, offset, buf);
        }
        // Padding after the last record may not be in the file.
        let stored_bytes = storage.content_bytes.saturating_sub(storage.padding_bytes.into());
        let part_bytes = stored_bytes.saturating_sub(offset).min(buf.len() as u64);
        let (buf, padding) = buf.split_at_mut(to_usize(part_bytes));
        padding.fill(0);
        let opened = OpenStorage::open(dir, &storage.file, self.io_hint)?;
        match &self.obsolete_accounts {
            Some(lists) if obsolete_count > 0 => {
                let kept = lists.read_kept_ranges(obsolete_list_offset, obsolete_count, opened.file_bytes);
                opened.read_kept(&kept.map_err(|error| opened.add_path(error))?, offset, buf)?;
            }
            _ => opened.read_piece(buf, offset)?,
        }
        opened.check_unchanged()
    }
}

fn read_file(planned: &PlannedFile, offset: u64, buf: &mut [u8], io_hint: IoHint) -> Result<()> {
    let Some(path) = &planned.path else { return Ok(()) };
    let file = slotpress_base::files::open_file(path)?;
    let PlannedFile { entry: Entry { content_bytes, .. }, modified_ns, .. } = *planned;
    let opened = OpenStorage { file, path: path.clone(), file_bytes: content_bytes, modified_ns, io_hint };
    opened.read_piece(buf, offset)?;
    opened.check_unchanged()
}
