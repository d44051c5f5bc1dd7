//! Making a file appear under its final name whole and on disk, or not at all.
//!
//! A temporary file in the same directory, synced, renamed, and the directory synced. It is removed when it is dropped
//! unpublished. What a killed run left behind is found by its name, told from a live run's by a lock, and removed.

use std::ffi::{OsStr, OsString};
use std::fs::{File, TryLockError};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::io::Errno;
use slotpress_base::kept_dir::changed;
use slotpress_base::{Error, ErrorKind, Found, Hint, IoContext, KeptDir, Owner, Result, ShowPath, random_name};
use slotpress_format::lock_holder;

/// Agave removes files of this prefix from its archives directory when it starts, so even without another run of
/// slotpress nothing of a killed one stays.
pub const TEMPORARY_PREFIX: &str = "tmp-snapshot-archive-slotpress-";

/// Files that are made before it is given up: each time, another process has to look in the moment between two calls.
const ATTEMPTS_MAX: usize = 100;

/// A file that is not there yet.
#[derive(Debug)]
pub struct Unpublished {
    file: File,
    found: Found,
    dir: Arc<KeptDir>,
    name: OsString,
    path: PathBuf,
    is_published: bool,
}

impl Unpublished {
    /// Makes a temporary file in `dir`, and removes those of killed runs.
    ///
    /// # Errors
    /// It is no directory; the disk fails.
    pub fn create(dir: &Path) -> Result<Self> {
        check_output_dir(dir)?;
        Self::create_in(&Arc::new(KeptDir::open(dir)?))
    }

    /// Makes a temporary file in an open directory for what is to get this name: only one at a time.
    ///
    /// # Errors
    /// The disk fails; of [`ErrorKind::Exists`] where another run makes a file for this name.
    pub fn create_in_for(dir: &Arc<KeptDir>, final_name: &str) -> Result<Self> {
        Self::begin(dir, Some(final_name))
    }

    /// Makes a temporary file in an open directory.
    ///
    /// # Errors
    /// The disk fails.
    pub fn create_in(dir: &Arc<KeptDir>) -> Result<Self> {
        Self::begin(dir, None)
    }

    /// The name of the temporary file tells that of the final one, where that is known.
    fn begin(dir: &Arc<KeptDir>, final_name: Option<&str>) -> Result<Self> {
        for _ in 0..ATTEMPTS_MAX {
            remove_stale(dir)?;
            let name = match final_name {
                Some(final_name) => OsString::from(format!("{TEMPORARY_PREFIX}{final_name}")),
                None => random_name(TEMPORARY_PREFIX),
            };
            if let Some(final_name) = final_name.filter(|_| dir.found(&name).is_ok_and(|found| found.is_some())) {
                refuse_in_the_making(dir, &name, final_name)?;
                continue;
            }
            let file = match dir.create_file(&name, 0o666) {
                // Another run was quicker.
                Err(_) if final_name.is_some() && dir.found(&name)?.is_some() => continue,
                created => created?,
            };
            let path = dir.path_of(&name);
            Owner::of(dir)?.take(&file).or_path("change the owner of", &path)?;
            // Held until the file is published or removed: a lock that can be taken marks a stale file. Before it is held,
            // another process may have taken the file for a stale one.
            if matches!(file.try_lock(), Err(TryLockError::WouldBlock)) {
                continue;
            }
            let stat = rustix::fs::fstat(&file).or_path("read", &path)?;
            if stat.st_nlink > 0 {
                return Ok(Self { file, found: stat.into(), dir: dir.clone(), name, path, is_published: false });
            }
        }
        let dir = dir.path().shown();
        Err(Error::failed(format!("{dir}: files that are made there are removed again by another process")))
    }

    /// The open file.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Opens it once more, for reading.
    ///
    /// # Errors
    /// Another file came to lie under its name; the disk fails.
    pub fn reopen(&self) -> Result<File> {
        let file = self.dir.open_file(&self.name)?;
        let found = Found::from(rustix::fs::fstat(&file).or_path("read", &self.path)?);
        if found.is_same(&self.found) { Ok(file) } else { Err(changed(&self.path)) }
    }

