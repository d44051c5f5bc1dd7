//! Directories that are kept open. Names in them are created, opened, renamed and removed relative
//! to the open descriptor. If the directory's path later leads to a different directory, for example
//! through a symbolic link, that directory is never touched.
//!
//! A name is a single path component. Symbolic links are followed only in the path with which a directory
//! is first opened.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, RenameFlags, Stat};
use rustix::io::Errno;

use crate::files::require_regular;
use crate::{Error, EscapePath, IoContext, Owner, Result, parent_dir};

const DIR_FLAGS: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

/// Limit on the number of directories above a directory. A path of the maximum length (`PATH_MAX`) has fewer.
const DEPTH_MAX: usize = 2048;

/// An open directory. Every operation is relative to its descriptor.
#[derive(Debug)]
#[warn(missing_docs)]
pub struct KeptDir {
    path: PathBuf,
    dir: OwnedFd,
}

impl AsFd for KeptDir {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.dir.as_fd()
    }
}

/// State of a file, or of a symbolic link itself. It changes when the file is replaced, truncated or written
/// again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileStat {
    pub device: u64,
    pub inode: u64,
    pub kind: FileType,
    pub length_bytes: u64,
    pub modified_ns: u64,
}

impl From<Stat> for FileStat {
    fn from(stat: Stat) -> Self {
        let kind = FileType::from_raw_mode(stat.st_mode);
        let length_bytes = u64::try_from(stat.st_size).unwrap_or(0);
        Self { device: stat.st_dev, inode: stat.st_ino, kind, length_bytes, modified_ns: modified_ns(&stat) }
    }
}

/// Returns the modification time in nanoseconds since 1970, or 0 for earlier times.
pub fn modified_ns(stat: &Stat) -> u64 {
    let seconds = u64::try_from(stat.st_mtime).unwrap_or_default();
    seconds.saturating_mul(1_000_000_000).saturating_add(stat.st_mtime_nsec)
}

impl FileStat {
    /// Reads the state of a file, following symbolic links. Returns `None` if that fails.
    pub fn read(path: &Path) -> Option<Self> {
        rustix::fs::stat(path).ok().map(Self::from)
    }

    pub fn is_same_file(&self, other: &Self) -> bool {
        (self.device, self.inode) == (other.device, other.inode)
    }
}

#[warn(missing_docs)]
impl KeptDir {
    /// Opens a directory. Follows symbolic links in its path.
    ///
    /// # Errors
    /// The directory is missing or cannot be read, or the path leads to a different kind of file.
    pub fn open(path: &Path) -> Result<Self> {
        let dir = rustix::fs::open(path, DIR_FLAGS, Mode::empty()).or_path("open", path)?;
        Ok(Self::new(path, dir))
    }

    fn new(path: &Path, dir: OwnedFd) -> Self {
        let path = path.to_path_buf();
        Self { path, dir }
    }

    /// Opens a directory that the user names, or creates it. Does not create its parent, which may be
    /// the mount point of a disk that is not mounted. If it creates the directory, calls `on_created`
    /// with the parent and the name. A directory that root creates is given to the owner of its parent.
    ///
    /// # Errors
    /// The directory cannot be opened or created; its parent is missing.
    pub fn open_or_create(path: &Path, on_created: &mut dyn FnMut(&Arc<Self>, &OsStr)) -> Result<Arc<Self>> {
        match rustix::fs::open(path, DIR_FLAGS, Mode::empty()) {
            Ok(dir) => return Ok(Arc::new(Self::new(path, dir))),
            Err(Errno::NOENT) => {}
            Err(error) => return Err(Error::io("open", path, &error.into())),
        }
        // A path without a last component cannot be created.
        let Some(name) = path.file_name() else { return Ok(Arc::new(Self::open(path)?)) };
        let parent = parent_dir(path);
        if !parent.exists() {
            let parent = parent.escaped();
            return Err(Error::failed(format!("cannot create {}: {parent} does not exist", path.escaped()))
                .with_hint(format!("mount its disk, or create the directory: mkdir -p {parent}")));
        }
        let parent = Arc::new(Self::open(parent)?);
        let mut dir = parent.open_or_create_dir(name, &mut || on_created(&parent, name))?;
        dir.path = path.to_path_buf();
        Ok(Arc::new(dir))
    }

