//! The index of a target lists its archives. `latest.json` names the newest full archive and the newest
//! incremental archive on it, and is written last. An archive is listed only after it was checked, and
//! once its file is complete under its final name.

use std::convert::identity;
use std::time::{Duration, SystemTime};

use serde::Serialize;
use slotpress_base::clock;
use slotpress_base::progress::wait;
use slotpress_base::text::json;
use slotpress_base::{Error, ErrorKind, Progress, Result};
use slotpress_format::{ArchiveName, EpochSchedule, LATEST_JSON, LISTING_PATH, SlotTime, SlotTimeSource};
use slotpress_read::{
    ArchiveFields, Catalog, Keep, LIST_BYTES_MAX, ListFields, ListedArchive, StateCheck, parse_list, plan_prune,
    unix_ns,
};
use slotpress_stores::{Attribute, Attributes, Condition, PutOutcome, Store};

use crate::publish::report::event::state_check_of;

const INDEX_NAME: &str = "archives";

/// Maximum number of attempts to write an index that other publishers keep changing. If so many attempts
/// fail, other publishers are not the reason.
const ATTEMPTS_MAX: u32 = 16;
const ATTEMPT_PAUSE: Duration = Duration::from_millis(20);

/// Cache-Control header of the index and of `latest.json`: readers may reuse them for 5 seconds.
const CACHE_CONTROL: &str = "public, max-age=5";

#[derive(Clone, Debug)]
pub struct IndexedStore {
    pub store: Store,
    /// Directory of the index. The index has the same path as the list of `slotpress serve`, so the same
    /// programs can read both.
    index_dir: Store,
}

#[derive(Clone, Debug)]
pub struct PreparedArchive {
    pub archive: ListedArchive,
    /// Duration of slots in the newest full archive that is ready, or in the newest archive if none of
    /// them is full.
    pub slot_time: SlotTime,
    pub epoch_schedule: Option<EpochSchedule>,
}

