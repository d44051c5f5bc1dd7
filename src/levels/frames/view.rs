//! The section of frame sizes: charts, tables of ratio and latency, bundles, conclusions.

use slotpress_base::quantity;

use super::explain::explain;
use super::{BundleRow, BundleUnit, FrameSizeRow, FramesReport, UnitKind};
use crate::levels::latency::Latency;
use crate::levels::report::chart::{Axis, Paper, Plot, codec_color};
use crate::levels::report::table::TableOf;
use crate::levels::report::{Block, Column, Section, Table, Unit, Value};

/// For people, in the singular.
fn unit_name(kind: UnitKind) -> &'static str {
    match kind {
        UnitKind::Record => "record",
        UnitKind::Line => "line",
        UnitKind::Piece => "piece",
    }
}

/// The section of a report.
pub fn section(report: &FramesReport) -> Section {
    let fact = format!(
        "{}, one core; each frame alone; every time contains {} of reading the clock",
        report.codec.label(),
        quantity::time(report.timer_seconds)
    );
    let mut blocks = vec![Block::Facts(vec![fact])];
    if report.sizes.len() > 1 {
        let caption = "Ratio by frame size: small frames hold too little to compress well.".to_string();
        blocks.push(Block::Chart { svg: ratios(report), caption });
    }
    blocks.push(Block::Table(sizes(report)));
    let latencies = [("compress", |row| &row.compress), ("decompress", |row| &row.decompress)] as [(_, LatencyOf); 2];
    blocks.extend(latencies.into_iter().map(|(what, of)| Block::Table(latency(report, what, of))));
    if let Some(unit) = report.bundle_unit.as_ref().filter(|_| !report.bundles.is_empty()) {
        blocks.push(Block::Table(bundles(report, unit)));
    }
    blocks.push(Block::Text(explain(report)));
    Section { id: "frames", heading: "Frame sizes", blocks }
}

/// The times of a row for one direction.
type LatencyOf = fn(&FrameSizeRow) -> &Latency;

/// A percentile: its heading, its field, and its value if there are enough times for it.
type Percentile = (&'static str, &'static str, fn(&Latency) -> Option<f64>);

/// From the middle to the rarest.
const PERCENTILES: [Percentile; 5] = [
    ("50", "p50_seconds", |latency| latency.p50_seconds),
    ("90", "p90_seconds", |latency| latency.p90_seconds),
    ("99", "p99_seconds", |latency| latency.p99_seconds),
    ("99.99", "p99_99_seconds", |latency| latency.p99_99_seconds),
    ("99.9999", "p99_9999_seconds", |latency| latency.p99_9999_seconds),
];

fn sizes(report: &FramesReport) -> Table {
    let rows: Vec<&FrameSizeRow> = report.sizes.iter().collect();
    let table = Table::of(&rows)
        .kind_column("frame_size")
        .column(Column::named("codec"), |_: &FrameSizeRow| report.codec.name)
        .column(Column::named("level"), |_| report.codec.level)
        .column(Column::shown("frame", Unit::Bytes).wide(8).name("frame_size_bytes", 0), |row| row.frame_size_bytes)
        .column(Column::shown("frames", Unit::Count).wide(10).spare(2).name("frames", 0), |row| row.frames)
        .column(Column::named("input_bytes"), |row| row.row.input_bytes)
        .column(Column::named("output_bytes"), |row| row.row.output_bytes)
        .column(Column::shown("ratio", Unit::Ratio).wide(7).spare(3).name("ratio", 4), |row| row.row.ratio())
        .column(Column::shown("saving", Unit::Percent(1)).wide(8).name("saving_percent", 3), |row| {
            row.row.saving_percent()
        })
        .column(Column::shown("compress MiB/s", Unit::Rate).headed("compress\nMiB/s", 9), |row| {
            row.bytes_per_second(&row.compress)
        })
        .column(Column::shown("decompress MiB/s", Unit::Rate).headed("decompress\nMiB/s", 11), |row| {
            row.bytes_per_second(&row.decompress)
        })
        .column(Column::named("compress_mb_per_second").decimals(2), |row| row.bytes_per_second(&row.compress) / 1e6)
        .column(Column::named("decompress_mb_per_second").decimals(2), |row| {
            row.bytes_per_second(&row.decompress) / 1e6
        })
        .column(
            Column::shown("memory per worker", Unit::Bytes)
                .headed("memory per\nworker", 10)
                .spare(4)
                .name("worker_memory_bytes", 0),
            |row| row.row.peak_memory_bytes,
        );
    let table = latency_fields(table, "compress", |row| &row.compress);
    latency_fields(table, "decompress", |row| &row.decompress)
        .column(Column::named("timer_seconds").decimals(9), |_| report.timer_seconds)
        .finish("frames-table")
}

