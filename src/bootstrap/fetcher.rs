//! The one way to get archives, for `fetch` and `bootstrap`: a loop that does what [`next`](super::next) decides. They differ in
//! who reads the bytes.
//!
//! `patience` (in `slotpress_net`) asks a server again that fails for a moment. Not here: what follows on a failure, and the use
//! of the bytes.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use slotpress_base::quantity::{self, bytes};
use slotpress_base::threads::guarded;
use slotpress_base::{
    Error, ErrorKind, Forward, Hint, IoContext, KeptDir, Progress, ProgressEvent, Result, ShowPath, open_file,
};
use slotpress_format::ArchiveName;
use slotpress_net::fetch::partial::kept_bytes;
use slotpress_net::find::rank::Offered;
use slotpress_net::find::{Expected, Node, find};
use slotpress_net::patience::Patience;
use slotpress_net::{
    Candidate, Client, Download, Fault, FindOptions, FindReport, Limits, NetError, PartialFile, Remote, SourceArg,
    accept_file, patient_offers, remove_left_journal, take_up,
};

use super::archives::FetchedArchive;
use super::bases;
use super::choose::{Choice, Places};
use super::next::{Asked, GivenUp, Happened, KEPT_HINT, Left, Step, Taken, only_here};
use super::supply::ArchiveSupply;
use super::trust::{Trust, Vouchers};
use crate::restore::Supply;

/// Advice after sources sent a wrong archive.
const SOURCES_HINT: &str = "give other sources, or try again later";

#[derive(Clone)]
pub struct FetchContext<'a> {
    pub client: &'a Client,
    pub find: FindOptions,
    pub wants_incremental: bool,
    pub limits: &'a Limits,
    pub trust: Trust<'a>,
    pub expected: Expected,
    /// True if the archives must have certain roots, wherever they come from.
    pub expects_roots: bool,
    pub dir: &'a Path,
    /// Full archives elsewhere that the node has.
    pub bases: &'a [PathBuf],
    /// True if archives in the directory that are in the way of the state are moved aside.
    pub replaces_state: bool,
    /// True if complete files are checked and named here, because no one does it later.
    pub accepts_files: bool,
}

impl FetchContext<'_> {
    /// Asks the sources for their archives, and looks for files in the directory.
    pub fn look(&self, is_plan: bool, progress: &dyn Progress) -> Result<(FindReport, Left)> {
        // A single source is fetched sooner without measuring it.
        let mut options = self.find.clone().wants_incremental(self.wants_incremental).measures_single(false);
        // A plan shows how old the state is; a run needs to know only what it must refuse.
        options.dates_by_banks = is_plan;
        // A full archive that is here need not be fetched.
        options.sources.extend(bases::local_sources(self.dir, self.bases)?);
        let mut report = find(self.client, &options, progress)?;
        let fulls = if self.replaces_state { Vec::new() } else { bases::fulls_in(self.dir) };
        let mut node = Node {
            expected: self.expected,
            full_slots: fulls.iter().map(|name| name.slot).collect(),
            ..Node::default()
        };
        for (offer, ..) in &report.ranking.offers {
            match kept_bytes(self.dir, &offer.name.to_string()) {
                0 => {}
                kept => node.keeps(&offer.name, kept),
            }
        }
        let left = Left { found: report.ranking.clone(), node, ..Left::default() };
        let found = std::mem::replace(&mut report.candidates, left.candidates());
        if report.candidates.is_empty() && self.expected.is_any() && !found.is_empty() {
            return Err(self.expected.is_nowhere(&found));
        }
        self.tell_of_silent(&report, progress)?;
        if let Some(age) =
            report.candidates.first().and_then(|best| best.expected_age).filter(|age| *age > report.max_age)
        {
            let (age, limit) = (quantity::age(age), quantity::age(report.max_age));
            progress.warn(&format!("by its bank file, the state will be {age} old at boot, more than {limit}"));
        }
        Ok((report, left))
    }

    /// Warns of each named source that has nothing.
    ///
    /// # Errors
    /// That is so for all of them, and what is here is not known to be what is wanted.
    fn tell_of_silent(&self, report: &FindReport, progress: &dyn Progress) -> Result<()> {
        let offers = &report.ranking.offers;
        let mut silent = Vec::new();
        for source in self.find.sources.iter().filter(|source| source.url().is_some()) {
            let source = source.to_string();
            if offers.iter().any(|(_, from, _)| *from == source) {
                continue;
            }
            let Some(refused) = report.refused.iter().find(|refused| refused.source == source) else { continue };
            silent.push(match refused.why.contains(&source) {
                true => refused.why.clone(),
                false => format!("{source}: {}", refused.why),
            });
        }
        let asks_servers = !silent.is_empty() || !self.find.rpc.is_empty() || self.find.cluster.is_some();
        let is_asked_for = self.expected.is_any() || self.expects_roots;
        match report.candidates.first() {
            Some(best) if asks_servers && !is_asked_for && offers.iter().all(|(offer, ..)| offer.is_local()) => {
                let why = match silent.is_empty() {
                    true => "no server has a usable snapshot".to_string(),
                    false => silent.join("; "),
                };
                Err(only_here(best, &why, ErrorKind::Network))
            }
            // With nothing else, the error says it.
            None => Ok(()),
            Some(_) => {
                silent.iter().for_each(|why| progress.warn(&format!("{why}: this source is passed over")));
                Ok(())
            }
        }
    }
}

