//! Pins, prepares and rebases archives, and publishes them on each target.

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
use super::decide::Planner;
use super::journal::PublishJournal;
use super::report::event::PublishEvent;

/// Interval between checks for work, and for an interruption by the user.
pub const WORK_CHECK_INTERVAL: Duration = Duration::from_millis(50);

pub struct PublishRun<'a> {
    pub options: &'a PublishOptions,
    pub pins: PinDir,
    pub journal: PublishJournal,
    pub client: Client,
    /// Interrupted by the user and by `run_end`.
    pub progress: &'a dyn Progress,
    pub run_end: CancelToken,
    pub planner: Mutex<Planner<'a>>,
    pub planner_changed: Condvar,
}

impl<'a> PublishRun<'a> {
    /// Waits until `begin` takes work from the planner. Returns `None` when the run is over.
    pub fn next_work<T>(&self, mut begin: impl FnMut(&mut Planner<'a>) -> Option<T>) -> Option<T> {
        let mut planner = self.planner.lock();
        while !self.progress.is_interrupted() {
            planner.set_time(Instant::now());
            if let Some(work) = begin(&mut planner) {
                return Some(work);
            }
            self.planner_changed.wait_for(&mut planner, WORK_CHECK_INTERVAL);
        }
        None
    }

    /// Changes the planner, and wakes the threads that wait for work.
    pub fn update<T>(&self, change: impl FnOnce(&mut Planner<'a>) -> T) -> T {
        let mut planner = self.planner.lock();
        planner.set_time(Instant::now());
        let result = change(&mut planner);
        self.planner_changed.notify_all();
        result
    }

    pub fn report(&self, event: PublishEvent) {
        self.planner.lock().events.push(event);
    }
}
