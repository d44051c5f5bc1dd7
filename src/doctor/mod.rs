//! Whether a machine, and a ledger on it, are fit for the work: what was found, and what follows from it.
//!
//! Nothing is written, locked or changed. `place` looks at the ledger's directories, `system` at limits and at the
//! kernel, `speed` measures disk and processor for a few seconds.

mod place;
mod speed;
mod system;

use serde::Serialize;
use slotpress::{LedgerPaths, Progress, Result};

/// What a finding means for the work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// As it should be.
    Good,
    /// Works, but slower, or not in every case.
    Note,
    /// Stops the work.
    Bad,
}

/// One thing that was looked at.
#[derive(Clone, Debug, Serialize)]
pub struct Finding {
    /// What.
    pub subject: &'static str,
    /// What it means, in a word.
    pub verdict: Verdict,
    /// What was found.
    pub found: String,
    /// What follows from it.
    pub means: String,
}

impl Finding {
    fn new(subject: &'static str, verdict: Verdict, found: impl Into<String>, means: impl Into<String>) -> Self {
        Self { subject, verdict, found: found.into(), means: means.into() }
    }

    fn good(subject: &'static str, found: impl Into<String>, means: impl Into<String>) -> Self {
        Self::new(subject, Verdict::Good, found, means)
    }

    fn note(subject: &'static str, found: impl Into<String>, means: impl Into<String>) -> Self {
        Self::new(subject, Verdict::Note, found, means)
    }

    fn bad(subject: &'static str, found: impl Into<String>, means: impl Into<String>) -> Self {
        Self::new(subject, Verdict::Bad, found, means)
    }
}

/// Looks at the machine, and at a ledger where one is given. Takes about five seconds.
///
/// # Errors
/// Interrupted.
pub fn examine(paths: Option<&LedgerPaths>, progress: &dyn Progress) -> Result<Vec<Finding>> {
    progress.stage("Looking", None);
    let mut findings = Vec::new();
    let files = paths.map(place::largest_files).unwrap_or_default();
    if let Some(paths) = paths {
        findings.extend(place::examine(paths));
    }
    findings.extend(system::examine());
    progress.check()?;
    progress.stage("Measuring", None);
    findings.extend(speed::examine(&files, progress)?);
    Ok(findings)
}
