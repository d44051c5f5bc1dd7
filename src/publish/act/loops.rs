//! The loops that prepare and rebase archives. Each takes its work from the planner, and reports each
//! result to it.

use std::path::Path;
use std::time::Instant;

use slotpress_base::clock::{now, since_1970};
use slotpress_base::{Error, NICENESS_MAX, Progress, Result, catch_panic, lower_priority, panic_point};
use slotpress_format::ArchiveName;
use slotpress_read::{ArchiveInput, CheckMode, CheckOptions, Snapshot, VerifyOptions, verify};
use slotpress_stores::Store;

use super::PublishRun;
use super::index::IndexedStore;
use crate::archive::encoding::EncodingOptions;
use crate::publish::decide::{EndedTask, PinnedSource, Planner, RebaseTask};
use crate::publish::watcher::QUIET_TIME;
use crate::rebase::{RebaseOptions, rebase};
use crate::recompress::{RecompressOptions, recompress};

pub fn prepare_archives(run: &PublishRun<'_>) {
    while let Some(name) = run.next_work(Planner::begin_preparing) {
        let start = Instant::now();
        let result = catch_panic(|| prepare(run, &name));
        let elapsed = start.elapsed();
        let pin = run.journal.read(|entries| entries.pins.get(&name.to_string()).copied());
        let file = pin.unwrap_or_default();
        let is_quiet = !file.is_modified_within(elapsed + QUIET_TIME, now());
        let source = Some(PinnedSource { file, is_quiet });
        run.update(|planner| planner.queue_ended_task(EndedTask { name, result, elapsed, source }));
    }
}

/// Makes rebased archives, one at a time. A node that has one of a target's older full archives then needs
/// only a rebased archive to reach the newest full state. Nobody waits for these archives, so this thread
/// has the lowest priority.
pub fn rebase_archives(run: &PublishRun<'_>) {
    while let Some(task) = run.next_work(Planner::begin_rebase) {
        run.progress.detail(&format!("rebasing: {}", task.name));
        let start = Instant::now();
        let result = catch_panic(|| run_rebase(run, &task));
        if task.stop.is_interrupted() {
            run.progress.detail(&format!("the rebase was stopped, because it is no longer needed: {}", task.name));
        }
        let elapsed = start.elapsed();
        run.update(|planner| planner.queue_ended_task(EndedTask { name: task.name, result, elapsed, source: None }));
    }
}

/// Checks and recompresses a pinned archive. Fails with
/// [`Damaged`](slotpress_base::ErrorKind::Damaged) if the archive is not valid.
fn prepare(run: &PublishRun<'_>, name: &ArchiveName) -> Result<()> {
    let pins = &run.pins;
    let progress = run.progress;
    let mut check = run.options.check.clone();
    if name.base_slot.is_some() {
        let start = Some(since_1970(now()).as_secs());
        run.journal.change(|entries| entries.incremental_unix_seconds = start)?;
        check.mode = CheckMode::Frames;
    }
    let path = pins.pinned.path_of(name.to_string());
    if run.options.as_is {
        check_as_is(&path, check, &run.options.encoding, progress)?;
        return pins.link_to_ready(name);
    }
    let options = RecompressOptions::new(path).encoding(run.options.encoding.clone()).check(check);
    recompress(&options, &mut pins.ready_sink(), progress).map(drop)
}

/// Verifies an archive that is published as it is. `verify` is stricter than `recompress`, which repacks
/// the entries, and so tolerates packing errors.
fn check_as_is(path: &Path, check: CheckOptions, encoding: &EncodingOptions, progress: &dyn Progress) -> Result<()> {
    let EncodingOptions { threads, io_policy, .. } = encoding;
    let options = VerifyOptions::default().check(check.of_all_frames()).threads(*threads).io_policy(io_policy.clone());
    // Superseded records are read a second time, in pieces that share pages, so their pages are dropped
    // from the cache only at the end.
    let _watch = io_policy.io_hint.watch([path]);
    verify(&Snapshot::archive(path), &options, progress)?.require_ok()
}

fn run_rebase(run: &PublishRun<'_>, RebaseTask { name, target_number, stop }: &RebaseTask) -> Result<()> {
    panic_point("rebasing");
    if let Err(error) = lower_priority(NICENESS_MAX) {
        run.progress.warn(&format!("cannot lower the priority for rebasing: {error}"));
    }
    let progress = &stop.with(run.progress);
    let options = run.options;
    let target = &options.targets[*target_number];
    let missing_error = || Error::failed(format!("{target} no longer has both full archives"));
    let store = Store::open(target, &options.stores, &run.client)?;
    let index = IndexedStore::open(&store)?.ok_or_else(missing_error)?.read(progress)?;
    let open_full = |is_wanted: &dyn Fn(&ArchiveName) -> bool| {
        let mut fulls = index.catalog.archives().iter().filter(|archive| archive.is_full());
        let full = fulls.find(|full| is_wanted(&full.name)).ok_or_else(missing_error)?;
        let source = store.open_source(&full.name.to_string(), stop.clone())?;
        Ok::<_, Error>(ArchiveInput::from_source(source, Some(full.name.clone())))
    };
    let new = open_full(&|full| (full.slot, full.hash) == (name.slot, name.hash))?;
    let onto = open_full(&|full| Some(full.slot) == name.base_slot)?;
    let rebase_options = RebaseOptions::new(Snapshot::Archive(new), onto)
        .encoding(options.encoding.clone())
        .check(options.check.clone());
    rebase(&rebase_options, &mut run.pins.ready_sink(), progress).map(drop)
}
