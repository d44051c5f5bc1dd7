//! Archives only: fetched into a directory, checked as far as they can be while they arrive, and named.

use std::cmp::Reverse;
use std::path::PathBuf;

use derive_setters::Setters;
use serde::ser::SerializeStruct;
use serde::{Serialize, Serializer};
use slotpress_base::{Elapsed, Progress, Result, Stopwatch};
use slotpress_format::{ArchiveName, Root};
use slotpress_net::find::Expected;
use slotpress_net::{Client, Fetched, FindOptions, Limits, SourceArg, Url};

use super::downloads::Downloads;
use super::look::FetchContext;
use super::next::{GivenUp, Left};
use super::run::{World, run};
use super::trust::{Trust, Vouchers};
use crate::restore::Supply;

/// What to fetch, and where to.
#[derive(Clone, Debug, Setters)]
#[non_exhaustive]
pub struct FetchOptions {
    /// What sources to ask, and what is too old. URLs of archives are fetched as they are.
    pub find: FindOptions,
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

impl FetchedArchive {
    /// An archive of which only the name is known.
    pub(super) fn of(name: &ArchiveName) -> Self {
        Self { name: name.clone(), path: None, fetched: None, root: None }
    }
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
        limits: &options.limits,
        trust: Trust { client, trusted: &options.trusted, quorum: options.quorum },
        expected: Expected::default(),
        expects_roots: options.limits.expect_root.is_some(),
        dir: &options.dir,
        bases: &[],
        replaces_state: false,
        accepts_files: true,
    };
    std::thread::scope(|scope| {
        let mut downloads = Downloads::new(scope, context, progress)?;
        let (mut left, mut archives, mut given_up) = (Left::default(), Vec::new(), None);
        let names: Vec<Option<ArchiveName>> = match downloads.is_exact() {
            true => {
                downloads.look(&mut left)?;
                let mut names: Vec<_> = left.found.offers.iter().map(|(offer, ..)| offer.name.clone()).collect();
                names.sort_by_cached_key(|name| (name.base_slot.is_none(), Reverse(name.slot), name.to_string()));
                names.dedup();
                names.into_iter().map(Some).collect()
            }
            false => {
                let (report, found) = downloads.context.look(false, progress)?;
                report.require_candidate()?;
                downloads.use_found(&mut left, found)?;
                vec![None]
            }
        };
        for only in names {
            (left.node.only, left.given_up, left.again) = (only, None, 0);
            let done = run(&mut downloads, &mut left, &take_all)?;
            archives.splice(0..0, done.archives);
            given_up = done.given_up;
            // The newest is the state, which trusted servers have confirmed.
            downloads.context.trust.trusted = &[];
        }
        let vouchers = Vouchers { is_expected: false, confirmed: downloads.confirmed };
        Ok(FetchReport { archives, vouchers, given_up, elapsed: stopwatch.elapsed() })
    })
}

/// Reads nothing: the archives are named as they come.
fn take_all(supply: &mut dyn Supply) -> Result<()> {
    while supply.next()?.is_some() {}
    Ok(())
}
