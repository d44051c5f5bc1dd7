//! Flags from the environment: `--some-flag` is `SLOTPRESS_SOME_FLAG` too, for every command that has it.
//!
//! A variable is exported once and seen by every command, so it can only be a default: a flag on the command line wins
//! over it, also over one that it conflicts with, and a command ignores what does not apply to it. Therefore the
//! command line is parsed alone first; then the variables that apply ([`applies`] knows which) become
//! default values of a second parse. clap asks only what is on the command line for conflicts.

use {
    super::{
        applies,
        choices::{Choices, Setting, is_given},
    },
    clap::{
        Arg, ArgAction, ArgMatches, Command, Id,
        builder::{BoolishValueParser, OsStr as DefaultValue},
        error::ErrorKind as ClapErrorKind,
    },
    slotpress_base::error::{Error, ErrorKind},
    std::{collections::BTreeMap, ffi::OsString, path::PathBuf},
};

/// Flags that mean something else than flags of the same name elsewhere: command, flag, and a variable of their own.
const OWN_VARIABLES: [(&[&str], &str, &str); 6] = [
    (&["levels", "frames"], "codec", "SLOTPRESS_FRAMES_CODEC"),
    (&["levels", "frames"], "unit", "SLOTPRESS_FRAMES_UNIT"),
    (&["levels", "search"], "layout", "SLOTPRESS_SEARCH_LAYOUT"),
    (&["levels", "search"], "levels", "SLOTPRESS_SEARCH_LEVELS"),
    (&["levels", "sizes"], "codec", "SLOTPRESS_SIZES_CODEC"),
    (&["levels", "sizes"], "unit", "SLOTPRESS_SIZES_UNIT"),
];

/// Looks up a variable.
pub type Variables<'a> = &'a dyn Fn(&str) -> Option<OsString>;

/// Parses a command line; returns also what the environment added to it.
pub fn parse(
    command: &Command,
    arguments: &[OsString],
    variables: Variables<'_>,
) -> Result<(ArgMatches, Vec<Setting>), clap::Error> {
    let given = match command.clone().try_get_matches_from(arguments) {
        Ok(given) => given,
        // What is missing may be in the environment.
        Err(error) if error.kind() == ClapErrorKind::MissingRequiredArgument => {
            nothing_required(command.clone()).try_get_matches_from(arguments).map_err(|_| error)?
        }
        Err(error) => return Err(error),
    };
    let mut built = command.clone();
    built.build();
    let (mut path, mut leaf, mut leaf_given) = (Vec::new(), &built, &given);
    while let Some((name, matches)) = leaf_given.subcommand() {
        let Some(subcommand) = leaf.find_subcommand(name) else { break };
        path.push(name);
        (leaf, leaf_given) = (subcommand, matches);
    }
    let mut choices = Choices { given: leaf_given, settings: read(leaf, &path, leaf_given, variables) };
    applies::narrow(&path, &mut choices);
    let settings = choices.settings;
    for setting in settings.values() {
        if let Err(message) = &setting.values {
            let message = format!("{message}\n  it is the value of {} in the environment", setting.variable);
            return Err(leaf.clone().error(ClapErrorKind::ValueValidation, message));
        }
    }
    let matches = with_defaults(command.clone(), &path, &settings).try_get_matches_from(arguments)?;
    Ok((matches, settings.into_values().collect()))
}

/// The variables of the flags of a command that are neither given nor in conflict with what is given.
fn read(command: &Command, path: &[&str], given: &ArgMatches, variables: Variables<'_>) -> BTreeMap<Id, Setting> {
    let is_given = |arg: &Arg| is_given(given, arg.get_id().as_str());
    let conflict = |one: &Arg, other: &Arg| {
        command.get_arg_conflicts_with(one).iter().any(|conflicting| conflicting.get_id() == other.get_id())
    };
    let mut settings = BTreeMap::new();
    for (arg, flag) in flags(command) {
        let variable = variable_of(path, flag);
        // As with most programs, empty is the same as unset.
        let Some(text) = variables(&variable).filter(|text| !text.is_empty()) else { continue };
        let excludes = |other: &Arg| is_given(other) && (conflict(arg, other) || conflict(other, arg));
        if is_given(arg) || command.get_arguments().any(excludes) {
            continue;
        }
        let (flag, values, is_global) = (flag.to_string(), values_of(arg, flag, &text), arg.is_global_set());
        settings.insert(arg.get_id().clone(), Setting { variable, flag, text, values, is_global });
    }
    settings
}

/// The arguments of a command that variables can set, with their names.
fn flags(command: &Command) -> impl Iterator<Item = (&Arg, &str)> {
    let is_for_data = |arg: &&Arg| matches!(arg.get_action(), ArgAction::Set | ArgAction::SetTrue | ArgAction::Append);
    command.get_arguments().filter(is_for_data).filter_map(|arg| Some((arg, arg.get_long()?)))
}

