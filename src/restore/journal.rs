//! Journal of the renames at the end of a restore. It is written before the first rename. The last
//! one completes the ledger: a run that finds the journal of a killed run undoes the renames if the
//! last one was not made, and otherwise removes only the journal.
//!
//! Objects are identified by place and inode, so other files at these places are not touched. The
//! run itself undoes renames through its open directories. A later run opens the directories that
//! the journal names.

use std::ffi::OsString;
use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use slotpress_base::kept_dir::changed_error;
use slotpress_base::{Error, EscapePath, FileStat, IoContext, KeptDir, Result};
use slotpress_read::{DirLocks, RESTORE_JOURNAL_NAME as JOURNAL_NAME, remove_stale_dirs};

use crate::restore::place::{PARTIAL_PREFIX, PartialDir};

/// Prefix of the directories to which a former state is moved. They are created when needed.
pub const REPLACED_PREFIX: &str = "slotpress-replaced-";

/// Value of the file's first field. The format before these was not JSON.
const FORMAT: &str = "slotpress-restore-journal-3";

const JOURNAL_NAME_PARTIAL: &str = "slotpress-partial-journal-new";

/// Limit on the size of a journal, far above the size of any real one. A path has at most 4 KiB,
/// and up to four characters per byte.
const JOURNAL_BYTES_MAX: u64 = 4 * 1024 * 1024 * 1024;

const UNDOING: &str = "undo what an unfinished restore moved, in";

/// A file or directory that gets another place. `D` is an open directory, or its path in the file.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Move<D = Arc<KeptDir>> {
    inode: u64,
    from: (D, String),
    /// A directory, and a path below it. Missing directories on this path are created.
    to: (D, String),
}

impl<D> Move<D> {
    fn map<E>(&self, map: impl Fn(&D) -> Result<E>) -> Result<Move<E>> {
        let Self { inode, from, to } = self;
        Ok(Move { inode: *inode, from: (map(&from.0)?, from.1.clone()), to: (map(&to.0)?, to.1.clone()) })
    }
}

impl Move {
    pub fn new((dir, name): (&Arc<KeptDir>, &str), to: (&Arc<KeptDir>, &str)) -> Result<Self> {
        let found = dir.stat_entry(name)?.ok_or_else(|| changed_error(&dir.path_of(name)))?;
        Ok(Self::from_found(&found, (dir, name), to))
    }

    pub fn from_partial(dir: &PartialDir, parent: &Arc<KeptDir>, to: (&Arc<KeptDir>, &str)) -> Result<Self> {
        let name = dir.path.file_name().unwrap_or_default().to_string_lossy();
        Ok(Self::from_found(&dir.dir().stat()?, (parent, &name), to))
    }

    fn from_found(found: &FileStat, from: (&Arc<KeptDir>, &str), to: (&Arc<KeptDir>, &str)) -> Self {
        let place = |(dir, name): (&Arc<KeptDir>, &str)| (dir.clone(), name.to_string());
        Self { inode: found.inode, from: place(from), to: place(to) }
    }

    pub fn source_path(&self) -> PathBuf {
        self.from.0.path_of(&self.from.1)
    }

    /// Path of the first level below the open directory to which the object is moved.
    pub fn top_path(&self) -> PathBuf {
        self.to.0.path_of(self.to.1.split('/').next().unwrap_or_default())
    }