pub struct ObtainedArchive {
    pub archive: FetchedArchive,
    pub taken: Taken,
    /// Its download; `None` if the file was there already.
    pub download: Option<Arc<Download>>,
    /// True if an earlier run left bytes of it.
    pub had_bytes: bool,
    /// Which file it was, if it is no download.
    file: Option<FileFacts>,
}

/// Tells whether a path still leads to the same file.
type FileFacts = [Option<(u64, u64, u64, i64)>; 2];

fn facts_of(path: &Path) -> FileFacts {
    use std::os::unix::fs::MetadataExt;
    [fs::symlink_metadata(path), fs::metadata(path)].map(|found| {
        let found = found.ok()?;
        Some((found.dev(), found.ino(), found.len(), found.mtime_nsec().wrapping_add(found.mtime() << 30)))
    })
}

impl ObtainedArchive {
    /// True if a local file is not what it was when it was chosen.
    pub fn is_swapped(&self) -> bool {
        self.archive.path.as_deref().zip(self.file).is_some_and(|(path, before)| facts_of(path) != before)
    }
}

/// Where a run stopped, and why.
#[derive(Debug)]
pub struct Stopped {
    pub asked: Asked,
    pub happened: Happened,
    pub error: Error,
}

/// What became of an archive that did not come.
#[derive(Debug)]
pub struct Failed {
    pub happened: Happened,
    pub error: Error,
}

/// What was chosen, and why it did not come.
pub type NotObtained = Box<(Taken, Failed)>;

impl From<Error> for Box<Failed> {
    fn from(error: Error) -> Self {
        Self::new(Failed { happened: Happened::Final, error })
    }
}

/// What a run ended with.
pub struct Done<R> {
    pub result: R,
    pub archives: Vec<FetchedArchive>,
    pub vouchers: Vouchers,
    pub given_up: Option<GivenUp>,
    /// Time at which the last download was complete on disk.
    pub last_byte_at: Option<Instant>,
}

pub struct Fetcher<'a> {
    pub context: FetchContext<'a>,
    dir: Arc<KeptDir>,
    progress: &'a dyn Progress,
    pub left: Left,
    /// Sources that have answered in this run: only these are waited for.
    answering: BTreeSet<String>,
    /// Archives of which this run has partial files.
    begun: Vec<ArchiveName>,
}

impl<'a> Fetcher<'a> {
    /// Creates the directory for the downloads, which stay there after a failure.
    pub fn new(context: FetchContext<'a>, progress: &'a dyn Progress) -> Result<Self> {
        let dir = KeptDir::open_or_make(context.dir, &mut |_, _| {})?;
        let (left, answering, begun) = (Left::default(), BTreeSet::new(), Vec::new());
        Ok(Self { context, dir, progress, left, answering, begun })
    }

