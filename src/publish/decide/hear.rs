//! Decides what follows from the results of actions that were begun.

use std::time::Duration;

use slotpress_base::{Error, ErrorKind, Hint, Result};
use slotpress_format::ArchiveName;
use slotpress_read::catalog::Archive;

use super::choose::key;
use super::retry::Retry;
use super::{Action, State};
use crate::publish::act::look::WRITTEN_WITHIN;
use crate::publish::act::pins::Pinned;
use crate::publish::act::target::TargetContents;
use crate::publish::remember::Identity;
use crate::publish::tell::event::Event;

/// Why a run with `--once` passes over a file that may be incomplete.
const WRITTEN: &str = "it is being written";

const HINT_NEVER: &str = "put archives and pins on one file system and one mount";

impl State<'_> {
    /// Records that an action was begun.
    pub fn begun(&mut self, action: &Action) {
        match action {
            Action::Prepare { source, made, .. } => {
                self.preparing = Some(made.clone());
                self.has_begun_incremental |= source.base_slot.is_some();
            }
            Action::Rebase { name, .. } => self.rebasing = Some(key(name)),
            Action::Order { target, order } => {
                self.targets.get_mut(*target).into_iter().for_each(|target| target.does = Some(order.clone()));
            }
            _ => {}
        }
    }

    pub(super) fn leave_out(&mut self, name: ArchiveName, why: String, hint: impl Into<Hint>) -> Action {
        if self.options.is_once {
            let error = Error::failed(format!("{name} was left out, and is not published: {why}")).with_hint(hint);
            self.left_out.insert(key(&name), (name.clone(), error));
        }
        Action::Tell(Event::Skipped { name, why })
    }

    /// Handles the end of a look and of the actions that it led to. An error ends only a run with
    /// `--once`: a failing or full disk may recover.
    pub fn looked(&mut self, result: Result<()>) -> Result<Option<Action>> {
        match result {
            Ok(()) => self.looking = Retry::default(),
            Err(error) if self.options.is_once => return Err(error),
            Err(error) => {
                let retry = self.looking.failed(false, self.facts.now);
                return Ok(Some(failed(error, None, retry)));
            }
        }
        Ok(None)
    }

    /// Handles an archive that was not pinned.
    pub fn not_pinned(&mut self, archive: &Archive, why: Pinned) -> Option<Action> {
        let (name, was) = (archive.name.clone(), Identity::from(archive));
        match why {
            Pinned::NotNow if self.options.is_once => {
                // A run with `--once` does not wait for it; the next one takes it when it is whole.
                self.skipped.insert(key(&name), was);
                Some(Action::Tell(Event::Skipped { name, why: WRITTEN.to_string() }))
            }
            Pinned::Yes | Pinned::Gone | Pinned::NotNow => None,
            Pinned::Damaged(error) => Some(Action::Refuse { name, was: Some(was), error }),
            Pinned::Never(why) => {
                self.skipped.insert(key(&name), was);
                Some(self.leave_out(name, why, HINT_NEVER))
            }
        }
    }

    /// Handles the end of a preparation. `was` is the identity of the file when it was pinned;
    /// `is_quiet` is true if the file had not changed for a while when the reading began.
    pub fn prepared(
        &mut self,
        source: &ArchiveName,
        result: Result<ArchiveName>,
        was: Option<Identity>,
        is_quiet: bool,
        elapsed: Duration,
    ) -> Vec<Action> {
        self.preparing = None;
        let error = match result {
            Ok(made) => return Vec::from_iter(self.made(&made, elapsed)),
            Err(error) if error.kind() == ErrorKind::Interrupted => return Vec::new(),
            Err(error) => error,
        };
        // With `--once`, another incremental archive may be prepared instead.
        self.has_begun_incremental &= source.base_slot.is_none();
        let find = |archives: &[Archive]| archives.iter().find(|it| it.name == *source).map(Identity::from);
        let is_changed = find(&self.facts.seen).is_some_and(|seen| was != Some(seen))
            || find(&self.facts.pinned).zip(was).is_none_or(|(now, was)| !now.is_same_content(&was));
        let is_damaged = error.kind() == ErrorKind::Damaged;
        if is_damaged && is_quiet && !is_changed {
            return vec![Action::Refuse { name: source.clone(), was, error }];
        }
        if let (ErrorKind::Unsupported, Some(was), false) = (error.kind(), was, is_changed) {
            self.skipped.insert(key(source), was);
            let hint = error.hint().cloned().unwrap_or(Hint::UseVerify);
            return vec![self.leave_out(source.clone(), error.to_string(), hint), Action::Unpin(source.clone())];
        }
        let retry = self.failing.entry(key(source)).or_default();
        if !is_damaged {
            return vec![failed(error, None, retry.failed(self.options.is_once, self.facts.now))];
        }
        // It may still be arriving under its name, for example from a program that copies it there:
        // it is read again later. A changed file is pinned anew.
        retry.put_off(self.facts.now + WRITTEN_WITHIN);
        let skipped = Event::Skipped { name: source.clone(), why: WRITTEN.to_string() };
        let told = self.options.is_once.then_some(Action::Tell(skipped));
        told.into_iter().chain(is_changed.then(|| Action::Unpin(source.clone()))).collect()
    }

    /// Reports an archive that is ready.
    fn made(&self, name: &ArchiveName, elapsed: Duration) -> Option<Action> {
        let ready = self.ready(name)?;
        let (archive, state) = (&ready.archive, ready.state());
        let (bytes, root) = (archive.size_bytes, archive.hashes.map(|hashes| hashes.root));
        let (name, rebased_on) = (name.clone(), archive.rebased_on());
        Some(Action::Tell(Event::Prepared { name, state, bytes, root, rebased_on, elapsed }))
    }

    /// Handles the end of a rebase.
    pub fn rebased(&mut self, name: &ArchiveName, result: Result<()>, elapsed: Duration) -> Vec<Action> {
        self.rebasing = None;
        let Err(error) = result else { return Vec::from_iter(self.made(name, elapsed)) };
        if error.kind() == ErrorKind::Interrupted {
            return Vec::new();
        }
        // It reads a lot: it is not tried again before there is another full archive.
        self.failing.entry(key(name)).or_default().give_up();
        vec![match error.kind() {
            ErrorKind::Usage | ErrorKind::Unsupported => {
                Action::Tell(Event::Skipped { name: name.clone(), why: error.to_string() })
            }
            _ => failed(error.within(name), None, None),
        }]
    }

    /// Handles the answer of a target that has carried out its order, or failed.
    pub fn answered(&mut self, at: usize, result: Result<TargetContents>) -> Option<Action> {
        let (is_once, now) = (self.options.is_once, self.facts.now);
        let (target, name) = (self.targets.get_mut(at)?, self.options.targets.get(at)?);
        target.does = None;
        match result {
            Ok(contents) => {
                (target.contents, target.is_known, target.retry) = (contents, true, Retry::default());
                None
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => None,
            Err(error) => {
                let retry = target.retry.failed(is_once, now);
                Some(failed(error, Some(name.to_string()), retry))
            }
        }
    }
}

fn failed(error: Error, target: Option<String>, retry: Option<Duration>) -> Action {
    Action::Tell(Event::Failed { error, target, retry, is_of_hook: false })
}
