//! A report of frame sizes as text: tables on the terminal, JSON lines, comma-separated values, Markdown.

use {
    super::{BundleRow, BundleUnit, FrameSizeRow, FramesReport, Latency, UnitKind},
    crate::levels::{
        codec::label,
        export::{show_bytes, show_short},
    },
    serde::Serialize,
    std::fmt::Write,
};

const PERCENTILES: [&str; 5] = ["50 %", "90 %", "99 %", "99.99 %", "99.9999"];

/// Lines of at most 80 characters.
pub fn lines(report: &FramesReport) -> Vec<String> {
    let mut lines = vec![
        format!("  frames alone with {}, on one core", label(&report.codec, report.level)),
        format!(
            "{:>8} {:>9} {:>7} {:>8} {:>14} {:>16} {:>12}",
            "frame", "frames", "ratio", "saving", "compress MB/s", "decompress MB/s", "memory"
        ),
    ];
    lines.extend(report.sizes.iter().map(|row| {
        format!(
            "{:>8} {:>9} {:>7.3} {:>8} {:>14.0} {:>16.0} {:>12}",
            show_bytes(row.frame_size_bytes),
            row.frames,
            row.ratio(),
            format!("{:.1} %", row.saving_percent()),
            row.compress_mb_per_second(),
            row.decompress_mb_per_second(),
            show_bytes(row.worker_memory_bytes)
        )
    }));
    for (what, latency) in [("compress", compress as fn(&FrameSizeRow) -> &Latency), ("decompress", decompress)] {
        lines.push(String::new());
        lines.push(format!("time to {what} one frame; - where too few were timed for the percentile"));
        let mut head = format!("{:>8}", "frame");
        ["average", "std dev", "min"].iter().chain(&PERCENTILES).chain(&["max"]).for_each(|name| {
            // Writing to a string cannot fail.
            let _ = write!(head, " {name:>7}");
        });
        lines.push(head);
        for row in &report.sizes {
            let mut line = format!("{:>8}", show_bytes(row.frame_size_bytes));
            cells(latency(row)).iter().for_each(|cell| {
                let _ = write!(line, " {cell:>7}");
            });
            lines.push(line);
        }
    }
    if let Some(unit) = &report.bundle_unit {
        lines.push(String::new());
        lines.push(describe_bundles(unit));
        lines.push(format!(
            "{:>9} {:>12} {:>12} {:>10} {:>13} {:>9} {:>9}",
            "per frame", "before", "after", "saving", "against one", "compress", "decomp."
        ));
        lines.extend(report.bundles.iter().map(|row| bundle_line(row, unit)));
    }
    lines
}

fn compress(row: &FrameSizeRow) -> &Latency {
    &row.compress
}

fn decompress(row: &FrameSizeRow) -> &Latency {
    &row.decompress
}

/// What is bundled, in a few words.
pub fn describe_bundles(unit: &BundleUnit) -> String {
    let what = match unit.kind {
        UnitKind::Record => "records",
        UnitKind::Line => "lines",
        UnitKind::Piece => "pieces",
    };
    format!("bundles: {} {what} of {:.0} bytes on average; times are per unit", unit.units, unit.average_bytes)
}

fn bundle_line(row: &BundleRow, unit: &BundleUnit) -> String {
    let per_unit = |seconds: f64| show_short(seconds / (unit.units as f64).max(1.0));
    format!(
        "{:>9} {:>12} {:>12} {:>10} {:>13} {:>9} {:>9}",
        row.units_per_frame,
        show_bytes(row.input_bytes),
        show_bytes(row.output_bytes),
        format!("{:.1} %", row.saving_percent()),
        format!("{:.1} %", row.saving_against_one_percent()),
        per_unit(row.compress_seconds),
        per_unit(row.decompress_seconds)
    )
}

/// Average, deviation, minimum, percentiles, maximum.
fn cells(latency: &Latency) -> [String; 9] {
    let shown = |seconds: Option<f64>| seconds.map_or_else(|| "-".to_string(), show_short);
    [
        show_short(latency.average_seconds),
        show_short(latency.deviation_seconds),
        show_short(latency.min_seconds),
        shown(latency.p50_seconds),
        shown(latency.p90_seconds),
        shown(latency.p99_seconds),
        shown(latency.p99_99_seconds),
        shown(latency.p99_9999_seconds),
        show_short(latency.max_seconds),
    ]
}

