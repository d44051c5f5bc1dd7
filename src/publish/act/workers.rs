//! The threads of publishing: one prepares archives, one rebases, one per target publishes. They report to the planning thread by
//! [`Message`].

use std::fs::File;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::{Sender, SyncSender, sync_channel};
use std::thread::Scope;
use std::time::{Duration, Instant};

use slotpress_base::threads::{guarded, spawn};
use slotpress_base::{CancelToken, Error, ErrorKind, IoContext, Progress, ProgressEvent, Result};
use slotpress_format::ArchiveName;
use slotpress_net::{NetError, NetErrorKind};
use slotpress_read::{CheckMode, NamedArchive, VerifyOptions, verify_archives};
use slotpress_stores::Target;

use super::index::Ready;
use super::pins::PinDir;
use super::rebasing::{self, RebaseOrder};
use super::target::{TargetContents, TargetWorker, Task};
use super::upload::Making;
use crate::archive::encoding::EncodingOptions;
use crate::archive::sink::Sink;
use crate::publish::PublishOptions;
use crate::publish::remember::StateCheck;
use crate::publish::tell::event::Event;
use crate::recompress::{RecompressOptions, Source, recompress};

/// Estimated maximum length of a new archive as a multiple of its source's, which sending it before it is complete
/// requires. Going from level 19 to level 1 doubles the length. If an archive becomes longer, it is sent when it is
/// ready.
const RATIO_MAX: u64 = 2;

#[derive(Debug)]
pub enum Message {
    Event(Event),
    Prepared { source: ArchiveName, result: Result<ArchiveName>, elapsed: Duration },
    Rebased { name: ArchiveName, result: Result<()>, elapsed: Duration },
    Target { at: usize, result: Result<TargetContents>, is_lasting: bool },
}

/// Progress for the working threads: passes on details and warnings, but no progress bars, because several would be
/// drawn at once. Interrupts the threads at the user's request and at the end of the run.
pub struct Background<'a> {
    pub progress: &'a dyn Progress,
    pub is_over: AtomicBool,
}

impl Progress for Background<'_> {
    fn event(&self, event: ProgressEvent<'_>) {
        if matches!(event, ProgressEvent::Detail(_) | ProgressEvent::Warning(_)) {
            self.progress.event(event);
        }
    }

    fn is_interrupted(&self) -> bool {
        self.is_over.load(Relaxed) || self.progress.is_interrupted()
    }
}

/// What the preparing thread is given: a pinned archive, its full archive if that is pinned too, and what senders share.
type ToPrepare = (ArchiveName, Option<ArchiveName>, Arc<Making>);

/// Channels to the threads, and what these are doing. A thread ends when its channel is closed.
pub struct Workers {
    prepare: SyncSender<ToPrepare>,
    rebase: SyncSender<RebaseOrder>,
    targets: Vec<SyncSender<Box<(Task, TargetContents)>>>,
    making: Option<Arc<Making>>,
    rebasing: Option<RebaseOrder>,
}

/// Starts a thread that does what it is given, one at a time, and reports it.
fn start<'s, T: Send + 's>(
    scope: &'s Scope<'s, '_>,
    messages: &Sender<Message>,
    mut work: impl FnMut(T) -> Message + Send + 's,
) -> Result<SyncSender<T>> {
    let (give, given) = sync_channel::<T>(1);
    let messages = messages.clone();
    spawn(scope, move || given.into_iter().for_each(|it| drop(messages.send(work(it)))))?;
    Ok(give)
}

fn give<T>(to: &SyncSender<T>, what: T) -> Result<()> {
    to.try_send(what).map_err(|_| Error::failed("a thread of publishing does not answer"))
}