    /// Returns the path with which the directory was opened, for messages and for later runs.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the path of a name in the directory, for messages.
    pub fn path_of(&self, name: impl AsRef<OsStr>) -> PathBuf {
        self.path.join(name.as_ref())
    }

    /// Returns the state of the directory itself.
    pub fn stat(&self) -> Result<FileStat> {
        Ok(rustix::fs::fstat(&self.dir).or_path("read", &self.path)?.into())
    }

    /// True if this directory is `ancestor`, or is below it.
    ///
    /// # Errors
    /// A parent directory cannot be opened, or there are more than 2,048 of them.
    pub fn is_within(&self, ancestor: &FileStat) -> Result<bool> {
        let mut stat = self.stat()?;
        let mut dir: Option<OwnedFd> = None;
        for _ in 0..DEPTH_MAX {
            if stat.is_same_file(ancestor) {
                return Ok(true);
            }
            let child = dir.as_ref().map_or(self.dir.as_fd(), AsFd::as_fd);
            let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
            let parent = rustix::fs::openat(child, "..", flags, Mode::empty())
                .or_path("open a parent directory of", &self.path)?;
            let parent_stat =
                FileStat::from(rustix::fs::fstat(&parent).or_path("open a parent directory of", &self.path)?);
            if parent_stat.is_same_file(&stat) {
                return Ok(false);
            }
            stat = parent_stat;
            dir = Some(parent);
        }
        Err(Error::failed(format!("{} is below more than {DEPTH_MAX} directories", self.path.escaped()))
            .with_hint("choose a path with fewer directories above it"))
    }

    /// Checks that the directory's path still leads to it.
    ///
    /// # Errors
    /// The path leads elsewhere, or nowhere.
    pub fn check_path(&self) -> Result<()> {
        match rustix::fs::stat(&self.path).map(FileStat::from) {
            Ok(stat) if stat.is_same_file(&self.stat()?) => Ok(()),
            _ => Err(changed_error(&self.path)),
        }
    }

    /// Returns the state of the file with this name, or `None` if the name is not in use.
    pub fn stat_entry(&self, name: impl AsRef<OsStr>) -> Result<Option<FileStat>> {
        let name = name.as_ref();
        let stat = check_name(name).and_then(|name| rustix::fs::statat(&self.dir, name, AtFlags::SYMLINK_NOFOLLOW));
        match stat {
            Ok(stat) => Ok(Some(stat.into())),
            Err(Errno::NOENT) => Ok(None),
            Err(error) => Err(Error::io("read", &self.path_of(name), &error.into())),
        }
    }

    /// Opens a subdirectory. Returns `None` if it does not exist.
    ///
    /// # Errors
    /// The file with this name is not a directory, or cannot be read.
    pub fn open_dir(&self, name: impl AsRef<OsStr>) -> Result<Option<Self>> {
        let name = name.as_ref();
        let is_link = |stat: FileStat| stat.kind == FileType::Symlink;
        match self.open_at(name, DIR_FLAGS | OFlags::NOFOLLOW, 0) {
            Ok(dir) => Ok(Some(Self::new(&self.path_of(name), dir))),
            Err(Errno::NOENT) => Ok(None),
            Err(Errno::NOTDIR | Errno::LOOP) if self.stat_entry(name)?.is_some_and(is_link) => {
                let path = self.path_of(name).escaped();
                Err(Error::failed(format!("{path} is a symbolic link, which is not followed here"))
                    .with_hint("replace the link with a directory; to use another disk, mount it there"))
            }
            Err(error) => Err(Error::io("open", &self.path_of(name), &error.into())),
        }
    }

