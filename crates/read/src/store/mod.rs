//! Archive and work directories: locks, temporary files, and giving a file its final name.

pub mod dir_lock;
pub mod publish;
pub mod work_dir;

use std::path::{Path, PathBuf};

/// Name of a restore's journal, in the snapshots directory or in the directory of an unpacked archive. It
/// lists the renames that move files into place. It exists from before the first rename until after the last.
pub const RESTORE_JOURNAL_NAME: &str = "slotpress-partial-journal";

pub const RESTORE_JOURNAL_HINT: &str =
    "run the same restore or bootstrap again: it first puts back what was there before";

pub fn find_restore_journal(snapshots_dir: &Path) -> Option<PathBuf> {
    Some(snapshots_dir.join(RESTORE_JOURNAL_NAME)).filter(|path| path.is_file())
}
