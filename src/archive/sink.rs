//! Where the bytes of an archive go: into a file that gets its name at the end, or into a stream.

use {
    slotpress_base::{
        error::{Error, Result},
        io::{IoHint, space::SpaceWatch, writer::StreamWriter},
        kept_dir::KeptDir,
    },
    slotpress_read::store::publish::{Unpublished, already_exists},
    std::{
        fs::File,
        io::{self, Write},
        path::{Path, PathBuf},
        sync::Arc,
    },
};

/// Where an archive goes.
pub enum Sink<'a> {
    /// Into a directory, under its name; `replace` says whether one of that name may go.
    Dir {
        /// The directory; it must exist.
        dir: &'a Path,
        /// Whether an archive of the same name is replaced.
        replace: bool,
    },
    /// Into a directory, without a name: what becomes of the file is up to who gets it.
    Unnamed {
        /// The directory.
        dir: &'a Arc<KeptDir>,
        /// Where the file goes when it is whole.
        file: &'a mut Option<Unpublished>,
    },
    /// Into a stream, such as a pipe to another program.
    Stream(&'a mut (dyn Write + Send)),
}

impl<'a> Sink<'a> {
    /// Refuses before any work when the archive could not get its name.
    pub(crate) fn check_name(&self, name: &str) -> Result<()> {
        match self {
            Self::Dir { dir, replace: false } if dir.join(name).exists() => Err(already_exists(&dir.join(name))),
            _ => Ok(()),
        }
    }

    /// The directory that a file is made in.
    pub(crate) fn dir(&self) -> Option<&Path> {
        match self {
            Self::Dir { dir, .. } => Some(dir),
            Self::Unnamed { dir, .. } => Some(dir.path()),
            Self::Stream(_) => None,
        }
    }

    /// Opens it for writing, of an archive of this name, where that is known.
    pub(crate) fn open(self, name: Option<&str>) -> Result<OpenSink<'a>> {
        match self {
            Self::Dir { dir, replace } => {
                // Those that replace an archive each have the name for a moment.
                let Some(name) = name.filter(|_| !replace) else {
                    return Ok(OpenSink::File { file: Unpublished::create(dir)?, replace });
                };
                let file = Unpublished::create_for(dir, name)?;
                // The run that made it may have ended since it was looked for.
                Self::Dir { dir, replace }.check_name(name)?;
                Ok(OpenSink::File { file, replace })
            }
            Self::Unnamed { dir, file: to } => Ok(OpenSink::Unnamed { file: Unpublished::create_in(dir)?, to }),
            Self::Stream(stream) => Ok(OpenSink::Stream(stream)),
        }
    }
}

/// A sink that is being written to.
pub(crate) enum OpenSink<'a> {
    /// A file without its name.
    File {
        /// The file.
        file: Unpublished,
        /// Whether an archive of the same name is replaced.
        replace: bool,
    },
    /// A file that stays without one.
    Unnamed {
        /// The file.
        file: Unpublished,
        /// Where it goes when it is whole.
        to: &'a mut Option<Unpublished>,
    },
    /// A stream.
    Stream(&'a mut (dyn Write + Send)),
}

impl OpenSink<'_> {
    /// The path that errors name.
    pub fn path(&self) -> PathBuf {
        match self {
            Self::File { file, .. } | Self::Unnamed { file, .. } => file.path().to_path_buf(),
            Self::Stream(_) => PathBuf::from("standard output"),
        }
    }

    /// The file without its name, where it is one.
    pub fn file_path(&self) -> Option<&Path> {
        match self {
            Self::File { file, .. } | Self::Unnamed { file, .. } => Some(file.path()),
            Self::Stream(_) => None,
        }
    }

    /// Writes to it, as a hint says. Flushing the writer ends the archive.
    pub fn writer(&mut self, hint: IoHint) -> Box<dyn Write + '_> {
        match self {
            Self::File { file, .. } | Self::Unnamed { file, .. } => Box::new(Watched {
                to: StreamWriter::new(file.file(), hint),
                file: file.file(),
                path: file.path(),
                watch: SpaceWatch::default(),
            }),
            Self::Stream(stream) => Box::new(stream),
        }
    }

    /// The archive is complete: gives it its name; returns its path, where it has one.
    pub fn publish(self, name: &str) -> Result<Option<PathBuf>> {
        match self {
            Self::File { file, replace } => file.publish(name, replace).map(Some),
            Self::Unnamed { file, to } => {
                *to = Some(file);
                Ok(None)
            }
            Self::Stream(stream) => {
                stream.flush().map_err(|error| Error::io("write", Path::new("standard output"), &error))?;
                Ok(None)
            }
        }
    }
}

/// Writes a file, and stops before its file system is full.
struct Watched<'a> {
    to: StreamWriter<'a>,
    file: &'a File,
    path: &'a Path,
    watch: SpaceWatch,
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
