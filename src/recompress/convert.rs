//! Decides how each entry is changed when an archive of Firedancer is converted to one that
//! Agave loads.
//!
//! The new bank file needs facts from the accounts ([`conversion`](slotpress_read::conversion)),
//! but comes before them in the archive. So the source is read twice: here to collect these facts,
//! and then to write the result with changed entries.

use std::borrow::Cow;
use std::path::{Path, PathBuf};

use parking_lot::Mutex;
use slotpress_base::{Error, ErrorKind, Hint, Result, ShowPath, to_usize};
use slotpress_format::{Entry, EntryKind, Genesis, RebuiltBank, RentEpochs};
use slotpress_read::archive::visit::NoEntrySink;
use slotpress_read::archive::{Archive, front};
use slotpress_read::conversion::place::{StoragePart, place_storages};
use slotpress_read::conversion::{
    ForAgave, ReadOfFiredancer, RentEpochPlace, STATUS_CACHE_COUNT_BYTES, is_to_convert, lacks_stakes,
    status_cache_front,
};
use slotpress_read::{
    ArchiveRules, Contents, Findings, FirstPass, IndexPolicy, Pass, Rule, SeenSlots, StateOutcome, check_base,
    read_in_order,
};

use super::input::Input;
use super::plan::Job;
use super::reading::Decoded;

/// How an entry is changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Treatment {
    Keep,
    /// Leave out an empty storage.
    Omit,
    /// Write the content as a part of another storage.
    Storage(StoragePart),
    /// Write a new bank file.
    BankFile(Entry),
    /// Insert slots at the beginning of the status cache.
    StatusCache(Entry),
}

impl Treatment {
    /// Entry of the result that gets the content of `entry`.
    pub fn entry(self, entry: &Entry) -> Option<Entry> {
        match self {
            Self::Keep => Some(*entry),
            Self::Omit => None,
            Self::Storage(StoragePart { entry, .. }) | Self::BankFile(entry) | Self::StatusCache(entry) => Some(entry),
        }
    }

    /// Same as [`Self::entry`], but `None` if the content is not the beginning of that entry.
    pub fn begun(self, entry: &Entry) -> Option<Entry> {
        self.entry(entry).filter(|_| !matches!(self, Self::Storage(StoragePart { begins: false, .. })))
    }
}

/// Treatment of all entries of an archive.
#[derive(Debug)]
pub struct Conversion {
    path: PathBuf,
    source: Vec<Entry>,
    treatments: Vec<Treatment>,
    pub rent_epochs: RentEpochPlaces,
    /// New bank file; `None` if the result is for Firedancer.
    pub bank: Option<RebuiltBank>,
    /// Replacement for the first 8 bytes of the status cache, a count of slots.
    pub status_cache_front: Vec<u8>,
    pub outcome: StateOutcome,
}

/// Rent epochs to write into the records of vote accounts, sorted by storage and offset. Storages
/// are numbered by their entries in the archive.
#[derive(Debug, Default)]
pub struct RentEpochPlaces(Vec<RentEpochPlace>);

impl RentEpochPlaces {
    /// Writes rent epochs into a piece of an entry's content.
    pub fn put<'b>(&self, number: u32, offset_bytes: u64, bytes: &'b [u8]) -> Cow<'b, [u8]> {
        let mut bytes = Cow::Borrowed(bytes);
        let end = offset_bytes + bytes.len() as u64;
        let first = self.0.partition_point(|it| (it.storage, it.offset_bytes + 8) <= (number, offset_bytes));
        let is_in = |it: &&RentEpochPlace| (it.storage, it.offset_bytes) < (number, end);
        for RentEpochPlace { offset_bytes: at, epoch, .. } in self.0[first..].iter().take_while(is_in) {
            for (at, byte) in (*at..).zip(epoch.to_le_bytes()).filter(|(at, _)| (offset_bytes..end).contains(at)) {
                bytes.to_mut()[to_usize(at - offset_bytes)] = byte;
            }
        }
        bytes
    }
}

impl Conversion {
    /// Returns the treatment of an entry.
    ///
    /// # Errors
    /// The first reading saw another entry with this number.
    pub fn treatment(&self, number: u32, entry: &Entry) -> Result<Treatment> {
        let known = self.source.get(number as usize).zip(self.treatments.get(number as usize));
        let known = known.filter(|(surveyed, _)| *surveyed == entry);
        known.map(|(_, treatment)| *treatment).ok_or_else(|| has_changed(&self.path))
    }

    pub fn entries(&self) -> Vec<Entry> {
        self.source.iter().zip(&self.treatments).filter_map(|(entry, treatment)| treatment.begun(entry)).collect()
    }
}