    fn open_at(&self, name: &OsStr, flags: OFlags, mode: u32) -> rustix::io::Result<OwnedFd> {
        let name = check_name(name)?;
        rustix::fs::openat(&self.dir, name, flags, Mode::from_raw_mode(mode))
    }

    /// Opens a subdirectory, or creates it and calls `on_created`. A directory that root creates is given
    /// to the owner of this directory.
    ///
    /// # Errors
    /// The name is taken by something else, such as a link; the disk fails.
    pub fn open_or_create_dir(&self, name: impl AsRef<OsStr>, on_created: &mut dyn FnMut()) -> Result<Self> {
        let name = name.as_ref();
        match self.create_dir(name) {
            Ok(created) => {
                on_created();
                Owner::from_dir(self)?.apply_to(&created, created.path())?;
                Ok(created)
            }
            // The directory existed, or another process has just created it. `open_dir` fails if the name
            // belongs to another kind of file.
            Err(error) => match self.stat_entry(name)? {
                Some(_) => self.open_dir(name)?.ok_or_else(|| changed_error(&self.path_of(name))),
                None => Err(error),
            },
        }
    }

    /// Creates and opens a subdirectory.
    ///
    /// # Errors
    /// The name is taken; the disk fails; another process moved or filled the new directory.
    pub fn create_dir(&self, name: impl AsRef<OsStr>) -> Result<Self> {
        let name = name.as_ref();
        // The umask reduces this mode.
        let mode = Mode::from_raw_mode(0o777);
        check_name(name)
            .and_then(|name| rustix::fs::mkdirat(&self.dir, name, mode))
            .or_path("create", &self.path_of(name))?;
        let created = self.open_dir(name)?.ok_or_else(|| changed_error(&self.path_of(name)))?;
        // Another process could have replaced the new directory with one that contains files. The owner
        // proves nothing: on some mounts, a new file does not belong to the user who creates it.
        if created.names()?.is_empty() { Ok(created) } else { Err(changed_error(&created.path)) }
    }

    /// Creates a subdirectory with a random name that begins with `prefix`.
    pub fn create_random_dir(&self, prefix: &str) -> Result<(OsString, Self)> {
        let name = random_name(prefix);
        match self.create_dir(&name) {
            Ok(created) => Ok((name, created)),
            Err(error) => {
                // The directory may have been created but not opened. Nobody else uses this name,
                // and only an empty directory is removed.
                let _ = self.remove_dir(&name);
                Err(error)
            }
        }
    }

    /// Creates a file for reading and writing. Fails if the name is taken. The umask reduces `mode`.
    pub fn create_file(&self, name: impl AsRef<OsStr>, mode: u32) -> Result<File> {
        let name = name.as_ref();
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = self.open_at(name, flags, mode);
        Ok(file.or_path("create", &self.path_of(name))?.into())
    }

    /// Opens a file for reading. Fails if it is not a regular file.
    pub fn open_file(&self, name: impl AsRef<OsStr>) -> Result<File> {
        let path = self.path_of(&name);
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let file = self.open_at(name.as_ref(), flags, 0).or_path("open", &path)?;
        require_regular(file.into(), &path)
    }

    /// Renames `from` in this directory to `to` in `to_dir`. Replaces an existing file.
    pub fn rename(&self, from: impl AsRef<OsStr>, to_dir: &Self, to: impl AsRef<OsStr>) -> rustix::io::Result<()> {
        rustix::fs::renameat(&self.dir, check_name(&from)?, &to_dir.dir, check_name(&to)?)
    }

    /// Renames within this directory. Fails if the new name is taken.
    pub fn rename_no_replace(&self, from: impl AsRef<OsStr>, to: impl AsRef<OsStr>) -> rustix::io::Result<()> {
        let from = check_name(&from)?;
        let to = check_name(&to)?;
        match rustix::fs::renameat_with(&self.dir, from, &self.dir, to, RenameFlags::NOREPLACE) {
            // Some file systems (NFS, old overlays) lack the flag. Creating a hard link also fails if the
            // new name is taken.
            Err(Errno::INVAL | Errno::NOSYS) => {
                rustix::fs::linkat(&self.dir, from, &self.dir, to, AtFlags::empty())?;
                rustix::fs::unlinkat(&self.dir, from, AtFlags::empty())
            }
            result => result,
        }
    }

