//! Destinations of an archive: a stream, or a directory or store, where the archive appears under its name
//! at the end.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use slotpress_base::{Error, EscapePath, IoContext, IoHint, KeptDir, Progress, Result, SpaceWatch, StreamWriter};
use slotpress_format::ArchiveName;
use slotpress_read::{StagedFile, already_exists_error, check_output_dir};
#[cfg(feature = "stores")]
use slotpress_stores::{Store, Upload, headers_of};

/// Destination of an archive: a [`DirSink`], a [`StreamSink`] or, with the feature `stores`, a
/// `StoreSink`. In a directory or store, the archive appears under its name only when it is complete.
///
/// This trait is sealed: no other type can implement it.
pub trait Sink: Destination {}

impl<D: Destination> Sink for D {}

/// The operations of a [`Sink`]. The library does not export this trait. `progress` interrupts requests to a
/// store.
pub trait Destination {
    /// Returns the output directory; `None` for a store or a stream.
    fn dir(&self) -> Option<&KeptDir> {
        None
    }

    fn dir_path(&self) -> Option<&Path> {
        self.dir().map(KeptDir::path)
    }

    /// Returns the name of the destination for messages; `None` for a stream.
    fn location(&self) -> Option<String> {
        self.dir_path().map(EscapePath::escaped)
    }

    /// Lists the archives in a store, one of which may be the base of an incremental archive. Lists
    /// nothing for a directory or a stream.
    fn archives(&self, _progress: &dyn Progress) -> Result<Vec<ArchiveName>> {
        Ok(Vec::new())
    }

    /// Fails if an archive of this name exists in the directory and may not be replaced.
    fn check_name(&self, _name: &str) -> Result<()> {
        Ok(())
    }

    /// Begins an archive of at most about `bytes_max` bytes. A store needs the archive's name now.
    fn begin(&mut self, _name: Option<&ArchiveName>, _bytes_max: u64, _: IoHint, _: &dyn Progress) -> Result<()> {
        Ok(())
    }

    /// Returns the file before it is renamed into place; `None` for a store or a stream.
    fn staged_file(&self) -> Option<&StagedFile> {
        None
    }

    fn write(&mut self, bytes: &[u8], progress: &dyn Progress) -> Result<()>;

    /// Writes all bytes out, so that a file can be read back.
    fn flush(&mut self) -> Result<()> {
        Ok(())
    }

    /// Brings the complete archive to disk and gives it its name. Returns its path or its URL; `None`
    /// for a stream.
    fn publish(&mut self, _name: &str, _progress: &dyn Progress) -> Result<Option<PathBuf>> {
        Ok(None)
    }
}

fn not_started_error() -> Error {
    Error::failed("the destination of the archive is not open")
}

/// An output directory. Until the archive is complete, it is a temporary file there.
pub struct DirSink {
    dir: Arc<KeptDir>,
    replace: bool,
    watch: SpaceWatch,
    unfinished: Option<(StagedFile, StreamWriter<File>)>,
}

impl DirSink {
    /// Opens a directory, into which the archive is written even if the directory is renamed
    /// meanwhile.
    ///
    /// # Errors
    /// There is no such directory, or it cannot be opened.
    pub fn open(dir: impl AsRef<Path>) -> Result<Self> {
        check_output_dir(dir.as_ref())?;
        Ok(Self::from_dir(Arc::new(KeptDir::open(dir.as_ref())?)))
    }

    pub(crate) fn from_dir(dir: Arc<KeptDir>) -> Self {
        Self { dir, replace: false, watch: SpaceWatch::default(), unfinished: None }
    }

    /// Permits replacing an archive of the same name. Without this, such an archive is an error of
    /// kind [`ErrorKind::Exists`](crate::ErrorKind::Exists).
    #[must_use]
    pub fn replace(mut self, replace: bool) -> Self {
        self.replace = replace;
        self
    }
}

impl Destination for DirSink {
    fn dir(&self) -> Option<&KeptDir> {
        Some(&self.dir)
    }

    fn check_name(&self, name: &str) -> Result<()> {
        if !self.replace && self.dir.stat_entry(name)?.is_some() {
            return Err(already_exists_error(&self.dir.path_of(name)));
        }
        Ok(())
    }

    fn begin(&mut self, name: Option<&ArchiveName>, _: u64, hint: IoHint, _: &dyn Progress) -> Result<()> {
        // Several runs may replace the same archive at once: the last one to finish wins.
        let file = match name {
            Some(name) if !self.replace => {
                let name = name.to_string();
                let file = StagedFile::create_for(&self.dir, &name)?;
                // Another run may have finished this archive since the first check.
                self.check_name(&name)?;
                file
            }
            _ => StagedFile::create_in(&self.dir)?,
        };
        let writer = StreamWriter::direct(file.file().try_clone().or_path("write", file.path())?, hint);
        self.unfinished = Some((file, writer));
        Ok(())
    }

