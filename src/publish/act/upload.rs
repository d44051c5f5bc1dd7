//! Puts an archive on a target: by a hard link where possible, otherwise by sending its bytes. An
//! interrupted upload is resumed. A bucket receives parts of an archive while it is still being
//! made; the store combines them to an object only after the archive is complete, checked and
//! named, and otherwise discards them.

use std::fs::File;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use rustix::fs::{CWD, fstat};
use rustix::io::Errno;
use slotpress_base::kept_dir::changed;
use slotpress_base::progress::wait;
use slotpress_base::{CancelToken, Error, ErrorKind, IoContext, Result};
use slotpress_format::{ArchiveName, Root};
use slotpress_read::{LocalFile, Tail, file_id};
use slotpress_stores::{Metadata, PART_BYTES_MIN, Store, Upload, UploadState};

use super::Run;
use super::index::{Ready, StateCheck};
use super::pins::link;
use crate::publish::remember::PartsLog;
use crate::restore::copies::has_same_content;

const PIECE_BYTES: u64 = 1 << 20;

/// Interval between checks whether parts have arrived.
const PARTS_CHECK: Duration = Duration::from_millis(20);

/// An upload in progress, and the position in the file up to which it was sent.
pub type Sent = (Upload, u64);

/// An archive being made, shared between the thread that makes it and those that send it.
#[derive(Debug)]
pub struct Making {
    pub name: ArchiveName,
    stage: Mutex<Stage>,
}

#[derive(Clone, Debug)]
enum Stage {
    /// No byte of the archive exists yet.
    Begun,
    /// The file grows at its end; bytes in it do not change any more.
    Grows { file: Arc<File>, bytes_max: u64 },
    /// The archive is ready, or `None` if making it failed.
    Over(Option<Box<Ready>>),
}

impl Making {
    pub fn new(name: ArchiveName) -> Self {
        Self { name, stage: Mutex::new(Stage::Begun) }
    }

    /// Announces the file that grows, and an estimate of its maximum length.
    pub fn grows(&self, file: File, bytes_max: u64) {
        *self.stage.lock() = Stage::Grows { file: Arc::new(file), bytes_max };
    }

    /// Announces the end: the ready archive, or `None` if making it failed.
    pub fn is_over(&self, ready: Option<Ready>) {
        *self.stage.lock() = Stage::Over(ready.map(Box::new));
    }
}

pub struct Uploader<'a> {
    pub run: &'a Run<'a>,
    pub store: &'a Store,
}

