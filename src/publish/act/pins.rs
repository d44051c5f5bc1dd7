//! The directory of pins, on the validator's file system. It contains archives that are pinned against
//! the validator's purge, archives that are ready to be published, and damaged archives. Only one
//! process at a time can lock it. Nothing may be written into the validator's directories. They are
//! recognized by device and inode, so a link or a mount cannot hide them.

use std::cmp::Reverse;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{AtFlags, CWD, FlockOperation, fcntl_lock, flock, fstat, ioctl_ficlone, linkat};
use rustix::io::Errno;
use slotpress_base::{Error, ErrorKind, EscapePath, IoContext, KeptDir, Result, hint};
use slotpress_format::{ArchiveName, lock_holder};
use slotpress_read::{
    Catalog, ListedArchive, LockAttempt, StagedFile, check_output_dir, file_id, modified_ns, remove_stale_files,
    scan_names, try_lock,
};
use slotpress_stores::Target;

use crate::archive::sink::DirSink;
use crate::publish::{PublishOptions, Writer};

const PINNED: &str = "pinned";
const READY: &str = "ready";
const QUARANTINE: &str = "quarantine";

/// Number of newest damaged archives that are kept: enough for a diagnosis, without filling the disk.
const QUARANTINED_MAX: usize = 3;

const OTHER_OWNER: &str = ": run as the user that owns the file, usually the validator's";
const OTHER_MOUNT: &str =
    ": the pins are on another mount (in a systemd unit, each path of ReadWritePaths= is a mount)";

/// Errors with which a file system refuses to make a copy that shares blocks.
const CLONE_UNSUPPORTED: [Errno; 6] =
    [Errno::OPNOTSUPP, Errno::XDEV, Errno::INVAL, Errno::NOTTY, Errno::NOSYS, Errno::PERM];

#[derive(Debug)]
pub struct PinDir {
    pub top: Arc<KeptDir>,
    pub pinned: Arc<KeptDir>,
    pub ready: Arc<KeptDir>,
    quarantine: Arc<KeptDir>,
}

#[derive(Debug)]
pub enum PinResult {
    Pinned,
    /// The validator has removed the archive in the meantime.
    Gone,
    /// The file is changing, its writer has locked it, or a file with its name is already pinned: try
    /// again later.
    NotYet,
    /// The file cannot be pinned, for this reason.
    Impossible(String),
    Damaged(Error),
}

impl Drop for PinDir {
    fn drop(&mut self) {
        // Closing the descriptor is not enough: a child process that another thread starts may have a
        // copy of it for a moment.
        let _ = flock(&*self.top, FlockOperation::Unlock);
    }
}

impl PinDir {
    /// Opens or creates the directory, and locks it. Fails if it is on a different file system than the
    /// validator's directories, if it needs reflinks and has none, or if another process works in it. The
    /// caller must have checked that it is not inside the validator's directories ([`check_dirs`]).
    pub fn open(options: &PublishOptions) -> Result<Self> {
        let path = options.pins.as_path();
        let top = KeptDir::open_or_create(path, &mut |_, _| {})?;
        if try_lock(&top).or_path("lock", path)? == LockAttempt::Busy {
            let holder = lock_holder(&top).map_or("another process".to_string(), |holder| holder.to_string());
            let message = format!("{} is in use by {holder}", path.escaped());
            return Err(Error::new(ErrorKind::InUse, message).with_hint(hint::OTHER_PINS));
        }
        for snapshots in options.validator_dirs() {
            if top.stat()?.device != KeptDir::open(&snapshots)?.stat()?.device {
                let pins = path.escaped();
                let snapshots = snapshots.escaped();
                return Err(Error::usage(format!(
                    "{pins} is not on the file system of {snapshots}: nothing can be pinned there"
                ))
                .with_hint(hint::PINS_ON_SAME_FILE_SYSTEM));
            }
        }
        // Files are deleted below this directory, so symbolic links there are not followed.
        let open_dir = |name: &str| top.open_or_create_dir(name, &mut || ()).map(Arc::new);
        let pinned = open_dir(PINNED)?;
        let ready = open_dir(READY)?;
        let quarantine = open_dir(QUARANTINE)?;
        // Remove temporary files of a killed run now: they may be as long as archives. Writing a file
        // would remove them too, but this run may not write any.
        for dir in [&pinned, &ready] {
            remove_stale_files(dir)?;
        }
        if options.writer != Some(Writer::Agave) && !has_reflinks(&pinned)? {
            let message = format!(
                "nothing can be pinned in {}: its file system does not support reflinks (XFS and Btrfs do), and Firedancer refuses \
                 files with a second name",
                path.escaped()
            );
            return Err(Error::usage(message)
                .with_hint("if only Agave writes archives here, use --writer agave, which pins by hard links"));
        }
        Ok(Self { top, pinned, ready, quarantine })
    }

