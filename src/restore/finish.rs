//! Finishes a restore: writes the files that a fast boot needs, and moves everything into place.
//! Each step is on disk before the next one begins (docs/snapshot-format.md#fast-boot).

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::PathBuf;
use std::sync::Arc;

use slotpress_base::kept_dir::changed;
use slotpress_base::{Error, IoContext, KeptDir, Owner, Progress, Result};
use slotpress_format::{ArchiveName, write_no_obsolete_accounts, write_storages_list};

use crate::restore::assign::AssignedStorage;
use crate::restore::input::Opened;
use crate::restore::journal::{Kind, Location, RestoreJournal};
use crate::restore::place::{BANK_FILE_PARTIAL, PartialDir};
use crate::restore::target::{RUN, Replaced, SNAPSHOT, Target};

/// Version of the written layout: Agave 4.2 and later boot from it.
const FASTBOOT_VERSION: &str = "3.0.0";

/// File that holds the version, written last: it marks a bank snapshot as complete.
const MARK: &str = "fastboot_version";

/// Name of the mark until it is complete.
const MARK_PARTIAL: &str = "slotpress-partial-mark";

const VERSION: &str = "version";

/// List of a bank snapshot's storages, which Agave reads.
const STORAGES_LIST: &str = "storages_list";
/// List of obsolete records, which Agave reads. It is empty after a restore.
const OBSOLETE_ACCOUNTS: &str = "obsolete_accounts";
const STATUS_CACHE: &str = "status_cache";

/// Directories that were written.
pub struct WrittenLedger {
    pub roots: Vec<PartialDir>,
    pub bank_snapshot: PartialDir,
}

impl WrittenLedger {
    fn dirs(&self) -> impl Iterator<Item = &PartialDir> {
        self.roots.iter().chain([&self.bank_snapshot])
    }

    fn keep(self) {
        self.roots.into_iter().chain([self.bank_snapshot]).for_each(PartialDir::keep);
    }

    /// Checks that the accounts directories hold all storages, with their lengths, and nothing
    /// else, and that all files of the bank snapshot exist.
    fn count(&self, storages: &[AssignedStorage], bank_files: &[&str]) -> Result<()> {
        let mut counts = vec![0; self.roots.len()];
        for storage in storages {
            let missing = || Error::failed("a storage was assigned to no accounts path");
            let at = usize::from(storage.root);
            let (root, count) = self.roots.get(at).zip(counts.get_mut(at)).ok_or_else(missing)?;
            check_file(root.dir(), &storage.file_name(), Some(storage.content_bytes))?;
            *count += 1;
        }
        for (root, count) in self.roots.iter().zip(counts) {
            if root.dir().names()?.len() != count {
                return Err(changed(&root.path));
            }
        }
        bank_files.iter().try_for_each(|name| check_file(self.bank_snapshot.dir(), name, None))
    }
}

/// Checks that a written file still exists, and has this length if one is given.
fn check_file(dir: &KeptDir, name: &str, length_bytes: Option<u64>) -> Result<()> {
    let is_it = dir
        .found(name)?
        .is_some_and(|found| found.kind.is_file() && length_bytes.is_none_or(|length| length == found.length_bytes));
    if is_it { Ok(()) } else { Err(changed(&dir.path_of(name))) }
}

/// Checks that a name leads to the directory that was moved there.
fn check_placed(dir: &PartialDir, parent: &KeptDir, name: &str) -> Result<()> {
    match parent.found(name)?.is_some_and(|found| found.is_same(dir.found())) {
        true => Ok(()),
        false => Err(changed(&parent.path_of(name))),
    }
}

/// Completes a ledger from which a validator boots, and moves newer archives aside. Returns the
/// paths of its bank snapshot and of its archives.
pub fn finish(
    target: &Target,
    slot: u64,
    storages: &[AssignedStorage],
    written: WrittenLedger,
    archives: Vec<(Opened, ArchiveName)>,
    newer: &[Replaced],
    progress: &dyn Progress,
) -> Result<(PathBuf, Vec<PathBuf>)> {
    let bank_snapshots = &target.bank_snapshots;
    let mut boot = BootLayout { target, bank_snapshots, slot: slot.to_string(), written, newer };
    boot.write_lists(storages)?;
    let mark = Location::new_below(bank_snapshots, vec![boot.slot.clone().into()], MARK);
    let mut journal = RestoreJournal::new(&target.snapshots_dir, mark);
    // Agave looks at bank snapshots only if there is a full archive, so the archives are placed
    // first.
    let mut placed = Vec::new();
    for (archive, name) in archives {
        let stays = archive.way.is_download();
        let archive = archive.place(&name, &target.snapshots_dir, &target.owner, progress)?;
        if let Some(new) = archive.new.filter(|_| !stays) {
            journal.add(Kind::File, new.inode, Location::new(&target.snapshots_dir, &archive.name));
        }
        placed.push(archive.path);
    }
    progress.stage("Syncing", None);
    for dir in boot.written.dirs() {
        progress.check()?;
        dir.sync()?;
    }
    // Everything is on disk now; only names are missing.
    slotpress_base::threads::panic_point("placing");
    boot.record(&mut journal)?;
    journal.write(&placed)?;
    boot.move_into_place()?;
    boot.check(storages)?;
    write_mark(boot.written.bank_snapshot.dir(), &target.owner)?;
    journal.finish();
    boot.written.keep();
    Ok((bank_snapshots.path_of(&boot.slot), placed))
}

