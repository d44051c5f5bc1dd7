//! Uploads a large file: bytes are written in order, and several parts are sent at a time.

use std::collections::BTreeMap;
use std::mem;
use std::time::Duration;

use object_store::{Attributes, PutPayload};
use slotpress_base::quantity::bytes as show_bytes;
use slotpress_base::{Error, ErrorKind, NoProgress, Progress, Result, panic_error, panic_point};
use slotpress_net::retries::Retries;
use slotpress_net::{NetError, NetErrorKind, Url, show_url};
use tokio::sync::watch;
use tokio::task::{JoinError, JoinSet};
use tokio::time::timeout;

use crate::directory::FileUpload;
use crate::parts::PartSizes;
use crate::store::BucketPrefix;
use crate::{PARTS_MAX, UploadState};

/// Time limit for the requests that abort a failed upload. If they fail, the bucket's lifecycle rule
/// must remove the parts.
const ABORT_TIMEOUT: Duration = Duration::from_secs(10);

/// Time for which an abort waits for parts that are in flight. A part that arrives before the abort, but is
/// stored after it, may be left behind.
const ARRIVAL_TIMEOUT: Duration = Duration::from_secs(10);

/// A large file that is being written. It appears complete when [`Upload::finish`] succeeds, or not at all.
/// Dropping an unfinished upload aborts it; an upload that was [kept](Upload::keep) can be resumed.
#[derive(Debug)]
pub struct Upload(Backend);

#[derive(Debug)]
enum Backend {
    /// `None` once the file has its name.
    File(Option<Box<FileUpload>>),
    Parts(Box<PartsUpload>),
}

impl Upload {
    pub(crate) fn from_file(file: FileUpload) -> Self {
        Self(Backend::File(Some(Box::new(file))))
    }

    pub(crate) fn begin(
        s3: &BucketPrefix,
        name: &str,
        headers: &Attributes,
        bytes_max: u64,
        progress: &dyn Progress,
    ) -> Result<Self> {
        let sizes = PartSizes::new(bytes_max, s3.options.memory_bytes)?;
        let upload_id = s3.retry(progress, || s3.bucket.begin_upload(s3.url_of(name), headers))?;
        Ok(Self(Backend::Parts(Box::new(PartsUpload::new(s3, name, upload_id, sizes)))))
    }

    pub(crate) fn resume(
        s3: &BucketPrefix,
        name: &str,
        state: &UploadState,
        length_bytes: u64,
    ) -> Result<Option<Self>> {
        if !state.fits_length(length_bytes) {
            return Ok(None);
        }
        let sizes = PartSizes::with_size(state.part_bytes, s3.options.memory_bytes)?;
        let mut upload = PartsUpload::new(s3, name, state.upload_id.clone(), sizes);
        upload.tags = state.tags.iter().cloned().enumerate().collect();
        (upload.stored_parts, upload.started_parts) = (state.tags.len(), state.tags.len());
        // The last part may be shorter than the others.
        upload.resumed_bytes = state.done_bytes().min(length_bytes);
        upload.length_bytes = upload.resumed_bytes;
        Ok(Some(Self(Backend::Parts(Box::new(upload)))))
    }

    fn parts(&self) -> Option<&PartsUpload> {
        match &self.0 {
            Backend::File(_) => None,
            Backend::Parts(upload) => Some(upload),
        }
    }

    /// Returns the offset at which writing begins: the number of bytes that an earlier process has sent.
    pub fn resumed_bytes(&self) -> u64 {
        self.parts().map_or(0, |upload| upload.resumed_bytes)
    }

    /// Writes the next bytes, and waits while the maximum number of parts is in flight. If `bytes` is empty,
    /// only records the parts that have arrived or failed.
    ///
    /// # Errors
    /// A part cannot be sent, or the disk fails; there are more bytes than fit into the parts; `progress` is
    /// interrupted.
    pub fn write(&mut self, bytes: &[u8], progress: &dyn Progress) -> Result<()> {
        match &mut self.0 {
            Backend::File(Some(upload)) => upload.write(bytes),
            Backend::File(None) => Err(Error::failed("a finished file accepts no more bytes")),
            Backend::Parts(upload) => upload.write(bytes, progress),
        }
    }

    /// Returns the number of stored parts from the first one up to the first gap; `None` for a
    /// directory.
    pub fn part_count(&self) -> Option<usize> {
        self.parts().map(|upload| upload.stored_parts)
    }

    /// Returns the state of the upload, from which another process can resume it; `None` for a directory.
    pub fn state(&self) -> Option<UploadState> {
        self.parts().map(PartsUpload::state)
    }

