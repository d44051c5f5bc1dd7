//! The index of a target: archives under names that never change, the list of them, and `latest.json`, which is written last.
//! What it names is whole, and was checked.

use std::time::{Duration, SystemTime};

use serde::Serialize;
use slotpress_base::progress::wait;
use slotpress_base::text::json;
use slotpress_base::{Error, ErrorKind, Progress, Result};
use slotpress_format::{ArchiveName, FrameHashesAt, LATEST, PATH, SlotTime, SlotTimeSource};
use slotpress_read::catalog::Archive;
use slotpress_read::catalog::listed::parse;
use slotpress_read::catalog::prune::plan;
use slotpress_read::{ArchiveFields, Catalog, Keep, ListFields, Listed, ListedArchive, unix_ns};
use slotpress_stores::{Condition, Metadata, Put, Store};

use super::journal::StateCheck;
use super::plan::ArchiveSet;

/// What a program reads: the end of the path where `serve` has its list.
const INDEX: &str = "archives";

/// Others that publish to the same target make an index anew at the same moment; so often, something is wrong.
const ATTEMPTS_MAX: u32 = 16;
const ATTEMPTS_APART: Duration = Duration::from_millis(20);

/// The longest index: of some ten thousand archives.
const INDEX_BYTES_MAX: u64 = 8 << 20;

/// How long readers may take the index for new.
const INDEX_CACHE: &str = "public, max-age=5";

/// A directory or prefix of a target, with its index.
#[derive(Clone, Debug)]
pub struct IndexedStore {
    /// Where archives are, and `latest.json`.
    pub store: Store,
    /// Where the index is: where `serve` has its list, so that what reads that reads this.
    index: Store,
}

/// An archive that is ready, and how it was checked.
#[derive(Clone, Debug)]
pub struct Ready {
    /// The file.
    pub archive: Archive,
    /// How its state was checked.
    pub state: StateCheck,
    /// How long slots take, where it tells.
    pub slot_time: SlotTime,
}

/// What is done to an index.
#[derive(Clone, Copy, Debug)]
pub enum Step<'a> {
    /// It and `latest.json` are made to agree again, as a run that was killed between them has left them.
    Agree,
    /// What may go once this archive is there goes now, but what a reader is told to take.
    MakeRoom(&'a Ready),
    /// An archive that is there is named, also in `latest.json` if it is part of the newest pair.
    Add(&'a Ready),
}

/// What an index holds.
#[derive(Debug)]
pub struct Index {
    listed: Listed,
    condition: Condition,
}

/// The newest archives of an index.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Newest {
    /// The newest full archive.
    pub full: Option<PublishedSlot>,
    /// The newest incremental archive.
    pub incremental: Option<PublishedSlot>,
}

/// An archive of an index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PublishedSlot {
    /// Its slot.
    pub slot: u64,
    /// When it was published.
    pub at: SystemTime,
}

impl Newest {
    /// The newest of both kinds.
    pub fn of_all(&self) -> Option<PublishedSlot> {
        [self.full, self.incremental].into_iter().flatten().max_by_key(|newest| newest.slot)
    }
}