/// A bootable ledger that is being completed.
struct BootLayout<'a> {
    target: &'a Target,
    bank_snapshots: &'a Arc<KeptDir>,
    slot: String,
    written: WrittenLedger,
    newer: &'a [Replaced],
}

impl BootLayout<'_> {
    /// Writes the lists that Agave needs in a bank snapshot.
    fn write_lists(&self, storages: &[AssignedStorage]) -> Result<()> {
        let (bank_snapshot, owner) = (&self.written.bank_snapshot, &self.target.owner);
        let ids = || storages.iter().map(|storage| (storage.slot, storage.id));
        write_file(bank_snapshot, owner, STORAGES_LIST, &|to| write_storages_list(to, ids()))?;
        write_file(bank_snapshot, owner, OBSOLETE_ACCOUNTS, &|to| write_no_obsolete_accounts(to, ids()))?;
        bank_snapshot.rename_within(BANK_FILE_PARTIAL, bank_snapshot.dir(), &self.slot)
    }

    /// Objects to move aside: the existing state, and the archives in `newer`.
    fn moved(&self) -> impl Iterator<Item = &Replaced> {
        self.target.moved().iter().chain(self.newer)
    }

    fn accounts(&self) -> impl Iterator<Item = (&Arc<KeptDir>, &PartialDir)> {
        self.target.accounts.iter().zip(&self.written.roots)
    }

    /// Adds all moves to the journal.
    fn record(&self, journal: &mut RestoreJournal) -> Result<()> {
        for one in self.moved() {
            journal.add_moved(one.found.inode, one.to.clone(), one.from.clone());
        }
        let is_moved =
            |dir: &KeptDir, name: &str| self.target.moved().iter().any(|one| one.from.path() == dir.path_of(name));
        for (accounts, root) in self.accounts() {
            if accounts.found(SNAPSHOT)?.is_none() || is_moved(accounts, SNAPSHOT) {
                journal.add(Kind::Empty, 0, Location::new(accounts, SNAPSHOT));
            }
            let was_there = accounts.found(RUN)?.is_some() && !is_moved(accounts, RUN);
            let kind = if was_there { Kind::DirInEmpty } else { Kind::Dir };
            journal.add(kind, root.found().inode, Location::new(accounts, RUN));
        }
        let place = Location::new(self.bank_snapshots, &self.slot);
        journal.add(Kind::Dir, self.written.bank_snapshot.found().inode, place);
        Ok(())
    }

    fn move_into_place(&mut self) -> Result<()> {
        for one in self.moved() {
            let to = one.to.make_parent()?;
            one.from.dir.move_found(&one.from.name, &one.found, &to, &one.to.name)?;
            to.sync()?;
            one.from.dir.sync()?;
        }
        // An accounts path needs both directories: a starting validator deletes everything in a
        // path that lacks one of them.
        for (accounts, root) in self.target.accounts.iter().zip(&mut self.written.roots) {
            if accounts.found(SNAPSHOT)?.is_none() {
                let snapshot = accounts.make_dir(SNAPSHOT)?;
                self.target.owner.take(&snapshot).or_path("change the owner of", snapshot.path())?;
            }
            root.place(accounts, RUN)?;
            accounts.sync()?;
        }
        self.written.bank_snapshot.place(self.bank_snapshots, &self.slot)?;
        self.bank_snapshots.sync()?;
        self.target.snapshots_dir.sync()
    }

    /// Checks through the same open directories that everything is in place, before the mark
    /// is written.
    fn check(&self, storages: &[AssignedStorage]) -> Result<()> {
        let files = [VERSION, STATUS_CACHE, &self.slot, STORAGES_LIST, OBSOLETE_ACCOUNTS];
        self.written.count(storages, &files)?;
        for (accounts, root) in self.accounts() {
            check_placed(root, accounts, RUN)?;
        }
        check_placed(&self.written.bank_snapshot, self.bank_snapshots, &self.slot)?;
        self.target.check_paths()
    }
}

/// Writes the mark into the open bank snapshot directory, even if another process moved it.
fn write_mark(dir: &KeptDir, owner: &Owner) -> Result<()> {
    let path = dir.path_of(MARK);
    let mut file = dir.create_file(MARK_PARTIAL, 0o644)?;
    file.write_all(FASTBOOT_VERSION.as_bytes()).or_path("write", &path)?;
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o644);
    file.set_permissions(mode).or_path("write", &path)?;
    owner.take(&file).or_path("change the owner of", &path)?;
    file.sync_all().or_path("sync", &path)?;
    dir.rename(MARK_PARTIAL, dir, MARK).or_path("write", &path)?;
    dir.sync()
}

fn write_file(
    dir: &PartialDir,
    owner: &Owner,
    name: &str,
    write: &dyn Fn(&mut BufWriter<File>) -> std::io::Result<()>,
) -> Result<()> {
    let mut to = BufWriter::new(dir.create_file(name, owner, false)?);
    write(&mut to).and_then(|()| to.flush()).or_path("write", &dir.path.join(name))
}
