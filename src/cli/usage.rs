//! Errors of the command line. With `--json`, clap's message becomes one JSON object, as every other error. Removed
//! flags get a hint at what replaces them.

use std::ffi::OsString;
use std::io::{self, Write};

use clap::error::{ContextKind, ContextValue, ErrorKind};
use slotpress_base::text;

use super::json::ErrorLine;

pub const EXIT_CODE: u8 = 2;

type Removed = (&'static [&'static str], &'static str, &'static str);

const WRITERS: &[&str] = &["archive", "recompress", "publish"];

/// Flags removed in the current release. A row stays for one release.
const REMOVED: &[Removed] = &[
    (
        &["levels"],
        "--end-to-end",
        "clustered records are rows of the table; for times with your disk, time `archive` and `restore` themselves",
    ),
    (&["levels"], "--presets", "the levels of the table, zstd and clustered, are what archives are made with"),
    (&["levels"], "--scratch", "leave it out: all is measured in memory, and nothing is written"),
    (&["levels frames"], "--bundles", "--sizes also takes small sizes: 200,2000"),
    (&["levels frames"], "--unit", "leave it out; `slotpress levels sizes` measures records and storages alone"),
    (&["levels"], "--markdown", "--csv writes the rows for other programs, --html a page with tables and a chart"),
    (
        WRITERS,
        "--preset",
        "--layout clustered --zstd-level 1 is smaller and takes about as long; level 2 or 3 is smaller still",
    ),
    (WRITERS, "--zstd-params", "choose a level: --zstd-level N; `slotpress levels` measures them"),
    (
        WRITERS,
        "--min-savings",
        "leave it out: every frame is compressed, and zstd stores raw what it cannot make smaller",
    ),
    (WRITERS, "--no-checksum", "leave it out: every frame has its checksum"),
    (&["levels link"], "--loss", "leave it out: no model of loss came within 10 % of what was measured"),
    (&["levels link"], "--congestion", "leave it out: without loss, the rate does not depend on it"),
    (&["levels link"], "--mss", "leave it out: packets of Ethernet are assumed"),
    (&["inspect"], "--largest", "leave it out: --by-owner shows the accounts and bytes of each owner"),
    (&["inspect"], "--csv", "--by-owner --json has all owners, one object per line"),
];

/// Escapes control characters in arguments, for messages that repeat them.
pub fn escaped(arguments: &[OsString]) -> Vec<OsString> {
    arguments.iter().map(|argument| text::escaped(&argument.to_string_lossy()).into_owned().into()).collect()
}

/// Prints clap's result: help and versions unchanged, errors as text or JSON. `variable` is the environment variable
/// that set the refused value.
pub fn print(mut error: clap::Error, arguments: &[OsString], variable: Option<String>) -> io::Result<()> {
    if let Some((message, hint)) = removed(REMOVED, &error, arguments) {
        return print_error(message, &hint, arguments);
    }
    let variable = variable.map(|name| format!("the value is that of {name} in the environment"));
    let hints: Vec<_> =
        [variable, missing(&error), meant(&error, arguments), removed_value(&error)].into_iter().flatten().collect();
    let our_hint = (!hints.is_empty()).then(|| hints.join("; "));
    if our_hint.is_some() {
        // clap's guess at the meant flag would contradict our hint.
        for kind in [ContextKind::SuggestedArg, ContextKind::SuggestedValue, ContextKind::Suggested] {
            error.remove(kind);
        }
    }
    let error = &error;
    if !error.use_stderr() || !wants_json(arguments) {
        error.print().and_then(|()| io::stdout().flush())?;
        return our_hint.map_or(Ok(()), |text| writeln!(io::stderr(), "hint: {text}"));
    }
    let (message, hint) = message_and_hint(error);
    print_error(message, &our_hint.unwrap_or(hint), arguments)
}

fn print_error(message: String, hint: &str, arguments: &[OsString]) -> io::Result<()> {
    match wants_json(arguments) {
        true => {
            let line = ErrorLine { message, hint: Some(hint), exit_code: EXIT_CODE };
            writeln!(io::stderr(), "{}", text::json(&line))
        }
        false => writeln!(io::stderr(), "error: {message}\nhint: {hint}"),
    }
}

/// Message and hint for a flag that an earlier release of the command had.
fn removed(table: &[Removed], error: &clap::Error, arguments: &[OsString]) -> Option<(String, String)> {
    let Some(ContextValue::String(unknown)) = error.get(ContextKind::InvalidArg) else { return None };
    let known = super::command();
    let mut given = arguments.iter().skip(1).filter_map(|argument| argument.to_str());
    let top = given.find_map(|argument| known.find_subcommand(argument))?;
    let name = top.get_name();
    let below = given.find(|argument| top.find_subcommand(argument).is_some()).map(|below| format!("{name} {below}"));
    let row_of = |command: &str| table.iter().find(|(of, flag, _)| of.contains(&command) && flag == unknown);
    let mut commands = std::iter::once(name.to_string()).chain(below);
    let (command, (_, flag, replacement)) = commands.find_map(|command| row_of(&command).map(|row| (command, row)))?;
    (error.kind() == ErrorKind::UnknownArgument)
        .then(|| (format!("`{command}` no longer has {flag}"), replacement.to_string()))
}

