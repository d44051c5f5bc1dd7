//! The keeper: looks every second, pins and unpins, removes what nobody needs, and tells what
//! happened.

use std::mem;
use std::thread::ScopedJoinHandle;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use slotpress_base::clock::{now, since_1970};
use slotpress_base::progress::Forward;
use slotpress_base::threads::{guarded, panicked, spawn};
use slotpress_base::{
    CancelToken, Error, ErrorKind, Progress, ProgressEvent, Result, ShowPath, free_bytes, panic_point,
};
use slotpress_net::Client;
use slotpress_read::catalog::Archive;
use slotpress_read::{Catalog, FileFault, judge_file, read_newest_bank_times, scan_again, scan_names};

use super::PublishOptions;
use super::act::index::PreparedArchive;
use super::act::pins::{PinDir, PinResult, check_dirs, remove, scan_open_dir};
use super::act::{PublishRun, TICK, loops, target};
use super::decide::{Board, Chores, DamagedArchive, Observed};
use super::remember::{FileIdentity, PublishJournal};
use super::tell::Teller;
use super::tell::event::PublishEvent;

/// A file modified within this time may be incomplete because it is being written.
pub const WRITTEN_WITHIN: Duration = Duration::from_secs(60);

const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Maximum number of looks in a row, each after a change of what the next one finds. After them,
/// events are told.
const LOOKS_MAX: usize = 8;

/// Publishes archives until the user interrupts it, or with [`PublishOptions::is_once`] until
/// everything present is published. Blocks meanwhile. Calls `on_event` on the calling thread.
///
/// # Errors
/// If a directory cannot be used, or another process works in the directory of pins. With
/// `is_once`, also the gravest failure, of kind
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
    let board = journal.read(|entries| Board::new(options, entries.refused(), Instant::now()));
    let run = &PublishRun {
        options,
        pins,
        journal,
        client,
        progress: &over.with(&messages),
        over: over.clone(),
        board: Mutex::new(board),
        changed: Condvar::new(),
    };
    std::thread::scope(|scope| {
        let result = guarded(|| {
            let teller = Teller::new(options, progress, on_event)?;
            let mut keeper = Keeper { run, ready: Catalog::default(), teller };
            let mut threads = vec![spawn(scope, || loops::maker(run))?, spawn(scope, || loops::rebaser(run))?];
            for (at, to) in options.targets.iter().enumerate() {
                threads.push(spawn(scope, move || target::serve(run, to, at))?);
            }
            let ended = keeper.keep(&threads);
            run.over.cancel();
            // A run with `--once` has no work left when it is over; interrupted threads end soon.
            let joined =
                threads.into_iter().try_for_each(|thread| thread.join().map_err(|payload| panicked(payload.as_ref())));
            keeper.tell();
            keeper.teller.end();
            joined.and(ended).and_then(|()| keeper.result())
        });
        // Also after a panic: other threads may be waiting for this one.
        run.over.cancel();
        result
    })
}

struct Keeper<'r, 'e> {
    run: &'r PublishRun<'e>,
    /// The ready archives of the last look: what was read of them is not read again.
    ready: Catalog,
    teller: Teller<'r>,
}