    /// Opens the directory that holds the object afterwards, and its name there; `None` if the
    /// directory is missing and `makes` is not set.
    fn open_place(&self, makes: bool) -> Result<Option<(Arc<KeptDir>, &str)>> {
        let mut dir = self.to.0.clone();
        let (above, name) = self.to.1.rsplit_once('/').unwrap_or(("", &self.to.1));
        for inner in above.split('/').filter(|inner| !inner.is_empty()) {
            let next = match dir.open_dir(inner)? {
                Some(next) => next,
                None if makes => dir.create_dir(inner)?,
                None => return Ok(None),
            };
            if makes {
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
        let (to_dir, to) = self.open_place(true)?.ok_or_else(|| changed_error(&path))?;
        let found =
            dir.stat_entry(from)?.filter(|found| found.inode == self.inode).ok_or_else(|| changed_error(&path))?;
        let replaces_empty = to_dir.stat_entry(to)?.is_some();
        dir.move_checked(from, &found, &to_dir, to)?;
        to_dir.sync()?;
        dir.sync()?;
        Ok(replaces_empty)
    }

    /// Moves the object back, if it was moved and no other file has its former name, and removes the
    /// directories that were created for it if they are empty. With `makes_empty`, creates an empty
    /// directory in its place.
    fn undo(&self, makes_empty: bool) -> Result<()> {
        let Some((to_dir, to)) = self.open_place(false)? else { return Ok(()) };
        let (dir, from) = &self.from;
        if to_dir.stat_entry(to)?.is_some_and(|found| found.inode == self.inode)
            && dir.stat_entry(from)?.is_none_or(|found| found.kind.is_dir())
        {
            // The former place is free, or an empty directory.
            to_dir.rename(to, dir, from).or_path(UNDOING, &to_dir.path_of(to))?;
            if makes_empty {
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

/// Content of the file. Paths are bytes, since not all are valid UTF-8.
#[derive(Debug, Serialize, Deserialize)]
struct Document {
    format: String,
    moves: Vec<Move<OsString>>,
}

/// The moves of a run, in their order. Unless they are finished, dropping them undoes those that
/// were made, and removes the archives that were placed.
#[derive(Debug)]
pub struct Moves {
    dir: Arc<KeptDir>,
    planned: Vec<Move>,
    /// For each move that was begun, whether it replaced an empty directory.
    begun: Vec<bool>,
    archives: Vec<(String, u64)>,
    is_finished: bool,
}

impl Moves {
    pub fn new(dir: &Arc<KeptDir>, planned: Vec<Move>) -> Self {
        Self { dir: dir.clone(), planned, begun: Vec::new(), archives: Vec::new(), is_finished: false }
    }

    pub fn add(&mut self, planned: Move) {
        self.planned.push(planned);
    }

    /// Notes an archive that was placed. It is not in the file: it is complete, and useful to a
    /// later run.
    pub fn record_placed(&mut self, name: &str) -> Result<()> {
        let found = self.dir.stat_entry(name)?;
        self.archives.extend(found.map(|found| (name.to_string(), found.inode)));
        Ok(())
    }

    /// Makes the moves. The last one must complete the ledger. The journal is on disk before the
    /// first.
    pub fn run(&mut self) -> Result<()> {
        self.write()?;
        for planned in &self.planned {
            // It is undone even if it fails halfway.
            self.begun.push(false);
            let replaced_empty = planned.run()?;
            self.begun.pop();
            self.begun.push(replaced_empty);
        }
        Ok(())
    }

    fn write(&self) -> Result<()> {
        let dir = &self.dir;
        let path = self.dir.path_of(JOURNAL_NAME);
        let absolute = |dir: &Arc<KeptDir>| {
            std::path::absolute(dir.path()).or_path("find the absolute path of", dir.path()).map(OsString::from)
        };
        let moves = self.planned.iter().map(|planned| planned.map(absolute)).collect::<Result<_>>()?;
        let document = Document { format: FORMAT.to_string(), moves };
        let bytes = serde_json::to_vec(&document).or_path("write", &path)?;
        let mut file = dir.create_file(JOURNAL_NAME_PARTIAL, 0o644)?;
        file.write_all(&bytes)
            .and_then(|()| file.sync_all())
            .and_then(|()| Ok(dir.rename(JOURNAL_NAME_PARTIAL, dir, JOURNAL_NAME)?))
            .inspect_err(|_| {
                let _ = dir.remove_file(JOURNAL_NAME_PARTIAL);
            })
            .or_path("write", &path)?;
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
        let undone = self
            .planned
            .iter()
            .zip(&self.begun)
            .rev()
            .try_for_each(|(planned, replaced_empty)| planned.undo(*replaced_empty));
        if undone.is_ok() {
            let _ = self.dir.remove_file(JOURNAL_NAME);
        }
        for (name, inode) in &self.archives {
            let found = self.dir.stat_entry(name).ok().flatten();
            if found.is_some_and(|found| found.inode == *inode) {
                let _ = self.dir.remove_file(name);
            }
        }
    }
}

/// Undoes the renames of a killed run, or removes the journal of a complete one. The caller must
/// hold the locks of `dir` and of its target directories; other directories are locked here.
pub fn recover(dir: &KeptDir, locks: &mut DirLocks) -> Result<()> {
    let path = dir.path_of(JOURNAL_NAME);
    match dir.remove_file(JOURNAL_NAME_PARTIAL) {
        Err(rustix::io::Errno::NOENT) => {}
        removed => removed.or_path("remove", &dir.path_of(JOURNAL_NAME_PARTIAL))?,
    }
    if dir.stat_entry(JOURNAL_NAME)?.is_none() {
        return Ok(());
    }
    let file = dir.open_file(JOURNAL_NAME)?;
    check_trusted(&file.metadata().or_path("read", &path)?, &path)?;
    let mut bytes = Vec::new();
    file.take(JOURNAL_BYTES_MAX).read_to_end(&mut bytes).or_path("read", &path)?;
    let document = serde_json::from_slice(&bytes).ok().filter(|document: &Document| document.format == FORMAT);
    let document = document.ok_or_else(|| {
        Error::failed(format!("{} is not the journal of a restore that this slotpress knows", path.escaped())).with_hint(
            "run the same restore by the version of slotpress that began it; or, if no restore runs into this directory, remove the \
             file, and what the restore left",
        )
    })?;
    if document.moves.last().map_or(Ok(false), is_to_be_made)? {
        // If a directory is gone, so is its content.
        let dirs_exist =
            |planned: &&Move<OsString>| [&planned.from.0, &planned.to.0].iter().all(|dir| Path::new(dir).is_dir());
        let open = |dir: &OsString| Ok(Arc::new(KeptDir::open(Path::new(dir))?));
        let moves =
            document.moves.iter().filter(dirs_exist).map(|planned| planned.map(open)).collect::<Result<Vec<Move>>>()?;
        moves.iter().try_for_each(|planned| locks.add(&planned.to.0))?;
        moves.iter().rev().try_for_each(|planned| planned.undo(false))?;
        moves.iter().try_for_each(|planned| remove_stale_dirs(&planned.from.0, PARTIAL_PREFIX, &mut |_| Ok(())))?;
    }
    dir.remove_file(JOURNAL_NAME).or_path("remove", &path)?;
    dir.sync()
}

fn is_to_be_made(planned: &Move<OsString>) -> Result<bool> {
    let from = Path::new(&planned.from.0).join(&planned.from.1);
    match fs::symlink_metadata(&from) {
        Ok(found) => Ok(found.ino() == planned.inode),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
        Err(error) => Err(Error::io("read", &from, &error)),
    }
}

/// Refuses a journal of another user, because it can name any file to be moved.
fn check_trusted(journal: &std::fs::Metadata, path: &Path) -> Result<()> {
    let is_of = |user: rustix::process::Uid| journal.uid() == user.as_raw();
    if (is_of(rustix::process::geteuid()) || is_of(rustix::process::Uid::ROOT)) && journal.nlink() == 1 {
        return Ok(());
    }
    Err(Error::failed(format!("{} is the journal of another user's restore (user {})", path.escaped(), journal.uid()))
        .with_hint(
            "run slotpress as that user, who has to undo it; or remove the file if no restore into this directory is running",
        ))
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStringExt;

    use super::*;

    /// The journal of a run that moved `file`, and was killed before it moved `left`.
    fn journal_of(left: &Path, file: &Path, back: &str) -> Vec<u8> {
        let planned = |path: &Path, from: &str, to: &str| {
            let dir: OsString = path.parent().expect("a directory").into();
            let inode = fs::metadata(path).expect("metadata").ino();
            Move { inode, from: (dir.clone(), from.to_string()), to: (dir, to.to_string()) }
        };
        let name = |path: &Path| path.file_name().expect("a name").to_str().expect("UTF-8").to_string();
        let moves = vec![planned(file, back, &name(file)), planned(left, &name(left), "place")];
        serde_json::to_vec(&Document { format: FORMAT.to_string(), moves }).expect("written")
    }

    /// Otherwise a user who may write to the target directory could have any file moved.
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

    /// An incomplete journal, one of an earlier version, and any other file stay, and so do the
    /// files that they name.
    #[test]
    fn other_files_are_not_journals() {
        let dir = tempfile::tempdir().expect("a directory");
        let victim = dir.path().join("victim");
        let journal = dir.path().join(JOURNAL_NAME);
        fs::write(&victim, "theirs").expect("written");
        fs::create_dir(dir.path().join("left")).expect("made");
        let whole = journal_of(&dir.path().join("left"), &victim, "back");
        let other = String::from_utf8(whole.clone()).expect("UTF-8").replace("journal-3", "journal-2").into_bytes();
        let cut = (0..whole.len()).step_by(7).map(|end| whole[..end].to_vec());
        for bytes in cut.chain([other]) {
            fs::write(&journal, &bytes).expect("written");
            let recovered = recover(&KeptDir::open(dir.path()).expect("opened"), &mut DirLocks::default());
            let error = recovered.expect_err("not a journal");
            assert!(error.to_string().contains("this slotpress knows"), "{error}");
            assert!(victim.exists());
            assert!(fs::read(&journal).expect("read") == bytes, "the file stays");
        }
    }
}
