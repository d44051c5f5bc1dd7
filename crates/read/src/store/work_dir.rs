//! Directories that are not there yet: made beside their final place, locked while somebody works in them, and emptied
//! through their open descriptor, so that nothing is removed that has since come to lie under their path.

use {
    super::dir_lock::{Locked, open_dir, try_lock},
    rustix::{
        fs::{AtFlags, CWD, Dir, Mode, OFlags, Stat},
        io::Errno,
    },
    slotpress_base::error::{Error, IoContext, Result},
    std::{
        ffi::CString,
        fs,
        os::{fd::OwnedFd, unix::fs::PermissionsExt},
        path::{Path, PathBuf},
    },
};

/// How deep a directory of ours is at most: a scratch directory with a ledger in it has five levels.
const DEPTH_MAX: u32 = 16;

/// A directory may be taken for a dead run's between being made and being locked: then another one is made.
const TRIES_MAX: u32 = 8;

/// A directory of a name that nobody else has, locked. It is removed when it is dropped, unless it was moved away.
#[derive(Debug)]
pub struct WorkDir {
    path: PathBuf,
    dir: OwnedFd,
    is_moved: bool,
}

impl WorkDir {
    /// Makes one in `parent`; its name is `prefix` and something random.
    pub fn create(parent: &Path, prefix: &str) -> Result<Self> {
        for _ in 0..TRIES_MAX {
            let made = tempfile::Builder::new()
                .prefix(prefix)
                .permissions(fs::Permissions::from_mode(0o777)) // less what the umask takes
                .tempdir_in(parent)
                .or_path("make a directory in", parent)?;
            let dir = match open_dir(made.path(), false) {
                Ok(dir) => dir,
                Err(Errno::NOENT) => continue,
                Err(error) => return Err(Error::io("open", made.path(), &error.into())),
            };
            if try_lock(&dir).or_path("lock", made.path())? == Locked::Busy {
                continue;
            }
            if rustix::fs::fstat(&dir).or_path("read", made.path())?.st_nlink == 0 {
                continue;
            }
            return Ok(Self { path: made.keep(), dir, is_moved: false });
        }
        Err(Error::failed(format!("{}: what is made there is removed again by another process", parent.display())))
    }

    /// Where it was made.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Itself, wherever it lies by now.
    pub fn dir(&self) -> &OwnedFd {
        &self.dir
    }

    /// Removes everything in it.
    pub fn clear(&self) -> Result<()> {
        remove_contents(&self.dir, DEPTH_MAX).or_path("empty", &self.path)
    }

    /// Moves it to its final place, where at most an empty directory may be.
    pub fn move_to(mut self, to: &Path) -> Result<()> {
        rustix::fs::renameat(CWD, &self.path, CWD, to).or_path("move the restored files to", to)?;
        self.is_moved = true;
        Ok(())
    }
}

impl Drop for WorkDir {
    fn drop(&mut self) {
        if !self.is_moved {
            // Best effort: the next run tries again. Only an empty directory can go by its path.
            let _ = remove_contents(&self.dir, DEPTH_MAX);
            let _ = fs::remove_dir(&self.path);
        }
    }
}

/// Removes the directories of dead runs in `parent`: those of the prefix whose lock can be taken.
pub fn remove_stale_dirs(parent: &Path, prefix: &str) -> Result<()> {
    for entry in fs::read_dir(parent).or_path("read", parent)? {
        let entry = entry.or_path("read", parent)?;
        if !entry.file_name().to_string_lossy().starts_with(prefix) {
            continue;
        }
        // A file, or another user's directory, or one that has vanished, is not ours to remove.
        let path = entry.path();
        let Ok(dir) = open_dir(&path, false) else { continue };
        // It may have been moved to its final place since it was opened.
        let is_there = |own: Stat| rustix::fs::lstat(&path).is_ok_and(|found| found.st_ino == own.st_ino);
        if try_lock(&dir).or_path("lock", &path)? == Locked::Ours
            && is_there(rustix::fs::fstat(&dir).or_path("read", &path)?)
        {
            remove_contents(&dir, DEPTH_MAX).or_path("remove what a killed run left in", &path)?;
            fs::remove_dir(&path).or_path("remove what a killed run left in", &path)?;
        }
    }
    Ok(())
}

