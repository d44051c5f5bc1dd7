//! The end of a restore: what a fast boot needs, each piece on disk before the next (format page, section "What a fast
//! boot needs").

use {
    crate::restore::{
        ConvertArchive, RestoreOptions,
        assign::AssignedStorage,
        journal::{Journal, Placed},
        place::{BANK_FILE_PARTIAL, PartialDir},
        target::Target,
    },
    slotpress_base::{
        error::{Error, IoContext, Result},
        files::open_file,
        io::Manners,
        progress::Progress,
    },
    slotpress_format::ledger::{
        lists::{write_no_obsolete_accounts, write_storages_list},
        names::{ArchiveName, Extension},
    },
    slotpress_read::{
        archive::{Archive, compression::Compression},
        store::publish::{Publishable, Unpublished, sync_dir},
    },
    std::{
        fs::{self, File},
        io::{BufWriter, Read, Write},
        os::unix::fs::MetadataExt,
        path::{Path, PathBuf},
        sync::Arc,
    },
};

/// The layout that is written: Agave 4.2 and later boot from it.
const FASTBOOT_VERSION: &str = "3.0.0";

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
            .hint("recompress it on the way: slotpress recompress - -o - --check frames | slotpress restore - …"));
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

    /// Copies what was not cloned, and gives the archive its name; says where it is, and whether it was put there.
    fn finish(self, name: &ArchiveName, dir: &Path, progress: &dyn Progress) -> Result<(PathBuf, bool)> {
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

/// Completes a ledger that boots; returns its bank snapshot directory and its archives.
pub fn finish_boot_layout(
    target: &Target,
    slot: u64,
    storages: &[AssignedStorage],
    roots: Vec<PartialDir>,
    bank_snapshot: PartialDir,
    copies: Vec<(ArchiveCopy, ArchiveName)>,
    progress: &dyn Progress,
) -> Result<(PathBuf, Vec<PathBuf>)> {
    let owner = &target.owner;
    let ids = || storages.iter().map(|storage| (storage.slot, storage.id));
    write_file(&bank_snapshot, owner, "storages_list", &|to| write_storages_list(to, ids()))?;
    write_file(&bank_snapshot, owner, "obsolete_accounts", &|to| write_no_obsolete_accounts(to, ids()))?;
    bank_snapshot.rename_within(BANK_FILE_PARTIAL, &slot.to_string())?;
    let snapshots = target.snapshots_dir.join("snapshots");
    let dir = snapshots.join(slot.to_string());
    let mark = dir.join("fastboot_version");
    let mut journal = Journal::new(&target.snapshots_dir, mark.clone());
    // Without a full archive in its directory, Agave does not look at bank snapshots at all.
    let mut archives = Vec::new();
    for (copy, name) in copies {
        // A download is not fetched again for what fails now.
        let stays = matches!(copy.way, Way::Fetched(_));
        let (path, is_new) = copy.finish(&name, &target.snapshots_dir, progress)?;
        if is_new && !stays {
            journal.add(Placed::File { inode: fs::metadata(&path).or_path("read", &path)?.ino(), path: path.clone() });
        }
        if is_new {
            owner.take_path(&path)?;
        }
        archives.push(path);
    }
    progress.stage("Syncing", None);
    for dir in roots.iter().chain([&bank_snapshot]) {
        progress.check()?;
        dir.sync()?;
    }

    // From here on everything is on disk; only names are missing.
    slotpress_base::threads::panic_point("placing");
    for (from, to) in &target.replaced {
        let inode = fs::symlink_metadata(from).or_path("read", from)?.ino();
        journal.add(Placed::Moved { path: to.clone(), inode, from: from.clone() });
    }
    let is_moved = |path: &Path| target.replaced.iter().any(|(from, _)| from == path);
    for (accounts, root) in target.accounts.iter().zip(&roots) {
        let (snapshot, run) = (accounts.join("snapshot"), accounts.join("run"));
        if !snapshot.is_dir() || is_moved(&snapshot) {
            journal.add(Placed::Empty(snapshot));
        }
        let was_there = run.is_dir() && !is_moved(&run);
        journal.add(Placed::Dir { was_there, inode: root.inode()?, path: run });
    }
    journal.add(Placed::Dir { was_there: false, inode: bank_snapshot.inode()?, path: dir.clone() });
    journal.write(&archives)?;

    for (from, to) in &target.replaced {
        let parent = to.parent().unwrap_or(Path::new("."));
        fs::create_dir_all(parent).or_path("create", parent)?;
        fs::rename(from, to).or_path("move aside", from)?;
        sync_dir(parent)?;
        sync_dir(from.parent().unwrap_or(Path::new(".")))?;
    }
    // A starting validator deletes everything under an accounts path that lacks `run` or `snapshot`.
    for (accounts, root) in target.accounts.iter().zip(roots) {
        let snapshot = accounts.join("snapshot");
        if !snapshot.is_dir() {
            fs::create_dir(&snapshot).or_path("create", &snapshot)?;
            owner.take_path(&snapshot)?;
        }
        root.rename(&accounts.join("run"))?;
        sync_dir(accounts)?;
    }
    bank_snapshot.rename(&dir)?;
    sync_dir(&snapshots)?;
    sync_dir(&target.snapshots_dir)?;

    let mut file = tempfile::NamedTempFile::new_in(&dir).or_path("create a file in", &dir)?;
    file.write_all(FASTBOOT_VERSION.as_bytes()).or_path("write", &mark)?;
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o644);
    file.as_file().set_permissions(mode).or_path("write", &mark)?;
    owner.take_path(file.path())?;
    file.as_file().sync_all().or_path("sync", &mark)?;
    file.persist(&mark).map_err(|error| Error::io("write", &mark, &error.error))?;
    sync_dir(&dir)?;
    journal.finish();
    Ok((dir, archives))
}