#[derive(Clone, Copy, Debug)]
pub enum IndexChange<'a> {
    /// Prunes, and repairs `latest.json` if a killed run has not updated it after the index.
    Repair,
    /// Prunes what will not be kept once this archive is published, except the newest pair.
    MakeRoom(&'a PreparedArchive),
    /// Adds an archive whose file is already on the target to the index. Updates `latest.json`.
    Add(&'a PreparedArchive),
}

/// An index that was read from a target.
#[derive(Debug)]
pub struct TargetIndex {
    pub catalog: Catalog,
    /// Permits replacing the index only if no other program has changed it since.
    condition: Condition,
}

impl TargetIndex {
    /// Returns a catalog of these archives, with the durations of slots and epochs of this index.
    fn catalog_of(&self, archives: impl IntoIterator<Item = ListedArchive>) -> Catalog {
        let mut catalog = Catalog::new(archives);
        (catalog.slot_time, catalog.epoch_schedule) = (self.catalog.slot_time, self.catalog.epoch_schedule);
        catalog
    }

    fn add(&mut self, ready: &PreparedArchive, now: SystemTime) {
        let archive = &ready.archive;
        if self.catalog.find(&archive.name.to_string()).is_some() {
            return;
        }
        let listed = ListedArchive {
            modified_ns: unix_ns(now),
            bank_unix_seconds: archive.bank_unix_seconds,
            hashes: archive.hashes,
            ..ListedArchive::new(archive.name.clone(), "", archive.size_bytes)
        };
        self.catalog = self.catalog_of(self.catalog.archives().iter().cloned().chain([listed]));
        // The index keeps the durations of slots and epochs of the full archive that was added last.
        if archive.is_full() || self.catalog.slot_time.source() == SlotTimeSource::Assumed {
            self.catalog.slot_time = ready.slot_time;
            self.catalog.epoch_schedule = ready.epoch_schedule.or(self.catalog.epoch_schedule);
        }
    }

    /// Removes the archives that `keep` does not retain once `next` is added, and returns their names.
    /// Never removes the newest pair.
    fn prune(&mut self, keep: &Keep, next: Option<&PreparedArchive>, now: SystemTime) -> Vec<String> {
        let newest_pair = self.newest_pair();
        let mut archives = self.catalog.archives().to_vec();
        for archive in &mut archives {
            // A time in the future was written before the clock jumped back. Treat the archive as old.
            if archive.modified_ns > unix_ns(now) {
                archive.modified_ns = 0;
            }
        }
        let mut future = Self { catalog: self.catalog_of(archives), condition: Condition::Always };
        if let Some(ready) = next {
            future.add(ready, now);
        }
        let plan = plan_prune(&future.catalog, keep, now);
        let mut kept = Vec::new();
        let mut pruned = Vec::new();
        for archive in self.catalog.archives() {
            let decision = plan.iter().find(|decision| decision.archive.name == archive.name);
            let keep_reason = decision.and_then(|decision| decision.keep_reason);
            if keep_reason.is_some() || newest_pair.contains(archive) {
                kept.push(ListedArchive { keep_reason, ..archive.clone() });
            } else {
                pruned.push(archive.name.to_string());
            }
        }
        self.catalog = self.catalog_of(kept);
        pruned
    }

    /// Returns the archives that a node would choose: a full one, and an incremental one based on it.
    fn newest_pair(&self) -> Vec<ListedArchive> {
        let mut pair = Vec::new();
        if let Some(choice) = self.catalog.choice() {
            pair.push(choice.full.clone());
            pair.extend(choice.incremental.cloned());
        }
        pair
    }

    /// Returns a list of archives in JSON. `adapt` changes their fields to suit the document's location.
    fn list_json(&self, catalog: &Catalog, adapt: fn(ArchiveFields) -> ArchiveFields, now: SystemTime) -> String {
        json(&ListFields::new(catalog, now, |archive| {
            let fields = adapt(ArchiveFields::new(archive, &self.catalog, now).without_age());
            PublishedFields { fields, state: state_check_of(archive) }
        }))
    }
}

#[derive(Serialize)]
struct PublishedFields {
    #[serde(flatten)]
    fields: ArchiveFields,
    state: StateCheck,
}

fn index_dir_names() -> impl Iterator<Item = &'static str> {
    let dirs = LISTING_PATH.trim_end_matches(INDEX_NAME);
    dirs.split('/').filter(|name| !name.is_empty())
}

impl IndexedStore {
    /// Opens the index of a target. Returns `None` if its directory is missing.
    pub fn open(store: &Store) -> Result<Option<Self>> {
        let mut index_dir = store.clone();
        for name in index_dir_names() {
            let Some(dir) = index_dir.open_dir(name)? else { return Ok(None) };
            index_dir = dir;
        }
        Ok(Some(Self { store: store.clone(), index_dir }))
    }

    pub fn open_or_create(store: &Store) -> Result<Self> {
        let mut index_dir = store.clone();
        for name in index_dir_names() {
            index_dir = index_dir.open_or_create_dir(name)?;
        }
        Ok(Self { store: store.clone(), index_dir })
    }

    /// Reads the index; a missing index is an empty one. Fails if the target does not answer, or if the
    /// file is not an index.
    pub fn read(&self, progress: &dyn Progress) -> Result<TargetIndex> {
        let Some(file) = self.index_dir.get_small_file(INDEX_NAME, LIST_BYTES_MAX, progress)? else {
            return Ok(TargetIndex { catalog: Catalog::default(), condition: Condition::Absent });
        };
        let catalog = parse_list(&file.bytes, "").ok_or_else(|| {
            Error::failed(format!("{} is not an index of archives", self.index_dir.location_of(INDEX_NAME)))
                .with_hint("choose another target: another program writes to this one")
        })?;
        Ok(TargetIndex { catalog, condition: if_unchanged(file.etag) })
    }

