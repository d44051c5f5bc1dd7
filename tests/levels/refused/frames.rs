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
    let cases: [(&Path, &[&str], i32, &str); 9] = [
        (&empty, &[], 2, "is empty"),
        (&dir.path().join("missing"), &[], 1, "missing"),
        (&archive, &["--sizes", "0"], 2, "frame sizes are 1 byte"),
        (&archive, &["--sizes", "33MiB"], 2, "1 byte to 32 MiB"),
        (&archive, &["--sizes", "8MiB,"], 2, "sizes look like"),
        (&archive, &["--codec", "lz5"], 2, "is not a codec"),
        (&archive, &["--codec", "zlib"], 2, "names 3 codecs and levels"),
        (&archive, &["--codec", "zstd:23"], 2, "zstd"),
        (&archive, &["--frame-size", "8MiB"], 2, "unexpected argument"),
    ];
    for (input, arguments, code, message) in cases {
        let assert = frames_command(arguments).arg(input).assert().code(code).stdout("");
        let stderr = String::from_utf8_lossy(&assert.get_output().stderr).to_string();
        assert!(stderr.contains(message), "{arguments:?}: {stderr}");
    }
}
