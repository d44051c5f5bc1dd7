//! From nothing to a ledger that boots: find the best state, fetch its archives, and restore them while they arrive.
//!
//! The download and the restore meet in a partial file ([`fetch`](mod@slotpress_net::fetch)): neither waits for the other but for
//! bytes. Not here: how bytes come, and how they become a ledger ([`restore`](mod@crate::restore)).

pub mod archives;
pub mod choose;
mod dropped;
mod expected;
pub mod genesis;
mod network;
mod supply;
pub mod trust;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use archives::FetchedArchive;
use choose::Choice;
use derive_setters::Setters;
use dropped::{Dropped, Wrong};
use expected::Expected;
use network::Network;
use serde::ser::SerializeStruct;
use serde::{Serialize, Serializer};
use slotpress_base::quantity::bytes;
use slotpress_base::threads::{guarded, spawn};
use slotpress_base::{Elapsed, Error, ErrorKind, KeptDir, Progress, Result, Space, Stopwatch, text};
use slotpress_format::{ArchiveName, Hash};
use slotpress_net::find::find;
use slotpress_net::{
    Candidate, Client, Download, Ended, FindOptions, FindReport, Limits, PartialFile, Remote, SourceArg, Url,
};
use slotpress_read::CheckMode;
use supply::{Asked, Context, Downloads, Supplement};
use trust::Vouchers;

use crate::restore::dry_run::preview_fetched;
use crate::restore::{RestoreReport, RestoreTarget, restore_supplied};

/// What to do about a download that did not end well.
const KEPT_HINT: &str = "received bytes are kept: run the same command again to continue";

/// What to do where sources send what is wrong.
const SOURCES_HINT: &str = "give other sources, or try again later";

/// Archives that are tried, when some vanish while they are fetched, or turn out to be wrong: each may cost a whole download.
const TRIES_MAX: usize = 8;

/// What to bootstrap from, and how.
#[derive(Clone, Debug, Setters)]
#[non_exhaustive]
pub struct BootstrapOptions {
    /// What sources to ask, and what is too old.
    pub find: FindOptions,
    /// Whether an incremental archive is wanted.
    pub wants_incremental: bool,
    /// Where to restore, and how.
    pub restore: RestoreTarget,
    /// Bounds of the downloads.
    pub limits: Limits,
    /// Servers that vouch for the state.
    #[setters(into)]
    pub trusted: Vec<Url>,
    /// The hash of the genesis.
    #[setters(into)]
    pub expected_genesis_hash: Option<Hash>,
}

impl BootstrapOptions {
    /// The best state that the sources have, into a new ledger.
    pub fn new(sources: impl IntoIterator<Item = SourceArg>, ledger: impl Into<PathBuf>) -> Self {
        Self {
            find: FindOptions::new(sources),
            wants_incremental: true,
            restore: RestoreTarget::new(ledger),
            limits: Limits::default(),
            trusted: Vec::new(),
            expected_genesis_hash: None,
        }
    }
}

/// What was bootstrapped.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct BootstrapReport {
    /// The archives, in order.
    pub archives: Vec<FetchedArchive>,
    /// Who vouches for the state.
    #[serde(flatten)]
    pub vouchers: Vouchers,
    /// The genesis hash, where the ledger has a genesis.
    pub genesis_hash: Option<Hash>,
    /// What was restored: a report of its own, from which this one repeats what was replaced.
    #[serde(rename = "replaced", serialize_with = "replaced")]
    pub restore: RestoreReport,
    /// Time from the start until everything was on disk.
    #[serde(rename = "elapsed_seconds", serialize_with = "Elapsed::wall_seconds")]
    pub elapsed: Elapsed,
    /// Of that, the time since the last byte had come from a server; `None` where nothing was fetched.
    #[serde(rename = "after_last_byte_seconds", serialize_with = "text::optional_seconds")]
    pub after_last_byte: Option<Duration>,
}

fn replaced<S: Serializer>(restore: &RestoreReport, serializer: S) -> std::result::Result<S::Ok, S::Error> {
    text::paths(&restore.replaced, serializer)
}

