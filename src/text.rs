//! What others wrote, made fit for a message: a line of bounded length. And paths, as JSON can have them.

use {
    serde::Serializer,
    std::path::{Path, PathBuf},
};

/// The most characters that a message quotes of what an archive or a file says.
pub const QUOTED_CHARS_MAX: usize = 200;

/// The beginning of a text on one line: control characters are shown as `\u{FFFD}`, and what is too long ends with `…`.
pub fn one_line(text: &str) -> String {
    // Also those that turn the direction of what follows: a terminal would show something else than is there.
    let is_unfit = |char: char| char.is_control() || matches!(char, '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    let mut chars = text.chars().map(|char| if is_unfit(char) { char::REPLACEMENT_CHARACTER } else { char });
    let mut line: String = chars.by_ref().take(QUOTED_CHARS_MAX).collect();
    if chars.next().is_some() {
        line.push('…');
    }
    line
}

/// A path as a string: JSON has no other. Bytes that are not UTF-8 become U+FFFD.
pub fn path<S: Serializer>(path: &Path, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&path.to_string_lossy())
}

/// The same, where there may be none.
pub fn optional_path<P: AsRef<Path>, S: Serializer>(path: &Option<P>, serializer: S) -> Result<S::Ok, S::Error> {
    match path {
        Some(path) => serializer.serialize_some(&path.as_ref().to_string_lossy()),
        None => serializer.serialize_none(),
    }
}

/// The same of several.
pub fn paths<S: Serializer>(paths: &[PathBuf], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(paths.iter().map(|path| path.to_string_lossy()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_short_and_harmless() {
        assert_eq!(one_line("snapshots/5/5"), "snapshots/5/5");
        assert_eq!(one_line("a\nb\x1b[2J\u{202e}c"), "a\u{fffd}b\u{fffd}[2J\u{fffd}c");
        let long = one_line(&"x".repeat(1_000_000));
        assert!(long.chars().count() == QUOTED_CHARS_MAX + 1 && long.ends_with('…'));
    }
}
