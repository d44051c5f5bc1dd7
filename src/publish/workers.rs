//! The threads of publishing: one prepares archives, one rebases, one per target publishes, one runs the operator's hooks. They
//! report to the planning thread by [`Message`].

use std::fs::File;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::{Sender, SyncSender, TrySendError, sync_channel};
use std::thread::Scope;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};
use slotpress_base::threads::{guarded, spawn};
use slotpress_base::{Error, IoContext, Progress, ProgressEvent, Result, ShowPath};
use slotpress_format::ArchiveName;
use slotpress_read::{CheckMode, NamedArchive, VerifyOptions, verify_archives};

use super::PublishOptions;
use super::event::Event;
use super::journal::StateCheck;
use super::pins::PinDir;
use super::rebasing::{self, RebaseOrder};
use super::target::{TargetContents, TargetWorker, Task};
use super::upload::Making;
use crate::archive::sink::Sink;
use crate::recompress::{RecompressOptions, Source, recompress};

/// Estimated maximum length of a new archive as a multiple of its source's, which sending it before it is complete
/// requires. Going from level 19 to level 1 doubles the length. If an archive becomes longer, it is sent when it is
/// ready.
const RATIO_MAX: u64 = 2;

/// Limit of hooks waiting to run. Further ones are skipped, with a warning.
const HOOKS_MAX: usize = 64;

/// Default of [`PublishOptions::hook_timeout`]: enough to notify an operator. A hook should start longer work in the
/// background.
pub const HOOK_TIMEOUT_DEFAULT: Duration = Duration::from_secs(60);

const HOOK_TICK: Duration = Duration::from_millis(20);

#[derive(Debug)]
pub enum Message {
    Event(Event),
    Prepared { source: ArchiveName, result: Result<ArchiveName>, elapsed: Duration },
    Rebased { name: ArchiveName, result: Result<()>, elapsed: Duration },
    Target { at: usize, result: Result<TargetContents> },
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

/// Channels to the threads. A thread ends when its channel is closed.
pub struct Workers {
    /// To the preparing thread: a pinned archive, its full archive if that is pinned too, and the state shared with
    /// senders.
    pub prepare: SyncSender<(ArchiveName, Option<ArchiveName>, Arc<Making>)>,
    pub rebase: SyncSender<RebaseOrder>,
    pub targets: Vec<SyncSender<Box<(Task, TargetContents)>>>,
    hooks: SyncSender<Event>,
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
        let (prepare_orders, orders) = sync_channel::<(ArchiveName, Option<ArchiveName>, Arc<Making>)>(1);
        let send = messages.clone();
        spawn(scope, move || {
            for (source, base, making) in orders {
                let start = Instant::now();
                let result = guarded(|| prepare(pins, &source, base.as_ref(), &making, options, background));
                let _ = send.send(Message::Prepared { source, result, elapsed: start.elapsed() });
            }
        })?;
        let (rebase, orders) = sync_channel::<RebaseOrder>(1);
        let send = messages.clone();
        spawn(scope, move || {
            for order in orders {
                let start = Instant::now();
                let result = guarded(|| rebasing::make(&order, pins, targets, background));
                let _ = send.send(Message::Rebased { name: order.name, result, elapsed: start.elapsed() });
            }
        })?;
        let mut to_targets = Vec::new();
        for (at, target) in targets.iter().enumerate() {
            let (tasks, inbox) = sync_channel::<Box<(Task, TargetContents)>>(1);
            let send = messages.clone();
            spawn(scope, move || {
                for task in inbox {
                    let result = guarded(|| target.run(&task.0, &task.1, background));
                    let _ = send.send(Message::Target { at, result });
                }
            })?;
            to_targets.push(tasks);
        }
        let (hooks, events) = sync_channel::<Event>(HOOKS_MAX);
        let send = messages.clone();
        spawn(scope, move || {
            for event in events {
                let Some((is_failure, facts)) = event.facts() else { continue };
                let program = if is_failure { &options.on_failed } else { &options.on_published };
                if let Some(program) = program
                    && let Err(error) = run_hook(program, &facts, options.hook_timeout, background.progress)
                {
                    let failed = Event::Failed { error, target: None, retry: None, is_of_hook: true };
                    let _ = send.send(Message::Event(failed));
                }
            }
        })?;
        Ok(Self { prepare: prepare_orders, rebase, targets: to_targets, hooks })
    }

