//! Publishes to one target on its own thread, so that a slow or failing target does not delay others.
//! An archive is hard-linked where possible, and otherwise copied or uploaded. The next attempt resumes an
//! interrupted upload to a bucket.

use std::collections::BTreeSet;
use std::time::{Duration, Instant, SystemTime};

use rustix::io::Errno;
use slotpress_base::progress::wait;
use slotpress_base::{
    Error, ErrorKind, FileStat, IoContext, Result, catch_panic, changed_error, clock, free_bytes, has_room, panic_point,
};
use slotpress_read::{Catalog, LocalFile, Tail, remove_stale_files};
use slotpress_stores::{Attribute, Store, Upload, UploadState, headers_of};

use super::PublishRun;
use super::index::{IndexChange, IndexedStore, PreparedArchive, TargetIndex};
use super::pins::{LinkResult, check_target, link_archive};
use crate::publish::decide::choose::ArchiveSet;
use crate::publish::journal::UnfinishedUpload;
use crate::publish::report::event::{PublishEvent, ReadyArchive, state_check_of};
use crate::restore::copies::has_same_content;

const PIECE_BYTES: u64 = 1 << 20;

const PARTS_CHECK_INTERVAL: Duration = Duration::from_millis(20);

/// Number of uploaded parts after which the upload is recorded in the journal, whose whole file is then
/// rewritten. After a kill, at most about this many parts are sent again, besides those in flight.
const PARTS_PER_RECORD: usize = 16;

#[derive(Clone, Debug, Default)]
pub struct TargetContents {
    pub published: ArchiveSet,
    pub index: Catalog,
    /// Free space on a directory's file system; `None` for buckets.
    pub free_bytes: Option<u64>,
    pub last_success: Option<SystemTime>,
}

pub fn publish_to_target(run: &PublishRun<'_>, number: usize) {
    let mut last_dir = None;
    while let Some(()) = run.next_work(|planner| planner.begin_target(number).then_some(())) {
        let result = catch_panic(|| OpenTarget::open(run, number, &mut last_dir)?.publish_all());
        run.update(|planner| planner.end_target(number, result));
    }
}

/// A target that was opened once: all work happens in the same directory, even if its path leads to
/// another directory later.
struct OpenTarget<'r, 'a> {
    run: &'r PublishRun<'a>,
    name: String,
    number: usize,
    store: Store,
    contents: TargetContents,
}

impl<'r, 'a> OpenTarget<'r, 'a> {
    /// Opens the target. If its directory is no longer `last_dir`, forgets the pending deletions, which were
    /// decided for `last_dir`.
    fn open(run: &'r PublishRun<'a>, number: usize, last_dir: &mut Option<FileStat>) -> Result<Self> {
        panic_point("publishing");
        let target = &run.options.targets[number];
        let store = Store::open(target, &run.options.stores, &run.client)?;
        let opened = Self { run, name: target.to_string(), number, store, contents: TargetContents::default() };
        if let Some(dir) = opened.store.dir() {
            check_target(dir, run.options)?;
            // Remove temporary files of a killed run now. Writing a file would remove them too, but this run
            // may not write any.
            remove_stale_files(dir)?;
            let stat = dir.stat()?;
            if last_dir.replace(stat).is_some_and(|last| !last.is_same_file(&stat)) {
                opened.change_pending_deletes(BTreeSet::clear)?;
                opened.report_failure(changed_error(dir.path()));
            }
        }
        Ok(opened)
    }

    /// Reads the target's index, and publishes archives that it lacks until no more are ready.
    fn publish_all(&mut self) -> Result<()> {
        if let Some(indexed) = IndexedStore::open(&self.store)? {
            self.update_index(&indexed, IndexChange::Repair)?;
        }
        loop {
            self.contents.free_bytes = self.store.dir().and_then(free_bytes);
            self.contents.last_success = Some(clock::now());
            let next = self.run.update(|planner| planner.next_to_send(self.number, &self.contents));
            let Some(ready) = next else { return Ok(()) };
            self.run.progress.check()?;
            self.publish(&ready)?;
        }
    }

