//! Runs `slotpress levels` and its subcommands. Their files measure, and make a [`report`]; [`input`] has the
//! flags that they share.

mod chart;
pub mod input;
mod link;
mod page;
mod pieces;
mod report;
mod table;

use clap::{Args, Subcommand};
use slotpress::levels::LevelRow;
use slotpress::{Progress, Result};

use self::input::MeasureArgs;
use self::page::{FileArgs, InputInfo};
use self::report::LevelsReport;
use super::tables::{Table, result_columns};
use super::ui::Ui;

// A subcommand's name takes the place of INPUT; a file of that name can be given as `./sizes`.
/// Measure the time and the size of each zstd level on your own data
///
/// INPUT is a ledger, an archive, an unpacked archive, or any file. Its frames are compressed
/// and decompressed in memory, with the code of `archive` and `restore`, and the decompressed
/// bytes are compared with the original bytes.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub struct LevelsArgs {
    #[command(flatten)]
    measure: MeasureArgs,
    #[command(subcommand)]
    command: Option<LevelsCommand>,
}

#[derive(Debug, Subcommand)]
enum LevelsCommand {
    Sizes(Box<pieces::SizesArgs>),
    Frames(Box<pieces::FramesArgs>),
    Link(Box<link::LinkArgs>),
}

pub fn run(args: &LevelsArgs, ui: &Ui) -> Result<()> {
    match &args.command {
        None => table::run(&args.measure, ui),
        Some(LevelsCommand::Sizes(args)) => pieces::run_sizes(args, ui),
        Some(LevelsCommand::Frames(args)) => pieces::run_frames(args, ui),
        Some(LevelsCommand::Link(args)) => link::run(args, ui),
    }
}

fn print_report(report: &LevelsReport, info: &InputInfo, files: &FileArgs, ui: &Ui) -> Result<()> {
    for line in &report.warnings {
        ui.warn(line);
    }
    files.write(info, report)?;
    for line in report.tables.iter().flat_map(Table::json_lines) {
        ui.print_json(&line);
    }
    ui.say(&format!("{}\n{}", info.name, info.about));
    ui.say(&report.lines(result_columns()).join("\n"));
    Ok(())
}

/// Returns a sentence that says why the times are rough: each reason once, with the rows that have it. Returns
/// nothing if no row has a warning.
fn summarize_warnings(rows: &[LevelRow]) -> Vec<String> {
    let mut reasons: Vec<(&str, String)> = Vec::new();
    for warning in rows.iter().flat_map(|row| &row.warnings) {
        if reasons.iter().any(|(about, _)| *about == warning.about) {
            continue;
        }
        let has_reason = |row: &&LevelRow| row.warnings.iter().any(|other| other.about == warning.about);
        let codecs: Vec<String> = rows.iter().filter(has_reason).map(|row| row.codec.to_string()).collect();
        let prefix = if codecs.len() == rows.len() { String::new() } else { format!("{}: ", codecs.join(", ")) };
        reasons.push((warning.about, prefix + &warning.text));
    }
    let reasons: Vec<String> = reasons.into_iter().map(|(_, text)| text).collect();
    if reasons.is_empty() {
        return Vec::new();
    }
    let advice = "stop other programs, use a larger input, or measure for longer (--min-time 5 --budget 5min)";
    vec![format!("rough times: {}; {advice}", reasons.join("; "))]
}
