//! Archives only: fetched into a directory, checked as far as they can be while they arrive, and named.

use std::path::PathBuf;

use derive_setters::Setters;
use serde::ser::SerializeStruct;
use serde::{Serialize, Serializer};
use slotpress_base::{Elapsed, Error, Progress, Result, Stopwatch};
use slotpress_format::{ArchiveName, Root};
use slotpress_net::{Client, Fetched, FindOptions, Limits, SourceArg, Url};
use slotpress_read::Publishable;

use super::expected::Expected;
use super::fetcher::{ArchiveRequest, FetchContext, Fetcher, ObtainedArchive};
use super::trust::{self, Vouchers};

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
    /// Servers that vouch for the state.
    #[setters(into)]
    pub trusted: Vec<Url>,
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
    #[serde(rename = "vouched_by", serialize_with = "Vouchers::servers")]
    pub vouchers: Vouchers,
    /// Time from the start until everything was on disk.
    #[serde(rename = "elapsed_seconds", serialize_with = "Elapsed::wall_seconds")]
    pub elapsed: Elapsed,
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
        trusted: &options.trusted,
        expected: Expected::default(),
        dir: &options.dir,
        bases: &[],
        replaces_state: false,
        accepts_files: true,
    };
    let mut fetcher = Fetcher::new(context.clone(), progress)?;
    let names = fetcher.named()?;
    let mut archives = Vec::new();
    let servers = if let Some(newest) = names.last() {
        let servers = trust::require(client, &options.trusted, newest, progress)?;
        for name in &names {
            archives.push(name_it(fetcher.whole(ArchiveRequest::Named(name))?)?.archive);
        }
        servers
    } else {
        let report = context.look(progress)?;
        report.require_candidate()?;
        fetcher.use_found(&report)?;
        let (full, incremental) = match fetch_pair(&mut fetcher) {
            Ok(pair) => pair,
            Err(error) => {
                fetcher.leave_base(error)?;
                fetch_pair(&mut fetcher)?
            }
        };
        let servers = incremental.as_ref().unwrap_or(&full).vouching.clone();
        archives.extend([Some(full), incremental].into_iter().flatten().map(|obtained| obtained.archive));
        servers
    };
    Ok(FetchReport { archives, vouchers: Vouchers { is_expected: false, servers }, elapsed: stopwatch.elapsed() })
}

fn fetch_pair(fetcher: &mut Fetcher<'_>) -> Result<(ObtainedArchive, Option<ObtainedArchive>)> {
    let full = name_it(fetcher.whole(ArchiveRequest::Full)?)?;
    let incremental = fetcher.incremental_on(&full)?.map(|obtained| name_it(Some(obtained))).transpose()?;
    Ok((full, incremental))
}

fn name_it(obtained: Option<ObtainedArchive>) -> Result<ObtainedArchive> {
    let mut obtained = obtained.ok_or_else(|| Error::failed("no source has the archive"))?;
    if let Some(download) = &obtained.download {
        obtained.archive.path = Some(download.file().publish(&obtained.archive.name.to_string())?);
    }
    Ok(obtained)
}