/// A frame size as a line of JSON.
#[derive(Debug, Serialize)]
#[serde(tag = "type", rename = "frame_size")]
pub struct FrameSizeLine<'a> {
    codec: &'a str,
    level: i32,
    #[serde(flatten)]
    row: &'a FrameSizeRow,
    ratio: f64,
    saving_percent: f64,
    compress_mb_per_second: f64,
    decompress_mb_per_second: f64,
    timer_seconds: f64,
}

/// A bundle as a line of JSON.
#[derive(Debug, Serialize)]
#[serde(tag = "type", rename = "bundle")]
pub struct BundleLine<'a> {
    codec: &'a str,
    level: i32,
    unit: UnitKind,
    units: u64,
    average_unit_bytes: f64,
    #[serde(flatten)]
    row: &'a BundleRow,
    saving_percent: f64,
    saving_against_one_percent: f64,
}

/// Lines of JSON for the sizes.
pub fn size_lines(report: &FramesReport) -> impl Iterator<Item = FrameSizeLine<'_>> {
    report.sizes.iter().map(|row| FrameSizeLine {
        codec: &report.codec,
        level: report.level,
        row,
        ratio: row.ratio(),
        saving_percent: row.saving_percent(),
        compress_mb_per_second: row.compress_mb_per_second(),
        decompress_mb_per_second: row.decompress_mb_per_second(),
        timer_seconds: report.timer_seconds,
    })
}

/// Lines of JSON for the bundles.
pub fn bundle_lines(report: &FramesReport) -> impl Iterator<Item = BundleLine<'_>> {
    report.bundle_unit.iter().flat_map(|unit| {
        report.bundles.iter().map(|row| BundleLine {
            codec: &report.codec,
            level: report.level,
            unit: unit.kind,
            units: unit.units,
            average_unit_bytes: unit.average_bytes,
            row,
            saving_percent: row.saving_percent(),
            saving_against_one_percent: row.saving_against_one_percent(),
        })
    })
}

/// The whole file of comma-separated values: sizes only, times in seconds, nothing where a percentile is missing.
pub fn csv(report: &FramesReport) -> String {
    const TIMES: [&str; 10] =
        ["samples", "average", "deviation", "min", "p50", "p90", "p99", "p99_99", "p99_9999", "max"];
    let mut text = "codec,level,frame_size_bytes,frames,input_bytes,output_bytes,worker_memory_bytes".to_string();
    for what in ["compress", "decompress"] {
        TIMES.iter().for_each(|time| {
            // Writing to a string cannot fail.
            let _ = write!(text, ",{what}_{time}");
        });
    }
    text.push('\n');
    for row in &report.sizes {
        let _ = write!(
            text,
            "{},{},{},{},{},{},{}",
            report.codec,
            report.level,
            row.frame_size_bytes,
            row.frames,
            row.input_bytes,
            row.output_bytes,
            row.worker_memory_bytes
        );
        for latency in [&row.compress, &row.decompress] {
            let _ = write!(text, ",{}", latency.samples);
            let seconds = [
                Some(latency.average_seconds),
                Some(latency.deviation_seconds),
                Some(latency.min_seconds),
                latency.p50_seconds,
                latency.p90_seconds,
                latency.p99_seconds,
                latency.p99_99_seconds,
                latency.p99_9999_seconds,
                Some(latency.max_seconds),
            ];
            seconds.iter().for_each(|seconds| {
                let _ = write!(text, ",{}", seconds.map(|seconds| format!("{seconds:.9}")).unwrap_or_default());
            });
        }
        text.push('\n');
    }
    text
}

