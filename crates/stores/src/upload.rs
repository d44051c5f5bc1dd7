//! Uploads a large file: bytes come in order, and threads send parts until they are stored.

use std::collections::BTreeMap;
use std::mem;
use std::sync::Arc;
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use crossbeam_channel::{Receiver, SendTimeoutError, Sender, bounded};
use object_store::{Attributes, PutPayload};
use parking_lot::Mutex;
use slotpress_base::progress::{self};
use slotpress_base::quantity::bytes as show_bytes;
use slotpress_base::threads::guarded;
use slotpress_base::{
    CancelToken, Error, ErrorKind, NoProgress, Progress, ProgressEvent, Result, cannot_start, panic_point,
};
use slotpress_net::patience::Patience;
use slotpress_net::{NetError, NetErrorKind, Url, shown};
use tokio::time::timeout;

use crate::UploadState;
use crate::directory::FileUpload;
use crate::parts::{PARTS_MAX, Parts};
use crate::store::InBucket;

/// Interval for checking whether to stop while waiting for a part.
const STOP_CHECK: Duration = Duration::from_millis(50);

/// Time limit for the requests that abort a failed upload; after it, the bucket's lifecycle rule
/// must remove the parts.
const ABORT_TIMEOUT: Duration = Duration::from_secs(10);

/// Limit on warnings of threads that are not reported yet.
const WARNINGS_MAX: usize = 100;

/// A large file that is being written. It appears whole when [`Upload::finish`] returns, or not at
/// all. Dropping an upload aborts it; one that was [kept](Upload::keep) can be resumed.
#[derive(Debug)]
#[warn(missing_docs)]
pub struct Upload(Backend);

#[derive(Debug)]
enum Backend {
    File(Box<FileUpload>),
    Parts(Box<PartsUpload>),
}

#[warn(missing_docs)]
impl Upload {
    pub(crate) fn into_dir(file: FileUpload) -> Self {
        Self(Backend::File(Box::new(file)))
    }

    pub(crate) fn begin(
        at: &InBucket,
        name: &str,
        headers: &Attributes,
        bytes_max: u64,
        progress: &dyn Progress,
    ) -> Result<Self> {
        let parts = Parts::new(bytes_max, at.options.memory_bytes)?;
        let upload_id = at.with_retries(progress, || at.bucket.begin(at.url_of(name), headers))?;
        Ok(Self(Backend::Parts(Box::new(PartsUpload::start(at, name, upload_id, parts, Vec::new(), 0)?))))
    }

    pub(crate) fn resume(at: &InBucket, name: &str, state: &UploadState, length_bytes: u64) -> Result<Option<Self>> {
        if !state.is_of(length_bytes) {
            return Ok(None);
        }
        let parts = Parts::of_size(state.part_bytes, at.options.memory_bytes)?;
        // The last part may be shorter than the others.
        let sent_bytes = state.done_bytes().min(length_bytes);
        let upload = PartsUpload::start(at, name, state.upload_id.clone(), parts, state.tags.clone(), sent_bytes)?;
        Ok(Some(Self(Backend::Parts(Box::new(upload)))))
    }

    fn parts(&self) -> Option<&PartsUpload> {
        match &self.0 {
            Backend::File(_) => None,
            Backend::Parts(upload) => Some(upload),
        }
    }

    /// Offset at which writing begins, after the bytes that an earlier process has sent.
    pub fn resumed_bytes(&self) -> u64 {
        self.parts().map_or(0, |upload| upload.resumed_bytes)
    }

    /// Writes the next bytes; waits while the maximum number of parts is in flight. Without bytes,
    /// checks whether an earlier part has failed.
    ///
    /// # Errors
    /// A part cannot be sent, or the disk fails; there are more bytes than announced; the user
    /// interrupts.
    pub fn write(&mut self, bytes: &[u8], progress: &dyn Progress) -> Result<()> {
        match &mut self.0 {
            Backend::File(upload) => upload.write(bytes),
            Backend::Parts(upload) => upload.write(bytes, progress),
        }
    }

    /// Number of stored parts from the first one up to the first gap; `None` for a directory.
    pub fn part_count(&self) -> Option<usize> {
        self.parts().map(|upload| upload.shared.sent.lock().count)
    }

    /// State of the upload with the tags of all parts; `None` for a directory.
    pub fn state(&self) -> Option<UploadState> {
        self.parts().map(PartsUpload::state)
    }

    /// Completes the file after everything was written.
    ///
    /// # Errors
    /// See [`Upload::write`]. The name is taken (only in a directory), or the store lost what was
    /// sent.
    pub fn finish(self, progress: &dyn Progress) -> Result<()> {
        match self.0 {
            Backend::File(upload) => upload.finish(),
            Backend::Parts(mut upload) => upload.finish(progress),
        }
    }

    /// Like [`finish`](Self::finish), but on failure keeps what was sent for another process, and
    /// passes the state to `keep`. If the store has lost a part, only a new upload helps, and
    /// nothing is kept.
    ///
    /// # Errors
    /// See [`Upload::finish`].
    pub fn finish_or_keep(self, progress: &dyn Progress, keep: &mut dyn FnMut(UploadState)) -> Result<()> {
        match self.0 {
            Backend::File(upload) => upload.finish(),
            Backend::Parts(mut upload) => {
                let finished = upload.finish(progress);
                if finished.as_ref().is_err_and(|error| !is_lost(error)) {
                    keep(upload.detach());
                }
                finished
            }
        }
    }

