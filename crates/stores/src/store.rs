//! A store, a directory or a bucket: small documents under conditions, and large files in one piece or not at all.

use std::future::Future;
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use derive_setters::Setters;
use slotpress_base::{CancelToken, Error, KeptDir, Progress, Result};
use slotpress_format::{ArchiveName, Root};
use slotpress_net::patience::patiently;
use slotpress_net::{Client, NetError, Url, UrlSource, below, shown};
use slotpress_read::{SharedSource, already_exists};

use crate::bucket::Bucket;
use crate::directory::Directory;
use crate::{StoreOptions, Target, Upload, UploadState};

/// Documents that are put or read at once are no longer than this: an index of thousands of archives takes some megabytes.
pub(crate) const SMALL_BYTES_MAX: u64 = 8 * 1024 * 1024;

/// A file in a store.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Object {
    /// Its name, without the target's directory or prefix.
    pub name: String,
    /// Its length in bytes.
    pub length_bytes: u64,
    /// When it was written, by the store's clock.
    pub modified: SystemTime,
    /// What stands for its bytes, as the store says; another one for every change.
    pub e_tag: Option<String>,
}

/// A small file that was read.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Small {
    /// What is in it.
    pub bytes: Vec<u8>,
    /// What stands for its bytes, where the store says it.
    pub e_tag: Option<String>,
}

/// What a store says to readers of a file. A directory keeps none of it: the server in front of it says these.
#[derive(Clone, Debug, Default, PartialEq, Eq, Setters)]
#[non_exhaustive]
pub struct Metadata {
    /// `Content-Type`.
    #[setters(into)]
    pub content_type: Option<String>,
    /// `Cache-Control`.
    #[setters(into)]
    pub cache_control: Option<String>,
    /// Pairs of one's own (`x-amz-meta-…`), such as the root: lowercase names, text without control characters.
    pub user: Vec<(String, String)>,
}

impl Metadata {
    /// Of an archive, which never changes under its name; and what stands for its bytes, where that is known before they
    /// are sent.
    pub fn of_archive(name: &ArchiveName, root: Option<Root>) -> Self {
        Self {
            content_type: Some(name.extension.content_type().to_string()),
            // A proxy that compresses or cuts it breaks its tags.
            cache_control: Some("public, max-age=31536000, immutable, no-transform".to_string()),
            user: root.map(|root| ("slotpress-root".to_string(), root.to_string())).into_iter().collect(),
        }
    }
}

/// When a small file is put.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Condition {
    /// In any case.
    Always,
    /// If nothing has the name.
    Absent,
    /// If what has the name is what was read.
    Unchanged(String),
}

/// What became of a small file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Put {
    /// It is there; its tag, where the store says it.
    Done(Option<String>),
    /// It was not put: the condition did not hold.
    Refused,
}

/// A target that is written to or read. Clones share its connections and credentials.
///
/// Names are those right below the target, without `/`. Each call tries again where that may help, for as long as the
/// options say, and tells it; it ends soon after its [`Progress`] says that the user wants to stop.
#[derive(Clone, Debug)]
pub struct Store {
    target: Target,
    kind: Kind,
    options: StoreOptions,
}

#[derive(Clone, Debug)]
enum Kind {
    Dir(Directory),
    S3(Box<InBucket>),
}

/// A prefix of a bucket.
#[derive(Clone, Debug)]
pub(crate) struct InBucket {
    pub bucket: Arc<Bucket>,
    /// With `/` at its end.
    pub url: Url,
    pub client: Client,
    pub options: StoreOptions,
}

impl InBucket {
    /// Asks until there is an answer or the store is given up.
    pub fn ask<T, F: Future<Output = Result<T, NetError>>>(
        &self,
        progress: &dyn Progress,
        ask: impl Fn() -> F,
    ) -> Result<T> {
        patiently(self.options.give_up_after, progress, || Ok(self.client.wait(progress, ask())?))
    }

    pub fn url_of(&self, name: &str) -> Url {
        below(&self.url, name)
    }
}

