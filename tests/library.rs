//! The library, as a program that embeds it sees it: no test names a module.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::sync::Mutex;
use std::time::SystemTime;

use slotpress::accounts::{Account, AccountVisitor, visit_accounts};
use slotpress::archive::{ArchiveOptions, Codec, DirSink, EncodingOptions, archive};
use slotpress::catalog::{
    Archive as Listed, FileFault, Keep, KeepReason, find_partials, plan_prune, read_bank_times,
    remove as remove_archive, scan as list_archives,
};
use slotpress::inspect::inspect_archive;
use slotpress::levels::{MeasureOptions, measure as measure_levels};
use slotpress::recompress::{RecompressOptions, RecompressSource, recompress};
use slotpress::restore::{RestoreOptions, RestoreTarget, restore};
use slotpress::types::Address;
use slotpress::verify::{
    ArchiveBase, ArchiveVerdict, Check, CheckMode, CheckOptions, VerifyOptions, VerifyReport, verify, verify_catalog,
};
use slotpress::{
    CancelToken, Error, ErrorKind, LedgerPaths, NamedArchive, NoProgress, Progress, ProgressEvent, Snapshot,
};
use slotpress_base::hint;

use crate::common::records::{newest, records};
use crate::common::{FULL_26, FULL_3500, INCREMENTAL_26_40, expected, fixture, ledger, temp_dir};

#[test]
fn a_ledger_goes_round() {
    let (ledger, out) = (ledger("ledger-at-26"), temp_dir());
    let options =
        ArchiveOptions::new(ledger.path()).encoding(EncodingOptions::default().codec(Codec::zstd(3)).threads(2));
    let report = archive(&options, &mut DirSink::open(out.path()).expect("opened"), &NoProgress).expect("archived");
    let path = report.archive.path.clone().expect("a path");
    assert_eq!(report.archive.name.path_in(out.path()), path);
    let again =
        archive(&options, &mut DirSink::open(out.path()).expect("opened"), &NoProgress).expect_err("it is there");
    assert_eq!((again.kind(), again.existing_path()), (ErrorKind::Exists, Some(path.as_path())));

    let named = NamedArchive::from_path(&path);
    let options = VerifyOptions::default().check(CheckOptions::default().memory_bytes(64 << 20).expect_slot(26u64));
    let verified = verify(Snapshot::archive(&named), &options, &NoProgress).expect("verified");
    assert!(verified.ok && verified.slot == Some(26), "{verified:?}");
    let inspected = inspect_archive(&named, 2, &NoProgress).expect("inspected");
    assert_eq!(inspected.bank.slot, 26);

    let new = out.path().join("new");
    let check = CheckOptions::default().mode(CheckMode::State);
    let restored =
        restore(&RestoreOptions::new(&path, RestoreTarget::new(&new).check(check)), &NoProgress).expect("restored");
    assert_eq!((restored.slot, restored.hash), (26, report.archive.name.hash));

    let other = temp_dir();
    let mut sink = DirSink::open(other.path()).expect("opened");
    let options = RecompressOptions::default().encoding(EncodingOptions::default().codec(Codec::zstd(9)));
    let smaller = recompress(RecompressSource::File(path), &mut sink, &options, &NoProgress).expect("recompressed");
    assert!(smaller.archive.output_bytes < report.archive.output_bytes);
}

/// One call verifies a directory, with a report for each archive, and can be stopped.
#[test]
fn a_directory_is_verified() {
    let dir = temp_dir();
    for name in [FULL_26, INCREMENTAL_26_40, FULL_3500] {
        fs::copy(fixture(name), dir.path().join(name)).expect("copied");
    }
    let found = list_archives(&[dir.path().to_path_buf()]).expect("listed");
    let open = |archive: &Listed, _| Ok(NamedArchive::from_path(archive.path()));
    let verify_all = |progress: &dyn Progress| {
        let mut told = Vec::new();
        let mut on_verdict = |verdict: &ArchiveVerdict<'_>| {
            let base = matches!(verdict.base, ArchiveBase::Good(full) if full.name.slot == 26);
            let report = verdict.report.as_ref().expect("verified");
            told.push((verdict.archive.name.slot, report.ok, base, report.paths.len()));
        };
        let verdict = verify_catalog(&found, &open, &VerifyOptions::default(), progress, &mut on_verdict);
        (verdict.and_then(|verdict| verdict.require_ok("there")), told)
    };
    let all = vec![(3500, true, false, 1), (26, true, false, 1), (40, true, true, 2)];
    let (verdict, told) = verify_all(&NoProgress);
    assert!(verdict.is_ok() && told == all, "{verdict:?}, {told:?}");
    let stop = CancelToken::default();
    stop.cancel();
    let (verdict, told) = verify_all(&stop);
    assert_eq!((verdict.expect_err("stopped").kind(), told), (ErrorKind::Interrupted, vec![]));
    let mut bytes = fs::read(dir.path().join(FULL_3500)).expect("read");
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(dir.path().join(FULL_3500), bytes).expect("written");
    let (verdict, told) = verify_all(&NoProgress);
    assert_eq!(
        told.iter().map(|(slot, ok, ..)| (*slot, *ok)).collect::<Vec<_>>(),
        [(3500, false), (26, true), (40, true)]
    );
    let error = verdict.expect_err("one is damaged");
    assert_eq!(
        (error.kind(), error.to_string().as_str()),
        (ErrorKind::Damaged, "1 of 3 archives in there is not valid")
    );
}

