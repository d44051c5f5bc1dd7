//! `slotpress levels frames`: compares frame sizes, and bundles of small units.

use std::collections::BTreeSet;
use std::time::Duration;

use clap::Args;
use slotpress::codec::FRAME_SIZE_BYTES_MAX;
use slotpress::levels::frames::bundle::UnitChoice;
use slotpress::levels::frames::measure::{FIRST_PASS_MAX, FramesOptions, PIECES_MAX, measure_frames};
use slotpress::levels::frames::{FramesReport, view};
use slotpress::levels::report::Subject;
use slotpress::{Progress, Result};
use slotpress_base::quantity;

use super::exports::ExportArgs;
use super::input::{SourceArgs, one_codec};
use super::{is_interrupted, show};
use crate::cli::ui::Ui;
use crate::cli::values;

/// Compare frame sizes: ratio, speed, worst-case times, and what bundling small units saves
///
/// Frames of 32 B to 32 MiB are cut out of the input; each is compressed and decompressed on its own, on one core.
/// Then small units (records of a ledger, lines of a text) are bundled, several in a frame.
#[derive(Debug, Args)]
pub struct FramesArgs {
    #[command(flatten)]
    source: SourceArgs,
    /// Frame sizes, 1 to 32MiB: 4KiB,8MiB [default: 32 B to 32 MiB in steps of a factor of 4]
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = frame_size)]
    sizes: Vec<u64>,
    /// Numbers of units in a frame
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "1,2,5,10,175", value_parser = units_per_frame)]
    bundles: Vec<u64>,
    /// What a unit is: record, line, or a number of bytes [default: record, or line for text]
    #[arg(long, value_name = "UNIT", value_parser = unit)]
    unit: Option<UnitChoice>,
    /// One codec at one level: zstd:3, lz4, zlib:6
    #[arg(long, value_name = "CODEC", default_value = "zstd:1")]
    codec: String,
    /// Minimum time for compressing frames of each size, in seconds; the same again for decompressing
    #[arg(long, value_name = "S", default_value = "0.5", value_parser = values::duration)]
    min_time: Duration,
    #[command(flatten)]
    exports: ExportArgs,
}

/// The largest frame that archives have; the input is cut into frames of this size first.
const SIZE_BYTES_MAX: u64 = FRAME_SIZE_BYTES_MAX;

/// Held in memory without `--sample`: a pass over it takes a second at the fast levels.
const MEMORY_BYTES_MAX: u64 = 256 << 20;

/// 32 B, 128 B, … 32 MiB.
fn default_sizes() -> Vec<u64> {
    (0..=10).map(|power| 32 << (2 * power)).collect()
}

/// Reads a size of a frame.
fn frame_size(text: &str) -> Result<u64, String> {
    match values::size(text)? {
        bytes @ 1..=SIZE_BYTES_MAX => Ok(bytes),
        _ => Err("frames have 1 byte to 32 MiB".to_string()),
    }
}

/// Reads a number of units.
fn units_per_frame(text: &str) -> Result<u64, String> {
    /// A frame with more units is no bundle of small ones: see the sizes.
    const UNITS_MAX: u64 = 100_000;
    match text.trim().parse() {
        Ok(units @ 1..=UNITS_MAX) => Ok(units),
        _ => Err(format!("1 to {UNITS_MAX} units per frame, as in --bundles 1,2,5,10,175")),
    }
}

/// Ascending, each once.
fn ascending(values: &[u64]) -> Vec<u64> {
    BTreeSet::from_iter(values.iter().copied()).into_iter().collect()
}

/// Reads what a unit is.
fn unit(text: &str) -> Result<UnitChoice, String> {
    match text {
        "record" => Ok(UnitChoice::Record),
        "line" => Ok(UnitChoice::Line),
        _ => match values::size(text).map(usize::try_from) {
            Ok(Ok(bytes)) if bytes > 0 && bytes as u64 <= SIZE_BYTES_MAX => Ok(UnitChoice::Piece(bytes)),
            _ => Err("record, line, or a number of bytes up to 32MiB".to_string()),
        },
    }
}

pub fn run(args: &FramesArgs, ui: &Ui) -> Result<()> {
    let codec = one_codec(&args.codec)?;
    let options = FramesOptions {
        sizes: if args.sizes.is_empty() { default_sizes() } else { ascending(&args.sizes) },
        bundles: ascending(&args.bundles),
        unit: args.unit.unwrap_or(UnitChoice::Any),
        min_time: args.min_time,
        pieces_max: PIECES_MAX,
        first_pass_max: FIRST_PASS_MAX,
    };
    let exports = args.exports.files(&args.source.path)?;

    let input = args.source.read(SIZE_BYTES_MAX, values::threads_or_all(None), MEMORY_BYTES_MAX, ui)?;
    // Frames of many sizes, on one core.
    let subject = Subject { frame_size_bytes: 0, ..args.source.subject(&input, 1) };
    let (report, result) = measure_frames(&input, &codec, &options, ui);
    // After an interruption, the sizes that were measured are shown.
    if report.sizes.is_empty() || (result.is_err() && !is_interrupted(&result)) {
        return result;
    }
    show(&view::section(&report), &subject, &exports, ui)?;
    if result.is_ok() {
        left_out(&report, &options).iter().for_each(|line| ui.warn(line));
    }
    result
}

/// Warnings about sizes and bundles that were not measured.
fn left_out(report: &FramesReport, options: &FramesOptions) -> Vec<String> {
    let mut lines = Vec::new();
    let last = report.sizes.last().map_or(0, |row| row.frame_size_bytes);
    if let Some(next) = options.sizes.iter().find(|size| **size > last) {
        lines.push(format!(
            "frames of {} and more would be the same as those of {}: the input has no more",
            quantity::bytes(*next),
            quantity::bytes(last)
        ));
    }
    if report.bundle_unit.is_none() {
        lines.push("no records or lines to bundle; --unit 200 bundles pieces of 200 bytes".to_string());
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists() {
        assert_eq!(default_sizes().len(), 11);
        assert_eq!(default_sizes().last(), Some(&SIZE_BYTES_MAX));
        assert_eq!(ascending(&[8, 1, 32, 8]), [1, 8, 32]);
        assert_eq!((frame_size("4k"), units_per_frame(" 10")), (Ok(4096), Ok(10)));
        for text in ["", "0", "33MiB", "x", "-1", "99999999999999999999"] {
            assert!(frame_size(text).is_err() && units_per_frame(text).is_err(), "{text}");
        }
    }

    #[test]
    fn units_and_codecs() {
        assert_eq!(unit("record"), Ok(UnitChoice::Record));
        assert_eq!(unit("2k"), Ok(UnitChoice::Piece(2048)));
        for text in ["", "0", "records", "33MiB", "-5"] {
            assert!(unit(text).is_err(), "{text}");
        }
        let parsed = |text| one_codec(text).ok().map(|codec| (codec.name.to_string(), codec.level));
        assert_eq!(parsed("zstd:-3"), Some(("zstd".to_string(), -3)));
        assert_eq!(parsed("zstd"), Some(("zstd".to_string(), 1)));
        for text in ["zlib", "zstd:1-3", "zstd:1,lz4", "lz5", ""] {
            assert_eq!(parsed(text), None, "{text}");
        }
    }
}