fn latency_fields<'a>(table: TableOf<'a, FrameSizeRow>, what: &str, of: LatencyOf) -> TableOf<'a, FrameSizeRow> {
    let name = |field: &str| Column::named(format!("{what}.{field}")).decimals(9);
    let table = table
        .column(name("samples"), |row| of(row).samples)
        .column(name("average_seconds"), |row| of(row).average_seconds)
        .column(name("deviation_seconds"), |row| of(row).deviation_seconds)
        .column(name("min_seconds"), |row| of(row).min_seconds)
        .column(name("max_seconds"), |row| of(row).max_seconds);
    PERCENTILES
        .into_iter()
        .fold(table, |table, (_, field, percentile)| table.column(name(field), |row| percentile(of(row))))
}

fn latency(report: &FramesReport, what: &'static str, of: LatencyOf) -> Table {
    const WIDTH: usize = 7;
    let rows: Vec<&FrameSizeRow> = report.sizes.iter().collect();
    let time = |heading: &str| Column::shown(heading, Unit::Time).wide(WIDTH);
    let table = Table::of(&rows)
        .title(format!("{what}: time of one frame, percentiles"))
        .column(Column::shown("frame", Unit::Bytes).wide(8), |row: &FrameSizeRow| row.frame_size_bytes)
        .column(time("average"), |row| of(row).average_seconds)
        .column(Column::shown("deviation", Unit::Time).headed("+-", WIDTH).spare(2), |row| of(row).deviation_seconds)
        .column(time("min").spare(3), |row| of(row).min_seconds);
    let table = PERCENTILES.into_iter().fold(table, |table, (heading, _, percentile)| {
        let spare = if heading == "50" || heading == "99" { 0 } else { 4 };
        let column = Column::shown(&format!("{heading} %"), Unit::Time).headed(heading, WIDTH).spare(spare);
        table.column(column, |row| percentile(of(row)))
    });
    table.column(time("max"), |row| of(row).max_seconds).finish(match what {
        "compress" => "compress-table",
        _ => "decompress-table",
    })
}

fn bundles(report: &FramesReport, unit: &BundleUnit) -> Table {
    let name = unit_name(unit.kind);
    let rows: Vec<&BundleRow> = report.bundles.iter().collect();
    Table::of(&rows)
        .kind_column("bundle")
        .title(format!(
            "Bundling: {} of {} on average, several per frame:",
            quantity::count_of(unit.units, name),
            quantity::bytes(unit.average_bytes.round() as u64)
        ))
        .column(Column::named("codec"), |_: &BundleRow| report.codec.name)
        .column(Column::named("level"), |_| report.codec.level)
        .column(
            Column::shown(&format!("{name}s per frame"), Unit::Count)
                .headed(&format!("{name}s"), 9)
                .name("units_per_frame", 0),
            |row| row.units_per_frame,
        )
        .column(Column::named("unit"), |_| {
            Value::Nested(serde_json::to_value(unit).unwrap_or_default(), name.to_string())
        })
        .column(Column::shown("frames", Unit::Count).name("frames", 0), |row| row.frames)
        .column(Column::named("input_bytes"), |row| row.row.input_bytes)
        .column(Column::named("output_bytes"), |row| row.row.output_bytes)
        .column(Column::named("ratio").decimals(4), |row| row.row.ratio())
        .column(Column::shown("saving", Unit::Percent(1)).wide(8).name("saving_percent", 3), |row| {
            row.row.saving_percent()
        })
        .column(Column::named("alone_bytes"), |row| row.alone_bytes)
        .column(
            Column::shown("saving against one", Unit::Percent(1))
                .headed("saving\nagainst one", 12)
                .spare(2)
                .name("saving_against_one_percent", 3),
            BundleRow::saving_against_one_percent,
        )
        .column(Column::shown("compressed", Unit::Bytes).wide(11).spare(3), |row| row.row.output_bytes)
        .column(Column::shown("compress", Unit::Time).wide(9).name("compress_seconds", 9), |row| {
            row.row.compress.median
        })
        .column(Column::shown("decompress", Unit::Time).wide(11).name("decompress_seconds", 9), |row| {
            row.row.decompress.median
        })
        .finish("bundles-table")
}

