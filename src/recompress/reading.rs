//! The decoding side: the source is decoded, checked, and put into frames anew.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use parking_lot::Mutex;
use slotpress_base::{Error, Forward, Hint, Progress, ProgressEvent, Result, split_at_most, to_usize};
use slotpress_format::{BankFile, Entry, EntryKind, StorageMapItem};
use slotpress_read::conversion::STATUS_CACHE_COUNT_BYTES;
use slotpress_read::conversion::place::StoragePart;
use slotpress_read::{
    ArchiveRules, Contents, EntrySink, Findings, FirstPass, JudgedArchive, Pass, ReadArchive, Rule, SeenSlots,
    SizeLimit, StateCheck, judge_storage_map, read_in_order,
};

use super::RecompressOptions;
use super::convert::{Conversion, Fate};
use super::input::Input;
use crate::archive::reframe::FramesOut;

pub struct Decoded {
    pub entries: Vec<Entry>,
    pub bank: BankFile,
    pub map: Vec<StorageMapItem>,
    pub input_bytes: u64,
    pub left_out: u64,
}

/// The decoding side: turns the source into frames of tar.
pub struct Reading<'a> {
    pub options: &'a RecompressOptions,
    pub threads: usize,
    pub base_slot: Option<u64>,
    pub state: Option<&'a StateCheck>,
    /// Treatment of each entry if the archive is converted; else entries are kept.
    pub conversion: Option<&'a Conversion>,
    /// Counts what is read.
    pub reads: &'a dyn Progress,
    pub progress: &'a dyn Progress,
}

impl Reading<'_> {
    /// Reads the whole source.
    pub fn run(&self, input: &mut Input<'_>, frames: &mut FramesOut<'_>) -> Result<Decoded> {
        let (findings, seen_slots) = (Findings::refusing(Rule::is_refused_of_source), SeenSlots::default());
        let rules = ArchiveRules::new(self.base_slot, false, input.length_bytes(), &seen_slots, &findings);
        let records = self.state.map(StateCheck::first_pass);
        let size_limit = SizeLimit::new(self.options.check.max_bytes);
        let contents = KeptEntries::default();
        let reader = FirstPass { rules, size_limit: &size_limit, records: records.as_ref(), contents };
        let input_bytes = AtomicU64::default();
        let count = Forward::new(self.reads, |event| {
            if let ProgressEvent::Bytes { input, .. } = event {
                input_bytes.fetch_add(input, Relaxed);
            }
            Some(event)
        });
        // Decoding is two to three times as fast as compressing: half the workers keep up, and halve the buffers.
        let pass = Pass { decoders: Some(self.threads.div_ceil(2)), ..Pass::new(self.threads, &count) };
        let mut reframing = Reframing { frames, conversion: self.conversion, fate: Fate::Goes, number: 0 };
        let stream = input.stream(&self.options.io_policy, self.progress);
        let read = read_in_order(stream, &pass, &reader, &mut reframing)?;
        self.check_index(input, &reader.contents)?;
        let judged = self.judge(input, &reader.rules, read)?;
        let Some((bank, map)) = judged.bank else { return Err(Error::damaged("the archive holds no bank file")) };
        let entries = reader.contents.0.into_inner();
        let left_out = judged.entries.storages().iter().filter(|(_, length_bytes)| *length_bytes == 0).count() as u64;
        Ok(Decoded {
            entries,
            bank,
            map,
            input_bytes: input.length_bytes().unwrap_or(input_bytes.into_inner()),
            left_out,
        })
    }

    /// Without the state, the index is what tells that nothing is missing.
    fn check_index(&self, input: &Input<'_>, entries: &KeptEntries) -> Result<()> {
        let (None, Input::File { archive, .. }) = (self.state, input) else { return Ok(()) };
        let Some(tail) = &archive.tail else { return Ok(()) };
        let entries = entries.0.lock();
        if *entries == tail.index.entries {
            return Ok(());
        }
        Err(Error::damaged("the archive's index does not match its contents").with_hint(Hint::CheckState))
    }

    fn judge(&self, input: &Input<'_>, rules: &ArchiveRules<'_>, mut read: ReadArchive) -> Result<JudgedArchive> {
        let judged = match input {
            Input::File { archive, .. } => rules.finish(archive, &mut read)?,
            Input::Stream { .. } => rules.finish_entries(read.documents, read.is_whole)?,
        };
        if let Some((_, map)) = &judged.bank {
            let findings = Findings::refusing(Rule::is_refused_of_source);
            let storages = judged.entries.storages();
            judge_storage_map(map, storages, self.base_slot, false, &findings).map_err(|error| match input {
                Input::Stream { .. } => error.with_hint(Hint::GiveBase),
                Input::File { archive, .. } if archive.name.is_none() => error.with_hint(Hint::GiveBase),
                Input::File { .. } => error,
            })?;
        }
        Ok(judged)
    }
}

