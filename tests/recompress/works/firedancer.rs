//! Archives by Firedancer's own producer, recompressed.

use std::fs;

use crate::common::firedancer::*;
use crate::common::oracle::Oracle;
use crate::common::*;

/// Recompressed archives have the same entries, and an index.
#[test]
fn recompressed_archives_keep_their_entries() {
    let (dir, source, incremental) = (temp_dir(), full(NEW_CHAIN), incremental(NEW_CHAIN));
    let (code, report, stderr) =
        run_command_to_first_line(command("recompress").arg(&source).arg("-o").arg(dir.path()));
    assert_eq!(code, 0, "{stderr}");
    assert!(report["root"].is_string(), "{report}");
    assert_eq!(stderr, "");
    let made = dir.path().join(name(&source));
    assert!(entries(&made) == entries(&source));
    // An incremental archive, on its base.
    let mut recompress = command("recompress");
    let (code, _, stderr) =
        run_command_to_first_line(recompress.arg(&incremental).arg("--base").arg(&made).arg("-o").arg(dir.path()));
    assert_eq!(code, 0, "{stderr}");
    let made_incremental = dir.path().join(name(&incremental));
    assert!(entries(&made_incremental) == entries(&incremental));
    assert_eq!(verify(&[&made, &made_incremental], &["--for", "agave,firedancer"]).0, 0);
    // The full archive of a pair may lack stakes.
    let mut recompress = command("recompress");
    recompress.arg(&incremental).arg("--base").arg(full(CHAIN_WITHOUT_STAKES)).arg("--force").arg("-o").arg(dir.path());
    assert_eq!(run_command_to_first_line(&mut recompress).0, 0);
}

/// Empty storages, which no client loads, are left out, and the program says so.
#[test]
fn empty_storages_are_left_out() {
    let (dir, source) = (temp_dir(), full(NEW_CHAIN));
    let mut with_empty = entries(&source);
    let first_storage = with_empty.iter().position(is_storage).expect("a storage");
    with_empty.insert(first_storage, TarEntry { path: "accounts/1.7".to_string(), kind: b'0', content: Vec::new() });
    let source_dir = dir.path().join("source");
    fs::create_dir(&source_dir).expect("made");
    let source_with_empty = source_dir.join(name(&source));
    write_archive(&source_with_empty, &with_empty);
    assert_eq!(verify(&[&source_with_empty], &["--for", "firedancer"]).0, 3);
    let out = dir.path().join("out");
    fs::create_dir(&out).expect("made");
    let (code, _, stderr) =
        run_command_to_first_line(command("recompress").arg(&source_with_empty).arg("-o").arg(&out));
    assert_eq!(code, 0, "{stderr}");
    assert!(stderr.contains("were left out"), "{stderr}");
    let made = out.join(name(&source));
    assert_eq!(verify(&[&made], &["--for", "agave,firedancer"]).0, 0);
    assert!(entries(&made) == entries(&source));
    // From a pipe, superseded records are read again from what was written.
    fs::remove_file(&made).expect("removed");
    let mut recompress = command("recompress");
    recompress.args(["--json", "-", "-o"]).arg(&out).stdin(fs::File::open(&source_with_empty).expect("opened"));
    let output = recompress.output().expect("runs");
    let printed = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    assert!(output.status.success(), "{printed}");
    assert!(printed.contains("were left out"), "{printed}");
    assert!(printed.contains(r#""state":"checked""#), "{printed}");
    assert!(entries(&made) == entries(&source), "{printed}");
}

/// Firedancer writes 0 hashes per tick if the chain does not define a number. Only Agave refuses such archives.
#[test]
fn archives_without_hashes_per_tick_are_recompressed_with_a_warning() {
    let dir = temp_dir();
    let (full, incremental) = (full(NEW_CHAIN), incremental("firedancer-2026-09/full-bank-hashes-0"));
    let (code, report, stderr) = verify(&[&full, &incremental], &[]);
    assert_eq!(code, 0, "{stderr}");
    assert!(loads(&report, "firedancer"), "{report}");
    assert!(!loads(&report, "agave-4.2"), "{report}");
    assert_eq!(verify(&[&full, &incremental], &["--for", "firedancer"]).0, 0);
    let (code, report, _) = verify(&[&full, &incremental], &["--for", "agave"]);
    let rules: Vec<_> =
        report["failures"].as_array().expect("failures").iter().map(|failure| failure["rule"].clone()).collect();
    assert_eq!((code, rules), (3, vec!["no-hashes-per-tick".into()]), "{report}");
    let (code, _, stderr) = run_command_to_first_line(
        command("recompress").arg(&incremental).arg("--base").arg(&full).arg("-o").arg(dir.path()),
    );
    assert_eq!(code, 0, "{stderr}");
    assert!(stderr.contains("only Firedancer loads it"), "{stderr}");
    let genesis = genesis_of(AGAVE_4_4);
    let genesis = genesis.parent().expect("a directory");
    for oracle in Oracle::all() {
        assert!(oracle.try_load(&full, Some(&incremental), genesis).is_err());
    }
}
