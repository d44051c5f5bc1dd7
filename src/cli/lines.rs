//! Lines that fit the terminal: how wide it is, and text that is wrapped at words.

/// Where nobody says how wide the terminal is.
const COLUMNS_DEFAULT: usize = 80;

/// Columns of the terminal on stderr.
pub fn columns() -> usize {
    match rustix::termios::tcgetwinsize(std::io::stderr()) {
        Ok(size) if size.ws_col > 0 => usize::from(size.ws_col),
        _ => COLUMNS_DEFAULT,
    }
}

/// Lines of at most `columns` characters; the ones after the first are indented below the text. A word that is longer
/// stays whole, so that paths can be copied.
pub fn wrap(label: &str, text: &str, columns: usize) -> Vec<String> {
    let indent = " ".repeat(label.chars().count().min(columns / 2));
    let mut lines = vec![label.to_string()];
    let mut is_line_start = true;
    for word in text.split_whitespace() {
        let length = lines.last().map_or(0, |line| line.chars().count());
        if !is_line_start && length + 1 + word.chars().count() > columns {
            lines.push(indent.clone());
            is_line_start = true;
        }
        if let Some(line) = lines.last_mut() {
            if !is_line_start {
                line.push(' ');
            }
            line.push_str(word);
        }
        is_line_start = false;
    }
    lines
}

/// The first characters of a text, as many as fit.
pub fn cut(text: &str, chars_max: usize) -> String {
    match text.char_indices().nth(chars_max) {
        None => text.to_string(),
        Some(_) => text.chars().take(chars_max.saturating_sub(1)).chain((chars_max > 0).then_some('…')).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_fit_the_screen() {
        let text = "no measured level is smaller (8.0 % smaller than level 1 in 6.78 times its time)".repeat(3);
        for columns in [40, 80, 120] {
            let lines = wrap("smallest size  --zstd-level 10: ", &text, columns);
            assert!(lines.len() > 2 && lines.iter().all(|line| line.chars().count() <= columns), "{lines:#?}");
        }
        assert_eq!(wrap("", "two words", 80), ["two words"]);
        assert_eq!(wrap("label: ", "", 80), ["label: "]);
        assert_eq!(wrap("", "/a/path/that/is/long is", 10), ["/a/path/that/is/long", "is"]);
    }

    #[test]
    fn what_does_not_fit_is_cut() {
        assert_eq!((cut("four", 4), cut("fours", 4), cut("x", 0)), ("four".into(), "fou…".into(), String::new()));
    }
}