/// What a bootstrap would do.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct BootstrapPlan {
    /// The full archive.
    pub full: Choice,
    /// The incremental one, as of now.
    pub incremental: Option<Choice>,
    /// The best candidate; a report has its ages.
    #[serde(flatten, serialize_with = "ages")]
    pub candidate: Candidate,
    /// Bytes of the full archive that an earlier run left.
    pub kept_bytes: u64,
    /// About what would be written, by file system: how much archives unpack to is known when they are read.
    pub space: Vec<Space>,
    /// What there is of a state that would be replaced.
    #[serde(serialize_with = "text::paths")]
    pub existing: Vec<PathBuf>,
    #[serde(skip)]
    options: BootstrapOptions,
    #[serde(skip)]
    found: FindReport,
}

impl BootstrapPlan {
    /// Fetches and restores. Where what was found is gone by now, it looks again.
    ///
    /// # Errors
    /// As of [`bootstrap()`].
    pub fn execute(self, client: &Client, progress: &dyn Progress) -> Result<BootstrapReport> {
        run(client, &self.options, Some(self.found), progress)
    }
}

fn ages<S: Serializer>(candidate: &Candidate, serializer: S) -> std::result::Result<S::Ok, S::Error> {
    let mut fields = serializer.serialize_struct("Ages", 3)?;
    fields.serialize_field("age_slots", &candidate.age_slots)?;
    fields.serialize_field("age_seconds", &candidate.age.map(|age| age.as_secs_f64()))?;
    fields.serialize_field("expected_age_seconds", &candidate.expected_age.map(|age| age.as_secs_f64()))?;
    fields.end()
}

/// Looks at everything that [`bootstrap()`] looks at before it fetches, and refuses what that would refuse; fetches and writes
/// nothing.
///
/// # Errors
/// As of [`bootstrap()`].
pub fn plan_bootstrap(client: &Client, options: &BootstrapOptions, progress: &dyn Progress) -> Result<BootstrapPlan> {
    let dir = options.restore.paths.snapshots_dir().to_path_buf();
    let expected = Expected::of_check(&options.restore.check);
    let report = look_for(client, options, expected, &dir, progress)?;
    let candidate = report.require_candidate()?.clone();
    let full = choose_full(&report.candidates, &dir)?;
    let incremental = choose::incremental_of(&report.candidates, full.name.slot, expected);
    let kept_bytes = kept_bytes(&dir, &full.name);
    let choices = || [Some(&full), incremental.as_ref()].into_iter().flatten();
    let length = |choice: &Choice| choice.length_bytes.unwrap_or(0);
    let fetched_bytes = choices().filter(|choice| !choice.is_local()).map(length).sum();
    let (space, existing) = preview_fetched(&options.restore, choices().map(length).sum(), fetched_bytes)?;
    let options = options.clone();
    Ok(BootstrapPlan { full, incremental, candidate, kept_bytes, space, existing, options, found: report })
}

/// From nothing to a ledger that boots: finds the best state, fetches its archives, restores them while they arrive.
///
/// # Errors
/// Of [`ErrorKind::Network`] where a later run may do better: what has arrived is kept for it. Of
/// [`ErrorKind::Damaged`] where the state is not what it should be: nothing of it is left in place.
pub fn bootstrap(client: &Client, options: &BootstrapOptions, progress: &dyn Progress) -> Result<BootstrapReport> {
    run(client, options, None, progress)
}

