//! The keeper: looks every second, pins and unpins, removes what nobody needs, and tells what
//! happened.

use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use slotpress_base::progress::Forward;
use slotpress_base::threads::{guarded, spawn};
use slotpress_base::{CancelToken, Error, ErrorKind, Hint, Progress, ProgressEvent, Result, panic_point};
use slotpress_net::Client;

use super::PublishOptions;
use super::act::look::{self, Eye};
use super::act::pins::{PinDir, Pinned, check_dirs};
use super::act::{Message, Run, TICK, loops, rebasing};
use super::decide::{Board, Outcome};
use super::remember::Identity;
use super::tell::Teller;
use super::tell::event::Event;

const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Maximum number of looks in a row, each after a change of what the next one finds. After them,
/// messages of other threads are handled.
const LOOKS_MAX: usize = 8;

/// Publishes archives until the user interrupts it, or with [`PublishOptions::is_once`] until
/// everything present is published. Blocks meanwhile. Calls `on_event` on the calling thread.
///
/// # Errors
/// If a directory cannot be used, or another process works in the directory of pins. With
/// `is_once`, also the gravest failure, of kind
/// [`Damaged`](slotpress_base::error::ErrorKind::Damaged) if an archive was damaged.
pub fn publish(options: &PublishOptions, on_event: &mut dyn FnMut(&Event), progress: &dyn Progress) -> Result<()> {
    check_dirs(options)?;
    rebasing::check_settings(options)?;
    let (pins, client) = (PinDir::open(options)?, Client::new(&options.client)?);
    let (messages, heard) = channel();
    let over = CancelToken::default();
    // No progress bars: several would be drawn at once.
    let told = Forward::new(progress, |event| {
        matches!(event, ProgressEvent::Detail(_) | ProgressEvent::Warning(_)).then_some(event)
    });
    let board = Mutex::new(Board::new(options, Instant::now()));
    let (changed, eye) = (Condvar::new(), Mutex::new(Eye::default()));
    let progress_of_all = &over.with(&told);
    let run =
        Run { options, pins, client, progress: progress_of_all, over: over.clone(), messages, board, changed, eye };
    let run = &run;
    std::thread::scope(|scope| {
        let result = guarded(|| {
            let mut keeper = Keeper { run, heard, teller: Teller::new(options, progress, on_event)? };
            let mut threads = vec![
                spawn(scope, || run.guard(|| loops::maker(run)))?,
                spawn(scope, || run.guard(|| loops::rebaser(run)))?,
            ];
            for at in 0..options.targets.len() {
                threads.push(spawn(scope, move || run.guard(|| loops::serve(run, at)))?);
            }
            let ended = keeper.keep();
            over.cancel();
            run.end();
            // A run with `--once` has no work left when it is over; interrupted threads end soon.
            threads.into_iter().for_each(|thread| drop(thread.join()));
            let mut heard = Ok(());
            while let Ok(message) = keeper.heard.try_recv() {
                heard = heard.and(keeper.hear(message).map(drop));
            }
            keeper.teller.end();
            ended.and(heard).and_then(|()| keeper.result())
        });
        // Also after a panic: other threads may be waiting for this one.
        over.cancel();
        run.end();
        result
    })
}

struct Keeper<'r, 'e> {
    run: &'r Run<'e>,
    heard: Receiver<Message>,
    teller: Teller<'r>,
}

impl Keeper<'_, '_> {
    /// Works until the user interrupts it, or with `--once` until everything is done.
    fn keep(&mut self) -> Result<()> {
        let Run { board, progress, options, pins, .. } = self.run;
        self.teller.begin();
        while !progress.is_interrupted() {
            board.lock().set_time(Instant::now());
            let mut is_over = false;
            if board.lock().wants_look() {
                let worked = self.work().map(|is_over_now| is_over = is_over_now);
                let failed = board.lock().looked(worked)?;
                failed.into_iter().for_each(|event| self.teller.tell(event));
            }
            if is_over {
                return Ok(());
            }
            self.teller.see(&board.lock(), pins.free_bytes());
            let (start, mut is_done) = (Instant::now(), false);
            while !is_done && !progress.is_interrupted() && start.elapsed() < LOOK_EVERY {
                self.teller.poll_hooks();
                if let Ok(message) = self.heard.recv_timeout(TICK) {
                    is_done = self.hear(message)?;
                }
            }
        }
        self.teller.tell(Event::Stopping);
        if options.is_once { Err(Error::interrupted()) } else { Ok(()) }
    }

    /// Returns true if a piece of work has ended.
    fn hear(&mut self, message: Message) -> Result<bool> {
        match message {
            Message::Died(error) => return Err(error),
            Message::Event(event) => {
                self.teller.tell(event);
                return Ok(false);
            }
            Message::Done(target) => target.into_iter().for_each(|target| self.teller.succeeded(target)),
        }
        panic_point("planning");
        Ok(true)
    }

    /// Looks and acts until nothing changes what the next look finds, at most [`LOOKS_MAX`] times.
    /// Returns true if a run with `--once` is over.
    fn work(&self) -> Result<bool> {
        for _ in 0..LOOKS_MAX {
            let (has_changed, is_over) = self.run.look(|board, looked| {
                looked?;
                // Both at one moment: what a target answers in between may leave something to do.
                Ok::<_, Error>((self.arrange(board)?, board.is_over()))
            })?;
            if !has_changed {
                return Ok(is_over);
            }
        }
        Ok(false)
    }

    /// Pins, unpins, and removes. Returns true if that changes what the next look finds.
    fn arrange(&self, board: &mut Board<'_>) -> Result<bool> {
        let Run { pins, progress, .. } = self.run;
        let changes = board.pins();
        let mut has_changed = !changes.drop.is_empty();
        changes.drop.iter().try_for_each(|name| pins.unpin(name))?;
        for name in changes.no_room {
            self.run.tell(board.leave_out(name, "there is no room for its pin".to_string(), Hint::MorePinBytes));
        }
        for archive in board.seen(&changes.add) {
            let (name, identity) = (archive.name.clone(), Identity::from(&archive));
            pins.journal.change(|entries| entries.pins.insert(name.to_string(), identity))?;
            let outcome = match look::pin(&archive, self.run)? {
                Pinned::Yes => {
                    has_changed = true;
                    Some(Outcome::Tell(Event::Pinned { name }))
                }
                pinned => board.not_pinned(&archive, pinned),
            };
            has_changed |= matches!(outcome, Some(Outcome::Refuse { .. }));
            outcome.map_or(Ok(()), |outcome| self.run.carry_out(board, outcome))?;
        }
        for name in board.to_remove() {
            pins.remove_ready(&name)?;
            pins.journal.forget(&name)?;
            has_changed = true;
        }
        if board.stop_rebase() {
            progress.detail("a rebased archive is not made: a newer full archive is there");
        }
        Ok(has_changed)
    }

    /// Result of the run. With `--once`, fails if an operation failed for good, or a target lacks
    /// an archive that was left out, now or as damaged by an earlier run.
    fn result(&mut self) -> Result<()> {
        if !self.run.options.is_once {
            return Ok(());
        }
        let board = self.run.board.lock();
        let refused = self.run.pins.journal.read(|entries| board.check_refused(entries.refused_names()));
        match self.teller.gravest() {
            None => refused.and_then(|()| board.check_left_out()),
            Some(gravest) if gravest.kind() == ErrorKind::Damaged => Err(gravest),
            Some(gravest) => refused.and(Err(gravest)),
        }
    }
}
