//! The one way to get archives, for `fetch` and `bootstrap`: chooses archive and sources, and decides what follows on a failure.
//!
//! `patience` (in `slotpress_net`) asks a server again that fails for a moment. What comes after is decided here: the source is
//! given up for this run, and the next one is asked; an archive that was published again is begun again. Not here: the use of
//! the bytes.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use slotpress_base::quantity::bytes;
use slotpress_base::{Error, ErrorKind, Forward, Hint, KeptDir, Progress, ProgressEvent, Result, ShowPath};
use slotpress_format::ArchiveName;
use slotpress_net::fetch::partial::kept_bytes;
use slotpress_net::find::find;
use slotpress_net::patience::Patience;
use slotpress_net::{
    Client, Download, Fault, FindOptions, FindReport, Limits, NetError, Offer, PartialFile, Remote, SourceArg, Url,
    accept_file, patient_offers, remove_left_journal, take_up,
};

use super::archives::FetchedArchive;
use super::bases;
use super::choose::{self, Choice, Places};
use super::expected::Expected;
use super::rejected::{Rejected, RejectedArchives};
use super::trust;

/// Advice after a failed download.
pub const KEPT_HINT: &str = "received bytes are kept: run the same command again to continue";

/// Advice after sources sent a wrong archive.
const SOURCES_HINT: &str = "give other sources, or try again later";

/// Limit of attempts, when sources vanish, publish again, or send wrong archives: each may cost a whole download.
const ATTEMPTS_MAX: usize = 8;

#[derive(Clone)]
pub struct FetchContext<'a> {
    pub client: &'a Client,
    pub find: FindOptions,
    pub wants_incremental: bool,
    pub limits: &'a Limits,
    pub trusted: &'a [Url],
    pub expected: Expected,
    pub dir: &'a Path,
    /// Full archives elsewhere that the node has.
    pub bases: &'a [PathBuf],
    /// True if archives in the directory that are in the way of the state are moved aside.
    pub replaces_state: bool,
    /// True if complete files are checked here, because no one checks them later.
    pub accepts_files: bool,
}

impl FetchContext<'_> {
    /// Asks the sources for their archives, and looks for files in the directory.
    pub fn look(&self, progress: &dyn Progress) -> Result<FindReport> {
        // A single source is fetched sooner without measuring it.
        let mut options = self.find.clone().wants_incremental(self.wants_incremental).measures_single(false);
        // A full archive that is here need not be fetched.
        options.sources.extend(bases::local_sources(self.dir, self.bases)?);
        let mut report = find(self.client, &options, progress)?;
        self.expected.choose_from(&mut report.candidates)?;
        bases::rank(&mut report.candidates, self.dir, self.replaces_state);
        Ok(report)
    }

    /// The full archive to use among these offers; one whose download was begun before comes first, unless less is to be
    /// fetched to go on with one of `bases`.
    pub fn full_of(&self, offers: &[Offer], bases: &[ArchiveName]) -> Result<Choice> {
        let kept = |name: &ArchiveName| kept_bytes(self.dir, &name.to_string());
        let begun = choose::full(offers, |name| kept(name) > 0);
        let base = choose::full(offers, |_| false).filter(|full| full.is_local() && bases.contains(&full.name));
        let has_less = |base: &Choice| {
            let incremental = choose::incremental(offers, &base.name, self.expected);
            let begun = begun.as_ref().and_then(|begun| Some(begun.length_bytes?.saturating_sub(kept(&begun.name))));
            incremental.and_then(|incremental| incremental.length_bytes).zip(begun).is_none_or(|(own, left)| own < left)
        };
        let full = base.filter(has_less).or(begun.clone());
        full.ok_or_else(|| Error::new(ErrorKind::Network, "no source has a usable snapshot"))
    }
}

#[derive(Clone, Copy)]
pub enum ArchiveRequest<'w> {
    Full,
    Named(&'w ArchiveName),
    IncrementalOn(&'w ObtainedArchive),
}

pub struct ObtainedArchive {
    pub archive: FetchedArchive,
    /// Its source and name, to be dropped if it proves wrong.
    pub source: Rejected,
    pub vouching: Vec<String>,
    /// Its download; `None` if the file was there already.
    pub download: Option<Arc<Download>>,
}

pub struct Fetcher<'a> {
    context: FetchContext<'a>,
    dir: Arc<KeptDir>,
    progress: &'a dyn Progress,
    offers: Vec<Offer>,
    /// Sources that have answered in this run: only these are waited for.
    answering: BTreeSet<String>,
    /// Servers that announce ranges but do not send them.
    unranged: BTreeSet<String>,
    rejected: RejectedArchives,
    /// Full archives of this node that are of use only with an incremental archive.
    bases: Vec<ArchiveName>,
    base_in_use: Option<PathBuf>,
    /// False once one of them failed: the others are not tried.
    uses_bases: bool,
    current: Option<CurrentDownload>,
    failures: usize,
}

