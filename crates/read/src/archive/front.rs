//! Reads the bank file of an archive, or only the file's first bytes (slot duration and time),
//! without reading accounts.

use std::time::{Duration, SystemTime};

use slotpress_base::{Error, ErrorKind, NoProgress, Result, ShowPath, clock, split_at_most, to_usize};
use slotpress_format::{
    BLOCK_BYTES, BankFile, Entry, EntryKind, EntryParser, EpochSchedule, FieldReader, SlotTime, SlotTimeSource,
    TarEvent, read_bank_front,
};

use super::opened::OpenArchive;
use super::range::read_range;
use super::tail::Tail;
use crate::Rule;
use crate::rules::documents::for_firedancer_only;

/// Bytes read from the start of the bank file: the slot duration follows after at most 300
/// blockhashes of 56 bytes.
const FRONT_BYTES: usize = 64 * 1024;

/// Limit on decoded tar bytes when there is no index: Agave writes the status cache first (60 MB on
/// mainnet), then the bank file.
const TAR_BYTES_MAX: u64 = 256 * 1024 * 1024;

#[derive(Clone, Copy, Debug, Default)]
pub struct BankFront {
    pub slot_time: Option<SlotTime>,
    /// Time of the newest blockhash, by the clock of the node that wrote the bank file.
    pub time: Option<SystemTime>,
    pub epoch_schedule: Option<EpochSchedule>,
}

/// Reads slot duration and time from an archive's bank file; `None` if a short read does not reach
/// them.
pub fn of(archive: &OpenArchive) -> Option<BankFront> {
    parse(&read(archive).ok()??)
}

/// Setting in the index of an archive that was recompressed from one of Firedancer, with unchanged
/// storages.
pub const RECOMPRESSED: &str = "recompressed-from=firedancer";

/// True if a setting in the index says that the archive was recompressed from one of Firedancer.
pub fn is_noted(tail: &Tail) -> bool {
    tail.index.settings.split(' ').any(|setting| setting == RECOMPRESSED)
}

/// Refuses an archive that no version of Agave loads, as far as its beginning shows that. `is_below`
/// is true for the full archive of a pair: clients do not use its bank file.
///
/// # Errors
/// [`ErrorKind::Unsupported`], or the disk fails, or there is not enough memory.
pub fn refuse_for_firedancer_only(archive: &OpenArchive, is_below: bool) -> Result<()> {
    let Some(bank) = bank(archive)? else { return Ok(()) };
    let rule = if is_below {
        (bank.lacks_stakes() && shares_slots(archive)?).then_some(Rule::SharedSlot)
    } else {
        for_firedancer_only(&bank)
    };
    match rule {
        Some(rule) => Err(rule.unsupported().within(archive.path().shown())),
        None => Ok(()),
    }
}

/// True if the first two storages are of the same slot. Before September 2026, Firedancer wrote all
/// storages under one slot.
///
/// # Errors
/// The disk fails, or there is not enough memory.
fn shares_slots(archive: &OpenArchive) -> Result<bool> {
    let slot_of = |entry: &Entry| match entry.kind {
        EntryKind::Storage { slot, .. } => Some(slot),
        _ => None,
    };
    let mut slots: Vec<u64> = Vec::new();
    if let Some(tail) = &archive.tail {
        slots.extend(tail.index.entries.iter().filter_map(slot_of).take(2));
    } else {
        let mut parser = EntryParser::new();
        decode_until(archive, &mut |bytes| {
            parser.feed(bytes, &mut |event| {
                if let TarEvent::Begin(entry) = event {
                    slots.extend(slot_of(&entry).filter(|_| slots.len() < 2));
                }
                Ok(())
            })?;
            Ok(slots.len() == 2 || parser.position() >= TAR_BYTES_MAX)
        })?;
    }
    Ok(matches!(slots[..], [one, other] if one == other))
}

/// Reads the fields in front of the stakes in the bank file; `None` if a short read does not reach
/// them. Does not report damage.
///
/// # Errors
/// The disk fails, or there is not enough memory.
pub fn bank(archive: &OpenArchive) -> Result<Option<BankFile>> {
    Ok(read(archive)?.and_then(|(entry, front)| read_front(&entry, &front)))
}

