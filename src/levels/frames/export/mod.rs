//! A [`FramesReport`] in the formats that people and programs read; all pure.

pub mod json;
pub mod screen;

use {
    super::{FrameSizeRow, FramesReport, Latency, UnitKind, explain::explain},
    crate::levels::{codec::label, export::show_bytes},
    std::fmt::Write,
};

/// Names of [`percentiles`] in files.
const PERCENTILES: [&str; 5] = ["p50", "p90", "p99", "p99_99", "p99_9999"];

/// From the middle to the rarest.
fn percentiles(latency: &Latency) -> [Option<f64>; 5] {
    let Latency { p50_seconds, p90_seconds, p99_seconds, p99_99_seconds, p99_9999_seconds, .. } = *latency;
    [p50_seconds, p90_seconds, p99_seconds, p99_99_seconds, p99_9999_seconds]
}

/// One of them, in words.
pub fn unit_name(kind: UnitKind) -> &'static str {
    match kind {
        UnitKind::Record => "record",
        UnitKind::Line => "line",
        UnitKind::Piece => "piece",
    }
}

/// `612 ns`, `1.23 us`, `45.6 ms`, `1234 s`: at most 7 characters, for columns that stand side by side.
pub fn show_time(seconds: f64) -> String {
    const UNITS: [(&str, f64); 4] = [("ns", 1e-9), ("us", 1e-6), ("ms", 1e-3), ("s", 1.0)];
    // What would be shown as 1000 of a unit is 1 of the next.
    let of_unit = UNITS.iter().find(|(_, unit)| seconds / unit < 999.5).unwrap_or(&("s", 1.0));
    let (name, value) = (of_unit.0, seconds / of_unit.1);
    match value {
        _ if name == "ns" => format!("{value:.0} ns"),
        value if value < 9.995 => format!("{value:.2} {name}"),
        value if value < 99.95 => format!("{value:.1} {name}"),
        value => format!("{value:.0} {name}"),
    }
}

/// Comma-separated values: a line per size, then a line per bundle, told apart by `type`; what one kind does not have is
/// empty.
pub fn csv(report: &FramesReport) -> String {
    let latency_columns = |what: &str| -> Vec<String> {
        let first = ["samples", "average_seconds", "deviation_seconds", "min_seconds", "max_seconds"].map(String::from);
        let percentiles = PERCENTILES.map(|name| format!("{name}_seconds"));
        first.into_iter().chain(percentiles).map(|column| format!("{what}_{column}")).collect()
    };
    let columns = [
        ["type", "codec", "level", "frame_size_bytes", "units_per_frame", "unit", "frames", "input_bytes"]
            .map(String::from)
            .to_vec(),
        ["output_bytes", "ratio", "saving_percent", "alone_bytes", "saving_against_one_percent"]
            .map(String::from)
            .to_vec(),
        ["compress_mb_per_second", "decompress_mb_per_second", "worker_memory_bytes"].map(String::from).to_vec(),
        ["compress_seconds", "decompress_seconds"].map(String::from).to_vec(),
        latency_columns("compress"),
        latency_columns("decompress"),
    ]
    .concat();
    let mut text = columns.join(",") + "\n";
    let latency_values = |latency: &Latency| {
        let Latency { samples, average_seconds, deviation_seconds, min_seconds, max_seconds, .. } = latency;
        let optional = |seconds: Option<f64>| seconds.map(|seconds| format!("{seconds:.9}")).unwrap_or_default();
        let percentiles = percentiles(latency).map(optional).join(",");
        format!("{samples},{average_seconds:.9},{deviation_seconds:.9},{min_seconds:.9},{max_seconds:.9},{percentiles}")
    };
    let (codec, level) = (&report.codec, report.level);
    // Writing to a string cannot fail.
    for row in &report.sizes {
        let _ = writeln!(
            text,
            "frame_size,{codec},{level},{},,,{},{},{},{:.4},{:.3},,,{:.2},{:.2},{},,,{},{}",
            row.frame_size_bytes,
            row.frames,
            row.input_bytes,
            row.output_bytes,
            row.ratio(),
            row.saving_percent(),
            row.compress_mb_per_second(),
            row.decompress_mb_per_second(),
            row.worker_memory_bytes,
            latency_values(&row.compress),
            latency_values(&row.decompress),
        );
    }
    let unit = report.bundle_unit.as_ref().map(|unit| unit_name(unit.kind)).unwrap_or_default();
    for row in &report.bundles {
        let _ = writeln!(
            text,
            "bundle,{codec},{level},,{},{unit},{},{},{},{:.4},{:.3},{},{:.3},,,,{:.9},{:.9}{}",
            row.units_per_frame,
            row.frames,
            row.input_bytes,
            row.output_bytes,
            row.input_bytes as f64 / (row.output_bytes as f64).max(1.0),
            row.saving_percent(),
            row.alone_bytes,
            row.saving_against_one_percent(),
            row.compress_seconds,
            row.decompress_seconds,
            ",".repeat(2 * (5 + PERCENTILES.len())),
        );
    }
    text
}

