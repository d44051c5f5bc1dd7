//! Journal of the renames at the end of a restore. It is written before the first rename, and the last
//! rename completes the ledger. A run that finds the journal of a killed run undoes the renames if the
//! last one was not made; otherwise it removes only the journal.
//!
//! Files and directories are identified by place and inode, so that other files at the same places are not
//! touched. The run itself undoes renames through its open directories. A later run opens the directories
//! that the journal names.

use std::ffi::OsString;
use std::fs;
use std::io::{ErrorKind, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use slotpress_base::{Error, EscapePath, IoContext, KeptDir, Result, changed_error, read_at_most};
use slotpress_read::{DirLocks, RESTORE_JOURNAL_NAME as JOURNAL_NAME, remove_stale_dirs};

use crate::restore::place::{PARTIAL_PREFIX, PartialDir};

/// Prefix of the directories to which a former state is moved. They are created when needed.
pub const REPLACED_PREFIX: &str = "slotpress-replaced-";

/// Value of the journal's first field, with the version of the format.
const FORMAT: &str = "slotpress-restore-journal-3";

const JOURNAL_NAME_PARTIAL: &str = "slotpress-partial-journal-new";

/// Limit on the length of a journal: enough for 100,000 moves between paths of 4 KiB, if each byte takes
/// four characters of JSON. A restore moves far fewer files.
const JOURNAL_BYTES_MAX: u64 = 4 * 1024 * 1024 * 1024;

const UNDOING: &str = "undo what an unfinished restore moved, in";

/// The move of a file or directory to another place. `D` is an open directory or, in the journal, its
/// path.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Move<D = Arc<KeptDir>> {
    inode: u64,
    from: (D, String),
    /// A directory, and a path below it. Missing directories on this path are created.
    to: (D, String),
}

impl<D> Move<D> {
    fn map_dirs<E>(&self, map: impl Fn(&D) -> Result<E>) -> Result<Move<E>> {
        let from = (map(&self.from.0)?, self.from.1.clone());
        let to = (map(&self.to.0)?, self.to.1.clone());
        Ok(Move { inode: self.inode, from, to })
    }
}

impl Move {
    pub fn new((dir, name): (&Arc<KeptDir>, &str), to: (&Arc<KeptDir>, &str)) -> Result<Self> {
        let stat = dir.stat_entry(name)?;
        let stat = stat.ok_or_else(|| changed_error(&dir.path_of(name)))?;
        Ok(Self::with_inode(stat.inode, (dir, name), to))
    }

    fn with_inode(inode: u64, from: (&Arc<KeptDir>, &str), to: (&Arc<KeptDir>, &str)) -> Self {
        let place = |(dir, name): (&Arc<KeptDir>, &str)| (dir.clone(), name.to_string());
        Self { inode, from: place(from), to: place(to) }
    }

    pub fn source_path(&self) -> PathBuf {
        self.from.0.path_of(&self.from.1)
    }

    /// Returns the topmost path that the move creates: the first component of the target below its open
    /// directory.
    pub fn top_path(&self) -> PathBuf {
        let (dir, path) = &self.to;
        dir.path_of(path.split('/').next().unwrap_or_default())
    }

    /// Opens the directory to which the file is moved. Returns the directory and the file's name there;
    /// `None` if the directory is missing and is not to be created.
    fn open_target(&self, create_missing: bool) -> Result<Option<(Arc<KeptDir>, &str)>> {
        let mut dir = self.to.0.clone();
        let (parent, name) = self.to.1.rsplit_once('/').unwrap_or(("", &self.to.1));
        for inner in parent.split('/').filter(|inner| !inner.is_empty()) {
            let next = match dir.open_dir(inner)? {
                Some(next) => next,
                None if create_missing => dir.create_dir(inner)?,
                None => return Ok(None),
            };
            if create_missing {
                dir.sync()?;
            }
            dir = Arc::new(next);
        }
        Ok(Some((dir, name)))
    }

