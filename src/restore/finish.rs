//! Finishes a restore: writes the files that a fast boot needs, and moves everything into place.
//! Each step is on disk before the next one begins (docs/snapshot-format.md#fast-boot).

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::PathBuf;

use slotpress_base::{IoContext, Result, Stage};
use slotpress_format::{ArchiveName, write_empty_obsolete_lists, write_storages_list};

use crate::restore::RestoreJob;
use crate::restore::assign::AssignedStorage;
use crate::restore::input::ArchiveToRestore;
use crate::restore::journal::{Move, Moves};
use crate::restore::place::{BANK_FILE_PARTIAL, PartialDir};
use crate::restore::target::{RUN_DIR, SNAPSHOT_DIR};
use crate::restore::unpack::UnpackedArchive;

/// Makes `moves_aside`, and completes a ledger from which a validator boots. Returns the paths of its bank
/// snapshot and of its archives.
pub fn complete_ledger(
    job: RestoreJob<'_>,
    newest: UnpackedArchive,
    storages: &[AssignedStorage],
    run_dirs: Vec<PartialDir>,
    archives: Vec<(ArchiveToRestore, ArchiveName)>,
    moves_aside: Vec<Move>,
) -> Result<(PathBuf, Vec<PathBuf>)> {
    let target = job.target;
    let snapshots_dir = &target.snapshots_dir;
    let bank_snapshots = &target.bank_snapshots;
    let bank_snapshot = newest.bank_snapshot;
    let slot = newest.bank.slot.to_string();
    write_boot_files(&bank_snapshot, &slot, storages)?;
    // An accounts path needs the directories `run` and `snapshot`: a starting validator deletes
    // everything in a path that lacks one of them.
    let snapshot_dirs = target.create_partial_dirs("snapshot")?;
    // Dropped before the directories that it moves back.
    let mut moves = Moves::new(snapshots_dir, moves_aside);
    // Agave looks at bank snapshots only if there is a full archive, so the archives are placed
    // first.
    let mut placed = Vec::new();
    for (archive, name) in archives {
        placed.push(archive.place(&name, target, &mut moves, job.progress)?);
    }
    job.progress.stage(Stage::Syncing, None);
    for dir in run_dirs.iter().chain([&bank_snapshot]) {
        job.progress.check()?;
        dir.sync()?;
    }
    // All files are on disk now. Only their final names are missing.
    slotpress_base::threads::panic_point("placing");
    for ((parent, snapshot_dir), run_dir) in target.accounts.iter().zip(&snapshot_dirs).zip(&run_dirs) {
        moves.add_partial(snapshot_dir, parent, (parent, SNAPSHOT_DIR))?;
        moves.add_partial(run_dir, parent, (parent, RUN_DIR))?;
    }
    moves.add_partial(&bank_snapshot, snapshots_dir, (bank_snapshots, &slot))?;
    moves.run()?;
    target.check_paths()?;
    moves.finish();
    for dir in run_dirs.into_iter().chain(snapshot_dirs).chain([bank_snapshot]) {
        dir.keep();
    }
    Ok((bank_snapshots.path_of(&slot), placed))
}

fn write_boot_files(dir: &PartialDir, slot: &str, storages: &[AssignedStorage]) -> Result<()> {
    let ids = || storages.iter().map(|storage| (storage.slot, storage.id));
    write_file(dir, "storages_list", &|out| write_storages_list(out, ids()))?;
    // No account is obsolete after a restore.
    write_file(dir, "obsolete_accounts", &|out| write_empty_obsolete_lists(out, ids()))?;
    dir.rename_within(BANK_FILE_PARTIAL, slot)?;
    // The existence of this file marks the bank snapshot as complete.
    write_file(dir, "fastboot_version", &|out| out.write_all(b"3.0.0"))
}

fn write_file(dir: &PartialDir, name: &str, write: &dyn Fn(&mut BufWriter<File>) -> std::io::Result<()>) -> Result<()> {
    let mut file = BufWriter::new(dir.create_file(name)?);
    let written = write(&mut file).and_then(|()| file.flush());
    written.or_path("write", &dir.path.join(name))
}
