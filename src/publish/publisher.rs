//! The planning thread: looks, asks [`decide`](super::decide) what to do, and does it, or gives it to the thread that does.

use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use slotpress_base::clock::{now, since_1970};
use slotpress_base::{Error, Progress, Result};
use slotpress_format::ArchiveName;
use slotpress_net::Client;

use super::PublishOptions;
use super::act::look::Eye;
use super::act::pins::{PinDir, Pinned, check_dirs};
use super::act::rebasing;
use super::act::target::{TargetWorker, Task, read_genesis};
use super::act::upload::Making;
use super::act::workers::{Background, Message, Workers};
use super::decide::{Action, Facts, Order, State};
use super::remember::{Identity, Journal, StateCheck};
use super::tell::Teller;
use super::tell::event::Event;
use super::tell::hooks::Hooks;

const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Looks in a row at most, each after an action that changed what is there. Then others have their turn.
const LOOKS_MAX: usize = 8;

/// Interval between checks whether the user has interrupted the run.
const TICK: Duration = Duration::from_millis(50);

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
    let background = Background { progress, is_over: AtomicBool::new(false) };
    let (send, messages) = channel();
    let (client, teller) = (Client::new(&options.client)?, send.clone());
    let tell_event = |event| drop(teller.send(Message::Event(event)));
    let worker = |target| TargetWorker::new(target, &client, options, &journal, &tell_event, genesis.as_deref());
    let targets: Vec<TargetWorker<'_>> = options.targets.iter().map(worker).collect();
    std::thread::scope(|scope| {
        let to_hooks = send.clone();
        let failed = move |event| drop(to_hooks.send(Message::Event(event)));
        let result = Hooks::start(scope, options, progress, failed).and_then(|hooks| {
            let teller = Teller::new(options, progress, on_event, hooks)?;
            let workers = Workers::start(scope, &pins, &targets, options, &background, &send)?;
            let (state, eye) = (State::new(options), Eye::default());
            Publisher { options, pins: &pins, journal: &journal, progress, teller, workers, state, eye }.run(&messages)
        });
        // The other threads end when their channels are closed.
        background.is_over.store(true, Relaxed);
        result
    })
}

struct Publisher<'a> {
    options: &'a PublishOptions,
    pins: &'a PinDir,
    journal: &'a Journal,
    progress: &'a dyn Progress,
    teller: Teller<'a>,
    workers: Workers,
    state: State<'a>,
    eye: Eye,
}

