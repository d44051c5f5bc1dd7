//! Random runs of the program in real directories, with the events of the simulation: a validator writes,
//! purges and damages archives; targets fail, become full, disappear and come back; and kills happen at
//! any moment. `RANDOM_RUNS` sets the number of runs, and `RANDOM_RUNS_FIRST` the first seed.

use std::collections::hash_map::DefaultHasher;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, Permissions};
use std::hash::{Hash, Hasher};
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, OnceLock};
use std::time::Instant;

use rustix::process::{Signal, kill_process};
use serde_json::Value;
use slotpress_format::ArchiveName;
use tempfile::TempDir;

use crate::common::publish_runs::{OutsideEvent, RandomOptions, TargetCondition};
use crate::common::seeded_rng::SeededRng;
use crate::common::site::run_to_json;
use crate::common::strace::number_from_env;
use crate::common::*;
use crate::publish::setup::*;

const STEPS: usize = 30;
/// Number of the validator's states, one for each day.
const DAYS: usize = 12;
/// Mount option of a target that can become full.
const SMALL_DISK: &str = "size=64m";

/// An archive of a day's state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct DayArchive {
    /// Day of the full archive on which this one builds; `None` for a full archive.
    base: Option<usize>,
    day: usize,
}

impl DayArchive {
    fn full(day: usize) -> Self {
        Self { base: None, day }
    }
}

/// Ledgers of one chain, and their archives, made on request.
struct Chain {
    dir: TempDir,
    slots: Vec<u64>,
    archives: Mutex<BTreeMap<DayArchive, PathBuf>>,
}

impl Chain {
    fn get() -> &'static Self {
        static CHAIN: OnceLock<Chain> = OnceLock::new();
        CHAIN.get_or_init(|| {
            let dir = temp_dir();
            let slot_of = |day: usize| {
                let ledger = dir.path().join(format!("ledger-{day}"));
                let incremental = format!("{}MiB", day + 2);
                let output = run_to_json(&["synth", text(&ledger), "--size", "1MiB", "--incremental", &incremental]);
                assert_eq!(output.code, Some(0), "{output:?}");
                output.lines.iter().filter_map(|line| line["slot"].as_u64()).max().expect("a slot")
            };
            let slots: Vec<u64> = (0..DAYS).map(slot_of).collect();
            assert!(slots.is_sorted_by(|older, newer| older < newer), "{slots:?}");
            Self { dir, slots, archives: Mutex::default() }
        })
    }

    fn archive(&self, wanted: DayArchive) -> PathBuf {
        let DayArchive { base, day } = wanted;
        let full = base.map(|base| self.archive(DayArchive::full(base)));
        let mut archives = self.archives.lock().expect("unlocked");
        let make = || {
            let base_slot = base.map(|base| self.slots[base].to_string());
            let flags: Vec<&str> = base_slot.iter().flat_map(|slot| ["--base-slot", slot]).collect();
            // Each archive is made in its own directory, in which there is no other archive except its base.
            let out = self.dir.path().join(format!("{base:?}-{day}"));
            fs::create_dir(&out).expect("made");
            full.iter().for_each(|full| fs::hard_link(full, out.join(name(full))).expect("linked"));
            archive(&self.dir.path().join(format!("ledger-{day}")), &out, &flags)
        };
        archives.entry(wanted).or_insert_with(make).clone()
    }
}

/// Gives a file to the user `nobody`, who runs the program if the tests run as root: permissions do not bind
/// root.
fn give_to_nobody(path: &Path) {
    if rustix::process::geteuid().is_root() {
        let user = Some(UnprivilegedProgram::USER);
        chown(path, user, user).expect("given");
    }
}

/// A target, and the path to which it is moved while it is gone.
struct TargetDir {
    path: PathBuf,
    aside: PathBuf,
    condition: TargetCondition,
    /// True if the target is a small disk.
    is_mounted: bool,
    /// True if the target had a full archive at the last check.
    had_full: bool,
}