/// Bootstraps from what was found, or looks first.
fn run(
    client: &Client,
    options: &BootstrapOptions,
    found: Option<FindReport>,
    progress: &dyn Progress,
) -> Result<BootstrapReport> {
    client.check_thread()?;
    let stopwatch = Stopwatch::start();
    let dir = options.restore.paths.snapshots_dir().to_path_buf();
    let ledger = &options.restore.paths.ledger;
    // Made now, so that what is fetched has a place; what fails later finds what has arrived there again.
    KeptDir::open_or_make(ledger, &mut |_, _| {})?;
    let kept_dir = KeptDir::open_or_make(&dir, &mut |_, _| {})?;
    let expected = Expected::of_check(&options.restore.check);
    let mut report = match found {
        Some(report) => report,
        None => look_for(client, options, expected, &dir, progress)?,
    };
    report.require_candidate()?;
    let servers: Vec<Url> = options.find.sources.iter().filter_map(|source| source.url().cloned()).collect();
    let servers: Vec<Url> = servers.iter().chain(&options.find.rpc).map(directory_of).collect();
    // It is small: where it is not to be had, nothing else is fetched.
    let genesis = genesis::find(client, &servers, ledger, options.expected_genesis_hash, progress)?;
    report.relaxed.iter().for_each(|relaxed| progress.tell(&format!("Note: {relaxed}.")));
    let mut tries = 0;
    let (mut unranged, mut answering) = (BTreeSet::new(), BTreeSet::new());
    let mut dropped = Dropped::default();
    let done = loop {
        let full = choose_full(&report.candidates, &dir)?;
        let newest = choose::newest_name(&report.candidates, &full.name, expected);
        trust::require(client, &options.trusted, &newest, progress)?;
        progress.tell(&format!("Fetching {} from {}", full.name, full.shown()));
        tries += 1;
        answering.extend(report.candidates.iter().map(|candidate| candidate.source.clone()));
        let known = Known { kept_dir: &kept_dir, unranged: &unranged, dropped: &dropped, answering: &answering };
        match attempt(client, options, &dir, &full, &known, progress) {
            Ok(done) => break done,
            Err(Failure { unranged: servers, .. }) if !servers.is_empty() && tries < TRIES_MAX => {
                progress.warn(
                    "the server announced ranges but does not send them: using one connection, from the beginning",
                );
                unranged.extend(servers);
            }
            Err(Failure { error, wrong: Some(wrong), .. }) if tries < TRIES_MAX && !progress.is_interrupted() => {
                progress.warn(&format!("{error}: {} is not used any more", wrong.place));
                // What is wrong is of no use to a later run.
                remove_partial(&kept_dir, &wrong.name);
                dropped.add(*wrong, &error);
                dropped.remove_from(&mut report.candidates);
                if report.candidates.is_empty() {
                    // Who was lost may be back.
                    report = look_again(client, options, &dir, &dropped, progress)?;
                }
                if report.candidates.is_empty() {
                    return Err(dropped.nothing_left(&error));
                }
            }
            Err(Failure { error, lost: Some(lost), .. }) if tries < TRIES_MAX && !progress.is_interrupted() => {
                let is_incremental = lost.source.name.base_slot.is_some();
                for place in &lost.refuted {
                    dropped.add(Wrong { place: place.clone(), ..lost.source.clone() }, &error);
                }
                if lost.refuted.is_empty() && lost.is_as_before(client, progress) {
                    dropped.add(lost.source, &error);
                }
                // Another server's archive of the same name may do: it need not have the same bytes. An incremental one was the
                // newest when it was asked for.
                if !is_incremental {
                    drop_server(&mut report.candidates, &full);
                    dropped.remove_from(&mut report.candidates);
                }
                if is_incremental || report.candidates.is_empty() {
                    // The same server's too, where it was published again.
                    report = look_again(client, options, &dir, &dropped, progress)?;
                }
                if is_incremental && !report.candidates.is_empty() {
                    progress.warn(&format!("{error}: looking for the newest incremental archive again"));
                    continue;
                }
                if report.candidates.is_empty() {
                    return Err(if error.hint().is_some() { error } else { dropped.nothing_left(&error) });
                }
                let is_elsewhere = report.candidates.iter().any(|candidate| candidate.full.name == full.name);
                let lost = bytes(kept_bytes(&dir, &full.name));
                progress.warn(&format!("{error}; {lost} of {} may be fetched again", full.name));
                if !is_elsewhere {
                    remove_partial(&kept_dir, &full.name);
                }
            }
            Err(Failure { error, .. }) => return Err(error),
        }
    };
    let genesis_hash = genesis.map(|genesis| genesis.place(ledger)).transpose()?;
    Ok(BootstrapReport { genesis_hash, elapsed: stopwatch.elapsed(), ..done })
}