/// Another thread can stop the work. Its reports are still delivered.
#[test]
fn a_token_beside_a_progress() {
    #[derive(Default)]
    struct Stages(Mutex<Vec<String>>, CancelToken);
    impl Progress for Stages {
        fn event(&self, event: ProgressEvent<'_>) {
            let ProgressEvent::Stage { stage, .. } = event else { return };
            self.0.lock().expect("no panic").push(stage.to_string());
            self.1.cancel();
        }
    }
    let (stages, dir) = (Stages::default(), temp_dir());
    let token = stages.1.clone();
    let options = RestoreOptions::new(fixture(FULL_26), RestoreTarget::new(dir.path().join("new")));
    let error = restore(&options, &token.with(&stages)).expect_err("stopped");
    assert_eq!(error.kind(), ErrorKind::Interrupted);
    assert!(!stages.0.lock().expect("no panic").is_empty());
}

/// Reports can be serialized by programs that embed the library, under the names of docs/json.md.
#[test]
fn reports_are_serializable() {
    fn fields(report: &impl serde::Serialize) -> serde_json::Map<String, serde_json::Value> {
        match serde_json::to_value(report).expect("serializable") {
            serde_json::Value::Object(fields) => fields,
            other => panic!("{other}"),
        }
    }
    let has = |report: &serde_json::Map<String, serde_json::Value>, names: &[&str]| {
        let missing: Vec<&&str> = names.iter().filter(|name| !report.contains_key(**name)).collect();
        assert!(missing.is_empty(), "{missing:?} of {report:?}");
    };
    let (ledger, out) = (ledger("ledger-at-26"), temp_dir());
    let options = ArchiveOptions::new(ledger.path()).read_back(CheckOptions::default());
    let archived = archive(&options, &mut DirSink::open(out.path()).expect("opened"), &NoProgress).expect("archived");
    let shown = fields(&archived);
    assert_eq!(shown["read_back"]["storages"], archived.archive.storages);
    has(
        &shown,
        &["path", "storages", "input_bytes", "output_bytes", "frames", "root", "elapsed_seconds", "cpu_seconds"],
    );
    assert_eq!(shown["name"], archived.archive.name.to_string());

    let path = archived.archive.path.expect("a path");
    let named = NamedArchive::from_path(&path);
    let verified =
        fields(&verify(Snapshot::archive(&named), &VerifyOptions::default(), &NoProgress).expect("verified"));
    has(&verified, &["ok", "slot", "hash", "checks", "clients", "accounts", "complete", "elapsed_seconds"]);
    let inspected = fields(&inspect_archive(&named, 2, &NoProgress).expect("inspected"));
    assert_eq!((&inspected["format"], &inspected["slot"]), (&"zstd".into(), &26.into()));
    let options = RestoreOptions::new(&path, RestoreTarget::new(out.path().join("new")));
    let restored = fields(&restore(&options, &NoProgress).expect("restored"));
    assert_eq!((&restored["state"], &restored["complete"]), (&"checked".into(), &"by state".into()));
    let mut sink = DirSink::open(out.path()).expect("opened").replace(true);
    let recompressed = recompress(RecompressSource::File(path), &mut sink, &RecompressOptions::default(), &NoProgress);
    has(&fields(&recompressed.expect("recompressed")), &["tar_bytes", "frames", "state_reason", "elapsed_seconds"]);
    let row = &measure_levels(&MeasureOptions::new(ledger.path()).levels([1]), &NoProgress).expect("measured")[0];
    has(&fields(row), &["codec", "level", "output_bytes", "compress", "warnings"]);
}