    fn staged_file(&self) -> Option<&StagedFile> {
        self.unfinished.as_ref().map(|(file, _)| file)
    }

    fn write(&mut self, bytes: &[u8], _progress: &dyn Progress) -> Result<()> {
        let (file, writer) = self.unfinished.as_mut().ok_or_else(not_started_error)?;
        self.watch.check_before_writing(bytes.len() as u64, file.file(), self.dir.path())?;
        writer.write_all(bytes).or_path("write", file.path())
    }

    fn flush(&mut self) -> Result<()> {
        let (file, writer) = self.unfinished.as_mut().ok_or_else(not_started_error)?;
        writer.finish().or_path("write", file.path())
    }

    fn publish(&mut self, name: &str, _progress: &dyn Progress) -> Result<Option<PathBuf>> {
        let (file, _) = self.unfinished.take().ok_or_else(not_started_error)?;
        file.replace(self.replace).publish(name).map(Some)
    }
}

/// A stream. If archiving fails, it may have received a part of the archive.
pub struct StreamSink<'a> {
    stream: &'a mut (dyn Write + Send),
    name: &'a str,
}

impl<'a> StreamSink<'a> {
    /// Writes to a stream. Errors call it `name`.
    pub fn new(stream: &'a mut (dyn Write + Send), name: &'a str) -> Self {
        Self { stream, name }
    }
}

impl Destination for StreamSink<'_> {
    fn write(&mut self, bytes: &[u8], _progress: &dyn Progress) -> Result<()> {
        self.stream.write_all(bytes).or_path("write", Path::new(self.name))
    }

    fn flush(&mut self) -> Result<()> {
        self.stream.flush().or_path("write", Path::new(self.name))
    }
}

/// A store, to which the archive is uploaded.
#[cfg(feature = "stores")]
pub struct StoreSink<'a> {
    store: &'a Store,
    replace: bool,
    unfinished: Option<(Upload, String)>,
}

/// Limit on the data after the last frame. On mainnet, index and seek table take 6 MB.
#[cfg(feature = "stores")]
const TAIL_BYTES_MAX: u64 = 64 * 1024 * 1024;

#[cfg(feature = "stores")]
impl<'a> StoreSink<'a> {
    /// Uploads to a directory or bucket.
    pub fn new(store: &'a Store) -> Self {
        Self { store, replace: false, unfinished: None }
    }

    /// Permits replacing an archive of the same name, as [`DirSink::replace`] does.
    #[must_use]
    pub fn replace(mut self, replace: bool) -> Self {
        self.replace = replace;
        self
    }
}

#[cfg(feature = "stores")]
impl Destination for StoreSink<'_> {
    fn location(&self) -> Option<String> {
        Some(self.store.location_of(""))
    }

    fn archives(&self, progress: &dyn Progress) -> Result<Vec<ArchiveName>> {
        let objects = self.store.list(progress)?;
        Ok(objects.iter().filter_map(|object| ArchiveName::parse(&object.name)).collect())
    }

    fn begin(&mut self, name: Option<&ArchiveName>, bytes_max: u64, _: IoHint, progress: &dyn Progress) -> Result<()> {
        let Some(name) = name else {
            return Err(Error::usage("an archive from a stream has no name, and a store needs the name first")
                .with_hint("use a file instead, or write into a directory"));
        };
        // Content that cannot be compressed grows by a few bytes per block and frame.
        let bytes_max = bytes_max.saturating_add(bytes_max / 128).saturating_add(TAIL_BYTES_MAX);
        let headers = headers_of(name, None);
        let name = name.to_string();
        self.unfinished = Some((self.store.upload(&name, &headers, bytes_max, self.replace, progress)?, name));
        Ok(())
    }

    fn write(&mut self, bytes: &[u8], progress: &dyn Progress) -> Result<()> {
        self.unfinished.as_mut().ok_or_else(not_started_error)?.0.write(bytes, progress)
    }

    fn publish(&mut self, name: &str, progress: &dyn Progress) -> Result<Option<PathBuf>> {
        let (mut upload, started_name) = self.unfinished.take().ok_or_else(not_started_error)?;
        if started_name != name {
            return Err(Error::damaged(format!(
                "the archive is named {started_name}, but its content is that of {name}"
            )));
        }
        upload.finish(progress)?;
        Ok(Some(self.store.location_of(name).into()))
    }
}