    /// Ends, and keeps what was sent for another process.
    pub fn keep(self) -> Option<UploadState> {
        match self.0 {
            Backend::File(_) => None,
            Backend::Parts(mut upload) => Some(upload.detach()),
        }
    }

    /// Like [`keep`](Self::keep), after a failure; `None` if the store has lost a part.
    pub fn keep_after(self, error: &Error) -> Option<UploadState> {
        if is_lost(error) { None } else { self.keep() }
    }
}

/// True if a store has dropped an upload or parts of it, so that it cannot be resumed.
fn is_lost(error: &Error) -> bool {
    let kind = NetError::of(error).map(NetError::kind);
    matches!(kind, Some(NetErrorKind::Gone | NetErrorKind::Changed))
}

#[derive(Debug)]
struct PartsUpload {
    shared: Arc<Shared>,
    parts: Parts,
    resumed_bytes: u64,
    length_bytes: u64,
    /// Parts passed to threads, including those of an earlier process.
    started_parts: u64,
    filling: Vec<u8>,
    parts_tx: Option<Sender<(usize, PutPayload)>>,
    threads: Vec<JoinHandle<()>>,
    is_closed: bool,
}

/// State shared by the threads, which is also their [`Progress`].
#[derive(Debug)]
struct Shared {
    at: InBucket,
    url: Url,
    upload_id: String,
    stop: CancelToken,
    sent: Mutex<SentParts>,
    failure: Mutex<Option<Error>>,
    warnings: Mutex<Vec<String>>,
}

/// Tags of stored parts, which arrive in any order.
#[derive(Debug, Default)]
struct SentParts {
    tags: BTreeMap<usize, String>,
    count: usize,
}

impl SentParts {
    fn add(&mut self, number: usize, tag: String) {
        self.tags.insert(number, tag);
        while self.tags.contains_key(&self.count) {
            self.count = self.count.saturating_add(1);
        }
    }

    fn after(&self, known: usize) -> Vec<String> {
        self.tags.range(known.min(self.count)..self.count).map(|(_, tag)| tag.clone()).collect()
    }
}

impl Progress for Shared {
    fn event(&self, event: ProgressEvent<'_>) {
        let ProgressEvent::Warning(message) = event else { return };
        let mut warnings = self.warnings.lock();
        if warnings.len() < WARNINGS_MAX {
            warnings.push(message.to_string());
        }
    }

    fn is_interrupted(&self) -> bool {
        self.stop.is_interrupted()
    }
}

impl Shared {
    fn send(&self, number: usize, payload: &PutPayload) -> Result<()> {
        panic_point("part sender");
        let tag =
            self.at.with_retries(self, || self.at.bucket.part(&self.url, &self.upload_id, number, payload.clone()))?;
        self.sent.lock().add(number, tag);
        Ok(())
    }

    fn send_all(&self, parts: &Receiver<(usize, PutPayload)>) {
        for (number, payload) in parts {
            if let Err(error) = guarded(|| self.send(number, &payload)) {
                self.failure.lock().get_or_insert(error);
                // The other threads can stop too.
                self.stop.cancel();
                return;
            }
        }
    }
}

impl PartsUpload {
    /// Starts an upload, some parts of which may be stored already: `tags` are theirs, and
    /// `sent_bytes` is their total length.
    fn start(
        at: &InBucket,
        name: &str,
        upload_id: String,
        parts: Parts,
        tags: Vec<String>,
        sent_bytes: u64,
    ) -> Result<Self> {
        let started_parts = tags.len() as u64;
        let shared = Arc::new(Shared {
            at: at.clone(),
            url: at.url_of(name),
            upload_id,
            stop: CancelToken::default(),
            sent: Mutex::new(SentParts { count: tags.len(), tags: tags.into_iter().enumerate().collect() }),
            failure: Mutex::default(),
            warnings: Mutex::default(),
        });
        let (sender, receiver) = bounded(0);
        let mut upload = Self {
            shared,
            parts,
            resumed_bytes: sent_bytes,
            length_bytes: sent_bytes,
            started_parts,
            filling: Vec::new(),
            parts_tx: Some(sender),
            threads: Vec::new(),
            is_closed: false,
        };
        for _ in 0..parts.in_flight {
            let (shared, receiver) = (upload.shared.clone(), receiver.clone());
            let thread = Builder::new().name("slotpress-part".to_string()).spawn(move || shared.send_all(&receiver));
            upload.threads.push(thread.map_err(|error| cannot_start(&error))?);
        }
        Ok(upload)
    }

