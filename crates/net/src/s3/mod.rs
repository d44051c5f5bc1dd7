//! Buckets of S3 and compatible services. A URL `s3://BUCKET/KEY` names a file, and each request for the
//! file is signed just before it is sent.
//!
//! `object_store` signs requests. Responses are untrusted: `answers` limits their time and length, and
//! `failure` interprets refusals.

mod answers;
mod bucket;
mod credentials;
mod failure;
mod profile;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::SystemTime;

pub use bucket::Bucket;
use derive_setters::Setters;
use parking_lot::Mutex;
use reqwest::Method;
use slotpress_base::{Progress, Result};
use slotpress_format::ArchiveName;

use crate::{Client, ClientOptions, NetError, Url, show_url};

/// Limit on the size of documents that are read or written in one piece. An index of thousands of archives has
/// a few megabytes.
pub const SMALL_BYTES_MAX: u64 = 8 * 1024 * 1024;

/// A file in a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Object {
    /// Name relative to the target's directory or prefix.
    pub name: String,
    pub length_bytes: u64,
    pub modified: SystemTime,
    /// Entity tag, which changes with every write, if the store has tags.
    pub etag: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SmallFile {
    pub bytes: Vec<u8>,
    /// Entity tag, if the store has tags.
    pub etag: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Condition {
    Always,
    Absent,
    /// The file still has this entity tag.
    Unchanged(String),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PutOutcome {
    Done,
    /// The condition was not met, or another program has changed the file since.
    Refused,
}

/// Options for reaching buckets. Credentials come from the environment, a profile in AWS's
/// configuration, or the machine's metadata service.
#[derive(Clone, Debug, Default, Setters)]
#[non_exhaustive]
#[warn(missing_docs)]
pub struct S3Options {
    /// URL of a service with S3's interface. Default: `AWS_ENDPOINT_URL`, or AWS itself.
    #[setters(into, strip_option)]
    pub endpoint: Option<String>,
    /// Region. Default: the region in `AWS_REGION`, `AWS_DEFAULT_REGION` or the profile.
    #[setters(into, strip_option)]
    pub region: Option<String>,
    /// Does not sign requests, for public buckets. Default: false.
    pub anonymous: bool,
    /// Buckets that are in use. Clones share them and their credentials.
    #[setters(skip)]
    buckets: Buckets,
}

type Buckets = Arc<Mutex<BTreeMap<String, Arc<Bucket>>>>;

impl S3Options {
    /// Adds these options to a client's options. The client can then read `s3://BUCKET/KEY` URLs.
    #[must_use]
    pub fn for_client(&self, mut client: ClientOptions) -> ClientOptions {
        client.s3 = Some(self.clone());
        client
    }

    /// Returns the bucket of a URL. Sends no request.
    ///
    /// # Errors
    /// The endpoint or the credentials in the environment are invalid.
    #[doc(hidden)]
    pub fn bucket(&self, client: &Client, url: &Url) -> Result<Arc<Bucket>> {
        let name = url.host_str().unwrap_or_default().to_string();
        let mut buckets = self.buckets.lock();
        if let Some(bucket) = buckets.get(&name) {
            return Ok(bucket.clone());
        }
        let bucket = Arc::new(Bucket::open(client, &name, self)?);
        buckets.insert(name, bucket.clone());
        Ok(bucket)
    }
}

impl Client {
    /// Returns the same client with these options for URLs of buckets.
    #[must_use]
    #[doc(hidden)]
    pub fn with_s3(&self, s3: &S3Options) -> Self {
        Self { s3: Some(s3.clone()), ..self.clone() }
    }

    fn bucket(&self, url: &Url) -> Result<Arc<Bucket>, NetError> {
        let Some(s3) = &self.s3 else { return Err(NetError::forbidden(url, "this client has no options for stores")) };
        s3.bucket(self, url).map_err(|error| failure::to_net_error(url, &error))
    }

    /// Signs the URL of a request that is sent at once. The query of the signed URL is a secret.
    pub(super) async fn sign_url(&self, method: &Method, url: &Url) -> Result<Url, NetError> {
        // Only URLs that the operator named are signed, and never URLs that a server named.
        if !self.trusts_urls {
            return Err(NetError::forbidden(url, "a store that was not given as a source"));
        }
        let signed_url = self.bucket(url)?.sign_url(method, url).await?;
        match signed_url.scheme() {
            "http" | "https" => Ok(signed_url),
            _ => Err(NetError::forbidden(url, format!("a store at {}", show_url(&signed_url)))),
        }
    }

    /// Replaces an error with the store's explanation, unless a later attempt may succeed.
    pub(super) async fn explain_refusal(&self, url: &Url, error: NetError) -> NetError {
        match self.bucket(url) {
            Ok(bucket) if !error.is_retryable() => bucket.check_readable(url).await.err().unwrap_or(error),
            _ => error,
        }
    }

    /// Returns the names of the archives directly below a prefix.
    pub(super) fn list_store(&self, url: &Url, progress: &dyn Progress) -> Result<Vec<ArchiveName>, NetError> {
        let objects = self.block_on(progress, async { self.bucket(url)?.list(url).await })?;
        let names = objects.iter().filter_map(|object| ArchiveName::parse(&object.name));
        Ok(names.collect())
    }
}
