//! Bootstraps a node: finds the best state, fetches its archives, and restores them while they arrive.
//!
//! The restore reads the download's partial file ([`fetch`](mod@slotpress_net::fetch)), and waits only for bytes. Not here: the
//! transfer, and the layout of a ledger ([`restore`](mod@crate::restore)).

pub mod archives;
pub mod bases;
pub mod choose;
mod downloads;
pub mod genesis;
mod look;
pub mod next;
mod run;
mod supply;
pub mod trust;

use std::path::PathBuf;
use std::time::Duration;

use archives::FetchedArchive;
use bases::Way;
use choose::Choice;
use derive_setters::Setters;
use downloads::Downloads;
use look::FetchContext;
use next::{GivenUp, Left};
use serde::ser::SerializeStruct;
use serde::{Serialize, Serializer};
use slotpress_base::{Elapsed, Error, KeptDir, Progress, Result, Space, Stopwatch, text};
use slotpress_format::{Hash, Root};
use slotpress_net::find::Expected;
use slotpress_net::{Candidate, Client, FindOptions, FindReport, Limits, SourceArg, Url};
use slotpress_read::CheckMode;
use trust::{Trust, Vouchers};

use crate::restore::dry_run::preview_fetched;
use crate::restore::{ExistingState, RestoreReport, RestoreTarget, Supply, restore_supplied};

/// Sources and settings of a bootstrap.
#[derive(Clone, Debug, Setters)]
#[non_exhaustive]
pub struct BootstrapOptions {
    /// Sources to ask, and the maximum age.
    pub find: FindOptions,
    /// Full archives that the node has, beside those in the snapshots directory: if a source has an incremental archive on one
    /// of them, which is better, only that is fetched.
    #[setters(into)]
    pub bases: Vec<PathBuf>,
    /// Destination and settings of the restore.
    pub restore: RestoreTarget,
    /// Limits of the downloads.
    pub limits: Limits,
    /// Servers that are asked whether they have the state.
    #[setters(into)]
    pub trusted: Vec<Url>,
    /// So many of them must confirm it.
    pub quorum: usize,
    /// The roots that the archives must have, in their order: the full one's, then the incremental one's.
    #[setters(into)]
    pub expect_roots: Vec<Root>,
}

impl BootstrapOptions {
    /// Restores the best state of the sources into a new ledger.
    pub fn new(sources: impl IntoIterator<Item = SourceArg>, ledger: impl Into<PathBuf>) -> Self {
        Self {
            find: FindOptions::new(sources),
            bases: Vec::new(),
            restore: RestoreTarget::new(ledger),
            limits: Limits::default(),
            trusted: Vec::new(),
            quorum: 1,
            expect_roots: Vec::new(),
        }
    }

    fn context<'a>(&'a self, client: &'a Client) -> FetchContext<'a> {
        FetchContext {
            client,
            find: self.find.clone(),
            limits: &self.limits,
            trust: Trust { client, trusted: &self.trusted, quorum: self.quorum },
            expected: Expected::of_check(&self.restore.check),
            expects_roots: !self.expect_roots.is_empty(),
            dir: self.restore.paths.snapshots_dir(),
            bases: &self.bases,
            replaces_state: self.restore.existing_state != ExistingState::Refuse,
            accepts_files: false,
        }
    }
}

#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the names say it")]
pub struct BootstrapReport {
    pub archives: Vec<FetchedArchive>,
    #[serde(flatten)]
    pub vouchers: Vouchers,
    /// A newer state that was on offer, and was not to be had.
    pub given_up: Option<GivenUp>,
    pub genesis_hash: Option<Hash>,
    /// The report of the restore. Serializes as the paths that it replaced.
    #[serde(rename = "replaced", serialize_with = "replaced")]
    pub restore: RestoreReport,
    /// Time from the start until everything was on disk.
    #[serde(rename = "elapsed_seconds", serialize_with = "Elapsed::wall_seconds")]
    pub elapsed: Elapsed,
    /// The part of it after the last byte came from a server; `None` if nothing was fetched.
    #[serde(rename = "after_last_byte_seconds", serialize_with = "text::optional_seconds")]
    pub after_last_byte: Option<Duration>,
}

fn replaced<S: Serializer>(restore: &RestoreReport, serializer: S) -> std::result::Result<S::Ok, S::Error> {
    text::paths(&restore.replaced, serializer)
}

/// What a bootstrap would do.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the names say it")]
pub struct BootstrapPlan {
    pub full: Choice,
    /// The newest incremental archive at the time of planning.
    pub incremental: Option<Choice>,
    /// All ways to a state that were compared, the best first.
    pub ways: Vec<Way>,
    /// The best candidate. Serializes as its ages.
    #[serde(flatten, serialize_with = "ages")]
    pub candidate: Candidate,
    /// Bytes of the full archive that an earlier run left.
    pub kept_bytes: u64,
    /// Estimated bytes to write, by file system. The exact size is known only when the archives are read.
    pub space: Vec<Space>,
    /// Paths of an existing state that would be replaced.
    #[serde(serialize_with = "text::paths")]
    pub existing: Vec<PathBuf>,
    #[serde(skip)]
    options: BootstrapOptions,
    #[serde(skip)]
    found: (FindReport, Left),
}