impl Drop for TargetDir {
    fn drop(&mut self) {
        if self.is_mounted {
            let _ = Command::new("umount").arg("-l").arg(&self.path).status();
        }
    }
}

/// Contents of a file of another program.
const FOREIGN_CONTENT: &[u8] = b"foreign";

impl TargetDir {
    fn new(dir: &Path, number: usize, is_small: bool) -> Self {
        let (path, aside) = (dir.join(format!("target-{number}")), dir.join(format!("aside-{number}")));
        fs::create_dir(&path).expect("made");
        let mount = || Command::new("mount").args(["-t", "tmpfs", "-o", SMALL_DISK, "tmpfs"]).arg(&path).output();
        let is_mounted = is_small && mount().is_ok_and(|output| output.status.success());
        give_to_nobody(&path);
        Self { path, aside, condition: TargetCondition::Works, is_mounted, had_full: false }
    }

    /// Makes the target work again. A target that was gone comes back with its files, or without them if
    /// `is_replaced`.
    fn mend(&mut self, is_replaced: bool) {
        match std::mem::replace(&mut self.condition, TargetCondition::Works) {
            TargetCondition::Fails => set_mode(&self.path, 0o755),
            TargetCondition::Refuses => {
                let is_foreign = |path: &PathBuf| fs::read(path).is_ok_and(|bytes| bytes == FOREIGN_CONTENT);
                let paths = file_names(&self.path).into_iter().map(|name| self.path.join(name));
                paths.filter(is_foreign).for_each(|path| fs::remove_file(path).expect("removed"));
            }
            TargetCondition::IsGone if is_replaced => {
                fs::create_dir(&self.path).expect("made");
                give_to_nobody(&self.path);
                // The program may still write there.
                wait_for("the old directory to go", || fs::remove_dir_all(&self.aside).is_ok());
                self.had_full = false;
            }
            TargetCondition::IsGone => fs::rename(&self.aside, &self.path).expect("moved back"),
            TargetCondition::IsFull => fs::remove_file(self.path.join("filler")).expect("removed"),
            TargetCondition::Works | TargetCondition::Hangs => {}
        }
    }

    /// Sets the condition of a target, or the nearest one that a directory can simulate. `next` is the name
    /// of the next archive.
    fn set(&mut self, condition: TargetCondition, next: &str) {
        self.condition = match condition {
            TargetCondition::IsGone if self.is_mounted => TargetCondition::IsFull,
            TargetCondition::IsFull if !self.is_mounted => TargetCondition::Fails,
            TargetCondition::Refuses if self.path.join(next).exists() => TargetCondition::Works,
            TargetCondition::Hangs => TargetCondition::Works,
            condition => condition,
        };
        match self.condition {
            TargetCondition::Fails => set_mode(&self.path, 0o555),
            TargetCondition::Refuses => fs::write(self.path.join(next), FOREIGN_CONTENT).expect("written"),
            TargetCondition::IsGone => fs::rename(&self.path, &self.aside).expect("moved"),
            TargetCondition::IsFull => {
                let free = rustix::fs::statvfs(&self.path).map(|stat| stat.f_bavail * stat.f_frsize).expect("known");
                // This fails if the program takes some of the space in the meantime. The target is full anyway.
                let _ = fs::write(self.path.join("filler"), vec![1; free as usize]);
            }
            TargetCondition::Works | TargetCondition::Hangs => {}
        }
    }

    fn dir(&self) -> &Path {
        if self.condition == TargetCondition::IsGone { &self.aside } else { &self.path }
    }

    /// Returns the archives of the index, with their paths.
    fn listed_archives(&self) -> Vec<(Value, PathBuf)> {
        let dir = self.dir();
        let Ok(index) = fs::read(dir.join("api/v1/archives")) else { return Vec::new() };
        let index: Value = serde_json::from_slice(&index).expect("whole JSON");
        let archives = index["archives"].as_array().expect("archives").clone();
        archives
            .into_iter()
            .map(|archive| (archive.clone(), dir.join(archive["name"].as_str().expect("text"))))
            .collect()
    }

