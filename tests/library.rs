//! Tests of the library's public items, as a program that embeds it uses them.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::SystemTime;

use slotpress::accounts::{Account, AccountVisitor, visit_accounts};
use slotpress::archive::{ArchiveOptions, Codec, DirSink, EncodingOptions, archive};
use slotpress::catalog::{
    FileFault, Keep, KeepReason, ListedArchive, find_partials, plan_prune, read_bank_times, remove_archive,
};
use slotpress::inspect::{InspectOptions, inspect_archive};
use slotpress::levels::MeasureOptions;
use slotpress::recompress::{RecompressOptions, recompress};
use slotpress::restore::{RestoreOptions, restore};
use slotpress::types::Address;
use slotpress::verify::{
    ArchiveBase, ArchiveVerdict, Check, CheckMode, CheckOptions, VerifyOptions, VerifyReport, verify, verify_catalog,
};
use slotpress::{
    ArchiveInput, CancelToken, Error, ErrorKind, NoProgress, Progress, ProgressEvent, Snapshot, catalog, levels,
};
use tempfile::TempDir;

use crate::common::records::{newest, records};
use crate::common::{AGAVE_4_2, FULL_26, FULL_3500, INCREMENTAL_26_40, expected_facts, fixture, ledger, temp_dir};

#[test]
fn a_ledger_is_archived_verified_inspected_restored_and_recompressed() {
    let ledger = ledger("ledger-at-26");
    let out = temp_dir();
    let options =
        ArchiveOptions::new(ledger.path()).encoding(EncodingOptions::default().codec(Codec::zstd(3)).threads(2));
    let report = archive(&options, &mut DirSink::open(out.path()).expect("opened"), &NoProgress).expect("archived");
    let path = report.archive.path.clone().expect("a path");
    assert_eq!(report.archive.name.path_in(out.path()), path);

    let options = VerifyOptions::default().check(CheckOptions::default().memory_bytes(64 << 20).expect_slot(26));
    let verified = verify(&Snapshot::archive(&path), &options, &NoProgress).expect("verified");
    assert!(verified.ok, "{verified:?}");
    assert_eq!(verified.slot, Some(26));
    let inspected =
        inspect_archive(&ArchiveInput::from(&path), &InspectOptions::default(), &NoProgress).expect("inspected");
    assert_eq!(inspected.bank.slot, 26);

    let new = out.path().join("new");
    let check = CheckOptions::default().mode(CheckMode::State);
    let restored = restore(&RestoreOptions::new(&path, &new).check(check), &NoProgress).expect("restored");
    assert_eq!(restored.slot, 26);
    assert_eq!(restored.hash, report.archive.name.hash);

    let other = temp_dir();
    let mut sink = DirSink::open(other.path()).expect("opened");
    let options = RecompressOptions::new(path).encoding(EncodingOptions::default().codec(Codec::zstd(9)));
    let smaller = recompress(&options, &mut sink, &NoProgress).expect("recompressed");
    assert!(smaller.archive.output_bytes < report.archive.output_bytes);
}

/// Only `verify` may leave out frames.
#[test]
fn reading_back_reads_all_frames_in_quick_mode_too() {
    let ledger = ledger("ledger-at-26");
    let out = temp_dir();
    let options = ArchiveOptions::new(ledger.path()).read_back(CheckOptions::default().mode(CheckMode::Quick));
    let report = archive(&options, &mut DirSink::open(out.path()).expect("opened"), &NoProgress).expect("archived");
    let checks = report.read_back.expect("read back").checks;
    assert!(checks.contains(&"frames") && checks.contains(&"entries"), "{checks:?}");
}

#[test]
fn an_archive_that_exists_is_not_replaced() {
    let ledger = ledger("ledger-at-26");
    let out = temp_dir();
    let options = ArchiveOptions::new(ledger.path());
    let make = || archive(&options, &mut DirSink::open(out.path()).expect("opened"), &NoProgress);
    let path = make().expect("archived").archive.path.expect("a path");
    let error = make().expect_err("the archive exists");
    assert_eq!(error.kind(), ErrorKind::Exists);
    assert_eq!(error.existing_path(), Some(path.as_path()));
}

/// A part of the verdict on an archive of a directory.
#[derive(Debug, PartialEq, Eq)]
struct VerdictFacts {
    slot: u64,
    is_ok: bool,
    /// True if the full archive of slot 26 is good, and the archive's base.
    has_good_base_26: bool,
    paths: usize,
}

