//! Layout of a record, one stored account in a storage (docs/snapshot-format.md#records). Pure
//! functions over bytes.

use slotpress_base::{array_at, to_usize, u64_at};

use crate::AccountView;

/// Length in bytes of the fixed part of a record. The account's data follows it.
pub const RECORD_HEADER_BYTES: usize = 136;

/// Offsets of fields in a record's header, for code that reads only one or two fields of millions
/// of headers.
pub mod field {
    use std::ops::Range;

    pub const DATA_LEN: usize = 8;
    pub const PUBKEY: Range<usize> = 16..48;
    /// The balance, a `u64`.
    pub const LAMPORTS: usize = 48;
    pub const OWNER: Range<usize> = 64..96;
    pub const EXECUTABLE: usize = 96;
    /// The rest of the header: padding and the stored hash, which have no meaning.
    pub const MEANINGLESS: Range<usize> = 97..super::RECORD_HEADER_BYTES;
}

/// Kind of the bytes at the place where a record may start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordStart {
    /// A record with this many bytes of data after its header, then padding to a multiple of 8.
    Record { data_bytes: usize },
    /// The mark after the last record: zero lamports and a zero pubkey.
    End,
    /// More data than an account can have. So this is not a record, and where the next one starts
    /// is unknown.
    TooLong,
}

impl RecordStart {
    #[inline]
    pub fn parse(header: &[u8; RECORD_HEADER_BYTES]) -> Self {
        if u64_at::<{ field::LAMPORTS }, _>(header) == 0 && header[field::PUBKEY] == [0; 32] {
            return Self::End;
        }
        match u64_at::<{ field::DATA_LEN }, _>(header) {
            data_len if data_len > ACCOUNT_DATA_BYTES_MAX => Self::TooLong,
            data_len => Self::Record { data_bytes: to_usize(data_len) },
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RawRecord<'a> {
    pub start: usize,
    /// Offset of the next record: after the padding, or at the end of the slice if the slice ends
    /// inside the padding.
    pub end: usize,
    pub header: &'a [u8; RECORD_HEADER_BYTES],
    pub data: &'a [u8],
}

impl RawRecord<'_> {
    /// Length with padding, as far as the slice contains the padding.
    pub fn length(&self) -> usize {
        self.end.saturating_sub(self.start)
    }
}

/// Iterates over the complete records in a slice. A caller that has a storage in pieces walks each
/// piece, and asks [`Records::rest`] about the piece's end.
#[derive(Clone, Debug)]
pub struct Records<'a> {
    bytes: &'a [u8],
    at: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordsRest {
    Nothing,
    /// The next record takes at least this many bytes. After the iterator has returned `None`,
    /// fewer are left in the slice.
    Short(usize),
    End,
    TooLong,
}

impl<'a> Records<'a> {
    /// Iterates over `bytes`, which must begin with a record.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    /// Offset of the next record, at most the length of the slice.
    pub fn position(&self) -> usize {
        self.at
    }

    pub fn rest(&self) -> RecordsRest {
        let rest = self.bytes.get(self.at..).unwrap_or_default();
        if rest.is_empty() {
            return RecordsRest::Nothing;
        }
        let Some(header) = rest.first_chunk() else { return RecordsRest::Short(RECORD_HEADER_BYTES) };
        match RecordStart::parse(header) {
            RecordStart::Record { data_bytes } => RecordsRest::Short(RECORD_HEADER_BYTES.saturating_add(data_bytes)),
            RecordStart::End => RecordsRest::End,
            RecordStart::TooLong => RecordsRest::TooLong,
        }
    }
}

impl<'a> Iterator for Records<'a> {
    type Item = RawRecord<'a>;

    fn next(&mut self) -> Option<RawRecord<'a>> {
        let rest = self.bytes.get(self.at..)?;
        let (header, rest) = rest.split_first_chunk()?;
        let RecordStart::Record { data_bytes } = RecordStart::parse(header) else { return None };
        let data = rest.get(..data_bytes)?;
        let start = self.at;
        self.at = start.saturating_add(to_usize(record_bytes(data_bytes as u64))).min(self.bytes.len());
        Some(RawRecord { start, end: self.at, header, data })
    }
}

