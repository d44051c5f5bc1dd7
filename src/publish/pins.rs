//! Our own directory on the validator's file system: what was pinned against its purge, what is ready to be published, what
//! failed. One process at a time works in it.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{AtFlags, FlockOperation, fcntl_lock, fstat, ioctl_ficlone, linkat};
use rustix::io::Errno;
use slotpress_base::{Error, Hint, IoContext, KeptDir, Result, ShowPath, free_bytes};
use slotpress_format::{ArchiveName, lock_holder};
use slotpress_read::catalog::Archive;
use slotpress_read::{Catalog, Locked, Unpublished, file_id, modified_ns, scan_again, scan_names, try_lock};

use super::journal::Journal;
use super::places;
use super::writer::WrittenBy;

/// What the directory holds, each in a directory of its own.
const PINNED: &str = "pinned";
const READY: &str = "ready";
const QUARANTINE: &str = "quarantine";

/// Archives that failed which are kept, the newest: enough to look at, and no disk fills up.
const QUARANTINED_MAX: usize = 3;

/// Why a file of Firedancer's stays unpinned.
const NO_REFLINKS: &str =
    "the file system has no reflinks (xfs and btrfs have), and Firedancer refuses files with a second name";

/// The directory, ours until this is dropped.
#[derive(Debug)]
pub struct PinDir {
    top: Arc<KeptDir>,
    pinned: Arc<KeptDir>,
    ready: Arc<KeptDir>,
    quarantine: Arc<KeptDir>,
}

/// What became of an archive that was to be pinned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Pinned {
    /// It stays until we let it go.
    Yes,
    /// The validator has removed it.
    Gone,
    /// It changed, or its writer holds it: it is looked at again.
    NotNow,
    /// It cannot be pinned, and why.
    Never(String),
}

impl PinDir {
    /// Opens it, or makes it; refuses one that is in use, or of no use.
    ///
    /// # Errors
    /// It is the validator's own, on another file system, or another process works in it; the disk fails.
    pub fn open(path: &Path, snapshots: &Path, quarantine: Option<&Path>) -> Result<Self> {
        let snapshots = KeptDir::open(snapshots)?;
        let made = |path: &Path| KeptDir::open_or_make(path, &mut |_, _| {});
        let top = made(path)?;
        places::of_pins(&top, snapshots.path())?;
        if try_lock(&top).or_path("lock", path)? == Locked::Busy {
            let holder = lock_holder(&top).flatten().map_or("another process".to_string(), |by| by.to_string());
            return Err(Error::failed(format!("{} is in use by {holder}", path.shown())).with_hint(Hint::OtherPins));
        }
        if top.itself()?.device != snapshots.itself()?.device {
            let (here, there) = (path.shown(), snapshots.path().shown());
            return Err(Error::usage(format!(
                "{here} is not on the file system of {there}: nothing can be pinned there"
            ))
            .with_hint(Hint::PinsOnSameFileSystem));
        }
        // Below it, no link is followed: what is not needed is deleted there.
        let below = |name: &str| top.open_or_make_dir(name, &mut || ()).map(Arc::new);
        let quarantine = quarantine.map_or_else(|| below(QUARANTINE), made)?;
        places::of_pins(&quarantine, snapshots.path())?;
        Ok(Self { pinned: below(PINNED)?, ready: below(READY)?, quarantine, top })
    }

    /// Reads what the run before remembered.
    ///
    /// # Errors
    /// See [`Journal::load`].
    pub fn journal(&self) -> Result<Journal> {
        Journal::load(&self.top)
    }

    /// Remembers.
    ///
    /// # Errors
    /// See [`Journal::save`].
    pub fn save(&self, journal: &Journal) -> Result<()> {
        journal.save(&self.top)
    }

    /// How much is free on its file system, in bytes.
    pub fn free_bytes(&self) -> Option<u64> {
        free_bytes(&*self.top)
    }

    /// What is pinned.
    ///
    /// # Errors
    /// The disk fails.
    pub fn pinned(&self) -> Result<Vec<Archive>> {
        Ok(of_dir(&self.pinned, scan_names)?.archives().to_vec())
    }

    /// What is ready, with roots; what is known of it is not read again.
    ///
    /// # Errors
    /// The disk fails.
    pub fn ready(&self, known: &Catalog) -> Result<Catalog> {
        of_dir(&self.ready, |dirs| scan_again(dirs, known))
    }

    /// Where an archive is that was pinned.
    pub fn pinned_path(&self, name: &ArchiveName) -> PathBuf {
        self.pinned.path_of(name.to_string())
    }

    /// A file for an archive that will be ready.
    ///
    /// # Errors
    /// The disk fails.
    pub fn new_ready(&self) -> Result<Unpublished> {
        Unpublished::create_in(&self.ready)
    }

    /// Pins an archive by a second name for the same file; where its writer uses files again and refuses those with two
    /// names, or may, by a copy that shares its blocks.
    ///
    /// # Errors
    /// The disk fails.
    pub fn pin(&self, archive: &Archive, written_by: WrittenBy) -> Result<Pinned> {
        let no_link = match written_by {
            WrittenBy::Agave => match self.link(archive)? {
                // The file is another user's, or another volume's: a copy may do.
                Pinned::Never(why) => why,
                pinned => return Ok(pinned),
            },
            WrittenBy::Firedancer => format!("cannot pin {}: {NO_REFLINKS}", archive.path().shown()),
            WrittenBy::Unknown => format!(
                "cannot pin {}: its bank file cannot be read, so Firedancer may be writing it; {NO_REFLINKS} (where only Agave \
                 writes: --writer agave)",
                archive.path().shown()
            ),
        };
        Ok(self.clone_of(archive)?.unwrap_or(Pinned::Never(no_link)))
    }

