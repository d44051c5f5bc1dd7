//! All commands are as strict as `verify`: they make nothing from an archive if `verify` would
//! refuse the result.

use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::thread;

use slotpress::archive::{DirSink, EncodingOptions};
use slotpress::recompress::{RecompressOptions, RecompressSource, recompress};
use slotpress::restore::{RestoreOptions, RestoreSource, RestoreTarget, restore};
use slotpress_base::{ErrorKind, NoProgress};
use slotpress_format::LedgerPaths;
use slotpress_read::{NamedArchive, Snapshot, VerifyReport};
#[cfg(feature = "net")]
use {
    crate::common::site::{Files, Way, serve},
    slotpress::bootstrap::{BootstrapOptions, bootstrap},
    slotpress::net::{Client, ClientOptions},
};
#[cfg(all(feature = "serve", feature = "stores"))]
use {
    crate::publish::stage::Stage,
    slotpress_format::ArchiveName,
    slotpress_read::{CheckMode, CheckOptions},
};

use super::fields::altered_fields;
use crate::verify::altered::{Altered, corpus};
use crate::verify::fixtures::*;

/// Verifies a full archive, or an incremental one on it. If they are not a pair, returns a report
/// with a failure.
fn verified(full: &Path, incremental: Option<&Path>) -> VerifyReport {
    let incremental = incremental.map(NamedArchive::from_path);
    let report = slotpress_read::verify(
        Snapshot::Archives { full: &NamedArchive::from_path(full), incremental: incremental.as_ref() },
        &options(&[]),
        &NoProgress,
    );
    report.unwrap_or_else(|error| {
        assert_eq!(error.kind(), ErrorKind::Usage, "{error}");
        VerifyReport::default()
    })
}

/// Makes a ledger and archives of an altered archive, and verifies each; `None` if it was not made.
fn made_of(altered: &Altered, dir: &Path) -> [Option<VerifyReport>; 3] {
    let full = put(dir, &altered.full.0, &altered.full.1);
    let incremental = altered.incremental.as_ref().map(|(name, bytes)| put(dir, name, bytes));
    let ledger = dir.join("ledger");
    let mut to_restore = RestoreOptions::new(&full, RestoreTarget::new(&ledger).threads(2));
    to_restore.incremental = incremental.clone().map(RestoreSource::from);
    let restored = restore(&to_restore, &NoProgress).ok().map(|_| {
        let paths = LedgerPaths { ledger, ..LedgerPaths::default() };
        slotpress_read::verify(Snapshot::ledger(&paths), &options(&[]), &NoProgress).expect("verified")
    });
    let recompressed = |source: &Path, base: Option<&Path>, to: &str| {
        let out = dir.join(to);
        std::fs::create_dir_all(&out).expect("made");
        let mut sink = DirSink::open(out).expect("opened");
        let mut options = RecompressOptions::default().encoding(EncodingOptions::default().threads(2));
        options.base = base.map(Path::to_path_buf);
        recompress(RecompressSource::File(source.to_path_buf()), &mut sink, &options, &NoProgress).ok()?.archive.path
    };
    let made = recompressed(&full, None, "full");
    let made_incremental = incremental.as_ref().and_then(|path| recompressed(path, Some(&full), "incremental"));
    [restored, made.map(|path| verified(&path, None)), made_incremental.map(|path| verified(&full, Some(&path)))]
}

#[test]
fn nothing_is_made_that_verify_refuses() {
    let mut counts = [0; 3];
    let mut wrong = Vec::new();
    let all: Vec<Altered> = corpus().into_iter().chain(altered_fields()).collect();
    for altered in &all {
        let dir = tempfile::tempdir().expect("a directory");
        let made = made_of(altered, dir.path());
        for (nth, (what, report)) in ["restore", "recompress", "recompress --base"].into_iter().zip(made).enumerate() {
            let Some(report) = report else { continue };
            counts[nth] += 1;
            // The full archive below a new incremental one is unchanged.
            let is_of_base = |path: &Path| nth == 2 && path.ends_with(&altered.full.0);
            let failure = report.failures.iter().find(|it| !it.place.path.as_deref().is_some_and(is_of_base));
            if let Some(failure) = failure {
                wrong.push(format!("{what} of {}: {:?}", altered.what, failure.rule));
            }
        }
    }
    eprintln!("{} altered archives; made: {counts:?} ledgers, archives, incremental archives", all.len());
    assert!(counts.iter().all(|count| *count > 0) && wrong.is_empty(), "{}:\n{}", wrong.len(), wrong.join("\n"));
}

