//! `slotpress levels sizes`: what storages or records of each size save when each is compressed alone.

use {
    super::{
        input::{RepeatArgs, SourceArgs, one_codec},
        table::wrap,
    },
    crate::{
        cli::{ui::Ui, values},
        error::Result,
        format::frames::FRAME_SIZE_BYTES_MAX,
        levels::{
            export::{ExportFile, Format, Subject, page::Page},
            sizes::{
                SizeUnit, SizesReport,
                export::{conclusion, csv, json_lines, markdown, table},
                measure::measure_sizes,
            },
        },
    },
    clap::{Args, ValueEnum},
    std::path::PathBuf,
};

/// Show what storages or records of each size save when each is compressed alone
///
/// Of a ledger or an archive, read in frames of 32 MiB; a larger storage is left out. Of each size class, up to 20,000 units or 32 MiB are measured, spread evenly over those that are there.
#[derive(Debug, Args)]
pub struct SizesArgs {
    #[command(flatten)]
    source: SourceArgs,
    /// What is compressed alone
    #[arg(long, value_enum, default_value_t)]
    unit: UnitArg,
    /// A codec and its level, as in the table
    #[arg(long, value_name = "CODEC:LEVEL", default_value = "zstd:1")]
    codec: String,
    #[command(flatten)]
    repeat: RepeatArgs,
    /// Also write the classes as comma-separated values
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,
    /// Also write the classes as a Markdown table
    #[arg(long, value_name = "FILE")]
    markdown: Option<PathBuf>,
    /// Also write a page with tables and charts, in one file
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, Default, ValueEnum)]
enum UnitArg {
    /// Storage files, as an archive holds them
    Storage,
    /// Records of storages: header and data
    #[default]
    Record,
}

/// What is held in memory unless more is asked for, as for the table.
const MEMORY_BYTES_MAX: u64 = 1 << 30;

pub fn run(args: &SizesArgs, ui: &Ui) -> Result<()> {
    let codec = one_codec(&args.codec)?;
    let export = |format, path: &Option<PathBuf>| {
        path.as_ref().map(|path| ExportFile::new(format, path, args.source.path())).transpose()
    };
    let (csv_file, markdown_file) = (export(Format::Csv, &args.csv)?, export(Format::Markdown, &args.markdown)?);
    let html_file = export(Format::Html, &args.html)?;
    // The largest frames, so that few storages are cut.
    let input = args.source.read(FRAME_SIZE_BYTES_MAX, values::threads_or_all(None), MEMORY_BYTES_MAX, ui)?;
    let subject = args.source.subject(&input, 1);
    let unit = match args.unit {
        UnitArg::Storage => SizeUnit::Storage,
        UnitArg::Record => SizeUnit::Record,
    };
    let report = measure_sizes(&input, unit, codec.as_ref(), &args.repeat.options(1), ui)?;
    if let Some(file) = csv_file {
        file.write_text(&csv(&report))?;
    }
    if let Some(file) = markdown_file {
        file.write_text(&markdown(&report, &format!("{}: {}", subject.name, subject.describe())))?;
    }
    if let Some(file) = html_file {
        file.write_text(&Page { sizes: Some(&report), ..Page::of_levels(&subject, &[]) }.html())?;
    }
    match ui.is_json() {
        true => json_lines(&report).iter().for_each(|line| ui.print_json(line)),
        false => print(&report, &subject, ui),
    }
    Ok(())
}

fn print(report: &SizesReport, subject: &Subject, ui: &Ui) {
    ui.print(&subject.name);
    ui.print(&format!("  {}", subject.describe()));
    table(report).iter().for_each(|line| ui.print(line));
    ui.print("");
    wrap("", &conclusion(report)).iter().for_each(|line| ui.print(line));
}
