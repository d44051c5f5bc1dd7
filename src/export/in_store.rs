//! Publishes tables in a store. A journal beside the manifest marks an unfinished export, and names
//! its run. The next run, on whichever machine, replaces this journal and removes what the earlier
//! run sent. The earlier run ends once it finds that its journal was replaced, and removes nothing.

use std::collections::BTreeMap;
use std::io::Read;
use std::path::Path;

use serde::{Deserialize, Serialize};
use slotpress_base::{Error, IoContext, NoProgress, Progress, Result, random_name, text};
use slotpress_read::WorkDir;
use slotpress_stores::{Condition, Metadata, Put, Store};

use super::parts::ExportedFile;
use super::place::{exists, manifest_name, partition, tell_taken_back, text_of};
use super::table::Table;
use super::{Manifest, TableFields};

/// Limit on the size of a journal, which is read in one piece.
const SMALL_BYTES_MAX: u64 = 8 << 20;

/// Journal of an unfinished export. A run writes it before its first file, and removes it after its
/// manifest.
#[derive(Debug, Serialize, Deserialize)]
struct StoreJournal {
    /// Random name of the run.
    run: String,
    tables: Vec<String>,
}

fn journal_name(slot: u64) -> String {
    format!("_unfinished-{slot}.json")
}

/// A run that sends files to a store.
struct Sending<'a> {
    store: &'a Store,
    work: &'a WorkDir,
    manifest: &'a Manifest,
    journal: String,
}

/// Sends all files, the manifest last. Returns the URL of the manifest.
pub fn publish(store: &Store, work: &WorkDir, manifest: &Manifest, progress: &dyn Progress) -> Result<String> {
    let tables = manifest.tables.iter().map(|fields| fields.table.name().to_string()).collect();
    let run = random_name("").to_string_lossy().into_owned();
    let journal = text::json(&StoreJournal { run, tables }) + "\n";
    let sending = Sending { store, work, manifest, journal };
    sending.begin(progress)?;
    let sent = sending.send_all(progress);
    if sent.is_err() {
        // If this fails too, the next run removes the files.
        let _ = sending.take_back(&NoProgress);
    }
    sent
}

