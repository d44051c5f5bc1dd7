//! Brings archives into the archives directory: by cloning, copying, downloading or renaming them, or
//! by leaving them there.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::AtFlags;
use slotpress_base::{
    Error, ErrorKind, Found, IoContext, KeptDir, Owner, Progress, Result, ShowPath, Stage, StreamWriter, open_file,
    run_in_order,
};
use slotpress_format::ArchiveName;
use slotpress_read::archive::OpenArchive;
use slotpress_read::{LocalFile, Publishable, REMOTE, Source, Unpublished};

use crate::restore::input::Opened;
use crate::restore::journal::Move;

/// How an archive gets into the archives directory.
#[derive(Debug)]
pub enum ArchiveCopy {
    /// It was downloaded there, and stays even if the restore fails.
    Fetched(Arc<dyn Publishable>),
    /// A new file: a clone of the archive, or what was saved from standard input; or, with a source,
    /// one that will be copied after everything else was written.
    New(Unpublished, Option<File>),
    /// The file itself, by its directory and its name there. It will be renamed.
    Moved(Arc<KeptDir>, String),
}

impl ArchiveCopy {
    /// Chooses how a file gets into `dir`; `None` if it is there already. Clones it if the file
    /// system can; otherwise it will be copied later. With `is_moved`, it will be renamed. Never makes a
    /// hard link: Firedancer aborts on one, and reuses the inode later.
    pub fn of_file(path: &Path, dir: &Arc<KeptDir>, is_moved: bool) -> Result<Option<Self>> {
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let (parent_path, parent) = (parent, fs::metadata(parent).ok().map(|found| (found.dev(), found.ino())));
        // Agave downloads archives to the subdirectory `remote`.
        let remote = rustix::fs::statat(dir, REMOTE, AtFlags::empty()).ok().map(Found::from);
        if [Some(dir.itself()?), remote].iter().flatten().any(|place| parent == Some((place.device, place.inode))) {
            return Ok(None);
        }
        if is_moved {
            let found = fs::symlink_metadata(path).or_path("read", path)?;
            let name = path.file_name().and_then(OsStr::to_str);
            let is_movable = found.is_file() && found.nlink() == 1 && found.dev() == dir.itself()?.device;
            let Some(name) = name.filter(|_| is_movable) else { return Err(not_movable(path, dir)) };
            return Ok(Some(Self::Moved(Arc::new(KeptDir::open(parent_path)?), name.to_string())));
        }
        let (source, copy) = (open_file(path)?, Unpublished::create_in(dir)?);
        let is_cloned = rustix::fs::ioctl_ficlone(copy.file(), &source).is_ok();
        Ok(Some(Self::New(copy, (!is_cloned).then_some(source))))
    }
}

fn not_movable(path: &Path, dir: &KeptDir) -> Error {
    let (shown, dir) = (path.shown(), dir.path().shown());
    Error::failed(format!(
        "{shown} cannot be moved: it is a link, has several, or is on another file system than {dir}"
    ))
    .with_hint("leave out --move: the archive is copied then")
}

impl Opened {
    /// True for a download. A failed restore leaves it in place, so that it is not fetched again.
    pub fn is_download(&self) -> bool {
        matches!(self.way, Some(ArchiveCopy::Fetched(_)))
    }

    /// Number of bytes that will be written to the archives directory for this archive.
    pub fn bytes_to_copy(&self) -> u64 {
        if matches!(self.way, Some(ArchiveCopy::New(_, Some(_)))) { self.archive.length_bytes() } else { 0 }
    }

