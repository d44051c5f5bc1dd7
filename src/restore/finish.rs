//! Finishes a restore: writes the files that a fast boot needs, and moves everything into place.
//! Each step is on disk before the next one begins (docs/snapshot-format.md#fast-boot).

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::PathBuf;

use slotpress_base::{IoContext, Result, Stage};
use slotpress_format::{ArchiveName, write_no_obsolete_accounts, write_storages_list};

use crate::restore::Run;
use crate::restore::assign::AssignedStorage;
use crate::restore::input::Opened;
use crate::restore::journal::{Move, Moves};
use crate::restore::place::{BANK_FILE_PARTIAL, PartialDir};
use crate::restore::target::{RUN_DIR, SNAPSHOT_DIR};
use crate::restore::unpack::Unpacked;

/// Completes a ledger from which a validator boots, and makes the moves `aside` first. Returns the
/// paths of its bank snapshot and of its archives.
pub fn finish(
    run: Run<'_>,
    newest: Unpacked,
    storages: &[AssignedStorage],
    roots: Vec<PartialDir>,
    archives: Vec<(Opened, ArchiveName)>,
    aside: Vec<Move>,
) -> Result<(PathBuf, Vec<PathBuf>)> {
    let target = run.target;
    let snapshots_dir = &target.snapshots_dir;
    let bank_snapshots = &target.bank_snapshots;
    let bank_snapshot = newest.bank_snapshot;
    let slot = newest.bank.slot.to_string();
    write_boot_files(&bank_snapshot, &slot, storages)?;
    // An accounts path needs both directories: a starting validator deletes everything in a path
    // that lacks one of them.
    let make_snapshot = |parent| PartialDir::create(parent, "snapshot", target.owner);
    let snapshots = target.accounts.iter().map(make_snapshot).collect::<Result<Vec<_>>>()?;
    // Dropped before the directories that it moves back.
    let mut moves = Moves::new(snapshots_dir, aside);
    // Agave looks at bank snapshots only if there is a full archive, so the archives are placed
    // first.
    let mut placed = Vec::new();
    for (archive, name) in archives {
        placed.push(archive.place(&name, target, &mut moves, run.progress)?);
    }
    run.progress.stage(Stage::Syncing, None);
    for dir in roots.iter().chain([&bank_snapshot]) {
        run.progress.check()?;
        dir.sync()?;
    }
    // Everything is on disk now; only names are missing.
    slotpress_base::threads::panic_point("placing");
    for ((parent, snapshot), root) in target.accounts.iter().zip(&snapshots).zip(&roots) {
        moves.add(Move::from_partial(snapshot, parent, (parent, SNAPSHOT_DIR))?);
        moves.add(Move::from_partial(root, parent, (parent, RUN_DIR))?);
    }
    moves.add(Move::from_partial(&bank_snapshot, snapshots_dir, (bank_snapshots, &slot))?);
    moves.run()?;
    target.check_paths()?;
    moves.finish();
    roots.into_iter().chain(snapshots).chain([bank_snapshot]).for_each(PartialDir::keep);
    Ok((bank_snapshots.path_of(&slot), placed))
}

fn write_boot_files(dir: &PartialDir, slot: &str, storages: &[AssignedStorage]) -> Result<()> {
    let ids = || storages.iter().map(|storage| (storage.slot, storage.id));
    write_file(dir, "storages_list", &|to| write_storages_list(to, ids()))?;
    // It is empty after a restore.
    write_file(dir, "obsolete_accounts", &|to| write_no_obsolete_accounts(to, ids()))?;
    dir.rename_within(BANK_FILE_PARTIAL, slot)?;
    // Marks the bank snapshot as complete, with the version of its layout.
    write_file(dir, "fastboot_version", &|to| to.write_all(b"3.0.0"))
}

fn write_file(dir: &PartialDir, name: &str, write: &dyn Fn(&mut BufWriter<File>) -> std::io::Result<()>) -> Result<()> {
    let mut to = BufWriter::new(dir.create_file(name)?);
    write(&mut to).and_then(|()| to.flush()).or_path("write", &dir.path.join(name))
}
