//! The decoding side: the source is decoded, checked, and put into frames anew.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64};

use crossbeam_channel::Sender;
use parking_lot::Mutex;
use slotpress_base::{Error, Forward, Hint, Progress, ProgressEvent, Result, split_at_most, to_usize};
use slotpress_format::{BankFile, Entry, EntryKind, FrameAssembler, StorageMapItem};
use slotpress_read::conversion::STATUS_CACHE_COUNT_BYTES;
use slotpress_read::conversion::place::StoragePart;
use slotpress_read::{
    ArchiveRules, Contents, EntrySink, Findings, FirstPass, JudgedArchive, Pass, ReadArchive, Recycler, Rule,
    SeenSlots, SizeLimit, StateCheck, judge_storage_map, read_in_order,
};

use super::RecompressOptions;
use super::convert::{Conversion, Fate};
use super::input::Input;
use crate::archive::layout::{FrameLink, Linker};

pub struct Decoded {
    pub entries: Vec<Entry>,
    pub bank: BankFile,
    pub map: Vec<StorageMapItem>,
    pub input_bytes: u64,
    pub left_out: u64,
}

/// The decoding side: turns the source into frames of tar.
pub struct Reading<'a> {
    pub recycler: &'a Recycler,
    pub frames_tx: Sender<Result<(Vec<u8>, FrameLink)>>,
    pub is_unwanted: &'a AtomicBool,
    pub options: &'a RecompressOptions,
    pub threads: usize,
    pub base_slot: Option<u64>,
    pub state: Option<&'a StateCheck>,
    /// Treatment of each entry if the archive is converted; else entries are kept.
    pub conversion: Option<&'a Conversion>,
    pub progress: &'a dyn Progress,
}

impl Reading<'_> {
    /// Reads the whole source. `Ok(None)`: the encoding side has failed, and says why itself.
    pub fn run(self, input: &mut Input<'_>) -> Result<Option<Decoded>> {
        let mut frames = FramesOut {
            frames_tx: &self.frames_tx,
            recycler: self.recycler,
            linker: Linker::new(self.options.codec.layout),
            is_inside: false,
            is_refused: false,
        };
        let result = self.read(input, &mut frames);
        match result {
            Err(_) if frames.is_refused || self.is_unwanted.load(Relaxed) => Ok(None),
            Err(error) => {
                let error = error.within_damaged(input.place());
                let _ = self.frames_tx.send(Err(error.clone()));
                Err(error)
            }
            Ok(decoded) => Ok(Some(decoded)),
        }
    }

    fn read(&self, input: &mut Input<'_>, frames: &mut FramesOut<'_>) -> Result<Decoded> {
        let (findings, seen_slots) = (Findings::refusing(Rule::is_refused_of_source), SeenSlots::default());
        let rules = ArchiveRules::new(self.base_slot, false, input.length_bytes(), &seen_slots, &findings);
        let records = self.state.map(StateCheck::first_pass);
        let size_limit = SizeLimit::new(self.options.check.max_bytes);
        let contents = KeptEntries::default();
        let reader = FirstPass { rules, size_limit: &size_limit, records: records.as_ref(), contents };
        let input_bytes = AtomicU64::default();
        // What is written is counted by the encoding side.
        let count = Forward::new(self.progress, |event| match event {
            ProgressEvent::Bytes { input, .. } => {
                input_bytes.fetch_add(input, Relaxed);
                Some(ProgressEvent::Bytes { input, output: 0 })
            }
            event => Some(event),
        });
        // Decoding is two to three times as fast as compressing: half the workers keep up, and halve the buffers.
        let pass = Pass { decoders: Some(self.threads.div_ceil(2)), ..Pass::new(self.threads, &count) };
        let assembler = FrameAssembler::new(self.options.frame_size_bytes, self.recycler.take());
        let mut reframing = Reframing { assembler, frames, conversion: self.conversion, fate: Fate::Goes, number: 0 };
        let stream = input.stream(&self.options.io_policy, self.progress);
        let read = read_in_order(stream, &pass, &reader, &mut reframing)?;
        let Reframing { assembler, frames, .. } = reframing;
        self.check_index(input, &reader.contents)?;
        let judged = self.judge(input, &reader.rules, read)?;
        let Some((bank, map)) = judged.bank else { return Err(Error::damaged("the archive holds no bank file")) };
        assembler.finish(&mut |frame| frames.send(frame))?;
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

struct FramesOut<'a> {
    frames_tx: &'a Sender<Result<(Vec<u8>, FrameLink)>>,
    recycler: &'a Recycler,
    linker: Linker,
    /// True between the header of an entry and its end.
    is_inside: bool,
    is_refused: bool,
}

impl FramesOut<'_> {
    fn send(&mut self, frame: Vec<u8>) -> Result<Vec<u8>> {
        let link = self.linker.link(self.is_inside);
        if self.frames_tx.send(Ok((frame, link))).is_err() {
            self.is_refused = true;
            return Err(Error::failed("the encoding side has stopped"));
        }
        Ok(self.recycler.take())
    }
}

struct Reframing<'a, 'f> {
    assembler: FrameAssembler,
    frames: &'a mut FramesOut<'f>,
    conversion: Option<&'a Conversion>,
    fate: Fate,
    number: u32,
}

impl Reframing<'_, '_> {
    fn begin_new(&mut self, entry: &Entry) -> Result<()> {
        self.assembler.begin(entry, &mut |frame| self.frames.send(frame))?;
        self.frames.is_inside = true;
        Ok(())
    }

    fn put(&mut self, bytes: &[u8]) -> Result<()> {
        self.assembler.content(bytes, &mut |frame| self.frames.send(frame))
    }

    fn end_new(&mut self, entry: &Entry) -> Result<()> {
        self.assembler.end(entry, &mut |frame| self.frames.send(frame))?;
        self.frames.is_inside = false;
        Ok(())
    }
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
            (Fate::Storage(StoragePart { entry, .. }), _) => self.begin_new(&entry),
            (Fate::BankFile(entry), Some(conversion)) => {
                self.begin_new(&entry)?;
                conversion.bank.write(&mut |bytes| self.put(bytes))
            }
            (Fate::StatusCache(entry), Some(conversion)) => {
                self.begin_new(&entry)?;
                self.put(&conversion.status_cache_front)
            }
            _ => self.begin_new(entry),
        }
    }

    fn content(&mut self, offset_bytes: u64, bytes: &[u8]) -> Result<()> {
        slotpress_base::threads::panic_point("assembling");
        match self.fate {
            Fate::Goes | Fate::BankFile(_) => Ok(()),
            Fate::StatusCache(_) => {
                let replaced = STATUS_CACHE_COUNT_BYTES.saturating_sub(to_usize(offset_bytes));
                self.put(split_at_most(bytes, replaced).1)
            }
            Fate::Stays | Fate::Storage(_) => match self.conversion {
                Some(conversion) => self.put(&conversion.rent_epochs.put(self.number, offset_bytes, bytes)),
                None => self.put(bytes),
            },
        }
    }

    fn end(&mut self, entry: &Entry) -> Result<()> {
        match self.fate {
            Fate::Goes | Fate::Storage(StoragePart { ends: false, .. }) => Ok(()),
            Fate::Storage(StoragePart { entry, .. }) | Fate::BankFile(entry) | Fate::StatusCache(entry) => {
                self.end_new(&entry)
            }
            Fate::Stays => self.end_new(entry),
        }
    }
}
