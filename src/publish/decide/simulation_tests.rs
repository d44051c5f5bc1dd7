//! Simulates random runs of a publisher: a validator writes, purges and damages archives, targets
//! fail, hang and work again, the clock jumps, and kills happen between any two actions. Only the
//! planner and the rules of pruning are real. The loops take their work in any order.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant, SystemTime};

use slotpress_base::{Error, ErrorKind, Progress};
use slotpress_format::SlotTime;
use slotpress_format::ledger::names::*;
use slotpress_read::{Catalog, Keep, ListedArchive, plan_prune};

use self::publish_runs::{OutsideEvent, RandomOptions, TargetCondition};
use self::seeded_rng::SeededRng;
use super::choose::{ArchiveKey, ArchiveSet, key_of};
use super::choose_tests::ready_rebase;
use super::*;
use crate::publish::act::pins::PinResult;

#[path = "../../../tests/common/publish_runs.rs"]
mod publish_runs;
#[allow(clippy::duplicate_mod, reason = "the simulation of bootstrap has it too")]
#[path = "../../../tests/common/seeded_rng.rs"]
mod seeded_rng;

/// Number of runs. The variables `PUBLISH_RUNS` and `PUBLISH_SEED` set a different number, and the
/// first seed.
const RUNS: u64 = 10_000;
const STEPS: usize = 30;
/// Maximum number of scans in a row that each lead to an action. If there are more, the work never ends.
const SCANS_MAX: usize = 8;
/// Number of steps without disturbance in which all work must be done. Each step is longer than any pause
/// after a failure.
const CALM_STEPS: usize = 24;
/// Number of idle steps in a row after which no more work is expected.
const IDLE_STEPS_MAX: usize = 4;

/// Prints the seed of a run when dropped by a panic.
struct SeedPrinter(u64);

impl Drop for SeedPrinter {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("PUBLISH_SEED={} PUBLISH_RUNS=1", self.0);
        }
    }
}

#[derive(Debug)]
struct SimulatedTarget {
    condition: TargetCondition,
    files: BTreeSet<ArchiveKey>,
    index: BTreeMap<ArchiveKey, ListedArchive>,
    is_busy: bool,
    sending: Option<PreparedArchive>,
}

/// Everything outside the program, which a kill does not change, and the tasks that are running.
struct Simulation<'a> {
    options: &'a PublishOptions,
    rng: SeededRng,
    now: Instant,
    unix_seconds: u64,
    last_inode: u64,
    seen: BTreeMap<ArchiveKey, ListedArchive>,
    pinned: BTreeMap<ArchiveKey, ListedArchive>,
    ready: BTreeMap<ArchiveKey, PreparedArchive>,
    damaged: BTreeSet<ArchiveKey>,
    refused: BTreeMap<ArchiveKey, (ArchiveName, FileIdentity)>,
    pins: BTreeMap<ArchiveKey, FileIdentity>,
    incremental_start: Option<u64>,
    targets: Vec<SimulatedTarget>,
    /// The archive that is being prepared, and the result once it is known.
    preparing: Option<(ArchiveName, Option<Result<()>>)>,
    rebasing: Option<RebaseTask>,
    /// Ready archives whose preparation was reported.
    reported: BTreeSet<ArchiveKey>,
    /// An archive that failed, and the time of the next attempt that was announced.
    announced: Option<(ArchiveName, Instant)>,
    is_calm: bool,
    /// Number of actions so far.
    action_count: usize,
}

fn archive(base_slot: Option<u64>, slot: u64, inode: u64) -> ListedArchive {
    let name = ArchiveName { base_slot, slot, hash: Hash([7; 32]), compression: ArchiveCompression::Zstd };
    let mut archive = ListedArchive::new(name, "/snapshots", 10);
    archive.file_id.inode = inode;
    archive
}

fn prepared_archive(archive: ListedArchive) -> PreparedArchive {
    PreparedArchive { archive, slot_time: SlotTime::default(), epoch_schedule: None }
}

