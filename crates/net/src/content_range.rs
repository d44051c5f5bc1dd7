//! Parses the header `Content-Range` of a response (RFC 9110, section 14.4). Pure.

use std::ops::Range;

use slotpress_format::parse_number;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContentRange {
    pub range: Range<u64>,
    /// Size of the whole file; `None` if the server does not know it.
    pub total_bytes: Option<u64>,
}

impl ContentRange {
    /// Parses `bytes 0-99/1000` and `bytes 0-99/*`; `None` for anything else.
    pub fn parse(text: &str) -> Option<Self> {
        let (range, total) = text.trim().strip_prefix("bytes ")?.trim_start().split_once('/')?;
        let total_bytes = match total {
            "*" => None,
            total => Some(parse_number(total)?),
        };
        let (first, last) = range.split_once('-')?;
        let first = parse_number(first)?;
        let end = parse_number(last)?.checked_add(1)?;
        let is_valid = first < end && total_bytes.is_none_or(|total| end <= total);
        is_valid.then_some(Self { range: first..end, total_bytes })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn invalid_ranges_are_refused() {
        for text in [
            "",
            "bytes",
            "bytes ",
            "bytes 0-1",
            "bytes 2-1/10",
            "bytes 0-10/10",
            "bytes -1/10",
            "bytes 0-/10",
            "bytes */*",
            "bytes */7",
            "bytes 0-18446744073709551615/*",
            "items 0-1/2",
            "bytes 0-1/2/3",
            "bytes +0-1/2",
            "bytes 0-1,4-5/9",
        ] {
            assert_eq!(ContentRange::parse(text), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn ranges_round_trip(start in 0u64..1 << 40, length in 1u64..1 << 40, more in proptest::option::of(0u64..1000)) {
            let range = ContentRange { range: start..start + length, total_bytes: more.map(|more| start + length + more) };
            let total = range.total_bytes.map_or("*".to_string(), |total| total.to_string());
            prop_assert_eq!(ContentRange::parse(&format!("bytes {start}-{}/{total}", start + length - 1)), Some(range));
        }

        #[test]
        fn any_text_is_parsed_without_a_panic(text in ".*") {
            let _ = ContentRange::parse(&text);
            let _ = ContentRange::parse(&format!("bytes {text}"));
        }
    }
}
