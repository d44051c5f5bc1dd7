//! Publishes tables in a directory. All files are on disk before the first one gets its name. A
//! journal in the locked work directory lists the names that a run is going to give. A run that
//! fails takes these names back; after a kill, the next run does.

use std::io::{Read, Write};
use std::sync::Arc;
use std::time::Duration;

use rustix::fs::fstat;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use slotpress_base::kept_dir::changed;
use slotpress_base::{Error, ErrorKind, Found, IoContext, KeptDir, Progress, Result, ShowPath, progress, text};
use slotpress_read::{Locked, Unpublished, WorkDir, remove_stale_dirs, try_lock};

use super::added::{MANIFEST_BYTES_MAX, added, slot_of, tables_of};
use super::place::{WORK_PREFIX, exists, manifest_name, partition, tell_taken_back};
use super::{Manifest, TableFields, chain};

/// Name of the journal in the work directory.
const JOURNAL: &str = "journal.json";
/// Name of a copy of the manifest that a run replaces, in the work directory.
const OLD_MANIFEST: &str = "manifest.json";
/// Limit on waits for another run that replaces a manifest, which takes it milliseconds.
const LOCK_WAITS_MAX: u32 = 100;
const LOCK_WAIT: Duration = Duration::from_millis(100);
/// Limit on the size of a journal. It names a manifest and a directory per table, which takes some
/// hundred bytes.
const JOURNAL_BYTES_MAX: u64 = 64 << 10;

/// The names that a run gives. Inodes tell the run's files from others that have got these names
/// meanwhile; those others stay.
#[derive(Debug, Serialize, Deserialize)]
struct RenameJournal {
    slot: u64,
    manifest_inode: u64,
    partitions: Vec<Partition>,
}

/// The directory of one table and slot.
#[derive(Debug, Serialize, Deserialize)]
struct Partition {
    /// Name of the table's directory, and of the partition in the work directory.
    table: String,
    inode: u64,
    /// True if the run also creates the table's directory.
    is_first: bool,
}

/// Gives all files their names, the manifest last. Returns the path of the manifest.
pub fn publish(dir: &Arc<KeptDir>, work: WorkDir, manifest: &Manifest, progress: &dyn Progress) -> Result<String> {
    let mut partitions = Vec::new();
    for fields in &manifest.tables {
        partitions.push(whole_partition(dir, work.dir(), fields)?);
    }
    let (ours, name) = (manifest.to_value(), manifest_name(manifest.slot));
    lock(dir, progress)?;
    let (there, whole) = check_free(dir, &ours)?;
    if let Some(there) = &there {
        write(work.dir(), OLD_MANIFEST, there)?;
    }
    let file = Unpublished::create_in(dir)?;
    file.file().write_all((text::json(&whole) + "\n").as_bytes()).or_path("write", file.path())?;
    file.file().sync_all().or_path("write", file.path())?;
    let manifest_inode = Found::from(fstat(file.file()).or_path("read", file.path())?).inode;
    let journal = RenameJournal { slot: manifest.slot, manifest_inode, partitions };
    write(work.dir(), JOURNAL, text::json(&journal).as_bytes())?;
    work.dir().sync()?;
    dir.sync()?;
    progress.check()?;
    let named = journal.give_names(dir, work.dir()).and_then(|()| file.publish(&name, there.is_some()));
    match named {
        Ok(path) => Ok(path.to_string_lossy().into_owned()),
        Err(error) => {
            if journal.take_back(dir, work.dir()).is_err() {
                // The next run takes the names back.
                work.keep();
            }
            Err(error)
        }
    }
}

/// Collects the files of a table in one directory within the work directory, under their final
/// names.
fn whole_partition(dir: &KeptDir, work: &KeptDir, fields: &TableFields) -> Result<Partition> {
    let table = fields.table.name().to_string();
    let whole = work.open_or_make_dir(&table, &mut || {})?;
    for file in &fields.files {
        let name = file.path.rsplit('/').next().unwrap_or_default();
        work.rename(&file.part, &whole, name).or_path("name", &whole.path_of(name))?;
    }
    whole.sync()?;
    Ok(Partition { inode: whole.itself()?.inode, is_first: dir.found(&table)?.is_none(), table })
}

fn write(work: &KeptDir, name: &str, bytes: &[u8]) -> Result<()> {
    let mut file = work.create_file(name, 0o666)?;
    file.write_all(bytes).and_then(|()| file.sync_all()).or_path("write", &work.path_of(name))
}