    /// Makes the move. Returns true if it replaced an empty directory.
    fn run(&self) -> Result<bool> {
        let (dir, from) = &self.from;
        let path = self.source_path();
        let create_missing = true;
        let target = self.open_target(create_missing)?;
        let (to_dir, to) = target.ok_or_else(|| changed_error(&path))?;
        let stat = match dir.stat_entry(from)? {
            Some(stat) if stat.inode == self.inode => stat,
            _ => return Err(changed_error(&path)),
        };
        let replaces_empty = to_dir.stat_entry(to)?.is_some();
        dir.move_checked(from, &stat, &to_dir, to)?;
        to_dir.sync()?;
        dir.sync()?;
        Ok(replaces_empty)
    }

    /// Moves the file back, if it was moved and no other file has its former name. Removes the
    /// directories that were created for it if they are empty. With `leave_empty_dir`, creates an empty
    /// directory at the place that the file leaves.
    fn undo(&self, leave_empty_dir: bool) -> Result<()> {
        let create_missing = false;
        let Some((to_dir, to)) = self.open_target(create_missing)? else { return Ok(()) };
        let (dir, from) = &self.from;
        let moved = to_dir.stat_entry(to)?;
        let former = dir.stat_entry(from)?;
        let is_moved = moved.is_some_and(|moved| moved.inode == self.inode);
        // Only an empty directory can be replaced.
        if is_moved && former.is_none_or(|former| former.kind.is_dir()) {
            let renamed = to_dir.rename(to, dir, from);
            renamed.or_path(UNDOING, &to_dir.path_of(to))?;
            if leave_empty_dir {
                to_dir.create_dir(to)?;
            }
            dir.sync()?;
            to_dir.sync()?;
        }
        for (end, _) in self.to.1.match_indices('/').rev() {
            let _ = fs::remove_dir(self.to.0.path().join(&self.to.1[..end]));
        }
        Ok(())
    }
}

/// Content of the journal. Paths are bytes, since not all are valid UTF-8.
#[derive(Debug, Serialize, Deserialize)]
struct Journal {
    format: String,
    moves: Vec<Move<OsString>>,
}

/// The moves of a run, in their order. Dropping this value undoes the moves and removes the archives
/// that were placed, unless [`finish`](Self::finish) was called.
#[derive(Debug)]
pub struct Moves {
    dir: Arc<KeptDir>,
    planned: Vec<Move>,
    /// For each move that was started, whether it replaced an empty directory.
    started: Vec<bool>,
    placed: Vec<(String, u64)>,
    is_finished: bool,
}

impl Moves {
    pub fn new(dir: &Arc<KeptDir>, planned: Vec<Move>) -> Self {
        Self { dir: dir.clone(), planned, started: Vec::new(), placed: Vec::new(), is_finished: false }
    }

    pub fn add_partial(&mut self, dir: &PartialDir, parent: &Arc<KeptDir>, to: (&Arc<KeptDir>, &str)) -> Result<()> {
        let name = dir.path.file_name().unwrap_or_default().to_string_lossy();
        let inode = dir.dir().stat()?.inode;
        self.planned.push(Move::with_inode(inode, (parent, &name), to));
        Ok(())
    }

    pub fn add(&mut self, planned: Move) {
        self.planned.push(planned);
    }

    /// Records that an archive was placed. The journal does not contain it, because a later run can use the
    /// archive.
    pub fn record_placed(&mut self, name: &str) -> Result<()> {
        if let Some(stat) = self.dir.stat_entry(name)? {
            self.placed.push((name.to_string(), stat.inode));
        }
        Ok(())
    }

    /// Makes the moves, once the journal is on disk. The last move must complete the ledger.
    pub fn run(&mut self) -> Result<()> {
        self.write_journal()?;
        for (index, planned) in self.planned.iter().enumerate() {
            // A move that fails halfway is undone, too.
            self.started.push(false);
            self.started[index] = planned.run()?;
        }
        Ok(())
    }

