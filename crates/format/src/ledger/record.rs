//! Layout of a record, one stored account in a storage (docs/snapshot-format.md#records). The functions
//! here work on bytes in memory.

use slotpress_base::{array_at, to_usize, u64_at};

use crate::AccountView;

/// Length in bytes of the fixed part of a record. The account's data follows it.
pub const RECORD_HEADER_BYTES: usize = 136;

/// Offsets of fields in a record's header, for code that reads only one or two fields of millions
/// of headers.
pub mod field {
    use std::ops::Range;

    pub const WRITE_VERSION: Range<usize> = 0..8;
    pub const DATA_LEN: Range<usize> = 8..16;
    pub const PUBKEY: Range<usize> = 16..48;
    pub const LAMPORTS: Range<usize> = 48..56;
    pub const RENT_EPOCH: Range<usize> = 56..64;
    pub const OWNER: Range<usize> = 64..96;
    pub const EXECUTABLE: usize = 96;
    pub const PADDING: Range<usize> = 97..104;
    pub const STORED_HASH: Range<usize> = 104..136;
    /// The rest of the header: padding and the stored hash, which have no meaning.
    pub const MEANINGLESS: Range<usize> = PADDING.start..STORED_HASH.end;
}

/// Kind of the bytes at a place where a record may start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordStart {
    /// A record with `data_len` bytes of data after its header, then padding to a multiple of 8.
    Record { data_len: usize },
    /// The mark after the last record: zero lamports and a zero pubkey.
    End,
    /// Not a record: it would have more data than an account can have. The start of the next record is
    /// unknown.
    TooLong,
}

impl RecordStart {
    #[inline]
    pub fn parse(header: &[u8; RECORD_HEADER_BYTES]) -> Self {
        if u64_at::<{ field::LAMPORTS.start }, _>(header) == 0 && header[field::PUBKEY] == [0; 32] {
            return Self::End;
        }
        match u64_at::<{ field::DATA_LEN.start }, _>(header) {
            data_len if data_len > ACCOUNT_DATA_BYTES_MAX => Self::TooLong,
            data_len => Self::Record { data_len: to_usize(data_len) },
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RawRecord<'a> {
    pub start: usize,
    /// Offset after the padding, where the next record starts, or the end of the slice if the slice ends
    /// inside the padding.
    pub end: usize,
    pub header: &'a [u8; RECORD_HEADER_BYTES],
    pub data: &'a [u8],
}

impl RawRecord<'_> {
    /// Returns the length of the record, with the padding that the slice contains.
    pub fn length(&self) -> usize {
        self.end.saturating_sub(self.start)
    }
}

/// Iterates over the complete records in a slice. If a storage arrives in pieces, the caller iterates over
/// each piece, then calls [`Records::remainder`] for the end of the piece.
#[derive(Clone, Debug)]
pub struct Records<'a> {
    bytes: &'a [u8],
    position: usize,
}

/// The bytes of a slice after its complete records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Remainder {
    Nothing,
    /// The beginning of a record. The number is the record's length without padding, or the length of a
    /// header if the header itself is incomplete.
    NeedsAtLeast(usize),
    End,
    TooLong,
}

impl<'a> Records<'a> {
    /// Iterates over `bytes`, which must begin with a record.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, position: 0 }
    }

    /// Returns the offset of the next record, at most the length of the slice.
    pub fn position(&self) -> usize {
        self.position
    }

    pub fn remainder(&self) -> Remainder {
        let rest = self.bytes.get(self.position..).unwrap_or_default();
        if rest.is_empty() {
            return Remainder::Nothing;
        }
        let Some(header) = rest.first_chunk() else { return Remainder::NeedsAtLeast(RECORD_HEADER_BYTES) };
        match RecordStart::parse(header) {
            RecordStart::Record { data_len } => Remainder::NeedsAtLeast(RECORD_HEADER_BYTES.saturating_add(data_len)),
            RecordStart::End => Remainder::End,
            RecordStart::TooLong => Remainder::TooLong,
        }
    }
}

impl<'a> Iterator for Records<'a> {
    type Item = RawRecord<'a>;

    fn next(&mut self) -> Option<RawRecord<'a>> {
        let rest = self.bytes.get(self.position..)?;
        let (header, rest) = rest.split_first_chunk()?;
        let RecordStart::Record { data_len } = RecordStart::parse(header) else { return None };
        let data = rest.get(..data_len)?;
        let start = self.position;
        self.position = start.saturating_add(to_usize(record_bytes(data_len as u64))).min(self.bytes.len());
        Some(RawRecord { start, end: self.position, header, data })
    }
}

pub const RECORD_ALIGNMENT: u64 = 8;

/// Maximum length of an account's data, in bytes (10 MiB).
pub const ACCOUNT_DATA_BYTES_MAX: u64 = 10 * 1024 * 1024;

