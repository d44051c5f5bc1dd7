//! The archives of a bootstrap, one after the other, each read while it arrives: the full one first, and when that has
//! been read, the incremental one that is the newest then.

use {
    super::{
        choose::{Choice, Places},
        dropped::{Dropped, Wrong},
        expected::Expected,
        network::Network,
        trust::{self, Vouchers},
    },
    crate::restore::{Supplied, Supply},
    slotpress_base::text::ShowPath,
    slotpress_base::{
        error::{Error, ErrorKind, Result},
        progress::Progress,
        threads::{panicked, spawn},
    },
    slotpress_format::ledger::names::ArchiveName,
    slotpress_net::{
        Client, Remote, Url,
        fetch::{Download, Ended, Fetched, Limits, PartialFile, remove_left_journal, take_up},
        find::{self, FindOptions},
        servers::SourceArg,
    },
    slotpress_read::archive::source::Source,
    std::{
        collections::BTreeSet,
        path::{Path, PathBuf},
        sync::Arc,
        thread::{Scope, ScopedJoinHandle},
        time::Instant,
    },
};

/// What a supply needs to know.
pub struct Context<'a> {
    /// Speaks to servers.
    pub client: &'a Client,
    /// The archives directory.
    pub dir: &'a Path,
    /// Bounds of each download.
    pub limits: Limits,
    /// Where incremental archives are looked for; none, where none are wanted.
    pub sources: Vec<SourceArg>,
    /// How peers are found, where sources alone do not do.
    pub find: FindOptions,
    /// Servers that vouch for archives.
    pub trusted: &'a [Url],
    /// Whether anybody must vouch for the state.
    pub must_be_vouched: bool,
    /// Servers that say that they send ranges, and do not.
    pub unranged: &'a BTreeSet<String>,
    /// Archives that failed a check.
    pub dropped: &'a Dropped,
    /// The state that was asked for.
    pub expected: Expected,
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
    /// The servers of the archive that was asked for last.
    pub asked: Vec<String>,
    /// When the last download had all its bytes, on disk.
    pub last_byte_at: Option<Instant>,
    is_over: bool,
}

struct Running<'scope> {
    file: Arc<PartialFile>,
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
            asked: Vec::new(),
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
        self.files.iter().filter(|file| file.path().exists()).for_each(|file| drop(file.doubt(why)));
    }

    /// Waits for the download that is under way.
    fn finish_running(&mut self) -> Result<()> {
        let Some(Running { thread, .. }) = self.running.take() else { return Ok(()) };
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
                self.ended.get_or_insert(ended);
                Err(error)
            }
        }
    }

    fn supply(&mut self, choice: Choice) -> Result<Supplied> {
        let context = self.context;
        let progress = context.network;
        let vouching = trust::ask(context.client, context.trusted, &choice.name, progress)?;
        let in_place = context.dir.join(choice.name.to_string());
        let is_cut = match &choice.place {
            Places::Servers(remotes) => self.is_cut(&in_place, remotes)?,
            Places::Local(_) => false,
        };
        let is_in_place = !is_cut && in_place.is_file();
        let place = if is_in_place { in_place.shown() } else { choice.first_place() };
        let full_place = choice.name.base_slot.map(|_| self.full_place.clone());
        let source = Wrong { name: choice.name.clone(), place, is_in_place, full_place };
        let supplement = |vouching| Supplement { name: choice.name.clone(), source, vouching, fetched: None };
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
        self.asked = remotes.iter().map(Remote::origin).collect();
        for remote in &mut remotes {
            remote.accepts_ranges &= !context.unranged.contains(&remote.origin());
        }
        let name = choice.name.to_string();
        let file = Arc::new(PartialFile::open(context.dir, &name)?);
        let begun = Download::begin(context.client.clone(), file.clone(), remotes, context.limits.clone(), progress);
        let download = begun.map_err(|ended| {
            let error = ended.error();
            self.ended.get_or_insert(ended);
            error
        })?;
        super::tell_where_it_stands(&name, &download, progress);
        progress.watch(&file, &download);
        self.supplied.push(supplement(vouching));
        let thread = spawn(self.scope, move || (download.run(progress), Instant::now()))?;
        self.running = Some(Running { file: file.clone(), thread });
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
        let mut offers = Vec::new();
        let local = SourceArg::LocalDir(PathBuf::from(dir));
        for source in sources.iter().chain([&local]) {
            network.check()?;
            offers.extend(client.offers(source, *network).unwrap_or_default());
        }
        if !find.rpc.is_empty() || find.cluster.is_some() {
            let found = find::find(client, find, *network)?;
            offers.extend(found.candidates.into_iter().filter_map(|candidate| candidate.incremental));
        }
        offers.retain(|offer| dropped.allows(offer, Some(&self.full_place)));
        // Of several that have it, those first that were never wrong.
        offers.sort_by_cached_key(|offer| dropped.faults_of(offer));
        Ok(super::choose::incremental(&offers, base_slot, *expected))
    }

    /// Who vouches for the state: whoever does for its newest archive.
    pub fn vouchers(&self, is_expected: bool) -> Vouchers {
        let servers = self.supplied.last().map(|last| last.vouching.clone()).unwrap_or_default();
        Vouchers { is_expected, servers }
    }
}

impl Supply for Downloads<'_, '_, '_> {
    fn next(&mut self) -> Result<Option<Supplied>> {
        if self.supplied.is_empty() {
            return self.supply(self.full.clone()).map(Some);
        }
        self.finish_running()?;
        if self.is_over {
            return Ok(None);
        }
        self.is_over = true;
        let incremental = self.newest_incremental()?;
        let supplied = match incremental {
            Some(choice) => {
                self.context.network.tell(&format!("Fetching {} from {}", choice.name, choice.shown()));
                Some(self.supply(choice)?)
            }
            None => None,
        };
        let is_vouched = self.supplied.last().is_some_and(|last| !last.vouching.is_empty());
        if self.context.must_be_vouched && !is_vouched {
            return Err(Error::new(ErrorKind::Network, "no trusted server has this archive")
                .hint("try again in a minute, or give another `trusted` server"));
        }
        Ok(supplied)
    }
}
