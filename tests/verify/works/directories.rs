//! A directory of archives.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use slotpress::catalog::{Archive, Catalog};
use slotpress::check::{ArchiveBase, SnapshotClient};
use slotpress::{
    ArchiveName, CheckMode, CheckOptions, ErrorKind, NamedArchive, NoProgress, Result, Source, VerifyOptions,
    VerifyReport, verify_archives, verify_catalog,
};

use crate::common::listed::objects;
use crate::common::served::two_archives;
use crate::common::*;
use crate::verify::altered::{corpus, incrementals};
use crate::verify::fixtures::{FULL, INCREMENTAL};

/// All archives of a directory are verified, with one line each.
#[test]
fn a_directory_is_verified() {
    let dir = two_archives();
    let verify = || {
        let output = slotpress().arg("verify").arg(dir.path()).output().expect("runs");
        (output.status.code(), String::from_utf8(output.stdout).expect("text"))
    };
    let (code, said) = verify();
    assert_eq!((code, said.lines().filter(|line| line.starts_with("ok  ")).count()), (Some(0), 2), "{said}");
    let mut bytes = fs::read(fixture(FULL_26)).expect("read");
    fs::write(dir.path().join(FULL_26.replace("-26-", "-9-")), &bytes[..bytes.len() / 2]).expect("written");
    let at = bytes.len() / 2;
    bytes[at] ^= 1;
    fs::write(dir.path().join(FULL_26.replace("-26-", "-27-")), &bytes).expect("written");
    let (code, said) = verify();
    assert_eq!(code, Some(3), "{said}");
    let failed: Vec<&str> = said.lines().filter(|line| line.starts_with("FAILED  ")).collect();
    assert!(failed.len() == 2 && failed[0].contains("-27-") && failed[1].contains("it has no end"), "{said}");
}

/// Faults of a full archive are not reported for the incremental one on it.
#[test]
fn a_good_archive_is_not_blamed_for_its_full_one() {
    let bytes = fs::read(fixture(FULL_26)).expect("read");
    let (mut flipped, cut) = (bytes.clone(), &bytes[..bytes.len() / 2]);
    flipped[bytes.len() / 2] ^= 1;
    for damaged in [&flipped, cut] {
        let dir = two_archives();
        fs::write(dir.path().join(FULL_26), damaged).expect("written");
        let verify = |flags: &[&str]| {
            let output = slotpress().arg("verify").arg(dir.path()).args(flags).output().expect("runs");
            let said = [output.stdout, output.stderr].map(|bytes| String::from_utf8(bytes).expect("text"));
            (output.status.code(), said)
        };
        let (code, [said, errors]) = verify(&[]);
        let lines: Vec<&str> = said.lines().filter(|line| line.starts_with("FAILED  ")).collect();
        assert!(code == Some(3) && lines.len() == 1 && lines[0].contains(FULL_26), "{said}");
        let path = dir.path().join(INCREMENTAL_26_40);
        let expected = format!("not checked  {}: its full archive {FULL_26} is damaged", path.display());
        assert!(said.lines().any(|line| line.starts_with(&expected)), "{said}");
        assert!(errors.contains("1 of 2 archives in "), "{errors}");
        let (_, [quiet, _]) = verify(&["-q"]);
        assert!(!quiet.lines().any(|line| line == path.display().to_string()), "what -q prints is good: {quiet}");
        let (_, [json, _]) = verify(&["--json"]);
        let line = objects(json.as_bytes()).into_iter().find(|line| line["type"] == "archive_not_checked");
        assert_eq!(line.expect("a line")["reason"], format!("its full archive {FULL_26} is damaged"));
        // A good copy elsewhere in the directory is used.
        fs::create_dir(dir.path().join("remote")).expect("made");
        fs::copy(fixture(FULL_26), dir.path().join("remote").join(FULL_26)).expect("copied");
        let (_, [said, _]) = verify(&[]);
        assert!(said.contains(&format!("ok      {}\n", path.display())), "{said}");
        // Its own faults are reported.
        let mut own = fs::read(&path).expect("read");
        let middle = own.len() / 2;
        own[middle] ^= 1;
        fs::write(&path, own).expect("written");
        let (_, [said, _]) = verify(&[]);
        assert!(said.contains(&format!("FAILED  {}", path.display())), "{said}");
    }
}

