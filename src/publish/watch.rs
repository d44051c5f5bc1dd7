//! Tells that something has come or gone in a directory. A look at it now and then is the safety net: where inotify is not to
//! be had, or misses something, only that tells.

use std::mem::MaybeUninit;
use std::path::Path;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::OwnedFd;
use rustix::fs::inotify::{CreateFlags, Reader, WatchFlags, add_watch, init};
use slotpress_base::Progress;

/// How often the wish to stop is looked at.
const TICK: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };

/// Room for a dozen events of the longest names.
const BUFFER_BYTES: usize = 4096;

/// What is watched: names that appear, by a rename or otherwise, and are closed after writing, and go.
const FLAGS: WatchFlags =
    WatchFlags::CREATE.union(WatchFlags::MOVED_TO).union(WatchFlags::CLOSE_WRITE).union(WatchFlags::DELETE);

/// The watch.
#[derive(Debug)]
pub struct Watch(OwnedFd);

impl Watch {
    /// Begins; `None` where the system gives no watch.
    pub fn new(dir: &Path) -> Option<Self> {
        let inotify = init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK).ok()?;
        add_watch(&inotify, dir, FLAGS | WatchFlags::ONLYDIR).ok()?;
        Some(Self(inotify))
    }

    /// Calls `on_change` after each change, until the user asks to stop or `on_change` has heard enough.
    pub fn run(&self, progress: &dyn Progress, on_change: &mut dyn FnMut() -> bool) {
        while !progress.is_interrupted() {
            let mut fds = [PollFd::new(&self.0, PollFlags::IN)];
            // Otherwise: nothing has happened, or a signal came.
            if matches!(poll(&mut fds, Some(&TICK)), Ok(1..)) {
                let mut buffer = [MaybeUninit::uninit(); BUFFER_BYTES];
                let mut events = Reader::new(&self.0, &mut buffer);
                while events.next().is_ok() {}
                if !on_change() {
                    return;
                }
            }
        }
    }
}
