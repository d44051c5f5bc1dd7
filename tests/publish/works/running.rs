//! Runs of `publish` that continue until they are stopped.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use rustix::fs::{FlockOperation, fcntl_lock};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::common::oracle::Oracle;
use crate::common::seeded_rng::SeededRng;
use crate::common::served::{Response, connect, read_response, send};
use crate::common::strace::number_from_env;
use crate::common::*;
use crate::publish::setup::*;

/// A running `publish`.
pub struct PublishProcess {
    child: Child,
    events: Arc<Mutex<Vec<Value>>>,
    reader: Option<JoinHandle<()>>,
}

impl PublishProcess {
    pub fn start(setup: &Setup, flags: &[&str]) -> Self {
        let mut child = Command::new(slotpress_path())
            .args(setup.arguments(flags))
            .arg("--json")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .spawn()
            .expect("started");
        let events = Arc::new(Mutex::new(Vec::new()));
        let stdout = BufReader::new(child.stdout.take().expect("its output"));
        let events_read = events.clone();
        let reader = std::thread::spawn(move || {
            for line in stdout.lines().map_while(Result::ok) {
                events_read.lock().expect("unlocked").push(serde_json::from_str(&line).expect("JSON"));
            }
        });
        Self { child, events, reader: Some(reader) }
    }

    pub fn events(&self) -> Vec<Value> {
        self.events.lock().expect("unlocked").clone()
    }

    pub fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    pub fn wait_for_published(&self, name: &str) {
        wait_for(name, || events_of_type(&self.events(), "published").iter().any(|line| line["name"] == name));
    }

    /// Waits until the program has begun, because before that the signal would kill it. Then asks it to stop,
    /// and checks that it succeeds. Returns its events.
    pub fn stop(mut self) -> Vec<Value> {
        wait_for("the program to begin", || !self.events().is_empty());
        kill_process(self.pid(), Signal::TERM).expect("signalled");
        assert_eq!(exit_code(&mut self.child), Some(0));
        self.reader.take().expect("a reader").join().expect("read");
        self.events()
    }
}

impl Drop for PublishProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Ends a polling thread, even if the test has failed.
struct EndOfPolling<'a>(&'a AtomicBool);

impl Drop for EndOfPolling<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

/// Writes archives one after another, and purges each when two newer ones exist, faster than any validator.
/// Calls `on_published` when an archive has been published, then writes the next one. Meanwhile, checks that
/// a reader finds only archives of the stated lengths.
fn write_and_purge(setup: &Setup, running: &PublishProcess, archives: &[PathBuf], mut on_published: impl FnMut()) {
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let polls = scope.spawn(|| {
            let mut seen = BTreeSet::new();
            while !is_over.load(Relaxed) {
                seen.insert(read_latest(&setup.mirror()));
                std::thread::sleep(std::time::Duration::from_millis(2));
            }
            seen
        });
        let end_of_polling = EndOfPolling(&is_over);
        let mut written: Vec<String> = Vec::new();
        for archive in archives {
            setup.write(archive);
            written.push(name(archive));
            if written.len() > 2 {
                fs::remove_file(setup.snapshots().join(written.remove(0))).expect("purged");
            }
            // A validator takes longer. Archives that it writes meanwhile are skipped or published.
            running.wait_for_published(&name(archive));
            on_published();
        }
        drop(end_of_polling);
        let seen = polls.join().expect("polled");
        assert!(seen.len() > 3, "{seen:?}");
    });
}

/// Checks that the run has published the newest archive without a failure, and that the validator's two files
/// are no longer pinned.
fn assert_published_without_failures(setup: &Setup, events: &[Value], newest: &Path) {
    assert_eq!(events_of_type(events, "publish_failed").len(), 0, "{events:?}");
    assert_eq!(events_of_type(events, "publish_refused").len(), 0, "{events:?}");
    assert_eq!(read_latest(&setup.mirror()), [name(newest)]);
    assert_eq!(file_names(&setup.snapshots()).len(), 2);
    assert!(file_states(&setup.snapshots()).values().all(|file| file.links == 1));
}

