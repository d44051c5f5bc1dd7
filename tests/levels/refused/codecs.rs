//! Flags of `levels --codec` that make no sense are refused before work starts.

use std::fs;
use std::path::Path;

use crate::common::{FULL_26, fixture, number, slotpress};
use crate::levels::*;

#[test]
fn what_makes_no_sense_is_refused() {
    let dir = tempfile::tempdir().expect("a directory");
    let empty = dir.path().join("empty");
    fs::write(&empty, b"").expect("written");
    let archive = fixture(FULL_26);
    let cases: [(&[&str], &Path, &str); 7] = [
        (&["--codec", "lz5"], &archive, "not a codec"),
        (&["--codec", "zlib:10"], &archive, "out of range"),
        (&["--codec", "lz4:3"], &archive, "has no levels"),
        (&["--codec", "zstd,"], &archive, "missing"),
        (&["--codec", "zlib", "--levels", "1"], &archive, "--levels"),
        (&["--codec", "lzo:2"], &archive, "levels of lzo are 1, or 999"),
        (&["--codec", "zlib"], &empty, "empty"),
    ];
    for (arguments, input, message) in cases {
        let assert = slotpress().args(["levels"]).args(arguments).arg(input).assert().code(2);
        let output = assert.get_output();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(errors.contains(message), "{arguments:?}: {errors}");
        assert!(output.stdout.is_empty(), "nothing is measured: {}", String::from_utf8_lossy(&output.stdout));
    }
}

/// Codecs of a feature: measured if they are built in; otherwise the error names the feature.
#[test]
fn what_is_not_built_in() {
    for (codec, is_built_in) in [("lz4hc", cfg!(feature = "lz4hc"))] {
        let arguments = [&QUICK[..], &["--codec", codec]].concat();
        if is_built_in {
            let lines = json(&arguments, &fixture(FULL_26));
            assert!(lines[0]["codec"] == codec && number(&lines[0], "ratio") > 1.0);
            continue;
        }
        let assert = slotpress().args(&arguments).arg(fixture(FULL_26)).assert().code(2);
        let errors = String::from_utf8_lossy(&assert.get_output().stderr).into_owned();
        let expected = format!("{codec} is not in this build");
        assert!(errors.contains(&expected) && errors.contains(&format!("--features {codec}")), "{errors}");
    }
}