struct CurrentDownload {
    source: Rejected,
    remotes: Vec<Remote>,
    download: Option<Arc<Download>>,
    /// True if an earlier run or attempt left bytes of it.
    had_bytes: bool,
}

impl<'a> Fetcher<'a> {
    /// Creates the directory for the downloads, which stay there after a failure.
    pub fn new(context: FetchContext<'a>, progress: &'a dyn Progress) -> Result<Self> {
        let dir = KeptDir::open_or_make(context.dir, &mut |_, _| {})?;
        let (offers, rejected) = (Vec::new(), RejectedArchives::default());
        let (answering, unranged) = (BTreeSet::new(), BTreeSet::new());
        let (bases, base_in_use, uses_bases) = (Vec::new(), None, true);
        let (current, failures) = (None, 0);
        Ok(Self {
            context,
            dir,
            progress,
            offers,
            answering,
            unranged,
            rejected,
            bases,
            base_in_use,
            uses_bases,
            current,
            failures,
        })
    }

    /// If all sources are URLs of archives, those archives, full ones first; else nothing.
    pub fn named(&mut self) -> Result<Vec<ArchiveName>> {
        if !self.is_exact() {
            return Ok(Vec::new());
        }
        self.look()?;
        let mut names: Vec<ArchiveName> = Vec::new();
        for offer in &self.offers {
            if !names.contains(&offer.name) {
                names.push(offer.name.clone());
            }
        }
        names.sort_by_key(|name| (name.base_slot.is_some(), name.slot));
        Ok(names)
    }

    fn is_exact(&self) -> bool {
        let sources = &self.context.find.sources;
        let is_exact = |source: &SourceArg| matches!(source, SourceArg::Archive(_));
        self.context.accepts_files && !sources.is_empty() && sources.iter().all(is_exact)
    }

    pub fn look(&mut self) -> Result<()> {
        if !self.is_exact() {
            let report = self.context.look(self.progress)?;
            return self.use_found(&report);
        }
        let FetchContext { client, find, limits, .. } = &self.context;
        let ask = |source| patient_offers(client, source, limits.give_up_after, self.progress, self.progress);
        let mut offers = Vec::new();
        for source in &find.sources {
            match ask(source) {
                Ok(found) => offers.extend(found),
                // The others may still have it.
                Err(_) if self.current.is_some() && !self.progress.is_interrupted() => {}
                Err(error) => return Err(error),
            }
        }
        self.offers = offers;
        self.remove_useless()
    }

    pub fn use_found(&mut self, report: &FindReport) -> Result<()> {
        self.answering.extend(report.candidates.iter().map(|candidate| candidate.source.clone()));
        self.offers = choose::offers_of(&report.candidates);
        self.bases = bases::names_of(&report.candidates);
        self.remove_useless()
    }

    fn remove_useless(&mut self) -> Result<()> {
        self.remove_rejected();
        let Some(expected) = self.context.limits.expect_root.filter(|_| !self.offers.is_empty()) else { return Ok(()) };
        // Sources that announce another root are not asked.
        self.offers.retain(|offer| offer.root.is_none_or(|root| root == expected));
        match self.offers.is_empty() {
            true => Err(Error::new(ErrorKind::Network, format!("no source has the archive of root {expected}"))
                .with_hint(Hint::UseFind)),
            false => Ok(()),
        }
    }

    /// Downloads a whole archive, with repeated attempts; `None` if no incremental one can be had.
    pub fn whole(&mut self, request: ArchiveRequest<'_>) -> Result<Option<ObtainedArchive>> {
        let before = std::mem::take(&mut self.failures);
        let obtained = self.attempts_at(request);
        self.failures = before;
        obtained
    }