/// Why an attempt failed.
struct Failure {
    error: Error,
    /// The archive that cannot be had any more, as it was.
    lost: Option<Box<Asked>>,
    /// Servers that send no ranges although they said so.
    unranged: Box<[String]>,
    /// The archive that was read last, where it is not what it should be.
    wrong: Option<Box<Wrong>>,
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self { error, lost: None, unranged: Box::default(), wrong: None }
    }
}

/// What attempts share: what earlier ones have shown.
struct Known<'a> {
    /// The archives directory, as it was when the run began.
    kept_dir: &'a Arc<KeptDir>,
    /// Servers that say that they send ranges, and do not.
    unranged: &'a BTreeSet<String>,
    /// Archives that are wrong.
    dropped: &'a Dropped,
    /// Sources that have answered.
    answering: &'a BTreeSet<String>,
}

fn attempt(
    client: &Client,
    options: &BootstrapOptions,
    dir: &Path,
    full: &Choice,
    known: &Known<'_>,
    progress: &(dyn Progress + Sync),
) -> Result<BootstrapReport, Failure> {
    let is_expected = options.restore.check.expect_hash.is_some();
    let network = Network::new(progress);
    let mut find = options.find.clone();
    if !options.wants_incremental {
        find = find.rpc(Vec::new());
        find.cluster = None;
    }
    let context = Context {
        client,
        dir,
        kept_dir: known.kept_dir,
        limits: options.limits.clone(),
        sources: if options.wants_incremental { options.find.sources.clone() } else { Vec::new() },
        find,
        trusted: &options.trusted,
        unranged: known.unranged,
        dropped: known.dropped,
        expected: Expected::of_check(&options.restore.check),
        answering: known.answering,
        network: &network,
    };
    let mut restore_options = options.restore.clone();
    // Another source's word is worth nothing if the state is not what the name says.
    if !options.trusted.is_empty() {
        restore_options.check.mode = CheckMode::State;
    }
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let mut downloads = Downloads::new(scope, &context, full.clone());
        // Where no thread can be started, nothing is noted.
        let noting = spawn(scope, || network.note(&is_over)).ok();
        let result = guarded(|| restore_supplied(&mut downloads, &restore_options, progress));
        downloads.stop();
        if let Err(error) = &result
            && error.kind() == ErrorKind::Damaged
        {
            downloads.doubt(&error.to_string());
        }
        is_over.store(true, Relaxed);
        drop(noting.map(|noting| noting.join()));
        let vouchers = downloads.vouchers(is_expected);
        match result {
            Ok(restore) => Ok(BootstrapReport {
                after_last_byte: downloads.last_byte_at.map(|at| at.elapsed()),
                restore,
                archives: downloads.supplied.into_iter().map(Supplement::into_report).collect(),
                vouchers,
                genesis_hash: None,
                elapsed: Elapsed::default(),
            }),
            Err(error) => {
                let last = downloads.supplied.pop();
                let wrong = last.filter(|_| error.kind() == ErrorKind::Damaged).map(|last| Box::new(last.source));
                Err(Failure { wrong, ..failure(error, downloads.ended, downloads.asked, progress) })
            }
        }
    })
}

/// Why bytes did not come says more than that they were missed.
fn failure(error: Error, ended: Option<Ended>, asked: Option<Asked>, progress: &dyn Progress) -> Failure {
    if error.kind() == ErrorKind::Interrupted || progress.is_interrupted() {
        return Error::interrupted().with_hint(KEPT_HINT).into();
    }
    match ended {
        None => error.into(),
        // The restore itself found something wrong, and the download was stopped for it.
        Some(Ended::Failed(cause)) if cause.kind() == ErrorKind::Interrupted => error.into(),
        Some(ended) => {
            let failure = Failure::from(told(&ended));
            match (ended, asked) {
                (Ended::Lost(_) | Ended::Wrong(_) | Ended::First(_), Some(asked)) => {
                    Failure { lost: Some(Box::new(asked)), ..failure }
                }
                (Ended::NoRanges, Some(asked)) => {
                    Failure { unranged: asked.remotes.iter().map(Remote::origin).collect(), ..failure }
                }
                _ => failure,
            }
        }
    }
}

