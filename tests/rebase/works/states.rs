//! The old full archive and the rebased archive together contain exactly the new state.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use crate::common::oracle::Oracle;
use crate::common::records::{PlainRecord, newest, records};
use crate::common::{firedancer, *};
use crate::rebase::{rebase, run_rebase, two_full_archives, write_without_tombstones};

/// Fields of an account that belong to its state.
#[derive(Debug, PartialEq)]
struct Account {
    owner: String,
    lamports: u64,
    is_executable: bool,
    data: Vec<u8>,
}

impl From<PlainRecord> for Account {
    fn from(record: PlainRecord) -> Self {
        let PlainRecord { owner, lamports, executable, data, .. } = record;
        Self { owner, lamports, is_executable: executable, data }
    }
}

type State = BTreeMap<String, Account>;

/// Returns the accounts of archives, found without slotpress.
fn read_state(archives: &[&Path]) -> State {
    let all: Vec<PlainRecord> = archives.iter().flat_map(|archive| records(archive)).collect();
    let alive = newest(&all).into_iter().filter(|(_, record)| record.lamports > 0);
    alive.map(|(key, record)| (key, Account::from(record))).collect()
}

fn verify_pair(full: &Path, incremental: &Path, clients: &str) -> (i32, serde_json::Value, String) {
    run_to_first_line(&["verify", text(full), text(incremental), "--for", clients], None)
}

#[test]
fn the_old_archive_and_the_rebased_one_are_the_new_state() {
    for chain in ["agave-4.2.2", AGAVE_4_4, AGAVE_4_5, AGAVE_4_5_SPLIT] {
        let dir = temp_dir();
        let [old, new] = two_full_archives(chain, dir.path());
        let incremental = fixture_of(chain, "incremental-snapshot-26-40-");
        for (number, new_state) in [vec![new.as_path()], vec![&old, &incremental]].into_iter().enumerate() {
            let out = temp_dir();
            let rebased = rebase(&new_state, &old, out.path(), &[["--layout=verbatim", "--layout=clustered"][number]]);
            assert_eq!(name(&rebased), name(&incremental));
            assert_eq!(read_state(&[&old, &rebased]), read_state(&[&new]), "{chain}");
            let (code, report, stderr) = verify_pair(&old, &rebased, "agave,firedancer");
            assert_eq!((code, &report["complete"]), (0, &"proved by state hash".into()), "{stderr}");
            for oracle in Oracle::all() {
                let genesis = fixture_of(chain, "genesis.bin");
                let genesis = genesis.parent().expect("a directory");
                let direct = oracle.load(&new, None, genesis);
                assert_eq!(oracle.load(&old, Some(&rebased), genesis), direct, "{chain}");
            }
        }
    }
}

/// Each changed account is written once, to a storage of a slot above the old one. Of the unchanged accounts,
/// only vote accounts are written.
#[test]
fn changed_accounts_and_all_vote_accounts_are_written_once() {
    let dir = temp_dir();
    let [old, new] = two_full_archives("agave-4.2.2", dir.path());
    let (code, report, stderr) =
        run_to_first_line(&["rebase", text(&new), "--onto", text(&old), "-o", text(dir.path())], None);
    assert_eq!(code, 0, "{stderr}");
    let rebased = records(Path::new(report["path"].as_str().expect("a path")));
    assert_eq!(newest(&rebased).len(), rebased.len());
    assert!(rebased.iter().all(|record| (27..=40).contains(&record.slot)));
    let (before, after) = (read_state(&[&old]), read_state(&[&new]));
    let closed = before.keys().filter(|key| !after.contains_key(*key)).count();
    let added = after.keys().filter(|key| !before.contains_key(*key)).count();
    let tombstones = rebased.iter().filter(|record| record.lamports == 0).count();
    assert!(closed > 0, "the chain closes accounts");
    assert!(added > 0, "the chain adds accounts");
    assert_eq!(
        (tombstones, &report["accounts_closed"], &report["accounts_new"]),
        (closed, &closed.into(), &added.into())
    );
    const VOTE: &str = "Vote111111111111111111111111111111111111111";
    let is_vote = |record: &PlainRecord| record.owner == VOTE;
    assert!(rebased.iter().any(is_vote));
    for record in rebased.iter().filter(|record| record.lamports > 0 && !is_vote(record)) {
        let is_same = before.get(&record.pubkey) == Some(&Account::from(record.clone()));
        assert!(!is_same, "{} did not change", record.pubkey);
    }
    let vote_count = after.values().filter(|account| account.owner == VOTE).count();
    assert_eq!(rebased.iter().filter(|record| is_vote(record)).count(), vote_count, "all vote accounts");
}

