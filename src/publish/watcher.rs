//! Scans the validator's directories every second, pins and unpins archives, removes files that are
//! not needed, and reports events.

use std::mem;
use std::thread::ScopedJoinHandle;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use slotpress_base::clock::{now, since_1970};
use slotpress_base::{
    CancelToken, Error, ErrorKind, EscapePath, Forward, Progress, ProgressEvent, Result, catch_panic, free_bytes,
    panic_error, panic_point, spawn,
};
use slotpress_net::Client;
use slotpress_read::{Catalog, FileFault, ListedArchive, judge_file, read_newest_bank_times, scan_again, scan_names};

use super::PublishOptions;
use super::act::index::PreparedArchive;
use super::act::pins::{PinDir, PinResult, check_dirs, scan_open_dir};
use super::act::{PublishRun, WORK_CHECK_INTERVAL, loops, target};
use super::decide::{Actions, DamagedArchive, Planner, ScanResult};
use super::journal::{FileIdentity, PublishJournal};
use super::report::Reporter;
use super::report::event::PublishEvent;

/// Time without a change after which a file counts as complete. Until then, its writer may not have finished.
pub const QUIET_TIME: Duration = Duration::from_secs(60);

const SCAN_INTERVAL: Duration = Duration::from_secs(1);

/// Maximum number of scans without a pause. Each one sees what the actions after the previous scan have
/// changed. Events are reported only after the last one, so the number is low.
const SCANS_MAX: usize = 8;

/// Publishes archives until `progress` is interrupted, or with [`PublishOptions::once`] until every
/// archive that is present was published or has failed. Calls `on_event` on the calling thread.
///
/// # Errors
/// The options contradict each other, a directory or the address for metrics cannot be used, the journal
/// is damaged, or another process works in the directory of pins. With `once`, also an interruption, and
/// the most serious failure, of kind [`Damaged`](ErrorKind::Damaged) if an archive was damaged.
pub fn publish(
    options: &PublishOptions,
    progress: &dyn Progress,
    mut on_event: impl FnMut(&PublishEvent),
) -> Result<()> {
    check_dirs(options)?;
    options.check_rebasing()?;
    let pins = PinDir::open(options)?;
    let client = Client::new(&options.client)?;
    // Do not forward progress: several bars would be drawn at once.
    let messages = Forward::new(progress, |event| {
        matches!(event, ProgressEvent::Detail(_) | ProgressEvent::Warning(_)).then_some(event)
    });
    let run_end = CancelToken::default();
    let journal = PublishJournal::open(pins.top.clone())?;
    let planner = Planner::new(options, journal.refused_files(), Instant::now());
    let run = &PublishRun {
        options,
        pins,
        journal,
        client,
        progress: &run_end.with(&messages),
        run_end: run_end.clone(),
        planner: Mutex::new(planner),
        planner_changed: Condvar::new(),
    };
    std::thread::scope(|scope| {
        let result = catch_panic(|| {
            let reporter = Reporter::new(options, progress, &mut on_event)?;
            let mut watcher = Watcher { run, ready: Catalog::default(), reporter };
            let mut threads =
                vec![spawn(scope, || loops::prepare_archives(run))?, spawn(scope, || loops::rebase_archives(run))?];
            for number in 0..options.targets.len() {
                threads.push(spawn(scope, move || target::publish_to_target(run, number))?);
            }
            let outcome = watcher.watch(&threads);
            run.run_end.cancel();
            // The threads end soon, because `run_end` interrupts them.
            let joined =
                threads.into_iter().try_for_each(|thread| thread.join().map_err(|payload| panic_error(&*payload)));
            watcher.report_events();
            watcher.reporter.end();
            joined.and(outcome).and_then(|()| watcher.take_result())
        });
        // Cancel after a panic too: otherwise, the scope would wait forever for threads that wait for work.
        run.run_end.cancel();
        result
    })
}

struct Watcher<'r, 'e> {
    run: &'r PublishRun<'e>,
    /// Ready archives that the last scan found. The next scan does not read their files again.
    ready: Catalog,
    reporter: Reporter<'r>,
}