    fn attempts_at(&mut self, request: ArchiveRequest<'_>) -> Result<Option<ObtainedArchive>> {
        let mut last = None;
        loop {
            let failure = match self
                .begin(request)
                .and_then(|obtained| obtained.map(|obtained| self.run(obtained)).transpose())
            {
                Err(error) if self.current.is_some() => {
                    let is_wrong = Fault::of(&error) == Some(Fault::Wrong);
                    let failure = self.failed(error, request);
                    self.remove_empty(is_wrong);
                    failure
                }
                Ok(None) => break,
                obtained => return obtained,
            };
            match (failure, request) {
                (Ok(error), _) => last = Some(error),
                // The full archive alone is a state too.
                (Err(error), ArchiveRequest::IncrementalOn(_)) if Fault::of(&error).is_some() => {
                    last = Some(error);
                    break;
                }
                (Err(error), _) => return Err(error),
            }
        }
        let (Some(error), ArchiveRequest::IncrementalOn(full)) = (last, request) else { return Ok(None) };
        if self.context.expected.is_any() || self.base_in_use.is_some() {
            return Err(error);
        }
        if let Some(name) = self.current.as_ref().map(|current| current.source.name.clone()) {
            self.remove_partial(&name);
        }
        let full = &full.archive.name;
        self.progress.warn(&format!("no incremental archive could be fetched: {error}; this is the state of {full}"));
        Ok(None)
    }

    fn run(&self, mut obtained: ObtainedArchive) -> Result<ObtainedArchive> {
        if let Some(download) = &obtained.download {
            self.progress.stage("Fetching", download.length_bytes());
            self.progress.advance(download.kept_bytes(), 0);
            let fetched = download.run(&Forward::new(self.progress, input_only))?;
            (obtained.archive.root, obtained.archive.fetched) = (fetched.root, Some(fetched));
        }
        Ok(obtained)
    }

    /// Downloads the newest incremental archive on a full one, if one is wanted. With trusted servers, one must confirm either of the two.
    pub fn incremental_on(&mut self, full: &ObtainedArchive) -> Result<Option<ObtainedArchive>> {
        let obtained = self.whole(ArchiveRequest::IncrementalOn(full))?;
        if !self.context.trusted.is_empty() && obtained.as_ref().unwrap_or(full).vouching.is_empty() {
            return Err(Error::new(ErrorKind::Network, "no trusted server confirms this archive")
                .with_hint("try again in a minute, or name another trusted server"));
        }
        match &self.base_in_use {
            Some(base) if obtained.is_none() => Err(Error::new(
                ErrorKind::Network,
                format!("no source has an incremental archive on {} any more", base.shown()),
            )),
            _ => Ok(obtained),
        }
    }

    /// Chooses an archive and its servers, and begins its download unless the file is there already. After an error,
    /// [`has_asked`](Self::has_asked) tells whether the servers caused it.
    pub fn begin(&mut self, request: ArchiveRequest<'_>) -> Result<Option<ObtainedArchive>> {
        let before = self.current.take();
        let Some((choice, vouching)) = self.choose(request)? else {
            self.current = before;
            return Ok(None);
        };
        // The bytes of the archive chosen before are not needed any more.
        let before = before.map(|before| before.source.name);
        if let Some(name) = before.filter(|name| name.base_slot == choice.name.base_slot && *name != choice.name) {
            self.remove_partial(&name);
        }
        self.begin_at(choice, vouching, request).map(Some)
    }

    pub fn has_asked(&self) -> bool {
        self.current.is_some()
    }

    fn choose(&mut self, request: ArchiveRequest<'_>) -> Result<Option<(Choice, Vec<String>)>> {
        let FetchContext { client, trusted, expected, .. } = self.context;
        Ok(match request {
            ArchiveRequest::Full => {
                let full = self.context.full_of(&self.offers, &self.bases)?;
                self.base_in_use = match &full.place {
                    Places::Local(path) if self.bases.contains(&full.name) => Some(path.clone()),
                    _ => None,
                };
                let newest = choose::newest_name(&self.offers, &full.name, expected);
                let mut vouching = trust::require(client, trusted, &newest, self.progress)?;
                if newest != full.name && self.base_in_use.is_none() {
                    vouching = trust::ask(client, trusted, &full.name, self.progress)?;
                }
                Some((full, vouching))
            }
            ArchiveRequest::Named(name) => choose::named(&self.offers, name).map(|choice| (choice, Vec::new())),
            ArchiveRequest::IncrementalOn(full) => {
                let Some(choice) = self.newest_incremental(full)? else { return Ok(None) };
                let (name, vouching) = (&choice.name, trust::ask(client, trusted, &choice.name, self.progress)?);
                if !trusted.is_empty() && vouching.is_empty() {
                    self.progress.warn(&format!(
                        "{name} has appeared meanwhile, and is left out: no trusted server confirms it"
                    ));
                    return Ok(None);
                }
                Some((choice, vouching))
            }
        })
    }

