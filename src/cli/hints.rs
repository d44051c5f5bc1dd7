//! Translates the library's hints into flags and commands of the program.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::OnceLock;

use clap::{ArgMatches, Command};
use slotpress::Hint;

/// Names that the library uses in hints, and what the program shows instead. Any other name is
/// shown as a flag.
const NAMES: &[(&str, &str)] = &[
    ("CheckMode::Frames", "--check frames"),
    ("CheckMode::State", "--check state"),
    ("existing_state", "--replace-state"),
    ("fetch", "`slotpress fetch`"),
    ("find", "`slotpress find --json`"),
    ("memory_bytes", "--memory"),
    ("publish", "`slotpress publish`"),
    ("recompress", "`slotpress recompress`"),
    ("replace", "--force"),
    ("restore", "`slotpress restore`"),
    ("sources", "a source"),
    ("verify", "`slotpress verify`"),
];

/// Flags of the running command, as `--name`.
static FLAGS: OnceLock<BTreeSet<String>> = OnceLock::new();

/// Records the flags of the command that runs.
pub fn set_command(program: &Command, matches: &ArgMatches) {
    let (mut command, mut matches) = (program, matches);
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

/// Returns the text of a hint; `None` if the text names a flag that the running command does not
/// have, or is empty.
pub fn text(hint: &Hint) -> Option<Cow<'_, str>> {
    let text = words(hint, &has);
    if let Hint::Text(Cow::Owned(_)) = hint {
        return Some(text);
    }
    (foreign(&text, &has).is_none() && !text.is_empty()).then_some(text)
}

/// Returns the text of a hint for a command. `has` is true for the flags of the command.
fn words<'a>(hint: &'a Hint, has: &dyn Fn(&str) -> bool) -> Cow<'a, str> {
    match hint {
        // The text may quote foreign input, so its backquotes and flags are left as they are.
        Hint::Text(text) => Cow::Borrowed(text),
        Hint::PinsOnSameFileSystem => "give a directory on the file system of the archives: --pins DIR".into(),
        // The output exists already: not every command has both flags.
        Hint::Replace => {
            let said = ["--force replaces it", "--skip-existing leaves it"].into_iter();
            said.filter(|said| foreign(said, has).is_none()).collect::<Vec<_>>().join(", ").into()
        }
        Hint::UseFind => "`slotpress find` and `slotpress list URL` show what sources have".into(),
        Hint::UseBaseSlot(_) => named(&hint.to_string()).into(),
        hint => {
            let clauses = hint.clauses().map(|(clause, is_optional)| (named(clause), is_optional));
            let is_said = |(clause, is_optional): &(String, bool)| !is_optional || foreign(clause, has).is_none();
            clauses.filter(is_said).map(|(clause, _)| clause).collect()
        }
    }
}

/// Finds the first flag in a text that the command does not have.
fn foreign<'a>(text: &'a str, has: &dyn Fn(&str) -> bool) -> Option<&'a str> {
    flags_in(text).find(|flag| !has(flag))
}

/// True if the running command has a flag, given as `--name`.
pub fn has(flag: &str) -> bool {
    FLAGS.get().is_none_or(|flags| flags.contains(flag))
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

/// Replaces names in backquotes by what [`NAMES`] has for them, or by a flag.
fn named(text: &str) -> String {
    let name_of = |(number, part): (usize, &str)| match NAMES.iter().find(|(name, _)| *name == part) {
        _ if number % 2 == 0 => part.to_string(),
        Some((_, name)) => name.to_string(),
        None => format!("--{}", part.replace('_', "-")),
    };
    text.split('`').enumerate().map(name_of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_flags_of_the_command_are_named() {
        let of_restore = |flag: &str| ["--memory", "--check"].contains(&flag);
        let of = |hint: &Hint, has: &dyn Fn(&str) -> bool| words(hint, has).into_owned();
        assert_eq!(of(&Hint::GiveBaseSlot, &of_restore), "an incremental archive needs the slot of its full archive");
        assert!(of(&Hint::GiveBaseSlot, &|_| true).ends_with(": --base-slot"));
        assert_eq!(of(&Hint::MoreMemory, &of_restore), "give more --memory");
        let spill =
            "give more --memory, or a directory on a disk: an output on a disk, or TMPDIR; --check frames goes without";
        assert_eq!(of(&Hint::SpillToDisk, &of_restore), spill);
        assert_eq!(of(&Hint::GiveFullArchive, &|_| false), "give its full archive too");
        assert_eq!(of(&Hint::Replace, &|flag| flag == "--skip-existing"), "--skip-existing leaves it");
    }

    #[test]
    fn flags_that_a_hint_names() {
        let text = "`slotpress prune --unusable` removes it; or give --max-age 3h, or --no-incremental: a--b -- c";
        assert_eq!(Vec::from_iter(flags_in(text)), ["--max-age", "--no-incremental"]);
    }
}
