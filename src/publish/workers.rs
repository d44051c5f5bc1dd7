//! The threads that do what the plan says, and what they tell the one that plans: one prepares archives, each target has one, one
//! runs programs of the operator.

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
use super::target::{TargetContents, TargetWorker, Task};
use super::upload::Making;
use crate::archive::sink::Sink;
use crate::recompress::{RecompressOptions, Source, recompress};

/// For its head start, a new archive is taken to have at most so many times the bytes of its source: one of level 19 has half
/// of one of level 1. One that has more is sent when it is ready.
const RATIO_MAX: u64 = 2;

/// Programs of the operator that wait for their turn; more are left out, which is said.
const HOOKS_MAX: usize = 64;

/// How long a program may take: it tells an operator, or starts what takes longer.
pub const HOOK_TIMEOUT_DEFAULT: Duration = Duration::from_secs(60);

/// How often it is looked at whether a program has ended.
const HOOK_TICK: Duration = Duration::from_millis(20);

/// What the planning thread hears.
#[derive(Debug)]
pub enum Message {
    /// Something happened.
    Event(Event),
    /// An archive was prepared, under this new name, or was not.
    Prepared {
        /// The archive.
        source: ArchiveName,
        /// Its new name.
        result: Result<ArchiveName>,
        /// How long that took.
        elapsed: Duration,
    },
    /// A target has done what it was to do.
    Target {
        /// Which.
        at: usize,
        /// What it has now.
        result: Result<TargetContents>,
    },
}

/// The progress of the work of other threads: they end when the user asks to stop, or when there is nothing more to do. What
/// they warn of is shown; bars are not, since several would.
pub struct Background<'a> {
    /// What the user sees.
    pub progress: &'a dyn Progress,
    /// There is nothing more to do.
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

/// Where work is handed out. Each thread ends with what it waits for.
pub struct Workers {
    /// To the thread that prepares: an archive, the full one below it that is pinned, and those who wait for it.
    pub prepare: SyncSender<(ArchiveName, Option<ArchiveName>, Arc<Making>)>,
    /// To each target.
    pub targets: Vec<SyncSender<Box<(Task, TargetContents)>>>,
    hooks: SyncSender<Event>,
}

impl Workers {
    /// Starts the threads.
    ///
    /// # Errors
    /// No thread is to be had.
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
        Ok(Self { prepare: prepare_orders, targets: to_targets, hooks })
    }

    /// Has a program of the operator told, where there is one for this; `false` where too many wait.
    pub fn tell(&self, event: &Event) -> bool {
        event.facts().is_none() || !matches!(self.hooks.try_send(event.clone()), Err(TrySendError::Full(_)))
    }
}

/// How the state of an archive will have been checked. An incremental one's takes reading its full one.
pub fn state_of(name: &ArchiveName, options: &PublishOptions) -> StateCheck {
    match name.base_slot.is_none() || options.checks_pairs {
        true => StateCheck::Checked,
        false => StateCheck::Unchecked,
    }
}

/// Checks an archive that is pinned, and recompresses it on the way: what gets a name in the directory of ready ones is whole.
/// Returns its new name. `base`: the full archive below it, pinned too. `making` is told where it is made.
/// Fails as [`Damaged`](slotpress_base::ErrorKind::Damaged) where the archive is not sound.
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
    // Opened anew: what is written around the page cache is read through it.
    making.grows(File::open(new.path()).or_path("open", new.path())?, source_bytes.saturating_mul(RATIO_MAX));
    let name = recompress(Source::File(path), Sink::unnamed(&new), &how, progress)?.name;
    new.publish(&name.to_string(), true)?;
    Ok(name)
}

/// Checks an archive that is published as it is. Recompressing makes good how an archive is packed, and so tolerates more than
/// `verify`; here nothing is made good.
fn check_as_is(path: &Path, how: &RecompressOptions, progress: &dyn Progress) -> Result<()> {
    let options =
        VerifyOptions::default().check(how.check.clone()).threads(how.threads).io_policy(how.io_policy.clone());
    // Superseded records are read again by pieces that share pages.
    let _watch = how.io_policy.io_hint.watch(how.base.as_deref().into_iter().chain([path]));
    let archive = NamedArchive::from_path(path);
    let base = how.base.as_deref().map(NamedArchive::from_path);
    let report = match &base {
        Some(base) => verify_archives(base, Some(&archive), &options, progress),
        None => verify_archives(&archive, None, &options, progress),
    };
    report?.require_ok()
}

/// Runs a program with these variables, without input, and what it writes as ours. It is killed, with what it has started,
/// when its time is over, or when the user asks to stop.
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
