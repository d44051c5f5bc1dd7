//! Decides what follows from work that has ended.

use std::time::Duration;

use slotpress_base::{Error, ErrorKind, Hint, Result};
use slotpress_format::ArchiveName;
use slotpress_read::catalog::Archive;

use super::choose::key;
use super::retry::{Next, Retry};
use super::{Board, Damaged, Ended};
use crate::publish::act::pins::Pinned;
use crate::publish::keeper::WRITTEN_WITHIN;
use crate::publish::remember::Identity;
use crate::publish::tell::event::{Event, ReadyArchive};

/// Why a run with `--once` passes over a file that may be incomplete.
const WRITTEN: &str = "it is being written";

const HINT_NEVER: &str = "put archives and pins on one file system and one mount";

impl Board<'_> {
    /// Leaves out an archive, which is a failure of a run with `--once`.
    pub fn leave_out(&mut self, name: ArchiveName, why: String, hint: impl Into<Hint>) {
        if self.options.is_once {
            let error = Error::failed(format!("{name} was left out, and is not published: {why}")).with_hint(hint);
            self.left_out.insert(key(&name), (name.clone(), error));
        }
        self.told.push(Event::Skipped { name, why });
    }

    /// Handles the end of a look and of the actions that it led to. An error ends only a run with
    /// `--once`: a failing or full disk may recover.
    pub fn looked(&mut self, result: Result<bool>) -> Result<bool> {
        match result {
            Err(error) if !self.options.is_once => {
                let retry = self.looking.failed(false, self.now);
                self.failed(error, None, retry);
                Ok(false)
            }
            result => {
                self.looking = Retry::default();
                result
            }
        }
    }

    /// Handles the pinning of an archive.
    pub fn pinned(&mut self, archive: Archive, pinned: Pinned) {
        let was = Identity::from(&archive);
        match pinned {
            Pinned::Yes => self.told.push(Event::Pinned { name: archive.name }),
            Pinned::Gone => {}
            // A run with `--once` does not wait for it; the next one takes it when it is whole.
            Pinned::NotNow if self.options.is_once => {
                self.verdicts.insert(key(&archive.name), Retry::new(Next::Changed(was)));
                self.told.push(Event::Skipped { name: archive.name, why: WRITTEN.to_string() });
            }
            Pinned::NotNow => {}
            Pinned::Damaged(error) => self.refuse(archive.name, was, error),
            Pinned::Never(why) => {
                self.verdicts.insert(key(&archive.name), Retry::new(Next::Changed(was)));
                self.leave_out(archive.name, why, HINT_NEVER);
            }
        }
    }

    fn refuse(&mut self, name: ArchiveName, was: Identity, error: Error) {
        self.verdicts.insert(key(&name), Retry::new(Next::Changed(was)));
        self.damaged.push(Damaged { name, was, error });
    }

    /// Records the end of a preparation or a rebase, for the next look.
    pub fn end(&mut self, ended: Ended) {
        self.ended.push(ended);
        self.has_news = true;
    }

    /// Handles the end of a preparation or a rebase.
    pub fn hear(&mut self, ended: Ended) {
        match ended {
            Ended::Made { source, result, was, is_quiet, elapsed } => {
                self.preparing = None;
                match result {
                    Ok(made) => self.tell_ready(&made, elapsed),
                    Err(error) => self.not_made(source, error, was, is_quiet),
                }
            }
            Ended::Rebased { name, result, elapsed } => {
                self.rebasing = None;
                match result {
                    Ok(()) => self.tell_ready(&name, elapsed),
                    Err(error) => self.not_rebased(name, error),
                }
            }
        }
    }

    /// Reports an archive that is ready.
    fn tell_ready(&mut self, name: &ArchiveName, elapsed: Duration) {
        let Some(ready) = self.ready(name) else { return };
        self.told.push(Event::Prepared(ReadyArchive::new(&ready.archive, None, elapsed)));
    }

    fn not_made(&mut self, source: ArchiveName, error: Error, was: Identity, is_quiet: bool) {
        // With `--once`, another incremental archive may be prepared instead.
        self.has_begun_incremental &= source.base_slot.is_none();
        let find = |archives: &[Archive]| archives.iter().find(|it| it.name == source).map(Identity::from);
        let is_changed = find(&self.facts.seen).is_some_and(|seen| seen != was)
            || find(&self.facts.pinned).is_none_or(|pinned| !pinned.is_same_content(&was));
        match error.kind() {
            ErrorKind::Interrupted => {}
            ErrorKind::Damaged if is_quiet && !is_changed => self.refuse(source, was, error),
            // It may still be arriving under its name, for example from a program that copies it
            // there: it is read again later. A changed file is pinned anew.
            ErrorKind::Damaged => {
                self.verdicts.entry(key(&source)).or_default().put_off(self.now + WRITTEN_WITHIN);
                self.stale.extend(is_changed.then(|| source.clone()));
                if self.options.is_once {
                    self.told.push(Event::Skipped { name: source, why: WRITTEN.to_string() });
                }
            }
            ErrorKind::Unsupported if !is_changed => {
                self.verdicts.insert(key(&source), Retry::new(Next::Changed(was)));
                let hint = error.hint().cloned().unwrap_or(Hint::UseVerify);
                self.leave_out(source, error.to_string(), hint);
            }
            _ => {
                let retry = self.verdicts.entry(key(&source)).or_default().failed(self.options.is_once, self.now);
                self.failed(error, None, retry);
            }
        }
    }

    fn not_rebased(&mut self, name: ArchiveName, error: Error) {
        if error.kind() == ErrorKind::Interrupted {
            return;
        }
        // It reads a lot: it is not tried again before there is another full archive.
        self.verdicts.insert(key(&name), Retry::new(Next::Never));
        match error.kind() {
            ErrorKind::Usage | ErrorKind::Unsupported => {
                self.told.push(Event::Skipped { name, why: error.to_string() });
            }
            _ => self.failed(error.within(name), None, None),
        }
    }

    /// Handles the end of a target's work.
    pub fn answered(&mut self, at: usize, result: Result<()>) {
        self.has_news = true;
        let (Some(target), Some(name)) = (self.targets.get_mut(at), self.options.targets.get(at)) else { return };
        (target.is_busy, target.sends) = (false, None);
        match result {
            Ok(()) => target.retry = Retry::default(),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => {
                let retry = target.retry.failed(self.options.is_once, self.now);
                self.failed(error, Some(name.to_string()), retry);
            }
        }
    }

    /// Tells of a failure.
    pub fn failed(&mut self, error: Error, target: Option<String>, retry: Option<Duration>) {
        self.told.push(Event::Failed { error, target, retry, is_of_hook: false });
    }
}