    /// Its temporary path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Gives the file its name. Without `replace`, a file that has the name already stays, and that is an error.
    ///
    /// # Errors
    /// The name is taken; the disk fails; another file came to lie under the temporary name, or another directory under
    /// the path of this one.
    pub fn publish(mut self, name: &str, replace: bool) -> Result<PathBuf> {
        let path = self.dir.path_of(name);
        self.file.sync_all().or_path("write", &self.path)?;
        // It is locked until it has its name, and this is dropped: another process would take it for a stale one.
        if !self.is_there()? {
            return Err(changed(&self.path));
        }
        self.dir.check_path()?;
        let result = match replace {
            true => self.dir.rename(&self.name, &self.dir, name),
            false => self.dir.rename_no_replace(&self.name, name),
        };
        result.map_err(|error| match error {
            Errno::EXIST => already_exists(&path),
            _ => Error::io("publish", &path, &error.into()),
        })?;
        // The temporary name is gone: nothing is left to remove.
        self.is_published = true;
        let is_it = self.dir.found(name)?.is_some_and(|found| found.is_same(&self.found));
        // Another run may have replaced it since, as this one has replaced what was there: then it has no name any more.
        let is_replaced =
            || -> Result<bool> { Ok(replace && rustix::fs::fstat(&self.file).or_path("read", &path)?.st_nlink == 0) };
        if !is_it && !is_replaced()? {
            return Err(changed(&path));
        }
        self.dir.sync()?;
        // Whoever looks for it looks there.
        self.dir.check_path()?;
        Ok(path)
    }

    /// Whether its name still stands for it.
    fn is_there(&self) -> Result<bool> {
        Ok(self.dir.found(&self.name)?.is_some_and(|found| found.is_same(&self.found)))
    }
}

impl Drop for Unpublished {
    fn drop(&mut self) {
        if !self.is_published && self.is_there().is_ok_and(|is_there| is_there) {
            let _ = self.dir.remove_file(&self.name);
        }
    }
}

/// A file that is elsewhere than where it is to be, or has another name, until everything that depends on it is whole:
/// a download, for example. Unlike an [`Unpublished`] one it stays when it is not published.
pub trait Publishable: Send + Sync + std::fmt::Debug {
    /// Where it is now.
    fn path(&self) -> &Path;

    /// Gives it its name, in the directory where it is; returns its path.
    ///
    /// # Errors
    /// The name is taken; the directory cannot be written.
    fn publish(&self, name: &str) -> Result<PathBuf>;

    /// Removes it: something else has been made of it.
    fn remove(&self) -> Result<()>;
}

/// Refuses what is no directory to put files in.
pub fn check_output_dir(dir: &Path) -> Result<()> {
    if dir.is_dir() {
        return Ok(());
    }
    let parent = dir.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let is_archive = dir.file_name().is_some_and(|name| name.to_string_lossy().contains(".tar"));
    Err(match (dir.exists(), is_archive) {
        (true, _) => Error::failed(format!("the output directory {} is a file", dir.shown()))
            .with_hint("give a directory: the name of the archive in it follows from its slot and hash"),
        (false, true) => Error::failed(format!("the output directory {} does not exist", dir.shown())).with_hint(
            format!("give a directory, such as {}: the archive's name follows from slot and hash", parent.shown()),
        ),
        (false, false) => Error::failed(format!("the output directory {} does not exist", dir.shown()))
            .with_hint(format!("create it: mkdir -p {}", dir.shown())),
    })
}