/// Accounts that one worker saw.
#[derive(Default)]
struct Seen {
    accounts: Vec<(Address, u64)>,
    lamports: u64,
}

impl AccountVisitor for Seen {
    type Error = Error;

    fn account(&mut self, account: &Account<'_>) -> Result<(), Error> {
        self.accounts.push((account.address, account.slot));
        self.lamports += account.lamports;
        Ok(())
    }
}

/// Returns all shown accounts, with the slots of their newest versions, and the report.
fn accounts_of(input: Snapshot<'_>, check: CheckMode) -> (BTreeMap<Address, u64>, u64, VerifyReport) {
    let options = VerifyOptions::default().check(CheckOptions::default().mode(check)).threads(3);
    let (visitors, report) = visit_accounts(input, &options, &NoProgress, Seen::default).expect("visited");
    assert!(visitors.len() <= 3, "one for each worker");
    let lamports = visitors.iter().map(|seen| seen.lamports).sum();
    let all: Vec<_> = visitors.into_iter().flat_map(|seen| seen.accounts).collect();
    let accounts: BTreeMap<_, _> = all.iter().copied().collect();
    assert_eq!((accounts.len(), accounts.len() as u64), (all.len(), report.counts.accounts), "each once");
    (accounts, lamports, report)
}

/// Returns the newest versions that a plain walk over the tar finds; a later record replaces one of
/// a lower slot.
fn plain_walk(archives: &[&Path]) -> BTreeMap<Address, u64> {
    let all: Vec<_> = archives.iter().flat_map(|archive| records(archive)).collect();
    let live = newest(&all).into_values().filter(|record| record.lamports > 0);
    live.map(|record| (record.pubkey.parse().expect("an address"), record.slot)).collect()
}

/// Shows the newest version of every account once, with and without an index, for any source.
#[test]
fn the_newest_version_of_every_account_is_visited() {
    let (ledger, out) = (ledger("ledger-at-40"), temp_dir());
    let options = ArchiveOptions::new(ledger.path()).encoding(EncodingOptions::default().frame_size_bytes(64 << 10));
    let ours = archive(&options, &mut DirSink::open(out.path()).expect("opened"), &NoProgress)
        .expect("archived")
        .archive
        .path
        .expect("a path");
    let (full, incremental) = (fixture(FULL_26), fixture(INCREMENTAL_26_40));
    for archives in [vec![full.as_path()], vec![&full, &incremental], vec![&fixture(FULL_3500)], vec![&ours]] {
        let named: Vec<_> = archives.iter().map(NamedArchive::from_path).collect();
        let input = Snapshot::Archives { full: &named[0], incremental: named.get(1) };
        let (accounts, lamports, report) = accounts_of(input, CheckMode::State);
        assert!(accounts == plain_walk(&archives), "{archives:?}");
        let verified = verify(
            Snapshot::Archives { full: &named[0], incremental: named.get(1) },
            &VerifyOptions::default(),
            &NoProgress,
        )
        .expect("verified");
        assert_eq!((Some(lamports), report.slot), (verified.capitalization, verified.slot));
        assert_eq!(
            (report.counts.superseded, report.counts.records),
            (verified.counts.superseded, verified.counts.records)
        );
        assert!(report.completed(Check::State) && report.counts.accounts == verified.counts.accounts);
    }
    let paths = LedgerPaths::new(ledger.path());
    let (accounts, ..) = accounts_of(Snapshot::ledger(&paths), CheckMode::State);
    assert!(accounts == plain_walk(&[&ours]));

    let part = NamedArchive::from_path(&incremental);
    let input = Snapshot::archive(&part);
    let refused = visit_accounts(input, &VerifyOptions::default(), &NoProgress, Seen::default);
    assert!(matches!(refused, Err(error) if error.hint() == Some(hint::GIVE_FULL_ARCHIVE)));
    let (accounts, _, report) = accounts_of(input, CheckMode::Frames);
    assert!(accounts == plain_walk(&[&incremental]) && !report.completed(Check::State));
}

/// Stops at the first account, with an error of the caller.
struct Enough;

#[derive(Debug)]
enum Stopped {
    Enough,
    Failed(Error),
}

impl From<Error> for Stopped {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

impl AccountVisitor for Enough {
    type Error = Stopped;

