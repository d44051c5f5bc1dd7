//! Finds storage files on disk, and the directories that contain them. Does not read the contents of the
//! files.

use std::fmt;
use std::fs::{self, File};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rayon::prelude::*;
use rustix::fs::{AtFlags, FileType, Mode, OFlags};
use slotpress_base::{Error, EscapePath, IoContext, Result, start_pool};

use crate::ledger::split::SPLIT_FILE_BYTES_MAX;
use crate::{STORAGE_BYTES_MAX, parse_storage_name};

/// Limit on the storages of a snapshot. Agave refuses archives with more than 5,000,000 entries.
/// Mainnet has about 430,000 storages.
pub const STORAGES_MAX: u64 = 5_000_000;

/// A directory of storages. It stays open, and storages are opened relative to it.
#[derive(Debug)]
pub struct StorageDir {
    pub path: PathBuf,
    pub fd: OwnedFd,
}

impl StorageDir {
    pub fn open(path: PathBuf) -> Result<Self> {
        let fd = rustix::fs::open(&path, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
            .or_path("open", &path)?;
        Ok(Self { path, fd })
    }

    /// Opens a storage file for reading. Does not follow symbolic links; validators make none.
    pub fn open_storage(&self, name: &str) -> Result<File> {
        rustix::fs::openat(&self.fd, name, OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())
            .map(File::from)
            .or_path("open", &self.path.join(name))
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StorageKind {
    /// One file of records, `<slot>.<id>`.
    #[default]
    AppendVec,
    /// A file of headers and small data, `<slot>.<id>.meta`, and optionally a file of large data,
    /// `<slot>.<id>.data` (Agave 4.5). [`split`](super::split) parses them.
    Split { data: Option<StorageFileStat> },
}

/// Length and modification time of a file, which show whether the file changes while it is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StorageFileStat {
    pub file_bytes: u64,
    /// Modification time in nanoseconds since 1970.
    pub modified_ns: i64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListedStorage {
    pub slot: u64,
    pub id: u32,
    /// Endings of the names of the storage's files.
    pub endings: &'static [&'static str],
}

pub const APPEND_VEC_ENDINGS: &[&str] = &[""];
/// Endings of a split storage without large data.
pub const SPLIT_ENDINGS: &[&str] = &[".meta"];
pub const SPLIT_WITH_DATA_ENDINGS: &[&str] = &[".meta", ".data"];

/// A storage on disk. This type is small, because mainnet has 430,000 storages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StorageFile {
    pub slot: u64,
    /// Id of the storage on this node.
    pub id: u32,
    /// Index of the storage's directory in
    /// [`BankSnapshot::storage_dirs`](super::directory::BankSnapshot::storage_dirs).
    pub dir_index: u16,
    /// Length of the file in bytes. In a split storage, the length of the `.meta` file.
    pub file_bytes: u64,
    /// Modification time of this file in nanoseconds since 1970. It shows whether the file changes while
    /// it is read.
    pub modified_ns: i64,
    pub kind: StorageKind,
}

impl StorageFile {
    /// Returns the name of the file. In a split storage, the name of the `.meta` file.
    pub fn file_name(&self) -> String {
        match self.kind {
            StorageKind::AppendVec => format!("{}.{}", self.slot, self.id),
            StorageKind::Split { .. } => format!("{}.{}.meta", self.slot, self.id),
        }
    }

    pub fn data_file_name(&self) -> String {
        format!("{}.{}.data", self.slot, self.id)
    }

    pub fn is_split(&self) -> bool {
        matches!(self.kind, StorageKind::Split { .. })
    }

    /// Returns the length on disk in bytes, with the `.data` file.
    pub fn disk_bytes(&self) -> u64 {
        match self.kind {
            StorageKind::Split { data: Some(data) } => self.file_bytes.saturating_add(data.file_bytes),
            _ => self.file_bytes,
        }
    }
}

/// Lists all files in the directories. Each must be an append vec. `threads` threads read the metadata.
pub fn list_storages(dirs: &[StorageDir], threads: usize) -> Result<Vec<StorageFile>> {
    let mut files = Vec::new();
    for (index, dir) in number_dirs(dirs)? {
        for entry in fs::read_dir(&dir.path).or_path("read", &dir.path)? {
            let name = entry.or_path("read", &dir.path)?.file_name();
            let (slot, id) =
                name.to_str().and_then(parse_storage_name).ok_or_else(|| foreign_file_error(&dir.path.join(&name)))?;
            files.push((index, dir, ListedStorage { slot, id, endings: APPEND_VEC_ENDINGS }));
            if files.len() as u64 > STORAGES_MAX {
                return Err(Error::failed(format!("{} holds more than {STORAGES_MAX} files", dir.path.escaped()))
                    .with_hint("unpack one archive into one empty directory"));
            }
        }
    }
    let pool = start_pool(threads)?;
    pool.install(|| files.par_iter().map(|(index, dir, file)| require_storage(dir, *index, file)).collect())
}

/// Numbers the directories. [`StorageFile::dir_index`] is such a number.
fn number_dirs(dirs: &[StorageDir]) -> Result<impl Iterator<Item = (u16, &StorageDir)> + Clone> {
    if dirs.len() > usize::from(u16::MAX) {
        let count = dirs.len();
        let max = u16::MAX;
        return Err(Error::usage(format!("there are {count} accounts paths; the maximum is {max}")));
    }
    Ok((0..u16::MAX).zip(dirs))
}

/// A file that a storages list names, but that is in none of the directories.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MissingFile {
    pub slot: u64,
    pub id: u32,
    /// Ending of the file name: empty, `.meta` or `.data`.
    pub ending: &'static str,
}

