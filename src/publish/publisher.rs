//! The planning thread of publishing: scans directories, pins archives, assigns work to the other threads, and handles
//! their results.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use slotpress_base::{CancelToken, Error, ErrorKind, Hint, Progress, Result, ShowPath, clock};
use slotpress_format::{ArchiveName, BankFile};
use slotpress_net::{Client, NetError, NetErrorKind};
use slotpress_read::catalog::Archive;
use slotpress_read::{Catalog, Fault, judge_file, look_for_slot_time, scan_names, unix_ns};
use slotpress_serve::supervisor;
use slotpress_serve::tell::tell;
use slotpress_stores::Target;

use super::PublishOptions;
use super::event::Event;
use super::index::{Ahead, Ready};
use super::journal::{Identity, Journal, StateCheck};
use super::metrics::Metrics;
use super::pins::{PinDir, Pinned, Writers, WrittenBy, check_dirs};
use super::plan::{ArchiveSet, Key, PlanOptions, Situation, epoch_ends, key};
use super::rebasing::{self, RebaseOrder, Rebasing};
use super::retry::Retry;
use super::target::{TargetContents, TargetWorker, Task, read_genesis};
use super::upload::Making;
use super::workers::{Background, Message, Workers, state_of};

const LOOK_EVERY: Duration = Duration::from_secs(1);

/// A file modified within this time may still be being written.
const WRITTEN_WITHIN: Duration = Duration::from_secs(60);

/// Interval between checks whether the user has interrupted the run.
const TICK: Duration = Duration::from_millis(50);

/// Limit of archives remembered as reported, to report each only once. When it is reached, all are forgotten.
const SKIPPED_MAX: usize = 1000;

const HINT_NEVER: &str = "put archives and pins on one file system, with reflinks (xfs, btrfs) where Firedancer writes; where only Agave \
                          does: --writer agave";

/// Publishes archives until the user interrupts it, or with [`PublishOptions::is_once`] until everything present is
/// published. Blocks meanwhile. `on_event` is called on the calling thread.
///
/// # Errors
/// If a directory cannot be used, or another process works in the directory of pins. With `is_once`, also the gravest
/// failure, of kind [`Damaged`](slotpress_base::error::ErrorKind::Damaged) if an archive was damaged.
pub fn publish(options: &PublishOptions, on_event: &mut dyn FnMut(&Event), progress: &dyn Progress) -> Result<()> {
    check_dirs(options)?;
    rebasing::check_settings(options)?;
    let genesis = options.genesis.as_deref().map(read_genesis).transpose()?;
    let pins = PinDir::open(options)?;
    let journal = pins.journal()?;
    let names = options.targets.iter().map(ToString::to_string);
    let metrics = Arc::new(Metrics::new(names, options.alert_after));
    let telling = options.metrics.map(|listen| tell(listen, metrics.clone())).transpose()?;
    let background = Background { progress, is_over: AtomicBool::new(false) };
    let (send, messages) = channel();
    let (client, teller) = (Client::new(&options.client)?, send.clone());
    let tell_event = |event| drop(teller.send(Message::Event(event)));
    let worker = |target| TargetWorker {
        target,
        client: &client,
        options,
        journal: &journal,
        tell: &tell_event,
        genesis: genesis.as_deref(),
        was: Mutex::default(),
        ahead: Ahead::default(),
    };
    let targets: Vec<TargetWorker<'_>> = options.targets.iter().map(worker).collect();
    std::thread::scope(|scope| {
        let workers = Workers::start(scope, &pins, &targets, options, &background, &send);
        let result = workers.and_then(|workers| {
            let target = |target: &Target| TargetState { name: target.to_string(), ..TargetState::default() };
            let mut publisher = Publisher {
                options,
                pins: &pins,
                journal: &journal,
                workers,
                on_event,
                progress,
                metrics: &metrics,
                listens_at: telling.as_ref().map(|telling| telling.address),
                targets: options.targets.iter().map(target).collect(),
                now: Situation::default(),
                ready: Catalog::default(),
                failing: BTreeMap::new(),
                making: None,
                rebasing: Rebasing::default(),
                looking: Retry::default(),
                has_begun_incremental: false,
                writers: Writers::default(),
                epochs: None,
                skipped: Vec::new(),
                told_skipped: BTreeSet::new(),
                left_out: BTreeMap::new(),
                gravest: None,
            };
            publisher.run(&messages)
        });
        // The other threads end when the channels in `workers` are closed.
        background.is_over.store(true, Relaxed);
        result
    })
}

