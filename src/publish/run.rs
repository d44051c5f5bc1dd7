//! The planning thread: looks, pins, hands out work, and hears what came of it.

use {
    super::{
        PublishOptions, Writer,
        event::Event,
        journal::{Identity, Journal, State},
        metrics::Metrics,
        notes::Notes,
        pins::{PinDir, Pinned},
        plan::{Key, Published, Situation, Wishes, epoch_ends, key},
        prepare::state_of,
        shelf::{Ready, Shelf},
        state::{Attempts, Said, TargetState, Worst},
        target::{Target, Task},
        threads::{Background, Hands, Message},
    },
    slotpress_base::{
        error::{Error, ErrorKind, Result},
        io::IoPolicy,
        progress::Progress,
    },
    slotpress_format::ledger::names::ArchiveName,
    slotpress_net::Client,
    slotpress_read::{
        archive::{Archive as OpenArchive, IndexPolicy, front::is_by_firedancer, source::LocalFile},
        catalog::{
            Archive, Catalog,
            listing::unix_ns,
            scan::{look_for_slot_time, scan_with_copies},
        },
    },
    slotpress_serve::{supervisor, tell::tell},
    std::{
        collections::{BTreeMap, BTreeSet},
        fs,
        net::SocketAddr,
        os::unix::fs::MetadataExt,
        sync::{
            Arc,
            atomic::Ordering::Relaxed,
            mpsc::{Receiver, RecvTimeoutError, channel},
        },
        time::{Duration, Instant, SystemTime},
    },
};

/// How often the directory is looked at, whatever inotify says.
const LOOK_EVERY: Duration = Duration::from_secs(5);

/// How often the user's wish to stop is looked at.
const TICK: Duration = Duration::from_millis(50);

/// Of the bytes for what is kept apart, so many percent are said to be nearly all.
const NEARLY_FULL_PERCENT: u64 = 80;

/// Publishes until the user asks to stop, or, once, until everything is published that is there.
///
/// # Errors
/// A directory cannot be used, another process works in the directory of pins. Once: the gravest of what failed; of
/// [`ErrorKind::Damaged`] where an archive was.
pub fn publish(options: &PublishOptions, on_event: &mut dyn FnMut(&Event), progress: &dyn Progress) -> Result<()> {
    let pins = PinDir::open(&options.pins, &options.snapshots, options.quarantine.as_deref())?;
    let notes = Notes::open(&pins)?;
    let names: Vec<String> = options.targets.iter().map(ToString::to_string).collect();
    let metrics = Arc::new(Metrics::new(&names, options.alert_after));
    let telling = options.metrics.map(|listen| tell(listen, metrics.clone())).transpose()?;
    let background = Background::new(progress);
    let (send, messages) = channel();
    let (client, teller) = (Client::new(&options.client)?, send.clone());
    let tell_event = |event| drop(teller.send(Message::Event(event)));
    let target = |at: &_| Target { at: Clone::clone(at), client: &client, options, notes: &notes, tell: &tell_event };
    let targets: Vec<Target<'_>> = options.targets.iter().map(target).collect();
    std::thread::scope(|scope| {
        let hands = Hands::start(scope, &pins, &targets, options, &background, &send);
        let result = hands.and_then(|hands| {
            let mut publisher = Publisher {
                options,
                pins: &pins,
                notes: &notes,
                hands,
                on_event,
                progress,
                names,
                metrics: &metrics,
                listens_at: telling.as_ref().map(|telling| telling.address),
                targets: vec![TargetState::default(); targets.len()],
                now: Situation::default(),
                ready: Catalog::default(),
                preparing: Attempts::default(),
                has_begun_incremental: false,
                writers: BTreeMap::new(),
                said: Said::default(),
                worst: Worst::default(),
            };
            publisher.run(&messages)
        });
        // The threads wait for work, which the end of `hands` ends; and one watches.
        background.is_over.store(true, Relaxed);
        result
    })
}

