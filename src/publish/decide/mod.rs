//! The planner knows which archives were seen, pinned and made, what each target has, and which
//! tasks are running. All loops take their work from it. It does no I/O, so that whole runs can be
//! simulated (`simulation_tests`).

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
use slotpress_read::catalog::Archive;
use slotpress_stores::Target;

use self::choose::{StateKey, key};
use self::retry::{NextAttempt, Retry};
use super::PublishOptions;
use super::act::index::PreparedArchive;
use super::act::target::TargetContents;
use super::remember::FileIdentity;
use super::report::event::PublishEvent;

#[derive(Clone, Debug, Default)]
pub struct Observed {
    /// Archives in the validator's directories.
    pub seen: Vec<Archive>,
    pub pinned: Vec<Archive>,
    pub ready: Vec<PreparedArchive>,
    /// Time since the preparation of the last incremental archive began.
    pub since_incremental: Option<Duration>,
}

#[derive(Debug)]
pub struct EndedWork {
    pub name: ArchiveName,
    pub result: Result<()>,
    pub elapsed: Duration,
    /// The source of a preparation; `None` for a rebase.
    pub source: Option<PinnedSource>,
}

#[derive(Clone, Copy, Debug)]
pub struct PinnedSource {
    /// Identity of the file when it was pinned.
    pub was: FileIdentity,
    /// True if the file had not changed for a while when the reading began.
    pub is_quiet: bool,
}

#[derive(Debug)]
pub struct DamagedArchive {
    pub name: ArchiveName,
    pub was: FileIdentity,
    pub error: Error,
}

/// Actions for the watcher. The planner has forgotten archives in `drop` and `remove` already, so no
/// loop takes them.
#[derive(Debug)]
pub struct Actions {
    pub refuse: Vec<DamagedArchive>,
    pub drop: Vec<ArchiveName>,
    pub add: Vec<Archive>,
    pub remove: Vec<ArchiveName>,
    /// With `--once`: true if nothing is left to do, or it has failed.
    pub is_over: bool,
}

#[derive(Clone, Debug, Default)]
pub struct TargetState {
    contents: TargetContents,
    is_known: bool,
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
    facts: Observed,
    targets: Vec<TargetState>,
    preparing: Option<ArchiveName>,
    rebasing: Option<(StateKey, CancelToken)>,
    /// Next attempts for archives that are damaged, that cannot be pinned, that no current client
    /// loads, or whose preparation or rebase failed.
    retries: BTreeMap<StateKey, Retry>,
    damaged: Vec<DamagedArchive>,
    stale: Vec<ArchiveName>,
    /// Archives that were left out, and the errors with which a run with `--once` ends.
    left_out: BTreeMap<StateKey, (ArchiveName, Error)>,
    has_begun_incremental: bool,
    scan_retry: Retry,
    /// Tasks that have ended. The first scan that begins after its end takes a task from here.
    pub ended: Vec<EndedWork>,
    pub events: Vec<PublishEvent>,
    /// True if a task has ended since the watcher asked.
    pub has_results: bool,
}

impl<'a> Planner<'a> {
    /// Creates the planner of a run. `refused` lists damaged files that earlier runs have found.
    pub fn new(
        options: &'a PublishOptions,
        refused: impl IntoIterator<Item = (ArchiveName, FileIdentity)>,
        now: Instant,
    ) -> Self {
        let target = |target: &Target| TargetState { is_dir: matches!(target, Target::Dir(_)), ..Default::default() };
        let mut planner = Self {
            options,
            now,
            facts: Observed::default(),
            targets: options.targets.iter().map(target).collect(),
            preparing: None,
            rebasing: None,
            retries: BTreeMap::new(),
            damaged: Vec::new(),
            stale: Vec::new(),
            left_out: BTreeMap::new(),
            has_begun_incremental: false,
            scan_retry: Retry::default(),
            ended: Vec::new(),
            events: Vec::new(),
            has_results: false,
        };
        for (name, was) in refused {
            planner.set_next_attempt(&name, NextAttempt::Changed(was));
        }
        planner
    }

    pub fn set_time(&mut self, now: Instant) {
        self.now = now;
    }

