//! Runs the operator's programs (hooks), one after the other. Nothing waits for them but the end of
//! the run.

use std::collections::VecDeque;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};
use slotpress_base::{Error, EscapePath, Progress, Result, progress};

use super::event::{PublishEvent, Variables};
use crate::publish::PublishOptions;

/// Maximum number of hooks waiting to run. Further ones are skipped, with a warning.
const HOOKS_MAX: usize = 64;

/// Time after which a hook is killed: enough to notify an operator. A hook should start longer work
/// in the background.
const HOOK_TIMEOUT: Duration = Duration::from_secs(60);

const HOOK_TICK: Duration = Duration::from_millis(20);

/// The hooks that wait, and the hook that runs. When the run ends, all of them together get the time
/// that one hook may take.
pub struct Hooks<'a> {
    options: &'a PublishOptions,
    timeout: Duration,
    waiting: VecDeque<(&'a Path, Variables)>,
    running: Option<(&'a Path, Child, Instant)>,
}

impl Drop for Hooks<'_> {
    fn drop(&mut self) {
        if let Some((_, child, _)) = &mut self.running {
            kill(child);
        }
    }
}

impl<'a> Hooks<'a> {
    pub fn new(options: &'a PublishOptions) -> Self {
        Self { options, timeout: HOOK_TIMEOUT, waiting: VecDeque::new(), running: None }
    }

    /// Queues the event for its hook, if it has one; returns false if too many are waiting.
    pub fn queue(&mut self, event: &PublishEvent) -> bool {
        let program = match event {
            PublishEvent::Published(_) => &self.options.on_published,
            PublishEvent::Refused { .. } | PublishEvent::Skipped { .. } | PublishEvent::Failed { .. } => {
                &self.options.on_failed
            }
            _ => return true,
        };
        let Some(program) = program else { return true };
        let has_room = self.waiting.len() < HOOKS_MAX;
        self.waiting.extend(has_room.then(|| (program.as_path(), event.variables())));
        has_room
    }

    /// Starts the next hook if none runs; kills one that runs for too long. Fails if a hook failed.
    pub fn poll(&mut self) -> Result<()> {
        let Some((program, mut child, start)) = self.running.take() else {
            if let Some((program, variables)) = self.waiting.pop_front() {
                self.running = Some((program, start_hook(program, variables)?, Instant::now()));
            }
            return Ok(());
        };
        let failed = |why: String| Err(Error::failed(format!("{}: {why}", program.escaped())));
        match child.try_wait() {
            Ok(Some(status)) if status.success() => Ok(()),
            Ok(Some(status)) => failed(format!("it failed ({status})")),
            Ok(None) if start.elapsed() < self.timeout => {
                self.running = Some((program, child, start));
                Ok(())
            }
            Ok(None) => {
                kill(&mut child);
                failed(format!("it was killed: it took more than {} s", self.timeout.as_secs()))
            }
            Err(error) => {
                kill(&mut child);
                failed(format!("cannot wait for it: {error}"))
            }
        }
    }

    pub fn end(&mut self, progress: &dyn Progress) -> Vec<Error> {
        let start = Instant::now();
        let mut failures = Vec::new();
        while !self.is_idle() && !progress.is_interrupted() && start.elapsed() < self.timeout {
            failures.extend(self.poll().err());
            progress::wait(progress, if self.running.is_some() { HOOK_TICK } else { Duration::ZERO });
        }
        if !self.is_idle() {
            let left_out = self.waiting.len() + usize::from(self.running.is_some());
            failures.push(Error::failed(format!("the run ended before {left_out} of the hooks had finished")));
        }
        failures
    }

    fn is_idle(&self) -> bool {
        self.running.is_none() && self.waiting.is_empty()
    }
}

fn kill(child: &mut Child) {
    let _ = kill_process_group(Pid::from_child(child), Signal::KILL);
    let _ = child.wait();
}

fn start_hook(program: &Path, variables: Variables) -> Result<Child> {
    let mut command = Command::new(program);
    command.envs(variables).stdin(Stdio::null()).stdout(std::io::stderr()).process_group(0);
    command.spawn().map_err(|error| {
        Error::io("start", program, &error)
            .with_hint("give a program with its full path that this user may run (chmod +x)")
    })
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;
    use std::path::PathBuf;

    use slotpress_base::NoProgress;

    use super::*;

    fn run(dir: &Path, script: &str, count: usize, timeout: Duration) -> Vec<String> {
        let program = dir.join("hook");
        fs::write(&program, format!("#!/bin/sh\n{script}\n")).expect("written");
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).expect("set");
        let options = PublishOptions::new("/snapshots", []).on_failed(program);
        let mut hooks = Hooks::new(&options);
        hooks.timeout = timeout;
        for _ in 0..count {
            let error = Error::failed("a $(touch x); b");
            assert!(hooks.queue(&PublishEvent::Failed { error, target: None, retry: None }));
        }
        hooks.end(&NoProgress).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn the_end_of_a_run_waits_as_long_as_for_one() {
        let dir = tempfile::tempdir().expect("a directory");
        let failures = run(dir.path(), "sleep 1000", 20, Duration::from_millis(200));
        assert!(failures.last().expect("failures").contains("of the hooks"), "{failures:?}");
    }

    #[test]
    fn variables_arrive_and_failures_are_told() {
        let dir = tempfile::tempdir().expect("a directory");
        let told = dir.path().join("told");
        let minute = HOOK_TIMEOUT;
        let script = format!("printf '%s' \"$PUBLISH_MESSAGE$PUBLISH_TARGET\" > {}", told.escaped());
        assert_eq!(run(dir.path(), &script, 1, minute), [""; 0]);
        assert_eq!(fs::read_to_string(told).expect("told"), "a $(touch x); b");
        assert!(run(dir.path(), "exit 3", 1, minute)[0].contains("failed (exit status: 3)"));
    }

    #[test]
    fn what_hangs_is_killed() {
        let options = PublishOptions::new("/snapshots", []).on_failed(PathBuf::from("/usr/bin/yes"));
        let mut hooks = Hooks::new(&options);
        hooks.timeout = Duration::ZERO;
        let error = Error::failed("why");
        hooks.queue(&PublishEvent::Failed { error, target: None, retry: None });
        assert!(hooks.poll().is_ok() && hooks.running.is_some());
        assert!(hooks.poll().expect_err("killed").to_string().contains("it was killed") && hooks.is_idle());
    }
}
