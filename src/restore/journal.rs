//! What a restore moves into place at its end, written down before the first rename. Whoever finds the journal of a run
//! that was killed undoes what it names, or, where the mark of completeness is there, only removes the journal.
//!
//! What is named is told by path and inode: what lies there otherwise is not touched.

use {
    slotpress_base::{
        error::{Error, IoContext, Result},
        files::open_file,
    },
    slotpress_read::store::{
        RESTORE_JOURNAL_NAME as JOURNAL_NAME, dir_lock::DirLocks, publish::sync_dir, work_dir::remove_moved_dir,
    },
    std::{
        ffi::OsStr,
        fs::{self, File},
        io::{Read, Write},
        os::unix::{ffi::OsStrExt, fs::MetadataExt},
        path::{Path, PathBuf},
    },
};

/// The first record.
const HEADING: &str = "slotpress-restore-journal-1";

/// Its name until it is whole.
const JOURNAL_NAME_PARTIAL: &str = "slotpress-partial-journal-new";

/// Longer is no journal: it has two paths of at most 4 KiB for each accounts path, of which there are 65,535 at most.
const JOURNAL_BYTES_MAX: u64 = 1024 * 1024 * 1024;

/// One thing that gets its final name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Placed {
    /// A directory with what was restored, in the place of an empty one where `was_there`.
    Dir {
        /// Its final path.
        path: PathBuf,
        /// Its inode.
        inode: u64,
        /// Whether an empty directory was there before.
        was_there: bool,
    },
    /// A directory that is made, and stays empty.
    Empty(PathBuf),
    /// A file.
    File {
        /// Its final path.
        path: PathBuf,
        /// Its inode.
        inode: u64,
    },
    /// Something of a former state, which is moved aside.
    Moved {
        /// Where it goes.
        path: PathBuf,
        /// Its inode.
        inode: u64,
        /// Where it was.
        from: PathBuf,
    },
}

impl Placed {
    fn path(&self) -> &Path {
        match self {
            Self::Dir { path, .. } | Self::Empty(path) | Self::File { path, .. } | Self::Moved { path, .. } => path,
        }
    }

    /// Removes it, or moves it back, if it is there.
    fn undo(&self, mark: &OsStr) -> Result<()> {
        match self {
            Self::Dir { path, inode, was_there } => {
                remove_moved_dir(path, *inode, *was_there, &mark.to_string_lossy())?;
            }
            // One that is not empty any more is somebody's.
            Self::Empty(path) => drop(fs::remove_dir(path)),
            Self::File { path, inode } => {
                if fs::symlink_metadata(path).is_ok_and(|found| found.is_file() && found.ino() == *inode) {
                    fs::remove_file(path).or_path("remove what an unfinished restore left in", path)?;
                }
            }
            Self::Moved { path, inode, from } => {
                if fs::symlink_metadata(path).is_ok_and(|found| found.ino() == *inode) {
                    // Onto nothing, or onto an empty directory.
                    fs::rename(path, from).or_path("move back what an unfinished restore moved aside, to", from)?;
                }
                // The directories that were made for it, where nothing else is in them.
                for dir in path.ancestors().skip(1).take(2) {
                    drop(fs::remove_dir(dir));
                }
            }
        }
        Ok(())
    }
}

/// What is moved into place. Undone when it is dropped before the end.
#[derive(Debug)]
pub struct Journal {
    dir: PathBuf,
    mark: PathBuf,
    placed: Vec<Placed>,
    is_written: bool,
    is_finished: bool,
}

impl Journal {
    /// One in `dir`, empty. When `mark` is there, everything is.
    pub fn new(dir: &Path, mark: PathBuf) -> Self {
        Self { dir: dir.to_path_buf(), mark, placed: Vec::new(), is_written: false, is_finished: false }
    }

    /// Adds what is going to be moved into place, or was, in this order.
    pub fn add(&mut self, placed: Placed) {
        self.placed.push(placed);
    }

    /// Writes it to disk: before the first rename. Archives that have their name already are whole, and useful to a run
    /// that comes after a killed one, so they are not in the file.
    pub fn write(&mut self, lasting: &[PathBuf]) -> Result<()> {
        let path = self.dir.join(JOURNAL_NAME);
        let is_lasting = |placed: &&Placed| !lasting.iter().any(|path| path == placed.path());
        let bytes = encode(&absolute(&self.mark)?, self.placed.iter().filter(is_lasting))?;
        let partial = self.dir.join(JOURNAL_NAME_PARTIAL);
        let write = || {
            let mut file = File::create_new(&partial)?;
            file.write_all(&bytes)?;
            file.sync_all()?;
            fs::rename(&partial, &path)
        };
        write().inspect_err(|_| drop(fs::remove_file(&partial))).or_path("write", &path)?;
        self.is_written = true;
        sync_dir(&self.dir)
    }

    /// Everything is in place, with its mark: the journal goes.
    pub fn finish(mut self) {
        self.is_finished = true;
        // One that stays is removed by the next restore.
        let _ = fs::remove_file(self.dir.join(JOURNAL_NAME));
    }
}

impl Drop for Journal {
    fn drop(&mut self) {
        if self.is_finished {
            return;
        }
        // Best effort, and the mark goes first. A journal whose work could not be undone stays for the next run.
        let undone = undo(&self.mark, &self.placed);
        if undone.is_ok() && self.is_written {
            let _ = fs::remove_file(self.dir.join(JOURNAL_NAME));
        }
    }
}