    pub fn is_scan_due(&self) -> bool {
        self.scan_retry.is_due(self.now)
    }

    /// Records a scan, and the first `ended` tasks, which ended before it. Forgets retries of archives
    /// that have changed or no longer exist.
    pub fn record_scan(&mut self, facts: Observed, ended: usize) {
        self.facts = facts;
        let seen: BTreeMap<StateKey, FileIdentity> =
            self.facts.seen.iter().map(|archive| (key(&archive.name), FileIdentity::from(archive))).collect();
        let pinned = self.facts.pinned.iter().map(|archive| key(&archive.name));
        let rebases = self.targets.iter().flat_map(|target| self.lacked_rebased(target)).chain(self.rebased_ready());
        let existing: BTreeSet<StateKey> = seen.keys().copied().chain(pinned).chain(rebases).collect();
        self.retries.retain(|key, retry| match retry.next {
            NextAttempt::Changed(was) => seen.get(key) == Some(&was),
            _ => existing.contains(key),
        });
        self.left_out.retain(|key, _| existing.contains(key));
        for ended in self.ended.drain(..ended).collect::<Vec<_>>() {
            self.record_end(ended);
        }
        // The end of a task is reported before a target may publish its archive.
        let made = self.preparing.as_ref().map(key);
        let rebased = self.rebasing.as_ref().map(|(key, _)| *key);
        self.facts.ready.retain(|ready| ![made, rebased].contains(&Some(key(&ready.archive.name))));
    }

    fn is_all_prepared(&self) -> bool {
        let has_no_room = |next: &Archive| self.choose_pins().no_room.contains(&next.name);
        self.preparing.is_none() && self.next_to_prepare().is_none_or(has_no_room)
    }

    /// Begins to check and recompress the next archive, which must be pinned. Returns its name.
    pub fn begin_preparing(&mut self) -> Option<ArchiveName> {
        let next = self.next_to_prepare()?.name.clone();
        if !self.retry_of(&key(&next)).is_due(self.now) || !self.facts.pinned.iter().any(|pinned| pinned.name == next) {
            return None;
        }
        self.preparing = Some(next.clone());
        self.has_begun_incremental |= next.base_slot.is_some();
        Some(next)
    }

    /// Begins the next rebase, unless an archive is to be prepared, or a working target lacks a full
    /// archive. Returns the new archive's name, the target from which it is made, and a token that
    /// stops it. Rebases onto the newest of the older full archives first, because most nodes have it.
    pub fn begin_rebase(&mut self) -> Option<(ArchiveName, usize, CancelToken)> {
        if self.rebasing.is_some() || !self.is_all_prepared() {
            return None;
        }
        let next = self.needed_rebases().into_iter().rev().find(|key| self.retry_of(key).is_due(self.now))?;
        let lacks_full =
            |target: &TargetState| self.next_to_publish(target).is_some_and(|name| name.base_slot.is_none());
        if self.targets.iter().any(|target| target.retry.failures == 0 && lacks_full(target)) {
            return None;
        }
        let from = self.targets.iter().position(|target| target.can_rebase(&next))?;
        let stop = CancelToken::default();
        self.rebasing = Some((next, stop.clone()));
        let (base_slot, slot, hash) = next;
        let compression = self.options.recompress.encoding.codec.compression();
        Some((ArchiveName { base_slot, slot, hash, compression }, from, stop))
    }

    /// Returns the actions that follow from the last scan. Stops a rebase whose result is no longer
    /// wanted.
    pub fn next_actions(&mut self) -> Actions {
        let mut pins = self.choose_pins();
        let remove = self.archives_to_remove();
        pins.drop.append(&mut self.stale);
        for name in pins.no_room {
            self.leave_out(name, "there is no room for its pin".to_string(), "give more room for pins: --pin-bytes");
        }
        if let Some((running, stop)) = &self.rebasing
            && !self.needed_rebases().contains(running)
        {
            stop.cancel();
        }
        let is_over = self.damaged.is_empty() && pins.drop.is_empty() && remove.is_empty() && self.is_over();
        let is_to_pin = |archive: &&Archive| pins.add.contains(&archive.name);
        let add = self.facts.seen.iter().filter(is_to_pin).cloned().collect();
        self.facts.pinned.retain(|archive| !pins.drop.contains(&archive.name));
        self.facts.ready.retain(|ready| !remove.contains(&ready.archive.name));
        Actions { refuse: mem::take(&mut self.damaged), drop: pins.drop, add, remove, is_over }
    }