/// Markdown tables.
pub fn markdown(report: &FramesReport) -> String {
    let mut text = format!(
        "Frames alone with {}, on one core. Single times contain {} for reading the clock.\n\n\
         | frame | frames | ratio | saving | compress MB/s | decompress MB/s | memory |\n|--:|--:|--:|--:|--:|--:|--:|\n",
        label(&report.codec, report.level),
        show_short(report.timer_seconds)
    );
    for row in &report.sizes {
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "| {} | {} | {:.3} | {:.1} % | {:.0} | {:.0} | {} |",
            show_bytes(row.frame_size_bytes),
            row.frames,
            row.ratio(),
            row.saving_percent(),
            row.compress_mb_per_second(),
            row.decompress_mb_per_second(),
            show_bytes(row.worker_memory_bytes)
        );
    }
    for (what, latency) in [("compress", compress as fn(&FrameSizeRow) -> &Latency), ("decompress", decompress)] {
        let _ = write!(
            text,
            "\n| {what} | average | deviation | min | {} | max |\n|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|\n",
            PERCENTILES.join(" | ")
        );
        for row in &report.sizes {
            let _ = writeln!(text, "| {} | {} |", show_bytes(row.frame_size_bytes), cells(latency(row)).join(" | "));
        }
    }
    if let Some(unit) = &report.bundle_unit {
        let _ = write!(
            text,
            "\n{}\n\n| per frame | saving | against one per frame |\n|--:|--:|--:|\n",
            describe_bundles(unit)
        );
        for row in &report.bundles {
            let _ = writeln!(
                text,
                "| {} | {:.1} % | {:.1} % |",
                row.units_per_frame,
                row.saving_percent(),
                row.saving_against_one_percent()
            );
        }
    }
    text
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn report() -> FramesReport {
        let row = |frame_size_bytes: u64, output_percent: u64, samples: u64| {
            let seconds = frame_size_bytes as f64 / 1e9 + 1e-6;
            let percentile = |one_in: u64| (samples >= one_in).then_some(seconds * 1.5);
            let latency = Latency {
                samples,
                average_seconds: seconds,
                deviation_seconds: seconds / 7.0,
                min_seconds: seconds / 2.0,
                max_seconds: seconds * 9.0,
                p50_seconds: percentile(2),
                p90_seconds: percentile(10),
                p99_seconds: percentile(100),
                p99_99_seconds: percentile(10_000),
                p99_9999_seconds: percentile(1_000_000),
            };
            let input_bytes = frame_size_bytes * samples;
            FrameSizeRow {
                frame_size_bytes,
                frames: samples,
                input_bytes,
                output_bytes: input_bytes * output_percent / 1000,
                compress: latency,
                decompress: latency,
                worker_memory_bytes: frame_size_bytes * 2 + 700_000,
            }
        };
        let bundle = |units_per_frame: u64, output_bytes: u64| BundleRow {
            units_per_frame,
            frames: 350 / units_per_frame,
            input_bytes: 100_000,
            output_bytes,
            alone_bytes: 90_000,
            compress_seconds: 0.001,
            decompress_seconds: 0.000_1,
        };
        FramesReport {
            codec: "zstd".to_string(),
            level: 1,
            timer_seconds: 41e-9,
            total_bytes: 1 << 30,
            content_bytes: 1 << 28,
            sizes: vec![
                row(32, 1200, 8_000_000),
                row(512 << 10, 302, 512),
                row(8 << 20, 300, 32),
                row(32 << 20, 299, 8),
            ],
            bundle_unit: Some(BundleUnit { kind: UnitKind::Record, units: 350, average_bytes: 285.7 }),
            bundles: vec![bundle(1, 90_000), bundle(175, 40_000)],
        }
    }

    #[test]
    fn fixed_numbers() {
        let lines = lines(&report());
        assert!(lines.iter().all(|line| line.chars().count() <= 80), "{}", lines.join("\n"));
        insta::assert_snapshot!(lines.join("\n"));
        insta::assert_snapshot!(markdown(&report()));
        let line = size_lines(&report()).next().map(|line| serde_json::to_string_pretty(&line).expect("plain"));
        insta::assert_snapshot!(line.expect("a size"));
        let line = bundle_lines(&report()).last().map(|line| serde_json::to_string_pretty(&line).expect("plain"));
        insta::assert_snapshot!(line.expect("a bundle"));
    }

    #[test]
    fn as_many_values_as_columns() {
        let text = csv(&report());
        let columns: Vec<usize> = text.lines().map(|line| line.split(',').count()).collect();
        assert_eq!(columns, [27; 5]);
    }
}
