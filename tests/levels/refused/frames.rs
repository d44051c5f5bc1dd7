//! What makes no sense is refused before work starts.

use std::fs;
use std::path::Path;

use crate::common::{FULL_26, fixture};
use crate::levels::*;

#[test]
fn refused_before_work_starts() {
    let dir = tempfile::tempdir().expect("a directory");
    let (empty, binary) = (dir.path().join("empty"), dir.path().join("binary"));
    fs::write(&empty, "").expect("written");
    fs::write(&binary, [0; 1000]).expect("written");
    let archive = fixture(FULL_26);
    let cases: [(&Path, &[&str], &str); 13] = [
        (&empty, &[], "is empty"),
        (&dir.path().join("none"), &[], "none"),
        (&archive, &["--sizes", "0"], "frames have 1 byte"),
        (&archive, &["--sizes", "33MiB"], "1 byte to 32 MiB"),
        (&archive, &["--sizes", "8MiB,"], "sizes look like"),
        (&archive, &["--bundles", "0"], "units per frame"),
        (&archive, &["--bundles", "1,x"], "units per frame"),
        (&archive, &["--unit", "word"], "record, line, or a number of bytes"),
        (&archive, &["--codec", "lz5"], "is not a codec"),
        (&archive, &["--codec", "zlib"], "3 codecs and levels"),
        (&archive, &["--codec", "zstd:23"], "zstd"),
        (&binary, &["--unit", "record"], "no storage with records"),
        (&archive, &["--frame-size", "8MiB"], "unexpected argument"),
    ];
    for (input, arguments, message) in cases {
        let code = if message == "none" { 1 } else { 2 };
        let assert = frames(arguments).arg(input).assert().code(code).stdout("");
        let said = String::from_utf8_lossy(&assert.get_output().stderr).to_string();
        assert!(said.contains(message), "{arguments:?}: {said}");
    }
    // What is binary has no units unless they are asked for; that is no error.
    let assert = frames(&["--sizes", "100"]).arg(&binary).assert().success();
    assert!(String::from_utf8_lossy(&assert.get_output().stderr).contains("--unit 200"));
}
