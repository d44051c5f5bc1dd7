//! Which codecs to measure: a list such as `zstd,lz4,zlib:1,6,9`.

use {
    super::{FrameCodec, ZstdLevel, bzip2::Bzip2Level, lz4::Lz4, none::NoCodec, zlib::ZlibLevel},
    crate::{
        archive::encode::{ZSTD_LEVEL_MAX, ZSTD_LEVEL_MIN},
        levels::{REFERENCE_CODEC, REFERENCE_LEVEL, list::parse_levels},
    },
    slotpress_base::error::{Error, Result},
    std::{ops::RangeInclusive, str::FromStr},
};

/// A codec as the list knows it.
struct Known {
    name: &'static str,
    /// `0..=0` where it has none.
    levels: RangeInclusive<i32>,
    /// The ones that are measured unless others are asked for.
    default_levels: &'static [i32],
    /// What it is built with, where that is not always so.
    feature: Option<&'static str>,
    /// `None` where it is not in this build.
    new: Option<fn(i32) -> Box<dyn FrameCodec>>,
}

const KNOWN: [Known; 6] = [
    Known {
        name: "zstd",
        levels: ZSTD_LEVEL_MIN..=ZSTD_LEVEL_MAX,
        default_levels: &[1],
        feature: None,
        new: Some(|level| Box::new(ZstdLevel(level))),
    },
    Known { name: "lz4", levels: 0..=0, default_levels: &[0], feature: None, new: Some(|_| Box::new(Lz4)) },
    Known { name: "lz4hc", levels: 3..=12, default_levels: &[9], feature: Some("lz4hc"), new: LZ4HC },
    Known {
        name: "zlib",
        levels: 1..=9,
        default_levels: &[1, 6, 9],
        feature: None,
        new: Some(|level| Box::new(ZlibLevel(level))),
    },
    Known {
        name: "bzip2",
        levels: 1..=9,
        default_levels: &[9],
        feature: None,
        new: Some(|level| Box::new(Bzip2Level(level))),
    },
    Known { name: "none", levels: 0..=0, default_levels: &[0], feature: None, new: Some(|_| Box::new(NoCodec)) },
];

#[cfg(feature = "lz4hc")]
const LZ4HC: Option<fn(i32) -> Box<dyn FrameCodec>> = Some(|level| Box::new(super::lz4hc::Lz4HcLevel(level)));
#[cfg(not(feature = "lz4hc"))]
const LZ4HC: Option<fn(i32) -> Box<dyn FrameCodec>> = None;

/// Codecs at levels, in the order in which they were given, each once; never empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CodecList(Vec<(&'static str, i32)>);

/// More than this is a slip of the keyboard: each is measured for seconds.
const CODECS_MAX: usize = 1100;

impl CodecList {
    /// Names and levels.
    pub fn entries(&self) -> &[(&'static str, i32)] {
        &self.0
    }

    /// The same in the order in which they are measured: what the others are set against first.
    pub fn measuring_order(mut self) -> Self {
        self.0.sort_by_key(|entry| *entry != (REFERENCE_CODEC, REFERENCE_LEVEL));
        self
    }

    /// Whether all of them are levels of zstd.
    pub fn is_zstd(&self) -> bool {
        self.0.iter().all(|(name, _)| *name == REFERENCE_CODEC)
    }

    /// The codecs, ready to be used.
    pub fn codecs(&self) -> Vec<Box<dyn FrameCodec>> {
        let new = |(name, level): &(&str, i32)| known(name).and_then(|known| known.new).map(|new| new(*level));
        self.0.iter().filter_map(new).collect()
    }

    /// Reads a list. A codec without levels of its own takes its default ones; zstd those of `zstd_levels`.
    pub fn parse(text: &str, zstd_levels: &[i32]) -> Result<Self> {
        let mut entries: Vec<(&'static str, i32)> = Vec::new();
        let mut items = text.split(',').map(str::trim).peekable();
        while let Some(item) = items.next() {
            let (name, first) = item.split_once(':').map_or((item, None), |(name, level)| (name, Some(level)));
            let known = known_and_built(name.trim())?;
            let levels = match first {
                None if known.name == REFERENCE_CODEC => zstd_levels.to_vec(),
                None => known.default_levels.to_vec(),
                Some(first) => {
                    let mut levels = vec![first];
                    // Numbers that follow belong to it too.
                    while let Some(more) = items.next_if(|item| !item.starts_with(|char: char| char.is_alphabetic())) {
                        levels.push(more);
                    }
                    levels_of(known, &levels.join(","))?
                }
            };
            for entry in levels.into_iter().map(|level| (known.name, level)) {
                if !entries.contains(&entry) {
                    entries.push(entry);
                }
            }
        }
        if entries.len() > CODECS_MAX {
            return Err(wrong(&format!("{} codecs and levels are too many", entries.len())));
        }
        Ok(Self(entries))
    }
}

impl FromStr for CodecList {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        Self::parse(text, &[REFERENCE_LEVEL])
    }
}

fn known(name: &str) -> Option<&'static Known> {
    KNOWN.iter().find(|known| known.name == name)
}