    /// If all sources are URLs of archives, those archives, full ones first; else nothing.
    pub fn named(&mut self) -> Result<Vec<ArchiveName>> {
        if !self.is_exact() {
            return Ok(Vec::new());
        }
        self.look()?;
        let mut names: Vec<ArchiveName> = Vec::new();
        for (offer, ..) in &self.left.found.offers {
            if !names.contains(&offer.name) {
                names.push(offer.name.clone());
            }
        }
        names.sort_by_key(|name| (name.base_slot.is_some(), name.slot));
        Ok(names)
    }

    /// Fetches one archive of those that are named, with or without asking trusted servers for it.
    pub fn only(&mut self, name: &ArchiveName, is_asked_for: bool) {
        (self.left.node.only, self.left.given_up, self.left.again) = (Some(name.clone()), None, 0);
        if !is_asked_for {
            self.context.trust.trusted = &[];
        }
    }

    fn is_exact(&self) -> bool {
        let sources = &self.context.find.sources;
        let is_exact = |source: &SourceArg| matches!(source, SourceArg::Archive(_));
        self.context.accepts_files && !sources.is_empty() && sources.iter().all(is_exact)
    }

    /// Asks the sources, for the first time or again.
    pub fn look(&mut self) -> Result<()> {
        if !self.is_exact() {
            let (_, left) = self.context.look(false, self.progress)?;
            return self.use_found(left);
        }
        let FetchContext { client, find, limits, .. } = &self.context;
        let mut offers: Vec<Offered> = Vec::new();
        for source in &find.sources {
            match patient_offers(client, source, limits.give_up_after, self.progress, self.progress) {
                Ok(found) => offers.extend(found.into_iter().map(|offer| (offer, source.to_string(), true))),
                // The others may still have it.
                Err(_) if !self.left.found.offers.is_empty() && !self.progress.is_interrupted() => {}
                Err(error) => return Err(error),
            }
        }
        self.left.found.offers = offers;
        self.refuse_other_roots()
    }

    /// Uses what was found in place of what was known.
    pub fn use_found(&mut self, found: Left) -> Result<()> {
        self.answering.extend(found.found.offers.iter().map(|(_, source, _)| source.clone()));
        let before = std::mem::take(&mut self.left);
        self.left = Left { node: Node { bad: before.node.bad, ..found.node }, found: found.found, ..before };
        self.refuse_other_roots()
    }

    /// Sources that announce another root than the expected one are not asked.
    fn refuse_other_roots(&mut self) -> Result<()> {
        let offers = &mut self.left.found.offers;
        let Some(expected) = self.context.limits.expect_root.filter(|_| !offers.is_empty()) else { return Ok(()) };
        offers.retain(|(offer, ..)| offer.root.is_none_or(|root| root == expected));
        match offers.is_empty() {
            true => Err(Error::new(ErrorKind::Network, format!("no source has the archive of root {expected}"))
                .with_hint(Hint::UseFind)),
            false => Ok(()),
        }
    }

    /// Fetches the best that is left, and has it read, until that succeeds or nothing is left.
    pub fn run<R>(&mut self, read: &dyn Fn(&mut dyn Supply) -> Result<R>) -> Result<Done<R>> {
        let mut last = Error::new(ErrorKind::Network, "no source has a usable snapshot");
        loop {
            let Some(best) = self.left.best() else { return Err(self.left.node.nothing_left(&last)) };
            let ended = std::thread::scope(|scope| {
                let progress = self.progress;
                let mut supply = ArchiveSupply::new(scope, self, &best, progress);
                let result = guarded(|| read(&mut supply));
                supply.end(result)
            });
            // What follows on the failure of an incremental archive is decided already.
            let stopped = match ended {
                Ok(done) => return Ok(done),
                Err(None) => continue,
                Err(Some(stopped)) => *stopped,
            };
            last = stopped.error.clone();
            if let Step::AskAgain = self.follow(stopped)? {
                self.look()?;
            }
        }
    }

