//! The archives of a bootstrap, one after the other: the full one first, read while it arrives, and when that has been
//! read, the incremental one that is the newest then.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::{Scope, ScopedJoinHandle};
use std::time::Instant;

use slotpress_base::threads::{panicked, spawn};
use slotpress_base::{Error, ErrorKind, KeptDir, Progress, Result, ShowPath};
use slotpress_format::ArchiveName;
use slotpress_net::find::{self};
use slotpress_net::patience::patiently;
use slotpress_net::{
    Client, Download, Ended, Fetched, FindOptions, Limits, NetError, Offer, PartialFile, Remote, SourceArg, Url,
    remove_left_journal, take_up,
};
use slotpress_read::Source;

use super::archives::FetchedArchive;
use super::choose::{Choice, Places};
use super::dropped::{Dropped, Wrong};
use super::expected::Expected;
use super::network::Network;
use super::trust::{self, Vouchers};
use crate::restore::{Supplied, Supply};

/// Incremental archives that are begun, when each is gone before it has come.
const INCREMENTAL_TRIES_MAX: usize = 5;

/// What a supply needs to know.
pub struct Context<'a> {
    /// Speaks to servers.
    pub client: &'a Client,
    /// The archives directory: its path, and as it was when the run began.
    pub dir: &'a Path,
    /// See there.
    pub kept_dir: &'a Arc<KeptDir>,
    /// Bounds of each download.
    pub limits: Limits,
    /// Where incremental archives are looked for; none, where none are wanted.
    pub sources: Vec<SourceArg>,
    /// How peers are found, where sources alone do not do.
    pub find: FindOptions,
    /// Servers that vouch for archives.
    pub trusted: &'a [Url],
    /// Servers that say that they send ranges, and do not.
    pub unranged: &'a BTreeSet<String>,
    /// Archives that failed a check.
    pub dropped: &'a Dropped,
    /// The state that was asked for.
    pub expected: Expected,
    /// Sources that have answered in this run: only these are waited for.
    pub answering: &'a BTreeSet<String>,
    /// What arrives.
    pub network: &'a Network<'a>,
}

/// One archive that was supplied.
pub struct Supplement {
    /// Its name.
    pub name: ArchiveName,
    /// What to hold against it where it is not what it should be.
    pub source: Wrong,
    /// Servers that vouch for it.
    pub vouching: Vec<String>,
    /// What was fetched; `None` where it was there.
    pub fetched: Option<Fetched>,
}

impl Supplement {
    /// What a report says of it.
    pub fn into_report(self) -> FetchedArchive {
        let root = self.fetched.as_ref().and_then(|fetched| fetched.root);
        FetchedArchive { name: self.name, path: None, fetched: self.fetched, root }
    }
}

/// An archive that servers were asked for.
pub struct Asked {
    /// What to hold against them where they do not send it.
    pub source: Wrong,
    /// What they said of it.
    pub remotes: Vec<Remote>,
    /// Where those of them have it whose bytes failed a check.
    pub refuted: Vec<String>,
}

impl Asked {
    /// Whether its server still says that it has what it does not send: asking again does not help. Of a full archive that
    /// must be sure; for an incremental one, the full one would be read again.
    pub fn is_as_before(&self, client: &Client, progress: &dyn Progress) -> bool {
        let Some(before) = self.remotes.first() else { return true };
        client.head(&before.asked, progress).is_ok_and(|now| match self.source.name.base_slot {
            None => now.is_as(before),
            Some(_) => {
                (now.length_bytes, now.etag, now.last_modified)
                    == (before.length_bytes, before.etag.clone(), before.last_modified.clone())
            }
        })
    }
}

