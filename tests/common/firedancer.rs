//! Archives that Firedancer's own producer wrote, and what is made of them.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::common::*;

/// Chains as Firedancer archived them, and Agave's archives of the same states.
pub const CHAINS: [(&str, &str, &str); 3] = [
    ("firedancer-2026-08/chain", "agave-4.2.2", "26"),
    ("firedancer-2026-08/chain-4.5", AGAVE_4_5, "26"),
    ("firedancer-2026-08/validator", "agave-validator-4.2.2", "3500"),
];

pub fn full(chain: &str) -> PathBuf {
    fixture_of(chain, "snapshot-")
}

pub fn incremental(chain: &str) -> PathBuf {
    fixture_of(chain, "incremental-")
}

/// The exit code of a command, the first line that it prints as JSON, and its errors.
pub fn run(command: &mut Command) -> (i32, serde_json::Value, String) {
    let output = command.arg("--json").stdin(Stdio::null()).output().expect("runs");
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    (output.status.code().expect("a code"), first_line(&output.stdout), stderr)
}

pub fn command(word: &str) -> Command {
    let mut command = Command::new(slotpress_path());
    command.arg(word);
    command
}

pub fn verify(archives: &[&Path], flags: &[&str]) -> (i32, serde_json::Value, String) {
    run(command("verify").args(archives).args(flags))
}

/// Makes an archive for Agave in `dir`; returns its path.
pub fn convert(archive: &Path, base: Option<&Path>, genesis: &Path, dir: &Path) -> PathBuf {
    let mut recompress = command("recompress");
    recompress.arg(archive).args(["--for", "agave", "--genesis"]).arg(genesis).arg("-o").arg(dir);
    base.map(|base| recompress.arg("--base").arg(base));
    let (code, _, stderr) = run(&mut recompress);
    assert_eq!(code, 0, "{}: {stderr}", archive.display());
    dir.join(name(archive))
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
