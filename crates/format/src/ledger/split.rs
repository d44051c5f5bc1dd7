//! Parses the `.meta` and `.data` files of Agave 4.5's split storages
//! (docs/snapshot-format.md#split-storages). An archive contains a split storage as an append vec;
//! [`MetaEntry::record_header`] makes the headers of its records.
//!
//! ```text
//! both      16 magic | 3 x u64 version 0.1.0 | u64 uid, equal in both | 16 reserved
//! .meta     from 64, each at a multiple of 32: pubkey 32 | owner 32 | lamports u64 |
//!           rent_epoch u64 | executable u8 | 3 reserved | data_len u32 |
//!           nothing, or data of up to 4,008 bytes, or u64 offset in .data
//! .data     each at a multiple of 4,096, in the order of .meta: pubkey 32 | data_len u32 | data
//! ```
//!
//! The parsers read through a callback. `plan::split` in `slotpress-read` reads the files, and
//! selects the records for the archive.

use slotpress_base::{Error, Result, array_at, hint, prefix_mut, to_usize, u32_at, u64_at};

use crate::ledger::record::record_bytes;
use crate::{ACCOUNT_DATA_BYTES_MAX, RECORD_HEADER_BYTES, RecordHeader};

pub const FILE_HEADER_BYTES: usize = 64;

pub const META_ALIGNMENT: u64 = 32;

/// Length in bytes of the fixed part of an entry in a `.meta` file.
pub const META_HEADER_BYTES: usize = 88;

/// Maximum length of an account's data in the `.meta` file, in bytes. Longer data is in the `.data` file.
pub const INLINE_DATA_BYTES_MAX: u32 = 4008;

pub const DATA_ALIGNMENT: u64 = 4096;

/// Length of pubkey and data length, which precede the data in a `.data` file.
pub const DATA_HEADER_BYTES: usize = 36;

/// Maximum length of either file, in bytes (128 GiB). Lists of obsolete records hold offsets in `.meta` as
/// u32 in units of 32 bytes. The data in a larger `.data` file would not fit into an archive's storage.
pub const SPLIT_FILE_BYTES_MAX: u64 = META_ALIGNMENT << 32;

const VERSION: [u64; 3] = [0, 1, 0];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SplitFile {
    Meta,
    Data,
}

impl SplitFile {
    const fn magic(self) -> &'static [u8; 16] {
        match self {
            Self::Meta => b"agave meta file\0",
            Self::Data => b"agave data file\0",
        }
    }

    /// Checks the header of the file. Returns the uid, which both files of a storage share.
    pub fn parse_uid(self, header: &[u8; FILE_HEADER_BYTES]) -> Result<u64> {
        if header[..16] != *self.magic() {
            let name = if self == Self::Meta { "meta" } else { "data" };
            return Err(damage_error(0, format_args!("not the magic of a .{name} file")));
        }
        let version = [u64_at::<16, _>(header), u64_at::<24, _>(header), u64_at::<32, _>(header)];
        if version != VERSION {
            let [major, minor, patch] = version;
            let why = format_args!("version {major}.{minor}.{patch} of split files, but slotpress knows only 0.1.0");
            return Err(damage_error(16, why).with_hint(hint::NEWER_LAYOUT));
        }
        Ok(u64_at::<40, _>(header))
    }
}

/// Refuses a `.data` file that belongs to another `.meta` file.
pub fn check_uids(meta_uid: u64, data_uid: u64) -> Result<()> {
    if meta_uid == data_uid {
        return Ok(());
    }
    Err(damage_error(40, format_args!("uid {data_uid:016x}, but the .meta file has {meta_uid:016x}")))
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AccountData<'a> {
    Inline(&'a [u8]),
    /// Offset of the account's entry in the `.data` file.
    InDataFile(u64),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MetaEntry<'a> {
    pub offset: u64,
    pub header: &'a [u8; META_HEADER_BYTES],
    pub data_len: u32,
    pub data: AccountData<'a>,
}

impl MetaEntry<'_> {
    pub fn record_header(&self) -> [u8; RECORD_HEADER_BYTES] {
        let header = RecordHeader {
            data_len: u64::from(self.data_len),
            pubkey: self.pubkey(),
            lamports: u64_at::<64, _>(self.header),
            rent_epoch: u64_at::<72, _>(self.header),
            owner: array_at::<32, 32, _>(self.header),
            executable: self.header[80],
            ..RecordHeader::default()
        };
        header.to_bytes()
    }

    pub fn pubkey(&self) -> [u8; 32] {
        array_at::<0, 32, _>(self.header)
    }

    pub fn record_bytes(&self) -> u64 {
        record_bytes(u64::from(self.data_len))
    }
}

