//! Fixtures that Firedancer wrote.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::common::*;

/// The chain of `agave-4.2.2`, as Firedancer archived it before September 2026.
pub const OLD_CHAIN: &str = "firedancer-2026-08/chain";

/// The chain of `agave-4.4.0`, as Firedancer archived it in September 2026: with a slot for each storage, without
/// stakes, and with a status cache of one slot.
pub const CHAIN_WITHOUT_STAKES: &str = "firedancer-2026-09/names";

/// The chain of `agave-4.4.0`, as Firedancer has archived it since then.
pub const NEW_CHAIN: &str = "firedancer-2026-09/full-bank";

/// Hint for an archive that no version of Agave loads.
pub const HINT: &str = "use Agave's archive, or one that Firedancer wrote since September 2026";

pub fn full(chain: &str) -> PathBuf {
    fixture_of(chain, "snapshot-")
}

pub fn incremental(chain: &str) -> PathBuf {
    fixture_of(chain, "incremental-")
}

/// Runs a command with `--json`. Returns its exit code, the object on its first line, and its stderr.
pub fn run_command_to_first_line(command: &mut Command) -> (i32, serde_json::Value, String) {
    let output = command.arg("--json").stdin(Stdio::null()).output().expect("runs");
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    (output.status.code().expect("a code"), first_line(&output.stdout), stderr)
}

pub fn command(name: &str) -> Command {
    let mut command = Command::new(slotpress_path());
    command.arg(name);
    command
}

pub fn verify(archives: &[&Path], flags: &[&str]) -> (i32, serde_json::Value, String) {
    run_command_to_first_line(command("verify").args(archives).args(flags))
}

pub fn genesis_of(agave: &str) -> PathBuf {
    fixture_of(agave, "genesis.bin")
}

pub fn loads(report: &serde_json::Value, client: &str) -> bool {
    let clients = report["clients"].as_array().expect("verdicts");
    clients.iter().find(|verdict| verdict["client"] == client).expect("a verdict")["loads"] == true
}

pub fn is_storage(entry: &TarEntry) -> bool {
    entry.path.starts_with("accounts/") && !entry.path.ends_with('/')
}

/// Makes a ledger that has only the genesis of a chain.
pub fn empty_ledger_of(agave: &str, dir: &Path, name: &str) -> PathBuf {
    let ledger = dir.join(name);
    fs::create_dir(&ledger).expect("made");
    fs::copy(genesis_of(agave), ledger.join("genesis.bin")).expect("copied");
    ledger
}