/// This is why validators make incremental archives only on their newest full archive.
#[test]
fn closed_accounts_come_back_without_tombstones() {
    let dir = temp_dir();
    let [old, new] = two_full_archives("agave-4.2.2", dir.path());
    let rebased = rebase(&[&new], &old, dir.path(), &[]);
    let without = write_without_tombstones(&rebased, dir.path()).expect("the chain closes accounts");
    let (code, _, stderr) = verify_pair(&old, &without, "agave");
    assert_eq!(code, 3, "{stderr}");
    for oracle in Oracle::all() {
        let genesis = fixture("genesis.bin");
        oracle.try_load(&old, Some(&without), genesis.parent().expect("a directory")).expect_err("refused");
    }
}

#[test]
fn bytes_depend_only_on_the_states() {
    let dir = temp_dir();
    let [old, new] = two_full_archives("agave-4.2.2", dir.path());
    let expected = fs::read(rebase(&[&new], &old, dir.path(), &[])).expect("read");
    for flags in [["--threads=1", "--memory=1GiB"], ["--threads=7", "--memory=300MiB"]] {
        let out = temp_dir();
        assert!(fs::read(rebase(&[&new], &old, out.path(), &flags)).expect("read") == expected, "{flags:?}");
    }
    // The same state in an archive with a single frame and without an index.
    let single_frame = dir.path().join("frame").join(name(&new));
    fs::create_dir(single_frame.parent().expect("a directory")).expect("made");
    fs::write(&single_frame, zstd::encode_all(tar_of(&new).as_slice(), 1).expect("compressed")).expect("written");
    let out = temp_dir();
    assert!(fs::read(rebase(&[&single_frame], &old, out.path(), &[])).expect("read") == expected);
}

#[test]
fn a_dry_run_reports_the_result_and_writes_nothing() {
    let dir = temp_dir();
    let [old, new] = two_full_archives("agave-4.2.2", dir.path());
    let out = temp_dir();
    let output = run_rebase(&[&new], &old, out.path(), &["--dry-run", "--json"]);
    let dry = first_line(&output.stdout);
    assert_eq!(relative_paths(out.path()), Vec::<String>::new());
    let report = first_line(&run_rebase(&[&new], &old, out.path(), &["--json"]).stdout);
    for field in ["name", "accounts_changed", "accounts_closed", "output_bytes", "root", "base_hash"] {
        assert_eq!(dry[field], report[field], "{field}");
    }
    assert_eq!(dry["path"], serde_json::Value::Null);
}

/// Firedancer loads a pair whose full archive was written by an old version of Firedancer.
#[test]
fn an_old_archive_of_firedancer_is_accepted() {
    let dir = temp_dir();
    let [_, new] = two_full_archives("agave-4.2.2", dir.path());
    let old = firedancer::full(firedancer::OLD_CHAIN);
    let rebased = rebase(&[&new], &old, dir.path(), &[]);
    let (code, _, stderr) = verify_pair(&old, &rebased, "firedancer");
    assert_eq!(code, 0, "{stderr}");
}