    fn write(&mut self, mut bytes: &[u8], progress: &dyn Progress) -> Result<()> {
        self.check(progress)?;
        let part_bytes = self.parts.part_bytes as usize;
        self.length_bytes = self.length_bytes.saturating_add(bytes.len() as u64);
        while !bytes.is_empty() {
            if self.filling.capacity() == 0 {
                self.filling.reserve_exact(part_bytes);
            }
            let room = part_bytes.saturating_sub(self.filling.len()).min(bytes.len());
            let (now, later) = bytes.split_at(room);
            self.filling.extend_from_slice(now);
            bytes = later;
            if self.filling.len() == part_bytes {
                self.send(progress)?;
            }
        }
        Ok(())
    }

    /// Passes the filled part to a thread as soon as one is idle.
    fn send(&mut self, progress: &dyn Progress) -> Result<()> {
        if self.started_parts >= PARTS_MAX {
            let whole = show_bytes(self.parts.part_bytes.saturating_mul(PARTS_MAX));
            let message = format!("{}: longer than the {whole} that it was to have", shown(&self.shared.url));
            return Err(Error::failed(message).with_hint("the source grew while it was sent: run this again"));
        }
        let mut next = (self.started_parts as usize, PutPayload::from(mem::take(&mut self.filling)));
        self.started_parts = self.started_parts.saturating_add(1);
        loop {
            self.check(progress)?;
            let Some(parts_tx) = &self.parts_tx else { return Err(Error::interrupted()) };
            match parts_tx.send_timeout(next, STOP_CHECK) {
                Ok(()) => return Ok(()),
                Err(SendTimeoutError::Timeout(unsent)) => next = unsent,
                // All threads have ended with an error.
                Err(SendTimeoutError::Disconnected(_)) => {
                    self.check(progress)?;
                    return Err(Error::failed("the threads of an upload have ended"));
                }
            }
        }
    }

    /// Reports warnings of the threads, and returns their error.
    fn check(&self, progress: &dyn Progress) -> Result<()> {
        for warning in mem::take(&mut *self.shared.warnings.lock()) {
            progress.warn(&warning);
        }
        progress.check()?;
        self.shared.failure.lock().clone().map_or(Ok(()), Err)
    }

    fn state(&self) -> UploadState {
        UploadState {
            upload_id: self.shared.upload_id.clone(),
            part_bytes: self.parts.part_bytes,
            tags: self.shared.sent.lock().after(0),
        }
    }

    fn detach(&mut self) -> UploadState {
        self.end_threads(&NoProgress);
        self.is_closed = true;
        self.state()
    }

    fn finish(&mut self, progress: &dyn Progress) -> Result<()> {
        // An upload has at least one part.
        if !self.filling.is_empty() || self.started_parts == 0 {
            self.send(progress)?;
        }
        self.parts_tx = None;
        while self.threads.iter().any(|thread| !thread.is_finished()) {
            progress::wait(progress, STOP_CHECK.min(Duration::from_millis(5)));
            self.check(progress)?;
        }
        self.check(progress)?;
        let state = self.state();
        if state.tags.len() as u64 != self.started_parts {
            let (url, arrived, sent) = (shown(&self.shared.url), state.tags.len(), self.started_parts);
            let message = format!("{url}: {arrived} of {sent} parts have arrived");
            return Err(Error::new(ErrorKind::Network, message).with_hint("run this again"));
        }
        self.complete(&state.tags, progress)?;
        self.is_closed = true;
        Ok(())
    }

    /// Completes the upload. If the answer is lost, looks for the file.
    fn complete(&self, tags: &[String], progress: &dyn Progress) -> Result<()> {
        let Shared { at, url, upload_id, .. } = &*self.shared;
        let completed = at.with_retries(progress, || at.bucket.complete(url, upload_id, tags));
        let is_dropped = |error: &Error| NetError::of(error).is_some_and(|error| error.kind() == NetErrorKind::Gone);
        let there = match &completed {
            Err(error) if !is_dropped(error) => return completed,
            _ => at.with_retries(progress, || at.bucket.stat(url.clone()))?,
        };
        let has = match there {
            Some(there) if there.length_bytes == self.length_bytes => return Ok(()),
            Some(_) => "something else",
            None => "nothing there",
        };
        completed.and_then(|_| {
            let message = format!("{}: the store says it is complete, and has {has}", shown(url));
            Err(Error::new(ErrorKind::Network, message)
                .with_hint("run this again; if the error stays, look at the store's own log"))
        })
    }

    fn end_threads(&mut self, progress: &dyn Progress) {
        self.shared.stop.cancel();
        self.parts_tx = None;
        for thread in mem::take(&mut self.threads) {
            // A panic was recorded as a failure.
            let _ = thread.join();
        }
        let _ = self.check(progress);
    }
}

impl Drop for PartsUpload {
    fn drop(&mut self) {
        self.end_threads(&NoProgress);
        if self.is_closed {
            return;
        }
        let Shared { at, url, upload_id, .. } = &*self.shared;
        // Repeated like other requests: parts that are left cost money.
        let abort = || timeout(ABORT_TIMEOUT, at.bucket.abort(url.clone(), upload_id.clone()));
        let abort = || Ok(at.client.wait(&NoProgress, async { abort().await.unwrap_or(Ok(())) })?);
        let _ = Patience::new(ABORT_TIMEOUT).ask(&NoProgress, abort);
    }
}
