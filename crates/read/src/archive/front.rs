//! Reads the bank file of an archive, or only the file's first bytes (slot duration and time),
//! without reading accounts.

use std::time::{Duration, SystemTime};

use slotpress_base::{Error, ErrorKind, NoProgress, Progress, Result, clock, split_at_most, to_usize};
use slotpress_format::{
    BLOCK, BLOCK_BYTES, BankFile, Entry, EntryKind, EntryParser, EpochSchedule, FieldReader, SlotTime, SlotTimeSource,
    TarEvent, is_header_of_firedancer, read_bank_front,
};

use super::by_index::Extent;
use super::range::{FrameOffsets, read_range};
use super::tail::Tail;
use super::visit::{EntryUse, Problem, Visitor};
use super::{Archive, Pass};

/// Bytes read from the start of the bank file: the slot duration follows after at most 300
/// blockhashes of 56 bytes.
const FRONT_BYTES: usize = 64 * 1024;

/// Limit on decoded tar bytes when there is no index: Agave writes the status cache first (60 MB on
/// mainnet), then the bank file.
const TAR_BYTES_MAX: u64 = 256 * 1024 * 1024;

#[derive(Clone, Copy, Debug, Default)]
pub struct Front {
    pub slot_time: Option<SlotTime>,
    /// Time of the newest blockhash, by the clock of the node that wrote the bank file.
    pub time: Option<SystemTime>,
    pub epoch_schedule: Option<EpochSchedule>,
}

/// Reads slot duration and time from an archive's bank file; `None` if a short read does not reach
/// them.
pub fn of(archive: &Archive) -> Option<Front> {
    match &archive.tail {
        Some(_) => by_index(archive),
        None => parse(&in_order(archive, FRONT_BYTES).ok()??),
    }
}

/// Limit on the size of a bank file of Firedancer, which is held in memory. On mainnet it takes
/// about 10 MB for the stakes of two or three epochs, and 220 MB for vote accounts and delegations
/// if it has these.
pub const FIREDANCER_BANK_BYTES_MAX: usize = 512 * 1024 * 1024;

/// Setting in the index of an archive that was recompressed from one of Firedancer, with unchanged
/// storages.
pub const RECOMPRESSED: &str = "recompressed-from=firedancer";

/// True if Firedancer wrote the archive, or the one from which it was recompressed. Tar headers
/// show this, or a setting in the index. So does a bank file without stakes, as Firedancer wrote
/// until August 2026.
///
/// # Errors
/// The disk fails, or there is not enough memory.
pub fn is_of_firedancer(archive: &Archive, bank: Option<&BankFile>) -> Result<bool> {
    if bank.is_some_and(BankFile::lacks_stakes) {
        return Ok(true);
    }
    match &archive.tail {
        Some(tail) => Ok(is_noted(tail)),
        None => begins_as_firedancers(archive),
    }
}

/// True if a setting in the index says that the archive was recompressed from one of Firedancer.
pub fn is_noted(tail: &Tail) -> bool {
    tail.index.settings.split(' ').any(|setting| setting == RECOMPRESSED)
}

fn begins_as_firedancers(archive: &Archive) -> Result<bool> {
    let mut front = Vec::new();
    decode_until(archive, &mut |bytes| {
        front.extend_from_slice(split_at_most(bytes, BLOCK.saturating_sub(front.len())).0);
        Ok(front.len() >= BLOCK)
    })?;
    Ok(<[u8; BLOCK]>::try_from(front).is_ok_and(|header| is_header_of_firedancer(&header)))
}