    fn names(&self) -> Vec<ArchiveName> {
        self.listed_archives().iter().map(|(_, path)| ArchiveName::parse(&name(path)).expect("a name")).collect()
    }
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).expect("set");
}

/// Returns the slot of the newest archive on a base, or of the newest full one.
fn newest_slot(names: &[ArchiveName], base_slot: Option<u64>) -> Option<u64> {
    names.iter().filter(|name| name.base_slot == base_slot).map(|name| name.slot).max()
}

/// A random run. Its log is printed if the test fails.
struct RandomRun {
    seed: u64,
    rng: SeededRng,
    options: RandomOptions,
    // This field comes before `dir`, because disks must be unmounted before the directory is removed.
    target_dirs: Vec<TargetDir>,
    dir: TempDir,
    /// Day of the validator's next state.
    day: usize,
    /// Day of the validator's newest full archive.
    full_day: Option<usize>,
    damaged: BTreeSet<String>,
    running: Option<Child>,
    log: Vec<String>,
}

impl Drop for RandomRun {
    fn drop(&mut self) {
        self.kill();
        if std::thread::panicking() {
            let output = fs::read_to_string(self.dir.path().join("output")).unwrap_or_default();
            let (seed, options, log) = (self.seed, self.options, self.log.join("\n"));
            eprintln!("RANDOM_RUNS_FIRST={seed} RANDOM_RUNS=1\n{options:?}\n{log}\n{output}");
        }
    }
}

impl RandomRun {
    fn from_seed(seed: u64) -> Self {
        let mut rng = SeededRng::new(seed);
        let (options, dir) = (RandomOptions::draw(&mut rng), temp_dir());
        fs::create_dir(dir.path().join("snapshots")).expect("made");
        give_to_nobody(dir.path());
        give_to_nobody(&dir.path().join("snapshots"));
        let target_dirs =
            (0..options.targets).map(|number| TargetDir::new(dir.path(), number, rng.below(3) == 0)).collect();
        let (damaged, log) = (BTreeSet::new(), Vec::new());
        Self { seed, rng, options, dir, target_dirs, day: 0, full_day: None, damaged, running: None, log }
    }

    fn snapshots(&self) -> PathBuf {
        self.dir.path().join("snapshots")
    }

    fn command(&self) -> Command {
        static PROGRAM: OnceLock<UnprivilegedProgram> = OnceLock::new();
        let mut command = PROGRAM.get_or_init(UnprivilegedProgram::new).command();
        command.arg("publish").arg(self.snapshots()).args(["--json", "--every", "0s", "--writer", "agave"]);
        command.args(["--grace", if self.seed.is_multiple_of(2) { "0s" } else { "1h" }]);
        command.args(self.target_dirs.iter().flat_map(|target| [Path::new("--to"), &target.path]));
        command.args(["--rebase-onto", &self.options.rebase_onto.to_string()]);
        command.args(self.options.as_is.then_some("--as-is"));
        let output = fs::File::options().create(true).append(true).open(self.dir.path().join("output")).expect("open");
        command.stdin(Stdio::null()).stdout(output.try_clone().expect("cloned")).stderr(output);
        command
    }

    fn start(&mut self) {
        self.log.push("start".to_string());
        self.running = Some(self.command().spawn().expect("started"));
    }

    /// Kills the program if it runs. The program ends by itself only if it finds no target at its start.
    fn kill(&mut self) {
        let Some(mut running) = self.running.take() else { return };
        let ended = running.try_wait().expect("asked");
        let _ = running.kill();
        let _ = running.wait();
        let was_gone = || self.log.iter().any(|line| line.contains("IsGone"));
        assert!(
            std::thread::panicking() || ended.is_none_or(|status| status.code() == Some(1) && was_gone()),
            "{ended:?}"
        );
        self.log.push(format!("kill {ended:?}"));
    }