/// An incremental archive without its full one is not reported as good, unless only frames are
/// checked.
#[test]
fn an_incremental_archive_alone_is_not_reported_as_good() {
    let dir = two_archives();
    fs::remove_file(dir.path().join(FULL_26)).expect("removed");
    let verify = |flags: &[&str]| {
        let output = slotpress().arg("verify").arg(dir.path()).args(flags).output().expect("runs");
        let said = [output.stdout, output.stderr].map(|bytes| String::from_utf8(bytes).expect("text"));
        (output.status.code(), said)
    };
    let path = dir.path().join(INCREMENTAL_26_40).display().to_string();
    let why = "its full archive is not here";
    let (code, [said, errors]) = verify(&[]);
    assert_eq!((code, said), (Some(1), format!("not checked  {path}: {why}; its frames and files are good\n")));
    let errors = errors.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(errors.contains(&format!("its state was not checked: {why}")), "{errors}");
    assert!(errors.contains("hint: give its full archive too, or check only frames: --check frames"), "{errors}");
    assert_eq!(verify(&["-q"]).1[0], "", "what -q prints is good");
    let (code, [json, _]) = verify(&["--json"]);
    let line = objects(json.as_bytes()).into_iter().find(|line| line["type"] == "archive_not_checked");
    assert_eq!((code, &line.expect("a line")["reason"]), (Some(1), &why.into()));
    for flags in [&["--check", "frames"], &["--quick", "--check=state"]] {
        assert_eq!(verify(flags).1[0], format!("ok      {path}\n"));
        assert_eq!(verify(flags).0, Some(0));
    }
    let catalog = slotpress::catalog::scan(&[dir.path().into()]).expect("scanned");
    let open = |archive: &Archive, _| Ok(NamedArchive::from_path(archive.path()));
    let verdict = verify_catalog(&catalog, &open, &VerifyOptions::default(), &NoProgress, &mut |_| {});
    let error = verdict.expect("verified").require_ok("here").expect_err("not checked");
    assert_eq!(error.kind(), ErrorKind::Failed, "{error}");
}

/// Archives in directories of their own, because many have the same name.
struct Directory(tempfile::TempDir, Vec<Archive>);

impl Directory {
    fn new() -> Self {
        Self(temp_dir(), Vec::new())
    }

    fn add(&mut self, name: &str, bytes: &[u8]) {
        let dir = self.0.path().join(self.1.len().to_string());
        fs::create_dir(&dir).expect("made");
        fs::write(dir.join(name), bytes).expect("written");
        let name = ArchiveName::parse(name).expect("a name");
        self.1.push(Archive::of_server(name, dir.to_str().expect("text"), bytes.len() as u64));
    }

    /// Returns the verdict on each archive without times, and whether its full archive was good.
    fn verify(&self, options: &VerifyOptions) -> Vec<(PathBuf, String)> {
        let catalog = Catalog::with_copies(self.1.clone());
        let open = |archive: &Archive, _| Ok(NamedArchive::from_path(archive.path()));
        let mut verdicts = Vec::new();
        verify_catalog(&catalog, &open, options, &NoProgress, &mut |verdict| {
            let base = match verdict.base {
                ArchiveBase::Good(full) => full.path().display().to_string(),
                ArchiveBase::Damaged(name) => format!("damaged: {name}"),
                other => format!("{other:?}"),
            };
            verdicts.push((verdict.archive.path(), format!("{base}: {}", told(&verdict.report))));
        })
        .expect("verified");
        verdicts
    }

    /// Returns the same for each archive with its full one alone, in the order of the catalog.
    fn verify_alone(&self, options: &VerifyOptions) -> Vec<(PathBuf, String)> {
        let catalog = Catalog::with_copies(self.1.clone());
        let mut good: Vec<PathBuf> = Vec::new();
        let mut damaged: Vec<String> = Vec::new();
        let one = |archive: &Archive| {
            let named = NamedArchive::from_path(archive.path());
            let verify = |full: &NamedArchive, incremental| verify_archives(full, incremental, options, &NoProgress);
            let frames = || {
                let check = options.check.clone().mode(CheckMode::Frames);
                verify_with(&named, &options.clone().check(check))
            };
            match archive.name.base_slot {
                None => {
                    let report = verify(&named, None);
                    let is_damaged =
                        report.as_ref().map_or_else(|error| error.kind() == ErrorKind::Damaged, |it| !it.ok);
                    match is_damaged {
                        true => damaged.push(archive.name.to_string()),
                        false => good.push(archive.path()),
                    }
                    format!("Itself: {}", told(&report))
                }
                Some(_) => match (good.first(), damaged.first()) {
                    (Some(full), _) => {
                        let report = verify(&NamedArchive::from_path(full), Some(&named));
                        format!("{}: {}", full.display(), told(&report))
                    }
                    (None, Some(name)) => format!("damaged: {name}: {}", told(&frames())),
                    (None, None) => format!("Missing: {}", told(&frames())),
                },
            }
        };
        let verdicts: Vec<String> = catalog.archives().iter().map(one).collect();
        catalog.archives().iter().map(Archive::path).zip(verdicts).collect()
    }
}

