//! Publishes tables in a directory or store, after the state passed its checks.
//!
//! A table is complete once it has its manifest, which is written after all files have their names. A
//! journal marks an unfinished export of a slot, and names its run and its tables. A run that fails
//! removes what it has published. After a kill, the next run of that slot, on any machine, replaces
//! the journal, and removes what the earlier run left. If the earlier run is still alive, it ends as
//! soon as it finds the journal replaced, and removes nothing.
//!
//! Files are first written to a work directory, which is in the output directory, or for a store in a
//! scratch directory. So nothing unchecked is published.

use std::collections::BTreeMap;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use slotpress_base::{
    Error, IoContext, KeptDir, NoProgress, Progress, Result, Stage, changed_error, panic_point, random_name, text,
};
use slotpress_read::{WorkDir, check_output_dir, remove_stale_dirs};
use slotpress_stores::{Attribute, Attributes, Condition, PutOutcome, SmallFile, Store};

use super::parts::ExportedFile;
use super::table::Table;
use super::{Manifest, TableFields, order};
use crate::restore::created_dirs::CreatedDirs;

/// Prefix of the names of work directories. Killed runs leave them behind.
pub const WORK_PREFIX: &str = "slotpress-partial-export-";

/// Limit on the size of a manifest or journal, the same as for writing a small file to a store.
pub(super) const MANIFEST_BYTES_MAX: u64 = 8 << 20;

/// Output of an export.
pub enum ExportTo<'a> {
    /// A directory, which is created if it is missing.
    Dir(PathBuf),
    /// A directory or bucket.
    Store {
        /// Store for the tables.
        store: &'a Store,
        /// Directory for files that are not published yet.
        scratch: PathBuf,
    },
    /// A stream, to which the rows of one table are written as CSV before the state is checked.
    Stream(&'a mut (dyn std::io::Write + Send + 'a)),
}

pub(super) struct ExportOutput {
    // The first field, because it must be dropped, and so removed, before the directories in `created`.
    pub work: WorkDir,
    created: CreatedDirs,
    store: Store,
}

#[derive(Debug, Default, Serialize, Deserialize)]
struct ExportJournal {
    run: String,
    /// Names of the tables that the run publishes, and of those that an earlier run left.
    tables: Vec<String>,
}

/// Leftovers of an earlier run: its journal, and the names of its tables.
#[derive(Default)]
pub(super) struct UnfinishedExport {
    journal: Option<SmallFile>,
    tables: Vec<String>,
}

pub(super) fn slot_dir(slot: u64) -> String {
    format!("snapshot_slot={slot}")
}

fn journal_name(slot: u64) -> String {
    format!("_unfinished-{slot}.json")
}

pub(super) fn manifest_name(slot: u64) -> String {
    format!("_manifest-{slot}.json")
}

pub(super) fn manifest_slot(name: &str) -> Option<u64> {
    let slot = name.strip_prefix("_manifest-")?.strip_suffix(".json")?;
    slot.parse().ok()
}

fn exists_error(location: &str) -> Error {
    Error::exists(Path::new(location))
        .with_hint("an export never replaces files: remove what exists, or choose another output")
}

fn file_name(file: &ExportedFile) -> &str {
    file.path.rsplit('/').next().unwrap_or_default()
}

/// True if the name is one that an export gives to its files. Other files in a partition are not removed.
fn is_export_name(name: &str) -> bool {
    name.starts_with("part-") || name.ends_with(".json")
}

/// Returns the condition that the file has not changed since it was read, or is still missing.
fn if_unchanged(file: &Option<SmallFile>) -> Condition {
    let Some(file) = file else { return Condition::Absent };
    let etag = file.etag.clone();
    etag.map_or(Condition::Always, Condition::Unchanged)
}

impl ExportOutput {
    pub fn open_dir(path: &Path, progress: &dyn Progress) -> Result<Self> {
        if path.exists() {
            check_output_dir(path)?;
        }
        let mut created = CreatedDirs::default();
        let dir = created.open_or_create(path, None)?;
        Self::new(Store::from_dir(dir.clone()), &dir, created, progress)
    }

    pub fn open_store(store: &Store, scratch: &Path, progress: &dyn Progress) -> Result<Self> {
        let scratch = Arc::new(KeptDir::open(scratch)?);
        Self::new(store.clone(), &scratch, CreatedDirs::default(), progress)
    }

    fn new(store: Store, scratch: &Arc<KeptDir>, created: CreatedDirs, progress: &dyn Progress) -> Result<Self> {
        remove_stale_dirs(scratch, WORK_PREFIX, &mut |_| progress.check())?;
        Ok(Self { work: WorkDir::create(scratch, WORK_PREFIX)?, created, store })
    }

    fn open_slot(&self, table: &str, slot: u64) -> Result<Store> {
        self.store.open_or_create_dir(table)?.open_or_create_dir(&slot_dir(slot))
    }

