//! Recompresses: checks the input, writes the archive, checks the state.

use std::path::Path;
use std::sync::atomic::AtomicBool;

use slotpress_base::{Error, EscapePath, Progress, Result, Space, Stage, Step, Stopwatch, hint, quantity};
use slotpress_format::ArchiveName;
use slotpress_read::archive::front::{RECOMPRESSED_FROM_FIREDANCER, refuse_unless_agave_loads};
use slotpress_read::{ArchiveInput, Assurance, Failures, StateBuilder, judge_expected, rule_against_agave};

use super::base::BaseArchive;
use super::input::RecompressInput;
use super::reading::{DecodedSource, decode};
use super::state::pipe_to_pipe_error;
use super::{RecompressOptions, RecompressReport};
use crate::archive::NewArchive;
use crate::archive::layout::warn_of_unclustered;
use crate::archive::reframe::{FrameFiller, decoding_side_bytes, reframe};
use crate::archive::sink::Sink;
use crate::archive::writer::{ArchiveWriter, WrittenArchive, count_storages, tar_stream_bytes};

/// Limit on the length of the result, as a multiple of the source's: at best, an archive has an eighth
/// of the length of its tar.
const RATIO_MAX: u64 = 8;

#[derive(Clone, Copy)]
pub struct RecompressJob<'a> {
    pub options: &'a RecompressOptions,
    pub base: Option<&'a BaseArchive>,
    pub base_slot: Option<u64>,
    pub progress: &'a dyn Progress,
}

/// Recompresses an archive. `interrupt` can end the wait for a stream. If writing fails, sets
/// `is_input_unwanted`, since the rest of a stream is not needed.
pub fn run(
    options: &RecompressOptions,
    sink: &mut dyn Sink,
    interrupt: &dyn Progress,
    is_input_unwanted: &AtomicBool,
    progress: &dyn Progress,
) -> Result<RecompressReport> {
    let stopwatch = Stopwatch::start();
    let encoding = &options.encoding;
    let workers = encoding.worker_count(decoding_side_bytes(encoding.frame_size_bytes))?;
    let base_slot = base_slot_of(options)?;
    let checks_state = options.check.checks_state(base_slot.is_some() && options.base.is_none())?;
    check_arguments(options, sink, checks_state)?;
    let mut input = RecompressInput::open(options, interrupt)?;
    if let Some(archive) = input.archive() {
        // The archive may be the base of a pair. The bank file of a base may lack stakes.
        let is_base = true;
        refuse_unless_agave_loads(archive, is_base)?;
    }
    let member = input.as_member(base_slot);
    let open_base = |base: &ArchiveInput| BaseArchive::open(base, member, &encoding.io_policy);
    let base = options.base.as_ref().map(open_base).transpose()?;
    let job = RecompressJob { options, base: base.as_ref(), base_slot, progress };
    let compression = encoding.codec.compression();
    let name = input.name().map(|name| ArchiveName { compression, ..name.clone() });
    if let Some(name) = &name {
        sink.check_name(&name.to_string())?;
    }
    let source_bytes = input.length_bytes();
    if let (Some(dir), Some(source_bytes)) = (sink.dir_path(), source_bytes) {
        check_space(dir, source_bytes, progress)?;
    }
    let bytes_max = source_bytes.unwrap_or_default().saturating_mul(RATIO_MAX);
    sink.begin(name.as_ref(), bytes_max, encoding.io_policy.io_hint, progress)?;
    job.announce_steps(&input, workers);
    let state = checks_state.then(|| job.begin_state_check(&input, sink.dir_path())).transpose()?;
    let (decoded, written) = job.write(&mut input, sink, workers, state.as_ref(), is_input_unwanted)?;
    let bank = &decoded.bank;
    let accounts =
        state.map(|state| job.finish_state_check(state, &decoded, &input, sink.staged_file())).transpose()?;
    judge_expected(&options.check, bank.slot, bank.snapshot_hash(), &Failures::strict())
        .map_err(|error| error.with_place_if_damaged(input.path().escaped()))?;
    warn_of_result(&decoded, progress);
    let tar_bytes = tar_stream_bytes(&decoded.entries);
    let storages = count_storages(&decoded.entries);
    let name = bank.archive_name(base_slot, compression);
    let codec = &encoding.codec;
    let archive = NewArchive::publish(sink, name, storages, written, codec, &stopwatch, progress)?;
    let has_index = false;
    let assurance = Assurance::new(accounts, has_index);
    Ok(RecompressReport { archive, input_bytes: decoded.input_bytes, tar_bytes, assurance })
}

