//! A directory as a store: temporary names and renames, and locks for conditional writes.

use std::fs::File;
use std::io::Write;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use rustix::fs::{AtFlags, FileType, FlockOperation, Mode, OFlags, Stat, flock, fstat, openat, statat};
use rustix::io::Errno;
use slotpress_base::progress;
use slotpress_base::{
    Error, ErrorKind, EscapePath, IoContext, IoHint, KeptDir, Progress, Result, SpaceWatch, StreamWriter, read_at_most,
};
use slotpress_net::s3::{Condition, Object, PutOutcome, SmallFile};
use slotpress_read::{
    LocalFile, LockAttempt, StagedFile, TEMPORARY_PREFIX, already_exists_error, check_output_dir, modified_ns, try_lock,
};

/// Limit on the number of waits for the lock. Writing a small file takes a moment, so a lock that is
/// held longer belongs to another program.
const LOCK_WAITS_MAX: u32 = 200;
const LOCK_WAIT: Duration = Duration::from_millis(50);

/// An open directory. Symbolic links in it are not followed, nor is a link that replaces the directory
/// after it was opened.
#[derive(Clone, Debug)]
pub struct Directory(pub Arc<KeptDir>);

impl Directory {
    pub fn open(dir: &Path) -> Result<Self> {
        check_output_dir(dir)?;
        Ok(Self(Arc::new(KeptDir::open(dir)?)))
    }

    pub fn open_dir(&self, name: &str) -> Result<Option<Self>> {
        Ok(self.0.open_dir(name)?.map(|dir| Self(Arc::new(dir))))
    }

    pub fn open_or_create_dir(&self, name: &str) -> Result<Self> {
        Ok(Self(Arc::new(self.0.open_or_create_dir(name, &mut || ())?)))
    }

    pub fn location_of(&self, name: &str) -> String {
        self.0.path_of(name).escaped()
    }

    pub fn list(&self) -> Result<Vec<Object>> {
        let mut objects = Vec::new();
        for name in self.0.names()? {
            let Some(name) = name.to_str() else { continue };
            if !name.starts_with(TEMPORARY_PREFIX) {
                objects.extend(self.stat(name)?);
            }
        }
        objects.sort_by(|first, second| first.name.cmp(&second.name));
        Ok(objects)
    }