/// Maximum length of a storage file, in bytes (16 GiB).
pub const STORAGE_BYTES_MAX: u64 = 16 * 1024 * 1024 * 1024;

/// Returns the length of a record in an append vec, with padding, if the account has `data_len` bytes of data.
pub const fn record_bytes(data_len: u64) -> u64 {
    align8(data_len.saturating_add(RECORD_HEADER_BYTES as u64))
}

/// Rounds up to a multiple of 8. Saturates, so that hostile lengths stay large.
pub const fn align8(length: u64) -> u64 {
    match length.checked_add(7) {
        Some(sum) => sum & !(RECORD_ALIGNMENT - 1),
        None => u64::MAX - (RECORD_ALIGNMENT - 1),
    }
}

/// Parsed header of a record (docs/snapshot-format.md#records).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RecordHeader {
    pub write_version: u64,
    pub data_len: u64,
    pub pubkey: [u8; 32],
    /// Balance. 0 makes the record a tombstone, which closes the account.
    pub lamports: u64,
    pub rent_epoch: u64,
    pub owner: [u8; 32],
    /// 0 or 1. Any other value is damage.
    pub executable: u8,
    /// Uninitialized memory in files of Agave up to 4.4. It has no meaning.
    pub padding: [u8; 7],
    /// A hash that Agave no longer writes. It has no meaning.
    pub stored_hash: [u8; 32],
}

impl RecordHeader {
    pub fn parse(bytes: &[u8; RECORD_HEADER_BYTES]) -> Self {
        Self {
            write_version: u64_at::<{ field::WRITE_VERSION.start }, _>(bytes),
            data_len: u64_at::<{ field::DATA_LEN.start }, _>(bytes),
            pubkey: array_at::<{ field::PUBKEY.start }, 32, _>(bytes),
            lamports: u64_at::<{ field::LAMPORTS.start }, _>(bytes),
            rent_epoch: u64_at::<{ field::RENT_EPOCH.start }, _>(bytes),
            owner: array_at::<{ field::OWNER.start }, 32, _>(bytes),
            executable: bytes[field::EXECUTABLE],
            padding: array_at::<{ field::PADDING.start }, 7, _>(bytes),
            stored_hash: array_at::<{ field::STORED_HASH.start }, 32, _>(bytes),
        }
    }

    #[allow(clippy::wrong_self_convention, reason = "too large to be passed by value, although it is `Copy`")]
    pub fn to_bytes(&self) -> [u8; RECORD_HEADER_BYTES] {
        let mut bytes = [0; RECORD_HEADER_BYTES];
        bytes[field::WRITE_VERSION].copy_from_slice(&self.write_version.to_le_bytes());
        bytes[field::DATA_LEN].copy_from_slice(&self.data_len.to_le_bytes());
        bytes[field::PUBKEY].copy_from_slice(&self.pubkey);
        bytes[field::LAMPORTS].copy_from_slice(&self.lamports.to_le_bytes());
        bytes[field::RENT_EPOCH].copy_from_slice(&self.rent_epoch.to_le_bytes());
        bytes[field::OWNER].copy_from_slice(&self.owner);
        bytes[field::EXECUTABLE] = self.executable;
        bytes[field::PADDING].copy_from_slice(&self.padding);
        bytes[field::STORED_HASH].copy_from_slice(&self.stored_hash);
        bytes
    }

    pub fn stored_bytes(&self) -> u64 {
        record_bytes(self.data_len)
    }

    pub fn account<'a>(&'a self, data: &'a [u8]) -> AccountView<'a> {
        AccountView {
            pubkey: &self.pubkey,
            owner: &self.owner,
            lamports: self.lamports,
            executable: self.executable != 0,
            data,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn headers_round_trip(bytes in proptest::collection::vec(any::<u8>(), RECORD_HEADER_BYTES)) {
            let bytes: [u8; RECORD_HEADER_BYTES] = bytes.try_into().expect("exact length");
            prop_assert_eq!(RecordHeader::parse(&bytes).to_bytes(), bytes);
        }
    }

    #[test]
    fn headers_are_classified() {
        let start = |data_len| {
            let header = RecordHeader { data_len, lamports: 1, ..RecordHeader::parse(&[0; RECORD_HEADER_BYTES]) };
            RecordStart::parse(&header.to_bytes())
        };
        let max = ACCOUNT_DATA_BYTES_MAX;
        assert_eq!(start(max), RecordStart::Record { data_len: 10 << 20 });
        assert_eq!([max + 1, max * 2, u64::MAX].map(start), [RecordStart::TooLong; 3]);
        assert_eq!(RecordStart::parse(&[0; RECORD_HEADER_BYTES]), RecordStart::End);
    }

    #[test]
    fn lengths_are_aligned() {
        assert_eq!([0, 1, 7, 8, 9].map(align8), [0, 8, 8, 8, 16]);
        assert_eq!(align8(u64::MAX), u64::MAX - 7);
    }
}