#[derive(Clone, Debug, Default)]
struct TargetState {
    name: String,
    contents: TargetContents,
    is_known: bool,
    is_busy: bool,
    sends: Option<ArchiveName>,
    retry: Retry,
}

struct Publisher<'a> {
    options: &'a PublishOptions,
    pins: &'a PinDir,
    journal: &'a Journal,
    workers: Workers,
    on_event: &'a mut dyn FnMut(&Event),
    progress: &'a dyn Progress,
    metrics: &'a Metrics,
    listens_at: Option<SocketAddr>,
    targets: Vec<TargetState>,
    now: Situation,
    ready: Catalog,
    /// Preparations that failed although the archive is not damaged.
    failing: BTreeMap<Key, Retry>,
    /// The archive being prepared, shared with the threads that send it meanwhile.
    making: Option<Arc<Making>>,
    rebasing: Rebasing,
    looking: Retry,
    has_begun_incremental: bool,
    writers: Writers,
    /// A bank file, for the cluster's epoch schedule; only read if the ends of epochs are kept.
    epochs: Option<BankFile>,
    /// Files that cannot be pinned as they are: tried again once the file changes.
    skipped: Vec<(Key, Identity)>,
    /// Messages about skipped archives that were shown already.
    told_skipped: BTreeSet<String>,
    /// With `--once`: archives left out, and the reasons.
    left_out: BTreeMap<Key, (ArchiveName, Error)>,
    /// The gravest failure that is not repeated. A damaged archive counts most, a network failure least.
    gravest: Option<Error>,
}