/// Makes a directory with two full archives, and an incremental one.
fn directory_of_three_archives() -> TempDir {
    let dir = temp_dir();
    for name in [FULL_26, INCREMENTAL_26_40, FULL_3500] {
        fs::copy(fixture(name), dir.path().join(name)).expect("copied");
    }
    dir
}

/// Verifies all archives of a directory. Returns the result, and the verdicts in the order of their
/// reports.
fn verify_directory(dir: &Path, progress: &dyn Progress) -> (Result<(), Error>, Vec<VerdictFacts>) {
    let catalog = catalog::scan(&[dir]).expect("listed");
    let open = |archive: &ListedArchive, _| Ok(ArchiveInput::from_path(archive.path()));
    let mut verdicts = Vec::new();
    let on_verdict = |verdict: &ArchiveVerdict<'_>| {
        let report = verdict.report.as_ref().expect("verified");
        verdicts.push(VerdictFacts {
            slot: verdict.archive.name.slot,
            is_ok: report.ok,
            has_good_base_26: matches!(verdict.base, ArchiveBase::Good(full) if full.name.slot == 26),
            paths: report.paths.len(),
        });
    };
    let result = verify_catalog(&catalog, &VerifyOptions::default(), progress, open, on_verdict);
    (result.and_then(|verdict| verdict.require_ok("there")), verdicts)
}

#[test]
fn one_call_verifies_all_archives_of_a_directory() {
    let dir = directory_of_three_archives();
    let (result, verdicts) = verify_directory(dir.path(), &NoProgress);
    result.expect("all are good");
    let full = |slot| VerdictFacts { slot, is_ok: true, has_good_base_26: false, paths: 1 };
    let incremental = VerdictFacts { slot: 40, is_ok: true, has_good_base_26: true, paths: 2 };
    assert_eq!(verdicts, [full(3500), full(26), incremental]);
}

#[test]
fn verifying_a_directory_ends_when_the_token_is_cancelled() {
    let dir = directory_of_three_archives();
    let token = CancelToken::default();
    token.cancel();
    let (result, verdicts) = verify_directory(dir.path(), &token);
    assert_eq!(result.expect_err("cancelled").kind(), ErrorKind::Interrupted);
    assert_eq!(verdicts, []);
}

#[test]
fn a_damaged_archive_of_a_directory_is_an_error_after_all_verdicts() {
    let dir = directory_of_three_archives();
    let mut bytes = fs::read(dir.path().join(FULL_3500)).expect("read");
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(dir.path().join(FULL_3500), bytes).expect("written");
    let (result, verdicts) = verify_directory(dir.path(), &NoProgress);
    let found: Vec<(u64, bool)> = verdicts.iter().map(|verdict| (verdict.slot, verdict.is_ok)).collect();
    assert_eq!(found, [(3500, false), (26, true), (40, true)]);
    let error = result.expect_err("one is damaged");
    assert_eq!(error.kind(), ErrorKind::Damaged);
    assert_eq!(error.to_string(), "1 of 3 archives in there is not valid");
}

/// The progress still receives events when a token is added to it.
#[test]
fn a_token_that_is_cancelled_stops_the_work() {
    #[derive(Default)]
    struct StageLog {
        stages: Mutex<Vec<String>>,
        token: CancelToken,
    }
    impl Progress for StageLog {
        fn event(&self, event: ProgressEvent<'_>) {
            let ProgressEvent::Stage { stage, .. } = event else { return };
            self.stages.lock().expect("no panic").push(stage.to_string());
            self.token.cancel();
        }
    }
    let log = StageLog::default();
    let dir = temp_dir();
    let token = log.token.clone();
    let options = RestoreOptions::new(fixture(FULL_26), dir.path().join("new"));
    let error = restore(&options, &token.with(&log)).expect_err("cancelled");
    assert_eq!(error.kind(), ErrorKind::Interrupted);
    assert!(!log.stages.lock().expect("no panic").is_empty());
}