/// An archive that no current client loads is reported once, and skipped until the file changes.
#[test]
fn archives_that_no_client_loads_are_skipped() {
    let old = firedancer::full(firedancer::OLD_CHAIN);
    for flags in [&["--writer", "agave"][..], &["--writer", "agave", "--as-is"]] {
        let setup = Setup::new(&[&old]);
        let output = setup.run_once(flags);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{stderr}");
        assert!(stderr.contains("only Firedancer loads it"), "{stderr}");
        let events = parse_events(&output);
        assert_eq!(events_of_type(&events, "publish_refused").len(), 0, "{events:?}");
        assert_eq!(events_of_type(&events, "publish_failed").len(), 0, "{events:?}");
        let quarantine = setup.pins().join("quarantine");
        assert!(!quarantine.exists() || file_names(&quarantine).is_empty());
        assert_eq!(setup.published(), [""; 0]);
        setup.assert_nothing_is_pinned();
        let running = PublishProcess::start(&setup, flags);
        wait_for("a skipped archive", || !events_of_type(&running.events(), "publish_skipped").is_empty());
        // Each refusal shows that one more scan has ended.
        for slot in [7, 8, 9] {
            let name = FULL_26.replace("-26-", &format!("-{slot}-"));
            let path = setup.snapshots().join(&name);
            fs::write(&path, "damaged").expect("written");
            backdate(&path);
            let is_refused =
                || events_of_type(&running.events(), "publish_refused").iter().any(|line| line["name"] == *name);
            wait_for("a refused archive", is_refused);
        }
        assert_eq!(events_of_type(&running.events(), "publish_pinned").len(), 1);
        setup.assert_nothing_is_pinned();
        setup.write(&fixture(FULL_26));
        running.wait_for_published(FULL_26);
        assert_eq!(events_of_type(&running.stop(), "publish_skipped").len(), 1);
    }
}

#[test]
fn archives_of_a_validator_that_purges_are_published() {
    let setup = Setup::new(&[]);
    let running = PublishProcess::start(&setup, &["--every", "0s", "--grace", "1h"]);
    write_and_purge(&setup, &running, chain_archives(), || {});
    let events = running.stop();
    verify_published(&setup.mirror());
    assert_published_without_failures(&setup, &events, chain_archives().last().expect("some"));
}

/// The program is killed at random moments, again and again. Each time, the next run continues, and in the
/// end all archives are published.
#[test]
#[ignore = "takes an hour, or PUBLISH_SOAK_SECONDS"]
fn an_hour_of_random_kills_is_survived() {
    let (start, mut rng) = (std::time::Instant::now(), SeededRng::new(number_from_env("PUBLISH_SEED", 1)));
    let (mut published, mut kills) = (0, 0);
    while start.elapsed().as_secs() < number_from_env("PUBLISH_SOAK_SECONDS", 3600) {
        let setup = Setup::new(&[]);
        let mut written = Vec::new();
        let flags = ["--every", "0s", "--grace", "1h", "--keep-full", "9", "--keep-incremental", "9"];
        let mut running = PublishProcess::start(&setup, &flags);
        for archive in chain_archives() {
            setup.write(archive);
            written.push(name(archive));
            if written.len() > 2 {
                fs::remove_file(setup.snapshots().join(written.remove(0))).expect("purged");
            }
            for _ in 0..rng.below(4) {
                let (start, pause_ms) = (std::time::Instant::now(), rng.below(60) as u128);
                wait_for("the moment", || start.elapsed().as_millis() >= pause_ms);
                drop(running);
                kills += 1;
                running = PublishProcess::start(&setup, &flags);
            }
            wait_for(&name(archive), || read_latest(&setup.mirror()).contains(&name(archive)));
            published += 1;
        }
        setup.wait_until_nothing_is_pinned();
        running.stop();
        assert_eq!(setup.published().len(), chain_archives().len());
        verify_published(&setup.mirror());
    }
    println!("{published} archives, {kills} kills, in {} s", start.elapsed().as_secs());
}

