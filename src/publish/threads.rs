//! The threads that do what the plan says, and what they tell the one that plans.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::mpsc::{Receiver, Sender, SyncSender, TrySendError, sync_channel};
use std::thread::Scope;
use std::time::{Duration, Instant};

use slotpress_base::threads::{guarded, spawn};
use slotpress_base::{Progress, ProgressEvent, Result};
use slotpress_format::ArchiveName;

use super::event::Event;
use super::head_start::Making;
use super::pins::PinDir;
use super::prepare::prepare;
use super::target::{Shelves, Target, Task};
use super::watch::Watch;
use super::{PublishOptions, hooks};

/// What the planning thread hears.
#[derive(Debug)]
pub enum Message {
    /// The validator's directory has changed.
    Changed,
    /// Something happened.
    Event(Event),
    /// An archive was prepared, under this new name, or was not.
    Prepared {
        /// The archive.
        source: ArchiveName,
        /// Its new name.
        result: Result<ArchiveName>,
        /// How long that took.
        elapsed: Duration,
    },
    /// A target has done what it was to do.
    Target {
        /// Which.
        at: usize,
        /// What it has now.
        result: Result<Shelves>,
    },
}

/// The progress of the work of other threads: they end when the user asks to stop, or when there is nothing more to do. What
/// they warn of is shown; bars are not, since several would.
pub struct Background<'a> {
    progress: &'a dyn Progress,
    /// There is nothing more to do.
    pub is_over: AtomicBool,
    /// Bytes of archives that were read.
    pub read_bytes: AtomicU64,
}

impl<'a> Background<'a> {
    /// Of what the user sees.
    pub fn new(progress: &'a dyn Progress) -> Self {
        Self { progress, is_over: AtomicBool::new(false), read_bytes: AtomicU64::new(0) }
    }
}

impl Progress for Background<'_> {
    fn event(&self, event: ProgressEvent<'_>) {
        match event {
            ProgressEvent::Bytes { input, .. } => drop(self.read_bytes.fetch_add(input, Relaxed)),
            ProgressEvent::Detail(_) | ProgressEvent::Warning(_) => self.progress.event(event),
            _ => {}
        }
    }

    fn is_interrupted(&self) -> bool {
        self.is_over.load(Relaxed) || self.progress.is_interrupted()
    }
}

/// An archive to prepare, the full one below it that is pinned, and those who wait for it.
pub type Order = (ArchiveName, Option<ArchiveName>, Arc<Making>);

/// Programs of the operator that wait for their turn; more are left out, which is said.
const HOOKS_MAX: usize = 64;

/// Where work is handed out.
pub struct Hands {
    /// To the thread that prepares.
    pub prepare: SyncSender<Order>,
    /// To each target.
    pub targets: Vec<SyncSender<Box<(Task, Shelves)>>>,
    hooks: SyncSender<Event>,
}

impl Hands {
    /// Starts the threads, which end with what they wait for, or when there is nothing more to do.
    ///
    /// # Errors
    /// No thread is to be had.
    pub fn start<'s, 'e>(
        scope: &'s Scope<'s, 'e>,
        pins: &'e PinDir,
        targets: &'e [Target<'e>],
        options: &'e PublishOptions,
        background: &'e Background<'e>,
        messages: &Sender<Message>,
    ) -> Result<Self> {
        let (prepare_orders, orders) = sync_channel::<Order>(1);
        let send = messages.clone();
        spawn(scope, move || prepare_all(&orders, pins, options, background, &send))?;
        let mut to_targets = Vec::new();
        for (at, target) in targets.iter().enumerate() {
            let (tasks, inbox) = sync_channel::<Box<(Task, Shelves)>>(1);
            let send = messages.clone();
            spawn(scope, move || {
                for task in inbox {
                    let result = guarded(|| target.run(&task.0, &task.1, background));
                    let _ = send.send(Message::Target { at, result });
                }
            })?;
            to_targets.push(tasks);
        }
        let (hooks, events) = sync_channel::<Event>(HOOKS_MAX);
        let send = messages.clone();
        spawn(scope, move || tell_all(&events, options, background, &send))?;
        if !options.is_once
            && let Some(watch) = Watch::new(&options.snapshots)
        {
            let send = messages.clone();
            spawn(scope, move || watch.run(background, &mut || send.send(Message::Changed).is_ok()))?;
        }
        Ok(Self { prepare: prepare_orders, targets: to_targets, hooks })
    }

    /// Has a program of the operator told, where there is one for this; `false` where too many wait.
    pub fn tell(&self, event: &Event) -> bool {
        event.facts().is_none() || !matches!(self.hooks.try_send(event.clone()), Err(TrySendError::Full(_)))
    }
}

fn prepare_all(
    orders: &Receiver<Order>,
    pins: &PinDir,
    options: &PublishOptions,
    background: &Background<'_>,
    messages: &Sender<Message>,
) {
    for (source, base, making) in orders {
        let start = Instant::now();
        let result = guarded(|| prepare(pins, &source, base.as_ref(), &making, options, background));
        let _ = messages.send(Message::Prepared { source, result, elapsed: start.elapsed() });
    }
}

fn tell_all(
    events: &Receiver<Event>,
    options: &PublishOptions,
    background: &Background<'_>,
    messages: &Sender<Message>,
) {
    for event in events {
        let Some((is_failure, facts)) = event.facts() else { continue };
        let program: Option<&Path> = match is_failure {
            true => options.on_failed.as_deref(),
            false => options.on_published.as_deref(),
        };
        if let Some(program) = program
            && let Err(error) = hooks::run(program, &facts, options.hook_timeout, background.progress)
        {
            let failed = Event::Failed { error, target: None, retry: None, is_of_hook: true };
            let _ = messages.send(Message::Event(failed));
        }
    }
}