impl Publisher<'_> {
    fn run(&mut self, messages: &Receiver<Message>) -> Result<()> {
        self.teller.begin();
        let mut facts = Facts::default();
        while !self.progress.is_interrupted() {
            if self.state.looks(Instant::now()) {
                let worked = self.work(&mut facts);
                self.go_on(worked, &facts)?;
            }
            if self.options.is_once && self.state.is_over(&facts, Instant::now()) {
                // Handle results that other threads have sent meanwhile.
                while let Ok(message) = messages.try_recv() {
                    let heard = self.hear(message, &mut facts);
                    self.go_on(heard, &facts)?;
                }
                let left_out = self.state.check_left_out(&facts, Instant::now());
                return self.teller.gravest().map_or(left_out, Err);
            }
            self.teller.see(&facts, self.state.targets(&facts), self.pins.free_bytes());
            let start = Instant::now();
            while !self.progress.is_interrupted() && start.elapsed() < LOOK_EVERY {
                match messages.recv_timeout(TICK) {
                    Ok(message) => {
                        let heard = self.hear(message, &mut facts);
                        self.go_on(heard, &facts)?;
                        break;
                    }
                    Err(RecvTimeoutError::Timeout) => {}
                    Err(RecvTimeoutError::Disconnected) => return Err(Error::failed("all threads have ended")),
                }
            }
        }
        self.teller.tell(Event::Stopping);
        if self.options.is_once { Err(Error::interrupted()) } else { Ok(()) }
    }

    fn go_on(&mut self, worked: Result<()>, facts: &Facts) -> Result<()> {
        let told = self.state.looked(worked, Instant::now())?;
        self.act_all(told, facts).map(drop)
    }

    fn look(&mut self, facts: &mut Facts) -> Result<()> {
        *facts = self.eye.look(self.options, self.pins, self.journal, self.progress)?;
        Ok(())
    }

    /// Looks, and does what is to be done, until nothing changes what is there.
    fn work(&mut self, facts: &mut Facts) -> Result<()> {
        for _ in 0..LOOKS_MAX {
            self.look(facts)?;
            let actions = self.state.plan(facts, Instant::now());
            if !self.act_all(actions, facts)? {
                break;
            }
        }
        Ok(())
    }

    /// Returns whether what is there has changed.
    fn act_all(&mut self, actions: impl IntoIterator<Item = Action>, facts: &Facts) -> Result<bool> {
        actions.into_iter().try_fold(false, |has_changed, action| Ok(self.act(&action, facts)? || has_changed))
    }

    fn act(&mut self, action: &Action, facts: &Facts) -> Result<bool> {
        let has_changed = match action {
            Action::Unpin(name) => self.pins.unpin(name).map(|()| true)?,
            Action::Pin(archive) => {
                let (name, identity) = (archive.name.clone(), Identity::from(archive));
                self.journal.change(|entries| entries.pins.insert(name.to_string(), identity))?;
                let (pinned, judged) = self.eye.pin(archive, &facts.seen, self.options, self.pins)?;
                if pinned != Pinned::Yes {
                    let actions = self.state.not_pinned(archive, pinned, judged, Instant::now());
                    return self.act_all(actions, facts);
                }
                self.teller.tell(Event::Pinned { name });
                true
            }
            Action::RemoveReady(name) => {
                self.pins.remove_ready(name)?;
                self.journal.change(|entries| entries.forget(name))?;
                true
            }
            Action::Prepare { source, base, made, state } => {
                self.journal.change(|entries| {
                    entries.states.insert(made.to_string(), *state);
                    if source.base_slot.is_some() {
                        entries.incremental_unix_seconds = Some(since_1970(now()).as_secs());
                    }
                })?;
                self.workers.prepare(source, base.as_ref(), Making::new(made.clone(), *state))?;
                true
            }
            Action::Rebase { name, from } => {
                self.journal.change(|entries| entries.states.insert(name.to_string(), StateCheck::Checked))?;
                self.progress.detail(&format!("rebasing: {name}"));
                self.workers.rebase(name, *from).map(|()| false)?
            }
            Action::StopRebase => {
                self.workers.stop_rebase(self.progress);
                false
            }
            Action::Order { target, order } => self.order(*target, order)?,
            Action::Refuse(name, was) => self.journal.change(|entries| entries.refuse(name, *was)).map(|()| false)?,
            Action::Quarantine { name, was, error } => {
                let kept = self.pins.quarantine(name);
                self.journal.change(|entries| was.map(|was| entries.refuse(name, was)))?;
                if let Err(error) = &kept {
                    self.progress.warn(&error.to_string());
                    self.pins.unpin(name)?;
                }
                self.teller.tell(Event::Refused { name: name.clone(), error: error.clone(), kept: kept.ok() });
                true
            }
            Action::Forget(name) => self.journal.change(|entries| entries.forget(name)).map(|()| false)?,
            Action::Tell(event) => {
                self.teller.tell(event.clone());
                false
            }
        };
        self.state.begun(action);
        Ok(has_changed)
    }

    fn order(&mut self, at: usize, order: &Order) -> Result<bool> {
        let ready = |name| self.eye.ready(name, self.journal).map(Box::new);
        let task = match order {
            Order::Look => Some(Task::Look),
            Order::Publish(name, is_kept) => ready(name).map(|ready| Task::Publish { ready, is_kept: *is_kept }),
            Order::HeadStart(_) => self.workers.making().map(Task::HeadStart),
            Order::NoRoom(name) => {
                let target = self.options.targets.get(at).map(ToString::to_string).unwrap_or_default();
                let why = format!("{target}: what is kept for ever has no room for it");
                self.teller.tell(Event::Skipped { name: name.clone(), why });
                return Ok(true);
            }
        };
        let Some(task) = task else { return Err(Error::failed("what is to be published is gone")) };
        self.workers.order(at, task, self.state.contents(at)).map(|()| false)
    }

    fn hear(&mut self, message: Message, facts: &mut Facts) -> Result<()> {
        let actions = match message {
            Message::Event(event) => vec![Action::Tell(event)],
            Message::Prepared { source, result, elapsed } => {
                self.state.prepared();
                let was = self.journal.read(|entries| entries.pins.get(&source.to_string()).copied());
                let looked = self.look(facts);
                let ready = result.as_ref().ok().filter(|_| looked.is_ok());
                self.workers.prepared(ready.and_then(|name| self.eye.ready(name, self.journal)));
                looked?;
                match result {
                    Ok(name) => Vec::from_iter(self.made(&name, elapsed)),
                    Err(error) => self.state.not_prepared(&source, error, was, facts, Instant::now()),
                }
            }
            Message::Rebased { name, result, elapsed } => {
                let is_made = result.is_ok();
                let mut actions = self.state.rebased(&name, result, Instant::now());
                if is_made {
                    self.look(facts)?;
                    actions.extend(self.made(&name, elapsed));
                }
                actions
            }
            Message::Target { at, result, is_lasting } => {
                if result.is_ok() {
                    self.teller.succeeded(at);
                }
                Vec::from_iter(self.state.answered(at, result, is_lasting, Instant::now()))
            }
        };
        self.act_all(actions, facts).map(drop)
    }

    /// An archive is ready.
    fn made(&self, name: &ArchiveName, elapsed: Duration) -> Option<Action> {
        let ready = self.eye.ready(name, self.journal)?;
        let (archive, state) = (&ready.archive, ready.state);
        let (bytes, root) = (archive.size_bytes, archive.hashes.map(|hashes| hashes.root));
        let (name, rebased_on) = (archive.name.clone(), archive.rebased_on());
        Some(Action::Tell(Event::Prepared { name, state, bytes, root, rebased_on, elapsed }))
    }
}
