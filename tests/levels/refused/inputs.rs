//! Inputs and flags of `levels` that make no sense are refused before work starts.

use std::fs;
use std::path::Path;

use crate::common::{FULL_26, fixture, slotpress};

#[test]
fn invalid_inputs_and_flags_are_refused() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = |name: &str| dir.path().join(name);
    let archive = fixture(FULL_26);
    let bytes = fs::read(&archive).expect("a fixture");
    fs::write(path("empty"), b"").expect("written");
    fs::write(path("text"), b"text").expect("written");
    fs::write(path("cut.tar.zst"), &bytes[..bytes.len() / 2]).expect("written");
    // With checksums, so that all damage is found.
    let mut encoder = zstd::Encoder::new(Vec::new(), 1).expect("an encoder");
    encoder.include_checksum(true).expect("a checksum");
    zstd::stream::copy_decode(&*bytes, &mut encoder).expect("a fixture");
    let mut damaged = encoder.finish().expect("compressed");
    damaged[bytes.len() / 2] ^= 1;
    fs::write(path("damaged.tar.zst"), damaged).expect("written");
    // The name says that it is an archive; under a different name, it would be measured as any file.
    let renamed = path(FULL_26);
    fs::write(&renamed, b"<html>").expect("written");
    let csv_in_no_directory = path("no/such/directory.csv");
    let cases: [(&Path, &[&str], i32, &str); 23] = [
        (&archive, &["--levels", "10-1"], 2, "empty"),
        (&archive, &["--levels", "0"], 2, "out of range"),
        (&archive, &["--levels", "1-23"], 2, "out of range"),
        (&archive, &["--levels", ""], 2, "not a level"),
        (&archive, &["--sample", "64KiB"], 2, "fewer than two"),
        (&archive, &["--frame-size", "1KiB"], 2, "out of range"),
        (&archive, &["--threads", "0"], 2, "threads"),
        (&path("text"), &["--codec", "clustered:1"], 2, "no records to cluster"),
        (&archive, &["--min-time=-1"], 2, "times look like"),
        (&archive, &["--slot", "26"], 2, "is a file, which has no slot"),
        (&archive, &["--csv", csv_in_no_directory.to_str().expect("UTF-8")], 2, "is not a directory"),
        (&archive, &["--codec", "lz5"], 2, "not a codec"),
        (&archive, &["--codec", "zlib:10"], 2, "out of range"),
        (&archive, &["--codec", "lz4:3"], 2, "has no levels"),
        (&archive, &["--codec", "zstd,"], 2, "missing"),
        (&archive, &["--codec", "zlib", "--levels", "1"], 2, "--levels"),
        (&archive, &["--codec", "lzo:2"], 2, "lzo: level 2 is out of range"),
        (&path("empty"), &["--codec", "zlib"], 2, "empty"),
        (&path("empty"), &[], 2, "empty"),
        (&path("missing"), &[], 1, "no such file"),
        (&path("cut.tar.zst"), &[], 3, "truncated"),
        (&path("damaged.tar.zst"), &[], 3, "damaged"),
        (&renamed, &[], 3, "not a snapshot archive"),
    ];
    for (input, arguments, code, message) in cases {
        let assert = slotpress().args(["levels"]).args(arguments).arg(input).assert().code(code);
        let output = assert.get_output();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(stderr.contains(message), "{}, {arguments:?}: {stderr}", input.display());
        assert!(output.stdout.is_empty(), "nothing is measured: {}", String::from_utf8_lossy(&output.stdout));
    }
}
