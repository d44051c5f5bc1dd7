//! Examples for the end of each command's help and for the man pages. Every line can be pasted into a shell
//! after the words in capitals have been replaced.

use clap::Command;

/// Blocks separated by empty lines: a command's name, then its examples, in lines of at most 78 characters. The
/// help indents the lines by two more.
const EXAMPLES: &str = include_str!("examples.txt");

fn examples_of(name: &str) -> Option<&'static str> {
    let mut blocks = EXAMPLES.split("\n\n").filter_map(|block| block.trim().split_once(":\n"));
    blocks.find(|(command, _)| *command == name).map(|(_, examples)| examples)
}

/// Appends the examples to the `--help` of every command.
pub fn add_examples(command: Command) -> Command {
    let command = command.mut_subcommands(add_examples);
    let Some(examples) = examples_of(command.get_name()) else { return command };
    let indented = examples.lines().map(|line| format!("  {line}")).collect::<Vec<_>>().join("\n");
    let after = command.get_after_long_help().map(|text| format!("\n\n{text}")).unwrap_or_default();
    command.after_long_help(format!("Examples:\n{indented}{after}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn command_names(command: &Command) -> Vec<String> {
        [command.get_name().to_string()].into_iter().chain(command.get_subcommands().flat_map(command_names)).collect()
    }

    const HASH: &str = "--expect-hash 5vEhTbsmLTSSQvMC1NEepXxVeVqpHmy8HCue69xKz9nt";

    /// Fails if an example uses a flag that no longer exists.
    #[test]
    fn every_command_has_examples_that_parse() {
        let command = crate::cli::build_command();
        let names = command_names(&command);
        assert!(names.len() > 15, "{names:?}");
        for name in names {
            let examples = examples_of(&name).unwrap_or_else(|| panic!("{name} has no examples"));
            for line in examples
                .replace("\\\n", "")
                .replace("--expect-hash HASH", HASH)
                .lines()
                .filter(|line| !line.starts_with('#'))
            {
                let start = line.find("slotpress").expect("the command");
                let words = line[start..].split(['|', '>']).next().expect("a command").split_whitespace();
                let parsed = command.clone().try_get_matches_from(words);
                match parsed {
                    Ok(_) => {}
                    Err(error) if error.kind() == clap::error::ErrorKind::DisplayHelp => {}
                    Err(error) => panic!("{line}: {error}"),
                }
            }
            assert!(examples.lines().all(|line| line.chars().count() <= 78), "{examples}");
        }
    }
}