fn removed_value(error: &clap::Error) -> Option<String> {
    let Some(ContextValue::String(flag)) = error.get(ContextKind::InvalidArg) else { return None };
    let Some(ContextValue::String(value)) = error.get(ContextKind::InvalidValue) else { return None };
    (flag.starts_with("--io-hint") && value == "direct")
        .then(|| "`direct` was removed: `gentle`, the default, keeps what was in the page cache too".to_string())
}

/// Hint for a command that is not in this build.
fn missing(error: &clap::Error) -> Option<String> {
    let Some(ContextValue::String(name)) = error.get(ContextKind::InvalidSubcommand) else { return None };
    (name == "export" && !cfg!(feature = "export")).then(|| {
        "this build lacks `export`, which released programs have: `cargo install --locked slotpress --features export`; \
         in a checkout, `cargo run --release --features export -- export …`"
            .to_string()
    })
}

/// Hint for arguments that other programs take: `--level`, and an output directory without `-o`.
fn meant(error: &clap::Error, arguments: &[OsString]) -> Option<String> {
    let Some(ContextValue::String(flag)) = error.get(ContextKind::InvalidArg) else { return None };
    let writes = || arguments.iter().skip(1).any(|argument| argument == "archive" || argument == "recompress");
    match flag.as_str() {
        _ if error.kind() != ErrorKind::UnknownArgument => None,
        "--level" => Some("--zstd-level is what --level is called here".to_string()),
        _ if flag.starts_with('-') || !writes() => None,
        _ => Some(format!("the directory for the archive is given with -o: -o {flag}")),
    }
}

/// True if the arguments contain `--json` or `--progress json`. They are searched as text, because clap has refused
/// them.
fn wants_json(arguments: &[OsString]) -> bool {
    let own = || arguments.iter().take_while(|argument| *argument != "--");
    let is_progress = own().any(|argument| argument == "--progress=json")
        || own().zip(own().skip(1)).any(|(flag, value)| flag == "--progress" && value == "json");
    own().any(|argument| argument == "--json") || is_progress
}

/// Shortens clap's error to one line, and its advice to another.
fn message_and_hint(error: &clap::Error) -> (String, String) {
    const HELP: &str = "see --help";
    if error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        return ("a command or an argument is missing".to_string(), HELP.to_string());
    }
    let text = error.to_string();
    let mut parts = text.split("\n\n").map(|part| part.split_whitespace().collect::<Vec<_>>().join(" "));
    let message = parts.next().unwrap_or_default();
    let hint = parts.filter(|part| !part.starts_with("For more information")).collect::<Vec<_>>().join("; ");
    let message = message.strip_prefix("error: ").unwrap_or(&message).to_string();
    (message, if hint.is_empty() { HELP.to_string() } else { hint })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn removed_of(line: &str) -> Option<(String, String)> {
        const TABLE: &[Removed] = &[(&["levels"], "--gone", "leave it out"), (&["levels frames"], "--unit", "none")];
        let arguments: Vec<OsString> = line.split(' ').map(OsString::from).collect();
        removed(TABLE, &crate::cli::command().try_get_matches_from(&arguments).expect_err("no such flag"), &arguments)
    }

    #[test]
    fn removed_flags() {
        let expected = ("`levels` no longer has --gone".to_string(), "leave it out".to_string());
        for line in ["levels x --gone", "levels --gone x", "--json levels x --gone=9", "levels link x --gone 9"] {
            assert_eq!(removed_of(&format!("slotpress {line}")).as_ref(), Some(&expected), "{line}");
        }
        let expected = ("`levels frames` no longer has --unit".to_string(), "none".to_string());
        assert_eq!(removed_of("slotpress levels frames x --unit storage"), Some(expected));
        for line in ["verify levels --gone", "levels x --unit storage", "levels x --away", "levels x --repeat gone"] {
            assert_eq!(removed_of(&format!("slotpress {line}")), None, "{line}");
        }
    }

    /// A flag in the table must not exist: clap would accept it, and its row would never be used.
    #[test]
    fn what_is_removed_is_not_there() {
        for (name, flag) in REMOVED.iter().flat_map(|(names, flag, _)| names.iter().map(move |name| (name, flag))) {
            let command = crate::cli::command();
            let command =
                name.split(' ').fold(&command, |command, name| command.find_subcommand(name).expect("a command"));
            let all = std::iter::once(command).chain(command.get_subcommands());
            let mut flags = all.flat_map(|command| command.get_arguments()).filter_map(|arg| arg.get_long());
            assert!(flags.all(|long| format!("--{long}") != *flag), "{name} {flag}");
        }
    }
}