    fn write_journal(&self) -> Result<()> {
        let dir = &self.dir;
        let path = self.dir.path_of(JOURNAL_NAME);
        let absolute = |dir: &Arc<KeptDir>| {
            let path = std::path::absolute(dir.path());
            Ok(path.or_path("find the absolute path of", dir.path())?.into())
        };
        let moves = self.planned.iter().map(|planned| planned.map_dirs(absolute));
        let journal = Journal { format: FORMAT.to_string(), moves: moves.collect::<Result<_>>()? };
        let bytes = serde_json::to_vec(&journal).or_path("write", &path)?;
        let mut file = dir.create_file(JOURNAL_NAME_PARTIAL, 0o644)?;
        let synced = file.write_all(&bytes).and_then(|()| file.sync_all());
        let renamed = synced.and_then(|()| Ok(dir.rename(JOURNAL_NAME_PARTIAL, dir, JOURNAL_NAME)?));
        if renamed.is_err() {
            let _ = dir.remove_file(JOURNAL_NAME_PARTIAL);
        }
        renamed.or_path("write", &path)?;
        dir.sync()
    }

    /// Removes the journal: everything is in place.
    pub fn finish(mut self) {
        self.is_finished = true;
        // If this fails, the next restore removes the journal.
        let _ = self.dir.remove_file(JOURNAL_NAME);
    }
}

impl Drop for Moves {
    fn drop(&mut self) {
        if self.is_finished {
            return;
        }
        // If undoing fails, the journal stays for the next run.
        let mut started = self.planned.iter().zip(&self.started).rev();
        if started.try_for_each(|(planned, replaced_empty)| planned.undo(*replaced_empty)).is_ok() {
            let _ = self.dir.remove_file(JOURNAL_NAME);
        }
        for (name, inode) in &self.placed {
            if let Ok(Some(stat)) = self.dir.stat_entry(name)
                && stat.inode == *inode
            {
                let _ = self.dir.remove_file(name);
            }
        }
    }
}

/// Undoes the renames of a killed run, or removes the journal of a complete one. The caller must hold
/// the locks of `dir` and of the target's directories. Also locks the directories of the journal's moves.
pub fn recover(dir: &KeptDir, locks: &mut DirLocks) -> Result<()> {
    let path = dir.path_of(JOURNAL_NAME);
    dir.remove_if_exists(JOURNAL_NAME_PARTIAL)?;
    if dir.stat_entry(JOURNAL_NAME)?.is_none() {
        return Ok(());
    }
    let file = dir.open_file(JOURNAL_NAME)?;
    check_owner(&file.metadata().or_path("read", &path)?, &path)?;
    let bytes = read_at_most(file, JOURNAL_BYTES_MAX, &path)?;
    let journal = match serde_json::from_slice::<Journal>(&bytes) {
        Ok(journal) if journal.format == FORMAT => journal,
        _ => return Err(unknown_journal_error(&path)),
    };
    if let Some(last) = journal.moves.last()
        && is_pending(last)?
    {
        undo_all(&journal.moves, locks)?;
    }
    dir.remove_file(JOURNAL_NAME).or_path("remove", &path)?;
    dir.sync()
}

fn unknown_journal_error(path: &Path) -> Error {
    Error::failed(format!("{} is not a restore journal that this version of slotpress understands", path.escaped())).with_hint(
        "run the same restore with the version of slotpress that began it; or, if nothing is restoring into this directory, \
         remove the file, and what the restore left",
    )
}

fn undo_all(moves: &[Move<OsString>], locks: &mut DirLocks) -> Result<()> {
    let open = |dir: &OsString| Ok(Arc::new(KeptDir::open(Path::new(dir))?));
    let mut opened = Vec::new();
    for planned in moves {
        // If a directory is gone, so is its content.
        if Path::new(&planned.from.0).is_dir() && Path::new(&planned.to.0).is_dir() {
            opened.push(planned.map_dirs(open)?);
        }
    }
    opened.iter().try_for_each(|planned| locks.add(&planned.to.0))?;
    let leave_empty_dir = false;
    opened.iter().rev().try_for_each(|planned| planned.undo(leave_empty_dir))?;
    let mut from_dirs = opened.iter().map(|planned| &planned.from.0);
    from_dirs.try_for_each(|dir| remove_stale_dirs(dir, PARTIAL_PREFIX, &mut |_| Ok(())))
}

fn is_pending(planned: &Move<OsString>) -> Result<bool> {
    let from = Path::new(&planned.from.0).join(&planned.from.1);
    match fs::symlink_metadata(&from) {
        Ok(metadata) => Ok(metadata.ino() == planned.inode),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
        Err(error) => Err(Error::io("read", &from, &error)),
    }
}

