//! The planning thread: looks, asks [`decide`](super::decide) what to do, and does it or starts a
//! thread for it.

use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use slotpress_base::clock::{now, since_1970};
use slotpress_base::progress::Forward;
use slotpress_base::threads::guarded;
use slotpress_base::{CancelToken, Error, ErrorKind, Progress, ProgressEvent, Result, panic_point};
use slotpress_net::Client;

use super::PublishOptions;
use super::act::look::{self, Eye, WRITTEN_WITHIN};
use super::act::pins::{PinDir, Pinned, check_dirs};
use super::act::target::TargetWorker;
use super::act::workers::{Message, Workers};
use super::act::{Run, rebasing};
use super::decide::{Action, State};
use super::remember::Identity;
use super::tell::Teller;
use super::tell::event::Event;

const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Maximum number of looks in a row, each after an action that changes what the next one finds.
/// After them, messages of other threads are handled.
const LOOKS_MAX: usize = 8;

/// Interval between checks whether the user has interrupted the run.
const TICK: Duration = Duration::from_millis(50);

/// Publishes archives until the user interrupts it, or with [`PublishOptions::is_once`] until
/// everything present is published. Blocks meanwhile. Calls `on_event` on the calling thread.
///
/// # Errors
/// If a directory cannot be used, or another process works in the directory of pins. With
/// `is_once`, also the gravest failure, of kind
/// [`Damaged`](slotpress_base::error::ErrorKind::Damaged) if an archive was damaged.
pub fn publish(options: &PublishOptions, on_event: &mut dyn FnMut(&Event), progress: &dyn Progress) -> Result<()> {
    check_dirs(options)?;
    rebasing::check_settings(options)?;
    let (pins, client) = (PinDir::open(options)?, Client::new(&options.client)?);
    let (send, messages) = channel();
    let over = CancelToken::default();
    // No progress bars: several would be drawn at once.
    let told = Forward::new(progress, |event| {
        matches!(event, ProgressEvent::Detail(_) | ProgressEvent::Warning(_)).then_some(event)
    });
    let run = Run { options, pins, client, progress: &over.with(&told), over: over.clone(), messages: send };
    let targets: Vec<TargetWorker<'_>> = options.targets.iter().map(|target| TargetWorker::new(&run, target)).collect();
    std::thread::scope(|scope| {
        let result = guarded(|| {
            let teller = Teller::new(options, progress, on_event)?;
            let (workers, state) = (Workers::new(scope, &run, &targets), State::new(options, Instant::now()));
            let mut publisher = Publisher { run: &run, messages, teller, workers, state, eye: Eye::default() };
            let ended = publisher.run();
            over.cancel();
            let heard = publisher.hear_last();
            ended.and(heard).and_then(|()| publisher.result())
        });
        // Cancel also after a panic: other threads may be waiting for this one.
        over.cancel();
        result
    })
}

struct Publisher<'s, 'e> {
    run: &'e Run<'e>,
    messages: Receiver<Message>,
    teller: Teller<'e>,
    workers: Workers<'s, 'e>,
    state: State<'e>,
    eye: Eye,
}

impl Publisher<'_, '_> {
    /// Works until the user interrupts it, or with `--once` until everything is done.
    fn run(&mut self) -> Result<()> {
        self.teller.begin();
        while !self.run.progress.is_interrupted() {
            self.state.set_time(Instant::now());
            if self.state.wants_look() {
                let worked = self.work();
                self.go_on(worked)?;
            }
            if self.state.is_over() {
                return Ok(());
            }
            self.teller.see(&self.state, self.run.pins.free_bytes());
            let start = Instant::now();
            while !self.run.progress.is_interrupted() && start.elapsed() < LOOK_EVERY {
                self.teller.poll_hooks();
                if let Ok(message) = self.messages.recv_timeout(TICK) {
                    self.hear_and_go_on(message)?;
                    break;
                }
            }
        }
        self.teller.tell(Event::Stopping);
        if self.run.options.is_once { Err(Error::interrupted()) } else { Ok(()) }
    }

    /// Waits for all threads, and handles the messages that they have sent meanwhile.
    fn hear_last(&mut self) -> Result<()> {
        self.workers.end();
        while let Ok(message) = self.messages.try_recv() {
            self.hear_and_go_on(message)?;
        }
        self.teller.end();
        Ok(())
    }

    /// Result of the run. With `--once`, fails if an operation failed for good, or a target lacks
    /// an archive that was left out, now or as damaged by an earlier run.
    fn result(&mut self) -> Result<()> {
        if !self.run.options.is_once {
            return Ok(());
        }
        let refused = self.run.pins.journal.read(|entries| self.state.check_refused(entries.refused_names()));
        match self.teller.gravest() {
            None => refused.and_then(|()| self.state.check_left_out()),
            Some(gravest) if gravest.kind() == ErrorKind::Damaged => Err(gravest),
            Some(gravest) => refused.and(Err(gravest)),
        }
    }