fn undo(mark: &Path, placed: &[Placed]) -> Result<()> {
    let name = mark.file_name().unwrap_or_default();
    placed.iter().rev().try_for_each(|placed| placed.undo(name))
}

/// Undoes what a killed run left unfinished, or finishes what lacked only the end. The caller holds the locks of `dir`
/// and of the directories that it writes to itself; others are locked here.
pub fn recover(dir: &Path, locks: &mut DirLocks) -> Result<()> {
    let path = dir.join(JOURNAL_NAME);
    let partial = dir.join(JOURNAL_NAME_PARTIAL);
    match fs::remove_file(&partial) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            return Err(Error::io("remove", &partial, &error));
        }
        _ => {}
    }
    let mut bytes = Vec::new();
    match fs::symlink_metadata(&path) {
        Ok(_) => open_file(&path)?.take(JOURNAL_BYTES_MAX).read_to_end(&mut bytes).or_path("read", &path)?,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(Error::io("open", &path, &error)),
    };
    let (mark, placed) = decode(&bytes).ok_or_else(|| {
        Error::failed(format!("{} is not the journal of a restore that this slotpress knows", path.display()))
            .hint("if no restore runs into this directory, remove the file, and what the restore left")
    })?;
    let is_marked = mark.try_exists().or_path("read", &mark)?;
    if !is_marked {
        for parent in placed.iter().filter_map(|placed| placed.path().parent()).filter(|parent| parent.is_dir()) {
            locks.add(parent)?;
        }
        undo(&mark, &placed)?;
        for parent in placed.iter().filter_map(|placed| placed.path().parent()).filter(|parent| parent.is_dir()) {
            sync_dir(parent)?;
        }
    }
    fs::remove_file(&path).or_path("remove", &path)?;
    sync_dir(dir)
}

fn absolute(path: &Path) -> Result<PathBuf> {
    std::path::absolute(path).or_path("find the absolute path of", path)
}

/// Records end with a zero byte, which no path can hold: the heading, the mark, then `kind inode path`.
fn encode<'a>(mark: &Path, placed: impl Iterator<Item = &'a Placed>) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let mut record = |kind: &str, inode: u64, path: &Path| -> Result<()> {
        bytes.extend_from_slice(format!("{kind} {inode} ").as_bytes());
        bytes.extend_from_slice(absolute(path)?.as_os_str().as_bytes());
        bytes.push(0);
        Ok(())
    };
    record(HEADING, 0, Path::new("/"))?;
    record("mark", 0, mark)?;
    for placed in placed {
        match placed {
            Placed::Dir { path, inode, was_there: false } => record("dir", *inode, path)?,
            Placed::Dir { path, inode, was_there: true } => record("content", *inode, path)?,
            Placed::Empty(path) => record("empty", 0, path)?,
            Placed::File { path, inode } => record("file", *inode, path)?,
            Placed::Moved { path, inode, from } => {
                record("moved", *inode, path)?;
                record("from", 0, from)?;
            }
        }
    }
    Ok(bytes)
}

fn decode(bytes: &[u8]) -> Option<(PathBuf, Vec<Placed>)> {
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
        let (kind, inode, path) = match records.next()? {
            Some(record) => record,
            None => return Some(None),
        };
        Some(match kind {
            "dir" => Some(Placed::Dir { path, inode, was_there: false }),
            "content" => Some(Placed::Dir { path, inode, was_there: true }),
            "empty" => Some(Placed::Empty(path)),
            "file" => Some(Placed::File { path, inode }),
            "moved" => match records.next().flatten() {
                Some(("from", _, from)) => Some(Placed::Moved { path, inode, from }),
                _ => None,
            },
            _ => None,
        })
    });
    Some((mark, placed.collect::<Option<Vec<_>>>()?))
}

#[cfg(test)]
mod tests {
    use {super::*, proptest::prelude::*};

    fn placed() -> impl Strategy<Value = Placed> {
        let path = "[a-z \n/é]{0,30}".prop_map(|path| PathBuf::from(format!("/disk/{path}x")));
        (path, any::<u64>(), 0..5).prop_map(|(path, inode, kind)| match kind {
            0 => Placed::Empty(path),
            4 => Placed::Moved { from: path.join("from"), path, inode },
            1 => Placed::File { path, inode },
            kind => Placed::Dir { path, inode, was_there: kind == 2 },
        })
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(placed in proptest::collection::vec(placed(), 0..8)) {
            let bytes = encode(Path::new("/a mark"), placed.iter()).expect("encoded");
            let placed = placed.iter().map(|one| match one.clone() {
                // The absolute path has no doubled slashes.
                Placed::Empty(path) => Placed::Empty(absolute(&path).expect("a path")),
                Placed::File { path, inode } => Placed::File { path: absolute(&path).expect("a path"), inode },
                Placed::Moved { path, inode, from } => {
                    let absolute = |path: PathBuf| absolute(&path).expect("a path");
                    Placed::Moved { path: absolute(path), inode, from: absolute(from) }
                }
                Placed::Dir { path, inode, was_there } =>
                    Placed::Dir { path: absolute(&path).expect("a path"), inode, was_there },
            }).collect::<Vec<_>>();
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
