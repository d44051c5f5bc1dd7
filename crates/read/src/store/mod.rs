//! Places for archives: a local directory and its `remote/`
//! (docs/snapshot-format.md#archives-directory).

pub mod dir_lock;
pub mod publish;
pub mod work_dir;

use std::path::{Path, PathBuf};

/// Journal of a restore that moves files into place, in the snapshots directory or that of an
/// unpacked archive. It exists from before the first rename until after the last.
pub const RESTORE_JOURNAL_NAME: &str = "slotpress-partial-journal";

/// Advice for the journal of a killed restore.
pub const RESTORE_JOURNAL_HINT: &str =
    "run the same restore or bootstrap again: it first puts back what was there before";

/// Path of the journal that a killed or running restore has in a snapshots directory.
pub fn restore_journal(snapshots_dir: &Path) -> Option<PathBuf> {
    Some(snapshots_dir.join(RESTORE_JOURNAL_NAME)).filter(|path| path.is_file())
}