impl Workers {
    pub fn start<'s, 'e>(
        scope: &'s Scope<'s, 'e>,
        pins: &'e PinDir,
        targets: &'e [TargetWorker<'e>],
        options: &'e PublishOptions,
        background: &'e Background<'e>,
        messages: &Sender<Message>,
    ) -> Result<Self> {
        let prepare = start(scope, messages, move |(source, base, making): ToPrepare| {
            let start = Instant::now();
            let result = guarded(|| prepare(pins, &source, base.as_ref(), &making, options, background));
            Message::Prepared { source, result, elapsed: start.elapsed() }
        })?;
        let rebase = start(scope, messages, move |order: RebaseOrder| {
            let start = Instant::now();
            let result = guarded(|| rebasing::make(&order, pins, targets, background));
            Message::Rebased { name: order.name, result, elapsed: start.elapsed() }
        })?;
        let to_target = |(at, target): (usize, &'e TargetWorker<'e>)| {
            start(scope, messages, move |task: Box<(Task, TargetContents)>| {
                let result = guarded(|| target.run(&task.0, &task.1, background));
                let is_lasting = result.as_ref().is_err_and(|error| is_lasting(error, target.target));
                Message::Target { at, result, is_lasting }
            })
        };
        let targets = targets.iter().enumerate().map(to_target).collect::<Result<_>>()?;
        Ok(Self { prepare, rebase, targets, making: None, rebasing: None })
    }

    pub fn prepare(&mut self, source: &ArchiveName, base: Option<&ArchiveName>, making: Making) -> Result<()> {
        let making = self.making.insert(Arc::new(making)).clone();
        give(&self.prepare, (source.clone(), base.cloned(), making))
    }

    /// The archive that is being prepared.
    pub fn making(&self) -> Option<Arc<Making>> {
        self.making.clone()
    }

    /// Tells those who send it that what is being prepared is ready, or failed.
    pub fn prepared(&mut self, ready: Option<Ready>) {
        self.making.take().into_iter().for_each(|making| making.is_over(ready.clone()));
    }

    pub fn rebase(&mut self, name: &ArchiveName, from: usize) -> Result<()> {
        let order = RebaseOrder { name: name.clone(), from, cancel: CancelToken::default() };
        give(&self.rebase, self.rebasing.insert(order).clone())
    }

    pub fn stop_rebase(&self, progress: &dyn Progress) {
        for order in self.rebasing.iter().filter(|order| !order.cancel.is_interrupted()) {
            progress.detail(&format!("{} is not made: a newer full archive is there", order.name));
            order.cancel.cancel();
        }
    }

    pub fn order(&self, at: usize, task: Task, contents: TargetContents) -> Result<()> {
        self.targets.get(at).map_or(Ok(()), |target| give(target, Box::new((task, contents))))
    }
}

/// True if a target fails for a reason that persists until an operator acts: another file has the name, credentials are
/// missing or insufficient, the directory is gone.
fn is_lasting(error: &Error, target: &Target) -> bool {
    error.kind() == ErrorKind::Exists
        || NetError::of(error).is_some_and(|error| error.kind() == NetErrorKind::Forbidden)
        || matches!(target, Target::Dir(dir) if !dir.exists())
}

/// State check that preparing an archive includes. For an incremental one, it takes reading its full archive.
pub fn state_of(name: &ArchiveName, options: &PublishOptions) -> StateCheck {
    match name.base_slot.is_none() || options.checks_pairs {
        true => StateCheck::Checked,
        false => StateCheck::Unchecked,
    }
}

/// Checks and recompresses a pinned archive; returns the name under which it is ready. `base` is its full archive,
/// pinned too. `making` is told the file that is being written. Fails as
/// [`Damaged`](slotpress_base::ErrorKind::Damaged) if the archive is not sound.
fn prepare(
    pins: &PinDir,
    name: &ArchiveName,
    base: Option<&ArchiveName>,
    making: &Making,
    options: &PublishOptions,
    progress: &dyn Progress,
) -> Result<ArchiveName> {
    let mut how = options.recompress.clone();
    how.base = base.map(|base| pins.pinned_path(base));
    if state_of(name, options) == StateCheck::Unchecked {
        how.check.mode = CheckMode::Frames;
    } else if name.base_slot.is_some() && base.is_none() {
        return Err(Error::failed(format!("the full archive below {name} is not there any more")));
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
    // A second handle that reads through the page cache, because the first one may write past it.
    making.grows(File::open(new.path()).or_path("open", new.path())?, source_bytes.saturating_mul(RATIO_MAX));
    let name = recompress(Source::File(path), Sink::unnamed(&new), &how, progress)?.name;
    new.publish(&name.to_string(), true)?;
    Ok(name)
}

/// Verifies an archive that is published without recompressing. This is stricter than the checks of `recompress`, which
/// tolerates packing errors because it packs the entries anew.
fn check_as_is(path: &Path, how: &RecompressOptions, progress: &dyn Progress) -> Result<()> {
    let EncodingOptions { threads, io_policy, .. } = &how.encoding;
    let options = VerifyOptions::default().check(how.check.clone()).threads(*threads).io_policy(io_policy.clone());
    // Superseded records are read a second time, in pieces that share pages: their pages are dropped only at the end.
    let _watch = io_policy.io_hint.watch(how.base.as_deref().into_iter().chain([path]));
    let archive = NamedArchive::from_path(path);
    let base = how.base.as_deref().map(NamedArchive::from_path);
    let report = match &base {
        Some(base) => verify_archives(base, Some(&archive), &options, progress),
        None => verify_archives(&archive, None, &options, progress),
    };
    report?.require_ok()
}