    /// Completes the file after all bytes have been written.
    ///
    /// # Errors
    /// Those of [`Upload::write`]; or the name is taken (only in a directory), or the store has lost parts.
    pub fn finish(&mut self, progress: &dyn Progress) -> Result<()> {
        match &mut self.0 {
            Backend::File(upload) => match upload.take() {
                Some(upload) => upload.finish(),
                None => Ok(()),
            },
            Backend::Parts(upload) => upload.finish(progress),
        }
    }

    /// Ends the upload after a failure, and keeps its parts for another process. Returns `None` for a
    /// directory, or if the store has lost a part: then only a new upload helps.
    pub fn keep(self, error: &Error) -> Option<UploadState> {
        let kind = NetError::find_in(error).map(NetError::kind);
        let is_lost = matches!(kind, Some(NetErrorKind::Gone | NetErrorKind::Changed));
        match self.0 {
            Backend::Parts(mut upload) if !is_lost => {
                upload.needs_abort = false;
                Some(upload.state())
            }
            _ => None,
        }
    }
}

/// A part after one attempt to send it.
#[derive(Debug)]
struct SentPart {
    number: usize,
    payload: PutPayload,
    tag: Result<String, NetError>,
}

#[derive(Debug)]
struct PartsUpload {
    s3: BucketPrefix,
    url: Url,
    upload_id: String,
    sizes: PartSizes,
    /// Failures of the store. They are reset when any part arrives.
    retries: Retries,
    resumed_bytes: u64,
    length_bytes: u64,
    /// Bytes of the part that is being filled.
    part_buffer: Vec<u8>,
    /// Number of parts that were started, including those of an earlier process.
    started_parts: usize,
    sending: JoinSet<SentPart>,
    /// Set to true when no part may be sent any more.
    stop: watch::Sender<bool>,
    tags: BTreeMap<usize, String>,
    /// Number of stored parts from the first one up to the first gap.
    stored_parts: usize,
    needs_abort: bool,
}

impl PartsUpload {
    fn new(s3: &BucketPrefix, name: &str, upload_id: String, sizes: PartSizes) -> Self {
        Self {
            s3: s3.clone(),
            url: s3.url_of(name),
            upload_id,
            sizes,
            retries: Retries::new(s3.options.give_up_after),
            resumed_bytes: 0,
            length_bytes: 0,
            part_buffer: Vec::new(),
            started_parts: 0,
            sending: JoinSet::new(),
            stop: watch::Sender::new(false),
            tags: BTreeMap::new(),
            stored_parts: 0,
            needs_abort: true,
        }
    }

    fn write(&mut self, mut bytes: &[u8], progress: &dyn Progress) -> Result<()> {
        progress.check()?;
        while let Some(sent) = self.sending.try_join_next() {
            self.record_sent(sent, progress)?;
        }
        let part_bytes = self.sizes.part_bytes as usize;
        self.length_bytes = self.length_bytes.saturating_add(bytes.len() as u64);
        while !bytes.is_empty() {
            if self.part_buffer.capacity() == 0 {
                self.part_buffer.reserve_exact(part_bytes);
            }
            let room = part_bytes.saturating_sub(self.part_buffer.len()).min(bytes.len());
            let (fitting, rest) = bytes.split_at(room);
            self.part_buffer.extend_from_slice(fitting);
            bytes = rest;
            if self.part_buffer.len() == part_bytes {
                self.send_filled_part(progress)?;
            }
        }
        Ok(())
    }

    /// Sends the filled part as soon as fewer than the maximum number of parts are in flight.
    fn send_filled_part(&mut self, progress: &dyn Progress) -> Result<()> {
        if self.started_parts as u64 >= PARTS_MAX {
            let allowed = show_bytes(self.sizes.part_bytes.saturating_mul(PARTS_MAX));
            let message = format!("{}: longer than the {allowed} that its parts can hold", show_url(&self.url));
            return Err(Error::failed(message).with_hint("the source grew while it was sent: run this again"));
        }
        self.wait_until_fewer_in_flight(self.sizes.parts_in_flight, progress)?;
        let payload = PutPayload::from(mem::take(&mut self.part_buffer));
        self.start_sending(self.started_parts, payload);
        self.started_parts = self.started_parts.saturating_add(1);
        Ok(())
    }

    /// Makes one attempt to send a part, after the pause that earlier failures require.
    fn start_sending(&mut self, number: usize, payload: PutPayload) {
        let bucket = self.s3.bucket.clone();
        let url = self.url.clone();
        let upload_id = self.upload_id.clone();
        let pause = self.retries.pause();
        let mut stop = self.stop.subscribe();
        self.s3.client.spawn(&mut self.sending, async move {
            let mut tag = Err(NetError::interrupted());
            // The pause ends early if the upload stops.
            if timeout(pause, stop.wait_for(|is_stopped| *is_stopped)).await.is_err() {
                panic_point("part sender");
                tag = bucket.send_part(&url, &upload_id, number, payload.clone()).await;
            }
            SentPart { number, payload, tag }
        });
    }

