//! Storage files on disk: the directories that hold them, and finding each. What is in them is not looked at here.

use {
    crate::{
        error::{Error, IoContext, Result},
        ledger::{lists::STORAGES_MAX, names::parse_storage_name, record::STORAGE_BYTES_MAX},
        pool::Pool,
    },
    rayon::prelude::*,
    rustix::fs::{AtFlags, FileType, Mode, OFlags},
    std::{
        fs::{self, File},
        os::fd::OwnedFd,
        path::PathBuf,
    },
};

/// A directory of storages, kept open so that files are found relative to it.
#[derive(Debug)]
pub struct StorageRoot {
    /// Its path, for messages.
    pub path: PathBuf,
    /// The open directory.
    pub dir: OwnedFd,
}

impl StorageRoot {
    /// Opens a directory of storages.
    pub fn open(path: PathBuf) -> Result<Self> {
        let dir = rustix::fs::open(&path, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
            .or_path("open", &path)?;
        Ok(Self { path, dir })
    }

    /// Opens a storage for reading. Symbolic links are not followed: validators make none.
    pub fn open_storage(&self, slot: u64, id: u32) -> Result<File> {
        let name = format!("{slot}.{id}");
        rustix::fs::openat(&self.dir, &name, OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())
            .map(File::from)
            .or_path("open", &self.path.join(name))
    }
}

/// A storage file as it was found: some tens of bytes each, since mainnet has 430,000.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StorageFile {
    /// The storage's slot.
    pub slot: u64,
    /// The storage's id on this node.
    pub id: u32,
    /// Index of the directory that holds it in [`BankSnapshot::roots`](super::directory::BankSnapshot::roots).
    pub root: u16,
    /// The file's length in bytes.
    pub file_bytes: u64,
    /// When it was last modified, in nanoseconds since 1970: a storage that changes is noticed by it.
    pub modified_ns: i64,
}

/// Every file of every root, which must all be storages. Their metadata is read by `threads` threads.
pub fn list_roots(roots: &[StorageRoot], threads: usize) -> Result<Vec<StorageFile>> {
    let mut names = Vec::new();
    for (index, root) in roots.iter().enumerate() {
        for entry in fs::read_dir(&root.path).or_path("read", &root.path)? {
            let name = entry.or_path("read", &root.path)?.file_name();
            let storage = name
                .to_str()
                .and_then(parse_storage_name)
                .and_then(|(slot, id)| Some((slot, u32::try_from(id).ok()?)))
                .ok_or_else(|| Error::failed(format!("{} is not a storage", root.path.join(&name).display())))?;
            names.push((storage, index as u16));
            if names.len() as u64 > STORAGES_MAX {
                return Err(Error::failed(format!("{} holds more than {STORAGES_MAX} files", root.path.display())));
            }
        }
    }
    let pool = Pool::start(threads)?;
    pool.run(|| names.par_iter().map(|((slot, id), root)| require_storage(roots, *root, *slot, *id)).collect())
}

/// The storages of a list: those that are there, and slot and id of those that are not.
pub type Listed = (Vec<StorageFile>, Vec<(u64, u32)>);

/// Finds every storage of the list in one of the roots, on `threads` threads; returns also those that are in none.
pub fn stat_listed(list: &[(u64, u32)], roots: &[StorageRoot], threads: usize) -> Result<Listed> {
    if roots.len() > usize::from(u16::MAX) {
        return Err(Error::usage("too many accounts paths"));
    }
    let find = |(slot, id): &(u64, u32)| {
        let mut found = None;
        for index in 0..roots.len() as u16 {
            let Some(storage) = stat_storage(roots, index, *slot, *id)? else { continue };
            if found.replace(storage).is_some() {
                return Err(Error::failed(format!("storage {slot}.{id} is in two accounts paths"))
                    .hint("give only the accounts paths that the validator uses, each once"));
            }
        }
        Ok(found.ok_or((*slot, *id)))
    };
    let found = Pool::start(threads)?.run(|| list.par_iter().map(find).collect::<Result<Vec<_>>>())?;
    let mut missing = Vec::new();
    let found = found.into_iter().filter_map(|one| one.map_err(|one| missing.push(one)).ok()).collect();
    Ok((found, missing))
}

fn require_storage(roots: &[StorageRoot], root: u16, slot: u64, id: u32) -> Result<StorageFile> {
    stat_storage(roots, root, slot, id)?.ok_or_else(|| Error::failed(format!("storage {slot}.{id} has just vanished")))
}

fn stat_storage(roots: &[StorageRoot], index: u16, slot: u64, id: u32) -> Result<Option<StorageFile>> {
    let root = &roots[usize::from(index)];
    let name = format!("{slot}.{id}");
    let stat = match rustix::fs::statat(&root.dir, &name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => stat,
        Err(rustix::io::Errno::NOENT) => return Ok(None),
        Err(error) => return Err(Error::io("read", &root.path.join(name), &error.into())),
    };
    let file_bytes = stat.st_size as u64;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile || file_bytes > STORAGE_BYTES_MAX {
        return Err(Error::damaged(format!(
            "{} is not a storage: a regular file of at most 16 GiB",
            root.path.join(name).display()
        )));
    }
    let modified_ns = modified_ns(stat.st_mtime, stat.st_mtime_nsec);
    Ok(Some(StorageFile { slot, id, root: index, file_bytes, modified_ns }))
}

/// A modification time as one number of nanoseconds since 1970.
pub fn modified_ns(seconds: impl Into<i64>, nanoseconds: impl TryInto<i64>) -> i64 {
    seconds.into().wrapping_mul(1_000_000_000).wrapping_add(nanoseconds.try_into().unwrap_or(0))
}
