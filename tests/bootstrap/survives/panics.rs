//! A panic in a thread that fetches or reads: the run ends with an error, and the next one
//! continues.

#![cfg(debug_assertions)]

use crate::common::faults::panics_at;
use crate::common::site::*;
use crate::common::*;

/// Panic points that every run reaches, and panic points of each way to fetch.
const EVERYWHERE: [&str; 4] = ["asking", "resolver", "download", "journal"];

#[test]
fn a_panic_in_a_worker_of_the_network_ends_the_run() {
    let files = pair_of_archives();
    let expected = restore_files(&files);
    for (way, places) in [(Way::Ranges, ["stream", "range"].as_slice()), (Way::Whole, &["whole file"])] {
        let server = serve(&files, way);
        // A host name, so that the run looks it up.
        let url = format!("http://localhost:{}/", server.address.port());
        for command in ["fetch", "bootstrap"] {
            let of_restore: &[&str] = if command == "bootstrap" { &["unpacking", "placing"] } else { &[] };
            for place in EVERYWHERE.iter().chain(places).chain(of_restore) {
                for number in [1, 2] {
                    let dir = temp_dir();
                    let out = dir.path().join("out");
                    let more = if command == "fetch" { ["-o", text(&out)] } else { ["--ledger", text(&out)] };
                    let arguments = [&[command, &url, "--streams", "3"][..], &more].concat();
                    if panics_at(&arguments, place, number, None).is_none() {
                        continue;
                    }
                    let at = format!("{command}, {way:?}, {place} {number}");
                    let found = if out.exists() { names(&out) } else { Vec::new() };
                    assert!(!found.iter().any(|name| name.contains("slotpress-partial")), "{at}: {found:?}");
                    assert!(!found.iter().any(|name| name.ends_with("fastboot_version")), "{at}: {found:?}");
                    let output = run(&arguments);
                    assert_eq!(output.code, Some(0), "{at}: {output:?}");
                    match command {
                        "fetch" => assert!(files_in(&out) == files, "{at}: {:?}", names(&out)),
                        _ => assert!(ledger_tree(&out) == ledger_tree(&expected.path().join("ledger")), "{at}"),
                    }
                }
            }
        }
    }
}
