//! Journal of the renames at the end of a restore. It is written before the first rename. A run
//! that finds the journal of a killed one undoes the renames; if the mark of completeness exists,
//! it removes only the journal.
//!
//! Objects are identified by path and inode, so other files at these paths are not touched. The run
//! itself undoes renames through its open directories. A later run opens the directories that the
//! journal names.

use std::ffi::{OsStr, OsString};
use std::io::{Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use slotpress_base::kept_dir::changed;
use slotpress_base::{Error, IoContext, KeptDir, Result, ShowPath};
use slotpress_read::{DirLocks, RESTORE_JOURNAL_NAME as JOURNAL_NAME, remove_moved_dir};

/// Prefix of the directories to which a former state is moved. They are created when needed.
pub const REPLACED_PREFIX: &str = "slotpress-replaced-";

/// Value of the file's first field. The format before this one was not JSON.
const FORMAT: &str = "slotpress-restore-journal-2";

/// Name of the journal while it is being written.
const JOURNAL_NAME_PARTIAL: &str = "slotpress-partial-journal-new";

/// Limit on the size of a journal, far above the size of any real one. A path has at most 4 KiB,
/// and up to four characters per byte.
const JOURNAL_BYTES_MAX: u64 = 4 * 1024 * 1024 * 1024;

const UNDOING: &str = "remove what an unfinished restore left in";

/// Place of a file or directory: a name in an open directory, or some levels below it. Only the
/// open directory must exist.
#[derive(Clone, Debug)]
pub struct Location {
    pub dir: Arc<KeptDir>,
    below: Vec<OsString>,
    pub name: OsString,
}

impl Location {
    pub fn new(dir: &Arc<KeptDir>, name: impl AsRef<OsStr>) -> Self {
        Self::new_below(dir, Vec::new(), name)
    }

    pub fn new_below(dir: &Arc<KeptDir>, below: Vec<OsString>, name: impl AsRef<OsStr>) -> Self {
        Self { dir: dir.clone(), below, name: name.as_ref().to_os_string() }
    }

    /// Opens the directory of a path from another run's journal; `None` if it does not exist.
    fn of_path(path: &Path) -> Result<Option<Self>> {
        let made = |name: &OsStr| name.to_string_lossy().starts_with(REPLACED_PREFIX);
        let (Some(mut dir), Some(name)) = (path.parent(), path.file_name()) else { return Ok(None) };
        let mut below = Vec::new();
        if let Some(first) = dir.ancestors().find(|dir| dir.file_name().is_some_and(made)) {
            let Some(above) = first.parent() else { return Ok(None) };
            below = dir.strip_prefix(above).unwrap_or(dir).iter().map(OsStr::to_os_string).collect();
            dir = above;
        }
        // If the directory is gone, so is its content.
        if !path.is_absolute() || !dir.is_dir() {
            return Ok(None);
        }
        Ok(Some(Self::new_below(&Arc::new(KeptDir::open(dir)?), below, name)))
    }

    pub fn path(&self) -> PathBuf {
        let parent = self.below.iter().fold(self.dir.path().to_path_buf(), |path, name| path.join(name));
        parent.join(&self.name)
    }

    /// Path of the first level below the open directory.
    pub fn top(&self) -> PathBuf {
        self.dir.path_of(self.below.first().unwrap_or(&self.name))
    }

    /// Opens the directory that is `levels` below the open one. If a directory on the way is
    /// missing, creates it if `makes` is set, and otherwise returns `None`.
    fn down(&self, levels: usize, makes: bool) -> Result<Option<Arc<KeptDir>>> {
        let mut dir = self.dir.clone();
        for name in self.below.iter().take(levels) {
            let next = match dir.open_dir(name)? {
                Some(next) => next,
                None if makes => dir.make_dir(name)?,
                None => return Ok(None),
            };
            if makes {
                dir.sync()?;
            }
            dir = Arc::new(next);
        }
        Ok(Some(dir))
    }

    /// Opens the directory that holds the name; `None` if it is missing.
    pub fn parent(&self) -> Result<Option<Arc<KeptDir>>> {
        self.down(self.below.len(), false)
    }

    /// Opens the directory that holds the name, and creates missing ones on the way.
    pub fn make_parent(&self) -> Result<Arc<KeptDir>> {
        self.down(self.below.len(), true)?.ok_or_else(|| changed(&self.path()))
    }
}

/// Kind of a placed object. It determines how the placing is undone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// A directory with restored files.
    Dir,
    /// A directory with restored files that replaces an empty one.
    DirInEmpty,
    /// A new directory that stays empty.
    Empty,
    File,
    /// A part of a former state that is moved aside.
    Moved,
}