    fn go_on(&mut self, worked: Result<()>) -> Result<()> {
        let told = self.state.looked(worked)?;
        self.act_all(told).map(drop)
    }

    /// Handles a message. Only a failure goes to [`Self::go_on`]: success must not end the pause
    /// after a failed look.
    fn hear_and_go_on(&mut self, message: Message) -> Result<()> {
        match self.hear(message) {
            Ok(()) => Ok(()),
            heard => self.go_on(heard),
        }
    }

    /// Looks and acts until no action changes what the next look finds, at most [`LOOKS_MAX`]
    /// times.
    fn work(&mut self) -> Result<()> {
        for _ in 0..LOOKS_MAX {
            let actions = self.state.plan(self.eye.look(self.run)?);
            if !self.act_all(actions)? {
                break;
            }
        }
        Ok(())
    }

    /// Returns true if an action changes what the next look finds.
    fn act_all(&mut self, actions: impl IntoIterator<Item = Action>) -> Result<bool> {
        actions.into_iter().try_fold(false, |has_changed, action| Ok(self.act(&action)? || has_changed))
    }

    fn act(&mut self, action: &Action) -> Result<bool> {
        let Run { pins, progress, .. } = self.run;
        let journal = &pins.journal;
        match action {
            Action::Unpin(name) => pins.unpin(name)?,
            Action::Pin(archive) => {
                let (name, identity) = (archive.name.clone(), Identity::from(archive));
                journal.change(|entries| entries.pins.insert(name.to_string(), identity))?;
                match look::pin(archive, self.run)? {
                    Pinned::Yes => self.teller.tell(Event::Pinned { name }),
                    pinned => {
                        let action = self.state.not_pinned(archive, pinned);
                        return self.act_all(action);
                    }
                }
            }
            Action::RemoveReady(name) => {
                pins.remove_ready(name)?;
                journal.forget(name)?;
            }
            Action::Prepare { source, .. } => {
                if source.base_slot.is_some() {
                    journal.change(|entries| entries.incremental_unix_seconds = Some(since_1970(now()).as_secs()))?;
                }
                self.workers.prepare(source)?;
            }
            Action::Rebase { name, from } => {
                progress.detail(&format!("rebasing: {name}"));
                self.workers.rebase(name, *from)?;
            }
            Action::StopRebase => self.workers.stop_rebase(),
            Action::Order { target, order } => {
                self.workers.order(*target, order.clone(), self.state.contents(*target))?;
            }
            Action::Refuse { name, was, error } => {
                let is_pinned = self.state.pinned().iter().any(|pinned| pinned.name == *name);
                let kept = is_pinned.then(|| pins.quarantine(name)).transpose();
                let failed = kept.as_ref().err().cloned();
                let kept = kept.ok().flatten();
                // Tell this before anything else can fail.
                self.teller.tell(Event::Refused { name: name.clone(), error: error.clone(), kept });
                journal.change(|entries| was.map(|was| entries.refuse(name, was)))?;
                if let Some(error) = failed {
                    progress.warn(&error.to_string());
                    pins.unpin(name)?;
                }
            }
            Action::Tell(event) => self.teller.tell(event.clone()),
        }
        self.state.begun(action);
        Ok(action.changes_pins())
    }

    fn hear(&mut self, message: Message) -> Result<()> {
        panic_point("planning");
        self.state.set_time(Instant::now());
        let actions = match message {
            Message::Event(event) => vec![Action::Tell(event)],
            Message::Prepared { source, result, elapsed } => {
                let was = self.run.pins.journal.read(|entries| entries.pins.get(&source.to_string()).copied());
                // If this look fails, the next one finds the new archive.
                let result = self.eye.look(self.run).map(|facts| self.state.see(facts)).and(result);
                let is_quiet = was.is_none_or(|was| !was.is_modified_within(elapsed + WRITTEN_WITHIN, now()));
                self.state.prepared(&source, result, was, is_quiet, elapsed)
            }
            Message::Rebased { name, result, elapsed } => {
                let looked = self.eye.look(self.run).map(|facts| self.state.see(facts));
                let actions = self.state.rebased(&name, result, elapsed);
                self.act_all(actions)?;
                return looked;
            }
            Message::Target { at, result } => {
                if result.is_ok() {
                    self.teller.succeeded(at);
                }
                Vec::from_iter(self.state.answered(at, result))
            }
        };
        self.act_all(actions).map(drop)
    }
}
