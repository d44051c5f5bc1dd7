//! Runs `slotpress levels` without a subcommand: measures levels, and prints a table and a recommendation.

use slotpress::Result;
use slotpress::levels::{CodecChoice, FrameCodec, LevelRow, Recommendation, recommend};
use slotpress::program::{is_uncompressed, pareto_curve, reference_row, sort_rows};
use slotpress_base::TimeUnit;
use slotpress_base::quantity::{self};

use super::chart::{Chart, Point, Series};
use super::input::{ClusteredRows, MeasureArgs};
use super::report::{Advice, LevelsReport};
use super::{print_report, summarize_warnings};
use crate::cli::tables::{Table, TableBuilder, Unit, to_json};
use crate::cli::ui::Ui;

pub fn run(args: &MeasureArgs, ui: &Ui) -> Result<()> {
    let measured = args.measure(ClusteredRows::ByDefault, ui)?;
    let report = make_report(&measured.rows);
    print_report(&report, &measured.info, &args.files, ui)?;
    if let Some(recommendation) = recommend(&measured.rows) {
        ui.print_json(&recommendation);
    }
    measured.result
}

fn make_report(rows: &[LevelRow]) -> LevelsReport {
    let Some(reference) = reference_row(rows) else { return LevelsReport::default() };
    let sorted = sort_rows(rows);
    let mut table = make_table(&sorted, reference);
    let mut chart = None;
    let mut advice = Vec::new();
    if let [row] = rows {
        table.notes.extend(describe_estimate(row));
    } else {
        if let Some(recommendation) = recommend(rows) {
            if recommendation.measured_well_enough {
                table.best_row = sorted.iter().position(|row| row.codec == recommendation.knee.codec);
            }
            advice = make_advice(&recommendation, rows);
        }
        chart = Some(make_chart(&sorted, table.best_row));
    }
    let warnings = summarize_warnings(rows);
    LevelsReport { chart, tables: vec![table], warnings, advice, ..LevelsReport::default() }
}

fn make_table(rows: &[&LevelRow], reference: &LevelRow) -> Table {
    let compress = Unit::TimeIn(TimeUnit::for_column(reference.compress.median));
    let decompress = Unit::TimeIn(TimeUnit::for_column(reference.decompress.median));
    // The mark says that CPU times are compared, and not elapsed times.
    let show_factor = |row: &LevelRow| {
        let mark = if row.compares_cpu_time_with(reference) { "*" } else { "" };
        quantity::significant(row.time_factor_of(reference)) + mark
    };
    let mut table = TableBuilder::new("levels-table", "level", rows.iter().copied())
        .add_visible("codec", Unit::Text, |row| row.codec.to_string())
        .add_data("codec", |row| row.codec.name)
        .add_data("level", |row| row.codec.level)
        .add_data("input_bytes", |row| row.input_bytes)
        .add_column("size", Unit::Bytes, "output_bytes", |row| row.output_bytes)
        .add_column("ratio", Unit::Ratio, "ratio", LevelRow::ratio)
        .add_column("%", Unit::Percent, "size_percent", |row| row.size_percent_of(reference))
        .add_column("comp.", compress, "compress_seconds", |row| row.compress.median)
        .add_data("compress_seconds_min", |row| row.compress.min)
        .add_data("compress_seconds_max", |row| row.compress.max)
        .add_data("compress_runs", |row| row.compress.runs)
        .add_data("compress_mb_per_second", |row| row.compress_bytes_per_second() / 1e6)
        .add_visible("MiB/s", Unit::Rate, LevelRow::compress_bytes_per_second)
        .add_visible("x", Unit::Ratio, show_factor)
        .add_data("compress_time_factor", |row| row.time_factor_of(reference))
        .add_column("CPU", Unit::Integer, "compress_cpu_percent", |row| row.compress_cpu_percent)
        .add_column("decomp.", decompress, "decompress_seconds", |row| row.decompress.median)
        .add_data("decompress_seconds_min", |row| row.decompress.min)
        .add_data("decompress_seconds_max", |row| row.decompress.max)
        .add_data("decompress_runs", |row| row.decompress.runs)
        .add_data("decompress_mb_per_second", |row| row.decompress_bytes_per_second() / 1e6)
        .add_visible("MiB/s", Unit::Rate, LevelRow::decompress_bytes_per_second)
        .add_data("decompress_cpu_percent", |row| row.decompress_cpu_percent)
        .add_column("memory", Unit::Bytes, "peak_memory_bytes", |row| row.peak_memory_bytes);
    if rows.iter().any(|row| row.estimated_output_bytes.is_some()) {
        table = table
            .add_data("size_error_percent", |row| row.size_error_percent)
            .add_data("estimated_output_bytes", |row| row.estimated_output_bytes);
    }
    let mut table = table.add_data("warnings", |row| to_json(&row.warnings)).finish();
    let codec = reference.codec;
    table.title = format!("against {codec}: % of its size, x its time; CPU in percent of a core");
    if rows.iter().any(|row| row.compares_cpu_time_with(reference)) {
        table.notes.push("* by CPU time".to_string());
    }
    table.optional_columns = &[10, 7, 8, 9, 4, 5, 2];
    table
}

