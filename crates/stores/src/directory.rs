//! A directory as a store: temporary names and renames, and locks where a condition needs them.

use {
    crate::store::{Condition, Object, Put, Small},
    rustix::{fs::FlockOperation, io::Errno},
    slotpress_base::{
        error::{Error, ErrorKind, IoContext, Result},
        io::{IoHint, space::SpaceWatch, writer::StreamWriter},
        kept_dir::KeptDir,
        progress::{self, Progress},
        text::ShowPath,
    },
    slotpress_read::store::{
        dir_lock::{Locked, try_lock},
        publish::{TEMPORARY_PREFIX, Unpublished, already_exists, check_output_dir},
    },
    std::{
        fs::{self, File, Metadata},
        io::{Read, Write},
        os::unix::fs::MetadataExt,
        path::{Path, PathBuf},
        sync::Arc,
        time::Duration,
    },
};

/// Writing a small file takes a moment: who holds a directory for longer does something else.
const LOCK_WAITS_MAX: u32 = 200;
const LOCK_WAIT: Duration = Duration::from_millis(50);

#[derive(Clone, Debug)]
pub struct Directory(Arc<PathBuf>);

impl Directory {
    pub fn open(dir: &Path) -> Result<Self> {
        check_output_dir(dir)?;
        Ok(Self(Arc::new(dir.to_path_buf())))
    }

    pub fn path_of(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    pub fn shown(&self, name: &str) -> String {
        self.path_of(name).shown()
    }

    pub fn list(&self) -> Result<Vec<Object>> {
        let mut objects = Vec::new();
        for entry in fs::read_dir(&*self.0).or_path("read", &self.0)? {
            let entry = entry.or_path("read", &self.0)?;
            let Some(name) = entry.file_name().to_str().map(String::from) else { continue };
            if !name.starts_with(TEMPORARY_PREFIX) {
                objects.extend(self.stat(&name)?);
            }
        }
        objects.sort_by(|one, other| one.name.cmp(&other.name));
        Ok(objects)
    }

    pub fn stat(&self, name: &str) -> Result<Option<Object>> {
        let path = self.path_of(name);
        match fs::symlink_metadata(&path) {
            Ok(metadata) if metadata.is_file() => Ok(Some(object(name, &metadata, &path)?)),
            Ok(_) => Ok(None),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(Error::io("read", &path, &error)),
        }
    }

    pub fn get_small(&self, name: &str, bytes_max: u64) -> Result<Option<Small>> {
        let path = self.path_of(name);
        let file = match File::open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(Error::io("open", &path, &error)),
        };
        let e_tag = object(name, &file.metadata().or_path("read", &path)?, &path)?.e_tag;
        let mut bytes = Vec::new();
        file.take(bytes_max.saturating_add(1)).read_to_end(&mut bytes).or_path("read", &path)?;
        match bytes.len() as u64 > bytes_max {
            true => Err(Error::failed(format!("{} has more than the {bytes_max} bytes that are read", path.shown()))),
            false => Ok(Some(Small { bytes, e_tag })),
        }
    }

    pub fn put_small(&self, name: &str, bytes: &[u8], condition: &Condition, progress: &dyn Progress) -> Result<Put> {
        let file = Unpublished::create(&self.0)?;
        file.file().write_all(bytes).or_path("write", file.path())?;
        let _lock = match condition {
            Condition::Unchanged(e_tag) => {
                let lock = self.lock(progress)?;
                if self.stat(name)?.and_then(|object| object.e_tag).as_ref() != Some(e_tag) {
                    return Ok(Put::Refused);
                }
                Some(lock)
            }
            Condition::Always | Condition::Absent => None,
        };
        match file.publish(name, *condition != Condition::Absent) {
            Ok(_) => Ok(Put::Done(self.stat(name)?.and_then(|object| object.e_tag))),
            Err(error) if error.kind() == ErrorKind::Exists => Ok(Put::Refused),
            Err(error) => Err(error),
        }
    }

    pub fn delete(&self, name: &str) -> Result<()> {
        let dir = KeptDir::open(&self.0)?;
        match dir.remove_file(name) {
            Ok(()) | Err(Errno::NOENT) => dir.sync(),
            Err(error) => Err(Error::io("delete", &self.path_of(name), &error.into())),
        }
    }

    pub fn upload(&self, name: &str, replace: bool) -> Result<FileUpload> {
        if !replace && self.path_of(name).exists() {
            return Err(already_exists(&self.path_of(name)));
        }
        // Those that replace a file each have the name for a moment.
        let file = match replace {
            true => Unpublished::create(&self.0)?,
            false => Unpublished::create_for(&self.0, name)?,
        };
        let to = StreamWriter::new(file.file().try_clone().or_path("write", file.path())?, IoHint::Gentle);
        Ok(FileUpload { dir: self.clone(), name: name.to_string(), file, to, watch: SpaceWatch::default(), replace })
    }

    /// Locked until it is dropped.
    fn lock(&self, progress: &dyn Progress) -> Result<DirLock> {
        let dir = KeptDir::open(&self.0)?;
        for _ in 0..LOCK_WAITS_MAX {
            match try_lock(&dir).or_path("lock", &self.0)? {
                // Where nothing can be locked, nothing is.
                Locked::Ours | Locked::Unsupported => return Ok(DirLock(dir)),
                Locked::Busy => progress::wait(progress, LOCK_WAIT),
            }
            progress.check()?;
        }
        Err(Error::failed(format!("the directory {} is in use by another program", self.0.shown())))
    }
}

struct DirLock(KeptDir);

impl Drop for DirLock {
    fn drop(&mut self) {
        use std::os::fd::AsFd;
        let _ = rustix::fs::flock(self.0.as_fd(), FlockOperation::Unlock);
    }
}

/// A tag changes with every file that gets the name: it is another inode, or was written at another time.
fn object(name: &str, metadata: &Metadata, path: &Path) -> Result<Object> {
    let (seconds, nanoseconds) = (metadata.mtime(), metadata.mtime_nsec());
    Ok(Object {
        name: name.to_string(),
        length_bytes: metadata.len(),
        modified: metadata.modified().or_path("read", path)?,
        e_tag: Some(format!("\"{:x}-{:x}-{seconds:x}.{nanoseconds:x}\"", metadata.ino(), metadata.len())),
    })
}

/// A large file without its name.
#[derive(Debug)]
pub struct FileUpload {
    dir: Directory,
    name: String,
    file: Unpublished,
    to: StreamWriter<File>,
    watch: SpaceWatch,
    replace: bool,
}

impl FileUpload {
    pub fn write(&mut self, bytes: &[u8]) -> Result<()> {
        self.watch.before_writing(bytes.len() as u64, self.file.file(), &self.dir.0)?;
        self.to.write_all(bytes).or_path("write", self.file.path())
    }

    pub fn finish(mut self) -> Result<Option<String>> {
        self.to.flush().or_path("write", self.file.path())?;
        self.file.publish(&self.name, self.replace)?;
        Ok(self.dir.stat(&self.name)?.and_then(|object| object.e_tag))
    }
}
