//! Finds archives that would make a validator ignore or damage a restored state.
//!
//! - Newer archives: the validator would start from them instead. By their names, Agave chooses the full
//!   archive of the highest slot, and the highest incremental archive on it. Agave uses a bank snapshot only
//!   if it is not older than these (`try_load_bank_forks_from_snapshot` in the `solana-ledger` crate).
//! - Full archives between the two archives of a rebased pair: the validator would make incremental
//!   archives on them, which would lack accounts that the rebased archive does not hold.

use std::sync::Arc;

use slotpress_base::{Error, ErrorKind, EscapePath, FileStat, KeptDir, Result};
use slotpress_format::ArchiveName;
use slotpress_read::{REMOTE_DIR, is_rebased};

use crate::restore::journal::Move;
use crate::restore::target::{Target, check_same_file_system};

struct FoundArchive {
    dir: Arc<KeptDir>,
    /// Path of `dir` below the snapshots directory, with a trailing slash; empty for that directory itself.
    prefix: &'static str,
    name: ArchiveName,
    stat: FileStat,
}

#[derive(Clone, Copy, Debug)]
pub struct RestoredSlots {
    newest: u64,
    /// Slot of the full archive, if `rebase` made the incremental archive.
    rebased_on: Option<u64>,
}

impl RestoredSlots {
    /// Makes the slots of a restored state. The slots and ids of the newest archive's storages show
    /// whether `rebase` made the archive.
    pub fn new(newest: u64, base_slot: Option<u64>, storages: impl Iterator<Item = (u64, u32)>) -> Self {
        let rebased_on = if is_rebased(newest, storages) { base_slot } else { None };
        Self { newest, rebased_on }
    }

    /// True for a full archive between the two archives of a rebased pair. A validator makes
    /// incremental archives on its newest full archive, from storages of later slots. In a rebased
    /// pair, these storages need not hold all accounts that changed or were closed since that archive.
    fn encloses(&self, name: &ArchiveName) -> bool {
        let is_inside = |base: u64| base < name.slot && name.slot < self.newest;
        name.base_slot.is_none() && self.rebased_on.is_some_and(is_inside)
    }
}

/// Plans to move aside the archives that would make a validator ignore or damage the restored state.
///
/// # Errors
/// Such archives exist, and the options do not allow moving them; or the disk fails.
pub fn plan_moves_aside(target: &Target, slots: RestoredSlots) -> Result<Vec<Move>> {
    let snapshots_dir = &target.snapshots_dir;
    let slot = slots.newest;
    let mut archives = Vec::new();
    add_archives(snapshots_dir, "", &mut archives)?;
    let remote = snapshots_dir.stat_entry(REMOTE_DIR)?;
    if remote.is_some_and(|remote| remote.kind.is_dir())
        && let Some(remote) = snapshots_dir.open_dir(REMOTE_DIR)?
    {
        add_archives(&Arc::new(remote), "remote/", &mut archives)?;
    }
    let newest = choose_newest(&archives).filter(|newest| newest.name.slot > slot);
    let mut enclosed = archives.iter().filter(|archive| slots.encloses(&archive.name));
    let Some(first) = newest.or(enclosed.next()) else { return Ok(Vec::new()) };
    let Some(replaced_name) = &target.old.replaced_name else {
        let existing = first.dir.path_of(first.name.to_string());
        let path = existing.escaped();
        let (message, hint) = if newest.is_some() {
            (
                format!(
                    "{path} is newer than the restored state (slot {slot}): a validator would start from it, and discard the \
                     restored state"
                ),
                "restore the newer archive, move it to another directory, or have --replace-state move all newer ones aside",
            )
        } else {
            (
                format!(
                    "{path} is between the archives that are restored: a validator would make its next incremental archive on it, \
                     and closed accounts would come back"
                ),
                "move it to another directory, or have --replace-state move it aside",
            )
        };
        let error = Error::new(ErrorKind::Exists, message).with_existing_path(&existing);
        return Err(error.with_hint(hint));
    };
    let has_newer = newest.is_some();
    let mut moves = Vec::new();
    for archive in &archives {
        if (has_newer && archive.name.slot > slot) || slots.encloses(&archive.name) {
            let name = archive.name.to_string();
            check_same_file_system(&archive.dir.path_of(&name), &archive.stat, snapshots_dir)?;
            let to = format!("{replaced_name}/{}{name}", archive.prefix);
            moves.push(Move::new((&archive.dir, &name), (snapshots_dir, &to))?);
        }
    }
    Ok(moves)
}

fn add_archives(dir: &Arc<KeptDir>, prefix: &'static str, archives: &mut Vec<FoundArchive>) -> Result<()> {
    for name in dir.names()? {
        let Some(name) = name.to_str().and_then(ArchiveName::parse) else { continue };
        if let Some(stat) = dir.stat_entry(name.to_string())?
            && !stat.kind.is_dir()
        {
            let dir = dir.clone();
            archives.push(FoundArchive { dir, prefix, name, stat });
        }
    }
    Ok(())
}

fn choose_newest(archives: &[FoundArchive]) -> Option<&FoundArchive> {
    let newest_on = |base_slot: Option<u64>| {
        let on_base = archives.iter().filter(|archive| archive.name.base_slot == base_slot);
        on_base.max_by_key(|archive| archive.name.slot)
    };
    let full = newest_on(None)?;
    match newest_on(Some(full.name.slot)) {
        Some(incremental) if incremental.name.slot > full.name.slot => Some(incremental),
        _ => Some(full),
    }
}
