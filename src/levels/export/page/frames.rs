//! The section of the frame sizes: what frames of each size take, at worst too, and what bundling saves.

use {
    super::{
        Section,
        html::{Cell, Table, figure, paragraph},
    },
    crate::levels::{
        codec::label,
        export::{
            chart::{Axis, Paper, Plot},
            show_bytes, show_short,
            svg::show_tick,
        },
        frames::{BundleUnit, FrameSizeRow, FramesReport, Latency, UnitKind},
    },
};

const PAPER: Paper = Paper { width: 560.0, height: 340.0, left: 66.0, right: 70.0, top: 26.0, bottom: 50.0 };

/// The section, where anything was measured.
pub fn section(report: &FramesReport) -> Option<Section> {
    if report.sizes.is_empty() {
        return None;
    }
    let codec = label(&report.codec, report.level);
    let mut html = paragraph(&format!(
        "Frames of each size, each compressed alone with {codec} on one core. Every single time contains what reading \
         the clock takes, {}. A percentile is left out where too few times were taken for one to lie above it.",
        show_short(report.timer_seconds)
    ));
    if report.sizes.len() > 1 {
        html += &figure(&ratios(&report.sizes), "Ratio by frame size: small frames know too little to compress well.");
        html += &figure(
            &latencies(&report.sizes),
            "Time to compress one frame, by its size: the middle, and the slow ones.",
        );
    }
    html += &sizes_table(&report.sizes);
    html += &latency_table("compress-table", "compress", &report.sizes, |row| &row.compress);
    html += &latency_table("decompress-table", "decompress", &report.sizes, |row| &row.decompress);
    if let Some(unit) = report.bundle_unit.as_ref().filter(|_| !report.bundles.is_empty()) {
        html += &bundles(report, unit);
    }
    Some(Section { id: "frames", heading: "Frame sizes", html })
}

fn sizes_table(rows: &[FrameSizeRow]) -> String {
    let mut table = Table::new(
        "frames-table",
        &["frame", "ratio", "saving", "compress MB/s", "decompress MB/s", "memory per worker", "frames"],
    );
    for row in rows {
        table.row(
            "",
            &[
                size(row),
                Cell::number(format!("{:.3}", row.ratio()), row.ratio()),
                Cell::number(format!("{:.1} %", row.saving_percent()), row.saving_percent()),
                Cell::number(format!("{:.0}", row.compress_mb_per_second()), row.compress_mb_per_second()),
                Cell::number(format!("{:.0}", row.decompress_mb_per_second()), row.decompress_mb_per_second()),
                Cell::number(show_bytes(row.worker_memory_bytes), row.worker_memory_bytes as f64),
                Cell::number(indicatif::HumanCount(row.frames), row.frames as f64),
            ],
        );
    }
    table.finish()
}

fn size(row: &FrameSizeRow) -> Cell {
    Cell::number(show_bytes(row.frame_size_bytes), row.frame_size_bytes as f64)
}

fn latency_table(
    id: &'static str,
    what: &str,
    rows: &[FrameSizeRow],
    latency: impl Fn(&FrameSizeRow) -> &Latency,
) -> String {
    let first = format!("{what}: frame");
    let columns =
        [&first, "average", "deviation", "min", "50 %", "90 %", "99 %", "99.99 %", "99.9999 %", "max", "times"];
    let mut table = Table::new(id, &columns);
    let cell = |seconds: f64| Cell::number(show_short(seconds), seconds);
    let percentile = |seconds: Option<f64>| seconds.map_or_else(Cell::none, cell);
    for row in rows {
        let latency = latency(row);
        table.row(
            "",
            &[
                size(row),
                cell(latency.average_seconds),
                cell(latency.deviation_seconds),
                cell(latency.min_seconds),
                percentile(latency.p50_seconds),
                percentile(latency.p90_seconds),
                percentile(latency.p99_seconds),
                percentile(latency.p99_99_seconds),
                percentile(latency.p99_9999_seconds),
                cell(latency.max_seconds),
                Cell::number(indicatif::HumanCount(latency.samples), latency.samples as f64),
            ],
        );
    }
    table.finish()
}

