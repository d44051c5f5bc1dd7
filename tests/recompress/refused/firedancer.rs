//! Archives that Firedancer's own producer wrote: read as what they are, and made into what Agave loads.

use std::path::Path;
use std::process::Command;

use crate::common::firedancer::*;
use crate::common::*;

/// What cannot be had, or be checked, is refused.
#[test]
fn what_cannot_be_converted_is_refused() {
    let dir = temp_dir();
    let out = dir.path();
    let (chain, agave, _) = CHAINS[0];
    let refused = |command: &mut Command, code: i32, why: &str| {
        let (found, _, stderr) = run(command);
        assert!(found == code && stderr.contains(why), "{found}: {stderr}");
        assert!(names(out).iter().all(|name| !name.contains("snapshot-")), "{:?}", names(out));
    };
    let for_agave = |archive: &Path| {
        let mut command = command("recompress");
        command.arg(archive).args(["--for", "agave", "-o"]).arg(out);
        command
    };
    refused(&mut for_agave(&incremental(chain)), 1, "full archive");
    refused(for_agave(&full(chain)).args(["--check", "frames"]), 2, "check of the state");
    let other = genesis_of(AGAVE_4_5);
    refused(for_agave(&full(chain)).arg("--genesis").arg(other), 2, "not that of the archive's chain");
    // Its slots took 50 ms, which Firedancer does not know.
    let (validator, ..) = CHAINS[2];
    refused(&mut for_agave(&full(validator)), 1, "the time of a slot");
    // An archive of Agave's is recompressed as ever.
    let (code, _, stderr) = run(&mut for_agave(&fixture_of(agave, "snapshot-26-")));
    assert_eq!(code, 0, "{stderr}");
}
