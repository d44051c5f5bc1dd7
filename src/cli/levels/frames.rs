//! `slotpress levels frames`: what frames of each size cost and save, and what bundling saves.

use {
    super::{
        input::{SourceArgs, one_codec, seconds},
        table::wrap,
    },
    crate::{
        cli::{ui::Ui, values},
        error::{Error, Result},
        format::frames::FRAME_SIZE_BYTES_MAX,
        levels::{
            export::{ExportFile, Format, Subject, page::Page, show_short},
            frames::{
                content::{FramesContent, UnitsWanted},
                explain::sentences,
                measure::{FramesOptions, measure_frames},
                show::{bundle_lines, csv, lines, markdown, size_lines},
            },
            input::InputKind,
        },
        progress::Progress,
    },
    clap::Args,
    std::{path::PathBuf, time::Duration},
};

/// By frame size: times of single frames with percentiles, throughput and ratio, and what bundling saves
///
/// Frames are cut at fixed sizes and compressed one by one on one core. Records of a ledger or an archive are bundled; of
/// any other file, its lines (--lines) or pieces of it (--unit-size).
#[derive(Debug, Args)]
pub struct FramesArgs {
    #[command(flatten)]
    source: SourceArgs,
    /// Sizes of frames, 16 to 32MiB: 512,64KiB,8MiB [default: powers of four from 32 to 32MiB]
    #[arg(long, value_name = "LIST")]
    sizes: Option<String>,
    /// Units in a frame
    #[arg(long, value_name = "LIST", default_value = "1,2,5,10,175")]
    bundles: String,
    /// Bundle lines
    #[arg(long, conflicts_with = "unit_size")]
    lines: bool,
    /// Bundle pieces of so many bytes
    #[arg(long, value_name = "SIZE", value_parser = values::size)]
    unit_size: Option<u64>,
    /// The codec, at one level: zstd:3, lz4, zlib:6
    #[arg(long, value_name = "CODEC[:LEVEL]", default_value = "zstd:1")]
    codec: String,
    /// Seconds for each size, and for the bundles
    #[arg(long, value_name = "S", default_value = "2", value_parser = seconds)]
    time: Duration,
    /// Also write the sizes as comma-separated values
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,
    /// Also write Markdown tables
    #[arg(long, value_name = "FILE")]
    markdown: Option<PathBuf>,
    /// Also write a page with tables and pictures, in one file
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

/// The content held in memory unless more is asked for: eight frames of the largest size.
const MEMORY_BYTES_MAX: u64 = 256 << 20;

/// Below this, a frame's own header is most of it.
const SIZE_MIN: u64 = 16;

/// More sizes are a slip of the keyboard: each is measured for seconds.
const LIST_MAX: usize = 64;

/// The most units in a frame: more are what larger sizes show.
const BUNDLE_MAX: u64 = 100_000;

pub fn run(args: &FramesArgs, ui: &Ui) -> Result<()> {
    let codec = one_codec(&args.codec)?;
    let sizes = match &args.sizes {
        Some(list) => parse_sizes(list)?,
        None => default_sizes(),
    };
    let options = FramesOptions { sizes, bundles: parse_bundles(&args.bundles)?, time: args.time };
    let wanted = units_wanted(args)?;
    let export = |format, path: &Option<PathBuf>| {
        path.as_ref().map(|path| ExportFile::new(format, path, args.source.path())).transpose()
    };
    let csv_file = export(Format::Csv, &args.csv)?;
    let markdown_file = export(Format::Markdown, &args.markdown)?;
    let html_file = export(Format::Html, &args.html)?;

    let content = FramesContent::read(&args.source.options(FRAME_SIZE_BYTES_MAX, MEMORY_BYTES_MAX), wanted, ui)?;
    let subject = Subject {
        name: args.source.name(),
        kind: content.kind.as_str(),
        total_bytes: content.total_bytes,
        measured_bytes: content.content_bytes(),
        frame_size_bytes: 0,
        threads: 1,
        is_end_to_end: false,
    };
    if subject.measured_bytes < subject.total_bytes {
        args.source.tell_of_sample(&subject, ui);
    }
    let report = measure_frames(&content, codec.as_ref(), &options, ui)?;
    if ui.is_json() {
        size_lines(&report).for_each(|line| ui.print_json(&line));
        bundle_lines(&report).for_each(|line| ui.print_json(&line));
    } else {
        ui.print(&subject.name);
        ui.print(&format!("  {}", subject.describe()));
        lines(&report).iter().for_each(|line| ui.print(line));
        ui.print("");
        let clock = format!("Every single time contains {} for reading the clock.", show_short(report.timer_seconds));
        for sentence in std::iter::once(clock).chain(sentences(&report)) {
            wrap("", &sentence).iter().for_each(|line| ui.print(line));
        }
        if content.kind == InputKind::File && report.bundle_unit.is_none() {
            ui.print("Give --lines or --unit-size to see what bundling saves.");
        }
    }
    if report.sizes.len() < options.sizes.len() {
        ui.warn("the input is too short for the larger sizes: they are left out");
    }
    if let Some(file) = csv_file {
        file.write_text(&csv(&report))?;
    }
    if let Some(file) = markdown_file {
        file.write_text(&markdown(&report))?;
    }
    if let Some(file) = html_file {
        file.write_text(&Page { subject: &subject, rows: &[], sizes: None, frames: Some(&report) }.html())?;
    }
    Ok(())
}

/// 32 B, 128 B, 512 B, … 8 MiB, 32 MiB.
fn default_sizes() -> Vec<u64> {
    (0..=10).map(|power| 32 << (2 * power)).collect()
}

fn units_wanted(args: &FramesArgs) -> Result<UnitsWanted> {
    match args.unit_size {
        _ if args.lines => Ok(UnitsWanted::Lines),
        None => Ok(UnitsWanted::Records),
        Some(bytes) => match u32::try_from(bytes) {
            Ok(bytes) if (1..=FRAME_SIZE_BYTES_MAX).contains(&u64::from(bytes)) => Ok(UnitsWanted::Pieces(bytes)),
            _ => Err(Error::usage(format!("a unit of {bytes} bytes is out of range"))
                .hint(format!("units have 1 to {FRAME_SIZE_BYTES_MAX} bytes"))),
        },
    }
}

fn parse_sizes(list: &str) -> Result<Vec<u64>> {
    parse_list(list, "a size", &|item| values::size(item), SIZE_MIN, FRAME_SIZE_BYTES_MAX)
        .map_err(|message| Error::usage(message).hint("sizes are 16 to 32MiB: --sizes 512,64KiB,8MiB"))
}

/// Always with 1, which the others are set against.
fn parse_bundles(list: &str) -> Result<Vec<u64>> {
    let number = |item: &str| item.parse::<u64>().map_err(|error| error.to_string());
    let mut bundles = parse_list(list, "a number of units", &number, 1, BUNDLE_MAX).map_err(|message| {
        Error::usage(message).hint(format!("bundles have 1 to {BUNDLE_MAX} units: --bundles 1,2,5,10,175"))
    })?;
    if bundles.first() != Some(&1) {
        bundles.insert(0, 1);
    }
    Ok(bundles)
}

/// Numbers in ascending order, each once; never empty.
fn parse_list(
    list: &str,
    what: &str,
    parse: &dyn Fn(&str) -> Result<u64, String>,
    min: u64,
    max: u64,
) -> Result<Vec<u64>, String> {
    let mut numbers = Vec::new();
    for item in list.split(',').map(str::trim) {
        let number = parse(item).map_err(|_| format!("{item:?} is not {what}"))?;
        if !(min..=max).contains(&number) {
            return Err(format!("{item} is out of range"));
        }
        numbers.push(number);
    }
    numbers.sort_unstable();
    numbers.dedup();
    match numbers.len() {
        0..=LIST_MAX => Ok(numbers),
        count => Err(format!("{count} are too many")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists() {
        assert_eq!(parse_sizes("8MiB,512, 64k").ok(), Some(vec![512, 65_536, 8 << 20]));
        assert_eq!(parse_bundles("10,5,5").ok(), Some(vec![1, 5, 10]));
        assert_eq!((default_sizes().first(), default_sizes().last()), (Some(&32), Some(&FRAME_SIZE_BYTES_MAX)));
        for list in ["", ",", "8", "33MiB", "x", "512,"] {
            assert!(parse_sizes(list).is_err(), "{list:?}");
        }
        for list in ["", "0", "100001", "-1", "1,x"] {
            assert!(parse_bundles(list).is_err(), "{list:?}");
        }
    }
}