    /// Finds the leftovers of an earlier run. If that run had published all of its tables, removes its
    /// journal, and returns nothing.
    fn find_unfinished(&self, slot: u64, progress: &dyn Progress) -> Result<UnfinishedExport> {
        let name = journal_name(slot);
        let Some(journal) = self.store.get_small_file(&name, MANIFEST_BYTES_MAX, progress)? else {
            return Ok(UnfinishedExport::default());
        };
        let ExportJournal { tables, .. } = serde_json::from_slice(&journal.bytes).unwrap_or_default();
        let mut is_published = !tables.is_empty();
        for table in &tables {
            let has_manifest = match self.store.open_dir(table)? {
                Some(table) => table.stat(&manifest_name(slot), progress)?.is_some(),
                None => false,
            };
            is_published &= has_manifest;
        }
        if is_published {
            self.store.delete(&name, progress)?;
            return Ok(UnfinishedExport::default());
        }
        Ok(UnfinishedExport { journal: Some(journal), tables })
    }

    /// Refuses tables that the output already has, and changes that do not follow its latest state. Ignores
    /// the leftovers of an unfinished export, and returns them.
    pub fn check_new_tables(
        &self,
        ours: &Value,
        tables: &[Table],
        progress: &dyn Progress,
    ) -> Result<UnfinishedExport> {
        progress.check()?;
        let slot = ours["slot"].as_u64().unwrap_or_default();
        let unfinished = self.find_unfinished(slot, progress)?;
        for table in tables {
            let store = self.store.open_dir(table.name())?;
            order::check_order(ours, store.as_ref().unwrap_or(&self.store), progress)?;
            if unfinished.tables.iter().any(|name| name == table.name()) {
                continue;
            }
            let Some(store) = store else { continue };
            let manifest = manifest_name(slot);
            if store.stat(&manifest, progress)?.is_some() {
                return Err(exists_error(&store.location_of(&manifest)));
            }
            let files = store.open_dir(&slot_dir(slot))?;
            if let Some(files) = files.filter(|files| files.list(progress).is_ok_and(|list| !list.is_empty())) {
                return Err(exists_error(&files.location_of("")));
            }
        }
        Ok(unfinished)
    }

    /// Gives all files their final names. Returns the paths or URLs of the manifests.
    pub fn publish(
        mut self,
        manifest: &Manifest,
        written: &[TableFields],
        progress: &dyn Progress,
    ) -> Result<Vec<String>> {
        panic_point("export publisher");
        let new_tables: Vec<Table> = written.iter().map(|fields| fields.table).collect();
        let unfinished = self.check_new_tables(&manifest.to_value(), &new_tables, progress)?;
        let mut tables = unfinished.tables.clone();
        tables.extend(new_tables.iter().map(|table| table.name().to_string()));
        tables.sort_unstable();
        tables.dedup();
        let run = random_name("").to_string_lossy().into_owned();
        let journal = text::json(&ExportJournal { run, tables }) + "\n";
        let name = journal_name(manifest.slot);
        let run = PublishingRun { output: &self, manifest, tables: written, journal };
        let text = run.journal.as_bytes();
        let condition = if_unchanged(&unfinished.journal);
        let put = self.store.put_small_file(&name, text, &Attributes::new(), &condition, progress);
        let published = put.and_then(|put| match put {
            PutOutcome::Refused => Err(self.taken_over_error(manifest.slot)),
            PutOutcome::Done => run.publish(&unfinished, progress),
        });
        if published.is_err() {
            // If this fails too, the next run removes the files.
            let _ = run.remove_published(&NoProgress);
        } else {
            self.created.keep();
        }
        published
    }

    fn taken_over_error(&self, slot: u64) -> Error {
        let name = self.store.location_of(&journal_name(slot));
        Error::failed(format!("{name} no longer belongs to this run: another run exports this slot to the same place"))
            .with_hint("let one run end before the next begins, or use a different place for each")
    }

    /// Removes a slot from a table: the manifest, then the files with these names.
    fn remove(&self, table: &str, slot: u64, names: &[&str], progress: &dyn Progress) -> Result<()> {
        let Some(store) = self.store.open_dir(table)? else { return Ok(()) };
        store.delete(&manifest_name(slot), progress)?;
        let partition = slot_dir(slot);
        if let Some(files) = store.open_dir(&partition)? {
            for name in names {
                files.delete(name, progress)?;
            }
        }
        // These calls fail if the directories contain other files, which must stay.
        let _ = store.dir().map(|dir| dir.remove_dir(&partition));
        let _ = self.store.dir().map(|dir| dir.remove_dir(table));
        Ok(())
    }
}

struct PublishingRun<'a> {
    output: &'a ExportOutput,
    manifest: &'a Manifest,
    tables: &'a [TableFields],
    journal: String,
}

