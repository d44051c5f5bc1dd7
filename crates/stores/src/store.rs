//! Reads and writes a store, which is a directory or a bucket. Small documents are written
//! conditionally; large files appear complete or not at all.

use std::future::Future;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use object_store::{Attribute, Attributes};
use slotpress_base::{CancelToken, Error, KeptDir, Progress, Result, quantity};
use slotpress_format::{ArchiveName, ArchiveRoot};
use slotpress_net::retries::Retries;
use slotpress_net::s3::{Bucket, Condition, Object, PutOutcome, SMALL_BYTES_MAX, SmallFile};
use slotpress_net::{Client, NetError, NetErrorKind, Url, UrlSource, join_name, show_url};
use slotpress_read::{SharedSource, already_exists_error};

use crate::directory::Directory;
use crate::{StoreOptions, Target, Upload, UploadState};

/// Returns the HTTP headers that a bucket sends with an archive: its type, its root if that is known before the
/// upload, and permission to cache it for good, because an archive never changes under its name. A directory ignores
/// headers: the web server in front of it sends its own.
pub fn headers_of(name: &ArchiveName, root: Option<ArchiveRoot>) -> Attributes {
    let mut headers = Attributes::from_iter([
        (Attribute::ContentType, name.compression.content_type()),
        // A proxy that compresses or truncates the file would invalidate its entity tag.
        (Attribute::CacheControl, "public, max-age=31536000, immutable, no-transform"),
    ]);
    if let Some(root) = root {
        headers.insert(Attribute::Metadata("slotpress-root".into()), root.to_string().into());
    }
    headers
}

/// An open target. Programs pass it to `StoreSink`, which writes archives. Clones share connections and
/// credentials.
///
/// File names are relative to the target, and contain no `/`. Calls retry failed requests if that may help, for
/// the time in the options, and warn about it. They end soon after their [`Progress`] is interrupted.
#[derive(Clone, Debug)]
pub struct Store {
    target: Target,
    backend: Backend,
    options: StoreOptions,
}

#[derive(Clone, Debug)]
enum Backend {
    Dir(Directory),
    S3(Box<BucketPrefix>),
}

#[derive(Clone, Debug)]
pub(crate) struct BucketPrefix {
    pub bucket: Arc<Bucket>,
    /// URL of the prefix, which ends in `/`.
    pub url: Url,
    pub client: Client,
    pub options: StoreOptions,
}

impl BucketPrefix {
    /// Retries a request until it succeeds, another attempt cannot help, or the store has failed for too long.
    /// Does not retry it if the store was never reached, unless the options say to wait for the store.
    pub fn retry<T, F: Future<Output = Result<T, NetError>>>(
        &self,
        progress: &dyn Progress,
        request: impl Fn() -> F,
    ) -> Result<T> {
        Retries::new(self.options.give_up_after).run_while(
            || self.may_retry(),
            progress,
            || {
                let answer = self.client.block_on(progress, request());
                self.record_attempt(answer.as_ref().err());
                Ok(answer?)
            },
        )
    }

    /// Records whether a request has reached the store.
    pub fn record_attempt(&self, error: Option<&NetError>) {
        if error.is_none_or(|error| error.kind() != NetErrorKind::Connect) {
            self.bucket.was_reached.store(true, Relaxed);
        }
    }

    /// True if a failed request may be retried: the store has been reached, or the options say to wait for it.
    pub fn may_retry(&self) -> bool {
        self.options.wait_for_first || self.bucket.was_reached.load(Relaxed)
    }

    pub fn url_of(&self, name: &str) -> Url {
        join_name(&self.url, name)
    }

    fn join(&self, name: &str) -> Self {
        Self { url: join_name(&self.url_of(name), ""), ..self.clone() }
    }
}

impl Store {
    /// Opens a target. A directory must exist; a bucket is not contacted yet.
    ///
    /// # Errors
    /// The directory does not exist; the endpoint or the credentials in the environment are
    /// invalid.
    pub fn open(target: &Target, options: &StoreOptions, client: &Client) -> Result<Self> {
        let backend = match target {
            Target::Dir(dir) => Backend::Dir(Directory::open(dir)?),
            Target::S3(url) => Backend::S3(Box::new(BucketPrefix {
                bucket: options.s3.bucket(client, url)?,
                url: url.clone(),
                client: client.with_s3(&options.s3),
                options: options.clone(),
            })),
        };
        Ok(Self { target: target.clone(), backend, options: options.clone() })
    }

    /// Returns the target that was opened.
    pub fn target(&self) -> &Target {
        &self.target
    }

    /// Returns the path or URL of a file, for messages.
    pub fn location_of(&self, name: &str) -> String {
        match &self.backend {
            Backend::Dir(dir) => dir.location_of(name),
            Backend::S3(s3) => show_url(&s3.url_of(name)),
        }
    }

