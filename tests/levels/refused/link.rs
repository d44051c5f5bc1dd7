//! Flags of `levels link` that make no sense are refused before work starts.

use crate::common::slotpress;

/// Refused before any work: the input, which does not exist, is not even opened.
#[test]
fn impossible_links_are_refused_at_once() {
    let good = ["--bandwidth", "1Gbit"];
    let bad: [&[&str]; 14] = [
        &[],
        &["--bandwidth", "0"],
        &["--bandwidth", "0Gbit"],
        &["--bandwidth", "-1Gbit"],
        &["--bandwidth", "nan"],
        &["--bandwidth", "1"],
        &[good[0], good[1], "--rtt", "-1ms"],
        &[good[0], good[1], "--rtt", "nanms"],
        &[good[0], good[1], "--streams", "0"],
        &[good[0], good[1], "--nodes", "0"],
        &[good[0], good[1], "--egress-price", "-1"],
        &[good[0], good[1], "--place-rate", "0"],
        &[good[0], good[1], "--window", "0"],
        &[good[0], good[1], "--codec", "lz5"],
    ];
    for arguments in bad {
        let assert = slotpress().args(["levels", "link", "/nowhere"]).args(arguments).assert().code(2);
        let text = String::from_utf8_lossy(&assert.get_output().stderr).into_owned();
        assert!(!text.contains("/nowhere") && text.starts_with("error: "), "{arguments:?}: {text}");
    }
    slotpress().args(["levels", "link", "/nowhere"]).args(good).assert().code(1);
}
