//! Many kills at random moments: the next run of the same command succeeds, with the same result as
//! without kills.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::common::firedancer::{NEW_CHAIN, command, full, incremental};
use crate::common::scenarios::{make_old_state, read_moved_aside, state_files};
use crate::common::seeded_rng::SeededRng;
use crate::common::strace::number_from_env;
use crate::common::*;

struct KilledCommand<'a> {
    label: &'static str,
    kills: usize,
    command: Box<dyn Fn(&Path) -> Command + 'a>,
}

/// Returns all files except locks and files that were moved aside.
fn result_files(dir: &Path) -> Vec<(String, Option<Vec<u8>>)> {
    let is_result = |path: &String| !path.ends_with(".lock") && !path.contains("slotpress-replaced-");
    tree(dir).into_iter().filter(|(path, _)| is_result(path)).collect()
}

/// `KILLS_SEED` selects other moments.
#[test]
#[ignore = "takes a few minutes: 600 kills of restore, 300 each of archive, recompress, rebase"]
fn the_run_after_a_kill_has_the_same_result() {
    let mut rng = SeededRng::new(number_from_env("KILLS_SEED", 1));
    let agave_archives = [fixture(FULL_26), fixture(INCREMENTAL_26_40)];
    let firedancer_archives = [full(NEW_CHAIN), incremental(NEW_CHAIN)];
    let command_with = |name: &str, arguments: &[&Path], out_flag: &str, dir: &Path| {
        let mut command = command(name);
        command.args(arguments).arg(out_flag).arg(dir);
        command
    };
    let [agave_full, agave_incremental] = agave_archives.each_ref().map(|path| path.as_path());
    // An old state of the same slot, with an older and a newer bank snapshot.
    let old = temp_dir();
    make_old_state(agave_full, 26, old.path(), &old.path().join("accounts"));
    let ledger = ledger("ledger-at-40");
    let commands = [
        KilledCommand {
            label: "restore",
            kills: 200,
            command: Box::new(|dir| command_with("restore", &[agave_full, agave_incremental], "--ledger", dir)),
        },
        KilledCommand {
            label: "restore, of Firedancer",
            kills: 200,
            command: Box::new(|dir| {
                command_with("restore", &[&firedancer_archives[0], &firedancer_archives[1]], "--ledger", dir)
            }),
        },
        KilledCommand {
            label: "restore --replace-state",
            kills: 200,
            command: Box::new(|dir| {
                command_with("restore", &[agave_full, Path::new("--replace-state")], "--ledger", dir)
            }),
        },
        KilledCommand {
            label: "archive",
            kills: 300,
            command: Box::new(|dir| command_with("archive", &[ledger.path()], "-o", dir)),
        },
        KilledCommand {
            label: "recompress",
            kills: 300,
            command: Box::new(|dir| command_with("recompress", &[agave_full], "-o", dir)),
        },
        KilledCommand {
            label: "rebase",
            kills: 300,
            command: Box::new(|dir| {
                let arguments = [agave_full, agave_incremental, Path::new("--onto"), agave_full];
                command_with("rebase", &arguments, "-o", dir)
            }),
        },
    ];
    for KilledCommand { label, kills, command } in &commands {
        let new_dir = || {
            let dir = temp_dir();
            if label.ends_with("--replace-state") {
                copy_tree(old.path(), dir.path());
            }
            dir
        };
        let whole = new_dir();
        let started = Instant::now();
        assert!(command(whole.path()).output().expect("runs").status.success(), "{label}");
        let duration = started.elapsed();
        let expected = result_files(whole.path());
        let mut killed = 0;
        while killed < *kills {
            let dir = new_dir();
            let mut child = command(dir.path()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("starts");
            std::thread::sleep(Duration::from_nanos(rng.below(duration.as_nanos() as usize) as u64));
            child.kill().expect("killed");
            killed += usize::from(!child.wait().expect("ends").success());
            let left = result_files(dir.path());
            // The result is complete, but the journal may still exist.
            let is_done = expected.iter().all(|file| left.contains(file));
            let again = command(dir.path()).output().expect("runs");
            let code = again.status.code();
            let stderr = String::from_utf8_lossy(&again.stderr);
            assert!(code == Some(0) || (code == Some(5) && is_done), "{label}, {killed}: {code:?} {stderr}");
            assert!(result_files(dir.path()) == expected, "{label}, {killed}: {:?}", relative_paths(dir.path()));
            if label.ends_with("--replace-state") {
                let aside = [read_moved_aside(dir.path()), read_moved_aside(&dir.path().join("accounts"))];
                for (path, file) in state_files(old.path()).into_iter().chain(state_files(&old.path().join("accounts")))
                {
                    assert!(aside.iter().any(|aside| aside.get(&path) == Some(&file)), "{killed}: {path} is lost");
                }
            }
        }
    }
}