impl Simulation<'_> {
    fn scan(&self) -> ScanResult {
        let to_vec = |archives: &BTreeMap<ArchiveKey, ListedArchive>| archives.values().cloned().collect::<Vec<_>>();
        ScanResult {
            validator_archives: to_vec(&self.seen),
            pinned: to_vec(&self.pinned),
            ready: self.ready.values().cloned().collect(),
            since_incremental: self
                .incremental_start
                .and_then(|start| self.unix_seconds.checked_sub(start))
                .map(Duration::from_secs),
        }
    }

    fn newest_full(&self) -> u64 {
        self.seen.keys().filter(|key| key.base_slot.is_none()).map(|key| key.slot).max().unwrap_or(100)
    }

    fn apply_outside_event(&mut self) {
        let newest_slot = self.seen.keys().map(|key| key.slot).max().unwrap_or(100);
        self.last_inode += 1;
        match OutsideEvent::draw(&mut self.rng, self.targets.len()) {
            OutsideEvent::Full { is_damaged } => {
                self.write(archive(None, newest_slot + 10, self.last_inode), is_damaged)
            }
            OutsideEvent::Incremental { is_damaged } if !self.seen.is_empty() => {
                self.write(archive(Some(self.newest_full()), newest_slot + 1, self.last_inode), is_damaged);
            }
            OutsideEvent::Purge => {
                let oldest_kept = self.newest_full().saturating_sub(10);
                self.seen.retain(|key, _| key.base_slot.unwrap_or(key.slot) >= oldest_kept);
            }
            OutsideEvent::Target { number, condition } => self.targets[number].condition = condition,
            OutsideEvent::TimePasses { seconds } => self.advance(seconds),
            OutsideEvent::ClockJumps { unix_seconds } => self.unix_seconds = unix_seconds,
            OutsideEvent::Incremental { .. } => self.advance(1),
        }
    }

    fn write(&mut self, archive: ListedArchive, is_damaged: bool) {
        if is_damaged {
            self.damaged.insert(key_of(&archive.name));
        }
        self.seen.insert(key_of(&archive.name), archive);
    }

    fn draw_percent(&mut self, percent: usize) -> bool {
        self.rng.below(100) < percent
    }

    fn advance(&mut self, seconds: u64) {
        self.now += Duration::from_secs(seconds);
        self.unix_seconds += seconds;
    }

    /// Counts an action. Returns `None` if a kill comes before it.
    fn act(&mut self) -> Option<()> {
        if !self.is_calm && self.draw_percent(1) {
            return None;
        }
        self.action_count += 1;
        Some(())
    }

    /// Carries out the actions of the watcher. Returns true if another scan is needed, and `None` if a
    /// kill comes first.
    fn carry_out(&mut self, planner: &mut Planner<'_>) -> Option<bool> {
        let actions = planner.next_actions();
        if !self.is_calm && self.draw_percent(30) {
            // The loops continue meanwhile.
            self.begin_tasks(planner)?;
            self.end_tasks(planner)?;
        }
        let mut is_scan_needed =
            !(actions.quarantine.is_empty() && actions.unpin.is_empty() && actions.delete.is_empty());
        for DamagedArchive { name, file, .. } in actions.quarantine {
            self.act()?;
            assert!(self.damaged.contains(&key_of(&name)), "a valid archive was refused");
            self.pinned.remove(&key_of(&name));
            self.refused.insert(key_of(&name), (name, file));
        }
        for name in &actions.unpin {
            self.act()?;
            assert!(self.preparing.as_ref().is_none_or(|(source, _)| source != name), "its pin is in use");
            self.pinned.remove(&key_of(name));
        }
        for archive in actions.pin {
            self.act()?;
            let key = key_of(&archive.name);
            self.pins.insert(key, FileIdentity::from(&archive));
            let result = match self.rng.below(if self.is_calm { 20 } else { 22 }) {
                _ if !self.seen.contains_key(&key) => PinResult::Gone,
                20 => PinResult::NotYet,
                21 if self.damaged.contains(&key) => PinResult::Damaged(Error::damaged("why")),
                _ => PinResult::Pinned,
            };
            if matches!(result, PinResult::Pinned) {
                self.pinned.insert(key, archive.clone());
            }
            is_scan_needed |= matches!(result, PinResult::Pinned | PinResult::Damaged(_));
            planner.record_pin(archive, result);
        }
        for name in actions.delete {
            self.act()?;
            self.ready.remove(&key_of(&name));
        }
        Some(is_scan_needed)
    }

    fn scan_and_act(&mut self, planner: &mut Planner<'_>) -> Option<()> {
        planner.set_time(self.now);
        if !planner.is_scan_due() {
            return Some(());
        }
        for _ in 0..SCANS_MAX {
            planner.record_scan(self.scan(), planner.ended_tasks.len());
            self.take_events(planner);
            if !self.carry_out(planner)? {
                self.begin_tasks(planner)?;
                self.check_announced_attempt(planner);
                return Some(());
            }
        }
        panic!("the scans in a row do not end: each one leads to an action");
    }

    /// Records which archives were reported as ready, and the time of the announced attempt.
    fn take_events(&mut self, planner: &mut Planner<'_>) {
        for event in mem::take(&mut planner.events) {
            match event {
                PublishEvent::Prepared(ready) => {
                    self.reported.insert(key_of(&ready.name));
                }
                PublishEvent::Failed { target: None, retry: Some(retry), .. } => {
                    self.announced.iter_mut().for_each(|(_, due)| *due = self.now + retry);
                }
                _ => {}
            }
        }
    }

    /// Lets the loops take their work, in any order.
    fn begin_tasks(&mut self, planner: &mut Planner<'_>) -> Option<()> {
        let loops = 2 + self.targets.len();
        let first = self.rng.below(loops);
        for number in (first..loops).chain(0..first) {
            match number {
                0 if self.preparing.is_none() => {
                    let Some(source) = planner.begin_preparing() else { continue };
                    self.act()?;
                    assert!(self.pinned.contains_key(&key_of(&source)), "it is not pinned");
                    if source.base_slot.is_some() {
                        self.incremental_start = Some(self.unix_seconds);
                    }
                    self.preparing = Some((source, None));
                }
                1 if self.rebasing.is_none() => {
                    let Some(task) = planner.begin_rebase() else { continue };
                    self.act()?;
                    let full = key_of(&task.name).to_full();
                    assert!(
                        self.targets[task.target_number].index.contains_key(&full),
                        "the target lacks the full archive"
                    );
                    self.rebasing = Some(task);
                }
                number if number > 1 && !self.targets[number - 2].is_busy && planner.begin_target(number - 2) => {
                    self.act()?;
                    self.targets[number - 2].is_busy = true;
                }
                _ => {}
            }
        }
        Some(())
    }

    /// Checks that an archive is being prepared when its next attempt is due, if it still exists and is
    /// wanted.
    fn check_announced_attempt(&mut self, planner: &Planner<'_>) {
        let Some((name, _)) = self.announced.take_if(|(_, due)| *due <= self.now) else { return };
        let existing = || self.seen.keys().chain(self.pinned.keys());
        // Newer archives come first.
        let is_newest =
            existing().any(|other| *other == key_of(&name)) && existing().all(|other| other.slot <= name.slot);
        let wants = |target: &TargetState| {
            let mut future = target.contents.published.clone();
            future.keys.extend(self.ready.keys());
            !target.is_untried() && future.wants(&name)
        };
        let is_wanted = is_newest && planner.targets.iter().any(wants);
        assert!(self.preparing.is_some() || !is_wanted, "{name} is not prepared again");
    }

    /// Ends some of the running tasks, and reports their results to the planner.
    fn end_tasks(&mut self, planner: &mut Planner<'_>) -> Option<()> {
        planner.set_time(self.now);
        if self.preparing.is_some() && (self.is_calm || self.draw_percent(50)) {
            self.end_preparation(planner);
        }
        if self.rebasing.is_some() && (self.is_calm || self.draw_percent(30)) {
            let RebaseTask { name, stop, .. } = self.rebasing.take().expect("it runs");
            let result = if stop.is_interrupted() {
                Err(Error::interrupted())
            } else if !self.is_calm && self.draw_percent(20) {
                Err(Error::failed("a disk"))
            } else {
                Ok(())
            };
            if result.is_ok() {
                self.ready.insert(key_of(&name), ready_rebase(name.clone()));
            }
            planner.queue_ended_task(EndedTask { name, result, elapsed: Duration::ZERO, source: None });
        }
        for number in 0..self.targets.len() {
            if self.is_calm || self.draw_percent(60) {
                self.step_target(planner, number)?;
            }
        }
        Some(())
    }

    /// Ends a preparation, and reports its result now or in a later step.
    fn end_preparation(&mut self, planner: &mut Planner<'_>) {
        let (source, result) = self.preparing.take().expect("it runs");
        let result = result.unwrap_or_else(|| {
            if self.damaged.contains(&key_of(&source)) {
                return Err(Error::damaged("why"));
            }
            if !self.is_calm && self.draw_percent(20) {
                return Err(Error::failed("why"));
            }
            self.ready.insert(key_of(&source), prepared_archive(archive(source.base_slot, source.slot, 0)));
            Ok(())
        });
        if !self.is_calm && self.draw_percent(30) {
            self.preparing = Some((source, Some(result)));
            return;
        }
        if result.as_ref().is_err_and(|error| error.kind() == ErrorKind::Failed) {
            self.announced = Some((source.clone(), self.now + Duration::from_secs(3600)));
        }
        let file = self.pins.get(&key_of(&source)).copied().unwrap_or_default();
        let is_quiet = self.is_calm || self.draw_percent(70);
        planner.queue_ended_task(EndedTask {
            name: source,
            result,
            elapsed: Duration::ZERO,
            source: Some(PinnedSource { file, is_quiet }),
        });
    }

    /// Simulates a step of a target's loop: finishes sending an archive, and begins to send the next one.
    fn step_target(&mut self, planner: &mut Planner<'_>, number: usize) -> Option<()> {
        let is_calm = self.is_calm;
        let target = &mut self.targets[number];
        if target.condition == TargetCondition::Hangs || !target.is_busy {
            return Some(());
        }
        let sending = target.sending.take();
        let failure_kind = match target.condition {
            TargetCondition::Fails => Some(ErrorKind::Network),
            TargetCondition::IsFull => Some(ErrorKind::Failed),
            TargetCondition::Refuses | TargetCondition::IsGone => Some(ErrorKind::Exists),
            TargetCondition::Works | TargetCondition::Hangs => None,
        };
        if let Some(kind) = failure_kind {
            target.is_busy = false;
            planner.end_target(number, Err(Error::new(kind, "why")));
            return Some(());
        }
        if let Some(PreparedArchive { archive, .. }) = sending {
            let key = key_of(&archive.name);
            assert!(self.ready.contains_key(&key), "a ready archive was removed");
            assert!(self.reported.contains(&key), "it is published before it is reported as ready");
            assert!(!self.damaged.contains(&key), "a damaged archive was published");
            target.files.insert(key);
            if !is_calm && self.rng.below(100) < 3 {
                return None;
            }
            target.index.insert(key, archive);
            prune(target, &self.options.keep);
        }
        let published = ArchiveSet::from_archives(target.index.values());
        target.sending = planner.next_to_send(number, &TargetContents { published, ..TargetContents::default() });
        if target.sending.is_none() {
            target.is_busy = false;
            planner.end_target(number, Ok(()));
        }
        self.action_count += 1;
        Some(())
    }

    /// Checks that archives in an index exist and are valid, and that no target has lost its last
    /// full archive.
    fn check(&self, had_full: &mut [bool]) {
        for (target, had_full) in self.targets.iter().zip(had_full) {
            assert!(target.index.keys().all(|key| target.files.contains(key)), "{target:?}");
            assert!(target.index.keys().all(|key| !self.damaged.contains(key)), "{target:?}");
            let has_full = target.index.keys().any(|key| key.base_slot.is_none());
            assert!(has_full || !*had_full, "the last full archive is gone: {target:?}");
            *had_full = has_full;
        }
    }

    /// Checks that each target has the newest valid archives that still exist, and that no files
    /// are left over.
    fn check_end(&self, seed: u64) {
        let is_good = |key: &&ArchiveKey| !self.damaged.contains(key);
        let full = self.seen.keys().filter(is_good).filter(|key| key.base_slot.is_none()).max_by_key(|key| key.slot);
        for target in &self.targets {
            let newest = target.index.keys().filter(|key| key.base_slot.is_none()).map(|key| key.slot).max();
            assert!(full.is_none_or(|full| newest >= Some(full.slot)), "{seed}: {full:?} {target:?}");
            let Some(base) = newest.filter(|base| self.seen.contains_key(&key_of(&archive(None, *base, 0).name)))
            else {
                continue;
            };
            let newest_on_base =
                self.seen.keys().filter(is_good).filter(|key| key.base_slot == Some(base)).map(|key| key.slot).max();
            let published = target.index.keys().filter(|key| key.base_slot == Some(base)).map(|key| key.slot).max();
            assert!(published >= newest_on_base, "{seed}: {newest_on_base:?} on {base} {target:?}");
        }
        assert!(self.pinned.is_empty(), "{seed}: {:?}", self.pinned);
        assert!(self.ready.is_empty(), "{seed}: {:?}", self.ready);
        assert!(self.preparing.is_none());
        assert!(self.rebasing.is_none());
    }
}