/// Each published pair yields the same state as the validator's, as soon as it is published.
#[test]
#[ignore = "asks Agave itself: AGAVE_ORACLE names programs built on its crates"]
fn agave_loads_each_pair() {
    let oracles = Oracle::required();
    let generated = temp_dir();
    // Each chain has its genesis; all archives are in the order of their slots, as one validator
    // would write them.
    let (older, newer) = chain_archives().split_at(3);
    let mut archives: Vec<PathBuf> = older.to_vec();
    let mut geneses = BTreeMap::from([(26, genesis_beside(FULL_26)), (40, genesis_beside(FULL_26))]);
    for slots in [66u64, 105, 165, 255, 390] {
        let dir = generated.path().join(slots.to_string());
        let flags = ["--accounts", "3000", "--slots", &slots.to_string(), "--hot", "--close-permille", "100"];
        Oracle::run(Command::new(&oracles[0].path).arg("gen").arg(&dir).args(flags));
        // Sorted by name, an incremental archive comes before its full archive.
        archives.extend(file_names(&dir.join("archives")).iter().rev().map(|name| dir.join("archives").join(name)));
        // The full archive is made at two thirds of the slots.
        geneses.insert(slots * 2 / 3, dir);
    }
    archives.extend_from_slice(newer);
    geneses.extend([3500, 3575].map(|slot| (slot, genesis_beside(FULL_3500))));

    let load = |dir: &dyn Fn(&str) -> PathBuf, pair: &[String]| {
        let slot = pair[0].split('-').nth(1).and_then(|slot| slot.parse::<u64>().ok()).expect("a slot");
        let (full, incremental) = (dir(&pair[0]), pair.get(1).map(|name| dir(name)));
        let states = oracles.iter().map(|oracle| oracle.load(&full, incremental.as_deref(), &geneses[&slot]));
        states.collect::<Vec<_>>()
    };
    let original = |wanted: &str| archives.iter().find(|path| name(path) == wanted).expect("it was written").clone();
    let setup = Setup::new(&[]);
    let running = PublishProcess::start(&setup, &["--every", "0s", "--grace", "1h"]);
    let (pairs, to_load) = std::sync::mpsc::channel::<Vec<String>>();
    std::thread::scope(|scope| {
        let loads = scope.spawn(|| {
            for pair in to_load {
                assert_eq!(load(&|name| setup.mirror().join(name), &pair), load(&original, &pair), "{pair:?}");
                println!("{} checkers load {}", oracles.len(), pair.join(" and "));
            }
        });
        write_and_purge(&setup, &running, &archives, || pairs.send(read_latest(&setup.mirror())).expect("it loads"));
        drop(pairs);
        loads.join().expect("all load");
    });
    assert_published_without_failures(&setup, &running.stop(), archives.last().expect("some"));
}

fn genesis_beside(fixture_name: &str) -> PathBuf {
    fixture(fixture_name).parent().expect("a directory").to_path_buf()
}

/// All archives of a chain exist at the start, and are purged while the program reads the newest.
#[test]
fn the_newest_of_many_vanishing_archives_is_published() {
    let setup = Setup::new(&chain_archives().iter().map(|path| path.as_path()).collect::<Vec<_>>());
    let running = PublishProcess::start(&setup, &["--every", "0s", "--max-rate", "2MiB", "--threads", "1"]);
    wait_for("a pin", || !events_of_type(&running.events(), "publish_pinned").is_empty());
    for name in file_names(&setup.snapshots()) {
        fs::remove_file(setup.snapshots().join(name)).expect("purged");
    }
    running.wait_for_published(&name(chain_archives().last().expect("some")));
    let events = running.stop();
    assert_eq!(events_of_type(&events, "published").len(), 1, "older ones are left out: {events:?}");
    assert_eq!(events_of_type(&events, "publish_failed").len(), 0, "{events:?}");
    assert_eq!(events_of_type(&events, "publish_refused").len(), 0, "{events:?}");
}

/// A writer locks, truncates, renames and rewrites its file, as Firedancer does. The file never has a second
/// hard link, and the last archive is published.
#[test]
fn files_that_firedancer_reuses_are_published() {
    needs!("sys_admin", "loop_xfs", "mount", "umount", "mkfs.xfs");
    let disk = XfsDisk::new();
    let archive = firedancer::full(firedancer::NEW_CHAIN);
    let setup = Setup::new_in(tempfile::tempdir_in(disk.path()).expect("a directory"), &[]);
    let bytes = fs::read(&archive).expect("read");
    let hash = name(&archive).split('-').nth(2).expect("a hash").to_string();
    let path = |slot: u64| setup.snapshots().join(format!("snapshot-{slot}-{hash}"));
    fs::write(path(22), &bytes).expect("written");
    let running = PublishProcess::start(&setup, &["--writer", "firedancer", "--every", "0s", "--max-rate", "64KiB"]);
    for slot in 23..27 {
        let before = path(slot - 1);
        wait_for("the pin", || {
            events_of_type(&running.events(), "publish_pinned").iter().any(|line| line["name"] == name(&before))
        });
        let mut file = fs::File::options().write(true).read(true).open(&before).expect("open");
        // Waits for locks of other processes.
        fcntl_lock(&file, FlockOperation::LockExclusive).expect("locked");
        file.set_len(0).expect("emptied");
        fs::rename(&before, path(slot)).expect("renamed");
        file.write_all(&bytes).expect("written");
        assert_eq!(file.metadata().expect("metadata").nlink(), 1);
        drop(file);
    }
    running.wait_for_published(&name(&archive));
    setup.wait_until_nothing_is_pinned();
    running.stop();
    assert_eq!(relative_paths(&setup.snapshots()).len(), 1);
    verify_published(&setup.mirror());
}