/// What a run would do first: what it would pin, check and publish, to which targets.
///
/// # Errors
/// A directory or a target cannot be read.
pub fn preview(options: &PublishOptions, progress: &dyn Progress) -> Result<Vec<(ArchiveName, Vec<String>)>> {
    let seen = scan_with_copies(&[options.snapshots.clone()])?.archives().to_vec();
    let (mut now, client) = (Situation { seen, ..Situation::default() }, Client::new(&options.client)?);
    for target in &options.targets {
        let shelf = Shelf::open(target, &[], false, &options.stores, &client)?;
        let index = shelf.map(|shelf| shelf.read(progress)).transpose()?;
        now.targets.push(index.map(|index| index.published()).unwrap_or_default());
    }
    let (wishes, mut first) = (Wishes::default(), Vec::new());
    while let Some(archive) = now.next_to_prepare(&wishes) {
        let wanting = now.targets.iter_mut().zip(&options.targets).filter(|(target, _)| target.wants(&archive.name));
        let wanting = wanting.map(|(target, at)| {
            target.keys.insert(key(&archive.name));
            at.to_string()
        });
        first.push((archive.name.clone(), wanting.collect()));
    }
    Ok(first)
}

struct Publisher<'a> {
    options: &'a PublishOptions,
    pins: &'a PinDir,
    notes: &'a Notes<'a>,
    hands: Hands,
    on_event: &'a mut dyn FnMut(&Event),
    progress: &'a dyn Progress,
    names: Vec<String>,
    metrics: &'a Metrics,
    listens_at: Option<SocketAddr>,
    targets: Vec<TargetState>,
    now: Situation,
    ready: Catalog,
    preparing: Attempts,
    has_begun_incremental: bool,
    /// Whether Firedancer wrote an archive.
    writers: BTreeMap<Key, (Identity, bool)>,
    said: Said,
    worst: Worst,
}

