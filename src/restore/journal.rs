//! What a restore moves into place at its end, written down before the first rename. A run that finds the journal of one
//! that was killed undoes what it names, or, where the mark of completeness is there, only removes the journal.
//!
//! What is named is told by path and inode: what lies there otherwise is not touched. The run itself undoes through the
//! directories that it has open; a later run opens those that the journal names.

use std::ffi::OsStr;
use std::io::{Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use slotpress_base::{Error, IoContext, KeptDir, Result, ShowPath};
use slotpress_read::{DirLocks, RESTORE_JOURNAL_NAME as JOURNAL_NAME, remove_moved_dir};

use crate::restore::spot::Spot;

/// The first record.
const HEADING: &str = "slotpress-restore-journal-1";

/// Its name until it is whole.
const JOURNAL_NAME_PARTIAL: &str = "slotpress-partial-journal-new";

/// Longer is no journal: it has two paths of at most 4 KiB for each accounts path, of which there are 65,535 at most.
const JOURNAL_BYTES_MAX: u64 = 1024 * 1024 * 1024;

/// One thing that gets its final name; `P` is a place, or its path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Placed<P = Spot> {
    /// A directory with what was restored, in the place of an empty one where `was_there`.
    Dir {
        /// Its final place.
        at: P,
        /// Its inode.
        inode: u64,
        /// Whether an empty directory was there before.
        was_there: bool,
    },
    /// A directory that is made, and stays empty.
    Empty(P),
    /// A file.
    File {
        /// Its final place.
        at: P,
        /// Its inode.
        inode: u64,
    },
    /// Something of a former state, which is moved aside.
    Moved {
        /// Where it goes.
        at: P,
        /// Its inode.
        inode: u64,
        /// Where it was.
        from: P,
    },
}

impl<P> Placed<P> {
    /// The same of other places; `None` where one of them is none.
    fn try_map<Q>(&self, place: &dyn Fn(&P) -> Result<Option<Q>>) -> Result<Option<Placed<Q>>> {
        Ok(match self {
            Self::Dir { at, inode, was_there } => {
                place(at)?.map(|at| Placed::Dir { at, inode: *inode, was_there: *was_there })
            }
            Self::Empty(at) => place(at)?.map(Placed::Empty),
            Self::File { at, inode } => place(at)?.map(|at| Placed::File { at, inode: *inode }),
            Self::Moved { at, inode, from } => match (place(at)?, place(from)?) {
                (Some(at), Some(from)) => Some(Placed::Moved { at, inode: *inode, from }),
                _ => None,
            },
        })
    }

    fn place(&self) -> &P {
        match self {
            Self::Dir { at, .. } | Self::Empty(at) | Self::File { at, .. } | Self::Moved { at, .. } => at,
        }
    }
}

impl Placed {
    /// Removes it, or moves it back, if it is there.
    fn undo(&self, mark: &OsStr) -> Result<()> {
        match self {
            Self::Dir { at, inode, was_there } => {
                let Some(parent) = at.parent()? else { return Ok(()) };
                remove_moved_dir(
                    &parent,
                    at.name(),
                    *inode,
                    *was_there,
                    mark,
                    "remove what an unfinished restore left in",
                )
            }
            // One that is not empty any more is in use.
            Self::Empty(at) => {
                at.remove_empty();
                Ok(())
            }
            Self::File { at, inode } => at.remove_file(*inode, "remove what an unfinished restore left in"),
            Self::Moved { at, inode, from } => {
                if let (Some(parent), Some(back)) = (at.parent()?, from.parent()?)
                    && parent.found(at.name())?.is_some_and(|found| found.inode == *inode)
                {
                    // Onto nothing, or onto an empty directory.
                    parent
                        .rename(at.name(), &back, from.name())
                        .or_path("move back what an unfinished restore moved aside, to", &from.path())?;
                }
                // The directories that were made for it, where nothing else is in them.
                at.remove_parents();
                Ok(())
            }
        }
    }
}

/// What is moved into place. Undone when it is dropped before the end.
#[derive(Debug)]
pub struct Journal {
    dir: Arc<KeptDir>,
    mark: Spot,
    placed: Vec<Placed>,
    is_written: bool,
    is_finished: bool,
}

impl Journal {
    /// One in `dir`, empty. When `mark` is there, everything is.
    pub fn new(dir: &Arc<KeptDir>, mark: Spot) -> Self {
        Self { dir: dir.clone(), mark, placed: Vec::new(), is_written: false, is_finished: false }
    }

    /// Adds what is going to be moved into place, or was, in this order.
    pub fn add(&mut self, placed: Placed) {
        self.placed.push(placed);
    }

