//! Scans the validator's directories every second, pins and unpins archives, removes files that are
//! not needed, and reports events.

use std::mem;
use std::thread::ScopedJoinHandle;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use slotpress_base::clock::{now, since_1970};
use slotpress_base::progress::Forward;
use slotpress_base::threads::{catch_panic, panic_error, spawn};
use slotpress_base::{
    CancelToken, Error, ErrorKind, EscapePath, Progress, ProgressEvent, Result, free_bytes, panic_point,
};
use slotpress_net::Client;
use slotpress_read::catalog::Archive;
use slotpress_read::{Catalog, FileFault, judge_file, read_newest_bank_times, scan_again, scan_names};

use super::PublishOptions;
use super::act::index::PreparedArchive;
use super::act::pins::{PinDir, PinResult, check_dirs, remove, scan_open_dir};
use super::act::{PublishRun, TICK, loops, target};
use super::decide::{Actions, DamagedArchive, Observed, Planner};
use super::remember::{FileIdentity, PublishJournal};
use super::report::Reporter;
use super::report::event::PublishEvent;

/// A file modified within this time may be incomplete because it is being written.
pub const WRITTEN_WITHIN: Duration = Duration::from_secs(60);

const SCAN_INTERVAL: Duration = Duration::from_secs(1);

/// Maximum number of scans in a row, each after a change that the next one finds. After them, events
/// are reported.
const SCANS_MAX: usize = 8;

/// Publishes archives until the user interrupts it, or with [`PublishOptions::once`] until
/// everything present is published. Blocks meanwhile. Calls `on_event` on the calling thread.
///
/// # Errors
/// If a directory cannot be used, or another process works in the directory of pins. With
/// `once`, also the most serious failure, of kind
/// [`Damaged`](slotpress_base::error::ErrorKind::Damaged) if an archive was damaged.
pub fn publish(
    options: &PublishOptions,
    on_event: &mut dyn FnMut(&PublishEvent),
    progress: &dyn Progress,
) -> Result<()> {
    check_dirs(options)?;
    options.check_rebasing()?;
    let pins = PinDir::open(options)?;
    let client = Client::new(&options.client)?;
    // No progress bars: several would be drawn at once.
    let messages = Forward::new(progress, |event| {
        matches!(event, ProgressEvent::Detail(_) | ProgressEvent::Warning(_)).then_some(event)
    });
    let over = CancelToken::default();
    let journal = PublishJournal::open(pins.top.clone())?;
    let planner = journal.read(|entries| Planner::new(options, entries.refused(), Instant::now()));
    let run = &PublishRun {
        options,
        pins,
        journal,
        client,
        progress: &over.with(&messages),
        over: over.clone(),
        planner: Mutex::new(planner),
        changed: Condvar::new(),
    };
    std::thread::scope(|scope| {
        let result = catch_panic(|| {
            let reporter = Reporter::new(options, progress, on_event)?;
            let mut watcher = Watcher { run, ready: Catalog::default(), reporter };
            let mut threads =
                vec![spawn(scope, || loops::prepare_archives(run))?, spawn(scope, || loops::rebase_archives(run))?];
            for (at, to) in options.targets.iter().enumerate() {
                threads.push(spawn(scope, move || target::publish_to(run, to, at))?);
            }
            let ended = watcher.watch(&threads);
            run.over.cancel();
            // A run with `--once` has no work left when it is over; interrupted threads end soon.
            let joined =
                threads.into_iter().try_for_each(|thread| thread.join().map_err(|payload| panic_error(&*payload)));
            watcher.report();
            watcher.reporter.end();
            joined.and(ended).and_then(|()| watcher.take_result())
        });
        // Also after a panic: other threads may be waiting for this one.
        run.over.cancel();
        result
    })
}

struct Watcher<'r, 'e> {
    run: &'r PublishRun<'e>,
    /// Ready archives of the last scan, which are not read again.
    ready: Catalog,
    reporter: Reporter<'r>,
}

