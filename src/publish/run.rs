//! The planning thread: looks, pins, hands out work, and hears what came of it.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant, SystemTime};

use parking_lot::Mutex;
use slotpress_base::{Error, Hint, Progress, Result, ShowPath};
use slotpress_format::{ArchiveName, BankFile};
use slotpress_net::Client;
use slotpress_read::catalog::Archive;
use slotpress_read::{Catalog, look_for_slot_time, scan_names, unix_ns};
use slotpress_serve::supervisor;
use slotpress_serve::tell::tell;

use super::event::Event;
use super::head_start::Making;
use super::journal::Identity;
use super::metrics::Metrics;
use super::notes::Notes;
use super::pins::{PinDir, Pinned};
use super::plan::{Key, Published, Situation, Wishes, epoch_ends, key};
use super::state::{Attempts, Failing, Said, TargetState, Worst};
use super::target::Target;
use super::threads::{Background, Hands, Message};
use super::writer::{Writers, WrittenBy, damage_of};
use super::{PublishOptions, genesis, places};

/// How often the directory is looked at, also without a word of inotify.
const LOOK_EVERY: Duration = Duration::from_secs(5);

/// Who writes a file writes to it more often than this.
const WRITTEN_WITHIN: Duration = Duration::from_secs(60);

const HINT_NEVER: &str = "put archives and pins on one file system, with reflinks (xfs, btrfs) where Firedancer writes; where only Agave \
                          does: --writer agave";

/// An archive that cannot be pinned, or has no room.
#[derive(Debug)]
pub(super) struct LeftOut {
    name: ArchiveName,
    why: String,
    hint: Hint,
}

/// How often the user's wish to stop is looked at.
const TICK: Duration = Duration::from_millis(50);

