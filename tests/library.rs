//! The library, as a program that embeds it sees it: nothing here names a module.

use {
    crate::common::{FULL_26, FULL_3500, INCREMENTAL_26_40, fixture, ledger, temp_dir},
    slotpress::{
        Account, ArchiveOptions, CheckMode, CheckOptions, Codec, Error, ErrorKind, FullReadBack, Hash, MeasureOptions,
        NamedArchive, NoProgress, RecompressOptions, RecompressSource, RestoreOptions, Result, Sink, VerifyOptions,
        VisitOptions, archive, inspect_archive, measure_levels, recompress, restore, verify, visit_accounts,
    },
    std::{
        collections::BTreeSet,
        error::Error as _,
        sync::{
            Arc, Mutex,
            atomic::{AtomicU64, Ordering::Relaxed},
        },
    },
};

#[test]
fn a_ledger_goes_round() {
    let (ledger, out) = (ledger("ledger-at-26"), temp_dir());
    let options = ArchiveOptions::new(ledger.path(), out.path()).codec(Codec::zstd(3)).threads(2);
    let report = archive(&options, &NoProgress).expect("archived");
    let path = report.path.clone().expect("a path");
    assert_eq!(report.path_in(out.path()), path);
    let again = archive(&options, &NoProgress).expect_err("it is there");
    assert_eq!((again.kind(), again.existing_path()), (ErrorKind::Exists, Some(path.as_path())));

    let named = NamedArchive::of_path(&path);
    let options = VerifyOptions::default().memory_bytes(64 << 20).expect_slot(26);
    let verified = verify(&named, None, &options, &NoProgress).expect("verified");
    assert!(verified.ok && verified.slot == Some(26), "{verified:?}");
    let inspected = inspect_archive(&named, 2, &NoProgress).expect("inspected");
    assert_eq!(inspected.bank.slot, 26);

    let new = out.path().join("new");
    let check = CheckOptions::default().mode(CheckMode::State);
    let restored = restore(&RestoreOptions::new(&path, &new).check(check), &NoProgress).expect("restored");
    assert_eq!((restored.slot, restored.hash), (26, report.name.hash));

    let other = temp_dir();
    let sink = Sink::Dir { dir: other.path(), replace: false };
    let options = RecompressOptions::default().codec(Codec::zstd(9));
    let smaller = recompress(RecompressSource::File(path), sink, &options, &NoProgress).expect("recompressed");
    assert!(smaller.output_bytes < report.output_bytes);
}

/// Reports can be written down by whoever embeds the library, under the names that docs/json.md has.
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
    let options = ArchiveOptions::new(ledger.path(), out.path()).read_back(Arc::new(FullReadBack::default()));
    let archived = archive(&options, &NoProgress).expect("archived");
    let shown = fields(&archived);
    assert_eq!(shown["read_back"]["storages"], archived.storages);
    has(
        &shown,
        &["path", "storages", "input_bytes", "output_bytes", "frames", "root", "elapsed_seconds", "cpu_seconds"],
    );
    assert_eq!(shown["name"], archived.name.to_string());

    let path = archived.path.expect("a path");
    let named = NamedArchive::of_path(&path);
    let verified = fields(&verify(&named, None, &VerifyOptions::default(), &NoProgress).expect("verified"));
    has(&verified, &["ok", "slot", "hash", "checks", "clients", "accounts", "complete", "elapsed_seconds"]);
    let inspected = fields(&inspect_archive(&named, 2, &NoProgress).expect("inspected"));
    assert_eq!((&inspected["format"], &inspected["bank"]["slot"]), (&"zstd".into(), &26.into()));
    let options = RestoreOptions::new(&path, out.path().join("new"));
    let restored = fields(&restore(&options, &NoProgress).expect("restored"));
    assert_eq!((&restored["state"], &restored["complete"]), (&"checked".into(), &"by state".into()));
    let sink = Sink::Dir { dir: out.path(), replace: true };
    let recompressed = recompress(RecompressSource::File(path), sink, &RecompressOptions::default(), &NoProgress);
    has(&fields(&recompressed.expect("recompressed")), &["tar_bytes", "frames", "state_reason", "elapsed_seconds"]);
    let row = &measure_levels(&MeasureOptions::new(ledger.path()).levels([1]), &NoProgress).expect("measured")[0];
    has(&fields(row), &["codec", "level", "output_bytes", "compress", "warnings"]);
}