    pub fn ready_sink(&self) -> DirSink {
        DirSink::from_dir(self.ready.clone()).replace(true)
    }

    /// Pins an archive by a copy that shares its blocks (a reflink). If only Agave writes archives, tries
    /// a hard link first.
    pub fn pin(&self, archive: &ListedArchive, writer: Option<Writer>) -> Result<PinResult> {
        let reason = match writer {
            Some(Writer::Agave) => match self.pin_by_link(archive)? {
                // A reflink may work where a link fails: for another user's file, and across mounts.
                PinResult::Impossible(reason) => reason,
                result => return Ok(result),
            },
            _ => format!("{} cannot be cloned{OTHER_MOUNT}", archive.path().escaped()),
        };
        let result = self.pin_by_reflink(archive)?;
        Ok(result.unwrap_or(PinResult::Impossible(reason)))
    }

    fn pin_by_link(&self, archive: &ListedArchive) -> Result<PinResult> {
        let path = archive.path();
        let reason = match link_archive(archive, &self.pinned)? {
            LinkResult::Made => return Ok(PinResult::Pinned),
            LinkResult::FileReplaced | LinkResult::Failed(Errno::EXIST) => return Ok(PinResult::NotYet),
            LinkResult::Failed(Errno::NOENT) => return Ok(PinResult::Gone),
            LinkResult::Failed(error @ (Errno::PERM | Errno::ACCESS)) => format!("{error}{OTHER_OWNER}"),
            LinkResult::Failed(error @ Errno::XDEV) => format!("{error}{OTHER_MOUNT}"),
            LinkResult::Failed(error @ (Errno::MLINK | Errno::OPNOTSUPP)) => error.to_string(),
            LinkResult::Failed(error) => return Err(Error::io("pin", &path, &error.into())),
        };
        let reason = format!("cannot link {}: {reason}", path.escaped());
        Ok(PinResult::Impossible(reason))
    }

    /// Pins an archive by a reflink. Returns `None` if the file system cannot make one. Holds a read lock
    /// meanwhile, because Firedancer locks a file before it rewrites the file.
    fn pin_by_reflink(&self, archive: &ListedArchive) -> Result<Option<PinResult>> {
        let name = archive.name.to_string();
        let path = archive.path();
        let source = match archive.open() {
            Ok((source, _)) => source,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Some(PinResult::Gone)),
            Err(error) => return Err(Error::from_open(&path, &error)),
        };
        if self.pinned.stat_entry(&name)?.is_some()
            || fcntl_lock(&source, FlockOperation::NonBlockingLockShared).is_err()
        {
            return Ok(Some(PinResult::NotYet));
        }
        let copy = StagedFile::create_in(&self.pinned)?;
        if !share_blocks(&copy, &source, &path)? {
            return Ok(None);
        }
        let stat = fstat(&source).or_path("read", &path)?;
        let is_unchanged = file_id(&stat) == archive.file_id
            && modified_ns(&stat) == archive.modified_ns
            && u64::try_from(stat.st_size) == Ok(archive.size_bytes);
        if !is_unchanged {
            return Ok(Some(PinResult::NotYet));
        }
        copy.publish(&name)?;
        Ok(Some(PinResult::Pinned))
    }

    pub fn link_to_ready(&self, name: &ArchiveName) -> Result<()> {
        let name = name.to_string();
        let path = self.ready.path_of(&name);
        match linkat(&self.pinned, &name, &self.ready, &name, AtFlags::empty()) {
            Ok(()) | Err(Errno::EXIST) => self.ready.sync(),
            Err(error) => Err(Error::io("publish", &path, &error.into())),
        }
    }

    /// Moves a damaged archive to the quarantine, and returns its path there; `None` if it is not pinned.
    /// The quarantine then keeps only the newest [`QUARANTINED_MAX`] archives.
    pub fn quarantine(&self, name: &ArchiveName) -> Result<Option<PathBuf>> {
        let name = name.to_string();
        if self.pinned.stat_entry(&name)?.is_none() {
            return Ok(None);
        }
        let path = self.quarantine.path_of(&name);
        // Remove the old file first: if both names are hard links to one file, `rename` would leave both in
        // place. That happens if an archive was refused, then grew, and was pinned once more.
        self.quarantine.remove_if_exists(&name)?;
        self.pinned.rename(&name, &self.quarantine, &name).or_path("move aside", &path)?;
        let mut kept = scan_open_dir(&self.quarantine, scan_names)?.archives().to_vec();
        kept.sort_by_key(|archive| Reverse(archive.name.slot));
        for old in kept.iter().skip(QUARANTINED_MAX) {
            self.quarantine.remove_if_exists(old.name.to_string())?;
        }
        Ok(Some(path))
    }
}