/// Refuses a temporary file that another run holds; one without a lock is stale, and removed next.
fn refuse_in_the_making(dir: &KeptDir, name: &OsStr, final_name: &str) -> Result<()> {
    let file = match dir.open_file(name) {
        Ok(file) => file,
        Err(error) => return dir.found(name)?.map_or(Ok(()), |_| Err(error)),
    };
    if !matches!(file.try_lock(), Err(TryLockError::WouldBlock)) {
        return Ok(());
    }
    let holder = lock_holder(&file).flatten().filter(|holder| holder.pid.is_some());
    let by = holder.map_or("another run".to_string(), |holder| holder.to_string());
    let message = format!("{} is being made by {by}", dir.path_of(final_name).shown());
    Err(Error::new(ErrorKind::Exists, message).with_hint("wait until that run has ended: then the archive is there"))
}

/// The error for a file that must not be replaced.
pub fn already_exists(path: &Path) -> Error {
    Error::exists(path).with_hint(Hint::Replace)
}

fn remove_stale(dir: &KeptDir) -> Result<()> {
    for name in dir.names()?.iter().filter(|name| name.to_string_lossy().starts_with(TEMPORARY_PREFIX)) {
        // A file of another user, or one that vanished, is not ours to remove; nor is what is no file.
        let Ok(file) = dir.open_file(name) else { continue };
        if file.try_lock().is_ok() {
            match dir.remove_file(name) {
                // It has got its final name since it was opened, or another process has removed it.
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

    #[test]
    fn nothing_is_replaced_unasked() {
        let dir = tempfile::tempdir().expect("a directory");
        let publish = |text: &str, replace| {
            let file = Unpublished::create(dir.path()).expect("created");
            file.file().write_all(text.as_bytes()).expect("written");
            file.publish("name", replace)
        };
        publish("one", false).expect("published");
        assert!(publish("two", false).expect_err("exists").to_string().contains("exists already"));
        assert_eq!(fs::read_to_string(dir.path().join("name")).expect("read"), "one");
        publish("three", true).expect("replaced");
        assert_eq!(fs::read_to_string(dir.path().join("name")).expect("read"), "three");
        assert_eq!(fs::read_dir(dir.path()).expect("read").count(), 1, "no temporary file stays");
    }

    /// Each of many that begin at once removes what is stale, and nothing that another has just made.
    #[test]
    fn many_begin_at_once() {
        let dir = tempfile::tempdir().expect("a directory");
        std::thread::scope(|scope| {
            for thread in 0..8 {
                let dir = dir.path();
                scope.spawn(move || {
                    for round in 0..100 {
                        let file = Unpublished::create(dir).expect("created");
                        file.publish(&format!("{thread}-{round}"), false).expect("published");
                    }
                });
            }
        });
        assert_eq!(fs::read_dir(dir.path()).expect("read").count(), 800);
    }

    /// What is being made under a name is not begun a second time; of a killed run nothing is in the way.
    #[test]
    fn one_at_a_time_for_a_name() {
        let dir = tempfile::tempdir().expect("a directory");
        let stale = dir.path().join(format!("{TEMPORARY_PREFIX}name"));
        fs::write(&stale, "half").expect("written");
        let kept = Arc::new(KeptDir::open(dir.path()).expect("opened"));
        let first = Unpublished::create_in_for(&kept, "name").expect("created");
        let error = Unpublished::create_in_for(&kept, "name").expect_err("being made");
        assert!(error.kind() == ErrorKind::Exists && error.to_string().contains("is being made by"), "{error}");
        let other = Unpublished::create_in_for(&kept, "other").expect("another name");
        first.publish("name", false).expect("published");
        drop(other);
        drop(Unpublished::create_in_for(&kept, "name").expect("not being made any more"));
        assert_eq!(fs::read_dir(dir.path()).expect("read").count(), 1);
    }

    #[test]
    fn stale_files_go_and_live_ones_stay() {
        let dir = tempfile::tempdir().expect("a directory");
        let stale = dir.path().join(format!("{TEMPORARY_PREFIX}killed"));
        fs::write(&stale, "half").expect("written");
        let live = Unpublished::create(dir.path()).expect("created");
        assert!(!stale.exists());
        let other = Unpublished::create(dir.path()).expect("created");
        assert!(live.path().exists() && other.path().exists());
        drop((live, other));
        assert_eq!(fs::read_dir(dir.path()).expect("read").count(), 0);
    }
}