    fn publish(&mut self, ready: &PreparedArchive) -> Result<()> {
        let start = Instant::now();
        let indexed = IndexedStore::open_or_create(&self.store)?;
        let bytes = ready.archive.size_bytes;
        if self.store.dir().is_some_and(|dir| !has_room(dir, bytes)) {
            self.update_index(&indexed, IndexChange::MakeRoom(ready))?;
        }
        match self.put(ready) {
            // The disk may be full although free space is reported, for example because of a quota.
            Err(error) if self.store.dir().is_some() && error.kind() == ErrorKind::NoSpace => {
                self.update_index(&indexed, IndexChange::MakeRoom(ready))?;
                self.put(ready).map_err(no_room_error)?;
            }
            result => result?,
        }
        self.update_index(&indexed, IndexChange::Add(ready))?;
        if let Some(dir) = self.store.dir() {
            dir.check_path()?;
        }
        let published = ReadyArchive::new(&ready.archive, Some(self.name.clone()), start.elapsed());
        self.run.report(PublishEvent::Published(published));
        Ok(())
    }

    fn report_failure(&self, error: Error) {
        self.run.update(|planner| planner.report_error(error, Some(self.name.clone()), None));
    }

    /// Changes the target's pending deletions, which no other thread changes.
    fn change_pending_deletes(&self, change: impl FnOnce(&mut BTreeSet<String>)) -> Result<()> {
        let name = self.name.clone();
        self.run.journal.change(|entries| change(&mut entries.targets.entry(name).or_default().pending_deletes))
    }

    fn update_index(&mut self, indexed: &IndexedStore, change: IndexChange<'_>) -> Result<()> {
        let options = self.run.options;
        let keep = options.keep.within(options.keep.within.max(options.grace));
        let mut on_prune = |names: Vec<String>| self.change_pending_deletes(|pending| pending.extend(names));
        let index = indexed.update(change, &keep, &mut on_prune, self.run.progress)?;
        self.contents.published = ArchiveSet::from_archives(index.catalog.archives());
        self.delete_pending(indexed, &index)?;
        self.contents.index = index.catalog;
        Ok(())
    }

    fn delete_pending(&self, indexed: &IndexedStore, index: &TargetIndex) -> Result<()> {
        let pending = self.run.journal.read(|entries| entries.targets.get(&self.name).cloned());
        let mut deleted = Vec::new();
        let mut remaining = BTreeSet::new();
        let mut failure = None;
        for name in pending.unwrap_or_default().pending_deletes {
            match indexed.delete(index, &name, self.run.progress) {
                Ok(true) => deleted.push(name),
                Ok(false) => {}
                Err(error) => {
                    remaining.insert(name);
                    failure = Some(error);
                }
            }
        }
        self.change_pending_deletes(|pending| *pending = remaining)?;
        if !deleted.is_empty() {
            self.run.report(PublishEvent::Pruned { target: self.name.clone(), names: deleted });
        }
        // The index is right although a deletion failed, so the failure is only reported. The deletion is
        // retried later.
        if let Some(error) = failure {
            self.report_failure(error);
        }
        Ok(())
    }

    /// Puts an archive on the target. Leaves an identical archive with this name unchanged. Fails if a
    /// different file has the name.
    fn put(&self, ready: &PreparedArchive) -> Result<()> {
        if self.try_link(ready)? {
            return Ok(());
        }
        match self.upload(ready) {
            Err(error) if error.kind() == ErrorKind::Exists && self.has_same_archive(ready)? => Ok(()),
            Err(error) if error.kind() == ErrorKind::Exists => {
                Err(error.with_hint("move the file away: it differs from the archive that would get its name"))
            }
            result => result,
        }
    }

    /// Creates a hard link to the file. Returns false if the target is a bucket, if its directory does not
    /// permit the link (on another file system, for example), or if the name is taken.
    fn try_link(&self, ready: &PreparedArchive) -> Result<bool> {
        let Some(dir) = self.store.dir() else { return Ok(false) };
        let path = ready.archive.path();
        match link_archive(&ready.archive, dir)? {
            LinkResult::Made => dir.sync().map(|()| true),
            LinkResult::FileReplaced => Err(changed_error(&path)),
            // If the name is taken, `upload` reports it.
            LinkResult::Failed(Errno::XDEV | Errno::PERM | Errno::MLINK | Errno::OPNOTSUPP | Errno::EXIST) => Ok(false),
            LinkResult::Failed(error) => {
                Err(Error::io("publish", &dir.path_of(ready.archive.name.to_string()), &error.into()))
            }
        }
    }

