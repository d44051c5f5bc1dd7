//! Bootstraps a node: finds the best state, fetches its archives, and restores them while they
//! arrive.
//!
//! This module decides which archives are used, and what to try when one of them fails.
//! [`fetch`](mod@slotpress_net::fetch) downloads archives, and [`restore`](mod@crate::restore) makes
//! the ledger: it reads the partial file of a running download, and waits only for the bytes that it needs next.
//!
//! ```no_run
//! use slotpress::NoProgress;
//! use slotpress::bootstrap::{BootstrapOptions, bootstrap};
//! use slotpress::net::{Client, ClientOptions, SourceLocation};
//!
//! let client = Client::new(&ClientOptions::default())?;
//! let sources = ["https://mirror.example".parse::<SourceLocation>()?];
//! let report = bootstrap(&client, &BootstrapOptions::new(sources, "/mnt/ledger"), &NoProgress)?;
//! println!("a ledger at slot {}", report.restore.slot);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub(crate) mod bases;
pub(crate) mod choose;
mod context;
mod downloads;
pub(crate) mod fetch;
pub(crate) mod genesis;
pub(crate) mod next;
mod run;
mod supply;
pub(crate) mod trust;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use bases::Route;
use choose::ChosenArchive;
use context::FetchContext;
use derive_setters::Setters;
use downloads::Downloads;
use fetch::{FetchOptions, FetchedArchive};
pub use next::AbandonedState;
use next::{Attempt, Selection};
use serde::ser::SerializeStruct;
use serde::{Serialize, Serializer};
use slotpress_base::{Elapsed, KeptDir, Progress, Result, Space, Stopwatch, saturating_add_to, text};
use slotpress_format::{ArchiveRoot, Hash};
use slotpress_net::fetch::partial::reserved_bytes;
use slotpress_net::{Candidate, Client, FetchLimits, FindOptions, Url};
use slotpress_read::CheckMode;
use trust::check_quorum;
pub use trust::{Confirmations, Unconfirmed};

use crate::restore::target::RestoredBytes;
use crate::restore::{MAINNET_RATIO, Preview, RestoreReport, Supply, TargetOptions, restore_supplied};

/// Options of [`bootstrap()`]: sources, destination and settings.
#[derive(Clone, Debug, Setters)]
#[non_exhaustive]
pub struct BootstrapOptions {
    /// Sources to ask, and the maximum age.
    pub find: FindOptions,
    /// Full archives that the node has outside the snapshots directory. If a source has an
    /// incremental archive on one of them, and this is the best choice, only the incremental
    /// archive is fetched. Default: none.
    #[setters(into)]
    pub bases: Vec<PathBuf>,
    /// Destination and settings of the restore, which the setters of these options set too.
    pub target: TargetOptions,
    /// Limits of the downloads.
    pub limits: FetchLimits,
    /// Trusted servers. Before anything is fetched, they are asked whether they have the same
    /// state. If one has a different state of the slot, the run ends. With trusted servers, the state
    /// is always checked, because they confirm only a name. Default: none.
    #[setters(into)]
    pub trusted: Vec<Url>,
    /// Number of trusted servers that must confirm the state, 1 to the length of `trusted`. Ignored
    /// without trusted servers. Default: 1.
    pub quorum: usize,
    /// Roots that the archives must have: first the root of the full archive, then the root of the
    /// incremental one. Default: none, and any root is accepted.
    #[setters(into)]
    pub expect_roots: Vec<ArchiveRoot>,
}

impl BootstrapOptions {
    /// Creates options that restore the best state of these sources to a ledger.
    pub fn new(find: impl Into<FindOptions>, target: impl Into<TargetOptions>) -> Self {
        Self {
            find: find.into(),
            bases: Vec::new(),
            target: target.into(),
            limits: FetchLimits::default(),
            trusted: Vec::new(),
            quorum: 1,
            expect_roots: Vec::new(),
        }
    }

