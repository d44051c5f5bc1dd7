//! Parses lists of codecs and levels: `zstd,lz4,zlib:1,6,9`, `1-10`, `1,3,-5--1`.

use std::collections::BTreeSet;
use std::ops::RangeInclusive;

use slotpress_base::{Error, Result};

use super::{CLUSTERED_CODEC, FrameCodec, REFERENCE_CODEC, REFERENCE_LEVEL};
use crate::archive::encode::{ZSTD_LEVEL_MAX, ZSTD_LEVEL_MIN};

struct CodecSpec {
    name: &'static str,
    /// Ranges of accepted levels; empty if the codec has no levels.
    levels: LevelRanges,
    /// Levels to measure if the list names none; `[0]` for a codec without levels.
    default_levels: &'static [i32],
}

type LevelRanges = &'static [RangeInclusive<i32>];

impl CodecSpec {
    const fn new(name: &'static str, levels: LevelRanges, default_levels: &'static [i32]) -> Self {
        Self { name, levels, default_levels }
    }
}

const ZSTD_LEVELS: LevelRanges = &[1..=ZSTD_LEVEL_MAX, ZSTD_LEVEL_MIN..=-1];
const CLUSTERED_LEVELS: &[i32] = &[1, 2, 3];

const CODECS: [CodecSpec; 8] = [
    CodecSpec::new(REFERENCE_CODEC, ZSTD_LEVELS, &[REFERENCE_LEVEL]),
    CodecSpec::new(CLUSTERED_CODEC, ZSTD_LEVELS, CLUSTERED_LEVELS),
    CodecSpec::new("lz4", &[], &[0]),
    CodecSpec::new("zlib", &[1..=9], &[1, 6, 9]),
    CodecSpec::new("bzip2", &[1..=9], &[9]),
    CodecSpec::new("snappy", &[], &[0]),
    CodecSpec::new("lzo", &[1..=1, 999..=999], &[1, 999]),
    CodecSpec::new("none", &[], &[0]),
];

/// Parses a list such as `zstd,lz4,zlib:1,6,9` to codecs at levels, in the given order, without
/// duplicates. The result is never empty. A codec that is listed without levels has its default levels,
/// or `zstd_levels` if it is zstd.
///
/// # Errors
/// A codec or level does not exist.
pub fn parse_codecs(text: &str, zstd_levels: &[i32]) -> Result<Vec<FrameCodec>> {
    let mut codecs: Vec<FrameCodec> = Vec::new();
    let mut items = text.split(',').map(str::trim).peekable();
    while let Some(item) = items.next() {
        let (name, first_level) = match item.split_once(':') {
            Some((name, level)) => (name, Some(level)),
            None => (item, None),
        };
        let spec = find_codec(name.trim())?;
        let levels = match first_level {
            None if spec.name == REFERENCE_CODEC => zstd_levels.to_vec(),
            None => spec.default_levels.to_vec(),
            Some(first_level) => {
                let mut levels = vec![first_level];
                // Numbers without a name are further levels of this codec.
                let is_level = |item: &&str| !item.starts_with(|char: char| char.is_alphabetic());
                while let Some(level) = items.next_if(is_level) {
                    levels.push(level);
                }
                parse_codec_levels(spec, &levels.join(","))?
            }
        };
        for level in levels {
            let codec = FrameCodec { name: spec.name, level };
            if !codecs.contains(&codec) {
                codecs.push(codec);
            }
        }
    }
    Ok(codecs)
}

/// Adds the codec `clustered` after each of zstd's levels 1 to 3 in the list.
pub fn add_clustered(codecs: &mut Vec<FrameCodec>) {
    let mut extended = Vec::new();
    for codec in codecs.drain(..) {
        extended.push(codec);
        if codec.name == REFERENCE_CODEC && CLUSTERED_LEVELS.contains(&codec.level) {
            extended.push(FrameCodec { name: CLUSTERED_CODEC, ..codec });
        }
    }
    *codecs = extended;
}

/// Parses levels of zstd such as `1-10` or `1,3,-5--1`; returns them in ascending order without
/// duplicates, at least one.
///
/// # Errors
/// The text is not a list, or zstd does not have one of the levels.
pub fn parse_levels(text: &str) -> Result<Vec<i32>> {
    parse_codec_levels(find_codec(REFERENCE_CODEC)?, text)
}

fn find_codec(name: &str) -> Result<&'static CodecSpec> {
    CODECS.iter().find(|spec| spec.name == name).ok_or_else(|| match name {
        "" => list_error("a codec is missing"),
        _ => list_error(&format!("{name:?} is not a codec")),
    })
}

