//! Measuring whole archives on disk: `archive` and `restore` themselves, at every level, in a scratch directory.
//!
//! The tar stream of the first archive of each level is decoded and its hash compared with that of the ledger's own
//! content; where records are clustered, the state is checked. Computing the hash reads the whole ledger once, which is also the warm-up.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

use slotpress_base::{Elapsed, Error, IoContext, Progress, Result, memory};
use slotpress_format::{ArchiveName, FrameCutter, FrameSpan, LedgerLock, LedgerPaths, find_bank_snapshot};
use slotpress_read::archive::Archive;
use slotpress_read::{
    CheckMode, CheckOptions, IndexPolicy, NamedArchive, Plan, VerifyOptions, WorkDir, remove_stale_dirs,
    verify_archives,
};

use crate::archive::encode::{Codec, encode_frames};
use crate::archive::layout::{RecordLayout, content_buffer};
use crate::archive::sink::Sink;
use crate::archive::{ArchiveOptions, ArchiveReport, archive};
use crate::levels::codec::FrameCodec;
use crate::levels::flags::codec_of;
use crate::levels::report::Subject;
use crate::levels::runs::{Runs, row};
use crate::levels::{LevelRow, RepeatOptions};
use crate::restore::{RestoreLayout, RestoreOptions, RestoreTarget, restore};

/// Prefix of scratch directories, which are locked while they are used: the next run removes those of killed ones.
const SCRATCH_PREFIX: &str = "slotpress-levels-";

/// The input, and the scratch directory.
#[derive(Clone, Debug)]
pub struct EndToEndOptions {
    /// A ledger or an unpacked archive, with its other directories; or, as `ledger`, an archive, which is unpacked
    /// first.
    pub paths: LedgerPaths,
    /// The bank snapshot of a ledger; the newest complete one otherwise.
    pub slot: Option<u64>,
    /// Make incremental archives on this slot.
    pub base_slot: Option<u64>,
    /// Bytes of tar in a frame.
    pub frame_size_bytes: u64,
    /// A directory with room for an archive and a ledger; everything put there is removed again.
    pub scratch_dir: PathBuf,
    /// The number of runs.
    pub repeat: RepeatOptions,
}

/// The ledger that is archived, and where archives and restored ledgers go.
pub struct EndToEnd<'a> {
    options: &'a EndToEndOptions,
    paths: LedgerPaths,
    base_slot: Option<u64>,
    scratch: WorkDir,
    input_bytes: u64,
    hash: blake3::Hash,
    kind: &'static str,
}

impl<'a> EndToEnd<'a> {
    /// Unpacks an archive, where the input is one; then reads all that will be archived, and hashes it.
    pub fn prepare(options: &'a EndToEndOptions, progress: &dyn Progress) -> Result<Self> {
        let input = &options.paths.ledger;
        let is_dir = fs::metadata(input).or_path("read", input)?.is_dir();
        remove_stale_dirs(&options.scratch_dir, SCRATCH_PREFIX)?;
        let scratch = WorkDir::create(&options.scratch_dir, SCRATCH_PREFIX)?;
        let (paths, base_slot, kind) = match is_dir {
            true => (options.paths.clone(), options.base_slot, "ledger"),
            false => {
                if options.slot.is_some() || options.base_slot.is_some() {
                    return Err(Error::usage("a slot and a base slot are chosen of ledgers; the input is a file"));
                }
                let base_slot = ArchiveName::from_path(input).and_then(|name| name.base_slot);
                (unpack(input, scratch.path(), options.repeat.threads, progress)?, base_slot, "archive")
            }
        };
        let (input_bytes, hash) = hash_content(&paths, options, base_slot, progress)?;
        Ok(Self { options, paths, base_slot, scratch, input_bytes, hash, kind })
    }

    /// The description of the input, for headings.
    pub fn subject(&self) -> Subject {
        let name = self.options.paths.ledger.file_name().unwrap_or_default();
        Subject {
            name: name.to_string_lossy().into_owned(),
            kind: self.kind,
            total_bytes: self.input_bytes,
            measured_bytes: self.input_bytes,
            frame_size_bytes: self.options.frame_size_bytes,
            threads: self.options.repeat.threads,
            is_end_to_end: true,
            provenance: Vec::new(),
        }
    }

    /// Measures each level of zstd, or preset, in turn; `on_row` gets each row when it is ready.
    pub fn measure(
        &self,
        codecs: &[FrameCodec],
        progress: &dyn Progress,
        on_row: &mut dyn FnMut(LevelRow) -> Result<()>,
    ) -> Result<()> {
        let progress = &Muted(progress);
        for codec in codecs {
            on_row(self.measure_level(codec, progress)?)?;
        }
        Ok(())
    }

    fn measure_level(&self, codec: &FrameCodec, progress: &dyn Progress) -> Result<LevelRow> {
        let RepeatOptions { repeat, min_time, .. } = self.options.repeat;
        let made_with = codec_of(codec.name, codec.level)
            .ok_or_else(|| Error::usage(format!("no archive is made with {}", codec.label())))?;
        let (mut archiving, mut restoring) = (Runs::new("archive"), Runs::new("restore"));
        let mut output_bytes = 0;
        memory::reset_peak();
        let mut peak_memory_bytes = 0;
        let start = Instant::now();
        // A round is a run of each.
        while archiving.taken.len() < repeat.max(1) || start.elapsed() < min_time * 2 {
            let report = self.archive(made_with.clone(), progress)?;
            archiving.taken.push(report.elapsed);
            output_bytes = report.output_bytes;
            restoring.taken.push(self.restore(&report.path_in(self.scratch.path()), progress)?);
            // Read before the check of the first round, which is not measured.
            peak_memory_bytes = peak_memory_bytes.max(memory::peak_bytes().unwrap_or(0));
            if archiving.taken.len() == 1 {
                let is_same = match made_with.layout {
                    RecordLayout::Verbatim => self.has_the_same_content(&report, progress)?,
                    RecordLayout::Clustered => self.has_the_same_state(&report, progress)?,
                };
                if !is_same {
                    return Err(not_the_same(&codec.label()));
                }
                memory::reset_peak();
            }
        }
        let row = row(codec, self.input_bytes, output_bytes, &archiving, &restoring);
        Ok(LevelRow { peak_memory_bytes, ..row })
    }

