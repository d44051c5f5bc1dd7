//! Divides frames into smaller units: storages and records of a snapshot, or pieces of any content.
//! Units are borrowed from the frames.

use slotpress_format::{Entry, EntryKind, EntryParser, RECORD_HEADER_BYTES, RawRecord, Records, TarEvent};

use crate::levels::input::ContentFrame;

/// Storages that a frame holds completely; empty if the content is not a snapshot's.
pub fn storages(frame: &ContentFrame) -> Vec<&[u8]> {
    let mut found = Vec::new();
    let Some(content) = usize::try_from(frame.until_entry_bytes).ok().and_then(|until| frame.content.get(until..))
    else {
        return found;
    };
    let mut current: Option<Entry> = None;
    // If parsing fails later, the content is not a tar stream, and the storages found before are
    // discarded too.
    let fed = EntryParser::new().feed(content, &mut |event| {
        match event {
            TarEvent::Begin(entry) => current = Some(entry),
            TarEvent::Content { offset_bytes: 0, bytes } => {
                let is_whole = |entry: &Entry| {
                    matches!(entry.kind, EntryKind::Storage { .. }) && entry.content_bytes == bytes.len() as u64
                };
                if current.as_ref().is_some_and(is_whole)
                    && let Some(place) = place_in(content, bytes)
                {
                    found.push(place);
                }
            }
            TarEvent::Content { .. } | TarEvent::End(_) => {}
        }
        Ok(())
    });
    if fed.is_err() { Vec::new() } else { found }
}

/// Returns the slice of `content` that is `part`, with the lifetime of `content`.
fn place_in<'a>(content: &'a [u8], part: &[u8]) -> Option<&'a [u8]> {
    let start = (part.as_ptr() as usize).checked_sub(content.as_ptr() as usize)?;
    content.get(start..start.checked_add(part.len())?)
}

/// Records of a storage, header and data without padding, up to the end mark or the first invalid
/// record.
pub fn records(storage: &[u8]) -> impl Iterator<Item = &[u8]> {
    let end = |record: &RawRecord<'_>| record.start + RECORD_HEADER_BYTES + record.data.len();
    Records::new(storage).filter_map(move |record| storage.get(record.start..end(&record)))
}

/// Pieces of this length; a shorter rest is left out. If the content is shorter than one piece, it
/// is the only piece.
pub fn pieces(content: &[u8], piece_bytes: usize) -> impl Iterator<Item = &[u8]> {
    let piece_bytes = piece_bytes.max(1);
    let is_smaller = content.len() < piece_bytes && !content.is_empty();
    content.chunks_exact(piece_bytes).chain(is_smaller.then_some(content))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use slotpress_format::RecordHeader;
    use slotpress_format::ledger::record::align8;

    use super::*;

    fn record(number: u8, data: &[u8]) -> Vec<u8> {
        let header = RecordHeader {
            write_version: 0,
            data_len: data.len() as u64,
            pubkey: [number; 32],
            lamports: 1,
            rent_epoch: 0,
            owner: [7; 32],
            executable: 0,
            padding: [0; 7],
            stored_hash: [0; 32],
        };
        [&header.to_bytes(), data].concat()
    }

    fn padded(mut bytes: Vec<u8>) -> Vec<u8> {
        bytes.resize(align8(bytes.len() as u64) as usize, 0);
        bytes
    }

    #[test]
    fn storages_and_records() {
        let contents: [&[u8]; 3] = [&[1, 2, 3], &[], &[9; 700]];
        let wanted: Vec<Vec<u8>> =
            contents.iter().enumerate().map(|(number, data)| record(number as u8 + 1, data)).collect();
        let storage: Vec<u8> = wanted.iter().cloned().flat_map(padded).collect();
        let entry = Entry { kind: EntryKind::Storage { slot: 3, id: 4 }, content_bytes: storage.len() as u64 };
        let version = Entry { kind: EntryKind::Version, content_bytes: 5 };
        let mut content = [version.header().as_slice(), b"1.2.0"].concat();
        content.resize(1024, 0);
        content.extend_from_slice(&entry.header());
        content.extend_from_slice(&storage);
        content.resize(content.len().next_multiple_of(512), 0);
        // A storage that continues in the next frame is left out.
        content.extend_from_slice(&Entry { content_bytes: 9000, ..entry }.header());
        content.extend_from_slice(&[1; 512]);
        let frame = ContentFrame::new(content.clone());
        let later = ContentFrame { until_entry_bytes: 8, ..ContentFrame::new([vec![1; 8], content].concat()) };
        assert_eq!(storages(&later), [storage.as_slice()]);
        assert_eq!(storages(&frame), [storage.as_slice()]);
        assert_eq!(records(&storage).collect::<Vec<_>>(), wanted);
        let end = frame.content.len() as u64;
        assert!(storages(&ContentFrame { until_entry_bytes: end, ..frame }).is_empty());
        assert!(storages(&ContentFrame::new(vec![5; 4000])).is_empty(), "no tar stream");
    }

    #[test]
    fn pieces_of_a_length() {
        assert_eq!(pieces(b"abcdefg", 3).collect::<Vec<_>>(), [b"abc", b"def"]);
        assert_eq!(pieces(b"ab", 3).collect::<Vec<_>>(), [b"ab"]);
        assert_eq!(pieces(b"", 3).count(), 0);
    }

    proptest! {
        #[test]
        fn hostile_storages(mut bytes in proptest::collection::vec(any::<u8>(), 0..2000), lengths in proptest::collection::vec(0u64..600, 0..4)) {
            let mut at = 0;
            for length in lengths {
                if let Some(field) = bytes.get_mut(at + 8..at + 16) {
                    field.copy_from_slice(&length.to_le_bytes());
                }
                at += align8(136 + length) as usize;
            }
            let total: usize = records(&bytes).map(<[u8]>::len).sum();
            prop_assert!(total <= bytes.len());
            prop_assert!(records(&bytes).all(|record| record.len() >= RECORD_HEADER_BYTES));
        }
    }
}