/// A journal entry: an object that gets its final name. `P` is a [`Location`], or a path in the
/// file.
#[derive(Debug, Serialize, Deserialize)]
struct Placed<P = Location> {
    kind: Kind,
    inode: u64,
    at: P,
    /// Former place of an object that is moved aside.
    from: Option<P>,
}

impl<P> Placed<P> {
    /// Maps both places; `None` if `place` returns `None` for one of them.
    fn try_map<Q>(&self, place: &dyn Fn(&P) -> Result<Option<Q>>) -> Result<Option<Placed<Q>>> {
        let from = self.from.as_ref().map(place).transpose()?;
        if from.as_ref().is_some_and(Option::is_none) {
            return Ok(None);
        }
        let (kind, inode) = (self.kind, self.inode);
        Ok(place(&self.at)?.map(|at| Placed { kind, inode, at, from: from.flatten() }))
    }
}

impl Placed {
    /// Removes the object, or moves it back, if it exists.
    fn undo(&self, mark: &OsStr) -> Result<()> {
        let Self { kind, inode, at, from } = self;
        if let Some(parent) = at.parent()? {
            let found = parent.found(&at.name)?.filter(|found| found.inode == *inode);
            match kind {
                Kind::Dir | Kind::DirInEmpty => {
                    let stays = *kind == Kind::DirInEmpty;
                    remove_moved_dir(&parent, &at.name, *inode, stays, mark, UNDOING)?;
                }
                // A directory that is no longer empty is in use, and stays.
                Kind::Empty => {
                    let _ = parent.remove_dir(&at.name);
                }
                Kind::File if found.is_some_and(|found| found.kind.is_file()) => {
                    parent.remove_file(&at.name).or_path(UNDOING, &at.path())?;
                }
                Kind::Moved if found.is_some() => {
                    if let Some(from) = from
                        && let Some(back) = from.parent()?
                    {
                        let doing = "move back what an unfinished restore moved aside, to";
                        // The former place is free, or an empty directory.
                        parent.rename(&at.name, &back, &from.name).or_path(doing, &from.path())?;
                    }
                }
                Kind::File | Kind::Moved => {}
            }
        }
        // Removes directories that were created for the object, if they are empty.
        for level in (0..at.below.len()).rev() {
            if let Ok(Some(dir)) = at.down(level, false) {
                let _ = dir.remove_dir(&at.below[level]);
            }
        }
        Ok(())
    }
}

/// Content of the file. Paths are bytes, since not all are valid UTF-8.
#[derive(Debug, Serialize, Deserialize)]
struct Document {
    format: String,
    mark: OsString,
    placed: Vec<Placed<OsString>>,
}

/// Journal of a run. Unless it is finished, dropping it undoes its entries.
#[derive(Debug)]
pub struct RestoreJournal {
    dir: Arc<KeptDir>,
    mark: Location,
    placed: Vec<Placed>,
    is_written: bool,
    is_finished: bool,
}

impl RestoreJournal {
    /// Creates an empty journal for `dir`. The restore is complete as soon as `mark` exists.
    pub fn new(dir: &Arc<KeptDir>, mark: Location) -> Self {
        Self { dir: dir.clone(), mark, placed: Vec::new(), is_written: false, is_finished: false }
    }

    /// Adds an object that is or will be moved into place. Objects must be added in the order of
    /// the moves.
    pub fn add(&mut self, kind: Kind, inode: u64, at: Location) {
        self.placed.push(Placed { kind, inode, at, from: None });
    }