/// Checks that the entry at `offset` of a `.data` file belongs to this account, given its header.
pub fn check_data_header(
    header: &[u8; DATA_HEADER_BYTES],
    offset: u64,
    pubkey: &[u8; 32],
    data_len: u32,
) -> Result<()> {
    if header[..32] != *pubkey {
        return Err(damage_error(offset, format_args!("data of a different account than in the .meta file")));
    }
    match u32_at::<32, _>(header) {
        found if found == data_len => Ok(()),
        found => Err(damage_error(offset, format_args!("{found} bytes of data, but the .meta file says {data_len}"))),
    }
}

/// Fills a buffer from an offset of a file.
pub type ReadAt<'a> = dyn FnMut(&mut [u8], u64) -> Result<()> + 'a;

/// Bounds of a walk over a `.meta` file. The walk ends at the end of the file, unless the caller stops before.
#[derive(Clone, Copy, Debug)]
pub struct WalkBounds {
    pub meta_bytes: u64,
    /// Length of the `.data` file, if there is one.
    pub data_bytes: Option<u64>,
    /// Offset of the first entry.
    pub start: u64,
    /// Offset from which entries are not needed: it limits only what is read ahead.
    pub read_ahead_end: u64,
    /// Number of bytes to read at a time.
    pub window_bytes: usize,
}

/// Walks over the entries of a `.meta` file. Keeps one window of the file in memory.
pub struct MetaWalk<'a> {
    read: &'a mut ReadAt<'a>,
    bounds: WalkBounds,
    /// Buffer of the caller, which can reuse it. It begins with the current window.
    window: &'a mut Vec<u8>,
    window_bytes: usize,
    window_start: u64,
    next_offset: u64,
    /// Smallest possible offset of the next data in the `.data` file. Offsets ascend there.
    next_data_offset: u64,
}

impl<'a> MetaWalk<'a> {
    pub fn new(bounds: WalkBounds, window: &'a mut Vec<u8>, read: &'a mut ReadAt<'a>) -> Self {
        Self {
            read,
            bounds,
            window,
            window_bytes: 0,
            window_start: bounds.start,
            next_offset: bounds.start,
            next_data_offset: DATA_ALIGNMENT,
        }
    }

    pub fn next_entry(&mut self) -> Result<Option<MetaEntry<'_>>> {
        let offset = self.next_offset;
        if offset >= self.bounds.meta_bytes {
            return Ok(None);
        }
        self.fill_window(offset, META_HEADER_BYTES)?;
        let (header, _) = self.split_window(offset)?;
        let data_len = u32_at::<84, _>(header);
        if u64::from(data_len) > ACCOUNT_DATA_BYTES_MAX {
            let why = format_args!("an account of {data_len} bytes of data; the maximum is {ACCOUNT_DATA_BYTES_MAX}");
            return Err(damage_error(offset, why));
        }
        let is_inline = data_len <= INLINE_DATA_BYTES_MAX;
        let payload_bytes = if is_inline { to_usize(data_len) } else { size_of::<u64>() };
        let entry_bytes = META_HEADER_BYTES.saturating_add(payload_bytes);
        self.fill_window(offset, entry_bytes)?;
        self.next_offset = align_up(offset.saturating_add(entry_bytes as u64), META_ALIGNMENT);
        if !is_inline {
            let (_, payload) = self.split_window(offset)?;
            let data_offset = u64::from_le_bytes(*payload.first_chunk().ok_or_else(|| overrun_error(offset))?);
            self.check_data_offset(offset, data_offset, data_len)?;
            let (header, _) = self.split_window(offset)?;
            return Ok(Some(MetaEntry { offset, header, data_len, data: AccountData::InDataFile(data_offset) }));
        }
        let (header, payload) = self.split_window(offset)?;
        let data = AccountData::Inline(payload.get(..payload_bytes).ok_or_else(|| overrun_error(offset))?);
        Ok(Some(MetaEntry { offset, header, data_len, data }))
    }

    /// Checks the offset of an account's data in the `.data` file, and remembers where the data ends.
    fn check_data_offset(&mut self, offset: u64, data_offset: u64, data_len: u32) -> Result<()> {
        let Some(data_bytes) = self.bounds.data_bytes else {
            let why = format_args!("{data_len} bytes of data, but the storage has no .data file");
            return Err(damage_error(offset, why));
        };
        let end = data_offset.saturating_add(DATA_HEADER_BYTES as u64).saturating_add(u64::from(data_len));
        let why = if !data_offset.is_multiple_of(DATA_ALIGNMENT) {
            "which is not a multiple of 4096".to_string()
        } else if data_offset < self.next_data_offset {
            format!("but must be at byte {} or later", self.next_data_offset)
        } else if end > data_bytes {
            format!("up to {end}, past the end of that file at {data_bytes}")
        } else {
            self.next_data_offset = align_up(end, DATA_ALIGNMENT);
            return Ok(());
        };
        Err(damage_error(offset, format_args!("its data is at byte {data_offset} of the .data file, {why}")))
    }

    /// Reads a range of the file into the window, unless the window contains it.
    fn fill_window(&mut self, offset: u64, length: usize) -> Result<()> {
        let end = offset.saturating_add(length as u64);
        if end > self.bounds.meta_bytes {
            return Err(overrun_error(offset));
        }
        if offset >= self.window_start && end <= self.window_start.saturating_add(self.window_bytes as u64) {
            return Ok(());
        }
        let read_end = self.bounds.read_ahead_end.min(self.bounds.meta_bytes);
        let bytes = to_usize(read_end.saturating_sub(offset)).min(self.bounds.window_bytes).max(length);
        if self.window.len() < bytes {
            self.window.resize(bytes, 0);
        }
        (self.window_start, self.window_bytes) = (offset, 0);
        (self.read)(prefix_mut(self.window, bytes), offset)?;
        self.window_bytes = bytes;
        Ok(())
    }

    /// Returns the fixed part of an entry in the window, and the bytes after it.
    fn split_window(&self, offset: u64) -> Result<(&[u8; META_HEADER_BYTES], &[u8])> {
        let at = to_usize(offset.saturating_sub(self.window_start));
        self.window.get(at..).and_then(|bytes| bytes.split_first_chunk()).ok_or_else(|| overrun_error(offset))
    }
}

