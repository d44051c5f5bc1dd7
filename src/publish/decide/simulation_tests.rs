//! Plays random lives of a publisher: a validator writes, purges and damages archives, targets
//! fail, hang and come back, the clock jumps, and kills happen between any two acts. Only the planner
//! and the rules of pruning are real; the loops take their work in any order.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant, SystemTime};

use slotpress_base::{Error, ErrorKind, Progress};
use slotpress_format::ledger::names::*;
use slotpress_format::{FrameHashesLocation, SlotTime};
use slotpress_read::catalog::prune::plan_prune;
use slotpress_read::catalog::{Archive, FrameHashes};
use slotpress_read::{Catalog, Keep};

use self::draws::Draws;
use self::lives::{Happening, Mood, Wishes};
use super::choose::{ArchiveSet, StateKey, key};
use super::*;
use crate::publish::act::pins::PinResult;

#[allow(clippy::duplicate_mod, reason = "the simulation of bootstrap has it too")]
#[path = "../../../tests/common/draws.rs"]
mod draws;
#[path = "../../../tests/common/lives.rs"]
mod lives;

/// Number of lives. The variables `PUBLISH_LIVES` and `PUBLISH_SEED` set another number, and the
/// first seed.
const LIVES: u64 = 10_000;
const STEPS: usize = 30;
/// Maximum number of looks in a row, each after an action that changes what the next one finds. If
/// there are more, the work never ends.
const SCANS_MAX: usize = 8;
/// Number of steps without disturbance after which all work is done: they take longer than any
/// pause after a failure.
const PEACE: usize = 24;
/// Number of idle steps in a row after which no more work is expected.
const QUIET: usize = 4;

/// Prints the seed of a life that failed.
struct Seed(u64);

impl Drop for Seed {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("PUBLISH_SEED={} PUBLISH_LIVES=1", self.0);
        }
    }
}

/// A target: the files there, and what its index names.
#[derive(Debug)]
struct There {
    mood: Mood,
    files: BTreeSet<StateKey>,
    index: BTreeMap<StateKey, Archive>,
    is_busy: bool,
    sending: Option<PreparedArchive>,
}

/// Everything outside of the program, which a kill does not change, and the work that is running.
struct World<'a> {
    options: &'a PublishOptions,
    draws: Draws,
    now: Instant,
    unix_seconds: u64,
    inodes: u64,
    seen: BTreeMap<StateKey, Archive>,
    pinned: BTreeMap<StateKey, Archive>,
    ready: BTreeMap<StateKey, PreparedArchive>,
    damaged: BTreeSet<StateKey>,
    refused: BTreeMap<StateKey, (ArchiveName, FileIdentity)>,
    pins: BTreeMap<StateKey, FileIdentity>,
    begun: Option<u64>,
    targets: Vec<There>,
    /// What is being made, and its result when that is there.
    preparing: Option<(ArchiveName, Option<Result<()>>)>,
    rebasing: Option<(ArchiveName, CancelToken)>,
    /// Archives that are ready, and were told to be.
    reported: BTreeSet<StateKey>,
    /// An archive that failed, and the time of the next attempt that was announced.
    promised: Option<(ArchiveName, Instant)>,
    is_peace: bool,
    /// Number of actions so far.
    acts: usize,
}

fn archive(base_slot: Option<u64>, slot: u64, inode: u64) -> Archive {
    let name = ArchiveName { base_slot, slot, hash: Hash([7; 32]), extension: Extension::TarZstd };
    let mut archive = Archive::new(name, "/snapshots", 10);
    archive.file_id.inode = inode;
    archive
}

fn ready(archive: Archive) -> PreparedArchive {
    PreparedArchive { archive, slot_time: SlotTime::ASSUMED, epoch_schedule: None }
}

