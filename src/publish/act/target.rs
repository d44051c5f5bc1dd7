//! Publishes to one target, on a thread of its own, so that a slow or failing target does not delay
//! others. An archive is put there by a hard link where possible, otherwise by sending its bytes; an
//! interrupted upload is resumed.

use std::collections::BTreeSet;
use std::time::{Duration, Instant, SystemTime};

use rustix::io::Errno;
use slotpress_base::kept_dir::changed_error;
use slotpress_base::progress::wait;
use slotpress_base::threads::catch_panic;
use slotpress_base::{Error, ErrorKind, FileStat, IoContext, Result, clock, free_bytes, has_room, panic_point};
use slotpress_read::{Catalog, LocalFile, Tail, remove_stale_files};
use slotpress_stores::{Attribute, Store, Target, Upload, UploadState, headers_of};

use super::PublishRun;
use super::index::{IndexStep, IndexedStore, PreparedArchive, TargetIndex};
use super::pins::{check_target, link};
use crate::publish::decide::choose::ArchiveSet;
use crate::publish::remember::BegunUpload;
use crate::publish::report::event::{PublishEvent, ReadyArchive, state_of};
use crate::restore::copies::has_same_content;

const PIECE_BYTES: u64 = 1 << 20;

const PARTS_CHECK: Duration = Duration::from_millis(20);

/// Number of parts that arrive before they are recorded: the journal is written as a whole, and a
/// kill makes at most so many be sent again.
const PARTS_APART: usize = 16;

#[derive(Clone, Debug, Default)]
pub struct TargetContents {
    pub published: ArchiveSet,
    pub index: Catalog,
    /// Free space of a directory's file system; `None` for buckets.
    pub free_bytes: Option<u64>,
    /// When the target last did what it was asked for.
    pub worked_at: Option<SystemTime>,
}

pub fn publish_to(run: &PublishRun<'_>, target: &Target, at: usize) {
    let mut was = None;
    while let Some(()) = run.next_work(|planner| planner.begin_target(at).then_some(())) {
        let result = catch_panic(|| OpenTarget::open(run, target, at, &mut was)?.publish_all());
        run.update(|planner| planner.end_target(at, result));
    }
}

/// A target, opened once: everything works in the same directory, even if its path is changed
/// meanwhile.
struct OpenTarget<'r, 'a> {
    run: &'r PublishRun<'a>,
    name: String,
    at: usize,
    store: Store,
    contents: TargetContents,
}

impl<'r, 'a> OpenTarget<'r, 'a> {
    /// Opens the target. If its directory is not the one that it `was` last time, forgets pending
    /// deletions: they applied to the other one.
    fn open(run: &'r PublishRun<'a>, target: &Target, at: usize, was: &mut Option<FileStat>) -> Result<Self> {
        panic_point("publishing");
        let store = Store::open(target, &run.options.stores, &run.client)?;
        let opened = Self { run, name: target.to_string(), at, store, contents: TargetContents::default() };
        if let Some(dir) = opened.store.dir() {
            check_target(dir, run.options)?;
            // A killed run may have left some, and this run may write nothing there.
            remove_stale_files(dir)?;
            let is_now = dir.stat()?;
            if was.replace(is_now).is_some_and(|was| !was.is_same(&is_now)) {
                opened.change_pending(BTreeSet::clear)?;
                opened.report_failure(changed_error(dir.path()));
            }
        }
        Ok(opened)
    }

    /// Reads what the target has, and publishes what it lacks, until nothing more is ready for it.
    fn publish_all(&mut self) -> Result<()> {
        if let Some(indexed) = IndexedStore::open(&self.store, false)? {
            self.publish(&indexed, IndexStep::Agree)?;
        }
        loop {
            self.contents.free_bytes = self.store.dir().and_then(free_bytes);
            self.contents.worked_at = Some(clock::now());
            let next = self.run.update(|planner| planner.next_to_send(self.at, &self.contents));
            let Some(ready) = next else { return Ok(()) };
            self.run.progress.check()?;
            self.add(&ready)?;
        }
    }