/// Frame sizes from left to right, every second power of four with its name.
fn size_axis(rows: &[FrameSizeRow]) -> Axis {
    const EVERY: u32 = 4;
    let bytes = |row: &FrameSizeRow| row.frame_size_bytes as f64;
    let from = rows.iter().map(bytes).fold(f64::INFINITY, f64::min);
    let to = rows.iter().map(bytes).fold(0.0, f64::max);
    let powers = (0..=48u32).filter(|power| power.is_multiple_of(EVERY)).map(|power| 1u64 << power);
    Axis::log_exact("frame size", from, to).with_ticks_at(powers.map(|tick| (tick as f64, show_bytes(tick))))
}

fn ratios(rows: &[FrameSizeRow]) -> String {
    let y = Axis::linear("ratio", rows.iter().map(FrameSizeRow::ratio), 0.05).with_ticks(|tick| format!("{tick:.1}"));
    let mut plot = Plot::new(PAPER, size_axis(rows), y, "Ratio by frame size");
    let at = |row: &FrameSizeRow| (row.frame_size_bytes as f64, row.ratio());
    plot.curve("curve", rows.iter().map(at));
    for row in rows {
        plot.point("point", at(row), &format!("{}: {:.3}", show_bytes(row.frame_size_bytes), row.ratio()));
    }
    plot.finish()
}

/// A percentile, where there are enough times for it.
type Percentile = fn(&Latency) -> Option<f64>;

fn latencies(rows: &[FrameSizeRow]) -> String {
    let series: [(&str, Percentile); 4] = [
        ("50 %", |latency| latency.p50_seconds),
        ("99 %", |latency| latency.p99_seconds),
        ("99.99 %", |latency| latency.p99_99_seconds),
        ("99.9999 %", |latency| latency.p99_9999_seconds),
    ];
    let points = |of: Percentile| -> Vec<(f64, f64)> {
        rows.iter().filter_map(|row| Some((row.frame_size_bytes as f64, of(&row.compress)?))).collect()
    };
    let all: Vec<f64> = series.iter().flat_map(|(_, of)| points(*of)).map(|(_, seconds)| seconds).collect();
    let y = Axis::log("time to compress (logarithmic)", all.into_iter()).with_ticks(show_tick_short);
    let mut plot = Plot::new(PAPER, size_axis(rows), y, "Percentiles of the time to compress a frame, by frame size");
    for (number, (name, of)) in series.into_iter().enumerate() {
        let points = points(of);
        plot.curve(&format!("series s{}", number + 1), points.iter().copied());
        if let Some(last) = points.last() {
            plot.label_right_of(*last, &format!("t{}", number + 1), name);
        }
    }
    plot.finish()
}

fn show_tick_short(seconds: f64) -> String {
    if seconds < 1e-3 { show_short(seconds).replace(".0 ", " ") } else { show_tick(seconds) }
}

fn bundles(report: &FramesReport, unit: &BundleUnit) -> String {
    let kind = match unit.kind {
        UnitKind::Record => "record",
        UnitKind::Line => "line",
        UnitKind::Piece => "piece",
    };
    let mut html = paragraph(&format!(
        "Bundling: {} {kind}s of {} on average, several in each frame.",
        indicatif::HumanCount(unit.units),
        show_bytes(unit.average_bytes as u64)
    ));
    let first = format!("{kind}s per frame");
    let columns = [&first, "saving", "saving against one per frame", "compressed", "compress", "decompress"];
    let mut table = Table::new("bundles-table", &columns);
    for row in &report.bundles {
        let against = row.saving_against_one_percent();
        table.row(
            "",
            &[
                Cell::number(row.units_per_frame, row.units_per_frame as f64),
                Cell::number(format!("{:.1} %", row.saving_percent()), row.saving_percent()),
                Cell::number(format!("{against:.1} %"), against),
                Cell::number(show_bytes(row.output_bytes), row.output_bytes as f64),
                Cell::number(show_short(row.compress_seconds), row.compress_seconds),
                Cell::number(show_short(row.decompress_seconds), row.decompress_seconds),
            ],
        );
    }
    html += &table.finish();
    html
}
