//! Progress of long operations, and requests to stop them. This module does not depend on terminals.

#![warn(missing_docs)]

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use crate::{Error, Result};

/// A stage of an operation. Its text is what the program shows.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Stage {
    /// Storages are read, compressed and written.
    Archiving,
    /// Servers are asked for their archives.
    AskingServers,
    /// Sources are asked for the newest incremental archive.
    AskingForIncremental,
    /// A downloaded archive is checked.
    Checking,
    /// The accounts of two states are compared.
    Comparing,
    /// An archive is copied into the snapshots directory.
    Copying,
    /// Storages or records are counted by size.
    Counting,
    /// The machine is examined.
    ExaminingMachine,
    /// An archive is downloaded.
    Fetching,
    /// The contents of an archive or ledger are listed.
    Inspecting,
    /// Synthetic storages are generated.
    MakingStorages,
    /// A disk or a server is measured.
    Measuring,
    /// A bank snapshot and its storages are found.
    Planning,
    /// The input, or a chosen part of it, is read.
    Reading,
    /// An incremental archive is written on a different base.
    Rebasing,
    /// An archive is written with a different compression.
    Recompressing,
    /// An archive is unpacked into a ledger.
    Restoring,
    /// A part of the storages is compressed to estimate the result.
    Sampling,
    /// Split storages are read to compute the lengths of their archive entries.
    Scanning,
    /// An account is searched for.
    Searching,
    /// Files are sent to a store.
    Sending,
    /// Versions of accounts are sorted, to find the superseded ones.
    Sorting,
    /// Superseded records are subtracted from the hash of the state.
    Subtracting,
    /// An archive is decoded to find its entries, before a sample is taken.
    Surveying,
    /// Written files are synced to the disk.
    Syncing,
    /// An archive or ledger is checked.
    Verifying,
    /// All records of a state are visited.
    Visiting,
    /// Files of tables are written.
    Writing,
    /// A synthetic bank snapshot is written.
    WritingBank,
    /// Data is compressed and decompressed to measure what the text names, such as a level.
    Measurement(String),
}

impl fmt::Display for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AskingForIncremental => f.write_str("Asking for the newest incremental archive"),
            Self::AskingServers => f.write_str("Asking servers"),
            Self::ExaminingMachine => f.write_str("Examining the machine"),
            Self::MakingStorages => f.write_str("Making storages"),
            Self::WritingBank => f.write_str("Writing the bank"),
            Self::Measurement(measured) => f.write_str(measured),
            stage => write!(f, "{stage:?}"),
        }
    }
}

/// A step that an operation is going to take.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// Stage of the operation.
    pub stage: Stage,
    /// Total input bytes of the stage: `Some(0)` if it reports no bytes, `None` if the number is
    /// unknown.
    pub input_bytes: Option<u64>,
}

impl Step {
    /// Makes a step with this number of input bytes.
    pub fn new(stage: Stage, input_bytes: Option<u64>) -> Self {
        Self { stage, input_bytes }
    }
}

/// Waits for `time`, or until the user interrupts.
pub fn wait(progress: &dyn Progress, time: Duration) {
    /// Longest time until an interrupt is noticed.
    const SLICE: Duration = Duration::from_millis(50);
    let start = Instant::now();
    loop {
        let remaining = time.saturating_sub(start.elapsed());
        if remaining.is_zero() || progress.is_interrupted() {
            return;
        }
        std::thread::sleep(remaining.min(SLICE));
    }
}

