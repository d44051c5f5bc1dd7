//! Examples shown at the end of each command's help and in the man pages. Every line can be pasted
//! into a shell once the words in capitals are replaced.

use clap::Command;

/// Blocks separated by empty lines, each a command's name and its examples, at most 78 characters a
/// line. The help indents them by two columns more.
const EXAMPLES: &str = r"
archive:
slotpress archive /mnt/ledger -o /mnt/archives
slotpress archive /mnt/ledger --accounts /mnt/accounts -o /mnt/archives
# an incremental archive, based on the full archive of slot 350006937
slotpress archive /mnt/ledger -o /mnt/archives --base-slot 350006937
slotpress archive /mnt/ledger -o /mnt/archives --zstd-level 2 \
    --layout clustered
slotpress archive /mnt/ledger -o - | \
    ssh HOST slotpress restore - --ledger /mnt/ledger

restore:
slotpress restore snapshot-1-HASH.tar.zst --ledger /mnt/ledger
slotpress restore FULL INCREMENTAL --ledger /mnt/ledger \
    --accounts /mnt/a --accounts /mnt/b
curl -s URL | slotpress restore - --ledger /mnt/ledger

verify:
slotpress verify FULL INCREMENTAL
slotpress verify FULL --expect-hash HASH
slotpress verify FULL --for firedancer --quick
slotpress verify /mnt/archives
slotpress verify http://HOST:8890 --quick
slotpress verify /mnt/ledger --accounts /mnt/accounts

recompress:
slotpress recompress snapshot-1-HASH.tar.zst -o /mnt/archives --zstd-level 9
slotpress recompress INCREMENTAL --base FULL -o /mnt/archives
# on a machine whose validator votes
slotpress recompress FULL -o /mnt/archives --nice 19 --threads 4 \
    --max-rate 300MiB

rebase:
slotpress rebase NEW_FULL --onto OLD_FULL -o /mnt/archives
slotpress rebase NEW_FULL NEW_INCREMENTAL --onto OLD_FULL -o /mnt/archives
slotpress rebase https://mirror.example/snapshot-2-HASH.tar.zst \
    --onto snapshot-1-HASH.tar.zst --dry-run

export:
slotpress export FULL INCREMENTAL -o /mnt/tables
slotpress export FULL -o s3://BUCKET/tables --table token-accounts

bootstrap:
slotpress bootstrap http://HOST:8899 --ledger /mnt/ledger \
    --trust http://MY-OTHER-NODE:8899
slotpress bootstrap --cluster mainnet-beta --ledger /mnt/ledger --dry-run
# with the full archive of yesterday: fetches what a mirror has on it
slotpress bootstrap http://MIRROR --ledger /mnt/ledger --base OLD_FULL

fetch:
slotpress fetch http://HOST:8899 -o /mnt/archives
slotpress fetch https://mirror.example/snapshot-1-HASH.tar.zst --streams 16
slotpress fetch s3://BUCKET/mainnet -o /mnt/archives

find:
slotpress find --cluster mainnet-beta
slotpress find http://HOST:8899 https://mirror.example/snapshots/
slotpress find --rpc http://HOST:8899

inspect:
slotpress inspect snapshot-1-HASH.tar.zst
slotpress inspect /mnt/ledger
slotpress inspect http://HOST:8890
slotpress inspect FULL --by-owner
slotpress inspect FULL --account SysvarC1ock11111111111111111111111111111111

serve:
slotpress serve /mnt/snapshots --listen 0.0.0.0:8890 --max-rate 100MiB
slotpress serve /mnt/snapshots --listen 0.0.0.0:443 \
    --tls-cert cert.pem --tls-key key.pem --metrics 127.0.0.1:8891

list:
slotpress list /mnt/snapshots
slotpress list http://HOST:8890
slotpress list /mnt/backups --max-age 2h
slotpress list s3://BUCKET/mainnet --endpoint https://s3.example

prune:
slotpress prune /mnt/mirror --keep-full 2 --keep-incremental 4 --dry-run
slotpress prune /mnt/mirror --keep-full 2 --keep-incremental 4 \
    --keep-within 24h
slotpress prune /mnt/mirror --keep-within 7d
slotpress prune /mnt/mirror /mnt/other --keep-free 200GiB

publish:
slotpress publish /mnt/snapshots --to /mnt/mirror --nice 19 --threads 4
# from a timer, to two places
slotpress publish /mnt/snapshots --to /mnt/mirror --to /net/mirror --once

synth:
slotpress synth practice --size 256MiB
slotpress synth practice --size 1GiB --incremental 64MiB --agave 4.4

demo:
slotpress demo
slotpress demo --keep /tmp/demo

doctor:
slotpress doctor
slotpress doctor /mnt/ledger

levels:
slotpress levels /mnt/ledger
slotpress levels FULL --levels 1,3,-5--1 --sample 4GiB
slotpress levels /mnt/ledger --codec zstd,lz4,zlib
slotpress levels /mnt/ledger --html page.html

levels sizes:
slotpress levels sizes /mnt/ledger --unit storage

levels frames:
slotpress levels frames /mnt/ledger --sizes 1MiB,8MiB,32MiB

levels link:
slotpress levels link /mnt/ledger --bandwidth 1Gbit --rtt 60ms --nodes 3

completions:
slotpress completions bash > /etc/bash_completion.d/slotpress
slotpress completions zsh > ~/.zfunc/_slotpress

man:
slotpress man /usr/local/share/man/man1

slotpress:
slotpress demo
slotpress archive /mnt/ledger -o /mnt/archives
slotpress restore FULL INCREMENTAL --ledger /mnt/ledger
slotpress help archive
";

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
    let after = command.get_after_help().map(|text| format!("\n\n{text}")).unwrap_or_default();
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
