//! A name in an open directory, or in one some levels below it: where something of a restore lies, or will.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use slotpress_base::{IoContext, KeptDir, Result};

/// What names of directories begin with into which a former state is moved: they are made when something is moved there.
pub const REPLACED_PREFIX: &str = "slotpress-replaced-";

/// A place for a file or directory. Nothing of it needs to be there but the open directory.
#[derive(Clone, Debug)]
pub struct Spot {
    dir: Arc<KeptDir>,
    /// Directories on the way down, made for this.
    below: Vec<OsString>,
    name: OsString,
}

/// The directory that a name is in.
pub enum Parent {
    /// The open one.
    Kept(Arc<KeptDir>),
    /// One below it.
    Below(KeptDir),
}

impl std::ops::Deref for Parent {
    type Target = KeptDir;

    fn deref(&self) -> &KeptDir {
        match self {
            Self::Kept(dir) => dir,
            Self::Below(dir) => dir,
        }
    }
}

impl Spot {
    /// A name in an open directory.
    pub fn new(dir: &Arc<KeptDir>, name: impl AsRef<OsStr>) -> Self {
        Self::new_below(dir, Vec::new(), name)
    }

    /// A name some levels below one.
    pub fn new_below(dir: &Arc<KeptDir>, below: Vec<OsString>, name: impl AsRef<OsStr>) -> Self {
        Self { dir: dir.clone(), below, name: name.as_ref().to_os_string() }
    }

    /// A path of another run, whose directory is opened now, if it is there.
    pub fn of_path(path: &Path) -> Result<Option<Self>> {
        let made = |name: &OsStr| name.to_string_lossy().starts_with(REPLACED_PREFIX);
        let (Some(mut dir), Some(name)) = (path.parent(), path.file_name()) else { return Ok(None) };
        let mut below = Vec::new();
        if let Some(first) = dir.ancestors().find(|dir| dir.file_name().is_some_and(made)) {
            let Some(above) = first.parent() else { return Ok(None) };
            below = dir.strip_prefix(above).unwrap_or(dir).iter().map(OsStr::to_os_string).collect();
            dir = above;
        }
        // A directory that is gone took with it what was in it.
        if !dir.is_dir() {
            return Ok(None);
        }
        Ok(Some(Self::new_below(&Arc::new(KeptDir::open(dir)?), below, name)))
    }

    /// The open directory.
    pub fn dir(&self) -> &Arc<KeptDir> {
        &self.dir
    }

    /// The name.
    pub fn name(&self) -> &OsStr {
        &self.name
    }

    /// The path: for messages, and for another run.
    pub fn path(&self) -> PathBuf {
        self.top_parent().join(&self.name)
    }

    fn top_parent(&self) -> PathBuf {
        self.below.iter().fold(self.dir.path().to_path_buf(), |path, name| path.join(name))
    }

    /// The path of the first directory that is made for it, or its own.
    pub fn top(&self) -> PathBuf {
        self.dir.path_of(self.below.first().unwrap_or(&self.name))
    }

    /// The directory that the name is in, if it is there.
    pub fn parent(&self) -> Result<Option<Parent>> {
        let mut parent = Parent::Kept(self.dir.clone());
        for name in &self.below {
            match parent.open_dir(name)? {
                Some(dir) => parent = Parent::Below(dir),
                None => return Ok(None),
            }
        }
        Ok(Some(parent))
    }

    /// The same; what is missing on the way is made.
    pub fn make_parent(&self) -> Result<Parent> {
        let mut parent = Parent::Kept(self.dir.clone());
        for name in &self.below {
            let next = match parent.open_dir(name)? {
                Some(dir) => dir,
                None => parent.make_dir(name)?,
            };
            parent.sync()?;
            parent = Parent::Below(next);
        }
        Ok(parent)
    }

    /// Removes the directories that were made on the way, where nothing is in them.
    pub fn remove_parents(&self) {
        for depth in (0..self.below.len()).rev() {
            let (above, name) = (self.below[..depth].to_vec(), &self.below[depth]);
            if let Ok(Some(parent)) = Self::new_below(&self.dir, above, name).parent() {
                let _ = parent.remove_dir(name);
            }
        }
    }

    /// Makes a rename here survive a power failure, where the directory is there.
    pub fn sync(&self) -> Result<()> {
        self.parent()?.map_or(Ok(()), |parent| parent.sync())
    }

    /// Removes what is there, which is an empty directory.
    pub fn remove_empty(&self) {
        if let Ok(Some(parent)) = self.parent() {
            let _ = parent.remove_dir(&self.name);
        }
    }

    /// Removes the file of this inode.
    pub fn remove_file(&self, inode: u64, doing: &str) -> Result<()> {
        let Some(parent) = self.parent()? else { return Ok(()) };
        let is_it = parent.found(&self.name)?.is_some_and(|found| found.inode == inode && found.kind.is_file());
        match is_it {
            true => parent.remove_file(&self.name).or_path(doing, &self.path()),
            false => Ok(()),
        }
    }
}
