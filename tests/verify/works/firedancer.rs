//! `verify` and `inspect` on undamaged archives that Firedancer wrote.

use std::path::Path;
use std::process::Stdio;

use crate::common::firedancer::*;
use crate::common::*;

#[test]
fn archives_of_firedancer_are_good_for_all_clients() {
    let full = full(NEW_CHAIN);
    let incremental = incremental(NEW_CHAIN);
    for archives in [&[full.as_path()][..], &[&full, &incremental]] {
        let (code, report, stderr) = verify(archives, &["--for", "agave,firedancer"]);
        assert_eq!(code, 0, "{report} {stderr}");
        assert_eq!(report["warnings"], serde_json::json!([]));
    }
}

/// Output of `inspect` on an archive.
struct Inspected {
    is_from_firedancer: bool,
    stdout: String,
}

fn inspect(archive: &Path) -> Inspected {
    let (code, report, stderr) = run_command_to_first_line(command("inspect").arg(archive));
    assert_eq!(code, 0, "{stderr}");
    let stdout = command("inspect").arg(archive).output().expect("runs").stdout;
    Inspected {
        is_from_firedancer: report["is_from_firedancer"] == true,
        stdout: String::from_utf8_lossy(&stdout).into_owned(),
    }
}

#[test]
fn inspect_recognizes_archives_of_firedancer() {
    for chain in [OLD_CHAIN, CHAIN_WITHOUT_STAKES, NEW_CHAIN] {
        let Inspected { is_from_firedancer, stdout } = inspect(&full(chain));
        assert!(is_from_firedancer, "{chain}: {stdout}");
        assert!(stdout.contains("made by         Firedancer\n"), "{chain}: {stdout}");
        assert!(stdout.contains("index           none"), "{chain}: {stdout}");
        assert!(stdout.contains("of tar"), "{chain}: {stdout}");
    }
}

/// The bank file and the slots of the storages do not show who wrote the original, but a note in the index does.
#[test]
fn inspect_recognizes_recompressed_archives_of_firedancer() {
    let dir = temp_dir();
    let source = full(NEW_CHAIN);
    let recompressed = dir.path().join(name(&source));
    let (code, _, stderr) = run_command_to_first_line(command("recompress").arg(&source).arg("-o").arg(dir.path()));
    assert_eq!(code, 0, "{stderr}");
    let Inspected { is_from_firedancer, stdout } = inspect(&recompressed);
    assert!(is_from_firedancer, "{stdout}");
    assert!(stdout.contains("from an archive made by Firedancer"), "{stdout}");
    let input = std::fs::File::open(&source).expect("opened");
    let mut piped = command("recompress");
    piped.args(["-", "--force", "-o"]).arg(dir.path()).stdin(Stdio::from(input));
    assert!(piped.output().expect("runs").status.success());
    assert!(inspect(&recompressed).is_from_firedancer);
}

#[test]
fn inspect_recognizes_archives_of_agave() {
    for archive in [fixture(FULL_26), fixture_of(AGAVE_4_4, "snapshot-26-"), fixture_of(AGAVE_4_5, "incremental-")] {
        assert!(!inspect(&archive).is_from_firedancer, "{}", archive.display());
    }
}