    /// Changes the index and `latest.json`, and removes archives that `keep` does not retain from the
    /// index. Passes their names to `on_prune` before readers can see the change. Fails if `on_prune` or
    /// the target fails, or if other programs keep changing the documents.
    pub fn update(
        &self,
        change: IndexChange<'_>,
        keep: &Keep,
        on_prune: &mut dyn FnMut(Vec<String>) -> Result<()>,
        progress: &dyn Progress,
    ) -> Result<TargetIndex> {
        for attempt in 0..ATTEMPTS_MAX {
            wait(progress, ATTEMPT_PAUSE * attempt);
            progress.check()?;
            // Read `latest.json` before the index: if another program changes both between these reads,
            // `latest.json` is not replaced, and the next attempt reads both again.
            let latest = self.store.get_small_file(LATEST_JSON, LIST_BYTES_MAX, progress)?;
            let latest_catalog = latest.as_ref().and_then(|latest| parse_list(&latest.bytes, "")).unwrap_or_default();
            let latest_condition = latest.map_or(Condition::Absent, |latest| if_unchanged(latest.etag));
            let mut index = self.read(progress)?;
            let now = clock::now();
            let next = match change {
                IndexChange::MakeRoom(ready) => Some(ready),
                IndexChange::Add(ready) => {
                    index.add(ready, now);
                    None
                }
                IndexChange::Repair => None,
            };
            let pruned = index.prune(keep, next, now);
            let is_latest_correct = names_of(latest_catalog.archives()) == names_of(&index.newest_pair());
            if !matches!(change, IndexChange::Add(_)) && pruned.is_empty() && is_latest_correct {
                return Ok(index);
            }
            if !pruned.is_empty() {
                on_prune(pruned)?;
            }
            let json = index.list_json(&index.catalog, ArchiveFields::with_path_from_list, now);
            if !put_document(&self.index_dir, INDEX_NAME, &json, &index.condition, progress)? {
                continue;
            }
            // Without a full archive, no node could boot, so `latest.json` is not written.
            let newest = index.catalog_of(index.newest_pair());
            if newest.archives().is_empty() {
                return Ok(index);
            }
            let json = index.list_json(&newest, identity, now);
            if put_document(&self.store, LATEST_JSON, &json, &latest_condition, progress)? {
                return Ok(index);
            }
        }
        let location = self.index_dir.location_of(INDEX_NAME);
        let message = format!(
            "{location} was changed between reading and writing, {ATTEMPTS_MAX} times: other programs write it, or \
             the store returns old versions"
        );
        Err(Error::new(ErrorKind::Network, message)
            .with_hint("check which programs write there, and the store's own log"))
    }

    /// Deletes an archive. Returns false if the index lists it, or if the name is not an archive's.
    pub fn delete(&self, index: &TargetIndex, name: &str, progress: &dyn Progress) -> Result<bool> {
        match ArchiveName::parse(name) {
            Some(_) if index.catalog.find(name).is_none() => self.store.delete(name, progress).map(|()| true),
            _ => Ok(false),
        }
    }
}

/// Writes a document. Returns false if another program has changed it since it was read.
fn put_document(store: &Store, name: &str, json: &str, condition: &Condition, progress: &dyn Progress) -> Result<bool> {
    let headers =
        Attributes::from_iter([(Attribute::ContentType, "application/json"), (Attribute::CacheControl, CACHE_CONTROL)]);
    let put = store.put_small_file(name, json.as_bytes(), &headers, condition, progress)?;
    Ok(put != PutOutcome::Refused)
}

fn names_of(archives: &[ListedArchive]) -> Vec<&ArchiveName> {
    archives.iter().map(|archive| &archive.name).collect()
}

fn if_unchanged(etag: Option<String>) -> Condition {
    etag.map_or(Condition::Always, Condition::Unchanged)
}