/// Reads a small file; `None` if it is missing.
fn read(dir: &KeptDir, name: &str, bytes_max: u64) -> Result<Option<Vec<u8>>> {
    if dir.found(name)?.is_none() {
        return Ok(None);
    }
    let mut bytes = Vec::new();
    dir.open_file(name)?.take(bytes_max).read_to_end(&mut bytes).or_path("read", &dir.path_of(name))?;
    Ok(Some(bytes))
}

/// Waits until no other run replaces a manifest in the directory. Locks it until it is closed.
fn lock(dir: &KeptDir, progress: &dyn Progress) -> Result<()> {
    for _ in 0..LOCK_WAITS_MAX {
        if try_lock(dir).or_path("lock", dir.path())? != Locked::Busy {
            return Ok(());
        }
        progress::wait(progress, LOCK_WAIT);
        progress.check()?;
    }
    let message = format!("the directory {} is in use: another program holds its lock", dir.path().shown());
    Err(Error::new(ErrorKind::InUse, message).with_hint("wait until that program has ended, or choose another output"))
}

impl RenameJournal {
    /// Reads the journal of a run; `None` if the run has given no name.
    fn read(work: &KeptDir) -> Result<Option<Self>> {
        let text = read(work, JOURNAL, JOURNAL_BYTES_MAX)?;
        // A journal that is cut off was not synced when its run was killed, so no name was given.
        Ok(text.and_then(|text| serde_json::from_slice(&text).ok()))
    }

    fn give_names(&self, dir: &Arc<KeptDir>, work: &KeptDir) -> Result<()> {
        let partition = partition(self.slot);
        for Partition { table, .. } in &self.partitions {
            let of_table = dir.open_or_make_dir(table, &mut || {})?;
            let found = work.found(table)?.ok_or_else(|| changed(&work.path_of(table)))?;
            work.move_found(table, &found, &of_table, &partition)?;
            of_table.sync()?;
        }
        dir.sync()
    }

    fn has(found: Option<Found>, inode: u64) -> bool {
        found.is_some_and(|found| found.inode == inode)
    }

    fn is_committed(&self, dir: &KeptDir) -> Result<bool> {
        Ok(Self::has(dir.found(manifest_name(self.slot))?, self.manifest_inode))
    }

    /// Takes back the given names, last one first. Returns true if there were any.
    fn take_back(&self, dir: &KeptDir, work: &KeptDir) -> Result<bool> {
        let (partition, manifest) = (partition(self.slot), manifest_name(self.slot));
        let mut are_some = self.is_committed(dir)?;
        if are_some {
            let is_old = work.found(OLD_MANIFEST)?.is_some();
            let gone = if is_old { work.rename(OLD_MANIFEST, dir, &manifest) } else { dir.remove_file(&manifest) };
            gone.or_path("take back", &dir.path_of(&manifest))?;
        }
        for Partition { table, inode, is_first } in self.partitions.iter().rev() {
            let Some(of_table) = dir.open_dir(table)? else { continue };
            if Self::has(of_table.found(&partition)?, *inode) {
                of_table.rename(&partition, work, table).or_path("take back", &of_table.path_of(&partition))?;
                are_some = true;
            }
            if *is_first {
                // Fails if others have put something there.
                let _ = dir.remove_dir(table);
            }
        }
        Ok(are_some)
    }
}

/// Removes what killed runs left: their work directories, and the names of exports without a
/// manifest.
pub fn take_back_killed(dir: &KeptDir, progress: &dyn Progress) -> Result<()> {
    remove_stale_dirs(dir, WORK_PREFIX, &mut |work| {
        let Some(journal) = RenameJournal::read(work)? else { return Ok(()) };
        if !journal.is_committed(dir)? && journal.take_back(dir, work)? {
            tell_taken_back(journal.slot, &dir.path().shown(), progress);
        }
        Ok(())
    })
}

/// Refuses tables if the directory has them already, or others that these cannot be added to.
/// Returns the manifest there, and the one with both.
pub fn check_free(dir: &KeptDir, ours: &Value) -> Result<(Option<Vec<u8>>, Value)> {
    let (partition, manifest) = (partition(slot_of(ours)), manifest_name(slot_of(ours)));
    let there = read(dir, &manifest, MANIFEST_BYTES_MAX)?;
    let whole = added(there.as_deref(), ours, &dir.path_of(&manifest))?;
    let names = dir.names()?.into_iter().filter_map(|name| name.into_string().ok());
    chain::check(ours, names, |name| read(dir, name, MANIFEST_BYTES_MAX), &dir.path().shown())?;
    for table in tables_of(ours) {
        let Some(of_table) = dir.open_dir(table)? else { continue };
        if of_table.found(&partition)?.is_some() {
            return Err(exists(&of_table.path_of(partition)));
        }
    }
    Ok((there, whole))
}
