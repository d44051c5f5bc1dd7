//! Archive to archive, in one pass over a stream: decode, check, cut into frames anew, compress, publish.
//!
//! A running validator's state cannot be read from outside, but the archives that it writes can. The result is, byte
//! for byte, what archiving the same entries in the same order would give. Nothing gets its name unless the whole
//! source was sound and is what its name says.

mod base;
mod convert;
mod input;
mod reading;
mod state;

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

use derive_setters::Setters;
use serde::Serialize;
use slotpress_base::{
    Elapsed, Error, ErrorKind, Hint, IoPolicy, Progress, Result, ShowPath, Space, Step, Stopwatch, Until,
    available_threads, quantity, text,
};
use slotpress_format::{
    ArchiveName, END_OF_ARCHIVE_BYTES, Entry, EntryKind, FRAME_SIZE_BYTES_DEFAULT, Root, name_and_parts,
};
use slotpress_read::archive::front::RECOMPRESSED;
use slotpress_read::archive::source::written;
use slotpress_read::conversion::CONVERTED;
use slotpress_read::{
    Assurance, CheckOptions, Client, NamedArchive, SizeLimit, StateOutcome, judge_expected, read_back_archive_on,
};

use crate::archive::encode::{Codec, ZSTD_LEVEL_DEFAULT};
use crate::archive::layout::warn_left_as_is;
use crate::archive::reframe::{FramesOut, decoding_side_bytes, reframe};
use crate::archive::sink::{OpenSink, Place, Sink};
use crate::archive::writer::{ArchiveWriter, FrameTotals, Written};
use crate::archive::{check_frame_size, threads_within};
use crate::recompress::base::Base;
use crate::recompress::convert::Conversion;
use crate::recompress::input::Input;
use crate::recompress::reading::Reading;
use crate::recompress::state::pipe_to_pipe;

/// Source of the archive.
#[allow(missing_docs, reason = "the names say it")]
#[derive(Debug)]
pub enum Source {
    File(PathBuf),
    /// A pipe, a terminal or a file, which has no name to check its content against. A wait for its bytes ends when
    /// the reader has ended.
    Stream(File),
}

/// Options for [`recompress()`].
#[derive(Clone, Debug, Setters)]
#[non_exhaustive]
pub struct RecompressOptions {
    /// Format, level and record order of the new archive.
    pub codec: Codec,
    /// Bytes of tar in a frame.
    pub frame_size_bytes: u64,
    /// Threads that compress, 1 to 1024; about half as many decode.
    pub threads: usize,
    /// The most memory for buffers, in bytes: fewer workers are started where it does not suffice.
    #[setters(into)]
    pub memory_bytes: Option<u64>,
    /// The base slot of an incremental archive that comes without a name.
    #[setters(into)]
    pub base_slot: Option<u64>,
    /// The full archive below an incremental one. It is read only to check the state that the two make up.
    #[setters(into)]
    pub base: Option<PathBuf>,
    /// Make of an archive of Firedancer's one that Agave loads. It is read twice, and so must be a file; so must the result,
    /// which is verified before it gets its name. Others are recompressed as ever.
    pub for_agave: bool,
    /// The incremental archive of Agave's that is to go on a full one of Firedancer's, for that: vote accounts get the rent
    /// epochs that it expects. Without it, they get those of mainnet.
    #[setters(into)]
    pub incremental: Option<PathBuf>,
    /// The chain's `genesis.bin`, for that: Firedancer does not keep the time of a slot of a cluster that began with another
    /// than the known ones have.
    #[setters(into)]
    pub genesis: Option<PathBuf>,
    /// Checks made while the archive is read.
    pub check: CheckOptions,
    /// Use of page cache, priority and rate limit.
    pub io_policy: IoPolicy,
}