    pub fn stat(&self, name: &str) -> Result<Option<Object>> {
        match statat(&self.0, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) if FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile => {
                Ok(Some(to_object(name, &stat)))
            }
            Ok(_) | Err(Errno::NOENT) => Ok(None),
            Err(error) => Err(Error::io("read", &self.0.path_of(name), &error.into())),
        }
    }

    pub fn get_small_file(&self, name: &str, bytes_max: u64) -> Result<Option<SmallFile>> {
        if self.0.stat_entry(name)?.is_none() {
            return Ok(None);
        }
        let path = self.0.path_of(name);
        let file = self.0.open_file(name)?;
        let etag = to_object(name, &fstat(&file).or_path("read", &path)?).etag;
        let bytes = read_at_most(file, bytes_max.saturating_add(1), &path)?;
        if bytes.len() as u64 > bytes_max {
            Err(Error::failed(format!("{} exceeds the limit of {bytes_max} bytes", path.escaped()))
                .with_hint("another program wrote it: move it away, or choose another target"))
        } else {
            Ok(Some(SmallFile { bytes, etag }))
        }
    }

    pub fn open_source(&self, name: &str) -> Result<LocalFile> {
        let path = self.0.path_of(name);
        LocalFile::new(path, self.0.open_file(name)?)
    }

    pub fn put_small_file(
        &self,
        name: &str,
        bytes: &[u8],
        condition: &Condition,
        progress: &dyn Progress,
    ) -> Result<PutOutcome> {
        let file = StagedFile::create_in(&self.0)?;
        file.file().write_all(bytes).or_path("write", file.path())?;
        // The lock is held until the file has its name.
        let _lock = match condition {
            Condition::Unchanged(etag) => {
                let lock = self.lock(progress)?;
                if self.stat(name)?.and_then(|object| object.etag).as_ref() != Some(etag) {
                    return Ok(PutOutcome::Refused);
                }
                Some(lock)
            }
            Condition::Always | Condition::Absent => None,
        };
        match file.replace(*condition != Condition::Absent).publish(name) {
            Ok(_) => Ok(PutOutcome::Done),
            Err(error) if error.kind() == ErrorKind::Exists => Ok(PutOutcome::Refused),
            Err(error) => Err(error),
        }
    }

    pub fn delete(&self, name: &str) -> Result<()> {
        match self.0.remove_file(name) {
            Ok(()) | Err(Errno::NOENT) => self.0.sync(),
            Err(error) => Err(Error::io("delete", &self.0.path_of(name), &error.into())),
        }
    }

    pub fn upload(&self, name: &str, replace: bool) -> Result<FileUpload> {
        if !replace && self.0.stat_entry(name)?.is_some() {
            return Err(already_exists_error(&self.0.path_of(name)));
        }
        // Several uploads may replace the same file at the same time. The one that finishes last keeps the name.
        let file = if replace { StagedFile::create_in(&self.0) } else { StagedFile::create_for(&self.0, name) }?;
        let file_copy = file.file().try_clone().or_path("write", file.path())?;
        Ok(FileUpload {
            dir: self.clone(),
            name: name.to_string(),
            file: file.replace(replace),
            writer: StreamWriter::new(file_copy, IoHint::Gentle),
            space: SpaceWatch::default(),
        })
    }

    fn lock(&self, progress: &dyn Progress) -> Result<DirLock> {
        // A lock belongs to an open file description, so each caller opens the directory again.
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let dir = openat(&self.0, ".", flags, Mode::empty()).or_path("open", self.0.path())?;
        for _ in 0..LOCK_WAITS_MAX {
            match try_lock(&dir).or_path("lock", self.0.path())? {
                // On a file system without locks, the file is not protected.
                LockAttempt::Acquired | LockAttempt::Unsupported => return Ok(DirLock(dir)),
                LockAttempt::Busy => progress::wait(progress, LOCK_WAIT),
            }
            progress.check()?;
        }
        let dir = self.0.path().escaped();
        let waited = LOCK_WAIT.saturating_mul(LOCK_WAITS_MAX).as_secs();
        let message = format!("the directory {dir} is in use: another program has held its lock for {waited} s");
        Err(Error::new(ErrorKind::InUse, message)
            .with_hint("wait until that program has ended, or choose another target"))
    }
}

struct DirLock(OwnedFd);

impl Drop for DirLock {
    fn drop(&mut self) {
        let _ = flock(&self.0, FlockOperation::Unlock);
    }
}

/// Describes a file. Its tag contains the inode and the modification time, so a file that replaces it has a
/// different tag.
fn to_object(name: &str, stat: &Stat) -> Object {
    let since_1970 = Duration::from_nanos(modified_ns(stat));
    Object {
        name: name.to_string(),
        length_bytes: u64::try_from(stat.st_size).unwrap_or_default(),
        modified: SystemTime::UNIX_EPOCH.checked_add(since_1970).unwrap_or(SystemTime::UNIX_EPOCH),
        etag: Some(format!("\"{:x}-{:x}-{:x}.{:x}\"", stat.st_ino, stat.st_size, stat.st_mtime, stat.st_mtime_nsec)),
    }
}

#[derive(Debug)]
pub struct FileUpload {
    dir: Directory,
    name: String,
    file: StagedFile,
    writer: StreamWriter<File>,
    space: SpaceWatch,
}

impl FileUpload {
    pub fn write(&mut self, bytes: &[u8]) -> Result<()> {
        self.space.check_before_writing(bytes.len() as u64, self.file.file(), self.dir.0.path())?;
        self.writer.write_all(bytes).or_path("write", self.file.path())
    }

    pub fn finish(mut self) -> Result<()> {
        self.writer.finish().or_path("write", self.file.path())?;
        self.file.publish(&self.name).map(drop)
    }
}
