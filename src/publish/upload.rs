//! Puts an archive on a target: by another name for the file where that is possible, else by its bytes. What an earlier run
//! has sent is not sent again.

use std::time::Duration;

use rustix::fs::{AtFlags, CWD, linkat};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use slotpress_base::kept_dir::changed;
use slotpress_base::progress::wait;
use slotpress_base::{CancelToken, Error, ErrorKind, IoContext, IoHint, Progress, Result};
use slotpress_format::{ArchiveName, Root};
use slotpress_read::{LocalFile, Source, Tail};
use slotpress_stores::{Metadata, Upload, UploadState};

use super::journal::State;
use super::notes::Notes;
use super::shelf::{Ready, Shelf};

/// Read at a time.
pub const PIECE_BYTES: u64 = 1 << 20;

/// How often it is looked at whether parts have arrived.
pub const PARTS_CHECK: Duration = Duration::from_millis(20);

/// An upload that was begun, for the journal: of which bytes, and what the store needs to go on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Begun {
    /// The tag of the archive: another one of this name is not gone on with. Empty where nothing is.
    pub of: String,
    /// How far it is.
    pub state: UploadState,
}

/// An upload on its way, and where in the file it is.
pub type Sent = (Upload, u64);

/// Puts an archive there, of which some may be sent. One that an earlier run has put there is left as it is.
///
/// # Errors
/// The target fails; another file has the name.
pub fn upload(
    shelf: &Shelf,
    ready: &Ready,
    sent: Option<Sent>,
    io_hint: IoHint,
    notes: &Notes<'_>,
    progress: &dyn Progress,
) -> Result<()> {
    let put = match link(shelf, ready)? {
        true => Ok(()),
        false => send(shelf, ready, sent, io_hint, notes, progress),
    };
    match put {
        Err(error) if error.kind() == ErrorKind::Exists => match is_there(shelf, ready, progress)? {
            true => Ok(()),
            false => Err(error.with_hint("it is not what would be published: names never change, so move it away")),
        },
        put => put,
    }
}

/// Gives the file another name, in a directory on the same file system.
fn link(shelf: &Shelf, ready: &Ready) -> Result<bool> {
    let Some(dir) = shelf.store.dir() else { return Ok(false) };
    let (path, name) = (ready.archive.path(), ready.archive.name.to_string());
    match linkat(CWD, &path, dir, &name, AtFlags::empty()) {
        Ok(()) => {}
        // Also where the name is taken, which is said there.
        Err(Errno::XDEV | Errno::PERM | Errno::MLINK | Errno::OPNOTSUPP | Errno::EXIST) => return Ok(false),
        Err(error) => return Err(Error::io("publish", &dir.path_of(&name), &error.into())),
    }
    let ours = ready.archive.file_id;
    if dir.found(&name)?.is_none_or(|found| (found.device, found.inode) != (ours.device, ours.inode)) {
        dir.remove_file(&name).or_path("remove", &dir.path_of(&name))?;
        return Err(changed(&path));
    }
    dir.sync().map(|()| true)
}

/// Begins to send an archive of at most so many bytes.
///
/// # Errors
/// The name is taken; the target fails.
pub fn begin(
    shelf: &Shelf,
    name: &ArchiveName,
    root: Option<Root>,
    state: State,
    bytes_max: u64,
    progress: &dyn Progress,
) -> Result<Upload> {
    let mut metadata = Metadata::of_archive(name, root);
    metadata.user.push(("slotpress-state".to_string(), state.as_str().to_string()));
    shelf.store.upload(&name.to_string(), &metadata, bytes_max, false, progress)
}

/// Has the store forget what nothing goes on with, of this run or an earlier one. What it does not forget now is tried again
/// after the next task.
///
/// # Errors
/// The journal cannot be written.
pub fn forget(shelf: &Shelf, notes: &Notes<'_>, progress: &dyn Progress) -> Result<()> {
    for (key, begun) in notes.read(|journal| journal.uploads.clone()) {
        let name = key.rsplit('/').next().unwrap_or_default();
        if !begun.of.is_empty() || shelf.store.shown(name) != key {
            continue;
        }
        match shelf.store.abort(name, &begun.state, progress) {
            Ok(()) => notes.set_upload(&key, None)?,
            Err(error) => progress.detail(&format!("parts of {key} stay in the store: {error}")),
        }
    }
    Ok(())
}

