//! Runs `slotpress levels sizes` and `slotpress levels frames`, which compress each record, storage or frame
//! alone.

use std::time::Duration;

use clap::Args;
use slotpress::levels::{FrameCodec, MeasureOptions};
use slotpress::program::{
    Input, Latency, PieceRow, SAMPLE_BYTES_DEFAULT, SizeUnit, measure_frames, measure_sizes, measure_timer_seconds,
};
use slotpress::{Progress, Result};
use slotpress_base::{available_threads, quantity};
use slotpress_format::FRAME_SIZE_BYTES_MAX;

use super::chart::Chart;
use super::input::{RepeatArgs, SourceArgs, parse_one_codec};
use super::page::FileArgs;
use super::print_report;
use super::report::LevelsReport;
use crate::cli::tables::{Table, TableBuilder, Unit, to_json};
use crate::cli::ui::Ui;
use crate::cli::values::{self, Choice};

#[derive(Debug, Args)]
struct PieceArgs {
    #[command(flatten)]
    source: SourceArgs,
    /// One codec at one level: zstd:3, lz4, zlib:6
    #[arg(long, value_name = "CODEC", default_value = "zstd:1")]
    codec: String,
    #[command(flatten)]
    files: FileArgs,
}

impl PieceArgs {
    /// Reads the input, or without `--sample` at most `bytes_max` of it, in the largest frames, which cut the
    /// fewest storages.
    fn read(&self, bytes_max: u64, ui: &Ui) -> Result<(FrameCodec, Input, MeasureOptions)> {
        let codec = parse_one_codec(&self.codec)?;
        self.files.check(self.source.path())?;
        let held_bytes = self.source.choose_held_bytes(bytes_max);
        let mut options = self.source.options(available_threads(), held_bytes);
        options.frame_size_bytes = FRAME_SIZE_BYTES_MAX;
        Ok((codec, self.source.read(&options, ui)?, options))
    }

    fn print_report(&self, report: &LevelsReport, input: &Input, ui: &Ui) -> Result<()> {
        let info = self.source.describe(input, "one worker");
        print_report(report, &info, &self.files, ui)
    }
}

/// Show how much smaller records or storages of each size become when each is compressed alone
///
/// The input is a ledger or an archive, which is read in frames of 32 MiB; larger storages are left out.
/// From each size class, up to 20,000 units or 32 MiB are measured, spread evenly over the class.
#[derive(Debug, Args)]
pub struct SizesArgs {
    #[command(flatten)]
    pieces: PieceArgs,
    /// The unit that is compressed alone
    #[arg(long, default_value = "record", value_parser = values::choice_parser(UNITS))]
    unit: SizeUnit,
    #[command(flatten)]
    repeat: RepeatArgs,
}

const UNITS: &[Choice<SizeUnit>] = &[
    Choice("storage", SizeUnit::Storage, "Storage files, as an archive holds them"),
    Choice("record", SizeUnit::Record, "Records of storages: header and data"),
];

pub fn run_sizes(args: &SizesArgs, ui: &Ui) -> Result<()> {
    let (codec, input, options) = args.pieces.read(SAMPLE_BYTES_DEFAULT, ui)?;
    let rows = measure_sizes(&input, args.unit, codec, &args.repeat.apply(options), ui)?;
    args.pieces.print_report(&sizes_report(&rows, args.unit.as_str(), codec), &input, ui)
}

fn average_per_piece(row: &PieceRow, sum: f64) -> f64 {
    sum / row.measured_pieces.max(1) as f64
}

fn sizes_report(rows: &[PieceRow], unit: &'static str, codec: FrameCodec) -> LevelsReport {
    let classes = rows.split_last().map_or(rows, |(_, classes)| classes);
    let point = |row: &PieceRow| {
        let average_bytes = average_per_piece(row, row.totals.input_bytes as f64);
        (average_bytes, row.totals.saving_percent())
    };
    let points = classes.iter().map(point);
    let caption = format!("What compressing saves, by the size of a {unit}. Below 0, the {unit} grows.");
    let x_label = "size before compressing (logarithmic)";
    LevelsReport {
        facts: vec![format!("each {unit} alone, {codec}, one core")],
        chart: Some(Chart::single_series(caption, x_label, "saving in %", codec.to_string(), points.collect())),
        tables: vec![sizes_table(rows, unit, codec)],
        ..LevelsReport::default()
    }
}

