//! Parses lists of codecs and levels: `zstd,lz4,zlib:1,6,9`, `1-10`, `1,3,-5--1`.

use std::collections::BTreeSet;
use std::ops::RangeInclusive;

use slotpress_base::{Error, Result};

use super::{CLUSTERED_CODEC, FrameCodec, REFERENCE_CODEC, REFERENCE_LEVEL};
use crate::archive::encode::{ZSTD_LEVEL_MAX, ZSTD_LEVEL_MIN};

/// A codec: its name, its levels, and those of a list that names none, `[0]` if it has none.
type Known = (&'static str, &'static [RangeInclusive<i32>], &'static [i32]);

const CLUSTERED_LEVELS: &[i32] = &[1, 2, 3];

const KNOWN: [Known; 8] = [
    (REFERENCE_CODEC, &[1..=ZSTD_LEVEL_MAX, ZSTD_LEVEL_MIN..=-1], &[REFERENCE_LEVEL]),
    (CLUSTERED_CODEC, &[1..=ZSTD_LEVEL_MAX, ZSTD_LEVEL_MIN..=-1], CLUSTERED_LEVELS),
    ("lz4", &[], &[0]),
    ("zlib", &[1..=9], &[1, 6, 9]),
    ("bzip2", &[1..=9], &[9]),
    ("snappy", &[], &[0]),
    ("lzo", &[1..=1, 999..=999], &[1, 999]),
    ("none", &[], &[0]),
];

/// Parses a list such as `zstd,lz4,zlib:1,6,9` to codecs at levels, in the given order, without
/// duplicates. The result is never empty. A codec without levels in the list gets its default
/// levels, zstd those of `zstd_levels`.
///
/// # Errors
/// If a codec or level does not exist.
pub fn parse_codecs(text: &str, zstd_levels: &[i32]) -> Result<Vec<FrameCodec>> {
    let mut list: Vec<FrameCodec> = Vec::new();
    let mut items = text.split(',').map(str::trim).peekable();
    while let Some(item) = items.next() {
        let (name, first) = item.split_once(':').map_or((item, None), |(name, level)| (name, Some(level)));
        let known = known_codec(name.trim())?;
        let levels = match first {
            None if known.0 == REFERENCE_CODEC => zstd_levels.to_vec(),
            None => known.2.to_vec(),
            Some(first) => {
                let mut levels = vec![first];
                // Numbers without a name are further levels of this codec.
                while let Some(more) = items.next_if(|item| !item.starts_with(|char: char| char.is_alphabetic())) {
                    levels.push(more);
                }
                levels_of(known, &levels.join(","))?
            }
        };
        for level in levels {
            let codec = FrameCodec { name: known.0, level };
            if !list.contains(&codec) {
                list.push(codec);
            }
        }
    }
    Ok(list)
}

/// Adds the codec `clustered` after each of zstd's levels 1 to 3 in the list.
pub fn add_clustered(codecs: &mut Vec<FrameCodec>) {
    let mut all = Vec::new();
    for codec in codecs.drain(..) {
        all.push(codec);
        if codec.name == REFERENCE_CODEC && CLUSTERED_LEVELS.contains(&codec.level) {
            all.push(FrameCodec { name: CLUSTERED_CODEC, ..codec });
        }
    }
    *codecs = all;
}

/// Parses levels of zstd such as `1-10` or `1,3,-5--1`; returns them in ascending order without
/// duplicates, at least one.
///
/// # Errors
/// If zstd does not have one of the levels.
pub fn parse_levels(text: &str) -> Result<Vec<i32>> {
    levels_of(known_codec(REFERENCE_CODEC)?, text)
}

fn known_codec(name: &str) -> Result<&'static Known> {
    KNOWN.iter().find(|known| known.0 == name).ok_or_else(|| match name {
        "" => wrong("a codec is missing"),
        _ => wrong(&format!("{name:?} is not a codec")),
    })
}

