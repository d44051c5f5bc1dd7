//! Kinds of errors, which tell a caller what to do.

use std::fs;
use std::os::fd::AsFd;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use needs::needs;
use rustix::fs::FlockOperation;
use rustix::thread::{CapabilitySet, capabilities, set_capabilities};
use slotpress::archive::{ArchiveOptions, DirSink, archive};
use slotpress::recompress::{RecompressOptions, recompress};
use slotpress::restore::{RestoreOptions, TargetOptions, restore};
use slotpress::verify::{VerifyOptions, verify};
use slotpress::{ErrorKind, LedgerPaths, NoProgress, Result, Snapshot};

use crate::common::{Disk, FULL_26, fixture, ledger, relative_paths, temp_dir};

/// Returns the kind of an error, which must have a hint.
fn error_kind<T>(result: Result<T>) -> ErrorKind {
    let error = result.err().expect("refused");
    assert!(error.hint().is_some(), "no advice: {error}");
    error.kind()
}

fn recompress_error_kind(source: &Path, dir: &Path) -> ErrorKind {
    let mut sink = DirSink::open(dir).expect("opened");
    error_kind(recompress(&RecompressOptions::new(source), &mut sink, &NoProgress))
}

fn restore_error_kind(ledger: &Path) -> ErrorKind {
    error_kind(restore(&RestoreOptions::new(fixture(FULL_26), ledger), &NoProgress))
}

/// The disk is too small for the plan, or the file system has space but no free inodes.
#[test]
fn a_full_disk_has_its_own_kind() {
    needs!("sys_admin", "mount", "umount");
    let ledger = ledger("ledger-at-26");
    for options in ["size=64k", "size=64m,nr_inodes=8"] {
        let disk = Disk::mount(options);
        let target = disk.path().join("ledger");
        assert_eq!(restore_error_kind(&target), ErrorKind::NoSpace, "{options}");
        assert_eq!(relative_paths(disk.path()), Vec::<String>::new(), "{options}");
    }
    let disk = Disk::mount("size=64k");
    let archived =
        archive(&ArchiveOptions::new(ledger.path()), &mut DirSink::open(disk.path()).expect("opened"), &NoProgress);
    assert_eq!(error_kind(archived), ErrorKind::NoSpace);
    assert_eq!(recompress_error_kind(&fixture(FULL_26), disk.path()), ErrorKind::NoSpace);
    assert_eq!(relative_paths(disk.path()), Vec::<String>::new());
}

#[test]
fn a_ledger_of_a_validator_is_in_use() {
    let ledger = ledger("ledger-at-26");
    let out = temp_dir();
    let lock = fs::File::create(ledger.path().join("ledger.lock")).expect("made");
    lock.lock().expect("locked");
    let archive_ledger =
        || archive(&ArchiveOptions::new(ledger.path()), &mut DirSink::open(out.path()).expect("opened"), &NoProgress);
    assert_eq!(error_kind(archive_ledger()), ErrorKind::InUse);
    assert_eq!(restore_error_kind(ledger.path()), ErrorKind::InUse);
    lock.unlock().expect("unlocked");
    archive_ledger().expect("archived");
}

/// A container can see the ledger of a running validator on a read-only mount.
#[test]
fn a_ledger_of_a_validator_is_in_use_on_a_read_only_file_system() {
    needs!("sys_admin", "mount", "umount");
    let disk = Disk::mount("size=64m");
    let out = temp_dir();
    fs::write(disk.path().join("ledger.lock"), "").expect("written");
    let lock = fs::File::open(disk.path().join("ledger.lock")).expect("opened");
    lock.lock().expect("locked");
    disk.remount("ro");
    let archived =
        archive(&ArchiveOptions::new(disk.path()), &mut DirSink::open(out.path()).expect("opened"), &NoProgress);
    assert_eq!(error_kind(archived), ErrorKind::InUse);
    let paths = LedgerPaths::new(disk.path());
    let verified = verify(&Snapshot::ledger(paths), &VerifyOptions::default(), &NoProgress);
    assert_eq!(error_kind(verified), ErrorKind::InUse);
}