/// The variable of a flag.
fn variable_of(path: &[&str], flag: &str) -> String {
    let own = OWN_VARIABLES.iter().find(|(command, name, _)| *command == path && *name == flag);
    own.map_or_else(
        || format!("SLOTPRESS_{}", flag.replace('-', "_").to_uppercase()),
        |(_, _, variable)| variable.to_string(),
    )
}

/// What a flag takes of the text of its variable: several values as `PATH` has them, or with the flag's own delimiter.
fn values_of(arg: &Arg, flag: &str, text: &OsString) -> Result<Vec<OsString>, String> {
    let probe = Arg::new("value").long(flag.to_string()).allow_hyphen_values(true);
    if matches!(arg.get_action(), ArgAction::SetTrue) {
        let probe = probe.value_name("BOOL").value_parser(BoolishValueParser::new());
        let is_on = probe_value(probe, flag, text)?.get_one::<bool>("value").copied().unwrap_or_default();
        return Ok(vec![is_on.to_string().into()]);
    }
    let values: Vec<OsString> = match (arg.get_action(), arg.get_value_delimiter(), text.to_str()) {
        (ArgAction::Append, None, _) => {
            let paths = std::env::split_paths(text);
            paths.map(PathBuf::into_os_string).filter(|path| !path.is_empty()).collect()
        }
        (ArgAction::Append, Some(delimiter), Some(text)) => text.split(delimiter).map(OsString::from).collect(),
        _ => vec![text.clone()],
    };
    let mut probe = probe.value_parser(arg.get_value_parser().clone());
    if let Some(names) = arg.get_value_names() {
        probe = probe.value_names(names.to_vec());
    }
    values.iter().try_for_each(|value| probe_value(probe.clone(), flag, value).map(drop))?;
    Ok(values)
}

/// Parses a value as the argument of a command that has no other.
fn probe_value(probe: Arg, flag: &str, value: &OsString) -> Result<ArgMatches, String> {
    let mut word = OsString::from(format!("--{flag}="));
    word.push(value);
    let command = Command::new("slotpress").no_binary_name(true).disable_help_flag(true).arg(probe);
    command.try_get_matches_from([word]).map_err(|error| {
        let text = error.to_string();
        let message = text.trim_end().strip_prefix("error: ").unwrap_or(&text).split("\n\n").next();
        message.unwrap_or_default().to_string()
    })
}

fn nothing_required(command: Command) -> Command {
    command.mut_args(|arg| arg.required(false)).mut_subcommands(nothing_required)
}

/// The command with what the environment sets as default values.
fn with_defaults(command: Command, path: &[&str], settings: &BTreeMap<Id, Setting>) -> Command {
    let command = command.mut_args(|arg| {
        let setting = settings.get(arg.get_id()).filter(|_| arg.is_global_set() || path.is_empty());
        let Some(Ok(values)) = setting.map(|setting| &setting.values) else { return arg };
        let arg = if values.len() > 1 { arg.num_args(1..) } else { arg };
        arg.required(false).default_values(values.iter().map(DefaultValue::from))
    });
    match path {
        [name, rest @ ..] => command.mut_subcommand(name, |subcommand| with_defaults(subcommand, rest, settings)),
        [] => command,
    }
}

/// Says in the help of flags with a variable of their own which one it is.
pub fn describe(command: Command) -> Command {
    OWN_VARIABLES
        .into_iter()
        .fold(command, |command, (path, flag, variable)| describe_one(command, path, flag, variable))
}

fn describe_one(command: Command, path: &[&str], flag: &str, variable: &str) -> Command {
    match path {
        [name, rest @ ..] => command.mut_subcommand(name, |one| describe_one(one, rest, flag, variable)),
        [] => command.mut_args(|arg| match (arg.get_long() == Some(flag), arg.get_help()) {
            (true, Some(help)) => {
                let help = format!("{help} [env: {variable}]");
                arg.help(help)
            }
            _ => arg,
        }),
    }
}

/// Names the variables that an error may come from.
pub fn explain(error: Error, settings: &[Setting]) -> Error {
    let hint = error.hint_text().map(|hint| format!("{hint}; ")).unwrap_or_default();
    let said = format!("{error} {hint}");
    let is_meant = |setting: &&Setting| {
        let text = setting.text.to_string_lossy();
        let is_path_named = text.contains('/') && text.split(':').any(|path| !path.is_empty() && said.contains(path));
        let is_usage = error.kind() == ErrorKind::Usage && !setting.is_global;
        is_usage || is_path_named || said.contains(&format!("--{}", setting.flag))
    };
    let meant: Vec<String> = settings
        .iter()
        .filter(is_meant)
        .map(|setting| match setting.text.to_string_lossy() {
            // A URL may hold a password or a key.
            text if text.contains("://") => setting.variable.clone(),
            text => format!("{}={text}", setting.variable),
        })
        .collect();
    if meant.is_empty() { error } else { error.hint(format!("{hint}the environment has {}", meant.join(", "))) }
}

#[cfg(test)]
mod tests;
