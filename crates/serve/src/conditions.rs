//! Decides which bytes of a file are sent, from the conditions and the range of a request (RFC 9110,
//! sections 13 and 14). Does no I/O.
//!
//! A request for several ranges is answered with the whole file, as the standard allows.

use std::ops::Range;
use std::time::{Duration, SystemTime};

use hyper::Method;
use hyper::header::{
    HeaderMap, HeaderName, IF_MATCH, IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_RANGE, IF_UNMODIFIED_SINCE, RANGE,
};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileVersion {
    pub etag: String,
    pub modified: SystemTime,
    pub length_bytes: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FileAnswer {
    Whole,
    /// A non-empty part of the file (206).
    Part(Range<u64>),
    /// Not modified: the client has this version (304).
    NotModified,
    /// The client expects a different version (412).
    PreconditionFailed,
    /// The file has no such bytes (416).
    Unsatisfiable,
}

/// Minimum age at which a file's modification date is a strong validator. A younger file may be modified again
/// within the same second, and its date would not change.
const STRONG_DATE_AGE: Duration = Duration::from_secs(2);

pub fn decide_answer(method: &Method, headers: &HeaderMap, version: &FileVersion, now: SystemTime) -> FileAnswer {
    let parse_date =
        |name: HeaderName| single_value(headers, &name).and_then(|text| httpdate::parse_http_date(text).ok());
    if headers.contains_key(IF_MATCH) {
        if !list_values(headers, &IF_MATCH).any(|tag| tag == "*" || tag == version.etag) {
            return FileAnswer::PreconditionFailed;
        }
    } else if parse_date(IF_UNMODIFIED_SINCE).is_some_and(|since| version.modified > since) {
        return FileAnswer::PreconditionFailed;
    }
    if headers.contains_key(IF_NONE_MATCH) {
        let matches = |tag: &str| tag == "*" || tag.trim_start_matches("W/") == version.etag;
        if list_values(headers, &IF_NONE_MATCH).any(matches) {
            return FileAnswer::NotModified;
        }
    } else if parse_date(IF_MODIFIED_SINCE).is_some_and(|since| version.modified <= since) {
        return FileAnswer::NotModified;
    }
    // Ranges are defined only for GET.
    let range = if method == Method::GET { single_value(headers, &RANGE) } else { None };
    let Some(range) = range else { return FileAnswer::Whole };
    if headers.contains_key(IF_RANGE)
        && !single_value(headers, &IF_RANGE).is_some_and(|validator| names_version(validator, version, now))
    {
        return FileAnswer::Whole;
    }
    parse_range(range, version.length_bytes)
}

/// Returns true if the value of an If-Range header, a date or an entity tag, names exactly this version.
fn names_version(validator: &str, version: &FileVersion, now: SystemTime) -> bool {
    let age = now.duration_since(version.modified).unwrap_or_default();
    match httpdate::parse_http_date(validator) {
        Ok(date) => date == version.modified && age >= STRONG_DATE_AGE,
        Err(_) => validator.trim() == version.etag,
    }
}

pub fn parse_range(text: &str, length_bytes: u64) -> FileAnswer {
    match parse_single_range(text, length_bytes) {
        None => FileAnswer::Whole,
        Some(range) if range.is_empty() => FileAnswer::Unsatisfiable,
        Some(range) => FileAnswer::Part(range),
    }
}

/// Parses a header with a single range; `None` if it has several ranges or is invalid.
fn parse_single_range(text: &str, length_bytes: u64) -> Option<Range<u64>> {
    let (unit, ranges) = text.split_once('=')?;
    let mut ranges = ranges.split(',').map(str::trim).filter(|range| !range.is_empty());
    let range = ranges.next()?;
    if ranges.next().is_some() || !unit.trim().eq_ignore_ascii_case("bytes") {
        return None;
    }
    let (first, last) = range.split_once('-')?;
    Some(match (first.trim(), last.trim()) {
        ("", suffix) => length_bytes.saturating_sub(parse_number(suffix)?)..length_bytes,
        (first, "") => parse_number(first)?..length_bytes,
        (first, last) => {
            let first = parse_number(first)?;
            let last = parse_number(last)?;
            (first <= last).then(|| first..last.saturating_add(1).min(length_bytes))?
        }
    })
}

/// Parses decimal digits. A number that is too large becomes the largest `u64`.
fn parse_number(text: &str) -> Option<u64> {
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| text.parse().unwrap_or(u64::MAX))
}

/// Returns the value of a header; `None` if the header is missing, occurs twice or is not text.
fn single_value<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    let mut values = headers.get_all(name).iter();
    match (values.next(), values.next()) {
        (Some(value), None) => value.to_str().ok(),
        _ => None,
    }
}

/// Returns the comma-separated values of all headers with this name. Entity tags of other servers may
/// contain commas, and are split. That is harmless, because this server's tags contain none.
pub fn list_values<'a>(headers: &'a HeaderMap, name: &HeaderName) -> impl Iterator<Item = &'a str> {
    let values = headers.get_all(name).iter();
    let texts = values.filter_map(|value| value.to_str().ok());
    texts.flat_map(|text| text.split(',')).map(str::trim)
}

#[cfg(test)]
mod tests {
    use hyper::header::HeaderValue;
    use proptest::prelude::*;

    use super::*;

    const DAY: Duration = Duration::from_secs(86_400);

    fn version() -> FileVersion {
        FileVersion { etag: "\"abc\"".into(), modified: SystemTime::UNIX_EPOCH + DAY * 20_000, length_bytes: 1000 }
    }