/// Downloads in the background.
pub struct Downloads<'scope, 'env, 'a> {
    scope: &'scope Scope<'scope, 'env>,
    context: &'env Context<'a>,
    full: Choice,
    /// Where the full archive comes from.
    full_place: String,
    running: Option<Running<'scope>>,
    /// Those of them that are not named before all is checked.
    files: Vec<Arc<PartialFile>>,
    /// What was supplied, in order.
    pub supplied: Vec<Supplement>,
    /// Why a download ended, where it did not end well.
    pub ended: Option<Ended>,
    /// What was asked for last.
    pub asked: Option<Asked>,
    /// Places from which its end came too late, though others have it.
    late: BTreeSet<String>,
    /// When the last download had all its bytes, on disk.
    pub last_byte_at: Option<Instant>,
    is_over: bool,
}

struct Running<'scope> {
    file: Arc<PartialFile>,
    download: Arc<Download>,
    thread: ScopedJoinHandle<'scope, (Result<Fetched, Ended>, Instant)>,
}

impl<'scope, 'env, 'a> Downloads<'scope, 'env, 'a> {
    /// Supplies `full`, and then what is the newest incremental archive on it.
    pub fn new(scope: &'scope Scope<'scope, 'env>, context: &'env Context<'a>, full: Choice) -> Self {
        Self {
            scope,
            context,
            full_place: full.first_place(),
            full,
            running: None,
            files: Vec::new(),
            supplied: Vec::new(),
            ended: None,
            asked: None,
            late: BTreeSet::new(),
            last_byte_at: None,
            is_over: false,
        }
    }

    /// Ends what is under way, and waits for it. What has arrived is kept.
    pub fn stop(&mut self) {
        if let Some(running) = &self.running {
            running.file.stop();
        }
        drop(self.finish_running());
    }

    /// What was restored from them failed a check: the next run looks at what is there again.
    pub fn doubt(&self, why: &str) {
        // Best effort: without it, the same bytes fail again.
        self.files.iter().filter(|file| file.path().exists()).for_each(|file| drop(file.check_failed(why)));
    }

    /// Waits for the download that is under way.
    fn finish_running(&mut self) -> Result<()> {
        let Some(Running { thread, download, .. }) = self.running.take() else { return Ok(()) };
        let (result, at) =
            thread.join().unwrap_or_else(|payload| (Err(Ended::Failed(panicked(payload.as_ref()))), Instant::now()));
        match result {
            Ok(fetched) => {
                self.last_byte_at = Some(at);
                if let Some(last) = self.supplied.last_mut() {
                    last.fetched = Some(fetched);
                }
                Ok(())
            }
            Err(ended) => {
                let error = ended.error();
                if let Some(asked) = &mut self.asked {
                    asked.refuted = download.rejected();
                    if let Ended::First(_) = ended {
                        self.late.insert(asked.source.place.clone());
                    }
                }
                self.ended.get_or_insert(ended);
                Err(error)
            }
        }
    }

    fn supply(&mut self, choice: Choice, vouching: Vec<String>) -> Result<Supplied> {
        let context = self.context;
        let progress = context.network;
        let in_place = choice.name.path_in(context.dir);
        let is_cut = match &choice.place {
            Places::Servers(remotes) => self.is_cut(&in_place, remotes)?,
            Places::Local(_) => false,
        };
        let is_in_place = !is_cut && in_place.is_file();
        let place = if is_in_place { in_place.shown() } else { choice.first_place() };
        let full_place = choice.name.base_slot.map(|_| self.full_place.clone());
        let source = Wrong { name: choice.name.clone(), place, is_in_place, full_place };
        let supplement =
            |vouching| Supplement { name: choice.name.clone(), source: source.clone(), vouching, fetched: None };
        let local = match choice.place {
            _ if is_in_place => Some(in_place),
            Places::Local(ref path) => Some(path.clone()),
            Places::Servers(_) => None,
        };
        if let Some(path) = local {
            remove_left_journal(context.dir, &choice.name.to_string())?;
            self.supplied.push(supplement(vouching));
            return Ok(Supplied::File(path));
        }
        let Places::Servers(ref remotes) = choice.place else { return Err(Error::failed("no server has it")) };
        let mut remotes = remotes.clone();
        self.asked = Some(Asked { source: source.clone(), remotes: remotes.clone(), refuted: Vec::new() });
        for remote in &mut remotes {
            remote.accepts_ranges &= !context.unranged.contains(&remote.origin());
        }
        let name = choice.name.to_string();
        let file = Arc::new(PartialFile::open_in(context.kept_dir, &name)?);
        let begun = Download::begin(context.client.clone(), file.clone(), remotes, context.limits.clone(), progress);
        let download = Arc::new(begun.map_err(|ended| {
            let error = ended.error();
            self.ended.get_or_insert(ended);
            error
        })?);
        super::tell_where_it_stands(&name, &download, progress);
        progress.watch(&file, &download);
        self.supplied.push(supplement(vouching));
        let running = download.clone();
        let thread = spawn(self.scope, move || (running.run(progress), Instant::now()))?;
        self.running = Some(Running { file: file.clone(), download, thread });
        self.files.push(file.clone());
        let source: Arc<dyn Source> = file.clone();
        Ok(Supplied::Arriving { source, name: Some(choice.name), file })
    }

