//! Checks for `slotpress doctor` whether this machine, and optionally a ledger on it, is ready for
//! slotpress.

mod ledger;
mod speed;
mod system;

use serde::Serialize;
use slotpress::progress::Stage;
use slotpress::{LedgerPaths, Progress, Result};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    Good,
    /// slotpress works, but more slowly, or not in every case.
    Note,
    /// The operator must solve this before slotpress can work.
    Bad,
}

#[derive(Clone, Debug, Serialize)]
pub struct Finding {
    pub subject: &'static str,
    pub verdict: Verdict,
    pub found: String,
    pub means: String,
}

impl Finding {
    fn new(subject: &'static str, verdict: Verdict, found: impl Into<String>, meaning: impl Into<String>) -> Self {
        Self { subject, verdict, found: found.into(), means: meaning.into() }
    }

    fn good(subject: &'static str, found: impl Into<String>, meaning: impl Into<String>) -> Self {
        Self::new(subject, Verdict::Good, found, meaning)
    }

    fn note(subject: &'static str, found: impl Into<String>, meaning: impl Into<String>) -> Self {
        Self::new(subject, Verdict::Note, found, meaning)
    }

    fn bad(subject: &'static str, found: impl Into<String>, meaning: impl Into<String>) -> Self {
        Self::new(subject, Verdict::Bad, found, meaning)
    }
}

/// Examines the machine and, if given, a ledger. Takes about five seconds.
///
/// # Errors
/// The user interrupts, or there is not enough memory to compress. Failed checks are findings, not errors.
pub fn examine(paths: Option<&LedgerPaths>, progress: &dyn Progress) -> Result<Vec<Finding>> {
    progress.stage(Stage::ExaminingMachine, None);
    let files = paths.map(ledger::find_largest_files).unwrap_or_default();
    let mut findings = paths.map(ledger::examine).unwrap_or_default();
    findings.extend(system::examine());
    progress.check()?;
    progress.stage(Stage::Measuring, None);
    findings.extend(speed::examine(&files, progress)?);
    Ok(findings)
}