    fn begin_at(
        &mut self,
        choice: Choice,
        vouching: Vec<String>,
        request: ArchiveRequest<'_>,
    ) -> Result<ObtainedArchive> {
        let FetchContext { client, limits, dir, .. } = self.context;
        let name = choice.name.to_string();
        let in_place = choice.name.path_in(dir);
        let is_in_place = in_place.symlink_metadata().is_ok();
        let place = if is_in_place { in_place.shown() } else { choice.first_place() };
        let full_place = match request {
            ArchiveRequest::IncrementalOn(full) => Some(full.source.place.clone()),
            ArchiveRequest::Full | ArchiveRequest::Named(_) => None,
        };
        let mut source = Rejected { name: choice.name.clone(), place, is_in_place, full_place };
        let mut archive = FetchedArchive { name: choice.name.clone(), path: None, fetched: None, root: None };
        let (local, mut remotes) = match &choice.place {
            Places::Local(path) => (Some(path.clone()), Vec::new()),
            Places::Servers(remotes) => (None, remotes.clone()),
        };
        if let Some(path) = if is_in_place { Some(in_place) } else { local } {
            let broken = match self.context.accepts_files {
                true => accept_file(&path, limits.expect_root, &Forward::new(self.progress, input_only))
                    .map(|accepted| archive.root = accepted.root),
                false => is_as_long(&path, &remotes),
            };
            match broken {
                Ok(()) => {
                    remove_left_journal(dir, &name)?;
                    archive.path = Some(path);
                    return Ok(ObtainedArchive { archive, source, vouching, download: None });
                }
                Err(error) if error.kind() == ErrorKind::Damaged => {
                    take_up(client, &path, &remotes, &error, self.progress)?;
                }
                Err(error) => return Err(error),
            }
            (source.place, source.is_in_place) = (choice.first_place(), false);
        }
        for remote in &mut remotes {
            remote.accepts_ranges &= !self.unranged.contains(&remote.origin());
        }
        self.progress.tell(&format!("Fetching {name} from {}", choice.shown()));
        let file = Arc::new(PartialFile::open_in(&self.dir, &name)?);
        let had_bytes = file.done_bytes() > 0;
        self.current =
            Some(CurrentDownload { source: source.clone(), remotes: remotes.clone(), download: None, had_bytes });
        let download = Arc::new(Download::begin(client.clone(), file, remotes, limits.clone(), self.progress)?);
        if let Some(current) = &mut self.current {
            current.download = Some(download.clone());
        }
        let (kept, length) = (download.kept_bytes(), download.length_bytes());
        if kept > 0 {
            let of = length.map(|length| format!(" of {}", bytes(length))).unwrap_or_default();
            self.progress.tell(&format!("Resuming {name}: {}{of} are there", bytes(kept)));
        }
        Ok(ObtainedArchive { archive, source, vouching, download: Some(download) })
    }