    /// Has it decided what follows, and says so.
    ///
    /// # Errors
    /// The run ends.
    pub fn follow(&mut self, stopped: Stopped) -> Result<Step> {
        let Stopped { asked, happened, error } = stopped;
        if error.kind() == ErrorKind::Interrupted || self.progress.is_interrupted() {
            return Err(Error::interrupted().with_hint(KEPT_HINT));
        }
        let newest = asked.incremental.as_ref().unwrap_or(&asked.full);
        self.note_kept();
        let kept_bytes = self.left.node.kept_bytes(&newest.name);
        // A later run cannot use what was read and is wrong, or of no use here.
        let is_useless = happened == Happened::Refused || error.kind() == ErrorKind::Unsupported || kept_bytes == 0;
        if is_useless && self.begun.contains(&newest.name) {
            self.remove_partial(&newest.name);
        }
        let step = self.left.after(&asked, &happened, &error);
        if let Step::End(error) = step {
            return Err(error);
        }
        let (place, full) = (&newest.place, &asked.full);
        let in_vain = match &asked.incremental {
            _ if kept_bytes == 0 => String::new(),
            Some(_) => format!("; {} of {} were fetched in vain", bytes(kept_bytes), newest.name),
            None => format!("; {} of {} may be fetched again", bytes(kept_bytes), newest.name),
        };
        let what = match step {
            Step::Again if happened == Happened::NoRanges => "using one connection, from the beginning".to_string(),
            Step::Again => "an earlier run may have fetched what is wrong".to_string(),
            Step::OtherSource => format!("{place} is not used any more{in_vain}; another source is asked"),
            Step::AskAgain if asked.incremental.is_some() => {
                "looking for the newest incremental archive again".to_string()
            }
            Step::AskAgain => format!("{place} is not used any more; the sources are asked again"),
            Step::FullAlone => format!("no incremental archive could be fetched; this is the state of {}", full.name),
            Step::WithoutBase => format!("{} is not used any more{in_vain}; a full archive is fetched", full.place),
            Step::NextArchive | Step::End(_) => {
                format!("{place} is not used any more{in_vain}; the next best is fetched")
            }
        };
        self.progress.warn(&format!("{error}: {what}"));
        Ok(step)
    }

    /// Notes what of the archives of this run is on disk.
    fn note_kept(&mut self) {
        for name in &self.begun {
            self.left.node.keeps(name, kept_bytes(self.context.dir, &name.to_string()));
        }
    }

    /// Chooses an archive's servers, and begins its download unless the file is there already.
    pub fn begin(&mut self, choice: &Choice) -> Result<ObtainedArchive, NotObtained> {
        let mut taken = self.taken(choice);
        self.begin_taken(choice, &mut taken).map_err(|failed| Box::new((taken, *failed)))
    }

    pub fn taken(&self, choice: &Choice) -> Taken {
        let in_place = choice.name.path_in(self.context.dir);
        let is_in_place = in_place.symlink_metadata().is_ok();
        let place = if is_in_place { in_place.shown() } else { choice.first_place() };
        let servers = match &choice.place {
            Places::Local(_) => Vec::new(),
            Places::Servers(remotes) => remotes.iter().map(Remote::origin).collect(),
        };
        Taken { name: choice.name.clone(), place, is_in_place, root: choice.root, servers }
    }

