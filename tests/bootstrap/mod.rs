//! `slotpress bootstrap` against servers that are good, bad, slow, dead, or lie: real sockets, on
//! this machine only.

mod works {
    mod bases;
    mod firedancer;
    mod ledgers;
    mod servers;
    mod sources;
}
mod refused {
    mod bases;
    mod disks;
    mod ledgers;
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

use crate::common::oracle::Oracle;
use crate::common::served::Server;
use crate::common::site::{ledger_tree, run};
use crate::common::*;
use crate::rebase::{rebase, two_full_archives};

/// A mirror with the newest full archive, and with an incremental one on an older full archive,
/// which it does not have.
pub struct Mirror {
    pub server: Server,
    olds: TempDir,
    old: String,
    new: String,
    rebased: String,
}

impl Mirror {
    pub fn start() -> Self {
        let dir = temp_dir();
        let olds = temp_dir();
        let [old, new] = two_full_archives("agave-4.2.2", dir.path());
        let rebased = name(&rebase(&[&new], &old, dir.path(), &["--frame-size", "64KiB"]));
        fs::copy(&old, olds.path().join(name(&old))).expect("copied");
        let old = name(&old);
        let new = name(&new);
        Self { server: Server::start_in(dir, &[]), olds, old, new, rebased }
    }

    /// Puts the older full archive into a directory.
    fn put_old(&self, dir: &Path) -> PathBuf {
        fs::create_dir_all(dir).expect("made");
        fs::copy(self.olds.path().join(&self.old), dir.join(&self.old)).expect("copied");
        dir.join(&self.old)
    }

    fn restore_old(&self) -> BTreeMap<String, Option<Vec<u8>>> {
        let dir = temp_dir();
        let ledger = dir.path().join("ledger");
        let old = self.put_old(dir.path());
        let rebased = self.server.path(&self.rebased);
        let output = run(&["restore", text(&old), text(&rebased), "--ledger", text(&ledger)]);
        assert_eq!(output.code, Some(0), "{output:?}");
        ledger_tree(&ledger)
    }

    fn list(&self) -> String {
        self.server.get("/api/v1/archives", "").text()
    }

    /// Serves only the newest full archive.
    fn validator(&self) -> Server {
        let dir = temp_dir();
        fs::copy(self.server.path(&self.new), dir.path().join(&self.new)).expect("copied");
        Server::start_in(dir, &[])
    }
}

/// A mirror with the newest full archive, and with a rebased one on each of several older full
/// archives.
struct Fleet {
    server: Server,
    olds: Vec<PathBuf>,
    new: String,
    hash: String,
    genesis: TempDir,
    _olds: TempDir,
}

impl Fleet {
    fn start(count: usize) -> Self {
        let dir = temp_dir();
        let olds = temp_dir();
        let genesis = temp_dir();
        // States of one synthetic chain, one for each day.
        let archive_of_day = |day: usize, out: &Path| {
            let ledger = temp_dir();
            let ledger = ledger.path().join("ledger");
            let size = format!("{}MiB", day + 2);
            let output = run(&["synth", text(&ledger), "--size", "16MiB", "--incremental", &size]);
            assert_eq!(output.code, Some(0), "{output:?}");
            let output = run(&["archive", text(&ledger), "-o", text(out)]);
            assert_eq!(output.code, Some(0), "{output:?}");
            fs::copy(ledger.join("genesis.bin"), genesis.path().join("genesis.bin")).expect("copied");
            PathBuf::from(output.line("archive")["path"].as_str().expect("a path"))
        };
        let olds_of: Vec<PathBuf> = (1..=count).map(|day| archive_of_day(day, olds.path())).collect();
        let new = archive_of_day(count + 1, dir.path());
        for old in &olds_of {
            rebase(&[&new], old, dir.path(), &[]);
        }
        let new = name(&new);
        let hash = slotpress_format::ArchiveName::parse(&new).expect("a name").hash.to_string();
        Self { server: Server::start_in(dir, &[]), olds: olds_of, new, hash, genesis, _olds: olds }
    }

    /// Loads the ledger with Agave itself, if `AGAVE_ORACLE` is set.
    fn check(&self, ledger: &Path) {
        let slot = slotpress_format::ArchiveName::parse(&self.new).expect("a name").slot;
        for oracle in Oracle::all() {
            let snapshot = ledger.join(format!("snapshots/{slot}"));
            oracle.load_dir(&snapshot, &[ledger.join("accounts")], self.genesis.path());
        }
    }
}