    fn context<'a>(&'a self, client: &'a Client, progress: &'a dyn Progress) -> Result<FetchContext<'a>> {
        check_quorum(&self.trusted, self.quorum)?;
        let options = FetchOptions::new(self.find.clone(), self.target.paths.snapshots_dir())
            .limits(self.limits.clone())
            .trusted(self.trusted.clone())
            .quorum(self.quorum);
        Ok(FetchContext { client, progress, options, bootstrap: Some(self), is_plan: false })
    }
}

/// Result of the function [`bootstrap()`].
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct BootstrapReport {
    /// Archives from which the ledger was restored, the full one first. Their paths are
    /// in `restore`.
    pub archives: Vec<FetchedArchive>,
    /// Answers of the trusted servers about the newest archive, and whether the caller passed its hash.
    #[serde(flatten)]
    pub confirmations: Confirmations,
    /// A newer state that a source offered, but that could not be used.
    pub abandoned: Option<AbandonedState>,
    /// Hash of the ledger's `genesis.bin`, which existed or was fetched; `None` if no source
    /// has one.
    pub genesis_hash: Option<Hash>,
    /// Report of the restore. Serializes as the paths that it replaced.
    #[serde(rename = "replaced", serialize_with = "serialize_replaced")]
    pub restore: RestoreReport,
    /// Time from the start until everything was on disk.
    #[serde(rename = "elapsed_seconds", serialize_with = "Elapsed::serialize_wall_seconds")]
    pub elapsed: Elapsed,
    /// Time from the end of the last download to the end of the run; `None` if nothing was fetched.
    #[serde(rename = "after_last_byte_seconds", serialize_with = "text::optional_seconds")]
    pub after_last_byte: Option<Duration>,
}

fn serialize_replaced<S: Serializer>(restore: &RestoreReport, serializer: S) -> std::result::Result<S::Ok, S::Error> {
    text::paths(&restore.replaced, serializer)
}

/// Result of the function [`plan_bootstrap`].
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct BootstrapPlan {
    #[doc(hidden)]
    pub full: ChosenArchive,
    /// The newest incremental archive at the time of planning.
    #[doc(hidden)]
    pub incremental: Option<ChosenArchive>,
    /// Combinations of archives that were compared, best first.
    #[doc(hidden)]
    pub routes: Vec<Route>,
    /// The best candidate. Serializes as its ages.
    #[serde(flatten, serialize_with = "serialize_ages")]
    pub candidate: Candidate,
    /// Number of bytes of the full archive that an earlier run has fetched.
    pub kept_bytes: u64,
    /// Estimated bytes to write per file system. Exact sizes are known only when archives are read.
    pub space: Vec<Space>,
    /// Paths of an existing state that would be replaced.
    #[serde(serialize_with = "text::paths")]
    pub existing: Vec<PathBuf>,
    #[serde(skip)]
    space_check: Result<()>,
}

impl BootstrapPlan {
    /// Checks that there is enough space for the ledger.
    ///
    /// # Errors
    /// [`ErrorKind::NoSpace`](crate::ErrorKind::NoSpace) if there is not enough space.
    pub fn check_space(&self) -> Result<()> {
        self.space_check.clone()
    }
}

fn serialize_ages<S: Serializer>(candidate: &Candidate, serializer: S) -> std::result::Result<S::Ok, S::Error> {
    let mut fields = serializer.serialize_struct("Ages", 3)?;
    fields.serialize_field("age_slots", &candidate.age_slots)?;
    fields.serialize_field("age_seconds", &candidate.age.map(|age| age.as_secs_f64()))?;
    fields.serialize_field("expected_age_seconds", &candidate.expected_age.map(|age| age.as_secs_f64()))?;
    fields.end()
}

/// Plans a bootstrap: finds the candidates and examines the target, as [`bootstrap()`] does first. Asks no
/// trusted servers, does not fetch the genesis, and writes nothing.
///
/// # Errors
/// No source has a usable archive, the target is unsuitable for a restore, or the quorum is too large.
pub fn plan_bootstrap(client: &Client, options: &BootstrapOptions, progress: &dyn Progress) -> Result<BootstrapPlan> {
    let context = FetchContext { is_plan: true, ..options.context(client, progress)? };
    let (report, selection) = context.find_candidates()?;
    let candidate = report.require_candidate()?.clone();
    let attempt = selection.choose_archives(&candidate);
    let Preview { space, existing, space_check } = preview_restore(options, &attempt, context.is_plan)?;
    let Attempt { full, incremental } = attempt;
    let kept_bytes = selection.node.kept_bytes(&full.name);
    let routes = bases::list_routes(&report);
    Ok(BootstrapPlan { full, incremental, routes, candidate, kept_bytes, space, existing, space_check })
}

