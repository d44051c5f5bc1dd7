//! A [`LinkReport`] in the formats that people and programs read; all pure.

pub mod json;
pub mod screen;

use {
    crate::levels::{
        export::{show_bytes, show_seconds},
        link::{
            model::Way,
            network::{CongestionControl, Limit},
            report::LinkReport,
            units::{show_bandwidth, show_loss, show_rate, show_rtt},
        },
    },
    std::fmt::Write,
};

const COLUMNS: [&str; 16] = [
    "codec",
    "level",
    "tar_bytes",
    "archive_bytes",
    "size_error_percent",
    "compress_seconds",
    "decompress_seconds",
    "archive_seconds",
    "send_seconds",
    "decode_seconds",
    "place_seconds",
    "streaming_seconds",
    "store_and_forward_seconds",
    "slowest_stage",
    "egress_bytes",
    "egress_price",
];

/// Comma-separated values: one line per level.
pub fn csv(report: &LinkReport) -> String {
    let mut text = COLUMNS.join(",") + "\n";
    for row in &report.rows {
        let load = &row.load;
        let error = load.size_error_percent.map(|error| format!("{error:.3}")).unwrap_or_default();
        let price = row.egress_price.map(|price| format!("{price:.4}")).unwrap_or_default();
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "{},{},{},{},{error},{:.6},{:.6},{:.6},{:.6},{:.6},{:.6},{:.6},{:.6},{},{},{price}",
            load.codec,
            load.level,
            load.tar_bytes,
            load.archive_bytes,
            load.compress_seconds,
            load.decompress_seconds,
            row.archive_seconds,
            row.send_seconds,
            row.decode_seconds,
            row.place_seconds,
            row.streaming_seconds,
            row.store_and_forward_seconds,
            row.slowest_stage.as_str(),
            row.egress_bytes,
        );
    }
    text
}

/// A Markdown table, break-even bandwidths and recommendations. `heading` names the input.
pub fn markdown(report: &LinkReport, heading: &str) -> String {
    let mut text = format!("{heading}\n\n");
    for line in describe(report) {
        let _ = writeln!(text, "- {line}");
    }
    let price = if report.has_price() { " price |" } else { "" };
    let _ = writeln!(
        text,
        "\n| level | size | archive | send | decode | place | streaming | store and forward | egress |{price}\n\
         |--:|--:|--:|--:|--:|--:|--:|--:|--:|{}",
        if report.has_price() { "--:|" } else { "" }
    );
    for row in &report.rows {
        let load = &row.load;
        let error = load.size_error_percent.map(|error| format!(" ± {error:.1} %")).unwrap_or_default();
        let price = row.egress_price.map(|price| format!(" {price:.2} |")).unwrap_or_default();
        let _ = writeln!(
            text,
            "| {} | {}{error} | {} | {} | {} | {} | {} | {} | {} |{price}",
            load.name(),
            show_bytes(load.archive_bytes),
            seconds_or_none(row.archive_seconds),
            seconds_or_none(row.send_seconds),
            seconds_or_none(row.decode_seconds),
            seconds_or_none(row.place_seconds),
            seconds_or_none(row.streaming_seconds),
            seconds_or_none(row.store_and_forward_seconds),
            show_bytes(row.egress_bytes),
        );
    }
    for way in Way::ALL {
        let _ = writeln!(text, "\n{}\n", break_even_heading(report, way));
        for break_even in report.break_evens.iter().filter(|break_even| break_even.way == way) {
            let _ = writeln!(text, "- {}", break_even.text);
        }
    }
    text.push('\n');
    for choice in &report.recommendations {
        let _ = writeln!(text, "- {}: `{}`: {}", choice.way.as_str(), choice.flag, choice.reason);
    }
    text
}

/// Above the break-even bandwidths of one way.
fn break_even_heading(report: &LinkReport, way: Way) -> String {
    let link = &report.question.link;
    let end = match link.useful_bits_per_second() {
        Some(bits) => {
            let limit = link.with_bandwidth(f64::MAX).limit();
            let limit = if limit == Limit::Loss { "loss" } else { "the window" };
            format!(" (from {} on, {limit} is the limit)", show_bandwidth(bits))
        }
        None => String::new(),
    };
    format!("Break-even, {}{end}:", way.as_str())
}

/// What takes no time has none.
fn seconds_or_none(seconds: f64) -> String {
    if seconds == 0.0 { "-".to_string() } else { show_seconds(seconds) }
}

/// The link and the machines at its ends, in lines that fit the screen.
pub fn describe(report: &LinkReport) -> Vec<String> {
    let link = &report.question.link;
    let ends = &report.question.ends;
    let plural = |count: u32| if count == 1 { "" } else { "s" };
    let control = match link.congestion_control {
        CongestionControl::Reno => "Reno",
        CongestionControl::Cubic => "CUBIC",
        CongestionControl::Bbr => "BBR",
    };
    let limit = match report.limit {
        Limit::Bandwidth if link.nodes > 1 => "a share of the bandwidth".to_string(),
        Limit::Bandwidth => "the bandwidth".to_string(),
        Limit::Window => format!("a window of {} per round trip", show_bytes(link.window_bytes)),
        Limit::Loss => format!("loss, as {control} answers to it"),
    };
    vec![
        format!(
            "link {}, round trip {}, loss {}, {control}, {} node{}, {} stream{} each",
            show_bandwidth(link.bandwidth_bits_per_second),
            show_rtt(link.rtt_seconds),
            show_loss(link.loss),
            link.nodes,
            plural(link.nodes),
            link.streams,
            plural(link.streams),
        ),
        format!("a node gets {} of archive; the limit is {limit}", show_rate(report.node_bytes_per_second)),
        format!(
            "disks read {} (--read-rate) and place {} (--place-rate)",
            show_rate(ends.read_bytes_per_second),
            show_rate(ends.place_bytes_per_second)
        ),
    ]
}

#[cfg(test)]
mod tests {
    use {
        super::*,
        crate::levels::link::report::tests::{question, report},
    };

    #[test]
    fn fixed_numbers() {
        insta::assert_snapshot!("csv", csv(&report()));
        insta::assert_snapshot!("markdown", markdown(&report(), "ledger: 93.1 GiB"));
    }

    #[test]
    fn as_many_values_as_columns() {
        for line in csv(&report()).lines() {
            assert_eq!(line.split(',').count(), COLUMNS.len(), "{line}");
        }
        let mut question = question();
        question.egress_price_per_gb = None;
        let report = LinkReport::new(question, 1, &crate::levels::export::tests::rows());
        let text = markdown(&report, "");
        let widths: Vec<usize> =
            text.lines().filter(|line| line.starts_with('|')).map(|line| line.matches('|').count()).collect();
        assert!(widths.len() > 3 && widths.iter().all(|width| *width == 10), "{text}");
    }
}
