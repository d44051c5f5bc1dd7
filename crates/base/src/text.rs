//! Makes text safe for messages: escapes control characters, and limits lengths. Also contains serializers
//! for paths, times and counts.

use std::borrow::Cow;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Serialize, Serializer};
use serde_json::ser::Formatter;

/// Limit on the characters of foreign text that a message quotes.
pub const QUOTED_CHARS_MAX: usize = 200;

/// True for characters that a terminal would interpret: control characters, line separators, and
/// changes of text direction.
fn is_control(c: char) -> bool {
    c.is_control() || matches!(c, '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Returns the beginning of a text on one line. Control characters become `\u{FFFD}`, and `…` ends
/// a text that was truncated.
pub fn one_line(text: &str) -> String {
    let mut chars = text.chars().map(|c| if is_control(c) { char::REPLACEMENT_CHARACTER } else { c });
    let mut line: String = chars.by_ref().take(QUOTED_CHARS_MAX).collect();
    if chars.next().is_some() {
        line.push('…');
    }
    line
}

/// Escapes control characters, as `\u{1b}` and `\n`, so that a terminal shows them instead of
/// interpreting them.
pub fn escape(text: &str) -> Cow<'_, str> {
    if !text.contains(is_control) {
        return Cow::Borrowed(text);
    }
    let escape_char = |c: char| if is_control(c) { c.escape_default().to_string() } else { c.to_string() };
    Cow::Owned(text.chars().map(escape_char).collect())
}

/// Like [`escape`], but keeps line ends.
pub fn escape_lines(text: &str) -> Cow<'_, str> {
    if !text.contains(|c| c != '\n' && is_control(c)) {
        return Cow::Borrowed(text);
    }
    Cow::Owned(text.split('\n').map(escape).collect::<Vec<_>>().join("\n"))
}

/// Serializes a value as one line of JSON. Characters that a terminal would interpret are escaped
/// (`\u009b`), so the line can be printed.
pub fn json(value: &impl Serialize) -> String {
    let mut line = Vec::new();
    // Cannot fail: all values are plain structures with string keys.
    let written = value.serialize(&mut serde_json::Serializer::with_formatter(&mut line, Escaping));
    written.ok().and_then(|()| String::from_utf8(line).ok()).unwrap_or_default()
}

struct Escaping;

impl Formatter for Escaping {
    fn write_string_fragment<W: ?Sized + Write>(&mut self, writer: &mut W, fragment: &str) -> io::Result<()> {
        let mut unwritten = fragment;
        while let Some((index, control)) = unwritten.char_indices().find(|(_, c)| is_control(*c)) {
            let (plain, from_control) = unwritten.split_at(index);
            // None of these characters is beyond U+FFFF.
            write!(writer, "{plain}\\u{:04x}", u32::from(control))?;
            unwritten = from_control.strip_prefix(control).unwrap_or_default();
        }
        writer.write_all(unwritten.as_bytes())
    }
}

/// Shows paths in messages. [`Path::display`] would print control characters, which a file name
/// may contain.
pub trait EscapePath {
    /// Returns the path as text. Bytes that are not UTF-8 become U+FFFD, and control characters
    /// are escaped.
    fn escaped(&self) -> String;
}

impl<P: AsRef<Path> + ?Sized> EscapePath for P {
    fn escaped(&self) -> String {
        escape(&self.as_ref().to_string_lossy()).into_owned()
    }
}

/// Returns a text of at most `chars_max` characters. The last one is `…` if the text was longer.
pub fn truncate(text: &str, chars_max: usize) -> String {
    match text.char_indices().nth(chars_max) {
        None => text.to_string(),
        Some(_) => text.chars().take(chars_max.saturating_sub(1)).chain((chars_max > 0).then_some('…')).collect(),
    }
}

/// Serializes a path as a string. Bytes that are not UTF-8 become U+FFFD.
pub fn path<S: Serializer>(path: &Path, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&path.to_string_lossy())
}

pub fn optional_path<P: AsRef<Path>, S: Serializer>(path: &Option<P>, serializer: S) -> Result<S::Ok, S::Error> {
    path.as_ref().map(|path| path.as_ref().to_string_lossy()).serialize(serializer)
}

pub fn seconds<S: Serializer>(time: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(time.as_secs_f64())
}

pub fn optional_seconds<S: Serializer>(time: &Option<Duration>, serializer: S) -> Result<S::Ok, S::Error> {
    time.map(|time| time.as_secs_f64()).serialize(serializer)
}

pub fn paths<S: Serializer>(paths: &[PathBuf], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(paths.iter().map(|path| path.to_string_lossy()))
}

pub fn display<S: Serializer>(value: &impl std::fmt::Display, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(value)
}

pub fn optional_display<T: std::fmt::Display, S: Serializer>(
    value: &Option<T>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    value.as_ref().map(ToString::to_string).serialize(serializer)
}

pub fn list_length<T, S: Serializer>(list: &[T], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_u64(list.len() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn foreign_text_becomes_one_short_line() {
        assert_eq!(one_line("snapshots/5/5"), "snapshots/5/5");
        assert_eq!(one_line("a\nb\x1b[2J\u{202e}c"), "a\u{fffd}b\u{fffd}[2J\u{fffd}c");
        let long = one_line(&"x".repeat(1_000_000));
        assert!(long.chars().count() == QUOTED_CHARS_MAX + 1);
        assert!(long.ends_with('…'));
    }

    proptest::proptest! {
        /// Any text survives a JSON parser, and the line needs no more escaping.
        #[test]
        fn json_can_be_parsed_and_printed(text in "[\\x00-\u{a0}\u{2020}-\u{2070}\u{fffd}x\\\\\"]{0,40}") {
            let line = json(&text);
            proptest::prop_assert_eq!(serde_json::from_str::<String>(&line).ok(), Some(text));
            proptest::prop_assert_eq!(escape(&line), line.as_str());
        }
    }

    #[test]
    fn control_characters_are_escaped() {
        assert_eq!(Path::new("a\nb\x1b]0;x\x07/\u{9b}é\u{202e}").escaped(), "a\\nb\\u{1b}]0;x\\u{7}/\\u{9b}é\\u{202e}");
        assert_eq!("/mnt/ledger".escaped(), "/mnt/ledger");
        assert_eq!(escape_lines("one\ntwo\r\x1b[2J\n"), "one\ntwo\\r\\u{1b}[2J\n");
    }

    #[test]
    fn long_text_is_truncated() {
        assert_eq!(
            (truncate("four", 4), truncate("fours", 4), truncate("x", 0)),
            ("four".into(), "fou…".into(), String::new())
        );
    }
}