/// True if the first two storages are of the same slot. Until August 2026, Firedancer wrote all
/// storages under one slot.
///
/// # Errors
/// The disk fails, or there is not enough memory.
pub fn shares_slots(archive: &Archive) -> Result<bool> {
    let slot_of = |entry: &Entry| match entry.kind {
        EntryKind::Storage { slot, .. } => Some(slot),
        _ => None,
    };
    let mut slots: Vec<u64> = Vec::new();
    if let Some(tail) = &archive.tail {
        slots.extend(tail.index.entries.iter().filter_map(slot_of).take(2));
    } else {
        let mut parser = EntryParser::tolerant();
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

/// Reads the whole bank file of an archive of Firedancer; `None` if the archive is damaged, or the
/// bank file is not near its beginning.
///
/// # Errors
/// The bank file is too long, the disk fails, or there is not enough memory.
pub fn bank_file_of_firedancer(archive: &Archive) -> Result<Option<Vec<u8>>> {
    match in_order(archive, FIREDANCER_BANK_BYTES_MAX)? {
        Some((entry, _)) if entry.content_bytes > FIREDANCER_BANK_BYTES_MAX as u64 => {
            let has = entry.content_bytes;
            let message =
                format!("its bank file has {has} bytes, more than the {FIREDANCER_BANK_BYTES_MAX} that are read");
            Err(Error::new(ErrorKind::Unsupported, message)
                .with_hint("take an archive of another validator: of Agave, or of a newer Firedancer"))
        }
        found => Ok(found.map(|(_, bank_file)| bank_file)),
    }
}

/// Reads the fields in front of the stakes in the bank file; `None` if a short read does not reach
/// them. Does not report damage.
///
/// # Errors
/// The disk fails, or there is not enough memory.
pub fn bank(archive: &Archive) -> Result<Option<BankFile>> {
    let front = match &archive.tail {
        Some(tail) => read_by_index(archive, tail),
        None => in_order(archive, FRONT_BYTES)?,
    };
    Ok(front.and_then(|(entry, front)| read_front(&entry, &front)))
}

/// Reads the whole bank file.
///
/// # Errors
/// The bank file is missing or damaged, or the archive cannot be read.
pub fn whole_bank(archive: &Archive, threads: usize, progress: &dyn Progress) -> Result<BankFile> {
    let pass = Pass { extent: Extent::Wanted, ..Pass::new(threads, progress) };
    let bank = archive.read(&pass, &BankFileOnly)?.documents.bank;
    bank.unwrap_or_else(|| Err(Error::damaged("the archive holds no bank file"))).map(|parsed| parsed.bank)
}

/// Visits only the bank file. Damage elsewhere in the archive is not reported.
struct BankFileOnly;

impl Visitor for BankFileOnly {
    fn entry(&self, _: u32, entry: &Entry) -> Result<EntryUse> {
        Ok(EntryUse { is_document: matches!(entry.kind, EntryKind::BankFile(_)), ..EntryUse::default() })
    }

    fn problem(&self, _: Problem<'_>) -> Result<()> {
        Ok(())
    }
}

fn read_front(entry: &Entry, front: &[u8]) -> Option<BankFile> {
    read_bank_front(FieldReader::new(front, entry.content_bytes, "the bank file")).ok()
}

/// Reads slot duration and time by the index; `None` if there is no index, or the bank file is
/// damaged.
pub fn by_index(archive: &Archive) -> Option<Front> {
    parse(&read_by_index(archive, archive.tail.as_ref()?)?)
}

fn parse((entry, front): &(Entry, Vec<u8>)) -> Option<Front> {
    let bank = read_front(entry, front)?;
    let per_slot = u64::try_from(bank.ns_per_slot).ok().map(Duration::from_nanos);
    let time_ms = Some(bank.blockhashes.newest_ms).filter(|time_ms| *time_ms > 0).map(Duration::from_millis);
    let time = time_ms.and_then(|time_ms| SystemTime::UNIX_EPOCH.checked_add(time_ms));
    Some(Front {
        slot_time: per_slot.and_then(|per_slot| SlotTime::new(per_slot, SlotTimeSource::BankFile)),
        time: time.filter(|time| *time <= clock::now()),
        epoch_schedule: Some(bank.epoch_schedule()),
    })
}

/// Decodes only the frames in which the bank file begins.
fn read_by_index(archive: &Archive, tail: &Tail) -> Option<(Entry, Vec<u8>)> {
    let is_bank = |entry: &&Entry| matches!(entry.kind, EntryKind::BankFile(_));
    let entry = *tail.index.entries.iter().find(is_bank)?;
    let before = tail.index.entries.iter().take_while(|entry| !is_bank(entry)).map(Entry::tar_bytes);
    let start = before.fold(BLOCK_BYTES, u64::saturating_add);
    let mut front = vec![0; to_usize(entry.content_bytes).min(FRONT_BYTES)];
    read_range(archive, &FrameOffsets::of(tail), start, &mut front).ok()?;
    Some((entry, front))
}

/// Finds the bank file's entry, and at most `front_bytes` of its content, by decoding the beginning
/// of the archive; `None` if the entry is not there.
fn in_order(archive: &Archive, front_bytes: usize) -> Result<Option<(Entry, Vec<u8>)>> {
    let (mut bank, mut front, mut is_over) = (None, Vec::new(), false);
    let mut parser = EntryParser::tolerant();
    decode_until(archive, &mut |bytes| {
        parser.feed(bytes, &mut |event| {
            match event {
                TarEvent::Begin(entry) if matches!(entry.kind, EntryKind::BankFile(_)) => bank = Some(entry),
                TarEvent::Content { bytes, .. } if bank.is_some() && !is_over => {
                    front.extend_from_slice(split_at_most(bytes, front_bytes.saturating_sub(front.len())).0);
                }
                TarEvent::End(_) => is_over = bank.is_some(),
                _ => {}
            }
            Ok(())
        })?;
        let is_whole = bank.is_some_and(|bank| front.len() as u64 >= bank.content_bytes.min(front_bytes as u64));
        Ok(is_whole || parser.position() >= TAR_BYTES_MAX.saturating_add(front_bytes as u64))
    })?;
    Ok(bank.map(|bank| (bank, front)))
}

/// Decodes the beginning of an archive until `take` returns true. Does not report damage.
fn decode_until(archive: &Archive, take: &mut dyn FnMut(&[u8]) -> Result<bool>) -> Result<()> {
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
