//! Where the bytes of an archive go: into a file or a store, where it gets its name at the end, or into a stream.

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use slotpress_base::{Error, IoHint, KeptDir, Progress, Result, ShowPath, SpaceWatch, StreamWriter};
use slotpress_format::ArchiveName;
use slotpress_read::{Unpublished, already_exists, check_output_dir};
#[cfg(feature = "stores")]
use slotpress_stores::{Metadata, Store, Upload};

/// Where an archive goes. It gets its name there when it is complete.
pub struct Sink<'a> {
    pub(crate) place: Place<'a>,
    replace: bool,
}

/// The places that a [`Sink`] may be.
pub(crate) enum Place<'a> {
    /// A directory by its path.
    Dir(PathBuf),
    /// An open directory.
    Kept(Arc<KeptDir>),
    /// A directory or bucket.
    #[cfg(feature = "stores")]
    Store(&'a Store),
    /// A file that its maker names.
    Unnamed(&'a Unpublished),
    /// A stream, such as a pipe to another program.
    Stream(&'a mut (dyn Write + Send)),
}

impl<'a> Sink<'a> {
    /// A directory, which must exist.
    pub fn dir(dir: impl Into<PathBuf>) -> Self {
        Self { place: Place::Dir(dir.into()), replace: false }
    }

    /// A store.
    #[cfg(feature = "stores")]
    pub fn store(store: &'a Store) -> Self {
        Self { place: Place::Store(store), replace: false }
    }

    /// A stream. It may have got a part of an archive when writing fails.
    pub fn stream(stream: &'a mut (dyn Write + Send)) -> Self {
        Self { place: Place::Stream(stream), replace: false }
    }

    /// A file that the caller names, or not.
    pub(crate) fn unnamed(file: &'a Unpublished) -> Self {
        Self { place: Place::Unnamed(file), replace: false }
    }

    /// Says whether an archive of the same name is replaced; otherwise it is an error of
    /// [`ErrorKind::Exists`](crate::ErrorKind::Exists).
    #[must_use]
    pub fn replace(mut self, replace: bool) -> Self {
        self.replace = replace;
        self
    }

    /// Opens the directory: from now on, another directory under the same path does not get the archive.
    pub(crate) fn kept(self) -> Result<Self> {
        match self.place {
            Place::Dir(dir) => {
                check_output_dir(&dir)?;
                Ok(Self { place: Place::Kept(Arc::new(KeptDir::open(&dir)?)), ..self })
            }
            place => Ok(Self { place, ..self }),
        }
    }

    /// Refuses before any work when the archive could not get its name.
    pub(crate) fn check_name(&self, name: &str) -> Result<()> {
        match &self.place {
            Place::Kept(dir) if !self.replace && dir.found(name)?.is_some() => Err(already_exists(&dir.path_of(name))),
            _ => Ok(()),
        }
    }

    /// The directory that a file is made in.
    pub(crate) fn parent(&self) -> Option<&Path> {
        match &self.place {
            Place::Dir(dir) => Some(dir),
            Place::Kept(dir) => Some(dir.path()),
            Place::Unnamed(file) => file.path().parent(),
            _ => None,
        }
    }

    /// What messages call it; `None` for a stream.
    pub(crate) fn shown(&self) -> Option<String> {
        match &self.place {
            #[cfg(feature = "stores")]
            Place::Store(store) => Some(store.shown("")),
            _ => self.parent().map(|dir| dir.shown().to_string()),
        }
    }

    /// The archives that a store has: an incremental archive may build on one.
    pub(crate) fn archives(&self, progress: &dyn Progress) -> Result<Vec<ArchiveName>> {
        match &self.place {
            #[cfg(feature = "stores")]
            Place::Store(store) => {
                let objects = store.list(progress)?;
                Ok(objects.iter().filter_map(|object| ArchiveName::parse(&object.name)).collect())
            }
            _ => {
                let _ = progress;
                Ok(Vec::new())
            }
        }
    }

    /// Opens it for writing an archive of this name, where that is known, of at most about so many bytes.
    pub(crate) fn open(
        self,
        name: Option<&ArchiveName>,
        bytes_max: u64,
        progress: &'a dyn Progress,
    ) -> Result<OpenSink<'a>> {
        let Self { place, replace } = self.kept()?;
        match place {
            Place::Dir(_) => Err(Error::failed("the output directory is not open")),
            Place::Kept(dir) => {
                // Those that replace an archive each have the name for a moment.
                let Some(name) = name.filter(|_| !replace).map(ToString::to_string) else {
                    return Ok(OpenSink::File { file: Unpublished::create_in(&dir)?, replace });
                };
                let file = Unpublished::create_in_for(&dir, &name)?;
                // The run that made it may have ended since it was looked for.
                Self { place: Place::Kept(dir), replace }.check_name(&name)?;
                Ok(OpenSink::File { file, replace })
            }
            #[cfg(feature = "stores")]
            Place::Store(store) => {
                let Some(name) = name else {
                    return Err(Error::usage("what comes from a stream has no name yet, which a store needs first")
                        .with_hint("give a file instead, or write into a directory"));
                };
                // What does not compress is stored, with a header for each block and frame; an index follows.
                let bytes_max = bytes_max.saturating_add(bytes_max / 128).saturating_add(TAIL_BYTES_MAX);
                let metadata = Metadata::of_archive(name, None);
                let upload = store.upload(&name.to_string(), &metadata, bytes_max, replace, progress)?;
                let path = PathBuf::from(store.shown(&name.to_string()));
                Ok(OpenSink::Store { upload: Box::new(upload), path, progress })
            }
            Place::Stream(stream) => {
                let _ = (bytes_max, progress);
                Ok(OpenSink::Stream(stream))
            }
            Place::Unnamed(file) => Ok(OpenSink::Unnamed(file)),
        }
    }
}

/// Hashes, index and seek table of mainnet's archives take 4 MB.
#[cfg(feature = "stores")]
const TAIL_BYTES_MAX: u64 = 64 * 1024 * 1024;

/// A sink that is being written to.
pub(crate) enum OpenSink<'a> {
    /// A file without its name.
    File {
        /// The file.
        file: Unpublished,
        /// Whether an archive of the same name is replaced.
        replace: bool,
    },
    /// An upload.
    #[cfg(feature = "stores")]
    Store {
        /// What was sent so far.
        upload: Box<Upload>,
        /// Where it will be.
        path: PathBuf,
        /// Who is told, and asked whether to stop.
        progress: &'a dyn Progress,
    },
    /// A file that stays without one.
    Unnamed(&'a Unpublished),
    /// A stream.
    Stream(&'a mut (dyn Write + Send)),
}

impl OpenSink<'_> {
    /// The path that errors name.
    pub fn path(&self) -> PathBuf {
        match self {
            Self::File { file, .. } => file.path().to_path_buf(),
            Self::Unnamed(file) => file.path().to_path_buf(),
            #[cfg(feature = "stores")]
            Self::Store { path, .. } => path.clone(),
            Self::Stream(_) => PathBuf::from("standard output"),
        }
    }

    /// The file without its name, where it is one.
    pub fn file(&self) -> Option<&Unpublished> {
        match self {
            Self::File { file, .. } => Some(file),
            Self::Unnamed(file) => Some(file),
            _ => None,
        }
    }

    /// Its path.
    pub fn file_path(&self) -> Option<&Path> {
        self.file().map(Unpublished::path)
    }

    /// Writes to it, as a hint says. Flushing the writer ends the archive.
    pub fn writer(&mut self, hint: IoHint) -> Box<dyn Write + '_> {
        match self {
            Self::File { file, .. } => Box::new(Watched::new(file, hint)),
            Self::Unnamed(file) => Box::new(Watched::new(file, hint)),
            #[cfg(feature = "stores")]
            Self::Store { upload, progress, .. } => Box::new(Sent { upload, progress: *progress }),
            Self::Stream(stream) => Box::new(stream),
        }
    }

    /// The archive is complete: gives it its name; returns its path, where it has one.
    pub fn publish(self, name: &str) -> Result<Option<PathBuf>> {
        match self {
            Self::File { file, replace } => file.publish(name, replace).map(Some),
            #[cfg(feature = "stores")]
            Self::Store { upload, path, progress } => match path.file_name().is_some_and(|promised| promised == name) {
                true => upload.finish(progress).map(|_| Some(path)),
                false => Err(Error::damaged(format!("the archive turned out to be {name}, not what its name says"))),
            },
            Self::Unnamed(_) => Ok(None),
            Self::Stream(stream) => {
                stream.flush().map_err(|error| Error::io("write", Path::new("standard output"), &error))?;
                Ok(None)
            }
        }
    }
}

/// Writes a file, and stops before its file system is full.
struct Watched<'a> {
    to: StreamWriter<&'a File>,
    file: &'a File,
    path: &'a Path,
    watch: SpaceWatch,
}

impl<'a> Watched<'a> {
    fn new(file: &'a Unpublished, hint: IoHint) -> Self {
        let to = StreamWriter::new(file.file(), hint);
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

/// Sends what is written.
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
