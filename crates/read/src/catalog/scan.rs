//! Scans directories and opens their files. No symbolic link below the given directory is followed.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;
pub use slotpress_base::kept_dir::modified_ns;
use slotpress_base::{Error, EscapePath, IoContext, IoPolicy, KeptDir, Result};
use slotpress_format::{ArchiveName, BankFile, LISTING_PATH};

use super::list_parser::{LIST_BYTES_MAX, parse_list};
use super::usable::judge_file;
use super::{Catalog, FileFault, FileId, ListedArchive, REMOTE_DIR, UnusableFile, unix_ns};
use crate::archive::front;
use crate::{LocalFile, OpenArchive};

/// Limit on the archives of one scan: validators keep six, mirrors a few hundred.
const ARCHIVES_MAX: usize = 10_000;

/// Lists the archives in directories, and in the directory `remote` of each. If several files have
/// the same name, keeps the first usable one. [Judges](super::usable::judge_source) each file with a few
/// reads. Does not read bank files: [`read_bank_times`] does.
///
/// # Errors
/// A directory cannot be read, or there are too many archives.
pub fn scan(dirs: &[impl AsRef<Path>]) -> Result<Catalog> {
    let dirs: Vec<PathBuf> = dirs.iter().map(|dir| dir.as_ref().to_path_buf()).collect();
    scan_again(&dirs, &Catalog::default())
}

/// Like [`scan`], but reuses what is `known` about unchanged files.
///
/// # Errors
/// See [`scan`].
pub fn scan_again(dirs: &[PathBuf], known: &Catalog) -> Result<Catalog> {
    let (archives, unusable) = scan_and_judge(dirs, known)?;
    Ok(Catalog { unusable, ..Catalog::new(archives) })
}

/// Like [`scan`], but keeps all files that have the same name.
///
/// # Errors
/// See [`scan`].
pub fn scan_with_copies(dirs: &[PathBuf]) -> Result<Catalog> {
    let (archives, unusable) = scan_and_judge(dirs, &Catalog::default())?;
    Ok(Catalog { unusable, ..Catalog::with_copies(archives) })
}

/// Lists archives by their names alone, without judging whether they are usable.
///
/// # Errors
/// See [`scan`].
pub fn scan_names(dirs: &[PathBuf]) -> Result<Catalog> {
    Ok(Catalog::with_copies(find_archives(dirs)?))
}

fn scan_and_judge(dirs: &[PathBuf], known: &Catalog) -> Result<(Vec<ListedArchive>, Vec<UnusableFile>)> {
    // This is a map, because `serve` scans every second, and a directory may hold thousands of archives.
    let known_usable = known.archives.iter().map(|archive| (archive, None));
    let known_unusable = known.unusable.iter().map(|unusable| (&unusable.archive, Some(unusable.fault)));
    let known_by_path: HashMap<PathBuf, (&ListedArchive, Option<FileFault>)> =
        known_usable.chain(known_unusable).map(|(archive, fault)| (archive.path(), (archive, fault))).collect();
    let identity =
        |archive: &ListedArchive| (archive.is_remote, archive.file_id, archive.size_bytes, archive.modified_ns);
    let mut archives = Vec::new();
    let mut unusable = Vec::new();
    for archive in find_archives(dirs)? {
        let known_file = known_by_path.get(&archive.path()).filter(|(file, _)| identity(file) == identity(&archive));
        let judged = match known_file {
            Some((known_archive, None)) => Ok((*known_archive).clone()),
            Some((_, Some(fault))) if *fault != FileFault::Unreadable => Err(*fault),
            // A file that could not be read may be readable now.
            _ => judge_file(&archive).map(|hashes| ListedArchive { hashes, ..archive.clone() }),
        };
        match judged {
            Ok(archive) => archives.push(archive),
            Err(fault) => unusable.push(UnusableFile { archive, fault }),
        }
    }
    unusable.sort_by_cached_key(|unusable| unusable.archive.sort_key());
    Ok((archives, unusable))
}

/// Number of newest archives whose bank files are read, in addition to that of the newest full archive. The
/// number is small because, without an index, the status cache must be decoded before the bank file.
const DATED_MAX: usize = 4;

/// Reads the times of the newest archives from their bank files. Reads the slot duration and the epoch
/// schedule from the bank file of the newest full archive, or of the newest archive if there is no full
/// archive. Does not read them if `known` has them from the same archive.
pub fn read_newest_bank_times(catalog: &mut Catalog, known: &Catalog) {
    read_times_of(DATED_MAX, catalog, known);
}

/// Reads the times of all archives from their bank files, for [`Keep::daily`], [`Keep::weekly`] and
/// [`Keep::epoch_ends`]. Reads the epoch schedule from the newest full archive. Leaves a time unknown
/// if the bank file cannot be read.
///
/// [`Keep::daily`]: super::keep::Keep::daily
/// [`Keep::weekly`]: super::keep::Keep::weekly
/// [`Keep::epoch_ends`]: super::keep::Keep::epoch_ends
pub fn read_bank_times(catalog: &mut Catalog) {
    read_times_of(usize::MAX, catalog, &Catalog::default());
}

