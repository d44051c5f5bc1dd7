//! Fetches archives into a directory: makes all checks that are possible without unpacking while the archives
//! arrive, and gives them their names.

use std::cmp::Reverse;
use std::path::PathBuf;

use derive_setters::Setters;
use serde::ser::SerializeStruct;
use serde::{Serialize, Serializer};
use slotpress_base::{Elapsed, Progress, Result, Stopwatch, text};
use slotpress_format::{ArchiveName, ArchiveRoot, serialize_name_and_parts};
use slotpress_net::{Client, FetchLimits, Fetched, FindOptions, Url};

use super::context::FetchContext;
use super::downloads::Downloads;
use super::next::{AbandonedState, Selection};
use super::run::{World, run};
use super::trust::{Confirmations, check_quorum};
use crate::restore::Supply;

/// Options of [`fetch()`]: sources, destination and settings.
#[derive(Clone, Debug, Setters)]
#[non_exhaustive]
pub struct FetchOptions {
    /// Sources to ask, and the maximum age. If all are URLs of archives, these archives are fetched,
    /// whatever their age.
    pub find: FindOptions,
    /// Directory for downloaded archives; created if it is missing. Archives of local sources stay
    /// where they are.
    #[setters(into)]
    pub dir: PathBuf,
    /// Limits of the downloads.
    pub limits: FetchLimits,
    /// Root that every fetched archive must have. Two archives never have the same root, so leave out the
    /// incremental archive ([`FindOptions::incremental`]). Default: any.
    #[setters(strip_option)]
    pub expect_root: Option<ArchiveRoot>,
    /// Trusted servers. Before anything is fetched, they are asked whether they have the same
    /// state. If one has a different state of the slot, the run ends. Default: none.
    #[setters(into)]
    pub trusted: Vec<Url>,
    /// Number of trusted servers that must confirm the state, 1 to the length of `trusted`. Ignored
    /// without trusted servers. Default: 1.
    pub quorum: usize,
}

impl FetchOptions {
    /// Creates options that fetch the best state of these sources.
    pub fn new(find: impl Into<FindOptions>, dir: impl Into<PathBuf>) -> Self {
        Self {
            find: find.into(),
            dir: dir.into(),
            limits: FetchLimits::default(),
            expect_root: None,
            trusted: Vec::new(),
            quorum: 1,
        }
    }
}

/// An archive that was fetched, or that the node already had.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct FetchedArchive {
    /// Parsed file name of the archive.
    #[serde(flatten, serialize_with = "serialize_name_and_parts")]
    pub name: ArchiveName,
    /// Path of the file. Archives of local sources are outside the directory. `None` in the report
    /// of a bootstrap, where [`RestoreReport`](crate::restore::RestoreReport) names the files.
    #[serde(serialize_with = "text::optional_path")]
    pub path: Option<PathBuf>,
    /// Report of the download; `None` if the file already existed.
    #[serde(flatten, serialize_with = "serialize_download")]
    #[doc(hidden)]
    pub fetched: Option<Fetched>,
    /// Root of the archive, after all frames were compared with their hashes. `None` if the archive has no
    /// root, or if a bootstrap found the file on the node.
    pub root: Option<ArchiveRoot>,
}

fn serialize_download<S: Serializer>(fetched: &Option<Fetched>, serializer: S) -> std::result::Result<S::Ok, S::Error> {
    let download = fetched.as_ref();
    let file_bytes = download.map(|download| download.file_bytes);
    let fetch_seconds = download.map(|download| download.elapsed.as_secs_f64());
    let kept_bytes = download.map_or(0, |download| download.kept_bytes);
    let servers = download.map_or(&[][..], |download| &download.servers);
    let mut fields = serializer.serialize_struct("Download", 6)?;
    fields.serialize_field("was_there", &download.is_none())?;
    fields.serialize_field("file_bytes", &file_bytes)?;
    fields.serialize_field("kept_bytes", &kept_bytes)?;
    fields.serialize_field("fetched_bytes", &download.map_or(0, Fetched::fetched_bytes))?;
    fields.serialize_field("servers", servers)?;
    fields.serialize_field("fetch_seconds", &fetch_seconds)?;
    fields.end()
}

/// Result of the function [`fetch`].
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct FetchReport {
    /// Archives that were fetched or already existed, full ones first.
    pub archives: Vec<FetchedArchive>,
    /// Answers of the trusted servers about the newest archive.
    #[serde(flatten)]
    pub confirmations: Confirmations,
    /// A newer state that a source offered, but that could not be used.
    pub abandoned: Option<AbandonedState>,
    /// Time from the start until everything was on disk.
    #[serde(rename = "elapsed_seconds", serialize_with = "Elapsed::serialize_wall_seconds")]
    pub elapsed: Elapsed,
}

/// Fetches a full archive and the newest incremental one on it. If all sources are URLs of
/// archives, fetches these instead. Archives of local sources are checked, but not copied: they
/// stay where they are. Resumes an interrupted run.
///
/// # Errors
/// [`ErrorKind::Network`](slotpress_base::ErrorKind::Network) if a later run may succeed: it
/// continues with the bytes that have arrived.
pub fn fetch(client: &Client, options: &FetchOptions, progress: &dyn Progress) -> Result<FetchReport> {
    client.check_thread()?;
    check_quorum(&options.trusted, options.quorum)?;
    let stopwatch = Stopwatch::start();
    let context = FetchContext { client, progress, options: options.clone(), bootstrap: None, is_plan: false };
    std::thread::scope(|scope| {
        let mut downloads = Downloads::new(scope, context)?;
        let mut selection = Selection::default();
        let mut archives = Vec::new();
        let mut abandoned = None;
        // `None` requests the best candidate.
        let requested: Vec<Option<ArchiveName>> = if downloads.fetches_named_archives() {
            downloads.ask_sources(&mut selection)?;
            let offers = selection.ranking.offers.iter();
            let mut names: Vec<ArchiveName> = offers.map(|offer| offer.name.clone()).collect();
            names.sort_by_cached_key(ArchiveName::to_string);
            names.dedup();
            // The newest incremental archive comes first.
            names.sort_by_key(|name| (name.base_slot.is_none(), Reverse(name.slot)));
            names.into_iter().map(Some).collect()
        } else {
            let (report, offered) = downloads.context.find_candidates()?;
            report.require_candidate()?;
            downloads.use_offers(&mut selection, offered);
            vec![None]
        };
        for name in requested {
            selection.node.requested = name;
            selection = Selection { ranking: selection.ranking, node: selection.node, ..Selection::default() };
            let finished = run(&mut downloads, &mut selection, &wait_for_all)?;
            archives.splice(0..0, finished.archives);
            abandoned = finished.abandoned;
            // The trusted servers have confirmed the newest archive, and so the state. Do not ask them
            // about the other archives.
            downloads.context.options.trusted.clear();
        }
        Ok(FetchReport { archives, confirmations: downloads.confirmations, abandoned, elapsed: stopwatch.elapsed() })
    })
}

/// Waits for each archive without reading it. A download gets its final name once it is complete.
fn wait_for_all(supply: &mut dyn Supply) -> Result<()> {
    while supply.next()?.is_some() {}
    Ok(())
}
