//! Archives by Firedancer's own producer, which `verify` finds good.

use std::path::Path;
use std::process::Stdio;

use crate::common::firedancer::*;
use crate::common::*;

#[test]
fn they_are_verified_for_each_client() {
    let full = full(NEW);
    let incremental = incremental(NEW);
    for archives in [&[full.as_path()][..], &[&full, &incremental]] {
        let (code, report, stderr) = verify(archives, &["--for", "agave,firedancer"]);
        assert!(code == 0 && report["warnings"] == serde_json::json!([]), "{report} {stderr}");
    }
}

/// `inspect` recognizes the maker by tar headers, or by the note of a recompressed archive: bank
/// file and slots of storages no longer show it.
#[test]
fn inspect_says_who_made_them() {
    let inspected = |archive: &Path| {
        let (code, report, stderr) = run(command("inspect").arg(archive));
        assert_eq!(code, 0, "{stderr}");
        let shown = command("inspect").arg(archive).output().expect("runs").stdout;
        (report["is_from_firedancer"] == true, String::from_utf8_lossy(&shown).into_owned())
    };
    for chain in [OLD, NO_STAKES, NEW] {
        let dir = temp_dir();
        let (is_firedancers, shown) = inspected(&full(chain));
        assert!(is_firedancers && shown.contains("Firedancer; no index") && shown.contains("of tar"), "{shown}");
        if chain != NEW {
            continue;
        }
        assert_eq!(run(command("recompress").arg(full(chain)).arg("-o").arg(dir.path())).0, 0);
        let (is_firedancers, shown) = inspected(&dir.path().join(name(&full(chain))));
        assert!(is_firedancers && shown.contains("of an archive of Firedancer's"), "{shown}");
        let input = std::fs::File::open(full(chain)).expect("opened");
        let mut piped = command("recompress");
        piped.args(["-", "--force", "-o"]).arg(dir.path()).stdin(Stdio::from(input));
        assert!(piped.output().expect("runs").status.success());
        assert!(inspected(&dir.path().join(name(&full(chain)))).0, "{chain}");
    }
    for agaves in [fixture(FULL_26), fixture_of(AGAVE_4_4, "snapshot-26-"), fixture_of(AGAVE_4_5, "incremental-")] {
        assert!(!inspected(&agaves).0, "{}", agaves.display());
    }
}
