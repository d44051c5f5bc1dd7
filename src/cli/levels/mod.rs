//! `slotpress levels`: one file per command, [`input`] for the flags that all of them have.

mod exports;
mod frames;
pub mod input;
mod link;
mod provenance;
mod sizes;
mod table;

use clap::{ArgMatches, Args, Command, FromArgMatches, Subcommand};
use slotpress::levels::report::{Section, Subject, json, terminal};
use slotpress::{ErrorKind, Result};

use self::exports::Exports;
use super::ui::Ui;

/// The table, or a subcommand. Written by hand, because clap's derived code requires the table's INPUT even if a
/// subcommand is given.
#[derive(Debug)]
pub enum LevelsArgs {
    Table(Box<table::TableArgs>),
    View(View),
}

/// The subcommands.
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
        // A view is a word in place of INPUT; a file of that name is still measured as `./sizes`.
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

/// Whether the user asked to stop: results so far are shown then.
fn is_interrupted(result: &Result<()>) -> bool {
    matches!(result, Err(error) if error.kind() == ErrorKind::Interrupted)
}

/// Prints the heading of a report.
fn print_name(subject: &Subject, ui: &Ui) {
    ui.print(&subject.name);
    ui.print(&format!("  {}", subject.describe()));
}

/// Writes the files, and prints what was found: as text, or the rows as lines of JSON.
fn show(section: &Section, subject: &Subject, exports: &Exports, ui: &Ui) -> Result<()> {
    exports.write(subject, section)?;
    if ui.is_json() {
        section.tables().flat_map(json::lines).for_each(|line| ui.print_json(&line));
    } else if !ui.is_quiet() {
        print_name(subject, ui);
        terminal::lines(section, ui.columns()).iter().for_each(|line| ui.print_verbatim(line));
    }
    Ok(())
}