impl Watcher<'_, '_> {
    /// Works until the user interrupts it, or with `--once` until everything is done. Also ends if a
    /// loop has panicked.
    fn watch(&mut self, loops: &[ScopedJoinHandle<'_, ()>]) -> Result<()> {
        let planner = &self.run.planner;
        let progress = self.run.progress;
        self.reporter.begin();
        while !progress.is_interrupted() && !loops.iter().any(ScopedJoinHandle::is_finished) {
            if self.run.update(|planner| planner.is_scan_due()) {
                let worked = self.scan_and_act();
                if self.run.update(|planner| planner.record_scan_end(worked))? {
                    return Ok(());
                }
            }
            self.reporter.update(&planner.lock(), free_bytes(&*self.run.pins.top));
            let start = Instant::now();
            while !self.report() && !progress.is_interrupted() && start.elapsed() < SCAN_INTERVAL {
                self.reporter.poll_hooks();
                let mut planner = planner.lock();
                if !planner.has_results && planner.events.is_empty() {
                    self.run.changed.wait_for(&mut planner, TICK);
                }
            }
        }
        self.reporter.report(PublishEvent::Stopping);
        if self.run.options.once { Err(Error::interrupted()) } else { Ok(()) }
    }

    /// Reports what happened. Returns true if a task has ended.
    fn report(&mut self) -> bool {
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

    /// Scans and acts until the actions change nothing that a scan finds, at most [`SCANS_MAX`] times.
    /// Returns true if a run with `--once` is over.
    fn scan_and_act(&mut self) -> Result<bool> {
        for _ in 0..SCANS_MAX {
            let ended = self.run.update(|planner| {
                planner.has_results = false;
                planner.ended.len()
            });
            let facts = self.scan()?;
            let actions = self.run.update(|planner| {
                planner.record_scan(facts, ended);
                planner.next_actions()
            });
            let is_over = actions.is_over;
            if !self.act(actions)? {
                return Ok(is_over);
            }
        }
        Ok(false)
    }

    fn scan(&mut self) -> Result<Observed> {
        let run = self.run;
        let seen = scan_names(&run.options.validator_dirs())?;
        let pinned = scan_open_dir(&run.pins.pinned, scan_names)?;
        let mut ready = scan_open_dir(&run.pins.ready, |dirs| scan_again(dirs, &self.ready))?;
        read_newest_bank_times(&mut ready, &self.ready);
        for unusable in ready.unusable() {
            run.progress.warn(&unusable.to_string());
        }
        let begun = run.journal.change(|entries| {
            entries.pins.retain(|name, _| pinned.find(name).is_some());
            entries.uploads.retain(|url, _| url.rsplit('/').next().is_some_and(|name| ready.find(name).is_some()));
            entries.incremental_unix_seconds
        })?;
        self.ready = ready;
        let ready = |archive: &Archive| PreparedArchive {
            archive: archive.clone(),
            slot_time: self.ready.slot_time,
            epoch_schedule: self.ready.epoch_schedule,
        };
        Ok(Observed {
            // A time in the future was written before the clock jumped back, and is ignored.
            since_incremental: begun
                .and_then(|begun| since_1970(now()).as_secs().checked_sub(begun))
                .map(Duration::from_secs),
            ready: self.ready.archives().iter().map(ready).collect(),
            seen: seen.archives().to_vec(),
            pinned: pinned.archives().to_vec(),
        })
    }

    /// Pins, unpins and removes archives. Returns true if the next scan will find a change.
    fn act(&self, actions: Actions) -> Result<bool> {
        let pins = &self.run.pins;
        let mut has_changed = !(actions.refuse.is_empty() && actions.drop.is_empty() && actions.remove.is_empty());
        for damaged in actions.refuse {
            self.refuse(damaged)?;
        }
        for name in actions.drop {
            remove(&pins.pinned, &name.to_string())?;
        }
        for archive in actions.add {
            let name = archive.name.clone();
            let identity = FileIdentity::from(&archive);
            self.run.journal.change(|entries| entries.pins.insert(name.to_string(), identity))?;
            let pinned = pin(&archive, self.run)?;
            has_changed |= !matches!(pinned, PinResult::Gone | PinResult::NotNow);
            self.run.update(|planner| planner.record_pin(archive, pinned));
        }
        for name in actions.remove {
            remove(&pins.ready, &name.to_string())?;
        }
        Ok(has_changed)
    }

    fn refuse(&self, DamagedArchive { name, was, error }: DamagedArchive) -> Result<()> {
        let kept = self.run.pins.quarantine(&name);
        if let Err(error) = &kept {
            self.run.progress.warn(&error.to_string());
        }
        // Report this before anything else can fail.
        self.run.report(PublishEvent::Refused { name: name.clone(), error, kept: kept.ok().flatten() });
        self.run.journal.change(|entries| entries.refuse(&name, was))
    }

    /// Returns the result of the run. With `--once`, fails if an operation failed for good, or a target
    /// lacks an archive that was left out, now or as damaged by an earlier run.
    fn take_result(&mut self) -> Result<()> {
        if !self.run.options.once {
            return Ok(());
        }
        let planner = self.run.planner.lock();
        let refused = self.run.journal.read(|entries| planner.check_refused(entries.refused()));
        match self.reporter.worst_failure.take() {
            None => refused.and_then(|()| planner.check_left_out()),
            Some(error) if error.kind() == ErrorKind::Damaged => Err(error),
            Some(error) => refused.and(Err(error)),
        }
    }
}

/// Pins an archive, unless its first or last bytes show that it is not whole.
fn pin(archive: &Archive, run: &PublishRun<'_>) -> Result<PinResult> {
    match judge_file(archive).err() {
        None | Some(FileFault::Unreadable) => run.pins.pin(archive, run.options.writer),
        Some(_) if archive.age(now()) < WRITTEN_WITHIN => Ok(PinResult::NotNow),
        Some(fault) => Ok(PinResult::Damaged(Error::damaged(format!("{}: {fault}", archive.path().escaped())))),
    }
}