    fn wait(&self, milliseconds: usize) {
        let start = Instant::now();
        wait_for("the moment", || start.elapsed().as_millis() >= milliseconds as u128);
    }

    fn apply_outside_event(&mut self) {
        let event = OutsideEvent::draw(&mut self.rng, self.target_dirs.len());
        self.log.push(format!("{event:?}"));
        match event {
            OutsideEvent::Full { is_damaged } if self.day < DAYS => {
                self.full_day = Some(self.day);
                self.write(DayArchive::full(self.day), is_damaged);
            }
            OutsideEvent::Incremental { is_damaged } if self.day < DAYS && self.full_day.is_some() => {
                self.write(DayArchive { base: self.full_day, day: self.day }, is_damaged);
            }
            OutsideEvent::Purge => self.purge(),
            OutsideEvent::Target { number, condition } => {
                let is_replaced = self.rng.below(4) == 0;
                let next = name(&Chain::get().archive(DayArchive::full(self.day.min(DAYS - 1))));
                self.target_dirs[number].mend(is_replaced);
                self.target_dirs[number].set(condition, &next);
            }
            // The test cannot set the clock, so it waits a quarter of a millisecond for each second.
            OutsideEvent::TimePasses { seconds } => self.wait(seconds as usize / 4),
            _ => {}
        }
    }

    /// Writes an archive as Agave does: under a temporary name, then renamed.
    fn write(&mut self, archive: DayArchive, is_damaged: bool) {
        let archive = Chain::get().archive(archive);
        let mut bytes = fs::read(&archive).expect("read");
        if is_damaged {
            let middle = bytes.len() / 2;
            bytes[middle] ^= 1;
            self.damaged.insert(name(&archive));
        }
        let temporary = self.snapshots().join("tmp-archive");
        fs::write(&temporary, bytes).expect("written");
        backdate(&temporary);
        give_to_nobody(&temporary);
        fs::rename(temporary, self.snapshots().join(name(&archive))).expect("renamed");
        self.day += 1;
    }

    fn archives_of_validator(&self) -> Vec<ArchiveName> {
        file_names(&self.snapshots()).iter().filter_map(|name| ArchiveName::parse(name)).collect()
    }

    fn purge(&self) {
        let seen = self.archives_of_validator();
        let mut fulls: Vec<u64> = seen.iter().filter(|name| name.base_slot.is_none()).map(|name| name.slot).collect();
        fulls.sort_unstable();
        let Some(oldest_kept) = fulls.iter().rev().nth(1) else { return };
        let purged = seen.iter().filter(|name| name.base_slot.unwrap_or(name.slot) < *oldest_kept);
        purged.for_each(|name| fs::remove_file(self.snapshots().join(name.to_string())).expect("purged"));
    }

    /// Checks, while the program does not run, that listed archives exist with their lengths and are none of the
    /// damaged ones, and that no target has lost its last full archive.
    fn check(&mut self) {
        for target in &mut self.target_dirs {
            for (listed, path) in target.listed_archives() {
                let length = fs::metadata(&path).map(|metadata| metadata.len()).ok();
                assert_eq!(listed["size_bytes"].as_u64(), length, "{path:?}");
                // A rebased archive may have the name of one that the validator wrote.
                assert!(
                    !self.damaged.contains(&name(&path)) || !listed["rebased_on"].is_null(),
                    "{path:?} was damaged"
                );
            }
            read_latest(target.dir());
            let has_full = newest_slot(&target.names(), None).is_some();
            assert!(has_full || !target.had_full, "the last full archive is gone from {:?}", target.path);
            target.had_full = has_full;
        }
        let quarantine = self.dir.path().join("snapshots.publish/quarantine");
        if quarantine.exists() {
            assert!(
                file_names(&quarantine).iter().all(|name| self.damaged.contains(name)),
                "a valid archive was refused"
            );
        }
    }