impl Publisher<'_> {
    fn run(&mut self, messages: &Receiver<Message>) -> Result<()> {
        self.tell(Event::Watching {
            snapshots: self.options.snapshots.clone(),
            targets: self.options.targets.iter().map(ToString::to_string).collect(),
            metrics: self.listens_at,
        });
        supervisor::ready();
        while !self.progress.is_interrupted() {
            if self.looking.is_due() {
                let worked = self.look().and_then(|()| self.pin()).and_then(|()| self.hand_out());
                self.go_on(worked)?;
            }
            if self.options.is_once && self.is_done() {
                // Handle results that other threads have sent meanwhile.
                while let Ok(message) = messages.try_recv() {
                    let heard = self.hear(message);
                    self.go_on(heard)?;
                }
                return self.gravest.take().map_or_else(|| self.check_left_out(), Err);
            }
            self.tell_state();
            let start = Instant::now();
            while !self.progress.is_interrupted() && start.elapsed() < LOOK_EVERY {
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
        if self.options.is_once { Err(Error::interrupted()) } else { Ok(()) }
    }

    /// Handles the result of a step. A failing or full disk may recover: only a run with `--once` ends, all others
    /// repeat the step.
    fn go_on(&mut self, worked: Result<()>) -> Result<()> {
        match worked {
            Ok(()) => self.looking = Retry::default(),
            Err(error) if self.options.is_once => return Err(error),
            Err(error) => {
                let retry = self.looking.failed(false);
                self.tell_failure(error, None, retry);
            }
        }
        Ok(())
    }

    /// Reports the state to the service manager and to the metrics.
    fn tell_state(&self) {
        supervisor::alive();
        let pinned = self.now.pinned.iter().map(|pinned| pinned.size_bytes);
        self.metrics.see_pinned(pinned.fold(0, u64::saturating_add));
        for (at, target) in self.targets.iter().enumerate() {
            let waits =
                self.now.targets.get(at).map_or(0, |has| self.now.ready.iter().filter(|it| has.wants(it)).count());
            let is_up = target.is_known && target.retry.failures == 0;
            self.metrics.see(&target.name, &target.contents, waits, is_up);
        }
        if let Some(bytes) = self.pins.free_bytes() {
            self.metrics.see_free(&self.options.pins.shown(), bytes);
        }
        let newest = self.targets.iter().filter_map(|target| target.contents.newest.of_all());
        if let Some(slot) = newest.map(|newest| newest.slot).max() {
            supervisor::status(&format!("slot {slot} is published"));
        }
    }

    fn tell_failure(&mut self, error: Error, target: Option<String>, retry: Option<Duration>) {
        self.tell(Event::Failed { error, target, retry, is_of_hook: false });
    }

    fn tell(&mut self, event: Event) {
        match &event {
            Event::Skipped { name, why } => {
                if self.told_skipped.len() >= SKIPPED_MAX {
                    self.told_skipped.clear();
                }
                if !self.told_skipped.insert(format!("{name} {why}")) {
                    return;
                }
            }
            // Failures that are repeated do not count: the repetition may succeed.
            Event::Failed { error, retry: None, is_of_hook: false, .. } | Event::Refused { error, .. } => {
                let rank = |error: &Error| match error.kind() {
                    ErrorKind::Damaged => 2,
                    ErrorKind::Network => 0,
                    _ => 1,
                };
                let is_less = |other: &Error| rank(other) < rank(error);
                if self.gravest.as_ref().is_none_or(is_less) {
                    self.gravest = Some(error.clone());
                }
            }
            _ => {}
        }
        self.metrics.count(&event);
        (self.on_event)(&event);
        if !self.workers.tell(&event) {
            self.progress.warn("the programs that are told of archives take too long: one was not told");
        }
    }

    fn plan_options(&self) -> PlanOptions {
        let mut keep_slots = self.options.keep_slots.clone();
        let newest = self.now.seen.iter().map(|archive| archive.name.slot).max();
        if let (Some(bank), Some(newest)) = (&self.epochs, newest) {
            let since = self.journal.read(|entries| entries.first_slot).unwrap_or(newest);
            keep_slots.extend(epoch_ends(&bank.slots_of_epoch_of(newest), since));
        }
        PlanOptions {
            // With `--once`, at most one incremental archive is prepared.
            every: if self.options.is_once { Duration::MAX } else { self.options.every },
            keep_slots,
            pin_bytes: self.options.pin_bytes,
            checks_pairs: self.options.checks_pairs,
            rebase_onto: self.options.rebase_onto,
        }
    }

    fn look(&mut self) -> Result<()> {
        let is_once = self.options.is_once;
        self.now.seen = scan_names(&self.options.validator_dirs())?.archives().to_vec();
        if self.options.keeps_epoch_ends && self.epochs.is_none() {
            self.epochs = self.writers.any_bank(&self.now.seen);
        }
        self.now.pinned = self.pins.pinned()?;
        let mut ready = self.pins.ready(&self.ready)?;
        look_for_slot_time(&mut ready, &self.ready);
        for unusable in ready.unusable() {
            self.progress.warn(&unusable.to_string());
        }
        self.ready = ready;
        self.now.ready = self.ready.archives().iter().map(|archive| archive.name.clone()).collect();
        let newest = self.now.seen.iter().map(|archive| archive.name.slot).max();
        let begun = self.journal.change(|entries| {
            entries.first_slot = entries.first_slot.or(newest);
            entries.incremental_unix_seconds
        })?;
        let is = |archive: &Archive, of: &(Key, Identity)| (key(&archive.name), Identity::from(archive)) == *of;
        self.skipped.retain(|skipped| self.now.seen.iter().any(|seen| is(seen, skipped)));
        self.now.refused = self.journal.read(|entries| {
            let refused = self.now.seen.iter().filter(|archive| entries.has_refused(archive));
            refused.map(|archive| key(&archive.name)).chain(self.skipped.iter().map(|(key, _)| *key)).collect()
        });
        self.now.refused.extend(&self.rebasing.refused);
        let there = self.now.seen.iter().chain(&self.now.pinned);
        let there: BTreeSet<Key> = there.map(|archive| key(&archive.name)).collect();
        self.failing.retain(|key, _| there.contains(key));
        let waiting = self.failing.iter().filter(|(_, retry)| retry.lets_others_go(is_once));
        self.now.waiting = waiting.map(|(key, _)| *key).collect();
        self.now.since_incremental = match is_once {
            true => self.has_begun_incremental.then_some(Duration::ZERO),
            // A time ahead was written before the clock jumped back: it says nothing.
            false => begun.and_then(|begun| unix_seconds().checked_sub(begun)).map(Duration::from_secs),
        };
        let published = |(state, target): (&TargetState, &Target)| {
            let is_silent = !state.is_known && state.retry.failures == 0;
            let is_dir = matches!(target, Target::Dir(_));
            ArchiveSet { is_silent, is_dir, ..state.contents.published.clone() }
        };
        self.now.targets = self.targets.iter().zip(&self.options.targets).map(published).collect();
        self.now.kept = self.targets.iter().map(|target| target.contents.kept.clone()).collect();
        let rebased = self.ready.archives().iter().filter(|archive| archive.is_rebased());
        let rebased = rebased.map(|archive| key(&archive.name)).filter(|key| self.now.has_full_of(key));
        self.now.rebased = rebased.collect();
        Ok(())
    }

    fn pin(&mut self) -> Result<()> {
        let pins = self.now.pins(&self.plan_options());
        for name in &pins.drop {
            self.pins.unpin(name)?;
        }
        for name in pins.no_room {
            let why = "there is no room for its pin".to_string();
            self.leave_out(name, why, Hint::MorePinBytes);
        }
        for name in pins.add {
            let Some(archive) = find(&self.now.seen, &name).cloned() else { continue };
            self.journal.change(|entries| entries.pins.insert(name.to_string(), Identity::from(&archive)))?;
            let written_by = self.writers.written_by(self.options, &self.now.seen, &archive);
            match self.pins.pin(&archive, written_by)? {
                Pinned::Yes => self.tell(Event::Pinned { name }),
                // With `--once`, do not wait for ever.
                Pinned::NotNow if self.options.is_once => {
                    let retry = self.failing.entry(key(&name)).or_default();
                    if retry.is_due() {
                        retry.failed(true);
                    }
                }
                Pinned::Gone | Pinned::NotNow => {}
                Pinned::Never(why) => self.never_pinned(&archive, why, written_by)?,
            }
        }
        self.now.pinned = self.pins.pinned()?;
        let pinned: BTreeSet<String> = self.now.pinned.iter().map(|archive| archive.name.to_string()).collect();
        self.journal.change(|entries| entries.pins.retain(|name, _| pinned.contains(name)))
    }

    fn never_pinned(&mut self, archive: &Archive, why: String, written_by: WrittenBy) -> Result<()> {
        let (name, identity) = (archive.name.clone(), Identity::from(archive));
        self.now.refused.insert(key(&name));
        // Look for a cause in the file itself: a few reads detect a damaged one.
        let fault = Some(archive).filter(|_| written_by != WrittenBy::Agave).and_then(|it| judge_file(it).err());
        match fault.filter(|fault| *fault != Fault::Unreadable) {
            Some(fault) if archive.age(unix_ns(clock::now())) >= WRITTEN_WITHIN => {
                let error = Error::damaged(format!("{}: {fault}", archive.path().shown()));
                self.journal.change(|entries| entries.refuse(&name, identity))?;
                self.tell(Event::Refused { name, error, kept: None });
            }
            // It may become whole later, or stay as it is.
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
            let error = Error::failed(format!("{name} was left out, and is not published: {why}")).with_hint(hint);
            self.left_out.insert(key(&name), (name.clone(), error));
        }
        self.tell(Event::Skipped { name, why });
    }

    /// With `--once`: fails if a target lacks an archive that was left out.
    fn check_left_out(&self) -> Result<()> {
        let lacked =
            self.left_out.values().filter(|(name, _)| self.now.targets.iter().any(|target| target.wants(name)));
        lacked.max_by_key(|(name, _)| name.slot).map_or(Ok(()), |(_, error)| Err(error.clone()))
    }

    /// True if nothing is left to do, or all attempts at it are used up.
    fn is_done(&self) -> bool {
        let options = self.plan_options();
        let is_over = |at: usize, target: &TargetState| {
            let has_all = || self.next_for(at, &options).is_none();
            !target.is_busy && (target.retry.is_given_up(true) || target.is_known && has_all())
        };
        let is_rebased = self.rebasing.running.is_none() && self.now.to_rebase(&options).is_empty();
        let are_over = || self.targets.iter().enumerate().all(|(at, target)| is_over(at, target));
        is_rebased && self.is_all_prepared(&options) && are_over()
    }

    fn is_all_prepared(&self, options: &PlanOptions) -> bool {
        let next = self.now.next_to_prepare(options);
        let has_no_room = |next: Archive| self.now.pins(options).no_room.contains(&next.name);
        self.now.preparing.is_none() && next.is_none_or(has_no_room)
    }

    /// Chooses the next archive for a target, and whether it goes into `kept/`.
    fn next_for(&self, at: usize, options: &PlanOptions) -> Option<(&ArchiveName, bool)> {
        let next = self.now.next_to_publish(at).map(|name| (name, false));
        let next = next.or_else(|| self.now.next_to_keep(at, options).map(|name| (name, true)));
        next.or_else(|| self.now.next_rebased(at, options).map(|name| (name, false)))
    }

    /// Deletes ready archives that are no longer needed, and assigns work to idle threads.
    fn hand_out(&mut self) -> Result<()> {
        let options = self.plan_options();
        // A target that has not reported yet may need any archive.
        if self.now.targets.iter().all(|target| !target.is_silent) {
            let in_use: Vec<&ArchiveName> = self.targets.iter().filter_map(|target| target.sends.as_ref()).collect();
            let unneeded = self.now.unneeded(&options).into_iter().filter(|name| !in_use.contains(name));
            for name in unneeded.cloned().collect::<Vec<_>>() {
                self.pins.remove_ready(&name)?;
                self.journal.change(|entries| entries.forget(&name))?;
                self.now.ready.retain(|ready| *ready != name);
            }
        }
        self.prepare_next(&options)?;
        self.rebase_next(&options)?;
        (0..self.targets.len()).for_each(|at| self.publish_next(at, &options));
        Ok(())
    }

    fn prepare_next(&mut self, options: &PlanOptions) -> Result<()> {
        let Some(next) = self.now.next_to_prepare(options) else { return Ok(()) };
        let is_due = self.failing.get(&key(&next.name)).is_none_or(Retry::is_due);
        if !is_due || find(&self.now.pinned, &next.name).is_none() {
            return Ok(());
        }
        let base = next.name.base_slot.filter(|_| self.options.checks_pairs);
        let is_base = |full: &&Archive| full.is_full() && Some(full.name.slot) == base;
        let base = self.now.pinned.iter().find(is_base).map(|base| base.name.clone());
        let state = state_of(&next.name, self.options);
        let mut new = next.name.clone();
        if !self.options.is_as_is {
            new.extension = self.options.recompress.codec.extension();
        }
        self.journal.change(|entries| {
            entries.states.insert(new.to_string(), state);
            if !next.is_full() {
                entries.incremental_unix_seconds = Some(unix_seconds());
            }
        })?;
        self.has_begun_incremental |= !next.is_full();
        let making = Arc::new(Making::new(new, state));
        if self.workers.prepare.try_send((next.name.clone(), base, making.clone())).is_ok() {
            (self.now.preparing, self.making) = (Some(key(&next.name)), Some(making));
        }
        Ok(())
    }

    /// Interrupts a rebase that is no longer wanted. Begins the next one if nothing is to be prepared, and no working target
    /// lacks a full archive.
    fn rebase_next(&mut self, options: &PlanOptions) -> Result<()> {
        let wanted = self.now.to_rebase(options);
        self.rebasing.keep_to(&wanted.union(&self.now.rebased).copied().collect(), self.progress);
        let Some(next) = self.rebasing.next(&wanted) else { return Ok(()) };
        let lacks_full = |at: usize| self.now.next_to_publish(at).is_some_and(|name| name.base_slot.is_none());
        let mut working = (0..).zip(&self.targets).filter(|(_, target)| target.retry.failures == 0);
        if !self.is_all_prepared(options) || working.any(|(at, _)| lacks_full(at)) {
            return Ok(());
        }
        let Some(from) = self.now.targets.iter().position(|target| target.can_rebase(&next)) else { return Ok(()) };
        let order = RebaseOrder { name: rebasing::name_of(&next, self.options), from, cancel: CancelToken::default() };
        self.journal.change(|entries| entries.states.insert(order.name.to_string(), StateCheck::Checked))?;
        self.progress.detail(&format!("rebasing: {}", order.name));
        self.rebasing.running = self.workers.rebase.try_send(order.clone()).is_ok().then_some(order);
        Ok(())
    }

    fn publish_next(&mut self, at: usize, options: &PlanOptions) {
        let Some(target) = self.targets.get(at) else { return };
        if target.is_busy || !target.retry.is_due() || target.retry.is_given_up(self.options.is_once) {
            return;
        }
        let task = match self.next_for(at, options) {
            _ if !target.is_known => Some(Task::Look),
            Some((name, is_kept)) => self.ready_of(name).map(|ready| Task::Publish { ready: Box::new(ready), is_kept }),
            None => self.making.clone().filter(|making| self.wants_head_start(at, making)).map(Task::HeadStart),
        };
        let sends = match &task {
            None => return,
            Some(Task::Publish { ready, is_kept: true }) if !self.has_room_to_keep(at, &ready.archive) => return,
            Some(Task::Publish { ready, .. }) => Some(ready.archive.name.clone()),
            Some(Task::HeadStart(making)) => Some(making.name.clone()),
            Some(Task::Look) => None,
        };
        if let (Some(task), Some(target), Some(worker)) = (task, self.targets.get_mut(at), self.workers.targets.get(at))
        {
            target.sends = sends;
            target.is_busy = worker.try_send(Box::new((task, target.contents.clone()))).is_ok();
        }
    }

    /// True if the archive being made can be sent to this target already. A directory does not need it: it gets a hard
    /// link at the end.
    fn wants_head_start(&self, at: usize, making: &Making) -> bool {
        matches!(self.options.targets.get(at), Some(Target::S3(_)))
            && self.now.targets.get(at).is_some_and(|target| target.wants(&making.name))
    }

    fn ready_of(&self, name: &ArchiveName) -> Option<Ready> {
        let archive = self.ready.find(&name.to_string())?.clone();
        let state = self.journal.read(|entries| entries.states.get(&name.to_string()).copied());
        Some(Ready { archive, state: state.unwrap_or(StateCheck::Unchecked), slot_time: self.ready.slot_time })
    }

    fn has_room_to_keep(&mut self, at: usize, archive: &Archive) -> bool {
        let (Some(target), Some(bytes_max)) = (self.targets.get_mut(at), self.options.keep_bytes) else { return true };
        let has_room = target.contents.kept_bytes.saturating_add(archive.size_bytes) <= bytes_max;
        if !has_room {
            // Treat it as present on the target, so that the directory of pins does not keep it either.
            target.contents.kept.keys.insert(key(&archive.name));
            let why = format!("{}: what is kept for ever has no room for it", target.name);
            self.tell(Event::Skipped { name: archive.name.clone(), why });
        }
        has_room
    }

    fn hear(&mut self, message: Message) -> Result<()> {
        match message {
            Message::Event(event) => {
                self.tell(event);
                Ok(())
            }
            Message::Prepared { source, result, elapsed } => {
                self.now.preparing = None;
                let making = self.making.take();
                let ready = match result {
                    Ok(name) => self.prepared(&name, elapsed),
                    Err(error) => self.not_prepared(&source, error).map(|()| None),
                };
                if let Some(making) = making {
                    making.is_over(ready.as_ref().ok().cloned().flatten());
                }
                ready.map(drop)
            }
            Message::Rebased { name, result, elapsed } => {
                self.rebasing.running = None;
                match result {
                    Ok(()) => self.prepared(&name, elapsed).map(drop),
                    Err(error) => self.not_rebased(name, error),
                }
            }
            Message::Target { at, result } => {
                let Some(target) = self.targets.get_mut(at) else { return Ok(()) };
                (target.is_busy, target.sends) = (false, None);
                match result {
                    Ok(contents) => {
                        (target.contents, target.is_known, target.retry) = (contents, true, Retry::default());
                        self.metrics.succeeded(&target.name);
                    }
                    Err(error) if error.kind() == ErrorKind::Interrupted => {}
                    Err(error) => {
                        let dir = self.options.targets.get(at);
                        let retry = match is_refusal(&error) || matches!(dir, Some(Target::Dir(dir)) if !dir.exists()) {
                            true => target.retry.refused(self.options.is_once),
                            false => target.retry.failed(self.options.is_once),
                        };
                        let name = target.name.clone();
                        self.tell_failure(error, Some(name), retry);
                    }
                }
                Ok(())
            }
        }
    }

    fn prepared(&mut self, name: &ArchiveName, elapsed: Duration) -> Result<Option<Ready>> {
        self.look()?;
        let ready = self.ready_of(name);
        if let Some(Ready { archive, state, .. }) = &ready {
            let (bytes, root) = (archive.size_bytes, archive.hashes.map(|hashes| hashes.root));
            let (name, rebased_on) = (archive.name.clone(), archive.rebased_on());
            self.tell(Event::Prepared { name, state: *state, bytes, root, rebased_on, elapsed });
        }
        Ok(ready)
    }

    fn not_prepared(&mut self, source: &ArchiveName, mut error: Error) -> Result<()> {
        if error.kind() == ErrorKind::Interrupted {
            return Ok(());
        }
        // With `--once`, another incremental archive may be prepared instead.
        self.has_begun_incremental &= source.base_slot.is_none();
        let was = self.journal.read(|entries| entries.pins.get(&source.to_string()).copied());
        self.look()?;
        let seen = find(&self.now.seen, source).map(Identity::from);
        let pinned = find(&self.now.pinned, source).map(Identity::from);
        let is_changed = seen.is_some_and(|seen| was != Some(seen))
            || pinned.zip(was).is_none_or(|(now, was)| !now.is_same_content(&was));
        let is_damaged = error.kind() == ErrorKind::Damaged;
        if is_damaged && !is_changed {
            let kept = self.pins.quarantine(source);
            self.journal.change(|entries| was.map(|was| entries.refuse(source, was)))?;
            if let Err(error) = &kept {
                self.progress.warn(&error.to_string());
                self.pins.unpin(source)?;
            }
            self.tell(Event::Refused { name: source.clone(), error, kept: kept.ok() });
            return Ok(());
        }
        if is_damaged {
            // The file was modified after it got its name, for example by a program that copies it there: it is taken
            // when it is complete.
            self.pins.unpin(source)?;
            let why = format!("{source} changed while it was read");
            error = Error::failed(why).with_hint("it is taken when it is whole");
        }
        let retry = self.failing.entry(key(source)).or_default().failed(self.options.is_once);
        self.tell_failure(error, None, retry);
        Ok(())
    }

    fn not_rebased(&mut self, name: ArchiveName, error: Error) -> Result<()> {
        self.journal.change(|entries| entries.forget(&name))?;
        match error.kind() {
            ErrorKind::Interrupted => {}
            // The same archives would fail again.
            ErrorKind::Usage => {
                self.rebasing.refused.insert(key(&name));
                self.tell(Event::Skipped { name, why: error.to_string() });
            }
            _ => {
                let retry = self.rebasing.failing.entry(key(&name)).or_default().failed_costly(self.options.is_once);
                if retry.is_none() {
                    self.rebasing.refused.insert(key(&name));
                }
                self.tell_failure(error.within(name), None, retry);
            }
        }
        Ok(())
    }
}

fn find<'a>(archives: &'a [Archive], name: &ArchiveName) -> Option<&'a Archive> {
    archives.iter().find(|archive| archive.name == *name)
}

fn unix_seconds() -> u64 {
    unix_ns(clock::now()) / 1_000_000_000
}

/// True if a target refuses for a reason that persists until an operator acts: another file has the name, or
/// credentials are missing or insufficient.
fn is_refusal(error: &Error) -> bool {
    error.kind() == ErrorKind::Exists
        || NetError::of(error).is_some_and(|error| error.kind() == NetErrorKind::Forbidden)
}