impl Index {
    fn archives(&self) -> std::slice::Iter<'_, ListedArchive> {
        self.listed.archives.iter()
    }

    /// What it has, for the plan.
    pub fn published(&self) -> ArchiveSet {
        ArchiveSet::of(self.archives().map(|archive| &archive.name))
    }

    /// Bytes of all archives.
    pub fn bytes(&self) -> u64 {
        self.archives().filter_map(|archive| archive.size_bytes).fold(0, u64::saturating_add)
    }

    /// The newest of each kind.
    pub fn newest(&self) -> Newest {
        let of = |is_full: bool| {
            let all = self.archives().filter(|archive| archive.name.base_slot.is_none() == is_full);
            let newest = all.max_by_key(|archive| archive.name.slot)?;
            let since = Duration::from_secs(newest.modified_unix_seconds.unwrap_or_default());
            let at = SystemTime::UNIX_EPOCH.checked_add(since).unwrap_or(SystemTime::UNIX_EPOCH);
            Some(PublishedSlot { slot: newest.name.slot, at })
        };
        Newest { full: of(true), incremental: of(false) }
    }

    fn has(&self, name: &ArchiveName) -> bool {
        self.archives().any(|archive| archive.name == *name)
    }

    fn add(&mut self, ready: &Ready, now: SystemTime) {
        let archive = &ready.archive;
        if self.has(&archive.name) {
            return;
        }
        // By the newest full archive, as everywhere.
        if archive.is_full() || self.listed.slot_time.source() == SlotTimeSource::Assumed {
            self.listed.slot_time = ready.slot_time;
        }
        self.listed.archives.push(ListedArchive {
            name: archive.name.clone(),
            size_bytes: Some(archive.size_bytes),
            age_seconds: None,
            modified_unix_seconds: Some(unix_ns(now) / 1_000_000_000),
            state: Some(ready.state.as_str().to_string()),
            root: archive.hashes.map(|hashes| hashes.root),
            frame_hashes: archive
                .hashes
                .map(|hashes| FrameHashesAt { offset_bytes: hashes.offset_bytes, frames: hashes.frames }),
        });
    }

    fn catalog(&self, now: SystemTime) -> Catalog {
        Catalog::of_listing(self.listed.clone(), "", unix_ns(now))
    }

    /// Takes out what may go, also once another archive is there, and returns it.
    fn prune(&mut self, keep: &Keep, coming: Option<&Ready>, now: SystemTime) -> Vec<String> {
        let mut later = Self { listed: self.listed.clone(), condition: Condition::Always };
        coming.into_iter().for_each(|ready| later.add(ready, now));
        let (catalog, stays) = (later.catalog(now), self.newest_pair(now));
        let reasons = plan(&catalog, keep, unix_ns(now));
        let all = catalog.archives().iter().map(|archive| &archive.name).zip(reasons);
        let gone: Vec<_> = all.filter(|(name, reason)| reason.is_none() && !stays.contains(name)).collect();
        let gone = self.listed.archives.extract_if(.., |it| gone.iter().any(|(name, _)| **name == it.name));
        gone.map(|archive| archive.name.to_string()).collect()
    }

    /// What a node would choose, in order.
    fn newest_pair(&self, now: SystemTime) -> Vec<ArchiveName> {
        let catalog = self.catalog(now);
        let Some(choice) = catalog.choice() else { return Vec::new() };
        [choice.full].into_iter().chain(choice.incremental).map(|archive| archive.name.clone()).collect()
    }

    /// The index, and `latest.json` where there is a full archive.
    fn json(&self, now: SystemTime) -> (String, Option<String>) {
        let catalog = self.catalog(now);
        let fields = |archive: &Archive, is_latest: bool| {
            let fields = ArchiveFields::new(archive, &catalog, now).without_age();
            let listed = self.archives().find(|listed| listed.name == archive.name);
            PublishedFields {
                fields: if is_latest { fields } else { fields.in_list() },
                state: listed.and_then(|listed| listed.state.as_deref()),
            }
        };
        let text = |of: &Catalog, is_latest| json(&ListFields::new(of, now, |archive| fields(archive, is_latest)));
        let latest = catalog.choice().map(|choice| {
            let mut pair = Catalog::new([choice.full].into_iter().chain(choice.incremental).cloned());
            pair.slot_time = catalog.slot_time;
            text(&pair, true)
        });
        (text(&catalog, false), latest)
    }
}

#[derive(Serialize)]
struct PublishedFields<'a> {
    #[serde(flatten)]
    fields: ArchiveFields,
    state: Option<&'a str>,
}

impl IndexedStore {
    /// Of this directory of a target, empty for itself; `None` where `makes` says not to make what is missing below a directory.
    ///
    /// # Errors
    /// Something else has the name of a directory of it; the disk fails.
    pub fn of(target: &Store, dir: &str, makes: bool) -> Result<Option<Self>> {
        let below = |from: &Store, names: &str| {
            let mut names = names.split('/').filter(|name| !name.is_empty());
            names.try_fold(Some(from.clone()), |at, name| at.map_or(Ok(None), |at| at.below(name, makes)))
        };
        let Some(store) = below(target, dir)? else { return Ok(None) };
        Ok(below(&store, PATH.trim_end_matches(INDEX))?.map(|index| Self { store, index }))
    }