    /// Returns the options with which the store was opened.
    pub fn options(&self) -> &StoreOptions {
        &self.options
    }
}

// Only the crates of the workspace use these functions.
#[doc(hidden)]
impl Store {
    pub fn from_dir(dir: Arc<KeptDir>) -> Self {
        let target = Target::Dir(dir.path().to_path_buf());
        Self { target, backend: Backend::Dir(Directory(dir)), options: StoreOptions::default() }
    }

    /// Opens a target below this one: a subdirectory (not a symbolic link), or a longer prefix. Returns
    /// `None` if the subdirectory does not exist.
    ///
    /// # Errors
    /// The name is not that of a directory; the disk fails.
    pub fn open_dir(&self, name: &str) -> Result<Option<Self>> {
        check_name(name)?;
        let backend = match &self.backend {
            Backend::Dir(dir) => match dir.open_dir(name)? {
                Some(dir) => Backend::Dir(dir),
                None => return Ok(None),
            },
            Backend::S3(s3) => Backend::S3(Box::new(s3.join(name))),
        };
        Ok(Some(Self { target: self.target.join(name), backend, options: self.options.clone() }))
    }

    /// Same as [`Store::open_dir`], but creates the subdirectory if it does not exist.
    ///
    /// # Errors
    /// The name is not that of a directory; the disk fails.
    pub fn open_or_create_dir(&self, name: &str) -> Result<Self> {
        check_name(name)?;
        let backend = match &self.backend {
            Backend::Dir(dir) => Backend::Dir(dir.open_or_create_dir(name)?),
            Backend::S3(s3) => Backend::S3(Box::new(s3.join(name))),
        };
        Ok(Self { target: self.target.join(name), backend, options: self.options.clone() })
    }

    /// Returns the open directory, if the target is one.
    pub fn dir(&self) -> Option<&KeptDir> {
        match &self.backend {
            Backend::Dir(dir) => Some(&dir.0),
            Backend::S3(_) => None,
        }
    }

    /// Lists the files directly below the target, sorted by name. Leaves out unfinished files.
    ///
    /// # Errors
    /// The store refuses or fails; it has too many files.
    pub fn list(&self, progress: &dyn Progress) -> Result<Vec<Object>> {
        match &self.backend {
            Backend::Dir(dir) => dir.list(),
            Backend::S3(s3) => s3.retry(progress, || s3.bucket.list(&s3.url)),
        }
    }

    /// Returns the metadata of a file; `None` if it does not exist.
    ///
    /// # Errors
    /// The store refuses or fails.
    pub fn stat(&self, name: &str, progress: &dyn Progress) -> Result<Option<Object>> {
        check_name(name)?;
        match &self.backend {
            Backend::Dir(dir) => dir.stat(name),
            Backend::S3(s3) => s3.retry(progress, || s3.bucket.stat(s3.url_of(name))),
        }
    }

    /// Reads a small file. Returns `None` if it does not exist.
    ///
    /// # Errors
    /// The file is longer than `bytes_max` or 8 MiB; the store refuses or fails.
    pub fn get_small_file(&self, name: &str, bytes_max: u64, progress: &dyn Progress) -> Result<Option<SmallFile>> {
        check_name(name)?;
        let bytes_max = bytes_max.min(SMALL_BYTES_MAX);
        match &self.backend {
            Backend::Dir(dir) => dir.get_small_file(name, bytes_max),
            Backend::S3(s3) => s3.retry(progress, || s3.bucket.get_small_file(s3.url_of(name), bytes_max)),
        }
    }

    /// Writes a small file if the condition is met, and reads it back. Readers see the old or the
    /// new file, never a part.
    ///
    /// If the file already has this content, it counts as written, even if the condition is not met. The reason
    /// is that a bucket's response may be lost, and then the request is retried after the file was written.
    ///
    /// # Errors
    /// The file is longer than 8 MiB; the store refuses or fails, or lacks the file although it
    /// reported success.
    pub fn put_small_file(
        &self,
        name: &str,
        bytes: &[u8],
        headers: &Attributes,
        condition: &Condition,
        progress: &dyn Progress,
    ) -> Result<PutOutcome> {
        check_name(name)?;
        if bytes.len() as u64 > SMALL_BYTES_MAX {
            let location = self.location_of(name);
            let length_bytes = bytes.len();
            let limit = quantity::bytes(SMALL_BYTES_MAX);
            let message = format!(
                "{location} would have {length_bytes} bytes, more than the {limit} of a file that is written at once"
            );
            return Err(Error::failed(message)
                .with_hint("split what is written: fewer archives in a target, fewer files of an export"));
        }
        let outcome = match &self.backend {
            Backend::Dir(dir) => dir.put_small_file(name, bytes, condition, progress)?,
            Backend::S3(s3) => {
                let url = s3.url_of(name);
                s3.retry(progress, || s3.bucket.put_small_file(&url, bytes, headers, condition))?
            }
        };
        let written_file = self.get_small_file(name, SMALL_BYTES_MAX, progress)?;
        match (outcome, written_file) {
            (_, Some(file)) if file.bytes == bytes => Ok(PutOutcome::Done),
            (PutOutcome::Done, None) => {
                let message =
                    format!("{} does not exist, although the target reported it as written", self.location_of(name));
                Err(Error::failed(message)
                    .with_hint("look at the store's own log, and read the file with another program"))
            }
            // Another program has changed the file in the meantime.
            _ => Ok(PutOutcome::Refused),
        }
    }