#[test]
fn every_account_is_visited_once() {
    for name in [FULL_26, FULL_3500] {
        let archive = NamedArchive::of_path(&fixture(name));
        let (count, lamports) = (AtomicU64::new(0), AtomicU64::new(0));
        let seen: Mutex<BTreeSet<(Hash, u64)>> = Mutex::default();
        let visit = |account: &Account<'_>| -> Result<()> {
            count.fetch_add(1, Relaxed);
            lamports.fetch_add(account.lamports, Relaxed);
            seen.lock().expect("no panic").insert((account.pubkey, account.slot));
            Ok(())
        };
        visit_accounts(&archive, &VisitOptions::default(), &NoProgress, &visit).expect("visited");
        let verified = verify(&archive, None, &VerifyOptions::default(), &NoProgress).expect("verified");
        assert_eq!(count.load(Relaxed), verified.counts.records);
        assert_eq!(seen.into_inner().expect("no panic").len() as u64, verified.counts.records);
        // No superseded records in these: every lamport is of the state.
        assert_eq!((verified.counts.superseded, Some(lamports.into_inner())), (0, verified.capitalization));
    }
    let archive = NamedArchive::of_path(&fixture(INCREMENTAL_26_40));
    let error = visit_accounts(&archive, &VisitOptions::default(), &NoProgress, &|_| Err(Error::failed("enough")));
    assert_eq!(error.expect_err("told").to_string(), "enough");
}

#[test]
fn damage_is_an_error_of_its_kind() {
    let (ledger, dir) = (ledger("ledger-at-26"), temp_dir());
    let report = archive(&ArchiveOptions::new(ledger.path(), dir.path()), &NoProgress).expect("archived");
    let path = report.path.expect("a path");
    let mut bytes = std::fs::read(&path).expect("read");
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(&path, bytes).expect("written");
    let archive = NamedArchive::of_path(&path);
    let error = visit_accounts(&archive, &VisitOptions::default(), &NoProgress, &|_| Ok(())).expect_err("damaged");
    assert_eq!(error.kind(), ErrorKind::Damaged, "{error}");
    let error = restore(&RestoreOptions::new(dir.path().join("none"), dir.path().join("x")), &NoProgress);
    let error = error.expect_err("no file");
    let source = error.source().and_then(|source| source.downcast_ref::<std::io::Error>());
    assert_eq!(source.map(std::io::Error::kind), Some(std::io::ErrorKind::NotFound), "{error:?}");
}

#[test]
fn levels_are_measured() {
    let options = MeasureOptions::new(fixture(FULL_26)).levels([1, 5]).repeat(1).threads(1);
    let rows = measure_levels(&options, &NoProgress).expect("measured");
    assert_eq!(rows.iter().map(|row| row.level).collect::<Vec<_>>(), [1, 5]);
    assert!(rows[1].output_bytes < rows[0].output_bytes);
    let error = measure_levels(&options.levels([99]), &NoProgress).expect_err("no such level");
    assert_eq!(error.kind(), ErrorKind::Usage);
}

#[cfg(feature = "net")]
#[test]
fn a_directory_is_bootstrapped_from() {
    use slotpress::{BootstrapOptions, ClientOptions, FetchOptions, FindOptions, SourceArg, bootstrap, fetch, find};
    let from = temp_dir();
    for name in [FULL_26, INCREMENTAL_26_40] {
        std::fs::copy(fixture(name), from.path().join(name)).expect("copied");
    }
    let sources = || [SourceArg::LocalDir(from.path().to_path_buf())];
    let client = ClientOptions::default();
    let found = find(&client, &FindOptions::default().sources(sources()), &NoProgress).expect("found");
    assert_eq!(found.require_candidate().expect("one").slot(), 40);
    let dir = temp_dir();
    let options = BootstrapOptions::new(sources(), dir.path().join("ledger"));
    let report = bootstrap(&client, &options, &NoProgress).expect("bootstrapped");
    assert_eq!((report.restore.slot, report.restore.base_slot), (40, Some(26)));
    let fetched = fetch(&client, &FetchOptions::new(sources(), dir.path().join("archives")), &NoProgress);
    assert_eq!(fetched.expect("fetched").archives.len(), 2);
}