impl Store {
    /// Prepares for a target. A directory must exist; a bucket is not asked yet.
    ///
    /// # Errors
    /// The directory is not there; the endpoint or the credentials in the environment make no sense.
    pub fn open(target: &Target, options: &StoreOptions, client: &Client) -> Result<Self> {
        let kind = match target {
            Target::Dir(dir) => Kind::Dir(Directory::open(dir)?),
            Target::S3(url) => Kind::S3(Box::new(InBucket {
                bucket: options.s3.bucket(client, url)?,
                url: url.clone(),
                client: client.with_stores(Arc::new(options.s3.clone())),
                options: options.clone(),
            })),
        };
        Ok(Self { target: target.clone(), kind, options: options.clone() })
    }

    /// A target below this one: a subdirectory, which is no link, or a longer prefix. `None` where the subdirectory is
    /// missing and `makes` does not say to make it.
    ///
    /// # Errors
    /// Something else has its name; the disk fails.
    pub fn below(&self, name: &str, makes: bool) -> Result<Option<Self>> {
        check_name(name)?;
        let target = self.target.join(name);
        let kind = match (&self.kind, &target) {
            (Kind::Dir(dir), _) => match dir.below(name, makes)? {
                Some(dir) => Kind::Dir(dir),
                None => return Ok(None),
            },
            (Kind::S3(at), Target::S3(url)) => Kind::S3(Box::new(InBucket { url: url.clone(), ..(**at).clone() })),
            (Kind::S3(_), Target::Dir(_)) => return Ok(None),
        };
        Ok(Some(Self { target, kind, options: self.options.clone() }))
    }

    /// The open directory, where the target is one.
    pub fn dir(&self) -> Option<&KeptDir> {
        match &self.kind {
            Kind::Dir(dir) => Some(&dir.0),
            Kind::S3(_) => None,
        }
    }

    /// What it was opened for.
    pub fn target(&self) -> &Target {
        &self.target
    }

    /// How messages name a file of it.
    pub fn shown(&self, name: &str) -> String {
        match &self.kind {
            Kind::Dir(dir) => dir.shown(name),
            Kind::S3(at) => shown(&at.url_of(name)),
        }
    }

    /// The files right below the target, by name. What is being made is not among them.
    ///
    /// # Errors
    /// The store refuses or fails; it has more files than are read.
    pub fn list(&self, progress: &dyn Progress) -> Result<Vec<Object>> {
        match &self.kind {
            Kind::Dir(dir) => dir.list(),
            Kind::S3(at) => at.ask(progress, || at.bucket.list(&at.url)),
        }
    }

    /// What there is of a name, if anything.
    ///
    /// # Errors
    /// The store refuses or fails.
    pub fn stat(&self, name: &str, progress: &dyn Progress) -> Result<Option<Object>> {
        check_name(name)?;
        match &self.kind {
            Kind::Dir(dir) => dir.stat(name),
            Kind::S3(at) => at.ask(progress, || at.bucket.stat(at.url_of(name))),
        }
    }

    /// Reads a small file whole, if it is there.
    ///
    /// # Errors
    /// It is longer than `bytes_max`, or than 8 MiB; the store refuses or fails.
    pub fn get_small(&self, name: &str, bytes_max: u64, progress: &dyn Progress) -> Result<Option<Small>> {
        check_name(name)?;
        let bytes_max = bytes_max.min(SMALL_BYTES_MAX);
        match &self.kind {
            Kind::Dir(dir) => dir.get_small(name, bytes_max),
            Kind::S3(at) => at.ask(progress, || at.bucket.get_small(at.url_of(name), bytes_max)),
        }
    }

    /// Puts a small file, whole, if the condition holds. Readers see what was there before or this, nothing between.
    ///
    /// In a bucket, an answer may be lost and the request sent again: with [`Condition::Absent`] or
    /// [`Condition::Unchanged`], what is found to be there with the same bytes is taken for this.
    ///
    /// # Errors
    /// It is longer than 8 MiB; the store refuses or fails.
    pub fn put_small(
        &self,
        name: &str,
        bytes: &[u8],
        metadata: &Metadata,
        condition: &Condition,
        progress: &dyn Progress,
    ) -> Result<Put> {
        check_name(name)?;
        if bytes.len() as u64 > SMALL_BYTES_MAX {
            return Err(Error::failed(format!("{} would have {} bytes: too many", self.shown(name), bytes.len())));
        }
        let at = match &self.kind {
            Kind::Dir(dir) => return dir.put_small(name, bytes, condition, progress),
            Kind::S3(at) => at,
        };
        let url = at.url_of(name);
        let put = at.ask(progress, || at.bucket.put_small(&url, bytes, metadata, condition))?;
        if put == Put::Refused
            && let Some(there) = self.get_small(name, SMALL_BYTES_MAX, progress)?
            && there.bytes == bytes
        {
            return Ok(Put::Done(there.e_tag));
        }
        Ok(put)
    }