    /// Copies the archive if it was not cloned, and gives it its name and owner. An archive that is
    /// there already under this name is not replaced.
    ///
    /// # Errors
    /// There is another archive of this name, or the disk fails.
    pub fn place(
        self,
        name: &ArchiveName,
        dir: &Arc<KeptDir>,
        owner: &Owner,
        progress: &dyn Progress,
    ) -> Result<PlacedArchive> {
        let Some(way) = self.way else { return place_of(&self.archive, name) };
        let name = name.to_string();
        let path = dir.path_of(&name);
        let (source, source_path) = match &way {
            ArchiveCopy::Fetched(file) => (open_file(file.path())?, file.path().to_path_buf()),
            ArchiveCopy::Moved(from, file) => (from.open_file(file)?, from.path_of(file)),
            ArchiveCopy::New(copy, from) => {
                if let Some(from) = from {
                    progress.stage(Stage::Copying, Some(self.archive.length_bytes()));
                    copy_in_pieces(&self.archive, from, copy, progress)?;
                }
                (copy.file().try_clone().or_path("open", copy.path())?, copy.path().to_path_buf())
            }
        };
        if dir.found(&name)?.is_some() {
            let there = LocalFile::new(path.clone(), dir.open_file(&name)?, 0);
            if has_same_content(&LocalFile::new(source_path, source, 0), &there, progress)? {
                return Ok(PlacedArchive { path, name, new: None, to_move: None });
            }
            let message = format!("{} exists already, and is not the same archive", path.shown());
            return Err(
                Error::new(ErrorKind::Exists, message).with_hint("move it away: one of the two archives is damaged")
            );
        }
        let path = match way {
            ArchiveCopy::Fetched(file) => file.publish(&name)?,
            ArchiveCopy::New(copy, _) => copy.publish(&name, false)?,
            ArchiveCopy::Moved(from, file) => {
                owner.take(&source).or_path("change the owner of", &source_path)?;
                let to_move = Some(Move::new((&from, &file), (dir, &name))?);
                return Ok(PlacedArchive { path, name, new: None, to_move });
            }
        };
        owner.take(&dir.open_file(&name)?).or_path("change the owner of", &path)?;
        Ok(PlacedArchive { new: dir.found(&name)?, path, name, to_move: None })
    }
}

/// Place of an archive that is in the archives directory already.
///
/// # Errors
/// It has another name than the one that a validator reads.
fn place_of(archive: &OpenArchive, name: &ArchiveName) -> Result<PlacedArchive> {
    let path = archive.path_buf();
    if ArchiveName::from_path(&path).as_ref() == Some(name) {
        return Ok(PlacedArchive { path, name: name.to_string(), new: None, to_move: None });
    }
    let shown = path.shown();
    Err(Error::failed(format!("{shown} is in the archives directory under a name that no validator reads"))
        .with_hint(format!("rename it to {name}")))
}

/// An archive under its final name, or one that is yet to be moved there.
pub struct PlacedArchive {
    pub path: PathBuf,
    pub name: String,
    /// The file, if it did not exist under this name before.
    pub new: Option<Found>,
    pub to_move: Option<Move>,
}

/// Compares two files byte for byte.
pub fn has_same_content(one: &dyn Source, other: &dyn Source, progress: &dyn Progress) -> Result<bool> {
    /// Length of a read: large enough for disks, small enough for a buffer.
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

/// Copies an archive. Pieces are read while others are written; both past the page cache where that
/// is supported.
fn copy_in_pieces(archive: &OpenArchive, from: &File, to: &Unpublished, progress: &dyn Progress) -> Result<()> {
    /// Length of a piece: readers and writer have 20 MiB at a time.
    const PIECE_BYTES: u64 = 4 * 1024 * 1024;
    const READERS: usize = 2;
    let (length_bytes, policy) = (archive.length_bytes(), &archive.io_policy);
    let pieces = (0..length_bytes.div_ceil(PIECE_BYTES)).map(|number| Ok(number * PIECE_BYTES));
    let new_reader = || {
        Ok(|start: u64, piece: &mut Vec<u8>| {
            let range = start..length_bytes.min(start + PIECE_BYTES);
            policy.wait(range.end - range.start, progress);
            policy.io_hint.read_range(from, &range, length_bytes, piece).or_path("read", archive.path()).map(drop)
        })
    };
    let mut writer = StreamWriter::direct(to.file(), policy.io_hint);
    run_in_order(pieces, READERS, &new_reader, progress, &mut |piece, ()| {
        writer.write_all(piece).or_path("write", to.path())?;
        progress.advance(piece.len() as u64, piece.len() as u64);
        Ok(())
    })?;
    writer.flush().or_path("write", to.path())
}
