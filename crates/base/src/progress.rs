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

/// What long work reports.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum ProgressEvent<'a> {
    /// The steps that follow, in their order: stages of these names. Stages of other names may come between them.
    Steps(&'a [Step]),
    /// A stage begins.
    Stage {
        /// Its name.
        name: &'a str,
        /// Bytes that the stage will read, at most; `None` where it is not known. [`ProgressEvent::Bytes`] are summed anew
        /// for each stage. A stage ends with the next one, or with the work.
        input_bytes: Option<u64>,
    },
    /// Bytes since the last such event.
    Bytes {
        /// Bytes read.
        input: u64,
        /// Bytes written; for what only reads, bytes decompressed.
        output: u64,
    },
    /// A few words beside the figures of the stage, until there are others.
    Note(&'a str),
    /// What is going to happen, in a line of its own.
    Status(&'a str),
    /// How the work is planned, for those who want to know.
    Detail(&'a str),
    /// Something the operator should know, though the work goes on.
    Warning(&'a str),
}

/// Receives the events of long work, and says whether it should stop. To be implemented: [`Progress::event`],
/// [`Progress::is_interrupted`], or both. The other methods are for those who report.
pub trait Progress: Sync {
    /// Receives an event. Called from many threads; must be cheap.
    fn event(&self, event: ProgressEvent<'_>) {
        let _ = event;
    }
    /// True if the work should stop. It then ends with an error of
    /// [`ErrorKind::Interrupted`](crate::error::ErrorKind::Interrupted).
    fn is_interrupted(&self) -> bool {
        false
    }
    /// Reports [`ProgressEvent::Steps`].
    fn steps(&self, steps: &[Step]) {
        self.event(ProgressEvent::Steps(steps));
    }
    /// Reports [`ProgressEvent::Stage`].
    fn stage(&self, name: &str, input_bytes: Option<u64>) {
        self.event(ProgressEvent::Stage { name, input_bytes });
    }
    /// Reports [`ProgressEvent::Bytes`].
    fn advance(&self, input: u64, output: u64) {
        self.event(ProgressEvent::Bytes { input, output });
    }
    /// Reports [`ProgressEvent::Note`].
    fn note(&self, text: &str) {
        self.event(ProgressEvent::Note(text));
    }
    /// Reports [`ProgressEvent::Status`].
    fn tell(&self, message: &str) {
        self.event(ProgressEvent::Status(message));
    }
    /// Reports [`ProgressEvent::Detail`].
    fn detail(&self, message: &str) {
        self.event(ProgressEvent::Detail(message));
    }
    /// Reports [`ProgressEvent::Warning`].
    fn warn(&self, message: &str) {
        self.event(ProgressEvent::Warning(message));
    }
    /// An error if the work should stop.
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

/// Forwards events to another [`Progress`], as `change` makes them; `None` drops one. Stops the work also when `is_over` is true.
pub struct Forward<'a, F, S = fn() -> bool> {
    progress: &'a dyn Progress,
    change: F,
    is_over: S,
}

impl<'a, F: Fn(ProgressEvent<'_>) -> Option<ProgressEvent<'_>> + Sync> Forward<'a, F> {
    /// Changes events.
    pub fn new(progress: &'a dyn Progress, change: F) -> Self {
        Self { progress, change, is_over: || false }
    }
}

impl<'a, S: Fn() -> bool + Sync> Forward<'a, fn(ProgressEvent<'_>) -> Option<ProgressEvent<'_>>, S> {
    /// Forwards all events, and stops the work also when `is_over` is true.
    pub fn until(progress: &'a dyn Progress, is_over: S) -> Self {
        Self { progress, change: |event| Some(event), is_over }
    }
}

impl<F, S> Progress for Forward<'_, F, S>
where
    F: Fn(ProgressEvent<'_>) -> Option<ProgressEvent<'_>> + Sync,
    S: Fn() -> bool + Sync,
{
    fn event(&self, event: ProgressEvent<'_>) {
        if let Some(event) = (self.change)(event) {
            self.progress.event(event);
        }
    }

    fn is_interrupted(&self) -> bool {
        self.progress.is_interrupted() || (self.is_over)()
    }
}

/// Drops all reports, and stops the work when one of its clones is cancelled, from any thread. With a display of progress:
/// [`CancelToken::with`].
#[derive(Clone, Debug, Default)]
pub struct CancelToken(Arc<AtomicBool>);

impl CancelToken {
    /// Asks the work to stop; it ends with an error of [`ErrorKind::Interrupted`](crate::error::ErrorKind::Interrupted).
    pub fn cancel(&self) {
        self.0.store(true, Relaxed);
    }

    /// The progress of work that also stops when this is cancelled.
    pub fn with<'a>(&'a self, progress: &'a dyn Progress) -> impl Progress + 'a {
        Forward::until(progress, || self.is_interrupted())
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
