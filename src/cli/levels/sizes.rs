//! `slotpress levels sizes`: what storages or records save by their size.

use {
    super::input::{SourceArgs, one_codec, seconds},
    crate::{
        cli::ui::Ui,
        error::Result,
        levels::{
            export::{ExportFile, Format, Subject, page::Page},
            sizes::{
                SizeUnit,
                measure::measure_sizes,
                show::{csv, json, lines, markdown},
            },
            units::Units,
        },
        progress::Progress,
    },
    clap::{Args, ValueEnum},
    std::{path::PathBuf, time::Duration},
};

/// By size class: what storages, or single records, save when each is compressed alone
///
/// For ledgers and archives. Sizes are in units of 1000 bytes; a negative saving means that units grow.
#[derive(Debug, Args)]
pub struct SizesArgs {
    #[command(flatten)]
    source: SourceArgs,
    /// What is compressed alone
    #[arg(long, value_enum, default_value_t)]
    unit: UnitArg,
    /// The codec, at one level: zstd:3, lz4, zlib:6
    #[arg(long, value_name = "CODEC[:LEVEL]", default_value = "zstd:1")]
    codec: String,
    /// Seconds for each class, at most; units that are left are not measured
    #[arg(long, value_name = "S", default_value = "2", value_parser = seconds)]
    max_time: Duration,
    /// Also write the classes as comma-separated values
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,
    /// Also write the classes as a Markdown table
    #[arg(long, value_name = "FILE")]
    markdown: Option<PathBuf>,
    /// Also write a page with the classes, in one file
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, Default, ValueEnum)]
enum UnitArg {
    /// Storage files
    #[default]
    Storage,
    /// Records: header and data of one account
    Record,
}

/// Storages held in memory unless more is asked for: some hundred of each class that mainnet has many of.
const MEMORY_BYTES_MAX: u64 = 256 << 20;

pub fn run(args: &SizesArgs, ui: &Ui) -> Result<()> {
    let codec = one_codec(&args.codec)?;
    let export = |format, path: &Option<PathBuf>| {
        path.as_ref().map(|path| ExportFile::new(format, path, args.source.path())).transpose()
    };
    let csv_file = export(Format::Csv, &args.csv)?;
    let markdown_file = export(Format::Markdown, &args.markdown)?;
    let html_file = export(Format::Html, &args.html)?;
    let unit = match args.unit {
        UnitArg::Storage => SizeUnit::Storage,
        UnitArg::Record => SizeUnit::Record,
    };
    // Frames are of no meaning here.
    let options = args.source.options(1, MEMORY_BYTES_MAX);
    let units = Units::read(&options, unit, ui)?;
    let subject = Subject {
        name: args.source.name(),
        kind: units.kind.as_str(),
        total_bytes: units.storage_bytes,
        measured_bytes: units.contents.iter().map(|content| content.len() as u64).sum(),
        frame_size_bytes: 0,
        threads: 1,
        is_end_to_end: false,
    };
    if subject.measured_bytes < subject.total_bytes {
        args.source.tell_of_sample(&subject, ui);
    }
    let report = measure_sizes(&units, codec.as_ref(), args.max_time, ui)?;
    if ui.is_json() {
        json(&report).iter().for_each(|line| ui.print_json(line));
    } else {
        ui.print(&subject.name);
        lines(&report).iter().for_each(|line| ui.print(line));
    }
    if let Some(row) = report.classes.iter().find(|row| row.measured_units < row.units)
        && subject.measured_bytes == subject.total_bytes
    {
        ui.warn(&format!("not all units of {} were measured: give a larger --max-time", row.class));
    }
    if let Some(file) = csv_file {
        file.write_text(&csv(&report))?;
    }
    if let Some(file) = markdown_file {
        file.write_text(&markdown(&report))?;
    }
    if let Some(file) = html_file {
        file.write_text(&Page { subject: &subject, rows: &[], sizes: Some(&report), frames: None }.html())?;
    }
    Ok(())
}
