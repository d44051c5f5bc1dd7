//! The archives' ways into the archives directory: cloned, copied, converted, downloaded there, or there already.

use {
    crate::restore::{ConvertArchive, RestoreOptions},
    slotpress_base::{
        error::{Error, IoContext, Result},
        files::open_file,
        io::Manners,
        progress::Progress,
    },
    slotpress_format::ledger::names::{ArchiveName, Extension},
    slotpress_read::{
        archive::{Archive, compression::Compression},
        store::publish::{Publishable, Unpublished},
    },
    std::{
        fs::{self, File},
        io::Read,
        os::unix::fs::MetadataExt,
        path::{Path, PathBuf},
        sync::Arc,
    },
};

/// An archive on its way into the archives directory.
#[derive(Debug)]
pub struct ArchiveCopy {
    source: File,
    source_path: PathBuf,
    length_bytes: u64,
    way: Way,
    manners: Manners,
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
    /// Made anew in a format that Agave reads, by so many workers.
    Converted(ConvertArchive, usize),
}

impl ArchiveCopy {
    /// Clones the archive into `dir` where the file system can, and otherwise leaves the copying for later. Never a
    /// hard link: Firedancer aborts on one, and reuses the inode later.
    pub fn begin(archive: &Archive, dir: &Path, options: &RestoreOptions) -> Result<Self> {
        let path = archive.path();
        let source = File::open(path).or_path("open", path)?;
        let parent = path.parent().map(|parent| if parent.as_os_str().is_empty() { Path::new(".") } else { parent });
        let lies_in = |dir: &Path| parent.is_some_and(|parent| is_same_file(parent, dir));
        let way = if !matches!(archive.compression, Compression::Zstd | Compression::Lz4) {
            let convert = options.convert.ok_or_else(|| {
                Error::usage(format!("Agave cannot load {}, and needs its archive to boot", path.display()))
                    .hint("recompress it first, then restore the result")
            })?;
            Way::Converted(convert, options.threads)
        } else if lies_in(dir) || lies_in(&dir.join("remote")) {
            Way::Stays
        } else {
            let copy = Unpublished::create(dir)?;
            match rustix::fs::ioctl_ficlone(copy.file(), &source) {
                Ok(()) => Way::Cloned(copy),
                Err(_) => Way::Copied(copy),
            }
        };
        let (source_path, manners) = (archive.path_buf(), archive.manners.clone());
        Ok(Self { source, source_path, length_bytes: archive.length_bytes(), way, manners })
    }

    /// An archive that is downloaded into the archives directory: it only lacks its name.
    pub fn of_fetched(archive: &Archive, file: Arc<dyn Publishable>) -> Result<Self> {
        check_agave_reads(archive)?;
        let source_path = file.path().to_path_buf();
        let source = File::open(&source_path).or_path("open", &source_path)?;
        Ok(Self { source, source_path, length_bytes: 0, way: Way::Fetched(file), manners: archive.manners.clone() })
    }

