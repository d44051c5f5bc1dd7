//! Where tables go: names are given after the verdict, the files first, then `_SUCCESS`, the manifest last.
//!
//! What goes into a store is written to a scratch directory, and sent after the verdict: nothing is in the bucket before, a
//! killed run leaves no parts of uploads there, and memory does not grow with the number of files.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use slotpress_base::{Error, IoContext, KeptDir, Owner, Progress, Result, panic_point, text};
use slotpress_read::{Unpublished, WorkDir, check_output_dir, remove_stale_dirs_in};
#[cfg(feature = "stores")]
use slotpress_stores::{Condition, Metadata, Put, Store};

#[cfg(feature = "stores")]
use super::parts::ExportedFile;
use super::table::Table;
use super::{Manifest, TableFields};

/// Directories that a killed run leaves.
pub const WORK_PREFIX: &str = "slotpress-partial-export-";
/// The file that says that a partition is complete.
const SUCCESS: &str = "_SUCCESS";

/// Where tables go.
pub enum ExportTo<'a> {
    /// A directory, which must exist.
    Dir(PathBuf),
    /// A store, and a directory for files on their way there.
    #[cfg(feature = "stores")]
    Store(&'a Store, PathBuf),
    /// A stream: rows of one table as CSV, before the verdict.
    Stream(&'a mut (dyn std::io::Write + Send + 'a)),
}

/// A place for files, open.
pub(super) struct Place<'a> {
    pub work: WorkDir,
    to: To<'a>,
}

