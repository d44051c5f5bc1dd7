//! The [`World`] of the program: asks sources and trusted servers, and fetches archives to
//! a directory.
//!
//! Requests to a server that fails for a moment are repeated by `retries` (in `slotpress_net`).
//! [`next`](super::next) decides what follows on a failure.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::{Scope, ScopedJoinHandle};
use std::time::Instant;

use slotpress_base::quantity::bytes;
use slotpress_base::threads::{panic_error, spawn};
use slotpress_base::{
    Error, ErrorKind, EscapePath, Forward, IoContext, KeptDir, Progress, ProgressEvent, Result, Stage, open_file,
};
use slotpress_format::ArchiveName;
use slotpress_net::fetch::partial::kept_bytes;
use slotpress_net::find::find;
use slotpress_net::retries::Retries;
use slotpress_net::{
    Download, DownloadFault, Fetched, NetError, Offer, PartialFile, SourceLocation, accept_file, ask_patiently,
    remove_left_journal,
};
use slotpress_read::Publishable;

use super::choose::ChosenArchive;
use super::look::FetchContext;
use super::next::{KEPT_HINT, Reason, Selection};
use super::run::{ArchiveFault, Attempted, ObtainedArchive, World, read_facts};
use super::trust::Confirmations;

/// Hint after sources sent a wrong archive.
const SOURCES_HINT: &str = "give other sources, or try again later";

/// Thread of a download. Returns its result, and the time of its end.
type Fetching<'scope> = ScopedJoinHandle<'scope, (Result<Fetched>, Instant)>;

pub struct Downloads<'scope, 'env> {
    scope: &'scope Scope<'scope, 'env>,
    pub context: FetchContext<'env>,
    dir: Arc<KeptDir>,
    /// Sources that have answered in this run. If one of them fails later, the run waits for it.
    answering: BTreeSet<String>,
    /// Archives whose partial files this run has made or continued.
    begun: Vec<ArchiveName>,
    running: Option<Fetching<'scope>>,
    /// Answers of trusted servers about the archive that was confirmed last.
    pub confirmed: Confirmations,
    /// Time at which the last download was complete on disk.
    pub last_byte_at: Option<Instant>,
}

impl<'scope, 'env> Downloads<'scope, 'env> {
    /// Creates the directory for downloads. After a failure, the directory stays, with the bytes
    /// that have arrived.
    pub fn new(scope: &'scope Scope<'scope, 'env>, context: FetchContext<'env>) -> Result<Self> {
        let dir = KeptDir::open_or_create(context.dir, &mut |_, _| {})?;
        Ok(Self {
            scope,
            context,
            dir,
            answering: BTreeSet::new(),
            begun: Vec::new(),
            running: None,
            confirmed: Confirmations::default(),
            last_byte_at: None,
        })
    }

    /// Returns true for a `fetch` whose sources are all URLs of archives: only these are fetched.
    pub fn is_exact(&self) -> bool {
        let sources = &self.context.find.sources;
        let is_exact = |source: &SourceLocation| matches!(source, SourceLocation::ArchiveUrl(_));
        self.context.is_fetch() && !sources.is_empty() && sources.iter().all(is_exact)
    }

    /// Replaces the offers and the facts about this node, but keeps the list of failures.
    pub fn use_offers(&mut self, selection: &mut Selection, found: Selection) {
        let sources = found.ranking.offers.iter().map(|offer| offer.source.clone());
        self.answering.extend(sources);
        selection.renew(found);
    }

    fn begin_file(&self, choice: &ChosenArchive, path: &Path) -> Attempted<ObtainedArchive> {
        let context = &self.context;
        let root = if context.is_fetch() {
            let shown = Forward::new(context.progress, forward_input);
            accept_file(path, context.limits.expect_root, &shown).map(|accepted| accepted.root)
        } else {
            check_length(path, choice.length_bytes).map(|()| None)
        };
        let root = root.map_err(to_unusable)?;
        remove_left_journal(context.dir, &choice.name.to_string())?;
        let mut obtained = ObtainedArchive::new(choice);
        obtained.archive.root = root;
        obtained.archive.path = Some(path.to_path_buf());
        obtained.file = Some(read_facts(path));
        Ok(obtained)
    }

