//! Decodes the source, checks it, and cuts it into new frames.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use slotpress_base::{Error, Forward, Progress, ProgressEvent, Result};
use slotpress_format::{BankFile, Entry};
use slotpress_read::{
    AccountsPass, ArchivePass, ArchiveRules, EntrySink, Failures, Rule, SeenSlots, StateBuilder, Task, read_in_order,
};

use super::input::RecompressInput;
use super::run::RecompressJob;
use crate::archive::reframe::{FrameFiller, decoding_side_bytes};

pub struct DecodedSource {
    pub entries: Vec<Entry>,
    pub bank: BankFile,
    pub input_bytes: u64,
    pub empty_storages: u64,
    /// True if Firedancer wrote the archive, or the archive from which it was recompressed.
    pub is_from_firedancer: bool,
}

pub fn decode(
    job: RecompressJob<'_>,
    input: &mut RecompressInput<'_>,
    frames: &mut FrameFiller<'_>,
    threads: usize,
    state: Option<&StateBuilder>,
    read_progress: &dyn Progress,
) -> Result<DecodedSource> {
    let failures = Failures::with_refused(Rule::is_refused_for_output);
    let seen_slots = SeenSlots::default();
    let records = state.map(|accounts| AccountsPass::new(accounts, &failures, Task::HashAndLog(None)));
    let rules = ArchiveRules::new(job.base_slot, input.length_bytes(), &seen_slots, &failures)
        .with_records(records.as_ref())
        .with_sink();
    let input_bytes = AtomicU64::default();
    let counting_progress = Forward::new(read_progress, |event| {
        if let ProgressEvent::Bytes { input, .. } = event {
            input_bytes.fetch_add(input, Relaxed);
        }
        Some(event)
    });
    // Decoding is two to three times as fast as compressing. Half as many decoders as compressors are enough,
    // and need only half of the buffers.
    let pass = ArchivePass::new(threads, &counting_progress).decoders(threads.div_ceil(2));
    let mut reframing = ReframingSink { frames, is_left_out: false };
    let encoding = &job.options.encoding;
    let ahead_bytes = encoding.ahead_bytes(threads, decoding_side_bytes(encoding.frame_size_bytes))?;
    let mut read = input.read_stream(&encoding.io_policy, ahead_bytes, job.progress, |stream, compression| {
        read_in_order(stream, compression, &pass, &rules, Some(&mut reframing))
    })?;
    let (mut entries, bank) = match input.archive() {
        Some(archive) => rules.finish(archive, &mut read)?,
        None => rules.finish_entries(&mut read)?,
    };
    failures.require_client()?;
    let Some(bank) = bank else { return Err(Error::damaged("the archive holds no bank file")) };
    let read_count = entries.len();
    entries.retain(|entry| !is_empty_storage(entry));
    let empty_storages = (read_count - entries.len()) as u64;
    let input_bytes = input.length_bytes().unwrap_or(input_bytes.into_inner());
    let is_from_firedancer = read.is_from_firedancer;
    Ok(DecodedSource { entries, bank, input_bytes, empty_storages, is_from_firedancer })
}

fn is_empty_storage(entry: &Entry) -> bool {
    entry.is_storage() && entry.content_bytes == 0
}

struct ReframingSink<'a, 'f> {
    frames: &'a mut FrameFiller<'f>,
    is_left_out: bool,
}

impl EntrySink for ReframingSink<'_, '_> {
    fn begin(&mut self, _: u32, entry: &Entry) -> Result<()> {
        self.is_left_out = is_empty_storage(entry);
        if self.is_left_out { Ok(()) } else { self.frames.begin(entry) }
    }

    fn write(&mut self, _: u64, bytes: &[u8]) -> Result<()> {
        self.frames.append(bytes)
    }

    fn end(&mut self, entry: &Entry) -> Result<()> {
        if self.is_left_out { Ok(()) } else { self.frames.end(entry) }
    }
}