/// Markdown tables, and what they say. `heading` names the input.
pub fn markdown(report: &FramesReport, heading: &str) -> String {
    let mut text = format!("{heading}\n\n");
    for line in describe(report) {
        let _ = writeln!(text, "- {line}");
    }
    text += "\n| frame | frames | ratio | saving | compress MB/s | decompress MB/s | memory per worker |\n\
             |--:|--:|--:|--:|--:|--:|--:|\n";
    for row in &report.sizes {
        let _ = writeln!(
            text,
            "| {} | {} | {:.3} | {:.1} % | {:.0} | {:.0} | {} |",
            show_bytes(row.frame_size_bytes),
            indicatif::HumanCount(row.frames),
            row.ratio(),
            row.saving_percent(),
            row.compress_mb_per_second(),
            row.decompress_mb_per_second(),
            show_bytes(row.worker_memory_bytes),
        );
    }
    for (what, of) in directions() {
        let _ = writeln!(
            text,
            "\n| {what} | average | deviation | min | 50 % | 90 % | 99 % | 99.99 % | 99.9999 % | max |\n\
             |--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|"
        );
        for row in &report.sizes {
            let times = latency_texts(of(row)).join(" | ");
            let _ = writeln!(text, "| {} | {times} |", show_bytes(row.frame_size_bytes));
        }
    }
    if let Some(line) = describe_bundles(report) {
        let _ = writeln!(
            text,
            "\n{line}\n\n| per frame | frames | saving | against one | compressed | compress | decompress |\n\
             |--:|--:|--:|--:|--:|--:|--:|"
        );
        for row in &report.bundles {
            let _ = writeln!(
                text,
                "| {} | {} | {:.1} % | {:.1} % | {} | {} | {} |",
                row.units_per_frame,
                indicatif::HumanCount(row.frames),
                row.saving_percent(),
                row.saving_against_one_percent(),
                show_bytes(row.output_bytes),
                show_time(row.compress_seconds),
                show_time(row.decompress_seconds),
            );
        }
    }
    text.push('\n');
    for sentence in explain(report) {
        let _ = writeln!(text, "- {sentence}");
    }
    text
}