    /// An archive that arrives in `copy` while it is restored: it only lacks its name.
    pub fn of_arriving(archive: &Archive, copy: Unpublished) -> Result<Self> {
        if !matches!(archive.compression, Compression::Zstd | Compression::Lz4) {
            return Err(Error::usage(
                "Agave cannot load what comes from standard input, and needs its archive to boot",
            )
            .hint("recompress it on the way: slotpress recompress - -o - | slotpress restore - …"));
        }
        let source_path = copy.path().to_path_buf();
        let source = copy.file().try_clone().or_path("open", &source_path)?;
        Ok(Self { source, source_path, length_bytes: 0, way: Way::Cloned(copy), manners: archive.manners.clone() })
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

    /// Copies what was not cloned, and gives the archive its name; says where it is, and whether it was put there.
    pub fn finish(self, name: &ArchiveName, dir: &Path, progress: &dyn Progress) -> Result<(PathBuf, bool)> {
        let path = dir.join(name.to_string());
        let copy = match self.way {
            Way::Stays if ArchiveName::of_path(&self.source_path).as_ref() == Some(name) => {
                return Ok((self.source_path, false));
            }
            Way::Stays => {
                return Err(Error::failed(format!(
                    "{} is in the archives directory under a name that no validator reads",
                    self.source_path.display()
                ))
                .hint(format!("rename it to {name}")));
            }
            Way::Converted(convert, threads) => {
                let converted = ArchiveName { extension: Extension::TarZstd, ..name.clone() };
                let was_there = dir.join(converted.to_string()).exists();
                return Ok((convert(&self.source_path, dir, threads, &self.manners, progress)?, !was_there));
            }
            Way::Fetched(file) => {
                if path.exists() {
                    if has_same_content(file.path(), &path, progress)? {
                        return Ok((path, false));
                    }
                    return Err(is_another(&path));
                }
                return Ok((file.publish(&name.to_string())?, true));
            }
            Way::Cloned(copy) => copy,
            Way::Copied(copy) => {
                progress.stage("Copying", Some(self.length_bytes));
                copy_in_pieces(&self.source, copy.file(), self.length_bytes, &self.manners, progress)
                    .or_path("copy", &self.source_path)?;
                copy
            }
        };
        if path.exists() {
            if has_same_content(copy.path(), &path, progress)? {
                return Ok((path, false));
            }
            return Err(is_another(&path));
        }
        Ok((copy.publish(&name.to_string(), false)?, true))
    }
}

/// Agave needs the archive itself to boot.
fn check_agave_reads(archive: &Archive) -> Result<()> {
    match archive.compression {
        Compression::Zstd | Compression::Lz4 => Ok(()),
        _ => Err(Error::usage("Agave cannot load this archive, and needs it to boot")
            .hint("fetch it with slotpress fetch, recompress it, then restore the result")),
    }
}

fn is_another(path: &Path) -> Error {
    Error::failed(format!("{} exists already, and is not the same archive", path.display()))
        .hint("move it away: one of the two is damaged")
}

fn has_same_content(a: &Path, b: &Path, progress: &dyn Progress) -> Result<bool> {
    /// Large enough for disks, small enough for a buffer.
    const PIECE_BYTES: usize = 1024 * 1024;
    let (file_a, file_b) = (open_file(a)?, open_file(b)?);
    let (mut piece_a, mut piece_b) = (Vec::new(), Vec::new());
    loop {
        progress.check()?;
        for (file, path, piece) in [(&file_a, a, &mut piece_a), (&file_b, b, &mut piece_b)] {
            piece.clear();
            Read::take(file, PIECE_BYTES as u64).read_to_end(piece).or_path("read", path)?;
        }
        if piece_a != piece_b {
            return Ok(false);
        }
        if piece_a.is_empty() {
            return Ok(true);
        }
    }
}

/// Copies in pieces, so that it can be interrupted.
fn copy_in_pieces(
    from: &File,
    to: &File,
    length_bytes: u64,
    manners: &Manners,
    progress: &dyn Progress,
) -> std::io::Result<()> {
    const PIECE_BYTES: u64 = 16 * 1024 * 1024;
    let mut copied = 0;
    while copied < length_bytes {
        progress.check().map_err(std::io::Error::other)?;
        let end = length_bytes.min(copied + PIECE_BYTES);
        manners.wait(end - copied, progress);
        let behind = manners.io_hint.read_behind(from, &(copied..end), length_bytes);
        // The standard library copies between files inside the kernel.
        let piece = std::io::copy(&mut std::io::Read::take(from, end - copied), &mut &*to)?;
        drop(behind);
        manners.io_hint.write_behind(to, &(copied..copied + piece))?;
        if piece == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        copied += piece;
        progress.advance(piece, piece);
    }
    Ok(())
}

fn is_same_file(a: &Path, b: &Path) -> bool {
    match (fs::metadata(a), fs::metadata(b)) {
        (Ok(a), Ok(b)) => (a.dev(), a.ino()) == (b.dev(), b.ino()),
        _ => false,
    }
}