/// The entries, in their order, without empty storages, which no client loads. Their contents go to the one sink of the loop
/// that reads in order.
#[derive(Default)]
struct KeptEntries(Mutex<Vec<Entry>>);

fn is_empty_storage(entry: &Entry) -> bool {
    matches!(entry.kind, EntryKind::Storage { .. }) && entry.content_bytes == 0
}

impl Contents for KeptEntries {
    const ARE_FOR_SINK: bool = true;

    fn entry(&self, entry: &Entry) -> Result<()> {
        if !is_empty_storage(entry) {
            self.0.lock().push(*entry);
        }
        Ok(())
    }
}

struct Reframing<'a, 'f> {
    frames: &'a mut FramesOut<'f>,
    conversion: Option<&'a Conversion>,
    fate: Fate,
    number: u32,
}

impl EntrySink for Reframing<'_, '_> {
    fn begin(&mut self, number: u32, entry: &Entry, _: u64) -> Result<()> {
        self.number = number;
        self.fate = match self.conversion {
            Some(conversion) => conversion.fate(number, entry)?,
            None if is_empty_storage(entry) => Fate::Goes,
            None => Fate::Stays,
        };
        match (self.fate, self.conversion) {
            (Fate::Goes | Fate::Storage(StoragePart { begins: false, .. }), _) => Ok(()),
            (Fate::Storage(StoragePart { entry, .. }), _) => self.frames.begin(&entry),
            (Fate::BankFile(entry), Some(conversion)) => {
                self.frames.begin(&entry)?;
                conversion.bank.write(&mut |bytes| self.frames.content(bytes))
            }
            (Fate::StatusCache(entry), Some(conversion)) => {
                self.frames.begin(&entry)?;
                self.frames.content(&conversion.status_cache_front)
            }
            _ => self.frames.begin(entry),
        }
    }

    fn content(&mut self, offset_bytes: u64, bytes: &[u8]) -> Result<()> {
        match self.fate {
            Fate::Goes | Fate::BankFile(_) => Ok(()),
            Fate::StatusCache(_) => {
                let replaced = STATUS_CACHE_COUNT_BYTES.saturating_sub(to_usize(offset_bytes));
                self.frames.content(split_at_most(bytes, replaced).1)
            }
            Fate::Stays | Fate::Storage(_) => match self.conversion {
                Some(conversion) => self.frames.content(&conversion.rent_epochs.put(self.number, offset_bytes, bytes)),
                None => self.frames.content(bytes),
            },
        }
    }

    fn end(&mut self, entry: &Entry) -> Result<()> {
        match self.fate {
            Fate::Goes | Fate::Storage(StoragePart { ends: false, .. }) => Ok(()),
            Fate::Storage(StoragePart { entry, .. }) | Fate::BankFile(entry) | Fate::StatusCache(entry) => {
                self.frames.end(&entry)
            }
            Fate::Stays => self.frames.end(entry),
        }
    }
}
