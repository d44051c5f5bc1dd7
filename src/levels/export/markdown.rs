//! A Markdown table, with the recommendation below it.

use {
    crate::levels::{
        LevelRow,
        export::{Subject, show_bytes, show_seconds},
        in_order,
        recommend::recommend,
        reference_row,
    },
    std::fmt::Write,
};

/// The whole file.
pub fn markdown(subject: &Subject, rows: &[LevelRow]) -> String {
    let mut text = format!("{}: {}\n", escaped(&subject.name), subject.describe());
    let Some(reference) = reference_row(rows) else { return text };
    let against = reference.level;
    // Writing to a string cannot fail.
    let _ = write!(
        text,
        "\n| level | size | ratio | size vs {against} | compress | MB/s | time vs {against} | CPU load | decompress | MB/s | memory |\n\
         |--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|\n"
    );
    for row in in_order(rows) {
        let _ = writeln!(
            text,
            "| {} | {} | {:.3}{} | {:.1} % | {} | {:.0} | {:.2} | {:.0} % | {} | {:.0} | {} |",
            row.level,
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
    if let Some(choice) = recommend(rows) {
        let _ = write!(
            text,
            "\n- shortest time: level {}: {}\n- smallest size: level {}: {}\n- best of both: level {}: {}\n",
            choice.shortest_time.level,
            choice.shortest_time.reason,
            choice.smallest_size.level,
            choice.smallest_size.reason,
            choice.knee.level,
            choice.knee.reason
        );
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
