//! Runs the operator's programs (hooks), on a thread of its own.

use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, channel, sync_channel};
use std::sync::{Arc, OnceLock};
use std::thread::Scope;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};
use slotpress_base::threads::{guarded, spawn};
use slotpress_base::{Error, Progress, Result, ShowPath};

use super::event::Event;
use crate::publish::PublishOptions;

/// Maximum number of hooks waiting to run. Further ones are skipped, with a warning.
const HOOKS_MAX: usize = 64;

/// Default of [`PublishOptions::hook_timeout`]: enough to notify an operator. A hook should start
/// longer work in the background.
pub const HOOK_TIMEOUT_DEFAULT: Duration = Duration::from_secs(60);

const HOOK_TICK: Duration = Duration::from_millis(20);

/// The thread that runs hooks, one after the other. When the run ends, all hooks that wait share
/// the time that one may take.
pub struct Hooks {
    queue: Option<SyncSender<Event>>,
    failures: Receiver<Error>,
    until: Arc<OnceLock<Instant>>,
    timeout: Duration,
}

impl Hooks {
    pub fn start<'s>(
        scope: &'s Scope<'s, '_>,
        options: &'s PublishOptions,
        progress: &'s dyn Progress,
    ) -> Result<Self> {
        let (queue, events) = sync_channel::<Event>(HOOKS_MAX);
        let (failed, failures) = channel();
        let until = Arc::new(OnceLock::new());
        let ends = until.clone();
        spawn(scope, move || {
            let mut left_out = 0_usize;
            for event in events {
                let Some((is_failure, facts)) = event.facts() else { continue };
                let program = if is_failure { &options.on_failed } else { &options.on_published };
                let Some(program) = program else { continue };
                let left = ends.get().map(|until: &Instant| until.saturating_duration_since(Instant::now()));
                if progress.is_interrupted() || left.is_some_and(|left| left.is_zero()) {
                    left_out = left_out.saturating_add(1);
                    continue;
                }
                let timeout = options.hook_timeout.min(left.unwrap_or(Duration::MAX));
                if let Err(error) = guarded(|| run_hook(program, &facts, timeout, progress)) {
                    drop(failed.send(error));
                }
            }
            if left_out > 0 {
                let message = format!("the run ended before {left_out} of the hooks were run");
                drop(failed.send(Error::failed(message)));
            }
        })?;
        Ok(Self { queue: Some(queue), failures, until, timeout: options.hook_timeout })
    }

    /// Queues the event for its hook, if it has one; returns false if too many are waiting.
    pub fn tell(&self, event: &Event) -> bool {
        let is_full = |queue: &SyncSender<Event>| matches!(queue.try_send(event.clone()), Err(TrySendError::Full(_)));
        event.facts().is_none() || !self.queue.as_ref().is_some_and(is_full)
    }

    /// Failures since the last call.
    pub fn failures(&self) -> impl Iterator<Item = Error> {
        self.failures.try_iter()
    }

    /// Waits for hooks that are queued; returns the last failures.
    pub fn end(&mut self) -> impl Iterator<Item = Error> {
        self.close();
        self.failures.iter()
    }

    fn close(&mut self) {
        let _ = self.until.set(Instant::now() + self.timeout);
        self.queue = None;
    }
}

impl Drop for Hooks {
    fn drop(&mut self) {
        self.close();
    }
}

/// Runs a hook with these environment variables and no input; its output goes to stderr. The hook
/// and its child processes are killed after `timeout`, or when the user interrupts the run.
fn run_hook(
    program: &Path,
    facts: &[(&'static str, String)],
    timeout: Duration,
    progress: &dyn Progress,
) -> Result<()> {
    let failed = |why: String| Error::failed(format!("{}: {why}", program.shown()));
    let mut command = Command::new(program);
    command.envs(facts.iter().cloned()).stdin(Stdio::null()).stdout(std::io::stderr()).process_group(0);
    let mut child = command.spawn().map_err(|error| {
        Error::io("start", program, &error)
            .with_hint("give a program with its full path that this user may run (chmod +x)")
    })?;
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
                    _ => format!(
                        "it was killed after {} s: it may take {} s",
                        start.elapsed().as_secs(),
                        timeout.as_secs()
                    ),
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

    /// At the end of a run, waiting hooks share the time of one.
    #[test]
    fn the_end_of_a_run_waits_as_long_as_for_one() {
        let dir = tempfile::tempdir().expect("a directory");
        let program = dir.path().join("hook");
        fs::write(&program, "#!/bin/sh\nsleep 1000\n").expect("written");
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).expect("set");
        let timeout = Duration::from_millis(200);
        let options = PublishOptions::new("/snapshots", []).on_failed(program).hook_timeout(timeout);
        std::thread::scope(|scope| {
            let mut hooks = Hooks::start(scope, &options, &NoProgress).expect("started");
            for _ in 0..20 {
                let failed =
                    Event::Failed { error: Error::failed("why"), target: None, retry: None, is_of_hook: false };
                assert!(hooks.tell(&failed));
            }
            let failures: Vec<String> = hooks.end().map(|error| error.to_string()).collect();
            let (last, killed) = failures.split_last().expect("failures");
            assert!(killed.len() < 20 && killed.iter().all(|why| why.contains("was killed")), "{failures:?}");
            assert!(last.contains(&format!("{} of the hooks", 20 - killed.len())), "{failures:?}");
        });
    }

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
