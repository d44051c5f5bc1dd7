//! Archives that only Firedancer loads are refused; `recompress` converts them.

use std::io::{Read, Write};
use std::path::Path;
use std::process::{Command, Stdio};

use crate::common::firedancer::*;
use crate::common::*;

/// Returns the files of a ledger, which must be its genesis alone.
fn left(ledger: &Path) -> Vec<String> {
    names(ledger).into_iter().filter(|name| !name.ends_with(".lock")).collect()
}

/// Refused before anything is written, with commands that help.
#[test]
fn an_archive_for_firedancer_alone_is_refused() {
    let (chain, agave, _) = CHAINS[0];
    let agaves = ["snapshot-26-", "incremental-"].map(|prefix| fixture_of(agave, prefix));
    let firedancers = [full(chain), incremental(chain)];
    for (pair, converted) in [
        (vec![&firedancers[0]], 1),
        (vec![&firedancers[0], &firedancers[1]], 2),
        (vec![&firedancers[0], &agaves[1]], 1),
        (vec![&agaves[0], &firedancers[1]], 1),
    ] {
        let dir = temp_dir();
        let ledger = empty_ledger_of(agave, dir.path(), "ledger");
        let mut pair: Vec<_> = pair.into_iter().cloned().collect();
        for number in 0..converted {
            for more in [&["--dry-run"][..], &[], &["--ignore-index"], &["--replace-state"]] {
                let (code, _, stderr) = run(command("restore").args(&pair).arg("--ledger").arg(&ledger).args(more));
                assert!(code == 1 && stderr.contains("only Firedancer loads it"), "{code}: {stderr}");
                assert_eq!(left(&ledger), ["genesis.bin"], "{stderr}");
            }
            // The commands of the hint work as printed.
            let output = command("restore").args(&pair).arg("--ledger").arg(&ledger).output().expect("runs");
            let stderr = String::from_utf8_lossy(&output.stderr).replace(['\n', '`'], " ");
            let advice = &stderr[stderr.find("slotpress recompress").expect("a command")..];
            let advice = advice.split('`').next().expect("it is in backquotes");
            let words: Vec<&str> = advice.split_whitespace().skip(1).collect();
            let (out, dir_at) = (dir.path().join(format!("out-{number}")), words.iter().position(|it| *it == "DIR"));
            std::fs::create_dir(&out).expect("made");
            let words = &words[..dir_at.expect("a directory")];
            let made = Command::new(slotpress_path()).args(words).arg(&out).output().expect("runs");
            assert!(made.status.success(), "{advice}: {}", String::from_utf8_lossy(&made.stderr));
            let at = pair.iter().position(|archive| text(archive) == words[3]).expect("one of the pair");
            pair[at] = out.join(name(&pair[at]));
        }
        let (code, _, stderr) = run(command("restore").args(&pair).arg("--ledger").arg(&ledger));
        assert_eq!(code, 0, "{stderr}");
    }
}

/// From a pipe, the archive is refused as soon as the bank file shows it, without waiting for the
/// rest.
#[test]
fn from_a_pipe_it_is_refused_as_soon_as_it_shows() {
    let (dir, (chain, agave, _)) = (temp_dir(), CHAINS[0]);
    let ledger = empty_ledger_of(agave, dir.path(), "ledger");
    let archive = std::fs::read(full(chain)).expect("read");
    let mut restore = command("restore");
    restore.args(["-", "--ledger"]).arg(&ledger).stdin(Stdio::piped()).stderr(Stdio::piped());
    let mut child = restore.spawn().expect("starts");
    let mut input = child.stdin.take().expect("a pipe");
    input.write_all(&archive[..archive.len() / 2]).expect("taken");
    let mut stderr = String::new();
    child.stderr.take().expect("a pipe").read_to_string(&mut stderr).expect("read");
    assert_eq!(child.wait().expect("ends").code(), Some(1), "{stderr}");
    let said = stderr.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(said.contains("only Firedancer loads it") && said.contains("recompress --for agave FILE"), "{stderr}");
    assert_eq!(left(&ledger), ["genesis.bin"], "{stderr}");
}