fn levels_of((name, allowed, _): &Known, text: &str) -> Result<Vec<i32>> {
    let is_allowed = |level: &i32| allowed.iter().any(|range| range.contains(level));
    let level = |text: &str| match text.parse() {
        Ok(level) if is_allowed(&level) => Ok(level),
        Ok(level) => Err(wrong(&format!("{name}: level {level} is out of range"))),
        Err(_) => Err(wrong(&format!("{name}: {text:?} is not a level"))),
    };
    if allowed.is_empty() {
        return Err(wrong(&format!("{name} has no levels")));
    }
    let mut levels = BTreeSet::new();
    for item in text.split(',').map(str::trim) {
        // A dash after the first character separates the ends of a range; a leading one is a sign.
        let dash = item.char_indices().skip(1).find(|(_, char)| *char == '-').map(|(at, _)| at);
        let (from, to) = dash.map_or((item, item), |at| (&item[..at], &item[at + 1..]));
        let from = level(from)?;
        let to = level(to)?;
        if from > to {
            let message = format!("{name}: the range {item} is empty: it ends before it starts");
            return Err(wrong(&message));
        }
        // Filters 0, which is not a level of zstd.
        levels.extend((from..=to).filter(is_allowed));
    }
    Ok(levels.into_iter().collect())
}

fn wrong(message: &str) -> Error {
    let names = KNOWN.map(|known| known.0).join(", ");
    Error::usage(message)
        .with_hint(format!("codecs are {names}, such as zstd,lz4,zlib:1,6,9; levels, such as 1,3,-5--1"))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn labels(text: &str) -> Option<Vec<String>> {
        parse_codecs(text, &[1, 3]).ok().map(|list| list.iter().map(FrameCodec::to_string).collect())
    }

    #[test]
    fn codec_lists_are_parsed() {
        assert_eq!(labels("zstd"), Some(vec!["zstd 1".into(), "zstd 3".into()]));
        assert_eq!(
            labels("none,zlib:9,1,lz4,zstd:-5--4,7"),
            Some(["none", "zlib 1", "zlib 9", "lz4", "zstd -5", "zstd -4", "zstd 7"].map(String::from).into())
        );
        assert_eq!(
            labels("zlib , bzip2:1-2"),
            Some(["zlib 1", "zlib 6", "zlib 9", "bzip2 1", "bzip2 2"].map(String::from).into())
        );
        assert_eq!(labels("lz4,lz4"), Some(vec!["lz4".into()]), "each once");
        assert_eq!(labels("lzo,snappy,lzo:999"), Some(["lzo 1", "lzo 999", "snappy"].map(String::from).into()));
    }

    #[test]
    fn invalid_codec_lists_are_refused() {
        for text in [
            "",
            ",",
            "zstd,",
            "lz5",
            "zlib:0",
            "zlib:10",
            "lz4:1",
            "zlib:",
            "3",
            "zstd:3,",
            "bzip2:9-1",
            "none:0",
            "lzo:2",
            "snappy:1",
        ] {
            assert_eq!(labels(text), None, "{text:?}");
        }
    }

    fn levels(text: &str) -> Option<Vec<i32>> {
        parse_levels(text).ok()
    }

    #[test]
    fn levels_and_ranges_are_parsed() {
        assert_eq!(levels("1-10"), Some((1..=10).collect()));
        assert_eq!(levels("1,3,-5--1"), Some(vec![-5, -4, -3, -2, -1, 1, 3]));
        assert_eq!(levels("-7"), Some(vec![-7]));
        assert_eq!(levels("22, 19 ,3-3"), Some(vec![3, 19, 22]));
        assert_eq!(levels("-2-2,2"), Some(vec![-2, -1, 1, 2]), "each once, and no level 0");
    }

    #[test]
    fn invalid_levels_are_refused() {
        for text in ["", ",", "1,", "0", "0-3", "10-1", "-1--5", "23", "1-23", "-1001", "1-", "-", "--1", "a", "1-2-3"]
        {
            assert_eq!(levels(text), None, "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn hostile_levels_never_panic(text in "[-0-9, é]{0,12}") {
            let _ = levels(&text);
        }

        #[test]
        fn lists_are_sorted_and_in_range(from in -9i32..=22, to in -9i32..=22) {
            if let Some(levels) = levels(&format!("{from}-{to}")) {
                prop_assert!(levels.is_sorted() && !levels.contains(&0));
                prop_assert_eq!((levels.first(), levels.last()), (Some(&from), Some(&to)));
            }
        }

        #[test]
        fn hostile_lists_never_panic(text in "[-0-9a-z:, é]{0,16}") {
            let _ = labels(&text);
        }
    }
}
