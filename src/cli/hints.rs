//! Leaves out hints that name a flag which the running command does not have.

use std::collections::BTreeSet;
use std::sync::OnceLock;

use clap::{ArgMatches, Command};

/// Flags of the running command, as `--name`.
static FLAGS: OnceLock<BTreeSet<String>> = OnceLock::new();

pub fn set_command(program: &Command, matches: &ArgMatches) {
    let mut command = program;
    let mut matches = matches;
    while let Some((name, below)) = matches.subcommand()
        && let Some(found) = command.find_subcommand(name)
    {
        (command, matches) = (found, below);
    }
    // Set once: a program runs one command.
    let _ = FLAGS.set(flags_of(program).chain(flags_of(command)).collect());
}

fn flags_of(command: &Command) -> impl Iterator<Item = String> {
    command.get_arguments().filter_map(|flag| flag.get_long()).map(|long| format!("--{long}"))
}

/// Returns a hint; `None` if it names a flag that the running command does not have.
pub fn keep_if_flags_exist(hint: &str) -> Option<&str> {
    let has = |flag: &str| FLAGS.get().is_none_or(|flags| flags.contains(flag));
    flags_in(hint).all(has).then_some(hint)
}

/// Finds the flags in a text, except in commands in backquotes, which have flags of their own.
fn flags_in(text: &str) -> impl Iterator<Item = &str> {
    let outside = text.split('`').step_by(2);
    let is_of_flag = |char: char| char.is_ascii_alphanumeric() || char == '-';
    let words = outside.flat_map(move |part| part.split(move |char| !is_of_flag(char)));
    words.filter(|word| {
        word.strip_prefix("--").is_some_and(|name| name.starts_with(|char: char| char.is_ascii_lowercase()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_outside_of_commands_are_found() {
        let text = "`slotpress prune --unusable` removes it; or give --max-age 3h, or --no-incremental: a--b -- c";
        assert_eq!(Vec::from_iter(flags_in(text)), ["--max-age", "--no-incremental"]);
    }
}