    fn account(&mut self, _: &Account<'_>) -> Result<(), Stopped> {
        Err(Stopped::Enough)
    }
}

#[test]
fn a_visitor_ends_the_visit_with_its_own_error() {
    let archive = NamedArchive::from_path(fixture(FULL_26));
    let input = Snapshot::archive(&archive);
    let error = visit_accounts(input, &VerifyOptions::default(), &NoProgress, || Enough).err();
    assert!(matches!(error, Some(Stopped::Enough)), "{error:?}");
}

#[test]
fn damage_is_an_error_of_its_kind() {
    let (ledger, dir) = (ledger("ledger-at-26"), temp_dir());
    let report =
        archive(&ArchiveOptions::new(ledger.path()), &mut DirSink::open(dir.path()).expect("opened"), &NoProgress)
            .expect("archived");
    let path = report.archive.path.expect("a path");
    let mut bytes = std::fs::read(&path).expect("read");
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(&path, bytes).expect("written");
    let archive = NamedArchive::from_path(&path);
    let input = Snapshot::archive(&archive);
    let error = visit_accounts(input, &VerifyOptions::default(), &NoProgress, || Enough).err();
    assert!(matches!(&error, Some(Stopped::Failed(error)) if error.kind() == ErrorKind::Damaged), "{error:?}");
    let error =
        restore(&RestoreOptions::new(dir.path().join("none"), RestoreTarget::new(dir.path().join("x"))), &NoProgress);
    let error = error.expect_err("no file");
    let cause = error.cause().and_then(|cause| cause.downcast_ref::<std::io::Error>());
    assert_eq!(cause.map(std::io::Error::kind), Some(std::io::ErrorKind::NotFound), "{error:?}");
}

#[test]
fn levels_are_measured() {
    let options = MeasureOptions::new(fixture(FULL_26)).levels([1, 5]).repeat(1).threads(1);
    let rows = measure_levels(&options, &NoProgress).expect("measured");
    assert_eq!(rows.iter().map(|row| row.codec.level).collect::<Vec<_>>(), [1, 5]);
    assert!(rows[1].output_bytes < rows[0].output_bytes);
    let error = measure_levels(&options.levels([99]), &NoProgress).expect_err("no such level");
    assert_eq!(error.kind(), ErrorKind::Usage);
}

#[cfg(feature = "net")]
#[test]
fn a_directory_is_bootstrapped_from() {
    use slotpress::bootstrap::{BootstrapOptions, bootstrap};
    use slotpress::net::{Client, ClientOptions, FetchOptions, FindOptions, SourceArg, fetch, find};
    let from = temp_dir();
    for name in [FULL_26, INCREMENTAL_26_40] {
        std::fs::copy(fixture(name), from.path().join(name)).expect("copied");
    }
    let sources = || [SourceArg::LocalDir(from.path().to_path_buf())];
    let client = Client::new(&ClientOptions::default()).expect("a client");
    let found = find(&client, &FindOptions::default().sources(sources()), &NoProgress).expect("found");
    assert_eq!(found.require_candidate().expect("one").slot(), 40);
    let dir = temp_dir();
    let options = BootstrapOptions::new(sources(), dir.path().join("ledger"));
    let report = bootstrap(&client, &options, &NoProgress).expect("bootstrapped");
    assert_eq!((report.restore.slot, report.restore.base_slot), (40, Some(26)));
    let fetched = fetch(&client, &FetchOptions::new(sources(), dir.path().join("archives")), &NoProgress);
    assert_eq!(fetched.expect("fetched").archives.len(), 2);
}

/// A URL is verified and inspected like a file, and reading ends when the token is cancelled.
#[cfg(feature = "net")]
#[test]
fn an_archive_on_a_server() {
    use slotpress::CancelToken;
    use slotpress::net::{Client, ClientOptions, archive_at_url};

    use crate::common::site::{Way, files_in, serve};
    let from = temp_dir();
    std::fs::copy(fixture(FULL_26), from.path().join(FULL_26)).expect("copied");
    let server = serve(&files_in(from.path()), Way::Ranges);
    let url = server.url(&format!("/{FULL_26}")).parse().expect("a URL");
    let (client, token) = (Client::new(&ClientOptions::default()).expect("a client"), CancelToken::default());
    let remote = archive_at_url(&client, &url, token.clone()).expect("opened");
    let local = NamedArchive::from_path(fixture(FULL_26));
    let verified = |archive: &NamedArchive| {
        verify(Snapshot::archive(archive), &VerifyOptions::default(), &NoProgress).map(|report| report.counts)
    };
    assert_eq!(verified(&remote).expect("verified"), verified(&local).expect("verified"));
    let inspected = inspect_archive(&remote, 2, &NoProgress).expect("inspected");
    assert_eq!(inspected.bank.slot, 26);
    token.cancel();
    let error = archive_at_url(&client, &url, token).and_then(|archive| verified(&archive)).expect_err("cancelled");
    assert_eq!(error.kind(), ErrorKind::Interrupted);
    let dead = server.url("/nothing");
    drop(server);
    let dead = dead.parse().expect("a URL");
    let error = archive_at_url(&client, &dead, CancelToken::default()).expect_err("nothing listens");
    assert_eq!(error.kind(), ErrorKind::Network);
}

/// Archives in a directory, those that may be removed, and unusable files.
#[test]
fn a_directory_of_archives() {
    let dir = temp_dir();
    for slot in [26, 27, 28] {
        let to = dir.path().join(FULL_26.replace("-26-", &format!("-{slot}-")));
        std::fs::copy(fixture(FULL_26), to).expect("copied");
    }
    std::fs::write(dir.path().join(FULL_26.replace("-26-", "-29-")), "x").expect("written");
    let mut catalog = list_archives(&[dir.path().to_path_buf()]).expect("read");
    assert_eq!(catalog.choice().map(|choice| choice.full.name.slot), Some(28));
    assert_eq!(catalog.unusable().iter().map(|one| &one.fault).collect::<Vec<_>>(), [&FileFault::NotAnArchive]);
    // All bank files are of one day, of which the newest archive stays.
    let keep = Keep::new(0, 0).daily(7);
    let undated = plan_prune(&catalog, &keep, SystemTime::now());
    assert_eq!(undated, [Some(KeepReason::Undated); 3]);
    read_bank_times(&mut catalog);
    let plan = plan_prune(&catalog, &keep, SystemTime::now());
    let gone = catalog.archives().iter().zip(plan).filter(|(_, reason)| reason.is_none());
    gone.for_each(|(archive, _)| remove_archive(archive).expect("removed"));
    assert_eq!(crate::common::names(dir.path()).len(), 2);
    assert!(find_partials(dir.path()).expect("read").is_empty());
}

/// Inside an async runtime, calls fail with an error that says so, and dropping a client does not
/// panic.
#[cfg(feature = "net")]
#[test]
fn a_client_inside_a_runtime() {
    use slotpress::net::{Client, ClientOptions, FetchOptions, FindOptions, SourceArg, archive_at_url, fetch, find};
    let dir = temp_dir();
    let sources = || [SourceArg::LocalDir(dir.path().to_path_buf())];
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).build().expect("a runtime");
    let errors = runtime.block_on(async {
        let client = Client::new(&ClientOptions::default()).expect("a client");
        let url = "http://127.0.0.1:9/".parse().expect("a URL");
        [
            find(&client, &FindOptions::new(sources()), &NoProgress).map(drop),
            fetch(&client, &FetchOptions::new(sources(), dir.path()), &NoProgress).map(drop),
            archive_at_url(&client, &url, CancelToken::default()).map(drop),
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

/// The updates of the example are all accounts of the state, as an indexer decodes them.
#[test]
fn accounts_as_updates_of_geyser() {
    use account_updates::{SubscribeUpdateAccount, write_updates};
    use prost::Message;

    let [full, incremental] = [FULL_26, INCREMENTAL_26_40].map(|name| NamedArchive::from_path(fixture(name)));
    let output = std::sync::Mutex::new(Vec::new());
    let count = write_updates(&full, Some(&incremental), &output).expect("written");
    let bytes = output.into_inner().expect("unlocked");
    let mut rest = bytes.as_slice();
    let (mut lamports, mut data_bytes) = (0, 0);
    let mut addresses = BTreeSet::new();
    while !rest.is_empty() {
        let update = SubscribeUpdateAccount::decode_length_delimited(&mut rest).expect("a message");
        assert!(update.is_startup && update.slot <= 40, "{update:?}");
        let account = update.account.expect("an account");
        assert_eq!(account.owner.len(), 32);
        lamports += account.lamports;
        data_bytes += account.data.len() as u64;
        addresses.insert(account.pubkey);
    }
    let expected = expected(40);
    assert_eq!(expected["accounts"], count);
    assert_eq!(expected["accounts"], addresses.len());
    assert_eq!((&expected["capitalization"], &expected["account_data_bytes"]), (&lamports.into(), &data_bytes.into()));
}
