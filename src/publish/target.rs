//! One target, on a thread of its own: a target that fails or is slow holds up no other.

use std::sync::Arc;
use std::time::Instant;

use parking_lot::Mutex;
use slotpress_base::kept_dir::changed;
use slotpress_base::{Error, Found, KeptDir, Progress, Result, free_bytes, has_room, is_full, panic_point};
use slotpress_net::Client;
use slotpress_stores::Store;

use super::event::{Event, Published as PublishedEvent};
use super::head_start::{Making, head_start};
use super::notes::Notes;
use super::plan::Published;
use super::shelf::{Index, Newest, Ready, Shelf, Step};
use super::upload::{Sent, forget, upload};
use super::{PublishOptions, genesis, places};

/// Where kept archives are on a target: a shelf of its own, with its own index, which is never pruned.
const KEPT: &str = "kept";

/// What is done.
#[derive(Clone, Debug)]
pub enum Task {
    /// What it has.
    Look,
    /// An archive is put there.
    Publish {
        /// The archive.
        ready: Box<Ready>,
        /// Whether it is kept apart.
        is_kept: bool,
    },
    /// The same for nodes, as far as it goes before the archive is ready.
    HeadStart(Arc<Making>),
}

/// What it has.
#[derive(Clone, Debug, Default)]
pub struct Shelves {
    /// What nodes are to take.
    pub published: Published,
    /// The newest of it.
    pub newest: Newest,
    /// What is kept apart.
    pub kept: Published,
    /// How many bytes that has.
    pub kept_bytes: u64,
    /// How much is free on a directory's file system, in bytes.
    pub free_bytes: Option<u64>,
}

/// A target.
pub struct Target<'a> {
    /// Where it is.
    pub at: slotpress_stores::Target,
    /// The connections to stores.
    pub client: &'a Client,
    /// How to publish.
    pub options: &'a PublishOptions,
    /// What is remembered.
    pub notes: &'a Notes<'a>,
    /// Told what happens.
    pub tell: &'a (dyn Fn(Event) + Sync),
    /// The archive of the genesis that it gets.
    pub genesis: Option<&'a [u8]>,
    /// Which directory it was when it was last written.
    pub was: Mutex<Option<Found>>,
}

