//! Runs `slotpress levels` and its subcommands. Each has a file, which measures and makes a
//! [`report`]; [`input`] has the flags that they share.

mod chart;
mod frames;
pub mod input;
mod link;
mod page;
mod provenance;
mod report;
mod sizes;
mod table;

use std::mem::{Discriminant, discriminant};

use clap::{ArgMatches, Args, Command, FromArgMatches, Subcommand};
use slotpress::levels::LevelRow;
use slotpress::program::Warning;
use slotpress::{ErrorKind, Progress, Result};

use self::page::{ExportArgs, Subject};
use self::report::Report;
use super::ui::Ui;

/// The table, or a subcommand. The parser is written by hand: the one that clap derives would
/// require the table's INPUT even with a subcommand.
#[derive(Debug)]
pub enum LevelsArgs {
    Table(Box<table::TableArgs>),
    View(View),
}

#[derive(Debug, Subcommand)]
pub enum View {
    Sizes(Box<sizes::SizesArgs>),
    Frames(Box<frames::FramesArgs>),
    Link(Box<link::LinkArgs>),
}

impl FromArgMatches for LevelsArgs {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        match matches.subcommand_name() {
            Some(_) => View::from_arg_matches(matches).map(Self::View),
            None => table::TableArgs::from_arg_matches(matches).map(|args| Self::Table(Box::new(args))),
        }
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl Args for LevelsArgs {
    fn augment_args(command: Command) -> Command {
        // A subcommand's name takes the place of INPUT; a file of that name can be given as
        // `./sizes`.
        View::augment_subcommands(table::TableArgs::augment_args(command))
            .subcommand_required(false)
            .arg_required_else_help(false)
            .args_conflicts_with_subcommands(true)
            .subcommand_negates_reqs(true)
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

pub fn run(args: &LevelsArgs, ui: &Ui) -> Result<()> {
    match args {
        LevelsArgs::Table(args) => table::run(args, ui),
        LevelsArgs::View(View::Sizes(args)) => sizes::run(args, ui),
        LevelsArgs::View(View::Frames(args)) => frames::run(args, ui),
        LevelsArgs::View(View::Link(args)) => link::run(args, ui),
    }
}

/// True if the user interrupted the measurement: then the results so far are shown.
fn is_interrupted(result: &Result<()>) -> bool {
    matches!(result, Err(error) if error.kind() == ErrorKind::Interrupted)
}

fn print_name(subject: &Subject, ui: &Ui) {
    ui.print(&subject.name);
    ui.print(&format!("  {}", subject.about));
}

/// Prints warnings, writes the export files, and prints the report as text or its rows as JSON.
fn show(report: &Report, subject: &Subject, exports: &ExportArgs, ui: &Ui) -> Result<()> {
    report.warnings.iter().for_each(|line| ui.warn(line));
    exports.write(subject, report)?;
    if ui.is_json() {
        report.tables.iter().flat_map(|table| table.json_lines()).for_each(|line| ui.print_json(&line));
    } else if !ui.is_quiet() {
        print_name(subject, ui);
        report.lines(ui.columns()).iter().for_each(|line| ui.print_verbatim(line));
    }
    Ok(())
}

/// Describes each kind of warning once, with the rows that it applies to.
fn warnings(rows: &[LevelRow]) -> Vec<String> {
    let mut told: Vec<Discriminant<Warning>> = Vec::new();
    let mut lines = Vec::new();
    for warning in rows.iter().flat_map(|row| &row.warnings) {
        let kind = discriminant(warning);
        if told.contains(&kind) {
            continue;
        }
        told.push(kind);
        let is_same = |row: &&LevelRow| row.warnings.iter().any(|other| discriminant(other) == kind);
        let labels: Vec<String> = rows.iter().filter(is_same).map(LevelRow::label).collect();
        let is_all = labels.len() == rows.len() && rows.len() > 1;
        lines.push(if is_all { warning.to_string() } else { format!("{}: {warning}", labels.join(", ")) });
    }
    lines
}