    /// Reads the index; none is an empty one.
    ///
    /// # Errors
    /// The target does not answer, or holds something else.
    pub fn read(&self, progress: &dyn Progress) -> Result<Index> {
        let Some(small) = self.index.get_small(INDEX, INDEX_BYTES_MAX, progress)? else {
            return Ok(Index { listed: Listed::default(), condition: Condition::Absent });
        };
        let listed = parse(&small.bytes).ok_or_else(|| {
            Error::failed(format!("{} is not an index of archives", self.index.shown(INDEX)))
                .with_hint("give a target of its own; what is there was written by another program")
        })?;
        Ok(Index { listed, condition: unchanged(small.e_tag) })
    }

    /// Writes the index and `latest.json`, and reads them back. Takes out of the index what may go: `on_prune` is told what that
    /// is before a reader can miss it. Returns the index.
    ///
    /// # Errors
    /// The target fails, or does not keep what it is sent; others change the index again and again.
    pub fn publish(
        &self,
        step: Step<'_>,
        keep: Option<&Keep>,
        on_prune: &mut dyn FnMut(Vec<String>) -> Result<()>,
        progress: &dyn Progress,
    ) -> Result<Index> {
        for attempt in 0..ATTEMPTS_MAX {
            wait(progress, ATTEMPTS_APART * attempt);
            progress.check()?;
            // Before the index: who changes both in between makes the second put fail, and all is done again.
            let latest = self.store.get_small(LATEST, INDEX_BYTES_MAX, progress)?;
            let named = latest.as_ref().and_then(|latest| parse(&latest.bytes)).unwrap_or_default();
            let latest_is = latest.map_or(Condition::Absent, |latest| unchanged(latest.e_tag));
            let (mut index, now) = (self.read(progress)?, SystemTime::now());
            let coming = match step {
                Step::MakeRoom(ready) => Some(ready),
                Step::Add(ready) => {
                    index.add(ready, now);
                    None
                }
                Step::Agree => None,
            };
            let gone = keep.map(|keep| index.prune(keep, coming, now)).unwrap_or_default();
            let is_right = named.archives.iter().map(|archive| &archive.name).eq(&index.newest_pair(now));
            if !matches!(step, Step::Add(_)) && gone.is_empty() && is_right {
                return Ok(index);
            }
            if !gone.is_empty() {
                on_prune(gone)?;
            }
            let (index_json, latest_json) = index.json(now);
            // Without a full archive there is nothing that a node could take.
            if put(&self.index, INDEX, &index_json, &index.condition, progress)?
                && latest_json.map_or(Ok(true), |json| put(&self.store, LATEST, &json, &latest_is, progress))?
            {
                return Ok(index);
            }
        }
        let shown = self.index.shown(INDEX);
        let message = format!("{shown}: another program changes it at the same time, again and again");
        Err(Error::new(ErrorKind::Network, message))
    }

    /// Deletes what is out of the index.
    ///
    /// # Errors
    /// The target fails.
    pub fn delete(&self, index: &Index, name: &str, progress: &dyn Progress) -> Result<()> {
        match ArchiveName::parse(name) {
            Some(archive) if !index.has(&archive) => self.store.delete(name, progress),
            _ => Ok(()),
        }
    }
}

/// Writes a document; `false` where others have changed it meanwhile: then all is done again.
fn put(store: &Store, name: &str, json: &str, condition: &Condition, progress: &dyn Progress) -> Result<bool> {
    let metadata =
        Metadata::default().content_type("application/json".to_string()).cache_control(INDEX_CACHE.to_string());
    if store.put_small(name, json.as_bytes(), &metadata, condition, progress)? == Put::Refused {
        return Ok(false);
    }
    let there = store.get_small(name, INDEX_BYTES_MAX, progress)?.ok_or_else(|| {
        let file = store.shown(name);
        Error::failed(format!("{file} is not there, though the target said that it is written")).with_hint(
            "nothing is published there: look at the store's own log, and read the file with another program",
        )
    })?;
    Ok(there.bytes == json.as_bytes())
}

fn unchanged(e_tag: Option<String>) -> Condition {
    e_tag.map_or(Condition::Always, Condition::Unchanged)
}
