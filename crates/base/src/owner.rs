//! Who owns what root makes for another user.

use std::os::fd::AsFd;

use rustix::fs::{Gid, Uid};

use crate::{IoContext, KeptDir, Result};

/// Who owns what is made in a directory: the directory's owner. What root made for a validator that runs as another user
/// would otherwise be files that the validator cannot read, change or remove.
#[derive(Clone, Copy, Debug)]
pub struct Owner(Option<(Uid, Gid)>);

impl Owner {
    /// The owner of a directory; no change where that is us, or where we cannot give files away.
    ///
    /// # Errors
    /// Of the system.
    pub fn of(dir: &KeptDir) -> Result<Self> {
        let stat = rustix::fs::fstat(dir).or_path("read", dir.path())?;
        let ours = (rustix::process::geteuid(), rustix::process::getegid());
        let owner = (Uid::from_raw(stat.st_uid), Gid::from_raw(stat.st_gid));
        Ok(Self((ours.0.is_root() && owner != ours).then_some(owner)))
    }

    /// Gives a file or directory to the owner.
    ///
    /// # Errors
    /// Of the system.
    pub fn take(&self, file: &impl AsFd) -> rustix::io::Result<()> {
        match self.0 {
            Some((uid, gid)) => rustix::fs::fchown(file, Some(uid), Some(gid)),
            None => Ok(()),
        }
    }

    /// Gives what a name stands for to the owner.
    ///
    /// # Errors
    /// Of the system.
    pub fn take_name(&self, dir: &KeptDir, name: &str) -> Result<()> {
        match self.0 {
            Some((uid, gid)) => dir.give(name, uid, gid).or_path("change the owner of", &dir.path_of(name)),
            None => Ok(()),
        }
    }
}
