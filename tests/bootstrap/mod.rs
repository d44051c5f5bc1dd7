//! `slotpress bootstrap` against servers that work, fail, stall, are dead or lie. The servers listen on
//! real sockets of this machine.

mod trust;
mod works {
    mod bases;
    mod firedancer;
    mod ledgers;
    mod servers;
    mod sources;
}
mod refused {
    mod bases;
    mod silence;
    mod sources;
}
mod survives {
    mod bases;
    mod choices;
    mod ledgers;
    mod panics;
    mod servers;
    mod serving;
    mod sources;
    mod swaps;
    mod worlds;
}

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use crate::common::http::{self, Request, send_response};
use crate::common::oracle::Oracle;
use crate::common::served::ServeProcess;
use crate::common::site::{Files, TransferMode, ledger_tree, respond, run_to_json};
use crate::common::*;
use crate::rebase::{rebase, two_full_archives};

/// A mirror with the newest full archive, and with a rebased incremental archive on an older full
/// archive, which the mirror does not have.
pub struct Mirror {
    pub server: ServeProcess,
    /// Directory with the older full archive.
    old_dir: TempDir,
    /// Name of the older full archive.
    old_name: String,
    /// Name of the newest full archive.
    new_name: String,
    /// Name of the incremental archive.
    rebased_name: String,
}

impl Mirror {
    pub fn start() -> Self {
        let dir = temp_dir();
        let old_dir = temp_dir();
        let [old, new] = two_full_archives("agave-4.2.2", dir.path());
        let rebased_name = name(&rebase(&[&new], &old, dir.path(), &["--frame-size", "64KiB"]));
        fs::copy(&old, old_dir.path().join(name(&old))).expect("copied");
        let old_name = name(&old);
        let new_name = name(&new);
        Self { server: ServeProcess::start_in(dir, &[]), old_dir, old_name, new_name, rebased_name }
    }

    /// Copies the older full archive into a directory. Returns its path there.
    fn copy_old_to(&self, dir: &Path) -> PathBuf {
        fs::create_dir_all(dir).expect("made");
        fs::copy(self.old_dir.path().join(&self.old_name), dir.join(&self.old_name)).expect("copied");
        dir.join(&self.old_name)
    }

    /// Restores the older full archive with the rebased one. Returns the files of the ledger.
    fn restore_rebased(&self) -> BTreeMap<String, Option<Vec<u8>>> {
        let dir = temp_dir();
        let ledger = dir.path().join("ledger");
        let old = self.copy_old_to(dir.path());
        let rebased = self.server.path(&self.rebased_name);
        let output = run_to_json(&["restore", text(&old), text(&rebased), "--ledger", text(&ledger)]);
        assert_eq!(output.code, Some(0), "{output:?}");
        ledger_tree(&ledger)
    }

    /// Returns the mirror's list of archives.
    fn archive_list(&self) -> String {
        self.server.get("/api/v1/archives", "").text()
    }

    /// Reads archives of the mirror.
    fn read_files(&self, names: &[&String]) -> Files {
        names.iter().map(|name| ((*name).clone(), fs::read(self.server.path(name)).expect("read"))).collect()
    }

    /// Starts a server that has only the newest full archive, like a validator.
    fn start_validator(&self) -> ServeProcess {
        let dir = temp_dir();
        fs::copy(self.server.path(&self.new_name), dir.path().join(&self.new_name)).expect("copied");
        ServeProcess::start_in(dir, &[])
    }
}

/// Serves these files with a list of archives.
fn serve_with_list(files: Files, list: String) -> http::Server {
    http::Server::start(move |request: &Request, stream| {
        if request.path.ends_with("/api/v1/archives") {
            send_response(stream, "200 OK", &[("Content-Type", "application/json")], list.as_bytes())
        } else {
            respond(&files, TransferMode::Ranges, request, stream)
        }
    })
}

/// A mirror with the newest full archive, and with a rebased incremental archive on each of several
/// older full archives.
struct FleetMirror {
    server: ServeProcess,
    /// Paths of the older full archives, each of which a node of the fleet has.
    old_archives: Vec<PathBuf>,
    /// Name of the newest full archive.
    new_name: String,
    /// Snapshot hash of the newest state.
    hash: String,
    genesis_dir: TempDir,
    _old_dir: TempDir,
}

impl FleetMirror {
    fn start(count: usize) -> Self {
        let dir = temp_dir();
        let old_dir = temp_dir();
        let genesis_dir = temp_dir();
        // Archives the state of one day of a synthetic chain.
        let archive_day = |day: usize, out: &Path| {
            let ledger_dir = temp_dir();
            let ledger = ledger_dir.path().join("ledger");
            let size = format!("{}MiB", day + 2);
            let output = run_to_json(&["synth", text(&ledger), "--size", "16MiB", "--incremental", &size]);
            assert_eq!(output.code, Some(0), "{output:?}");
            let output = run_to_json(&["archive", text(&ledger), "-o", text(out)]);
            assert_eq!(output.code, Some(0), "{output:?}");
            fs::copy(ledger.join("genesis.bin"), genesis_dir.path().join("genesis.bin")).expect("copied");
            PathBuf::from(output.line("archive")["path"].as_str().expect("a path"))
        };
        let old_archives: Vec<PathBuf> = (1..=count).map(|day| archive_day(day, old_dir.path())).collect();
        let new = archive_day(count + 1, dir.path());
        for old in &old_archives {
            rebase(&[&new], old, dir.path(), &[]);
        }
        let new_name = name(&new);
        let hash = slotpress_format::ArchiveName::parse(&new_name).expect("a name").hash.to_string();
        Self { server: ServeProcess::start_in(dir, &[]), old_archives, new_name, hash, genesis_dir, _old_dir: old_dir }
    }

    /// Asserts that Agave itself loads the ledger, if `AGAVE_ORACLE` is set.
    fn assert_agave_loads(&self, ledger: &Path) {
        let slot = slotpress_format::ArchiveName::parse(&self.new_name).expect("a name").slot;
        for oracle in Oracle::all() {
            let snapshot = ledger.join(format!("snapshots/{slot}"));
            oracle.load_dir(&snapshot, &[ledger.join("accounts")], self.genesis_dir.path());
        }
    }
}