fn prune(target: &mut SimulatedTarget, keep: &Keep) {
    let catalog = Catalog::new(target.index.values().cloned());
    let plan = plan_prune(&catalog, keep, SystemTime::UNIX_EPOCH);
    let pruned = plan.iter().filter(|decision| decision.keep_reason.is_none());
    let pruned: Vec<ArchiveKey> = pruned.map(|decision| key_of(&decision.archive.name)).collect();
    target.index.retain(|key, _| !pruned.contains(key));
    target.files.retain(|key| !pruned.contains(key));
}

fn simulate(seed: u64) {
    let _seed_printer = SeedPrinter(seed);
    let mut rng = SeededRng::new(seed);
    let random_options = RandomOptions::draw(&mut rng);
    let targets = ["/mirror", "s3://bucket/one", "/other"].map(|target| target.parse().expect("a target"));
    let mut options = PublishOptions::new("/snapshots", targets.into_iter().take(random_options.targets));
    options.rebase_onto = random_options.rebase_onto;
    options.keep = options.keep.rebased(options.rebase_onto);
    options.as_is = random_options.as_is;
    let new_target = || SimulatedTarget {
        condition: TargetCondition::Works,
        files: BTreeSet::new(),
        index: BTreeMap::new(),
        is_busy: false,
        sending: None,
    };
    let mut simulation = Simulation {
        options: &options,
        now: Instant::now(),
        unix_seconds: 1_700_000_000,
        last_inode: 0,
        seen: BTreeMap::new(),
        pinned: BTreeMap::new(),
        ready: BTreeMap::new(),
        damaged: BTreeSet::new(),
        refused: BTreeMap::new(),
        pins: BTreeMap::new(),
        incremental_start: None,
        targets: options.targets.iter().map(|_| new_target()).collect(),
        preparing: None,
        rebasing: None,
        reported: BTreeSet::new(),
        announced: None,
        is_calm: false,
        action_count: 0,
        rng,
    };
    let mut planner = Planner::new(&options, [], simulation.now);
    let mut had_full = vec![false; options.targets.len()];
    let mut idle_steps = 0;
    for step in 0..STEPS + CALM_STEPS {
        if step == STEPS {
            simulation.is_calm = true;
            simulation.targets.iter_mut().for_each(|target| target.condition = TargetCondition::Works);
            // Restart the program: a running one remembers archives that it skipped.
            simulation.kill(&mut planner);
        }
        let actions_before = simulation.action_count;
        if simulation.is_calm {
            simulation.advance(400)
        } else {
            simulation.apply_outside_event()
        }
        let outcome = simulation.scan_and_act(&mut planner).and_then(|()| simulation.end_tasks(&mut planner));
        simulation.check(&mut had_full);
        idle_steps = if simulation.is_calm && simulation.action_count == actions_before { idle_steps + 1 } else { 0 };
        if idle_steps == IDLE_STEPS_MAX {
            break;
        }
        if outcome.is_none() || !simulation.is_calm && simulation.draw_percent(3) {
            simulation.kill(&mut planner);
        }
    }
    simulation.check_end(seed);
}

impl<'a> Simulation<'a> {
    /// Ends the program: running work is lost, everything on disks stays.
    fn kill(&mut self, planner: &mut Planner<'a>) {
        (self.preparing, self.rebasing, self.announced) = (None, None, None);
        self.targets.iter_mut().for_each(|target| (target.is_busy, target.sending) = (false, None));
        self.reported = self.ready.keys().copied().collect();
        *planner = Planner::new(self.options, self.refused.values().cloned(), self.now);
    }
}

#[test]
fn random_runs_publish_the_newest_valid_archives() {
    let number_of = |name: &str, default| std::env::var(name).map_or(default, |text| text.parse().expect("a number"));
    let first_seed = number_of("PUBLISH_SEED", 1);
    let runs = number_of("PUBLISH_RUNS", RUNS);
    std::thread::scope(|scope| {
        for thread in 0..4 {
            scope.spawn(move || (first_seed..first_seed + runs).filter(|seed| seed % 4 == thread).for_each(simulate));
        }
    });
}
