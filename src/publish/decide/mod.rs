//! The planner tracks the validator's archives, the pinned and ready archives, the contents of each target,
//! and the running tasks. All loops take their work from the planner. The planner does no I/O, so whole runs
//! can be simulated (`simulation_tests`).

pub mod choose;
#[cfg(test)]
mod choose_tests;
mod results;
mod retry;
#[cfg(test)]
mod simulation_tests;

use std::collections::{BTreeMap, BTreeSet};
use std::mem;
use std::time::{Duration, Instant};

use slotpress_base::{CancelToken, Error, Result};
use slotpress_format::ArchiveName;
use slotpress_read::ListedArchive;
use slotpress_stores::Target;

use self::choose::{ArchiveKey, key_of};
use self::retry::{NextAttempt, Retry};
use super::PublishOptions;
use super::act::index::PreparedArchive;
use super::act::target::TargetContents;
use super::journal::FileIdentity;
use super::report::event::PublishEvent;

#[derive(Clone, Debug, Default)]
pub struct ScanResult {
    /// Archives in the validator's directories.
    pub validator_archives: Vec<ListedArchive>,
    pub pinned: Vec<ListedArchive>,
    pub ready: Vec<PreparedArchive>,
    /// Time since the preparation of the last incremental archive began.
    pub since_incremental: Option<Duration>,
}

#[derive(Debug)]
pub struct EndedTask {
    pub name: ArchiveName,
    pub result: Result<()>,
    pub elapsed: Duration,
    /// The file that was prepared; `None` for a rebase.
    pub source: Option<PinnedSource>,
}

#[derive(Clone, Copy, Debug)]
pub struct PinnedSource {
    /// Identity of the file when it was pinned.
    pub file: FileIdentity,
    /// True if the file had not changed for [`QUIET_TIME`](super::watcher::QUIET_TIME) when the task began.
    pub is_quiet: bool,
}

#[derive(Debug)]
pub struct DamagedArchive {
    pub name: ArchiveName,
    pub file: FileIdentity,
    pub error: Error,
}

/// Actions for the watcher. The planner has already forgotten the archives in `unpin` and `delete`, so no
/// loop begins to work on them.
#[derive(Debug)]
pub struct Actions {
    pub quarantine: Vec<DamagedArchive>,
    pub unpin: Vec<ArchiveName>,
    pub pin: Vec<ListedArchive>,
    pub delete: Vec<ArchiveName>,
    /// True if this is a run with `--once` in which every task is done, or has failed.
    pub is_over: bool,
}

#[derive(Clone, Debug)]
pub struct RebaseTask {
    pub name: ArchiveName,
    /// Index in [`PublishOptions::targets`] of the target from which the full archives are read.
    pub target_number: usize,
    pub stop: CancelToken,
}

pub struct TargetStatus<'a> {
    pub contents: &'a TargetContents,
    pub backlog: usize,
    pub is_up: bool,
}

#[derive(Clone, Debug, Default)]
pub struct TargetState {
    contents: TargetContents,
    is_read: bool,
    is_dir: bool,
    is_busy: bool,
    sending: Option<ArchiveName>,
    retry: Retry,
}

/// Archives that the last scan found, tasks that are running, and results of earlier tasks.
#[derive(Debug)]
pub struct Planner<'a> {
    options: &'a PublishOptions,
    now: Instant,
    scan: ScanResult,
    targets: Vec<TargetState>,
    preparing: Option<ArchiveName>,
    rebasing: Option<RebaseTask>,
    /// Next attempts for archives that are damaged, that cannot be pinned, that no current client
    /// loads, or whose preparation or rebase failed.
    retries: BTreeMap<ArchiveKey, Retry>,
    damaged: Vec<DamagedArchive>,
    stale_pins: Vec<ArchiveName>,
    /// Archives that were left out, each with the error with which a run with `--once` may end.
    left_out: BTreeMap<ArchiveKey, (ArchiveName, Error)>,
    has_begun_incremental: bool,
    scan_retry: Retry,
    /// Tasks that have ended, until a scan that began later is recorded.
    pub ended_tasks: Vec<EndedTask>,
    pub events: Vec<PublishEvent>,
    /// True if a task has ended since the watcher last looked.
    pub has_results: bool,
}

