//! Old full archives, and incremental archives on them, are damaged, replaced or missing. The run fetches
//! the newest full archive, and says which bytes were fetched needlessly.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use crate::bootstrap::{Mirror, serve_with_list};
use crate::common::http::{Request, Server, send_response};
use crate::common::records::field;
use crate::common::site::*;
use crate::common::*;

/// Asserts that a run makes a ledger from the newest full archive alone, and warns of the other archives.
/// Returns the standard error.
fn assert_newest_full_alone(mirror: &Mirror, url: &str, ledger: &Path, case: &str) -> String {
    let output = run_to_json(&["bootstrap", url, "--ledger", text(ledger)]);
    assert_eq!(output.code, Some(0), "{case}: {output:?}");
    let archives = output.line("bootstrap")["archives"].as_array().expect("archives").clone();
    assert_eq!(archives.len(), 1, "{case}: {output:?}");
    assert_eq!(archives[0]["name"], mirror.new_name.as_str(), "{case}: {output:?}");
    assert!(output.stderr.contains("is not used any more"), "{case}: {output:?}");
    assert!(
        !relative_paths(ledger).iter().any(|name| name.starts_with("slotpress-fetch")),
        "{case}: {:?}",
        relative_paths(ledger)
    );
    output.stderr
}

/// The archive has frame hashes, and one byte of a frame is wrong.
#[test]
fn an_old_archive_with_a_damaged_frame_is_not_used() {
    let mirror = Mirror::start();
    let url = mirror.server.url("");
    let dir = temp_dir();
    let ledger = dir.path().join("ledger");
    let old = mirror.copy_old_to(&ledger);
    let recompressed = run_to_json(&["recompress", text(&old), "-o", text(&ledger), "--force"]);
    assert_eq!(recompressed.code, Some(0), "{recompressed:?}");
    let mut bytes = fs::read(&old).expect("read");
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(&old, bytes).expect("written");
    let stderr = assert_newest_full_alone(&mirror, &url, &ledger, "a damaged frame");
    assert!(!stderr.contains("for nothing"), "nothing was fetched yet: {stderr}");
}

/// The archive has a different valid state under its name. Only the hash over all accounts shows that.
#[test]
fn an_old_archive_with_another_state_is_not_used() {
    let mirror = Mirror::start();
    let url = mirror.server.url("");
    let dir = temp_dir();
    let ledger = dir.path().join("ledger");
    let old = mirror.copy_old_to(&ledger);
    let mut entries = entries(&old);
    let storage = entries.iter_mut().rfind(|entry| entry.path.starts_with("accounts/")).expect("a storage");
    storage.content[field::LAMPORTS.start] ^= 1;
    fs::write(&old, zstd::encode_all(make_tar(&entries).as_slice(), 1).expect("compressed")).expect("written");
    let stderr = assert_newest_full_alone(&mirror, &url, &ledger, "other lamports");
    assert!(stderr.contains(&format!("of {} were fetched for nothing", mirror.rebased_name)), "{stderr}");
}

/// The rebased archive is gone, damaged, or shorter than the source says.
#[test]
fn an_unusable_rebased_archive_is_not_used() {
    let mirror = Mirror::start();
    let files = mirror.read_files(&[&mirror.new_name, &mirror.rebased_name]);
    let list = mirror.archive_list();
    let mut damaged = files[&mirror.rebased_name].clone();
    let middle = damaged.len() / 3;
    damaged[middle] ^= 1;
    let cut = files[&mirror.rebased_name][..damaged.len() / 2].to_vec();
    let faults: BTreeMap<&str, Option<Vec<u8>>> =
        [("gone", None), ("damaged", Some(damaged)), ("truncated", Some(cut))].into();
    for (case, rebased) in faults {
        let files = files.clone();
        let list = list.clone();
        let name = mirror.rebased_name.clone();
        let liar = Server::start(move |request: &Request, stream| {
            let mut files = files.clone();
            if request.path.ends_with("/api/v1/archives") {
                return send_response(stream, "200 OK", &[("Content-Type", "application/json")], list.as_bytes());
            }
            // If the archive is gone, the server still answers HEAD requests for it.
            match &rebased {
                None if request.method == "GET" => {
                    files.remove(&name);
                }
                Some(bytes) => {
                    files.insert(name.clone(), bytes.clone());
                }
                None => {}
            }
            respond(&files, TransferMode::Ranges, request, stream)
        });
        let dir = temp_dir();
        let ledger = dir.path().join("ledger");
        mirror.copy_old_to(&ledger);
        assert_newest_full_alone(&mirror, &liar.url(""), &ledger, case);
    }
}

