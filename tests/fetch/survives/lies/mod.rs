//! Servers that lie, as a table. To add a lie, add an entry to `LIES`.
//!
//! Each entry lists the behavior of the servers in every run, and how each run must end: its exit
//! code, and the archive that then has the name, if any. All runs of an entry use one directory.
//! `LIES_RUNS` sets how many times each entry runs; `LIES_ONLY` selects entries by a part of their
//! names. The test prints a table; docs/reliability.md has its total.

mod behaviors;
mod lying_server;
mod random;
mod restart;
pub mod script;
mod table;

use std::fs;
use std::path::Path;

use behaviors::*;
use lying_server::*;

use crate::common::{http as server, strace, *};
use crate::parsers::targets::wrapped;

/// A lie of servers, and its expected result.
pub struct Lie {
    pub name: &'static str,
    /// Description of the servers' behavior, for the table.
    pub description: &'static str,
    pub archive: ArchiveKind,
    /// Prepares the directory before the first run.
    pub prepare: Option<fn(&Archive, &Path)>,
    pub command: &'static str,
    /// More arguments of the command; `ROOT` is replaced with the archive's root.
    pub flags: &'static [&'static str],
    pub runs: &'static [Run],
}

/// One run of the program, and its expected result.
pub struct Run {
    pub servers: &'static [Behavior],
    pub exit_code: i32,
    pub named: NamedFile,
}

/// The file that has the archive's name after a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NamedFile {
    Original,
    /// The archive that was published later.
    Other,
    Nothing,
    /// The file that the directory had before the run.
    AsBefore,
}

const fn expect_run(servers: &'static [Behavior], exit_code: i32, named: NamedFile) -> Run {
    Run { servers, exit_code, named }
}

/// Runs an entry in a new directory. Returns the number of runs, or a description of the failure.
fn check_lie(lie: &Lie) -> Result<usize, String> {
    let archive = Archive::get(lie.archive);
    let dir = temp_dir();
    let out = dir.path().join("out");
    fs::create_dir(&out).expect("made");
    if let Some(prepare) = lie.prepare {
        prepare(archive, &out);
    }
    let before = fs::read(out.join(&archive.name)).ok();
    for (number, run) in lie.runs.iter().enumerate() {
        let servers: Vec<LyingServer> =
            run.servers.iter().map(|behavior| LyingServer::start(archive, *behavior)).collect();
        let urls = servers.iter().map(LyingServer::url);
        let target = match lie.command {
            "bootstrap" => ["--ledger", text(&out)],
            _ => ["-o", text(&out)],
        };
        let flags = lie.flags.iter().map(|flag| flag.replace("ROOT", &archive.root));
        let output = std::process::Command::new("timeout")
            // Far longer than any run takes: a run that exceeds this hangs.
            .arg("60")
            .arg(slotpress_path())
            .arg(lie.command)
            .args(urls)
            .args(target)
            .args(flags)
            .env_remove("RUST_BACKTRACE")
            .output()
            .expect("runs");
        let context = format!("{}, run {}: {}", lie.name, number + 1, String::from_utf8_lossy(&output.stderr));
        if output.status.code() != Some(run.exit_code) {
            return Err(format!("exit code {:?}, expected {}: {context}", output.status.code(), run.exit_code));
        }
        let named_bytes = fs::read(out.join(&archive.name)).ok();
        let expected = match run.named {
            NamedFile::Original => Some(&archive.original),
            NamedFile::Other => Some(&archive.other),
            NamedFile::Nothing => None,
            NamedFile::AsBefore => before.as_ref(),
        };
        if named_bytes.as_ref() != expected {
            let length = named_bytes.map(|bytes| bytes.len());
            return Err(format!(
                "the file with the archive's name has {length:?} bytes: {context}{:?}",
                relative_paths(&out)
            ));
        }
        let sent_bytes: usize = servers.iter().map(LyingServer::sent_bytes).sum();
        // No run may fetch the archive many times over.
        if sent_bytes > 5 * archive.original.len() + (4 << 20) {
            return Err(format!("{sent_bytes} bytes were sent: {context}"));
        }
    }
    Ok(lie.runs.len())
}

#[test]
fn no_lie_leads_to_a_wrong_archive() {
    let times = strace::number_from_env("LIES_RUNS", 1) as usize;
    let only = std::env::var("LIES_ONLY").unwrap_or_default();
    let mut table =
        String::from("| What servers do | Archive | Exit codes | Named at the end | Runs |\n|---|---|---|---|---:|\n");
    let mut total_runs = 0;
    let mut failures = Vec::new();
    for lie in table::LIES.iter().filter(|lie| lie.name.contains(&only)) {
        let mut runs = 0;
        for _ in 0..times {
            match check_lie(lie) {
                Ok(count) => runs += count,
                Err(failure) => failures.push(failure),
            }
        }
        total_runs += runs;
        let codes: Vec<String> = lie.runs.iter().map(|run| run.exit_code.to_string()).collect();
        let named = match lie.runs.last().expect("a run").named {
            NamedFile::Original => "the archive",
            NamedFile::Other => "the archive that is published now",
            NamedFile::Nothing => "nothing",
            NamedFile::AsBefore => "what was there before",
        };
        table += &format!(
            "| `{}`: {} | {} | {} | {named} | {runs} |\n",
            lie.command,
            lie.description,
            lie.archive.label(),
            codes.join(", then ")
        );
    }
    table += &format!("| all | | | | {total_runs} |\n");
    assert!(failures.is_empty(), "{} failures:\n{}", failures.len(), failures.join("\n"));
    println!("{table}");
}