impl<'a> Planner<'a> {
    /// Creates the planner of a run. `refused` lists files that earlier runs have refused as damaged.
    pub fn new(
        options: &'a PublishOptions,
        refused: impl IntoIterator<Item = (ArchiveName, FileIdentity)>,
        now: Instant,
    ) -> Self {
        let state = |target: &Target| TargetState { is_dir: matches!(target, Target::Dir(_)), ..Default::default() };
        let mut planner = Self {
            options,
            now,
            scan: ScanResult::default(),
            targets: options.targets.iter().map(state).collect(),
            preparing: None,
            rebasing: None,
            retries: BTreeMap::new(),
            damaged: Vec::new(),
            stale_pins: Vec::new(),
            left_out: BTreeMap::new(),
            has_begun_incremental: false,
            scan_retry: Retry::default(),
            ended_tasks: Vec::new(),
            events: Vec::new(),
            has_results: false,
        };
        for (name, file) in refused {
            planner.set_next_attempt(&name, NextAttempt::AfterChange(file));
        }
        planner
    }

    pub fn set_time(&mut self, now: Instant) {
        self.now = now;
    }

    pub fn is_scan_due(&self) -> bool {
        self.scan_retry.is_due(self.now)
    }

    /// Records a scan, and the first `ended_count` of the ended tasks, which had ended before the scan began.
    /// Forgets the retries of archives that have changed or no longer exist.
    pub fn record_scan(&mut self, scan: ScanResult, ended_count: usize) {
        self.scan = scan;
        let archives = self.scan.validator_archives.iter();
        let seen: BTreeMap<ArchiveKey, FileIdentity> =
            archives.map(|archive| (key_of(&archive.name), FileIdentity::from(archive))).collect();
        let pinned = self.scan.pinned.iter().map(|archive| key_of(&archive.name));
        let rebases = self.targets.iter().flat_map(|target| self.missing_rebases(target)).chain(self.ready_rebases());
        let existing: BTreeSet<ArchiveKey> = seen.keys().copied().chain(pinned).chain(rebases).collect();
        self.retries.retain(|key, retry| match retry.next {
            NextAttempt::AfterChange(file) => seen.get(key) == Some(&file),
            _ => existing.contains(key),
        });
        self.left_out.retain(|key, _| existing.contains(key));
        for task in self.ended_tasks.drain(..ended_count).collect::<Vec<_>>() {
            self.record_ended_task(task);
        }
        // The archive of a task that is not recorded as ended may already be there. No target may publish
        // it before the end of the task is reported.
        let preparing = self.preparing.as_ref().map(key_of);
        let rebasing = self.rebasing.as_ref().map(|task| key_of(&task.name));
        self.scan.ready.retain(|ready| ![preparing, rebasing].contains(&Some(key_of(&ready.archive.name))));
    }

    fn is_all_prepared(&self) -> bool {
        let has_no_room = |next: &ListedArchive| self.choose_pins().no_room.contains(&next.name);
        self.preparing.is_none() && self.next_to_prepare().is_none_or(has_no_room)
    }

    /// Begins to check and recompress the next archive, which must be pinned. Returns its name.
    pub fn begin_preparing(&mut self) -> Option<ArchiveName> {
        let next = self.next_to_prepare()?.name.clone();
        let is_pinned = self.scan.pinned.iter().any(|pinned| pinned.name == next);
        if !is_pinned || !self.retry_of(&key_of(&next)).is_due(self.now) {
            return None;
        }
        self.preparing = Some(next.clone());
        self.has_begun_incremental |= next.base_slot.is_some();
        Some(next)
    }

    /// Begins the next rebase, unless an archive is to be prepared, or a full archive is ready for a target
    /// that works. Rebases onto the newest of the older full archives first, because most nodes have it.
    pub fn begin_rebase(&mut self) -> Option<RebaseTask> {
        if self.rebasing.is_some() || !self.is_all_prepared() {
            return None;
        }
        let next = self.needed_rebases().into_iter().rev().find(|key| self.retry_of(key).is_due(self.now))?;
        let lacks_full = |target: &TargetState| self.next_ordinary(target).is_some_and(|name| name.base_slot.is_none());
        if self.targets.iter().any(|target| target.retry.failures == 0 && lacks_full(target)) {
            return None;
        }
        let target_number = self.targets.iter().position(|target| target.can_rebase(&next))?;
        let ArchiveKey { base_slot, slot, hash } = next;
        let compression = self.options.encoding.codec.compression();
        let name = ArchiveName { base_slot, slot, hash, compression };
        self.rebasing = Some(RebaseTask { name, target_number, stop: CancelToken::default() });
        self.rebasing.clone()
    }

