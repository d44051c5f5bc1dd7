//! A [`SizesReport`] as the lines of a table, as comma-separated values and as Markdown; all pure.

use {
    super::{SizeClassRow, SizesReport},
    crate::levels::{
        codec::label,
        export::{show_bytes, show_short},
    },
    serde::Serialize,
    std::fmt::Write,
};

/// A class, as a line of JSON.
#[derive(Debug, Serialize)]
#[serde(tag = "type", rename = "unit_size_class")]
pub struct ClassLine<'a> {
    unit: super::SizeUnit,
    codec: &'a str,
    level: i32,
    #[serde(flatten)]
    row: &'a SizeClassRow,
    saving_percent: Option<f64>,
}

/// One line per class that has units, then one for `all`.
pub fn json_lines(report: &SizesReport) -> Vec<ClassLine<'_>> {
    let line = |row| ClassLine {
        unit: report.unit,
        codec: &report.codec,
        level: report.level,
        row,
        saving_percent: SizeClassRow::saving_percent(row),
    };
    rows(report).map(line).collect()
}

/// Classes that have units, then all.
fn rows(report: &SizesReport) -> impl Iterator<Item = &SizeClassRow> {
    report.classes.iter().filter(|row| row.units > 0).chain([&report.all])
}

/// The values of a row, as they are shown.
fn cells(row: &SizeClassRow) -> [String; 7] {
    let or_none = |value: Option<f64>, show: &dyn Fn(f64) -> String| value.map_or_else(|| "-".to_string(), show);
    let bytes = |bytes: f64| show_bytes(bytes.round() as u64);
    [
        row.class.clone(),
        indicatif::HumanCount(row.units).to_string(),
        or_none(row.average_input_bytes(), &bytes),
        or_none(row.average_output_bytes(), &bytes),
        or_none(row.saving_percent(), &|percent| format!("{percent:.1} %")),
        or_none(row.average_compress_seconds(), &show_short),
        or_none(row.average_decompress_seconds(), &show_short),
    ]
}

const HEADINGS: [&str; 7] = ["size", "count", "average", "after", "saving", "compress", "decompress"];

/// Lines of at most 80 characters.
pub fn table(report: &SizesReport) -> Vec<String> {
    let line = |cells: [&str; 7]| {
        let [class, count, before, after, saving, compress, decompress] = cells;
        format!("  {class:12} {count:>13} {before:>9} {after:>9} {saving:>8} {compress:>9} {decompress:>10}")
    };
    let mut lines = vec![
        format!("  each {} alone, {}, one core", report.unit.as_str(), label(&report.codec, report.level)),
        line(HEADINGS),
    ];
    lines.extend(rows(report).map(|row| line(cells(row).each_ref().map(String::as_str))));
    lines
}

/// What follows from it, in a sentence or two.
pub fn conclusion(report: &SizesReport) -> String {
    let unit = report.unit.as_str();
    let saves = |row: &&SizeClassRow| row.saving_percent().is_some_and(|percent| percent > 0.0);
    let measured: Vec<&SizeClassRow> = report.classes.iter().filter(|row| row.measured_units > 0).collect();
    let grown = measured.iter().filter(|row| !saves(row)).map(|row| row.class.as_str()).collect::<Vec<_>>();
    let mut text = match grown.as_slice() {
        [] => format!("{unit}s of every size are smaller when they are compressed alone"),
        classes => format!("{unit}s of {} grow when they are compressed alone", classes.join(", ")),
    };
    if let Some(percent) = report.all.saving_percent() {
        let _ = write!(
            text,
            "; all of them, each by itself, save {percent:.1} %. An archive bundles them: compare `levels`"
        );
    }
    text
}

const COLUMNS: [&str; 14] = [
    "unit",
    "codec",
    "level",
    "class",
    "from_bytes",
    "below_bytes",
    "units",
    "unit_bytes",
    "measured_units",
    "input_bytes",
    "output_bytes",
    "compress_seconds",
    "decompress_seconds",
    "saving_percent",
];

/// Comma-separated values: one line per class that has units, and one for all.
pub fn csv(report: &SizesReport) -> String {
    let mut text = COLUMNS.join(",") + "\n";
    for row in rows(report) {
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "{},{},{},{},{},{},{},{},{},{},{},{:.9},{:.9},{}",
            report.unit.as_str(),
            report.codec,
            report.level,
            row.class,
            row.from_bytes,
            row.below_bytes.map(|bytes| bytes.to_string()).unwrap_or_default(),
            row.units,
            row.unit_bytes,
            row.measured_units,
            row.input_bytes,
            row.output_bytes,
            row.compress_seconds,
            row.decompress_seconds,
            row.saving_percent().map(|percent| format!("{percent:.3}")).unwrap_or_default(),
        );
    }
    text
}

/// A Markdown table. `heading` names the input.
pub fn markdown(report: &SizesReport, heading: &str) -> String {
    let codec = label(&report.codec, report.level);
    let mut text = format!("{heading}; each {} alone, {codec}\n\n", report.unit.as_str());
    let _ = writeln!(text, "| {} |\n|---|--:|--:|--:|--:|--:|--:|", HEADINGS.join(" | "));
    for row in rows(report) {
        let _ = writeln!(text, "| {} |", cells(row).join(" | "));
    }
    let _ = writeln!(text, "\n{}", conclusion(report));
    text
}

#[cfg(test)]
pub(crate) mod tests {
    use {
        super::*,
        crate::levels::sizes::{SizeUnit, class::empty_rows},
    };

    pub(crate) fn report() -> SizesReport {
        let mut classes = empty_rows();
        for (at, units, bytes, after) in
            [(0, 1_234_567_890u64, 136, 140), (1, 400, 301, 250), (3, 20, 5_000, 800), (15, 3, 7_000_000, 900_000)]
        {
            let row = &mut classes[at];
            (row.units, row.unit_bytes) = (units, units * bytes);
            row.measured_units = units.min(20);
            (row.input_bytes, row.output_bytes) = (row.measured_units * bytes, row.measured_units * after);
            row.compress_seconds = 1.5e-9 * row.input_bytes as f64;
            row.decompress_seconds = 0.4e-9 * row.input_bytes as f64;
        }
        let mut all = SizeClassRow { class: "all".to_string(), ..SizeClassRow::default() };
        for row in &classes {
            (all.units, all.unit_bytes) = (all.units + row.units, all.unit_bytes + row.unit_bytes);
            all.add(row);
        }
        let (codec, level) = ("zstd".to_string(), 1);
        SizesReport { unit: SizeUnit::Record, codec, level, total_bytes: 9 << 30, read_bytes: 1 << 30, classes, all }
    }

    #[test]
    fn fixed_numbers() {
        let lines = table(&report());
        assert!(lines.iter().all(|line| line.chars().count() <= 80), "{}", lines.join("\n"));
        insta::assert_snapshot!(lines.join("\n") + "\n" + &conclusion(&report()));
        insta::assert_snapshot!("markdown", markdown(&report(), "ledger"));
    }

    #[test]
    fn as_many_values_as_columns() {
        for line in csv(&report()).lines() {
            assert_eq!(line.split(',').count(), COLUMNS.len(), "{line}");
        }
    }

    #[test]
    fn all_by_its_units() {
        let report = report();
        let percent = report.all.saving_percent().expect("measured");
        assert!((-3.0..-2.0).contains(&percent), "the many small ones decide: {percent}");
    }
}