    fn begin_taken(&mut self, choice: &Choice, taken: &mut Taken) -> Result<ObtainedArchive, Box<Failed>> {
        let FetchContext { client, limits, dir, .. } = &self.context;
        let name = choice.name.to_string();
        let mut archive = FetchedArchive { name: choice.name.clone(), path: None, fetched: None, root: None };
        let (local, mut remotes) = match &choice.place {
            Places::Local(path) => (Some(path.clone()), Vec::new()),
            Places::Servers(remotes) => (None, remotes.clone()),
        };
        if let Some(path) = if taken.is_in_place { Some(choice.name.path_in(dir)) } else { local } {
            let file = Some(facts_of(&path));
            let accepted = match self.context.accepts_files {
                true => accept_file(&path, limits.expect_root, &Forward::new(self.progress, input_only))
                    .map(|accepted| accepted.root),
                false => is_as_long(&path, choice.length_bytes).map(|()| None),
            };
            match accepted {
                Ok(root) => {
                    remove_left_journal(dir, &name)?;
                    (archive.path, archive.root) = (Some(path), root);
                    return Ok(ObtainedArchive {
                        archive,
                        taken: taken.clone(),
                        download: None,
                        had_bytes: false,
                        file,
                    });
                }
                Err(error) => {
                    let taken_up = match error.kind() {
                        ErrorKind::Damaged if !remotes.is_empty() => {
                            take_up(client, &path, &remotes, &error, self.progress)
                        }
                        _ => Err(error),
                    };
                    taken_up.map_err(|error| unusable(Vec::new(), error))?;
                }
            }
            (taken.place, taken.is_in_place) = (choice.first_place(), false);
        }
        for remote in &mut remotes {
            remote.accepts_ranges &= !self.left.unranged.contains(&remote.origin());
        }
        self.progress.tell(&format!("Fetching {name} from {}", choice.shown()));
        let file = Arc::new(PartialFile::open_in(&self.dir, &name)?);
        let had_bytes = file.done_bytes() > 0;
        if !self.begun.contains(&choice.name) {
            self.begun.push(choice.name.clone());
        }
        let download = Download::begin((*client).clone(), file, remotes.clone(), (*limits).clone(), self.progress);
        let download = download.map_err(|error| self.failed(error, None, &remotes, had_bytes))?;
        let (kept, length) = (download.kept_bytes(), download.length_bytes());
        if kept > 0 {
            let of = length.map(|length| format!(" of {}", bytes(length))).unwrap_or_default();
            self.progress.tell(&format!("Resuming {name}: {}{of} are there", bytes(kept)));
        }
        let download = Some(Arc::new(download));
        Ok(ObtainedArchive { archive, taken: taken.clone(), download, had_bytes, file: None })
    }

    /// Downloads a whole archive, unless it is there.
    pub fn fetch_whole(&mut self, choice: &Choice) -> Result<ObtainedArchive, NotObtained> {
        let mut obtained = self.begin(choice)?;
        if let Some(download) = obtained.download.clone() {
            self.progress.stage("Fetching", download.length_bytes());
            self.progress.advance(download.kept_bytes(), 0);
            let fetched = download.run(&Forward::new(self.progress, input_only));
            let had_bytes = obtained.had_bytes;
            let fetched = fetched.map_err(|error| {
                let failed = self.failed_download(error, &download, choice, had_bytes);
                Box::new((obtained.taken.clone(), *failed))
            })?;
            (obtained.archive.root, obtained.archive.fetched) = (fetched.root, Some(fetched));
        }
        Ok(obtained)
    }

    /// What the failure of a download means.
    pub fn failed_download(&self, error: Error, download: &Download, choice: &Choice, had_bytes: bool) -> Box<Failed> {
        let remotes = if let Places::Servers(remotes) = &choice.place { remotes.as_slice() } else { &[] };
        self.failed(error, Some(download), remotes, had_bytes)
    }

    fn failed(&self, error: Error, download: Option<&Download>, remotes: &[Remote], had_bytes: bool) -> Box<Failed> {
        let Some(fault) = Fault::of(&error) else { return error.into() };
        let rejected = download.map(Download::rejected).unwrap_or_default();
        let has_older = download.is_some_and(|download| download.given_bytes() < download.file().done_bytes());
        let is_as_before = || is_as_before(self.context.client, remotes, self.progress);
        let happened = match fault {
            Fault::NoRanges => Happened::NoRanges,
            Fault::Wrong if had_bytes && has_older && rejected.is_empty() => Happened::KeptIsWrong,
            Fault::Lost if rejected.is_empty() && !is_as_before() => Happened::PublishedAgain,
            _ => Happened::Unusable(rejected),
        };
        Box::new(Failed { happened, error: with_advice(error) })
    }

