//! Runs `slotpress doctor`, and prints what it found.

use std::collections::BTreeMap;
use std::path::PathBuf;

use clap::Args;
use slotpress::{Error, Result};
use slotpress_base::EscapePath;

use super::arguments::DirectoryArgs;
use super::ui::Ui;
use super::values;
use crate::doctor::{Verdict, examine};

/// Check this machine and a ledger for problems that stop or slow slotpress
///
/// Takes about five seconds, and does not write, lock or change anything. The exit code is 1 if a problem would
/// stop slotpress.
#[derive(Debug, Args)]
pub struct DoctorArgs {
    /// The ledger directory of a validator
    #[arg(value_name = "LEDGER")]
    path: Option<PathBuf>,
    #[command(flatten)]
    directories: DirectoryArgs,
}

pub fn run(args: &DoctorArgs, ui: &Ui) -> Result<()> {
    if let Some(path) = &args.path {
        values::check_ledger(path)?;
        if !path.is_dir() {
            return Err(Error::failed(format!("{} is not a directory", path.escaped()))
                .with_hint("pass the validator's ledger directory, or leave it out to check only the machine"));
        }
    }
    let paths = args.path.as_ref().map(|path| args.directories.paths(path));
    let findings = examine(paths.as_ref(), ui)?;
    ui.print_object("doctor", &BTreeMap::from([("findings", &findings)]));
    let mut bad_count = 0;
    for finding in &findings {
        let word = match finding.verdict {
            Verdict::Good => "ok",
            Verdict::Note => "note",
            Verdict::Bad => "BAD",
        };
        bad_count += u64::from(finding.verdict == Verdict::Bad);
        ui.say(&format!("{word:5}{:11} {}\n{:17}{}", finding.subject, finding.found, "", finding.means));
    }
    if bad_count > 0 {
        let problems = values::count_of(bad_count, "problem");
        return Err(Error::failed(format!("{problems} must be solved first")));
    }
    Ok(())
}