fn send(
    shelf: &Shelf,
    ready: &Ready,
    sent: Option<Sent>,
    io_hint: IoHint,
    notes: &Notes<'_>,
    progress: &dyn Progress,
) -> Result<()> {
    let name = ready.archive.name.to_string();
    let key = shelf.store.shown(&name);
    let begun = match notes.upload(&key) {
        _ if sent.is_some() => None,
        Some(begun) if begun.of == ready.archive.etag() => {
            shelf.store.resume(&name, &begun.state, ready.archive.size_bytes)?
        }
        Some(begun) => {
            shelf.store.abort(&name, &begun.state, progress)?;
            None
        }
        None => None,
    };
    let bytes = ready.archive.size_bytes;
    let (mut upload, at) = match (sent, begun) {
        (Some(sent), _) => sent,
        (None, Some(upload)) => {
            let at = upload.resumed_bytes();
            (upload, at)
        }
        (None, None) => {
            let root = ready.archive.hashes.map(|hashes| hashes.root);
            (begin(shelf, &ready.archive.name, root, ready.state, bytes, progress)?, 0)
        }
    };
    let mut remember = |state: Option<UploadState>| {
        notes.set_upload(&key, state.map(|state| Begun { of: ready.archive.etag(), state }))
    };
    match send_bytes(&mut upload, at, ready, io_hint, &mut remember, progress) {
        Ok(()) => {
            let mut kept = None;
            let done = upload.finish_or_keep(progress, &mut |state| kept = Some(state));
            remember(kept)?;
            done.map(drop)
        }
        Err(error) => {
            remember(upload.keep_after(&error))?;
            Err(error)
        }
    }
}

/// Sends what is left from there on, and remembers each part that is there.
fn send_bytes(
    upload: &mut Upload,
    mut at: u64,
    ready: &Ready,
    io_hint: IoHint,
    remember: &mut dyn FnMut(Option<UploadState>) -> Result<()>,
    progress: &dyn Progress,
) -> Result<()> {
    let path = ready.archive.path();
    let (file, _) = ready.archive.open().or_path("open", &path)?;
    let bytes = ready.archive.size_bytes;
    let (mut buffer, mut parts) = (Vec::new(), None);
    let mut remember_new = |upload: &Upload| {
        let Some(state) = upload.state() else { return Ok(true) };
        let is_all = state.done_bytes().saturating_add(state.part_bytes) > bytes;
        if parts.replace(state.tags.len()) != Some(state.tags.len()) {
            remember(Some(state))?;
        }
        Ok::<_, Error>(is_all)
    };
    remember_new(upload)?;
    while at < bytes {
        progress.check()?;
        let end = at.saturating_add(PIECE_BYTES).min(bytes);
        upload.write(io_hint.read_range(&file, &(at..end), bytes, &mut buffer).or_path("read", &path)?, progress)?;
        at = end;
        remember_new(upload)?;
    }
    // The last part goes at the end: until then, each that arrives is one that is not sent again.
    while !remember_new(upload)? {
        upload.write(&[], progress)?;
        wait(progress, PARTS_CHECK);
    }
    Ok(())
}

/// Whether what has the name is what would be put there: by what stands for all bytes where that is known, else by the bytes.
fn is_there(shelf: &Shelf, ready: &Ready, progress: &dyn Progress) -> Result<bool> {
    let name = ready.archive.name.to_string();
    let there = shelf.store.open_source(&name, CancelToken::default())?;
    if there.length_bytes() != Some(ready.archive.size_bytes) {
        return Ok(false);
    }
    if let Some(ours) = ready.archive.hashes {
        let tail = Tail::read(there.as_ref())?;
        return Ok(tail.and_then(|tail| tail.hashes).is_some_and(|theirs| theirs.root == ours.root));
    }
    let ours = LocalFile::open(&ready.archive.path())?;
    let (mut at, mut one, mut other) = (0, vec![0; PIECE_BYTES as usize], vec![0; PIECE_BYTES as usize]);
    while at < ready.archive.size_bytes {
        progress.check()?;
        let (read, same) = (ours.read_up_to(&mut one, at), there.read_up_to(&mut other, at));
        let (read, same) = (read.or_path("read", ours.path())?, same.or_path("read", there.path())?);
        if read == 0 || one.get(..read) != other.get(..same) {
            return Ok(false);
        }
        at = at.saturating_add(read as u64);
    }
    Ok(true)
}