    /// Whether a file of the archive's name is shorter than what servers have: what is there is gone on from.
    fn is_cut(&self, path: &Path, remotes: &[Remote]) -> Result<bool> {
        let Context { client, network, .. } = self.context;
        let Ok(metadata) = path.symlink_metadata() else { return Ok(false) };
        let length_bytes = remotes.first().and_then(|remote| remote.length_bytes);
        if length_bytes.is_none_or(|length| metadata.len() == length) {
            return Ok(false);
        }
        let broken = Error::damaged(format!("{} is not as long as what the server has", path.shown()));
        take_up(client, path, remotes, &broken, *network).map(|()| true)
    }

    /// The newest incremental archive, whole: sources replace theirs every minute or so, and one that is gone half-way
    /// would take what was restored of the full archive with it. Where none can be had, the full archive is the state.
    fn supply_incremental(&mut self) -> Result<Option<Supplied>> {
        let network = self.context.network;
        let (supplied, files) = (self.supplied.len(), self.files.len());
        let mut why = None;
        for _ in 0..INCREMENTAL_TRIES_MAX {
            let Some(choice) = self.newest_incremental()? else { break };
            let vouching = self.vouching_for(&choice.name)?;
            if !self.context.trusted.is_empty() && vouching.is_empty() {
                let name = &choice.name;
                network.warn(&format!("{name} has appeared meanwhile, and is left out: no trusted server confirms it"));
                return Ok(None);
            }
            network.tell(&format!("Fetching {} from {}", choice.name, choice.shown()));
            let name = choice.name.clone();
            let error =
                match self.supply(choice, vouching).and_then(|supplied| self.finish_running().map(|()| supplied)) {
                    Ok(supplied) => return Ok(Some(supplied)),
                    Err(error) => error,
                };
            let is_gone = match &self.ended {
                Some(Ended::Lost(_) | Ended::First(_)) => true,
                Some(Ended::Failed(error)) => error.kind() == ErrorKind::Network,
                _ => false,
            };
            if !is_gone || network.is_interrupted() {
                return Err(error);
            }
            self.ended = None;
            self.supplied.truncate(supplied);
            // No server has it any more. One whose download began is still open; best effort, it is only in the way.
            match self.files.len() > files {
                true => self.files.drain(files..).for_each(|file| drop(file.remove())),
                false => super::remove_partial(self.context.kept_dir, &name),
            }
            why = Some(error);
        }
        let Some(error) = why else { return Ok(None) };
        if self.context.expected.is_any() {
            return Err(error);
        }
        let full = &self.full.name;
        network.warn(&format!("no incremental archive could be fetched: {error}; this is the state of {full}"));
        Ok(None)
    }