    pub fn add_moved(&mut self, inode: u64, at: Location, from: Location) {
        self.placed.push(Placed { kind: Kind::Moved, inode, at, from: Some(from) });
    }

    /// Writes the journal to disk, before the first rename. Leaves out `lasting` archives: they
    /// have their final names already, are complete, and are useful to a later run.
    pub fn write(&mut self, lasting: &[PathBuf]) -> Result<()> {
        let (dir, path) = (&self.dir, self.dir.path_of(JOURNAL_NAME));
        let mut placed = Vec::new();
        for one in self.placed.iter().filter(|one| !lasting.contains(&one.at.path())) {
            placed.extend(one.try_map(&|at| absolute(at).map(Some))?);
        }
        let document = Document { format: FORMAT.to_string(), mark: absolute(&self.mark)?, placed };
        let bytes = serde_json::to_vec(&document).map_err(std::io::Error::from).or_path("write", &path)?;
        let mut file = dir.create_file(JOURNAL_NAME_PARTIAL, 0o644)?;
        file.write_all(&bytes)
            .and_then(|()| file.sync_all())
            .and_then(|()| Ok(dir.rename(JOURNAL_NAME_PARTIAL, dir, JOURNAL_NAME)?))
            .inspect_err(|_| {
                let _ = dir.remove_file(JOURNAL_NAME_PARTIAL);
            })
            .or_path("write", &path)?;
        self.is_written = true;
        dir.sync()
    }

    /// Removes the journal: everything is in place, with its mark.
    pub fn finish(mut self) {
        self.is_finished = true;
        // If this fails, the next restore removes the journal.
        let _ = self.dir.remove_file(JOURNAL_NAME);
    }
}

impl Drop for RestoreJournal {
    fn drop(&mut self) {
        if self.is_finished {
            return;
        }
        // Undoing removes the mark first. If undoing fails, the journal stays for the next run.
        let undone = undo(&self.mark.name, &self.placed);
        if undone.is_ok() && self.is_written {
            let _ = self.dir.remove_file(JOURNAL_NAME);
        }
    }
}

fn undo(mark: &OsStr, placed: &[Placed]) -> Result<()> {
    placed.iter().rev().try_for_each(|placed| placed.undo(mark))
}

/// Undoes the renames of a killed run, or removes the journal of a complete one. The caller must
/// hold the locks of `dir` and of its target directories; other directories are locked here.
pub fn recover(dir: &KeptDir, locks: &mut DirLocks) -> Result<()> {
    let path = dir.path_of(JOURNAL_NAME);
    match dir.remove_file(JOURNAL_NAME_PARTIAL) {
        Ok(()) | Err(rustix::io::Errno::NOENT) => {}
        Err(error) => return Err(Error::io("remove", &dir.path_of(JOURNAL_NAME_PARTIAL), &error.into())),
    }
    if dir.found(JOURNAL_NAME)?.is_none() {
        return Ok(());
    }
    let file = dir.open_file(JOURNAL_NAME)?;
    check_trusted(&file.metadata().or_path("read", &path)?, &path)?;
    let mut bytes = Vec::new();
    file.take(JOURNAL_BYTES_MAX).read_to_end(&mut bytes).or_path("read", &path)?;
    let document = serde_json::from_slice(&bytes).ok().filter(|document: &Document| document.format == FORMAT);
    let document = document.ok_or_else(|| {
        Error::failed(format!("{} is not the journal of a restore that this slotpress knows", path.shown())).with_hint(
            "run the same restore by the version of slotpress that began it; or, if no restore runs into this directory, remove the \
             file, and what the restore left",
        )
    })?;
    let mark = Path::new(&document.mark);
    if !mark.try_exists().or_path("read", mark)? {
        let mut placed = Vec::new();
        for one in &document.placed {
            placed.extend(one.try_map(&|path: &OsString| Location::of_path(Path::new(path)))?);
        }
        placed.iter().try_for_each(|one| locks.add(&one.at.dir))?;
        undo(mark.file_name().unwrap_or_default(), &placed)?;
        placed.iter().try_for_each(|one| one.at.dir.sync())?;
    }
    dir.remove_file(JOURNAL_NAME).or_path("remove", &path)?;
    dir.sync()
}