    /// Records the progress of an upload in the journal; `None` removes the record.
    fn record_upload(&self, ready: &PreparedArchive, state: Option<UploadState>) -> Result<()> {
        let key = self.store.location_of(&ready.archive.name.to_string());
        let upload = state.map(|state| UnfinishedUpload { archive_tag: ready.archive.etag(), state });
        self.run.journal.change(|entries| {
            match upload {
                Some(upload) => entries.uploads.insert(key, upload),
                None => entries.uploads.remove(&key),
            };
        })
    }

    fn upload(&self, ready: &PreparedArchive) -> Result<()> {
        let mut upload = self.begin_or_resume(ready)?;
        let result = self.send_bytes(&mut upload, ready).and_then(|()| upload.finish(self.run.progress));
        let kept = result.as_ref().err().and_then(|error| upload.keep(error));
        self.record_upload(ready, kept)?;
        result
    }

    fn begin_or_resume(&self, ready: &PreparedArchive) -> Result<Upload> {
        let archive = &ready.archive;
        let name = archive.name.to_string();
        let key = self.store.location_of(&name);
        if let Some(unfinished) = self.run.journal.read(|entries| entries.uploads.get(&key).cloned()) {
            if unfinished.archive_tag == archive.etag()
                && let Some(upload) = self.store.resume(&name, &unfinished.state, archive.size_bytes)?
            {
                return Ok(upload);
            }
            self.store.abort(&name, &unfinished.state, self.run.progress)?;
        }
        let mut headers = headers_of(&archive.name, archive.hashes.map(|hashes| hashes.root));
        let label = state_check_of(archive);
        headers.insert(Attribute::Metadata("slotpress-state".into()), label.to_string().into());
        let replace = false;
        self.store.upload(&name, &headers, archive.size_bytes, replace, self.run.progress)
    }

    fn send_bytes(&self, upload: &mut Upload, ready: &PreparedArchive) -> Result<()> {
        let path = ready.archive.path();
        let bytes = ready.archive.size_bytes;
        let progress = self.run.progress;
        let (file, _) = ready.archive.open().or_path("open", &path)?;
        let io_hint = self.run.options.encoding.io_policy.io_hint;
        let mut offset = upload.resumed_bytes();
        let mut buffer = Vec::new();
        let mut next_recorded_count = 0;
        while offset < bytes {
            if let Some(count) = upload.part_count()
                && count >= next_recorded_count
            {
                self.record_upload(ready, upload.state())?;
                next_recorded_count = count + PARTS_PER_RECORD;
            }
            progress.check()?;
            let end = offset.saturating_add(PIECE_BYTES).min(bytes);
            let piece = io_hint.read_range(&file, &(offset..end), bytes, &mut buffer).or_path("read", &path)?;
            upload.write(piece, progress)?;
            offset = end;
        }
        // Wait for all parts but the last, and record them: a failing store may refuse the last one for a
        // long time.
        let lacks_parts = |state: &UploadState| state.done_bytes().saturating_add(state.part_bytes) < bytes;
        while upload.state().is_some_and(|state| lacks_parts(&state)) {
            upload.write(&[], progress)?;
            wait(progress, PARTS_CHECK_INTERVAL);
        }
        self.record_upload(ready, upload.state())
    }

    /// True if the target's archive with this name is identical. Compares the roots if the new archive has
    /// one, and otherwise the contents.
    fn has_same_archive(&self, ready: &PreparedArchive) -> Result<bool> {
        let archive = &ready.archive;
        let existing = self.store.open_source(&archive.name.to_string(), self.run.run_end.clone())?;
        if existing.length_bytes() != Some(archive.size_bytes) {
            return Ok(false);
        }
        if let Some(ours) = archive.hashes {
            let tail = Tail::read(existing.as_ref())?;
            return Ok(tail.and_then(|tail| tail.hashes).is_some_and(|theirs| theirs.root == ours.root));
        }
        let ours = LocalFile::open(&archive.path())?;
        has_same_content(&ours, existing.as_ref(), self.run.progress)
    }
}

fn no_room_error(error: Error) -> Error {
    match error.kind() {
        ErrorKind::NoSpace => error.with_place("the archives that are kept leave no space for the next one").with_hint(
            "keep fewer archives, days, weeks or epochs, or set a shorter grace; or give the target more space",
        ),
        _ => error,
    }
}