    /// Moves a file to a name in another directory, and checks that it is the file `expected`.
    ///
    /// # Errors
    /// The rename fails, or another file had the name. That file is moved back if possible.
    pub fn move_checked(
        &self,
        from: impl AsRef<OsStr>,
        expected: &FileStat,
        to_dir: &Self,
        to: impl AsRef<OsStr>,
    ) -> Result<()> {
        let from = from.as_ref();
        let to = to.as_ref();
        self.rename(from, to_dir, to).or_path("move a file to", &to_dir.path_of(to))?;
        let moved = to_dir.stat_entry(to)?;
        if moved.is_some_and(|moved| moved.is_same_file(expected)) {
            return Ok(());
        }
        let _ = to_dir.rename(to, self, from);
        Err(changed_error(&self.path_of(from)))
    }

    /// Removes a file or link.
    pub fn remove_file(&self, name: impl AsRef<OsStr>) -> rustix::io::Result<()> {
        rustix::fs::unlinkat(&self.dir, check_name(&name)?, AtFlags::empty())
    }

    /// Removes a file or link, if it exists.
    pub fn remove_if_exists(&self, name: impl AsRef<OsStr>) -> Result<()> {
        match self.remove_file(&name) {
            Err(Errno::NOENT) => Ok(()),
            removed => removed.or_path("remove", &self.path_of(name)),
        }
    }

    /// Removes an empty directory.
    pub fn remove_dir(&self, name: impl AsRef<OsStr>) -> rustix::io::Result<()> {
        rustix::fs::unlinkat(&self.dir, check_name(&name)?, AtFlags::REMOVEDIR)
    }

    /// Returns all names in the directory, in no particular order.
    pub fn names(&self) -> Result<Vec<OsString>> {
        let mut names = Vec::new();
        for entry in Dir::read_from(&self.dir).or_path("read", &self.path)? {
            let entry = entry.or_path("read", &self.path)?;
            let name = entry.file_name().to_bytes();
            if !matches!(name, b"." | b"..") {
                names.push(OsStr::from_bytes(name).to_os_string());
            }
        }
        Ok(names)
    }

    /// Syncs the directory, so that renames in it survive a power failure.
    pub fn sync(&self) -> Result<()> {
        rustix::fs::fsync(&self.dir).or_path("sync", &self.path)
    }
}

pub fn random_name(prefix: &str) -> OsString {
    format!("{prefix}{:016x}", crate::random::from_system()).into()
}

/// Makes the error for a path at which another process has replaced the file.
pub fn changed_error(path: &Path) -> Error {
    Error::failed(format!("{} was replaced a moment ago: another process is changing this directory", path.escaped()))
        .with_hint("make sure that only you can write to it, and to the directories above it")
}