/// The fields of serialized reports have the names of docs/json.md.
#[test]
fn reports_are_serializable() {
    fn fields(report: &impl serde::Serialize) -> serde_json::Map<String, serde_json::Value> {
        match serde_json::to_value(report).expect("serializable") {
            serde_json::Value::Object(fields) => fields,
            other => panic!("{other}"),
        }
    }
    let assert_has = |report: &serde_json::Map<String, serde_json::Value>, names: &[&str]| {
        let missing: Vec<&&str> = names.iter().filter(|name| !report.contains_key(**name)).collect();
        assert!(missing.is_empty(), "{missing:?} of {report:?}");
    };
    let ledger = ledger("ledger-at-26");
    let out = temp_dir();
    let options = ArchiveOptions::new(ledger.path()).read_back(CheckOptions::default());
    let archived = archive(&options, &mut DirSink::open(out.path()).expect("opened"), &NoProgress).expect("archived");
    let archive_fields = fields(&archived);
    assert_eq!(archive_fields["read_back"]["storages"], archived.archive.storages);
    assert_has(
        &archive_fields,
        &["path", "storages", "input_bytes", "output_bytes", "frames", "root", "elapsed_seconds", "cpu_seconds"],
    );
    assert_eq!(archive_fields["name"], archived.archive.name.to_string());

    let path = archived.archive.path.expect("a path");
    let verified =
        fields(&verify(&Snapshot::archive(&path), &VerifyOptions::default(), &NoProgress).expect("verified"));
    assert_has(&verified, &["ok", "slot", "hash", "checks", "clients", "accounts", "complete", "elapsed_seconds"]);
    let inspected = fields(
        &inspect_archive(&ArchiveInput::from(&path), &InspectOptions::default(), &NoProgress).expect("inspected"),
    );
    assert_eq!(inspected["format"], "zstd");
    assert_eq!(inspected["slot"], 26);
    let options = RestoreOptions::new(&path, out.path().join("new"));
    let restored = fields(&restore(&options, &NoProgress).expect("restored"));
    assert_eq!(restored["state"], "checked");
    assert_eq!(restored["complete"], "proved by state hash");
    let mut sink = DirSink::open(out.path()).expect("opened").replace(true);
    let recompressed = recompress(&RecompressOptions::new(path), &mut sink, &NoProgress);
    assert_has(
        &fields(&recompressed.expect("recompressed")),
        &["tar_bytes", "frames", "state_reason", "elapsed_seconds"],
    );
    let row = &levels::measure(&MeasureOptions::new(ledger.path()).levels([1]), &NoProgress).expect("measured")[0];
    assert_has(&fields(row), &["codec", "level", "output_bytes", "compress", "warnings"]);
}

/// Accounts that a worker visited.
#[derive(Default)]
struct VisitedAccounts {
    accounts: Vec<(Address, u64)>,
    lamports: u64,
}

impl AccountVisitor for VisitedAccounts {
    type Error = Error;

    fn account(&mut self, account: &Account<'_>) -> Result<(), Error> {
        self.accounts.push((account.address, account.slot));
        self.lamports += account.lamports;
        Ok(())
    }
}

/// The result of a visit of all accounts.
struct Visit {
    /// Slots of the newest versions of all accounts.
    slots: BTreeMap<Address, u64>,
    lamports: u64,
    report: VerifyReport,
}

/// Visits all accounts, and checks that each is visited once.
fn visit(input: &Snapshot, check: CheckMode) -> Visit {
    let options = VerifyOptions::default().check(CheckOptions::default().mode(check)).threads(3);
    let (visitors, report) = visit_accounts(input, &options, &NoProgress, VisitedAccounts::default).expect("visited");
    assert!(visitors.len() <= 3, "at most one visitor per worker");
    let lamports = visitors.iter().map(|visited| visited.lamports).sum();
    let all: Vec<_> = visitors.into_iter().flat_map(|visited| visited.accounts).collect();
    let slots: BTreeMap<_, _> = all.iter().copied().collect();
    assert_eq!(slots.len(), all.len(), "an account was visited twice");
    assert_eq!(slots.len() as u64, report.counts.accounts);
    Visit { slots, lamports, report }
}

/// Finds the slots of the newest versions without the library. A record replaces an earlier one of a
/// lower slot.
fn slots_of_newest_versions(archives: &[&Path]) -> BTreeMap<Address, u64> {
    let all: Vec<_> = archives.iter().flat_map(|archive| records(archive)).collect();
    let live = newest(&all).into_values().filter(|record| record.lamports > 0);
    live.map(|record| (record.pubkey.parse().expect("an address"), record.slot)).collect()
}

/// Archives a ledger with an index and small frames.
fn archive_with_index(ledger: &Path, out: &Path) -> PathBuf {
    let options = ArchiveOptions::new(ledger).encoding(EncodingOptions::default().frame_size_bytes(64 << 10));
    let report = archive(&options, &mut DirSink::open(out).expect("opened"), &NoProgress).expect("archived");
    report.archive.path.expect("a path")
}

