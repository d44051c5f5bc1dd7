//! Walks the records of a storage that arrives in pieces of any size.
//!
//! A record that is within one piece is passed on without copying. A record that spans pieces is assembled
//! in a buffer. The limit on account data bounds the size of this buffer.

use slotpress_base::{split_at_most, to_usize};

use crate::ledger::record::field;
use crate::{ACCOUNT_DATA_BYTES_MAX, RECORD_HEADER_BYTES, RecordHeader, Records, Remainder};

#[derive(Clone, Copy, Debug)]
pub struct Record<'a> {
    pub offset_bytes: u64,
    pub header: &'a RecordHeader,
    pub data: &'a [u8],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordFaultKind {
    /// The storage ends inside the data of a record.
    Truncated,
    /// Bytes other than zeros follow the last record.
    TrailingBytes,
    /// The storage ends inside the header of a record. Clients ignore these bytes.
    PartialHeader,
    /// Zero bytes follow the last record, at least as many as a header has. Firedancer reads them as an
    /// account.
    Padded,
    /// A record claims more data than an account can have. The records after it cannot be found.
    DataLength,
    Executable,
    /// A record has a hash that is not zero. Agave has written zeros since 1.18. Reported once for each
    /// storage.
    StoredHash,
}

impl RecordFaultKind {
    pub fn loses_records(self) -> bool {
        matches!(self, Self::Truncated | Self::TrailingBytes | Self::PartialHeader | Self::DataLength)
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordFault {
    pub kind: RecordFaultKind,
    pub offset_bytes: u64,
    pub account: Option<[u8; 32]>,
    pub expected: String,
    pub found: String,
}

pub trait RecordSink {
    fn record(&mut self, record: Record<'_>);
    fn fault(&mut self, fault: RecordFault);
}

/// Ignores everything, for a walk that only finds where the next record starts.
pub struct NoSink;

impl RecordSink for NoSink {
    fn record(&mut self, _: Record<'_>) {}
    fn fault(&mut self, _: RecordFault) {}
}

/// State of a walk over one storage. A clone continues from the same position.
#[derive(Clone, Debug, Default)]
pub struct RecordWalker {
    /// Beginning of a record, or of an end mark, that continues in the next piece.
    carried: Vec<u8>,
    /// Offset in the storage of `carried`, or of the next piece if nothing is carried.
    offset_bytes: u64,
    /// Length of the last record's padding that is in the next piece.
    skip_bytes: u64,
    /// True if the walk has ended, because no further record can be found.
    is_over: bool,
    /// Offset of the end mark, which Firedancer reads as an account, if only zeros have followed it so far.
    end_mark: Option<u64>,
    has_stored_hash: bool,
}

impl RecordWalker {
    /// Prepares for another storage. Keeps the buffer.
    pub fn restart(&mut self) {
        let mut carried = std::mem::take(&mut self.carried);
        carried.clear();
        *self = Self { carried, ..Self::default() };
    }

    pub fn feed(&mut self, mut bytes: &[u8], sink: &mut (impl RecordSink + ?Sized)) {
        while !self.carried.is_empty() && !bytes.is_empty() && !self.is_over {
            // Appends only the bytes that the record needs, so that the records after it are not copied.
            if let Remainder::NeedsAtLeast(needed) = Records::new(&self.carried).remainder()
                && needed > self.carried.len()
            {
                let (record_part, rest) = split_at_most(bytes, needed.saturating_sub(self.carried.len()));
                self.carried.extend_from_slice(record_part);
                bytes = rest;
                if self.carried.len() < needed {
                    return;
                }
            }
            let carried = std::mem::take(&mut self.carried);
            let walked_bytes = self.walk(&carried, sink);
            self.carried = carried;
            self.carried.drain(..walked_bytes);
        }
        if self.is_over {
            self.look_for_bytes_after_end(bytes, sink);
            return;
        }
        let walked_bytes = self.walk(bytes, sink);
        self.carried.extend_from_slice(split_at_most(bytes, walked_bytes).1);
    }

    pub fn finish(&mut self, sink: &mut (impl RecordSink + ?Sized)) {
        if self.is_over || self.carried.is_empty() {
            return;
        }
        let needed = match Records::new(&self.carried).remainder() {
            Remainder::NeedsAtLeast(needed) => needed,
            _ => self.carried.len(),
        };
        let account = self.carried.get(field::PUBKEY).and_then(|bytes| bytes.try_into().ok());
        let is_partial_header = self.carried.len() < RECORD_HEADER_BYTES;
        sink.fault(RecordFault {
            kind: if is_partial_header { RecordFaultKind::PartialHeader } else { RecordFaultKind::Truncated },
            offset_bytes: self.offset_bytes,
            account: if is_partial_header { None } else { account },
            expected: format!("a record of {needed} bytes"),
            found: format!("{} bytes until the storage's end", self.carried.len()),
        });
        self.is_over = true;
    }

    /// Passes all complete records in `bytes` to the sink. Returns the number of bytes before the
    /// incomplete record at the end.
    fn walk(&mut self, bytes: &[u8], sink: &mut (impl RecordSink + ?Sized)) -> usize {
        let (skipped, rest) = split_at_most(bytes, to_usize(self.skip_bytes));
        self.skip_bytes = self.skip_bytes.saturating_sub(skipped.len() as u64);
        self.offset_bytes = self.offset_bytes.saturating_add(skipped.len() as u64);
        let start_bytes = self.offset_bytes;
        let mut records = Records::new(rest);
        for record in records.by_ref() {
            let header = RecordHeader::parse(record.header);
            let offset_bytes = start_bytes.saturating_add(record.start as u64);
            if header.executable > 1 {
                sink.fault(RecordFault {
                    kind: RecordFaultKind::Executable,
                    offset_bytes,
                    account: Some(header.pubkey),
                    expected: "0 or 1".to_string(),
                    found: header.executable.to_string(),
                });
            }
            if header.stored_hash != [0; 32] && !self.has_stored_hash {
                self.has_stored_hash = true;
                sink.fault(RecordFault {
                    kind: RecordFaultKind::StoredHash,
                    offset_bytes,
                    account: Some(header.pubkey),
                    expected: "zeros".to_string(),
                    found: "a hash".to_string(),
                });
            }
            sink.record(Record { offset_bytes, header: &header, data: record.data });
            self.skip_bytes = header.stored_bytes().saturating_sub(record.length() as u64);
        }
        let walked_bytes = records.position();
        self.offset_bytes = start_bytes.saturating_add(walked_bytes as u64);
        let (_, rest) = split_at_most(rest, walked_bytes);
        match records.remainder() {
            Remainder::Nothing | Remainder::NeedsAtLeast(_) => return skipped.len().saturating_add(walked_bytes),
            Remainder::End => {
                self.end_mark = Some(self.offset_bytes);
                sink.fault(RecordFault {
                    kind: RecordFaultKind::Padded,
                    offset_bytes: self.offset_bytes,
                    account: None,
                    expected: "the storage's end".to_string(),
                    found: "a record without lamports and without a pubkey".to_string(),
                });
            }
            Remainder::TooLong => {
                let header = rest.first_chunk().map(RecordHeader::parse);
                sink.fault(RecordFault {
                    kind: RecordFaultKind::DataLength,
                    offset_bytes: self.offset_bytes,
                    account: header.map(|header| header.pubkey),
                    expected: format!("at most {ACCOUNT_DATA_BYTES_MAX} bytes"),
                    found: header.map(|header| header.data_len).unwrap_or_default().to_string(),
                });
            }
        }
        self.is_over = true;
        self.look_for_bytes_after_end(rest, sink);
        bytes.len()
    }

    /// Reports bytes after the end mark, unless they are zeros.
    fn look_for_bytes_after_end(&mut self, bytes: &[u8], sink: &mut (impl RecordSink + ?Sized)) {
        if let Some(offset_bytes) = self.end_mark
            && bytes.iter().any(|byte| *byte != 0)
        {
            self.end_mark = None;
            sink.fault(RecordFault {
                kind: RecordFaultKind::TrailingBytes,
                offset_bytes,
                account: None,
                expected: "nothing after the last record".to_string(),
                found: "bytes that are not a record".to_string(),
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::ledger::record::align8;

    #[derive(Debug, PartialEq)]
    struct FoundRecord {
        offset: u64,
        pubkey: [u8; 32],
        lamports: u64,
        data: Vec<u8>,
    }

    impl FoundRecord {
        fn data_end(&self) -> usize {
            self.offset as usize + RECORD_HEADER_BYTES + self.data.len()
        }
    }

    #[derive(Default)]
    struct CollectingSink {
        records: Vec<FoundRecord>,
        faults: Vec<(RecordFaultKind, u64)>,
    }

    impl RecordSink for CollectingSink {
        fn record(&mut self, record: Record<'_>) {
            let RecordHeader { pubkey, lamports, .. } = *record.header;
            self.records.push(FoundRecord {
                offset: record.offset_bytes,
                pubkey,
                lamports,
                data: record.data.to_vec(),
            });
        }
        fn fault(&mut self, fault: RecordFault) {
            self.faults.push((fault.kind, fault.offset_bytes));
        }
    }

    /// Builds a storage from triples of pubkey byte, lamports and data. Also returns the records that a
    /// walk must find.
    fn storage(records: &[(u8, u64, Vec<u8>)], has_last_padding: bool) -> (Vec<u8>, Vec<FoundRecord>) {
        let mut bytes = Vec::new();
        let mut expected = Vec::new();
        for (key, lamports, data) in records {
            bytes.resize(align8(bytes.len() as u64) as usize, 0xAA);
            let header = RecordHeader {
                write_version: 7,
                data_len: data.len() as u64,
                pubkey: [*key | 1; 32],
                lamports: *lamports,
                rent_epoch: u64::MAX,
                owner: [9; 32],
                executable: 0,
                padding: [0xEE; 7],
                stored_hash: [0; 32],
            };
            let offset = bytes.len() as u64;
            expected.push(FoundRecord { offset, pubkey: header.pubkey, lamports: *lamports, data: data.clone() });
            bytes.extend_from_slice(&header.to_bytes());
            bytes.extend_from_slice(data);
        }
        if has_last_padding {
            bytes.resize(align8(bytes.len() as u64) as usize, 0);
        }
        (bytes, expected)
    }

    fn walk(bytes: &[u8], piece_bytes: usize) -> CollectingSink {
        let mut sink = CollectingSink::default();
        let mut walker = RecordWalker::default();
        for piece in bytes.chunks(piece_bytes.max(1)) {
            walker.feed(piece, &mut sink);
        }
        walker.finish(&mut sink);
        sink
    }

    fn any_records() -> impl Strategy<Value = Vec<(u8, u64, Vec<u8>)>> {
        let data = proptest::collection::vec(any::<u8>(), 0..300);
        proptest::collection::vec((any::<u8>(), 0u64..5, data), 0..8)
    }

    proptest! {
        #[test]
        fn records_are_found_in_pieces_of_any_size(records in any_records(), piece_bytes in 1usize..900, has_last_padding: bool) {
            let (bytes, expected) = storage(&records, has_last_padding);
            let sink = walk(&bytes, piece_bytes);
            prop_assert_eq!(sink.records, expected);
            prop_assert_eq!(sink.faults, []);
        }

        #[test]
        fn a_storage_that_ends_inside_a_record_is_reported(records in any_records(), cut in any::<prop::sample::Index>(), piece_bytes in 1usize..900) {
            let (bytes, expected) = storage(&records, false);
            let cut = cut.index(bytes.len() + 1);
            let sink = walk(&bytes[..cut], piece_bytes);
            let whole_count = expected.iter().take_while(|record| record.data_end() <= cut).count();
            prop_assert_eq!(&sink.records[..], &expected[..whole_count]);
            let is_cut = |record: &FoundRecord| (record.offset as usize) < cut && cut < record.data_end();
            let is_reported = sink
                .faults
                .iter()
                .any(|(kind, _)| matches!(kind, RecordFaultKind::Truncated | RecordFaultKind::PartialHeader));
            prop_assert_eq!(is_reported, expected.iter().any(is_cut));
        }

        /// The report names the account if the header is complete.
        #[test]
        fn a_truncated_record_is_reported_with_its_account(cut in 0usize..200) {
            #[derive(Default)]
            struct FaultyAccounts(Vec<Option<[u8; 32]>>);
            impl RecordSink for FaultyAccounts {
                fn record(&mut self, _: Record<'_>) {}
                fn fault(&mut self, fault: RecordFault) {
                    self.0.push(fault.account);
                }
            }
            let (bytes, _) = storage(&[(7, 1, vec![1; 64])], false);
            let mut sink = FaultyAccounts::default();
            let mut walker = RecordWalker::default();
            walker.feed(&bytes[..cut.min(199)], &mut sink);
            walker.finish(&mut sink);
            let account = (cut >= RECORD_HEADER_BYTES).then_some([7; 32]);
            prop_assert_eq!(sink.0, if cut == 0 { vec![] } else { vec![account] });
        }

        #[test]
        fn hostile_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..2000), piece_bytes in 1usize..400) {
            let in_pieces = walk(&bytes, piece_bytes);
            let as_a_whole = walk(&bytes, 5000);
            prop_assert_eq!(in_pieces.records, as_a_whole.records);
            prop_assert_eq!(in_pieces.faults, as_a_whole.faults);
        }

        #[test]
        fn zeros_after_the_last_record_are_reported(records in any_records(), zeros in 136usize..1000, piece_bytes in 1usize..900) {
            let (mut bytes, expected) = storage(&records, true);
            let end = bytes.len() as u64;
            bytes.resize(bytes.len() + zeros, 0);
            let sink = walk(&bytes, piece_bytes);
            prop_assert_eq!(sink.records, expected);
            prop_assert_eq!(sink.faults, [(RecordFaultKind::Padded, end)]);
        }
    }
}