impl Keeper<'_, '_> {
    /// Works until the user interrupts it, or with `--once` until everything is done. Also ends when
    /// a loop has ended, which is by a panic.
    fn keep(&mut self, loops: &[ScopedJoinHandle<'_, ()>]) -> Result<()> {
        let board = &self.run.board;
        let progress = self.run.progress;
        self.teller.begin();
        while !progress.is_interrupted() && !loops.iter().any(ScopedJoinHandle::is_finished) {
            if self.run.update(|board| board.wants_look()) {
                let worked = self.work();
                if self.run.update(|board| board.looked(worked))? {
                    return Ok(());
                }
            }
            self.teller.see(&board.lock(), free_bytes(&*self.run.pins.top));
            let start = Instant::now();
            while !self.tell() && !progress.is_interrupted() && start.elapsed() < LOOK_EVERY {
                self.teller.poll_hooks();
                let mut board = board.lock();
                if !board.has_news && board.told.is_empty() {
                    self.run.changed.wait_for(&mut board, TICK);
                }
            }
        }
        self.teller.tell(PublishEvent::Stopping);
        if self.run.options.is_once { Err(Error::interrupted()) } else { Ok(()) }
    }

    /// Tells what happened. Returns true if a piece of work has ended.
    fn tell(&mut self) -> bool {
        let (told, has_news) = {
            let mut board = self.run.board.lock();
            (mem::take(&mut board.told), mem::take(&mut board.has_news))
        };
        for event in told {
            self.teller.tell(event);
        }
        if has_news {
            panic_point("planning");
        }
        has_news
    }

    /// Looks and acts until nothing changes what the next look finds, at most [`LOOKS_MAX`] times.
    /// Returns true if a run with `--once` is over.
    fn work(&mut self) -> Result<bool> {
        for _ in 0..LOOKS_MAX {
            let ended = self.run.update(|board| {
                board.has_news = false;
                board.ended.len()
            });
            let facts = self.look()?;
            let chores = self.run.update(|board| {
                board.see(facts, ended);
                board.chores()
            });
            let is_over = chores.is_over;
            if !self.arrange(chores)? {
                return Ok(is_over);
            }
        }
        Ok(false)
    }

    fn look(&mut self) -> Result<Observed> {
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

    /// Pins, unpins, and removes. Returns true if that changes what the next look finds.
    fn arrange(&self, chores: Chores) -> Result<bool> {
        let pins = &self.run.pins;
        let mut has_changed = !(chores.refuse.is_empty() && chores.drop.is_empty() && chores.remove.is_empty());
        for damaged in chores.refuse {
            self.refuse(damaged)?;
        }
        for name in chores.drop {
            remove(&pins.pinned, &name.to_string())?;
        }
        for archive in chores.add {
            let name = archive.name.clone();
            let identity = FileIdentity::from(&archive);
            self.run.journal.change(|entries| entries.pins.insert(name.to_string(), identity))?;
            let pinned = pin(&archive, self.run)?;
            has_changed |= !matches!(pinned, PinResult::Gone | PinResult::NotNow);
            self.run.update(|board| board.pinned(archive, pinned));
        }
        for name in chores.remove {
            remove(&pins.ready, &name.to_string())?;
        }
        Ok(has_changed)
    }

    fn refuse(&self, DamagedArchive { name, was, error }: DamagedArchive) -> Result<()> {
        let kept = self.run.pins.quarantine(&name);
        if let Err(error) = &kept {
            self.run.progress.warn(&error.to_string());
        }
        // Tell this before anything else can fail.
        self.run.tell(PublishEvent::Refused { name: name.clone(), error, kept: kept.ok().flatten() });
        self.run.journal.change(|entries| entries.refuse(&name, was))
    }

    /// Result of the run. With `--once`, fails if an operation failed for good, or a target lacks
    /// an archive that was left out, now or as damaged by an earlier run.
    fn result(&mut self) -> Result<()> {
        if !self.run.options.is_once {
            return Ok(());
        }
        let board = self.run.board.lock();
        let refused = self.run.journal.read(|entries| board.check_refused(entries.refused()));
        match self.teller.gravest.take() {
            None => refused.and_then(|()| board.check_left_out()),
            Some(gravest) if gravest.kind() == ErrorKind::Damaged => Err(gravest),
            Some(gravest) => refused.and(Err(gravest)),
        }
    }
}

/// Pins an archive, unless a few reads tell that it is not whole.
fn pin(archive: &Archive, run: &PublishRun<'_>) -> Result<PinResult> {
    match judge_file(archive).err() {
        None | Some(FileFault::Unreadable) => run.pins.pin(archive, run.options.writer),
        Some(_) if archive.age(now()) < WRITTEN_WITHIN => Ok(PinResult::NotNow),
        Some(fault) => Ok(PinResult::Damaged(Error::damaged(format!("{}: {fault}", archive.path().shown())))),
    }
}