fn verify_with(named: &NamedArchive, options: &VerifyOptions) -> Result<VerifyReport> {
    verify_archives(named, None, options, &NoProgress)
}

/// Returns a report in words, without times.
fn told(report: &Result<VerifyReport>) -> String {
    match report {
        Err(error) => format!("{:?}: {error}", error.kind()),
        Ok(report) => {
            let mut value = serde_json::to_value(report).expect("JSON");
            let fields = value.as_object_mut().expect("an object");
            fields.retain(|name, _| !["elapsed_seconds", "cpu_seconds", "spilled_bytes"].contains(&name.as_str()));
            format!("{value:#}")
        }
    }
}

fn assert_same(directory: &Directory, options: &VerifyOptions, what: &str) {
    let (together, alone) = (directory.verify(options), directory.verify_alone(options));
    assert_eq!(together.len(), alone.len());
    for ((path, together), (_, alone)) in together.iter().zip(&alone) {
        assert!(together == alone, "{what}, {}:\n{together}\n\nalone:\n{alone}", path.display());
    }
}

/// Returns all options on which a verdict may depend.
fn ways() -> [(&'static str, VerifyOptions); 5] {
    let of_clients = |clients: &[SnapshotClient]| VerifyOptions::default().clients(clients);
    let state = VerifyOptions::default().threads(2);
    [
        ("the state", state.clone()),
        ("frames", state.clone().check(CheckOptions::default().mode(CheckMode::Frames))),
        ("quick", state.is_quick(true)),
        ("for Agave 4.4", of_clients(&[SnapshotClient::Agave44])),
        ("for Firedancer", of_clients(&[SnapshotClient::Firedancer])),
    ]
}

/// Many altered incremental archives on one full archive that is read once: each verdict equals
/// that on the pair alone, finding by finding.
#[test]
fn a_verdict_is_that_on_the_archive_alone() {
    let full = fs::read(fixture(FULL)).expect("the fixture");
    let altered = incrementals();
    for (nth, some) in altered.chunks(40).enumerate() {
        let mut directory = Directory::new();
        directory.add(FULL, &full);
        some.iter().for_each(|(_, bytes)| directory.add(INCREMENTAL, bytes));
        let (first, last) = (&some[0].0, &some[some.len() - 1].0);
        for (way, options) in ways().iter().take(if nth % 3 == 0 { 5 } else { 1 }) {
            assert_same(&directory, options, &format!("{way}, {first} to {last}"));
        }
    }
}

/// Altered full archives below incremental ones, one of which is damaged, with and without a good
/// copy.
#[test]
fn a_damaged_full_archive_is_told_as_alone() {
    let [full, incremental] = [FULL, INCREMENTAL].map(|name| fs::read(fixture(name)).expect("the fixture"));
    let mut flipped = incremental.clone();
    flipped[incremental.len() / 2] ^= 1;
    let of_one_name =
        |altered: &crate::verify::altered::Altered| altered.incremental.is_none() && altered.full.0 == FULL;
    for (nth, altered) in corpus().into_iter().filter(of_one_name).step_by(2).enumerate() {
        let mut directory = Directory::new();
        directory.add(FULL, &altered.full.1);
        if nth % 4 == 0 {
            directory.add(FULL, &full);
        }
        [&incremental, &flipped].into_iter().for_each(|bytes| directory.add(INCREMENTAL, bytes));
        let ways = ways();
        let (way, options) = &ways[[0, 0, 3, 0, 4, 1, 0, 2][nth % 8]];
        assert_same(&directory, options, &format!("{way}, {}", altered.what));
    }
}

/// A file that counts the bytes read from it.
#[derive(Debug)]
struct Counted(PathBuf, Vec<u8>, AtomicU64);

impl Source for Counted {
    fn path(&self) -> &Path {
        &self.0
    }

    fn length_bytes(&self) -> Option<u64> {
        Some(self.1.len() as u64)
    }

    fn read_at(&self, to: &mut [u8], offset_bytes: u64) -> std::io::Result<usize> {
        let rest = self.1.get(offset_bytes as usize..).unwrap_or_default();
        let count = rest.len().min(to.len());
        to[..count].copy_from_slice(&rest[..count]);
        self.2.fetch_add(count as u64, Relaxed);
        Ok(count)
    }
}

/// A stream that a server sends once, and the number of open ones.
#[derive(Debug)]
struct Sent(Counted, Arc<AtomicU64>);

impl Source for Sent {
    fn path(&self) -> &Path {
        self.0.path()
    }

    fn length_bytes(&self) -> Option<u64> {
        self.0.length_bytes()
    }

    fn read_at(&self, to: &mut [u8], offset_bytes: u64) -> std::io::Result<usize> {
        self.0.read_at(to, offset_bytes)
    }

    fn is_stream(&self) -> bool {
        true
    }
}

impl Drop for Sent {
    fn drop(&mut self) {
        self.1.fetch_sub(1, Relaxed);
    }
}

/// A server ends a connection that stalls for long, so streams must not wait for each other.
#[test]
fn streams_do_not_wait_for_each_other() {
    let mut directory = Directory::new();
    let incremental = fs::read(fixture(INCREMENTAL)).expect("the fixture");
    directory.add(FULL, &fs::read(fixture(FULL)).expect("the fixture"));
    (0..3).for_each(|_| directory.add(INCREMENTAL, &incremental));
    let (open_streams, most) = (Arc::new(AtomicU64::new(0)), AtomicU64::new(0));
    let open = |archive: &Archive, _| {
        most.fetch_max(open_streams.fetch_add(1, Relaxed) + 1, Relaxed);
        let counted = Counted(archive.path(), fs::read(archive.path()).expect("read"), AtomicU64::new(0));
        let source = Arc::new(Sent(counted, open_streams.clone()));
        Ok(NamedArchive::from_source(source, Some(archive.name.clone())))
    };
    let options = VerifyOptions::default().check(CheckOptions::default().mode(CheckMode::Frames));
    let catalog = Catalog::with_copies(directory.1.clone());
    let verdict = verify_catalog(&catalog, &open, &options, &NoProgress, &mut |verdict| {
        assert!(verdict.report.as_ref().is_ok_and(|report| report.ok), "{:?}", verdict.report);
    });
    verdict.and_then(|verdict| verdict.require_ok("there")).expect("all are good");
    assert_eq!((most.load(Relaxed), open_streams.load(Relaxed)), (2, 0), "as many as are verified together");
}

#[test]
fn a_full_archive_is_read_once_for_all_on_it() {
    let [full, incremental] = [FULL, INCREMENTAL].map(|name| fs::read(fixture(name)).expect("the fixture"));
    let mut damaged = crate::verify::fixtures::Tar::read(INCREMENTAL);
    let at = damaged.storages()[2];
    damaged.members[at].content[48] ^= 1;
    let damaged = crate::verify::fixtures::zstd(&damaged.write());
    let read_bytes = |incrementals: &[&[u8]]| {
        let mut directory = Directory::new();
        directory.add(FULL, &full);
        incrementals.iter().for_each(|bytes| directory.add(INCREMENTAL, bytes));
        let counted = Arc::new(Counted(directory.1[0].path(), full.clone(), AtomicU64::new(0)));
        let open = |archive: &Archive, _| match archive.is_full() {
            true => Ok(NamedArchive::from_source(counted.clone(), Some(archive.name.clone()))),
            false => Ok(NamedArchive::from_path(archive.path())),
        };
        let catalog = Catalog::with_copies(directory.1.clone());
        let options = VerifyOptions::default();
        let mut checked = 0;
        verify_catalog(&catalog, &open, &options, &NoProgress, &mut |verdict| {
            let report = verdict.report.as_ref().expect("verified");
            checked += usize::from(report.was_made(slotpress::check::Check::State));
        })
        .expect("verified");
        assert_eq!(checked, 1 + incrementals.len());
        counted.2.load(Relaxed)
    };
    let once = read_bytes(&[]);
    assert_eq!(read_bytes(&[&incremental, &incremental, &incremental, &damaged]), once);
}
