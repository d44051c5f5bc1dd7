//! The [`World`] of the program: asks sources and trusted servers, and fetches archives into a directory.
//!
//! `slotpress_net::retries` retries requests to a server that fails for a moment. [`next`](super::next)
//! decides what follows other failures.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::thread::{Scope, ScopedJoinHandle};
use std::time::Instant;

use slotpress_base::{
    Error, ErrorKind, EscapePath, FileStat, Forward, IoContext, KeptDir, Progress, ProgressEvent, Result, Stage,
    open_file, panic_error, quantity, spawn,
};
use slotpress_format::ArchiveName;
use slotpress_net::fetch::partial::kept_bytes;
use slotpress_net::find::find;
use slotpress_net::retries::Retries;
use slotpress_net::{
    Download, DownloadFault, Fetched, NetError, Offer, PartialFile, SourceLocation, accept_file, ask_patiently,
    remove_leftover_journal,
};
use slotpress_read::Publishable;

use super::choose::ChosenArchive;
use super::context::FetchContext;
use super::next::{FaultReason, KEPT_HINT, Selection};
use super::run::{ArchiveFault, FaultResult, ObtainedArchive, World};
use super::trust::Confirmations;

const SOURCES_HINT: &str = "use other sources, or try again later";

/// Thread of a download. Returns the result, and the time at which the download ended.
type DownloadThread<'scope> = ScopedJoinHandle<'scope, (Result<Fetched>, Instant)>;

pub struct Downloads<'scope, 'env> {
    scope: &'scope Scope<'scope, 'env>,
    pub context: FetchContext<'env>,
    dir: Arc<KeptDir>,
    /// Sources that have answered in this run. If one of them fails later, the run waits for it.
    answered_sources: BTreeSet<String>,
    /// Archives whose partial files this run has created or continued.
    partials: Vec<ArchiveName>,
    running: Option<DownloadThread<'scope>>,
    /// Answers of trusted servers about the archive that was confirmed last.
    pub confirmations: Confirmations,
    /// Time at which the last download was complete on disk.
    pub last_byte_at: Option<Instant>,
}

impl<'scope, 'env> Downloads<'scope, 'env> {
    /// Opens or creates the directory for downloads. After a failure, the directory and the received
    /// bytes stay.
    pub fn new(scope: &'scope Scope<'scope, 'env>, context: FetchContext<'env>) -> Result<Self> {
        let dir = KeptDir::open_or_create(&context.options.dir, &mut |_, _| {})?;
        Ok(Self {
            scope,
            context,
            dir,
            answered_sources: BTreeSet::new(),
            partials: Vec::new(),
            running: None,
            confirmations: Confirmations::default(),
            last_byte_at: None,
        })
    }

    /// Returns true for a `fetch` whose sources are all URLs of archives: only these archives are fetched.
    pub fn fetches_named_archives(&self) -> bool {
        let sources = &self.context.options.find.sources;
        let is_archive = |source: &SourceLocation| matches!(source, SourceLocation::ArchiveUrl(_));
        self.context.is_fetch() && !sources.is_empty() && sources.iter().all(is_archive)
    }

    /// Replaces the offers and the facts about this node. Keeps the failures.
    pub fn use_offers(&mut self, selection: &mut Selection, found: Selection) {
        for offer in &found.ranking.offers {
            self.answered_sources.insert(offer.source.clone());
        }
        selection.replace_offers(found);
    }

    /// Checks a local file and uses it instead of a download. `fetch` checks its content, `bootstrap` only
    /// its length.
    fn use_local_file(&self, choice: &ChosenArchive, path: &Path) -> FaultResult<ObtainedArchive> {
        let context = &self.context;
        let root = if context.is_fetch() {
            let progress = Forward::new(context.progress, forward_input);
            accept_file(path, context.options.expect_root, &progress)
        } else {
            check_length(path, choice.file_bytes).map(|()| None)
        };
        let root = root.map_err(unusable_fault)?;
        remove_leftover_journal(&context.options.dir, &choice.name.to_string())?;
        let mut obtained = ObtainedArchive::new(choice);
        obtained.archive.root = root;
        obtained.archive.path = Some(path.to_path_buf());
        obtained.stat = FileStat::read(path);
        Ok(obtained)
    }

    /// Decides what the failure of a download means for the archive and its sources.
    fn classify_failure(&self, error: Error, download: &Download) -> Box<ArchiveFault> {
        let Some(fault) = DownloadFault::classify(&error) else { return error.into() };
        let rejected = download.rejected_servers();
        let has_older_bytes = download.useful_bytes() < download.file.done_bytes();
        // A server without ranges sends all bytes again from the beginning.
        let is_resumable = download.file.identity().length_bytes.is_some();
        let reason = match fault {
            _ if !rejected.is_empty() => FaultReason::Unusable(rejected),
            DownloadFault::Wrong if has_older_bytes => FaultReason::OldBytes,
            DownloadFault::Lost if self.has_changed(download) => FaultReason::Replaced,
            _ => FaultReason::Unusable(Vec::new()),
        };
        let error = match error.kind() {
            _ if error.hint().is_some() => error,
            ErrorKind::Network if is_resumable => error.with_hint(KEPT_HINT),
            ErrorKind::Damaged => error.with_hint(SOURCES_HINT),
            _ => error,
        };
        ArchiveFault::new(reason, error)
    }