pub const RECORD_ALIGNMENT: u64 = 8;

/// Maximum length of an account's data, in bytes (10 MiB).
pub const ACCOUNT_DATA_BYTES_MAX: u64 = 10 * 1024 * 1024;

/// Maximum length of a storage file, in bytes (16 GiB).
pub const STORAGE_BYTES_MAX: u64 = 16 * 1024 * 1024 * 1024;

/// Returns the length of an append vec's record with this much data, with padding.
pub const fn record_bytes(data_len: u64) -> u64 {
    align8(data_len.saturating_add(RECORD_HEADER_BYTES as u64))
}

/// Rounds up to a multiple of 8; saturates, so that hostile lengths stay large.
pub const fn align8(length: u64) -> u64 {
    match length.checked_add(7) {
        Some(sum) => sum & !(RECORD_ALIGNMENT - 1),
        None => u64::MAX - (RECORD_ALIGNMENT - 1),
    }
}

/// Header of a record, with field names as in docs/snapshot-format.md#records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordHeader {
    pub write_version: u64,
    pub data_len: u64,
    pub pubkey: [u8; 32],
    /// Balance. 0 makes the record a tombstone, which closes the account.
    pub lamports: u64,
    pub rent_epoch: u64,
    pub owner: [u8; 32],
    /// 0 or 1; any other value is damage.
    pub executable: u8,
    /// Uninitialised memory in Agave up to 4.4; has no meaning.
    pub padding: [u8; 7],
    /// Obsolete; has no meaning.
    pub stored_hash: [u8; 32],
}

impl RecordHeader {
    pub fn parse(bytes: &[u8; RECORD_HEADER_BYTES]) -> Self {
        Self {
            write_version: u64_at::<0, _>(bytes),
            data_len: u64_at::<8, _>(bytes),
            pubkey: array_at::<16, 32, _>(bytes),
            lamports: u64_at::<48, _>(bytes),
            rent_epoch: u64_at::<56, _>(bytes),
            owner: array_at::<64, 32, _>(bytes),
            executable: bytes[96],
            padding: array_at::<97, 7, _>(bytes),
            stored_hash: array_at::<104, 32, _>(bytes),
        }
    }

    #[allow(clippy::wrong_self_convention, reason = "too large to be passed by value, although it is `Copy`")]
    pub fn to_bytes(&self) -> [u8; RECORD_HEADER_BYTES] {
        let mut bytes = [0; RECORD_HEADER_BYTES];
        bytes[0..8].copy_from_slice(&self.write_version.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.data_len.to_le_bytes());
        bytes[16..48].copy_from_slice(&self.pubkey);
        bytes[48..56].copy_from_slice(&self.lamports.to_le_bytes());
        bytes[56..64].copy_from_slice(&self.rent_epoch.to_le_bytes());
        bytes[64..96].copy_from_slice(&self.owner);
        bytes[96] = self.executable;
        bytes[97..104].copy_from_slice(&self.padding);
        bytes[104..136].copy_from_slice(&self.stored_hash);
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
    fn where_records_begin() {
        let start = |data_len| {
            let header = RecordHeader { data_len, lamports: 1, ..RecordHeader::parse(&[0; RECORD_HEADER_BYTES]) };
            RecordStart::parse(&header.to_bytes())
        };
        let most = ACCOUNT_DATA_BYTES_MAX;
        assert_eq!(start(most), RecordStart::Record { data_bytes: 10 << 20 });
        assert_eq!([most + 1, most * 2, u64::MAX].map(start), [RecordStart::TooLong; 3]);
        assert_eq!(RecordStart::parse(&[0; RECORD_HEADER_BYTES]), RecordStart::End);
    }

    #[test]
    fn alignment() {
        assert_eq!([0, 1, 7, 8, 9].map(align8), [0, 8, 8, 8, 16]);
        assert_eq!(align8(u64::MAX), u64::MAX - 7);
    }
}
