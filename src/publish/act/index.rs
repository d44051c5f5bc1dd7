//! The index of a target lists its archives. `latest.json` names the newest pair of them, and is
//! written last. An archive is listed only after it is complete and checked, and its name never
//! changes.

use std::time::{Duration, SystemTime};

use serde::Serialize;
use slotpress_base::clock;
use slotpress_base::progress::wait;
use slotpress_base::text::json;
use slotpress_base::{Error, ErrorKind, Progress, Result};
use slotpress_format::{ArchiveName, EpochSchedule, LATEST_JSON, LISTING_PATH, SlotTime, SlotTimeSource};
use slotpress_read::catalog::Archive;
use slotpress_read::catalog::list_parser::{INDEX_BYTES_MAX, parse_list};
use slotpress_read::catalog::prune::plan_prune;
use slotpress_read::{ArchiveFields, Catalog, Keep, ListFields, unix_ns};
use slotpress_stores::{Attribute, Attributes, Condition, PutOutcome, Store};

use crate::publish::report::event::state_of;

/// File name of the index. The index has the same path as the list of `slotpress serve`.
const INDEX: &str = "archives";

/// Maximum number of attempts to write an index that other publishers keep changing. If all of them
/// fail, something else is wrong.
const ATTEMPTS_MAX: u32 = 16;
const ATTEMPTS_APART: Duration = Duration::from_millis(20);

/// Cache-Control header: readers may reuse the index for 5 seconds.
const INDEX_CACHE: &str = "public, max-age=5";

#[derive(Clone, Debug)]
pub struct IndexedStore {
    pub store: Store,
    /// Location of the index: the path of the list of `slotpress serve`, so that the same programs
    /// can read both.
    index: Store,
}

#[derive(Clone, Debug)]
pub struct PreparedArchive {
    pub archive: Archive,
    /// Duration of slots; known from full archives only, else assumed.
    pub slot_time: SlotTime,
    pub epoch_schedule: Option<EpochSchedule>,
}

