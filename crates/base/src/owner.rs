//! Owner of files that root creates for another user.

use std::os::fd::AsFd;
use std::path::Path;

use rustix::fs::{Gid, Uid};

use crate::{IoContext, KeptDir, Result};

/// Owner of new files in a directory: files that root creates are given to the directory's owner. A
/// validator that runs as another user could not use root's files in its ledger.
#[derive(Clone, Copy, Debug)]
pub struct Owner(Option<(Uid, Gid)>);

impl Owner {
    /// Returns the owner of a directory. If this process is not root, or is that owner,
    /// [`apply_to`](Self::apply_to) changes nothing.
    pub fn from_dir(dir: &KeptDir) -> Result<Self> {
        let stat = rustix::fs::fstat(dir).or_path("read", dir.path())?;
        let ours = (rustix::process::geteuid(), rustix::process::getegid());
        let owner = (Uid::from_raw(stat.st_uid), Gid::from_raw(stat.st_gid));
        Ok(Self((ours.0.is_root() && owner != ours).then_some(owner)))
    }

    /// Changes the owner of an open file or directory. `path` is for the error.
    pub fn apply_to(&self, file: &impl AsFd, path: &Path) -> Result<()> {
        let Some((uid, gid)) = self.0 else { return Ok(()) };
        rustix::fs::fchown(file, Some(uid), Some(gid)).or_path("change the owner of", path)
    }
}
