//! Runs `slotpress levels sizes`: shows, for each size class, what is saved by compressing each
//! storage or record alone.

use clap::Args;
use slotpress::Result;
use slotpress::levels::FrameCodec;
use slotpress::program::{MEMORY_BYTES_MAX, SizeClassRow, SizeUnit, measure_sizes};
use slotpress_format::FRAME_SIZE_BYTES_MAX;

use super::chart::Chart;
use super::input::{RepeatArgs, SourceArgs, one_codec};
use super::page::ExportArgs;
use super::report::Report;
use super::show;
use crate::cli::tables::{Table, TableOf, Unit};
use crate::cli::ui::Ui;
use crate::cli::values;

/// Show what storages or records of each size save when each is compressed alone
///
/// The input is a ledger or an archive, read in frames of 32 MiB; a larger storage is left out.
/// From each size class, up to 20,000 units or 32 MiB are measured, spread evenly over the class.
#[derive(Debug, Args)]
pub struct SizesArgs {
    #[command(flatten)]
    source: SourceArgs,
    /// What is compressed alone
    #[arg(long, default_value = "record", value_parser = values::choice(UNITS))]
    unit: SizeUnit,
    /// A codec and its level, as in the table
    #[arg(long, value_name = "CODEC:LEVEL", default_value = "zstd:1")]
    codec: String,
    #[command(flatten)]
    repeat: RepeatArgs,
    #[command(flatten)]
    exports: ExportArgs,
}

const UNITS: &[(&str, SizeUnit, &str)] = &[
    ("storage", SizeUnit::Storage, "Storage files, as an archive holds them"),
    ("record", SizeUnit::Record, "Records of storages: header and data"),
];

pub fn run(args: &SizesArgs, ui: &Ui) -> Result<()> {
    let codec = one_codec(&args.codec)?;
    args.exports.check(args.source.path())?;
    let held_bytes = args.source.held_bytes(MEMORY_BYTES_MAX);
    // With the largest frames, the fewest storages are cut.
    let options = args.source.options(values::threads_or_all(None), held_bytes).frame_size_bytes(FRAME_SIZE_BYTES_MAX);
    let input = args.source.read(&options, ui)?;
    let subject = args.source.subject(&input, "one worker");
    let rows = measure_sizes(&input, args.unit, codec, &args.repeat.apply(options), ui)?;
    show(&report(&rows, args.unit.as_str(), codec), &subject, &args.exports, ui)
}

/// Divides a sum over the measured units by their number.
fn average(row: &SizeClassRow, sum: f64) -> f64 {
    sum / row.measured_units.max(1) as f64
}

fn report(rows: &[SizeClassRow], unit: &'static str, codec: FrameCodec) -> Report {
    let classes = rows.split_last().map_or(rows, |(_, classes)| classes);
    let points = classes.iter().map(|row| (average(row, row.row.input_bytes as f64), row.row.saving_percent()));
    let caption = format!("What compressing saves, by the size of a {unit}; below 0, it grows.");
    let x_label = "size before compressing (logarithmic)";
    Report {
        facts: vec![format!("each {unit} alone, {codec}, one core")],
        chart: Some(Chart::by_size(caption, x_label, "saving in %", codec.to_string(), points.collect())),
        tables: vec![table(rows, unit, codec)],
        ..Report::default()
    }
}

fn table(rows: &[SizeClassRow], unit: &'static str, codec: FrameCodec) -> Table {
    let table = TableOf::new("sizes-table", "unit_size_class", rows)
        .data("unit", |_| unit)
        .data("codec", |_| codec.name)
        .data("level", |_| codec.level)
        .both("size", Unit::Text, "class", |row| row.class)
        .data("from_bytes", |row| row.from_bytes)
        .data("below_bytes", |row| row.below_bytes)
        .both("count", Unit::Count, "units", |row| row.units)
        .data("unit_bytes", |row| row.unit_bytes)
        .data("measured_units", |row| row.measured_units)
        .data("input_bytes", |row| row.row.input_bytes)
        .data("output_bytes", |row| row.row.output_bytes)
        .data("compress_seconds", |row| row.row.compress.median)
        .data("decompress_seconds", |row| row.row.decompress.median)
        .shown("average", Unit::Bytes, |row| average(row, row.row.input_bytes as f64))
        .shown("compressed", Unit::Bytes, |row| average(row, row.row.output_bytes as f64))
        .both("saving %", Unit::Percent, "saving_percent", |row| row.row.saving_percent())
        .shown("compress", Unit::Time, |row| average(row, row.row.compress.median))
        .shown("decompress", Unit::Time, |row| average(row, row.row.decompress.median))
        .finish();
    Table { best: rows.len().checked_sub(1), spare: &[3, 1, 2, 6], ..table }
}