    fn link(&self, archive: &Archive) -> Result<Pinned> {
        let (name, path) = (archive.name.to_string(), archive.path());
        let Some(from) = path.parent() else { return Ok(Pinned::Gone) };
        let from = KeptDir::open(from)?;
        match linkat(&from, &name, &self.pinned, &name, AtFlags::empty()) {
            Ok(()) => {}
            Err(Errno::NOENT) => return Ok(Pinned::Gone),
            Err(Errno::EXIST) => return Ok(Pinned::NotNow),
            Err(error @ (Errno::PERM | Errno::ACCESS | Errno::XDEV | Errno::MLINK | Errno::OPNOTSUPP)) => {
                let hint = match error {
                    Errno::PERM | Errno::ACCESS => ": run as the user that owns it, usually the validator's",
                    Errno::XDEV => ": the pins are on another mount (each path of ReadWritePaths= in a unit is one)",
                    _ => "",
                };
                return Ok(Pinned::Never(format!("cannot link {}: {error}{hint}", path.shown())));
            }
            Err(error) => return Err(Error::io("pin", &path, &error.into())),
        }
        let found = self.pinned.found(&name)?;
        if found.is_some_and(|found| (found.device, found.inode) == (archive.file_id.device, archive.file_id.inode)) {
            return Ok(Pinned::Yes);
        }
        self.unpin(&archive.name)?;
        Ok(Pinned::NotNow)
    }

    /// By a copy that shares its blocks; `None` where the file system has none. A lock of the kind that Firedancer takes before
    /// it uses a file again is held for the call alone.
    fn clone_of(&self, archive: &Archive) -> Result<Option<Pinned>> {
        let (name, path) = (archive.name.to_string(), archive.path());
        let source = match archive.open() {
            Ok((source, _)) => source,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Some(Pinned::Gone)),
            Err(error) => return Err(Error::of_open(&path, &error)),
        };
        if self.pinned.found(&name)?.is_some() || fcntl_lock(&source, FlockOperation::NonBlockingLockShared).is_err() {
            return Ok(Some(Pinned::NotNow));
        }
        let to = Unpublished::create_in(&self.pinned)?;
        match ioctl_ficlone(to.file(), &source) {
            Ok(()) => {}
            Err(Errno::OPNOTSUPP | Errno::XDEV | Errno::INVAL | Errno::NOTTY | Errno::NOSYS | Errno::PERM) => {
                return Ok(None);
            }
            Err(error) => return Err(Error::io("clone", &path, &error.into())),
        }
        let now = fstat(&source).or_path("read", &path)?;
        let is_same = file_id(&now) == archive.file_id
            && modified_ns(&now) == archive.modified_ns
            && u64::try_from(now.st_size) == Ok(archive.size_bytes);
        if !is_same {
            return Ok(Some(Pinned::NotNow));
        }
        to.publish(&name, false)?;
        Ok(Some(Pinned::Yes))
    }

    /// Lets a pinned archive go.
    ///
    /// # Errors
    /// The disk fails.
    pub fn unpin(&self, name: &ArchiveName) -> Result<()> {
        remove(&self.pinned, &name.to_string())
    }

    /// Removes what is published everywhere.
    ///
    /// # Errors
    /// The disk fails.
    pub fn remove_ready(&self, name: &ArchiveName) -> Result<()> {
        remove(&self.ready, &name.to_string())
    }

    /// A pinned archive is ready as it is.
    ///
    /// # Errors
    /// The disk fails.
    pub fn pinned_is_ready(&self, name: &ArchiveName) -> Result<()> {
        let name = name.to_string();
        match linkat(&self.pinned, &name, &self.ready, &name, AtFlags::empty()) {
            Ok(()) | Err(Errno::EXIST) => self.ready.sync(),
            Err(error) => Err(Error::io("publish", &self.ready.path_of(&name), &error.into())),
        }
    }

    /// Keeps aside what failed; of many, the newest. Returns where it is.
    ///
    /// # Errors
    /// The disk fails.
    pub fn quarantine(&self, name: &ArchiveName) -> Result<PathBuf> {
        let text = name.to_string();
        let to = self.quarantine.path_of(&text);
        // Of two names of one file, as after a file has grown that failed before, a rename would leave both.
        remove(&self.quarantine, &text)?;
        self.pinned.rename(&text, &self.quarantine, &text).or_path("keep aside", &to)?;
        let mut names: Vec<ArchiveName> =
            self.quarantine.names()?.iter().filter_map(|name| ArchiveName::parse(name.to_str()?)).collect();
        names.sort_by_key(|name| name.slot);
        for old in names.iter().rev().skip(QUARANTINED_MAX) {
            remove(&self.quarantine, &old.to_string())?;
        }
        Ok(to)
    }
}

/// Scans a directory by its path, which leads to it before and afterwards.
fn of_dir(dir: &KeptDir, scan: impl FnOnce(&[PathBuf]) -> Result<Catalog>) -> Result<Catalog> {
    dir.check_path()?;
    let catalog = scan(&[dir.path().to_path_buf()])?;
    dir.check_path()?;
    Ok(catalog)
}

fn remove(dir: &KeptDir, name: &str) -> Result<()> {
    match dir.remove_file(name) {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(error) => Err(Error::io("remove", &dir.path_of(name), &error.into())),
    }
}