const PAPER: Paper = Paper { width: 560.0, height: 340.0, left: 66.0, right: 74.0, top: 26.0, bottom: 50.0 };

/// Frame sizes from left to right, every second power of four with its name.
fn size_axis(rows: &[FrameSizeRow]) -> Axis {
    const EVERY: u32 = 4;
    let bytes = |row: &FrameSizeRow| row.frame_size_bytes as f64;
    let from = rows.iter().map(bytes).fold(f64::INFINITY, f64::min);
    let to = rows.iter().map(bytes).fold(0.0, f64::max);
    let powers = (0..=48u32).filter(|power| power.is_multiple_of(EVERY)).map(|power| 1u64 << power);
    Axis::log_exact("frame size", from, to).with_ticks_at(powers.map(|tick| (tick as f64, quantity::bytes(tick))))
}

fn ratios(report: &FramesReport) -> String {
    let (rows, color) = (&report.sizes, codec_color(report.codec.name));
    let y = Axis::linear("ratio", rows.iter().map(|row| row.row.ratio()), 0.05).with_ticks(|tick| format!("{tick:.1}"));
    let mut plot = Plot::new(PAPER, size_axis(rows), y, "Ratio by frame size");
    let at = |row: &FrameSizeRow| (row.frame_size_bytes as f64, row.row.ratio());
    plot.curve(&format!("series s{color}"), rows.iter().map(at));
    for row in rows {
        let title = format!("{}: {:.3}", quantity::bytes(row.frame_size_bytes), row.row.ratio());
        plot.point(&format!("p{color}"), at(row), &title);
    }
    plot.finish()
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::levels::LevelRow;
    use crate::levels::codec::FrameCodec;
    use crate::levels::frames::{BundleRow, BundleUnit};
    use crate::levels::statistics::Summary;

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
            row: LevelRow {
                input_bytes,
                output_bytes,
                peak_memory_bytes: 2 * frame_size_bytes + 600_000,
                ..LevelRow::default()
            },
            compress: latency(750e6, frames),
            decompress: latency(2.5e9, frames),
        }
    }

    pub(crate) fn report() -> FramesReport {
        let bundle = |units_per_frame: u64, output_bytes| BundleRow {
            units_per_frame,
            frames: 10_000u64.div_ceil(units_per_frame),
            row: LevelRow {
                input_bytes: 3_000_000,
                output_bytes,
                compress: Summary::of(&[0.0123]),
                decompress: Summary::of(&[0.0045]),
                ..LevelRow::default()
            },
            alone_bytes: 2_800_000,
        };
        FramesReport {
            codec: FrameCodec::zstd(1),
            timer_seconds: 25e-9,
            total_bytes: 1 << 30,
            sizes: [32, 512, 128 << 10, 2 << 20, 8 << 20, 32 << 20].map(row).into(),
            bundle_unit: Some(BundleUnit { kind: UnitKind::Record, units: 10_000, average_bytes: 300.2 }),
            bundles: vec![bundle(1, 2_800_000), bundle(175, 1_100_000)],
        }
    }
}