/// Event of a long operation.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum ProgressEvent<'a> {
    /// The steps that follow, in order. Other stages may run between them.
    Steps(&'a [Step]),
    /// A stage begins; the previous one ends.
    Stage {
        /// The stage that begins.
        stage: &'a Stage,
        /// Upper bound on the input bytes; `None` if it is unknown. [`ProgressEvent::Bytes`] are
        /// summed per stage.
        input_bytes: Option<u64>,
    },
    /// Bytes processed since the last event of this kind.
    Bytes {
        /// Bytes of the input: compressed bytes when an archive is read, bytes of tar when one
        /// is made.
        input: u64,
        /// Bytes written. Operations that only read count decompressed bytes.
        output: u64,
    },
    /// State of a download that is read while it arrives. Sent about twice a second.
    Arriving(Arriving<'a>),
    /// A line that says what is going to happen.
    Status(&'a str),
    /// A detail, for verbose output.
    Detail(&'a str),
    /// Something that the operator should know although the operation continues.
    Warning(&'a str),
}

/// State of a download that is read while it arrives.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Arriving<'a> {
    /// Bytes that have arrived and can be read.
    pub arrived_bytes: u64,
    /// Length of the archive, if it is known.
    pub length_bytes: Option<u64>,
    /// Servers, and how many bytes each has sent.
    pub servers: &'a [(String, u64)],
    /// Time that readers have waited for bytes.
    pub waited: Duration,
}

/// Receives the events of long operations, and decides when they stop. Implement one of the
/// methods, or both.
pub trait Progress: Sync {
    /// Receives an event. Many threads call this method, so it must be fast.
    fn event(&self, event: ProgressEvent<'_>) {
        let _ = event;
    }
    /// True if the work should stop. It then ends with an error of
    /// [`ErrorKind::Interrupted`](crate::error::ErrorKind::Interrupted), except that `serve` and a
    /// continuous `publish` end without an error.
    fn is_interrupted(&self) -> bool {
        false
    }

    // Operations report through these methods.

    #[doc(hidden)]
    fn steps(&self, steps: &[Step]) {
        self.event(ProgressEvent::Steps(steps));
    }
    #[doc(hidden)]
    fn stage(&self, stage: Stage, input_bytes: Option<u64>) {
        self.event(ProgressEvent::Stage { stage: &stage, input_bytes });
    }
    #[doc(hidden)]
    fn advance(&self, input: u64, output: u64) {
        self.event(ProgressEvent::Bytes { input, output });
    }
    #[doc(hidden)]
    fn status(&self, message: &str) {
        self.event(ProgressEvent::Status(message));
    }
    #[doc(hidden)]
    fn detail(&self, message: &str) {
        self.event(ProgressEvent::Detail(message));
    }
    #[doc(hidden)]
    fn warn(&self, message: &str) {
        self.event(ProgressEvent::Warning(message));
    }
    #[doc(hidden)]
    fn check(&self) -> Result<()> {
        if self.is_interrupted() { Err(Error::interrupted()) } else { Ok(()) }
    }
}

/// Ignores all events, and never stops.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoProgress;

impl Progress for NoProgress {}

/// Ignores all events, and stops the operation when the closure returns true.
#[derive(Clone, Copy, Debug)]
pub struct Until<F>(pub F);

impl<F: Fn() -> bool + Sync> Progress for Until<F> {
    fn is_interrupted(&self) -> bool {
        (self.0)()
    }
}

/// Forwards events to another [`Progress`] through `change`, which drops an event by returning
/// `None`. Also stops the operation if `is_over` returns true.
pub struct Forward<'a, F, S = fn() -> bool> {
    progress: &'a dyn Progress,
    change: F,
    is_over: S,
}

impl<'a, F: Fn(ProgressEvent<'_>) -> Option<ProgressEvent<'_>> + Sync> Forward<'a, F> {
    /// Forwards events through `change`.
    pub fn new(progress: &'a dyn Progress, change: F) -> Self {
        Self { progress, change, is_over: || false }
    }
}

/// Forwards all events except [`ProgressEvent::Steps`], for a part of an operation that has announced
/// its steps.
pub fn without_steps(progress: &dyn Progress) -> impl Progress + '_ {
    Forward::new(progress, |event| match event {
        ProgressEvent::Steps(_) => None,
        event => Some(event),
    })
}

impl<'a, S: Fn() -> bool + Sync> Forward<'a, fn(ProgressEvent<'_>) -> Option<ProgressEvent<'_>>, S> {
    /// Forwards all events, and also stops the operation if `is_over` returns true.
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

/// Stops an operation when any thread cancels the token or a clone of it. Ignores all events;
/// [`CancelToken::with`] combines the token with another [`Progress`].
#[derive(Clone, Debug, Default)]
pub struct CancelToken(Arc<AtomicBool>);

impl CancelToken {
    /// Stops the operation, as [`Progress::is_interrupted`] describes.
    pub fn cancel(&self) {
        self.0.store(true, Relaxed);
    }

    /// True once the token is cancelled.
    pub fn is_cancelled(&self) -> bool {
        self.is_interrupted()
    }

    /// Forwards events to `progress`, and also stops the operation when this token is cancelled.
    pub fn with<'a>(&'a self, progress: &'a dyn Progress) -> impl Progress + 'a {
        Forward::until(progress, || self.is_interrupted())
    }
}

/// A token that is cancelled while the flag is true. A signal handler may set the flag.
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