/// Newer versions of Firedancer write stakes. Either state, or both, may come from such a version.
#[test]
fn states_of_newer_firedancer_versions_are_rebased() {
    let (full, incremental) = (firedancer::full(firedancer::NEW_CHAIN), firedancer::incremental(firedancer::NEW_CHAIN));
    let dir = temp_dir();
    let [agave_old, agave_new] = two_full_archives(AGAVE_4_4, dir.path());
    let firedancer_archives = [full.as_path(), incremental.as_path()];
    let agave_archives = [agave_new.as_path()];
    for (number, (new, old)) in
        [(&firedancer_archives[..], &agave_old), (&firedancer_archives, &full), (&agave_archives, &full)]
            .into_iter()
            .enumerate()
    {
        let out = temp_dir();
        let rebased = rebase(new, old, out.path(), &[]);
        assert_eq!(read_state(&[old, &rebased]), read_state(&[&agave_new]), "{number}");
        let (code, _, stderr) = verify_pair(old, &rebased, "agave");
        assert_eq!(code, 0, "{number}: {stderr}");
        for oracle in Oracle::all() {
            let genesis = fixture_of(AGAVE_4_4, "genesis.bin");
            let genesis = genesis.parent().expect("a directory");
            assert_eq!(oracle.load(old, Some(&rebased), genesis), oracle.load(&agave_new, None, genesis), "{number}");
        }
    }
}

/// A node that restores the state archives the same state.
#[test]
fn a_restored_ledger_archives_as_the_new_state() {
    let dir = temp_dir();
    let [old, new] = two_full_archives("agave-4.2.2", dir.path());
    let rebased = rebase(&[&new], &old, dir.path(), &[]);
    let ledger = dir.path().join("ledger");
    slotpress().arg("restore").args([&old, &rebased]).arg("--ledger").arg(&ledger).assert().success();
    let out = temp_dir();
    let again = archive(&ledger, out.path(), &[]);
    assert_eq!((name(&again), read_state(&[&again])), (name(&new), read_state(&[&new])));
}

/// A ledger that is in use is refused.
#[test]
fn a_ledger_is_rebased_to_the_same_bytes_as_its_full_archive() {
    for chain in ["agave-4.2.2", AGAVE_4_4, AGAVE_4_5, AGAVE_4_5_SPLIT] {
        let dir = temp_dir();
        let [old, new] = two_full_archives(chain, dir.path());
        let expected = fs::read(rebase(&[&new], &old, dir.path(), &[])).expect("read");
        let out = temp_dir();
        let ledger = ledger_of(chain, 40);
        let made = rebase(&[ledger.path()], &old, out.path(), &["--slot", "40"]);
        assert!(fs::read(made).expect("read") == expected, "{chain}");
        let lock = fs::File::create(ledger.path().join("ledger.lock")).expect("made");
        lock.lock().expect("locked");
        let output = run_rebase(&[ledger.path()], &old, out.path(), &["--force"]);
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{stderr}");
        assert!(stderr.contains("is in use"), "{stderr}");
        let output = run_rebase(&[&new], &old, out.path(), &["--slot", "40"]);
        assert_eq!(output.status.code(), Some(2), "for ledgers only");
    }
}

/// Records the announced steps and the stages after them.
#[derive(Default)]
struct StageLog(std::sync::Mutex<Vec<Vec<String>>>);

impl slotpress::Progress for StageLog {
    fn event(&self, event: slotpress::ProgressEvent<'_>) {
        match event {
            slotpress::ProgressEvent::Steps(steps) => {
                self.0.lock().expect("no panic").push(steps.iter().map(|step| step.stage.to_string()).collect());
            }
            slotpress::ProgressEvent::Stage { stage, .. } => {
                self.0.lock().expect("no panic").push(vec![stage.to_string()])
            }
            _ => {}
        }
    }
}

/// Progress and remaining time are those of the whole run, because each stage is one of its steps.
#[test]
fn each_stage_is_an_announced_step() {
    let dir = temp_dir();
    let [old, new] = two_full_archives("agave-4.2.2", dir.path());
    let (log, out) = (StageLog::default(), temp_dir());
    let options = slotpress::rebase::RebaseOptions::new(slotpress::Snapshot::archive(new), old);
    let mut sink = slotpress::archive::DirSink::open(out.path()).expect("opened");
    slotpress::rebase::rebase(&options, &mut sink, &log).expect("made");
    let mut log = log.0.into_inner().expect("no panic");
    let steps = log.remove(0);
    assert_eq!(steps, ["Verifying", "Verifying", "Comparing", "Rebasing", "Verifying", "Syncing"]);
    // These stages are parts of a step.
    log.retain(|stage| *stage != ["Sorting"] && *stage != ["Subtracting"]);
    assert_eq!(log.concat(), steps);
}