impl BootstrapPlan {
    /// Fetches and restores. If an archive is gone by now, asks the sources again.
    ///
    /// # Errors
    /// As of [`bootstrap()`].
    pub fn execute(self, client: &Client, progress: &dyn Progress) -> Result<BootstrapReport> {
        execute(client, &self.options, Some(self.found), progress)
    }
}

fn ages<S: Serializer>(candidate: &Candidate, serializer: S) -> std::result::Result<S::Ok, S::Error> {
    let mut fields = serializer.serialize_struct("Ages", 3)?;
    fields.serialize_field("age_slots", &candidate.age_slots)?;
    fields.serialize_field("age_seconds", &candidate.age.map(|age| age.as_secs_f64()))?;
    fields.serialize_field("expected_age_seconds", &candidate.expected_age.map(|age| age.as_secs_f64()))?;
    fields.end()
}

/// Makes all checks that [`bootstrap()`] makes before it fetches. Fetches and writes nothing.
///
/// # Errors
/// As of [`bootstrap()`].
pub fn plan_bootstrap(client: &Client, options: &BootstrapOptions, progress: &dyn Progress) -> Result<BootstrapPlan> {
    let found = options.context(client).look(true, progress)?;
    let (report, left) = &found;
    let candidate = report.require_candidate()?.clone();
    let (full, incremental) = left.choices(&candidate);
    let kept_bytes = left.node.kept_bytes(&full.name);
    let choices = || [Some(&full), incremental.as_ref()].into_iter().flatten();
    let length = |choice: &Choice| choice.length_bytes.unwrap_or(0);
    // What is fetched, and what is copied from elsewhere.
    let dir = options.restore.paths.snapshots_dir();
    let added_bytes = choices().filter(|choice| !choice.is_in(dir)).map(length).sum();
    let (space, existing) = preview_fetched(&options.restore, choices().map(length).sum(), added_bytes)?;
    let (ways, options) = (bases::ways(report), options.clone());
    Ok(BootstrapPlan { full, incremental, ways, candidate, kept_bytes, space, existing, options, found })
}

/// Finds the best state, fetches its archives, and restores them while they arrive to a ledger that boots. Blocks until all is
/// on disk.
///
/// # Errors
/// [`ErrorKind::Network`](crate::ErrorKind::Network) if a later run may succeed: it continues with the bytes that have arrived.
/// [`ErrorKind::Damaged`](crate::ErrorKind::Damaged) if the state is not valid: nothing of it is left in place.
pub fn bootstrap(client: &Client, options: &BootstrapOptions, progress: &dyn Progress) -> Result<BootstrapReport> {
    execute(client, options, None, progress)
}

fn execute(
    client: &Client,
    options: &BootstrapOptions,
    found: Option<(FindReport, Left)>,
    progress: &dyn Progress,
) -> Result<BootstrapReport> {
    client.check_thread()?;
    let stopwatch = Stopwatch::start();
    let ledger = &options.restore.paths.ledger;
    KeptDir::open_or_make(ledger, &mut |_, _| {})?;
    let context = options.context(client);
    let (report, found) = match found {
        Some(found) => found,
        None => context.look(false, progress)?,
    };
    report.require_candidate()?;
    let servers: Vec<Url> = options.find.sources.iter().filter_map(|source| source.url().cloned()).collect();
    let servers: Vec<Url> = servers.iter().chain(&options.find.rpc).map(directory_of).collect();
    // The genesis is small: if it cannot be had, nothing else is fetched.
    let genesis = genesis::find(client, &servers, ledger, options.find.expected_genesis_hash, progress)?;
    report.relaxed.iter().for_each(|relaxed| progress.tell(&format!("Note: {relaxed}.")));
    let mut restore = options.restore.clone();
    // A server confirms only a name: the state must agree with it.
    if !options.trusted.is_empty() {
        restore.check.mode = CheckMode::State;
    }
    let (done, confirmed, last_byte_at) = std::thread::scope(|scope| {
        let (mut downloads, mut left) = (Downloads::new(scope, context, progress)?, Left::default());
        downloads.use_found(&mut left, found)?;
        let read = |supply: &mut dyn Supply| restore_supplied(supply, &restore, &options.expect_roots, progress);
        let done = run::run(&mut downloads, &mut left, &read)?;
        Ok::<_, Error>((done, downloads.confirmed, downloads.last_byte_at))
    })?;
    let genesis_hash = genesis.map(|genesis| genesis.place(ledger)).transpose()?;
    let archives = done.archives.into_iter().map(|archive| FetchedArchive { path: None, ..archive });
    Ok(BootstrapReport {
        archives: archives.collect(),
        vouchers: Vouchers { is_expected: options.restore.check.expect_hash.is_some(), confirmed },
        given_up: done.given_up,
        genesis_hash,
        restore: done.result,
        after_last_byte: last_byte_at.map(|at| at.elapsed()),
        elapsed: stopwatch.elapsed(),
    })
}

/// URL of the directory that contains an archive.
fn directory_of(url: &Url) -> Url {
    let mut url = url.clone();
    let is_file =
        url.path_segments().and_then(|mut segments| segments.next_back()).is_some_and(|last| last.contains(".tar"));
    if is_file && let Ok(mut segments) = url.path_segments_mut() {
        segments.pop();
    }
    url
}
