//! Runs the operator's programs (hooks) one after another. Only the end of a run waits for them.

use std::collections::VecDeque;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};
use slotpress_base::{Error, EscapePath, Progress, Result, progress};

use super::event::{HookVariables, PublishEvent};
use crate::publish::PublishOptions;

/// Maximum number of hooks that wait to run: even if each takes a minute, the last one reports its event
/// about an hour late. Further hooks are skipped, with a warning.
const WAITING_HOOKS_MAX: usize = 64;

/// Time after which a hook is killed: enough to notify an operator. A hook should start longer work
/// in the background.
const HOOK_TIMEOUT: Duration = Duration::from_secs(60);

const HOOK_CHECK_INTERVAL: Duration = Duration::from_millis(20);

/// The waiting hooks and the running one. When the run ends, all of them share the timeout of one
/// hook.
pub struct Hooks<'a> {
    options: &'a PublishOptions,
    timeout: Duration,
    waiting: VecDeque<(&'a Path, HookVariables)>,
    running: Option<RunningHook<'a>>,
}

struct RunningHook<'a> {
    program: &'a Path,
    child: Child,
    start: Instant,
}

impl Drop for Hooks<'_> {
    fn drop(&mut self) {
        if let Some(hook) = &mut self.running {
            kill(&mut hook.child);
        }
    }
}

impl<'a> Hooks<'a> {
    pub fn new(options: &'a PublishOptions) -> Self {
        Self { options, timeout: HOOK_TIMEOUT, waiting: VecDeque::new(), running: None }
    }

    /// Queues the hook for an event, if there is one. Returns false if too many hooks are waiting.
    pub fn queue(&mut self, event: &PublishEvent) -> bool {
        let program = match event {
            PublishEvent::Published(_) => &self.options.on_published,
            PublishEvent::Refused { .. } | PublishEvent::Skipped { .. } | PublishEvent::Failed { .. } => {
                &self.options.on_failed
            }
            _ => return true,
        };
        let Some(program) = program else { return true };
        if self.waiting.len() == WAITING_HOOKS_MAX {
            return false;
        }
        self.waiting.push_back((program, event.variables()));
        true
    }

    /// Starts the next hook if none is running. Kills the running hook after its timeout. Fails if a hook
    /// failed or was killed.
    pub fn poll(&mut self) -> Result<()> {
        let Some(mut hook) = self.running.take() else {
            if let Some((program, variables)) = self.waiting.pop_front() {
                self.running = Some(RunningHook::start(program, variables)?);
            }
            return Ok(());
        };
        let program = hook.program;
        let failed = |reason: String| Err(Error::failed(format!("{}: {reason}", program.escaped())));
        match hook.child.try_wait() {
            Ok(Some(status)) if status.success() => Ok(()),
            Ok(Some(status)) => failed(format!("it failed ({status})")),
            Ok(None) if hook.start.elapsed() < self.timeout => {
                self.running = Some(hook);
                Ok(())
            }
            Ok(None) => {
                kill(&mut hook.child);
                let timeout_seconds = self.timeout.as_secs();
                failed(format!("it was killed: it took more than {timeout_seconds} s"))
            }
            Err(error) => {
                kill(&mut hook.child);
                failed(format!("cannot wait for it: {error}"))
            }
        }
    }

    /// Runs the waiting hooks until all have ended, the timeout is over, or the user interrupts the run.
    /// Returns the failures, one of which counts the unfinished hooks.
    pub fn end(&mut self, progress: &dyn Progress) -> Vec<Error> {
        let start = Instant::now();
        let mut failures = Vec::new();
        while !self.is_idle() && !progress.is_interrupted() && start.elapsed() < self.timeout {
            failures.extend(self.poll().err());
            progress::wait(progress, if self.running.is_some() { HOOK_CHECK_INTERVAL } else { Duration::ZERO });
        }
        if !self.is_idle() {
            let unfinished = self.waiting.len() + usize::from(self.running.is_some());
            let message = format!("the run ended before {unfinished} of the hooks had finished");
            failures.push(Error::failed(message));
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

impl<'a> RunningHook<'a> {
    fn start(program: &'a Path, variables: HookVariables) -> Result<Self> {
        let mut command = Command::new(program);
        command.stdin(Stdio::null()).stdout(std::io::stderr());
        command.envs(variables).process_group(0);
        let child = command.spawn().map_err(|error| {
            Error::io("start", program, &error)
                .with_hint("pass the full path of a program that this user may run (chmod +x)")
        })?;
        Ok(Self { program, child, start: Instant::now() })
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;
    use std::path::PathBuf;

    use slotpress_base::NoProgress;

    use super::*;

    fn write_hook(dir: &Path, script: &str) -> PathBuf {
        let program = dir.join("hook");
        fs::write(&program, format!("#!/bin/sh\n{script}\n")).expect("written");
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).expect("set");
        program
    }

    fn run_hooks(dir: &Path, script: &str, count: usize, timeout: Duration) -> Vec<String> {
        let options = PublishOptions::new("/snapshots", []).on_failed(write_hook(dir, script));
        let mut hooks = Hooks::new(&options);
        hooks.timeout = timeout;
        for _ in 0..count {
            let error = Error::failed("a $(touch x); b");
            assert!(hooks.queue(&PublishEvent::Failed { error, target: None, retry: None }));
        }
        hooks.end(&NoProgress).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn all_hooks_share_one_timeout_at_the_end_of_a_run() {
        let dir = tempfile::tempdir().expect("a directory");
        let failures = run_hooks(dir.path(), "sleep 1000", 20, Duration::from_millis(200));
        assert!(failures.last().expect("failures").contains("of the hooks"), "{failures:?}");
    }

    #[test]
    fn hooks_get_variables_and_their_failures_are_reported() {
        let dir = tempfile::tempdir().expect("a directory");
        let output = dir.path().join("output");
        let script = format!("printf '%s' \"$PUBLISH_MESSAGE$PUBLISH_TARGET\" > {}", output.escaped());
        assert_eq!(run_hooks(dir.path(), &script, 1, HOOK_TIMEOUT), [""; 0]);
        assert_eq!(fs::read_to_string(output).expect("read"), "a $(touch x); b");
        assert!(run_hooks(dir.path(), "exit 3", 1, HOOK_TIMEOUT)[0].contains("failed (exit status: 3)"));
    }

    #[test]
    fn a_hook_that_hangs_is_killed() {
        let dir = tempfile::tempdir().expect("a directory");
        let options = PublishOptions::new("/snapshots", []).on_failed(write_hook(dir.path(), "sleep 1000"));
        let mut hooks = Hooks::new(&options);
        hooks.timeout = Duration::ZERO;
        let error = Error::failed("why");
        hooks.queue(&PublishEvent::Failed { error, target: None, retry: None });
        hooks.poll().expect("started");
        assert!(hooks.running.is_some());
        assert!(hooks.poll().expect_err("killed").to_string().contains("it was killed"));
        assert!(hooks.is_idle());
    }
}
