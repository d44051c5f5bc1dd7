//! A shelf of a target: archives under names that never change, the index of them, and `latest.json`, which is written last.
//! What it names is whole, and was checked.

use {
    super::{
        journal::State,
        place::{Place, Version},
        plan::Published,
    },
    serde::Serialize,
    slotpress_base::{
        error::{Error, ErrorKind, Result},
        io::IoHint,
        progress::{Progress, wait},
    },
    slotpress_format::{
        archive::listing::{FrameHashesAt, PATH as INDEX},
        ledger::{names::ArchiveName, slot_time::SlotTime},
    },
    slotpress_read::catalog::{
        Archive, Catalog,
        listed::{Listed, ListedArchive, parse},
        listing::{ArchiveFields, ListFields, unix_ns},
        prune::{Keep, plan},
        scan::scan,
    },
    std::{
        collections::{BTreeMap, BTreeSet},
        time::{Duration, SystemTime},
    },
};

/// What a reader polls: the newest pair.
pub const LATEST: &str = "latest.json";

/// Others that publish to the same target make an index anew at the same moment; so often, something is wrong.
const ATTEMPTS_MAX: u32 = 16;
const ATTEMPTS_APART: Duration = Duration::from_millis(20);

/// A shelf.
#[derive(Clone, Copy, Debug)]
pub struct Shelf<'a> {
    /// The target.
    pub place: &'a Place,
    /// What its objects' names begin with.
    pub prefix: &'a str,
}

/// An archive that is ready, and how it was checked.
#[derive(Clone, Debug)]
pub struct Ready {
    /// The file.
    pub archive: Archive,
    /// How its state was checked.
    pub state: State,
    /// How long slots take, where it tells.
    pub slot_time: SlotTime,
}

/// What a shelf holds.
#[derive(Debug, Default)]
pub struct Index {
    listed: Listed,
    version: Option<Version>,
}

impl Index {
    /// What it has, for the plan.
    pub fn published(&self) -> Published {
        Published::of(self.listed.archives.iter().map(|archive| &archive.name))
    }

    /// Bytes of all archives.
    pub fn bytes(&self) -> u64 {
        self.listed.archives.iter().filter_map(|archive| archive.size_bytes).fold(0, u64::saturating_add)
    }

    /// The newest slot, and when it was published, in seconds since 1970.
    pub fn newest(&self) -> Option<(u64, u64)> {
        let newest = self.listed.archives.iter().max_by_key(|archive| archive.name.slot)?;
        Some((newest.name.slot, newest.modified_unix_seconds.unwrap_or_default()))
    }

    fn has(&self, name: &ArchiveName) -> bool {
        self.listed.archives.iter().any(|archive| archive.name == *name)
    }

    fn add(&mut self, ready: &Ready, now: SystemTime) {
        let archive = &ready.archive;
        if self.has(&archive.name) {
            return;
        }
        self.listed.slot_time = ready.slot_time;
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

    /// Takes out what may go, and returns it.
    fn prune(&mut self, keep: &Keep, now: SystemTime) -> Vec<String> {
        let catalog = self.catalog(now);
        let reasons = plan(&catalog, keep, unix_ns(now));
        let gone = catalog.archives().iter().zip(reasons).filter(|(_, reason)| reason.is_none());
        let gone: BTreeSet<String> = gone.map(|(archive, _)| archive.name.to_string()).collect();
        self.listed.archives.retain(|archive| !gone.contains(&archive.name.to_string()));
        gone.into_iter().collect()
    }

    fn json(&self, now: SystemTime) -> (String, String) {
        let catalog = self.catalog(now);
        let states: BTreeMap<String, Option<&str>> =
            self.listed.archives.iter().map(|it| (it.name.to_string(), it.state.as_deref())).collect();
        let fields = |archive: &Archive| PublishedFields {
            fields: ArchiveFields::new(archive, &catalog, now).without_age(),
            state: states.get(&archive.name.to_string()).copied().flatten(),
        };
        let latest = catalog.choice().map(|choice| {
            let mut pair = Catalog::new([Some(choice.full), choice.incremental].into_iter().flatten().cloned());
            pair.slot_time = catalog.slot_time;
            to_json(&ListFields::new(&pair, now, fields))
        });
        (to_json(&ListFields::new(&catalog, now, fields)), latest.unwrap_or_default())
    }
}

#[derive(Serialize)]
struct PublishedFields<'a> {
    #[serde(flatten)]
    fields: ArchiveFields,
    state: Option<&'a str>,
}