    fn archives_to_remove(&self) -> Vec<ArchiveName> {
        // A target that has not answered yet may need any archive.
        if self.targets.iter().any(TargetState::is_silent) {
            return Vec::new();
        }
        let is_sent = |name: &ArchiveName| self.targets.iter().any(|target| target.sending.as_ref() == Some(name));
        self.find_unneeded().into_iter().filter(|name| !is_sent(name)).cloned().collect()
    }

    /// Returns true, and counts the target as busy, if its thread has work: the target is not known
    /// yet, or lacks a ready archive.
    pub fn begin_target(&mut self, at: usize) -> bool {
        let target = &self.targets[at];
        let is_possible = target.retry.is_due(self.now) && !target.retry.is_given_up(self.options.once);
        let begins = is_possible && (!target.is_known || self.next_for(target).is_some());
        self.targets[at].is_busy = begins;
        begins
    }

    /// Records the contents of a target. Returns the archive that it gets next.
    pub fn next_to_send(&mut self, at: usize, contents: &TargetContents) -> Option<PreparedArchive> {
        let target = &mut self.targets[at];
        target.contents = contents.clone();
        target.is_known = true;
        target.sending = None;
        let name = self.next_for(&self.targets[at])?.clone();
        let next = self.facts.ready.iter().find(|ready| ready.archive.name == name).cloned();
        self.targets[at].sending = Some(name);
        next
    }

    pub fn pinned_bytes(&self) -> u64 {
        self.facts.pinned.iter().map(|pinned| pinned.size_bytes).sum()
    }

    /// With `--once`: true if every task is done, or has failed.
    fn is_over(&self) -> bool {
        let is_done = |target: &TargetState| {
            let has_all = || target.is_known && self.next_for(target).is_none();
            !target.is_busy && (target.retry.is_given_up(true) || has_all())
        };
        let is_rebased = self.rebasing.is_none() && self.needed_rebases().is_empty();
        self.options.once && is_rebased && self.is_all_prepared() && self.targets.iter().all(is_done)
    }

    /// With `--once`: fails if a target lacks an archive that was left out.
    pub fn check_left_out(&self) -> Result<()> {
        let is_lacked =
            |name| self.targets.iter().any(|target| !target.is_silent() && target.contents.published.wants(name));
        let lacked = self.left_out.values().filter(|(name, _)| is_lacked(name));
        lacked.max_by_key(|(name, _)| name.slot).map_or(Ok(()), |(_, error)| Err(error.clone()))
    }

    /// With `--once`: fails if one of the archives that were refused as damaged is newer than all
    /// that a target has.
    pub fn check_refused(&self, refused: impl Iterator<Item = (ArchiveName, FileIdentity)>) -> Result<()> {
        let is_newer = |slot, target: &TargetState| target.contents.published.keys.iter().all(|key| key.1 < slot);
        let is_lacked =
            |name: &ArchiveName| self.targets.iter().any(|target| target.is_known && is_newer(name.slot, target));
        let newest = refused.map(|(name, _)| name).filter(is_lacked).max_by_key(|name| name.slot);
        let Some(name) = newest else { return Ok(()) };
        let message = format!("{name} is damaged, and no archive of its slot or newer is published");
        Err(Error::damaged(message)
            .with_hint("it is refused until its file changes; the next archive of the validator takes its place"))
    }

    /// Returns for each target its contents, the number of ready archives that it lacks, and whether it
    /// works.
    pub fn targets(&self) -> impl Iterator<Item = (&TargetContents, usize, bool)> {
        self.targets.iter().map(|target| {
            let is_lacked = |ready: &&PreparedArchive| target.contents.published.wants(&ready.archive.name);
            let lacks = if target.is_silent() { 0 } else { self.facts.ready.iter().filter(is_lacked).count() };
            (&target.contents, lacks, target.is_known && target.retry.failures == 0)
        })
    }
}