/// At the end of the run, one hook is killed, and another has not been started.
#[test]
fn hooks_that_end_with_the_run_are_reported() {
    let setup = Setup::with_pair();
    let (hook, begun) = (setup.dir.path().join("hook"), setup.dir.path().join("begun"));
    write_program(&hook, &format!("#!/bin/sh\ntouch {}\nsleep 1000\n", begun.display()));
    let running = PublishProcess::start(&setup, &["--on-published", text(&hook)]);
    wait_for("the hook", || begun.exists());
    running.wait_for_published(INCREMENTAL_26_40);
    let events = running.stop();
    let failed = events_of_type(&events, "publish_failed");
    assert_eq!(failed.len(), 1, "{failed:?}");
    assert!(failed[0]["message"].as_str().expect("text").contains("the run ended before 2 of the hooks"), "{failed:?}");
}

/// A running `publish` that serves metrics.
struct MetricsRun {
    running: PublishProcess,
    address: std::net::SocketAddr,
}

impl MetricsRun {
    fn start(setup: &Setup, alert_after: &str) -> Self {
        let running = PublishProcess::start(setup, &["--metrics", "127.0.0.1:0", "--alert-after", alert_after]);
        wait_for("the first event", || !running.events().is_empty());
        let started = running.events().remove(0);
        assert_eq!(started["type"], "publish_started");
        let address = started["metrics"].as_str().expect("an address").parse().expect("an address");
        Self { running, address }
    }

    fn get(&self, path: &str) -> Response {
        let mut stream = connect(self.address);
        send(&mut stream, "GET", path, "");
        read_response(&mut stream, "GET")
    }

    /// Waits until the pair of the setup is published, and returns the metrics.
    fn metrics_of_pair(&self, setup: &Setup) -> String {
        let line = format!("slotpress_publish_newest_slot{{target=\"{}\"}} 40", setup.mirror().display());
        wait_for("the newest slot", || self.get("/metrics").text().contains(&line));
        self.get("/metrics").text()
    }
}

#[test]
fn metrics_show_slots_and_counts() {
    let setup = Setup::with_pair();
    let run = MetricsRun::start(&setup, "1h");
    run.running.wait_for_published(INCREMENTAL_26_40);
    let text = run.metrics_of_pair(&setup);
    for part in ["slotpress_publish_archives_total{", "slotpress_publish_stage_seconds_total{stage=\"prepare\"}"] {
        assert!(text.contains(part), "{text}");
    }
    for (name, value) in [("target_up", "1"), ("newest_kind_slot", "26"), ("newest_kind_slot", "40")] {
        let has_value = |line: &str| {
            line.starts_with(&format!("slotpress_publish_{name}{{")) && line.ends_with(&format!(" {value}"))
        };
        assert!(text.lines().any(has_value), "{name} {value}: {text}");
    }
    assert_eq!(run.get("/x").status, 404);
    run.running.stop();
}

#[test]
fn the_metrics_of_the_dashboard_exist() {
    let setup = Setup::with_pair();
    let run = MetricsRun::start(&setup, "1h");
    run.running.wait_for_published(INCREMENTAL_26_40);
    let text = run.metrics_of_pair(&setup);
    let dashboard = concat!(env!("CARGO_MANIFEST_DIR"), "/contrib/grafana/slotpress-publish.json");
    let dashboard: Value = serde_json::from_slice(&fs::read(dashboard).expect("read")).expect("JSON");
    let mut shown = BTreeSet::new();
    for panel in dashboard["panels"].as_array().expect("panels") {
        for target in panel["targets"].as_array().expect("targets") {
            let expression = target["expr"].as_str().expect("text");
            let words = expression.split(|char: char| !char.is_ascii_alphanumeric() && char != '_');
            shown.extend(words.filter(|word| word.starts_with("slotpress_")).map(String::from));
        }
    }
    assert!(shown.len() > 12, "{shown:?}");
    for name in &shown {
        let is_of_metric =
            |line: &str| line.strip_prefix(name.as_str()).is_some_and(|rest| rest.starts_with(['{', ' ']));
        assert!(text.lines().any(is_of_metric), "{name}: {text}");
    }
    run.running.stop();
}

