//! Sends signals at chosen moments of a long run.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::OnceLock;

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::common::*;

/// A ledger, its archive, and its slot. The ledger is large enough that a signal arrives during a run.
pub struct LargeLedger {
    _dir: TempDir,
    pub ledger: PathBuf,
    pub archive: PathBuf,
    pub slot: String,
}

/// Returns the ledger, which is made once.
pub fn large_ledger() -> &'static LargeLedger {
    static LEDGER: OnceLock<LargeLedger> = OnceLock::new();
    LEDGER.get_or_init(|| {
        let dir = temp_dir();
        let ledger = dir.path().join("synth");
        synthetic_ledger(&ledger, 24 << 20, 300);
        let out = dir.path().join("archives");
        fs::create_dir(&out).expect("made");
        let archive = archive(&ledger, &out, &SLOW_ENCODING_FLAGS);
        let slot = name(&archive).split('-').nth(1).expect("a slot").to_string();
        LargeLedger { _dir: dir, ledger, archive, slot }
    })
}

/// Flags that make a run long enough for a signal in its middle.
pub const SLOW_ENCODING_FLAGS: [&str; 4] = ["--zstd-level", "7", "--frame-size", "64KiB"];

/// The moment of a run at which the signal is sent: its name, and a function that returns true from then on.
pub type Moment<'a> = (&'a str, Box<dyn Fn() -> bool + 'a>);

/// Starts the program, sends the signal at the moment, and waits for the end.
pub fn run_and_signal(command: &mut Command, signal: Signal, moment: &Moment<'_>) -> ExitStatus {
    let mut child: Child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("runs");
    let (_, is_now) = moment;
    loop {
        if let Some(status) = child.try_wait().expect("a child") {
            return status;
        }
        if is_now() {
            let pid = Pid::from_raw(child.id() as i32).expect("a process");
            // The program may have ended just now. Its id stays its own until `wait`.
            let _ = kill_process(pid, signal);
            return child.wait().expect("a child");
        }
        std::thread::yield_now();
    }
}

/// Returns the length of the largest temporary file.
pub fn temporary_bytes(out: &Path) -> Option<u64> {
    let files = fs::read_dir(out).ok()?.filter_map(|entry| Some(entry.ok()?.path()));
    files.filter(|path| name(path).starts_with("tmp-")).filter_map(|path| Some(fs::metadata(path).ok()?.len())).max()
}