enum To<'a> {
    Dir(Arc<KeptDir>),
    #[cfg(feature = "stores")]
    Store(&'a Store),
    #[cfg(not(feature = "stores"))]
    #[allow(dead_code)]
    Nowhere(&'a ()),
}

pub(super) fn partition(slot: u64) -> String {
    format!("snapshot_slot={slot}")
}

fn manifest_name(slot: u64) -> String {
    format!("_manifest-{slot}.json")
}

fn text_of(manifest: &Manifest) -> String {
    text::json(manifest) + "\n"
}

fn exists(path: &Path) -> Error {
    Error::exists(path).with_hint("an export replaces nothing: remove what is there, or choose another output")
}

impl<'a> Place<'a> {
    pub fn dir(path: &Path) -> Result<Self> {
        check_output_dir(path)?;
        let dir = Arc::new(KeptDir::open(path)?);
        Ok(Self { work: work_in(&dir)?, to: To::Dir(dir) })
    }

    #[cfg(feature = "stores")]
    pub fn store(store: &'a Store, scratch: &Path) -> Result<Self> {
        Ok(Self { work: work_in(&Arc::new(KeptDir::open(scratch)?))?, to: To::Store(store) })
    }

    /// Refuses a slot of which there are tables already.
    pub fn check_free(&self, tables: &[Table], slot: u64, progress: &dyn Progress) -> Result<()> {
        match &self.to {
            To::Dir(dir) => check_free_below(dir, tables, slot),
            #[cfg(feature = "stores")]
            To::Store(store) => check_free_at(store, tables, slot, progress),
            #[cfg(not(feature = "stores"))]
            To::Nowhere(_) => progress.check(),
        }
    }

    /// The state was judged right: gives all files their names. Returns where the manifest is.
    pub fn publish(self, manifest: &Manifest, progress: &dyn Progress) -> Result<String> {
        panic_point("export publisher");
        progress.check()?;
        match &self.to {
            To::Dir(dir) => self.publish_in(dir, manifest, progress),
            #[cfg(feature = "stores")]
            To::Store(store) => self.send(store, manifest, progress),
            #[cfg(not(feature = "stores"))]
            To::Nowhere(()) => Ok(String::new()),
        }
    }

    fn publish_in(&self, dir: &Arc<KeptDir>, manifest: &Manifest, progress: &dyn Progress) -> Result<String> {
        let (work, slot) = (self.work.dir(), manifest.slot);
        let (partition, mut made) = (partition(slot), Vec::new());
        for TableFields { table, files, .. } in &manifest.tables {
            let whole = work.open_or_make_dir(table.name(), &mut || {})?;
            for file in files {
                let name = file.path.rsplit('/').next().unwrap_or_default();
                work.rename(&file.part, &whole, name).or_path("name", &whole.path_of(name))?;
            }
            let success = whole.create_file(SUCCESS, 0o666)?;
            Owner::of(&whole)?.take(&success).or_path("change the owner of", &whole.path_of(SUCCESS))?;
            success.sync_all().or_path("write", &whole.path_of(SUCCESS))?;
            whole.sync()?;
            made.push((*table, whole.itself()?));
        }
        let manifest_file = Unpublished::create_in(dir)?;
        manifest_file.file().write_all(text_of(manifest).as_bytes()).or_path("write", manifest_file.path())?;
        check_free_below(dir, &made.iter().map(|(table, _)| *table).collect::<Vec<_>>(), slot)?;
        progress.check()?;
        let mut moved: Vec<(Table, KeptDir)> = Vec::new();
        let move_all = || {
            for (table, found) in &made {
                let of_table = dir.open_or_make_dir(table.name(), &mut || {})?;
                work.move_found(table.name(), found, &of_table, &partition)?;
                of_table.sync()?;
                moved.push((*table, of_table));
            }
            dir.sync()?;
            manifest_file.publish(&manifest_name(slot), false)
        };
        match move_all() {
            Ok(path) => Ok(path.to_string_lossy().into_owned()),
            Err(error) => {
                // Without a manifest it is no export: back to what goes with this run.
                for (table, of_table) in moved {
                    let _ = of_table.rename(&partition, work, table.name());
                }
                Err(error)
            }
        }
    }

    #[cfg(feature = "stores")]
    fn send(&self, store: &Store, manifest: &Manifest, progress: &dyn Progress) -> Result<String> {
        let (partition, name, tables) = (partition(manifest.slot), manifest_name(manifest.slot), &manifest.tables);
        let mut sent = Vec::new();
        let mut send_all = || {
            progress.stage("Sending", Some(tables.iter().map(|fields| fields.bytes).sum()));
            for TableFields { table, files, .. } in tables {
                let below = below(store, *table, &partition)?;
                for file in files {
                    let name = file.path.rsplit('/').next().unwrap_or_default();
                    self.send_one(&below, file, name, progress)?;
                    sent.push((below.clone(), name.to_string()));
                }
            }
            for TableFields { table, .. } in tables {
                let below = below(store, *table, &partition)?;
                put(&below, SUCCESS, &[], progress)?;
                sent.push((below, SUCCESS.to_string()));
            }
            put(store, &name, text_of(manifest).as_bytes(), progress)
        };
        if let Err(error) = send_all() {
            // The last that was put goes first: a part of an export must not look complete.
            for (below, name) in sent.into_iter().rev() {
                let _ = below.delete(&name, &slotpress_base::NoProgress);
            }
            return Err(error);
        }
        Ok(store.shown(&name))
    }

    #[cfg(feature = "stores")]
    fn send_one(&self, to: &Store, file: &ExportedFile, name: &str, progress: &dyn Progress) -> Result<()> {
        use std::io::Read;
        let metadata = Metadata::default().content_type("application/octet-stream".to_string());
        let mut upload = to.upload(name, &metadata, file.bytes, false, progress)?;
        let mut from = self.work.dir().open_file(&file.part)?;
        let mut buffer = vec![0; 1 << 20];
        loop {
            let count = from.read(&mut buffer).or_path("read", &self.work.dir().path_of(&file.part))?;
            if count == 0 {
                break;
            }
            upload.write(buffer.get(..count).unwrap_or_default(), progress)?;
            progress.advance(count as u64, 0);
        }
        upload.finish(progress).map(|_| ())
    }
}

pub(super) fn check_free_in(dir: &Path, tables: &[Table], slot: u64) -> Result<()> {
    check_output_dir(dir)?;
    check_free_below(&KeptDir::open(dir)?, tables, slot)
}

fn check_free_below(dir: &KeptDir, tables: &[Table], slot: u64) -> Result<()> {
    let (partition, manifest) = (partition(slot), manifest_name(slot));
    if dir.found(&manifest)?.is_some() {
        return Err(exists(&dir.path_of(manifest)));
    }
    for table in tables {
        let Some(of_table) = dir.open_dir(table.name())? else { continue };
        if of_table.found(&partition)?.is_some() {
            return Err(exists(&of_table.path_of(partition)));
        }
    }
    Ok(())
}

#[cfg(feature = "stores")]
pub(super) fn check_free_at(store: &Store, tables: &[Table], slot: u64, progress: &dyn Progress) -> Result<()> {
    let (partition, manifest) = (partition(slot), manifest_name(slot));
    if store.stat(&manifest, progress)?.is_some() {
        return Err(exists(Path::new(&store.shown(&manifest))));
    }
    for table in tables {
        let below = below(store, *table, &partition)?;
        if !below.list(progress)?.is_empty() {
            return Err(exists(Path::new(&below.shown(""))));
        }
    }
    Ok(())
}

fn work_in(dir: &Arc<KeptDir>) -> Result<WorkDir> {
    remove_stale_dirs_in(dir, WORK_PREFIX)?;
    WorkDir::create_in(dir, WORK_PREFIX)
}

#[cfg(feature = "stores")]
fn below(store: &Store, table: Table, partition: &str) -> Result<Store> {
    let none = || Error::failed("a store has no place for the table");
    let of_table = store.below(table.name(), true)?.ok_or_else(none)?;
    of_table.below(partition, true)?.ok_or_else(none)
}

#[cfg(feature = "stores")]
fn put(store: &Store, name: &str, bytes: &[u8], progress: &dyn Progress) -> Result<()> {
    match store.put_small(name, bytes, &Metadata::default(), &Condition::Absent, progress)? {
        Put::Done(_) => Ok(()),
        Put::Refused => Err(exists(Path::new(&store.shown(name)))),
    }
}