#[derive(Clone, Copy, Debug)]
pub enum IndexStep<'a> {
    /// Prunes, and repairs `latest.json` if a killed run has left it different from the index.
    Agree,
    /// Prunes in advance what may be removed once this archive is published. Archives that
    /// `latest.json` names stay.
    MakeRoom(&'a PreparedArchive),
    /// Adds an archive whose file is on the target to the index, and to `latest.json` if it belongs
    /// to the newest pair.
    Add(&'a PreparedArchive),
}

/// Contents of an index. `condition` permits replacing it only if no other program has changed it
/// since.
#[derive(Debug)]
pub struct TargetIndex {
    pub catalog: Catalog,
    condition: Condition,
}

impl TargetIndex {
    fn with_archives(&self, archives: impl IntoIterator<Item = Archive>) -> Catalog {
        let mut catalog = Catalog::new(archives);
        (catalog.slot_time, catalog.epoch_schedule) = (self.catalog.slot_time, self.catalog.epoch_schedule);
        catalog
    }

    fn add(&mut self, ready: &PreparedArchive, now: SystemTime) {
        let archive = &ready.archive;
        if self.catalog.find(&archive.name.to_string()).is_some() {
            return;
        }
        let listed = Archive {
            modified_ns: unix_ns(now),
            bank_unix_seconds: archive.bank_unix_seconds,
            hashes: archive.hashes,
            ..Archive::new(archive.name.clone(), "", archive.size_bytes)
        };
        self.catalog = self.with_archives(self.catalog.archives().iter().cloned().chain([listed]));
        // The durations of slots and epochs are taken from the newest full archive.
        if archive.is_full() || self.catalog.slot_time.source() == SlotTimeSource::Assumed {
            self.catalog.slot_time = ready.slot_time;
            self.catalog.epoch_schedule = ready.epoch_schedule.or(self.catalog.epoch_schedule);
        }
    }

    /// Removes from the index what `keep` permits to remove once `coming` is added, and returns the
    /// names. Never removes the newest pair.
    fn prune(&mut self, keep: &Keep, coming: Option<&PreparedArchive>, now: SystemTime) -> Vec<String> {
        let archives = self.catalog.archives();
        let now_ns = unix_ns(now);
        let newest_pair = self.newest_pair();
        // A time in the future was written before the clock jumped back, so the archive counts as old.
        let past = |ns: u64| if ns > now_ns { 0 } else { ns };
        let later =
            archives.iter().map(|archive| Archive { modified_ns: past(archive.modified_ns), ..archive.clone() });
        let mut later = Self { catalog: self.with_archives(later), condition: Condition::Always };
        if let Some(ready) = coming {
            later.add(ready, now);
        }
        let reasons = plan_prune(&later.catalog, keep, now);
        let mut kept = Vec::new();
        let mut pruned = Vec::new();
        for archive in archives {
            let number = later.catalog.archives().iter().position(|other| other.name == archive.name);
            let kept_because = number.and_then(|number| reasons[number]);
            if kept_because.is_some() || newest_pair.contains(archive) {
                kept.push(Archive { kept_because, ..archive.clone() });
            } else {
                pruned.push(archive.name.to_string());
            }
        }
        self.catalog = self.with_archives(kept);
        pruned
    }

    /// Returns the pair that a node would choose: a full archive, and an incremental one based on it.
    fn newest_pair(&self) -> Vec<Archive> {
        let choice = self.catalog.choice().into_iter();
        choice.flat_map(|choice| [choice.full].into_iter().chain(choice.incremental)).cloned().collect()
    }

    fn to_json(&self, now: SystemTime) -> (String, Option<String>) {
        let fields = |archive: &Archive, is_in_list: bool| {
            let fields = ArchiveFields::new(archive, &self.catalog, now).without_age();
            PublishedFields {
                fields: if is_in_list { fields.with_path_from_list() } else { fields },
                state: state_of(archive),
            }
        };
        let all = ListFields::new(&self.catalog, now, |archive| fields(archive, true));
        let latest = self.with_archives(self.newest_pair());
        let latest_json = || json(&ListFields::new(&latest, now, |archive| fields(archive, false)));
        (json(&all), (!latest.archives().is_empty()).then(latest_json))
    }
}

#[derive(Serialize)]
struct PublishedFields {
    #[serde(flatten)]
    fields: ArchiveFields,
    state: &'static str,
}

impl IndexedStore {
    /// Opens the index of a target. Returns `None` if a directory is missing and `makes` does not
    /// allow creating it.
    pub fn open(store: &Store, makes: bool) -> Result<Option<Self>> {
        let mut names = LISTING_PATH.trim_end_matches(INDEX).split('/').filter(|name| !name.is_empty());
        let index =
            names.try_fold(Some(store.clone()), |at, name| at.map_or(Ok(None), |at| at.open_dir(name, makes)))?;
        Ok(index.map(|index| Self { store: store.clone(), index }))
    }

    /// Reads the index; a missing one is empty. Fails if the target does not answer, or the file is
    /// not an index.
    pub fn read(&self, progress: &dyn Progress) -> Result<TargetIndex> {
        let Some(small) = self.index.get_small_file(INDEX, INDEX_BYTES_MAX, progress)? else {
            return Ok(TargetIndex { catalog: Catalog::default(), condition: Condition::Absent });
        };
        let catalog = parse_list(&small.bytes, "").ok_or_else(|| {
            Error::failed(format!("{} is not an index of archives", self.index.location_of(INDEX)))
                .with_hint("choose another target: another program wrote the files there")
        })?;
        Ok(TargetIndex { catalog, condition: if_unchanged(small.etag) })
    }

    /// Changes the index and `latest.json`, and reads both back. Removes archives from the index
    /// that `keep` permits to remove; `on_prune` receives their names before readers can see the
    /// change. Fails if the target fails or does not store what it is sent, or if other programs
    /// keep changing the index.
    pub fn publish(
        &self,
        step: IndexStep<'_>,
        keep: &Keep,
        on_prune: &mut dyn FnMut(Vec<String>) -> Result<()>,
        progress: &dyn Progress,
    ) -> Result<TargetIndex> {
        for attempt in 0..ATTEMPTS_MAX {
            wait(progress, ATTEMPTS_APART * attempt);
            progress.check()?;
            // Read `latest.json` before the index: if another program changes both in between, the
            // condition for writing fails, and the attempt is repeated.
            let latest = self.store.get_small_file(LATEST_JSON, INDEX_BYTES_MAX, progress)?;
            let named = latest.as_ref().and_then(|latest| parse_list(&latest.bytes, "")).unwrap_or_default();
            let latest_is = latest.map_or(Condition::Absent, |latest| if_unchanged(latest.etag));
            let mut index = self.read(progress)?;
            let now = clock::now();
            let coming = match step {
                IndexStep::MakeRoom(ready) => Some(ready),
                IndexStep::Add(ready) => {
                    index.add(ready, now);
                    None
                }
                IndexStep::Agree => None,
            };
            let gone = index.prune(keep, coming, now);
            let names = |archives: &[Archive]| archives.iter().map(|archive| archive.name.clone()).collect::<Vec<_>>();
            let is_right = names(named.archives()) == names(&index.newest_pair());
            if !matches!(step, IndexStep::Add(_)) && gone.is_empty() && is_right {
                return Ok(index);
            }
            if !gone.is_empty() {
                on_prune(gone)?;
            }
            let (index_json, latest_json) = index.to_json(now);
            // Without a full archive there is nothing that a node could boot from, so `latest.json`
            // is not written.
            if put(&self.index, INDEX, &index_json, &index.condition, progress)?
                && latest_json.map_or(Ok(true), |json| put(&self.store, LATEST_JSON, &json, &latest_is, progress))?
            {
                return Ok(index);
            }
        }
        let shown = self.index.location_of(INDEX);
        let message = format!(
            "{shown}: what was written there is replaced again and again: another program writes it, or the store \
             keeps the old one"
        );
        Err(Error::new(ErrorKind::Network, message)
            .with_hint("let one program write there; look at the store's own log"))
    }

    /// Deletes an archive; returns false if it is in the index again, or if the name is no archive's.
    pub fn delete(&self, index: &TargetIndex, name: &str, progress: &dyn Progress) -> Result<bool> {
        match ArchiveName::parse(name) {
            Some(_) if index.catalog.find(name).is_none() => self.store.delete(name, progress).map(|()| true),
            _ => Ok(false),
        }
    }
}

/// Writes a document; returns false if another program has changed it meanwhile.
fn put(store: &Store, name: &str, json: &str, condition: &Condition, progress: &dyn Progress) -> Result<bool> {
    let headers =
        Attributes::from_iter([(Attribute::ContentType, "application/json"), (Attribute::CacheControl, INDEX_CACHE)]);
    Ok(store.put_small_file(name, json.as_bytes(), &headers, condition, progress)? != PutOutcome::Refused)
}

fn if_unchanged(etag: Option<String>) -> Condition {
    etag.map_or(Condition::Always, Condition::Unchanged)
}
