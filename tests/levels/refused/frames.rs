//! Flags of `levels frames` that make no sense are refused before work starts.

use std::fs;
use std::path::Path;

use crate::common::{FULL_26, fixture};
use crate::levels::*;

#[test]
fn invalid_frame_sizes_and_inputs_are_refused() {
    let dir = tempfile::tempdir().expect("a directory");
    let empty = dir.path().join("empty");
    fs::write(&empty, "").expect("written");
    let archive = fixture(FULL_26);
    let cases: [(&Path, &[&str], &str); 9] = [
        (&empty, &[], "is empty"),
        (&dir.path().join("none"), &[], "none"),
        (&archive, &["--sizes", "0"], "frames have 1 byte"),
        (&archive, &["--sizes", "33MiB"], "1 byte to 32 MiB"),
        (&archive, &["--sizes", "8MiB,"], "sizes look like"),
        (&archive, &["--codec", "lz5"], "is not a codec"),
        (&archive, &["--codec", "zlib"], "3 codecs and levels"),
        (&archive, &["--codec", "zstd:23"], "zstd"),
        (&archive, &["--frame-size", "8MiB"], "unexpected argument"),
    ];
    for (input, arguments, message) in cases {
        let code = if message == "none" { 1 } else { 2 };
        let assert = frames(arguments).arg(input).assert().code(code).stdout("");
        let stderr = String::from_utf8_lossy(&assert.get_output().stderr).to_string();
        assert!(stderr.contains(message), "{arguments:?}: {stderr}");
    }
}