    /// Deletes a file; one that is not there is no error.
    ///
    /// # Errors
    /// The store refuses or fails.
    pub fn delete(&self, name: &str, progress: &dyn Progress) -> Result<()> {
        check_name(name)?;
        match &self.kind {
            Kind::Dir(dir) => dir.delete(name),
            Kind::S3(at) => at.ask(progress, || at.bucket.delete(at.url_of(name))),
        }
    }

    /// Opens a file for reading at any place. Reads end when `stop` is set.
    ///
    /// # Errors
    /// It is not there; the store refuses or fails.
    pub fn open_source(&self, name: &str, stop: CancelToken) -> Result<SharedSource> {
        check_name(name)?;
        Ok(match &self.kind {
            Kind::Dir(dir) => Arc::new(dir.open_source(name)?),
            Kind::S3(at) => Arc::new(UrlSource::open(&at.client, &at.url_of(name), stop)?),
        })
    }

    /// Begins a large file of at most `bytes_max` bytes: it appears when it is whole, or not at all. One that has the name is
    /// replaced then, where `replace` says so; a bucket cannot say at the end that another upload was quicker.
    ///
    /// # Errors
    /// Of [`ErrorKind::Exists`](slotpress_base::error::ErrorKind::Exists) where the name is taken; the store refuses or
    /// fails; parts that suffice for so many bytes do not fit into the memory.
    pub fn upload(
        &self,
        name: &str,
        metadata: &Metadata,
        bytes_max: u64,
        replace: bool,
        progress: &dyn Progress,
    ) -> Result<Upload> {
        check_name(name)?;
        match &self.kind {
            Kind::Dir(dir) => Ok(Upload::into_dir(dir.upload(name, replace)?)),
            Kind::S3(at) => {
                if !replace && self.stat(name, progress)?.is_some() {
                    return Err(already_exists(Path::new(&self.shown(name))));
                }
                Upload::begin(at, name, metadata, bytes_max, progress)
            }
        }
    }

    /// Goes on with the upload of a file of this length that another process began: writing goes on at
    /// [`Upload::resumed_bytes`]. `None` where a directory is behind it, which keeps nothing of an upload, or where the state
    /// cannot be of such a file. That the store has dropped it, or a part of it, turns out while it is written: then an error's
    /// cause is of the kind [`slotpress_net::NetErrorKind::Gone`] or `Changed`, and a new upload helps.
    ///
    /// # Errors
    /// Its parts do not fit into the memory.
    pub fn resume(&self, name: &str, state: &UploadState, length_bytes: u64) -> Result<Option<Upload>> {
        check_name(name)?;
        match &self.kind {
            Kind::Dir(_) => Ok(None),
            Kind::S3(at) => Upload::resume(at, name, state, length_bytes),
        }
    }

    /// Forgets an upload that another process began and that is not gone on with: a store keeps its parts otherwise.
    ///
    /// # Errors
    /// The store refuses or fails; one that is gone already is no error.
    pub fn abort(&self, name: &str, state: &UploadState, progress: &dyn Progress) -> Result<()> {
        check_name(name)?;
        match &self.kind {
            Kind::Dir(_) => Ok(()),
            Kind::S3(at) => at.ask(progress, || at.bucket.abort(at.url_of(name), state.upload_id.clone())),
        }
    }

    /// How it was opened.
    pub fn options(&self) -> &StoreOptions {
        &self.options
    }
}

/// Names come from journals and lists: none may lead elsewhere.
fn check_name(name: &str) -> Result<()> {
    let is_plain = |char: char| char.is_ascii_alphanumeric() || "._-=+".contains(char);
    match !name.is_empty() && name.len() <= 255 && name.chars().all(is_plain) && name != "." && name != ".." {
        true => Ok(()),
        false => Err(Error::failed(format!("{name:?} cannot be the name of a file in a store"))),
    }
}
