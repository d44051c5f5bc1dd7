//! Examples shown at the end of each command's help and in the man pages. Every line can be pasted
//! into a shell once the words in capitals are replaced.

use clap::Command;

/// Blocks separated by empty lines, each a command's name and its examples, at most 78 characters a
/// line. The help indents them by two columns more.
const EXAMPLES: &str = include_str!("examples.txt");

/// Finds the examples of a command by the words that select it; no words select the program itself.
pub fn of(path: &[&str]) -> Option<&'static str> {
    let name = if path.is_empty() { "slotpress".to_string() } else { path.join(" ") };
    let of_block = |block: &'static str| block.trim().split_once(":\n").filter(|(command, _)| *command == name);
    EXAMPLES.split("\n\n").find_map(of_block).map(|(_, examples)| examples)
}

/// Appends the examples to the `--help` of every command.
pub fn describe(command: Command) -> Command {
    describe_one(command, &[])
}

fn describe_one(command: Command, path: &[&str]) -> Command {
    let names: Vec<String> = command.get_subcommands().map(|one| one.get_name().to_string()).collect();
    let command = names.iter().fold(command, |command, name| {
        command.mut_subcommand(name, |one| {
            let path: Vec<&str> = path.iter().copied().chain([name.as_str()]).collect();
            describe_one(one, &path)
        })
    });
    let Some(examples) = of(path) else { return command };
    let indented = examples.lines().map(|line| format!("  {line}")).collect::<Vec<_>>().join("\n");
    let after = command.get_after_long_help().map(|text| format!("\n\n{text}")).unwrap_or_default();
    command.after_long_help(format!("Examples:\n{indented}{after}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn leaves(command: &Command, path: &[&str], found: &mut Vec<Vec<String>>) {
        found.push(path.iter().map(|name| name.to_string()).collect());
        for one in command.get_subcommands() {
            let path: Vec<&str> = path.iter().copied().chain([one.get_name()]).collect();
            leaves(one, &path, found);
        }
    }

    const HASH: &str = "--expect-hash 5vEhTbsmLTSSQvMC1NEepXxVeVqpHmy8HCue69xKz9nt";

    /// Fails if an example uses a flag that no longer exists.
    #[test]
    fn every_command_has_examples_that_parse() {
        let command = crate::cli::command();
        let mut paths = Vec::new();
        leaves(&command, &[], &mut paths);
        assert!(paths.len() > 15, "{paths:?}");
        for path in paths {
            let path: Vec<&str> = path.iter().map(String::as_str).collect();
            let examples = of(&path).unwrap_or_else(|| panic!("{path:?} has no examples"));
            for line in examples
                .replace("\\\n", "")
                .replace("--expect-hash HASH", HASH)
                .lines()
                .filter(|line| !line.starts_with('#'))
            {
                let at = line.find("slotpress").expect("the command");
                let words = line[at..].split(['|', '>']).next().expect("a command").split_whitespace();
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
