//! A panic in a thread that fetches or reads ends the run with an error. The next run continues.

#![cfg(debug_assertions)]

use crate::common::faults::assert_panic_is_error;
use crate::common::site::*;
use crate::common::*;

/// Panic points that every run reaches.
const EVERYWHERE: [&str; 4] = ["asking", "resolver", "download", "journal"];

#[test]
fn a_run_that_panicked_is_finished_by_the_next() {
    let files = pair_of_archives();
    let expected = restore_files(&files);
    for (mode, places) in
        [(TransferMode::Ranges, ["stream", "range"].as_slice()), (TransferMode::Whole, &["whole file"])]
    {
        let server = serve(&files, mode);
        // With a host name, the run starts the resolver.
        let url = format!("http://localhost:{}/", server.address.port());
        for command in ["fetch", "bootstrap"] {
            let places_of_restore: &[&str] = if command == "bootstrap" { &["unpacking", "placing"] } else { &[] };
            for place in EVERYWHERE.iter().chain(places).chain(places_of_restore) {
                for number in [1, 2] {
                    let dir = temp_dir();
                    let out = dir.path().join("out");
                    let target = if command == "fetch" { ["-o", text(&out)] } else { ["--ledger", text(&out)] };
                    let arguments = [&[command, &url, "--streams", "3"][..], &target].concat();
                    if assert_panic_is_error(&arguments, place, number, None).is_none() {
                        continue;
                    }
                    let case = format!("{command}, {mode:?}, {place} {number}");
                    let left = if out.exists() { relative_paths(&out) } else { Vec::new() };
                    assert!(!left.iter().any(|name| name.contains("slotpress-partial")), "{case}: {left:?}");
                    assert!(!left.iter().any(|name| name.ends_with("fastboot_version")), "{case}: {left:?}");
                    let output = run_to_json(&arguments);
                    assert_eq!(output.code, Some(0), "{case}: {output:?}");
                    match command {
                        "fetch" => assert!(files_in(&out) == files, "{case}: {:?}", relative_paths(&out)),
                        _ => assert!(ledger_tree(&out) == ledger_tree(&expected.path().join("ledger")), "{case}"),
                    }
                }
            }
        }
    }
}
