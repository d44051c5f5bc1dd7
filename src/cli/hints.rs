//! Drops hints that name a flag that the running command does not have.

use std::collections::BTreeSet;
use std::sync::OnceLock;

use clap::{ArgMatches, Command};

/// Flags of the running command, as `--name`.
static FLAGS: OnceLock<BTreeSet<String>> = OnceLock::new();

pub fn set_running_command(program: &Command, matches: &ArgMatches) {
    let mut command = program;
    let mut matches = matches;
    while let Some((name, subcommand_matches)) = matches.subcommand()
        && let Some(subcommand) = command.find_subcommand(name)
    {
        command = subcommand;
        matches = subcommand_matches;
    }
    // `demo` runs further commands. They keep the flags of the first command.
    let _ = FLAGS.set(flags_of(program).chain(flags_of(command)).collect());
}

fn flags_of(command: &Command) -> impl Iterator<Item = String> {
    command.get_arguments().filter_map(|flag| flag.get_long()).map(|long| format!("--{long}"))
}

/// Returns the hint, or `None` if it names a flag that the running command does not have.
pub fn keep_if_flags_exist(hint: &str) -> Option<&str> {
    let exists = |flag: &str| FLAGS.get().is_none_or(|flags| flags.contains(flag));
    find_flags(hint).all(exists).then_some(hint)
}

/// Finds the flags in a text. Skips commands in backticks, which may be other commands with other flags.
fn find_flags(text: &str) -> impl Iterator<Item = &str> {
    let ends_word = |char: char| !char.is_ascii_alphanumeric() && char != '-';
    let is_flag = |word: &&str| {
        word.strip_prefix("--").is_some_and(|name| name.starts_with(|char: char| char.is_ascii_lowercase()))
    };
    text.split('`').step_by(2).flat_map(move |part| part.split(ends_word)).filter(is_flag)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_outside_of_commands_are_found() {
        let text = "`slotpress prune --unusable` removes it; or use --max-age 3h, or --no-incremental: a--b -- c";
        assert_eq!(Vec::from_iter(find_flags(text)), ["--max-age", "--no-incremental"]);
    }
}
