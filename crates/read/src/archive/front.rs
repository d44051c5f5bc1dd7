//! The first bytes of an archive's bank file, without the rest: how long its slots take.

use {
    super::{Archive, decode::FrameDecoder, tail::Tail},
    slotpress_base::{
        bytes::{split_at_most, to_usize},
        error::Error,
        progress::NoProgress,
    },
    slotpress_format::{
        archive::{
            entry::{BLOCK_BYTES, Entry, EntryKind},
            entry_parser::{EntryParser, TarEvent},
        },
        ledger::{
            bank_file::read_ns_per_slot,
            fields::FieldReader,
            slot_time::{SlotTime, SlotTimeSource},
        },
    },
    std::time::Duration,
};

/// Bytes of the bank file that are read: the time of a slot comes after 300 blockhashes of 56 bytes.
const FRONT_BYTES: usize = 64 * 1024;

/// Bytes of tar that are decoded, at most, where there is no index: Agave writes the status cache first, of mainnet some
/// 60 MB.
const TAR_BYTES_MAX: u64 = 256 * 1024 * 1024;

/// How long slots are meant to take, by the bank file of an archive; `None` where few reads do not tell.
pub fn slot_time(archive: &Archive) -> Option<SlotTime> {
    let (entry, front) = match &archive.tail {
        Some(tail) => by_index(archive, tail)?,
        None => in_order(archive)?,
    };
    let fields = FieldReader::new(front.as_slice(), entry.content_bytes, "the bank file");
    let nanos = u64::try_from(read_ns_per_slot(fields).ok()?).ok()?;
    SlotTime::new(Duration::from_nanos(nanos), SlotTimeSource::BankFile)
}

/// From the one frame in which it begins.
fn by_index(archive: &Archive, tail: &Tail) -> Option<(Entry, Vec<u8>)> {
    let is_bank = |entry: &&Entry| matches!(entry.kind, EntryKind::BankFile(_));
    let entry = *tail.index.entries.iter().find(is_bank)?;
    let before = tail.index.entries.iter().take_while(|entry| !is_bank(entry)).map(Entry::tar_bytes);
    let start = before.fold(BLOCK_BYTES, u64::saturating_add);
    let mut frame_start = 0u64;
    let frame = tail.frames.iter().find(|frame| {
        let end = frame_start.saturating_add(u64::from(frame.content_bytes));
        let is_in = start < end;
        frame_start = if is_in { frame_start } else { end };
        is_in
    })?;
    if to_usize(frame.compressed_bytes) > zstd_safe::compress_bound(to_usize(frame.content_bytes)) {
        return None;
    }
    let mut compressed = vec![0; to_usize(frame.compressed_bytes)];
    archive.source.read_exact_at(&mut compressed, frame.offset_bytes).ok()?;
    let mut content = Vec::new();
    let mut decoder = FrameDecoder::new().ok()?;
    decoder.decode(&compressed, frame.offset_bytes, u64::from(frame.content_bytes), &mut content).ok()?;
    let front = content.get(to_usize(start.saturating_sub(frame_start))..)?;
    Some((entry, split_at_most(front, FRONT_BYTES).0.to_vec()))
}

/// From the beginning on, for so long as that is little.
fn in_order(archive: &Archive) -> Option<(Entry, Vec<u8>)> {
    let (mut bank, mut front) = (None, Vec::new());
    let mut parser = EntryParser::tolerant();
    let found = || Error::failed("enough was read");
    let _ = archive.decode_in_order(1, &NoProgress, &mut |bytes| {
        parser.feed(bytes, &mut |event| {
            match event {
                TarEvent::Begin(entry) if matches!(entry.kind, EntryKind::BankFile(_)) => bank = Some(entry),
                TarEvent::Content { bytes, .. } if bank.is_some() => {
                    front.extend_from_slice(split_at_most(bytes, FRONT_BYTES.saturating_sub(front.len())).0);
                }
                _ => {}
            }
            if bank.is_some_and(|bank| front.len() as u64 >= bank.content_bytes.min(FRONT_BYTES as u64)) {
                return Err(found());
            }
            Ok(())
        })?;
        match parser.position() < TAR_BYTES_MAX {
            true => Ok(()),
            false => Err(found()),
        }
    });
    bank.map(|bank| (bank, front))
}
