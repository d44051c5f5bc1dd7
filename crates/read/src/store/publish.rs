//! Publishes a file: it appears under its final name complete and on disk, or not at all.
//!
//! The file is written under a temporary name in the same directory, synced and renamed; then the directory
//! is synced. A [`StagedFile`] that is dropped before the rename removes its file. A temporary file without
//! a lock was left by a killed run, and is removed too.

use std::ffi::{OsStr, OsString};
use std::fs::{File, TryLockError};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::io::Errno;
use slotpress_base::{
    Error, ErrorKind, EscapePath, FileStat, IoContext, KeptDir, Owner, Result, changed_error, parent_dir, random_name,
};
use slotpress_format::lock_holder;

/// Prefix of temporary files. When Agave starts, it removes files with the prefix `tmp-snapshot-archive-` from
/// its archives directory, so files of a killed run disappear even without another run of slotpress.
pub const TEMPORARY_PREFIX: &str = "tmp-snapshot-archive-slotpress-";

/// Limit on attempts to create a file. An attempt fails if another process interferes between two system
/// calls.
const ATTEMPTS_MAX: usize = 100;

pub(super) const OTHER_PROCESS_HINT: &str = "find out which program removes files there, or choose another directory";

/// A file that does not yet have its final name.
#[derive(Debug)]
pub struct StagedFile {
    file: File,
    stat: FileStat,
    dir: Arc<KeptDir>,
    name: OsString,
    path: PathBuf,
    replace: bool,
    is_published: bool,
}

impl StagedFile {
    /// Creates the temporary file for `final_name` in an open directory. Only one process at a time can
    /// create a file for a given final name.
    ///
    /// # Errors
    /// Another run is writing the file for this name ([`ErrorKind::Exists`]); the disk fails.
    pub fn create_for(dir: &Arc<KeptDir>, final_name: &str) -> Result<Self> {
        Self::create_named(dir, Some(final_name))
    }

    /// Creates a temporary file in an open directory, and removes files of killed runs.
    ///
    /// # Errors
    /// The disk fails.
    pub fn create_in(dir: &Arc<KeptDir>) -> Result<Self> {
        Self::create_named(dir, None)
    }

    /// Creates a temporary file whose name contains `final_name`, or random characters if that is
    /// `None`.
    fn create_named(dir: &Arc<KeptDir>, final_name: Option<&str>) -> Result<Self> {
        for _ in 0..ATTEMPTS_MAX {
            remove_stale_files(dir)?;
            let name = match final_name {
                Some(final_name) => OsString::from(format!("{TEMPORARY_PREFIX}{final_name}")),
                None => random_name(TEMPORARY_PREFIX),
            };
            if let Some(final_name) = final_name
                && dir.stat_entry(&name).is_ok_and(|found| found.is_some())
            {
                refuse_file_being_made(dir, &name, final_name)?;
                continue;
            }
            let file = match dir.create_file(&name, 0o666) {
                // Another run made the file first.
                Err(_) if final_name.is_some() && dir.stat_entry(&name)?.is_some() => continue,
                created => created?,
            };
            let path = dir.path_of(&name);
            Owner::from_dir(dir)?.apply_to(&file, &path)?;
            // The lock is held until the file is published or removed, because a file without a lock is
            // stale. Before it was locked, another process may have removed it as stale.
            if matches!(file.try_lock(), Err(TryLockError::WouldBlock)) {
                continue;
            }
            let stat = rustix::fs::fstat(&file).or_path("read", &path)?;
            if stat.st_nlink > 0 {
                return Ok(Self {
                    file,
                    stat: stat.into(),
                    dir: dir.clone(),
                    name,
                    path,
                    replace: false,
                    is_published: false,
                });
            }
        }
        let dir = dir.path().escaped();
        let message = format!("{dir}: another process removed the temporary files made there {ATTEMPTS_MAX} times");
        Err(Error::new(ErrorKind::InUse, message).with_hint(OTHER_PROCESS_HINT))
    }

    /// Sets whether publishing replaces a file that already has the final name. Default: false, so such a file
    /// is an error.
    #[must_use]
    pub fn replace(mut self, replace: bool) -> Self {
        self.replace = replace;
        self
    }