    /// Describes an archive that should be published but is not, or a file that should not be left.
    fn find_unfinished(&self) -> Option<String> {
        let seen = self.archives_of_validator();
        let mut intact = seen.clone();
        intact.retain(|name| !self.damaged.contains(&name.to_string()));
        for target in &self.target_dirs {
            let published = target.names();
            let full = newest_slot(&published, None);
            if newest_slot(&intact, None) > full {
                return Some(format!("{:?} has {full:?}, not {:?}", target.path, newest_slot(&intact, None)));
            }
            // Incremental archives are published only while the validator has their full archive.
            if full.is_some() && seen.iter().any(|name| name.base_slot.is_none() && Some(name.slot) == full) {
                let (newest, wanted) = (newest_slot(&published, full), newest_slot(&intact, full));
                if wanted > newest {
                    return Some(format!("{:?} has {newest:?} on {full:?}, not {wanted:?}", target.path));
                }
            }
        }
        let dirs = ["pinned", "ready"].map(|dir| self.dir.path().join("snapshots.publish").join(dir));
        let left: Vec<String> = dirs.iter().filter(|dir| dir.exists()).flat_map(|dir| file_names(dir)).collect();
        (!left.is_empty()).then(|| format!("{left:?} is left"))
    }

    /// Runs `verify` on all listed archives. The states of pairs are not checked: an incremental archive has
    /// exactly the changes since its base only if the base is the oldest state.
    fn verify(&self) {
        static VERIFIED: Mutex<BTreeSet<u64>> = Mutex::new(BTreeSet::new());
        for (_, path) in self.target_dirs.iter().flat_map(TargetDir::listed_archives) {
            let mut hasher = DefaultHasher::new();
            fs::read(&path).expect("read").hash(&mut hasher);
            if VERIFIED.lock().expect("unlocked").insert(hasher.finish()) {
                let check = if name(&path).starts_with("incremental") { "frames" } else { "state" };
                slotpress().arg("verify").arg(&path).args(["--check", check]).assert().success();
            }
        }
    }

    fn run(mut self) {
        self.start();
        for _ in 0..STEPS {
            self.apply_outside_event();
            let pause = self.rng.below(40);
            self.wait(pause);
            if self.rng.below(3) == 0 {
                self.kill();
                self.check();
                self.start();
            }
        }
        self.kill();
        self.target_dirs.iter_mut().for_each(|target| target.mend(false));
        self.check();
        self.start();
        let (start, mut unfinished) = (Instant::now(), None);
        while start.elapsed() < WAIT_MAX {
            unfinished = self.find_unfinished();
            if unfinished.is_none() {
                break;
            }
            self.wait(10);
        }
        assert_eq!(unfinished, None);
        let mut running = self.running.take().expect("it runs");
        wait_for_handler(&running, Signal::TERM);
        kill_process(rustix::process::Pid::from_child(&running), Signal::TERM).expect("signalled");
        assert_eq!(exit_code(&mut running), Some(0));
        self.check();
        // Another run has no work. It may fail only because damaged archives were left out.
        let code = exit_code(&mut self.command().arg("--once").spawn().expect("started"));
        assert!(code == Some(0) || !self.damaged.is_empty() && matches!(code, Some(1 | 3)), "{code:?}");
        self.check();
        assert_eq!(self.find_unfinished(), None);
        self.verify();
    }
}

/// No damaged archive is published, an index never names a missing file, and the last full archive stays. In the
/// end, each target has the newest intact archives.
#[test]
fn random_runs_publish_the_newest_sound_archives() {
    let (first, count) = (number_from_env("RANDOM_RUNS_FIRST", 1), number_from_env("RANDOM_RUNS", 4));
    println!("runs {first} to {}", first + count - 1);
    std::thread::scope(|scope| {
        for thread in 0..2 {
            let seeds = (first..first + count).filter(move |seed| seed % 2 == thread);
            scope.spawn(move || seeds.for_each(|seed| RandomRun::from_seed(seed).run()));
        }
    });
}
