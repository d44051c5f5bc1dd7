//! Which levels to measure: a list of levels and ranges, such as `1-10` or `1,3,-5--1`.

use {
    crate::archive::encode::{ZSTD_LEVEL_MAX, ZSTD_LEVEL_MIN},
    slotpress_base::error::{Error, Result},
    std::{collections::BTreeSet, ops::RangeInclusive, str::FromStr},
};

/// Levels in ascending order, each once; never empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LevelList(Vec<i32>);

impl LevelList {
    /// The levels.
    pub fn levels(&self) -> &[i32] {
        &self.0
    }
}

impl FromStr for LevelList {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        parse_levels(text, ZSTD_LEVEL_MIN, ZSTD_LEVEL_MAX).map(Self).map_err(|message| {
            Error::usage(message).hint(format!(
                "levels are 1 to {ZSTD_LEVEL_MAX}, or {ZSTD_LEVEL_MIN} to -1: --levels 1-10, --levels 1,3,-5--1"
            ))
        })
    }
}

/// Levels and ranges between two bounds, in ascending order, each once; never empty. The error says what is wrong.
pub fn parse_levels(text: &str, min: i32, max: i32) -> Result<Vec<i32>, String> {
    let mut levels = BTreeSet::new();
    for item in text.split(',') {
        let range = parse_item(item.trim(), min, max)?;
        if range.is_empty() {
            return Err(format!("the range {} is empty: it ends before it starts", item.trim()));
        }
        // 0 is no level of its own: zstd takes it for its default.
        levels.extend(range.filter(|level| *level != 0));
    }
    if levels.is_empty() { Err("no levels are given".to_string()) } else { Ok(levels.into_iter().collect()) }
}

/// `3` or `1-10`; a dash that is not in front separates the two ends.
fn parse_item(item: &str, min: i32, max: i32) -> Result<RangeInclusive<i32>, String> {
    let dash = item.char_indices().skip(1).find(|(_, char)| *char == '-').map(|(at, _)| at);
    match dash {
        Some(at) => Ok(parse_level(&item[..at], min, max)?..=parse_level(&item[at + 1..], min, max)?),
        None => {
            let level = parse_level(item, min, max)?;
            Ok(level..=level)
        }
    }
}

fn parse_level(text: &str, min: i32, max: i32) -> Result<i32, String> {
    let level: i32 = text.parse().map_err(|_| format!("{text:?} is not a level"))?;
    if level == 0 || !(min..=max).contains(&level) {
        return Err(format!("level {level} is out of range"));
    }
    Ok(level)
}

#[cfg(test)]
mod tests {
    use {super::*, proptest::prelude::*};

    fn levels(text: &str) -> Option<Vec<i32>> {
        text.parse().ok().map(|list: LevelList| list.0)
    }

    #[test]
    fn lists_and_ranges() {
        assert_eq!(levels("1-10"), Some((1..=10).collect()));
        assert_eq!(levels("1,3,-5--1"), Some(vec![-5, -4, -3, -2, -1, 1, 3]));
        assert_eq!(levels("-7"), Some(vec![-7]));
        assert_eq!(levels("22, 19 ,3-3"), Some(vec![3, 19, 22]));
        assert_eq!(levels("-2-2,2"), Some(vec![-2, -1, 1, 2]), "each once, and no level 0");
    }

    #[test]
    fn what_is_no_list() {
        for text in ["", ",", "1,", "0", "0-3", "10-1", "-1--5", "23", "1-23", "-1001", "1-", "-", "--1", "a", "1-2-3"]
        {
            assert_eq!(levels(text), None, "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn hostile_lists_never_panic(text in "[-0-9, é]{0,12}") {
            let _ = levels(&text);
        }

        #[test]
        fn lists_are_sorted_and_in_range(from in -9i32..=22, to in -9i32..=22) {
            if let Some(levels) = levels(&format!("{from}-{to}")) {
                prop_assert!(levels.is_sorted() && !levels.contains(&0));
                prop_assert_eq!((levels.first(), levels.last()), (Some(&from), Some(&to)));
            }
        }
    }
}
