//! A Markdown table, with the recommendation below it.

use {
    crate::levels::{
        LevelRow,
        codec::label,
        export::{Subject, show_bytes, show_seconds},
        has_codecs, in_order,
        recommend::{Choice, recommend},
        reference_row,
    },
    std::fmt::Write,
};

/// The whole file.
pub fn markdown(subject: &Subject, rows: &[LevelRow]) -> String {
    let mut text = format!("{}: {}\n", escaped(&subject.name), subject.describe());
    let Some(reference) = reference_row(rows) else { return text };
    let is_many = has_codecs(rows);
    let name = |row: &LevelRow| if is_many { row.label() } else { row.level.to_string() };
    let against = name(reference);
    let (what, align) = if is_many { ("codec", "|---") } else { ("level", "|--:") };
    // Writing to a string cannot fail.
    let _ = write!(
        text,
        "\n| {what} | size | ratio | size vs {against} | compress | MB/s | time vs {against} | CPU load | decompress | MB/s | memory |\n\
         {align}|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|\n"
    );
    for row in in_order(rows) {
        let _ = writeln!(
            text,
            "| {} | {} | {:.3}{} | {:.1} % | {} | {:.0} | {:.2} | {:.0} % | {} | {:.0} | {} |",
            name(row),
            show_bytes(row.output_bytes),
            row.ratio(),
            row.size_error_percent.map(|error| format!(" ± {error:.1} %")).unwrap_or_default(),
            row.size_percent_of(reference),
            show_seconds(row.compress.median),
            row.compress_mb_per_second(),
            row.time_factor_of(reference),
            row.cpu_percent,
            show_seconds(row.decompress.median),
            row.decompress_mb_per_second(),
            show_bytes(row.peak_memory_bytes),
        );
    }
    if let Some(found) = recommend(rows) {
        let name = |choice: &Choice| if is_many { choice.flag() } else { format!("level {}", choice.level) };
        let choices = [
            ("shortest time", &found.shortest_time),
            ("smallest size", &found.smallest_size),
            ("best of both", &found.knee),
        ];
        text.push('\n');
        for (what, choice) in choices {
            let _ = writeln!(text, "- {what}: {}: {}", name(choice), choice.reason);
        }
        for other in &found.others {
            let _ = writeln!(text, "- not for archives: {}: {}", label(&other.codec, other.level), other.reason);
        }
    }
    text
}

/// A file name that could be taken for markup.
pub(in crate::levels) fn escaped(name: &str) -> String {
    name.chars()
        .flat_map(|char| {
            let slash = "\\`*_{}[]<>#|".contains(char).then_some('\\');
            slash.into_iter().chain([if char.is_control() { ' ' } else { char }])
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use {
        super::*,
        crate::levels::export::tests::{rows, subject},
    };

    #[test]
    fn fixed_numbers() {
        insta::assert_snapshot!(markdown(&subject(), &rows()));
        assert_eq!(escaped("a_b|c"), r"a\_b\|c");
    }
}
