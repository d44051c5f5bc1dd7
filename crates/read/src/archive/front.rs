//! Reads the first fields of an archive's bank file, such as the slot duration and the time, without reading
//! the whole archive.

use slotpress_base::{Error, ErrorKind, EscapePath, NoProgress, Result, split_at_most, to_usize};
use slotpress_format::{BLOCK_LEN, BankFile, Entry, EntryKind, EntryParser, FieldReader, TarEvent, read_bank_start};

use super::opened::OpenArchive;
use super::range::read_range;
use super::tail::Tail;
use crate::{Rule, rule_against_agave};

/// Bytes read from the start of the bank file. Before the slot duration, there are about 300 blockhashes of 56
/// bytes.
const FRONT_BYTES: usize = 64 * 1024;

/// Limit on the tar bytes that are decoded without an index. Agave writes the status cache (60 MB on
/// mainnet) before the bank file.
const TAR_BYTES_MAX: u64 = 256 * 1024 * 1024;

/// Setting in the index of an archive that was recompressed from an archive of Firedancer. The storages are
/// unchanged.
pub const RECOMPRESSED_FROM_FIREDANCER: &str = "recompressed-from=firedancer";

pub fn was_recompressed_from_firedancer(tail: &Tail) -> bool {
    tail.index.settings.split(' ').any(|setting| setting == RECOMPRESSED_FROM_FIREDANCER)
}

/// Refuses an archive of Firedancer if its beginning shows that no version of Agave loads it. `is_base` is true
/// for the full archive of a pair, whose bank file clients do not use.
///
/// # Errors
/// The archive is refused ([`ErrorKind::Unsupported`]); the disk fails; or there is not enough memory.
pub fn refuse_unless_agave_loads(archive: &OpenArchive, is_base: bool) -> Result<()> {
    let Some(bank) = read_bank(archive)? else { return Ok(()) };
    let rule = if is_base {
        (bank.lacks_stakes() && storages_share_a_slot(archive)?).then_some(Rule::SharedSlot)
    } else {
        rule_against_agave(&bank)
    };
    match rule {
        Some(rule) => Err(rule.unsupported_error().with_place(archive.path().escaped())),
        None => Ok(()),
    }
}

/// True if the first two storages have the same slot. Before September 2026, Firedancer wrote all
/// storages under one slot.
///
/// # Errors
/// The disk fails, or there is not enough memory.
fn storages_share_a_slot(archive: &OpenArchive) -> Result<bool> {
    let slot_of = |entry: &Entry| match entry.kind {
        EntryKind::Storage { slot, .. } => Some(slot),
        _ => None,
    };
    let mut slots: Vec<u64> = Vec::new();
    if let Some(tail) = &archive.tail {
        slots.extend(tail.index.entries.iter().filter_map(slot_of).take(2));
    } else {
        parse_until(archive, &mut |event| {
            if let TarEvent::Begin(entry) = event {
                slots.extend(slot_of(&entry));
            }
            slots.len() == 2
        })?;
    }
    Ok(matches!(slots[..], [first, second] if first == second))
}

/// Reads the fields of the bank file before the stakes. `None` if they are not in the part that is read, or if
/// that part is damaged.
///
/// # Errors
/// The disk fails, or there is not enough memory.
pub fn read_bank(archive: &OpenArchive) -> Result<Option<BankFile>> {
    if archive.tail.is_some() {
        return Ok(read_bank_by_index(archive));
    }
    let mut bank_entry = None;
    let mut front = Vec::new();
    parse_until(archive, &mut |event| {
        match event {
            TarEvent::Begin(entry) if is_bank(&entry) => bank_entry = Some(entry),
            TarEvent::Content { bytes, .. } if bank_entry.is_some() => {
                front.extend_from_slice(split_at_most(bytes, FRONT_BYTES.saturating_sub(front.len())).0);
            }
            TarEvent::End(_) => return bank_entry.is_some(),
            _ => {}
        }
        front.len() >= FRONT_BYTES
    })?;
    Ok(bank_entry.and_then(|entry| parse_front(&entry, &front)))
}

/// Like [`read_bank`], but reads only a few frames. Also returns `None` if there is no index.
pub fn read_bank_by_index(archive: &OpenArchive) -> Option<BankFile> {
    let entries = &archive.tail.as_ref()?.index.entries;
    let number = entries.iter().position(is_bank)?;
    let (before, rest) = entries.split_at_checked(number)?;
    let entry = rest.first()?;
    let lengths_before = before.iter().map(Entry::tar_bytes);
    let start = lengths_before.fold(BLOCK_LEN as u64, u64::saturating_add);
    let mut front = vec![0; to_usize(entry.content_bytes).min(FRONT_BYTES)];
    read_range(archive, start, &mut front).ok()?;
    parse_front(entry, &front)
}

fn is_bank(entry: &Entry) -> bool {
    matches!(entry.kind, EntryKind::BankFile(_))
}

fn parse_front(entry: &Entry, front: &[u8]) -> Option<BankFile> {
    read_bank_start(FieldReader::new(front, entry.content_bytes, "the bank file")).ok()
}

/// Parses the beginning of an archive until `has_enough` returns true, or until damage, which is not reported.
fn parse_until(archive: &OpenArchive, has_enough: &mut dyn FnMut(TarEvent<'_>) -> bool) -> Result<()> {
    let mut is_enough = false;
    let mut parser = EntryParser::default();
    // Nothing is read ahead, because the rest of the archive is not needed.
    let result = archive.decode_stream(1, 0, &NoProgress, &mut |bytes| {
        parser.feed(bytes, &mut |event| {
            is_enough = is_enough || has_enough(event);
            Ok(())
        })?;
        is_enough |= parser.position() >= TAR_BYTES_MAX;
        if is_enough { Err(Error::failed("enough was read")) } else { Ok(()) }
    });
    match result {
        Err(error) if !is_enough && error.kind() != ErrorKind::Damaged => Err(error),
        _ => Ok(()),
    }
}