/// The list says that the rebased archive builds on the node's full archive, but its index names a full
/// archive of a different chain.
#[test]
fn a_rebased_archive_with_a_wrong_base_in_the_list_is_not_used() {
    let mirror = Mirror::start();
    let dir = temp_dir();
    let ledger = dir.path().join("ledger");
    fs::create_dir_all(&ledger).expect("made");
    let other = fixture_of("agave-4.4.0", "snapshot-26-");
    fs::copy(&other, ledger.join(name(&other))).expect("copied");
    let hash = |name: &str| slotpress_format::ArchiveName::parse(name).expect("a name").hash.to_string();
    let list = mirror.archive_list().replace(&hash(&mirror.old_name), &hash(&name(&other)));
    let liar = serve_with_list(mirror.read_files(&[&mirror.new_name, &mirror.rebased_name]), list);
    let stderr = assert_newest_full_alone(&mirror, &liar.url(""), &ledger, "a different chain");
    assert!(stderr.contains("for nothing"), "{stderr}");
}

/// The next run, with a good source, uses the old archive.
#[test]
fn the_old_archive_stays_when_the_sources_fail() {
    let mirror = Mirror::start();
    let list = mirror.archive_list();
    let dir = temp_dir();
    let ledger = dir.path().join("ledger");
    let old = mirror.copy_old_to(&ledger);
    let files = mirror.read_files(&[&mirror.new_name, &mirror.rebased_name]);
    // Answers HEAD, but sends no archive.
    let failing = Server::start(move |request: &Request, stream| {
        if request.path.ends_with("/api/v1/archives") {
            send_response(stream, "200 OK", &[("Content-Type", "application/json")], list.as_bytes())
        } else if request.method == "GET" {
            send_response(stream, "404 Not Found", &[], b"")
        } else {
            respond(&files, TransferMode::Ranges, request, stream)
        }
    });
    let output = run_to_json(&["bootstrap", &failing.url(""), "--ledger", text(&ledger)]);
    assert_eq!(output.code, Some(4), "{output:?}");
    assert!(old.exists(), "{:?}", relative_paths(&ledger));
    assert!(!ledger.join("snapshots/40").exists(), "{:?}", relative_paths(&ledger));
    let output = run_to_json(&["bootstrap", &mirror.server.url(""), "--ledger", text(&ledger)]);
    assert_eq!(output.code, Some(0), "{output:?}");
    assert_eq!(output.line("bootstrap")["archives"][1]["name"], mirror.rebased_name.as_str());
}

/// The file is named once, although the run scans the directory several times.
#[test]
fn a_truncated_file_beside_the_nodes_archives_is_named_once() {
    let mirror = Mirror::start();
    let dir = temp_dir();
    let ledger = dir.path().join("ledger");
    let old = mirror.copy_old_to(&ledger);
    let bytes = fs::read(&old).expect("read");
    let older = format!("snapshot-1-{}", name(&old).rsplit('-').next().expect("a hash"));
    fs::write(ledger.join(&older), &bytes[..bytes.len() / 2]).expect("written");
    let output = run_to_json(&["bootstrap", &mirror.server.url(""), "--ledger", text(&ledger)]);
    assert_eq!(output.code, Some(0), "{output:?}");
    assert_eq!(output.stderr.matches(&format!("{older} is not used: ")).count(), 1, "{output:?}");
}
