//! Finds archives that would make a validator ignore or damage a restored state.
//!
//! - Newer archives: the validator would start from them instead. By name, Agave takes the full
//!   archive of the highest slot and the highest incremental one on it, and uses a bank snapshot
//!   only if that is not older (`try_load_bank_forks_from_snapshot` in the `solana-ledger` crate).
//! - Full archives between the two archives of a rebased pair: the validator would make incremental
//!   archives on them, which would lack accounts that the rebased archive does not hold.

use std::ffi::OsStr;
use std::sync::Arc;

use slotpress_base::{Error, ErrorKind, Found, KeptDir, Result, ShowPath, hint};
use slotpress_format::ArchiveName;
use slotpress_read::REMOTE;

use crate::restore::journal::Move;
use crate::restore::target::check_same_file_system;

struct FoundArchive {
    dir: Arc<KeptDir>,
    inner: Option<&'static str>,
    name: ArchiveName,
    found: Found,
}

/// Slots of a restored state.
#[derive(Clone, Copy, Debug)]
pub struct RestoredSlots {
    /// Slot of the state.
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

/// Finds such archives, and plans to move them to the directory `replaced`.
///
/// # Errors
/// There are such archives and `replaced` is `None`, so they must not be moved; or the disk fails.
pub fn archives_in_the_way(
    archives_dir: &Arc<KeptDir>,
    slots: RestoredSlots,
    replaced: Option<&str>,
) -> Result<Vec<Move>> {
    let slot = slots.newest;
    let mut archives = Vec::new();
    look_into(archives_dir, None, &mut archives)?;
    if archives_dir.found(REMOTE)?.is_some_and(|found| found.kind.is_dir())
        && let Some(remote) = archives_dir.open_dir(REMOTE)?
    {
        look_into(&Arc::new(remote), Some(REMOTE), &mut archives)?;
    }
    let newest = choice(&archives).filter(|newest| newest.name.slot > slot);
    let between = archives.iter().find(|one| slots.encloses(&one.name));
    let Some(first) = newest.or(between) else { return Ok(Vec::new()) };
    let has_newer = newest.is_some();
    let Some(replaced) = replaced else {
        let path = first.dir.path_of(first.name.to_string());
        if !has_newer {
            let message = format!(
                "{} is between the archives that are restored: a validator would make its next incremental archive on it, and \
                 closed accounts would come back",
                path.shown()
            );
            return Err(Error::new(ErrorKind::Exists, message).with_hint(hint::MOVE_ARCHIVES_BETWEEN));
        }
        let message = format!(
            "{} is newer than the restored state (slot {slot}): a validator would start from it, and discard the restored state",
            path.shown()
        );
        return Err(Error::new(ErrorKind::Exists, message).with_hint(hint::MOVE_NEWER_ARCHIVES));
    };
    let mut moves = Vec::new();
    let is_moved = |one: &FoundArchive| (has_newer && one.name.slot > slot) || slots.encloses(&one.name);
    for archive in archives.into_iter().filter(is_moved) {
        let name = archive.name.to_string();
        check_same_file_system(&archive.dir.path_of(&name), &archive.found, archives_dir)?;
        let to = [Some(replaced), archive.inner, Some(&name)].into_iter().flatten().collect::<Vec<_>>().join("/");
        moves.push(Move::new((&archive.dir, &name), (archives_dir, &to))?);
    }
    Ok(moves)
}

fn look_into(dir: &Arc<KeptDir>, inner: Option<&'static str>, archives: &mut Vec<FoundArchive>) -> Result<()> {
    for name in dir.names()? {
        let Some(name) = name.to_str().and_then(ArchiveName::parse) else { continue };
        if let Some(found) = dir.found(OsStr::new(&name.to_string()))?
            && !found.kind.is_dir()
        {
            archives.push(FoundArchive { dir: dir.clone(), inner, name, found });
        }
    }
    Ok(())
}

/// The archive whose state a validator would load, by names.
fn choice(archives: &[FoundArchive]) -> Option<&FoundArchive> {
    let highest = |base_slot: Option<u64>| {
        archives.iter().filter(|one| one.name.base_slot == base_slot).max_by_key(|one| one.name.slot)
    };
    let full = highest(None)?;
    Some(highest(Some(full.name.slot)).filter(|one| one.name.slot > full.name.slot).unwrap_or(full))
}