#[test]
fn health_fails_if_the_newest_archive_is_too_old() {
    let setup = Setup::with_pair();
    let run = MetricsRun::start(&setup, "1h");
    run.running.wait_for_published(INCREMENTAL_26_40);
    assert_eq!(run.get("/healthz").status, 200);
    run.running.stop();
    let empty = Setup::new(&[]);
    let run = MetricsRun::start(&empty, "1ms");
    wait_for("an alert", || run.get("/healthz").status == 503);
}

/// An archive that is copied slowly under its final name is published once it is whole, even if nothing was
/// written for so long that it was refused as damaged.
#[test]
fn an_archive_that_grows_under_its_name_is_published_once_whole() {
    let bytes = fs::read(fixture(FULL_26)).expect("read");
    for is_old in [false, true] {
        let setup = Setup::new(&[]);
        let path = setup.snapshots().join(FULL_26);
        fs::write(&path, &bytes[..bytes.len() / 2]).expect("written");
        let mut file = fs::File::options().append(true).open(&path).expect("open");
        if is_old {
            backdate(&path);
        }
        let (running, start) = (PublishProcess::start(&setup, &[]), std::time::Instant::now());
        let is_refused = || !events_of_type(&running.events(), "publish_refused").is_empty();
        wait_for("some scans", || is_refused() || !is_old && start.elapsed().as_secs() >= 2);
        assert_eq!((is_refused(), events_of_type(&running.events(), "publish_pinned").len()), (is_old, 0));
        file.write_all(&bytes[bytes.len() / 2..]).expect("written");
        drop(file);
        running.wait_for_published(FULL_26);
        setup.wait_until_nothing_is_pinned();
        running.stop();
        assert_eq!(read_latest(&setup.mirror()), [FULL_26]);
    }
}

/// Writes a time in the distant future into a document, as a wrong clock would have done.
fn date_ahead(path: &Path, pointer: &str) {
    let mut json: Value = serde_json::from_str(&fs::read_to_string(path).expect("read")).expect("JSON");
    *json.pointer_mut(pointer).expect("a field") = 9_999_999_999_u64.into();
    fs::write(path, json.to_string()).expect("written");
}

#[test]
fn incremental_archives_are_published_after_a_clock_that_was_ahead() {
    let setup = Setup::with_pair();
    setup.publish_once(&[]);
    date_ahead(&setup.pins().join("journal.json"), "/incremental_unix_seconds");
    let [_, _, _, full_3500, incremental_3550, ..] = &chain_archives()[..] else { panic!("a chain") };
    setup.write(full_3500);
    setup.write(incremental_3550);
    let running = PublishProcess::start(&setup, &["--as-is"]);
    running.wait_for_published(&name(incremental_3550));
    running.stop();
}

/// An archive with a time in the future is treated as old.
#[test]
fn archives_dated_by_a_clock_that_was_ahead_are_pruned() {
    let setup = Setup::new(&[&fixture(FULL_26)]);
    setup.publish_once(&[]);
    date_ahead(&setup.mirror().join("api/v1/archives"), "/archives/0/modified_unix_seconds");
    let running = PublishProcess::start(&setup, &["--as-is", "--keep-full", "1", "--grace", "1s"]);
    let is_full = |path: &&PathBuf| !name(path).starts_with("incremental-");
    for full in chain_archives().iter().filter(is_full).skip(1) {
        setup.write(full);
        running.wait_for_published(&name(full));
        let published = std::time::Instant::now();
        wait_for("the grace period to pass", || published.elapsed().as_secs() >= 2);
    }
    let events = running.stop();
    let pruned = events_of_type(&events, "publish_pruned");
    assert!(pruned.iter().any(|line| line["names"].to_string().contains(FULL_26)), "{events:?}");
}
