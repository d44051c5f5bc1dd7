//! Work directories, which are created next to their final place, and are locked while a run works in them.
//! They are emptied through an open descriptor, so a different directory at the same path is never touched.

use std::ffi::{CString, OsString};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::sync::Arc;

use rustix::fs::{Access, AtFlags, Dir, Mode, OFlags};
use rustix::io::Errno;
use slotpress_base::{Error, ErrorKind, EscapePath, IoContext, KeptDir, Result};

use super::dir_lock::{LockAttempt, try_lock};
use super::publish::OTHER_PROCESS_HINT;

/// Limit on the levels of directories that are removed. A work directory that holds a ledger has five.
const DEPTH_MAX: u32 = 16;

/// Limit on attempts to create a directory: before it is locked, another run may remove it as stale.
const ATTEMPTS_MAX: u32 = 8;

/// A locked directory with a random name. Dropping it removes the directory, or only the contents if the
/// directory has been renamed. After [`keep`](Self::keep), nothing is removed.
#[derive(Debug)]
pub struct WorkDir {
    parent: Arc<KeptDir>,
    name: OsString,
    dir: KeptDir,
    is_kept: bool,
}

impl WorkDir {
    /// Creates a directory in `parent`. Its name consists of `prefix` and random characters.
    ///
    /// # Errors
    /// The disk fails; other processes keep interfering.
    pub fn create(parent: &Arc<KeptDir>, prefix: &str) -> Result<Self> {
        let mut last_error = None;
        for _ in 0..ATTEMPTS_MAX {
            let (name, dir) = match parent.create_random_dir(prefix) {
                Ok(made) => made,
                Err(error) => {
                    last_error = Some(error);
                    continue;
                }
            };
            let is_busy = try_lock(&dir).or_path("lock", dir.path())? == LockAttempt::Busy;
            if !is_busy && rustix::fs::fstat(&dir).or_path("read", dir.path())?.st_nlink > 0 {
                return Ok(Self { parent: parent.clone(), name, dir, is_kept: false });
            }
        }
        let parent = parent.path().escaped();
        let why = format!("another process removed the directories made there {ATTEMPTS_MAX} times");
        let removed = Error::new(ErrorKind::InUse, format!("{parent}: {why}"));
        Err(last_error.unwrap_or(removed.with_hint(OTHER_PROCESS_HINT)))
    }

    pub fn path(&self) -> &Path {
        self.dir.path()
    }

    pub fn dir(&self) -> &KeptDir {
        &self.dir
    }

    pub fn keep(mut self) {
        self.is_kept = true;
    }
}

impl Drop for WorkDir {
    fn drop(&mut self) {
        if self.is_kept {
            return;
        }
        // The next run removes what remains. `remove_dir` removes only empty directories, so another
        // directory of this name loses nothing.
        let _ = remove_contents(self.dir.as_fd(), DEPTH_MAX);
        let _ = self.parent.remove_dir(&self.name);
    }
}

/// Removes the directories that killed runs left in `parent`: those that have the prefix and are not locked.
/// First passes each directory to `check`, and does not remove it if `check` fails.
///
/// # Errors
/// `check` fails, or the disk fails.
pub fn remove_stale_dirs(parent: &KeptDir, prefix: &str, check: &mut dyn FnMut(&KeptDir) -> Result<()>) -> Result<()> {
    for name in parent.names()?.iter().filter(|name| name.to_string_lossy().starts_with(prefix)) {
        // Skips files, vanished directories, and directories that this user may not change. A shared
        // /var/tmp may contain these.
        let Ok(Some(dir)) = parent.open_dir(name) else { continue };
        if rustix::fs::accessat(&dir, ".", Access::WRITE_OK, AtFlags::EACCESS).is_err() {
            continue;
        }
        let is_ours = try_lock(&dir).or_path("lock", dir.path())? == LockAttempt::Acquired;
        // Since the directory was opened here, its run may have moved it to its final place.
        let opened = dir.stat()?;
        if is_ours && parent.stat_entry(name)?.is_some_and(|found| found.is_same_file(&opened)) {
            check(&dir)?;
            let action = "remove what a killed run left in";
            remove_contents(dir.as_fd(), DEPTH_MAX).or_path(action, dir.path())?;
            parent.remove_dir(name).or_path(action, dir.path())?;
        }
    }
    Ok(())
}

