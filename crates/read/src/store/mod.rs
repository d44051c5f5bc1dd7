//! Where archives live: today, a directory of the local machine and its `remote/` (docs/snapshot-format.md#archives-directory).

pub mod dir_lock;
pub mod publish;
pub mod work_dir;

use std::path::{Path, PathBuf};

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