/// Publishes until the user asks to stop, or, once, until everything is published that is there.
///
/// # Errors
/// A directory cannot be used, another process works in the directory of pins. Once: the gravest of what failed; of
/// [`Damaged`](slotpress_base::error::ErrorKind::Damaged) where an archive was.
pub fn publish(options: &PublishOptions, on_event: &mut dyn FnMut(&Event), progress: &dyn Progress) -> Result<()> {
    places::check(options)?;
    let genesis = options.genesis.as_deref().map(genesis::read).transpose()?;
    let pins = PinDir::open(&options.pins, &options.snapshots, options.quarantine.as_deref())?;
    let notes = Notes::open(&pins)?;
    let names: Vec<String> = options.targets.iter().map(ToString::to_string).collect();
    let metrics = Arc::new(Metrics::new(&names, options.alert_after));
    let telling = options.metrics.map(|listen| tell(listen, metrics.clone())).transpose()?;
    let background = Background::new(progress);
    let (send, messages) = channel();
    let (client, teller) = (Client::new(&options.client)?, send.clone());
    let tell_event = |event| drop(teller.send(Message::Event(event)));
    let target = |at: &_| Target {
        at: Clone::clone(at),
        client: &client,
        options,
        notes: &notes,
        tell: &tell_event,
        genesis: genesis.as_deref(),
        was: Mutex::default(),
    };
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
                failing: Failing::default(),
                making: None,
                looking: Attempts::default(),
                has_begun_incremental: false,
                writers: Writers::default(),
                epochs: None,
                skipped: Vec::new(),
                left_out: BTreeMap::new(),
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

/// What it knows and uses.
pub(super) struct Publisher<'a> {
    pub(super) options: &'a PublishOptions,
    pub(super) pins: &'a PinDir,
    pub(super) notes: &'a Notes<'a>,
    pub(super) hands: Hands,
    pub(super) on_event: &'a mut dyn FnMut(&Event),
    pub(super) progress: &'a dyn Progress,
    pub(super) names: Vec<String>,
    pub(super) metrics: &'a Metrics,
    pub(super) listens_at: Option<SocketAddr>,
    pub(super) targets: Vec<TargetState>,
    pub(super) now: Situation,
    pub(super) ready: Catalog,
    pub(super) failing: Failing,
    /// What is being prepared, for those who wait for it.
    pub(super) making: Option<Arc<Making>>,
    pub(super) looking: Attempts,
    pub(super) has_begun_incremental: bool,
    pub(super) writers: Writers,
    /// A bank file with the epoch schedule of the cluster, where the ends of epochs are kept.
    pub(super) epochs: Option<BankFile>,
    /// What cannot be pinned as it is: tried again when the file is another one, or has changed.
    pub(super) skipped: Vec<(Key, Identity)>,
    /// What was left out, and why, where the run is to end.
    pub(super) left_out: BTreeMap<Key, LeftOut>,
    pub(super) said: Said,
    pub(super) worst: Worst,
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
            // Also as it is before looking: what becomes due meanwhile does not wait for the next look.
            let pause = self.pause();
            if self.looking.is_due() {
                let worked = self.look().and_then(|()| self.pin()).and_then(|()| self.hand_out());
                self.go_on(worked)?;
            }
            if self.options.is_once && self.is_done() {
                // What other threads have said by now is heard.
                while let Ok(message) = messages.try_recv() {
                    let heard = self.hear(message);
                    self.go_on(heard)?;
                }
                return self.worst.take().map_or_else(|| self.check_left_out(), Err);
            }
            self.tell_state();
            let (start, pause) = (Instant::now(), self.pause().min(pause));
            while !self.progress.is_interrupted() && start.elapsed() < pause {
                match messages.recv_timeout(TICK) {
                    Ok(message) => {
                        let heard = self.hear(message);
                        self.go_on(heard)?;
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

    /// A disk that fails, or is full, may do better later: only a run that is to end ends by it.
    fn go_on(&mut self, worked: Result<()>) -> Result<()> {
        match worked {
            Ok(()) => self.looking.succeeded(),
            Err(error) if self.options.is_once => return Err(error),
            Err(error) => {
                let retry = self.looking.failed(false);
                self.tell(Event::Failed { error, target: None, retry, is_of_hook: false });
            }
        }
        Ok(())
    }

    /// How long nothing needs to be looked at, unless something is heard.
    fn pause(&self) -> Duration {
        let waits = self.targets.iter().any(|target| !target.is_busy && !target.attempts.is_due());
        if waits || self.failing.has_pauses() || !self.looking.is_due() { TICK * 4 } else { LOOK_EVERY }
    }

    /// To the service manager and for metrics.
    fn tell_state(&self) {
        supervisor::alive();
        let bytes = self.now.pinned.iter().map(|archive| archive.size_bytes).fold(0, u64::saturating_add);
        self.metrics.pinned_bytes.set(bytes.try_into().unwrap_or(i64::MAX));
        for ((at, name), target) in self.names.iter().enumerate().zip(&self.targets) {
            let waits =
                self.now.targets.get(at).map_or(0, |has| self.now.ready.iter().filter(|it| has.wants(it)).count());
            self.metrics.see(name, &target.shelves, waits, target.is_known && target.attempts.is_first());
        }
        if let Some(bytes) = self.pins.free_bytes() {
            self.metrics.see_free(&self.options.pins.shown(), bytes);
        }
        let newest = self.targets.iter().filter_map(|target| target.shelves.newest.of_all());
        let newest = newest.map(|newest| newest.slot).max();
        let newest = newest.map_or("nothing is published yet".to_string(), |slot| format!("slot {slot} is published"));
        let now = if self.now.preparing.is_some() { "; checking an archive" } else { "" };
        let failing = self.targets.iter().filter(|target| !target.attempts.is_first()).count();
        let failing = if failing > 0 { format!("; {failing} targets fail") } else { String::new() };
        supervisor::status(&format!("{newest}{now}{failing}"));
    }

    pub(super) fn tell(&mut self, event: Event) {
        if !self.said.is_new(&event) {
            return;
        }
        // What is tried again may work: then all is well in the end.
        if let Event::Failed { error, retry: None, is_of_hook: false, .. } | Event::Refused { error, .. } = &event {
            self.worst.add(error);
        }
        self.metrics.count(&event);
        (self.on_event)(&event);
        if !self.hands.tell(&event) {
            self.progress.warn("the programs that are told of archives take too long: one was not told");
        }
    }

    pub(super) fn wishes(&self) -> Wishes {
        let mut keep_slots = self.options.keep_slots.clone();
        if let (Some(bank), Some(newest)) = (&self.epochs, self.now.seen.iter().map(|archive| archive.name.slot).max())
        {
            let since = self.notes.read(|journal| journal.first_slot).unwrap_or(newest);
            keep_slots.extend(epoch_ends(&bank.slots_of_epoch_of(newest), since));
        }
        Wishes {
            // Once: one at most, whenever the last one was.
            every: if self.options.is_once { Duration::MAX } else { self.options.every },
            keep_slots,
            pin_bytes: self.options.pin_bytes,
            checks_pairs: self.options.checks_pairs,
        }
    }

    pub(super) fn look(&mut self) -> Result<()> {
        self.now.seen = scan_names(std::slice::from_ref(&self.options.snapshots))?.archives().to_vec();
        if self.options.keeps_epoch_ends && self.epochs.is_none() {
            self.epochs = self.writers.any_bank(&self.now.seen);
        }
        self.now.pinned = self.pins.pinned()?;
        let mut ready = self.pins.ready(&self.ready)?;
        look_for_slot_time(&mut ready, &self.ready);
        ready.unusable().iter().for_each(|unusable| self.progress.warn(&unusable.to_string()));
        self.ready = ready;
        self.now.ready = self.ready.archives().iter().map(|archive| archive.name.clone()).collect();
        let newest = self.now.seen.iter().map(|archive| archive.name.slot).max();
        let begun = self.notes.change(|journal| {
            journal.first_slot = journal.first_slot.or(newest);
            journal.incremental_unix_seconds
        })?;
        let seen: Vec<_> = self.now.seen.iter().map(|archive| (key(&archive.name), Identity::from(archive))).collect();
        self.skipped.retain(|skipped| seen.contains(skipped));
        self.now.refused = self.notes.read(|journal| journal.refused_keys(&self.now.seen).collect());
        self.now.refused.extend(self.skipped.iter().map(|(key, _)| *key));
        let since =
            |begun: u64| Duration::from_secs((unix_ns(SystemTime::now()) / 1_000_000_000).saturating_sub(begun));
        let there = self.now.seen.iter().chain(&self.now.pinned).map(|archive| key(&archive.name));
        let there: BTreeSet<Key> = there.collect();
        self.failing.retain(|key| there.contains(key));
        self.now.waiting = self.failing.waiting(self.options.is_once);
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
            let why = "there is no room for its pin".to_string();
            self.leave_out(name, why, Hint::MorePinBytes);
        }
        for name in pins.add {
            let Some(archive) = self.now.seen.iter().find(|archive| archive.name == name).cloned() else { continue };
            self.notes.change(|journal| journal.pins.insert(name.to_string(), Identity::from(&archive)))?;
            let written_by = self.writers.written_by(self.options, &self.now.seen, &archive);
            match self.pins.pin(&archive, written_by)? {
                Pinned::Yes => self.tell(Event::Pinned { name }),
                // Once: not for ever.
                Pinned::NotNow if self.options.is_once && self.failing.is_due(&key(&name)) => {
                    self.failing.failed(key(&name), true);
                }
                Pinned::Gone | Pinned::NotNow => {}
                Pinned::Never(why) => self.never_pinned(&archive, why, written_by)?,
            }
        }
        self.now.pinned = self.pins.pinned()?;
        let pinned: BTreeSet<String> = self.now.pinned.iter().map(|archive| archive.name.to_string()).collect();
        self.notes.change(|journal| journal.pins.retain(|name, _| pinned.contains(name)))
    }

    fn never_pinned(&mut self, archive: &Archive, why: String, written_by: WrittenBy) -> Result<()> {
        let (name, identity) = (archive.name.clone(), Identity::from(archive));
        self.now.refused.insert(key(&name));
        let damage = Some(archive).filter(|_| written_by != WrittenBy::Agave).and_then(damage_of);
        match damage {
            Some(error) if archive.age(unix_ns(SystemTime::now())) >= WRITTEN_WITHIN => {
                self.notes.change(|journal| journal.refuse(&name, identity))?;
                self.tell(Event::Refused { name, error, kept: None });
            }
            // It may be whole later, or stay as it is.
            Some(_) => self.leave_out(name, why, HINT_NEVER),
            None => {
                self.skipped.push((key(&name), identity));
                self.leave_out(name, why, HINT_NEVER);
            }
        }
        Ok(())
    }

    fn leave_out(&mut self, name: ArchiveName, why: String, hint: impl Into<Hint>) {
        if self.options.is_once {
            self.left_out.insert(key(&name), LeftOut { name: name.clone(), why: why.clone(), hint: hint.into() });
        }
        self.tell(Event::Skipped { name, why });
    }

    /// What was left out must not be what a target lacks.
    fn check_left_out(&self) -> Result<()> {
        let lacks = |of: &&LeftOut| self.now.targets.iter().any(|target| target.wants(&of.name));
        let newest = self.left_out.values().filter(lacks).max_by_key(|of| of.name.slot);
        newest.map_or(Ok(()), |LeftOut { name, why, hint }| {
            Err(Error::failed(format!("{name} was left out, and is not published: {why}")).with_hint(hint.clone()))
        })
    }

    /// Whether nothing is left to do, or everything that is was tried often enough.
    fn is_done(&self) -> bool {
        let wishes = self.wishes();
        let is_over = |at: usize, target: &TargetState| {
            let has_all = || self.now.next_to_publish(at).is_none() && self.now.next_to_keep(at, &wishes).is_none();
            !target.is_busy && (target.attempts.is_given_up(true) || target.is_known && has_all())
        };
        let next = self.now.next_to_prepare(&wishes);
        let is_prepared =
            self.now.preparing.is_none() && next.is_none_or(|next| self.now.pins(&wishes).no_room.contains(&next.name));
        is_prepared && self.targets.iter().enumerate().all(|(at, target)| is_over(at, target))
    }
}
