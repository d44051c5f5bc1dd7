//! Servers that lie, as a table: what each does, and how the run must end. A new lie is one entry
//! of `LIES`.
//!
//! Each entry says what the servers do in every run, and how each run must end: its exit code, and
//! which archive then has its name, if any. All runs of an entry use one directory. `LIES_RUNS`
//! repeats each entry so often; `LIES_ONLY` selects entries whose name contains it. Prints a table;
//! docs/reliability.md has its sum.

mod plays;
mod random;
mod restart;
pub mod script;
mod stage;
mod table;

use std::fs;
use std::path::Path;

use plays::*;
use stage::*;

use crate::common::{http as server, strace, *};
use crate::parsers::targets::wrapped;

/// A lie of servers, and what must come of it.
pub struct Lie {
    /// Its name.
    pub name: &'static str,
    /// What the servers do, for the table.
    pub does: &'static str,
    /// The archive.
    pub archive: Kind,
    /// Prepares the directory before the first run.
    pub before: Option<fn(&Archive, &Path)>,
    /// The program's command.
    pub command: &'static str,
    /// More of its arguments; `ROOT` stands for the archive's root.
    pub flags: &'static [&'static str],
    /// The runs, one after the other.
    pub runs: &'static [Run],
}

/// One run of the program.
pub struct Run {
    /// What each server does.
    pub servers: &'static [Play],
    /// Its exit code.
    pub code: i32,
    /// The file that then has the archive's name.
    pub named: Named,
}

/// The file with an archive's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Named {
    /// The archive.
    Right,
    /// The one that was published later.
    Other,
    /// Nothing.
    Nothing,
    /// The file that was there before.
    AsBefore,
}

const fn run(servers: &'static [Play], code: i32, named: Named) -> Run {
    Run { servers, code, named }
}

/// Plays a lie in a new directory; returns the number of runs, or what went wrong.
fn play(lie: &Lie) -> Result<usize, String> {
    let archive = Archive::of(lie.archive);
    let dir = temp_dir();
    let out = dir.path().join("out");
    fs::create_dir(&out).expect("made");
    if let Some(before) = lie.before {
        before(archive, &out);
    }
    let before = fs::read(out.join(&archive.name)).ok();
    for (number, run) in lie.runs.iter().enumerate() {
        let servers: Vec<Stage> = run.servers.iter().map(|play| Stage::start(archive, *play)).collect();
        let urls = servers.iter().map(Stage::url);
        let more = match lie.command {
            "bootstrap" => ["--ledger".to_string(), text(&out)],
            _ => ["-o".to_string(), text(&out)],
        };
        let flags = lie.flags.iter().map(|flag| flag.replace("ROOT", &archive.root));
        let output = std::process::Command::new("timeout")
            // Far longer than any run takes: a run that is not done then hangs.
            .arg("60")
            .arg(slotpress_path())
            .arg(lie.command)
            .args(urls)
            .args(more)
            .args(flags)
            .env_remove("RUST_BACKTRACE")
            .output()
            .expect("runs");
        let at = format!("{}, run {}: {}", lie.name, number + 1, String::from_utf8_lossy(&output.stderr));
        if output.status.code() != Some(run.code) {
            return Err(format!("exit code {:?} in place of {}: {at}", output.status.code(), run.code));
        }
        let found = fs::read(out.join(&archive.name)).ok();
        let expected = match run.named {
            Named::Right => Some(&archive.right),
            Named::Other => Some(&archive.other),
            Named::Nothing => None,
            Named::AsBefore => before.as_ref(),
        };
        if found.as_ref() != expected {
            return Err(format!("{:?} bytes have the name: {at}{:?}", found.map(|bytes| bytes.len()), names(&out)));
        }
        let sent: usize = servers.iter().map(Stage::sent_bytes).sum();
        // No run may fetch the archive many times over.
        if sent > 5 * archive.right.len() + (4 << 20) {
            return Err(format!("{sent} bytes were sent: {at}"));
        }
    }
    Ok(lie.runs.len())
}

fn text(path: &Path) -> String {
    path.to_str().expect("plain").to_string()
}

#[test]
fn lies_come_to_nothing() {
    let times = strace::number_of("LIES_RUNS", 1) as usize;
    let only = std::env::var("LIES_ONLY").unwrap_or_default();
    let mut table =
        String::from("| What servers do | Archive | Exit codes | Named at the end | Runs |\n|---|---|---|---|---:|\n");
    let mut all = 0;
    let mut wrong = Vec::new();
    for lie in table::LIES.iter().filter(|lie| lie.name.contains(&only)) {
        let mut runs = 0;
        for _ in 0..times {
            match play(lie) {
                Ok(more) => runs += more,
                Err(why) => wrong.push(why),
            }
        }
        all += runs;
        let codes: Vec<String> = lie.runs.iter().map(|run| run.code.to_string()).collect();
        let named = match lie.runs.last().expect("a run").named {
            Named::Right => "the archive",
            Named::Other => "the archive that is published now",
            Named::Nothing => "nothing",
            Named::AsBefore => "what was there before",
        };
        table += &format!(
            "| `{}`: {} | {} | {} | {named} | {runs} |\n",
            lie.command,
            lie.does,
            lie.archive.told(),
            codes.join(", then ")
        );
    }
    table += &format!("| all | | | | {all} |\n");
    assert!(wrong.is_empty(), "{} went wrong:\n{}", wrong.len(), wrong.join("\n"));
    println!("{table}");
}