/// zstd level 1, all cores, the state checked.
impl Default for RecompressOptions {
    fn default() -> Self {
        Self {
            codec: Codec::zstd(ZSTD_LEVEL_DEFAULT),
            frame_size_bytes: FRAME_SIZE_BYTES_DEFAULT,
            threads: available_threads(),
            memory_bytes: None,
            base_slot: None,
            base: None,
            for_agave: false,
            incremental: None,
            genesis: None,
            check: CheckOptions::default(),
            io_policy: IoPolicy::default(),
        }
    }
}

#[allow(missing_docs, reason = "the names say it")]
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct RecompressReport {
    /// The new archive; `None` when it went into a stream.
    #[serde(serialize_with = "text::optional_path")]
    pub path: Option<PathBuf>,
    #[serde(flatten, serialize_with = "name_and_parts")]
    pub name: ArchiveName,
    pub storages: u64,
    pub input_bytes: u64,
    pub tar_bytes: u64,
    pub output_bytes: u64,
    #[serde(flatten)]
    pub frames: FrameTotals,
    /// Root over the frame hashes; `None` for other formats than zstd, which have none.
    pub root: Option<Root>,
    #[serde(flatten)]
    pub assurance: Assurance,
    #[serde(flatten)]
    pub elapsed: Elapsed,
    #[serde(flatten)]
    pub codec: Codec,
}

/// The result is longer than the source by less than this: archives are compressed to an eighth of their tar at best.
const RATIO_MAX: u64 = 8;

/// Recompresses an archive into a sink.
///
/// # Errors
/// Of [`ErrorKind::Damaged`] where the source is not sound to its end, or is not what its name says; of
/// [`ErrorKind::Usage`] for a stream into a stream, unless [`CheckMode::Frames`](slotpress_read::CheckMode::Frames) asks to go without the state; an incremental
/// archive without its full one, with the same exception; a disk that fails or is full. Nothing gets an archive's name then; a stream may have got a part of it.
pub fn recompress<'a>(
    source: Source,
    sink: Sink<'a>,
    options: &RecompressOptions,
    progress: &'a dyn Progress,
) -> Result<RecompressReport> {
    recompress_open(source, sink, options, progress).map_err(|error| match error.kind() {
        // A wait that the user ended is not a fault of the pipe.
        ErrorKind::Failed => progress.check().err().unwrap_or(error),
        _ => error,
    })
}

/// Refuses a directory that has no room for half of the source, and warns of one that has none for all of it: how long the
/// result becomes is known at the end.
fn check_room(dir: &Path, source_bytes: u64, progress: &dyn Progress) -> Result<()> {
    Space::new(dir, source_bytes / 2)?.check()?;
    if let Err(error) = Space::new(dir, source_bytes)?.check() {
        progress.warn(&format!("{error}, if the result is as long as the source"));
    }
    Ok(())
}