/// Rounds up to a multiple of an alignment, at which the next entry begins.
fn align_up(end: u64, alignment: u64) -> u64 {
    end.checked_next_multiple_of(alignment).unwrap_or(u64::MAX)
}

fn overrun_error(offset: u64) -> Error {
    damage_error(offset, format_args!("an entry that runs past the end of the file"))
}

fn damage_error(offset: u64, why: std::fmt::Arguments<'_>) -> Error {
    Error::damaged(format!("{why}, at offset {offset}"))
        .at_offset(offset)
        .with_hint("the storage is damaged; copy the ledger from its source again, or restore it from an archive")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file_header(file: SplitFile, version: [u64; 3], uid: u64) -> [u8; FILE_HEADER_BYTES] {
        let mut header = [0; FILE_HEADER_BYTES];
        header[..16].copy_from_slice(file.magic());
        for (index, number) in version.into_iter().chain([uid]).enumerate() {
            header[16 + index * 8..][..8].copy_from_slice(&number.to_le_bytes());
        }
        header
    }

    #[test]
    fn file_headers_are_checked() {
        for (file, other) in [(SplitFile::Meta, SplitFile::Data), (SplitFile::Data, SplitFile::Meta)] {
            assert_eq!(file.parse_uid(&file_header(file, VERSION, 77)).expect("valid"), 77);
            assert!(file.parse_uid(&file_header(other, VERSION, 77)).is_err());
            for version in [[1, 1, 0], [0, 2, 0], [0, 1, 1]] {
                assert!(file.parse_uid(&file_header(file, version, 77)).is_err());
            }
        }
        assert!(check_uids(7, 7).is_ok());
        assert!(check_uids(7, 8).is_err());
    }

    #[test]
    fn data_headers_are_checked() {
        let mut header = [9; DATA_HEADER_BYTES];
        header[32..].copy_from_slice(&5000u32.to_le_bytes());
        assert!(check_data_header(&header, 4096, &[9; 32], 5000).is_ok());
        assert!(check_data_header(&header, 4096, &[8; 32], 5000).is_err());
        assert!(check_data_header(&header, 4096, &[9; 32], 5001).is_err());
    }

    fn entry(key: u8, data_len: u32, payload: &[u8]) -> Vec<u8> {
        let mut entry =
            [&[key; 32][..], &[key + 1; 32], &7u64.to_le_bytes(), &8u64.to_le_bytes(), &[1, 0, 0, 0]].concat();
        entry.extend_from_slice(&data_len.to_le_bytes());
        entry.extend_from_slice(payload);
        entry
    }

    fn aligned_file(entries: &[Vec<u8>]) -> Vec<u8> {
        let mut file = vec![0; FILE_HEADER_BYTES];
        for entry in entries {
            file.resize(file.len().next_multiple_of(META_ALIGNMENT as usize), 0);
            file.extend_from_slice(entry);
        }
        file
    }

    struct FoundEntry {
        offset: u64,
        record_header: RecordHeader,
        /// Offset of the data in the `.data` file.
        data_offset: Option<u64>,
        inline_data: Vec<u8>,
    }

    /// Walks over a file. Also returns the offset up to which the file was read.
    fn walk(file: &[u8], data_bytes: Option<u64>, window_bytes: usize, end: u64) -> Result<(Vec<FoundEntry>, u64)> {
        let mut read_end = 0;
        let mut read = |to: &mut [u8], offset: u64| {
            let bytes = file.get(offset as usize..offset as usize + to.len()).expect("inside the file");
            read_end = read_end.max(offset + to.len() as u64);
            to.copy_from_slice(bytes);
            Ok(())
        };
        let meta_bytes = file.len() as u64;
        let bounds = WalkBounds { meta_bytes, data_bytes, start: 64, read_ahead_end: end, window_bytes };
        let mut window = Vec::new();
        let mut entries = Vec::new();
        let mut walk = MetaWalk::new(bounds, &mut window, &mut read);
        while let Some(entry) = walk.next_entry()?.filter(|entry| entry.offset < end) {
            assert_eq!(entry.record_bytes(), (136 + u64::from(entry.data_len)).next_multiple_of(8));
            let (data_offset, inline_data) = match entry.data {
                AccountData::Inline(data) => (None, data.to_vec()),
                AccountData::InDataFile(offset) => (Some(offset), Vec::new()),
            };
            let record_header = RecordHeader::parse(&entry.record_header());
            entries.push(FoundEntry { offset: entry.offset, record_header, data_offset, inline_data });
        }
        Ok((entries, read_end))
    }

    #[test]
    fn windows_of_any_size_find_all_entries() {
        let largest_inline = vec![3; INLINE_DATA_BYTES_MAX as usize];
        let entries = [
            entry(1, 0, b""),
            entry(2, 5, b"small"),
            entry(3, INLINE_DATA_BYTES_MAX, &largest_inline),
            entry(4, INLINE_DATA_BYTES_MAX + 1, &4096u64.to_le_bytes()),
            entry(5, 100_000, &12_288u64.to_le_bytes()),
        ];
        let file = aligned_file(&entries);
        let data_bytes = 12_288 + 36 + 100_000;
        for window_bytes in [1, 88, 100, 4096, 1 << 20] {
            let (walked_entries, _) = walk(&file, Some(data_bytes), window_bytes, u64::MAX).expect("valid");
            let offsets: Vec<u64> = walked_entries.iter().map(|entry| entry.offset).collect();
            assert_eq!(offsets, [64, 160, 256, 4352, 4448]);
            let data_offsets: Vec<Option<u64>> = walked_entries.iter().map(|entry| entry.data_offset).collect();
            assert_eq!(data_offsets, [None, None, None, Some(4096), Some(12_288)]);
            assert_eq!(walked_entries[1].inline_data, b"small");
            assert_eq!(walked_entries[2].inline_data, largest_inline);
            let header = walked_entries[1].record_header;
            assert_eq!((header.pubkey, header.owner, header.data_len), ([2; 32], [3; 32], 5));
            assert_eq!((header.lamports, header.rent_epoch, header.executable), (7, 8, 1));
            assert_eq!((header.write_version, header.padding, header.stored_hash), (0, [0; 7], [0; 32]));
        }
        // After the entries of the range, only one more entry is read.
        let (walked_entries, read_end) = walk(&file, Some(data_bytes), 1 << 20, 160).expect("valid");
        assert_eq!((walked_entries.len(), read_end), (1, 160 + 88 + 5));
    }

    #[test]
    fn impossible_entries_are_refused() {
        let large = |data_offset: u64| entry(4, 5000, &data_offset.to_le_bytes());
        let end = 4096 + 36 + 5000;
        for (case, file, data_bytes, is_sound) in [
            ("the end of the data", aligned_file(&[large(4096)]), Some(end), true),
            ("past the end of the data", aligned_file(&[large(4096)]), Some(end - 1), false),
            ("no data file", aligned_file(&[large(4096)]), None, false),
            ("inside the file header", aligned_file(&[large(0)]), Some(1 << 20), false),
            ("not aligned", aligned_file(&[large(4097)]), Some(1 << 20), false),
            ("after the last", aligned_file(&[large(4096), large(12_288)]), Some(1 << 20), true),
            ("inside the last", aligned_file(&[large(4096), large(8192)]), Some(1 << 20), false),
            ("the same twice", aligned_file(&[large(4096), large(4096)]), Some(1 << 20), false),
            ("far away", aligned_file(&[large(u64::MAX - 4095)]), Some(u64::MAX), true),
            ("the largest account", aligned_file(&[entry(1, 10 << 20, &4096u64.to_le_bytes())]), Some(1 << 30), true),
            ("one byte more", aligned_file(&[entry(1, (10 << 20) + 1, &4096u64.to_le_bytes())]), Some(1 << 30), false),
            ("truncated in its data", aligned_file(&[entry(2, 5, b"shor")]), None, false),
            ("truncated in its header", aligned_file(&[entry(2, 0, b"")[..87].to_vec()]), None, false),
        ] {
            assert_eq!(walk(&file, data_bytes, 4096, u64::MAX).is_ok(), is_sound, "{case}");
        }
    }
}