    /// Returns true unless the first server still has the same file, in which case asking the sources
    /// again would not help.
    fn has_changed(&self, download: &Download) -> bool {
        let Some(before) = download.first_remote() else { return false };
        let context = &self.context;
        let now = context.client.head(&before.requested_url, context.progress);
        !now.is_ok_and(|now| now.is_unchanged_since(before))
    }

    /// Adds the archives that a source offers now. Returns an error if the source answered earlier in this
    /// run and fails only temporarily now, since it may offer more later.
    fn ask_again(&self, source: &SourceLocation, selection: &mut Selection) -> Option<Error> {
        // Warnings about local archives have been reported already.
        let progress =
            Forward::new(self.context.progress, |event| (!matches!(event, ProgressEvent::Warning(_))).then_some(event));
        let client = self.context.client;
        let failure: Error = match client.list_offers_and_failure(source, &progress) {
            Ok((mut offers, failure)) => {
                // Leave out local full archives: this run may have just fetched one.
                offers.retain(|offer| !offer.is_full() || !offer.is_local());
                selection.add_offers(offers);
                failure?.into()
            }
            Err(error) => error,
        };
        let is_temporary = NetError::find_in(&failure).is_some_and(NetError::is_retryable);
        let has_answered = self.answered_sources.contains(&source.to_string());
        if is_temporary && has_answered { Some(failure) } else { None }
    }
}

impl World for Downloads<'_, '_> {
    fn progress(&self) -> &dyn Progress {
        self.context.progress
    }

    fn prefer_local_file(&self, mut choice: ChosenArchive) -> ChosenArchive {
        let path = choice.name.path_in(&self.context.options.dir);
        if path.symlink_metadata().is_ok() {
            choice.path = Some(path);
            choice.remotes.clear();
            choice.is_in_place = true;
        }
        choice
    }

    fn ask_sources(&mut self, selection: &mut Selection) -> Result<()> {
        if !self.fetches_named_archives() {
            let (_, found) = self.context.find_candidates()?;
            self.use_offers(selection, found);
            return Ok(());
        }
        let context = &self.context;
        let progress = context.progress;
        let give_up_after = context.options.limits.give_up_after;
        let mut offers: Vec<Offer> = Vec::new();
        for source in &context.options.find.sources {
            match ask_patiently(context.client, source, give_up_after, progress, progress) {
                Ok(found) => offers.extend(found),
                // Other sources may still have the archive.
                Err(_) if !selection.ranking.offers.is_empty() && !progress.is_interrupted() => {}
                Err(error) => return Err(error),
            }
        }
        selection.ranking.offers = offers;
        Ok(())
    }

    fn find_incremental(&mut self, selection: &mut Selection, full: &ChosenArchive) -> Result<()> {
        let context = &self.context;
        let progress = context.progress;
        let options = context.options.find.clone().max_measured_candidates(0);
        progress.stage(Stage::AskingForIncremental, None);
        let local = SourceLocation::Directory(context.options.dir.clone());
        // A source that answered before but fails now is asked again until any source has an incremental
        // archive. The other sources are asked only once.
        let mut unanswered: Vec<&SourceLocation> = options.sources.iter().chain([&local]).collect();
        let mut asks_cluster = options.asks_cluster();
        selection.ranking.offers.retain(Offer::is_full);
        let result = Retries::new(context.options.limits.give_up_after).run(progress, || {
            let mut failure = None;
            for source in std::mem::take(&mut unanswered) {
                if let Some(error) = self.ask_again(source, selection) {
                    unanswered.push(source);
                    failure = Some(error);
                }
            }
            if asks_cluster {
                match find(context.client, &options, progress) {
                    Ok(found) => {
                        asks_cluster = false;
                        selection.add_offers(found.ranking.offers);
                    }
                    Err(error) => failure = Some(error),
                }
            }
            if !context.is_fetch() {
                // A restore refuses archives that Agave does not read.
                let offers = &mut selection.ranking.offers;
                offers.retain(|offer| offer.name.compression.is_read_by_agave());
            }
            progress.check()?;
            match failure {
                Some(error) if selection.newest_incremental_on(full).is_none() => Err(error),
                _ => Ok(()),
            }
        });
        match result {
            Err(error) if error.kind() == ErrorKind::Network => {
                let slot = full.name.slot;
                let warning = format!("{error}: no incremental archive on slot {slot} is known");
                progress.warn(&warning);
                Ok(())
            }
            result => result,
        }
    }

    fn confirm(&mut self, choice: &ChosenArchive) -> FaultResult<()> {
        let context = &self.context;
        if context.options.trusted.is_empty() {
            return Ok(());
        }
        let confirmations = context.ask_trusted_servers(&choice.name)?;
        if let Some(error) = context.too_few_error(confirmations.confirmed_by.len(), &choice.name) {
            return Err(ArchiveFault::new(FaultReason::Unconfirmed, error));
        }
        self.confirmations = confirmations;
        Ok(())
    }