    pub fn file(&self) -> &File {
        &self.file
    }

    /// Opens the file again, for reading.
    ///
    /// # Errors
    /// Another file has the temporary name now; the disk fails.
    pub fn reopen(&self) -> Result<File> {
        let file = self.dir.open_file(&self.name)?;
        let found = FileStat::from(rustix::fs::fstat(&file).or_path("read", &self.path)?);
        if found.is_same_file(&self.stat) { Ok(file) } else { Err(changed_error(&self.path)) }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Gives the file its final name.
    ///
    /// # Errors
    /// The name is taken; the disk fails; the temporary name leads to a different file, or the
    /// directory's path to a different directory.
    pub fn publish(mut self, name: &str) -> Result<PathBuf> {
        let path = self.dir.path_of(name);
        self.file.sync_all().or_path("write", &self.path)?;
        // The lock is held until the file has its final name, so that no other process removes it
        // as stale.
        if !self.has_name(&self.name)? {
            return Err(changed_error(&self.path));
        }
        self.dir.check_path()?;
        let result = if self.replace {
            self.dir.rename(&self.name, &self.dir, name)
        } else {
            self.dir.rename_no_replace(&self.name, name)
        };
        result.map_err(|error| match error {
            Errno::EXIST => already_exists_error(&path),
            _ => Error::io("publish", &path, &error.into()),
        })?;
        // The temporary name is gone, so `drop` has nothing to remove.
        self.is_published = true;
        // Another run may have already replaced the published file. Then this file no longer has a name.
        if !self.has_name(OsStr::new(name))? {
            let is_replaced = self.replace && rustix::fs::fstat(&self.file).or_path("read", &path)?.st_nlink == 0;
            if !is_replaced {
                return Err(changed_error(&path));
            }
        }
        self.dir.sync()?;
        // The caller and others will look for the file under this path.
        self.dir.check_path()?;
        Ok(path)
    }

    fn has_name(&self, name: &OsStr) -> Result<bool> {
        Ok(self.dir.stat_entry(name)?.is_some_and(|found| found.is_same_file(&self.stat)))
    }
}

impl Drop for StagedFile {
    fn drop(&mut self) {
        if !self.is_published && matches!(self.has_name(&self.name), Ok(true)) {
            let _ = self.dir.remove_file(&self.name);
        }
    }
}

/// A file, such as a download, that gets its final name only when everything that is made from it is
/// complete. Unlike a [`StagedFile`], it is kept if it is not published.
pub trait Publishable: Send + Sync + std::fmt::Debug {
    fn path(&self) -> &Path;

    /// Renames the file within its directory, and returns the new path.
    ///
    /// # Errors
    /// The name is taken; the file cannot be renamed.
    fn publish(&self, name: &str) -> Result<PathBuf>;

