//! Publishes tables in a store. A journal beside the manifest marks an unfinished export, and names
//! its run. The next run, on whichever machine, replaces this journal and removes what the earlier
//! run sent. The earlier run ends once it finds that its journal was replaced, and removes nothing.

use std::collections::BTreeMap;
use std::io::Read;
use std::path::Path;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use slotpress_base::{Error, IoContext, NoProgress, Progress, Result, random_name, text};
use slotpress_read::WorkDir;
use slotpress_stores::{Attribute, Attributes, Condition, Put, Small, Store};

use super::added::{MANIFEST_BYTES_MAX, added, slot_of, tables_of};
use super::parts::ExportedFile;
use super::place::{exists, manifest_name, partition, tell_taken_back};
use super::{Manifest, TableFields, chain};

/// Journal of an unfinished export. A run writes it before its first file, and removes it after its
/// manifest. Files of a table are those of the manifest if it lists the table, else of the journal.
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
    /// The journal of an earlier run, and ours, which names the tables of both.
    left: Option<Small>,
    journal: String,
    /// The manifest that is there, and the one with our tables.
    there: Option<Small>,
    whole: String,
}

/// Sends all files, the manifest last. Returns the URL of the manifest.
pub fn publish(store: &Store, work: &WorkDir, manifest: &Manifest, progress: &dyn Progress) -> Result<String> {
    let ours = manifest.to_value();
    let Free { there, whole, left } = look(store, &ours, progress)?;
    let whole = text::json(&whole) + "\n";
    let tables = tables_of(&ours).map(str::to_string).chain(tables_left(&left, &ours)).collect();
    let run = random_name("").to_string_lossy().into_owned();
    let journal = text::json(&StoreJournal { run, tables }) + "\n";
    let sending = Sending { store, work, manifest, left, journal, there, whole };
    sending.begin(&ours, progress)?;
    let sent = sending.send_all(progress);
    if sent.is_err() {
        // If this fails too, the next run removes the files.
        let _ = sending.take_back(&NoProgress);
    }
    sent
}

fn bytes_of(small: &Option<Small>) -> Option<&[u8]> {
    small.as_ref().map(|small| &*small.bytes)
}

/// Tables of an unfinished export. Of a journal that cannot be read, they may be ours.
fn tables_left(left: &Option<Small>, ours: &Value) -> Vec<String> {
    let read = |left: &[u8]| serde_json::from_slice(left).map(|left: StoreJournal| left.tables);
    let ours = |_| tables_of(ours).map(str::to_string).collect();
    bytes_of(left).map_or_else(Vec::new, |left| read(left).unwrap_or_else(ours))
}

/// Condition for replacing a file: it is still this one.
fn unchanged(small: &Option<Small>) -> Condition {
    let Some(small) = small else { return Condition::Absent };
    small.e_tag.clone().map_or(Condition::Always, Condition::Unchanged)
}

