//! Programs of the operator that are told what happened. Facts are in their environment: no shell reads a name.

use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use slotpress_base::{Error, Progress, Result, ShowPath};

/// How long a program may take: it tells an operator, or starts what takes longer.
pub const TIMEOUT_DEFAULT: Duration = Duration::from_secs(60);

/// How often it is looked at whether the program has ended.
const TICK: Duration = Duration::from_millis(20);

/// Runs a program with these variables, without input, and what it writes as ours. It is killed, with what it has started,
/// when its time is over, or when the user asks to stop.
///
/// # Errors
/// It cannot be started, fails, or takes too long.
pub fn run(program: &Path, facts: &[(&'static str, String)], timeout: Duration, progress: &dyn Progress) -> Result<()> {
    let failed = |why: String| Error::failed(format!("{}: {why}", program.shown()));
    let mut command = Command::new(program);
    command.envs(facts.iter().cloned()).stdin(Stdio::null()).stdout(std::io::stderr()).process_group(0);
    let mut child = command.spawn().map_err(|error| failed(format!("cannot be started: {error}")))?;
    let start = Instant::now();
    loop {
        match child.try_wait() {
            Ok(Some(status)) if status.success() => return Ok(()),
            Ok(Some(status)) => return Err(failed(format!("it failed ({status})"))),
            Ok(None) if start.elapsed() < timeout && !progress.is_interrupted() => std::thread::sleep(TICK),
            ended => {
                let _ = rustix::process::kill_process_group(
                    rustix::process::Pid::from_child(&child),
                    rustix::process::Signal::KILL,
                );
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
#[allow(clippy::expect_used)]
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
        run(&program, &facts, TIMEOUT_DEFAULT, &NoProgress).expect("runs");
        assert_eq!(fs::read_to_string(dir.path().join("told")).expect("told"), facts[0].1);
        write("exit 3");
        assert!(run(&program, &facts, TIMEOUT_DEFAULT, &NoProgress).expect_err("fails").to_string().contains("failed"));
        write("sleep 1000 & sleep 1000");
        let error = run(&program, &facts, Duration::ZERO, &NoProgress).expect_err("killed");
        assert!(error.to_string().contains("killed"), "{error}");
    }
}