fn parse_codec_levels(spec: &CodecSpec, text: &str) -> Result<Vec<i32>> {
    let name = spec.name;
    let is_allowed = |level: &i32| spec.levels.iter().any(|range| range.contains(level));
    let parse_level = |text: &str| match text.parse() {
        Ok(level) if is_allowed(&level) => Ok(level),
        Ok(level) => Err(list_error(&format!("{name}: level {level} is out of range"))),
        Err(_) => Err(list_error(&format!("{name}: {text:?} is not a level"))),
    };
    if spec.levels.is_empty() {
        return Err(list_error(&format!("{name} has no levels")));
    }
    let mut levels = BTreeSet::new();
    for item in text.split(',').map(str::trim) {
        // A dash after the first character separates the ends of a range; a leading one is a sign.
        let (first, last) = match item.char_indices().skip(1).find(|(_, char)| *char == '-') {
            Some((dash, _)) => (&item[..dash], &item[dash + 1..]),
            None => (item, item),
        };
        let first = parse_level(first)?;
        let last = parse_level(last)?;
        if first > last {
            let message = format!("{name}: the range {item} is empty: it ends before it starts");
            return Err(list_error(&message));
        }
        // Leave out 0, which is not a level of zstd.
        levels.extend((first..=last).filter(is_allowed));
    }
    Ok(levels.into_iter().collect())
}

fn list_error(message: &str) -> Error {
    let names = CODECS.map(|spec| spec.name).join(", ");
    Error::usage(message).with_hint(format!(
        "codecs: {names}. Write a list such as zstd,lz4,zlib:1,6,9, or levels of zstd such as 1,3,-5--1"
    ))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Parses a list, and shows its codecs, separated by commas.
    fn parse_labels(text: &str) -> Option<String> {
        let codecs = parse_codecs(text, &[1, 3]).ok()?;
        Some(codecs.iter().map(FrameCodec::to_string).collect::<Vec<_>>().join(", "))
    }

    #[test]
    fn codec_lists_are_parsed() {
        for (text, labels) in [
            ("zstd", "zstd 1, zstd 3"),
            ("none,zlib:9,1,lz4,zstd:-5--4,7", "none, zlib 1, zlib 9, lz4, zstd -5, zstd -4, zstd 7"),
            ("zlib , bzip2:1-2", "zlib 1, zlib 6, zlib 9, bzip2 1, bzip2 2"),
            ("lz4,lz4", "lz4"),
            ("lzo,snappy,lzo:999", "lzo 1, lzo 999, snappy"),
        ] {
            assert_eq!(parse_labels(text).as_deref(), Some(labels), "{text}");
        }
    }

    #[test]
    fn invalid_codec_lists_are_refused() {
        let not_lists = ["", ",", "zstd,", "zlib:", "3", "zstd:3,", "bzip2:9-1"];
        let unknown = ["lz5", "zlib:0", "zlib:10", "lz4:1", "none:0", "lzo:2", "snappy:1"];
        for text in not_lists.into_iter().chain(unknown) {
            assert_eq!(parse_labels(text), None, "{text:?}");
        }
    }

    fn parse(text: &str) -> Option<Vec<i32>> {
        parse_levels(text).ok()
    }

    #[test]
    fn levels_and_ranges_are_parsed() {
        assert_eq!(parse("1-10"), Some((1..=10).collect()));
        assert_eq!(parse("1,3,-5--1"), Some(vec![-5, -4, -3, -2, -1, 1, 3]));
        assert_eq!(parse("-7"), Some(vec![-7]));
        assert_eq!(parse("22, 19 ,3-3"), Some(vec![3, 19, 22]));
        assert_eq!(parse("-2-2,2"), Some(vec![-2, -1, 1, 2]), "each once, and no level 0");
    }

    #[test]
    fn invalid_levels_are_refused() {
        for text in ["", ",", "1,", "0", "0-3", "10-1", "-1--5", "23", "1-23", "-1001", "1-", "-", "--1", "a", "1-2-3"]
        {
            assert_eq!(parse(text), None, "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn hostile_levels_never_panic(text in "[-0-9, é]{0,12}") {
            let _ = parse(&text);
        }

        #[test]
        fn lists_are_sorted_and_in_range(from in -9i32..=22, to in -9i32..=22) {
            if let Some(levels) = parse(&format!("{from}-{to}")) {
                prop_assert!(levels.is_sorted());
                prop_assert!(!levels.contains(&0));
                prop_assert_eq!((levels.first(), levels.last()), (Some(&from), Some(&to)));
            }
        }

        #[test]
        fn hostile_lists_never_panic(text in "[-0-9a-z:, é]{0,16}") {
            let _ = parse_labels(&text);
        }
    }
}