#[test]
fn the_newest_version_of_every_account_of_an_archive_is_visited() {
    let ledger = ledger("ledger-at-40");
    let out = temp_dir();
    let ours = archive_with_index(ledger.path(), out.path());
    let [full, incremental] = [FULL_26, INCREMENTAL_26_40].map(fixture);
    for archives in [vec![full.as_path()], vec![&full, &incremental], vec![&fixture(FULL_3500)], vec![&ours]] {
        let snapshot = Snapshot::from_archives(archives[0], archives.get(1));
        let Visit { slots, lamports, report } = visit(&snapshot, CheckMode::State);
        assert!(slots == slots_of_newest_versions(&archives), "{archives:?}");
        let verified = verify(&snapshot, &VerifyOptions::default(), &NoProgress).expect("verified");
        assert_eq!(Some(lamports), verified.capitalization_lamports);
        assert_eq!(report.slot, verified.slot);
        assert_eq!(report.counts.superseded, verified.counts.superseded);
        assert_eq!(report.counts.records, verified.counts.records);
        assert_eq!(report.counts.accounts, verified.counts.accounts);
        assert!(report.has_completed(Check::State));
    }
}

#[test]
fn the_newest_version_of_every_account_of_a_ledger_is_visited() {
    let ledger = ledger("ledger-at-40");
    let out = temp_dir();
    let archive = archive_with_index(ledger.path(), out.path());
    let visit = visit(&Snapshot::ledger(ledger.path()), CheckMode::State);
    assert!(visit.slots == slots_of_newest_versions(&[&archive]));
}

#[test]
fn accounts_of_an_incremental_archive_alone_are_visited_if_only_frames_are_checked() {
    let incremental = fixture(INCREMENTAL_26_40);
    let input = &Snapshot::archive(&incremental);
    let result = visit_accounts(input, &VerifyOptions::default(), &NoProgress, VisitedAccounts::default);
    let error = result.err().expect("the state cannot be checked");
    assert!(error.hint().is_some_and(|hint| hint.starts_with("pass its full archive too")));
    let Visit { slots, report, .. } = visit(input, CheckMode::Frames);
    assert!(slots == slots_of_newest_versions(&[&incremental]));
    assert!(!report.has_completed(Check::State));
}

/// Ends the visit at the first account, with the caller's own error.
struct EndingVisitor;

#[derive(Debug)]
enum VisitError {
    Ended,
    Failed(Error),
}

impl From<Error> for VisitError {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

impl AccountVisitor for EndingVisitor {
    type Error = VisitError;

