//! The archives' ways into the archives directory: cloned, copied, converted, downloaded there, or there already.

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use slotpress_base::{
    Error, ErrorKind, Found, Hint, IoContext, IoPolicy, KeptDir, Owner, Progress, Result, ShowPath, open_file,
};
use slotpress_format::ArchiveName;
use slotpress_format::ledger::names::Extension;
use slotpress_read::archive::Archive;
use slotpress_read::{Compression, LocalFile, Publishable, Source, Unpublished};

use crate::archive::sink::Sink;
use crate::restore::{ConvertArchive, RestoreTarget, ToConvert};

/// An archive on its way into the archives directory.
#[derive(Debug)]
pub struct ArchiveCopy {
    source: File,
    source_path: PathBuf,
    length_bytes: u64,
    way: Way,
    io_policy: IoPolicy,
    /// A download that this was made of, and that goes when this is in its place.
    made_of: Option<Arc<dyn Publishable>>,
}

/// How an archive gets into the archives directory.
#[derive(Debug)]
enum Way {
    /// It lies there already.
    Stays,
    /// Cloned by the file system, or arrived there.
    Cloned(Unpublished),
    /// Downloaded into the archives directory, where it stays whatever happens.
    Fetched(Arc<dyn Publishable>),
    /// Copied, when everything else is written.
    Copied(Unpublished),
    /// Made anew in a format that Agave reads, by so many workers, in so much memory.
    Converted(ConvertArchive, usize, u64),
}

impl ArchiveCopy {
    /// Clones the archive into `dir` where the file system can, and otherwise leaves the copying for later. Never a
    /// hard link: Firedancer aborts on one, and reuses the inode later.
    pub fn begin(archive: &Archive, dir: &Arc<KeptDir>, options: &RestoreTarget) -> Result<Self> {
        let path = archive.path();
        let source = File::open(path).or_path("open", path)?;
        let parent = path.parent().map(|parent| if parent.as_os_str().is_empty() { Path::new(".") } else { parent });
        let lies_in = |dir: Option<Found>| parent.is_some_and(|parent| dir.is_some_and(|dir| is_dir(parent, &dir)));
        let way = if !agave_reads(archive) {
            let convert = options.convert.ok_or_else(|| {
                Error::usage(format!("Agave cannot load {}, and needs its archive to boot", path.shown()))
                    .with_hint("recompress it first, then restore the result")
            })?;
            Way::Converted(convert, options.threads, options.check.memory_bytes)
        } else if lies_in(Some(dir.itself()?)) || lies_in(remote(dir)) {
            Way::Stays
        } else {
            let copy = Unpublished::create_in(dir)?;
            match rustix::fs::ioctl_ficlone(copy.file(), &source) {
                Ok(()) => Way::Cloned(copy),
                Err(_) => Way::Copied(copy),
            }
        };
        Ok(Self::new(source, archive.path_buf(), archive.length_bytes(), way, &archive.io_policy))
    }

    /// An archive that is downloaded into the archives directory: it only lacks its name.
    pub fn of_fetched(archive: &Archive, file: Arc<dyn Publishable>) -> Result<Self> {
        if !agave_reads(archive) {
            return Err(Error::usage("Agave cannot load this archive, and needs it to boot")
                .with_hint("fetch it, recompress it, then restore the result"));
        }
        let path = file.path().to_path_buf();
        let source = File::open(&path).or_path("open", &path)?;
        Ok(Self::new(source, path, 0, Way::Fetched(file), &archive.io_policy))
    }

    /// An archive that arrives in `copy` while it is restored: it only lacks its name.
    pub fn of_arriving(archive: &Archive, copy: Unpublished) -> Result<Self> {
        if !agave_reads(archive) {
            let message = "Agave cannot load what comes from standard input, and needs its archive to boot";
            return Err(Error::usage(message).with_hint(Hint::RecompressOnTheWay));
        }
        let path = copy.path().to_path_buf();
        let source = copy.file().try_clone().or_path("open", &path)?;
        Ok(Self::new(source, path, 0, Way::Cloned(copy), &archive.io_policy))
    }

    fn new(source: File, source_path: PathBuf, length_bytes: u64, way: Way, io_policy: &IoPolicy) -> Self {
        Self { source, source_path, length_bytes, way, io_policy: io_policy.clone(), made_of: None }
    }

    /// The same, of what was made of a download.
    #[must_use]
    pub fn made_of(mut self, file: Arc<dyn Publishable>) -> Self {
        self.made_of = Some(file);
        self
    }

    /// Bytes that copying will take.
    pub fn bytes_to_copy(&self) -> u64 {
        match self.way {
            Way::Stays | Way::Cloned(_) | Way::Fetched(_) => 0,
            // Converted, it is hardly larger than it was.
            Way::Copied(_) | Way::Converted(..) => self.length_bytes,
        }
    }

    /// Whether it is a download, which stays where a restore fails: it is not fetched again for that.
    pub fn is_download(&self) -> bool {
        matches!(self.way, Way::Fetched(_))
    }