fn remove_contents(dir: BorrowedFd<'_>, depth_max: u32) -> rustix::io::Result<()> {
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
            Err(Errno::ISDIR | Errno::PERM) if depth_max > 0 => {}
            Err(error) => return Err(error),
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let inner = rustix::fs::openat(dir, &name, flags, Mode::empty())?;
        remove_contents(inner.as_fd(), depth_max.saturating_sub(1))?;
        rustix::fs::unlinkat(dir, &name, AtFlags::REMOVEDIR)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn kept(path: &Path) -> Arc<KeptDir> {
        Arc::new(KeptDir::open(path).expect("opened"))
    }

    #[test]
    fn stale_directories_are_removed_and_locked_ones_stay() {
        let top = tempfile::tempdir().expect("a directory");
        fs::create_dir_all(top.path().join("work-dead/deep/er")).expect("made");
        fs::write(top.path().join("work-dead/deep/er/file"), "left").expect("written");
        fs::write(top.path().join("work-file"), "not a directory").expect("written");
        std::os::unix::fs::symlink("/", top.path().join("work-link")).expect("linked");
        let locked = WorkDir::create(&kept(top.path()), "work-").expect("made");
        fs::write(locked.path().join("file"), "in use").expect("written");
        remove_stale_dirs(&kept(top.path()), "work-", &mut |_| Ok(())).expect("removed");
        assert!(!top.path().join("work-dead").exists());
        assert!(locked.path().join("file").exists());
        assert!(top.path().join("work-file").exists());
        assert!(top.path().join("work-link").exists());
        let path = locked.path().to_path_buf();
        drop(locked);
        assert!(!path.exists());
    }

    #[test]
    fn directories_of_other_users_stay() {
        use std::os::unix::fs::PermissionsExt;

        use rustix::thread::{CapabilitySet, capabilities, set_capabilities};
        let top = tempfile::tempdir().expect("a directory");
        let other = top.path().join("work-other");
        fs::create_dir(&other).expect("made");
        fs::write(other.join("file"), "left").expect("written");
        let mode = |mode| fs::set_permissions(&other, fs::Permissions::from_mode(mode)).expect("permissions");
        mode(0o555);
        // The thread drops root's rights, so modes apply to it even if root runs the tests.
        std::thread::scope(|scope| {
            let run = || {
                let mut sets = capabilities(None).expect("the capabilities");
                let all = CapabilitySet::DAC_OVERRIDE | CapabilitySet::DAC_READ_SEARCH;
                (sets.effective, sets.permitted) = (sets.effective - all, sets.permitted - all);
                set_capabilities(None, sets).expect("dropped");
                remove_stale_dirs(&kept(top.path()), "work-", &mut |_| Ok(()))
            };
            scope.spawn(run).join().expect("no panic").expect("skipped");
        });
        assert!(other.join("file").exists());
        mode(0o755);
        remove_stale_dirs(&kept(top.path()), "work-", &mut |_| Ok(())).expect("removed");
        assert!(!other.exists());
    }

    #[test]
    fn another_directory_at_the_same_path_stays() {
        let top = tempfile::tempdir().expect("a directory");
        let work = WorkDir::create(&kept(top.path()), "work-").expect("made");
        fs::write(work.path().join("file"), "moved").expect("written");
        let path = work.path().to_path_buf();
        fs::rename(&path, top.path().join("elsewhere")).expect("moved");
        fs::create_dir(&path).expect("made");
        fs::write(path.join("theirs"), "theirs").expect("written");
        drop(work);
        assert!(path.join("theirs").exists());
        assert!(!top.path().join("elsewhere/file").exists());
    }
}
