//! One book of rules, at one strictness: nothing is made of an archive that `verify` would refuse of what was made.

use std::path::Path;

use slotpress::{RecompressOptions, RecompressSource, RestoreOptions, RestoreTarget, Sink, recompress, restore};
use slotpress_base::NoProgress;
use slotpress_format::LedgerPaths;
use slotpress_read::{NamedArchive, VerifyReport, verify_archives, verify_ledger};

use super::altered::{Altered, corpus};
use super::fields::altered_fields;
use super::fixtures::*;

/// The ledger and the archives that are made of an altered archive, and what verifying says of each; `None`: not made.
fn made_of(altered: &Altered, dir: &Path) -> [Option<VerifyReport>; 3] {
    let full = put(dir, &altered.full.0, &altered.full.1);
    let incremental = altered.incremental.as_ref().map(|(name, bytes)| put(dir, name, bytes));
    let ledger = dir.join("ledger");
    let mut to_restore = RestoreOptions::new(&full, RestoreTarget::new(&ledger).threads(2));
    to_restore.incremental = incremental.clone();
    let restored = restore(&to_restore, &NoProgress).ok().map(|_| {
        let paths = LedgerPaths { ledger, ..LedgerPaths::default() };
        verify_ledger(&paths, None, None, &options(&[]), &NoProgress).expect("verified")
    });
    let recompressed = |source: &Path, base: Option<&Path>, to: &str| {
        let out = dir.join(to);
        std::fs::create_dir_all(&out).expect("made");
        let sink = Sink::dir(out);
        let mut options = RecompressOptions::default().threads(2);
        options.base = base.map(Path::to_path_buf);
        recompress(RecompressSource::File(source.to_path_buf()), sink, &options, &NoProgress).ok()?.path
    };
    let verified = |full: &Path, incremental: Option<&Path>| {
        let incremental = incremental.map(NamedArchive::from_path);
        verify_archives(&NamedArchive::from_path(full), incremental.as_ref(), &options(&[]), &NoProgress)
            .expect("verified")
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
            // The full archive below a new incremental one is what it was.
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