/// Why a download ended, with what to do.
fn told(ended: &Ended) -> Error {
    let error = ended.error();
    match error.kind() {
        ErrorKind::Network | ErrorKind::Interrupted if error.hint().is_none() => error.with_hint(KEPT_HINT),
        ErrorKind::Damaged if error.hint().is_none() => error.with_hint(SOURCES_HINT),
        _ => error,
    }
}

/// What sources have, and what is there already, of the state that is expected.
///
/// # Errors
/// Sources cannot be asked; or they have states, and none of them can become it.
fn look_for(
    client: &Client,
    options: &BootstrapOptions,
    expected: Expected,
    dir: &Path,
    progress: &dyn Progress,
) -> Result<FindReport> {
    let mut find_options = options.find.clone();
    find_options.expected_genesis_hash = options.expected_genesis_hash;
    let mut report = look_in(client, &find_options, options.wants_incremental, dir, progress)?;
    expected.choose_from(&mut report.candidates)?;
    Ok(report)
}

/// The same once more, without what is not used any more.
fn look_again(
    client: &Client,
    options: &BootstrapOptions,
    dir: &Path,
    dropped: &Dropped,
    progress: &dyn Progress,
) -> Result<FindReport> {
    let mut report = look_for(client, options, Expected::of_check(&options.restore.check), dir, progress)?;
    dropped.remove_from(&mut report.candidates);
    Ok(report)
}

/// What sources and a directory have.
fn look_in(
    client: &Client,
    options: &FindOptions,
    wants_incremental: bool,
    dir: &Path,
    progress: &dyn Progress,
) -> Result<FindReport> {
    // What is not measured is fetched the sooner.
    let mut find_options = options.clone().wants_incremental(wants_incremental).measures_single(false);
    // A full archive that is there need not be fetched.
    if has_archives(dir) {
        find_options.sources.push(SourceArg::LocalDir(dir.to_path_buf()));
    }
    find(client, &find_options, progress)
}

fn has_archives(dir: &Path) -> bool {
    fs::read_dir(dir).is_ok_and(|entries| {
        entries
            .flatten()
            .any(|entry| ArchiveName::from_path(&entry.path()).is_some_and(|name| name.base_slot.is_none()))
    })
}

/// Leaves out what the first server of a choice offers.
fn drop_server(candidates: &mut Vec<Candidate>, lost: &Choice) {
    let first = lost.first_place();
    candidates.retain(|candidate| candidate.full.name != lost.name || candidate.full.shown() != first);
}

fn choose_full(candidates: &[Candidate], dir: &Path) -> Result<Choice> {
    choose::full(candidates, |name| kept_bytes(dir, name) > 0)
        .ok_or_else(|| Error::new(ErrorKind::Network, "no source has a usable snapshot"))
}

/// Bytes that an earlier run left of an archive.
fn kept_bytes(dir: &Path, name: &ArchiveName) -> u64 {
    slotpress_net::fetch::partial::kept_bytes(dir, &name.to_string())
}

fn remove_partial(dir: &Arc<KeptDir>, name: &ArchiveName) {
    // Best effort: it is only in the way.
    drop(PartialFile::open_in(dir, &name.to_string()).and_then(|file| file.remove()));
}

/// Where a server has what belongs to an archive: beside it.
fn directory_of(url: &Url) -> Url {
    let mut url = url.clone();
    let is_file =
        url.path_segments().and_then(|mut segments| segments.next_back()).is_some_and(|last| last.contains(".tar"));
    if is_file && let Ok(mut segments) = url.path_segments_mut() {
        segments.pop();
    }
    url
}

/// Says what is there, and what is to be fetched.
fn tell_where_it_stands(name: &str, download: &Download, progress: &dyn Progress) {
    let kept = download.kept_bytes();
    if kept == 0 {
        return;
    }
    let of = download.length_bytes().map(|length| format!(" of {}", bytes(length))).unwrap_or_default();
    progress.tell(&format!("Resuming {name}: {}{of} are there", bytes(kept)));
}
