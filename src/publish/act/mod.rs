//! Does the work: pins, prepares, rebases, and publishes on each target.

pub mod index;
pub mod loops;
pub mod pins;
pub mod target;

use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use slotpress_base::{CancelToken, Progress};
use slotpress_net::Client;

use self::pins::PinDir;
use super::PublishOptions;
use super::decide::Board;
use super::remember::PublishJournal;
use super::tell::event::PublishEvent;

/// Interval between checks whether there is work, or the user has interrupted the run.
pub const TICK: Duration = Duration::from_millis(50);

pub struct PublishRun<'a> {
    pub options: &'a PublishOptions,
    pub pins: PinDir,
    pub journal: PublishJournal,
    pub client: Client,
    /// Interrupts all threads at the user's request, and at the end of the run.
    pub progress: &'a dyn Progress,
    /// Cancelled at the end of the run.
    pub over: CancelToken,
    pub board: Mutex<Board<'a>>,
    pub changed: Condvar,
}

impl<'a> PublishRun<'a> {
    /// Waits until `begin` takes work from the board; `None` when the run is over.
    pub fn wait<T>(&self, mut begin: impl FnMut(&mut Board<'a>) -> Option<T>) -> Option<T> {
        let mut board = self.board.lock();
        while !self.progress.is_interrupted() {
            board.set_time(Instant::now());
            if let Some(work) = begin(&mut board) {
                return Some(work);
            }
            self.changed.wait_for(&mut board, TICK);
        }
        None
    }

    /// Changes the board, and lets the loops look at it.
    pub fn update<T>(&self, change: impl FnOnce(&mut Board<'a>) -> T) -> T {
        let mut board = self.board.lock();
        board.set_time(Instant::now());
        let done = change(&mut board);
        self.changed.notify_all();
        done
    }

    pub fn tell(&self, event: PublishEvent) {
        self.board.lock().told.push(event);
    }
}