fn read_times_of(newest_max: usize, catalog: &mut Catalog, known: &Catalog) {
    let mut newest: Vec<&mut ListedArchive> = catalog.archives.iter_mut().collect();
    newest.sort_by_key(|archive| Reverse(archive.name.slot));
    let newest_full = newest.iter().position(|archive| archive.is_full());
    for (number, archive) in newest.into_iter().enumerate() {
        let is_slot_time_source = number == newest_full.unwrap_or(0);
        if number >= newest_max && !is_slot_time_source {
            continue;
        }
        let name = Some(archive.name.clone());
        let is_unread = archive.bank_unix_seconds.is_none() && !archive.is_bank_read;
        if is_unread || (is_slot_time_source && known.slot_time_archive != name) {
            let bank = read_bank(archive);
            let time = bank.as_ref().and_then(BankFile::time);
            archive.bank_unix_seconds = time.map(|time| unix_ns(time) / 1_000_000_000).filter(|seconds| *seconds > 0);
            archive.is_bank_read = true;
            if is_slot_time_source {
                let slot_time = bank.as_ref().and_then(BankFile::slot_time);
                catalog.slot_time = slot_time.unwrap_or_default();
                catalog.epoch_schedule = bank.map(|bank| bank.epoch_schedule);
            }
        } else if is_slot_time_source {
            (catalog.slot_time, catalog.epoch_schedule) = (known.slot_time, known.epoch_schedule);
        }
        if is_slot_time_source {
            catalog.slot_time_archive = name;
        }
    }
}

fn read_bank(archive: &ListedArchive) -> Option<BankFile> {
    let (file, _) = archive.open().ok()?;
    let source = Arc::new(LocalFile::new(archive.path(), file).ok()?);
    let opened = OpenArchive::from_source(source, Some(archive.name.clone()), &IoPolicy::default()).ok()?;
    front::read_bank(&opened).ok()?
}

/// Reads the reasons why archives are kept from the lists of archives that `publish` writes into
/// these directories. Ignores a list that is missing or cannot be read.
pub fn read_keep_reasons(catalog: &mut Catalog, dirs: &[PathBuf]) {
    let lists: Vec<Catalog> = dirs.iter().filter_map(|dir| read_list(dir)).collect();
    catalog.set_keep_reasons(lists.iter().flat_map(Catalog::archives));
}

fn read_list(dir: &Path) -> Option<Catalog> {
    let (list_dir, name) = LISTING_PATH.trim_start_matches('/').rsplit_once('/')?;
    let list_dir = KeptDir::open(&dir.join(list_dir)).ok()?;
    let file = list_dir.open_file(name).ok()?;
    let mut document = Vec::new();
    file.take(LIST_BYTES_MAX).read_to_end(&mut document).ok()?;
    parse_list(&document, "")
}

fn find_archives(dirs: &[PathBuf]) -> Result<Vec<ListedArchive>> {
    let mut found = Vec::new();
    for dir in dirs {
        let fd = open_dir(dir).or_path("read", dir)?;
        add_archives(dir, false, &fd, &mut found)?;
        let remote = dir.join(REMOTE_DIR);
        match open_remote(&fd) {
            Ok(fd) => add_archives(dir, true, &fd, &mut found)?,
            // `remote` is a link, a file, or missing.
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => {}
            Err(error) => return Err(Error::io("read", &remote, &error.into())),
        }
    }
    Ok(found)
}

fn add_archives(dir: &Path, is_remote: bool, fd: &OwnedFd, found: &mut Vec<ListedArchive>) -> Result<()> {
    for (name, stat) in regular_files(dir, fd, &ArchiveName::parse)? {
        if found.len() >= ARCHIVES_MAX {
            return Err(Error::failed(format!("{} holds more than {ARCHIVES_MAX} archives", dir.escaped()))
                .with_hint("pass the directory that a validator writes its archives to"));
        }
        let archive = ListedArchive::new(name, dir, stat.st_size.try_into().unwrap_or_default());
        let modified_ns = modified_ns(&stat);
        found.push(ListedArchive { is_remote, modified_ns, file_id: file_id(&stat), ..archive });
    }
    Ok(())
}

/// Returns the regular files of a directory whose names `parse` accepts. Leaves out files that have
/// vanished or cannot be examined.
pub(super) fn regular_files(
    dir: &Path,
    fd: impl AsFd,
    parse: &dyn Fn(&str) -> Option<ArchiveName>,
) -> Result<Vec<(ArchiveName, Stat)>> {
    let mut files = Vec::new();
    for entry in Dir::read_from(&fd).or_path("read", dir)? {
        let entry = entry.or_path("read", dir)?;
        let Some(name) = entry.file_name().to_str().ok().and_then(parse) else { continue };
        match rustix::fs::statat(&fd, entry.file_name(), AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) if FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile => files.push((name, stat)),
            _ => {}
        }
    }
    Ok(files)
}

/// Returns the device and inode numbers of a file.
pub fn file_id(stat: &Stat) -> FileId {
    FileId { device: stat.st_dev, inode: stat.st_ino }
}

fn open_dir(dir: &Path) -> rustix::io::Result<OwnedFd> {
    rustix::fs::open(dir, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
}

fn open_remote(dir: &OwnedFd) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    rustix::fs::openat(dir, REMOTE_DIR, flags, Mode::empty())
}

impl ListedArchive {
    pub(super) fn open_parent(&self) -> rustix::io::Result<OwnedFd> {
        let dir = open_dir(&self.dir)?;
        if self.is_remote { open_remote(&dir) } else { Ok(dir) }
    }

    /// Opens the file for reading, and returns its current metadata too.
    ///
    /// # Errors
    /// The file cannot be opened, or is not a regular file.
    #[doc(hidden)]
    pub fn open(&self) -> io::Result<(File, Stat)> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY;
        let parent = self.open_parent()?;
        let file = rustix::fs::openat(parent, self.name.to_string(), flags, Mode::empty())?;
        let stat = rustix::fs::fstat(&file)?;
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => Ok((file.into(), stat)),
            _ => Err(io::Error::other("it is not a regular file")),
        }
    }
}