impl Publisher<'_> {
    fn run(&mut self, messages: &Receiver<Message>) -> Result<()> {
        self.tell(Event::Watching {
            snapshots: self.options.snapshots.clone(),
            targets: self.names.clone(),
            metrics: self.listens_at,
        });
        supervisor::ready();
        while !self.progress.is_interrupted() {
            let worked = self.look().and_then(|()| self.pin()).and_then(|()| self.hand_out());
            match worked {
                Ok(()) => {}
                Err(error) if self.options.is_once => return Err(error),
                Err(error) => self.tell(Event::Failed { error, target: None, retry: Some(LOOK_EVERY) }),
            }
            if self.options.is_once && self.is_done() {
                // What other threads have said by now is heard.
                while let Ok(message) = messages.try_recv() {
                    self.hear(message)?;
                }
                return self.worst.take().map_or(Ok(()), Err);
            }
            self.tell_state();
            let start = Instant::now();
            while !self.progress.is_interrupted() && start.elapsed() < self.pause() {
                match messages.recv_timeout(TICK) {
                    Ok(message) => {
                        self.hear(message)?;
                        break;
                    }
                    Err(RecvTimeoutError::Timeout) => {}
                    Err(RecvTimeoutError::Disconnected) => return Err(Error::failed("all threads have ended")),
                }
            }
        }
        supervisor::stopping();
        self.tell(Event::Stopping);
        match self.options.is_once {
            true => Err(Error::interrupted()),
            false => Ok(()),
        }
    }

    /// How long nothing needs to be looked at, unless something is heard.
    fn pause(&self) -> Duration {
        let waits = self.targets.iter().any(|target| !target.is_busy && !target.attempts.is_due());
        if waits || !self.preparing.is_due() { TICK * 4 } else { LOOK_EVERY }
    }

    /// To the service manager and for metrics.
    fn tell_state(&self) {
        supervisor::alive();
        let bytes = self.now.pinned.iter().map(|archive| archive.size_bytes).fold(0, u64::saturating_add);
        self.metrics.pinned_bytes.set(bytes.try_into().unwrap_or(i64::MAX));
        for ((at, name), target) in self.names.iter().enumerate().zip(&self.targets) {
            let waits =
                self.now.targets.get(at).map_or(0, |has| self.now.ready.iter().filter(|it| has.wants(it)).count());
            self.metrics.see(name, &target.shelves, waits);
        }
        let newest = self.targets.iter().filter_map(|target| target.shelves.newest).map(|(slot, _)| slot).max();
        let newest = newest.map_or("nothing is published yet".to_string(), |slot| format!("slot {slot} is published"));
        let now = if self.now.preparing.is_some() { "; checking an archive" } else { "" };
        let failing = self.targets.iter().filter(|target| !target.attempts.is_first()).count();
        let failing = if failing > 0 { format!("; {failing} targets fail") } else { String::new() };
        supervisor::status(&format!("{newest}{now}{failing}"));
    }

    fn tell(&mut self, event: Event) {
        if !self.said.is_new(&event) {
            return;
        }
        if let Event::Failed { error, .. } | Event::Refused { error, .. } = &event {
            self.worst.add(error);
        }
        self.metrics.count(&event);
        (self.on_event)(&event);
        if !self.hands.tell(&event) {
            self.progress.warn("programs of --on-published and --on-failed take too long: one was not told");
        }
    }

    fn wishes(&self) -> Wishes {
        let mut keep_slots = self.options.keep_slots.clone();
        if let (Some(epoch_slots), Some(newest)) =
            (self.options.epoch_slots, self.now.seen.iter().map(|archive| archive.name.slot).max())
        {
            let since = self.notes.read(|journal| journal.first_slot).unwrap_or(newest);
            keep_slots.extend(epoch_ends(newest, since, epoch_slots));
        }
        Wishes {
            // Once: one at most, whenever the last one was.
            every: if self.options.is_once { Duration::MAX } else { self.options.every },
            keep_slots,
            pin_bytes: self.options.pin_bytes,
            checks_pairs: self.options.checks_pairs,
        }
    }

    fn look(&mut self) -> Result<()> {
        self.now.seen = scan_with_copies(&[self.options.snapshots.clone()])?.archives().to_vec();
        self.now.pinned = self.pins.pinned()?;
        let mut ready = self.pins.ready(&self.ready)?;
        look_for_slot_time(&mut ready, &self.ready);
        self.ready = ready;
        self.now.ready = self.ready.archives().iter().map(|archive| archive.name.clone()).collect();
        let newest = self.now.seen.iter().map(|archive| archive.name.slot).max();
        let begun = self.notes.change(|journal| {
            journal.first_slot = journal.first_slot.or(newest);
            journal.incremental_unix_seconds
        })?;
        self.now.refused.retain(|key| self.now.seen.iter().any(|archive| super::plan::key(&archive.name) == *key));
        self.now.refused.extend(self.notes.read(|journal| journal.refused_keys(&self.now.seen).collect::<Vec<_>>()));
        let since =
            |begun: u64| Duration::from_secs((unix_ns(SystemTime::now()) / 1_000_000_000).saturating_sub(begun));
        self.now.since_incremental = match self.options.is_once {
            true => self.has_begun_incremental.then_some(Duration::ZERO),
            false => begun.map(since),
        };
        self.see_targets();
        Ok(())
    }

    fn see_targets(&mut self) {
        let published = |target: &TargetState| Published {
            is_silent: !target.is_known && target.attempts.is_first(),
            ..target.shelves.published.clone()
        };
        self.now.targets = self.targets.iter().map(published).collect();
        self.now.kept = self.targets.iter().map(|target| target.shelves.kept.clone()).collect();
    }

    fn pin(&mut self) -> Result<()> {
        let wishes = self.wishes();
        let pins = self.now.pins(&wishes);
        for name in &pins.drop {
            self.pins.unpin(name)?;
        }
        for name in pins.no_room {
            let why = "there is no room for its pin within --pin-bytes".to_string();
            self.tell(Event::Skipped { name, why });
        }
        for name in pins.add {
            let Some(archive) = self.now.seen.iter().find(|archive| archive.name == name).cloned() else { continue };
            self.notes.change(|journal| journal.pins.insert(name.to_string(), Identity::from(&archive)))?;
            match self.pins.pin(&archive, self.is_firedancers(&archive))? {
                Pinned::Yes => self.tell(Event::Pinned(name)),
                // Once: not for ever.
                Pinned::NotNow if self.options.is_once && self.preparing.is_due() => drop(self.preparing.failed(true)),
                Pinned::Gone | Pinned::NotNow => {}
                Pinned::Never(why) => {
                    self.now.refused.insert(key(&name));
                    self.tell(Event::Skipped { name, why });
                }
            }
        }
        self.now.pinned = self.pins.pinned()?;
        let pinned: BTreeSet<String> = self.now.pinned.iter().map(|archive| archive.name.to_string()).collect();
        self.notes.change(|journal| journal.pins.retain(|name, _| pinned.contains(name)))
    }

    /// Whether Firedancer uses this file again, and refuses it with a second name. One archive of Firedancer's in the directory
    /// makes all of it Firedancer's: it fetches others' archives too.
    fn is_firedancers(&mut self, archive: &Archive) -> bool {
        match self.options.writer {
            Writer::Agave => return false,
            Writer::Firedancer => return true,
            Writer::Auto => {}
        }
        let known = std::mem::take(&mut self.writers);
        for archive in self.now.seen.iter().chain([archive]) {
            let (key, identity) = (key(&archive.name), Identity::from(archive));
            let by = known.get(&key).filter(|(same, _)| *same == identity).map(|(_, by)| *by);
            self.writers.insert(key, (identity, by.unwrap_or_else(|| looks_like_firedancers(archive))));
        }
        self.writers.values().any(|(_, by)| *by) || is_owned_by_firedancer(self.options)
    }

    fn hand_out(&mut self) -> Result<()> {
        let wishes = self.wishes();
        let spent: Vec<ArchiveName> = self.now.spent(&wishes).into_iter().cloned().collect();
        let is_known = self.targets.iter().all(|target| target.is_known);
        let is_idle = self.targets.iter().all(|target| !target.is_busy);
        if is_known && is_idle && self.now.preparing.is_none() {
            for name in spent {
                self.pins.remove_ready(&name)?;
                self.notes.change(|journal| journal.states.remove(&name.to_string()))?;
                self.now.ready.retain(|ready| *ready != name);
            }
        }
        self.prepare_next(&wishes)?;
        (0..self.targets.len()).for_each(|at| self.publish_next(at, &wishes));
        Ok(())
    }

    fn prepare_next(&mut self, wishes: &Wishes) -> Result<()> {
        let Some(next) = self.now.next_to_prepare(wishes).filter(|_| self.preparing.is_due()) else { return Ok(()) };
        let is_pinned = self.now.pinned.iter().any(|pinned| pinned.name == next.name);
        if !is_pinned || self.preparing.is_given_up(self.options.is_once) {
            return Ok(());
        }
        let base = next.name.base_slot.filter(|_| self.options.checks_pairs);
        let base = base.and_then(|base| {
            let fulls = self.now.pinned.iter().filter(|archive| archive.is_full());
            fulls.map(|full| &full.name).find(|name| name.slot == base).cloned()
        });
        let (state, seconds) = (state_of(&next.name, self.options), unix_ns(SystemTime::now()) / 1_000_000_000);
        let new = match self.options.is_as_is {
            true => next.name.clone(),
            false => ArchiveName { extension: self.options.recompress.codec.extension(), ..next.name.clone() },
        };
        self.notes.change(|journal| {
            journal.states.insert(new.to_string(), state);
            if !next.is_full() {
                journal.incremental_unix_seconds = Some(seconds);
            }
        })?;
        self.has_begun_incremental |= !next.is_full();
        if self.hands.prepare.try_send((next.name.clone(), base)).is_ok() {
            self.now.preparing = Some(key(&next.name));
        }
        Ok(())
    }

    fn publish_next(&mut self, at: usize, wishes: &Wishes) {
        let Some(target) = self.targets.get(at) else { return };
        if target.is_busy || !target.attempts.is_due() || target.attempts.is_given_up(self.options.is_once) {
            return;
        }
        let task = match target.is_known {
            false => Some(Task::Look),
            true => {
                let next = self.now.next_to_publish(at).map(|name| (name, false));
                let next = next.or_else(|| self.now.next_to_keep(at, wishes).map(|name| (name, true)));
                next.and_then(|(name, is_kept)| Some(Task::Publish { ready: Box::new(self.ready_of(name)?), is_kept }))
            }
        };
        let Some(task) = task else { return };
        if let Task::Publish { ready, is_kept: true } = &task
            && !self.has_room_to_keep(at, &ready.archive)
        {
            return;
        }
        let (Some(target), Some(hand)) = (self.targets.get_mut(at), self.hands.targets.get(at)) else { return };
        target.is_busy = hand.try_send(Box::new((task, target.shelves.clone()))).is_ok();
    }

    fn ready_of(&self, name: &ArchiveName) -> Option<Ready> {
        let archive = self.ready.find(&name.to_string())?.clone();
        let state = self.notes.read(|journal| journal.states.get(&name.to_string()).copied());
        Some(Ready { archive, state: state.unwrap_or(State::Unchecked), slot_time: self.ready.slot_time })
    }

    fn has_room_to_keep(&mut self, at: usize, archive: &Archive) -> bool {
        let (Some(target), Some(bytes_max)) = (self.targets.get_mut(at), self.options.keep_bytes) else { return true };
        let bytes = target.shelves.kept_bytes.saturating_add(archive.size_bytes);
        let has_room = bytes <= bytes_max;
        if !has_room {
            // As if it were there: what has no room does not fill the directory of pins either.
            target.shelves.kept.keys.insert(key(&archive.name));
        }
        let is_nearly_full = bytes.saturating_mul(100) >= bytes_max.saturating_mul(NEARLY_FULL_PERCENT);
        let is_told = std::mem::replace(&mut target.is_told_nearly_full, is_nearly_full);
        let name = self.names.get(at).cloned().unwrap_or_default();
        if !has_room {
            let why = format!("{name}: there is no room to keep it within --keep-bytes");
            self.tell(Event::Skipped { name: archive.name.clone(), why });
        } else if is_nearly_full && !is_told {
            self.tell(Event::KeepIsNearlyFull { target: name, bytes, bytes_max });
        }
        has_room
    }

    /// Whether nothing is left to do, or everything that is was tried often enough.
    fn is_done(&self) -> bool {
        let wishes = self.wishes();
        let is_over = |at: usize, target: &TargetState| {
            let has_all = || self.now.next_to_publish(at).is_none() && self.now.next_to_keep(at, &wishes).is_none();
            !target.is_busy && (target.attempts.is_given_up(true) || target.is_known && has_all())
        };
        let next = self.now.next_to_prepare(&wishes);
        let is_prepared = self.now.preparing.is_none()
            && (self.preparing.is_given_up(true)
                || next.is_none_or(|next| self.now.pins(&wishes).no_room.contains(&next.name)));
        is_prepared && self.targets.iter().enumerate().all(|(at, target)| is_over(at, target))
    }

    fn hear(&mut self, message: Message) -> Result<()> {
        match message {
            Message::Changed => {}
            Message::Event(event) => self.tell(event),
            Message::Prepared { source, result, elapsed } => {
                self.now.preparing = None;
                match result {
                    Ok(name) => self.prepared(&name, elapsed)?,
                    Err(error) => self.not_prepared(&source, error)?,
                }
            }
            Message::Target { at, result } => {
                let Some(target) = self.targets.get_mut(at) else { return Ok(()) };
                target.is_busy = false;
                match result {
                    Ok(shelves) => {
                        (target.shelves, target.is_known) = (shelves, true);
                        target.attempts.succeeded();
                    }
                    Err(error) if error.kind() == ErrorKind::Interrupted => {}
                    Err(error) => {
                        let retry = target.attempts.failed(self.options.is_once);
                        let target = self.names.get(at).cloned();
                        self.tell(Event::Failed { error, target, retry });
                    }
                }
            }
        }
        Ok(())
    }

    fn prepared(&mut self, name: &ArchiveName, elapsed: Duration) -> Result<()> {
        self.preparing.succeeded();
        self.look()?;
        let Some(ready) = self.ready_of(name) else { return Ok(()) };
        let Ready { archive, state, .. } = ready;
        let root = archive.hashes.map(|hashes| hashes.root);
        self.tell(Event::Prepared { name: archive.name, state, bytes: archive.size_bytes, root, elapsed });
        Ok(())
    }

    fn not_prepared(&mut self, source: &ArchiveName, error: Error) -> Result<()> {
        let is_of_archive = matches!(error.kind(), ErrorKind::Damaged);
        if error.kind() == ErrorKind::Interrupted {
            return Ok(());
        }
        let was = self.notes.read(|journal: &Journal| journal.pins.get(&source.to_string()).copied());
        self.look()?;
        let pinned = &self.now.pinned;
        let is_now = pinned.iter().find(|archive| archive.name == *source).map(Identity::from);
        let is_seen_changed =
            self.now.seen.iter().any(|seen| seen.name == *source && was != Some(Identity::from(seen)));
        let is_changed = is_seen_changed || is_now.zip(was).is_none_or(|(now, was)| !now.is_same_content(&was));
        if !is_of_archive {
            let retry = self.preparing.failed(self.options.is_once);
            self.tell(Event::Failed { error, target: None, retry });
        } else if is_changed {
            // It was written to after it had its name, as a copy of some other program is: when it is whole, it is taken.
            self.pins.unpin(source)?;
            let retry = self.preparing.failed(self.options.is_once);
            let error =
                Error::failed(format!("{source} changed while it was read")).with_hint("it is taken when it is whole");
            self.tell(Event::Failed { error, target: None, retry });
        } else {
            let kept = self.pins.quarantine(source);
            self.notes.change(|journal| was.map(|was| journal.refuse(source, was)))?;
            let kept = match kept {
                Ok(path) => Some(path),
                Err(error) => {
                    self.progress.warn(&error.to_string());
                    self.pins.unpin(source)?;
                    None
                }
            };
            self.tell(Event::Refused { name: source.clone(), error, kept });
        }
        Ok(())
    }
}

/// By its first bytes; what cannot be read is for the check to tell of.
fn looks_like_firedancers(archive: &Archive) -> bool {
    let Ok((file, _)) = archive.open() else { return false };
    let source = LocalFile::new(archive.path(), file, archive.size_bytes);
    let (name, io_policy) = (Some(archive.name.clone()), IoPolicy::default());
    OpenArchive::of_source(Arc::new(source), name, IndexPolicy::Ignore, &io_policy)
        .is_ok_and(|open| is_by_firedancer(&open))
}

/// Whether the directory belongs to the user that Firedancer's own instructions make.
fn is_owned_by_firedancer(options: &PublishOptions) -> bool {
    let Ok(metadata) = fs::metadata(&options.snapshots) else { return false };
    let users = fs::read_to_string("/etc/passwd").unwrap_or_default();
    let mut fields = users.lines().map(|line| line.split(':'));
    fields.any(|mut fields| {
        fields.next() == Some("firedancer") && fields.nth(1).and_then(|uid| uid.parse().ok()) == Some(metadata.uid())
    })
}