    fn classify_failure(&self, error: Error, download: &Download) -> Box<ArchiveFault> {
        let Some(fault) = DownloadFault::classify(&error) else { return error.into() };
        let rejected = download.rejected_servers();
        let has_older = download.given_bytes() < download.file.done_bytes();
        // Bytes from a server without ranges are sent again from the beginning.
        let is_kept = download.file.identity().length_bytes.is_some();
        // If the server's file is unchanged, asking again would not help.
        let FetchContext { client, progress, .. } = self.context;
        let is_as_before = || match download.first_remote() {
            Some(before) => {
                client.head(&before.requested_url, progress).is_ok_and(|now| now.is_unchanged_since(before))
            }
            None => true,
        };
        let reason = match fault {
            DownloadFault::Wrong if has_older && rejected.is_empty() => Reason::KeptIsWrong,
            DownloadFault::Lost if rejected.is_empty() && !is_as_before() => Reason::PublishedAgain,
            _ => Reason::Unusable(rejected),
        };
        let error = match error.kind() {
            ErrorKind::Network if error.hint().is_none() && is_kept => error.with_hint(KEPT_HINT),
            ErrorKind::Damaged if error.hint().is_none() => error.with_hint(SOURCES_HINT),
            _ => error,
        };
        ArchiveFault::new(reason, error)
    }

    /// Adds the archives that a source offers now. Returns an error after which the source, which
    /// answered before, may still offer more.
    fn ask_again(&self, source: &SourceLocation, selection: &mut Selection) -> Option<Error> {
        // Warnings about local archives were given when these were first looked for.
        let silent =
            Forward::new(self.context.progress, |event| (!matches!(event, ProgressEvent::Warning(_))).then_some(event));
        let failure: Error = match self.context.client.list_offers_and_failure(source, &silent) {
            Ok((mut found, failure)) => {
                // Leaves out local full archives: this run may have just fetched one.
                found.retain(|offer| !offer.is_full() || !offer.is_local());
                selection.add(found);
                failure?.into()
            }
            Err(error) => error,
        };
        let may_pass = NetError::find_in(&failure).is_some_and(NetError::is_retryable);
        (may_pass && self.answering.contains(&source.to_string())).then_some(failure)
    }
}

impl World for Downloads<'_, '_> {
    fn progress(&self) -> &dyn Progress {
        self.context.progress
    }

    fn prefer_local_file(&self, mut choice: ChosenArchive) -> ChosenArchive {
        let path = choice.name.path_in(self.context.dir);
        if path.symlink_metadata().is_ok() {
            choice.path = Some(path);
            choice.remotes.clear();
            choice.is_in_place = true;
        }
        choice
    }

    fn look(&mut self, selection: &mut Selection) -> Result<()> {
        if !self.is_exact() {
            let (_, found) = self.context.look(false)?;
            self.use_offers(selection, found);
            return Ok(());
        }
        let FetchContext { client, progress, limits, .. } = self.context;
        let mut offers: Vec<Offer> = Vec::new();
        for source in &self.context.find.sources {
            match ask_patiently(client, source, limits.give_up_after, progress, progress) {
                Ok(found) => offers.extend(found),
                // Other sources may still have the archive.
                Err(_) if !selection.ranking.offers.is_empty() && !progress.is_interrupted() => {}
                Err(error) => return Err(error),
            }
        }
        selection.ranking.offers = offers;
        Ok(())
    }

    fn look_for_newest(&mut self, selection: &mut Selection, full: &ChosenArchive) -> Result<()> {
        let FetchContext { client, progress, limits, .. } = self.context;
        let is_fetch = self.context.is_fetch();
        let options = self.context.find.clone().measured_max(0);
        progress.stage(Stage::AskingForIncremental, None);
        let local = SourceLocation::Directory(PathBuf::from(self.context.dir));
        // Sources that answered before, but fail now, are asked again until any source has an
        // incremental archive. Sources that have answered now are not asked again.
        let mut unasked: Vec<&SourceLocation> = options.sources.iter().chain([&local]).collect();
        let mut asks_cluster = options.asks_cluster();
        selection.ranking.offers.retain(Offer::is_full);
        let answered = Retries::new(limits.give_up_after).run(progress, || {
            let mut failed = None;
            for source in std::mem::take(&mut unasked) {
                if let Some(error) = self.ask_again(source, selection) {
                    unasked.push(source);
                    failed = Some(error);
                }
            }
            if asks_cluster {
                match find(client, &options, progress) {
                    Ok(found) => {
                        asks_cluster = false;
                        selection.add(found.ranking.offers);
                    }
                    Err(error) => failed = Some(error),
                }
            }
            if !is_fetch {
                // A restore refuses archives that Agave does not read.
                selection.ranking.offers.retain(|offer| offer.name.compression.is_read_by_agave());
            }
            progress.check()?;
            match failed {
                Some(error) if selection.newest_on(full).is_none() => Err(error),
                _ => Ok(()),
            }
        });
        match answered {
            Err(error) if error.kind() == ErrorKind::Network => {
                let slot = full.name.slot;
                let warning = format!("{error}: no incremental archive on slot {slot} is known");
                progress.warn(&warning);
                Ok(())
            }
            answered => answered,
        }
    }

    fn confirm(&mut self, choice: &ChosenArchive) -> Attempted<()> {
        let trust = &self.context.trust;
        if trust.trusted.is_empty() {
            return Ok(());
        }
        let confirmed = trust.confirm(&choice.name)?;
        if let Some(too_few) = trust.too_few_error(&confirmed, &choice.name) {
            return Err(ArchiveFault::new(Reason::Unconfirmed, too_few));
        }
        self.confirmed = confirmed;
        Ok(())
    }