impl Sending<'_> {
    /// Writes the journal. Takes over from an unfinished run: replaces its journal, and removes
    /// what it sent.
    fn begin(&self, ours: &Value, progress: &dyn Progress) -> Result<()> {
        let (store, slot, journal) = (self.store, self.manifest.slot, self.journal.as_bytes());
        let name = journal_name(slot);
        if store.put_small(&name, journal, &Attributes::new(), &unchanged(&self.left), progress)? == Put::Refused {
            return Err(self.taken_over());
        }
        let there = store.get_small(&manifest_name(slot), MANIFEST_BYTES_MAX, progress)?;
        if bytes_of(&there) != bytes_of(&self.there) {
            return Err(self.taken_over());
        }
        let there: Value = bytes_of(&there).and_then(|there| serde_json::from_slice(there).ok()).unwrap_or_default();
        let mut left = tables_left(&self.left, ours);
        left.retain(|table| !tables_of(&there).any(|it| it == table));
        if !left.is_empty() {
            remove_listed(store, slot, &left, progress)?;
            tell_taken_back(slot, &store.shown(""), progress);
        }
        Ok(())
    }

    fn taken_over(&self) -> Error {
        let name = self.store.shown(&journal_name(self.manifest.slot));
        Error::failed(format!("{name} is not of this run any more: another export of this slot goes there"))
            .with_hint("let one end before the next one begins, or give each its own place")
    }

    /// Fails if another run has taken over from this one.
    fn check_ours(&self, progress: &dyn Progress) -> Result<()> {
        let there = self.store.get_small(&journal_name(self.manifest.slot), MANIFEST_BYTES_MAX, progress)?;
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
        let (name, whole) = (manifest_name(slot), self.whole.as_bytes());
        if store.put_small(&name, whole, &Attributes::new(), &unchanged(&self.there), progress)? == Put::Refused {
            return Err(exists(Path::new(&store.shown(&name))));
        }
        // Another run may have put the manifest of another slot there meanwhile.
        check_chain(store, &self.manifest.to_value(), progress)?;
        // If this fails, a later run removes it.
        let _ = store.delete(&journal_name(slot), progress);
        Ok(store.shown(&name))
    }

    /// Removes all files that were sent, and the journal last.
    fn take_back(&self, progress: &dyn Progress) -> Result<()> {
        let (store, slot) = (self.store, self.manifest.slot);
        self.check_ours(progress)?;
        let name = manifest_name(slot);
        let now = store.get_small(&name, MANIFEST_BYTES_MAX, progress)?;
        match bytes_of(&self.there) {
            _ if bytes_of(&now) != Some(self.whole.as_bytes()) => {}
            Some(old) => drop(store.put_small(&name, old, &Attributes::new(), &unchanged(&now), progress)?),
            None => store.delete(&name, progress)?,
        }
        for TableFields { table, files, .. } in &self.manifest.tables {
            let below = below(store, table.name(), slot)?;
            // Deletes the files by name: listing may be the request that the store fails at.
            files.iter().try_for_each(|file| below.delete(name_of(file), progress))?;
        }
        store.delete(&journal_name(slot), progress)
    }

    fn send(&self, to: &Store, file: &ExportedFile, progress: &dyn Progress) -> Result<()> {
        let headers = Attributes::from_iter([(Attribute::ContentType, "application/octet-stream")]);
        let mut upload = to.upload(name_of(file), &headers, file.bytes, false, progress)?;
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
        upload.finish(progress)
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

/// Removes the journal of a complete export: of one whose tables are all in the manifest. Errors are
/// ignored: a later run removes it.
pub fn forget(store: &Store, slot: u64, progress: &dyn Progress) {
    let read = |name: String| store.get_small(&name, MANIFEST_BYTES_MAX, progress).ok().flatten();
    let (Some(there), Some(left)) = (read(manifest_name(slot)), read(journal_name(slot))) else { return };
    let there: Value = serde_json::from_slice(&there.bytes).unwrap_or_default();
    let is_there = |table: &String| tables_of(&there).any(|it| it == table);
    if serde_json::from_slice(&left.bytes).is_ok_and(|left: StoreJournal| left.tables.iter().all(is_there)) {
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

/// Refuses tables if the store has them already, or others that these cannot be added to. Allows an
/// unfinished export, which a run would take over.
pub fn check_free(store: &Store, ours: &Value, progress: &dyn Progress) -> Result<()> {
    look(store, ours, progress).map(drop)
}

/// What a store has of a slot, where tables can be added.
struct Free {
    /// The manifest that is there, and the one with our tables.
    there: Option<Small>,
    whole: Value,
    /// The journal of an earlier run.
    left: Option<Small>,
}

/// See [`check_free`].
fn look(store: &Store, ours: &Value, progress: &dyn Progress) -> Result<Free> {
    let (slot, name) = (slot_of(ours), manifest_name(slot_of(ours)));
    let there = store.get_small(&name, MANIFEST_BYTES_MAX, progress)?;
    let whole = added(bytes_of(&there), ours, Path::new(&store.shown(&name)))?;
    check_chain(store, ours, progress)?;
    let left = store.get_small(&journal_name(slot), MANIFEST_BYTES_MAX, progress)?;
    let of_left = tables_left(&left, ours);
    for table in tables_of(ours).filter(|table| !of_left.iter().any(|left| left == table)) {
        let below = below(store, table, slot)?;
        if !below.list(progress)?.is_empty() {
            return Err(exists(Path::new(&below.shown(""))));
        }
    }
    Ok(Free { there, whole, left })
}

fn check_chain(store: &Store, ours: &Value, progress: &dyn Progress) -> Result<()> {
    let names = store.list(progress)?.into_iter().map(|object| object.name);
    let read = |name: &str| Ok(store.get_small(name, MANIFEST_BYTES_MAX, progress)?.map(|small| small.bytes));
    chain::check(ours, names, read, &store.shown(""))
}

fn below(store: &Store, table: &str, slot: u64) -> Result<Store> {
    let none = || Error::failed(format!("{} has no place for the table {table}", store.shown("")));
    let of_table = store.below(table, true)?.ok_or_else(none)?;
    of_table.below(&partition(slot), true)?.ok_or_else(none)
}