    fn begin(&mut self, selection: &Selection, choice: &ChosenArchive) -> FaultResult<ObtainedArchive> {
        let context = &self.context;
        let progress = context.progress;
        let name = choice.name.to_string();
        if let Some(path) = &choice.path {
            return self.use_local_file(choice, path);
        }
        progress.status(&format!("Fetching {name} from {}", choice.describe()));
        let file = Arc::new(PartialFile::open(&self.dir, &name)?);
        if !self.partials.contains(&choice.name) {
            self.partials.push(choice.name.clone());
        }
        let client = context.client.clone();
        let mut limits = context.options.limits.clone();
        limits.expect_root = context.options.expect_root;
        let download = Download::begin(client, file, choice.remotes.clone(), limits, progress);
        let download = Arc::new(download.map_err(|error| {
            let is_overstated = error.kind() == ErrorKind::NoSpace && selection.may_be_overstated(choice);
            if is_overstated || DownloadFault::classify(&error).is_some() {
                unusable_fault(error)
            } else {
                error.into()
            }
        })?);
        let kept_bytes = download.kept_bytes();
        let length = download.length_bytes();
        if kept_bytes > 0 {
            let kept = quantity::bytes(kept_bytes);
            let of_length = length.map_or(String::new(), |length| format!(" of {}", quantity::bytes(length)));
            progress.status(&format!("Resuming {name}: {kept}{of_length} already exist"));
        }
        // While a restore reads a full archive, progress shows the bytes of the restore.
        let shows_bytes = context.is_fetch() || choice.name.base_slot.is_some();
        if shows_bytes {
            progress.stage(Stage::Fetching, length);
            progress.advance(kept_bytes, 0);
        }
        let running = download.clone();
        let forward = if shows_bytes { forward_input } else { forward_without_bytes };
        let run = move || {
            let result = running.run(&Forward::new(progress, forward));
            (result, Instant::now())
        };
        self.running = Some(spawn(self.scope, run)?);
        let mut obtained = ObtainedArchive::new(choice);
        obtained.download = Some(download);
        Ok(obtained)
    }

    fn finish(&mut self, obtained: &mut ObtainedArchive) -> FaultResult<()> {
        let Some(download) = &obtained.download else { return Ok(()) };
        let Some(thread) = self.running.take() else { return Ok(()) };
        let joined = thread.join();
        let (result, end) = joined.unwrap_or_else(|panic| (Err(panic_error(panic.as_ref())), Instant::now()));
        let fetched = result.map_err(|error| self.classify_failure(error, download))?;
        self.last_byte_at = Some(end);
        let archive = &mut obtained.archive;
        archive.root = fetched.root;
        archive.fetched = Some(fetched);
        if self.context.is_fetch() {
            archive.path = Some(download.file.publish(&archive.name.to_string())?);
        }
        Ok(())
    }

    fn list_partials(&self) -> Vec<(ArchiveName, u64)> {
        let with_length = |name: &ArchiveName| (name.clone(), kept_bytes(&self.context.options.dir, &name.to_string()));
        self.partials.iter().map(with_length).collect()
    }

    fn remove_partial(&mut self, name: &ArchiveName) {
        self.partials.retain(|partial| partial != name);
        // An error is ignored: a remaining partial file only takes up space.
        let _ = PartialFile::open(&self.dir, &name.to_string()).and_then(|file| file.remove());
    }
}

/// Makes the fault for an error after which other archives may still work. An interruption ends the run.
fn unusable_fault(error: Error) -> Box<ArchiveFault> {
    match error.kind() {
        ErrorKind::Interrupted => error.into(),
        _ => ArchiveFault::new(FaultReason::Unusable(Vec::new()), error),
    }
}

fn check_length(path: &Path, stated_bytes: Option<u64>) -> Result<()> {
    let length_bytes = open_file(path)?.metadata().or_path("read", path)?.len();
    if let Some(stated) = stated_bytes
        && stated != length_bytes
    {
        let path = path.escaped();
        let message = format!("{path} has {length_bytes} bytes, not the {stated} that its source states");
        return Err(Error::damaged(message).with_hint("it was truncated or replaced: move it away"));
    }
    Ok(())
}

/// Forwards events of a download, except output bytes and `Arriving`: the download writes only the
/// received file, and no reader waits for its bytes.
fn forward_input(event: ProgressEvent<'_>) -> Option<ProgressEvent<'_>> {
    match event {
        ProgressEvent::Bytes { input, .. } => Some(ProgressEvent::Bytes { input, output: 0 }),
        ProgressEvent::Arriving(_) => None,
        event => Some(event),
    }
}

/// Forwards events of a download, except its bytes, because the restore's bytes are shown instead.
fn forward_without_bytes(event: ProgressEvent<'_>) -> Option<ProgressEvent<'_>> {
    (!matches!(event, ProgressEvent::Bytes { .. })).then_some(event)
}