    /// Decides what follows on a failed download. Returns the failure if there is something else to try.
    ///
    /// # Errors
    /// The failure, if the run ends with it.
    pub fn failed(&mut self, error: Error, request: ArchiveRequest<'_>) -> Result<Error> {
        let progress = self.progress;
        if error.kind() == ErrorKind::Interrupted || progress.is_interrupted() {
            return Err(Error::interrupted().with_hint(KEPT_HINT));
        }
        let error = with_advice(error);
        self.failures += 1;
        let (Some(fault), Some(current)) = (Fault::of(&error).filter(|_| self.failures < ATTEMPTS_MAX), &self.current)
        else {
            return Err(error);
        };
        let CurrentDownload { source, remotes, download, had_bytes } = current;
        let (name, place) = (source.name.clone(), source.place.clone());
        let rejected = download.as_ref().map(|download| download.rejected()).unwrap_or_default();
        let has_older = download.as_ref().is_some_and(|download| download.given_bytes() < download.file().done_bytes());
        if fault == Fault::NoRanges {
            progress
                .warn("the server announced ranges but does not send them: using one connection, from the beginning");
            self.unranged.extend(remotes.iter().map(Remote::origin));
            return Ok(error);
        }
        if fault == Fault::Wrong && *had_bytes && has_older && rejected.is_empty() {
            progress.warn(&format!("{error}: an earlier run may have fetched what is wrong"));
            return Ok(error);
        }
        // An archive that was published again is begun again, unless another server still has the earlier one.
        let is_other = fault == Fault::Lost && !is_as_before(self.context.client, remotes, progress);
        if rejected.is_empty() && !is_other {
            self.rejected.add(source.clone(), &error);
        }
        for place in rejected {
            self.rejected.add(Rejected { place, ..source.clone() }, &error);
        }
        self.offers.retain(|offer| offer.name != name || offer.shown() != place);
        self.remove_rejected();
        let is_wanted = |offer: &Offer| match request {
            ArchiveRequest::Full => offer.is_full(),
            ArchiveRequest::Named(name) => offer.name == *name,
            ArchiveRequest::IncrementalOn(_) => true,
        };
        if let ArchiveRequest::IncrementalOn(_) = request {
            progress.warn(&format!("{error}: looking for the newest incremental archive again"));
            return Ok(error);
        }
        if !self.offers.iter().any(is_wanted) && is_other {
            self.look()?;
        }
        if !self.offers.iter().any(is_wanted) {
            return Err(error);
        }
        let kept = match kept_bytes(self.context.dir, &name.to_string()) {
            0 => String::new(),
            kept => format!("; {} of {name} may be fetched again", bytes(kept)),
        };
        progress.warn(&format!("{error}: another source is asked{kept}"));
        Ok(error)
    }

    /// Drops an archive that failed a check of its content. Succeeds if there is something else to try.
    ///
    /// # Errors
    /// The failure, if the run ends with it.
    pub fn reject(&mut self, wrong: Rejected, error: Error) -> Result<()> {
        self.failures += 1;
        if self.failures >= ATTEMPTS_MAX || self.progress.is_interrupted() {
            return Err(error);
        }
        self.progress.warn(&format!("{error}: {} is not used any more", wrong.place));
        // A later run cannot use it.
        self.remove_partial(&wrong.name);
        self.rejected.add(wrong, &error);
        self.remove_rejected();
        if self.finds_full()? { Ok(()) } else { Err(self.rejected.nothing_left(&error)) }
    }

    /// True if there is a full archive to try. Without one, asks the sources again: lost ones may be back.
    fn finds_full(&mut self) -> Result<bool> {
        if !self.offers.iter().any(Offer::is_full) {
            self.look()?;
        }
        Ok(self.offers.iter().any(Offer::is_full))
    }

    fn remove_rejected(&mut self) {
        let is_off = |offer: &Offer| !self.uses_bases && offer.is_local() && self.bases.contains(&offer.name);
        self.offers.retain(|offer| self.rejected.allows(offer, None) && !is_off(offer));
    }

    /// Goes on with what the sources have, if a full archive of this node is in use that is of use only with an incremental
    /// one, and one of the two cannot be used.
    ///
    /// # Errors
    /// `error`, if the run ends with it.
    pub fn leave_base(&mut self, error: Error) -> Result<()> {
        let Some(base) = self.base_in_use.take() else { return Err(error) };
        let may_help =
            matches!(error.kind(), ErrorKind::Damaged | ErrorKind::Unsupported | ErrorKind::Network) || !base.exists();
        if !may_help || self.progress.is_interrupted() {
            return Err(error);
        }
        let mut in_vain = String::new();
        if let Some(CurrentDownload { source, download, .. }) = self.current.take() {
            if let Some(fetched) = download.map(|download| download.file().done_bytes()).filter(|fetched| *fetched > 0)
            {
                in_vain = format!("; {} of {} were fetched in vain", bytes(fetched), source.name);
            }
            self.remove_partial(&source.name);
        }
        self.uses_bases = false;
        self.remove_rejected();
        if !self.finds_full()? {
            return Err(error);
        }
        self.progress
            .warn(&format!("{error}: {} is not used any more{in_vain}; a full archive is fetched", base.shown()));
        Ok(())
    }

    /// Removes the partial file of an archive that was refused before any of its bytes were kept.
    fn remove_empty(&mut self, is_wrong: bool) {
        let Some(name) = self.current.as_ref().map(|current| current.source.name.clone()) else { return };
        if is_wrong && kept_bytes(self.context.dir, &name.to_string()) == 0 {
            self.remove_partial(&name);
        }
    }