/// Refuses a journal of another user, because it can name any file to be removed.
fn check_trusted(journal: &std::fs::Metadata, path: &Path) -> Result<()> {
    let is_of = |user: rustix::process::Uid| journal.uid() == user.as_raw();
    if (is_of(rustix::process::geteuid()) || is_of(rustix::process::Uid::ROOT)) && journal.nlink() == 1 {
        return Ok(());
    }
    Err(Error::failed(format!("{} is the journal of another user's restore (user {})", path.shown(), journal.uid()))
        .with_hint(
            "run slotpress as that user, who has to undo it; or remove the file if no restore into this directory is running",
        ))
}

fn absolute(at: &Location) -> Result<OsString> {
    let path = at.path();
    std::path::absolute(&path).or_path("find the absolute path of", &path).map(PathBuf::into_os_string)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::ffi::OsStringExt;

    use super::*;

    fn journal_of(mark: &Path, file: &Path) -> Vec<u8> {
        let inode = fs::metadata(file).expect("metadata").ino();
        let placed = vec![Placed { kind: Kind::File, inode, at: file.into(), from: None }];
        let document = Document { format: FORMAT.to_string(), mark: mark.into(), placed };
        serde_json::to_vec(&document).expect("written")
    }

    /// Otherwise a user who may write to the target directory could have any file removed.
    #[test]
    fn the_journal_of_another_user_is_not_followed() {
        let dir = tempfile::tempdir().expect("a directory");
        // Not every path is valid UTF-8.
        let victim = dir.path().join(OsString::from_vec(b"victim \xff\n".to_vec()));
        fs::write(&victim, "theirs").expect("written");
        let target = dir.path().join("target");
        fs::create_dir(&target).expect("made");
        let journal = target.join(JOURNAL_NAME);
        fs::write(&journal, journal_of(&target.join("mark"), &victim)).expect("written");
        let recover = || recover(&KeptDir::open(&target).expect("opened"), &mut DirLocks::default());
        fs::hard_link(&journal, dir.path().join("elsewhere")).expect("linked");
        assert!(recover().is_err() && victim.exists());
        fs::remove_file(dir.path().join("elsewhere")).expect("removed");
        if rustix::process::geteuid().is_root() {
            std::os::unix::fs::chown(&journal, Some(65_534), None).expect("given away");
            let error = recover().expect_err("another user's");
            assert!(error.to_string().contains("another user") && victim.exists(), "{error}");
            std::os::unix::fs::chown(&journal, Some(0), None).expect("taken back");
        }
        recover().expect("undone");
        assert!(!victim.exists() && !journal.exists());
    }

    /// An incomplete journal, one of an earlier version, and any other file stay, and so do the
    /// files that they name.
    #[test]
    fn what_is_not_a_journal_is_refused() {
        let dir = tempfile::tempdir().expect("a directory");
        let (victim, journal) = (dir.path().join("victim"), dir.path().join(JOURNAL_NAME));
        fs::write(&victim, "theirs").expect("written");
        let whole = journal_of(&dir.path().join("mark"), &victim);
        let inode = fs::metadata(&victim).expect("metadata").ino();
        let shown = dir.path().to_str().expect("UTF-8");
        let earlier =
            format!("slotpress-restore-journal-1 0 /\0mark 0 {shown}/mark\0file {inode} {shown}/victim\0").into_bytes();
        let other = String::from_utf8(whole.clone()).expect("UTF-8").replace("journal-2", "journal-3").into_bytes();
        let cut = (0..whole.len()).step_by(7).map(|end| whole[..end].to_vec());
        for bytes in cut.chain([earlier, other]) {
            fs::write(&journal, &bytes).expect("written");
            let recovered = recover(&KeptDir::open(dir.path()).expect("opened"), &mut DirLocks::default());
            let error = recovered.expect_err("no journal");
            assert!(error.to_string().contains("this slotpress knows") && victim.exists(), "{error}");
            assert!(fs::read(&journal).expect("it stays") == bytes);
        }
    }
}
