//! The end of a restore: what a fast boot needs, each piece on disk before the next (format page, section "What a fast
//! boot needs").

use {
    crate::restore::{
        assign::AssignedStorage,
        copies::ArchiveCopy,
        journal::{Journal, Placed},
        place::{BANK_FILE_PARTIAL, PartialDir},
        target::Target,
    },
    slotpress_base::{
        error::{Error, IoContext, Result},
        progress::Progress,
    },
    slotpress_format::ledger::{
        lists::{write_no_obsolete_accounts, write_storages_list},
        names::ArchiveName,
    },
    slotpress_read::store::publish::sync_dir,
    std::{
        fs::{self, File},
        io::{BufWriter, Write},
        os::unix::fs::MetadataExt,
        path::{Path, PathBuf},
    },
};

/// The layout that is written: Agave 4.2 and later boot from it.
const FASTBOOT_VERSION: &str = "3.0.0";

/// Completes a ledger that boots; returns its bank snapshot directory and its archives.
pub fn finish_boot_layout(
    target: &Target,
    slot: u64,
    storages: &[AssignedStorage],
    roots: Vec<PartialDir>,
    bank_snapshot: PartialDir,
    copies: Vec<(ArchiveCopy, ArchiveName)>,
    progress: &dyn Progress,
) -> Result<(PathBuf, Vec<PathBuf>)> {
    let owner = &target.owner;
    let ids = || storages.iter().map(|storage| (storage.slot, storage.id));
    write_file(&bank_snapshot, owner, "storages_list", &|to| write_storages_list(to, ids()))?;
    write_file(&bank_snapshot, owner, "obsolete_accounts", &|to| write_no_obsolete_accounts(to, ids()))?;
    bank_snapshot.rename_within(BANK_FILE_PARTIAL, &slot.to_string())?;
    let snapshots = target.snapshots_dir.join("snapshots");
    let dir = snapshots.join(slot.to_string());
    let mark = dir.join("fastboot_version");
    let mut journal = Journal::new(&target.snapshots_dir, mark.clone());
    // Without a full archive in its directory, Agave does not look at bank snapshots at all.
    let mut archives = Vec::new();
    for (copy, name) in copies {
        let stays = copy.is_download();
        let (path, is_new) = copy.finish(&name, &target.snapshots_dir, progress)?;
        if is_new && !stays {
            journal.add(Placed::File { inode: fs::metadata(&path).or_path("read", &path)?.ino(), path: path.clone() });
        }
        if is_new {
            owner.take_path(&path)?;
        }
        archives.push(path);
    }
    progress.stage("Syncing", None);
    for dir in roots.iter().chain([&bank_snapshot]) {
        progress.check()?;
        dir.sync()?;
    }

    // From here on everything is on disk; only names are missing.
    slotpress_base::threads::panic_point("placing");
    for (from, to) in &target.replaced {
        let inode = fs::symlink_metadata(from).or_path("read", from)?.ino();
        journal.add(Placed::Moved { path: to.clone(), inode, from: from.clone() });
    }
    let is_moved = |path: &Path| target.replaced.iter().any(|(from, _)| from == path);
    for (accounts, root) in target.accounts.iter().zip(&roots) {
        let (snapshot, run) = (accounts.join("snapshot"), accounts.join("run"));
        if !snapshot.is_dir() || is_moved(&snapshot) {
            journal.add(Placed::Empty(snapshot));
        }
        let was_there = run.is_dir() && !is_moved(&run);
        journal.add(Placed::Dir { was_there, inode: root.inode()?, path: run });
    }
    journal.add(Placed::Dir { was_there: false, inode: bank_snapshot.inode()?, path: dir.clone() });
    journal.write(&archives)?;

    for (from, to) in &target.replaced {
        let parent = to.parent().unwrap_or(Path::new("."));
        fs::create_dir_all(parent).or_path("create", parent)?;
        fs::rename(from, to).or_path("move aside", from)?;
        sync_dir(parent)?;
        sync_dir(from.parent().unwrap_or(Path::new(".")))?;
    }
    // A starting validator deletes everything under an accounts path that lacks `run` or `snapshot`.
    for (accounts, root) in target.accounts.iter().zip(roots) {
        let snapshot = accounts.join("snapshot");
        if !snapshot.is_dir() {
            fs::create_dir(&snapshot).or_path("create", &snapshot)?;
            owner.take_path(&snapshot)?;
        }
        root.rename(&accounts.join("run"))?;
        sync_dir(accounts)?;
    }
    bank_snapshot.rename(&dir)?;
    sync_dir(&snapshots)?;
    sync_dir(&target.snapshots_dir)?;

    let mut file = tempfile::NamedTempFile::new_in(&dir).or_path("create a file in", &dir)?;
    file.write_all(FASTBOOT_VERSION.as_bytes()).or_path("write", &mark)?;
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o644);
    file.as_file().set_permissions(mode).or_path("write", &mark)?;
    owner.take_path(file.path())?;
    file.as_file().sync_all().or_path("sync", &mark)?;
    file.persist(&mark).map_err(|error| Error::io("write", &mark, &error.error))?;
    sync_dir(&dir)?;
    journal.finish();
    Ok((dir, archives))
}

/// Completes the tree of an archive; returns its directory.
pub fn finish_archive_layout(
    target: &Target,
    slot: u64,
    roots: Vec<PartialDir>,
    bank_snapshot: PartialDir,
) -> Result<PathBuf> {
    let dir = &target.ledger;
    let slot = slot.to_string();
    bank_snapshot.create_dir(&slot, &target.owner)?;
    bank_snapshot.rename_within(BANK_FILE_PARTIAL, &format!("{slot}/{slot}"))?;
    for partial in roots.iter().chain([&bank_snapshot]) {
        partial.sync()?;
    }
    let (snapshots, accounts, version) = (dir.join("snapshots"), dir.join("accounts"), dir.join("version"));
    let unplaced = bank_snapshot.path.join("version");
    let version_inode = fs::metadata(&unplaced).or_path("read", &unplaced)?.ino();
    let mut journal = Journal::new(dir, version.clone());
    journal.add(Placed::Dir { path: snapshots.clone(), inode: bank_snapshot.inode()?, was_there: false });
    for root in &roots {
        journal.add(Placed::Dir { path: accounts.clone(), inode: root.inode()?, was_there: false });
    }
    journal.add(Placed::File { path: version.clone(), inode: version_inode });
    journal.write(&[])?;
    bank_snapshot.rename(&snapshots)?;
    for root in roots {
        root.rename(&accounts)?;
    }
    // Last, since without it nothing takes the tree for an archive's.
    fs::rename(snapshots.join("version"), &version).or_path("move", &version)?;
    sync_dir(&snapshots)?;
    sync_dir(dir)?;
    journal.finish();
    Ok(dir.clone())
}

fn write_file(
    dir: &PartialDir,
    owner: &crate::restore::place::Owner,
    name: &str,
    write: &dyn Fn(&mut BufWriter<File>) -> std::io::Result<()>,
) -> Result<()> {
    let mut to = BufWriter::new(dir.create_file(name, owner, false)?);
    write(&mut to).and_then(|()| to.flush()).or_path("write", &dir.path.join(name))
}