/// Refuses a journal of another user except root, because it could make this run move any file. Refuses a
/// journal with a second name, because another user may have linked a file of this user to this place.
fn check_owner(journal: &fs::Metadata, path: &Path) -> Result<()> {
    let trusted = [rustix::process::geteuid(), rustix::process::Uid::ROOT];
    let is_trusted = trusted.iter().any(|user| user.as_raw() == journal.uid());
    if is_trusted && journal.nlink() == 1 {
        return Ok(());
    }
    Err(Error::failed(format!("{} may be the journal of another user's restore (user {})", path.escaped(), journal.uid()))
        .with_hint(
            "run slotpress as that user, who has to undo it; or remove the file if no restore into this directory is running",
        ))
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStringExt;

    use super::*;

    /// Makes the journal of a run that moved `file` from the name `former`, and was killed before it
    /// moved `left`.
    fn journal_of(left: &Path, file: &Path, former: &str) -> Vec<u8> {
        let planned = |path: &Path, from: &str, to: &str| {
            let dir: OsString = path.parent().expect("a directory").into();
            let inode = fs::metadata(path).expect("metadata").ino();
            Move { inode, from: (dir.clone(), from.to_string()), to: (dir, to.to_string()) }
        };
        let name = |path: &Path| path.file_name().expect("a name").to_str().expect("UTF-8").to_string();
        let moves = vec![planned(file, former, &name(file)), planned(left, &name(left), "place")];
        serde_json::to_vec(&Journal { format: FORMAT.to_string(), moves }).expect("written")
    }

    #[test]
    fn the_journal_of_another_user_is_not_followed() {
        let top = tempfile::tempdir().expect("a directory");
        // Not every path is valid UTF-8.
        let dir = top.path().join(OsString::from_vec(b"dir \xff\n".to_vec()));
        let victim = dir.join("victim");
        let target = dir.join("target");
        fs::create_dir_all(target.join("left")).expect("made");
        fs::write(&victim, "theirs").expect("written");
        let journal = target.join(JOURNAL_NAME);
        fs::write(&journal, journal_of(&target.join("left"), &victim, "back")).expect("written");
        let recover = || recover(&KeptDir::open(&target).expect("opened"), &mut DirLocks::default());
        fs::hard_link(&journal, dir.join("elsewhere")).expect("linked");
        assert!(recover().is_err());
        assert!(victim.exists());
        fs::remove_file(dir.join("elsewhere")).expect("removed");
        if rustix::process::geteuid().is_root() {
            std::os::unix::fs::chown(&journal, Some(65_534), None).expect("given away");
            let error = recover().expect_err("another user's");
            assert!(error.to_string().contains("another user"), "{error}");
            assert!(victim.exists());
            std::os::unix::fs::chown(&journal, Some(0), None).expect("taken back");
        }
        recover().expect("undone");
        assert!(!victim.exists());
        assert!(dir.join("back").exists());
        assert!(!journal.exists());
    }

    /// A truncated journal and one of an earlier version stay, and so do the files that they name.
    #[test]
    fn unknown_journals_are_not_followed() {
        let dir = tempfile::tempdir().expect("a directory");
        let victim = dir.path().join("victim");
        let journal = dir.path().join(JOURNAL_NAME);
        fs::write(&victim, "theirs").expect("written");
        fs::create_dir(dir.path().join("left")).expect("made");
        let whole = journal_of(&dir.path().join("left"), &victim, "back");
        let earlier = String::from_utf8(whole.clone()).expect("UTF-8").replace("journal-3", "journal-2").into_bytes();
        let truncated = (0..whole.len()).step_by(7).map(|end| whole[..end].to_vec());
        for bytes in truncated.chain([earlier]) {
            fs::write(&journal, &bytes).expect("written");
            let recovered = recover(&KeptDir::open(dir.path()).expect("opened"), &mut DirLocks::default());
            let error = recovered.expect_err("not a journal");
            assert!(error.to_string().contains("this version of slotpress understands"), "{error}");
            assert!(victim.exists());
            assert!(fs::read(&journal).expect("read") == bytes, "the file stays");
        }
    }
}