fn recompress_open<'a>(
    source: Source,
    sink: Sink<'a>,
    options: &RecompressOptions,
    progress: &'a dyn Progress,
) -> Result<RecompressReport> {
    let stopwatch = Stopwatch::start();
    let sink = sink.kept()?;
    check_frame_size(options.frame_size_bytes)?;
    let threads = threads_within(
        &options.codec,
        options.frame_size_bytes,
        options.threads,
        options.memory_bytes,
        decoding_side_bytes(options.frame_size_bytes),
    )?;
    let base_slot = base_slot_of(&source, options)?;
    let checks_state = options.check.checks_state(base_slot.is_some() && options.base.is_none())?;
    let is_pipe_to_pipe = matches!(source, Source::Stream(_)) && matches!(sink.place, Place::Stream(_));
    if checks_state && is_pipe_to_pipe {
        return Err(pipe_to_pipe());
    }
    let is_file_to_file = matches!(source, Source::File(_)) && matches!(sink.place, Place::Kept(_) | Place::Unnamed(_));
    let is_convertible = checks_state && is_file_to_file;
    if options.for_agave && !is_convertible {
        return Err(convert::not_possible());
    }
    if options.incremental.is_some() && base_slot.is_some() {
        return Err(Error::usage(
            "an incremental archive goes on a full one, but this is an incremental archive itself",
        ));
    }
    if options.base.is_some() && !checks_state {
        return Err(Error::usage("a base serves only to check the state, but only frames are to be checked"));
    }
    let is_unwanted = AtomicBool::new(false);
    let wish = Until(|| is_unwanted.load(Relaxed) || progress.is_interrupted());
    let mut input = Input::open(source, options, &wish)?;
    if let Input::File { archive, .. } = &input {
        SizeLimit::new(options.check.max_bytes).check_indexes([archive.as_ref()].into_iter())?;
    }
    let base = options.base.as_deref().zip(base_slot);
    let base = base.map(|(path, slot)| Base::open(path, slot, input.member(), &options.io_policy)).transpose()?;
    let job = Job { options, base: base.as_ref(), base_slot, progress };
    let extension = options.codec.extension();
    let name = input.name().map(|name| ArchiveName { extension, ..name.clone() });
    name.as_ref().map_or(Ok(()), |name| sink.check_name(&name.to_string()))?;
    if let (Some(dir), Some(length_bytes)) = (sink.parent(), input.length_bytes()) {
        check_room(dir, length_bytes, progress)?;
    }
    let bytes_max = input.length_bytes().unwrap_or_default().saturating_mul(RATIO_MAX);
    let mut sink = sink.open(name.as_ref(), bytes_max, progress)?;
    let sink_path = sink.path();
    let conversion = job.survey(&input, sink.file_path(), is_convertible)?;
    let conversion = conversion.as_ref();
    let mut steps = vec![Step::new("Recompressing", input.length_bytes())];
    steps.extend(job.base.map(|base| Step::new("Verifying", Some(base.length_bytes()))));
    steps.push(Step::new("Syncing", Some(0)));
    progress.steps(&steps);
    progress.detail(&format!(
        "plan: {} to read; workers: {}, frames of {}, page cache: {}",
        input.length_bytes().map_or("an unknown size".to_string(), quantity::bytes),
        options.threads,
        quantity::bytes(options.frame_size_bytes),
        options.io_policy.io_hint.as_str()
    ));
    progress.stage("Recompressing", input.length_bytes());

    // What is made anew is verified as a whole.
    let state = (checks_state && conversion.is_none())
        .then(|| job.new_state_check(&input, sink.file_path(), false))
        .transpose()?;
    let mut writer = ArchiveWriter::new(sink.writer(options.io_policy.io_hint), &sink_path, &options.codec);
    let (state_ref, input_ref) = (state.as_ref(), &mut input);
    let read = |frames: &mut FramesOut<'_>, reads: &dyn Progress| {
        let reading = Reading { job, threads, state: state_ref, conversion, reads };
        reading.run(input_ref, frames).map_err(|error| error.within_damaged(input_ref.place()))
    };
    let decoded =
        reframe(&mut writer, &options.codec, options.frame_size_bytes, threads, &is_unwanted, progress, read)?;
    let converted = conversion.map(Conversion::entries);
    let entries = converted.as_ref().unwrap_or(&decoded.entries);
    let storages = entries.iter().filter(|entry| matches!(entry.kind, EntryKind::Storage { .. })).count();
    let tar_bytes = entries.iter().map(Entry::tar_bytes).sum::<u64>() + END_OF_ARCHIVE_BYTES;
    let note = match conversion {
        Some(Conversion { bank: Some(_), .. }) => Some(CONVERTED),
        _ => decoded.is_of_firedancer.then_some(RECOMPRESSED),
    };
    let Written { length_bytes: output_bytes, frames, root } =
        writer.finish(entries.iter().copied(), note, options.frame_size_bytes)?;
    warn_left_as_is(frames.left_as_is, progress);
    let name = ArchiveName { base_slot, slot: decoded.bank.slot, hash: decoded.bank.snapshot_hash(), extension };
    let outcome = match (state, conversion) {
        (Some(state), _) => job.finish_state(state, &decoded, &input, sink.file())?.0,
        (None, Some(conversion)) => {
            verify_converted(&sink, &name, options, progress)?;
            conversion.outcome.clone()
        }
        (None, None) => StateOutcome::not_asked(),
    };
    judge_expected(decoded.bank.slot, decoded.bank.snapshot_hash(), &options.check)
        .map_err(|error| error.within_damaged(input.place()))?;
    let assurance = Assurance::new(outcome, &decoded.bank, input.tail().is_some());
    if decoded.left_out > 0 {
        progress.warn(&format!("storages without a record were left out, which no client loads: {}", decoded.left_out));
    }
    match conversion {
        Some(Conversion { bank: Some(_), .. }) => {}
        None if decoded.bank.is_for_firedancer_only() && (options.for_agave || !decoded.is_of_firedancer) => {
            let why = "only Firedancer loads it, but it is not laid out as Firedancer writes it";
            return Err(Error::damaged(why).within(input.place()));
        }
        None if decoded.bank.lacks_stakes() => progress.warn(
            "this archive is Firedancer's, and only Firedancer of August 2026 loads it; from a file into a file, with its state \
             checked, it becomes one that newer versions load; it can be converted for Agave",
        ),
        _ if decoded.bank.is_for_firedancer_only() => {
            progress.warn("this archive is Firedancer's, and only Firedancer loads it; it can be converted for Agave");
        }
        _ => {}
    }

    progress.stage("Syncing", None);
    progress.check()?;
    let path = sink.publish(&name.to_string())?;
    Ok(RecompressReport {
        path,
        name,
        storages: storages as u64,
        input_bytes: decoded.input_bytes,
        tar_bytes,
        output_bytes,
        frames,
        root,
        assurance,
        elapsed: stopwatch.elapsed(),
        codec: options.codec.clone(),
    })
}