impl PublishingRun<'_> {
    fn check_journal(&self, progress: &dyn Progress) -> Result<()> {
        let store = &self.output.store;
        let slot = self.manifest.slot;
        let journal = store.get_small_file(&journal_name(slot), MANIFEST_BYTES_MAX, progress)?;
        let is_ours = journal.is_some_and(|journal| journal.bytes == self.journal.as_bytes());
        if is_ours { Ok(()) } else { Err(self.output.taken_over_error(slot)) }
    }

    fn publish(&self, unfinished: &UnfinishedExport, progress: &dyn Progress) -> Result<Vec<String>> {
        let output = self.output;
        let slot = self.manifest.slot;
        for table in &unfinished.tables {
            let files = output.open_slot(table, slot)?;
            let listed = files.list(progress)?;
            let mut names: Vec<&str> = listed.iter().map(|object| &*object.name).collect();
            names.retain(|name| is_export_name(name));
            output.remove(table, slot, &names, progress)?;
        }
        if unfinished.journal.is_some() {
            let location = output.store.location_of("");
            progress.warn(&format!("{location}: removed the files of an unfinished export of slot {slot}"));
        }
        let all_bytes = self.tables.iter().map(|fields| fields.bytes).sum();
        progress.stage(Stage::Sending, Some(all_bytes));
        for fields in self.tables {
            let files = output.open_slot(fields.table.name(), slot)?;
            if !files.list(progress)?.is_empty() {
                return Err(exists_error(&files.location_of("")));
            }
            for file in &fields.files {
                self.check_journal(progress)?;
                self.send(&files, file, progress)?;
            }
            if let Some(dir) = files.dir() {
                dir.sync()?;
            }
        }
        for fields in self.tables {
            self.check_sent(fields, progress)?;
        }
        self.check_journal(progress)?;
        let mut published = Vec::new();
        for fields in self.tables {
            let store = output.store.open_or_create_dir(fields.table.name())?;
            let name = manifest_name(slot);
            let text = self.manifest.table_json(fields);
            let put = store.put_small_file(&name, text.as_bytes(), &Attributes::new(), &Condition::Absent, progress)?;
            if put == PutOutcome::Refused {
                return Err(exists_error(&store.location_of(&name)));
            }
            // In the meantime, another run may have published the manifest of a different slot.
            order::check_order(&self.manifest.to_value(), &store, progress)?;
            published.push(store.location_of(&name));
        }
        // If this fails, a later run removes the journal.
        let _ = output.store.delete(&journal_name(slot), progress);
        Ok(published)
    }

    /// Removes all published files, and the journal last. Deletes files by name, because listing them may
    /// be the request that fails.
    fn remove_published(&self, progress: &dyn Progress) -> Result<()> {
        let output = self.output;
        let slot = self.manifest.slot;
        self.check_journal(progress)?;
        for fields in self.tables {
            let store = output.store.open_or_create_dir(fields.table.name())?;
            let file = store.get_small_file(&manifest_name(slot), MANIFEST_BYTES_MAX, progress)?;
            if file.is_none_or(|file| file.bytes == self.manifest.table_json(fields).as_bytes()) {
                let names: Vec<&str> = fields.files.iter().map(file_name).collect();
                output.remove(fields.table.name(), slot, &names, progress)?;
            }
        }
        output.store.delete(&journal_name(slot), progress)
    }

    fn send(&self, store: &Store, file: &ExportedFile, progress: &dyn Progress) -> Result<()> {
        let work = self.output.work.dir();
        let path = work.path_of(&file.part);
        let name = file_name(file);
        if let Some(dir) = store.dir() {
            let stat = work.stat_entry(&file.part)?;
            let stat = stat.ok_or_else(|| changed_error(&path))?;
            return work.move_checked(&file.part, &stat, dir, name);
        }
        let headers = Attributes::from_iter([(Attribute::ContentType, "application/octet-stream")]);
        let replace = false;
        let mut upload = store.upload(name, &headers, file.bytes, replace, progress)?;
        let mut source = work.open_file(&file.part)?;
        let mut buffer = vec![0; 1 << 20];
        loop {
            let count = source.read(&mut buffer).or_path("read", &path)?;
            if count == 0 {
                return upload.finish(progress);
            }
            upload.write(buffer.get(..count).unwrap_or_default(), progress)?;
            progress.advance(count as u64, 0);
        }
    }

    /// Fails unless the output lists exactly the files of a table that were sent.
    fn check_sent(&self, fields: &TableFields, progress: &dyn Progress) -> Result<()> {
        let slot = self.manifest.slot;
        let files = self.output.open_slot(fields.table.name(), slot)?;
        let listed = files.list(progress)?;
        let listed = BTreeMap::from_iter(listed.iter().map(|object| (&*object.name, object.length_bytes)));
        let sent = BTreeMap::from_iter(fields.files.iter().map(|file| (file_name(file), file.bytes)));
        if listed == sent {
            return Ok(());
        }
        let message = format!("{} does not have the files that were sent there", files.location_of(""));
        Err(Error::failed(message).with_hint("check the store's own log, and whether another program writes there"))
    }
}
