//! A directory as a target: small objects with conditions, archives that appear whole.

use {
    rustix::{
        fs::{AtFlags, linkat},
        io::Errno,
    },
    slotpress_base::{
        error::{Error, IoContext, Result},
        io::{IoHint, writer::StreamWriter},
        kept_dir::KeptDir,
        progress::Progress,
        text::ShowPath,
    },
    slotpress_read::store::{
        dir_lock::try_lock,
        publish::{Unpublished, already_exists},
    },
    std::{
        fs::File,
        io::{Read, Write},
        path::{Path, PathBuf},
        sync::Arc,
    },
};

/// Larger is no index of ours.
const SMALL_BYTES_MAX: u64 = 64 << 20;

/// Copied at a time.
const PIECE_BYTES: usize = 1 << 20;

/// What tells one content of a small object from another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Version(String);

/// The directory.
#[derive(Debug)]
pub struct Place {
    path: PathBuf,
}

impl Place {
    /// The directory at a path; made when something is put there.
    pub fn new(path: &Path) -> Self {
        Self { path: path.to_path_buf() }
    }

    /// How messages name it.
    pub fn shown(&self) -> String {
        self.path.shown()
    }

    fn dir_of(&self, key: &str) -> Result<(Arc<KeptDir>, String)> {
        let (dir, name) = key.rsplit_once('/').unwrap_or(("", key));
        Ok((KeptDir::open_or_make(&self.path.join(dir), &mut |_, _| {})?, name.to_string()))
    }

    /// A small object, and which one it is.
    ///
    /// # Errors
    /// The disk fails.
    pub fn get_small(&self, key: &str) -> Result<Option<(Vec<u8>, Version)>> {
        let path = self.path.join(key);
        let mut bytes = Vec::new();
        match File::open(&path) {
            Ok(file) => file.take(SMALL_BYTES_MAX).read_to_end(&mut bytes).or_path("read", &path)?,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(Error::io("open", &path, &error)),
        };
        let version = Version(blake3::hash(&bytes).to_string());
        Ok(Some((bytes, version)))
    }

    /// Puts a small object in the place of the one that is expected there; `false` where another one is.
    ///
    /// # Errors
    /// The disk fails, or is full.
    pub fn put_small(&self, key: &str, bytes: &[u8], expected: Option<&Version>) -> Result<bool> {
        let (dir, name) = self.dir_of(key)?;
        // Where the file system does not lock, two that publish into one directory are not told apart.
        let _ = try_lock(&dir).or_path("lock", dir.path())?;
        let is_expected = self.get_small(key)?.map(|(_, version)| version).as_ref() == expected;
        if is_expected {
            let file = Unpublished::create_in(&dir)?;
            file.file().write_all(bytes).or_path("write", file.path())?;
            file.publish(&name, true)?;
        }
        Ok(is_expected)
    }

    /// Puts a file there whole, by another name for it where that is possible.
    ///
    /// # Errors
    /// Of [`ErrorKind::Exists`](slotpress_base::error::ErrorKind::Exists) where the name is taken; the disk fails, or is full.
    pub fn upload(&self, key: &str, from: &Path, io_hint: IoHint, progress: &dyn Progress) -> Result<()> {
        let (dir, name) = self.dir_of(key)?;
        match linkat(rustix::fs::CWD, from, &dir, &name, AtFlags::empty()) {
            Ok(()) => return dir.sync(),
            Err(Errno::EXIST) => return Err(already_exists(&dir.path_of(&name))),
            Err(Errno::XDEV | Errno::PERM | Errno::MLINK | Errno::OPNOTSUPP) => {}
            Err(error) => return Err(Error::io("write", &dir.path_of(&name), &error.into())),
        }
        let (mut source, to) = (File::open(from).or_path("open", from)?, Unpublished::create_for(dir.path(), &name)?);
        let mut writer = StreamWriter::new(to.file(), io_hint);
        let mut buffer = vec![0; PIECE_BYTES];
        loop {
            progress.check()?;
            let read = source.read(&mut buffer).or_path("read", from)?;
            if read == 0 {
                break;
            }
            writer.write_all(buffer.get(..read).unwrap_or_default()).or_path("write", to.path())?;
        }
        writer.flush().or_path("write", to.path())?;
        drop(writer);
        to.publish(&name, false).map(drop)
    }

    /// Where an object can be looked into.
    pub fn path_of(&self, key: &str) -> PathBuf {
        self.path.join(key)
    }

    /// Removes an archive; one that is gone is no error.
    ///
    /// # Errors
    /// The system refuses.
    pub fn delete(&self, key: &str) -> Result<()> {
        let path = self.path.join(key);
        match std::fs::remove_file(&path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(Error::io("remove", &path, &error)),
            _ => Ok(()),
        }
    }
}
