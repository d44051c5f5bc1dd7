//! `restore`, `recompress`, `bootstrap` and `publish` are as strict as `verify`: none of them makes a ledger or an archive
//! that `verify` would refuse.

use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::thread;

use slotpress::archive::{DirSink, EncodingOptions};
use slotpress::recompress::{RecompressOptions, recompress};
use slotpress::restore::{RestoreOptions, TargetOptions, restore};
use slotpress_base::{ErrorKind, NoProgress};
use slotpress_read::{ArchiveInput, LocalArchive, Snapshot, VerifyReport};
#[cfg(feature = "net")]
use {
    crate::common::site::{Files, TransferMode, serve},
    slotpress::bootstrap::{BootstrapOptions, bootstrap},
    slotpress::net::{Client, ClientOptions},
};
#[cfg(all(feature = "serve", feature = "stores"))]
use {
    crate::publish::setup::Setup,
    slotpress_format::ArchiveName,
    slotpress_read::{CheckMode, CheckOptions},
};

use super::fields::altered_fields;
use crate::common::temp_dir;
use crate::verify::altered::{Altered, AlteredPaths, corpus};
use crate::verify::fixtures::*;

/// Verifies a full archive or a pair. For archives that are not a pair, returns a default report, whose `ok` is false.
fn verify_archives(full: &Path, incremental: Option<&Path>) -> VerifyReport {
    let report = slotpress_read::verify(&Snapshot::from_archives(full, incremental), &verify_options(&[]), &NoProgress);
    report.unwrap_or_else(|error| {
        assert_eq!(error.kind(), ErrorKind::Usage, "{error}");
        VerifyReport::default()
    })
}

/// A command, and the report on its result.
struct CommandResult {
    command: &'static str,
    /// `None` if the command failed.
    report: Option<VerifyReport>,
}

/// Makes a ledger and archives from an altered archive, and verifies each.
fn make_and_verify(altered: &Altered, dir: &Path) -> [CommandResult; 3] {
    let AlteredPaths { full, incremental } = altered.write_to(dir);
    let ledger = dir.join("ledger");
    let mut restore_options = RestoreOptions::new(&full, TargetOptions::new(&ledger).threads(2));
    restore_options.incremental = incremental.clone().map(LocalArchive::from);
    let restored = restore(&restore_options, &NoProgress).ok().map(|_| verify_ledger(&ledger));
    let recompress = |source: &Path, base: Option<&Path>, out: &str| {
        let out = dir.join(out);
        std::fs::create_dir_all(&out).expect("made");
        let mut sink = DirSink::open(out).expect("opened");
        let mut options = RecompressOptions::new(source).encoding(EncodingOptions::default().threads(2));
        options.base = base.map(ArchiveInput::from);
        recompress(&options, &mut sink, &NoProgress).ok()?.archive.path
    };
    let new_full = recompress(&full, None, "full");
    let new_incremental = incremental.as_ref().and_then(|path| recompress(path, Some(&full), "incremental"));
    let new_full = new_full.map(|path| verify_archives(&path, None));
    let new_incremental = new_incremental.map(|path| verify_archives(&full, Some(&path)));
    [
        CommandResult { command: "restore", report: restored },
        CommandResult { command: "recompress", report: new_full },
        CommandResult { command: "recompress --base", report: new_incremental },
    ]
}

#[test]
fn nothing_is_made_that_verify_refuses() {
    let mut counts = [0; 3];
    let mut wrong = Vec::new();
    let all: Vec<Altered> = corpus().into_iter().chain(altered_fields()).collect();
    for altered in &all {
        let dir = temp_dir();
        for (index, result) in make_and_verify(altered, dir.path()).into_iter().enumerate() {
            let CommandResult { command, report: Some(report) } = result else { continue };
            counts[index] += 1;
            // The full archive below a new incremental one is unchanged.
            let is_base = |path: &Path| command == "recompress --base" && path.ends_with(&altered.full.name);
            let mut failures = report.failures.iter();
            if let Some(failure) = failures.find(|failure| !failure.place.path.as_deref().is_some_and(is_base)) {
                wrong.push(format!("{command} of {}: {:?}", altered.label, failure.rule));
            }
        }
    }
    eprintln!("{} altered archives; made: {counts:?} ledgers, archives, incremental archives", all.len());
    assert!(counts.iter().all(|count| *count > 0), "{counts:?}");
    assert!(wrong.is_empty(), "{}:\n{}", wrong.len(), wrong.join("\n"));
}

