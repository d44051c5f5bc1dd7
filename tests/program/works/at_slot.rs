//! `contrib/at-slot`, with a stand-in for `agave-ledger-tool`. The stand-in keeps blocks as a list of
//! slots. Its replay always yields the fixture of slot 40, which Agave made. If `AGAVE_ORACLE` names a
//! program, Agave loads the scratch ledger first.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use tempfile::TempDir;

use crate::common::oracle::Oracle;
use crate::common::*;

struct Setup {
    dir: TempDir,
    at_40: TempDir,
}

impl Setup {
    /// Makes a directory with these archives, a validator's ledger with these blocks, and the stand-in.
    fn new(archives: &[&str], blocks: &str) -> Self {
        let setup = Self { dir: temp_dir(), at_40: ledger("ledger-at-40") };
        for dir in ["archives", "validator", "out", "bin"] {
            fs::create_dir(setup.path(dir)).expect("made");
        }
        for archive in archives {
            fs::copy(fixture(archive), setup.path("archives").join(archive)).expect("copied");
        }
        fs::copy(fixture("genesis.bin"), setup.path("validator/genesis.bin")).expect("copied");
        fs::write(setup.path("validator/blocks"), blocks).expect("written");
        let load_by_agave = Oracle::all().first().map_or("true".to_string(), |oracle| {
            format!(
                "{} loaddir \"$2/snapshots/26\" --accounts-run \"$2/accounts/run\" --genesis \"$2\"",
                text(&oracle.path)
            )
        });
        let tool = format!(
            "#!/bin/sh -e\n\
            case \"$3 $4\" in\n\
            'blockstore bounds') echo \"{{\\\"allSlots\\\":[$(cat $2/blocks)],\\\"slots\\\":{{}},\\\"roots\\\":{{}}}}\" ;;\n\
            'blockstore copy') echo \"$6 $8\" >\"${{10}}/blocks\" ;;\n\
            'create-snapshot 40') [ \"$(cat $2/blocks)\" = '26 40' ]; {load_by_agave}; exec {} archive {} -o \"$5\" ;;\n\
            *) exit 9 ;;\n\
            esac\n",
            text(&slotpress_path()),
            text(setup.at_40.path()),
        );
        write_program(&setup.path("bin/agave-ledger-tool"), &tool);
        std::os::unix::fs::symlink(slotpress_path(), setup.path("bin/slotpress")).expect("linked");
        setup
    }

    fn path(&self, inner: &str) -> PathBuf {
        self.dir.path().join(inner)
    }

    fn run(&self, slot: &str) -> Output {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("contrib/at-slot");
        let dirs = ["archives", "validator", "scratch", "out"].map(|inner| self.path(inner));
        let path = format!("{}:{}", text(&self.path("bin")), std::env::var("PATH").expect("set"));
        Command::new(script).arg(slot).args(dirs).env("PATH", path).output().expect("runs")
    }
}

#[test]
fn the_state_of_an_exact_slot_is_archived() {
    let setup = Setup::new(&[FULL_26], "25,26,27,39,40,41");
    let output = setup.run("40");
    let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{output:?}");
    let new_archive = PathBuf::from(stdout.lines().last().expect("a line"));
    let expected = expected_facts(AGAVE_4_2, 40);
    assert_eq!(
        name(&new_archive),
        format!("snapshot-40-{}.tar.zst", expected["snapshot_hash"].as_str().expect("a hash"))
    );
    assert!(stdout.contains("GOOD: "), "the archive is not verified: {stdout}");
}

#[test]
fn impossible_replays_are_refused_before_restoring() {
    for (archives, blocks, slot, words) in [
        (&[FULL_26][..], "30,31,40", "40", "an archive of slot 29 or later is needed, and the newest is of slot 26"),
        (&[FULL_26], "25,26,39,41", "40", "no block of slot 40"),
        (&[FULL_26], "", "40", "no blocks"),
        (&[FULL_26], "20,40", "25", "no archive of slot 25 or before"),
        (&[INCREMENTAL_26_40], "20,40", "40", "no archive of slot 40 or before"),
    ] {
        let setup = Setup::new(archives, blocks);
        let output = setup.run(slot);
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{words}: {stderr}");
        assert!(stderr.contains(words), "{words}: {stderr}");
        assert!(!setup.path("scratch").exists(), "{words}");
    }
    let setup = Setup::new(&[FULL_26, INCREMENTAL_26_40], "40");
    let output = setup.run("40");
    assert!(output.status.success(), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stdout).contains("slot 40 is already archived"), "{output:?}");
}
