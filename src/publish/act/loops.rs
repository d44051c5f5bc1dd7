//! The loops of publishing beside the keeper's: one prepares archives, one rebases them, and one for
//! each target publishes them. Each takes its work from the board, and says there how it ended.

use std::path::Path;
use std::time::Instant;

use slotpress_base::clock::{now, since_1970};
use slotpress_base::threads::guarded;
use slotpress_base::{Progress, Result};
use slotpress_format::ArchiveName;
use slotpress_read::{CheckMode, NamedArchive, VerifyOptions, verify_archives};
use slotpress_stores::Target;

use super::look::WRITTEN_WITHIN;
use super::target::TargetWorker;
use super::{Run, rebasing};
use crate::archive::encoding::EncodingOptions;
use crate::archive::sink::Sink;
use crate::publish::decide::{Board, Ended};
use crate::recompress::{RecompressOptions, RecompressSource, recompress};

/// Checks and recompresses pinned archives, one at a time.
pub fn maker(run: &Run<'_>) {
    while let Some(source) = run.wait(Board::begin_making) {
        let start = Instant::now();
        let result = guarded(|| prepare(run, &source));
        let elapsed = start.elapsed();
        let pin = run.pins.journal.read(|entries| entries.pins.get(&source.to_string()).copied());
        let was = pin.unwrap_or_default();
        let is_quiet = !was.is_modified_within(elapsed + WRITTEN_WITHIN, now());
        run.update(|board| board.end(Ended::Made { source, result, was, is_quiet, elapsed }));
    }
}

/// Makes rebased archives, one at a time.
pub fn rebaser(run: &Run<'_>) {
    while let Some((name, from, stop)) = run.wait(Board::begin_rebase) {
        run.progress.detail(&format!("rebasing: {name}"));
        let (start, target) = (Instant::now(), run.options.targets.get(from));
        let result = guarded(|| target.map_or(Ok(()), |target| rebasing::make(&name, run, target, &stop)));
        if stop.is_interrupted() {
            run.progress.detail("a rebased archive is not made: a newer full archive is there");
        }
        let elapsed = start.elapsed();
        run.update(|board| board.end(Ended::Rebased { name, result, elapsed }));
    }
}

/// Publishes on a target.
pub fn serve(run: &Run<'_>, target: &Target, at: usize) {
    let worker = TargetWorker::new(run, target, at);
    while let Some(()) = run.wait(|board| board.begin_target(at).then_some(())) {
        let result = guarded(|| worker.serve());
        run.update(|board| board.answered(at, result));
    }
}

/// Checks and recompresses a pinned archive; returns the name under which it is ready. Fails
/// with [`Damaged`](slotpress_base::ErrorKind::Damaged) if the archive is not sound.
fn prepare(run: &Run<'_>, name: &ArchiveName) -> Result<ArchiveName> {
    let (pins, options, progress) = (&run.pins, run.options, run.progress);
    let mut how = options.recompress.clone();
    if name.base_slot.is_some() {
        let begun = Some(since_1970(now()).as_secs());
        pins.journal.change(|entries| entries.incremental_unix_seconds = begun)?;
        how.check.mode = CheckMode::Frames;
    }
    let path = pins.pinned_path(name);
    if options.is_as_is {
        check_as_is(&path, &how, progress)?;
        pins.pinned_is_ready(name)?;
        return Ok(name.clone());
    }
    let new = pins.new_ready()?;
    let name = recompress(RecompressSource::File(path), Sink::unnamed(&new), &how, progress)?.name;
    new.publish(&name.to_string(), true)?;
    Ok(name)
}

/// Verifies an archive that is published without recompressing. This is stricter than the checks of
/// `recompress`, which tolerates packing errors because it packs the entries anew.
fn check_as_is(path: &Path, how: &RecompressOptions, progress: &dyn Progress) -> Result<()> {
    let EncodingOptions { threads, io_policy, .. } = &how.encoding;
    let options = VerifyOptions::default().check(how.check.clone()).threads(*threads).io_policy(io_policy.clone());
    // Superseded records are read a second time, in pieces that share pages, so their pages are
    // dropped only at the end.
    let _watch = io_policy.io_hint.watch([path]);
    verify_archives(&NamedArchive::from_path(path), None, &options, progress)?.require_ok()
}
