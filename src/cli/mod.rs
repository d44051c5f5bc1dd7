//! The program's commands, one file each. A command turns its flags into options of the library, calls the
//! library, which does the work, and prints the report. [`ui`] prints to the terminal; [`values`] parses and
//! formats values.

mod archive;
mod arguments;
mod bootstrap;
mod codec;
mod demo;
mod doctor;
mod environment;
mod examples;
#[cfg(feature = "export")]
mod export;
mod fetch;
mod find;
mod hints;
mod inspect;
mod json;
mod levels;
mod list;
mod manual;
mod memory;
mod meter;
mod network;
mod output;
mod prune;
mod publish;
mod rebase;
mod recompress;
mod render;
mod restore;
mod serve;
mod stdout;
mod stores;
mod synth;
mod tables;
pub mod ui;
mod usage;
pub mod values;
mod verify;

use std::ffi::OsString;
use std::io::Write;
use std::process::ExitCode;

use clap::{Arg, Args, Command, CommandFactory, FromArgMatches, Parser, Subcommand};
use slotpress::{Error, Progress};
use slotpress_base::text::escape;
use slotpress_base::{catch_panic, keep_panics_quiet};

use crate::cli::ui::Ui;

/// Archive, check, restore and serve Solana snapshots on all cores
#[derive(Debug, Parser)]
#[command(name = "slotpress", version = manual::short_version(), long_version = manual::long_version(), max_term_width = 100, propagate_version = true)]
#[command(after_long_help = "Environment variables can set many flags: the help of such a flag names its variable.\n\
    Exit codes: 0 success, 1 failure, 2 wrong arguments, 3 the input is damaged or not what was expected, 4 network \
    error, 5 the output already exists, 6 the archive does not exist, 130 interrupted.\n\
    `--version` prints details of the build, `-V` only one line.")]
struct Cli {
    #[command(flatten)]
    screen: ScreenArgs,
    #[command(subcommand)]
    command: CommandArgs,
}

#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Output")]
struct ScreenArgs {
    /// Print results as JSON, one object per line
    #[arg(long, global = true)]
    json: bool,
    /// Print only errors, and the paths or URLs of what was made, checked, found or removed, one per line
    #[arg(short, long, global = true)]
    quiet: bool,
    /// Print more details, such as the plan
    #[arg(short, long, global = true, conflicts_with = "quiet")]
    verbose: bool,
    /// Display of progress; `none` hides it [default: a bar on a terminal, elsewhere a line every 10 seconds]
    #[arg(long, env, global = true, value_name = "MODE", value_parser = ["none"])]
    progress: Option<String>,
}

#[derive(Debug, Subcommand)]
enum CommandArgs {
    Archive(archive::ArchiveArgs),
    Restore(restore::RestoreArgs),
    Verify(verify::VerifyArgs),
    Recompress(recompress::RecompressArgs),
    Rebase(Box<rebase::RebaseArgs>),
    Bootstrap(bootstrap::BootstrapArgs),
    Fetch(fetch::FetchArgs),
    Find(find::FindArgs),
    Inspect(inspect::InspectArgs),
    #[cfg(feature = "export")]
    Export(Box<export::ExportArgs>),
    Serve(serve::ServeArgs),
    List(list::ListArgs),
    Prune(prune::PruneArgs),
    Publish(Box<publish::PublishArgs>),
    Synth(synth::SynthArgs),
    Demo(demo::DemoArgs),
    Doctor(doctor::DoctorArgs),
    Levels(Box<levels::LevelsArgs>),
    Completions(manual::CompletionsArgs),
    Man(manual::ManArgs),
}

pub fn main(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    keep_panics_quiet();
    let arguments: Vec<OsString> = arguments.into_iter().collect();
    let cli = match parse(&arguments) {
        Ok(cli) => cli,
        Err(error) => return print_help_or_error(error, &arguments),
    };
    let ui = match Ui::new(cli.screen, interrupt_message(&cli.command)) {
        Ok(ui) => ui,
        Err(error) => {
            print_early_error(&error);
            return ExitCode::from(error.kind().exit_code());
        }
    };
    let variables = std::env::vars_os().map(|(name, _)| name);
    for name in environment::find_unknown_variables(&build_command(), variables) {
        let name = escape(&name);
        ui.warn(&format!("ignoring {name}: no flag reads this variable"));
    }
    match catch_panic(|| run(cli.command, &ui)).and_then(|()| ui.finish()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            ui.report_error(&error);
            ExitCode::from(error.kind().exit_code())
        }
    }
}

/// Prints what clap returns instead of parsed arguments: help, the version, or an error.
fn print_help_or_error(error: clap::Error, arguments: &[OsString]) -> ExitCode {
    // clap repeats arguments that it does not understand. Escape their control characters, which the terminal
    // would obey.
    let error = parse(&usage::escape_arguments(arguments)).err().unwrap_or(error);
    let variable = environment::find_refused_variable(&error, &build_command(), arguments);
    let printed = usage::print(&error, arguments, variable);
    if error.use_stderr() {
        return ExitCode::from(usage::EXIT_CODE);
    }
    match printed {
        // A closed pipe is not an error: the reader has read enough of the help.
        Err(cause) if cause.kind() != std::io::ErrorKind::BrokenPipe => {
            print_early_error(&stdout::write_error(&cause));
            ExitCode::FAILURE
        }
        _ => ExitCode::SUCCESS,
    }
}

