//! Records the results of scans, pins and tasks, and decides when an archive is tried again.

use std::time::Duration;

use slotpress_base::{Error, ErrorKind, Result, hint};
use slotpress_format::ArchiveName;
use slotpress_read::ListedArchive;

use super::choose::key_of;
use super::retry::{NextAttempt, Retry};
use super::{DamagedArchive, EndedTask, PinnedSource, Planner};
use crate::publish::act::pins::PinResult;
use crate::publish::journal::FileIdentity;
use crate::publish::report::event::{PublishEvent, ReadyArchive};
use crate::publish::watcher::QUIET_TIME;

/// Reason that a run with `--once` reports when it skips a file that may be incomplete.
const BEING_WRITTEN: &str = "it is being written";

const CANNOT_PIN_HINT: &str = "put archives and pins on one file system and one mount";

impl Planner<'_> {
    pub fn set_next_attempt(&mut self, name: &ArchiveName, next: NextAttempt) {
        self.retries.insert(key_of(name), Retry { failures: 0, next });
    }

    fn retry_mut(&mut self, name: &ArchiveName) -> &mut Retry {
        self.retries.entry(key_of(name)).or_default()
    }

    /// Leaves out an archive. Reports the reason once, and again if it changes. A run with `--once` fails if
    /// a target wants the archive.
    pub fn leave_out(&mut self, name: ArchiveName, reason: String, hint: &str) {
        let message = format!("{name} was left out, and is not published: {reason}");
        let error = Error::failed(&message).with_hint(hint.to_string());
        let previous = self.left_out.insert(key_of(&name), (name.clone(), error));
        if previous.is_none_or(|(_, error)| error.to_string() != message) {
            self.report_skip(name, reason);
        }
    }

    fn report_skip(&mut self, name: ArchiveName, reason: impl Into<String>) {
        self.events.push(PublishEvent::Skipped { name, reason: reason.into() });
    }

    /// Records the result of a scan and of the actions after it. Returns an error only in a run with
    /// `--once`: in other runs, a failing or full disk may recover.
    pub fn record_scan_end(&mut self, result: Result<bool>) -> Result<bool> {
        match result {
            Err(error) if !self.options.once => {
                let pause = self.scan_retry.record_failure(self.now);
                self.report_error(error, None, Some(pause));
                Ok(false)
            }
            result => {
                self.scan_retry = Retry::default();
                result
            }
        }
    }

    pub fn record_pin(&mut self, archive: ListedArchive, result: PinResult) {
        let file = FileIdentity::from(&archive);
        match result {
            PinResult::Pinned => self.events.push(PublishEvent::Pinned { name: archive.name }),
            PinResult::Gone => {}
            // A run with `--once` does not wait for the file; the next run pins it once it is whole.
            PinResult::NotYet if self.options.once => {
                self.set_next_attempt(&archive.name, NextAttempt::AfterChange(file));
                self.report_skip(archive.name, BEING_WRITTEN);
            }
            PinResult::NotYet => {}
            PinResult::Damaged(error) => self.refuse(archive.name, file, error),
            PinResult::Impossible(reason) => {
                self.set_next_attempt(&archive.name, NextAttempt::AfterChange(file));
                self.leave_out(archive.name, reason, CANNOT_PIN_HINT);
            }
        }
    }

    fn refuse(&mut self, name: ArchiveName, file: FileIdentity, error: Error) {
        self.set_next_attempt(&name, NextAttempt::AfterChange(file));
        self.damaged.push(DamagedArchive { name, file, error });
    }

    pub fn queue_ended_task(&mut self, task: EndedTask) {
        self.ended_tasks.push(task);
        self.has_results = true;
    }

    pub fn record_ended_task(&mut self, task: EndedTask) {
        let key = key_of(&task.name);
        let name = task.name;
        match task.source {
            Some(_) => self.preparing = None,
            None => self.rebasing = None,
        }
        match (task.result, task.source) {
            (Ok(()), _) => {
                let mut archives = self.scan.ready.iter().map(|ready| &ready.archive);
                if let Some(archive) = archives.find(|archive| key_of(&archive.name) == key) {
                    let ready = ReadyArchive::new(archive, None, task.elapsed);
                    self.events.push(PublishEvent::Prepared(ready));
                }
            }
            (Err(error), _) if error.kind() == ErrorKind::Interrupted => {}
            (Err(error), Some(source)) => self.record_failed_preparation(name, error, source),
            (Err(error), None) => self.record_failed_rebase(name, error),
        }
    }

    fn record_failed_preparation(&mut self, name: ArchiveName, error: Error, source: PinnedSource) {
        // With `--once`, another incremental archive may be prepared instead.
        if name.base_slot.is_some() {
            self.has_begun_incremental = false;
        }
        let file = source.file;
        let find_file = |archives: &[ListedArchive]| {
            let archive = archives.iter().find(|archive| archive.name == name);
            archive.map(FileIdentity::from)
        };
        let is_changed = find_file(&self.scan.validator_archives).is_some_and(|seen| seen != file)
            || find_file(&self.scan.pinned).is_none_or(|pinned| !pinned.has_same_content_as(&file));
        match error.kind() {
            ErrorKind::Damaged if source.is_quiet && !is_changed => self.refuse(name, file, error),
            // Another program may still be writing the file, so it is read again later. A changed file
            // is pinned again.
            ErrorKind::Damaged => {
                let until = self.now + QUIET_TIME;
                self.retry_mut(&name).postpone(until);
                if is_changed {
                    self.stale_pins.push(name.clone());
                }
                if self.options.once {
                    self.report_skip(name, BEING_WRITTEN);
                }
            }
            ErrorKind::Unsupported if !is_changed => {
                self.set_next_attempt(&name, NextAttempt::AfterChange(file));
                let hint = error.hint().unwrap_or(hint::USE_VERIFY);
                self.leave_out(name, error.to_string(), hint);
            }
            _ => {
                let now = self.now;
                let pause = self.retry_mut(&name).record_failure(now);
                self.report_error(error, None, self.announced_retry(pause));
            }
        }
    }

    fn record_failed_rebase(&mut self, name: ArchiveName, error: Error) {
        // A rebase reads a lot, so it is not retried before there is another full archive.
        self.set_next_attempt(&name, NextAttempt::Never);
        match error.kind() {
            ErrorKind::Usage | ErrorKind::Unsupported => self.report_skip(name, error.to_string()),
            _ => self.report_error(error.with_place(name), None, None),
        }
    }

    pub fn end_target(&mut self, number: usize, result: Result<()>) {
        self.has_results = true;
        let target = &mut self.targets[number];
        target.is_busy = false;
        target.sending = None;
        match result {
            Ok(()) => target.retry = Retry::default(),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => {
                let pause = target.retry.record_failure(self.now);
                let target = self.options.targets[number].to_string();
                self.report_error(error, Some(target), self.announced_retry(pause));
            }
        }
    }

    /// Returns the pause before the next attempt; `None` in a run with `--once`, which makes no other attempt.
    fn announced_retry(&self, pause: Duration) -> Option<Duration> {
        (!self.options.once).then_some(pause)
    }

    pub fn report_error(&mut self, error: Error, target: Option<String>, retry: Option<Duration>) {
        self.events.push(PublishEvent::Failed { error, target, retry });
    }
}
