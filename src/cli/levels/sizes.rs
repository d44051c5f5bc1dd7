//! `slotpress levels sizes`: savings of storages or records by size.

use clap::{Args, ValueEnum};
use slotpress::Result;
use slotpress::codec::FRAME_SIZE_BYTES_MAX;
use slotpress::levels::content::MEMORY_BYTES_MAX;
use slotpress::levels::sizes::measure::measure_sizes;
use slotpress::levels::sizes::{SizeUnit, view};

use super::exports::ExportArgs;
use super::input::{RepeatArgs, SourceArgs, one_codec};
use super::show;
use crate::cli::ui::Ui;
use crate::cli::values;

/// Show what storages or records of each size save when each is compressed alone
///
/// Of a ledger or an archive, read in frames of 32 MiB; a larger storage is left out. Of each size class, up to 20,000
/// units or 32 MiB are measured, spread evenly over those that are there.
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
    #[command(flatten)]
    exports: ExportArgs,
}

#[derive(Clone, Copy, Debug, Default, ValueEnum)]
enum UnitArg {
    /// Storage files, as an archive holds them
    Storage,
    /// Records of storages: header and data
    #[default]
    Record,
}

pub fn run(args: &SizesArgs, ui: &Ui) -> Result<()> {
    let codec = one_codec(&args.codec)?;
    let exports = args.exports.files(&args.source.path)?;
    // The largest frames, so that few storages are cut.
    let input = args.source.read(FRAME_SIZE_BYTES_MAX, values::threads_or_all(None), MEMORY_BYTES_MAX, ui)?;
    let subject = args.source.subject(&input, 1);
    let unit = match args.unit {
        UnitArg::Storage => SizeUnit::Storage,
        UnitArg::Record => SizeUnit::Record,
    };
    let report = measure_sizes(&input, unit, &codec, &args.repeat.options(1), ui)?;
    show(&view::section(&report), &subject, &exports, ui)
}