    /// Returns the actions that follow from the last scan. Stops a rebase whose result is no longer
    /// wanted.
    pub fn next_actions(&mut self) -> Actions {
        let mut pins = self.choose_pins();
        let delete = self.archives_to_delete();
        pins.to_unpin.append(&mut self.stale_pins);
        for name in pins.no_room {
            self.leave_out(name, "there is no space for its pin".to_string(), "allow more space for pins: --pin-bytes");
        }
        if let Some(task) = &self.rebasing
            && !self.needed_rebases().contains(&key_of(&task.name))
        {
            task.stop.cancel();
        }
        let is_over = self.damaged.is_empty() && pins.to_unpin.is_empty() && delete.is_empty() && self.is_over();
        let is_to_pin = |archive: &&ListedArchive| pins.to_pin.contains(&archive.name);
        let pin = self.scan.validator_archives.iter().filter(is_to_pin).cloned().collect();
        self.scan.pinned.retain(|archive| !pins.to_unpin.contains(&archive.name));
        self.scan.ready.retain(|ready| !delete.contains(&ready.archive.name));
        Actions { quarantine: mem::take(&mut self.damaged), unpin: pins.to_unpin, pin, delete, is_over }
    }

    fn archives_to_delete(&self) -> Vec<ArchiveName> {
        // A target that has not answered yet may need any archive.
        if self.targets.iter().any(TargetState::is_untried) {
            return Vec::new();
        }
        let is_sent = |name: &ArchiveName| self.targets.iter().any(|target| target.sending.as_ref() == Some(name));
        self.find_unneeded().into_iter().filter(|name| !is_sent(name)).cloned().collect()
    }

    /// Returns true, and marks the target as busy, if its thread has work: if the target has not been read
    /// yet, or lacks a ready archive.
    pub fn begin_target(&mut self, number: usize) -> bool {
        let target = &self.targets[number];
        let may_begin = target.retry.is_due(self.now) && !target.retry.is_given_up(self.options.once);
        let begins = may_begin && (!target.is_read || self.next_for_target(target).is_some());
        self.targets[number].is_busy = begins;
        begins
    }

    /// Records the contents of a target. Returns the archive to send there next.
    pub fn next_to_send(&mut self, number: usize, contents: &TargetContents) -> Option<PreparedArchive> {
        let target = &mut self.targets[number];
        target.contents = contents.clone();
        target.is_read = true;
        target.sending = None;
        let name = self.next_for_target(&self.targets[number])?.clone();
        let next = self.scan.ready.iter().find(|ready| ready.archive.name == name).cloned();
        self.targets[number].sending = Some(name);
        next
    }

    pub fn pinned_bytes(&self) -> u64 {
        self.scan.pinned.iter().map(|pinned| pinned.size_bytes).sum()
    }

    /// True if this is a run with `--once` in which every task is done, or has failed.
    fn is_over(&self) -> bool {
        let is_done = |target: &TargetState| {
            let has_all = || target.is_read && self.next_for_target(target).is_none();
            !target.is_busy && (target.retry.is_given_up(self.options.once) || has_all())
        };
        let is_all_rebased = self.rebasing.is_none() && self.needed_rebases().is_empty();
        self.options.once && is_all_rebased && self.is_all_prepared() && self.targets.iter().all(is_done)
    }

    /// Fails if a target wants an archive that was left out. For runs with `--once`.
    pub fn check_left_out(&self) -> Result<()> {
        let is_wanted =
            |name| self.targets.iter().any(|target| !target.is_untried() && target.contents.published.wants(name));
        let wanted = self.left_out.values().filter(|(name, _)| is_wanted(name));
        match wanted.max_by_key(|(name, _)| name.slot) {
            Some((_, error)) => Err(error.clone()),
            None => Ok(()),
        }
    }

    /// Fails if an archive that was refused as damaged is newer than all archives of a target. For runs with
    /// `--once`.
    pub fn check_refused(&self, refused: Vec<(ArchiveName, FileIdentity)>) -> Result<()> {
        let newest = refused.into_iter().map(|(name, _)| name).max_by_key(|name| name.slot);
        let Some(name) = newest else { return Ok(()) };
        let is_newer = |target: &TargetState| target.contents.published.keys.iter().all(|key| key.slot < name.slot);
        if !self.targets.iter().any(|target| target.is_read && is_newer(target)) {
            return Ok(());
        }
        let message = format!("{name} is damaged, and no archive of its slot or newer is published");
        Err(Error::damaged(message)
            .with_hint("the archive is refused until its file changes; the validator's next archive takes its place"))
    }

    pub fn target_statuses(&self) -> impl Iterator<Item = TargetStatus<'_>> {
        self.targets.iter().map(|target| {
            let is_wanted = |name: &&ArchiveName| target.contents.published.wants(name);
            let backlog = if target.is_untried() { 0 } else { self.ready_names().filter(is_wanted).count() };
            TargetStatus { contents: &target.contents, backlog, is_up: target.is_read && target.retry.failures == 0 }
        })
    }
}