    fn account(&mut self, _: &Account<'_>) -> Result<(), VisitError> {
        Err(VisitError::Ended)
    }
}

#[test]
fn a_visitor_ends_the_visit_with_its_own_error() {
    let input = &Snapshot::archive(fixture(FULL_26));
    let error = visit_accounts(input, &VerifyOptions::default(), &NoProgress, || EndingVisitor).err();
    assert!(matches!(error, Some(VisitError::Ended)), "{error:?}");
}

#[test]
fn damage_ends_a_visit_with_an_error_of_its_kind() {
    let ledger = ledger("ledger-at-26");
    let dir = temp_dir();
    let report =
        archive(&ArchiveOptions::new(ledger.path()), &mut DirSink::open(dir.path()).expect("opened"), &NoProgress)
            .expect("archived");
    let path = report.archive.path.expect("a path");
    let mut bytes = std::fs::read(&path).expect("read");
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(&path, bytes).expect("written");
    let input = &Snapshot::archive(&path);
    let error = visit_accounts(input, &VerifyOptions::default(), &NoProgress, || EndingVisitor).err();
    assert!(matches!(&error, Some(VisitError::Failed(error)) if error.kind() == ErrorKind::Damaged), "{error:?}");
}

#[test]
fn the_error_for_a_missing_file_has_the_system_error_as_its_cause() {
    let dir = temp_dir();
    let options = RestoreOptions::new(dir.path().join("none"), dir.path().join("ledger"));
    let error = restore(&options, &NoProgress).expect_err("no file");
    let cause = error.cause().and_then(|cause| cause.downcast_ref::<std::io::Error>());
    assert_eq!(cause.map(std::io::Error::kind), Some(std::io::ErrorKind::NotFound), "{error:?}");
}

#[test]
fn higher_levels_give_smaller_archives() {
    let options = MeasureOptions::new(fixture(FULL_26)).levels([1, 5]).repeat(1).threads(1);
    let rows = levels::measure(&options, &NoProgress).expect("measured");
    assert_eq!(rows.iter().map(|row| row.codec.level).collect::<Vec<_>>(), [1, 5]);
    assert!(rows[1].output_bytes < rows[0].output_bytes);
}

#[test]
fn an_unknown_level_is_a_usage_error() {
    let options = MeasureOptions::new(fixture(FULL_26)).levels([99]).repeat(1).threads(1);
    let error = levels::measure(&options, &NoProgress).expect_err("no such level");
    assert_eq!(error.kind(), ErrorKind::Usage);
}

#[cfg(feature = "net")]
#[test]
fn a_directory_is_a_source_for_find_bootstrap_and_fetch() {
    use slotpress::bootstrap::{BootstrapOptions, bootstrap};
    use slotpress::net::{Client, ClientOptions, FetchOptions, FindOptions, SourceLocation, fetch, find};
    let source = temp_dir();
    for name in [FULL_26, INCREMENTAL_26_40] {
        std::fs::copy(fixture(name), source.path().join(name)).expect("copied");
    }
    let sources = || [SourceLocation::Directory(source.path().to_path_buf())];
    let client = Client::new(&ClientOptions::default()).expect("a client");
    let found = find(&client, &FindOptions::default().sources(sources()), &NoProgress).expect("found");
    let candidate = found.require_candidate().expect("a candidate");
    assert_eq!(candidate.slot(), 40);
    let dir = temp_dir();
    let options = BootstrapOptions::new(candidate.sources(), dir.path().join("ledger"));
    let report = bootstrap(&client, &options, &NoProgress).expect("bootstrapped");
    assert_eq!(report.restore.slot, 40);
    assert_eq!(report.restore.base_slot, Some(26));
    let fetched = fetch(&client, &FetchOptions::new(sources(), dir.path().join("archives")), &NoProgress);
    assert_eq!(fetched.expect("fetched").archives.len(), 2);
}

/// A server with the full archive of slot 26.
#[cfg(feature = "net")]
struct ArchiveServer {
    server: crate::common::http::Server,
    client: slotpress::net::Client,
    url: slotpress::net::Url,
}

#[cfg(feature = "net")]
fn serve_archive() -> ArchiveServer {
    use slotpress::net::{Client, ClientOptions};

    use crate::common::site::{TransferMode, files_in, serve};
    let dir = temp_dir();
    std::fs::copy(fixture(FULL_26), dir.path().join(FULL_26)).expect("copied");
    let server = serve(&files_in(dir.path()), TransferMode::Ranges);
    let url = server.url(&format!("/{FULL_26}")).parse().expect("a URL");
    ArchiveServer { server, client: Client::new(&ClientOptions::default()).expect("a client"), url }
}

#[cfg(feature = "net")]
#[test]
fn an_archive_on_a_server_is_verified_and_inspected_like_a_file() {
    let ArchiveServer { server: _server, client, url } = serve_archive();
    let remote = slotpress::net::open_archive_at_url(&client, &url, CancelToken::default()).expect("opened");
    let local = ArchiveInput::from_path(fixture(FULL_26));
    let count = |archive: &ArchiveInput| {
        verify(&Snapshot::archive(archive.clone()), &VerifyOptions::default(), &NoProgress).expect("verified").counts
    };
    assert_eq!(count(&remote), count(&local));
    let inspected = inspect_archive(&remote, &InspectOptions::default(), &NoProgress).expect("inspected");
    assert_eq!(inspected.bank.slot, 26);
}

#[cfg(feature = "net")]
#[test]
fn reading_from_a_server_ends_when_the_token_is_cancelled() {
    let ArchiveServer { server: _server, client, url } = serve_archive();
    let token = CancelToken::default();
    token.cancel();
    let result = slotpress::net::open_archive_at_url(&client, &url, token)
        .and_then(|archive| verify(&Snapshot::archive(archive), &VerifyOptions::default(), &NoProgress));
    assert_eq!(result.expect_err("cancelled").kind(), ErrorKind::Interrupted);
}

#[cfg(feature = "net")]
#[test]
fn a_server_that_does_not_listen_is_a_network_error() {
    let ArchiveServer { server, client, url } = serve_archive();
    drop(server);
    let error =
        slotpress::net::open_archive_at_url(&client, &url, CancelToken::default()).expect_err("nothing listens");
    assert_eq!(error.kind(), ErrorKind::Network);
}

/// Makes a directory with three archives, whose bank files are of the same day.
fn directory_with_archives_of_one_day() -> TempDir {
    let dir = temp_dir();
    for slot in [26, 27, 28] {
        let path = dir.path().join(FULL_26.replace("-26-", &format!("-{slot}-")));
        std::fs::copy(fixture(FULL_26), path).expect("copied");
    }
    dir
}

#[test]
fn archives_and_unusable_files_of_a_directory_are_listed() {
    let dir = directory_with_archives_of_one_day();
    std::fs::write(dir.path().join(FULL_26.replace("-26-", "-29-")), "x").expect("written");
    let catalog = catalog::scan(&[dir.path()]).expect("read");
    assert_eq!(catalog.choice().map(|choice| choice.full.name.slot), Some(28));
    assert_eq!(catalog.unusable().iter().map(|file| &file.fault).collect::<Vec<_>>(), [&FileFault::NotAnArchive]);
    assert!(find_partials(dir.path()).expect("read").is_empty());
}

#[test]
fn the_newest_archive_of_a_day_is_kept() {
    let dir = directory_with_archives_of_one_day();
    let mut catalog = catalog::scan(&[dir.path()]).expect("read");
    let keep = Keep::default().full(0).incremental(0).daily(7);
    let plan = plan_prune(&catalog, &keep, SystemTime::now());
    assert!(plan.iter().all(|decision| decision.keep_reason == Some(KeepReason::Undated)), "{plan:?}");
    read_bank_times(&mut catalog);
    for decision in plan_prune(&catalog, &keep, SystemTime::now()) {
        if decision.keep_reason.is_none() {
            remove_archive(decision.archive).expect("removed");
        }
    }
    assert_eq!(crate::common::relative_paths(dir.path()), [FULL_26.replace("-26-", "-28-")]);
}

/// The error names the runtime. Dropping a client there does not panic.
#[cfg(feature = "net")]
#[test]
fn calls_inside_an_async_runtime_are_usage_errors() {
    use slotpress::net::{
        Client, ClientOptions, FetchOptions, FindOptions, SourceLocation, fetch, find, open_archive_at_url,
    };
    let dir = temp_dir();
    let sources = || [SourceLocation::Directory(dir.path().to_path_buf())];
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).build().expect("a runtime");
    let errors = runtime.block_on(async {
        let client = Client::new(&ClientOptions::default()).expect("a client");
        let url = "http://127.0.0.1:9/".parse().expect("a URL");
        [
            find(&client, &FindOptions::new(sources()), &NoProgress).map(drop),
            fetch(&client, &FetchOptions::new(sources(), dir.path()), &NoProgress).map(drop),
            open_archive_at_url(&client, &url, CancelToken::default()).map(drop),
        ]
    });
    for result in errors {
        let error = result.expect_err("refused");
        assert_eq!(error.kind(), ErrorKind::Usage, "{error}");
        assert!(error.to_string().contains("tokio"), "{error}");
    }
}