impl RecompressJob<'_> {
    fn announce_steps(self, input: &RecompressInput<'_>, workers: usize) {
        let Self { options, base, progress, .. } = self;
        let mut steps = vec![Step::new(Stage::Recompressing, input.length_bytes())];
        steps.extend(base.map(|base| Step::new(Stage::Verifying, base.archive.source.length_bytes())));
        steps.push(Step::new(Stage::Syncing, Some(0)));
        progress.steps(&steps);
        let length = input.length_bytes().map_or("an unknown size".to_string(), quantity::bytes);
        progress.detail(&format!("plan: {length} to read; {}", options.encoding.describe(workers)));
        progress.stage(Stage::Recompressing, input.length_bytes());
    }

    fn write(
        self,
        input: &mut RecompressInput<'_>,
        sink: &mut dyn Sink,
        workers: usize,
        state: Option<&StateBuilder>,
        is_input_unwanted: &AtomicBool,
    ) -> Result<(DecodedSource, WrittenArchive)> {
        let encoding = &self.options.encoding;
        let mut writer = ArchiveWriter::new(sink, &encoding.codec, self.progress);
        let read = |frames: &mut FrameFiller<'_>, read_progress: &dyn Progress| {
            decode(self, input, frames, workers, state, read_progress)
                .map_err(|error| error.with_place_if_damaged(input.path().escaped()))
        };
        let progress = self.progress;
        let decoded = reframe(&mut writer, encoding, workers, is_input_unwanted, progress, read)?;
        let note = decoded.is_from_firedancer.then_some(RECOMPRESSED_FROM_FIREDANCER);
        let entries = decoded.entries.iter().copied();
        let written = writer.finish(entries, note, encoding.frame_size_bytes)?;
        warn_of_unclustered(written.unclustered_pieces, progress);
        Ok((decoded, written))
    }
}

fn warn_of_result(decoded: &DecodedSource, progress: &dyn Progress) {
    if decoded.empty_storages > 0 {
        progress.warn(&format!("empty storages, which no client loads, were left out: {}", decoded.empty_storages));
    }
    if let Some(rule) = rule_against_agave(&decoded.bank) {
        progress.warn(&rule.unsupported_error().to_string());
    }
}

fn check_arguments(options: &RecompressOptions, sink: &dyn Sink, checks_state: bool) -> Result<()> {
    if checks_state && options.archive.path().is_none() && sink.location().is_none() {
        return Err(pipe_to_pipe_error());
    }
    if options.base.is_some() && !checks_state {
        return Err(Error::usage("a base is used only to check the state, but only frames are checked")
            .with_hint("leave out the base, or check the state"));
    }
    Ok(())
}

/// Refuses a directory that has no space for half of the source's length, and warns if it has no space
/// for all of it. The length of the result is known only at the end.
fn check_space(dir: &Path, source_bytes: u64, progress: &dyn Progress) -> Result<()> {
    Space::new(dir, source_bytes / 2)?.check()?;
    if let Err(error) = Space::new(dir, source_bytes)?.check() {
        progress.warn(&format!("{error}, if the result is as long as the source"));
    }
    Ok(())
}

fn base_slot_of(options: &RecompressOptions) -> Result<Option<u64>> {
    let name = options.archive.path().and_then(ArchiveName::from_path);
    match (name, &options.base) {
        (Some(ArchiveName { base_slot: None, .. }), Some(_)) => {
            Err(Error::usage("the base is the full archive of an incremental one, but the source is a full archive")
                .with_hint("leave out the base"))
        }
        (Some(name), _) => Ok(name.base_slot),
        (None, None) => Ok(options.base_slot),
        (None, Some(base)) => match options.base_slot.or(base.name.as_ref().map(|name| name.slot)) {
            None => Err(Error::usage(format!("the name of {} does not contain its slot", base.path.escaped()))
                .with_hint(hint::PASS_BASE_SLOT)),
            base_slot => Ok(base_slot),
        },
    }
}