    /// The newest incremental archive on the full one, as the sources are now.
    fn newest_incremental(&self) -> Result<Option<Choice>> {
        let Context { client, sources, find, network, dir, dropped, expected, .. } = self.context;
        // A full archive that is the state that was asked for takes none.
        if expected.is_any() && expected.is_named(&self.full.name) {
            return Ok(None);
        }
        if sources.is_empty() && find.rpc.is_empty() && find.cluster.is_none() {
            return Ok(None);
        }
        network.stage("Asking for the newest incremental archive", None);
        let base_slot = self.full.name.slot;
        let local = SourceArg::LocalDir(PathBuf::from(dir));
        // Answers stay; who has answered in this run, and does not now, is asked again, as long as none of the others has what is
        // wanted.
        let mut unasked: Vec<&SourceArg> = sources.iter().chain([&local]).collect();
        let mut asks_cluster = !find.rpc.is_empty() || find.cluster.is_some();
        let mut offers: Vec<Offer> = Vec::new();
        let ask = || {
            let mut failed = None;
            unasked.retain(|source| {
                let answer = client.offers_and_failure(source, *network).and_then(|(found, failure)| {
                    offers.extend(found);
                    failure.map_or(Ok(()), |failure| Err(failure.into()))
                });
                let failure = answer.err().and_then(may_pass);
                let is_asked_again = failure.is_some() && self.context.answering.contains(&source.to_string());
                let failure = failure.filter(|_| is_asked_again);
                failed = failure.or(failed.take());
                is_asked_again
            });
            if asks_cluster {
                match find::find(client, find, *network) {
                    Ok(found) => {
                        asks_cluster = false;
                        offers.extend(found.candidates.into_iter().filter_map(|candidate| candidate.incremental));
                    }
                    Err(error) => failed = Some(error),
                }
            }
            network.check()?;
            offers.retain(|offer| dropped.allows(offer, Some(&self.full_place)));
            // Of several that have it, those first that were neither slow nor wrong.
            offers.sort_by_cached_key(|offer| (self.late.contains(&offer.shown()), dropped.faults_of(offer)));
            match (super::choose::incremental(&offers, base_slot, *expected), failed) {
                (None, Some(error)) => Err(error),
                (choice, _) => Ok(choice),
            }
        };
        match patiently(self.context.limits.give_up_after, *network, ask) {
            Err(error) if error.kind() == ErrorKind::Network => {
                network.warn(&format!(
                    "{error}: no incremental archive is known, the ledger boots from the full one of slot {base_slot}"
                ));
                Ok(None)
            }
            result => result,
        }
    }

    /// Trusted servers that have an archive.
    fn vouching_for(&self, name: &ArchiveName) -> Result<Vec<String>> {
        trust::ask(self.context.client, self.context.trusted, name, self.context.network)
    }

    /// Who vouches for the state: the same as for its newest archive.
    pub fn vouchers(&self, is_expected: bool) -> Vouchers {
        let servers = self.supplied.last().map(|last| last.vouching.clone()).unwrap_or_default();
        Vouchers { is_expected, servers }
    }
}

impl Supply for Downloads<'_, '_, '_> {
    fn next(&mut self) -> Result<Option<Supplied>> {
        if self.supplied.is_empty() {
            let vouching = self.vouching_for(&self.full.name)?;
            return self.supply(self.full.clone(), vouching).map(Some);
        }
        self.finish_running()?;
        if self.is_over {
            return Ok(None);
        }
        self.is_over = true;
        let supplied = self.supply_incremental()?;
        let is_vouched = self.supplied.last().is_some_and(|last| !last.vouching.is_empty());
        if !self.context.trusted.is_empty() && !is_vouched {
            return Err(Error::new(ErrorKind::Network, "no trusted server confirms this archive")
                .with_hint("try again in a minute, or name another trusted server"));
        }
        Ok(supplied)
    }
}

/// A failure of the network that may pass.
fn may_pass(error: Error) -> Option<Error> {
    NetError::of(&error).is_some_and(NetError::is_retryable).then_some(error)
}
