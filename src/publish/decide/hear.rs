//! Decides what follows from work that has ended.

use std::time::Duration;

use slotpress_base::{Error, ErrorKind, Result, hint};
use slotpress_format::ArchiveName;
use slotpress_read::catalog::Archive;

use super::choose::key;
use super::retry::{NextAttempt, Retry};
use super::{Board, DamagedArchive, EndedWork};
use crate::publish::act::pins::PinResult;
use crate::publish::keeper::WRITTEN_WITHIN;
use crate::publish::remember::FileIdentity;
use crate::publish::tell::event::{PublishEvent, ReadyArchive};

/// Why a run with `--once` passes over a file that may be incomplete.
const WRITTEN: &str = "it is being written";

/// Limit on the archives left out that are remembered. At the limit, all are forgotten.
const LEFT_OUT_MAX: usize = 1000;

const HINT_NEVER: &str = "put archives and pins on one file system and one mount";

impl Board<'_> {
    pub fn pass_over(&mut self, name: &ArchiveName, next: NextAttempt) {
        self.verdicts.insert(key(name), Retry { failures: 0, next });
    }

    fn retry_mut(&mut self, name: &ArchiveName) -> &mut Retry {
        self.verdicts.entry(key(name)).or_default()
    }

    /// Leaves out an archive, which is told once, and is a failure of a run with `--once`.
    pub fn leave_out(&mut self, name: ArchiveName, why: String, hint: &str) {
        let message = format!("{name} was left out, and is not published: {why}");
        if self.left_out.len() >= LEFT_OUT_MAX && !self.left_out.contains_key(&message) {
            self.left_out.clear();
        }
        let error = Error::failed(&message).with_hint(hint.to_string());
        if self.left_out.insert(message, (name.clone(), error)).is_none() {
            self.skipped(name, why);
        }
    }

    fn skipped(&mut self, name: ArchiveName, why: impl Into<String>) {
        self.told.push(PublishEvent::Skipped { name, why: why.into() });
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

    pub fn pinned(&mut self, archive: Archive, pinned: PinResult) {
        let was = FileIdentity::from(&archive);
        match pinned {
            PinResult::Yes => self.told.push(PublishEvent::Pinned { name: archive.name }),
            PinResult::Gone => {}
            // A run with `--once` does not wait for it; the next one takes it when it is whole.
            PinResult::NotNow if self.options.is_once => {
                self.pass_over(&archive.name, NextAttempt::Changed(was));
                self.skipped(archive.name, WRITTEN);
            }
            PinResult::NotNow => {}
            PinResult::Damaged(error) => self.refuse(archive.name, was, error),
            PinResult::Never(why) => {
                self.pass_over(&archive.name, NextAttempt::Changed(was));
                self.leave_out(archive.name, why, HINT_NEVER);
            }
        }
    }

    fn refuse(&mut self, name: ArchiveName, was: FileIdentity, error: Error) {
        self.pass_over(&name, NextAttempt::Changed(was));
        self.damaged.push(DamagedArchive { name, was, error });
    }

    /// Records the end of a preparation or a rebase, for the next look.
    pub fn end(&mut self, ended: EndedWork) {
        self.ended.push(ended);
        self.has_news = true;
    }

    pub fn hear(&mut self, ended: EndedWork) {
        let state = key(&ended.name);
        let name = ended.name;
        match ended.source {
            Some(_) => self.preparing = None,
            None => self.rebasing = None,
        }
        match (ended.result, ended.source) {
            (Ok(()), _) => {
                let ready = self.facts.ready.iter().find(|ready| key(&ready.archive.name) == state);
                let told = ready.map(|it| ReadyArchive::new(&it.archive, None, ended.elapsed));
                self.told.extend(told.map(PublishEvent::Prepared));
            }
            (Err(error), _) if error.kind() == ErrorKind::Interrupted => {}
            (Err(error), Some((was, is_quiet))) => self.not_made(name, error, was, is_quiet),
            (Err(error), None) => self.not_rebased(name, error),
        }
    }

    fn not_made(&mut self, source: ArchiveName, error: Error, was: FileIdentity, is_quiet: bool) {
        // With `--once`, another incremental archive may be prepared instead.
        self.has_begun_incremental &= source.base_slot.is_none();
        let find = |archives: &[Archive]| archives.iter().find(|it| it.name == source).map(FileIdentity::from);
        let is_changed = find(&self.facts.seen).is_some_and(|seen| seen != was)
            || find(&self.facts.pinned).is_none_or(|pinned| !pinned.is_same_content(&was));
        match error.kind() {
            ErrorKind::Damaged if is_quiet && !is_changed => self.refuse(source, was, error),
            // It may still be arriving under its name, for example from a program that copies it
            // there: it is read again later. A changed file is pinned anew.
            ErrorKind::Damaged => {
                let until = self.now + WRITTEN_WITHIN;
                self.retry_mut(&source).put_off(until);
                self.stale.extend(is_changed.then(|| source.clone()));
                if self.options.is_once {
                    self.skipped(source, WRITTEN);
                }
            }
            ErrorKind::Unsupported if !is_changed => {
                self.pass_over(&source, NextAttempt::Changed(was));
                let hint = error.hint().unwrap_or(hint::USE_VERIFY);
                self.leave_out(source, error.to_string(), hint);
            }
            _ => {
                let is_once = self.options.is_once;
                let now = self.now;
                let retry = self.retry_mut(&source).failed(is_once, now);
                self.failed(error, None, retry);
            }
        }
    }

    fn not_rebased(&mut self, name: ArchiveName, error: Error) {
        // It reads a lot: it is not tried again before there is another full archive.
        self.pass_over(&name, NextAttempt::Never);
        match error.kind() {
            ErrorKind::Usage | ErrorKind::Unsupported => self.skipped(name, error.to_string()),
            _ => self.failed(error.within(name), None, None),
        }
    }

    pub fn answered(&mut self, at: usize, result: Result<()>) {
        self.has_news = true;
        let target = &mut self.targets[at];
        target.is_busy = false;
        target.sends = None;
        match result {
            Ok(()) => target.retry = Retry::default(),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => {
                let retry = target.retry.failed(self.options.is_once, self.now);
                self.failed(error, Some(self.options.targets[at].to_string()), retry);
            }
        }
    }

    pub fn failed(&mut self, error: Error, target: Option<String>, retry: Option<Duration>) {
        self.told.push(PublishEvent::Failed { error, target, retry });
    }
}