/// Estimates what a restore of these archives would write, and finds what it would replace.
fn preview_restore(options: &BootstrapOptions, attempt: &Attempt, is_plan: bool) -> Result<Preview> {
    let dir = options.target.paths.snapshots_dir();
    let mut unpacked_bytes = 0u64;
    let mut archives_bytes = 0u64;
    for archive in attempt.archives() {
        let file_bytes = archive.file_bytes.unwrap_or(0);
        saturating_add_to(&mut unpacked_bytes, file_bytes.saturating_mul(MAINNET_RATIO));
        if !archive.takes_no_room(dir) {
            // An earlier run may already have reserved disk space for the archive.
            let reserved_bytes = reserved_bytes(dir, &archive.name.to_string());
            saturating_add_to(&mut archives_bytes, file_bytes.saturating_sub(reserved_bytes));
        }
    }
    let bytes = RestoredBytes { unpacked_bytes, archives_bytes };
    Preview::new(&options.target, &attempt.newest().name, bytes, is_plan)
}

/// Finds the best state, fetches its archives, and restores them while they arrive. The result is a
/// ledger from which a validator boots. Blocks until the ledger is on disk.
///
/// # Errors
/// [`ErrorKind::Network`](crate::ErrorKind::Network) if a later run may succeed: it continues with
/// the bytes that have arrived. [`ErrorKind::Damaged`](crate::ErrorKind::Damaged) if the state is
/// not valid: none of it is left in place. Also fails if the target is unsuitable for a restore.
pub fn bootstrap(client: &Client, options: &BootstrapOptions, progress: &dyn Progress) -> Result<BootstrapReport> {
    client.check_thread()?;
    let stopwatch = Stopwatch::start();
    let ledger = &options.target.paths.ledger;
    let context = options.context(client, progress)?;
    let (report, offered) = context.find_candidates()?;
    let attempt = offered.choose_archives(report.require_candidate()?);
    let space_check = preview_restore(options, &attempt, context.is_plan)?.space_check;
    // If a source may have overstated a length, the run continues, and may try another archive.
    if !attempt.archives().any(|archive| offered.may_be_overstated(archive)) {
        space_check?;
    }
    // The genesis is small, so it is fetched first: if it is wrong, no archive is fetched for nothing.
    let genesis = context.find_genesis(&report.ranking.offers, ledger)?;
    KeptDir::open_or_create(ledger, &mut |_, _| {})?;
    for note in &report.notes {
        progress.status(&format!("Note: {note}."));
    }
    let mut target = options.target.clone();
    target.genesis = genesis.fetched.iter().map(|fetched| fetched.genesis).collect();
    // Servers confirm only the name of an archive, so the state must be checked against the name.
    if !options.trusted.is_empty() {
        target.check.mode = CheckMode::State;
    }
    let read = |supply: &mut dyn Supply| restore_supplied(supply, &target, &options.expect_roots, progress);
    std::thread::scope(|scope| {
        let mut downloads = Downloads::new(scope, context)?;
        let mut selection = Selection::default();
        downloads.use_offers(&mut selection, offered);
        let finished = run::run(&mut downloads, &mut selection, &read)?;
        let genesis_hash = genesis.write_matching(&finished.result, ledger, progress);
        let archives = finished.archives.into_iter().map(|archive| FetchedArchive { path: None, ..archive });
        let is_expected = Some(options.target.check.expect_hash.is_some());
        Ok(BootstrapReport {
            archives: archives.collect(),
            confirmations: Confirmations { is_expected, ..downloads.confirmations },
            abandoned: finished.abandoned,
            genesis_hash,
            restore: finished.result,
            after_last_byte: downloads.last_byte_at.as_ref().map(Instant::elapsed),
            elapsed: stopwatch.elapsed(),
        })
    })
}
