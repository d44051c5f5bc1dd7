//! Archives only: fetched into a directory, checked as far as they can be while they arrive, and named.

use std::path::PathBuf;

use derive_setters::Setters;
use serde::ser::SerializeStruct;
use serde::{Serialize, Serializer};
use slotpress_base::{Elapsed, Progress, Result, Stopwatch};
use slotpress_format::{ArchiveName, Root};
use slotpress_net::find::Expected;
use slotpress_net::{Client, Fetched, FindOptions, Limits, SourceArg, Url};

use super::fetcher::{FetchContext, Fetcher};
use super::next::GivenUp;
use super::trust::{Trust, Vouchers};
use crate::restore::Supply;

/// What to fetch, and where to.
#[derive(Clone, Debug, Setters)]
#[non_exhaustive]
pub struct FetchOptions {
    /// What sources to ask, and what is too old. URLs of archives are fetched as they are.
    pub find: FindOptions,
    /// Whether an incremental archive is wanted.
    pub wants_incremental: bool,
    /// The directory for what comes from servers; it is made where it is missing. An archive of a local source is used where it
    /// is, and not copied.
    #[setters(into)]
    pub dir: PathBuf,
    /// Bounds of the downloads.
    pub limits: Limits,
    /// Servers that are asked whether they have the state.
    #[setters(into)]
    pub trusted: Vec<Url>,
    /// So many of them must confirm it.
    pub quorum: usize,
}

impl FetchOptions {
    /// The best state that the sources have, with an incremental archive where one is newer.
    pub fn new(sources: impl IntoIterator<Item = SourceArg>, dir: impl Into<PathBuf>) -> Self {
        Self {
            find: FindOptions::new(sources),
            wants_incremental: true,
            dir: dir.into(),
            limits: Limits::default(),
            trusted: Vec::new(),
            quorum: 1,
        }
    }
}

/// An archive that was fetched, or was there.
#[derive(Clone, Debug)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the names say it")]
pub struct FetchedArchive {
    pub name: ArchiveName,
    /// Where it is, which is outside the directory for one of a local source; `None` in the report of a bootstrap, whose [`RestoreReport`](crate::RestoreReport) names the files.
    pub path: Option<PathBuf>,
    /// What was fetched; `None` where the archive was there, or is a local source's.
    pub fetched: Option<Fetched>,
    /// Its root, where it has frame hashes, all of which are right.
    pub root: Option<Root>,
}

impl Serialize for FetchedArchive {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        let (name, fetched) = (&self.name, self.fetched.as_ref());
        let mut fields = serializer.serialize_struct("FetchedArchive", 12)?;
        fields.serialize_field("name", name)?;
        fields.serialize_field("path", &self.path.as_ref().map(|path| path.to_string_lossy()))?;
        fields.serialize_field("slot", &name.slot)?;
        fields.serialize_field("base_slot", &name.base_slot)?;
        fields.serialize_field("hash", &name.hash)?;
        fields.serialize_field("was_there", &fetched.is_none())?;
        fields.serialize_field("file_bytes", &fetched.map(|fetched| fetched.length_bytes))?;
        fields.serialize_field("kept_bytes", &fetched.map_or(0, |fetched| fetched.kept_bytes))?;
        fields.serialize_field("fetched_bytes", &fetched.map_or(0, Fetched::fetched_bytes))?;
        fields.serialize_field("root", &self.root)?;
        fields.serialize_field("servers", fetched.map_or(&[][..], |fetched| &fetched.servers))?;
        fields.serialize_field("fetch_seconds", &fetched.map(|fetched| fetched.elapsed.as_secs_f64()))?;
        fields.end()
    }
}

#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the names say it")]
pub struct FetchReport {
    pub archives: Vec<FetchedArchive>,
    #[serde(flatten, serialize_with = "vouched")]
    pub vouchers: Vouchers,
    /// A newer state that was on offer, and was not to be had.
    pub given_up: Option<GivenUp>,
    /// Time from the start until everything was on disk.
    #[serde(rename = "elapsed_seconds", serialize_with = "Elapsed::wall_seconds")]
    pub elapsed: Elapsed,
}

/// Serializes the servers alone: `fetch` has no expected hash.
fn vouched<S: Serializer>(vouchers: &Vouchers, serializer: S) -> std::result::Result<S::Ok, S::Error> {
    vouchers.confirmed.serialize(serializer)
}

/// Fetches a full archive and the newest incremental one on it; or those whose URLs the sources are. An earlier run that did
/// not end is resumed.
///
/// # Errors
/// Of [`ErrorKind::Network`](slotpress_base::ErrorKind::Network) where a later run may do better: what has arrived is kept for it.
pub fn fetch(client: &Client, options: &FetchOptions, progress: &dyn Progress) -> Result<FetchReport> {
    client.check_thread()?;
    let stopwatch = Stopwatch::start();
    let context = FetchContext {
        client,
        find: options.find.clone(),
        wants_incremental: options.wants_incremental,
        limits: &options.limits,
        trust: Trust { client, trusted: &options.trusted, quorum: options.quorum },
        expected: Expected::default(),
        expects_roots: options.limits.expect_root.is_some(),
        dir: &options.dir,
        bases: &[],
        replaces_state: false,
        accepts_files: true,
    };
    let mut fetcher = Fetcher::new(context.clone(), progress)?;
    let names = fetcher.named()?;
    let (mut archives, mut vouchers, mut given_up) = (Vec::new(), Vouchers::default(), None);
    // The newest first: it is the state, for which trusted servers are asked.
    for name in names.iter().rev() {
        fetcher.only(name, archives.is_empty());
        let done = fetcher.run(&take_all)?;
        if archives.is_empty() {
            vouchers = done.vouchers;
        }
        archives.splice(0..0, done.archives);
    }
    if names.is_empty() {
        let (report, left) = context.look(false, progress)?;
        report.require_candidate()?;
        fetcher.use_found(left)?;
        let done = fetcher.run(&take_all)?;
        (archives, vouchers, given_up) = (done.archives, done.vouchers, done.given_up);
    }
    Ok(FetchReport { archives, vouchers, given_up, elapsed: stopwatch.elapsed() })
}

/// Reads nothing: the archives are named as they come.
fn take_all(supply: &mut dyn Supply) -> Result<()> {
    while supply.next()?.is_some() {}
    Ok(())
}
