//! Records the results of scans, pins and tasks, and decides when an archive is tried again.

use std::time::Duration;

use slotpress_base::{Error, ErrorKind, Result, hint};
use slotpress_format::ArchiveName;
use slotpress_read::catalog::Archive;

use super::choose::key;
use super::retry::{NextAttempt, Retry};
use super::{DamagedArchive, EndedWork, PinnedSource, Planner};
use crate::publish::act::pins::PinResult;
use crate::publish::remember::FileIdentity;
use crate::publish::report::event::{PublishEvent, ReadyArchive};
use crate::publish::watcher::WRITTEN_WITHIN;

/// Reason for which a run with `--once` skips a file that may be incomplete.
const WRITTEN: &str = "it is being written";

const HINT_NEVER: &str = "put archives and pins on one file system and one mount";

impl Planner<'_> {
    pub fn set_next_attempt(&mut self, name: &ArchiveName, next: NextAttempt) {
        self.retries.insert(key(name), Retry { failures: 0, next });
    }

    fn retry_mut(&mut self, name: &ArchiveName) -> &mut Retry {
        self.retries.entry(key(name)).or_default()
    }

    /// Leaves out an archive. This is reported once, and is a failure of a run with `--once`.
    pub fn leave_out(&mut self, name: ArchiveName, why: String, hint: &str) {
        let message = format!("{name} was left out, and is not published: {why}");
        let error = Error::failed(&message).with_hint(hint.to_string());
        let before = self.left_out.insert(key(&name), (name.clone(), error));
        if before.is_none_or(|(_, error)| error.to_string() != message) {
            self.skip(name, why);
        }
    }

    fn skip(&mut self, name: ArchiveName, why: impl Into<String>) {
        self.events.push(PublishEvent::Skipped { name, why: why.into() });
    }

    /// Records the result of a scan and of its actions. An error ends only a run with `--once`: a
    /// failing or full disk may recover.
    pub fn record_scan_end(&mut self, result: Result<bool>) -> Result<bool> {
        match result {
            Err(error) if !self.options.once => {
                let retry = self.scan_retry.fail(false, self.now);
                self.fail(error, None, retry);
                Ok(false)
            }
            result => {
                self.scan_retry = Retry::default();
                result
            }
        }
    }

    pub fn record_pin(&mut self, archive: Archive, pinned: PinResult) {
        let was = FileIdentity::from(&archive);
        match pinned {
            PinResult::Yes => self.events.push(PublishEvent::Pinned { name: archive.name }),
            PinResult::Gone => {}
            // A run with `--once` does not wait for the file; the next run takes it when it is whole.
            PinResult::NotNow if self.options.once => {
                self.set_next_attempt(&archive.name, NextAttempt::Changed(was));
                self.skip(archive.name, WRITTEN);
            }
            PinResult::NotNow => {}
            PinResult::Damaged(error) => self.refuse(archive.name, was, error),
            PinResult::Never(why) => {
                self.set_next_attempt(&archive.name, NextAttempt::Changed(was));
                self.leave_out(archive.name, why, HINT_NEVER);
            }
        }
    }

    fn refuse(&mut self, name: ArchiveName, was: FileIdentity, error: Error) {
        self.set_next_attempt(&name, NextAttempt::Changed(was));
        self.damaged.push(DamagedArchive { name, was, error });
    }

    pub fn add_ended(&mut self, ended: EndedWork) {
        self.ended.push(ended);
        self.has_results = true;
    }

    pub fn record_end(&mut self, ended: EndedWork) {
        let state = key(&ended.name);
        let name = ended.name;
        match ended.source {
            Some(_) => self.preparing = None,
            None => self.rebasing = None,
        }
        match (ended.result, ended.source) {
            (Ok(()), _) => {
                let mut archives = self.facts.ready.iter().map(|ready| &ready.archive);
                if let Some(archive) = archives.find(|archive| key(&archive.name) == state) {
                    let ready = ReadyArchive::new(archive, None, ended.elapsed);
                    self.events.push(PublishEvent::Prepared(ready));
                }
            }
            (Err(error), _) if error.kind() == ErrorKind::Interrupted => {}
            (Err(error), Some(source)) => self.end_preparation(name, error, source),
            (Err(error), None) => self.end_rebase(name, error),
        }
    }

    fn end_preparation(&mut self, name: ArchiveName, error: Error, source: PinnedSource) {
        // With `--once`, another incremental archive may be prepared instead.
        self.has_begun_incremental &= name.base_slot.is_none();
        let was = source.was;
        let find = |archives: &[Archive]| {
            let found = archives.iter().find(|archive| archive.name == name);
            found.map(FileIdentity::from)
        };
        let is_changed = find(&self.facts.seen).is_some_and(|seen| seen != was)
            || find(&self.facts.pinned).is_none_or(|pinned| !pinned.is_same_content(&was));
        match error.kind() {
            ErrorKind::Damaged if source.is_quiet && !is_changed => self.refuse(name, was, error),
            // Another program may still be writing the file, so it is read again later. A changed file
            // is pinned anew.
            ErrorKind::Damaged => {
                let until = self.now + WRITTEN_WITHIN;
                self.retry_mut(&name).put_off(until);
                self.stale.extend(is_changed.then(|| name.clone()));
                if self.options.once {
                    self.skip(name, WRITTEN);
                }
            }
            ErrorKind::Unsupported if !is_changed => {
                self.set_next_attempt(&name, NextAttempt::Changed(was));
                let hint = error.hint().unwrap_or(hint::USE_VERIFY);
                self.leave_out(name, error.to_string(), hint);
            }
            _ => {
                let once = self.options.once;
                let now = self.now;
                let retry = self.retry_mut(&name).fail(once, now);
                self.fail(error, None, retry);
            }
        }
    }

    fn end_rebase(&mut self, name: ArchiveName, error: Error) {
        // A rebase reads a lot, so it is not repeated before there is another full archive.
        self.set_next_attempt(&name, NextAttempt::Never);
        match error.kind() {
            ErrorKind::Usage | ErrorKind::Unsupported => self.skip(name, error.to_string()),
            _ => self.fail(error.within(name), None, None),
        }
    }

    pub fn end_target(&mut self, at: usize, result: Result<()>) {
        self.has_results = true;
        let target = &mut self.targets[at];
        target.is_busy = false;
        target.sending = None;
        match result {
            Ok(()) => target.retry = Retry::default(),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => {
                let retry = target.retry.fail(self.options.once, self.now);
                self.fail(error, Some(self.options.targets[at].to_string()), retry);
            }
        }
    }

    pub fn fail(&mut self, error: Error, target: Option<String>, retry: Option<Duration>) {
        self.events.push(PublishEvent::Failed { error, target, retry });
    }
}
