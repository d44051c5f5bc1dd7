//! Flags of `levels link` that make no sense are refused before work starts.

use crate::common::slotpress;

/// Refused before any work: the input, which does not exist, is not even opened.
#[test]
fn impossible_links_are_refused_at_once() {
    let valid = ["--bandwidth", "1Gbit"];
    let invalid: [&[&str]; 14] = [
        &[],
        &["--bandwidth", "0"],
        &["--bandwidth", "0Gbit"],
        &["--bandwidth", "-1Gbit"],
        &["--bandwidth", "nan"],
        &["--bandwidth", "1"],
        &[valid[0], valid[1], "--rtt", "-1ms"],
        &[valid[0], valid[1], "--rtt", "nanms"],
        &[valid[0], valid[1], "--streams", "0"],
        &[valid[0], valid[1], "--nodes", "0"],
        &[valid[0], valid[1], "--egress-price", "-1"],
        &[valid[0], valid[1], "--place-rate", "0"],
        &[valid[0], valid[1], "--window", "0"],
        &[valid[0], valid[1], "--codec", "lz5"],
    ];
    for arguments in invalid {
        let assert = slotpress().args(["levels", "link", "/nowhere"]).args(arguments).assert().code(2);
        let stderr = String::from_utf8_lossy(&assert.get_output().stderr).into_owned();
        assert!(!stderr.contains("/nowhere"), "{arguments:?}: {stderr}");
        assert!(stderr.starts_with("error: "), "{arguments:?}: {stderr}");
    }
    slotpress().args(["levels", "link", "/nowhere"]).args(valid).assert().code(1);
}