    /// Queues a hook for this event, if there is one; returns false if too many are waiting.
    pub fn tell(&self, event: &Event) -> bool {
        event.facts().is_none() || !matches!(self.hooks.try_send(event.clone()), Err(TrySendError::Full(_)))
    }
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
    let options =
        VerifyOptions::default().check(how.check.clone()).threads(how.threads).io_policy(how.io_policy.clone());
    // Superseded records are read a second time, in pieces that share pages: their pages are dropped only at the end.
    let _watch = how.io_policy.io_hint.watch(how.base.as_deref().into_iter().chain([path]));
    let archive = NamedArchive::from_path(path);
    let base = how.base.as_deref().map(NamedArchive::from_path);
    let report = match &base {
        Some(base) => verify_archives(base, Some(&archive), &options, progress),
        None => verify_archives(&archive, None, &options, progress),
    };
    report?.require_ok()
}

/// Runs a hook with these environment variables and no input; its output goes to stderr. The hook and its child
/// processes are killed after `timeout`, or when the user interrupts the run.
fn run_hook(
    program: &Path,
    facts: &[(&'static str, String)],
    timeout: Duration,
    progress: &dyn Progress,
) -> Result<()> {
    let failed = |why: String| Error::failed(format!("{}: {why}", program.shown()));
    let mut command = Command::new(program);
    command.envs(facts.iter().cloned()).stdin(Stdio::null()).stdout(std::io::stderr()).process_group(0);
    let mut child = command.spawn().map_err(|error| failed(format!("cannot be started: {error}")))?;
    let start = Instant::now();
    loop {
        match child.try_wait() {
            Ok(Some(status)) if status.success() => return Ok(()),
            Ok(Some(status)) => return Err(failed(format!("it failed ({status})"))),
            Ok(None) if start.elapsed() < timeout && !progress.is_interrupted() => std::thread::sleep(HOOK_TICK),
            ended => {
                let _ = kill_process_group(Pid::from_child(&child), Signal::KILL);
                let _ = child.wait();
                return Err(failed(match ended {
                    Err(error) => format!("cannot be waited for: {error}"),
                    _ => format!("it was killed after {} s", start.elapsed().as_secs()),
                }));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use slotpress_base::NoProgress;

    use super::*;

    #[test]
    fn facts_arrive_and_what_hangs_is_killed() {
        let dir = tempfile::tempdir().expect("a directory");
        let program = dir.path().join("hook");
        let write = |text: &str| {
            fs::write(&program, format!("#!/bin/sh\n{text}\n")).expect("written");
            fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).expect("set");
        };
        let facts = [("PUBLISH_ARCHIVE", "a $(touch x); b".to_string()), ("TO", dir.path().shown())];
        write("printf '%s' \"$PUBLISH_ARCHIVE\" > \"$TO/told\"");
        run_hook(&program, &facts, HOOK_TIMEOUT_DEFAULT, &NoProgress).expect("runs");
        assert_eq!(fs::read_to_string(dir.path().join("told")).expect("told"), facts[0].1);
        write("exit 3");
        assert!(
            run_hook(&program, &facts, HOOK_TIMEOUT_DEFAULT, &NoProgress)
                .expect_err("fails")
                .to_string()
                .contains("failed")
        );
        write("sleep 1000 & sleep 1000");
        let error = run_hook(&program, &facts, Duration::ZERO, &NoProgress).expect_err("killed");
        assert!(error.to_string().contains("killed"), "{error}");
    }
}