impl Watcher<'_, '_> {
    /// Scans, acts and reports until the user interrupts the run, or with `--once` until everything is
    /// done. Also ends when a thread has panicked.
    fn watch(&mut self, threads: &[ScopedJoinHandle<'_, ()>]) -> Result<()> {
        let planner = &self.run.planner;
        let progress = self.run.progress;
        self.reporter.begin();
        while !progress.is_interrupted() && !threads.iter().any(ScopedJoinHandle::is_finished) {
            if self.run.update(|planner| planner.is_scan_due()) {
                let result = self.scan_and_act();
                if self.run.update(|planner| planner.record_scan_end(result))? {
                    return Ok(());
                }
            }
            self.reporter.update_status(&planner.lock(), free_bytes(&*self.run.pins.top));
            let start = Instant::now();
            while !self.report_events() && !progress.is_interrupted() && start.elapsed() < SCAN_INTERVAL {
                self.reporter.poll_hooks();
                let mut planner = planner.lock();
                if !planner.has_results && planner.events.is_empty() {
                    self.run.planner_changed.wait_for(&mut planner, WORK_CHECK_INTERVAL);
                }
            }
        }
        self.reporter.report(PublishEvent::Stopping);
        if self.run.options.once { Err(Error::interrupted()) } else { Ok(()) }
    }

    /// Reports the planner's events. Returns true if a task has ended.
    fn report_events(&mut self) -> bool {
        let mut planner = self.run.planner.lock();
        let events = mem::take(&mut planner.events);
        let has_results = mem::take(&mut planner.has_results);
        drop(planner);
        for event in events {
            self.reporter.report(event);
        }
        if has_results {
            panic_point("planning");
        }
        has_results
    }

    /// Scans and acts until no action calls for another scan, at most [`SCANS_MAX`] times.
    /// Returns true if a run with `--once` is over.
    fn scan_and_act(&mut self) -> Result<bool> {
        for _ in 0..SCANS_MAX {
            let ended_count = self.run.update(|planner| {
                planner.has_results = false;
                planner.ended_tasks.len()
            });
            let scan = self.scan()?;
            let actions = self.run.update(|planner| {
                planner.record_scan(scan, ended_count);
                planner.next_actions()
            });
            let is_over = actions.is_over;
            if !self.act(actions)? {
                return Ok(is_over);
            }
        }
        Ok(false)
    }

    fn scan(&mut self) -> Result<ScanResult> {
        let run = self.run;
        let validator_catalog = scan_names(&run.options.validator_dirs())?;
        let pinned = scan_open_dir(&run.pins.pinned, scan_names)?;
        let mut ready = scan_open_dir(&run.pins.ready, |dirs| scan_again(dirs, &self.ready))?;
        read_newest_bank_times(&mut ready, &self.ready);
        for unusable in ready.unusable() {
            run.progress.warn(&unusable.to_string());
        }
        let incremental_start = run.journal.change(|entries| {
            entries.pins.retain(|name, _| pinned.find(name).is_some());
            entries.uploads.retain(|url, _| url.rsplit('/').next().is_some_and(|name| ready.find(name).is_some()));
            entries.incremental_unix_seconds
        })?;
        self.ready = ready;
        let to_prepared = |archive: &ListedArchive| PreparedArchive {
            archive: archive.clone(),
            slot_time: self.ready.slot_time,
            epoch_schedule: self.ready.epoch_schedule,
        };
        Ok(ScanResult {
            // Ignore a start in the future, which was recorded before the clock jumped back.
            since_incremental: incremental_start
                .and_then(|start| since_1970(now()).as_secs().checked_sub(start))
                .map(Duration::from_secs),
            ready: self.ready.archives().iter().map(to_prepared).collect(),
            validator_archives: validator_catalog.archives().to_vec(),
            pinned: pinned.archives().to_vec(),
        })
    }

    /// Pins, unpins and removes archives. Returns true if another scan is needed.
    fn act(&self, actions: Actions) -> Result<bool> {
        let pins = &self.run.pins;
        let mut is_scan_needed =
            !(actions.quarantine.is_empty() && actions.unpin.is_empty() && actions.delete.is_empty());
        for damaged in actions.quarantine {
            self.quarantine(damaged)?;
        }
        for name in actions.unpin {
            pins.pinned.remove_if_exists(name.to_string())?;
        }
        for archive in actions.pin {
            let name = archive.name.clone();
            let identity = FileIdentity::from(&archive);
            self.run.journal.change(|entries| entries.pins.insert(name.to_string(), identity))?;
            let result = pin_if_whole(&archive, self.run)?;
            is_scan_needed |= !matches!(result, PinResult::Gone | PinResult::NotYet);
            self.run.update(|planner| planner.record_pin(archive, result));
        }
        for name in actions.delete {
            pins.ready.remove_if_exists(name.to_string())?;
        }
        Ok(is_scan_needed)
    }

    fn quarantine(&self, damaged: DamagedArchive) -> Result<()> {
        // A failure here must not keep the damaged archive from being reported.
        let kept = self.run.pins.quarantine(&damaged.name).unwrap_or_else(|error| {
            self.run.progress.warn(&error.to_string());
            None
        });
        self.run.report(PublishEvent::Refused { name: damaged.name.clone(), error: damaged.error, kept });
        self.run.journal.change(|entries| entries.refuse(&damaged.name, damaged.file))
    }

    /// Returns the result of the run. With `--once`, fails if an operation failed, if a target lacks an
    /// archive that this run left out, or if an archive that this or an earlier run refused as damaged is
    /// newer than all archives of a target.
    fn take_result(&mut self) -> Result<()> {
        if !self.run.options.once {
            return Ok(());
        }
        let planner = self.run.planner.lock();
        let refused = planner.check_refused(self.run.journal.refused_files());
        match self.reporter.worst_failure.take() {
            None => refused.and_then(|()| planner.check_left_out()),
            Some(error) if error.kind() == ErrorKind::Damaged => Err(error),
            Some(error) => refused.and(Err(error)),
        }
    }
}

/// Pins an archive, unless its first or last bytes show that it is not whole.
fn pin_if_whole(archive: &ListedArchive, run: &PublishRun<'_>) -> Result<PinResult> {
    match judge_file(archive).err() {
        None | Some(FileFault::Unreadable) => run.pins.pin(archive, run.options.writer),
        Some(_) if archive.age(now()) < QUIET_TIME => Ok(PinResult::NotYet),
        Some(fault) => {
            let message = format!("{}: {fault}", archive.path().escaped());
            Ok(PinResult::Damaged(Error::damaged(message)))
        }
    }
}
