//! Brings archives into the snapshots directory: by cloning, copying, downloading or renaming them, or
//! by leaving them there.

use std::ffi::OsStr;
use std::fs;
use std::io::{BufRead, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::AtFlags;
use slotpress_base::{
    AHEAD_BYTES_MAX, Error, ErrorKind, EscapePath, FileStat, IoContext, KeptDir, Progress, Result, Stage, StreamWriter,
    fill_buf, parent_dir,
};
use slotpress_format::ArchiveName;
use slotpress_read::archive::source::SOURCE_PIECE_BYTES;
use slotpress_read::{LocalFile, OpenArchive, Publishable, REMOTE_DIR, Source, StagedFile};

use crate::restore::input::ArchiveToRestore;
use crate::restore::journal::{Move, Moves};
use crate::restore::target::Target;

#[derive(Debug)]
pub enum ArchiveCopy {
    /// A download in the snapshots directory. It is kept even if the restore fails.
    Fetched(Arc<dyn Publishable>),
    /// A new file, which is complete if it is a clone of the archive, or was saved from standard input.
    /// Otherwise, it is filled after everything else was written.
    New { file: StagedFile, is_complete: bool },
    /// The archive's file itself, which will be renamed: its directory, and its name there.
    Moved(Arc<KeptDir>, String),
}

impl ArchiveCopy {
    /// Chooses how a file gets into `dir`; `None` if it is already there. Clones the file if the file
    /// system can; otherwise, it will be copied later. With `move_archives`, it will be renamed. Never
    /// makes a hard link: Firedancer refuses to start with one, and writes later archives over the same file.
    pub fn from_file(archive: &OpenArchive, dir: &Arc<KeptDir>, move_archives: bool) -> Result<Option<Self>> {
        let path = archive.path();
        let parent_path = parent_dir(path);
        let dir_stat = dir.stat()?;
        if let Ok(parent) = rustix::fs::stat(parent_path).map(FileStat::from) {
            // Agave downloads archives to the subdirectory `remote`.
            let remote = rustix::fs::statat(dir, REMOTE_DIR, AtFlags::empty()).map(FileStat::from);
            if parent.is_same_file(&dir_stat) || remote.is_ok_and(|remote| parent.is_same_file(&remote)) {
                return Ok(None);
            }
        }
        if move_archives {
            let metadata = fs::symlink_metadata(path).or_path("read", path)?;
            let is_movable = metadata.is_file() && metadata.nlink() == 1 && metadata.dev() == dir_stat.device;
            return match path.file_name().and_then(OsStr::to_str) {
                Some(name) if is_movable => {
                    let parent = Arc::new(KeptDir::open(parent_path)?);
                    Ok(Some(Self::Moved(parent, name.to_string())))
                }
                _ => Err(not_movable_error(path, dir)),
            };
        }
        let file = StagedFile::create_in(dir)?;
        let source = archive.source.file();
        let is_complete = source.is_some_and(|source| rustix::fs::ioctl_ficlone(file.file(), source).is_ok());
        Ok(Some(Self::New { file, is_complete }))
    }
}

fn not_movable_error(path: &Path, dir: &KeptDir) -> Error {
    let [path, dir] = [path, dir.path()].map(EscapePath::escaped);
    Error::failed(format!(
        "{path} cannot be moved: it is a link, has several hard links, or is on a different file system than {dir}"
    ))
    .with_hint("leave out --move: then the archive is copied")
}

impl ArchiveToRestore {
    pub fn bytes_to_copy(&self) -> u64 {
        match self.copy {
            Some(ArchiveCopy::New { is_complete: false, .. }) => self.archive.source.length_bytes().unwrap_or_default(),
            _ => 0,
        }
    }

    /// Copies the archive if it was not cloned, and gives it its name and owner. If the same archive is
    /// already in the directory, uses that one. Returns the final path. An archive that is to be renamed is
    /// there only after `moves` has run.
    ///
    /// # Errors
    /// The directory has another archive of this name, or the disk fails.
    pub fn place(
        self,
        name: &ArchiveName,
        target: &Target,
        moves: &mut Moves,
        progress: &dyn Progress,
    ) -> Result<PathBuf> {
        let dir = &target.snapshots_dir;
        let Some(copy) = self.copy else { return check_archive_name(&self.archive, name) };
        let name = name.to_string();
        let path = dir.path_of(&name);
        let source = match &copy {
            ArchiveCopy::Fetched(file) => LocalFile::open(file.path())?,
            ArchiveCopy::Moved(from, file) => LocalFile::new(from.path_of(file), from.open_file(file)?)?,
            ArchiveCopy::New { file, is_complete } => {
                if !is_complete {
                    progress.stage(Stage::Copying, self.archive.source.length_bytes());
                    copy_archive(&self.archive, file, progress)?;
                }
                let opened = file.file().try_clone().or_path("open", file.path())?;
                LocalFile::new(file.path().to_path_buf(), opened)?
            }
        };
        if dir.stat_entry(&name)?.is_some() {
            let existing = LocalFile::new(path.clone(), dir.open_file(&name)?)?;
            if has_same_content(&source, &existing, progress)? {
                return Ok(path);
            }
            let message = format!("{} already exists, and is not the same archive", path.escaped());
            let error = Error::new(ErrorKind::Exists, message).with_existing_path(&path);
            return Err(error.with_hint("move it away: one of the two archives is damaged"));
        }
        if let Some(file) = source.file() {
            target.owner.apply_to(file, source.path())?;
        }
        match copy {
            ArchiveCopy::Fetched(file) => return file.publish(&name),
            ArchiveCopy::New { file, .. } => {
                file.publish(&name)?;
                moves.record_placed(&name)?;
            }
            ArchiveCopy::Moved(from, file) => moves.add(Move::new((&from, &file), (dir, &name))?),
        }
        Ok(path)
    }
}

/// Returns the path of an archive that is already in the snapshots directory.
///
/// # Errors
/// No validator reads its name.
fn check_archive_name(archive: &OpenArchive, name: &ArchiveName) -> Result<PathBuf> {
    let path = archive.path().to_path_buf();
    if ArchiveName::from_path(&path).as_ref() == Some(name) {
        return Ok(path);
    }
    let message = format!("{} is in the snapshots directory under a name that no validator reads", path.escaped());
    Err(Error::failed(message).with_hint(format!("rename it to {name}")))
}

pub fn has_same_content(source: &dyn Source, other: &dyn Source, progress: &dyn Progress) -> Result<bool> {
    let mut piece = vec![0; SOURCE_PIECE_BYTES];
    let mut other_piece = vec![0; SOURCE_PIECE_BYTES];
    let mut offset_bytes = 0;
    loop {
        progress.check()?;
        let length = source.read_up_to(&mut piece, offset_bytes);
        let length = length.or_path("read", source.path())?;
        let other_length = other.read_up_to(&mut other_piece, offset_bytes);
        let other_length = other_length.or_path("read", other.path())?;
        if piece.get(..length) != other_piece.get(..other_length) {
            return Ok(false);
        }
        if length == 0 {
            return Ok(true);
        }
        offset_bytes += length as u64;
    }
}

/// Copies an archive, and bypasses the page cache where that is supported. Reads bytes ahead while it
/// writes earlier ones.
fn copy_archive(archive: &OpenArchive, to: &StagedFile, progress: &dyn Progress) -> Result<()> {
    let mut writer = StreamWriter::direct(to.file(), archive.io_policy.io_hint);
    archive.with_stream(AHEAD_BYTES_MAX, progress, |mut stream| {
        loop {
            progress.check()?;
            let piece = fill_buf(&mut stream).or_path("read", archive.path())?;
            let length = piece.len();
            if length == 0 {
                return writer.finish().or_path("write", to.path());
            }
            writer.write_all(piece).or_path("write", to.path())?;
            stream.consume(length);
            progress.advance(length as u64, length as u64);
        }
    })
}