    /// Copies what was not cloned, and gives the archive its name and its owner.
    pub fn finish(
        self,
        name: &ArchiveName,
        dir: &KeptDir,
        owner: &Owner,
        progress: &dyn Progress,
    ) -> Result<PlacedArchive> {
        let name_there = name.to_string();
        let path = dir.path_of(&name_there);
        let placed = |path: PathBuf, is_new: bool| {
            let file_name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            let new = if is_new { dir.found(&file_name)? } else { None };
            if is_new {
                owner.take_name(dir, &file_name)?;
            }
            Ok(PlacedArchive { path, name: file_name, new })
        };
        // Another archive of this name is not replaced.
        let is_there = |source: File, source_path: &Path| {
            if dir.found(&name_there)?.is_none() {
                return Ok(false);
            }
            let there = LocalFile::new(path.clone(), dir.open_file(&name_there)?, 0);
            if has_same_content(&LocalFile::new(source_path.to_path_buf(), source, 0), &there, progress)? {
                return Ok(true);
            }
            let message = format!("{} exists already, and is not the same archive", path.shown());
            Err(Error::new(ErrorKind::Exists, message).with_hint("move it away: one of the two is damaged"))
        };
        let copy = match self.way {
            Way::Stays if ArchiveName::from_path(&self.source_path).as_ref() == Some(name) => {
                return placed(self.source_path, false);
            }
            Way::Stays => {
                return Err(Error::failed(format!(
                    "{} is in the archives directory under a name that no validator reads",
                    self.source_path.shown()
                ))
                .with_hint(format!("rename it to {name}")));
            }
            Way::Converted(convert, threads, memory_bytes) => {
                let converted = ArchiveName { extension: Extension::TarZstd, ..name.clone() };
                let was_there = dir.found(converted.to_string())?.is_some();
                let (archive, io_policy) = (self.source_path.as_path(), &self.io_policy);
                let what = ToConvert {
                    archive,
                    base: None,
                    base_slot: None,
                    incremental: None,
                    genesis: None,
                    is_of_firedancer: false,
                    threads,
                    memory_bytes,
                    io_policy,
                };
                let sink = Sink::dir(dir.path());
                let path = convert(&what, sink, progress)?.ok_or_else(|| Error::failed("the archive has no path"))?;
                return placed(path, !was_there);
            }
            Way::Fetched(file) => {
                if is_there(open_file(file.path())?, file.path())? {
                    return placed(path, false);
                }
                return placed(file.publish(&name_there)?, true);
            }
            Way::Cloned(copy) => copy,
            Way::Copied(copy) => {
                progress.stage("Copying", Some(self.length_bytes));
                copy_in_pieces(&self.source, copy.file(), self.length_bytes, &self.io_policy, progress)
                    .or_path("copy", &self.source_path)?;
                copy
            }
        };
        if is_there(copy.file().try_clone().or_path("open", copy.path())?, copy.path())? {
            return placed(path, false);
        }
        let placed = placed(copy.publish(&name_there, false)?, true)?;
        if let Some(file) = self.made_of {
            file.remove()?;
        }
        Ok(placed)
    }
}

/// An archive that is in the archives directory.
pub struct PlacedArchive {
    /// Its path.
    pub path: PathBuf,
    /// Its name.
    pub name: String,
    /// What it is, where it was put there.
    pub new: Option<Found>,
}

/// Whether Agave loads the archive: it needs that to boot.
fn agave_reads(archive: &Archive) -> bool {
    matches!(archive.compression, Compression::Zstd | Compression::Lz4)
}

/// Whether two archives have the same bytes.
pub fn has_same_content(one: &dyn Source, other: &dyn Source, progress: &dyn Progress) -> Result<bool> {
    /// Large enough for disks, small enough for a buffer.
    const PIECE_BYTES: usize = 1024 * 1024;
    let (mut piece, mut of_other, mut offset_bytes) = (vec![0; PIECE_BYTES], vec![0; PIECE_BYTES], 0);
    loop {
        progress.check()?;
        let read = one.read_up_to(&mut piece, offset_bytes).or_path("read", one.path())?;
        let read_other = other.read_up_to(&mut of_other, offset_bytes).or_path("read", other.path())?;
        if piece.get(..read) != of_other.get(..read_other) {
            return Ok(false);
        }
        if read == 0 {
            return Ok(true);
        }
        offset_bytes += read as u64;
    }
}

/// Copies in pieces, so that it can be interrupted.
fn copy_in_pieces(
    from: &File,
    to: &File,
    length_bytes: u64,
    io_policy: &IoPolicy,
    progress: &dyn Progress,
) -> std::io::Result<()> {
    const PIECE_BYTES: u64 = 16 * 1024 * 1024;
    let mut copied = 0;
    while copied < length_bytes {
        progress.check().map_err(std::io::Error::other)?;
        let end = length_bytes.min(copied + PIECE_BYTES);
        io_policy.wait(end - copied, progress);
        let behind = io_policy.io_hint.read_behind(from, &(copied..end), length_bytes);
        // The standard library copies between files inside the kernel.
        let piece = std::io::copy(&mut std::io::Read::take(from, end - copied), &mut &*to)?;
        drop(behind);
        io_policy.io_hint.write_behind(to, &(copied..copied + piece))?;
        if piece == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        copied += piece;
        progress.advance(piece, piece);
    }
    Ok(())
}

fn is_dir(path: &Path, dir: &Found) -> bool {
    fs::metadata(path).is_ok_and(|found| (found.dev(), found.ino()) == (dir.device, dir.inode))
}

/// Where a validator puts what it downloads, in the archives directory.
fn remote(dir: &KeptDir) -> Option<Found> {
    rustix::fs::statat(dir, "remote", rustix::fs::AtFlags::empty()).ok().map(Found::from)
}
