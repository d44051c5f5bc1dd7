//! Prints errors in the command line. With `--json`, clap's message becomes a JSON object, like any other error.

use std::ffi::OsString;
use std::io::{self, Write};

use clap::error::{ContextKind, ContextValue, ErrorKind};
use slotpress_base::text;

use super::json::error_line;

pub const EXIT_CODE: u8 = 2;

/// Escapes control characters in arguments, for messages that repeat them.
pub fn escape_arguments(arguments: &[OsString]) -> Vec<OsString> {
    let escape = |argument: &OsString| text::escape(&argument.to_string_lossy()).into_owned();
    arguments.iter().map(|argument| escape(argument).into()).collect()
}

/// Prints clap's result: help and version unchanged, errors as text or JSON. `variable` is the environment
/// variable whose value clap refused.
pub fn print(error: &clap::Error, arguments: &[OsString], variable: Option<String>) -> io::Result<()> {
    let variable = variable.map(|name| format!("the value comes from {name} in the environment"));
    let hint = variable.or_else(|| explain_missing_export(error));
    // clap has refused the arguments, so `--json` is searched in their text.
    let wants_json = arguments.iter().take_while(|argument| *argument != "--").any(|argument| argument == "--json");
    if !error.use_stderr() || !wants_json {
        error.print().and_then(|()| io::stdout().flush())?;
        return hint.map_or(Ok(()), |text| writeln!(io::stderr(), "hint: {text}"));
    }
    let hint = hint.as_deref().or(Some("see --help"));
    let line = error_line(&message_of(error), hint, EXIT_CODE);
    writeln!(io::stderr(), "{line}")
}

fn explain_missing_export(error: &clap::Error) -> Option<String> {
    let Some(ContextValue::String(name)) = error.get(ContextKind::InvalidSubcommand) else { return None };
    if name != "export" || cfg!(feature = "export") {
        return None;
    }
    let hint = "this build lacks `export`, which released programs have: \
                `cargo install --locked slotpress --features export`; \
                in a checkout, `cargo run --release --features export -- export …`";
    Some(hint.to_string())
}

/// Returns the first paragraph of clap's error as one line.
fn message_of(error: &clap::Error) -> String {
    if error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        return "a command or an argument is missing".to_string();
    }
    let text = error.to_string();
    let paragraph = text.split("\n\n").next().unwrap_or_default();
    let line = paragraph.split_whitespace().collect::<Vec<_>>().join(" ");
    line.strip_prefix("error: ").unwrap_or(&line).to_string()
}
