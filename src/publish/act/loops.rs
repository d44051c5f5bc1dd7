//! The loops of publishing beside the keeper's: one prepares archives, one rebases them, and one for
//! each target publishes them. Each takes its work from the board. What follows is told while the
//! board is locked: no other loop sees it there, and tells of its own work, before.

use std::path::Path;
use std::time::Instant;

use slotpress_base::clock::{now, since_1970};
use slotpress_base::threads::guarded;
use slotpress_base::{Progress, Result};
use slotpress_format::ArchiveName;
use slotpress_read::{CheckMode, NamedArchive, VerifyOptions, verify_archives};

use super::look::WRITTEN_WITHIN;
use super::target::TargetWorker;
use super::{Message, Run, rebasing};
use crate::archive::encoding::EncodingOptions;
use crate::archive::sink::Sink;
use crate::recompress::{RecompressOptions, RecompressSource, recompress};

/// Checks and recompresses pinned archives, one at a time.
pub fn maker(run: &Run<'_>) {
    let journal = &run.pins.journal;
    while let Some(source) = run.wait(|board| board.begin_making()) {
        let start = Instant::now();
        let result = guarded(|| {
            if source.base_slot.is_some() {
                journal.change(|entries| entries.incremental_unix_seconds = Some(since_1970(now()).as_secs()))?;
            }
            prepare(run, &source)
        });
        let elapsed = start.elapsed();
        run.look(|board, looked| {
            let was = journal.read(|entries| entries.pins.get(&source.to_string()).copied());
            let is_quiet = was.is_none_or(|was| !was.is_modified_within(elapsed + WRITTEN_WITHIN, now()));
            board.set_time(Instant::now());
            // If this look fails, the next one finds the new archive.
            for outcome in board.made(&source, looked.and(result), was, is_quiet, elapsed) {
                if let Err(error) = run.carry_out(board, outcome) {
                    run.tell(board.failed(&source, error));
                }
            }
        });
        drop(run.messages.send(Message::Done(None)));
    }
}

/// Makes rebased archives, one at a time.
pub fn rebaser(run: &Run<'_>) {
    while let Some((name, from, stop)) = run.wait(|board| board.begin_rebase()) {
        run.progress.detail(&format!("rebasing: {name}"));
        let (start, target) = (Instant::now(), run.options.targets.get(from));
        let result = guarded(|| target.map_or(Ok(()), |target| rebasing::make(&name, run, target, &stop)));
        run.look(|board, _| {
            let told = board.rebased(&name, result, start.elapsed());
            told.into_iter().for_each(|event| run.tell(event));
        });
        drop(run.messages.send(Message::Done(None)));
    }
}

/// Publishes on a target.
pub fn serve(run: &Run<'_>, at: usize) {
    let Some(target) = run.options.targets.get(at) else { return };
    let worker = TargetWorker::new(run, target, at);
    while let Some(()) = run.wait(|board| board.begin_target(at).then_some(())) {
        let result = guarded(|| worker.serve());
        let is_done = result.is_ok();
        let mut board = run.board.lock();
        board.answered(at, result).into_iter().for_each(|event| run.tell(event));
        drop(board);
        drop(run.messages.send(Message::Done(is_done.then_some(at))));
    }
}

/// Checks and recompresses a pinned archive; returns the name under which it is ready. Fails
/// with [`Damaged`](slotpress_base::ErrorKind::Damaged) if the archive is not sound.
fn prepare(run: &Run<'_>, name: &ArchiveName) -> Result<ArchiveName> {
    let (pins, options, progress) = (&run.pins, run.options, run.progress);
    let mut how = options.recompress.clone();
    if name.base_slot.is_some() {
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