/// Completes the tree of an archive; returns its directory.
pub fn finish_archive_layout(
    target: &Target,
    slot: u64,
    roots: Vec<PartialDir>,
    bank_snapshot: PartialDir,
) -> Result<PathBuf> {
    let dir = &target.ledger;
    let slot = slot.to_string();
    bank_snapshot.create_dir(&slot, &target.owner)?;
    bank_snapshot.rename_within(BANK_FILE_PARTIAL, &format!("{slot}/{slot}"))?;
    for partial in roots.iter().chain([&bank_snapshot]) {
        partial.sync()?;
    }
    let (snapshots, accounts, version) = (dir.join("snapshots"), dir.join("accounts"), dir.join("version"));
    let unplaced = bank_snapshot.path.join("version");
    let version_inode = fs::metadata(&unplaced).or_path("read", &unplaced)?.ino();
    let mut journal = Journal::new(dir, version.clone());
    journal.add(Placed::Dir { path: snapshots.clone(), inode: bank_snapshot.inode()?, was_there: false });
    for root in &roots {
        journal.add(Placed::Dir { path: accounts.clone(), inode: root.inode()?, was_there: false });
    }
    journal.add(Placed::File { path: version.clone(), inode: version_inode });
    journal.write(&[])?;
    bank_snapshot.rename(&snapshots)?;
    for root in roots {
        root.rename(&accounts)?;
    }
    // Last, since without it nothing takes the tree for an archive's.
    fs::rename(snapshots.join("version"), &version).or_path("move", &version)?;
    sync_dir(&snapshots)?;
    sync_dir(dir)?;
    journal.finish();
    Ok(dir.clone())
}

fn write_file(
    dir: &PartialDir,
    owner: &crate::restore::place::Owner,
    name: &str,
    write: &dyn Fn(&mut BufWriter<File>) -> std::io::Result<()>,
) -> Result<()> {
    let mut to = BufWriter::new(dir.create_file(name, owner, false)?);
    write(&mut to).and_then(|()| to.flush()).or_path("write", &dir.path.join(name))
}