impl Sending<'_> {
    fn tables(&self) -> Vec<String> {
        self.manifest.tables.iter().map(|fields| fields.table.name().to_string()).collect()
    }

    /// Writes the journal. Takes over from an unfinished run: replaces its journal, and removes
    /// what it sent.
    fn begin(&self, progress: &dyn Progress) -> Result<()> {
        let (store, slot, name) = (self.store, self.manifest.slot, journal_name(self.manifest.slot));
        let left = store.get_small(&name, SMALL_BYTES_MAX, progress)?;
        if left.is_none() {
            let tables: Vec<Table> = self.manifest.tables.iter().map(|fields| fields.table).collect();
            check_free(store, &tables, slot, progress)?;
        }
        let condition = match &left {
            None => Condition::Absent,
            Some(left) => left.e_tag.clone().map_or(Condition::Always, Condition::Unchanged),
        };
        if store.put_small(&name, self.journal.as_bytes(), &Metadata::default(), &condition, progress)? == Put::Refused
        {
            return Err(self.taken_over());
        }
        let Some(left) = left else { return Ok(()) };
        let manifest = manifest_name(slot);
        if store.stat(&manifest, progress)?.is_some() {
            forget(store, slot, progress);
            return Err(exists(Path::new(&store.shown(&manifest))));
        }
        let tables =
            serde_json::from_slice(&left.bytes).map_or_else(|_| self.tables(), |left: StoreJournal| left.tables);
        remove_listed(store, slot, &tables, progress)?;
        tell_taken_back(slot, &store.shown(""), progress);
        Ok(())
    }

    fn taken_over(&self) -> Error {
        let name = self.store.shown(&journal_name(self.manifest.slot));
        Error::failed(format!("{name} is not of this run any more: another export of this slot goes there"))
            .with_hint("let one end before the next one begins, or give each its own place")
    }

    /// Fails if another run has taken over from this one.
    fn check_ours(&self, progress: &dyn Progress) -> Result<()> {
        let there = self.store.get_small(&journal_name(self.manifest.slot), SMALL_BYTES_MAX, progress)?;
        if there.is_some_and(|there| there.bytes == self.journal.as_bytes()) { Ok(()) } else { Err(self.taken_over()) }
    }

    fn send_all(&self, progress: &dyn Progress) -> Result<String> {
        let (store, tables, slot) = (self.store, &self.manifest.tables, self.manifest.slot);
        progress.stage("Sending", Some(tables.iter().map(|fields| fields.bytes).sum()));
        for TableFields { table, files, .. } in tables {
            let below = below(store, table.name(), slot)?;
            for file in files {
                self.check_ours(progress)?;
                self.send(&below, file, progress)?;
            }
        }
        tables.iter().try_for_each(|fields| self.check_there(fields, progress))?;
        self.check_ours(progress)?;
        let name = manifest_name(slot);
        let manifest = text_of(self.manifest);
        if store.put_small(&name, manifest.as_bytes(), &Metadata::default(), &Condition::Absent, progress)?
            == Put::Refused
        {
            return Err(exists(Path::new(&store.shown(&name))));
        }
        forget(store, slot, progress);
        Ok(store.shown(&name))
    }

    /// Removes all files that were sent, and the journal last.
    fn take_back(&self, progress: &dyn Progress) -> Result<()> {
        let (store, slot) = (self.store, self.manifest.slot);
        self.check_ours(progress)?;
        store.delete(&manifest_name(slot), progress)?;
        for TableFields { table, files, .. } in &self.manifest.tables {
            let below = below(store, table.name(), slot)?;
            // Deletes the files by name: listing may be the request that the store fails at.
            files.iter().try_for_each(|file| below.delete(name_of(file), progress))?;
        }
        store.delete(&journal_name(slot), progress)
    }

    fn send(&self, to: &Store, file: &ExportedFile, progress: &dyn Progress) -> Result<()> {
        let metadata = Metadata::default().content_type("application/octet-stream".to_string());
        let mut upload = to.upload(name_of(file), &metadata, file.bytes, false, progress)?;
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

    /// Fails if the store lists other files of a table than those that were sent.
    fn check_there(&self, fields: &TableFields, progress: &dyn Progress) -> Result<()> {
        let below = below(self.store, fields.table.name(), self.manifest.slot)?;
        let there: BTreeMap<_, _> =
            below.list(progress)?.into_iter().map(|object| (object.name, object.length_bytes)).collect();
        let sent: BTreeMap<_, _> = fields.files.iter().map(|file| (name_of(file).to_string(), file.bytes)).collect();
        match there == sent {
            true => Ok(()),
            false => Err(Error::failed(format!("{} does not have the files that were sent there", below.shown("")))
                .with_hint("look at the store's own log, and whether another program writes there")),
        }
    }
}

/// Removes the journal of a complete export. Errors are ignored: beside a manifest, a journal has
/// no meaning, and a later run removes it.
pub fn forget(store: &Store, slot: u64, progress: &dyn Progress) {
    if store.stat(&manifest_name(slot), progress).is_ok_and(|there| there.is_some()) {
        let _ = store.delete(&journal_name(slot), progress);
    }
}

fn name_of(file: &ExportedFile) -> &str {
    file.path.rsplit('/').next().unwrap_or_default()
}

fn remove_listed(store: &Store, slot: u64, tables: &[String], progress: &dyn Progress) -> Result<()> {
    for table in tables {
        let below = below(store, table, slot)?;
        for object in below.list(progress)? {
            below.delete(&object.name, progress)?;
        }
    }
    Ok(())
}

/// Refuses a slot if the store has tables of it. Allows an unfinished export, which a run would
/// take over.
pub fn check_free(store: &Store, tables: &[Table], slot: u64, progress: &dyn Progress) -> Result<()> {
    let manifest = manifest_name(slot);
    if store.stat(&manifest, progress)?.is_some() {
        return Err(exists(Path::new(&store.shown(&manifest))));
    }
    if store.stat(&journal_name(slot), progress)?.is_some() {
        return Ok(());
    }
    for table in tables {
        let below = below(store, table.name(), slot)?;
        if !below.list(progress)?.is_empty() {
            return Err(exists(Path::new(&below.shown(""))));
        }
    }
    Ok(())
}

fn below(store: &Store, table: &str, slot: u64) -> Result<Store> {
    let none = || Error::failed(format!("{} has no place for the table {table}", store.shown("")));
    let of_table = store.below(table, true)?.ok_or_else(none)?;
    of_table.below(&partition(slot), true)?.ok_or_else(none)
}