    /// Writes it to disk: before the first rename. Archives that have their name already are whole, and useful to a run
    /// that comes after a killed one, so they are not in the file.
    pub fn write(&mut self, lasting: &[PathBuf]) -> Result<()> {
        let mut placed = Vec::new();
        for one in &self.placed {
            if !lasting.contains(&one.place().path()) {
                placed.extend(one.try_map(&|at| absolute(&at.path()).map(Some))?);
            }
        }
        let bytes = encode(&absolute(&self.mark.path())?, &placed);
        let (dir, path) = (&self.dir, self.dir.path_of(JOURNAL_NAME));
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

    /// Everything is in place, with its mark: the journal goes.
    pub fn finish(mut self) {
        self.is_finished = true;
        // One that stays is removed by the next restore.
        let _ = self.dir.remove_file(JOURNAL_NAME);
    }
}

impl Drop for Journal {
    fn drop(&mut self) {
        if self.is_finished {
            return;
        }
        // Best effort, and the mark goes first. A journal whose work could not be undone stays for the next run.
        let undone = undo(self.mark.name(), &self.placed);
        if undone.is_ok() && self.is_written {
            let _ = self.dir.remove_file(JOURNAL_NAME);
        }
    }
}

fn undo(mark: &OsStr, placed: &[Placed]) -> Result<()> {
    placed.iter().rev().try_for_each(|placed| placed.undo(mark))
}

/// Undoes what a killed run left unfinished, or finishes what lacked only the end. The caller holds the locks of `dir`
/// and of the directories that it writes to itself; others are locked here.
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
    let (mark, placed) = decode(&bytes).ok_or_else(|| {
        Error::failed(format!("{} is not the journal of a restore that this slotpress knows", path.shown()))
            .with_hint("if no restore runs into this directory, remove the file, and what the restore left")
    })?;
    let is_marked = mark.try_exists().or_path("read", &mark)?;
    if !is_marked {
        let mut found = Vec::new();
        for one in &placed {
            found.extend(one.try_map(&|path: &PathBuf| Spot::of_path(path))?);
        }
        found.iter().try_for_each(|placed| locks.add(placed.place().dir()))?;
        undo(mark.file_name().unwrap_or_default(), &found)?;
        found.iter().try_for_each(|placed| placed.place().dir().sync())?;
    }
    dir.remove_file(JOURNAL_NAME).or_path("remove", &path)?;
    dir.sync()
}

/// A journal tells what to remove, anywhere: one of another user is not followed.
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

fn absolute(path: &Path) -> Result<PathBuf> {
    std::path::absolute(path).or_path("find the absolute path of", path)
}

/// Records end with a zero byte, which no path can hold: the heading, the mark, then `kind inode path`.
fn encode(mark: &Path, placed: &[Placed<PathBuf>]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut record = |kind: &str, inode: u64, path: &Path| {
        bytes.extend_from_slice(format!("{kind} {inode} ").as_bytes());
        bytes.extend_from_slice(path.as_os_str().as_bytes());
        bytes.push(0);
    };
    record(HEADING, 0, Path::new("/"));
    record("mark", 0, mark);
    for placed in placed {
        match placed {
            Placed::Dir { at, inode, was_there: false } => record("dir", *inode, at),
            Placed::Dir { at, inode, was_there: true } => record("content", *inode, at),
            Placed::Empty(at) => record("empty", 0, at),
            Placed::File { at, inode } => record("file", *inode, at),
            Placed::Moved { at, inode, from } => {
                record("moved", *inode, at);
                record("from", 0, from);
            }
        }
    }
    bytes
}

fn decode(bytes: &[u8]) -> Option<(PathBuf, Vec<Placed<PathBuf>>)> {
    let mut records = bytes.strip_suffix(&[0])?.split(|byte| *byte == 0).map(|record| {
        let mut fields = record.splitn(3, |byte| *byte == b' ');
        let kind = std::str::from_utf8(fields.next()?).ok()?;
        let inode: u64 = std::str::from_utf8(fields.next()?).ok()?.parse().ok()?;
        let path = PathBuf::from(OsStr::from_bytes(fields.next()?));
        path.is_absolute().then_some((kind, inode, path))
    });
    records.next()?.filter(|(kind, ..)| *kind == HEADING)?;
    let (_, _, mark) = records.next()?.filter(|(kind, ..)| *kind == "mark")?;
    let placed = std::iter::from_fn(|| {
        let (kind, inode, at) = match records.next()? {
            Some(record) => record,
            None => return Some(None),
        };
        Some(match kind {
            "dir" => Some(Placed::Dir { at, inode, was_there: false }),
            "content" => Some(Placed::Dir { at, inode, was_there: true }),
            "empty" => Some(Placed::Empty(at)),
            "file" => Some(Placed::File { at, inode }),
            "moved" => match records.next().flatten() {
                Some(("from", _, from)) => Some(Placed::Moved { at, inode, from }),
                _ => None,
            },
            _ => None,
        })
    });
    Some((mark, placed.collect::<Option<Vec<_>>>()?))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use proptest::prelude::*;

    use super::*;

    /// Who may write into the target directory could have anything removed otherwise.
    #[test]
    fn the_journal_of_another_user_is_not_followed() {
        let dir = tempfile::tempdir().expect("a directory");
        let victim = dir.path().join("victim");
        fs::write(&victim, "theirs").expect("written");
        let target = dir.path().join("target");
        fs::create_dir(&target).expect("made");
        let inode = fs::metadata(&victim).expect("metadata").ino();
        let bytes = encode(&target.join("mark"), &[Placed::File { at: victim.clone(), inode }]);
        let journal = target.join(JOURNAL_NAME);
        fs::write(&journal, bytes).expect("written");
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

    fn placed() -> impl Strategy<Value = Placed<PathBuf>> {
        let path = "[a-z \n/é]{0,30}".prop_map(|path| PathBuf::from(format!("/disk/{path}x")));
        (path, any::<u64>(), 0..5).prop_map(|(at, inode, kind)| match kind {
            0 => Placed::Empty(at),
            4 => Placed::Moved { from: at.join("from"), at, inode },
            1 => Placed::File { at, inode },
            kind => Placed::Dir { at, inode, was_there: kind == 2 },
        })
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(placed in proptest::collection::vec(placed(), 0..8)) {
            let bytes = encode(Path::new("/a mark"), &placed);
            prop_assert_eq!(decode(&bytes), Some((PathBuf::from("/a mark"), placed)));
            for end in 0..bytes.len() {
                // Cut inside a record, it is refused.
                prop_assert!(bytes[..end].last() == Some(&0) || decode(&bytes[..end]).is_none());
            }
        }

        #[test]
        fn anything_is_read_without_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = decode(&bytes);
        }
    }
}
