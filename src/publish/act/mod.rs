//! Does the work: looks, pins, prepares, rebases, and publishes on each target.

pub mod index;
pub mod look;
pub mod loops;
pub mod pins;
pub mod rebasing;
pub mod target;
pub mod upload;

use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use slotpress_base::threads::guarded;
use slotpress_base::{CancelToken, Error, Progress, Result};
use slotpress_net::Client;

use self::look::Eye;
use self::pins::PinDir;
use super::PublishOptions;
use super::decide::{Board, Outcome};
use super::tell::event::Event;

/// Interval between checks whether there is work, or the user has interrupted the run.
pub const TICK: Duration = Duration::from_millis(50);

/// What a loop tells the keeper.
#[derive(Debug)]
pub enum Message {
    Event(Event),
    /// A piece of work has ended; that of this target, successfully.
    Done(Option<usize>),
    /// A loop has ended by a panic.
    Died(Error),
}

/// Data shared by all threads of a run.
pub struct Run<'a> {
    pub options: &'a PublishOptions,
    pub pins: PinDir,
    pub client: Client,
    /// Interrupts all threads at the user's request, and at the end of the run.
    pub progress: &'a dyn Progress,
    /// Cancelled at the end of the run.
    pub over: CancelToken,
    pub messages: Sender<Message>,
    pub board: Mutex<Board<'a>>,
    pub changed: Condvar,
    /// Locked before the board.
    pub eye: Mutex<Eye>,
}

impl Run<'_> {
    /// Waits until `begin` takes work from the board; `None` when the run is over.
    pub fn wait<T>(&self, mut begin: impl FnMut(&mut Board<'_>) -> Option<T>) -> Option<T> {
        let mut board = self.board.lock();
        loop {
            if board.is_ended || self.progress.is_interrupted() {
                return None;
            }
            board.set_time(Instant::now());
            if let Some(work) = begin(&mut board) {
                return Some(work);
            }
            self.changed.wait_for(&mut board, TICK);
        }
    }

    /// Looks, and lets `then` act on what was found. Nothing else looks or acts meanwhile, so no
    /// look is older than what was done after it.
    pub fn look<T>(&self, then: impl FnOnce(&mut Board<'_>, Result<()>) -> T) -> T {
        let mut eye = self.eye.lock();
        let facts = eye.look(self);
        let mut board = self.board.lock();
        let looked = facts.map(|facts| board.see(facts));
        let done = then(&mut board, looked);
        self.changed.notify_all();
        done
    }

    /// No loop begins further work.
    pub fn end(&self) {
        self.board.lock().is_ended = true;
        self.changed.notify_all();
    }

    /// Runs a loop.
    pub fn guard(&self, work: impl FnOnce()) {
        let ended = guarded(|| {
            work();
            Ok(())
        });
        if let Err(error) = ended {
            drop(self.messages.send(Message::Died(error)));
        }
    }

    pub fn tell(&self, event: Event) {
        drop(self.messages.send(Message::Event(event)));
    }

    /// Does what follows from work that has ended.
    pub fn carry_out(&self, board: &Board<'_>, outcome: Outcome) -> Result<()> {
        let (name, was, error) = match outcome {
            Outcome::Tell(event) => {
                self.tell(event);
                return Ok(());
            }
            Outcome::Unpin(name) => return self.pins.unpin(&name),
            Outcome::Refuse { name, was, error } => (name, was, error),
        };
        let is_pinned = board.pinned().iter().any(|pinned| pinned.name == name);
        let kept = is_pinned.then(|| self.pins.quarantine(&name)).transpose();
        let failed = kept.as_ref().err().cloned();
        // Tell this before anything else can fail.
        self.tell(Event::Refused { name: name.clone(), error, kept: kept.ok().flatten() });
        self.pins.journal.change(|entries| was.map(|was| entries.refuse(&name, was)))?;
        failed.map_or(Ok(()), |error| {
            self.progress.warn(&error.to_string());
            self.pins.unpin(&name)
        })
    }
}
