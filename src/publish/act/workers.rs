//! The threads of publishing. At any time, at most one prepares an archive, one rebases, and one
//! for each target publishes. They report to the planning thread by [`Message`].

use std::fs::File;
use std::path::Path;
use std::sync::Arc;
use std::thread::{Scope, ScopedJoinHandle};
use std::time::{Duration, Instant};

use slotpress_base::threads::{guarded, spawn};
use slotpress_base::{CancelToken, Error, ErrorKind, IoContext, Progress, Result};
use slotpress_format::ArchiveName;
use slotpress_net::{NetError, NetErrorKind};
use slotpress_read::{CheckMode, NamedArchive, VerifyOptions, verify_archives};
use slotpress_stores::Target;

use super::index::{Ready, StateCheck};
use super::target::{TargetContents, TargetWorker};
use super::upload::Making;
use super::{Run, rebasing};
use crate::archive::encoding::EncodingOptions;
use crate::archive::sink::Sink;
use crate::publish::decide::Order;
use crate::publish::tell::event::Event;
use crate::recompress::{RecompressOptions, RecompressSource, recompress};

/// Estimated maximum length of a new archive, as a multiple of its source's length. This limit must
/// be known for sending an archive before it is complete. Recompressing from level 19 to level 1
/// doubles the length. An archive that becomes longer is sent when it is ready.
const RATIO_MAX: u64 = 2;

#[derive(Debug)]
pub enum Message {
    Event(Event),
    Prepared { source: ArchiveName, result: Result<ArchiveName>, elapsed: Duration },
    Rebased { name: ArchiveName, result: Result<()>, elapsed: Duration },
    Target { at: usize, result: Result<TargetContents>, is_lasting: bool },
}

/// Starts a thread for each task, and remembers what is running.
pub struct Workers<'s, 'e> {
    scope: &'s Scope<'s, 'e>,
    run: &'e Run<'e>,
    targets: &'e [TargetWorker<'e>],
    making: Option<Arc<Making>>,
    rebasing: Option<(ArchiveName, CancelToken)>,
    threads: Vec<ScopedJoinHandle<'s, ()>>,
}

impl<'s, 'e> Workers<'s, 'e> {
    pub fn new(scope: &'s Scope<'s, 'e>, run: &'e Run<'e>, targets: &'e [TargetWorker<'e>]) -> Self {
        Self { scope, run, targets, making: None, rebasing: None, threads: Vec::new() }
    }

    fn start(&mut self, work: impl FnOnce() -> Message + Send + 's) -> Result<()> {
        let messages = &self.run.messages;
        self.threads.retain(|thread| !thread.is_finished());
        self.threads.push(spawn(self.scope, move || drop(messages.send(work())))?);
        Ok(())
    }

    /// Waits for all threads. A run with `--once` has none left when it is over; interrupted
    /// threads end soon.
    pub fn end(&mut self) {
        self.threads.drain(..).for_each(|thread| drop(thread.join()));
    }

    pub fn prepare(&mut self, source: &ArchiveName, making: Making) -> Result<()> {
        let (run, source) = (self.run, source.clone());
        let making = self.making.insert(Arc::new(making)).clone();
        self.start(move || {
            let start = Instant::now();
            let result = guarded(|| prepare(run, &source, &making));
            Message::Prepared { source, result, elapsed: start.elapsed() }
        })
    }

    /// Tells the threads that already send the archive whether it is ready, or preparing it failed.
    pub fn prepared(&mut self, ready: Option<&Ready>) {
        self.making.take().into_iter().for_each(|making| making.is_over(ready.cloned()));
    }

    pub fn rebase(&mut self, name: &ArchiveName, from: usize) -> Result<()> {
        let Some(target) = self.targets.get(from) else { return Ok(()) };
        let (name, cancel) = self.rebasing.insert((name.clone(), CancelToken::default())).clone();
        self.start(move || {
            let start = Instant::now();
            let result = guarded(|| rebasing::make(&name, target, &cancel));
            Message::Rebased { name, result, elapsed: start.elapsed() }
        })
    }

    pub fn stop_rebase(&self) {
        if let Some((name, cancel)) = self.rebasing.as_ref().filter(|(_, cancel)| !cancel.is_interrupted()) {
            self.run.progress.detail(&format!("{name} is not made: a newer full archive is there"));
            cancel.cancel();
        }
    }

    pub fn order(&mut self, at: usize, order: Order, contents: TargetContents) -> Result<()> {
        let Some(target) = self.targets.get(at) else { return Ok(()) };
        let making = self.making.clone();
        self.start(move || {
            let result = guarded(|| target.run(&order, making.as_deref(), contents));
            let is_lasting = result.as_ref().is_err_and(|error| is_lasting(error, target.target));
            Message::Target { at, result, is_lasting }
        })
    }
}

/// True if a target fails for a reason that lasts until an operator acts: another file has the
/// name, a store refuses requests or credentials or is full, or the directory is gone.
fn is_lasting(error: &Error, target: &Target) -> bool {
    error.kind() == ErrorKind::Exists
        || NetError::of(error).is_some_and(|error| {
            matches!(error.kind(), NetErrorKind::Forbidden | NetErrorKind::Denied | NetErrorKind::Full)
        })
        || matches!(target, Target::Dir(dir) if !dir.exists())
}

/// Checks and recompresses a pinned archive; returns the name under which it is ready. `making`
/// is told which file is being written. Fails with [`Damaged`](slotpress_base::ErrorKind::Damaged)
/// if the archive is not sound.
fn prepare(run: &Run<'_>, name: &ArchiveName, making: &Making) -> Result<ArchiveName> {
    let (pins, options, progress) = (&run.pins, run.options, run.progress);
    let mut how = options.recompress.clone();
    if StateCheck::of(name) == StateCheck::Unchecked {
        how.check.mode = CheckMode::Frames;
    }
    let path = pins.pinned_path(name);
    let pinned = File::open(&path).or_path("open", &path)?;
    let source_bytes = pinned.metadata().or_path("read", &path)?.len();
    if options.is_as_is {
        making.grows(pinned, source_bytes);
        check_as_is(&path, &how, progress)?;
        pins.pinned_is_ready(name)?;
        return Ok(name.clone());
    }
    let new = pins.new_ready()?;
    // Open the file a second time, to read through the page cache: writing may bypass it.
    making.grows(File::open(new.path()).or_path("open", new.path())?, source_bytes.saturating_mul(RATIO_MAX));
    let name = recompress(RecompressSource::File(path), Sink::unnamed(&new), &how, progress)?.name;
    new.publish(&name.to_string(), true)?;
    Ok(name)
}

/// Verifies an archive that is published without recompressing. This is stricter than the checks of
/// `recompress`, which tolerates packing errors because it packs the entries anew.
fn check_as_is(path: &Path, how: &RecompressOptions, progress: &dyn Progress) -> Result<()> {
    let EncodingOptions { threads, io_policy, .. } = &how.encoding;
    let options = VerifyOptions::default().check(how.check.clone()).threads(*threads).io_policy(io_policy.clone());
    // Superseded records are read a second time, in pieces that share pages, so their pages are
    // dropped only at the end.
    let _watch = io_policy.io_hint.watch([path]);
    verify_archives(&NamedArchive::from_path(path), None, &options, progress)?.require_ok()
}