fn has_changed(path: &Path) -> Error {
    Error::failed(format!("{} changed while it was read", path.shown()))
        .with_hint("something writes to it: run this again when it is whole")
}

/// Error for a source that cannot be read twice, or whose state is not checked.
pub fn not_possible() -> Error {
    Error::usage("converting for Agave needs an archive in a file, an output directory, and the check of the state")
        .with_hint("save the archive from the pipe in a file first")
}

impl Job<'_> {
    /// Reads an archive of Firedancer, checks its state, and decides how its entries are changed.
    /// Returns `None` if the archive is not Firedancer's, or need not be changed. If the result is
    /// for Firedancer, only adds the slots that newer versions need to the status cache, and only
    /// if `is_convertible`: source and result are files, and the state is checked.
    ///
    /// # Errors
    /// The source is damaged, or lacks something that Agave needs.
    pub fn survey(self, input: &Input<'_>, written: Option<&Path>, is_convertible: bool) -> Result<Option<Conversion>> {
        let Input::File { archive, .. } = input else { return Ok(None) };
        let placed = |error: Error| match error.kind() {
            ErrorKind::Unsupported => error.within(input.place()),
            _ => error.within_damaged(input.place()),
        };
        let is_to_convert = match self.options.for_agave {
            true => is_to_convert(archive, self.options.genesis.as_deref()),
            false => Ok(is_convertible && lacks_stakes(archive)?),
        };
        if !is_to_convert.map_err(placed)? {
            return Ok(None);
        }
        if self.base_slot.is_some() && self.base.is_none() {
            let why = "the stakes of an incremental archive depend on its full archive";
            return Err(Error::usage(why).with_hint(Hint::GiveFullArchive));
        }
        let result = self.read_accounts(archive, input, written);
        result.map(Some).map_err(placed)
    }

    fn read_accounts(self, archive: &Archive, input: &Input<'_>, written: Option<&Path>) -> Result<Conversion> {
        let (options, base_slot, progress) = (self.options, self.base_slot, self.progress);
        progress.stage("Surveying", input.length_bytes());
        let state = self.new_state_check(input, written, true)?.keeping_accounts();
        let (findings, seen_slots) = (Findings::refusing(Rule::is_refused_of_source), SeenSlots::default());
        let records = state.first_pass();
        let reader = FirstPass {
            rules: ArchiveRules::new(base_slot, false, input.length_bytes(), &seen_slots, &findings),
            records: Some(&records),
            contents: Surveyed::default(),
        };
        // Reads in order, without the index: if the content contradicted the index half-way, the
        // accounts read so far would have to be subtracted again.
        let pass = Pass::new(options.encoding.threads, progress);
        let mut read = read_in_order(archive.stream(progress), &pass, &reader, &mut NoEntrySink)?;
        let judged = reader.rules.finish(archive, &mut read)?;
        let Some((bank, map)) = judged.bank else { return Err(Error::damaged("the archive holds no bank file")) };
        let entries = reader.contents.0.into_inner();
        slotpress_base::threads::panic_point("converting");
        let input_bytes = archive.length_bytes();
        let decoded = Decoded { entries, bank, map, input_bytes, left_out: 0, is_of_firedancer: true };
        let (outcome, state) = self.finish_state(state, &decoded, input, None)?;
        let Decoded { entries, bank, .. } = decoded;
        if !options.for_agave {
            let cached = bank.cached_slots.as_deref().unwrap_or_default();
            let front = status_cache_front(cached, &state.newest_slots()?, bank.slot)?;
            let treatments = treatments(&entries, vec![None; entries.len()], None, &front);
            let rent_epochs = RentEpochPlaces::default();
            return Ok(Conversion {
                path: archive.path_buf(),
                source: entries,
                treatments,
                rent_epochs,
                bank: None,
                status_cache_front: front,
                outcome,
            });
        }
        let bank_file = front::bank_file_of_firedancer(archive)?.unwrap_or_default();
        if bank_file.len() as u64 != bank.length_bytes {
            return Err(has_changed(archive.path()));
        }
        let known = options.incremental.as_deref().map(|path| self.rent_epochs_of(path, bank.slot)).transpose()?;
        let is_storage = |(_, entry): &(u32, &Entry)| matches!(entry.kind, EntryKind::Storage { .. });
        let storages: Vec<u32> = (0..).zip(&entries).filter(is_storage).map(|(number, _)| number).collect();
        let genesis = options.genesis.as_deref().map(Genesis::read).transpose()?;
        let read = ReadOfFiredancer {
            bank_file,
            bank: &bank,
            accounts: state.found_accounts()?,
            storages: 0..storages.len() as u32,
            rent_epochs: known.unwrap_or_default(),
            genesis: genesis.as_ref(),
            is_base: options.incremental.is_some(),
            is_base_to_convert: self.base.is_some_and(|base| base.lacks_stakes),
        };
        drop(state);
        let ForAgave { bank: bank_file, status_cache_front, mut rent_epochs } = read.convert(progress)?;
        rent_epochs.iter_mut().for_each(|place| place.storage = storages[place.storage as usize]);
        let parts = place_storages(&entries, base_slot.unwrap_or_default(), bank.slot)?;
        let treatments = treatments(&entries, parts, Some(&bank_file), &status_cache_front);
        let (rent_epochs, bank) = (RentEpochPlaces(rent_epochs), Some(bank_file));
        let path = archive.path_buf();
        Ok(Conversion { path, source: entries, treatments, rent_epochs, bank, status_cache_front, outcome })
    }

    /// Rent epochs of the vote accounts in an incremental archive of Agave that builds on the full
    /// one of `base_slot`; empty for an archive of Firedancer.
    fn rent_epochs_of(self, path: &Path, base_slot: u64) -> Result<RentEpochs> {
        let (options, progress) = (self.options, self.progress);
        let read = || {
            let archive = Archive::open(path, IndexPolicy::Hint, &options.encoding.io_policy)?;
            check_base(archive.base_slot(), Some(base_slot))?;
            progress.stage("Surveying", Some(archive.length_bytes()));
            Ok(RentEpochs::of_stakes(&front::whole_bank(&archive, options.encoding.threads, progress)?.stakes))
        };
        read().map_err(|error: Error| error.within_damaged(path.shown()))
    }
}

