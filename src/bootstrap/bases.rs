//! Full archives that this node has: if a source has an incremental archive on one of them, only that need be fetched.
//!
//! An old full archive is of use only with an incremental archive on it. Not here: the ranking (in `slotpress_net::find`), and
//! what follows where one of the two is of no use ([`next`](super::next)).

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Serialize;
use slotpress_base::{Error, Result, ShowPath, text};
use slotpress_format::ArchiveName;
use slotpress_net::{FindReport, SourceArg};
use slotpress_read::catalog::REMOTE;

/// Limit on the ways that a plan describes: with each full archive that the node has, and without.
const WAYS_MAX: usize = 8;

/// One way to a state: what is fetched for it, and how old the state will be. Times are estimates.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the names say it")]
pub struct Way {
    pub full: ArchiveName,
    pub incremental: Option<ArchiveName>,
    /// True if the full archive is on a local disk.
    #[serde(rename = "full_is_local")]
    pub is_full_local: bool,
    /// Slot of the state.
    pub slot: u64,
    /// Bytes that are not on a local disk; `None` if a server does not tell them.
    pub fetch_bytes: Option<u64>,
    #[serde(rename = "fetch_seconds", serialize_with = "text::seconds")]
    pub fetch_time: Duration,
    #[serde(rename = "restore_seconds", serialize_with = "text::seconds")]
    pub restore_time: Duration,
    #[serde(rename = "expected_age_seconds", serialize_with = "text::optional_seconds")]
    pub expected_age: Option<Duration>,
}

/// The ways that lead to a state, the best first.
pub fn ways(report: &FindReport) -> Vec<Way> {
    let mut ways: Vec<Way> = Vec::new();
    for candidate in &report.candidates {
        let (full, is_full_local) = (candidate.full.name.clone(), candidate.full.is_local());
        let incremental = candidate.incremental.as_ref().map(|offer| offer.name.clone());
        let is_same = |way: &Way| (&way.full, &way.incremental) == (&full, &incremental);
        if ways.len() >= WAYS_MAX || ways.iter().any(is_same) {
            continue;
        }
        ways.push(Way {
            full,
            incremental,
            is_full_local,
            slot: candidate.slot(),
            fetch_bytes: candidate.fetch_bytes(),
            fetch_time: candidate.fetch_time(),
            restore_time: candidate.restore_time(report.restore_bytes_per_second),
            expected_age: candidate.expected_age,
        });
    }
    ways
}

/// The sources on local disks: the archives directory, if it has a full archive, and the files that the operator names.
///
/// # Errors
/// One of those is not named like a full archive, or is not there.
pub fn local_sources(dir: &Path, named: &[PathBuf]) -> Result<Vec<SourceArg>> {
    let mut sources = Vec::new();
    for path in named {
        let name = ArchiveName::from_path(path).filter(|name| name.base_slot.is_none());
        if name.is_none() || !path.is_file() {
            let message = format!("{} is not the file of a full archive", path.shown());
            return Err(Error::usage(message).with_hint("a full archive is named snapshot-SLOT-HASH.tar.zst"));
        }
        sources.push(SourceArg::LocalFile(path.clone()));
    }
    if !fulls_in(dir).is_empty() {
        sources.push(SourceArg::LocalDir(dir.to_path_buf()));
    }
    Ok(sources)
}

/// The full archives in an archives directory.
pub fn fulls_in(dir: &Path) -> Vec<ArchiveName> {
    let entries = [dir.to_path_buf(), dir.join(REMOTE)].into_iter().flat_map(fs::read_dir).flatten().flatten();
    let names = entries.filter_map(|entry| ArchiveName::from_path(&entry.path()));
    names.filter(|name| name.base_slot.is_none()).collect()
}