impl World<'_> {
    fn facts(&self) -> Observed {
        let all = |of: &BTreeMap<StateKey, Archive>| of.values().cloned().collect::<Vec<_>>();
        Observed {
            seen: all(&self.seen),
            pinned: all(&self.pinned),
            ready: self.ready.values().cloned().collect(),
            since_incremental: self.begun.and_then(|at| self.unix_seconds.checked_sub(at)).map(Duration::from_secs),
        }
    }

    fn newest_full(&self) -> u64 {
        self.seen.keys().filter(|key| key.0.is_none()).map(|key| key.1).max().unwrap_or(100)
    }

    fn happen(&mut self) {
        let newest = self.seen.keys().map(|key| key.1).max().unwrap_or(100);
        self.inodes += 1;
        match Happening::draw(&mut self.draws, self.targets.len()) {
            Happening::Full { is_damaged } => self.write(archive(None, newest + 10, self.inodes), is_damaged),
            Happening::Incremental { is_damaged } if !self.seen.is_empty() => {
                self.write(archive(Some(self.newest_full()), newest + 1, self.inodes), is_damaged);
            }
            Happening::Purge => {
                let least = self.newest_full().saturating_sub(10);
                self.seen.retain(|(base, slot, _), _| base.unwrap_or(*slot) >= least);
            }
            Happening::Target { at, mood } => self.targets[at].mood = mood,
            Happening::Passes { seconds } => self.pass(seconds),
            Happening::ClockIs { unix_seconds } => self.unix_seconds = unix_seconds,
            Happening::Incremental { .. } => self.pass(1),
        }
    }

    fn write(&mut self, archive: Archive, is_damaged: bool) {
        self.damaged.extend(is_damaged.then(|| key(&archive.name)));
        self.seen.insert(key(&archive.name), archive);
    }

    fn percent(&mut self, percent: usize) -> bool {
        self.draws.below(100) < percent
    }

    fn pass(&mut self, seconds: u64) {
        self.now += Duration::from_secs(seconds);
        self.unix_seconds += seconds;
    }

    /// Returns `None` if a kill comes before the next act.
    fn acts(&mut self) -> Option<()> {
        if !self.is_peace && self.percent(1) {
            return None;
        }
        self.acts += 1;
        Some(())
    }

    /// What the watcher does after a look; returns whether that changes what the next one finds.
    fn arrange(&mut self, planner: &mut Planner<'_>) -> Option<bool> {
        let actions = planner.next_actions();
        if !self.is_peace && self.percent(30) {
            // Loops go on meanwhile.
            self.begin(planner)?;
            self.record_end(planner)?;
        }
        let mut has_changed = !(actions.refuse.is_empty() && actions.drop.is_empty() && actions.remove.is_empty());
        for DamagedArchive { name, was, .. } in actions.refuse {
            self.acts()?;
            assert!(self.damaged.contains(&key(&name)), "a sound archive was refused");
            self.pinned.remove(&key(&name));
            self.refused.insert(key(&name), (name, was));
        }
        for name in &actions.drop {
            self.acts()?;
            assert!(self.preparing.as_ref().is_none_or(|(source, _)| source != name), "its pin is in use");
            self.pinned.remove(&key(name));
        }
        for archive in actions.add {
            self.acts()?;
            let key = key(&archive.name);
            self.pins.insert(key, FileIdentity::from(&archive));
            let pinned = match self.draws.below(if self.is_peace { 20 } else { 22 }) {
                _ if !self.seen.contains_key(&key) => PinResult::Gone,
                20 => PinResult::NotNow,
                21 if self.damaged.contains(&key) => PinResult::Damaged(Error::damaged("why")),
                _ => PinResult::Yes,
            };
            if matches!(pinned, PinResult::Yes) {
                self.pinned.insert(key, archive.clone());
            }
            has_changed |= matches!(pinned, PinResult::Yes | PinResult::Damaged(_));
            planner.pinned(archive, pinned);
        }
        for name in actions.remove {
            self.acts()?;
            self.ready.remove(&key(&name));
        }
        Some(has_changed)
    }

    fn work(&mut self, planner: &mut Planner<'_>) -> Option<()> {
        planner.set_time(self.now);
        if !planner.is_scan_due() {
            return Some(());
        }
        for _ in 0..SCANS_MAX {
            planner.record_scan(self.facts(), planner.ended.len());
            self.listen(planner);
            if !self.arrange(planner)? {
                self.begin(planner)?;
                self.check_promise(planner);
                return Some(());
            }
        }
        panic!("every look leads to a change");
    }

    /// Hears what is told.
    fn listen(&mut self, planner: &mut Planner<'_>) {
        for event in mem::take(&mut planner.events) {
            match event {
                PublishEvent::Prepared(made) => drop(self.reported.insert(key(&made.name))),
                PublishEvent::Failed { target: None, retry: Some(retry), .. } => {
                    self.promised.iter_mut().for_each(|(_, due)| *due = self.now + retry);
                }
                _ => {}
            }
        }
    }

    /// Lets the loops take their work, in any order.
    fn begin(&mut self, planner: &mut Planner<'_>) -> Option<()> {
        let loops = 2 + self.targets.len();
        let first = self.draws.below(loops);
        for number in (first..loops).chain(0..first) {
            match number {
                0 if self.preparing.is_none() => {
                    let Some(source) = planner.begin_preparing() else { continue };
                    self.acts()?;
                    assert!(self.pinned.contains_key(&key(&source)), "it is not pinned");
                    if source.base_slot.is_some() {
                        self.begun = Some(self.unix_seconds);
                    }
                    self.preparing = Some((source, None));
                }
                1 if self.rebasing.is_none() => {
                    let Some((name, from, stop)) = planner.begin_rebase() else { continue };
                    self.acts()?;
                    let has = &self.targets[from].index;
                    assert!(has.contains_key(&(None, name.slot, name.hash)), "the target lacks the full archive");
                    self.rebasing = Some((name, stop));
                }
                number if number > 1 && !self.targets[number - 2].is_busy && planner.begin_target(number - 2) => {
                    self.acts()?;
                    self.targets[number - 2].is_busy = true;
                }
                _ => {}
            }
        }
        Some(())
    }

    /// Checks that an archive whose next attempt is due is being prepared, if it still exists and
    /// is wanted.
    fn check_promise(&mut self, planner: &Planner<'_>) {
        let Some((name, _)) = self.promised.take_if(|(_, due)| *due <= self.now) else { return };
        let there = || self.seen.keys().chain(self.pinned.keys());
        // Newer archives come first.
        let is_newest = there().any(|it| *it == key(&name)) && there().all(|it| it.1 <= name.slot);
        let wants = |target: &TargetState| {
            let mut has = target.contents.published.clone();
            has.keys.extend(self.ready.keys());
            !target.is_silent() && has.wants(&name)
        };
        let is_wanted = is_newest && planner.targets.iter().any(wants);
        assert!(self.preparing.is_some() || !is_wanted, "{name} is not prepared again");
    }

    /// Lets loops whose work is done report their results.
    fn record_end(&mut self, planner: &mut Planner<'_>) -> Option<()> {
        planner.set_time(self.now);
        if self.preparing.is_some() && (self.is_peace || self.percent(50)) {
            self.make(planner);
        }
        if self.rebasing.is_some() && (self.is_peace || self.percent(30)) {
            let (name, stop) = self.rebasing.take().expect("it runs");
            let result = if stop.is_interrupted() {
                Err(Error::interrupted())
            } else if !self.is_peace && self.percent(20) {
                Err(Error::failed("a disk"))
            } else {
                Ok(())
            };
            if result.is_ok() {
                let mut made = archive(name.base_slot, name.slot, 0);
                let root = "1".repeat(64).parse().expect("a root");
                let at = FrameHashesLocation { offset_bytes: 0, frames: 1 };
                made.hashes = Some(FrameHashes { root, location: at, rebased_on: Some(name.hash) });
                self.ready.insert(key(&name), ready(made));
            }
            planner.work_ended(EndedWork { name, result, elapsed: Duration::ZERO, source: None });
        }
        for at in 0..self.targets.len() {
            if self.is_peace || self.percent(60) {
                self.answer(planner, at)?;
            }
        }
        Some(())
    }

    /// Makes an archive, and reports it at once or later.
    fn make(&mut self, planner: &mut Planner<'_>) {
        let (source, result) = self.preparing.take().expect("it runs");
        let result = result.unwrap_or_else(|| {
            let error = match () {
                () if self.damaged.contains(&key(&source)) => ErrorKind::Damaged,
                () if !self.is_peace && self.percent(20) => ErrorKind::Failed,
                () => {
                    self.ready.insert(key(&source), ready(archive(source.base_slot, source.slot, 0)));
                    return Ok(());
                }
            };
            Err(Error::new(error, "why"))
        });
        if !self.is_peace && self.percent(30) {
            self.preparing = Some((source, Some(result)));
            return;
        }
        if result.as_ref().is_err_and(|error| error.kind() == ErrorKind::Failed) {
            self.promised = Some((source.clone(), self.now + Duration::from_secs(3600)));
        }
        let was = self.pins.get(&key(&source)).copied().unwrap_or_default();
        let is_quiet = self.is_peace || self.percent(70);
        planner.work_ended(EndedWork {
            name: source,
            result,
            elapsed: Duration::ZERO,
            source: Some(PinnedSource { was, is_quiet }),
        });
    }

    /// Lets a target's loop do a step: what was taken is sent, and the next archive is taken.
    fn answer(&mut self, planner: &mut Planner<'_>, at: usize) -> Option<()> {
        let is_peace = self.is_peace;
        let there = &mut self.targets[at];
        if there.mood == Mood::Hangs || !there.is_busy {
            return Some(());
        }
        let sending = there.sending.take();
        let failed = match there.mood {
            Mood::Fails => Some(ErrorKind::Network),
            Mood::IsFull => Some(ErrorKind::Failed),
            Mood::Refuses | Mood::IsGone => Some(ErrorKind::Exists),
            Mood::Works | Mood::Hangs => None,
        };
        if let Some(kind) = failed {
            there.is_busy = false;
            planner.target_ended(at, Err(Error::new(kind, "why")));
            return Some(());
        }
        if let Some(PreparedArchive { archive, .. }) = sending {
            let key = key(&archive.name);
            assert!(self.ready.contains_key(&key), "a ready archive was removed");
            assert!(self.reported.contains(&key), "it is published before it is told to be ready");
            assert!(!self.damaged.contains(&key), "a damaged archive was published");
            there.files.insert(key);
            if !is_peace && self.draws.below(100) < 3 {
                return None;
            }
            there.index.insert(key, archive);
            prune(there, &self.options.keep);
        }
        let published = ArchiveSet::from_archives(there.index.values());
        there.sending = planner.next_to_send(at, &TargetContents { published, ..TargetContents::default() });
        if there.sending.is_none() {
            there.is_busy = false;
            planner.target_ended(at, Ok(()));
        }
        self.acts += 1;
        Some(())
    }

    /// Checks that archives in an index exist and are sound, and that no target has lost its last
    /// full archive.
    fn check(&self, had_full: &mut [bool]) {
        for (there, had) in self.targets.iter().zip(had_full) {
            assert!(there.index.keys().all(|key| there.files.contains(key)), "{there:?}");
            assert!(there.index.keys().all(|key| !self.damaged.contains(key)), "{there:?}");
            let has = there.index.keys().any(|key| key.0.is_none());
            assert!(has || !*had, "the last full archive is gone: {there:?}");
            *had = has;
        }
    }

    /// Checks that each target has the newest sound archives that still exist, and that no files
    /// are left over.
    fn check_end(&self, seed: u64) {
        let is_good = |key: &&StateKey| !self.damaged.contains(key);
        let full = self.seen.keys().filter(is_good).filter(|key| key.0.is_none()).max_by_key(|key| key.1);
        for there in &self.targets {
            let newest = there.index.keys().filter(|key| key.0.is_none()).map(|key| key.1).max();
            assert!(full.is_none_or(|full| newest >= Some(full.1)), "{seed}: {full:?} {there:?}");
            let Some(base) = newest.filter(|base| self.seen.contains_key(&(None, *base, Hash([7; 32])))) else {
                continue;
            };
            let on_it = self.seen.keys().filter(is_good).filter(|key| key.0 == Some(base)).map(|key| key.1).max();
            let has = there.index.keys().filter(|key| key.0 == Some(base)).map(|key| key.1).max();
            assert!(has >= on_it, "{seed}: {on_it:?} on {base} {there:?}");
        }
        assert!(self.pinned.is_empty() && self.ready.is_empty(), "{seed}: {:?} {:?}", self.pinned, self.ready);
        assert!(self.preparing.is_none() && self.rebasing.is_none());
    }
}

