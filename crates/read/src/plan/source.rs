//! Filling frames with the tar bytes that they cover: headers, contents read straight into place, padding.
//!
//! Any worker fills any frame; there is no shared reader. A file that is not what the plan saw (its length or its time
//! of modification differ) is an error: a storage that changes while it is read cannot be archived.

use {
    crate::plan::{Plan, PlannedFile, PlannedStorage, file::Source, split::SplitStorage},
    slotpress_base::text::ShowPath,
    slotpress_base::{error::Result, io::IoHint},
    slotpress_format::{
        archive::{
            entry::{BLOCK_BYTES, END_OF_ARCHIVE_BYTES, Entry},
            frames::FrameSpan,
        },
        ledger::lists::ObsoleteItem,
    },
};

impl Plan {
    /// The length of every entry in the tar stream, and of the end of archive, for cutting into frames.
    pub fn entry_lengths(&self) -> impl Iterator<Item = u64> + Send + '_ {
        let files = self.files.iter().map(|file| file.entry.tar_bytes());
        let storages = self.storages.iter().map(|storage| storage.entry().tar_bytes());
        files.chain(storages).chain([END_OF_ARCHIVE_BYTES])
    }

    /// Writes the tar bytes that a frame covers into `to`, which is as long as the frame.
    pub fn fill(&self, span: &FrameSpan, mut to: &mut [u8]) -> Result<()> {
        slotpress_base::threads::panic_point("source");
        let mut number = span.first_entry as usize;
        let mut offset = span.offset_bytes;
        while !to.is_empty() {
            let content = match number.checked_sub(self.files.len()) {
                None => Content::File(&self.files[number]),
                Some(at) if at < self.storages.len() => Content::Storage(&self.storages[at]),
                Some(_) => {
                    to.fill(0);
                    return Ok(());
                }
            };
            let entry = content.entry();
            let part_bytes = (entry.tar_bytes() - offset).min(to.len() as u64) as usize;
            let (part, rest) = to.split_at_mut(part_bytes);
            self.fill_entry(&content, offset, part)?;
            to = rest;
            offset = 0;
            number += 1;
        }
        Ok(())
    }

    /// Writes part of one entry, from `offset` bytes after the beginning of its header.
    fn fill_entry(&self, content: &Content<'_>, mut offset: u64, mut to: &mut [u8]) -> Result<()> {
        let entry = content.entry();
        if offset < BLOCK_BYTES {
            let header = entry.header();
            let part = &header[offset as usize..];
            let used = part.len().min(to.len());
            to[..used].copy_from_slice(&part[..used]);
            to = &mut to[used..];
            offset += used as u64;
        }
        let content_offset = offset.saturating_sub(BLOCK_BYTES);
        let content_bytes = entry.content_bytes.saturating_sub(content_offset).min(to.len() as u64) as usize;
        let (data, padding) = to.split_at_mut(content_bytes);
        padding.fill(0);
        if data.is_empty() {
            return Ok(());
        }
        match content {
            Content::File(file) => read_file(file, content_offset, data, self.io_hint),
            Content::Storage(storage) => self.read_storage(storage, content_offset, data),
        }
    }

    /// Reads part of a storage as it goes into the archive: without its obsolete records, and an append vec in any case.
    pub fn read_storage(&self, storage: &PlannedStorage, offset: u64, to: &mut [u8]) -> Result<()> {
        let root = &self.roots[usize::from(storage.file.root)];
        if storage.file.is_split() {
            let obsolete = self.read_obsolete(storage)?;
            return SplitStorage::open(root, &storage.file, self.io_hint)?.read(
                self.checkpoints_of(storage),
                &obsolete,
                offset,
                to,
            );
        }
        // The padding after the last record may not be in the file.
        let stored_bytes = storage.content_bytes - u64::from(storage.padding_bytes);
        let (to, padding) = to.split_at_mut(stored_bytes.saturating_sub(offset).min(to.len() as u64) as usize);
        padding.fill(0);
        let name = storage.file.file_name();
        let file = root.open_storage(&name)?;
        let path = || root.path.join(&name);
        let source = Source::of_storage(&file, &path, &storage.file, self.io_hint);
        match &self.obsolete_accounts {
            Some(lists) if storage.obsolete_count > 0 => {
                let kept = lists
                    .read_kept_ranges(storage.obsolete_list_offset, storage.obsolete_count, storage.file.file_bytes)
                    .map_err(|error| error.within(path().shown()))?;
                source.read_kept(&kept, offset, to)?;
            }
            _ => source.read_piece(to, offset)?,
        }
        source.check_unchanged()
    }

    /// The obsolete records of a storage, ordered by offset.
    fn read_obsolete(&self, storage: &PlannedStorage) -> Result<Vec<ObsoleteItem>> {
        match &self.obsolete_accounts {
            Some(lists) if storage.obsolete_count > 0 => {
                lists.read_items(storage.obsolete_list_offset, storage.obsolete_count, storage.file.is_split())
            }
            _ => Ok(Vec::new()),
        }
    }
}

enum Content<'a> {
    File(&'a PlannedFile),
    Storage(&'a PlannedStorage),
}

impl Content<'_> {
    fn entry(&self) -> Entry {
        match self {
            Self::File(file) => file.entry,
            Self::Storage(storage) => storage.entry(),
        }
    }
}

fn read_file(planned: &PlannedFile, offset: u64, to: &mut [u8], io_hint: IoHint) -> Result<()> {
    let Some(path) = &planned.path else { return Ok(()) };
    let file = slotpress_base::files::open_file(path)?;
    let source = Source {
        file: &file,
        path: &|| path.clone(),
        file_bytes: planned.entry.content_bytes,
        modified_ns: planned.modified_ns,
        io_hint,
    };
    source.read_piece(to, offset)?;
    source.check_unchanged()
}