    fn add(&mut self, ready: &PreparedArchive) -> Result<()> {
        let start = Instant::now();
        let indexed = IndexedStore::open(&self.store, true)?.ok_or_else(|| {
            Error::failed(format!("{} is not there any more", self.name))
                .with_hint("make the directory again, or mount what belongs there")
        })?;
        let bytes = ready.archive.size_bytes;
        if self.store.dir().is_some_and(|dir| !has_room(dir, bytes)) {
            self.publish(&indexed, IndexStep::MakeRoom(ready))?;
        }
        match self.put(ready) {
            // The disk may be full although free space is reported, for example because of a quota.
            Err(error) if self.store.dir().is_some() && error.kind() == ErrorKind::NoSpace => {
                self.publish(&indexed, IndexStep::MakeRoom(ready))?;
                self.put(ready).map_err(no_room_error)?;
            }
            sent => sent?,
        }
        self.publish(&indexed, IndexStep::Add(ready))?;
        if let Some(dir) = self.store.dir() {
            dir.check_path()?;
        }
        let published = ReadyArchive::new(&ready.archive, Some(self.name.clone()), start.elapsed());
        self.run.report(PublishEvent::Published(published));
        Ok(())
    }

    fn report_failure(&self, error: Error) {
        self.run.update(|planner| planner.fail(error, Some(self.name.clone()), None));
    }

    /// Changes which deletions are pending. Only this thread does so for the target.
    fn change_pending(&self, change: impl FnOnce(&mut BTreeSet<String>)) -> Result<()> {
        let name = self.name.clone();
        self.run.journal.change(|entries| change(&mut entries.targets.entry(name).or_default().pending_deletes))
    }

    fn publish(&mut self, indexed: &IndexedStore, step: IndexStep<'_>) -> Result<()> {
        let options = self.run.options;
        let keep = options.keep.within(options.keep.within.max(options.grace));
        let mut on_prune = |names: Vec<String>| self.change_pending(|pending| pending.extend(names));
        let index = indexed.publish(step, &keep, &mut on_prune, self.run.progress)?;
        self.contents.published = ArchiveSet::from_archives(index.catalog.archives());
        self.delete_pending(indexed, &index)?;
        self.contents.index = index.catalog;
        Ok(())
    }

    fn delete_pending(&self, indexed: &IndexedStore, index: &TargetIndex) -> Result<()> {
        let pending = self.run.journal.read(|entries| entries.targets.get(&self.name).cloned());
        let mut names = Vec::new();
        let mut left = BTreeSet::new();
        let mut failed = None;
        for name in pending.unwrap_or_default().pending_deletes {
            match indexed.delete(index, &name, self.run.progress) {
                Ok(true) => names.push(name),
                Ok(false) => {}
                Err(error) => {
                    left.insert(name);
                    failed = Some(error);
                }
            }
        }
        self.change_pending(|pending| *pending = left)?;
        if !names.is_empty() {
            self.run.report(PublishEvent::Pruned { target: self.name.clone(), names });
        }
        // The archive is published. Deletions that failed are repeated another time.
        if let Some(error) = failed {
            self.report_failure(error);
        }
        Ok(())
    }

    /// Puts an archive on the target. Leaves an identical archive of the same name unchanged; fails
    /// if another file has the name.
    fn put(&self, ready: &PreparedArchive) -> Result<()> {
        if self.link(ready)? {
            return Ok(());
        }
        match self.send(ready) {
            Err(error) if error.kind() == ErrorKind::Exists && self.has_same_archive(ready)? => Ok(()),
            Err(error) if error.kind() == ErrorKind::Exists => {
                Err(error.with_hint("move it away: it differs from what would be published under this name"))
            }
            sent => sent,
        }
    }

    /// Creates a hard link to the file. Returns false if the target is not a directory on the same
    /// file system, or the name is taken.
    fn link(&self, ready: &PreparedArchive) -> Result<bool> {
        let Some(dir) = self.store.dir() else { return Ok(false) };
        let path = ready.archive.path();
        match link(&ready.archive, dir)? {
            Ok(true) => dir.sync().map(|()| true),
            Ok(false) => Err(changed_error(&path)),
            // If the name is taken, `send` reports it.
            Err(Errno::XDEV | Errno::PERM | Errno::MLINK | Errno::OPNOTSUPP | Errno::EXIST) => Ok(false),
            Err(error) => Err(Error::io("publish", &dir.path_of(ready.archive.name.to_string()), &error.into())),
        }
    }