#[allow(dead_code)] // its `main`
#[path = "../examples/account_updates.rs"]
mod account_updates;

/// An indexer that decodes the updates of the example gets all accounts of the state.
#[test]
fn the_example_writes_each_account_as_an_update_of_geyser() {
    use account_updates::{SubscribeUpdateAccount, write_updates};
    use prost::Message;

    let [full, incremental] = [FULL_26, INCREMENTAL_26_40].map(fixture);
    let output = std::sync::Mutex::new(Vec::new());
    let count = write_updates(&Snapshot::pair(full, incremental), &output).expect("written");
    let bytes = output.into_inner().expect("unlocked");
    let mut rest = bytes.as_slice();
    let mut lamports = 0u64;
    let mut data_bytes = 0u64;
    let mut addresses = BTreeSet::new();
    while !rest.is_empty() {
        let update = SubscribeUpdateAccount::decode_length_delimited(&mut rest).expect("a message");
        assert!(update.is_startup, "{update:?}");
        assert!(update.slot <= 40, "{update:?}");
        let account = update.account.expect("an account");
        assert_eq!(account.owner.len(), 32);
        lamports += account.lamports;
        data_bytes += account.data.len() as u64;
        addresses.insert(account.pubkey);
    }
    let expected = expected_facts(AGAVE_4_2, 40);
    assert_eq!(expected["accounts"], count);
    assert_eq!(expected["accounts"], addresses.len());
    assert_eq!(expected["capitalization"], lamports);
    assert_eq!(expected["account_data_bytes"], data_bytes);
}