fn read(archive: &OpenArchive) -> Result<Option<(Entry, Vec<u8>)>> {
    match &archive.tail {
        Some(tail) => Ok(read_by_index(archive, tail)),
        None => in_order(archive),
    }
}

fn read_front(entry: &Entry, front: &[u8]) -> Option<BankFile> {
    read_bank_front(FieldReader::new(front, entry.content_bytes, "the bank file")).ok()
}

/// Reads slot duration and time by the index; `None` if there is no index, or the bank file is
/// damaged.
pub fn by_index(archive: &OpenArchive) -> Option<BankFront> {
    parse(&read_by_index(archive, archive.tail.as_ref()?)?)
}

fn parse((entry, front): &(Entry, Vec<u8>)) -> Option<BankFront> {
    let bank = read_front(entry, front)?;
    let per_slot = u64::try_from(bank.ns_per_slot).ok().map(Duration::from_nanos);
    let time_ms = Some(bank.blockhashes.newest_ms).filter(|time_ms| *time_ms > 0).map(Duration::from_millis);
    let time = time_ms.and_then(|time_ms| SystemTime::UNIX_EPOCH.checked_add(time_ms));
    Some(BankFront {
        slot_time: per_slot.and_then(|per_slot| SlotTime::new(per_slot, SlotTimeSource::BankFile)),
        time: time.filter(|time| *time <= clock::now()),
        epoch_schedule: Some(bank.epoch_schedule()),
    })
}

fn read_by_index(archive: &OpenArchive, tail: &Tail) -> Option<(Entry, Vec<u8>)> {
    let is_bank = |entry: &&Entry| matches!(entry.kind, EntryKind::BankFile(_));
    let entry = *tail.index.entries.iter().find(is_bank)?;
    let before = tail.index.entries.iter().take_while(|entry| !is_bank(entry)).map(Entry::tar_bytes);
    let start = before.fold(BLOCK_BYTES, u64::saturating_add);
    let mut front = vec![0; to_usize(entry.content_bytes).min(FRONT_BYTES)];
    read_range(archive, start, &mut front).ok()?;
    Some((entry, front))
}

/// Finds the bank file's entry by decoding the beginning of the archive; `None` if the entry is not
/// there.
fn in_order(archive: &OpenArchive) -> Result<Option<(Entry, Vec<u8>)>> {
    let mut bank = None;
    let mut front = Vec::new();
    let mut is_over = false;
    let mut parser = EntryParser::new();
    decode_until(archive, &mut |bytes| {
        parser.feed(bytes, &mut |event| {
            match event {
                TarEvent::Begin(entry) if matches!(entry.kind, EntryKind::BankFile(_)) => bank = Some(entry),
                TarEvent::Content { bytes, .. } if bank.is_some() && !is_over => {
                    front.extend_from_slice(split_at_most(bytes, FRONT_BYTES.saturating_sub(front.len())).0);
                }
                TarEvent::End(_) => is_over = bank.is_some(),
                _ => {}
            }
            Ok(())
        })?;
        let is_whole = bank.is_some_and(|bank| front.len() as u64 >= bank.content_bytes.min(FRONT_BYTES as u64));
        Ok(is_whole || parser.position() >= TAR_BYTES_MAX.saturating_add(FRONT_BYTES as u64))
    })?;
    Ok(bank.map(|bank| (bank, front)))
}

/// Decodes the beginning of an archive until `take` returns true. Does not report damage.
fn decode_until(archive: &OpenArchive, take: &mut dyn FnMut(&[u8]) -> Result<bool>) -> Result<()> {
    let mut is_enough = false;
    let result = archive.decode_in_order(1, &NoProgress, &mut |bytes| {
        is_enough = take(bytes)?;
        if is_enough { Err(Error::failed("enough was read")) } else { Ok(()) }
    });
    match result {
        Err(error) if !is_enough && error.kind() != ErrorKind::Damaged => Err(error),
        _ => Ok(()),
    }
}