    /// Removes the partial file of an archive. A failure is ignored: the file only takes room.
    fn remove_partial(&mut self, name: &ArchiveName) {
        self.current = None;
        drop(PartialFile::open_in(&self.dir, &name.to_string()).and_then(|file| file.remove()));
    }

    /// Asks the sources again for the newest incremental archive on a full one.
    fn newest_incremental(&self, full: &ObtainedArchive) -> Result<Option<Choice>> {
        let FetchContext { client, find: options, limits, dir, expected, wants_incremental, .. } = &self.context;
        let options = options.clone().measured_max(0);
        let (progress, full_name) = (self.progress, &full.archive.name);
        // If the full archive is the expected state, no incremental one is needed.
        if !wants_incremental || (expected.is_any() && expected.is_named(full_name)) {
            return Ok(None);
        }
        progress.stage("Asking for the newest incremental archive", None);
        let local = SourceArg::LocalDir(PathBuf::from(dir));
        // Sources that answered before but not now are asked again, until another source has an incremental archive. Answers are
        // kept.
        let mut unasked: Vec<&SourceArg> = options.sources.iter().chain([&local]).collect();
        let mut asks_cluster = !options.rpc.is_empty() || options.cluster.is_some();
        let mut offers: Vec<Offer> = Vec::new();
        let ask = || {
            let mut failed = None;
            unasked.retain(|source| {
                let answer = client.offers_and_failure(source, progress).and_then(|(found, failure)| {
                    offers.extend(found);
                    failure.map_or(Ok(()), |failure| Err(failure.into()))
                });
                let may_pass = |error: &Error| NetError::of(error).is_some_and(NetError::is_retryable);
                let failure = answer.err().filter(may_pass).filter(|_| self.answering.contains(&source.to_string()));
                let is_asked_again = failure.is_some();
                failed = failure.or(failed.take());
                is_asked_again
            });
            if asks_cluster {
                match find(client, &options, progress) {
                    Ok(found) => {
                        asks_cluster = false;
                        offers.extend(found.candidates.into_iter().filter_map(|candidate| candidate.incremental));
                    }
                    Err(error) => failed = Some(error),
                }
            }
            progress.check()?;
            offers.retain(|offer| self.rejected.allows(offer, Some(&full.source.place)));
            // Of several sources, those with the fewest faults come first.
            offers.sort_by_cached_key(|offer| self.rejected.faults_of(offer));
            match (choose::incremental(&offers, full_name, *expected), failed) {
                (None, Some(error)) => Err(error),
                (choice, _) => Ok(choice),
            }
        };
        match Patience::new(limits.give_up_after).ask(progress, ask) {
            Err(error) if error.kind() == ErrorKind::Network && self.base_in_use.is_none() => {
                let slot = full_name.slot;
                progress.warn(&format!(
                    "{error}: no incremental archive is known, the ledger boots from the full one of slot {slot}"
                ));
                Ok(None)
            }
            result => result,
        }
    }
}

/// Compares the length of a file with the server's: a different one means that the file was cut off.
fn is_as_long(path: &Path, remotes: &[Remote]) -> Result<()> {
    let length_bytes = fs::symlink_metadata(path).map_or(0, |metadata| metadata.len());
    match remotes.first().and_then(|remote| remote.length_bytes).is_none_or(|length| length == length_bytes) {
        true => Ok(()),
        false => Err(Error::damaged(format!("{} is not as long as what the server has", path.shown()))),
    }
}

/// True if the first server still has the same file that it does not send: then asking again does not help.
fn is_as_before(client: &Client, remotes: &[Remote], progress: &dyn Progress) -> bool {
    let Some(before) = remotes.first() else { return true };
    client.head(&before.asked, progress).is_ok_and(|now| now.is_as(before))
}

/// Adds advice to the error of a download.
fn with_advice(error: Error) -> Error {
    match error.kind() {
        ErrorKind::Network if error.hint().is_none() => error.with_hint(KEPT_HINT),
        ErrorKind::Damaged if error.hint().is_none() => error.with_hint(SOURCES_HINT),
        _ => error,
    }
}

/// Forwards only the bytes read: a download compresses nothing, and has no reader to wait for.
fn input_only(event: ProgressEvent<'_>) -> Option<ProgressEvent<'_>> {
    match event {
        ProgressEvent::Bytes { input, .. } => Some(ProgressEvent::Bytes { input, output: 0 }),
        ProgressEvent::Arriving(_) => None,
        event => Some(event),
    }
}