    fn decide(method: Method, headers: &[(HeaderName, &str)]) -> FileAnswer {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(name.clone(), HeaderValue::from_str(value).expect("text"));
        }
        decide_answer(&method, &map, &version(), version().modified + DAY)
    }

    #[test]
    fn ranges_are_parsed() {
        for (text, expected) in [
            ("bytes=0-0", FileAnswer::Part(0..1)),
            ("bytes=0-", FileAnswer::Part(0..1000)),
            ("bytes=500-2000", FileAnswer::Part(500..1000)),
            ("Bytes = 999-", FileAnswer::Part(999..1000)),
            ("bytes=-1", FileAnswer::Part(999..1000)),
            ("bytes=-5000", FileAnswer::Part(0..1000)),
            ("bytes=, 5-6 ,", FileAnswer::Part(5..7)),
            ("bytes=5-99999999999999999999999", FileAnswer::Part(5..1000)),
            ("bytes=1000-", FileAnswer::Unsatisfiable),
            ("bytes=99999999999999999999999-", FileAnswer::Unsatisfiable),
            ("bytes=-0", FileAnswer::Unsatisfiable),
            ("bytes=6-5", FileAnswer::Whole),
            ("bytes=0-1,5-6", FileAnswer::Whole),
            ("bytes=+1-2", FileAnswer::Whole),
            ("bytes=1-2x", FileAnswer::Whole),
            ("bytes=-", FileAnswer::Whole),
            ("bytes=", FileAnswer::Whole),
            ("bytes", FileAnswer::Whole),
            ("lines=0-1", FileAnswer::Whole),
        ] {
            assert_eq!(parse_range(text, 1000), expected, "{text}");
        }
        assert_eq!(parse_range("bytes=0-", 0), FileAnswer::Unsatisfiable);
    }

    #[test]
    fn conditions_decide_the_answer() {
        let whole = FileAnswer::Whole;
        let part = FileAnswer::Part(0..10);
        let range = (RANGE, "bytes=0-9");
        let same = httpdate::fmt_http_date(version().modified);
        let before = httpdate::fmt_http_date(version().modified - DAY);
        let after = httpdate::fmt_http_date(version().modified + DAY);
        for (headers, expected) in [
            (vec![], whole.clone()),
            (vec![range.clone()], part.clone()),
            (vec![range.clone(), range.clone()], whole.clone()),
            (vec![range.clone(), (IF_RANGE, "\"abc\"")], part.clone()),
            (vec![range.clone(), (IF_RANGE, "\"other\"")], whole.clone()),
            (vec![range.clone(), (IF_RANGE, "W/\"abc\"")], whole.clone()),
            (vec![range.clone(), (IF_RANGE, &same)], part.clone()),
            (vec![range.clone(), (IF_RANGE, &after)], whole.clone()),
            (vec![range.clone(), (IF_RANGE, &before)], whole.clone()),
            (vec![(IF_NONE_MATCH, "\"x\", W/\"abc\"")], FileAnswer::NotModified),
            (vec![(IF_NONE_MATCH, "*")], FileAnswer::NotModified),
            (vec![(IF_NONE_MATCH, "\"x\""), (IF_MODIFIED_SINCE, &after)], whole.clone()),
            (vec![(IF_MODIFIED_SINCE, &same)], FileAnswer::NotModified),
            (vec![(IF_MODIFIED_SINCE, &before)], whole.clone()),
            (vec![(IF_MODIFIED_SINCE, "yesterday")], whole.clone()),
            (vec![(IF_MATCH, "\"abc\""), range.clone()], part),
            (vec![(IF_MATCH, "W/\"abc\"")], FileAnswer::PreconditionFailed),
            (vec![(IF_MATCH, "\"x\"")], FileAnswer::PreconditionFailed),
            (vec![(IF_UNMODIFIED_SINCE, &before)], FileAnswer::PreconditionFailed),
            (vec![(IF_UNMODIFIED_SINCE, &same)], whole.clone()),
        ] {
            assert_eq!(decide(Method::GET, &headers), expected, "{headers:?}");
        }
        assert_eq!(decide(Method::HEAD, &[range]), whole, "ranges are defined only for GET");
    }

    #[test]
    fn a_date_within_the_last_two_seconds_is_not_a_strong_validator() {
        let mut headers = HeaderMap::new();
        let same = HeaderValue::from_str(&httpdate::fmt_http_date(version().modified)).expect("text");
        headers.insert(IF_RANGE, same);
        headers.insert(RANGE, HeaderValue::from_static("bytes=0-9"));
        let decide_at_age = |age| decide_answer(&Method::GET, &headers, &version(), version().modified + age);
        assert_eq!(decide_at_age(Duration::from_millis(900)), FileAnswer::Whole);
        assert_eq!(decide_at_age(STRONG_DATE_AGE), FileAnswer::Part(0..10));
    }

    proptest! {
        #[test]
        fn parts_are_inside_the_file(text in "bytes=[-0-9, ]{0,20}", length in 0u64..2000) {
            if let FileAnswer::Part(range) = parse_range(&text, length) {
                prop_assert!(range.start < range.end);
                prop_assert!(range.end <= length);
            }
        }

        #[test]
        fn any_range_is_parsed_without_a_panic(text in ".*", length in any::<u64>()) {
            parse_range(&text, length);
        }

        #[test]
        fn a_range_selects_its_bytes(length in 1u64..1_000_000, a in any::<u64>(), b in any::<u64>()) {
            let first = a % length;
            let last = b % length;
            let expected = if first <= last { FileAnswer::Part(first..last + 1) } else { FileAnswer::Whole };
            prop_assert_eq!(parse_range(&format!("bytes={first}-{last}"), length), expected);
            prop_assert_eq!(parse_range(&format!("bytes={first}-"), length), FileAnswer::Part(first..length));
            prop_assert_eq!(parse_range(&format!("bytes=-{}", last + 1), length), FileAnswer::Part(length - last - 1..length));
        }
    }
}
