//! Environment variables that set flags (clap's `env`), for a whole machine or in the environment file of a
//! service. A flag on the command line overrides its variable.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};

use clap::builder::Resettable;
use clap::error::{ContextKind, ContextValue};
use clap::{Arg, Command};

const PREFIX: &str = "SLOTPRESS_";

/// Set when slotpress is compiled, for the output of `--version`. No flag reads it.
const COMMIT: &str = "SLOTPRESS_COMMIT";

/// Accounts paths, separated by colons. `DirectoryArgs` reads this variable, because clap would split the
/// flag's values at colons too.
pub const ACCOUNTS: &str = "SLOTPRESS_ACCOUNTS";

/// Adds the prefix to variables that clap names after their flags (`#[arg(env)]`). Hides the values of variables
/// in the help, because they may be secret, and treats an empty variable as unset.
pub fn adapt_variables(command: Command) -> Command {
    let adapt_variable = |arg: Arg| {
        let Some(name) = arg.get_env().map(|name| name.to_string_lossy().into_owned()) else { return arg };
        let name = if name.starts_with(PREFIX) { name } else { format!("{PREFIX}{name}") };
        let is_empty = std::env::var_os(&name).is_some_and(|value| value.is_empty());
        let arg = arg.hide_env_values(true);
        if is_empty { arg.env(Resettable::Reset) } else { arg.env(name) }
    };
    command.mut_args(adapt_variable).mut_subcommands(adapt_variables)
}

/// Finds variables that begin with `SLOTPRESS_` but that slotpress does not read, for example misspelled ones.
pub fn find_unknown_variables(command: &Command, names: impl IntoIterator<Item = OsString>) -> Vec<String> {
    let mut known = BTreeSet::from([COMMIT, ACCOUNTS].map(OsStr::new));
    add_known_variables(command, &mut known);
    let is_unknown =
        |name: &OsString| name.as_encoded_bytes().starts_with(PREFIX.as_bytes()) && !known.contains(name.as_os_str());
    names.into_iter().filter(is_unknown).map(|name| name.to_string_lossy().into_owned()).collect()
}

fn add_known_variables<'a>(command: &'a Command, known: &mut BTreeSet<&'a OsStr>) {
    known.extend(command.get_arguments().filter_map(Arg::get_env));
    command.get_subcommands().for_each(|subcommand| add_known_variables(subcommand, known));
}

/// Returns the name of the environment variable whose value clap refused; `None` if the value was on the
/// command line.
pub fn find_refused_variable(error: &clap::Error, command: &Command, arguments: &[OsString]) -> Option<String> {
    let Some(ContextValue::String(usage)) = error.get(ContextKind::InvalidArg) else { return None };
    let flag = usage.split(' ').next()?;
    let is_flag = |argument: &OsString| argument.to_string_lossy().split('=').next() == Some(flag);
    let is_on_command_line = arguments.iter().any(is_flag);
    let name = flag.strip_prefix("--")?;
    // Commands have different variables for flags of the same name.
    let subcommand = arguments.iter().skip(1).find_map(|argument| command.find_subcommand(argument));
    let flags = subcommand.into_iter().chain([command]).flat_map(Command::get_arguments);
    let variable = flags.filter(|arg| arg.get_long() == Some(name)).find_map(Arg::get_env)?;
    (!is_on_command_line).then(|| variable.to_string_lossy().into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::build_command;

    #[test]
    fn unknown_variables_are_found() {
        let variables =
            ["SLOTPRESS_THREADS", "SLOTPRESS_LEVEL", "SLOTPRESS_COMMIT", "SLOTPRESS", "PATH"].map(OsString::from);
        assert_eq!(find_unknown_variables(&build_command(), variables), ["SLOTPRESS_LEVEL"]);
    }
}
