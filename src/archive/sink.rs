//! Destination of an archive: a directory or a store, where the archive gets its name at the end,
//! or a stream.

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

#[cfg(feature = "stores")]
use slotpress_base::Error;
use slotpress_base::{IoContext, IoHint, KeptDir, Progress, Result, ShowPath, SpaceWatch, StreamWriter};
use slotpress_format::ArchiveName;
use slotpress_read::{Unpublished, already_exists, check_output_dir};
#[cfg(feature = "stores")]
use slotpress_stores::{Store, Upload, headers_of};

/// Destination of an archive. In a directory or store, the archive gets its name only when it
/// is complete.
pub struct Sink<'a> {
    pub(crate) place: SinkKind<'a>,
    replace: bool,
}

pub(crate) enum SinkKind<'a> {
    Dir(Arc<KeptDir>),
    #[cfg(feature = "stores")]
    Store(&'a Store),
    #[cfg_attr(not(all(feature = "serve", feature = "stores")), allow(dead_code))]
    Unnamed(&'a Unpublished),
    Stream(&'a mut (dyn Write + Send)),
}

impl<'a> Sink<'a> {
    /// Writes into a directory, which is opened now: the archive goes into it even if it is renamed
    /// meanwhile.
    ///
    /// # Errors
    /// The directory does not exist, or cannot be read.
    pub fn dir(dir: impl AsRef<Path>) -> Result<Self> {
        check_output_dir(dir.as_ref())?;
        Ok(Self { place: SinkKind::Dir(Arc::new(KeptDir::open(dir.as_ref())?)), replace: false })
    }

    /// Uploads into a directory or bucket.
    #[cfg(feature = "stores")]
    pub fn store(store: &'a Store) -> Self {
        Self { place: SinkKind::Store(store), replace: false }
    }

    /// Writes to a stream, for example a pipe. If archiving fails, the stream may have received a
    /// part of the archive.
    pub fn stream(stream: &'a mut (dyn Write + Send)) -> Self {
        Self { place: SinkKind::Stream(stream), replace: false }
    }

    /// Writes into a file that the caller names or discards afterwards.
    #[cfg_attr(not(all(feature = "serve", feature = "stores")), allow(dead_code))]
    pub(crate) fn unnamed(file: &'a Unpublished) -> Self {
        Self { place: SinkKind::Unnamed(file), replace: false }
    }

    /// Permits replacing an archive of the same name. Without this, such an archive is an error of
    /// kind [`ErrorKind::Exists`](crate::ErrorKind::Exists).
    #[must_use]
    pub fn replace(mut self, replace: bool) -> Self {
        self.replace = replace;
        self
    }

    /// Fails if an archive of this name exists in the directory and may not be replaced.
    pub(crate) fn check_name(&self, name: &str) -> Result<()> {
        match &self.place {
            SinkKind::Dir(dir) if !self.replace && dir.found(name)?.is_some() => {
                Err(already_exists(&dir.path_of(name)))
            }
            _ => Ok(()),
        }
    }

    /// Returns the output directory, or `None` for a store or a stream.
    pub(crate) fn parent(&self) -> Option<&Path> {
        match &self.place {
            SinkKind::Dir(dir) => Some(dir.path()),
            SinkKind::Unnamed(file) => file.path().parent(),
            _ => None,
        }
    }

    /// Returns the destination as messages name it, or `None` for a stream.
    pub(crate) fn shown(&self) -> Option<String> {
        match &self.place {
            #[cfg(feature = "stores")]
            SinkKind::Store(store) => Some(store.shown("")),
            _ => self.parent().map(|dir| dir.shown().to_string()),
        }
    }

    /// Lists the archives in a store, one of which may be the base of an incremental archive.
    /// Returns none for other destinations.
    pub(crate) fn archives(&self, progress: &dyn Progress) -> Result<Vec<ArchiveName>> {
        match &self.place {
            #[cfg(feature = "stores")]
            SinkKind::Store(store) => {
                let objects = store.list(progress)?;
                Ok(objects.iter().filter_map(|object| ArchiveName::parse(&object.name)).collect())
            }
            _ => {
                let _ = progress;
                Ok(Vec::new())
            }
        }
    }

    /// Opens the destination for an archive of at most about `bytes_max` bytes. A store needs the
    /// archive's name in advance.
    pub(crate) fn open(
        self,
        name: Option<&ArchiveName>,
        bytes_max: u64,
        progress: &'a dyn Progress,
    ) -> Result<OpenSink<'a>> {
        let Self { place, replace } = self;
        match place {
            SinkKind::Dir(dir) => {
                // Several runs may replace the same archive at once: the last one wins.
                let Some(name) = name.filter(|_| !replace).map(ToString::to_string) else {
                    return Ok(OpenSink::File { file: Unpublished::create_in(&dir)?, replace });
                };
                let file = Unpublished::create_in_for(&dir, &name)?;
                // Another run may have finished this archive since the first check.
                Self { place: SinkKind::Dir(dir), replace }.check_name(&name)?;
                Ok(OpenSink::File { file, replace })
            }
            #[cfg(feature = "stores")]
            SinkKind::Store(store) => {
                let Some(name) = name else {
                    return Err(Error::usage("an archive from a stream has no name, and a store needs the name first")
                        .with_hint("give a file instead, or write into a directory"));
                };
                // Content that cannot be compressed grows by a few bytes per block and frame. An
                // index follows.
                let bytes_max = bytes_max.saturating_add(bytes_max / 128).saturating_add(TAIL_BYTES_MAX);
                let headers = headers_of(name, None);
                let upload = store.upload(&name.to_string(), &headers, bytes_max, replace, progress)?;
                let path = PathBuf::from(store.shown(&name.to_string()));
                Ok(OpenSink::Store { upload: Box::new(upload), path, progress })
            }
            SinkKind::Stream(stream) => {
                let _ = (bytes_max, progress);
                Ok(OpenSink::Stream(stream))
            }
            SinkKind::Unnamed(file) => Ok(OpenSink::Unnamed(file)),
        }
    }
}

/// Limit on the data after the last frame. On mainnet, hashes, index and seek table take 4 MB.
#[cfg(feature = "stores")]
const TAIL_BYTES_MAX: u64 = 64 * 1024 * 1024;

const STANDARD_OUTPUT: &str = "standard output";

pub(crate) enum OpenSink<'a> {
    File {
        file: Unpublished,
        replace: bool,
    },
    #[cfg(feature = "stores")]
    Store {
        upload: Box<Upload>,
        path: PathBuf,
        progress: &'a dyn Progress,
    },
    Unnamed(&'a Unpublished),
    Stream(&'a mut (dyn Write + Send)),
}

impl OpenSink<'_> {
    pub fn path(&self) -> PathBuf {
        match self {
            #[cfg(feature = "stores")]
            Self::Store { path, .. } => path.clone(),
            _ => self.file_path().unwrap_or(Path::new(STANDARD_OUTPUT)).to_path_buf(),
        }
    }

    /// Returns the file before it gets its name, or `None` for a store or a stream.
    pub fn file(&self) -> Option<&Unpublished> {
        match self {
            Self::File { file, .. } => Some(file),
            Self::Unnamed(file) => Some(file),
            _ => None,
        }
    }

    pub fn file_path(&self) -> Option<&Path> {
        self.file().map(Unpublished::path)
    }

    /// Returns a writer for the archive's bytes, which must be flushed after the last byte. `hint`
    /// governs its use of the page cache.
    pub fn writer(&mut self, hint: IoHint) -> Box<dyn Write + '_> {
        match self {
            Self::File { file, .. } => Box::new(Watched::new(file, hint)),
            Self::Unnamed(file) => Box::new(Watched::new(file, hint)),
            #[cfg(feature = "stores")]
            Self::Store { upload, progress, .. } => Box::new(Sent { upload, progress: *progress }),
            Self::Stream(stream) => Box::new(stream),
        }
    }

    /// Brings the complete archive to disk and gives it its name, unless the run is interrupted.
    /// Returns the archive's path, or `None` for a stream or an unnamed file.
    pub fn publish(self, name: &ArchiveName, progress: &dyn Progress) -> Result<Option<PathBuf>> {
        progress.stage("Syncing", None);
        progress.check()?;
        let name = &name.to_string();
        match self {
            Self::File { file, replace } => file.publish(name, replace).map(Some),
            #[cfg(feature = "stores")]
            Self::Store { upload, path, progress } => match path
                .file_name()
                .is_some_and(|promised| promised == name.as_str())
            {
                true => upload.finish(progress).map(|()| Some(path)),
                false => Err(Error::damaged(format!("by its content, the archive is {name}, not what its name says"))),
            },
            Self::Unnamed(_) => Ok(None),
            Self::Stream(stream) => {
                stream.flush().or_path("write", Path::new(STANDARD_OUTPUT))?;
                Ok(None)
            }
        }
    }
}

/// Writes a file, and fails before the file system is full.
struct Watched<'a> {
    to: StreamWriter<&'a File>,
    file: &'a File,
    path: &'a Path,
    watch: SpaceWatch,
}

impl<'a> Watched<'a> {
    fn new(file: &'a Unpublished, hint: IoHint) -> Self {
        let to = StreamWriter::direct(file.file(), hint);
        Self { to, file: file.file(), path: file.path(), watch: SpaceWatch::default() }
    }
}

impl Write for Watched<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let dir = self.path.parent().unwrap_or(self.path);
        self.watch.before_writing(bytes.len() as u64, self.file, dir).map_err(io::Error::other)?;
        self.to.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }
}

#[cfg(feature = "stores")]
struct Sent<'a> {
    upload: &'a mut Upload,
    progress: &'a dyn Progress,
}

#[cfg(feature = "stores")]
impl Write for Sent<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.upload.write(bytes, self.progress).map_err(io::Error::other)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
