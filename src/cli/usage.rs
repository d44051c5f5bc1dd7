//! Wrong arguments, for programs: with `--json`, what clap says for people is one JSON object, as every other error is.

use std::ffi::OsString;
use std::io::{self, Write};

use clap::error::{ContextKind, ContextValue, ErrorKind};
use slotpress_base::text;

use super::json::ErrorLine;

/// The exit code of wrong arguments.
pub const EXIT_CODE: u8 = 2;

/// The arguments with their control characters escaped, for messages that repeat them.
pub fn escaped(arguments: &[OsString]) -> Vec<OsString> {
    arguments.iter().map(|argument| text::escaped(&argument.to_string_lossy()).into_owned().into()).collect()
}

/// Prints what clap has to say: help and versions as they are, errors as the arguments ask for, with the variable of the
/// environment that a value comes from.
pub fn print(mut error: clap::Error, arguments: &[OsString], variable: Option<String>) -> io::Result<()> {
    let variable = variable.map(|name| format!("the value is that of {name} in the environment"));
    let variable = variable.or_else(|| meant(&error, arguments));
    if variable.is_some() {
        // What clap guesses contradicts what we know.
        for kind in [ContextKind::SuggestedArg, ContextKind::SuggestedValue, ContextKind::Suggested] {
            error.remove(kind);
        }
    }
    let error = &error;
    if !error.use_stderr() || !wants_json(arguments) {
        error.print().and_then(|()| io::stdout().flush())?;
        return variable.map_or(Ok(()), |text| writeln!(io::stderr(), "hint: {text}"));
    }
    let (message, hint) = message_and_hint(error);
    let hint = variable.unwrap_or(hint);
    let line = ErrorLine { message, hint: Some(&hint), exit_code: EXIT_CODE };
    writeln!(io::stderr(), "{}", text::json(&line))
}

/// What a flag is called here that other programs have; where an output goes that was given like an input.
fn meant(error: &clap::Error, arguments: &[OsString]) -> Option<String> {
    const FLAGS: [(&str, &str); 4] = [
        ("--level", "--zstd-level"),
        ("--compression-level", "--zstd-level"),
        ("--jobs", "--threads"),
        ("--out", "--output"),
    ];
    let Some(ContextValue::String(flag)) = error.get(ContextKind::InvalidArg) else { return None };
    let writes = || arguments.iter().skip(1).any(|argument| argument == "archive" || argument == "recompress");
    if error.kind() == ErrorKind::UnknownArgument && !flag.starts_with('-') && writes() {
        return Some(format!("the directory for the archive is given with -o: -o {flag}"));
    }
    let (flag, ours) = FLAGS.iter().find(|(theirs, _)| error.kind() == ErrorKind::UnknownArgument && theirs == flag)?;
    Some(format!("{ours} is what {flag} is called here"))
}

/// Whether JSON is asked for, as far as arguments that make no sense tell.
fn wants_json(arguments: &[OsString]) -> bool {
    let own = || arguments.iter().take_while(|argument| *argument != "--");
    let is_progress = own().any(|argument| argument == "--progress=json")
        || own().zip(own().skip(1)).any(|(flag, value)| flag == "--progress" && value == "json");
    own().any(|argument| argument == "--json") || is_progress
}

/// One line each of what is wrong and of what to do.
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
