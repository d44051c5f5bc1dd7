//! Archives only: fetched into a directory, checked as far as they can be while they arrive, and named.

use std::path::{Path, PathBuf};

use derive_setters::Setters;
use serde::ser::SerializeStruct;
use serde::{Serialize, Serializer};
use slotpress_base::{Elapsed, Error, ErrorKind, Forward, Hint, KeptDir, Progress, ProgressEvent, Result, Stopwatch};
use slotpress_format::{ArchiveName, Root};
use slotpress_net::{
    Client, Download, Ended, Fetched, FindOptions, Limits, Offer, Place, SourceArg, Url, accept_file, fetch_whole,
    patient_offers, remove_left_journal, take_up,
};

use super::choose::{Choice, Places};
use super::expected::Expected;
use super::trust::{self, Vouchers};
use super::{TRIES_MAX, choose, choose_full, look_in, told};

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
pub struct FetchedArchive {
    /// Its name.
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

/// What was fetched.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct FetchReport {
    /// The archives, the full one first.
    pub archives: Vec<FetchedArchive>,
    /// Who vouches for the newest of them.
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
/// Of [`ErrorKind::Network`] where a later run may do better: what has arrived is kept for it.
pub fn fetch(client: &Client, options: &FetchOptions, progress: &dyn Progress) -> Result<FetchReport> {
    client.check_thread()?;
    let stopwatch = Stopwatch::start();
    KeptDir::open_or_make(&options.dir, &mut |_, _| {})?;
    let mut archives = Vec::new();
    let is_exact = |source: &SourceArg| matches!(source, SourceArg::Archive(_));
    let mut vouching = Vec::new();
    if !options.find.sources.is_empty() && options.find.sources.iter().all(is_exact) {
        let choices = exact_choices(client, options, progress)?;
        if let Some(newest) = choices.last() {
            vouching = trust::require(client, &options.trusted, &newest.name, progress)?;
        }
        for choice in choices {
            archives.push(fetch_one(client, &choice, options, progress).map_err(|ended| told(&ended))?);
        }
    } else {
        let mut report = look_in(client, &options.find, options.wants_incremental, &options.dir, progress)?;
        report.require_candidate()?;
        if let Some(expected) = options.limits.expect_root {
            // Who says that it has another one need not be asked for it.
            report.candidates.retain(|candidate| candidate.full.root.is_none_or(|root| root == expected));
            if report.candidates.is_empty() {
                return Err(Error::new(ErrorKind::Network, format!("no source has the archive of root {expected}"))
                    .with_hint(Hint::UseFind));
            }
        }
        let mut tries = 0;
        let full = loop {
            let choice = choose_full(&report.candidates, &options.dir)?;
            tries += 1;
            let newest = choose::newest_name(&report.candidates, &choice.name, Expected::default());
            vouching = trust::require(client, &options.trusted, &newest, progress)?;
            match fetch_one(client, &choice, options, progress) {
                Ok(full) => break full,
                Err(Ended::Lost(error) | Ended::Wrong(error)) if tries < TRIES_MAX && report.candidates.len() > 1 => {
                    progress.warn(&format!("{error}: another one is fetched"));
                    super::drop_server(&mut report.candidates, &choice);
                    if report.candidates.is_empty() {
                        return Err(error);
                    }
                }
                Err(ended) => return Err(told(&ended)),
            }
        };
        let full_name = full.name.clone();
        archives.push(full);
        let mut newest = match options.wants_incremental {
            true => newest_incremental(client, options, full_name.slot, progress)?,
            false => None,
        };
        if let Some(choice) = &newest {
            vouching = trust::ask(client, &options.trusted, &choice.name, progress)?;
            if vouching.is_empty() && !options.trusted.is_empty() {
                let name = &choice.name;
                progress
                    .warn(&format!("{name} has appeared meanwhile, and is not fetched: no trusted server confirms it"));
                newest = None;
            }
        }
        match newest {
            Some(choice) => archives.push(fetch_one(client, &choice, options, progress).map_err(|ended| told(&ended))?),
            None => vouching = trust::require(client, &options.trusted, &full_name, progress)?,
        }
    }
    let vouchers = Vouchers { is_expected: false, servers: vouching };
    Ok(FetchReport { archives, vouchers, elapsed: stopwatch.elapsed() })
}

/// The archives whose URLs were given; several of one name are mirrors of it.
fn exact_choices(client: &Client, options: &FetchOptions, progress: &dyn Progress) -> Result<Vec<Choice>> {
    let mut choices: Vec<Choice> = Vec::new();
    for source in &options.find.sources {
        for Offer { name, place, length_bytes, .. } in
            patient_offers(client, source, options.limits.give_up_after, progress, progress)?
        {
            let Place::Remote(remote) = place else { continue };
            match choices.iter_mut().find(|choice| choice.name == name) {
                Some(Choice { place: Places::Servers(remotes), .. }) => remotes.push(remote),
                _ => choices.push(Choice { name, length_bytes, place: Places::Servers(vec![remote]) }),
            }
        }
    }
    choices.sort_by_key(|choice| (choice.name.base_slot.is_some(), choice.name.slot));
    Ok(choices)
}

fn newest_incremental(
    client: &Client,
    options: &FetchOptions,
    base_slot: u64,
    progress: &dyn Progress,
) -> Result<Option<Choice>> {
    let report = look_in(client, &options.find, true, &options.dir, progress)?;
    Ok(choose::incremental_of(&report.candidates, base_slot, Expected::default()))
}

fn fetch_one(
    client: &Client,
    choice: &Choice,
    options: &FetchOptions,
    progress: &dyn Progress,
) -> Result<FetchedArchive, Ended> {
    let name = choice.name.to_string();
    let done = |path, fetched, root| FetchedArchive { name: choice.name.clone(), path: Some(path), fetched, root };
    let remotes = match &choice.place {
        Places::Local(_) => Vec::new(),
        Places::Servers(remotes) => remotes.clone(),
    };
    if let Some(path) = found(choice, &options.dir) {
        match accept_file(&path, options.limits.expect_root, &Forward::new(progress, input_only)) {
            Ok(accepted) => {
                remove_left_journal(&options.dir, &name).map_err(Ended::Failed)?;
                return Ok(done(path, None, accepted.root));
            }
            Err(error) if error.kind() == ErrorKind::Damaged => {
                take_up(client, &path, &remotes, &error, progress).map_err(Ended::Failed)?;
            }
            Err(error) => return Err(Ended::Failed(error)),
        }
    }
    progress.tell(&format!("Fetching {name} from {}", choice.shown()));
    let on_begin = &mut |download: &Download| {
        super::tell_where_it_stands(&name, download, progress);
        progress.stage("Fetching", download.length_bytes());
        progress.advance(download.kept_bytes(), 0);
    };
    let (path, fetched) = fetch_whole(
        client,
        &options.dir,
        &name,
        remotes,
        &options.limits,
        &Forward::new(progress, input_only),
        on_begin,
    )?;
    let root = fetched.root;
    Ok(done(path, Some(fetched), root))
}

/// The archive, where it is on a local disk: in the directory, or where it was found.
fn found(choice: &Choice, dir: &Path) -> Option<PathBuf> {
    let in_place = choice.name.path_in(dir);
    match &choice.place {
        _ if in_place.symlink_metadata().is_ok() => Some(in_place),
        Places::Local(path) => Some(path.clone()),
        Places::Servers(_) => None,
    }
}

/// Counts what is read alone: nothing is compressed.
fn input_only(event: ProgressEvent<'_>) -> Option<ProgressEvent<'_>> {
    Some(match event {
        ProgressEvent::Bytes { input, .. } => ProgressEvent::Bytes { input, output: 0 },
        event => event,
    })
}