/// Removes the directory at `path` if it is the one of this inode, with everything in it; an empty one stays where
/// `stays`. `first` is the file in it that goes before all others.
pub fn remove_moved_dir(path: &Path, inode: u64, stays: bool, first: &str) -> Result<()> {
    let doing = "remove what an unfinished restore left in";
    let dir = match open_dir(path, false) {
        Ok(dir) => dir,
        Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => return Ok(()),
        Err(error) => return Err(Error::io(doing, path, &error.into())),
    };
    if rustix::fs::fstat(&dir).or_path("read", path)?.st_ino != inode {
        return Ok(());
    }
    match rustix::fs::unlinkat(&dir, first, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => {}
        Err(error) => return Err(Error::io(doing, path, &error.into())),
    }
    remove_contents(&dir, DEPTH_MAX).or_path(doing, path)?;
    if stays { Ok(()) } else { fs::remove_dir(path).or_path(doing, path) }
}

fn remove_contents(dir: &OwnedFd, depth_left: u32) -> rustix::io::Result<()> {
    let mut names: Vec<CString> = Vec::new();
    for entry in Dir::read_from(dir)? {
        let entry = entry?;
        if !matches!(entry.file_name().to_bytes(), b"." | b"..") {
            names.push(entry.file_name().to_owned());
        }
    }
    for name in names {
        match rustix::fs::unlinkat(dir, &name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => continue,
            Err(Errno::ISDIR | Errno::PERM) if depth_left > 0 => {}
            Err(error) => return Err(error),
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let inner = rustix::fs::openat(dir, &name, flags, Mode::empty())?;
        remove_contents(&inner, depth_left - 1)?;
        rustix::fs::unlinkat(dir, &name, AtFlags::REMOVEDIR)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dead_ones_go_and_live_ones_stay() {
        let top = tempfile::tempdir().expect("a directory");
        fs::create_dir_all(top.path().join("work-dead/deep/er")).expect("made");
        fs::write(top.path().join("work-dead/deep/er/file"), "left").expect("written");
        fs::write(top.path().join("work-file"), "no directory").expect("written");
        std::os::unix::fs::symlink("/", top.path().join("work-link")).expect("linked");
        let live = WorkDir::create(top.path(), "work-").expect("made");
        fs::write(live.path().join("file"), "in use").expect("written");
        remove_stale_dirs(top.path(), "work-").expect("removed");
        assert!(!top.path().join("work-dead").exists() && live.path().join("file").exists());
        assert!(top.path().join("work-file").exists() && top.path().join("work-link").exists());
        let path = live.path().to_path_buf();
        drop(live);
        assert!(!path.exists());
    }

    #[test]
    fn what_lies_under_the_path_of_one_that_was_moved_stays() {
        let top = tempfile::tempdir().expect("a directory");
        let one = WorkDir::create(top.path(), "work-").expect("made");
        fs::write(one.path().join("file"), "moved").expect("written");
        let path = one.path().to_path_buf();
        fs::rename(&path, top.path().join("elsewhere")).expect("moved by somebody");
        fs::create_dir(&path).expect("made by somebody");
        fs::write(path.join("theirs"), "theirs").expect("written");
        drop(one);
        assert!(path.join("theirs").exists() && !top.path().join("elsewhere/file").exists());
    }

    #[test]
    fn only_the_directory_of_the_inode_is_removed() {
        let top = tempfile::tempdir().expect("a directory");
        let dir = top.path().join("run");
        fs::create_dir(&dir).expect("made");
        fs::write(dir.join("file"), "theirs").expect("written");
        let inode = std::os::unix::fs::MetadataExt::ino(&fs::metadata(&dir).expect("metadata"));
        remove_moved_dir(&dir, inode + 1, false, "mark").expect("passed over");
        assert!(dir.join("file").exists());
        remove_moved_dir(&dir, inode, true, "mark").expect("emptied");
        assert!(dir.exists() && !dir.join("file").exists());
        remove_moved_dir(&dir, inode, false, "mark").expect("removed");
        assert!(!dir.exists());
    }
}
