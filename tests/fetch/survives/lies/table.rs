//! The table of lies.

use std::fs;

use super::ArchiveKind::*;
use super::NamedFile::*;
use super::behaviors::*;
use super::{Lie, expect_run};

/// Values that most entries share.
const PLAIN: Lie =
    Lie { name: "", description: "", archive: Hashed, prepare: None, command: "fetch", flags: &[], runs: &[] };

pub const LIES: &[Lie] = &[
    Lie {
        name: "page in ranges",
        description: "an error page under the archive's name",
        runs: &[expect_run(&[page_in_ranges], 3, Nothing), expect_run(&[honest], 0, Original)],
        ..PLAIN
    },
    Lie {
        name: "page whole",
        description: "the same, without ranges",
        archive: Agave,
        runs: &[expect_run(&[page_whole], 3, Nothing), expect_run(&[honest], 0, Original)],
        ..PLAIN
    },
    Lie {
        name: "zeros",
        description: "zeros",
        runs: &[expect_run(&[zeros], 3, Nothing), expect_run(&[honest], 0, Original)],
        ..PLAIN
    },
    Lie {
        name: "empty",
        description: "an empty file",
        archive: Agave,
        runs: &[expect_run(&[empty], 3, Nothing), expect_run(&[honest], 0, Original)],
        ..PLAIN
    },
    Lie {
        name: "half in ranges",
        description: "the first half, as if it were all",
        runs: &[expect_run(&[half_in_ranges], 3, Nothing), expect_run(&[honest], 0, Original)],
        ..PLAIN
    },
    Lie {
        name: "half whole",
        description: "the same, without ranges",
        archive: Single,
        runs: &[expect_run(&[half_whole], 3, Nothing), expect_run(&[honest], 0, Original)],
        ..PLAIN
    },
    Lie {
        name: "half without a length",
        description: "the same, without a length",
        archive: Single,
        runs: &[expect_run(&[half_without_length], 3, Nothing), expect_run(&[honest_without_ranges], 0, Original)],
        ..PLAIN
    },
    Lie {
        name: "flipped frame",
        description: "one flipped bit in a frame",
        runs: &[expect_run(&[flipped_in_ranges], 3, Nothing), expect_run(&[honest], 0, Original)],
        ..PLAIN
    },
    Lie {
        name: "flipped frame of two mirrors",
        description: "the same, by one of two",
        runs: &[expect_run(&[flipped_in_ranges, honest], 0, Original)],
        ..PLAIN
    },
    Lie {
        name: "flipped end",
        description: "one flipped bit in the frame hashes",
        runs: &[expect_run(&[flipped_in_index], 3, Nothing), expect_run(&[honest], 0, Original)],
        ..PLAIN
    },
    Lie {
        name: "flipped last",
        description: "one flipped bit in the last bytes, which lead to the frame hashes",
        runs: &[expect_run(&[flipped_in_last_bytes], 3, Nothing), expect_run(&[honest], 0, Original)],
        ..PLAIN
    },
    Lie {
        name: "flipped end, a mirror is honest",
        description: "the same, by the first of two",
        runs: &[expect_run(&[flipped_in_index, honest], 0, Original)],
        ..PLAIN
    },
    Lie {
        name: "flipped, whole",
        description: "one flipped bit, without ranges",
        runs: &[expect_run(&[flipped_whole], 3, Nothing), expect_run(&[honest_without_ranges], 0, Original)],
        ..PLAIN
    },
    Lie {
        name: "flipped, without hashes",
        description: "one flipped bit, with the same ETag",
        archive: Agave,
        command: "bootstrap",
        flags: &["--no-incremental"],
        runs: &[expect_run(&[flipped_in_ranges], 3, Nothing), expect_run(&[honest], 0, Original)],
        ..PLAIN
    },
    Lie {
        name: "a different root",
        description: "a different archive than that of `--expect-root`",
        flags: &["--expect-root", "ROOT"],
        runs: &[expect_run(&[other_archive], 3, Nothing), expect_run(&[honest], 0, Original)],
        ..PLAIN
    },
    Lie {
        name: "a different root, whole",
        description: "the same, without ranges",
        flags: &["--expect-root", "ROOT"],
        runs: &[expect_run(&[other_archive_whole], 3, Nothing), expect_run(&[honest_without_ranges], 0, Original)],
        ..PLAIN
    },
    Lie {
        name: "flipped root, whole",
        description: "one flipped bit, without ranges, and `--expect-root`",
        flags: &["--expect-root", "ROOT"],
        runs: &[expect_run(&[flipped_whole], 3, Nothing), expect_run(&[honest_without_ranges], 0, Original)],
        ..PLAIN
    },
    Lie {
        name: "a different root is there",
        description: "nothing: a different archive than that of `--expect-root` already has the name",
        prepare: Some(|archive, dir| fs::write(dir.join(&archive.name), &archive.other).expect("written")),
        flags: &["--expect-root", "ROOT"],
        runs: &[expect_run(&[honest], 3, AsBefore)],
        ..PLAIN
    },
    Lie {
        name: "page is there",
        description: "nothing: an error page already has the name",
        prepare: Some(|archive, dir| fs::write(dir.join(&archive.name), b"<html>503</html>").expect("written")),
        runs: &[expect_run(&[honest], 3, AsBefore)],
        ..PLAIN
    },
    Lie {
        name: "half is there",
        description: "nothing: half of the archive already has the name",
        prepare: Some(|archive, dir| {
            fs::write(dir.join(&archive.name), &archive.original[..archive.original.len() / 2]).expect("written");
        }),
        runs: &[expect_run(&[honest], 3, AsBefore), expect_run(&[honest], 3, AsBefore)],
        ..PLAIN
    },
    Lie {
        name: "half is there, bootstrap",
        description: "the same",
        archive: Agave,
        command: "bootstrap",
        flags: &["--no-incremental"],
        prepare: Some(|archive, dir| {
            fs::write(dir.join(&archive.name), &archive.original[..archive.original.len() / 2]).expect("written");
        }),
        runs: &[expect_run(&[honest], 3, AsBefore)],
    },
    Lie {
        name: "nothing is there",
        description: "nothing: an empty file already has the name",
        prepare: Some(|archive, dir| fs::write(dir.join(&archive.name), b"").expect("written")),
        runs: &[expect_run(&[honest], 3, AsBefore)],
        ..PLAIN
    },
    Lie {
        name: "late garbage",
        description: "600 kB, then garbage once another connection has fetched the rest",
        archive: Single,
        flags: &["--streams", "4"],
        runs: &[expect_run(&[late_garbage], 0, Original)],
        ..PLAIN
    },
    Lie {
        name: "cut often",
        description: "connections that end within a frame",
        flags: &["--streams", "2"],
        runs: &[expect_run(&[cut_often], 0, Original)],
        ..PLAIN
    },
    Lie {
        name: "cut often, one frame",
        description: "connections that end after 100 kB",
        archive: Single,
        flags: &["--streams", "2"],
        runs: &[expect_run(&[cut_often], 0, Original)],
        ..PLAIN
    },
    Lie {
        name: "busy",
        description: "503 with Retry-After, at first",
        runs: &[expect_run(&[busy_at_first], 0, Original)],
        ..PLAIN
    },
    Lie {
        name: "silent",
        description: "connections closed without an answer, at first",
        runs: &[expect_run(&[silent_at_first], 0, Original)],
        ..PLAIN
    },
    Lie {
        name: "replaced",
        description: "a different archive of the same name after four requests",
        flags: &["--streams", "2"],
        runs: &[expect_run(&[replaced], 0, Other)],
        ..PLAIN
    },
    Lie {
        name: "replaced, a mirror has it",
        description: "the same, and a mirror that still has the first",
        flags: &["--streams", "2"],
        runs: &[expect_run(&[replaced, honest], 0, Original)],
        ..PLAIN
    },
    Lie {
        name: "replaced, one frame",
        description: "the same, without frame hashes",
        archive: Single,
        flags: &["--streams", "2"],
        runs: &[expect_run(&[replaced], 0, Other)],
        ..PLAIN
    },
    Lie {
        name: "replaced, bootstrap",
        description: "the same, with frame hashes",
        command: "bootstrap",
        flags: &["--no-incremental", "--streams", "2"],
        runs: &[expect_run(&[replaced], 0, Other)],
        ..PLAIN
    },
    Lie {
        name: "replaced, bootstrap, one frame",
        description: "the same, without frame hashes",
        archive: Single,
        command: "bootstrap",
        flags: &["--no-incremental", "--streams", "2"],
        runs: &[expect_run(&[replaced], 0, Other)],
        ..PLAIN
    },
    Lie {
        name: "replaced, bootstrap, a mirror has it",
        description: "the same, and a mirror that still has the first",
        command: "bootstrap",
        flags: &["--no-incremental", "--streams", "2"],
        runs: &[expect_run(&[replaced, honest], 0, Original)],
        ..PLAIN
    },
    Lie {
        name: "replaced again and again",
        description: "a different archive at each request",
        runs: &[expect_run(&[replaced_again_and_again], 4, Nothing), expect_run(&[honest], 0, Original)],
        ..PLAIN
    },
    Lie {
        name: "gone",
        description: "404 after three requests",
        flags: &["--streams", "1"],
        runs: &[expect_run(&[gone_midway], 4, Nothing), expect_run(&[honest], 0, Original)],
        ..PLAIN
    },
    Lie {
        name: "ranges only announced",
        description: "everything in place of a range",
        runs: &[expect_run(&[ranges_only_announced], 0, Original)],
        ..PLAIN
    },
    Lie {
        name: "other ranges",
        description: "other ranges than requested",
        runs: &[expect_run(&[other_ranges], 4, Nothing), expect_run(&[honest], 0, Original)],
        ..PLAIN
    },
    Lie {
        name: "endless",
        description: "more bytes than were stated",
        runs: &[expect_run(&[endless], 4, Nothing), expect_run(&[honest], 0, Original)],
        ..PLAIN
    },
    Lie {
        name: "a byte a second",
        description: "a byte a second, by the first of two",
        runs: &[expect_run(&[a_byte_a_second, honest], 0, Original)],
        ..PLAIN
    },
    Lie {
        name: "a byte a second, the second",
        description: "the same, by the second of two",
        runs: &[expect_run(&[honest, a_byte_a_second], 0, Original)],
        ..PLAIN
    },
    Lie {
        name: "a byte a second, except the end",
        description: "the same, except for the end of the file, by the first of two",
        runs: &[expect_run(&[slow_except_end_of_file, honest], 0, Original)],
        ..PLAIN
    },
    Lie {
        name: "slow at its end",
        description: "a byte a second for the last 1,630 bytes of each range, by the second of two",
        runs: &[expect_run(&[honest, slow_end_of_each_range], 0, Original)],
        ..PLAIN
    },
    Lie {
        name: "slow at its end, the first",
        description: "the same, by the first of two",
        runs: &[expect_run(&[slow_end_of_each_range, honest], 0, Original)],
        ..PLAIN
    },
    Lie {
        name: "a byte a second, bootstrap",
        description: "a byte a second, except for the end of the file, by the first of two",
        command: "bootstrap",
        flags: &["--no-incremental"],
        runs: &[expect_run(&[slow_except_end_of_file, honest], 0, Original)],
        ..PLAIN
    },
    Lie {
        name: "slow at its end, bootstrap",
        description: "a byte a second for the last 1,630 bytes of each range, by the second of two",
        command: "bootstrap",
        flags: &["--no-incremental"],
        runs: &[expect_run(&[honest, slow_end_of_each_range], 0, Original)],
        ..PLAIN
    },
    Lie {
        name: "slow at its end, bootstrap, the first",
        description: "the same, by the first of two",
        command: "bootstrap",
        flags: &["--no-incremental"],
        runs: &[expect_run(&[slow_end_of_each_range, honest], 0, Original)],
        ..PLAIN
    },
];