/// Tries the whole corpus and every eighth altered field. A run takes a tenth of a second, mostly
/// waiting for the disk, so four run at a time.
fn each_of_a_sample(check: impl Fn(&Altered) -> Vec<String> + Sync) {
    let sample: Vec<Altered> = corpus().into_iter().chain(altered_fields().into_iter().step_by(8)).collect();
    let check = &check;
    let wrong: Vec<String> = thread::scope(|scope| {
        let parts = sample.chunks(sample.len().div_ceil(4));
        let threads: Vec<_> =
            parts.map(|part| scope.spawn(move || part.iter().flat_map(check).collect::<Vec<_>>())).collect();
        threads.into_iter().flat_map(|thread| thread.join().expect("checked")).collect()
    });
    assert!(wrong.is_empty(), "{} archives, {} wrong:\n{}", sample.len(), wrong.len(), wrong.join("\n"));
}

/// From a server: the ledger, and the archives beside it, which stay as they arrived. Only their
/// packing may be wrong, as with `restore`.
#[cfg(feature = "net")]
#[test]
fn nothing_is_bootstrapped_that_verify_refuses() {
    let count = AtomicUsize::new(0);
    each_of_a_sample(|altered| {
        let files: Files = altered.incremental.iter().chain([&altered.full]).cloned().collect();
        let server = serve(&files, Way::Ranges);
        let dir = tempfile::tempdir().expect("a directory");
        let ledger = dir.path().join("ledger");
        let mut to_bootstrap = BootstrapOptions::new([server.url("").parse().expect("a URL")], &ledger);
        to_bootstrap.restore = to_bootstrap.restore.threads(2);
        let Ok(report) =
            bootstrap(&Client::new(&ClientOptions::default()).expect("a client"), &to_bootstrap, &NoProgress)
        else {
            return Vec::new();
        };
        count.fetch_add(1, Relaxed);
        let paths = LedgerPaths { ledger, ..LedgerPaths::default() };
        let of_ledger =
            slotpress_read::verify(Snapshot::ledger(&paths), &options(&[]), &NoProgress).expect("verified").failures;
        let archives = &report.restore.archives;
        let mut failures = verified(&archives[0], archives.get(1).map(PathBuf::as_path)).failures;
        failures.retain(|failure| !failure.rule.is_only_packing());
        let wrong = of_ledger.iter().chain(&failures);
        wrong.map(|failure| format!("{}: {:?} in {:?}", altered.what, failure.rule, failure.place)).collect()
    });
    let count = count.into_inner();
    eprintln!("{count} ledgers");
    assert!(count > 0);
}

/// From a validator's directory: archives with a name in the target. With `--as-is`, an archive is
/// published if and only if `verify` accepts it.
#[cfg(all(feature = "serve", feature = "stores"))]
#[test]
fn nothing_is_published_that_verify_refuses() {
    let count = AtomicUsize::new(0);
    each_of_a_sample(|altered| {
        let mut wrong = Vec::new();
        for flags in [&[][..], &["--as-is"]] {
            let stage = Stage::new(&[]);
            let archives: Vec<PathBuf> = [Some(&altered.full), altered.incremental.as_ref()]
                .into_iter()
                .flatten()
                .map(|(name, bytes)| put(&stage.snapshots(), name, bytes))
                .collect();
            let output = stage.once(flags);
            let mut is_base_published = true;
            for (nth, archive) in archives.iter().enumerate() {
                let same_name = stage.mirror().join(archive.file_name().expect("a name"));
                let published = Some(same_name.with_extension("zst")).filter(|it| it.exists()).unwrap_or(same_name);
                // The state of an incremental archive alone is not checked.
                let report = |archive: &Path| match nth {
                    0 => verified(archive, None),
                    _ => slotpress_read::verify(
                        Snapshot::archive(&NamedArchive::from_path(archive)),
                        &options(&[]).check(CheckOptions::default().mode(CheckMode::Frames)),
                        &NoProgress,
                    )
                    .expect("verified"),
                };
                let is_published = published.exists();
                if is_published
                    && let report = report(&published)
                    && !report.ok
                {
                    wrong.push(format!("{flags:?} publishes {}: {}", altered.what, shown(&report)));
                }
                is_base_published &= is_published || nth > 0;
                let base_slot = ArchiveName::from_path(archive).and_then(|name| name.base_slot);
                let is_on_base = base_slot
                    .is_none_or(|slot| ArchiveName::from_path(&archives[0]).is_some_and(|full| full.slot == slot));
                let is_accepted = is_base_published && is_on_base && report(archive).ok;
                if flags.contains(&"--as-is") && is_published != is_accepted {
                    let said = String::from_utf8_lossy(&output.stderr);
                    wrong.push(format!("{flags:?} of {}: accepted: {is_accepted}; {said}", altered.what));
                }
                count.fetch_add(usize::from(is_published), Relaxed);
            }
        }
        wrong
    });
    let count = count.into_inner();
    eprintln!("{count} published archives");
    assert!(count > 0);
}
