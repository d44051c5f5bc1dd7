//! Directories that a restore creates, and locks on those that it writes. If the restore does not
//! finish, the created directories are removed, unless another restore has begun to use them.

use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::sync::Arc;

use slotpress_base::{KeptDir, Owner, Result};
use slotpress_format::LEDGER_LOCK_NAME;
use slotpress_read::DirLocks;

/// Directories that were created for a restore. Dropping this value removes them, unless
/// [`keep`](Self::keep) was called.
#[derive(Debug, Default)]
pub struct CreatedDirs {
    created: Vec<(Arc<KeptDir>, OsString)>,
    /// Locks on the written directories. Dropped after the created directories are removed.
    pub locks: DirLocks,
}

impl CreatedDirs {
    /// Opens a directory that the user names. Creates it if it is missing, but nothing above it. If root
    /// creates it, it belongs to `owner`, or to the owner of the directory above.
    pub fn open_or_create(&mut self, path: &Path, owner: Option<&Owner>) -> Result<Arc<KeptDir>> {
        let count = self.created.len();
        let mut record = |parent: &Arc<KeptDir>, name: &OsStr| self.created.push((parent.clone(), name.into()));
        let dir = KeptDir::open_or_create(path, &mut record)?;
        if let Some(owner) = owner
            && self.created.len() > count
        {
            owner.apply_to(&*dir, path)?;
        }
        Ok(dir)
    }

    pub fn open_or_create_in(&mut self, parent: &Arc<KeptDir>, name: &str, owner: &Owner) -> Result<Arc<KeptDir>> {
        if let Some(dir) = parent.open_dir(name)? {
            return Ok(Arc::new(dir));
        }
        let dir = parent.create_dir(name)?;
        self.created.push((parent.clone(), name.into()));
        owner.apply_to(&dir, dir.path())?;
        Ok(Arc::new(dir))
    }

    pub fn keep(&mut self) {
        self.created.clear();
    }

    /// Removes a created directory, unless it contains more than a ledger's lock file, or a different restore
    /// has locked it.
    fn remove(&self, parent: &KeptDir, name: &OsStr) -> Result<()> {
        if let Some(dir) = parent.open_dir(name)?.map(Arc::new) {
            let _lock = self.locks.lock(&dir)?;
            if dir.names()? == [LEDGER_LOCK_NAME] {
                let _ = dir.remove_file(LEDGER_LOCK_NAME);
            }
            let _ = parent.remove_dir(name);
        }
        Ok(())
    }
}

impl Drop for CreatedDirs {
    fn drop(&mut self) {
        for (parent, name) in self.created.iter().rev() {
            let _ = self.remove(parent, name);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Opens `accounts` in a directory as two restores at the same time do. The first creates it.
    fn open_accounts_in_two_restores(dir: &Path) -> [(CreatedDirs, Arc<KeptDir>); 2] {
        [(), ()].map(|()| {
            let mut dirs = CreatedDirs::default();
            let accounts = dirs.open_or_create(&dir.join("accounts"), None).expect("made");
            (dirs, accounts)
        })
    }

    #[test]
    fn a_directory_that_another_restore_locked_stays() {
        let dir = tempfile::tempdir().expect("a directory");
        let [(mut first, first_accounts), (mut second, second_accounts)] = open_accounts_in_two_restores(dir.path());
        second.locks.add(&second_accounts).expect("free");
        first.locks.add(&first_accounts).expect_err("locked by the second restore");
        drop(first);
        second_accounts.names().expect("still there");
        drop(second);
        assert!(
            dir.path().join("accounts").exists(),
            "the restore that made the directory leaves it to the second one"
        );
    }

    #[test]
    fn a_removed_directory_cannot_be_locked() {
        let dir = tempfile::tempdir().expect("a directory");
        let [(mut first, first_accounts), (mut second, second_accounts)] = open_accounts_in_two_restores(dir.path());
        first.locks.add(&first_accounts).expect("free");
        drop(first);
        assert!(!dir.path().join("accounts").exists());
        let error = second.locks.add(&second_accounts).expect_err("removed");
        assert!(error.to_string().contains("was removed"), "{error}");
    }
}
