//! How long work tells what it is doing, and learns that it should stop. Nothing here knows a terminal.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use crate::{Error, Result};

/// One of the steps that a piece of work is going to take.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// The name of its stage.
    pub name: String,
    /// What the stage will have counted as input when it ends; `Some(0)` for one that counts nothing, `None` where it is
    /// not known.
    pub input_bytes: Option<u64>,
}

impl Step {
    /// A step of so many bytes.
    pub fn new(name: &str, input_bytes: Option<u64>) -> Self {
        Self { name: name.to_string(), input_bytes }
    }
}

/// A part of the work, for telling where the time went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Part {
    /// Waiting for bytes of the ledger or the archive.
    Reading,
    /// Decompressing frames.
    Decompressing,
    /// Parsing and checking what was read, and putting it into its place.
    Unpacking,
    /// Compressing frames, with ordering records and hashing frames.
    Compressing,
    /// Writing an archive.
    Writing,
}

impl Part {
    /// All of them, in the order of the work.
    pub const ALL: [Self; 5] = [Self::Reading, Self::Decompressing, Self::Unpacking, Self::Compressing, Self::Writing];

    /// In a word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Reading => "reading",
            Self::Decompressing => "decompressing",
            Self::Unpacking => "unpacking",
            Self::Compressing => "compressing",
            Self::Writing => "writing",
        }
    }
}

/// Does something, and tells how long it took.
pub fn timed<R>(progress: &dyn Progress, part: Part, work: impl FnOnce() -> R) -> R {
    let start = Instant::now();
    let result = work();
    progress.spent(part, start.elapsed());
    result
}

/// Waits; less long where the user asks to stop.
pub fn wait(progress: &dyn Progress, time: Duration) {
    /// Sleeping in slices this short lets an interrupt end a wait.
    const SLICE: Duration = Duration::from_millis(50);
    let start = Instant::now();
    loop {
        let left = time.saturating_sub(start.elapsed());
        if left.is_zero() || progress.is_interrupted() {
            return;
        }
        std::thread::sleep(left.min(SLICE));
    }
}

/// Receives what long work reports. Called from many threads; must be cheap.
pub trait Progress: Sync {
    /// The steps that follow, in their order: stages of these names. Stages of other names may come between them.
    fn steps(&self, steps: &[Step]) {
        let _ = steps;
    }
    /// A stage begins. `total_bytes` is what [`Progress::advance`] will have counted as input when the stage ends,
    /// where that is known.
    fn stage(&self, name: &str, total_bytes: Option<u64>) {
        let _ = (name, total_bytes);
    }
    /// Bytes that were read and bytes that were written since the last call.
    fn advance(&self, input_bytes: u64, output_bytes: u64) {
        let _ = (input_bytes, output_bytes);
    }
    /// A few words beside the figures of the stage, until there are others.
    fn note(&self, text: &str) {
        let _ = text;
    }
    /// What is going to happen, in a line of its own.
    fn tell(&self, message: &str) {
        let _ = message;
    }
    /// What only some want to know: how the work is planned, and where the time went.
    fn detail(&self, message: &str) {
        let _ = message;
    }
    /// Time that one thread spent on a part of the work; parts of one thread do not overlap.
    fn spent(&self, part: Part, time: Duration) {
        let _ = (part, time);
    }
    /// Something the operator should know, though the work goes on.
    fn warn(&self, message: &str) {
        let _ = message;
    }
    /// Whether the user asked to stop.
    fn is_interrupted(&self) -> bool {
        false
    }
    /// An error when the user asked to stop.
    ///
    /// # Errors
    /// Of [`ErrorKind::Interrupted`](crate::error::ErrorKind::Interrupted), and no other.
    fn check(&self) -> Result<()> {
        if self.is_interrupted() { Err(Error::interrupted()) } else { Ok(()) }
    }
}

/// Drops all reports and never stops.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoProgress;

impl Progress for NoProgress {}

/// Drops all reports, and stops the work when this says so.
#[derive(Clone, Copy, Debug)]
pub struct Until<F>(pub F);

impl<F: Fn() -> bool + Sync> Progress for Until<F> {
    fn is_interrupted(&self) -> bool {
        (self.0)()
    }
}

/// Passes all reports on, and stops the work also when this says so.
pub struct StopToo<'a, F> {
    progress: &'a dyn Progress,
    is_over: F,
}

impl<'a, F: Fn() -> bool + Sync> StopToo<'a, F> {
    /// Reports go to `progress`.
    pub fn new(progress: &'a dyn Progress, is_over: F) -> Self {
        Self { progress, is_over }
    }
}

impl<F: Fn() -> bool + Sync> Progress for StopToo<'_, F> {
    fn steps(&self, steps: &[Step]) {
        self.progress.steps(steps);
    }
    fn stage(&self, name: &str, total_bytes: Option<u64>) {
        self.progress.stage(name, total_bytes);
    }
    fn advance(&self, input_bytes: u64, output_bytes: u64) {
        self.progress.advance(input_bytes, output_bytes);
    }
    fn note(&self, text: &str) {
        self.progress.note(text);
    }
    fn tell(&self, message: &str) {
        self.progress.tell(message);
    }
    fn detail(&self, message: &str) {
        self.progress.detail(message);
    }
    fn spent(&self, part: Part, time: Duration) {
        self.progress.spent(part, time);
    }
    fn warn(&self, message: &str) {
        self.progress.warn(message);
    }
    fn is_interrupted(&self) -> bool {
        self.progress.is_interrupted() || (self.is_over)()
    }
}

/// Drops all reports, and stops the work when one of its clones is cancelled, from any thread.
#[derive(Clone, Debug, Default)]
pub struct CancelToken(Arc<AtomicBool>);

impl CancelToken {
    /// Asks the work to stop; it ends with an error of [`ErrorKind::Interrupted`](crate::error::ErrorKind::Interrupted).
    pub fn cancel(&self) {
        self.0.store(true, Relaxed);
    }

    /// The progress of work that also stops when this is cancelled.
    pub fn with<'a>(&'a self, progress: &'a dyn Progress) -> impl Progress + 'a {
        StopToo::new(progress, || self.is_interrupted())
    }
}

/// Cancelled when the flag is set.
impl From<Arc<AtomicBool>> for CancelToken {
    fn from(flag: Arc<AtomicBool>) -> Self {
        Self(flag)
    }
}

impl Progress for CancelToken {
    fn is_interrupted(&self) -> bool {
        self.0.load(Relaxed)
    }
}