fn prune(there: &mut There, keep: &Keep) {
    let catalog = Catalog::new(there.index.values().cloned());
    let reasons = plan_prune(&catalog, keep, SystemTime::UNIX_EPOCH);
    let gone: Vec<StateKey> = catalog
        .archives()
        .iter()
        .zip(reasons)
        .filter(|(_, reason)| reason.is_none())
        .map(|(it, _)| key(&it.name))
        .collect();
    there.index.retain(|key, _| !gone.contains(key));
    there.files.retain(|key| !gone.contains(key));
}

fn live(seed: u64) {
    let _seed = Seed(seed);
    let mut draws = Draws(seed);
    let wishes = Wishes::draw(&mut draws);
    let to = ["/mirror", "s3://bucket/one", "/other"].map(|target| target.parse().expect("a target"));
    let mut options = PublishOptions::new("/snapshots", to.into_iter().take(wishes.targets));
    options.rebase_onto = wishes.rebase_onto;
    options.keep = options.keep.rebased(options.rebase_onto);
    options.as_is = wishes.as_is;
    let there =
        || There { mood: Mood::Works, files: BTreeSet::new(), index: BTreeMap::new(), is_busy: false, sending: None };
    let mut world = World {
        options: &options,
        now: Instant::now(),
        unix_seconds: 1_700_000_000,
        inodes: 0,
        seen: BTreeMap::new(),
        pinned: BTreeMap::new(),
        ready: BTreeMap::new(),
        damaged: BTreeSet::new(),
        refused: BTreeMap::new(),
        pins: BTreeMap::new(),
        begun: None,
        targets: options.targets.iter().map(|_| there()).collect(),
        preparing: None,
        rebasing: None,
        reported: BTreeSet::new(),
        promised: None,
        is_peace: false,
        acts: 0,
        draws,
    };
    let mut planner = Planner::new(&options, [], world.now);
    let mut had_full = vec![false; options.targets.len()];
    let mut quiet = 0;
    for step in 0..STEPS + PEACE {
        if step == STEPS {
            world.is_peace = true;
            world.targets.iter_mut().for_each(|there| there.mood = Mood::Works);
            // Restart the program: a running one remembers archives that it skipped.
            world.kill(&mut planner);
        }
        let acts = world.acts;
        if world.is_peace {
            world.pass(400)
        } else {
            world.happen()
        }
        let lived = world.work(&mut planner).and_then(|()| world.record_end(&mut planner));
        world.check(&mut had_full);
        quiet = if world.is_peace && world.acts == acts { quiet + 1 } else { 0 };
        if quiet == QUIET {
            break;
        }
        if lived.is_none() || !world.is_peace && world.percent(3) {
            world.kill(&mut planner);
        }
    }
    world.check_end(seed);
}

impl<'a> World<'a> {
    /// Ends the program: running work is lost, everything on disks stays.
    fn kill(&mut self, planner: &mut Planner<'a>) {
        (self.preparing, self.rebasing, self.promised) = (None, None, None);
        self.targets.iter_mut().for_each(|there| (there.is_busy, there.sending) = (false, None));
        self.reported = self.ready.keys().copied().collect();
        *planner = Planner::new(self.options, self.refused.values().cloned(), self.now);
    }
}

#[test]
fn ten_thousand_lives() {
    let number = |name: &str, default| std::env::var(name).map_or(default, |text| text.parse().expect("a number"));
    let first = number("PUBLISH_SEED", 1);
    let lives = number("PUBLISH_LIVES", LIVES);
    std::thread::scope(|scope| {
        for thread in 0..4 {
            scope.spawn(move || (first..first + lives).filter(|seed| seed % 4 == thread).for_each(live));
        }
    });
}
