//! Fits text to the terminal: width, tables, wrapped lines; and the time as log lines show it.

use std::io::IsTerminal;
use std::os::fd::AsFd;

use comfy_table::presets::NOTHING;
use comfy_table::{CellAlignment, ContentArrangement, Table};
use slotpress_base::clock;
pub use slotpress_base::text::cut;
use textwrap::core::display_width;
use textwrap::{Options, WordSeparator, WordSplitter};

/// Lays out a table in at most `columns` columns of the terminal. A cell that is too wide is broken
/// into several lines, except a name in the last column, which gets a line of its own. The table's
/// columns listed in `words` are aligned left, all others right.
pub fn table(headings: &[&str], mut rows: Vec<Vec<String>>, words: &[usize], columns: usize) -> Vec<String> {
    let last = headings.len().saturating_sub(1);
    let width = |at: usize| {
        let cells = rows.iter().filter_map(|row| row.get(at)).map(String::as_str).chain(headings.get(at).copied());
        cells.map(display_width).max().unwrap_or_default() + 2
    };
    let names = || rows.iter().filter_map(|row| row.get(last)).flat_map(|name| name.split_whitespace());
    let longest = names().map(display_width).max().unwrap_or_default();
    let others = (0..last).map(width).sum::<usize>();
    if words.contains(&last) && last > 0 && others <= columns && others + longest > columns {
        let names: Vec<String> = rows.iter_mut().filter_map(Vec::pop).collect();
        let mut lines = plain_table(&headings[..last], rows, words, columns).into_iter();
        let heading = lines.next().into_iter();
        return heading.chain(lines.zip(names).flat_map(|(row, name)| [row, format!("  {name}")])).collect();
    }
    plain_table(headings, rows, words, columns)
}

fn plain_table(headings: &[&str], rows: Vec<Vec<String>>, words: &[usize], columns: usize) -> Vec<String> {
    let mut table = Table::new();
    table.load_style(NOTHING).set_header(headings).add_rows(rows);
    for (at, column) in table.column_iter_mut().enumerate() {
        let side = if words.contains(&at) { CellAlignment::Left } else { CellAlignment::Right };
        column.set_padding((0, 2)).set_cell_alignment(side);
    }
    table.set_content_arrangement(ContentArrangement::Dynamic).set_width(columns as u16 + 2);
    table.lines().map(|line| line.trim_end().to_string()).collect()
}

const COLUMNS_DEFAULT: usize = 80;

/// True if the locale uses UTF-8, according to the first of `LC_ALL`, `LC_CTYPE` and `LANG` that is
/// set. True if none is set, as in most services.
pub fn is_utf8() -> bool {
    let set = |name: &&str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    let locale = ["LC_ALL", "LC_CTYPE", "LANG"].iter().find(|name| set(name)).and_then(std::env::var_os);
    locale.is_none_or(|locale| {
        let locale = locale.to_string_lossy().to_ascii_lowercase();
        locale.contains("utf-8") || locale.contains("utf8")
    })
}

pub fn columns() -> usize {
    columns_of(std::io::stderr()).unwrap_or(COLUMNS_DEFAULT)
}

/// Columns of the terminal on stdout; `None` if stdout is not a terminal.
pub fn columns_of_results() -> Option<usize> {
    let stdout = std::io::stdout();
    if stdout.is_terminal() { columns_of(stdout) } else { None }
}

fn columns_of(terminal: impl AsFd) -> Option<usize> {
    let size = rustix::termios::tcgetwinsize(terminal).ok()?;
    (size.ws_col > 0).then_some(usize::from(size.ws_col))
}

/// Stands for a space at which no line may end. It is a character for private use, which no
/// terminal shows.
const KEPT_SPACE: char = '\u{f8ff}';

/// Keeps text in backquotes on one line: commands are copied from there.
fn keep_commands(text: &str) -> String {
    let parts: Vec<&str> = text.split('`').collect();
    let is_command = |at: usize| at % 2 == 1 && at + 1 < parts.len();
    let keep = |(at, part): (usize, &&str)| match is_command(at) {
        true => part.replace(' ', KEPT_SPACE.encode_utf8(&mut [0; 4])),
        false => part.to_string(),
    };
    parts.iter().enumerate().map(keep).collect::<Vec<_>>().join("`")
}

