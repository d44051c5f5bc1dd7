//! Decides what follows from the results of work that has ended.

use std::time::Duration;

use slotpress_base::{Error, ErrorKind, Hint, Result};
use slotpress_format::ArchiveName;
use slotpress_read::catalog::Archive;

use super::choose::key;
use super::retry::Retry;
use super::{Board, Outcome};
use crate::publish::act::look::WRITTEN_WITHIN;
use crate::publish::act::pins::Pinned;
use crate::publish::remember::Identity;
use crate::publish::tell::event::Event;

/// Why a run with `--once` passes over a file that may be incomplete.
const WRITTEN: &str = "it is being written";

const HINT_NEVER: &str = "put archives and pins on one file system and one mount";

impl Board<'_> {
    /// Leaves out an archive, which is a failure of a run with `--once`.
    pub fn leave_out(&mut self, name: ArchiveName, why: String, hint: impl Into<Hint>) -> Event {
        if self.options.is_once {
            let error = Error::failed(format!("{name} was left out, and is not published: {why}")).with_hint(hint);
            self.left_out.insert(key(&name), (name.clone(), error));
        }
        Event::Skipped { name, why }
    }

    /// Handles the end of a look and of the actions that it led to. An error ends only a run with
    /// `--once`: a failing or full disk may recover.
    pub fn looked(&mut self, result: Result<()>) -> Result<Option<Event>> {
        match result {
            Ok(()) => self.looking = Retry::default(),
            Err(error) if self.options.is_once => return Err(error),
            Err(error) => {
                let retry = self.looking.failed(false, self.now);
                return Ok(Some(failed(error, None, retry)));
            }
        }
        Ok(None)
    }

    /// Handles an archive that was not pinned.
    pub fn not_pinned(&mut self, archive: &Archive, why: Pinned) -> Option<Outcome> {
        let (name, was) = (archive.name.clone(), Identity::from(archive));
        match why {
            Pinned::NotNow if self.options.is_once => {
                // A run with `--once` does not wait for it; the next one takes it when it is whole.
                self.skipped.insert(key(&name), was);
                Some(Outcome::Tell(Event::Skipped { name, why: WRITTEN.to_string() }))
            }
            Pinned::Yes | Pinned::Gone | Pinned::NotNow => None,
            Pinned::Damaged(error) => Some(Outcome::Refuse { name, was: Some(was), error }),
            Pinned::Never(why) => {
                self.skipped.insert(key(&name), was);
                Some(Outcome::Tell(self.leave_out(name, why, HINT_NEVER)))
            }
        }
    }

    /// Handles the end of a preparation; also when what followed from it failed. `was` is the
    /// identity of the file when it was pinned; `is_quiet` is true if the file had not changed for a
    /// while when the reading began.
    pub fn made(
        &mut self,
        source: &ArchiveName,
        result: Result<ArchiveName>,
        was: Option<Identity>,
        is_quiet: bool,
        elapsed: Duration,
    ) -> Vec<Outcome> {
        self.preparing = None;
        let error = match result {
            Ok(made) => return self.ready_now(&made, elapsed).map(Outcome::Tell).into_iter().collect(),
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
            return vec![Outcome::Refuse { name: source.clone(), was, error }];
        }
        if let (ErrorKind::Unsupported, Some(was), false) = (error.kind(), was, is_changed) {
            self.skipped.insert(key(source), was);
            let hint = error.hint().cloned().unwrap_or(Hint::UseVerify);
            let left_out = self.leave_out(source.clone(), error.to_string(), hint);
            return vec![Outcome::Tell(left_out), Outcome::Unpin(source.clone())];
        }
        if !is_damaged {
            return vec![Outcome::Tell(self.failed(source, error))];
        }
        let retry = self.failing.entry(key(source)).or_default();
        // It may still be arriving under its name, for example from a program that copies it there:
        // it is read again later. A changed file is pinned anew.
        retry.put_off(self.now + WRITTEN_WITHIN);
        let skipped = Event::Skipped { name: source.clone(), why: WRITTEN.to_string() };
        let told = self.options.is_once.then_some(Outcome::Tell(skipped));
        told.into_iter().chain(is_changed.then(|| Outcome::Unpin(source.clone()))).collect()
    }

    /// Records that preparing an archive, or what followed, failed.
    pub fn failed(&mut self, source: &ArchiveName, error: Error) -> Event {
        let retry = self.failing.entry(key(source)).or_default().failed(self.options.is_once, self.now);
        failed(error, None, retry)
    }

    /// Reports an archive that is ready.
    fn ready_now(&self, name: &ArchiveName, elapsed: Duration) -> Option<Event> {
        let ready = self.ready(name)?;
        let (archive, state) = (&ready.archive, ready.state());
        let (bytes, root) = (archive.size_bytes, archive.hashes.map(|hashes| hashes.root));
        let (name, rebased_on) = (name.clone(), archive.rebased_on());
        Some(Event::Prepared { name, state, bytes, root, rebased_on, elapsed })
    }

    /// Handles the end of a rebase.
    pub fn rebased(&mut self, name: &ArchiveName, result: Result<()>, elapsed: Duration) -> Option<Event> {
        self.rebasing = None;
        let Err(error) = result else { return self.ready_now(name, elapsed) };
        if error.kind() == ErrorKind::Interrupted {
            return None;
        }
        // It reads a lot: it is not tried again before there is another full archive.
        self.failing.entry(key(name)).or_default().give_up();
        Some(match error.kind() {
            ErrorKind::Usage | ErrorKind::Unsupported => Event::Skipped { name: name.clone(), why: error.to_string() },
            _ => failed(error.within(name), None, None),
        })
    }

    /// Handles the end of a target's work.
    pub fn answered(&mut self, at: usize, result: Result<()>) -> Option<Event> {
        let (is_once, now) = (self.options.is_once, self.now);
        let (target, name) = (self.targets.get_mut(at)?, self.options.targets.get(at)?);
        (target.is_busy, target.sends) = (false, None);
        match result {
            Ok(()) => {
                target.retry = Retry::default();
                None
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => None,
            Err(error) => Some(failed(error, Some(name.to_string()), target.retry.failed(is_once, now))),
        }
    }
}

fn failed(error: Error, target: Option<String>, retry: Option<Duration>) -> Event {
    Event::Failed { error, target, retry, is_of_hook: false }
}