fn sizes_table(rows: &[PieceRow], unit: &'static str, codec: FrameCodec) -> Table {
    let mut table = TableBuilder::new("sizes-table", "unit_size_class", rows)
        .add_data("unit", |_| unit)
        .add_data("codec", |_| codec.name)
        .add_data("level", |_| codec.level)
        .add_column("size", Unit::Text, "class", |row| row.class)
        .add_data("from_bytes", |row| row.size_bytes_min)
        .add_data("below_bytes", |row| row.size_bytes_end)
        .add_column("count", Unit::Count, "units", |row| row.piece_count)
        .add_data("unit_bytes", |row| row.all_pieces_bytes)
        .add_data("measured_units", |row| row.measured_pieces)
        .add_data("input_bytes", |row| row.totals.input_bytes)
        .add_data("output_bytes", |row| row.totals.output_bytes)
        .add_data("compress_seconds", |row| row.totals.compress.median)
        .add_data("decompress_seconds", |row| row.totals.decompress.median)
        .add_visible("average", Unit::Bytes, |row| average_per_piece(row, row.totals.input_bytes as f64))
        .add_visible("compressed", Unit::Bytes, |row| average_per_piece(row, row.totals.output_bytes as f64))
        .add_column("saving %", Unit::Percent, "saving_percent", |row| row.totals.saving_percent())
        .add_visible("compress", Unit::Time, |row| average_per_piece(row, row.totals.compress.median))
        .add_visible("decompress", Unit::Time, |row| average_per_piece(row, row.totals.decompress.median))
        .finish();
    table.best_row = rows.len().checked_sub(1);
    table.optional_columns = &[3, 1, 2, 6];
    table
}

/// Compare frame sizes: ratio, speed, worst-case times
///
/// Frames of 32 B to 32 MiB are cut out of the input; each is compressed and decompressed on its
/// own, on one core.
#[derive(Debug, Args)]
pub struct FramesArgs {
    #[command(flatten)]
    pieces: PieceArgs,
    /// Frame sizes, 1 to 32MiB: 4KiB,8MiB [default: 32 B to 32 MiB in steps of a factor of 4]
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = parse_frame_size)]
    sizes: Vec<u64>,
    /// Minimum time for compressing the frames of each size, and again for decompressing them
    #[arg(long, value_name = "TIME", default_value = "0.5s", value_parser = values::parse_duration)]
    min_time: Duration,
}

/// Maximum content held in memory without `--sample`. At the fast levels, compressing that once takes a second.
const FRAMES_BYTES_MAX: u64 = 256 << 20;

fn parse_frame_size(text: &str) -> Result<u64, String> {
    match values::parse_size(text)? {
        bytes @ 1..=FRAME_SIZE_BYTES_MAX => Ok(bytes),
        _ => Err("frame sizes are 1 byte to 32 MiB".to_string()),
    }
}

/// Returns the frame sizes in ascending order, each once. If none is requested, returns 32 B, 128 B and so on,
/// by factors of four, to 32 MiB.
fn frame_sizes(requested: &[u64]) -> Vec<u64> {
    let mut sizes = requested.to_vec();
    if sizes.is_empty() {
        sizes.extend((0..=10).map(|power| 32 << (2 * power)));
    }
    sizes.sort_unstable();
    sizes.dedup();
    sizes
}

pub fn run_frames(args: &FramesArgs, ui: &Ui) -> Result<()> {
    let sizes = frame_sizes(&args.sizes);
    let (codec, input, _) = args.pieces.read(FRAMES_BYTES_MAX, ui)?;
    let timer_seconds = measure_timer_seconds();
    let mut rows = Vec::new();
    let result = measure_frames(&input, codec, &sizes, args.min_time, ui, &mut rows);
    let Some(largest) = rows.last().map(|row| row.size_bytes_min) else { return result };
    args.pieces.print_report(&frames_report(&rows, codec, timer_seconds), &input, ui)?;
    if result.is_ok()
        && let Some(next) = sizes.iter().find(|size| **size > largest)
    {
        let [next, largest] = [*next, largest].map(quantity::bytes);
        ui.warn(&format!(
            "frames of {next} and more would be the same as those of {largest}: the input has no larger ones"
        ));
    }
    result
}

fn frames_report(rows: &[PieceRow], codec: FrameCodec, timer_seconds: f64) -> LevelsReport {
    let point = |row: &PieceRow| (row.size_bytes_min as f64, row.totals.ratio());
    let points = rows.iter().map(point).collect();
    let caption = "Ratio by frame size: small frames hold too little to compress well.".to_string();
    let chart = Chart::single_series(caption, "frame size (logarithmic)", "ratio", codec.to_string(), points);
    let clock = quantity::time(timer_seconds);
    let frames = frames_table(rows, codec, timer_seconds);
    let compress = latency_table(rows, "compress-table", "compress", |row| &row.compress);
    let decompress = latency_table(rows, "decompress-table", "decompress", |row| &row.decompress);
    LevelsReport {
        facts: vec![format!("{codec}, one core; each frame alone; every time includes {clock} for reading the clock")],
        chart: (rows.len() > 1).then_some(chart),
        tables: vec![frames, compress, decompress],
        ..LevelsReport::default()
    }
}