/// Wraps a text to lines of at most `columns` columns. Continuation lines are indented to the end
/// of the label. A word that is too long stays in one piece, so that paths can be copied; so does a
/// command in backquotes.
pub fn wrap(label: &str, text: &str, columns: usize) -> Vec<String> {
    let text = keep_commands(text);
    let words: Vec<&str> = text.split_whitespace().collect();
    let Some(first_width) = words.first().map(|word| display_width(word)) else { return vec![label.to_string()] };
    let longest = words.iter().map(|word| display_width(word)).max().unwrap_or(0);
    let label_width = display_width(label);
    // If the label leaves no room for the longest word, indent less.
    let indent = " ".repeat(label_width.min(columns / 2).min(columns.saturating_sub(longest)));
    let is_label_alone = (1..columns).contains(&label_width) && label_width + first_width > columns;
    let options = Options::new(columns)
        .initial_indent(if is_label_alone { &indent } else { label })
        .subsequent_indent(&indent)
        .break_words(false)
        // Names contain hyphens and slashes: do not break lines there.
        .word_separator(WordSeparator::AsciiSpace)
        .word_splitter(WordSplitter::NoHyphenation);
    let text = words.join(" ");
    let lines = textwrap::wrap(&text, options).into_iter().map(|line| line.replace(KEPT_SPACE, " ")).collect();
    if is_label_alone { [vec![label.to_string()], lines].concat() } else { lines }
}

/// Wraps one line of a report to `columns` columns. In a line with a label, such as
/// `  size    12 GiB from …`, the value is wrapped in its own column. Table rows, which contain
/// several gaps, stay unchanged.
pub fn wrap_line(line: &str, columns: usize) -> Vec<String> {
    if display_width(line) <= columns {
        return vec![line.to_string()];
    }
    let body = line.trim_start();
    let value = match body.split_once("  ") {
        None => body,
        Some((_, value)) if !value.trim_start().contains("  ") && body.len() < line.len() => value.trim_start(),
        Some(_) => return vec![line.to_string()],
    };
    wrap(line.strip_suffix(value).unwrap_or_default(), value, columns)
}

/// Wraps each line of a text; the first one follows the label.
pub fn wrap_all(label: &str, text: &str, columns: usize) -> String {
    let labels = std::iter::once(label).chain(std::iter::repeat(""));
    let lines: Vec<String> = labels.zip(text.lines()).flat_map(|(label, line)| wrap(label, line, columns)).collect();
    lines.join("\n")
}

/// The time in UTC, as log lines show it: `2026-11-22T09:30:05Z`.
pub fn time_now() -> String {
    humantime::format_rfc3339_seconds(clock::now()).to_string()
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
        // A word too long for the space after the label is indented less.
        let capitalization = "1 account, capitalization 599,999,123,456,789,012";
        let lines = wrap("  state    ok       ", capitalization, 40);
        assert!(lines.iter().all(|line| line.chars().count() <= 40), "{lines:#?}");
        assert_eq!(
            wrap("  supply             ", "599,999,123,456,789,012", 40)[1],
            " ".repeat(17) + "599,999,123,456,789,012"
        );
        assert_eq!(wrap("label: ", "", 80), ["label: "]);
        assert_eq!(wrap("", "/a/path/that/is/long is", 10), ["/a/path/that/is/long", "is"]);
        // A command in backquotes stays in one piece.
        let command = "`slotpress verify FULL archives/incremental-snapshot-1-2-x.tar.zst`";
        let lines = wrap("hint: ", &format!("to check it, give {command} and, `an open one"), 60);
        assert_eq!(lines, ["hint: to check it, give", command, "and, `an open one"]);
        let name = "incremental-snapshot-350006937-350007037-5vEhTbsmLTSSQvMC1NEepXxVeVqpHmy8HCue69xKz9nt.tar.zst";
        assert_eq!(wrap("", &format!("the archive {name} is"), 40), ["the archive", name, "is"]);
    }

    #[test]
    fn names_in_tables_stay_whole() {
        let rows = |name: &str| vec![vec!["1 s".to_string(), "350006937".to_string(), name.to_string()]; 2];
        let headings = ["age", "slot", "source"];
        let short = table(&headings, rows("a:80"), &[2], 40);
        assert_eq!(short[1..], ["1 s  350006937  a:80", "1 s  350006937  a:80"]);
        let name = "mirror.example.org:8899/mainnet-beta/snapshots";
        let long = table(&headings, rows(name), &[2], 40);
        let (row, name) = ("1 s  350006937".to_string(), format!("  {name}"));
        assert_eq!(long[1..], [&row, &name, &row, &name].map(String::as_str));
    }

    #[test]
    fn values_go_on_below_themselves() {
        assert_eq!(wrap_line("  size     12 GiB", 40), ["  size     12 GiB"]);
        let line = "  storages     540, 67.4 MiB, the largest 2.75 MiB";
        assert_eq!(wrap_line(line, 36), ["  storages     540, 67.4 MiB, the", "               largest 2.75 MiB"]);
        assert_eq!(wrap_line("  full, slot 350006971, 540", 16), ["  full, slot", "  350006971, 540"]);
        assert_eq!(wrap_line("a sentence of some words", 16), ["a sentence of", "some words"]);
        for row in ["  Token   118,551    33.8 MiB  50.4", "    1 4.54 MiB  3.386   100.0%", "one  two"] {
            assert_eq!(wrap_line(row, 6), [row]);
        }
    }
}