/// What all steps of recompressing need.
#[derive(Clone, Copy)]
struct Job<'a> {
    options: &'a RecompressOptions,
    /// The full archive below an incremental one, if it is given.
    base: Option<&'a Base>,
    base_slot: Option<u64>,
    progress: &'a dyn Progress,
}

/// Reads an archive that was converted, before it gets its name: every version of Agave that runs today must load it, or the
/// newest Firedancer.
fn verify_converted(
    sink: &OpenSink<'_>,
    name: &ArchiveName,
    options: &RecompressOptions,
    progress: &dyn Progress,
) -> Result<()> {
    let Some(file) = sink.file() else { return Err(pipe_to_pipe()) };
    let check = CheckOptions::default()
        .memory_bytes(options.check.memory_bytes)
        .temporary_dir(options.check.spill_dir(file.path().parent()));
    let base = options.base.as_deref().map(NamedArchive::from_path);
    let archive = NamedArchive::from_source(written(file)?, Some(name.clone()));
    let clients = if options.for_agave { &Client::AGAVE[..] } else { &[Client::Firedancer] };
    read_back_archive_on(&check, &archive, base.as_ref(), clients, options.threads, progress).map(drop)
}

/// The slot that the source builds on, as its name or the options tell.
fn base_slot_of(source: &Source, options: &RecompressOptions) -> Result<Option<u64>> {
    let name = match source {
        Source::File(path) => ArchiveName::from_path(path),
        Source::Stream(_) => None,
    };
    match (name, &options.base) {
        (Some(ArchiveName { base_slot: None, .. }), Some(_)) => {
            Err(Error::usage("the base is the full archive below an incremental one, but this is a full archive"))
        }
        (Some(name), _) => Ok(name.base_slot),
        (None, None) => Ok(options.base_slot),
        (None, Some(base)) => match options.base_slot.or(ArchiveName::from_path(base).map(|name| name.slot)) {
            None => Err(Error::usage(format!("{} does not say in its name which slot it is of", base.shown()))
                .with_hint(Hint::GiveBaseSlot)),
            base_slot => Ok(base_slot),
        },
    }
}