    /// Records the progress of an upload in the journal; `None` removes the record.
    fn remember(&self, ready: &PreparedArchive, state: Option<UploadState>) -> Result<()> {
        let key = self.store.location_of(&ready.archive.name.to_string());
        let upload = state.map(|state| BegunUpload { of: ready.archive.etag(), state });
        self.run.journal.change(|entries| match upload {
            Some(upload) => drop(entries.uploads.insert(key, upload)),
            None => drop(entries.uploads.remove(&key)),
        })
    }

    fn send(&self, ready: &PreparedArchive) -> Result<()> {
        let mut upload = self.begin_or_resume(ready)?;
        let sent = self.send_bytes(&mut upload, ready).and_then(|()| upload.finish(self.run.progress));
        let kept = sent.as_ref().err().and_then(|error| upload.keep(error));
        self.remember(ready, kept)?;
        sent
    }

    fn begin_or_resume(&self, ready: &PreparedArchive) -> Result<Upload> {
        let archive = &ready.archive;
        let name = ready.archive.name.to_string();
        let key = self.store.location_of(&name);
        if let Some(begun) = self.run.journal.read(|entries| entries.uploads.get(&key).cloned()) {
            if begun.of == archive.etag()
                && let Some(upload) = self.store.resume(&name, &begun.state, archive.size_bytes)?
            {
                return Ok(upload);
            }
            self.store.abort(&name, &begun.state, self.run.progress)?;
        }
        let mut headers = headers_of(&archive.name, archive.hashes.map(|hashes| hashes.root));
        headers.insert(Attribute::Metadata("slotpress-state".into()), state_of(&ready.archive).into());
        self.store.upload(&name, &headers, archive.size_bytes, false, self.run.progress)
    }

    fn send_bytes(&self, upload: &mut Upload, ready: &PreparedArchive) -> Result<()> {
        let path = ready.archive.path();
        let bytes = ready.archive.size_bytes;
        let progress = self.run.progress;
        let (file, _) = ready.archive.open().or_path("open", &path)?;
        let io_hint = self.run.options.recompress.encoding.io_policy.io_hint;
        let mut at = upload.resumed_bytes();
        let mut buffer = Vec::new();
        let mut next_count = 0;
        while at < bytes {
            if let Some(count) = upload.part_count().filter(|count| *count >= next_count) {
                self.remember(ready, upload.state())?;
                next_count = count + PARTS_APART;
            }
            progress.check()?;
            let end = at.saturating_add(PIECE_BYTES).min(bytes);
            let piece = io_hint.read_range(&file, &(at..end), bytes, &mut buffer).or_path("read", &path)?;
            upload.write(piece, progress)?;
            at = end;
        }
        // Record all parts but the last, which a failing store may refuse for long.
        let lacks = |state: &UploadState| state.done_bytes().saturating_add(state.part_bytes) < bytes;
        while upload.state().is_some_and(|state| lacks(&state)) {
            upload.write(&[], progress)?;
            wait(progress, PARTS_CHECK);
        }
        self.remember(ready, upload.state())
    }

    /// True if the object of this name is identical: compares roots if they are known, otherwise
    /// contents.
    fn has_same_archive(&self, ready: &PreparedArchive) -> Result<bool> {
        let archive = &ready.archive;
        let existing = self.store.open_source(&archive.name.to_string(), self.run.over.clone())?;
        if existing.length_bytes() != Some(archive.size_bytes) {
            return Ok(false);
        }
        if let Some(ours) = archive.hashes {
            let tail = Tail::read(existing.as_ref())?;
            return Ok(tail.and_then(|tail| tail.hashes).is_some_and(|theirs| theirs.root == ours.root));
        }
        has_same_content(&LocalFile::open(&archive.path())?, existing.as_ref(), self.run.progress)
    }
}

fn no_room_error(error: Error) -> Error {
    match error.kind() {
        ErrorKind::NoSpace => error.within("what is to stay leaves no room for the next archive").with_hint(
            "keep fewer archives, days, weeks or epochs, or set a shorter grace; or give the target more room",
        ),
        _ => error,
    }
}