impl Uploader<'_> {
    /// Puts an archive on the target, except for the part already `sent`. Leaves an identical
    /// archive of the same name unchanged; fails if another file has the name.
    pub fn put(&self, ready: &Ready, sent: Option<Sent>) -> Result<()> {
        let put = match self.link(ready)? {
            true => Ok(()),
            false => self.send(ready, sent),
        };
        match put {
            Err(error) if error.kind() == ErrorKind::Exists => match self.is_there(ready)? {
                true => Ok(()),
                false => Err(error.with_hint("it is not what would be published: names never change, so move it away")),
            },
            put => put,
        }
    }

    /// Uploads an archive while it is still being written. Returns the archive when it is ready,
    /// with the upload so far, or `None` if making the archive failed. The upload is `None` if the
    /// archive was shorter than a part or the store failed: then all of it is still to be sent.
    pub fn send_while_made(&self, making: &Making) -> Result<Option<(Ready, Option<Sent>)>> {
        let (mut sent, mut source, mut buffer, mut has_failed) = (None, None, Vec::new(), false);
        loop {
            self.run.progress.check()?;
            let stage = making.stage.lock().clone();
            match stage {
                Stage::Over(None) => return Ok(None),
                Stage::Over(Some(ready)) => {
                    let stat = source.and_then(|source: Arc<File>| fstat(source).ok());
                    let is_it = stat.is_some_and(|stat| file_id(&stat) == ready.archive.file_id);
                    let sent = sent.filter(|(_, at)| is_it && *at <= ready.archive.size_bytes);
                    return Ok(Some((*ready, sent)));
                }
                Stage::Grows { file, bytes_max } if !has_failed => {
                    if let Err(error) = self.send_more(making, &file, bytes_max, &mut sent, &mut buffer) {
                        (sent, has_failed) = (None, true);
                        self.run.progress.detail(&format!("{} is sent when it is ready: {error}", making.name));
                    }
                    source = Some(file);
                }
                Stage::Begun | Stage::Grows { .. } => wait(self.run.progress, PARTS_CHECK),
            }
        }
    }

    /// Sends the next bytes of an archive being made, or waits for some.
    fn send_more(
        &self,
        making: &Making,
        file: &File,
        bytes_max: u64,
        sent: &mut Option<Sent>,
        buffer: &mut Vec<u8>,
    ) -> Result<()> {
        let path = Path::new("the archive being made");
        let there = file.metadata().or_path("read", path)?.len();
        if sent.is_none() && there >= PART_BYTES_MIN {
            let upload = self.begin(&making.name, None, StateCheck::of(&making.name), bytes_max)?;
            // Recorded without a tag, so that a later run aborts this upload and does not resume
            // it.
            self.remember(&making.name, String::new(), upload.state())?;
            *sent = Some((upload, 0));
        }
        match sent {
            Some((upload, at)) if *at < there => *at = self.send_piece(upload, file, path, *at..there, buffer)?,
            sent => {
                // Writing nothing returns the error of a part that failed.
                sent.as_mut().map_or(Ok(()), |(upload, _)| upload.write(&[], self.run.progress))?;
                wait(self.run.progress, PARTS_CHECK);
            }
        }
        Ok(())
    }

    /// Sends the first piece of the range `left` of a file; returns where the piece ends.
    fn send_piece(
        &self,
        upload: &mut Upload,
        file: &File,
        path: &Path,
        left: Range<u64>,
        buffer: &mut Vec<u8>,
    ) -> Result<u64> {
        let end = left.start.saturating_add(PIECE_BYTES).min(left.end);
        let io_hint = self.run.options.recompress.encoding.io_policy.io_hint;
        let piece = io_hint.read_range(file, &(left.start..end), left.end, buffer).or_path("read", path)?;
        upload.write(piece, self.run.progress)?;
        Ok(end)
    }

    /// Aborts multipart uploads that no run will resume. If the store fails, tries again after the
    /// next order.
    pub fn abort_abandoned(&self) -> Result<()> {
        for (key, begun) in self.run.pins.journal.read(|entries| entries.uploads.clone()) {
            let name = key.rsplit('/').next().unwrap_or_default();
            if !begun.of.is_empty() || self.store.shown(name) != key {
                continue;
            }
            match self.store.abort(name, &begun.state, self.run.progress) {
                Ok(()) => self.run.pins.journal.end_upload(&key)?,
                Err(error) => self.run.progress.detail(&format!("parts of {key} stay in the store: {error}")),
            }
        }
        Ok(())
    }

    /// Creates a hard link to the file. Returns false if the target is not a directory on the same
    /// file system, or the name is taken.
    fn link(&self, ready: &Ready) -> Result<bool> {
        let Some(dir) = self.store.dir() else { return Ok(false) };
        let path = ready.archive.path();
        match link(CWD, &path, &ready.archive, dir)? {
            Ok(true) => dir.sync().map(|()| true),
            Ok(false) => Err(changed(&path)),
            // If the name is taken, `send` reports it.
            Err(Errno::XDEV | Errno::PERM | Errno::MLINK | Errno::OPNOTSUPP | Errno::EXIST) => Ok(false),
            Err(error) => Err(Error::io("publish", &dir.path_of(ready.archive.name.to_string()), &error.into())),
        }
    }

    fn begin(&self, name: &ArchiveName, root: Option<Root>, state: StateCheck, bytes_max: u64) -> Result<Upload> {
        let mut metadata = Metadata::of_archive(name, root);
        metadata.user.push(("slotpress-state".to_string(), state.as_str().to_string()));
        self.store.upload(&name.to_string(), &metadata, bytes_max, false, self.run.progress)
    }

    /// Records the progress of an upload in the journal; `None` removes the record.
    fn remember(&self, name: &ArchiveName, of: String, state: Option<UploadState>) -> Result<Option<PartsLog>> {
        let key = self.store.shown(&name.to_string());
        match state {
            Some(state) => self.run.pins.journal.begin_upload(&key, of, state).map(Some),
            None => self.run.pins.journal.end_upload(&key).map(|()| None),
        }
    }

    fn send(&self, ready: &Ready, sent: Option<Sent>) -> Result<()> {
        let (name, tag) = (&ready.archive.name, ready.archive.etag());
        let (mut upload, at) = match sent {
            Some(sent) => sent,
            None => self.begin_or_resume(ready)?,
        };
        match self.send_bytes(&mut upload, at, ready) {
            Ok(()) => {
                let mut kept = None;
                let done = upload.finish_or_keep(self.run.progress, &mut |state| kept = Some(state));
                self.remember(name, tag, kept)?;
                done.map(drop)
            }
            Err(error) => {
                self.remember(name, tag, upload.keep_after(&error))?;
                Err(error)
            }
        }
    }

    fn begin_or_resume(&self, ready: &Ready) -> Result<Sent> {
        let (archive, name) = (&ready.archive, ready.archive.name.to_string());
        if let Some(begun) = self.run.pins.journal.upload(&self.store.shown(&name))? {
            let is_of_it = begun.of == archive.etag();
            let resume = || self.store.resume(&name, &begun.state, archive.size_bytes);
            if let Some(upload) = is_of_it.then(resume).transpose()?.flatten() {
                let at = upload.resumed_bytes();
                return Ok((upload, at));
            }
            self.store.abort(&name, &begun.state, self.run.progress)?;
        }
        let root = archive.hashes.map(|hashes| hashes.root);
        Ok((self.begin(&archive.name, root, ready.state(), archive.size_bytes)?, 0))
    }

    /// Sends the file from position `at` on, and records each part that arrives.
    fn send_bytes(&self, upload: &mut Upload, mut at: u64, ready: &Ready) -> Result<()> {
        let (path, bytes) = (ready.archive.path(), ready.archive.size_bytes);
        let (file, _) = ready.archive.open().or_path("open", &path)?;
        let mut buffer = Vec::new();
        let mut log = match upload.state() {
            None => None,
            state => self.remember(&ready.archive.name, ready.archive.etag(), state)?,
        };
        loop {
            let mut is_all = true;
            if let (Some(count), Some(log)) = (upload.part_count(), &mut log) {
                is_all = log.part_bytes.saturating_mul((count as u64).saturating_add(1)) > bytes;
                if count > log.count {
                    log.append(&upload.tags_after(log.count))?;
                }
            }
            if at < bytes {
                self.run.progress.check()?;
                at = self.send_piece(upload, &file, &path, at..bytes, &mut buffer)?;
            } else if is_all {
                return Ok(());
            } else {
                // Wait for all parts but the last: each one that arrives is recorded, and is not
                // sent again after a failure.
                upload.write(&[], self.run.progress)?;
                wait(self.run.progress, PARTS_CHECK);
            }
        }
    }

    /// True if the object of this name is identical: compares roots if they are known, otherwise
    /// contents.
    fn is_there(&self, ready: &Ready) -> Result<bool> {
        let archive = &ready.archive;
        let there = self.store.open_source(&archive.name.to_string(), CancelToken::default())?;
        if there.length_bytes() != Some(archive.size_bytes) {
            return Ok(false);
        }
        if let Some(ours) = archive.hashes {
            let tail = Tail::read(there.as_ref())?;
            return Ok(tail.and_then(|tail| tail.hashes).is_some_and(|theirs| theirs.root == ours.root));
        }
        has_same_content(&LocalFile::open(&archive.path())?, there.as_ref(), self.run.progress)
    }
}
