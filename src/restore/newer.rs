//! Finds archives that would make a validator ignore or damage a restored state.
//!
//! - Newer archives: the validator would start from them instead. By name, Agave takes the full
//!   archive of the highest slot and the highest incremental one on it, and uses a bank snapshot
//!   only if that is not older (`try_load_bank_forks_from_snapshot` in the `solana-ledger` crate).
//! - Full archives between the two archives of a rebased pair: the validator would make incremental
//!   archives on them, which would lack accounts that the rebased archive does not hold.

use std::sync::Arc;

use slotpress_base::{Error, ErrorKind, EscapePath, FileStat, KeptDir, Result};
use slotpress_format::ArchiveName;
use slotpress_read::REMOTE_DIR;

use crate::restore::journal::Move;
use crate::restore::target::{Target, check_same_file_system};

struct FoundArchive {
    dir: Arc<KeptDir>,
    /// Path of `dir` below the archives directory, with a slash, or empty.
    below: &'static str,
    name: ArchiveName,
    found: FileStat,
}

#[derive(Clone, Copy, Debug)]
pub struct RestoredSlots {
    pub newest: u64,
    /// Slot of the full archive, if the incremental one was made by `rebase`.
    pub rebased_on: Option<u64>,
}

impl RestoredSlots {
    /// True for a full archive between the two archives of a rebased pair. A validator makes
    /// incremental archives on its newest full one, from storages of later slots. In a rebased
    /// pair, these storages need not hold all accounts that changed or were closed after the
    /// archive between.
    fn encloses(&self, name: &ArchiveName) -> bool {
        let is_inside = |base: u64| base < name.slot && name.slot < self.newest;
        name.base_slot.is_none() && self.rebased_on.is_some_and(is_inside)
    }
}

/// Finds newer archives and full archives in between, and plans to move them aside.
///
/// # Errors
/// Such archives exist and the options do not allow moving them; or the disk fails.
pub fn plan_moves_aside(target: &Target, slots: RestoredSlots) -> Result<Vec<Move>> {
    let archives_dir = &target.snapshots_dir;
    let slot = slots.newest;
    let mut archives = Vec::new();
    add_archives(archives_dir, "", &mut archives)?;
    if archives_dir.stat_entry(REMOTE_DIR)?.is_some_and(|found| found.kind.is_dir())
        && let Some(remote) = archives_dir.open_dir(REMOTE_DIR)?
    {
        add_archives(&Arc::new(remote), "remote/", &mut archives)?;
    }
    let newest = choose_archive(&archives).filter(|newest| newest.name.slot > slot);
    let between = archives.iter().find(|archive| slots.encloses(&archive.name));
    let Some(first) = newest.or(between) else { return Ok(Vec::new()) };
    let Some(replaced) = &target.old.name else {
        let existing = first.dir.path_of(first.name.to_string());
        let path = existing.escaped();
        let error = |message| Error::new(ErrorKind::Exists, message).with_existing_path(&existing);
        if newest.is_some() {
            return Err(error(format!(
                "{path} is newer than the restored state (slot {slot}): a validator would start from it, and discard the \
                 restored state"
            ))
            .with_hint("restore the newer archive, move it to another directory, or have --replace-state move all newer ones aside"));
        }
        return Err(error(format!(
            "{path} is between the archives that are restored: a validator would make its next incremental archive on it, \
             and closed accounts would come back"
        ))
        .with_hint("move it to another directory, or have --replace-state move it aside"));
    };
    let has_newer = newest.is_some();
    let mut moves = Vec::new();
    for FoundArchive { dir, below, name, found } in &archives {
        if (has_newer && name.slot > slot) || slots.encloses(name) {
            let name = name.to_string();
            check_same_file_system(&dir.path_of(&name), found, archives_dir)?;
            moves.push(Move::new((dir, &name), (archives_dir, &format!("{replaced}/{below}{name}")))?);
        }
    }
    Ok(moves)
}

fn add_archives(dir: &Arc<KeptDir>, below: &'static str, archives: &mut Vec<FoundArchive>) -> Result<()> {
    for name in dir.names()? {
        let Some(name) = name.to_str().and_then(ArchiveName::parse) else { continue };
        if let Some(found) = dir.stat_entry(name.to_string())?
            && !found.kind.is_dir()
        {
            archives.push(FoundArchive { dir: dir.clone(), below, name, found });
        }
    }
    Ok(())
}

fn choose_archive(archives: &[FoundArchive]) -> Option<&FoundArchive> {
    let highest = |base_slot: Option<u64>| {
        archives.iter().filter(|archive| archive.name.base_slot == base_slot).max_by_key(|archive| archive.name.slot)
    };
    let full = highest(None)?;
    Some(highest(Some(full.name.slot)).filter(|incremental| incremental.name.slot > full.name.slot).unwrap_or(full))
}