    /// Waits until fewer than `limit` parts are in flight.
    fn wait_until_fewer_in_flight(&mut self, limit: usize, progress: &dyn Progress) -> Result<()> {
        while self.sending.len() >= limit {
            let sending = &mut self.sending;
            let next = async { Ok(sending.join_next().await) };
            let Some(sent) = self.s3.client.block_on(progress, next)? else { break };
            self.record_sent(sent, progress)?;
        }
        Ok(())
    }

    /// Records a part that has arrived, or sends it again.
    fn record_sent(&mut self, sent: Result<SentPart, JoinError>, progress: &dyn Progress) -> Result<()> {
        let sent = sent.map_err(|error| match error.try_into_panic() {
            Ok(payload) => panic_error(payload.as_ref()),
            Err(_) => Error::interrupted(),
        })?;
        self.s3.record_attempt(sent.tag.as_ref().err());
        match sent.tag {
            Ok(tag) => {
                self.retries.reset();
                self.tags.insert(sent.number, tag);
                while self.tags.contains_key(&self.stored_parts) {
                    self.stored_parts = self.stored_parts.saturating_add(1);
                }
            }
            Err(error) if self.s3.may_retry() && self.retries.record_failure(&error, progress) => {
                self.start_sending(sent.number, sent.payload);
            }
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }

    fn state(&self) -> UploadState {
        let stored = self.tags.range(..self.stored_parts);
        UploadState {
            upload_id: self.upload_id.clone(),
            part_bytes: self.sizes.part_bytes,
            tags: stored.map(|(_, tag)| tag.clone()).collect(),
        }
    }

    fn finish(&mut self, progress: &dyn Progress) -> Result<()> {
        // An upload has at least one part.
        if !self.part_buffer.is_empty() || self.started_parts == 0 {
            self.send_filled_part(progress)?;
        }
        self.wait_until_fewer_in_flight(1, progress)?;
        if self.stored_parts != self.started_parts {
            let url = show_url(&self.url);
            let arrived = self.stored_parts;
            let sent = self.started_parts;
            let message = format!("{url}: {arrived} of {sent} parts have arrived");
            return Err(Error::new(ErrorKind::Network, message).with_hint("run this again"));
        }
        self.complete(&self.state().tags, progress)?;
        self.needs_abort = false;
        Ok(())
    }

    /// Completes the upload, and checks the file's length. If the response to an earlier attempt was lost, the
    /// store no longer has the upload, but has the file.
    fn complete(&self, tags: &[String], progress: &dyn Progress) -> Result<()> {
        let s3 = &self.s3;
        let url = &self.url;
        let completed = s3.retry(progress, || s3.bucket.complete_upload(url, &self.upload_id, tags));
        if let Err(error) = &completed
            && NetError::find_in(error).map(NetError::kind) != Some(NetErrorKind::Gone)
        {
            return completed;
        }
        match (completed, s3.retry(progress, || s3.bucket.stat(url.clone()))?) {
            (_, Some(file)) if file.length_bytes == self.length_bytes => Ok(()),
            (Err(gone), _) => Err(gone),
            (Ok(()), found) => {
                let found = if found.is_some() { "a file of a different length" } else { "no such file" };
                let message = format!("{}: the store reports that it is complete, but has {found}", show_url(url));
                Err(Error::new(ErrorKind::Network, message)
                    .with_hint("run this again; if the error persists, look at the store's own log"))
            }
        }
    }

    fn abort(&self) -> Result<()> {
        let request = self.s3.bucket.abort_upload(self.url.clone(), self.upload_id.clone());
        let limited_request = async { timeout(ABORT_TIMEOUT, request).await.unwrap_or(Ok(())) };
        Ok(self.s3.client.block_on(&NoProgress, limited_request)?)
    }
}

impl Drop for PartsUpload {
    fn drop(&mut self) {
        self.stop.send_replace(true);
        let needs_abort = self.needs_abort;
        let sending = &mut self.sending;
        let _ = self.s3.client.block_on(&NoProgress, async {
            if needs_abort {
                let arrival = async { while sending.join_next().await.is_some() {} };
                let _ = timeout(ARRIVAL_TIMEOUT, arrival).await;
            }
            sending.shutdown().await;
            Ok(())
        });
        if needs_abort {
            // The abort is retried like other requests, because leftover parts cost money.
            let _ = Retries::new(ABORT_TIMEOUT).run(&NoProgress, || self.abort());
        }
    }
}
