//! The table on the terminal: lines of at most 80 characters.

use crate::levels::{
    codec::label,
    export::show_bytes,
    link::{
        export::{break_even_heading, seconds_or_none},
        model::{UNCOMPRESSED, Way},
        report::{LinkReport, LinkRow},
    },
};

/// What the times are, below the table.
pub const WHAT_IS_COUNTED: &str = "Seconds until storages are on the node's disk; the validator's own start, the same at every level, comes on top. \
    stream: all stages at once; sum: one after the other.";

/// The line above the rows.
pub fn header_line(report: &LinkReport) -> String {
    let egress = if report.has_price() { "price" } else { "egress" };
    format!(
        "{:>7} {:>8} {:>8} {:>8} {:>8} {:>8} {:>8} {:>8} {:>8}",
        "level", "size", "archive", "send", "decode", "place", "stream", "sum", egress
    )
}

/// The line of a row.
pub fn row_line(row: &LinkRow) -> String {
    let name = match row.load.codec.as_str() {
        UNCOMPRESSED => UNCOMPRESSED.to_string(),
        "zstd" => row.load.level.to_string(),
        codec => label(codec, row.load.level),
    };
    let egress = match row.egress_price {
        Some(price) if price < 99_999.995 => format!("{price:.2}"),
        Some(price) => format!("{price:.0}"),
        None => show_bytes(row.egress_bytes),
    };
    let seconds = [
        row.archive_seconds,
        row.send_seconds,
        row.decode_seconds,
        row.place_seconds,
        row.streaming_seconds,
        row.store_and_forward_seconds,
    ];
    let seconds: String = seconds.iter().map(|seconds| format!(" {:>8}", seconds_or_none(*seconds))).collect();
    format!("{name:>7} {:>8}{seconds} {egress:>8}", show_bytes(row.load.archive_bytes))
}

/// What stands below the table: what it means, break-even bandwidths, what to do. Each line with a label, below whose
/// end what does not fit goes on.
pub fn below(report: &LinkReport) -> Vec<(String, String)> {
    let mut lines = Vec::new();
    let mut line = |label: &str, text: &str| lines.push((label.to_string(), text.to_string()));
    line("", WHAT_IS_COUNTED);
    let error = report.rows.iter().filter_map(|row| row.load.size_error_percent).fold(0.0, f64::max);
    if error > 0.0 {
        line("", &format!("Of a sample: sizes, and times to send, are within {error:.1} %."));
    }
    if let Some(price) = report.question.egress_price_per_gb {
        let nodes = report.question.link.nodes;
        let plural = if nodes == 1 { "" } else { "s" };
        line("", &format!("Price of egress to {nodes} node{plural} at {price} per GB (10^9 bytes of archive)."));
    }
    for way in Way::ALL {
        line("", "");
        line("", &break_even_heading(report, way));
        for break_even in report.break_evens.iter().filter(|break_even| break_even.way == way) {
            line("  ", &break_even.text);
        }
    }
    line("", "");
    for choice in &report.recommendations {
        line(&format!("{}  {}: ", choice.way.as_str(), choice.flag), &choice.reason);
    }
    lines
}

#[cfg(test)]
mod tests {
    use {
        super::*,
        crate::levels::link::{export::describe, report::tests::report},
    };

    #[test]
    fn fixed_numbers() {
        let report = report();
        let mut lines = describe(&report);
        lines.push(header_line(&report));
        lines.extend(report.rows.iter().map(row_line));
        assert!(lines.iter().all(|line| line.len() <= 80), "{}", lines.join("\n"));
        lines.extend(below(&report).into_iter().map(|(label, text)| label + &text));
        insta::assert_snapshot!(lines.join("\n"));
    }

    #[test]
    fn extremes_keep_their_columns_apart() {
        let mut row = report().rows[1].clone();
        row.load.codec = "bzip2".to_string();
        row.load.level = 9;
        row.send_seconds = 12_345_678.0;
        row.egress_price = Some(12_345_678.9);
        let line = row_line(&row);
        assert!(line.len() <= 82 && line.contains("bzip2 9 "), "{line}");
    }
}