#[derive(Debug)]
pub enum LinkResult {
    Made,
    /// A different file now has the archive's path. The link to that file was removed.
    FileReplaced,
    Failed(Errno),
}

/// Creates a hard link in `dir` to the file of an archive.
pub fn link_archive(archive: &ListedArchive, dir: &KeptDir) -> Result<LinkResult> {
    let name = archive.name.to_string();
    let id = archive.file_id;
    if let Err(error) = linkat(CWD, archive.path(), dir, &name, AtFlags::empty()) {
        return Ok(LinkResult::Failed(error));
    }
    if dir.stat_entry(&name)?.is_some_and(|stat| (stat.device, stat.inode) == (id.device, id.inode)) {
        return Ok(LinkResult::Made);
    }
    dir.remove_if_exists(&name)?;
    Ok(LinkResult::FileReplaced)
}

fn has_reflinks(dir: &Arc<KeptDir>) -> Result<bool> {
    let source = StagedFile::create_in(dir)?;
    let copy = StagedFile::create_in(dir)?;
    source.file().write_all(&[1; 4096]).or_path("write", source.path())?;
    share_blocks(&copy, source.file(), copy.path())
}

/// Makes `copy` share the blocks of `source`. Returns false if the file system does not support it.
fn share_blocks(copy: &StagedFile, source: &File, path: &Path) -> Result<bool> {
    match ioctl_ficlone(copy.file(), source) {
        Ok(()) => Ok(true),
        Err(error) if CLONE_UNSUPPORTED.contains(&error) => Ok(false),
        Err(error) => Err(Error::io("clone", path, &error.into())),
    }
}

/// Scans a directory by its path. Checks before and after that the path still leads to the directory.
pub fn scan_open_dir(dir: &KeptDir, scan: impl FnOnce(&[PathBuf]) -> Result<Catalog>) -> Result<Catalog> {
    dir.check_path()?;
    let catalog = scan(&[dir.path().to_path_buf()])?;
    dir.check_path()?;
    Ok(catalog)
}

/// Checks the directories of pins and targets before anything is created or written there. Fails if one
/// of them is inside a directory of the validator, if a target is inside the directory of pins, or if no
/// target can be used.
pub fn check_dirs(options: &PublishOptions) -> Result<()> {
    if let Some(dir) = open_nearest(&options.pins) {
        for snapshots in options.validator_dirs() {
            refuse_inside(&dir, &snapshots, "the validator's directory")
                .map_err(|error| error.with_hint(hint::PINS_ON_SAME_FILE_SYSTEM))?;
        }
    }
    let mut target_errors = Vec::new();
    for target in &options.targets {
        let Target::Dir(path) = target else { continue };
        if let Some(dir) = open_nearest(path) {
            check_target(&dir, options)?;
        }
        target_errors.extend(check_output_dir(path).err());
    }
    // One usable target is enough: the others are tried again later.
    let has_usable_target = target_errors.len() < options.targets.len();
    match target_errors.into_iter().next() {
        Some(error) if !has_usable_target => Err(error),
        _ => Ok(()),
    }
}

pub fn check_target(dir: &KeptDir, options: &PublishOptions) -> Result<()> {
    for snapshots in options.validator_dirs() {
        refuse_inside(dir, &snapshots, "the validator's directory")?;
    }
    refuse_inside(dir, &options.pins, "the directory of pins")
}

fn refuse_inside(dir: &KeptDir, outer: &Path, role: &str) -> Result<()> {
    let Ok(outer) = KeptDir::open(outer) else { return Ok(()) };
    if !dir.is_within(&outer.stat()?)? {
        return Ok(());
    }
    let dir = dir.path().escaped();
    let outer = outer.path().escaped();
    let message = format!("{dir} is in {outer}, {role}: nothing else may be written there");
    Err(Error::usage(message).with_hint("use a directory outside"))
}

/// Opens the path, or the nearest directory above it that can be opened. If there is none, returns `None`,
/// and creating the directory will report why.
fn open_nearest(path: &Path) -> Option<KeptDir> {
    let dir = path.ancestors().find_map(|path| KeptDir::open(path).ok());
    dir.or_else(|| KeptDir::open(Path::new(".")).ok())
}
