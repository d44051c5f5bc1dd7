//! The archives' ways into the archives directory: cloned, copied, converted, downloaded there, or there already.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use slotpress_base::{
    Error, ErrorKind, Found, Hint, IoContext, IoPolicy, KeptDir, Owner, Progress, Result, ShowPath, open_file,
};
use slotpress_format::ArchiveName;
use slotpress_format::ledger::names::Extension;
use slotpress_read::archive::Archive;
use slotpress_read::{Compression, Publishable, Unpublished};

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
        let way = if !matches!(archive.compression, Compression::Zstd | Compression::Lz4) {
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
        let (source_path, io_policy) = (archive.path_buf(), archive.io_policy.clone());
        Ok(Self { source, source_path, length_bytes: archive.length_bytes(), way, io_policy, made_of: None })
    }

    /// An archive that is downloaded into the archives directory: it only lacks its name.
    pub fn of_fetched(archive: &Archive, file: Arc<dyn Publishable>) -> Result<Self> {
        check_agave_reads(archive)?;
        let source_path = file.path().to_path_buf();
        let source = File::open(&source_path).or_path("open", &source_path)?;
        Ok(Self {
            source,
            source_path,
            length_bytes: 0,
            way: Way::Fetched(file),
            io_policy: archive.io_policy.clone(),
            made_of: None,
        })
    }

    /// An archive that arrives in `copy` while it is restored: it only lacks its name.
    pub fn of_arriving(archive: &Archive, copy: Unpublished) -> Result<Self> {
        if !matches!(archive.compression, Compression::Zstd | Compression::Lz4) {
            return Err(Error::usage(
                "Agave cannot load what comes from standard input, and needs its archive to boot",
            )
            .with_hint(Hint::RecompressOnTheWay));
        }
        let source_path = copy.path().to_path_buf();
        let source = copy.file().try_clone().or_path("open", &source_path)?;
        Ok(Self {
            source,
            source_path,
            length_bytes: 0,
            way: Way::Cloned(copy),
            io_policy: archive.io_policy.clone(),
            made_of: None,
        })
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
                if dir.found(&name_there)?.is_some() {
                    let (download, there) = (open_file(file.path())?, dir.open_file(&name_there)?);
                    if has_same_content((&download, file.path()), (&there, &path), progress)? {
                        return placed(path, false);
                    }
                    return Err(is_another(&path));
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
        if dir.found(&name_there)?.is_some() {
            let there = dir.open_file(&name_there)?;
            if has_same_content((copy.file(), copy.path()), (&there, &path), progress)? {
                return placed(path, false);
            }
            return Err(is_another(&path));
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

/// Agave needs the archive itself to boot.
fn check_agave_reads(archive: &Archive) -> Result<()> {
    match archive.compression {
        Compression::Zstd | Compression::Lz4 => Ok(()),
        _ => Err(Error::usage("Agave cannot load this archive, and needs it to boot")
            .with_hint("fetch it, recompress it, then restore the result")),
    }
}

fn is_another(path: &Path) -> Error {
    Error::new(ErrorKind::Exists, format!("{} exists already, and is not the same archive", path.shown()))
        .with_hint("move it away: one of the two is damaged")
}

fn has_same_content(a: (&File, &Path), b: (&File, &Path), progress: &dyn Progress) -> Result<bool> {
    /// Large enough for disks, small enough for a buffer.
    const PIECE_BYTES: usize = 1024 * 1024;
    let (mut piece_a, mut piece_b) = (vec![0; PIECE_BYTES], vec![0; PIECE_BYTES]);
    let mut offset_bytes = 0;
    loop {
        progress.check()?;
        let [read_a, read_b] = [(a, &mut piece_a), (b, &mut piece_b)]
            .map(|((file, path), piece)| read_at_most(file, piece, offset_bytes).or_path("read", path));
        let (read_a, read_b) = (read_a?, read_b?);
        if piece_a.get(..read_a) != piece_b.get(..read_b) {
            return Ok(false);
        }
        if read_a == 0 {
            return Ok(true);
        }
        offset_bytes += read_a as u64;
    }
}

/// Fills a piece, or less of it at the end of the file.
fn read_at_most(file: &File, piece: &mut [u8], offset_bytes: u64) -> std::io::Result<usize> {
    let mut read = 0;
    while let Some(rest) = piece.get_mut(read..).filter(|rest| !rest.is_empty()) {
        match file.read_at(rest, offset_bytes + read as u64)? {
            0 => break,
            more => read += more,
        }
    }
    Ok(read)
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
