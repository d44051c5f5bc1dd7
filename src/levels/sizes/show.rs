//! A report of size classes as text: the table on the terminal, JSON lines, comma-separated values, Markdown.

use {
    super::{SizeClassRow, SizesReport},
    crate::levels::{codec::label, export::show_short},
    serde::Serialize,
    std::fmt::Write,
};

/// Lines of at most 80 characters; classes without units are left out.
pub fn lines(report: &SizesReport) -> Vec<String> {
    let head = format!(
        "{:<12} {:>9} {:>8} {:>9} {:>9} {:>8} {:>8} {:>8}",
        "size", "count", "measured", "before", "after", "compress", "decomp.", "saving"
    );
    let rows = report.classes.iter().chain([&report.all]).filter(|row| row.units > 0);
    let line = |row: &SizeClassRow| {
        let [before, after, compress, decompress, saving] = cells(row);
        format!(
            "{:<12} {:>9} {:>8} {before:>9} {after:>9} {compress:>8} {decompress:>8} {saving:>8}",
            row.class, row.units, row.measured_units
        )
    };
    let mut lines = vec![format!("  {}", describe(report)), head];
    lines.extend(rows.map(line));
    lines
}

/// What was measured, in a few words.
pub fn describe(report: &SizesReport) -> String {
    let unit = report.unit.as_str();
    let codec = label(&report.codec, report.level);
    let storages = match report.read_storages == report.total_storages {
        true => format!("{} storages", report.total_storages),
        false => format!("{} of {} storages", report.read_storages, report.total_storages),
    };
    format!("each {unit} alone with {codec}, on one core; {storages} read")
}

/// Average sizes and times, and the saving.
fn cells(row: &SizeClassRow) -> [String; 5] {
    let or_none = |shown: Option<String>| shown.unwrap_or_else(|| "-".to_string());
    [
        or_none(row.average_input_bytes().map(show_size)),
        or_none(row.average_output_bytes().map(show_size)),
        or_none(row.average_compress_seconds().map(show_short)),
        or_none(row.average_decompress_seconds().map(show_short)),
        or_none(row.saving_percent().map(|saving| format!("{saving:.1} %"))),
    ]
}

/// `123 B`, `12.3 KB`, `1.23 MB`: of 1000, as the classes are.
fn show_size(bytes: f64) -> String {
    match bytes {
        bytes if bytes < 1e3 => format!("{bytes:.0} B"),
        bytes if bytes < 1e5 => format!("{:.2} KB", bytes / 1e3),
        bytes if bytes < 1e6 => format!("{:.0} KB", bytes / 1e3),
        bytes => format!("{:.2} MB", bytes / 1e6),
    }
}

/// A size class as a line of JSON; the last one, `all`, is of all classes.
#[derive(Debug, Serialize)]
#[serde(tag = "type", rename = "unit_class")]
pub struct UnitClassLine<'a> {
    unit: &'static str,
    codec: &'a str,
    level: i32,
    #[serde(flatten)]
    row: &'a SizeClassRow,
    average_input_bytes: Option<f64>,
    average_output_bytes: Option<f64>,
    average_compress_seconds: Option<f64>,
    average_decompress_seconds: Option<f64>,
    saving_percent: Option<f64>,
    total_storages: u64,
    read_storages: u64,
}

/// All lines of JSON.
pub fn json(report: &SizesReport) -> Vec<UnitClassLine<'_>> {
    let rows = report.classes.iter().chain([&report.all]);
    rows.map(|row| UnitClassLine {
        unit: report.unit.as_str(),
        codec: &report.codec,
        level: report.level,
        row,
        average_input_bytes: row.average_input_bytes(),
        average_output_bytes: row.average_output_bytes(),
        average_compress_seconds: row.average_compress_seconds(),
        average_decompress_seconds: row.average_decompress_seconds(),
        saving_percent: row.saving_percent(),
        total_storages: report.total_storages,
        read_storages: report.read_storages,
    })
    .collect()
}

/// The whole file of comma-separated values, times in seconds.
pub fn csv(report: &SizesReport) -> String {
    let mut text = "unit,codec,level,class,from_bytes,below_bytes,units,measured_units,input_bytes,output_bytes,\
                    compress_seconds,decompress_seconds,saving_percent\n"
        .to_string();
    for row in report.classes.iter().chain([&report.all]) {
        let below = row.below_bytes.map(|bytes| bytes.to_string()).unwrap_or_default();
        let saving = row.saving_percent().map(|saving| format!("{saving:.3}")).unwrap_or_default();
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "{},{},{},{},{},{below},{},{},{},{},{:.9},{:.9},{saving}",
            report.unit.as_str(),
            report.codec,
            report.level,
            row.class,
            row.from_bytes,
            row.units,
            row.measured_units,
            row.input_bytes,
            row.output_bytes,
            row.compress_seconds,
            row.decompress_seconds
        );
    }
    text
}

/// A Markdown table.
pub fn markdown(report: &SizesReport) -> String {
    let mut text = format!(
        "{}\n\n| size | count | measured | before | after | compress | decompress | saving |\n|---|--:|--:|--:|--:|--:|--:|--:|\n",
        describe(report)
    );
    for row in report.classes.iter().chain([&report.all]).filter(|row| row.units > 0) {
        let cells = cells(row).join(" | ");
        let _ = writeln!(text, "| {} | {} | {} | {cells} |", row.class, row.units, row.measured_units);
    }
    text
}

#[cfg(test)]
mod tests {
    use {
        super::*,
        crate::levels::sizes::{SizeUnit, class::empty_rows},
    };

    fn report() -> SizesReport {
        let mut classes = empty_rows();
        for (at, output) in [(0, 240_000), (3, 1_500_000)] {
            let row = &mut classes[at];
            (row.units, row.measured_units, row.input_bytes, row.output_bytes) =
                (123_456_789, 1000, 200_000 * (1 + at as u64 * 10), output);
            (row.compress_seconds, row.decompress_seconds) = (0.0123, 0.000_456);
        }
        classes[15].units = 2;
        let all = SizeClassRow { class: "all".to_string(), ..classes[3].clone() };
        let unit = SizeUnit::Record;
        SizesReport {
            unit,
            codec: "zstd".into(),
            level: 1,
            total_units: 9,
            total_bytes: 9,
            total_storages: 430_000,
            read_storages: 431,
            classes,
            all,
        }
    }

    #[test]
    fn fixed_numbers() {
        let lines = lines(&report());
        assert!(lines.iter().all(|line| line.chars().count() <= 80), "{lines:#?}");
        insta::assert_snapshot!(lines.join("\n"));
        insta::assert_snapshot!(markdown(&report()));
        insta::assert_snapshot!(csv(&report()).lines().take(3).collect::<Vec<_>>().join("\n"));
        insta::assert_snapshot!(serde_json::to_string_pretty(&json(&report())[0]).expect("plain"));
        assert_eq!(csv(&report()).lines().count(), json(&report()).len() + 1);
    }
}
