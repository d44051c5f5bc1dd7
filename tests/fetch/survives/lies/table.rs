//! The lies.

use std::fs;

use super::ArchiveKind::*;
use super::Named::*;
use super::behaviors::*;
use super::{Lie, expect};

/// An entry with ordinary values.
const PLAIN: Lie = Lie { name: "", does: "", archive: Hashed, prepare: None, command: "fetch", flags: &[], runs: &[] };

pub const LIES: &[Lie] = &[
    Lie {
        name: "page in ranges",
        does: "an error page under the archive's name",
        runs: &[expect(&[page_in_ranges], 3, Nothing), expect(&[honest], 0, Right)],
        ..PLAIN
    },
    Lie {
        name: "page whole",
        does: "the same, without ranges",
        archive: Agave,
        runs: &[expect(&[page_whole], 3, Nothing), expect(&[honest], 0, Right)],
        ..PLAIN
    },
    Lie { name: "zeros", does: "zeros", runs: &[expect(&[zeros], 3, Nothing), expect(&[honest], 0, Right)], ..PLAIN },
    Lie {
        name: "empty",
        does: "an empty file",
        archive: Agave,
        runs: &[expect(&[empty], 3, Nothing), expect(&[honest], 0, Right)],
        ..PLAIN
    },
    Lie {
        name: "half in ranges",
        does: "the first half, as if it were all",
        runs: &[expect(&[half_in_ranges], 3, Nothing), expect(&[honest], 0, Right)],
        ..PLAIN
    },
    Lie {
        name: "half whole",
        does: "the same, without ranges",
        archive: Single,
        runs: &[expect(&[half_whole], 3, Nothing), expect(&[honest], 0, Right)],
        ..PLAIN
    },
    Lie {
        name: "half without a length",
        does: "the same, without a length",
        archive: Single,
        runs: &[expect(&[half_without_length], 3, Nothing), expect(&[honest_without_ranges], 0, Right)],
        ..PLAIN
    },
    Lie {
        name: "flipped frame",
        does: "one flipped bit in a frame",
        runs: &[expect(&[flipped_in_ranges], 3, Nothing), expect(&[honest], 0, Right)],
        ..PLAIN
    },
    Lie {
        name: "flipped frame of two mirrors",
        does: "the same, by one of two",
        runs: &[expect(&[flipped_in_ranges, honest], 0, Right)],
        ..PLAIN
    },
    Lie {
        name: "flipped end",
        does: "one flipped bit in the frame hashes",
        runs: &[expect(&[flipped_at_the_end], 3, Nothing), expect(&[honest], 0, Right)],
        ..PLAIN
    },
    Lie {
        name: "flipped last",
        does: "one flipped bit in the last bytes, which lead to the frame hashes",
        runs: &[expect(&[flipped_last], 3, Nothing), expect(&[honest], 0, Right)],
        ..PLAIN
    },
    Lie {
        name: "flipped end, a mirror is honest",
        does: "the same, by the first of two",
        runs: &[expect(&[flipped_at_the_end, honest], 0, Right)],
        ..PLAIN
    },
    Lie {
        name: "flipped, whole",
        does: "one flipped bit, without ranges",
        runs: &[expect(&[flipped_whole], 3, Nothing), expect(&[honest_without_ranges], 0, Right)],
        ..PLAIN
    },
    Lie {
        name: "flipped, without hashes",
        does: "one flipped bit, under one ETag",
        archive: Agave,
        command: "bootstrap",
        flags: &["--no-incremental"],
        runs: &[expect(&[flipped_in_ranges], 3, Nothing), expect(&[honest], 0, Right)],
        ..PLAIN
    },
    Lie {
        name: "another root",
        does: "another archive than that of `--expect-root`",
        flags: &["--expect-root", "ROOT"],
        runs: &[expect(&[other], 3, Nothing), expect(&[honest], 0, Right)],
        ..PLAIN
    },
    Lie {
        name: "another root, whole",
        does: "the same, without ranges",
        flags: &["--expect-root", "ROOT"],
        runs: &[expect(&[other_whole], 3, Nothing), expect(&[honest_without_ranges], 0, Right)],
        ..PLAIN
    },
    Lie {
        name: "flipped root, whole",
        does: "one flipped bit, without ranges, and `--expect-root`",
        flags: &["--expect-root", "ROOT"],
        runs: &[expect(&[flipped_whole], 3, Nothing), expect(&[honest_without_ranges], 0, Right)],
        ..PLAIN
    },
    Lie {
        name: "another root is there",
        does: "nothing: another archive than that of `--expect-root` has the name already",
        prepare: Some(|archive, dir| fs::write(dir.join(&archive.name), &archive.other).expect("written")),
        flags: &["--expect-root", "ROOT"],
        runs: &[expect(&[honest], 3, AsBefore)],
        ..PLAIN
    },
    Lie {
        name: "page is there",
        does: "nothing: an error page has the name already",
        prepare: Some(|archive, dir| fs::write(dir.join(&archive.name), b"<html>503</html>").expect("written")),
        runs: &[expect(&[honest], 3, AsBefore)],
        ..PLAIN
    },
    Lie {
        name: "half is there",
        does: "nothing: half of the archive has the name already",
        prepare: Some(|archive, dir| {
            fs::write(dir.join(&archive.name), &archive.right[..archive.right.len() / 2]).expect("written");
        }),
        runs: &[expect(&[honest], 3, AsBefore), expect(&[honest], 3, AsBefore)],
        ..PLAIN
    },
    Lie {
        name: "half is there, bootstrap",
        does: "the same",
        archive: Agave,
        command: "bootstrap",
        flags: &["--no-incremental"],
        prepare: Some(|archive, dir| {
            fs::write(dir.join(&archive.name), &archive.right[..archive.right.len() / 2]).expect("written");
        }),
        runs: &[expect(&[honest], 3, AsBefore)],
    },
    Lie {
        name: "nothing is there",
        does: "nothing: an empty file has the name already",
        prepare: Some(|archive, dir| fs::write(dir.join(&archive.name), b"").expect("written")),
        runs: &[expect(&[honest], 3, AsBefore)],
        ..PLAIN
    },
    Lie {
        name: "late rubbish",
        does: "600 kB, and rubbish when another connection has fetched the rest",
        archive: Single,
        flags: &["--streams", "4"],
        runs: &[expect(&[late_rubbish], 0, Right)],
        ..PLAIN
    },
    Lie {
        name: "cut often",
        does: "the end of each connection within a frame",
        flags: &["--streams", "2"],
        runs: &[expect(&[cut_often], 0, Right)],
        ..PLAIN
    },
    Lie {
        name: "cut often, one frame",
        does: "the end of each connection after 100 kB",
        archive: Single,
        flags: &["--streams", "2"],
        runs: &[expect(&[cut_often], 0, Right)],
        ..PLAIN
    },
    Lie { name: "busy", does: "503 with Retry-After, at first", runs: &[expect(&[busy_at_first], 0, Right)], ..PLAIN },
    Lie {
        name: "silent",
        does: "connections closed without an answer, at first",
        runs: &[expect(&[silent_at_first], 0, Right)],
        ..PLAIN
    },
    Lie {
        name: "published again",
        does: "another archive of the name from the fifth request on",
        flags: &["--streams", "2"],
        runs: &[expect(&[published_again], 0, Other)],
        ..PLAIN
    },
    Lie {
        name: "published again, a mirror has it",
        does: "the same, and a mirror that still has the first",
        flags: &["--streams", "2"],
        runs: &[expect(&[published_again, honest], 0, Right)],
        ..PLAIN
    },
    Lie {
        name: "published again, one frame",
        does: "the same, without frame hashes",
        archive: Single,
        flags: &["--streams", "2"],
        runs: &[expect(&[published_again], 0, Other)],
        ..PLAIN
    },
    Lie {
        name: "published again, bootstrap",
        does: "the same, with frame hashes",
        command: "bootstrap",
        flags: &["--no-incremental", "--streams", "2"],
        runs: &[expect(&[published_again], 0, Other)],
        ..PLAIN
    },
    Lie {
        name: "published again, bootstrap, one frame",
        does: "the same, without frame hashes",
        archive: Single,
        command: "bootstrap",
        flags: &["--no-incremental", "--streams", "2"],
        runs: &[expect(&[published_again], 0, Other)],
        ..PLAIN
    },
    Lie {
        name: "published again, bootstrap, a mirror has it",
        does: "the same, and a mirror that still has the first",
        command: "bootstrap",
        flags: &["--no-incremental", "--streams", "2"],
        runs: &[expect(&[published_again, honest], 0, Right)],
        ..PLAIN
    },
    Lie {
        name: "published again and again",
        does: "another archive at each request",
        runs: &[expect(&[published_again_and_again], 4, Nothing), expect(&[honest], 0, Right)],
        ..PLAIN
    },
    Lie {
        name: "gone",
        does: "404 from the fourth request on",
        flags: &["--streams", "1"],
        runs: &[expect(&[gone_midway], 4, Nothing), expect(&[honest], 0, Right)],
        ..PLAIN
    },
    Lie {
        name: "ranges only announced",
        does: "everything in place of a range",
        runs: &[expect(&[ranges_only_announced], 0, Right)],
        ..PLAIN
    },
    Lie {
        name: "other ranges",
        does: "other ranges than were asked for",
        runs: &[expect(&[other_ranges], 4, Nothing), expect(&[honest], 0, Right)],
        ..PLAIN
    },
    Lie {
        name: "endless",
        does: "more bytes than were stated",
        runs: &[expect(&[endless], 4, Nothing), expect(&[honest], 0, Right)],
        ..PLAIN
    },
    Lie {
        name: "a byte a second",
        does: "a byte a second, by the first of two",
        runs: &[expect(&[a_byte_a_second, honest], 0, Right)],
        ..PLAIN
    },
    Lie {
        name: "a byte a second, the second",
        does: "the same, by the second of two",
        runs: &[expect(&[honest, a_byte_a_second], 0, Right)],
        ..PLAIN
    },
    Lie {
        name: "a byte a second after the end",
        does: "the same but for the end of the file, by the first of two",
        runs: &[expect(&[slow_but_for_the_end, honest], 0, Right)],
        ..PLAIN
    },
    Lie {
        name: "slow at its end",
        does: "a byte a second for the last 1,630 bytes of each range, by the second of two",
        runs: &[expect(&[honest, slow_at_its_end], 0, Right)],
        ..PLAIN
    },
    Lie {
        name: "slow at its end, the first",
        does: "the same, by the first of two",
        runs: &[expect(&[slow_at_its_end, honest], 0, Right)],
        ..PLAIN
    },
    Lie {
        name: "a byte a second, bootstrap",
        does: "a byte a second but for the end of the file, by the first of two",
        command: "bootstrap",
        flags: &["--no-incremental"],
        runs: &[expect(&[slow_but_for_the_end, honest], 0, Right)],
        ..PLAIN
    },
    Lie {
        name: "slow at its end, bootstrap",
        does: "a byte a second for the last 1,630 bytes of each range, by the second of two",
        command: "bootstrap",
        flags: &["--no-incremental"],
        runs: &[expect(&[honest, slow_at_its_end], 0, Right)],
        ..PLAIN
    },
    Lie {
        name: "slow at its end, bootstrap, the first",
        does: "the same, by the first of two",
        command: "bootstrap",
        flags: &["--no-incremental"],
        runs: &[expect(&[slow_at_its_end, honest], 0, Right)],
        ..PLAIN
    },
];
