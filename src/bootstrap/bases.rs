//! Full archives that this node has, and the combinations of archives that a plan shows.
//!
//! If a source has an incremental archive on one of the node's full archives, only the incremental
//! archive has to be fetched. `slotpress_net::find` ranks the combinations; if an archive fails,
//! [`next`](super::next) decides what to try next.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Serialize;
use slotpress_base::{Error, EscapePath, Result, text};
use slotpress_format::ArchiveName;
use slotpress_net::find::rank::time_at_rate;
use slotpress_net::{FindReport, SourceLocation};
use slotpress_read::REMOTE_DIR;

const ROUTES_MAX: usize = 8;

/// A combination of archives that makes up a state, with estimated times.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the names say it")]
pub struct Route {
    pub full: ArchiveName,
    pub incremental: Option<ArchiveName>,
    #[serde(rename = "full_is_local")]
    pub is_full_local: bool,
    pub slot: u64,
    /// Number of bytes to fetch; `None` if a server does not state a size.
    pub fetch_bytes: Option<u64>,
    #[serde(rename = "fetch_seconds", serialize_with = "text::seconds")]
    pub fetch_time: Duration,
    #[serde(rename = "restore_seconds", serialize_with = "text::seconds")]
    pub restore_time: Duration,
    #[serde(rename = "expected_age_seconds", serialize_with = "text::optional_seconds")]
    pub expected_age: Option<Duration>,
}

pub fn list_routes(report: &FindReport) -> Vec<Route> {
    let mut routes: Vec<Route> = Vec::new();
    for candidate in &report.candidates {
        let incremental = candidate.incremental.as_ref();
        let route = Route {
            full: candidate.full.name.clone(),
            incremental: incremental.map(|offer| offer.name.clone()),
            is_full_local: candidate.full.is_local(),
            slot: candidate.slot(),
            fetch_bytes: candidate.fetch_bytes(),
            fetch_time: candidate.fetch_time,
            restore_time: time_at_rate(candidate.total_bytes(), report.assumed_restore_bytes_per_second),
            expected_age: candidate.expected_age,
        };
        let is_same = |known: &Route| (&known.full, &known.incremental) == (&route.full, &route.incremental);
        if routes.len() < ROUTES_MAX && !routes.iter().any(is_same) {
            routes.push(route);
        }
    }
    routes
}

/// Returns the local sources: each of the files in `bases`, and `dir` if it has a full archive.
///
/// # Errors
/// A file in `bases` does not exist, or does not have the name of a full archive.
pub fn local_sources(dir: &Path, bases: &[PathBuf]) -> Result<Vec<SourceLocation>> {
    let mut sources = Vec::new();
    for path in bases {
        let name = ArchiveName::from_path(path).filter(|name| name.base_slot.is_none());
        if name.is_none() || !path.is_file() {
            let message = format!("{} is not the file of a full archive", path.escaped());
            return Err(Error::usage(message).with_hint("a full archive is named snapshot-SLOT-HASH.tar.zst"));
        }
        sources.push(SourceLocation::ArchiveFile(path.clone()));
    }
    if !full_archives_in(dir).is_empty() {
        sources.push(SourceLocation::Directory(dir.to_path_buf()));
    }
    Ok(sources)
}

/// Returns the names of the full archives in a snapshots directory and its subdirectory `remote`.
pub fn full_archives_in(dir: &Path) -> Vec<ArchiveName> {
    let dirs = [dir.to_path_buf(), dir.join(REMOTE_DIR)];
    let entries = dirs.into_iter().flat_map(fs::read_dir).flatten().flatten();
    let names = entries.filter_map(|entry| ArchiveName::from_path(&entry.path()));
    names.filter(|name| name.base_slot.is_none()).collect()
}