    fn begin(&mut self, selection: &Selection, choice: &ChosenArchive) -> Attempted<ObtainedArchive> {
        let FetchContext { client, progress, limits, .. } = self.context;
        let name = choice.name.to_string();
        if let Some(path) = &choice.path {
            return self.begin_file(choice, path);
        }
        progress.status(&format!("Fetching {name} from {}", choice.describe()));
        let file = Arc::new(PartialFile::open(&self.dir, &name)?);
        if !self.begun.contains(&choice.name) {
            self.begun.push(choice.name.clone());
        }
        let remotes = choice.remotes.clone();
        let download = Download::begin(client.clone(), file, remotes, limits.clone(), progress);
        let download = Arc::new(download.map_err(|error| {
            let is_too_long = error.kind() == ErrorKind::NoSpace && selection.is_overstated(choice);
            if is_too_long || DownloadFault::classify(&error).is_some() { to_unusable(error) } else { error.into() }
        })?);
        let kept = download.kept_bytes();
        let length = download.length_bytes();
        if kept > 0 {
            let of = length.map_or(String::new(), |length| format!(" of {}", bytes(length)));
            progress.status(&format!("Resuming {name}: {}{of} are there", bytes(kept)));
        }
        // While a restore reads a full archive, progress shows the bytes of the restore.
        let is_shown = self.context.is_fetch() || choice.name.base_slot.is_some();
        if is_shown {
            progress.stage(Stage::Fetching, length);
            progress.advance(kept, 0);
        }
        let running = download.clone();
        let shown = if is_shown { forward_input } else { forward_without_bytes };
        let run = move || (running.run(&Forward::new(progress, shown)), Instant::now());
        self.running = Some(spawn(self.scope, run)?);
        let mut obtained = ObtainedArchive::new(choice);
        obtained.download = Some(download);
        Ok(obtained)
    }

    fn finish(&mut self, obtained: &mut ObtainedArchive) -> Attempted<()> {
        let Some(download) = &obtained.download else { return Ok(()) };
        let Some(thread) = self.running.take() else { return Ok(()) };
        let (result, at) = thread.join().unwrap_or_else(|payload| (Err(panic_error(payload.as_ref())), Instant::now()));
        let fetched = result.map_err(|error| self.classify_failure(error, download))?;
        self.last_byte_at = Some(at);
        let archive = &mut obtained.archive;
        archive.root = fetched.root;
        archive.fetched = Some(fetched);
        if self.context.is_fetch() {
            archive.path = Some(download.file.publish(&archive.name.to_string())?);
        }
        Ok(())
    }

    fn list_kept(&self) -> Vec<(ArchiveName, u64)> {
        let kept = |name: &ArchiveName| (name.clone(), kept_bytes(self.context.dir, &name.to_string()));
        self.begun.iter().map(kept).collect()
    }

    fn remove(&mut self, name: &ArchiveName) {
        self.begun.retain(|begun| begun != name);
        // A failure is ignored: a remaining partial file only takes space.
        drop(PartialFile::open(&self.dir, &name.to_string()).and_then(|file| file.remove()));
    }
}

/// Classifies a failure that concerns only this archive.
fn to_unusable(error: Error) -> Box<ArchiveFault> {
    match error.kind() {
        ErrorKind::Interrupted => error.into(),
        _ => ArchiveFault::new(Reason::Unusable(Vec::new()), error),
    }
}

/// Fails if a file does not have the length that its source states.
fn check_length(path: &Path, stated_bytes: Option<u64>) -> Result<()> {
    let length_bytes = open_file(path)?.metadata().or_path("read", path)?.len();
    if let Some(stated) = stated_bytes
        && stated != length_bytes
    {
        let path = path.escaped();
        let message = format!("{path} has {length_bytes} bytes, not the {stated} that its source states");
        return Err(Error::damaged(message).with_hint("it was cut off or replaced: move it away"));
    }
    Ok(())
}

/// Forwards events of a download, except output bytes and `Arriving`: a download writes only the
/// received file, and no reader waits for its bytes.
fn forward_input(event: ProgressEvent<'_>) -> Option<ProgressEvent<'_>> {
    match event {
        ProgressEvent::Bytes { input, .. } => Some(ProgressEvent::Bytes { input, output: 0 }),
        ProgressEvent::Arriving(_) => None,
        event => Some(event),
    }
}

/// Forwards events of a download, except its bytes: the bytes of the restore are shown.
fn forward_without_bytes(event: ProgressEvent<'_>) -> Option<ProgressEvent<'_>> {
    (!matches!(event, ProgressEvent::Bytes { .. })).then_some(event)
}