/// Decides how each entry is changed. `parts` has an item per entry: the part of another storage
/// that the entry becomes, or `None`.
fn treatments(
    entries: &[Entry],
    parts: Vec<Option<StoragePart>>,
    bank: Option<&RebuiltBank>,
    status_cache_front: &[u8],
) -> Vec<Treatment> {
    let treatment = |(entry, part): (&Entry, Option<StoragePart>)| match (entry.kind, part, bank) {
        (_, Some(part), _) => Treatment::Storage(part),
        (EntryKind::Storage { .. }, None, _) if entry.content_bytes == 0 => Treatment::Omit,
        (EntryKind::BankFile(_), None, Some(bank)) => {
            Treatment::BankFile(Entry { content_bytes: bank.length_bytes(), ..*entry })
        }
        (EntryKind::StatusCache, None, _) => {
            let added = (status_cache_front.len() - STATUS_CACHE_COUNT_BYTES) as u64;
            Treatment::StatusCache(Entry { content_bytes: entry.content_bytes + added, ..*entry })
        }
        _ => Treatment::Keep,
    };
    entries.iter().zip(parts).map(treatment).collect()
}

#[derive(Default)]
struct Surveyed(Mutex<Vec<Entry>>);

impl Contents for Surveyed {
    const ARE_FOR_SINK: bool = false;

    fn entry(&self, entry: &Entry) -> Result<()> {
        self.0.lock().push(*entry);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// The result does not depend on how the content is cut into pieces.
        #[test]
        fn rent_epochs_are_put_in_their_places(
            gaps in proptest::collection::vec(1u64..4, 0..6),
            cuts in proptest::collection::vec(0usize..200, 0..8),
        ) {
            let places: Vec<(u64, u64)> =
                gaps.iter().scan(0, |at, gap| { *at += gap * 8; Some((*at, u64::MAX - *at)) }).collect();
            let place = |(offset_bytes, epoch): &(u64, u64)| RentEpochPlace { storage: 7, offset_bytes: *offset_bytes, epoch: *epoch };
            let rent_epochs = RentEpochPlaces(places.iter().map(place).collect());
            let content = vec![1; 200];
            let mut expected = content.clone();
            for (at, epoch) in &places {
                expected[*at as usize..*at as usize + 8].copy_from_slice(&epoch.to_le_bytes());
            }
            let mut cuts = [&cuts[..], &[0, 200]].concat();
            cuts.sort_unstable();
            let pieces = |number| -> Vec<u8> {
                let piece = |ends: &[usize]| rent_epochs.put(number, ends[0] as u64, &content[ends[0]..ends[1]]).into_owned();
                cuts.windows(2).flat_map(piece).collect()
            };
            prop_assert!(pieces(7) == expected);
            prop_assert!(pieces(6) == content, "another entry");
        }
    }
}