/// Plots size against time: a point for each level, and a line through the levels that no other level beats in
/// both size and time.
fn make_chart(rows: &[&LevelRow], best_row: Option<usize>) -> Chart {
    // The uncompressed copy would squeeze the scale of the other codecs.
    let mut plotted = rows.to_vec();
    plotted.retain(|row| !is_uncompressed(row));
    if plotted.is_empty() {
        plotted = rows.to_vec();
    }
    let largest = plotted.iter().map(|row| row.output_bytes).max().unwrap_or_default();
    let units = [(1u64 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
    let (unit_bytes, unit) = units.into_iter().find(|(bytes, _)| largest >= *bytes).unwrap_or((1, "B"));
    let position_of = |row: &LevelRow| (row.compress.median.max(1e-6), row.output_bytes as f64 / unit_bytes as f64);
    let mut series: Vec<Series> = Vec::new();
    for row in &plotted {
        let FrameCodec { name, level } = row.codec;
        let position = position_of(row);
        let label = if level == 0 { String::new() } else { level.to_string() };
        let point = Point { position, label };
        match series.last_mut() {
            Some(last) if last.name == name => last.points.push(point),
            _ => series.push(Series { name: name.to_string(), points: vec![point] }),
        }
    }
    Chart {
        caption: "Further left is faster, further down is smaller. The line joins what nothing beats in both size and \
                  time; the ring is the best of both."
            .to_string(),
        x_label: "time to compress (logarithmic)",
        has_bytes_on_x: false,
        y_label: format!("size in {unit}"),
        series,
        curve: pareto_curve(plotted).into_iter().map(position_of).collect(),
        highlighted: best_row.map(|index| position_of(rows[index])),
    }
}

fn make_advice(recommendation: &Recommendation, rows: &[LevelRow]) -> Vec<Advice> {
    let advice_for = |goal: &str, choice: &CodecChoice| {
        let mut reason = choice.reason.clone();
        let row = rows.iter().find(|row| row.codec == choice.codec);
        if let Some(estimate) = row.and_then(describe_estimate) {
            reason += &format!("; {estimate}");
        }
        Advice { goal: goal.to_string(), choice: choice.flags(), reason }
    };
    let mut best = advice_for("best of both", &recommendation.knee);
    if !recommendation.measured_well_enough {
        best.reason = format!("it may be {}", best.choice);
        best.choice = "not measured well enough".to_string();
    }
    let mut advice = vec![
        advice_for("shortest time", &recommendation.shortest_time),
        advice_for("smallest size", &recommendation.smallest_size),
        best,
    ];
    for other in &recommendation.others {
        advice.push(Advice { choice: other.codec.to_string(), ..advice_for("not for archives", other) });
    }
    advice
}

fn describe_estimate(row: &LevelRow) -> Option<String> {
    let size = quantity::bytes(row.estimated_output_bytes?);
    let error = quantity::percent(row.size_error_percent?);
    Some(format!("estimated total: {size} ± {error}"))
}

#[cfg(test)]
pub(crate) mod tests {
    use proptest::prelude::*;
    use slotpress::levels::Summary;
    use slotpress::program::Warning;

    use super::*;

    pub(crate) fn row(name: &'static str, level: i32) -> LevelRow {
        let step = f64::from(level.clamp(-10, 30));
        let seconds = 1.5 * 1.4f64.powf(step);
        let mut row = LevelRow::default();
        (row.codec.name, row.codec.level) = (name, level);
        row.input_bytes = 1_000_000_000;
        row.output_bytes = (300_000_000.0 - 1e7 * step.max(0.0).sqrt() - 1e6 * step) as u64;
        row.compress = Summary::from_runs(&[seconds * 0.99, seconds, seconds * 1.02]);
        row.decompress = Summary::from_runs(&[0.6]);
        row.compress_cpu_percent = 198.4;
        row.decompress_cpu_percent = 199.0;
        row.compress_cpu_seconds = 1.984 * seconds;
        row.peak_memory_bytes = 64 << 20;
        row
    }

    fn rows() -> Vec<LevelRow> {
        let mut rows: Vec<LevelRow> = [("zstd", 1), ("zstd", -1000), ("zstd", 4), ("clustered", 1), ("none", 0)]
            .map(|(codec, level)| row(codec, level))
            .into();
        rows[3].output_bytes -= 20_000_000;
        rows[3].warnings = vec![load_warning(60)];
        (rows[4].output_bytes, rows[4].peak_memory_bytes) = (1_000_000_000, 0);
        rows[4].compress = Summary::from_runs(&[0.05]);
        rows
    }

    #[test]
    fn the_report_fits_80_columns() {
        let report = make_report(&rows());
        let lines = report.lines(80);
        assert!(lines.iter().all(|line| line.chars().count() <= 80), "{}", lines.join("\n"));
        insta::assert_snapshot!(lines.join("\n"));
    }

    #[test]
    fn sampled_rows_have_estimates() {
        let mut rows = vec![row("zstd", 1), row("zstd", 3)];
        for row in &mut rows {
            (row.size_error_percent, row.estimated_output_bytes) = (Some(1.25), Some(row.output_bytes * 93));
        }
        assert!(
            make_report(&rows).advice.iter().all(|advice| advice.reason.ends_with(" GiB ± 1.2%")),
            "{:?}",
            make_report(&rows)
        );
        insta::assert_snapshot!(make_report(&rows).csv().expect("made"));
        let alone = make_report(&rows[..1]);
        assert!(alone.advice.is_empty(), "{alone:?}");
        assert!(alone.tables[0].notes.len() == 1, "{alone:?}");
        assert!(alone.chart.is_none(), "{alone:?}");
        assert!(make_report(&[]).tables.is_empty());
    }

    #[test]
    fn the_chart_has_a_series_per_codec_and_one_ring() {
        let mut rows = rows();
        let chart = make_report(&rows).chart.expect("several rows");
        let shape: Vec<_> = chart.series.iter().map(|series| (series.name.as_str(), series.points.len())).collect();
        assert_eq!(shape, [("zstd", 3), ("clustered", 1)], "a copy in memory is left out");
        let svg = chart.svg().expect("drawn");
        assert_eq!((svg.matches("r=\"4\"").count(), svg.matches("r=\"8\"").count()), (4, 1));
        assert_eq!(chart.legend().len(), 2);
        rows.truncate(2);
        assert!(make_report(&rows).chart.expect("two rows").legend().is_empty());
    }

    fn load_warning(percent: u32) -> Warning {
        Warning { about: "load", text: format!("workers waited {percent}% of their time") }
    }

    #[test]
    fn warnings_make_one_sentence() {
        let mut rows = vec![row("zstd", 1), row("zstd", 3), row("lz4", 0)];
        assert!(summarize_warnings(&rows).is_empty());
        for (row, percent) in rows.iter_mut().skip(1).zip([20, 30]) {
            row.warnings = vec![load_warning(percent)];
        }
        rows[0].warnings = vec![Warning { about: "runs", text: "measured once".to_string() }];
        let sentences = summarize_warnings(&rows);
        let expected = "rough times: zstd 1: measured once; zstd 3, lz4: workers waited 20% of their time; stop";
        assert!(sentences.len() == 1, "{sentences:?}");
        assert!(sentences[0].starts_with(expected), "{sentences:?}");
        rows.iter_mut().for_each(|row| row.warnings = vec![load_warning(9)]);
        assert!(
            summarize_warnings(&rows)[0].starts_with("rough times: workers waited"),
            "all levels have it: no names"
        );
    }

    proptest! {
        #[test]
        fn any_rows_make_a_chart(levels in proptest::collection::vec((1u64..1 << 50, 0f64..1e6), 2..12)) {
            let rows = levels.iter().zip(1..).map(|((size, seconds), level)| {
                let mut row = row("zstd", level);
                (row.output_bytes, row.compress.median) = (*size, *seconds);
                row
            });
            let chart = make_report(&rows.collect::<Vec<_>>()).chart.expect("several rows");
            let svg = chart.svg().expect("drawn");
            prop_assert!(!svg.contains("NaN"), "{}", svg);
            prop_assert!(!svg.contains("inf"), "{}", svg);
            prop_assert!(svg.len() < 50_000, "{}", svg);
        }
    }
}
