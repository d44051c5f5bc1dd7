//! Archives beside a restored ledger that a validator would start from instead: Agave takes the full archive of the highest slot
//! and the highest incremental one on it, by their names, and a bank snapshot only if that is not older
//! (`try_load_bank_forks_from_snapshot` in the `solana-ledger` crate). Also full archives on which it would make an incremental one
//! that lacks what a rebased one does not hold.

use std::ffi::{OsStr, OsString};
use std::sync::Arc;

use slotpress_base::{Error, ErrorKind, Found, Hint, KeptDir, Result, ShowPath};
use slotpress_format::ArchiveName;
use slotpress_read::REMOTE;

use crate::restore::journal::Location;
use crate::restore::target::{Replaced, check_same_file_system};

struct FoundArchive {
    dir: Arc<KeptDir>,
    inner: Option<&'static str>,
    name: ArchiveName,
    found: Found,
}

/// Slots of what is restored.
#[derive(Clone, Copy, Debug)]
pub struct RestoredSlots {
    pub newest: u64,
    /// The full archive's, if the incremental one was made by `rebase`.
    pub rebased_on: Option<u64>,
}

impl RestoredSlots {
    /// True for a full archive between those of a rebased pair. A validator makes incremental archives on its newest full one:
    /// accounts that changed or were closed since then need not be in the pair's storages of later slots.
    fn encloses(&self, name: &ArchiveName) -> bool {
        let is_inside = |base: u64| base < name.slot && name.slot < self.newest;
        name.base_slot.is_none() && self.rebased_on.is_some_and(is_inside)
    }
}

/// Archives of later slots than the restored one, where a validator would start from one of them, and those
/// between the slots of a rebased pair. They go into the directory of this name.
///
/// # Errors
/// There are some, and no such directory: they may not be moved. The disk fails.
pub fn archives_in_the_way(
    archives_dir: &Arc<KeptDir>,
    slots: RestoredSlots,
    replaced: Option<&str>,
) -> Result<Vec<Replaced>> {
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
                "{} lies between the archives that are restored: a validator would make its next incremental archive on it, and \
                 closed accounts would come back",
                path.shown()
            );
            return Err(Error::new(ErrorKind::Exists, message).with_hint(Hint::MoveArchivesBetween));
        }
        let message = format!(
            "{} is newer than what is restored (slot {slot}): a validator would start from it, and discard what was restored",
            path.shown()
        );
        return Err(Error::new(ErrorKind::Exists, message).with_hint(Hint::MoveNewerArchives));
    };
    let mut moves = Vec::new();
    let is_moved = |one: &FoundArchive| (has_newer && one.name.slot > slot) || slots.encloses(&one.name);
    for archive in archives.into_iter().filter(is_moved) {
        let from = Location::new(&archive.dir, archive.name.to_string());
        check_same_file_system(&from.path(), &archive.found, archives_dir)?;
        let below = [replaced].into_iter().chain(archive.inner).map(OsString::from).collect();
        let to = Location::new_below(archives_dir, below, &from.name);
        moves.push(Replaced { from, found: archive.found, to });
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

/// The archive whose state a validator would have, by names.
fn choice(archives: &[FoundArchive]) -> Option<&FoundArchive> {
    let highest = |base_slot: Option<u64>| {
        archives.iter().filter(|one| one.name.base_slot == base_slot).max_by_key(|one| one.name.slot)
    };
    let full = highest(None)?;
    Some(highest(Some(full.name.slot)).filter(|one| one.name.slot > full.name.slot).unwrap_or(full))
}
