//! `inspect` of archives whose tar stream does not end as it should.

use std::fs;

use crate::common::{firedancer, *};
use crate::inspect::inspect;

/// Asserts that an archive with this end can be inspected, and that Firedancer refuses it. `change` alters
/// the end of the tar stream, which has 1,024 zeros.
fn assert_end_is_reported(change: impl Fn(&mut Vec<u8>)) {
    let dir = temp_dir();
    let bytes = fs::read(fixture(FULL_26)).expect("read");
    let mut stream = zstd::stream::decode_all(bytes.as_slice()).expect("decoded");
    change(&mut stream);
    let path = dir.path().join(FULL_26);
    fs::write(&path, zstd::stream::encode_all(stream.as_slice(), 1).expect("encoded")).expect("written");
    let lines = inspect(&path, &[]);
    assert_eq!(lines[0]["slot"], 26);
    let clients = lines[0]["clients"].to_string();
    assert!(clients.contains("1,024"), "{clients}");
    assert!(!firedancer::loads(&lines[0], "firedancer"), "{clients}");
}

#[test]
fn a_stream_with_too_many_zeros_at_its_end_is_reported() {
    assert_end_is_reported(|stream| stream.resize(stream.len() + 1024, 0));
}

#[test]
fn a_stream_without_zeros_at_its_end_is_reported() {
    assert_end_is_reported(|stream| stream.truncate(stream.len() - 1024));
}