fn known_and_built(name: &str) -> Result<&'static Known> {
    let known = known(name).ok_or_else(|| match name {
        "" => wrong("a codec is missing"),
        _ => wrong(&format!("{name:?} is not a codec")),
    })?;
    match (known.new, known.feature) {
        (None, Some(feature)) => Err(Error::usage(format!("{name} is not in this build"))
            .hint(format!("build it in: cargo build --release --features {feature}"))),
        _ => Ok(known),
    }
}

fn levels_of(known: &Known, text: &str) -> Result<Vec<i32>> {
    let (from, to) = (*known.levels.start(), *known.levels.end());
    if from == to {
        return Err(wrong(&format!("{} has no levels", known.name)));
    }
    let hint = || match known.name {
        REFERENCE_CODEC => format!("zstd has levels 1 to {to}, or {from} to -1"),
        name => format!("{name} has levels {from} to {to}"),
    };
    parse_levels(text, from, to).map_err(|message| Error::usage(format!("{}: {message}", known.name)).hint(hint()))
}

fn wrong(message: &str) -> Error {
    let names: Vec<&str> = KNOWN.iter().filter(|known| known.new.is_some()).map(|known| known.name).collect();
    Error::usage(message).hint(format!("codecs are {}: --codec zstd,lz4,zlib:1,6,9", names.join(", ")))
}

/// Every codec of this build, as a list.
#[cfg(test)]
pub fn all_built_in() -> String {
    let names: Vec<&str> = KNOWN.iter().filter(|known| known.new.is_some()).map(|known| known.name).collect();
    names.join(",")
}

/// What people call an entry of a list.
#[cfg(test)]
pub fn label_of(entry: &(&'static str, i32)) -> String {
    super::label(entry.0, entry.1)
}

#[cfg(test)]
mod tests {
    use {super::*, proptest::prelude::*};

    fn labels(text: &str) -> Option<Vec<String>> {
        CodecList::parse(text, &[1, 3]).ok().map(|list| list.entries().iter().map(label_of).collect())
    }

    #[test]
    fn lists() {
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
        let list: CodecList = "lz4,zstd:2,1".parse().expect("a list");
        assert_eq!(list.measuring_order().entries()[0], ("zstd", 1));
    }

    #[test]
    fn what_is_no_list() {
        for text in
            ["", ",", "zstd,", "lz5", "zlib:0", "zlib:10", "lz4:1", "zlib:", "3", "zstd:3,", "bzip2:9-1", "none:0"]
        {
            assert_eq!(labels(text), None, "{text:?}");
        }
    }

    #[test]
    fn what_is_not_built_in_is_named() {
        for known in KNOWN.iter().filter(|known| known.new.is_none()) {
            let error = known.name.parse::<CodecList>().expect_err("not in this build");
            assert_eq!(error.to_string(), format!("{} is not in this build", known.name));
            assert!(error.hint_text().is_some_and(|hint| hint.contains("--features")));
        }
    }

    proptest! {
        #[test]
        fn hostile_lists_never_panic(text in "[-0-9a-z:, é]{0,16}") {
            let _ = labels(&text);
        }
    }
}