/// Checks the whole corpus and every eighth altered field. `check` returns what is wrong. Four checks
/// run at a time, because a check mostly waits.
fn assert_each_of_a_sample(check: impl Fn(&Altered) -> Vec<String> + Sync) {
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

/// The archives beside a bootstrapped ledger are kept as they arrived, so only their packing may be
/// wrong, as with `restore`.
#[cfg(feature = "net")]
#[test]
fn nothing_is_bootstrapped_that_verify_refuses() {
    let count = AtomicUsize::new(0);
    assert_each_of_a_sample(|altered| {
        let files: Files = altered.files().map(|file| (file.name.clone(), file.bytes.clone())).collect();
        let server = serve(&files, TransferMode::Ranges);
        let dir = temp_dir();
        let ledger = dir.path().join("ledger");
        let mut options = BootstrapOptions::new([server.url("").parse().expect("a URL")], &ledger);
        options.target = options.target.threads(2);
        let client = Client::new(&ClientOptions::default()).expect("a client");
        let Ok(report) = bootstrap(&client, &options, &NoProgress) else { return Vec::new() };
        count.fetch_add(1, Relaxed);
        let mut failures = verify_ledger(&ledger).failures;
        let archives = &report.restore.archives;
        let of_archives = verify_archives(&archives[0], archives.get(1).map(PathBuf::as_path)).failures;
        failures.extend(of_archives.into_iter().filter(|failure| !is_only_packing(failure.rule)));
        failures.iter().map(|failure| format!("{}: {:?} in {:?}", altered.label, failure.rule, failure.place)).collect()
    });
    let count = count.into_inner();
    eprintln!("{count} ledgers");
    assert!(count > 0);
}

/// With `--as-is`, an archive in the validator's directory is published if and only if `verify` accepts it and its base,
/// if it has one, is published.
#[cfg(all(feature = "serve", feature = "stores"))]
#[test]
fn nothing_is_published_that_verify_refuses() {
    let count = AtomicUsize::new(0);
    assert_each_of_a_sample(|altered| {
        let mut wrong = Vec::new();
        for flags in [&[][..], &["--as-is"]] {
            let setup = Setup::new(&[]);
            let archives: Vec<PathBuf> =
                altered.files().map(|file| write_file(&setup.snapshots(), &file.name, &file.bytes)).collect();
            let output = setup.run_once(flags);
            let mut is_base_published = true;
            for (index, archive) in archives.iter().enumerate() {
                let same_name = setup.mirror().join(archive.file_name().expect("a name"));
                let recompressed = same_name.with_extension("zst");
                let published = if recompressed.exists() { recompressed } else { same_name };
                // The state of an incremental archive alone is not checked.
                let report = |archive: &Path| match index {
                    0 => verify_archives(archive, None),
                    _ => slotpress_read::verify(
                        &Snapshot::archive(archive),
                        &verify_options(&[]).check(CheckOptions::default().mode(CheckMode::Frames)),
                        &NoProgress,
                    )
                    .expect("verified"),
                };
                let is_published = published.exists();
                if is_published
                    && let report = report(&published)
                    && !report.ok
                {
                    wrong.push(format!("{flags:?} publishes {}: {}", altered.label, describe(&report)));
                }
                is_base_published &= is_published || index > 0;
                let base_slot = ArchiveName::from_path(archive).and_then(|name| name.base_slot);
                let is_on_base = base_slot
                    .is_none_or(|slot| ArchiveName::from_path(&archives[0]).is_some_and(|full| full.slot == slot));
                let is_accepted = is_base_published && is_on_base && report(archive).ok;
                if flags.contains(&"--as-is") && is_published != is_accepted {
                    let stderr = String::from_utf8_lossy(&output.stderr);
                    wrong.push(format!("{flags:?} of {}: accepted: {is_accepted}; {stderr}", altered.label));
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
