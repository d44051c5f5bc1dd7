//! Runs the operator's programs, on a thread of its own.

use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc::{SyncSender, TrySendError, sync_channel};
use std::thread::Scope;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};
use slotpress_base::threads::spawn;
use slotpress_base::{Error, Progress, Result, ShowPath};

use super::event::Event;
use crate::publish::PublishOptions;

/// Limit of hooks waiting to run. Further ones are skipped, with a warning.
const HOOKS_MAX: usize = 64;

/// Default of [`PublishOptions::hook_timeout`]: enough to notify an operator. A hook should start longer work in the
/// background.
pub const HOOK_TIMEOUT_DEFAULT: Duration = Duration::from_secs(60);

const HOOK_TICK: Duration = Duration::from_millis(20);

/// The thread that runs them, one after the other.
pub struct Hooks(SyncSender<Event>);

impl Hooks {
    /// Starts the thread; `failed` is told of programs that fail.
    pub fn start<'s>(
        scope: &'s Scope<'s, '_>,
        options: &'s PublishOptions,
        progress: &'s dyn Progress,
        failed: impl Fn(Event) + Send + 's,
    ) -> Result<Self> {
        let (hooks, events) = sync_channel::<Event>(HOOKS_MAX);
        spawn(scope, move || {
            for event in events {
                let Some((is_failure, facts)) = event.facts() else { continue };
                let program = if is_failure { &options.on_failed } else { &options.on_published };
                if let Some(program) = program
                    && let Err(error) = run_hook(program, &facts, options.hook_timeout, progress)
                {
                    failed(Event::Failed { error, target: None, retry: None, is_of_hook: true });
                }
            }
        })?;
        Ok(Self(hooks))
    }

    /// Queues a hook for this event, if there is one; returns false if too many are waiting.
    pub fn tell(&self, event: &Event) -> bool {
        event.facts().is_none() || !matches!(self.0.try_send(event.clone()), Err(TrySendError::Full(_)))
    }
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