impl Target<'_> {
    /// Does one thing, and returns what the target has then.
    ///
    /// # Errors
    /// The target fails: trying again may do.
    pub fn run(&self, task: &Task, shelves: &Shelves, progress: &dyn Progress) -> Result<Shelves> {
        panic_point("publishing");
        let (mut shelves, store) = (shelves.clone(), self.open()?);
        let store = &store;
        let shelf = |is_kept: bool| Shelf::of(store, is_kept.then_some(KEPT), false);
        match task {
            // What was to be done is planned anew.
            _ if !self.is_as_before(store)? => self.look(&mut shelves, store, progress)?,
            Task::Look => self.look(&mut shelves, store, progress)?,
            Task::Publish { ready, is_kept } => self.put(&mut shelves, store, ready, None, *is_kept, progress)?,
            Task::HeadStart(making) => {
                let shelf = self.made_shelf(store, false)?;
                let io_hint = self.options.recompress.io_policy.io_hint;
                if let Some((ready, sent)) = head_start(&shelf, making, io_hint, self.notes, progress)? {
                    self.put(&mut shelves, store, &ready, sent, false, progress)?;
                }
            }
        }
        shelves.free_bytes = store.dir().and_then(free_bytes);
        for is_kept in [false, true] {
            shelf(is_kept)?.map_or(Ok(()), |shelf| forget(&shelf, self.notes, progress))?;
        }
        Ok(shelves)
    }

    /// Opens the target: one directory for all that is done there at a time, whatever comes to lie in its place meanwhile.
    fn open(&self) -> Result<Store> {
        let store = Store::open(&self.at, &self.options.stores, self.client)?;
        store.dir().map_or(Ok(()), |dir| places::of_target(dir, self.options))?;
        Ok(store)
    }

    /// Whether it is the directory that it was. What was to be deleted from another one is not deleted from this one.
    fn is_as_before(&self, store: &Store) -> Result<bool> {
        let Some(dir) = store.dir() else { return Ok(true) };
        let is_now = dir.itself()?;
        let before = self.was.lock().replace(is_now);
        if before.is_none_or(|before| before.is_same(&is_now)) {
            return Ok(true);
        }
        let name = self.at.to_string();
        self.notes.pardon(&name, &self.notes.condemned(&name))?;
        (self.tell)(Event::Failed { error: changed(dir.path()), target: Some(name), retry: None, is_of_hook: false });
        Ok(false)
    }

    fn look(&self, shelves: &mut Shelves, store: &Store, progress: &dyn Progress) -> Result<()> {
        *shelves = Shelves::default();
        self.genesis.map_or(Ok(()), |genesis| genesis::put(store, genesis, progress))?;
        if let Some(kept) = Shelf::of(store, Some(KEPT), false)? {
            shelves.see_kept(&kept.publish(Step::Agree, None, &mut |_| Ok(()), progress)?);
        }
        if let Some(shelf) = Shelf::of(store, None, false)? {
            shelves.see(&self.publish(&shelf, Step::Agree, progress)?);
        }
        Ok(())
    }

    /// Puts an archive there, of which some may be sent, and then into the index.
    fn put(
        &self,
        shelves: &mut Shelves,
        store: &Store,
        ready: &Ready,
        sent: Option<Sent>,
        is_kept: bool,
        progress: &dyn Progress,
    ) -> Result<()> {
        let (start, shelf) = (Instant::now(), self.made_shelf(store, is_kept)?);
        let io_hint = self.options.recompress.io_policy.io_hint;
        // Where nothing goes, there is nothing to make room with.
        let dir = store.dir().filter(|_| !is_kept);
        let make_room = || self.publish(&shelf, Step::MakeRoom(ready), progress).map(drop);
        if dir.is_some_and(|dir| !has_room(dir, ready.archive.size_bytes)) {
            make_room()?;
        }
        match upload(&shelf, ready, sent, io_hint, self.notes, progress) {
            // As of a quota: what is told to be free is not.
            Err(error) if dir.is_some() && is_full(&error) => {
                make_room()?;
                upload(&shelf, ready, None, io_hint, self.notes, progress)?;
            }
            sent => sent?,
        }
        match is_kept {
            true => shelves.see_kept(&shelf.publish(Step::Add(ready), None, &mut |_| Ok(()), progress)?),
            false => shelves.see(&self.publish(&shelf, Step::Add(ready), progress)?),
        }
        store.dir().map_or(Ok(()), KeptDir::check_path)?;
        (self.tell)(Event::Published(PublishedEvent {
            name: ready.archive.name.clone(),
            target: self.at.to_string(),
            is_kept,
            bytes: ready.archive.size_bytes,
            state: ready.state,
            root: ready.archive.hashes.map(|hashes| hashes.root),
            elapsed: start.elapsed(),
        }));
        Ok(())
    }

    fn made_shelf(&self, store: &Store, is_kept: bool) -> Result<Shelf> {
        let gone = || Error::failed(format!("{} is not there any more", self.at));
        Shelf::of(store, is_kept.then_some(KEPT), true)?.ok_or_else(gone)
    }

    fn publish(&self, shelf: &Shelf, step: Step<'_>, progress: &dyn Progress) -> Result<Index> {
        let name = self.at.to_string();
        let keep = self.options.keep.within(self.options.keep.within.max(self.options.grace));
        let mut condemn = |names: &[String]| self.notes.condemn(&name, names);
        let index = shelf.publish(step, Some(&keep), &mut condemn, progress)?;
        let condemned = self.notes.condemned(&name);
        if condemned.is_empty() {
            return Ok(index);
        }
        let (mut gone, mut failed): (Vec<String>, Option<Error>) = Default::default();
        for archive in condemned {
            match shelf.delete(&index, &archive, progress) {
                Ok(()) => gone.push(archive),
                Err(error) => failed = Some(error),
            }
        }
        self.notes.pardon(&name, &gone)?;
        (self.tell)(Event::Pruned { target: name.clone(), names: gone });
        if let Some(error) = failed {
            // What was to be published is: the rest goes another time.
            (self.tell)(Event::Failed { error, target: Some(name), retry: None, is_of_hook: false });
        }
        Ok(index)
    }
}

impl Shelves {
    fn see(&mut self, index: &Index) {
        (self.published, self.newest) = (index.published(), index.newest());
    }

    fn see_kept(&mut self, index: &Index) {
        (self.kept, self.kept_bytes) = (index.published(), index.bytes());
    }
}