#[test]
fn accounts_of_another_restore_are_in_use() {
    let dir = temp_dir();
    let accounts = dir.path().join("accounts");
    fs::create_dir(&accounts).expect("made");
    let held = fs::File::open(&accounts).expect("opened");
    rustix::fs::flock(held.as_fd(), FlockOperation::LockExclusive).expect("locked");
    let mut paths = LedgerPaths::new(dir.path().join("ledger"));
    paths.accounts = vec![accounts];
    let target = TargetOptions::new(paths.ledger.clone()).paths(paths);
    let options = RestoreOptions::new(fixture(FULL_26), target);
    assert_eq!(error_kind(restore(&options, &NoProgress)), ErrorKind::InUse);
    rustix::fs::flock(held.as_fd(), FlockOperation::Unlock).expect("unlocked");
    restore(&options, &NoProgress).expect("restored");
}

#[cfg(feature = "net")]
#[test]
fn a_partial_file_of_another_download_is_in_use() {
    use slotpress::net::{Client, ClientOptions, FetchOptions, fetch};

    use crate::common::site::{TransferMode, files_in, serve};
    let from = temp_dir();
    let dir = temp_dir();
    fs::copy(fixture(FULL_26), from.path().join(FULL_26)).expect("copied");
    let server = serve(&files_in(from.path()), TransferMode::Ranges);
    let client = Client::new(&ClientOptions::default()).expect("a client");
    let source = server.url(&format!("/{FULL_26}")).parse().expect("a source");
    let options = FetchOptions::new([source], dir.path());
    let partial = fs::File::create(dir.path().join(format!("slotpress-fetch-{FULL_26}"))).expect("made");
    partial.lock().expect("locked");
    assert_eq!(error_kind(fetch(&client, &options, &NoProgress)), ErrorKind::InUse);
    partial.unlock().expect("unlocked");
    fetch(&client, &options, &NoProgress).expect("fetched");
}

#[cfg(feature = "serve")]
#[test]
fn a_port_of_another_server_is_in_use() {
    use slotpress::serve::{ServeOptions, serve};
    let dir = temp_dir();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("bound");
    let options = ServeOptions::new([dir.path()], taken.local_addr().expect("an address"));
    assert_eq!(error_kind(serve(&options, &NoProgress, |_| ())), ErrorKind::InUse);
}

/// The modes of files apply even if the tests run as root.
#[test]
fn files_of_another_user_are_denied() {
    let dir = temp_dir();
    let out = temp_dir();
    let path = dir.path().join(FULL_26);
    fs::copy(fixture(FULL_26), &path).expect("copied");
    let set_mode =
        |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("permissions");
    set_mode(out.path(), 0o555);
    without_rights_of_root(|| {
        assert_eq!(recompress_error_kind(&path, out.path()), ErrorKind::PermissionDenied);
        set_mode(&path, 0);
        let verified = verify(&Snapshot::archive(&path), &VerifyOptions::default(), &NoProgress);
        assert_eq!(error_kind(verified), ErrorKind::PermissionDenied);
    });
    set_mode(out.path(), 0o755);
}

#[test]
fn a_read_only_file_system_is_denied() {
    needs!("sys_admin", "mount", "umount");
    let disk = Disk::mount("size=64m");
    disk.remount("ro");
    assert_eq!(recompress_error_kind(&fixture(FULL_26), disk.path()), ErrorKind::PermissionDenied);
    assert_eq!(restore_error_kind(&disk.path().join("ledger")), ErrorKind::PermissionDenied);
}

/// Runs `work` on a thread without root's rights, so that the modes of files apply to that thread and to
/// those that it starts.
fn without_rights_of_root(work: impl FnOnce() + Send) {
    std::thread::scope(|scope| {
        let run_without_rights = move || {
            let mut sets = capabilities(None).expect("known");
            sets.effective -= CapabilitySet::DAC_OVERRIDE | CapabilitySet::DAC_READ_SEARCH;
            set_capabilities(None, sets).expect("dropped");
            work();
        };
        scope.spawn(run_without_rights).join().expect("no panic");
    });
}