    fn remove(&self) -> Result<()>;
}

pub fn check_output_dir(dir: &Path) -> Result<()> {
    if dir.is_dir() {
        return Ok(());
    }
    let parent = parent_dir(dir);
    let is_archive = dir.file_name().is_some_and(|name| name.to_string_lossy().contains(".tar"));
    let dir_path = dir.escaped();
    if dir.exists() {
        return Err(Error::failed(format!("the output directory {dir_path} is a file"))
            .with_hint("pass a directory; the archive is named after its slot and hash"));
    }
    let hint = if is_archive {
        format!("pass a directory, such as {}; the archive is named after its slot and hash", parent.escaped())
    } else {
        format!("create it: mkdir -p {dir_path}")
    };
    Err(Error::failed(format!("the output directory {dir_path} does not exist")).with_hint(hint))
}

/// Fails if another run has locked the temporary file. Without a lock, the file is stale.
fn refuse_file_being_made(dir: &KeptDir, name: &OsStr, final_name: &str) -> Result<()> {
    let file = match dir.open_file(name) {
        Ok(file) => file,
        Err(error) => return if dir.stat_entry(name)?.is_some() { Err(error) } else { Ok(()) },
    };
    if !matches!(file.try_lock(), Err(TryLockError::WouldBlock)) {
        return Ok(());
    }
    let holder = lock_holder(&file).filter(|holder| holder.pid.is_some());
    let by = holder.map_or("another run".to_string(), |holder| holder.to_string());
    let message = format!("{} is being made by {by}", dir.path_of(final_name).escaped());
    Err(Error::new(ErrorKind::Exists, message).with_hint("wait until that run has ended: then the archive exists"))
}

pub fn already_exists_error(path: &Path) -> Error {
    Error::exists(path).with_hint("--force replaces it, --skip-existing leaves it")
}

/// Removes the temporary files of killed runs, which are those that no process has locked.
///
/// # Errors
/// The disk fails.
pub fn remove_stale_files(dir: &KeptDir) -> Result<()> {
    for name in dir.names()?.iter().filter(|name| name.to_string_lossy().starts_with(TEMPORARY_PREFIX)) {
        // Skips files that this user may not open, vanished files, and anything that is not a file.
        let Ok(file) = dir.open_file(name) else { continue };
        if file.try_lock().is_ok() {
            match dir.remove_file(name) {
                // The file got its final name, or another process removed it.
                Err(Errno::NOENT) => {}
                removed => removed.or_path("remove the stale file", &dir.path_of(name))?,
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::Write;

    use super::*;

    fn create(dir: &Path) -> Result<StagedFile> {
        StagedFile::create_in(&Arc::new(KeptDir::open(dir)?))
    }

    #[test]
    fn a_file_is_replaced_only_on_request() {
        let dir = tempfile::tempdir().expect("a directory");
        let publish = |text: &str, replace| {
            let file = create(dir.path()).expect("created").replace(replace);
            file.file().write_all(text.as_bytes()).expect("written");
            file.publish("name")
        };
        publish("one", false).expect("published");
        assert!(publish("two", false).expect_err("exists").to_string().contains("already exists"));
        assert_eq!(fs::read_to_string(dir.path().join("name")).expect("read"), "one");
        publish("three", true).expect("replaced");
        assert_eq!(fs::read_to_string(dir.path().join("name")).expect("read"), "three");
        assert_eq!(fs::read_dir(dir.path()).expect("read").count(), 1, "no temporary file stays");
    }

    #[test]
    fn concurrent_runs_do_not_remove_each_others_files() {
        let dir = tempfile::tempdir().expect("a directory");
        std::thread::scope(|scope| {
            for thread in 0..8 {
                let dir = dir.path();
                scope.spawn(move || {
                    for round in 0..100 {
                        let file = create(dir).expect("created");
                        file.publish(&format!("{thread}-{round}")).expect("published");
                    }
                });
            }
        });
        assert_eq!(fs::read_dir(dir.path()).expect("read").count(), 800);
    }

    /// A second run for the same name is refused. The file of a killed run is removed.
    #[test]
    fn only_one_run_at_a_time_creates_a_file_for_a_name() {
        let dir = tempfile::tempdir().expect("a directory");
        let stale = dir.path().join(format!("{TEMPORARY_PREFIX}name"));
        fs::write(&stale, "half").expect("written");
        let kept = Arc::new(KeptDir::open(dir.path()).expect("opened"));
        let first = StagedFile::create_for(&kept, "name").expect("created");
        let error = StagedFile::create_for(&kept, "name").expect_err("being written");
        assert_eq!(error.kind(), ErrorKind::Exists, "{error}");
        assert!(error.to_string().contains("is being made by"), "{error}");
        let other = StagedFile::create_for(&kept, "other").expect("a different name");
        first.publish("name").expect("published");
        drop(other);
        drop(StagedFile::create_for(&kept, "name").expect("no longer being written"));
        assert_eq!(fs::read_dir(dir.path()).expect("read").count(), 1);
    }

    #[test]
    fn stale_files_are_removed_and_locked_ones_stay() {
        let dir = tempfile::tempdir().expect("a directory");
        let stale = dir.path().join(format!("{TEMPORARY_PREFIX}killed"));
        fs::write(&stale, "half").expect("written");
        let locked = create(dir.path()).expect("created");
        assert!(!stale.exists());
        let other = create(dir.path()).expect("created");
        assert!(locked.path().exists());
        assert!(other.path().exists());
        drop((locked, other));
        assert_eq!(fs::read_dir(dir.path()).expect("read").count(), 0);
    }
}