impl fmt::Display for MissingFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}{}", self.slot, self.id, self.ending)
    }
}

/// Looks up every storage of the list in the directories, on `threads` threads. Also returns the missing
/// files.
pub fn stat_listed(
    list: &[ListedStorage],
    dirs: &[StorageDir],
    threads: usize,
) -> Result<(Vec<StorageFile>, Vec<MissingFile>)> {
    let dirs = number_dirs(dirs)?;
    let find = |listed: &ListedStorage| {
        let ListedStorage { slot, id, endings } = *listed;
        let first_ending = endings.first().copied().unwrap_or_default();
        let mut storage = None;
        let mut missing = MissingFile { slot, id, ending: first_ending };
        for (index, dir) in dirs.clone() {
            match stat_storage(dir, index, listed)? {
                StorageLookup::Found(_) if storage.is_some() => {
                    return Err(Error::failed(format!("storage {slot}.{id} is in two accounts paths"))
                        .with_hint("pass only the accounts paths that the validator uses, each once"));
                }
                StorageLookup::Found(found) => storage = Some(found),
                // The `.meta` file is in this directory, so only the `.data` file is missing.
                StorageLookup::Missing(ending) if ending != first_ending => missing.ending = ending,
                StorageLookup::Missing(_) => {}
            }
        }
        Ok(storage.ok_or(missing))
    };
    let results = start_pool(threads)?.install(|| list.par_iter().map(find).collect::<Result<Vec<_>>>())?;
    let missing = results.iter().filter_map(|result| result.err()).collect();
    Ok((results.into_iter().flatten().collect(), missing))
}

fn foreign_file_error(path: &Path) -> Error {
    Error::failed(format!("{} is not a storage: its name is not SLOT.ID", path.escaped()))
        .with_hint("move files that do not belong to the archive to another directory")
}

fn require_storage(dir: &StorageDir, index: u16, listed: &ListedStorage) -> Result<StorageFile> {
    if let StorageLookup::Found(storage) = stat_storage(dir, index, listed)? {
        return Ok(storage);
    }
    let path = dir.path.join(format!("{}.{}", listed.slot, listed.id));
    Err(Error::failed(format!("{} vanished a moment ago", path.escaped()))
        .with_hint("another process is changing the directory: stop it, then run this again"))
}

/// Result of looking up the files of a storage in one directory.
enum StorageLookup {
    Found(StorageFile),
    /// Ending of the first missing file.
    Missing(&'static str),
}

fn stat_storage(dir: &StorageDir, index: u16, listed: &ListedStorage) -> Result<StorageLookup> {
    let ListedStorage { slot, id, endings } = *listed;
    let is_split = endings != APPEND_VEC_ENDINGS;
    let mut stats = [None; 2];
    for (ending, stat) in endings.iter().zip(&mut stats) {
        *stat = stat_file(dir, &format!("{slot}.{id}{ending}"), is_split)?;
        if stat.is_none() {
            return Ok(StorageLookup::Missing(ending));
        }
    }
    let [Some(StorageFileStat { file_bytes, modified_ns }), data] = stats else {
        return Ok(StorageLookup::Missing(""));
    };
    let kind = if is_split { StorageKind::Split { data } } else { StorageKind::AppendVec };
    Ok(StorageLookup::Found(StorageFile { slot, id, dir_index: index, file_bytes, modified_ns, kind }))
}

fn stat_file(dir: &StorageDir, name: &str, is_split: bool) -> Result<Option<StorageFileStat>> {
    let stat = match rustix::fs::statat(&dir.fd, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => stat,
        Err(rustix::io::Errno::NOENT) => return Ok(None),
        Err(error) => return Err(Error::io("read", &dir.path.join(name), &error.into())),
    };
    let file_bytes = u64::try_from(stat.st_size).unwrap_or(u64::MAX);
    let (bytes_max, shown_max) =
        if is_split { (SPLIT_FILE_BYTES_MAX, "128 GiB") } else { (STORAGE_BYTES_MAX, "16 GiB") };
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile || file_bytes > bytes_max {
        return Err(Error::damaged(format!(
            "{} is not a storage, because it is not a regular file of at most {shown_max}",
            dir.path.join(name).escaped()
        )));
    }
    Ok(Some(StorageFileStat { file_bytes, modified_ns: modified_ns(stat.st_mtime, stat.st_mtime_nsec) }))
}

pub fn modified_ns(seconds: impl Into<i64>, nanoseconds: impl TryInto<i64>) -> i64 {
    seconds.into().wrapping_mul(1_000_000_000).wrapping_add(nanoseconds.try_into().unwrap_or(0))
}