fn frames_table(rows: &[PieceRow], codec: FrameCodec, timer_seconds: f64) -> Table {
    let mut table = TableBuilder::new("frames-table", "frame_size", rows)
        .add_data("codec", |_| codec.name)
        .add_data("level", |_| codec.level)
        .add_column("frame", Unit::Bytes, "frame_size_bytes", |row| row.size_bytes_min)
        .add_column("frames", Unit::Count, "frames", |row| row.measured_pieces)
        .add_data("input_bytes", |row| row.totals.input_bytes)
        .add_data("output_bytes", |row| row.totals.output_bytes)
        .add_column("ratio", Unit::Ratio, "ratio", |row| row.totals.ratio())
        .add_column("saving %", Unit::Percent, "saving_percent", |row| row.totals.saving_percent())
        .add_visible("comp. MiB/s", Unit::Rate, |row| row.bytes_per_second(&row.compress))
        .add_visible("decomp. MiB/s", Unit::Rate, |row| row.bytes_per_second(&row.decompress))
        .add_data("compress_mb_per_second", |row| row.bytes_per_second(&row.compress) / 1e6)
        .add_data("decompress_mb_per_second", |row| row.bytes_per_second(&row.decompress) / 1e6)
        .add_column("memory", Unit::Bytes, "worker_memory_bytes", |row| row.totals.peak_memory_bytes)
        .add_data("compress", |row| to_json(&row.compress))
        .add_data("decompress", |row| to_json(&row.decompress))
        .add_data("timer_seconds", |_| timer_seconds)
        .finish();
    table.optional_columns = &[6, 2, 1];
    table
}

fn latency_table(rows: &[PieceRow], id: &'static str, work: &str, latency: impl Fn(&PieceRow) -> &Latency) -> Table {
    let mut table = TableBuilder::new(id, "", rows)
        .add_visible("frame", Unit::Bytes, |row| row.size_bytes_min)
        .add_visible("average", Unit::Time, |row| latency(row).average_seconds)
        .add_visible("+-", Unit::Time, |row| latency(row).deviation_seconds)
        .add_visible("min", Unit::Time, |row| latency(row).min_seconds)
        .add_visible("50", Unit::Time, |row| latency(row).p50_seconds)
        .add_visible("90", Unit::Time, |row| latency(row).p90_seconds)
        .add_visible("99", Unit::Time, |row| latency(row).p99_seconds)
        .add_visible("99.99", Unit::Time, |row| latency(row).p99_99_seconds)
        .add_visible("99.9999", Unit::Time, |row| latency(row).p99_9999_seconds)
        .add_visible("max", Unit::Time, |row| latency(row).max_seconds)
        .finish();
    table.title = format!("{work}: time of one frame, percentiles");
    table.optional_columns = &[5, 7, 8, 3, 2];
    table
}

#[cfg(test)]
mod tests {
    use slotpress::levels::{LevelRow, Summary};

    use super::*;

    fn level_row(input_bytes: u64, output_bytes: u64, peak_memory_bytes: u64) -> LevelRow {
        let mut row = LevelRow::default();
        (row.input_bytes, row.output_bytes, row.peak_memory_bytes) = (input_bytes, output_bytes, peak_memory_bytes);
        (row.compress, row.decompress) = (Summary::from_runs(&[0.0123]), Summary::from_runs(&[0.0045]));
        row
    }

    fn row(size_bytes: u64) -> PieceRow {
        let bytes = size_bytes as f64;
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
        let frames = ((64u64 << 20) / size_bytes).min(1_200_000);
        let input_bytes = frames * size_bytes;
        let output_bytes = frames * (21 + (bytes * (0.28 + 2.0 / bytes.sqrt())) as u64);
        PieceRow {
            size_bytes_min: size_bytes,
            measured_pieces: frames,
            totals: level_row(input_bytes, output_bytes, 2 * size_bytes + 600_000),
            compress: latency(750e6, frames),
            decompress: latency(2.5e9, frames),
            ..PieceRow::default()
        }
    }

    fn make_sample_report() -> LevelsReport {
        frames_report(&[32, 512, 128 << 10, 2 << 20, 8 << 20, 32 << 20].map(row), FrameCodec::zstd(1), 25e-9)
    }

    #[test]
    fn the_report_fits_80_columns() {
        let lines = make_sample_report().lines(80);
        assert!(lines.iter().all(|line| line.chars().count() <= 80), "{}", lines.join("\n"));
        insta::assert_snapshot!(lines.join("\n"));
    }

    #[test]
    fn csv_has_a_column_for_each_value() {
        insta::assert_snapshot!(make_sample_report().csv().expect("made"));
    }

    #[test]
    fn frame_sizes_are_sorted_and_unique() {
        assert_eq!(frame_sizes(&[]).len(), 11);
        assert_eq!(frame_sizes(&[]).last(), Some(&FRAME_SIZE_BYTES_MAX));
        assert_eq!(frame_sizes(&[8, 1, 32, 8]), [1, 8, 32]);
        assert_eq!(parse_frame_size("4k"), Ok(4096));
        for text in ["", "0", "33MiB", "x", "-1", "99999999999999999999"] {
            assert!(parse_frame_size(text).is_err(), "{text}");
        }
    }

    #[test]
    fn exactly_one_codec_is_parsed() {
        let parsed = |text| parse_one_codec(text).ok().map(|codec| (codec.name, codec.level));
        assert_eq!(parsed("zstd:-3"), Some(("zstd", -3)));
        assert_eq!(parsed("zstd"), Some(("zstd", 1)));
        for text in ["zlib", "zstd:1-3", "zstd:1,lz4", "lz5", ""] {
            assert_eq!(parsed(text), None, "{text}");
        }
    }
}
