//! Flags of `levels --codec` that make no sense are refused before work starts.

use std::fs;
use std::path::Path;

use crate::common::{FULL_26, fixture, slotpress};

#[test]
fn invalid_codecs_are_usage_errors() {
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
        (&["--codec", "lzo:2"], &archive, "lzo: level 2 is out of range"),
        (&["--codec", "zlib"], &empty, "empty"),
    ];
    for (arguments, input, message) in cases {
        let assert = slotpress().args(["levels"]).args(arguments).arg(input).assert().code(2);
        let output = assert.get_output();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(stderr.contains(message), "{arguments:?}: {stderr}");
        assert!(output.stdout.is_empty(), "nothing is measured: {}", String::from_utf8_lossy(&output.stdout));
    }
}
