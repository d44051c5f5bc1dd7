//! Where archives live: today, a directory of the local machine and its `remote/` (format page, section "Names").

pub mod dir_lock;
pub mod publish;
pub mod work_dir;

use {
    slotpress_base::error::{Error, Result},
    slotpress_format::ledger::names::ArchiveName,
    std::{
        fs, io,
        path::{Path, PathBuf},
    },
};

/// The journal of a restore that moves things into place, in the snapshots directory or in that of an archive's tree. It is
/// there before the first rename, and goes after the last.
pub const RESTORE_JOURNAL_NAME: &str = "slotpress-partial-journal";

/// What to do about the journal of a killed restore.
pub const RESTORE_JOURNAL_HINT: &str =
    "run the same restore or bootstrap again: it first puts back what was there before";

/// The journal that a killed restore, or one that still runs, has left in a snapshots directory.
pub fn restore_journal(snapshots_dir: &Path) -> Option<PathBuf> {
    Some(snapshots_dir.join(RESTORE_JOURNAL_NAME)).filter(|path| path.is_file())
}

/// Every archive in the directories and in their `remote/` subdirectories, by name. Temporary files are not archives.
pub fn find_archives<'a>(dirs: impl IntoIterator<Item = &'a Path>) -> Result<Vec<(ArchiveName, PathBuf)>> {
    let mut archives = Vec::new();
    for dir in dirs {
        for dir in [dir.to_path_buf(), dir.join("remote")] {
            let entries = match fs::read_dir(&dir) {
                Ok(entries) => entries,
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(error) => return Err(Error::io("read", &dir, &error)),
            };
            for entry in entries {
                let path = entry.map_err(|error| Error::io("read", &dir, &error))?.path();
                archives.extend(ArchiveName::from_path(&path).map(|name| (name, path)));
            }
        }
    }
    Ok(archives)
}

/// The slot of the newest full archive among them.
pub fn newest_full_slot(archives: &[(ArchiveName, PathBuf)]) -> Option<u64> {
    archives.iter().filter(|(name, _)| name.base_slot.is_none()).map(|(name, _)| name.slot).max()
}
