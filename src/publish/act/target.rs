//! Publishes to one target, on a thread of its own, so that a slow or failing target does not delay
//! others.

use std::collections::BTreeSet;
use std::time::Instant;

use parking_lot::Mutex;
use slotpress_base::kept_dir::changed;
use slotpress_base::{Error, ErrorKind, Found, KeptDir, Result, free_bytes, has_room, panic_point};
use slotpress_stores::{Store, Target};

use super::Run;
use super::index::{Index, IndexedStore, Newest, Ready, Step};
use super::pins::check_target;
use super::upload::Uploader;
use super::workers::Message;
use crate::publish::decide::Order;
use crate::publish::decide::choose::ArchiveSet;
use crate::publish::tell::event::{Event, Published};

#[derive(Clone, Debug, Default)]
pub struct TargetContents {
    pub published: ArchiveSet,
    pub newest: Newest,
    /// Free space of a directory's file system; `None` for buckets.
    pub free_bytes: Option<u64>,
}

pub struct TargetWorker<'a> {
    pub run: &'a Run<'a>,
    pub target: &'a Target,
    /// Identity of the target's directory when it was last used.
    was: Mutex<Option<Found>>,
}

impl<'a> TargetWorker<'a> {
    pub fn new(run: &'a Run<'a>, target: &'a Target) -> Self {
        Self { run, target, was: Mutex::default() }
    }

    /// Carries out an order; returns the target's contents afterwards. An order that failed may be
    /// repeated.
    pub fn run(&self, order: &Order, mut contents: TargetContents) -> Result<TargetContents> {
        panic_point("publishing");
        // Open the directory once: everything below works in it, even if its path is changed
        // meanwhile.
        let store = &Store::open(self.target, &self.run.options.stores, &self.run.client)?;
        store.dir().map_or(Ok(()), |dir| check_target(dir, self.run.options))?;
        match order {
            // If the directory was replaced, only report its contents: the planning thread decides
            // anew.
            _ if !self.is_as_before(store)? => self.look(&mut contents, store)?,
            Order::Look => self.look(&mut contents, store)?,
            Order::Publish(ready) => self.put(&mut contents, store, ready)?,
        }
        contents.free_bytes = store.dir().and_then(free_bytes);
        Ok(contents)
    }

    /// Returns true if the target's directory is the same as last time. Otherwise forgets pending
    /// deletions: they applied to the other directory.
    fn is_as_before(&self, store: &Store) -> Result<bool> {
        let Some(dir) = store.dir() else { return Ok(true) };
        let is_now = dir.itself()?;
        let before = self.was.lock().replace(is_now);
        if before.is_none_or(|before| before.is_same(&is_now)) {
            return Ok(true);
        }
        self.run.pins.journal.change(|entries| entries.targets.remove(&self.target.to_string()))?;
        self.tell_failure(changed(dir.path()));
        Ok(false)
    }

    fn look(&self, contents: &mut TargetContents, store: &Store) -> Result<()> {
        *contents = TargetContents::default();
        match IndexedStore::of(store, false)? {
            Some(there) => self.publish(contents, &there, Step::Agree),
            None => Ok(()),
        }
    }

    /// Sends an archive, and adds it to the index.
    fn put(&self, contents: &mut TargetContents, store: &Store, ready: &Ready) -> Result<()> {
        let (start, there, dir) = (Instant::now(), self.made(store)?, store.dir());
        let uploader = Uploader { run: self.run, store: &there.store };
        let mut make_room = || self.publish(contents, &there, Step::MakeRoom(ready));
        if dir.is_some_and(|dir| !has_room(dir, ready.archive.size_bytes)) {
            make_room()?;
        }
        match uploader.put(ready) {
            // The disk may be full although free space is reported, for example because of a quota.
            Err(error) if dir.is_some() && error.kind() == ErrorKind::NoSpace => {
                make_room()?;
                uploader.put(ready).map_err(no_room)?;
            }
            sent => sent?,
        }
        self.publish(contents, &there, Step::Add(ready))?;
        store.dir().map_or(Ok(()), KeptDir::check_path)?;
        self.tell(Event::Published(Published {
            name: ready.archive.name.clone(),
            target: self.target.to_string(),
            bytes: ready.archive.size_bytes,
            state: ready.state(),
            root: ready.archive.hashes.map(|hashes| hashes.root),
            rebased_on: ready.archive.rebased_on(),
            elapsed: start.elapsed(),
        }));
        Ok(())
    }

    fn made(&self, store: &Store) -> Result<IndexedStore> {
        let gone = || {
            Error::failed(format!("{} is not there any more", self.target))
                .with_hint("make the directory again, or mount what belongs there")
        };
        IndexedStore::of(store, true)?.ok_or_else(gone)
    }

    fn tell(&self, event: Event) {
        drop(self.run.messages.send(Message::Event(event)));
    }

    fn tell_failure(&self, error: Error) {
        let target = Some(self.target.to_string());
        self.tell(Event::Failed { error, target, retry: None, is_of_hook: false });
    }

    /// Changes an index, and deletes archives that were removed from it.
    fn publish(&self, contents: &mut TargetContents, there: &IndexedStore, step: Step<'_>) -> Result<()> {
        let options = self.run.options;
        let keep = options.keep.within(options.keep.within.max(options.grace));
        let mut on_prune = |names: Vec<String>| {
            let target = self.target.to_string();
            self.run
                .pins
                .journal
                .change(|entries| entries.targets.entry(target).or_default().pending_deletes.extend(names))
        };
        let index = there.publish(step, &keep, &mut on_prune, self.run.progress)?;
        (contents.published, contents.newest) = (index.published(), index.newest());
        self.delete_pending(there, &index)
    }

    fn delete_pending(&self, there: &IndexedStore, index: &Index) -> Result<()> {
        let target = self.target.to_string();
        let pending = self.run.pins.journal.read(|entries| entries.targets.get(&target).cloned()).unwrap_or_default();
        let (mut names, mut left, mut failed) = (Vec::new(), BTreeSet::new(), None);
        for name in &pending.pending_deletes {
            match there.delete(index, name, self.run.progress) {
                Ok(true) => names.push(name.clone()),
                Ok(false) => {}
                Err(error) => {
                    left.insert(name.clone());
                    failed = Some(error);
                }
            }
        }
        // Only this target's thread changes these entries.
        if left != pending.pending_deletes {
            self.run
                .pins
                .journal
                .change(|entries| entries.targets.entry(target.clone()).or_default().pending_deletes = left)?;
        }
        if !names.is_empty() {
            self.tell(Event::Pruned { target, names });
        }
        // The archive is published. Deletions that failed are repeated another time.
        failed.into_iter().for_each(|error| self.tell_failure(error));
        Ok(())
    }
}

/// Says of a full disk that nothing more may be removed there.
fn no_room(error: Error) -> Error {
    match error.kind() {
        ErrorKind::NoSpace => error.within("what is to stay leaves no room for the next archive").with_hint(
            "keep fewer archives, days, weeks or epochs, or for a shorter grace; or give the target more room",
        ),
        _ => error,
    }
}
