//! Wrong arguments, for programs: with `--json`, what clap says for people is one JSON object, as every other error is.

use {
    super::json::{ErrorLine, to_json},
    clap::error::ErrorKind,
    slotpress_base::text,
    std::{
        ffi::OsString,
        io::{self, Write},
    },
};

/// The exit code of wrong arguments.
pub const EXIT_CODE: u8 = 2;

/// The arguments with their control characters escaped, for messages that repeat them.
pub fn escaped(arguments: &[OsString]) -> Vec<OsString> {
    arguments.iter().map(|argument| text::escaped(&argument.to_string_lossy()).into_owned().into()).collect()
}

/// Prints what clap has to say: help and versions as they are, errors as the arguments ask for.
pub fn print(error: &clap::Error, arguments: &[OsString], json_variable: Option<OsString>) -> io::Result<()> {
    if !error.use_stderr() || !wants_json(arguments, json_variable) {
        return error.print().and_then(|()| io::stdout().flush());
    }
    let (message, hint) = message_and_hint(error);
    let line = ErrorLine { message, hint: Some(&hint), exit_code: EXIT_CODE };
    writeln!(io::stderr(), "{}", to_json(&line))
}

/// Whether JSON is asked for, as far as arguments that make no sense tell.
fn wants_json(arguments: &[OsString], json_variable: Option<OsString>) -> bool {
    let own = || arguments.iter().take_while(|argument| *argument != "--");
    let is_progress = own().any(|argument| argument == "--progress=json")
        || own().zip(own().skip(1)).any(|(flag, value)| flag == "--progress" && value == "json");
    let is_on = |text: OsString| ["1", "true", "yes", "on", "y", "t"].iter().any(|on| text.eq_ignore_ascii_case(on));
    own().any(|argument| argument == "--json") || is_progress || json_variable.is_some_and(is_on)
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
