//! The threads of publishing. At any time, at most one prepares an archive, one rebases, and one
//! for each target publishes. They report to the planning thread by [`Message`].

use std::path::Path;
use std::thread::{Scope, ScopedJoinHandle};
use std::time::{Duration, Instant};

use slotpress_base::threads::{guarded, spawn};
use slotpress_base::{CancelToken, Progress, Result};
use slotpress_format::ArchiveName;
use slotpress_read::{CheckMode, NamedArchive, VerifyOptions, verify_archives};

use super::index::StateCheck;
use super::target::{TargetContents, TargetWorker};
use super::{Run, rebasing};
use crate::archive::encoding::EncodingOptions;
use crate::archive::sink::Sink;
use crate::publish::decide::Order;
use crate::publish::tell::event::Event;
use crate::recompress::{RecompressOptions, RecompressSource, recompress};

#[derive(Debug)]
pub enum Message {
    Event(Event),
    Prepared { source: ArchiveName, result: Result<ArchiveName>, elapsed: Duration },
    Rebased { name: ArchiveName, result: Result<()>, elapsed: Duration },
    Target { at: usize, result: Result<TargetContents> },
}

/// Starts a thread for each task, and remembers what is running.
pub struct Workers<'s, 'e> {
    scope: &'s Scope<'s, 'e>,
    run: &'e Run<'e>,
    targets: &'e [TargetWorker<'e>],
    rebasing: Option<(ArchiveName, CancelToken)>,
    threads: Vec<ScopedJoinHandle<'s, ()>>,
}

impl<'s, 'e> Workers<'s, 'e> {
    pub fn new(scope: &'s Scope<'s, 'e>, run: &'e Run<'e>, targets: &'e [TargetWorker<'e>]) -> Self {
        Self { scope, run, targets, rebasing: None, threads: Vec::new() }
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

    pub fn prepare(&mut self, source: &ArchiveName) -> Result<()> {
        let (run, source) = (self.run, source.clone());
        self.start(move || {
            let start = Instant::now();
            let result = guarded(|| prepare(run, &source));
            Message::Prepared { source, result, elapsed: start.elapsed() }
        })
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
        self.start(move || {
            let result = guarded(|| target.run(&order, contents));
            Message::Target { at, result }
        })
    }
}

/// Checks and recompresses a pinned archive; returns the name under which it is ready. Fails
/// with [`Damaged`](slotpress_base::ErrorKind::Damaged) if the archive is not sound.
fn prepare(run: &Run<'_>, name: &ArchiveName) -> Result<ArchiveName> {
    let (pins, options, progress) = (&run.pins, run.options, run.progress);
    let mut how = options.recompress.clone();
    if StateCheck::of(name) == StateCheck::Unchecked {
        how.check.mode = CheckMode::Frames;
    }
    let path = pins.pinned_path(name);
    if options.is_as_is {
        check_as_is(&path, &how, progress)?;
        pins.pinned_is_ready(name)?;
        return Ok(name.clone());
    }
    let new = pins.new_ready()?;
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