/// The times of a row for one direction.
type Direction = (&'static str, fn(&FrameSizeRow) -> &Latency);

fn directions() -> [Direction; 2] {
    [("compress", |row| &row.compress), ("decompress", |row| &row.decompress)]
}

/// Average, deviation, minimum, percentiles, maximum.
fn latency_texts(latency: &Latency) -> Vec<String> {
    let Latency { average_seconds, deviation_seconds, min_seconds, max_seconds, .. } = *latency;
    let percentile = |seconds: Option<f64>| seconds.map_or_else(|| "-".to_string(), show_time);
    [average_seconds, deviation_seconds, min_seconds]
        .map(show_time)
        .into_iter()
        .chain(percentiles(latency).map(percentile))
        .chain([show_time(max_seconds)])
        .collect()
}

/// How it was measured.
pub fn describe(report: &FramesReport) -> Vec<String> {
    vec![format!(
        "{}, one core; each frame alone; every time contains {} of reading the clock",
        label(&report.codec, report.level),
        show_time(report.timer_seconds)
    )]
}

/// What was bundled; `None` where nothing was.
pub fn describe_bundles(report: &FramesReport) -> Option<String> {
    let unit = report.bundle_unit.as_ref().filter(|_| !report.bundles.is_empty())?;
    Some(format!(
        "Bundling: {} {}s of {} on average, several per frame:",
        indicatif::HumanCount(unit.units),
        unit_name(unit.kind),
        show_bytes(unit.average_bytes.round() as u64)
    ))
}

#[cfg(test)]
pub(crate) mod tests {
    use {
        super::*,
        crate::levels::frames::{BundleRow, BundleUnit},
    };

    /// Fixed numbers, which follow from the size.
    fn row(frame_size_bytes: u64) -> FrameSizeRow {
        let bytes = frame_size_bytes as f64;
        let latency = |bytes_per_second: f64, samples: u64| {
            let average_seconds = 400e-9 + bytes / bytes_per_second;
            let above = |one_in: u64, factor: f64| (samples >= one_in).then_some(average_seconds * factor);
            Latency {
                samples,
                average_seconds,
                deviation_seconds: average_seconds * 0.2,
                min_seconds: average_seconds * 0.8,
                max_seconds: average_seconds * 40.0,
                p50_seconds: above(2, 0.95),
                p90_seconds: above(10, 1.2),
                p99_seconds: above(100, 2.0),
                p99_99_seconds: above(10_000, 5.0),
                p99_9999_seconds: above(1_000_000, 30.0),
            }
        };
        let frames = ((64u64 << 20) / frame_size_bytes).min(1_200_000);
        let input_bytes = frames * frame_size_bytes;
        let output_bytes = frames * (21 + (bytes * (0.28 + 2.0 / bytes.sqrt())) as u64);
        FrameSizeRow {
            frame_size_bytes,
            frames,
            input_bytes,
            output_bytes,
            compress: latency(750e6, frames),
            decompress: latency(2.5e9, frames),
            worker_memory_bytes: 2 * frame_size_bytes + 600_000,
        }
    }

    pub(crate) fn report() -> FramesReport {
        let bundle = |units_per_frame: u64, output_bytes| BundleRow {
            units_per_frame,
            frames: 10_000u64.div_ceil(units_per_frame),
            input_bytes: 3_000_000,
            output_bytes,
            alone_bytes: 2_800_000,
            compress_seconds: 0.0123,
            decompress_seconds: 0.0045,
        };
        FramesReport {
            codec: "zstd".to_string(),
            level: 1,
            timer_seconds: 25e-9,
            total_bytes: 1 << 30,
            content_bytes: 64 << 20,
            sizes: [32, 512, 128 << 10, 2 << 20, 8 << 20, 32 << 20].map(row).into(),
            bundle_unit: Some(BundleUnit { kind: UnitKind::Record, units: 10_000, average_bytes: 300.2 }),
            bundles: vec![bundle(1, 2_800_000), bundle(175, 1_100_000)],
        }
    }

    #[test]
    fn fixed_numbers() {
        insta::assert_snapshot!("csv", csv(&report()));
        insta::assert_snapshot!("markdown", markdown(&report(), "ledger: 1 GiB"));
    }

    #[test]
    fn as_many_values_as_columns() {
        let text = csv(&report());
        let columns = text.lines().next().map(|line| line.split(',').count());
        assert!(text.lines().all(|line| Some(line.split(',').count()) == columns), "{text}");
    }

    #[test]
    fn times_in_few_characters() {
        let times =
            [0.0, 25e-9, 999.4e-9, 999.6e-9, 9.994e-6, 9.996e-6, 99.96e-6, 0.9996, 12.34, 123_456.0].map(show_time);
        assert_eq!(
            times,
            ["0 ns", "25 ns", "999 ns", "1.00 us", "9.99 us", "10.0 us", "100 us", "1.00 s", "12.3 s", "123456 s"]
        );
    }
}
