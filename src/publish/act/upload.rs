//! Puts an archive on a target: by a hard link where possible, otherwise by sending its bytes. An
//! interrupted upload is resumed.

use std::time::Duration;

use rustix::fs::CWD;
use rustix::io::Errno;
use slotpress_base::kept_dir::changed;
use slotpress_base::progress::wait;
use slotpress_base::{Error, ErrorKind, IoContext, Result};
use slotpress_read::{LocalFile, Tail};
use slotpress_stores::{Attribute, Store, Upload, UploadState, headers_of};

use super::Run;
use super::index::{Ready, state_of};
use super::pins::link;
use crate::publish::remember::BegunUpload;
use crate::restore::copies::has_same_content;

const PIECE_BYTES: u64 = 1 << 20;

/// Interval between checks whether parts have arrived.
const PARTS_CHECK: Duration = Duration::from_millis(20);

/// Number of parts that arrive before they are recorded: the journal is written as a whole, and a
/// kill makes at most so many be sent again.
const PARTS_APART: usize = 16;

pub struct Uploader<'r, 'a> {
    pub run: &'r Run<'a>,
    pub store: &'r Store,
}

impl Uploader<'_, '_> {
    /// Puts an archive on the target. Leaves an identical archive of the same name unchanged; fails
    /// if another file has the name.
    pub fn put(&self, ready: &Ready) -> Result<()> {
        let put = match self.link(ready)? {
            true => Ok(()),
            false => self.send(ready),
        };
        match put {
            Err(error) if error.kind() == ErrorKind::Exists => match self.is_there(ready)? {
                true => Ok(()),
                false => Err(error.with_hint("it is not what would be published: names never change, so move it away")),
            },
            put => put,
        }
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

    /// Records the progress of an upload in the journal; `None` removes the record.
    fn remember(&self, ready: &Ready, state: Option<UploadState>) -> Result<()> {
        let key = self.store.shown(&ready.archive.name.to_string());
        let upload = state.map(|state| BegunUpload { of: ready.archive.etag(), state });
        self.run.pins.journal.keep_upload(&key, upload)
    }

    fn send(&self, ready: &Ready) -> Result<()> {
        let mut upload = self.begin_or_resume(ready)?;
        match self.send_bytes(&mut upload, ready) {
            Ok(()) => {
                let mut kept = None;
                let done = upload.finish_or_keep(self.run.progress, &mut |state| kept = Some(state));
                self.remember(ready, kept)?;
                done
            }
            Err(error) => {
                self.remember(ready, upload.keep_after(&error))?;
                Err(error)
            }
        }
    }

    fn begin_or_resume(&self, ready: &Ready) -> Result<Upload> {
        let (archive, name) = (&ready.archive, ready.archive.name.to_string());
        let key = self.store.shown(&name);
        if let Some(begun) = self.run.pins.journal.read(|entries| entries.uploads.get(&key).cloned()) {
            let is_of_it = begun.of == archive.etag();
            let resume = || self.store.resume(&name, &begun.state, archive.size_bytes);
            if let Some(upload) = is_of_it.then(resume).transpose()?.flatten() {
                return Ok(upload);
            }
            self.store.abort(&name, &begun.state, self.run.progress)?;
        }
        let mut headers = headers_of(&archive.name, archive.hashes.map(|hashes| hashes.root));
        headers.insert(Attribute::Metadata("slotpress-state".into()), state_of(&ready.archive).into());
        self.store.upload(&name, &headers, archive.size_bytes, false, self.run.progress)
    }

    /// Sends what is left of the file, and records which parts have arrived.
    fn send_bytes(&self, upload: &mut Upload, ready: &Ready) -> Result<()> {
        let (path, bytes, progress) = (ready.archive.path(), ready.archive.size_bytes, self.run.progress);
        let (file, _) = ready.archive.open().or_path("open", &path)?;
        let io_hint = self.run.options.recompress.encoding.io_policy.io_hint;
        let (mut at, mut buffer, mut next_count) = (upload.resumed_bytes(), Vec::new(), 0);
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
        upload.state().map_or(Ok(()), |state| self.remember(ready, Some(state)))
    }

    /// True if the object of this name is identical: compares roots if they are known, otherwise
    /// contents.
    fn is_there(&self, ready: &Ready) -> Result<bool> {
        let archive = &ready.archive;
        let there = self.store.open_source(&archive.name.to_string(), self.run.over.clone())?;
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