/// Returns the message to print when the user interrupts a command; `None` for commands that print their own.
fn interrupt_message(command: &CommandArgs) -> Option<&'static str> {
    match command {
        CommandArgs::Archive(_)
        | CommandArgs::Restore(_)
        | CommandArgs::Recompress(_)
        | CommandArgs::Rebase(_)
        | CommandArgs::Synth(_) => Some("stopping: removing what was written"),
        CommandArgs::Fetch(_) => Some("stopping: downloaded bytes are kept, and the next run continues from there"),
        CommandArgs::Bootstrap(_) => {
            Some("stopping: downloaded bytes are kept for the next run, and everything else is removed")
        }
        CommandArgs::Serve(_) | CommandArgs::Publish(_) => None,
        _ => Some("stopping"),
    }
}

/// Prints an error when there is no `Ui`. If printing fails, there is nowhere left to report that.
fn print_early_error(error: &Error) {
    let _ = writeln!(std::io::stderr(), "error: {error}");
}

fn run(command: CommandArgs, ui: &Ui) -> Result<(), Error> {
    match command {
        CommandArgs::Archive(args) => archive::run(&args, ui),
        CommandArgs::Restore(args) => restore::run(&args, ui),
        CommandArgs::Verify(args) => verify::run(&args, ui),
        CommandArgs::Recompress(args) => recompress::run(&args, ui),
        CommandArgs::Rebase(args) => rebase::run(&args, ui),
        CommandArgs::Bootstrap(args) => bootstrap::run(&args, ui),
        CommandArgs::Fetch(args) => fetch::run(&args, ui),
        CommandArgs::Find(args) => find::run(&args, ui),
        CommandArgs::Inspect(args) => inspect::run(&args, ui),
        #[cfg(feature = "export")]
        CommandArgs::Export(args) => export::run(&args, ui),
        CommandArgs::Serve(args) => serve::run(&args, ui),
        CommandArgs::List(args) => list::run(&args, ui),
        CommandArgs::Prune(args) => prune::run(&args, ui),
        CommandArgs::Publish(args) => publish::run(&args, ui),
        CommandArgs::Synth(args) => synth::run(&args, ui),
        CommandArgs::Demo(args) => demo::run(&args, ui),
        CommandArgs::Doctor(args) => doctor::run(&args, ui),
        CommandArgs::Levels(args) => levels::run(&args, ui),
        CommandArgs::Completions(args) => manual::print_completions(&args, build_command(), ui),
        CommandArgs::Man(args) => manual::write_man_pages(&args, build_command()),
    }
}

/// Headings whose flags `--help` shows but `-h` does not, because many commands share these flags, or few
/// people use them.
const RARE_HEADINGS: [&str; 8] =
    ["Hooks", "Monitoring", "Network", "Output", "Resource use", "Retention by time", "Stores", "Targets"];

/// Flags below other headings that `--help` shows but `-h` does not.
#[rustfmt::skip]
const RARE_FLAGS: [&str; 25] = [
    "any-format", "check", "data-size", "expect-genesis-hash", "expect-root", "expect-slot", "force-base", "frame-size",
    "head-timeout", "incremental-snapshot-archive-path", "layout", "max-connections", "max-connections-per-client",
    "memcmp", "order", "pins", "place-rate", "read-rate", "repeat", "seed", "sources-from", "stall-timeout",
    "trusted-proxy", "window", "with-mints",
];

/// Builds clap's command with the examples and the handling of environment variables.
fn build_command() -> Command {
    hide_rare_flags(examples::add_examples(environment::adapt_variables(Cli::command())))
}

fn hide_rare_flags(command: Command) -> Command {
    let is_export = command.get_name() == "export";
    let hide_if_rare = |arg: Arg| {
        let heading = arg.get_help_heading().unwrap_or_default();
        // The filters of `export` fill half a screen, so two more of its headings are hidden.
        let is_rare_heading = RARE_HEADINGS.contains(&heading) || is_export && ["Check", "Ledger"].contains(&heading);
        let is_rare = is_rare_heading || arg.get_long().is_some_and(|flag| RARE_FLAGS.contains(&flag));
        if is_rare { arg.hide_short_help(true) } else { arg }
    };
    command.mut_args(hide_if_rare).mut_subcommands(hide_rare_flags)
}

fn parse(arguments: &[OsString]) -> Result<Cli, clap::Error> {
    let program = build_command();
    let matches = program.clone().try_get_matches_from(arguments)?;
    hints::set_running_command(&program, &matches);
    Cli::from_arg_matches(&matches)
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_command_line_is_sound() {
        super::build_command().debug_assert();
    }

    #[cfg(feature = "export")]
    #[test]
    fn every_rare_heading_and_flag_exists() {
        let program = super::build_command();
        let commands = || program.get_subcommands().flat_map(|command| command.get_subcommands().chain([command]));
        for heading in super::RARE_HEADINGS {
            let has_heading = |arg: &clap::Arg| arg.get_help_heading() == Some(heading);
            assert!(
                program.get_arguments().chain(commands().flat_map(|c| c.get_arguments())).any(has_heading),
                "{heading}"
            );
        }
        for flag in super::RARE_FLAGS {
            let has_flag = |command: &clap::Command| command.get_arguments().any(|arg| arg.get_long() == Some(flag));
            assert!(commands().any(has_flag), "--{flag}");
        }
    }
}
