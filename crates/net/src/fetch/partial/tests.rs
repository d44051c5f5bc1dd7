//! Tests the partial file: which bytes are kept, and what readers see.

use std::fs;

use slotpress_format::ArchiveRoot;
use slotpress_read::{Publishable, Source};

use super::*;

const NAME: &str = "snapshot-1-x.tar.zst";

fn identity(length_bytes: u64) -> ArchiveIdentity {
    ArchiveIdentity { length_bytes: Some(length_bytes), etag: Some("\"a\"".to_string()), ..ArchiveIdentity::default() }
}

fn open(dir: &tempfile::TempDir) -> Result<PartialFile> {
    PartialFile::open(&Arc::new(KeptDir::open(dir.path())?), NAME)
}

fn write_all(file: &PartialFile, offset_bytes: u64, bytes: &[u8]) {
    assert_eq!(file.write(offset_bytes, bytes).expect("written"), bytes.len() as u64);
}

/// The copied descriptor represents a child process of another thread: between fork and exec, it has a
/// copy of every descriptor.
#[test]
fn a_copy_of_the_file_does_not_hold_the_lock() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = open(&dir).expect("made");
    let copy = file.file.try_clone().expect("a copy");
    assert!(open(&dir).is_err(), "it is in use");
    drop(file);
    open(&dir).expect("free again");
    drop(copy);
}

/// Bytes that arrive again over a slow connection do not replace marked ones.
#[test]
fn marked_bytes_are_not_overwritten() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = open(&dir).expect("made");
    file.restart(identity(100), Some(100)).expect("started");
    assert_eq!(file.write_marked(10, &[2; 40]).expect("written"), 40);
    assert_eq!(file.write_marked(0, &[3; 60]).expect("written"), 20);
    let mut content = [0; 60];
    file.read_exact_at(&mut content, 0).expect("there");
    assert_eq!(content, [[3; 10].as_slice(), &[2; 40], &[3; 10]].concat().as_slice());
}

/// After a failed check, the next run compares frames with their hashes, and fetches the end again. Without a
/// root, there are no hashes, and it fetches everything.
#[test]
fn after_a_failed_check_the_end_is_not_kept() {
    const LENGTH: u64 = 4 << 20;
    for (root, kept_ranges) in
        [(Some(ArchiveRoot::new(1, [])), [0..1 << 20].into_iter().collect()), (None, RangeSet::new())]
    {
        let dir = tempfile::tempdir().expect("a directory");
        let file = open(&dir).expect("made");
        file.restart(ArchiveIdentity { root, ..identity(LENGTH) }, None).expect("started");
        for range in [0..1 << 20, LENGTH - 100..LENGTH] {
            write_all(&file, range.start, &vec![1; range_bytes(&range) as usize]);
            file.mark(range);
        }
        file.distrust().expect("noted");
        file.distrust().expect("noted already");
        drop(file);
        let file = open(&dir).expect("opened");
        assert_eq!((file.identity(), file.done_ranges()), (identity(LENGTH), kept_ranges));
    }
}

/// The next run keeps synced bytes, and fetches others again. Only one run can open the file.
#[test]
fn synced_bytes_are_kept() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = open(&dir).expect("made");
    file.restart(identity(100), Some(100)).expect("started");
    write_all(&file, 40, &[4; 20]);
    file.mark(40..60);
    file.sync().expect("synced");
    write_all(&file, 0, &[1; 10]);
    file.mark(0..10);
    assert_eq!(file.wait_for_unsynced(10, Duration::ZERO), Some(10));
    assert!(open(&dir).expect_err("locked").to_string().contains("another slotpress"));
    drop(file);

    let file = open(&dir).expect("opened");
    assert_eq!((file.done_ranges(), file.identity()), ([40..60].into_iter().collect(), identity(100)));
    file.begin(identity(100), Some(100)).expect("started");
    assert_eq!((file.done_bytes(), file.unchecked_ranges()), (0, [40..60].into_iter().collect()));
    file.keep_checked(identity(100), [40..60]);
    let mut content = vec![0; 20];
    file.read_exact_at(&mut content, 40).expect("there");
    assert_eq!(content, [4; 20]);
    // Another archive: nothing is kept.
    file.restart(identity(90), Some(90)).expect("started");
    assert_eq!(file.done_bytes(), 0);
    drop(file);
    let file = open(&dir).expect("opened");
    assert_eq!((file.done_bytes(), file.identity()), (0, identity(90)));
    file.remove().expect("removed");
    assert_eq!(fs::read_dir(dir.path()).expect("read").count(), 0);
}

#[test]
fn readers_wait_for_bytes() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = open(&dir).expect("made");
    file.restart(identity(1000), Some(1000)).expect("started");
    assert_eq!(file.length_bytes(), Some(1000));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for number in (0..10).rev() {
                write_all(&file, number * 100, &[number as u8; 100]);
                file.mark(number * 100..number * 100 + 100);
            }
            file.end(Ok(()));
        });
        let mut all = vec![9; 1000];
        file.read_exact_at(&mut all, 0).expect("read");
        assert!(all.chunks(100).enumerate().all(|(number, piece)| piece.iter().all(|byte| *byte == number as u8)));
        assert_eq!(file.read_at(&mut all, 1000).expect("the end"), 0);
    });
    assert!(file.publish(NAME).expect_err("not accepted").to_string().contains("accepted"));
    file.accept();
    assert!(file.publish("snapshot-2-x.tar.zst").expect_err("a different one").to_string().contains("accepted"));
    let path = file.publish(NAME).expect("published");
    assert_eq!((fs::read(&path).expect("read").len(), fs::read_dir(dir.path()).expect("read").count()), (1000, 1));
}

#[test]
fn readers_get_the_error_of_the_download() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = open(&dir).expect("made");
    file.restart(identity(1000), Some(1000)).expect("started");
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| file.read_at(&mut [0], 5));
        file.end(Err(Error::failed("the cable is cut")));
        let error = reader.join().expect("ends").expect_err("nothing came");
        assert!(error.to_string().contains("the cable is cut"));
    });
    // If bytes arrive in order and without a length, the length is known at the end.
    file.restart(ArchiveIdentity::default(), None).expect("started");
    assert_eq!(file.length_bytes(), None);
    write_all(&file, 0, b"abc");
    file.mark(0..3);
    file.end(Ok(()));
    assert_eq!((file.length_bytes(), file.read_at(&mut [0; 9], 0).expect("read")), (Some(3), 3));
}

/// A link in place of the file is not followed.
#[test]
fn a_link_is_refused() {
    let dir = tempfile::tempdir().expect("a directory");
    std::os::unix::fs::symlink("/etc/passwd", dir.path().join(format!("{FETCH_PREFIX}{NAME}"))).expect("linked");
    assert!(open(&dir).is_err());
}