    /// Deletes a file, if it exists.
    ///
    /// # Errors
    /// The store refuses or fails.
    pub fn delete(&self, name: &str, progress: &dyn Progress) -> Result<()> {
        check_name(name)?;
        match &self.backend {
            Backend::Dir(dir) => dir.delete(name),
            Backend::S3(s3) => s3.retry(progress, || s3.bucket.delete(s3.url_of(name))),
        }
    }

    /// Opens a file for reading at any offset. After `cancel` is cancelled, reads from a bucket fail.
    ///
    /// # Errors
    /// The file does not exist; the store refuses or fails.
    pub fn open_source(&self, name: &str, cancel: CancelToken) -> Result<SharedSource> {
        check_name(name)?;
        Ok(match &self.backend {
            Backend::Dir(dir) => Arc::new(dir.open_source(name)?),
            Backend::S3(s3) => Arc::new(UrlSource::open(&s3.client, &s3.url_of(name), cancel)?),
        })
    }

    /// Begins to write a large file of at most `bytes_max` bytes, which appears complete or not at all. With
    /// `replace`, the finished file replaces a file of that name. Without `replace`, the call fails if
    /// a file has the name. In a bucket, however, a file that takes the name during this upload is replaced.
    ///
    /// # Errors
    /// [`ErrorKind::Exists`](slotpress_base::error::ErrorKind::Exists) if the name is taken; the
    /// store refuses or fails; the necessary parts do not fit into memory.
    pub fn upload(
        &self,
        name: &str,
        headers: &Attributes,
        bytes_max: u64,
        replace: bool,
        progress: &dyn Progress,
    ) -> Result<Upload> {
        check_name(name)?;
        match &self.backend {
            Backend::Dir(dir) => Ok(Upload::from_file(dir.upload(name, replace)?)),
            Backend::S3(s3) => {
                if !replace && self.stat(name, progress)?.is_some() {
                    return Err(already_exists_error(Path::new(&self.location_of(name))));
                }
                Upload::begin(s3, name, headers, bytes_max, progress)
            }
        }
    }

    /// Resumes the upload of a file of this length that another process began. Writing continues at
    /// [`Upload::resumed_bytes`]. Returns `None` for a directory, which keeps no uploads, or if the state does
    /// not fit the file. If the store has dropped the upload or a part of it, writing or finishing fails. The
    /// cause of that error has the kind [`slotpress_net::NetErrorKind::Gone`] or `Changed`, and only a new upload
    /// helps.
    ///
    /// # Errors
    /// The parts do not fit into memory.
    pub fn resume(&self, name: &str, state: &UploadState, length_bytes: u64) -> Result<Option<Upload>> {
        check_name(name)?;
        match &self.backend {
            Backend::Dir(_) => Ok(None),
            Backend::S3(s3) => Upload::resume(s3, name, state, length_bytes),
        }
    }

    /// Aborts an upload that no run will resume. Otherwise, the store would keep its parts.
    ///
    /// # Errors
    /// The store refuses or fails; an upload that is already gone is not an error.
    pub fn abort(&self, name: &str, state: &UploadState, progress: &dyn Progress) -> Result<()> {
        check_name(name)?;
        match &self.backend {
            Backend::Dir(_) => Ok(()),
            Backend::S3(s3) => s3.retry(progress, || s3.bucket.abort_upload(s3.url_of(name), state.upload_id.clone())),
        }
    }
}

/// Refuses a name that may lead outside the target. Names come from journals and lists.
fn check_name(name: &str) -> Result<()> {
    let is_plain = |character: char| character.is_ascii_alphanumeric() || "._-=+".contains(character);
    if !name.is_empty() && name.len() <= 255 && name.chars().all(is_plain) && name != "." && name != ".." {
        Ok(())
    } else {
        let message = format!("{name:?} cannot be the name of a file in a store");
        Err(Error::failed(message).with_hint("names have 1 to 255 letters, digits, and . _ - = +"))
    }
}