fn to_json(value: &impl Serialize) -> String {
    // Plain structures with string keys: cannot fail.
    serde_json::to_string(value).unwrap_or_default()
}

impl Shelf<'_> {
    fn key(&self, name: &str) -> String {
        format!("{}{name}", self.prefix)
    }

    /// Reads the index; none is an empty one.
    ///
    /// # Errors
    /// The target does not answer, or holds something else.
    pub fn read(&self) -> Result<Index> {
        let key = self.key(INDEX.trim_start_matches('/'));
        let Some((bytes, version)) = self.place.get_small(&key)? else { return Ok(Index::default()) };
        let listed = parse(&bytes).ok_or_else(|| {
            Error::failed(format!("{} in {} is not an index of archives", key, self.place.shown()))
                .with_hint("give a target of its own; what is there was written by another program")
        })?;
        Ok(Index { listed, version: Some(version) })
    }

    /// Puts an archive there. One that an earlier run has put there is left as it is.
    ///
    /// # Errors
    /// The target fails; another file has the name.
    pub fn upload(&self, ready: &Ready, io_hint: IoHint, progress: &dyn Progress) -> Result<()> {
        let key = self.key(&ready.archive.name.to_string());
        let uploaded = self.place.upload(&key, &ready.archive.path(), io_hint, progress);
        let Err(error) = uploaded else { return Ok(()) };
        if error.kind() != ErrorKind::Exists {
            return Err(error);
        }
        let path = self.place.path_of(&key);
        let there = scan(&[path.parent().unwrap_or(&path).to_path_buf()])?;
        let is_same = there.find(&ready.archive.name.to_string()).is_some_and(|there| {
            there.size_bytes == ready.archive.size_bytes
                && (there.file_id == ready.archive.file_id || there.hashes.is_some() && there.hashes == ready.archive.hashes)
        });
        match is_same {
            true => Ok(()),
            false => Err(error.with_hint("it is not what would be published: names never change, so move it away")),
        }
    }

    /// Names an archive that is there in the index, and in `latest.json` if it is part of the newest pair; without one, makes
    /// both agree again, as a run that was killed between them has left them. Takes out of the index what may go. `condemn` is told what that is before anybody can miss it. Returns the index.
    ///
    /// # Errors
    /// The target fails; others change the index again and again.
    pub fn publish(
        &self,
        ready: Option<&Ready>,
        keep: Option<&Keep>,
        condemn: &mut dyn FnMut(&[String]) -> Result<()>,
        progress: &dyn Progress,
    ) -> Result<Index> {
        for attempt in 0..ATTEMPTS_MAX {
            wait(progress, ATTEMPTS_APART * attempt);
            progress.check()?;
            let (index_key, latest_key) = (self.key(INDEX.trim_start_matches('/')), self.key(LATEST));
            // Before the index: who changes both in between makes the second put fail, and all is done again.
            let latest_version = self.place.get_small(&latest_key)?.map(|(_, version)| version);
            let (mut index, now) = (self.read()?, SystemTime::now());
            if let Some(ready) = ready {
                index.add(ready, now);
            } else if index.version.is_none() {
                return Ok(index);
            }
            if let Some(keep) = keep {
                condemn(&index.prune(keep, now))?;
            }
            let (index_json, latest_json) = index.json(now);
            let is_put = self.place.put_small(&index_key, index_json.as_bytes(), index.version.as_ref())?
                && self.place.put_small(&latest_key, latest_json.as_bytes(), latest_version.as_ref())?;
            if is_put {
                return Ok(index);
            }
        }
        Err(Error::new(
            ErrorKind::Network,
            format!("{}: another program changes the index at the same time, again and again", self.place.shown()),
        ))
    }

    /// Deletes what is out of the index.
    ///
    /// # Errors
    /// The target fails.
    pub fn delete(&self, index: &Index, condemned: &str) -> Result<()> {
        match ArchiveName::parse(condemned) {
            Some(name) if !index.has(&name) => self.place.delete(&self.key(condemned)),
            _ => Ok(()),
        }
    }
}
