//! The table on the terminal: lines of at most 80 characters, each of which can be printed as soon as its row is ready.

use crate::levels::{
    LevelRow,
    export::{show_bytes, show_seconds},
};

/// The two lines above the rows. `reference` is the level that the columns `vs` are set against.
pub fn header_lines(reference: i32) -> [String; 2] {
    let versus = format!("vs {reference}");
    [
        format!("{:28}{:^30} {:^14}", "", "---------- compress ----------", "- decompress -").trim_end().to_string(),
        format!(
            "{:>5} {:>8} {:>5} {:>6} {:>7} {:>3} {:>5} {:>5} {:>5} {:>7} {:>5} {:>8}",
            "level", "size", "ratio", versus, "time", "+-", "MB/s", versus, "CPU", "time", "MB/s", "memory"
        ),
    ]
}

/// The line of a row.
pub fn row_line(row: &LevelRow, reference: &LevelRow) -> String {
    format!(
        "{:>5} {:>8} {:>5} {:>6} {:>7} {:>3} {:>5} {:>5} {:>5} {:>7} {:>5} {:>8}",
        row.level,
        show_bytes(row.output_bytes),
        fixed(row.ratio(), 5),
        format!("{:.1}%", row.size_percent_of(reference)),
        show_seconds(row.compress.median),
        format!("{:.0}%", row.compress.deviation_percent()),
        fixed(row.compress_mb_per_second(), 3),
        format!("{}x", fixed(row.time_factor_of(reference), 4)),
        format!("{:.0}%", row.cpu_percent),
        show_seconds(row.decompress.median),
        fixed(row.decompress_mb_per_second(), 3),
        show_bytes(row.peak_memory_bytes),
    )
}

/// As many decimals, up to three, as fit the width.
fn fixed(value: f64, width: usize) -> String {
    let decimals = (0..=3).rev().find(|decimals| format!("{value:.decimals$}").len() <= width).unwrap_or(0);
    format!("{value:.decimals$}")
}

#[cfg(test)]
mod tests {
    use {super::*, crate::levels::export::tests::rows};

    #[test]
    fn fixed_numbers() {
        let rows = rows();
        let mut lines = header_lines(1).to_vec();
        lines.extend(rows.iter().map(|row| row_line(row, &rows[0])));
        assert!(lines.iter().all(|line| line.len() <= 80), "{}", lines.join("\n"));
        insta::assert_snapshot!(lines.join("\n"));
    }

    #[test]
    fn extremes_keep_their_columns_apart() {
        let reference = &rows()[0];
        let mut row = reference.clone();
        row.level = -1000;
        row.output_bytes = 10;
        row.compress.median = 98_765.0;
        row.decompress.median = 0.02;
        row.cpu_percent = 6400.0;
        assert_eq!(row_line(&row, reference).split_whitespace().count(), 16, "{}", row_line(&row, reference));
    }
}
