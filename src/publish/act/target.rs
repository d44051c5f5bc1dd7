//! Publishes to one target, on a thread of its own, so that a slow or failing target does not delay
//! others.

use std::collections::BTreeSet;
use std::time::{Instant, SystemTime};

use parking_lot::Mutex;
use slotpress_base::kept_dir::changed;
use slotpress_base::{Error, ErrorKind, Found, KeptDir, Result, clock, free_bytes, has_room, panic_point};
use slotpress_read::remove_stale_files;
use slotpress_stores::{Store, Target};

use super::Run;
use super::index::{Index, IndexedStore, Newest, Ready, Step, state_of};
use super::pins::check_target;
use super::upload::Uploader;
use crate::publish::decide::choose::ArchiveSet;
use crate::publish::tell::event::{Event, Published};

#[derive(Clone, Debug, Default)]
pub struct TargetContents {
    pub published: ArchiveSet,
    pub newest: Newest,
    /// Free space of a directory's file system; `None` for buckets.
    pub free_bytes: Option<u64>,
    /// When the target last did what it was asked for.
    pub worked_at: Option<SystemTime>,
}

pub struct TargetWorker<'r, 'a> {
    run: &'r Run<'a>,
    target: &'r Target,
    /// Number of the target.
    at: usize,
    /// Identity of the target's directory when it was last used.
    was: Mutex<Option<Found>>,
}

impl<'r, 'a> TargetWorker<'r, 'a> {
    pub fn new(run: &'r Run<'a>, target: &'r Target, at: usize) -> Self {
        Self { run, target, at, was: Mutex::default() }
    }

    /// Reads what the target has, and publishes what it lacks, until nothing more is ready for it.
    pub fn serve(&self) -> Result<()> {
        panic_point("publishing");
        // Open the directory once: everything below works in it, even if its path is changed
        // meanwhile.
        let store = &Store::open(self.target, &self.run.options.stores, &self.run.client)?;
        store.dir().map_or(Ok(()), |dir| check_target(dir, self.run.options))?;
        // A killed run may have left some, and this run may write nothing there.
        store.dir().map_or(Ok(()), remove_stale_files)?;
        self.forget_if_replaced(store)?;
        let mut contents = TargetContents::default();
        if let Some(there) = IndexedStore::of(store, false)? {
            self.publish(&mut contents, &there, Step::Agree)?;
        }
        loop {
            (contents.free_bytes, contents.worked_at) = (store.dir().and_then(free_bytes), Some(clock::now()));
            let next = self.run.update(|board| board.next_to_send(self.at, &contents));
            let Some(ready) = next else { return Ok(()) };
            self.run.progress.check()?;
            self.put(&mut contents, store, &ready)?;
        }
    }

    /// If the target's directory is not the same as last time, forgets pending deletions: they
    /// applied to the other directory.
    fn forget_if_replaced(&self, store: &Store) -> Result<()> {
        let Some(dir) = store.dir() else { return Ok(()) };
        let is_now = dir.itself()?;
        let before = self.was.lock().replace(is_now);
        if before.is_none_or(|before| before.is_same(&is_now)) {
            return Ok(());
        }
        self.run.pins.journal.change(|entries| entries.targets.remove(&self.target.to_string()))?;
        self.tell_failure(changed(dir.path()));
        Ok(())
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
        self.run.tell(Event::Published(Published {
            name: ready.archive.name.clone(),
            target: self.target.to_string(),
            bytes: ready.archive.size_bytes,
            state: state_of(&ready.archive),
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

    fn tell_failure(&self, error: Error) {
        let target = Some(self.target.to_string());
        self.run.tell(Event::Failed { error, target, retry: None, is_of_hook: false });
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
            self.run.tell(Event::Pruned { target, names });
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