    /// Removes the partial files of this run but for these: what has arrived of others is not needed any more.
    pub fn keep_only(&mut self, names: &[&ArchiveName]) {
        let (kept, useless) = std::mem::take(&mut self.begun).into_iter().partition(|name| names.contains(&name));
        self.begun = kept;
        let useless: Vec<ArchiveName> = useless;
        useless.iter().for_each(|name| self.remove_partial(name));
    }

    /// Removes the partial file of an archive. A failure is ignored: the file only takes room.
    fn remove_partial(&mut self, name: &ArchiveName) {
        drop(PartialFile::open_in(&self.dir, &name.to_string()).and_then(|file| file.remove()));
        self.left.node.keeps(name, 0);
    }

    /// Asks the sources again, until one has an incremental archive on a full one that is in use.
    ///
    /// # Errors
    /// None has one, and a source that answered before does not.
    pub fn ask_for_newest(&mut self, full: &Taken) -> Result<Option<Choice>> {
        let FetchContext { client, find: options, limits, dir, .. } = self.context.clone();
        let options = options.measured_max(0);
        let (progress, answering, left) = (self.progress, &self.answering, &mut self.left);
        progress.stage("Asking for the newest incremental archive", None);
        let local = SourceArg::LocalDir(PathBuf::from(dir));
        // Sources that answered before but not now are asked again, until another source has an incremental archive. Answers are
        // kept.
        let mut unasked: Vec<&SourceArg> = options.sources.iter().chain([&local]).collect();
        let mut asks_cluster = !options.rpc.is_empty() || options.cluster.is_some();
        left.found.offers.retain(|(offer, ..)| offer.is_full());
        let ask = || {
            let mut failed = None;
            unasked.retain(|source| {
                let answer = client.offers_and_failure(source, progress).and_then(|(found, failure)| {
                    // A full archive that this run has named is no base.
                    let found = found.into_iter().filter(|offer| !offer.is_full() || !offer.is_local());
                    left.add(found.map(|offer| (offer, source.to_string(), true)));
                    failure.map_or(Ok(()), |failure| Err(failure.into()))
                });
                let may_pass = |error: &Error| NetError::of(error).is_some_and(NetError::is_retryable);
                let failure = answer.err().filter(may_pass).filter(|_| answering.contains(&source.to_string()));
                let is_asked_again = failure.is_some();
                failed = failure.or(failed.take());
                is_asked_again
            });
            if asks_cluster {
                match find(client, &options, progress) {
                    Ok(found) => {
                        asks_cluster = false;
                        left.add(found.ranking.offers);
                    }
                    Err(error) => failed = Some(error),
                }
            }
            progress.check()?;
            match (left.newest_on(full), failed) {
                (None, Some(error)) => Err(error),
                (choice, _) => Ok(choice),
            }
        };
        Patience::new(limits.give_up_after).ask(progress, ask)
    }
}

/// A failure of this archive only.
pub fn unusable(places: Vec<String>, error: Error) -> Box<Failed> {
    let happened = match error.kind() {
        ErrorKind::Interrupted => Happened::Final,
        _ => Happened::Unusable(places),
    };
    Box::new(Failed { happened, error })
}

/// The names of a candidate's archives.
pub fn names_of(candidate: &Candidate) -> Vec<&ArchiveName> {
    candidate.offers().map(|offer| &offer.name).collect()
}

/// Compares the length of a file with that which was told: a different one means that the file was cut off.
fn is_as_long(path: &Path, told_bytes: Option<u64>) -> Result<()> {
    let length_bytes = open_file(path)?.metadata().or_path("read", path)?.len();
    match told_bytes.is_none_or(|told| told == length_bytes) {
        true => Ok(()),
        false => Err(Error::damaged(format!("{} is not as long as it should be", path.shown()))),
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
pub fn input_only(event: ProgressEvent<'_>) -> Option<ProgressEvent<'_>> {
    match event {
        ProgressEvent::Bytes { input, .. } => Some(ProgressEvent::Bytes { input, output: 0 }),
        ProgressEvent::Arriving(_) => None,
        event => Some(event),
    }
}