fn check_name(name: &(impl AsRef<OsStr> + ?Sized)) -> rustix::io::Result<&OsStr> {
    let name = name.as_ref();
    match name.as_bytes() {
        b"" | b"." | b".." => Err(Errno::INVAL),
        bytes if bytes.contains(&b'/') => Err(Errno::INVAL),
        _ => Ok(name),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn names_stay_in_the_directory() {
        let top = tempfile::tempdir().expect("a directory");
        let outside = tempfile::tempdir().expect("a directory");
        fs::create_dir(top.path().join("kept")).expect("made");
        let kept = KeptDir::open(&top.path().join("kept")).expect("opened");
        fs::rename(top.path().join("kept"), top.path().join("moved")).expect("moved");
        symlink(outside.path(), top.path().join("kept")).expect("linked");
        kept.create_dir("inner").expect("made");
        kept.create_file("file", 0o644).expect("made");
        assert!(top.path().join("moved/inner").exists());
        assert!(top.path().join("moved/file").exists());
        assert!(kept.check_path().is_err());
        for name in ["a/b", "..", ".", "", "../moved"] {
            assert!(kept.create_dir(name).is_err(), "{name}");
            assert!(kept.create_file(name, 0o644).is_err(), "{name}");
        }
        symlink(outside.path(), top.path().join("moved/link")).expect("linked");
        assert!(kept.open_or_create_dir("link", &mut || ()).is_err());
        assert!(kept.open_or_create_dir("inner", &mut || ()).is_ok());
        assert!(kept.open_dir("link").is_err());
        assert!(kept.create_dir("link").is_err());
        assert!(kept.open_file("link").is_err());
        assert_eq!(fs::read_dir(outside.path()).expect("read").count(), 0);
    }

    /// On a mount that maps owners, a new file does not belong to the user who creates it.
    #[test]
    fn a_new_directory_may_have_any_owner() {
        use std::os::unix::fs::{MetadataExt, PermissionsExt};
        if !rustix::process::geteuid().is_root() {
            println!("skipped: a_new_directory_may_have_any_owner: not root");
            return;
        }
        let top = tempfile::tempdir().expect("a directory");
        fs::set_permissions(top.path(), fs::Permissions::from_mode(0o777)).expect("permissions");
        std::thread::scope(|scope| {
            let make = || {
                // SAFETY: a number is passed, and the call affects only this thread.
                unsafe { libc::setfsuid(12_345) };
                KeptDir::open(top.path()).expect("opened").create_dir("made").map(drop)
            };
            scope.spawn(make).join().expect("no panic").expect("made");
        });
        assert_eq!(fs::metadata(top.path().join("made")).expect("there").uid(), 12_345);
    }

    #[test]
    fn directories_are_within_their_ancestors() {
        let top = tempfile::tempdir().expect("a directory");
        fs::create_dir_all(top.path().join("a/b")).expect("made");
        symlink(top.path().join("a/b"), top.path().join("link")).expect("linked");
        let dir = |path: &str| KeptDir::open(&top.path().join(path)).expect("opened");
        let a = dir("a").stat().expect("found");
        for (path, is_within) in [("a", true), ("a/b", true), ("link", true), ("a/..", false), (".", false)] {
            assert_eq!(dir(path).is_within(&a).expect("looked"), is_within, "{path}");
        }
    }

    #[test]
    fn only_the_last_directory_is_created() {
        let top = tempfile::tempdir().expect("a directory");
        let mut created_paths = Vec::new();
        let path = top.path().join("a/b/../c");
        fs::create_dir_all(top.path().join("a/b")).expect("made");
        let mut record = |dir: &Arc<KeptDir>, name: &OsStr| created_paths.push(dir.path_of(name));
        let dir = KeptDir::open_or_create(&path, &mut record).expect("made");
        assert_eq!(dir.path(), path);
        let error =
            KeptDir::open_or_create(&top.path().join("d/e"), &mut record).expect_err("the directory above is missing");
        assert!(error.to_string().contains("does not exist"), "{error}");
        assert!(!top.path().join("d").exists());
        assert_eq!(created_paths, [path]);
    }

    #[test]
    fn a_file_that_took_the_name_is_moved_back() {
        let top = tempfile::tempdir().expect("a directory");
        let kept = KeptDir::open(top.path()).expect("opened");
        let ours = kept.create_dir("ours").expect("made").stat().expect("found");
        kept.rename("ours", &kept, "aside").expect("moved");
        symlink("/", top.path().join("ours")).expect("linked");
        assert!(kept.move_checked("ours", &ours, &kept, "place").is_err());
        assert!(kept.stat_entry("place").expect("looked").is_none());
        assert!(kept.stat_entry("ours").expect("looked").is_some());
        kept.move_checked("aside", &ours, &kept, "place").expect("moved");
    }
}