    fn archive(&self, codec: Codec, progress: &dyn Progress) -> Result<ArchiveReport> {
        // The base lies elsewhere: this archive is measured, not kept.
        let options = ArchiveOptions::new("")
            .paths(self.paths.clone())
            .slot(self.options.slot)
            .base_slot(self.base_slot)
            .force_base(true)
            .codec(codec)
            .frame_size_bytes(self.options.frame_size_bytes)
            .threads(self.options.repeat.threads);
        archive(&options, Sink::dir(self.scratch.path()).replace(true), progress)
    }

    fn restore(&self, archive: &Path, progress: &dyn Progress) -> Result<Elapsed> {
        let ledger = self.scratch.path().join("restored");
        // An incremental archive alone makes no ledger that boots.
        let layout = if self.base_slot.is_some() { RestoreLayout::Archive } else { RestoreLayout::Boot };
        let options = restore_options(archive, &ledger, layout, self.options.repeat.threads);
        let report = restore(&options, progress)?;
        fs::remove_dir_all(&ledger).or_path("remove", &ledger)?;
        Ok(report.elapsed)
    }

    /// Compares the hash of the archive's tar stream.
    fn has_the_same_content(&self, report: &ArchiveReport, progress: &dyn Progress) -> Result<bool> {
        let path = report.path_in(self.scratch.path());
        let file = Archive::open(&path, IndexPolicy::Ignore, &Default::default())?;
        progress.stage("Checking", Some(file.length_bytes()));
        let mut hasher = blake3::Hasher::new();
        file.decode_in_order(self.options.repeat.threads, progress, &mut |content| {
            hasher.update(content);
            Ok(())
        })?;
        Ok(hasher.finalize() == self.hash)
    }

    /// Where records lie in another order, the accounts are compared; of an incremental archive, which has only some of
    /// them, what can be.
    fn has_the_same_state(&self, report: &ArchiveReport, progress: &dyn Progress) -> Result<bool> {
        let archive = NamedArchive::from_path(report.path_in(self.scratch.path()));
        let mode = if self.base_slot.is_some() { CheckMode::Frames } else { CheckMode::State };
        let options =
            VerifyOptions::default().threads(self.options.repeat.threads).check(CheckOptions::default().mode(mode));
        Ok(verify_archives(&archive, None, &options, progress)?.ok)
    }
}

fn not_the_same(label: &str) -> Error {
    Error::failed(format!("{label} does not round-trip: the archive holds other bytes")).with_hint(
        "the memory, the disk or the processor may be faulty: test them; an archive made on this machine may be damaged",
    )
}

fn unpack(archive: &Path, scratch: &Path, threads: usize, progress: &dyn Progress) -> Result<LedgerPaths> {
    let ledger = scratch.join("unpacked");
    let paths = LedgerPaths { ledger, ..LedgerPaths::default() };
    restore(&restore_options(archive, &paths.ledger, RestoreLayout::Archive, threads), progress)?;
    Ok(paths)
}

/// Without a state check, which is not part of the measurement; the content is compared by its hash.
fn restore_options(archive: &Path, to: &Path, layout: RestoreLayout, threads: usize) -> RestoreOptions {
    let check = CheckOptions::default().mode(CheckMode::Frames);
    RestoreOptions::new(archive, RestoreTarget::new(to).layout(layout).threads(threads).check(check))
}

/// The length and the hash of the tar stream that archives of this ledger hold.
fn hash_content(
    paths: &LedgerPaths,
    options: &EndToEndOptions,
    base_slot: Option<u64>,
    progress: &dyn Progress,
) -> Result<(u64, blake3::Hash)> {
    let is_ledger = paths.ledger.is_dir() && !paths.is_unpacked_archive();
    let _lock = if is_ledger { Some(LedgerLock::acquire(&paths.ledger)?) } else { None };
    let snapshot = find_bank_snapshot(paths, options.slot, options.repeat.threads)?;
    let plan = Plan::new(snapshot, base_slot, options.repeat.threads, progress)?;
    progress.stage("Reading", Some(plan.tar_bytes()));
    let mut hasher = blake3::Hasher::new();
    encode_frames(
        FrameCutter::new(plan.entry_lengths(), options.frame_size_bytes).map(Ok),
        &|span: FrameSpan, content| {
            let length = span.length_bytes as usize;
            plan.fill(&span, content_buffer(content, length)).map(|()| length)
        },
        &Codec::plain(),
        options.repeat.threads,
        progress,
        &mut |frame| {
            hasher.update(frame.bytes);
            Ok(())
        },
    )?;
    Ok((plan.tar_bytes(), hasher.finalize()))
}

/// Passes on progress without warnings, which were shown during preparation.
struct Muted<'a>(&'a dyn Progress);

impl Progress for Muted<'_> {
    fn event(&self, event: slotpress_base::ProgressEvent<'_>) {
        if !matches!(event, slotpress_base::ProgressEvent::Warning(_)) {
            self.0.event(event);
        }
    }
    fn is_interrupted(&self) -> bool {
        self.0.is_interrupted()
    }
}
