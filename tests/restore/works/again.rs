//! A restored ledger is archived again.

use crate::common::screen::run_to_text;
use crate::common::*;
use crate::publish::setup::Setup;

/// The ledger is restored from a pair of Agave 4.2, and archived. Commands accept its full archive, and its incremental
/// archive together with the pair's full one. `publish` publishes the full archive.
#[test]
fn commands_accept_archives_of_a_restored_ledger() {
    let dir = temp_dir();
    let path = |name: &str| text(&dir.path().join(name)).to_string();
    let assert_succeeds = |arguments: &[&str]| {
        let (code, stdout, stderr) = run_to_text(arguments);
        assert_eq!(code, 0, "{arguments:?}: {stdout}{stderr}");
    };
    let [old_full, old_incremental] = [FULL_26, INCREMENTAL_26_40].map(fixture);
    assert_succeeds(&["restore", text(&old_full), text(&old_incremental), "--ledger", &path("ledger")]);
    let publisher = Setup::new(&[]);
    let ledger = dir.path().join("ledger");
    let out = publisher.snapshots();
    let full = archive(&ledger, &out, &["--verify"]);
    let on_old = archive(&ledger, dir.path(), &["--base-slot", "26", "--verify"]);
    for pair in [&[text(&full)][..], &[text(&old_full), text(&on_old)]] {
        let made = path(&format!("made-of-{}", pair.len()));
        std::fs::create_dir(&made).expect("made");
        assert_succeeds(&[&["verify", "--for", "agave,firedancer"], pair].concat());
        assert_succeeds(&[&["inspect", "--by-owner"], pair].concat());
        assert_succeeds(&[&["recompress", "-o", &made], pair].concat());
        assert_succeeds(&[&["restore", "--ledger", &format!("{made}/ledger")], pair].concat());
    }
    publisher.publish_once(&[]);
    assert_eq!(publisher.published(), [name(&full)]);
}
