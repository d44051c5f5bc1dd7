//! One bucket. Each function makes one request; the caller retries.

use std::fmt;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use object_store::aws::{AmazonS3, AmazonS3Builder, AmazonS3ConfigKey};
use object_store::list::{PaginatedListOptions, PaginatedListStore};
use object_store::multipart::{MultipartStore, PartId};
use object_store::path::Path as Key;
use object_store::signer::Signer;
use object_store::{
    Attributes, ClientOptions, GetOptions, ObjectStore, ObjectStoreExt, PutMode, PutMultipartOptions, PutOptions,
    PutPayload, RetryConfig, UpdateVersion,
};
use reqwest::Method;
use slotpress_base::{Error, Result};

use super::answers::Connector;
use super::credentials::{Profile, anonymous_credentials};
use super::failure::from_store_error;
use super::{Condition, Object, PutOutcome, S3Options, SMALL_BYTES_MAX, SmallFile};
use crate::request::check_clock;
use crate::{Client, NetError, NetErrorKind, Url, parse_url};

/// Limit on listed files below a prefix: with a full and an incremental archive every hour, it
/// lasts for ten years.
const LISTED_MAX: usize = 200_000;

/// Limit on pages of a list: most services list 1,000 files in each, none fewer than 100.
const LIST_PAGES_MAX: usize = LISTED_MAX / 100;

/// Validity of signed URLs: they are used at once, and a transfer may continue after that.
const SIGNED_FOR: Duration = Duration::from_secs(900);

pub struct Bucket {
    s3: AmazonS3,
    is_anonymous: bool,
    /// True once the endpoint has answered a request.
    pub has_answered: AtomicBool,
}

impl fmt::Debug for Bucket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.s3)
    }
}

type NetResult<T> = Result<T, NetError>;

impl Bucket {
    pub fn open(client: &Client, name: &str, options: &S3Options) -> Result<Self> {
        let mut builder = AmazonS3Builder::from_env()
            .with_bucket_name(name)
            .with_http_connector(Connector(client.connections().clone()))
            // `answers` limits requests, and `retries` retries them.
            .with_client_options(ClientOptions::new().with_allow_http(false))
            .with_retry(RetryConfig { max_retries: 0, ..RetryConfig::default() })
            // Some stores refuse bulk deletion.
            .with_disable_bulk_delete(true);
        if let Some(endpoint) = &options.endpoint {
            builder = builder.with_config(AmazonS3ConfigKey::S3Endpoint, parse_endpoint(endpoint)?);
        }
        if options.anonymous {
            builder = builder.with_credentials(anonymous_credentials()).with_skip_signature(true);
        }
        let profile = if options.anonymous { Profile::default() } else { Profile::from_environment()? };
        let is_set = |name: &str| std::env::var_os(name).is_some();
        let profile_region = if is_set("AWS_REGION") || is_set("AWS_DEFAULT_REGION") { None } else { profile.region };
        if let Some(region) = options.region.clone().or(profile_region) {
            builder = builder.with_region(region);
        }
        if let Some(credentials) = profile.credentials {
            builder = builder.with_credentials(credentials);
        }
        let s3 = builder.build().map_err(|error| Error::usage(format!("cannot prepare for s3://{name}: {error}")))?;
        Ok(Self { s3, is_anonymous: options.anonymous, has_answered: AtomicBool::new(false) })
    }

    pub async fn sign_url(&self, method: &Method, url: &Url) -> NetResult<Url> {
        let signed = self.s3.signed_url(method.clone(), &parse_key(url)?, SIGNED_FOR).await;
        let mut signed = signed.map_err(|error| from_store_error(url, &error))?;
        if self.is_anonymous {
            signed.set_query(None);
        }
        Ok(signed)
    }

    pub async fn list(&self, url: &Url) -> NetResult<Vec<Object>> {
        check_clock(url)?;
        let prefix = url.path().trim_start_matches('/');
        let prefix = Some(prefix).filter(|prefix| !prefix.is_empty());
        let mut objects: Vec<Object> = Vec::new();
        let mut page_token = None;
        for _ in 0..LIST_PAGES_MAX {
            let options = PaginatedListOptions {
                delimiter: Some("/".into()),
                page_token: page_token.clone(),
                ..PaginatedListOptions::default()
            };
            let page = self.s3.list_paginated(prefix, options).await.map_err(|error| from_store_error(url, &error))?;
            objects
                .extend(page.result.objects.into_iter().filter_map(|meta| object(&meta, prefix.unwrap_or_default())));
            let Some(token) = page.page_token else { return Ok(objects) };
            if objects.len() > LISTED_MAX || page_token.as_ref() == Some(&token) {
                break;
            }
            page_token = Some(token);
        }
        let why = format!("the store's list has no end, or more than {LISTED_MAX} files");
        Err(NetError::new(NetErrorKind::TooLong, url, why))
    }

    pub async fn stat(&self, url: Url) -> NetResult<Option<Object>> {
        let Some(meta) = none_if_gone(&url, self.s3.head(&parse_key(&url)?).await)? else { return Ok(None) };
        Ok(object(&meta, parent(meta.location.as_ref())))
    }

    /// Requests one byte of a file, to learn why it cannot be read: an answer to `HEAD` has no body
    /// that would tell the reason.
    pub async fn check_readable(&self, url: &Url) -> NetResult<()> {
        let options = GetOptions { range: Some((0..1).into()), ..GetOptions::default() };
        none_if_gone(url, self.s3.get_opts(&parse_key(url)?, options).await).map(drop)
    }

    pub async fn get_small_file(&self, url: Url, bytes_max: u64) -> NetResult<Option<SmallFile>> {
        let Some(found) = none_if_gone(&url, self.s3.get_opts(&parse_key(&url)?, GetOptions::default()).await)? else {
            return Ok(None);
        };
        let e_tag = found.meta.e_tag.clone();
        let length_bytes = found.meta.size;
        if length_bytes > bytes_max.min(SMALL_BYTES_MAX) {
            let why = format!("has {length_bytes} bytes, more than the {bytes_max} that are read");
            return Err(NetError::new(NetErrorKind::TooLong, &url, why));
        }
        let bytes = found.bytes().await.map_err(|error| from_store_error(&url, &error))?;
        Ok(Some(SmallFile { bytes: bytes.to_vec(), etag: e_tag }))
    }

    pub async fn put_small_file(
        &self,
        url: &Url,
        bytes: &[u8],
        headers: &Attributes,
        condition: &Condition,
    ) -> NetResult<PutOutcome> {
        let mode = match condition {
            Condition::Always => PutMode::Overwrite,
            Condition::Absent => PutMode::Create,
            Condition::Unchanged(e_tag) => PutMode::Update(UpdateVersion { e_tag: Some(e_tag.clone()), version: None }),
        };
        let options = PutOptions { mode, attributes: headers.clone(), ..PutOptions::default() };
        match self.s3.put_opts(&parse_key(url)?, PutPayload::from(bytes.to_vec()), options).await {
            Ok(_) => Ok(PutOutcome::Done),
            Err(error) => match from_store_error(url, &error) {
                error if error.kind() == NetErrorKind::Changed => Ok(PutOutcome::Refused),
                // The file that should be unchanged is gone, which counts as a change.
                error if error.kind() == NetErrorKind::Gone && matches!(condition, Condition::Unchanged(_)) => {
                    Ok(PutOutcome::Refused)
                }
                error => Err(error),
            },
        }
    }

    pub async fn delete(&self, url: Url) -> NetResult<()> {
        none_if_gone(&url, self.s3.delete(&parse_key(&url)?).await).map(drop)
    }

    pub async fn begin_upload(&self, url: Url, headers: &Attributes) -> NetResult<String> {
        let options = PutMultipartOptions { attributes: headers.clone(), ..PutMultipartOptions::default() };
        self.s3.create_multipart_opts(&parse_key(&url)?, options).await.map_err(|error| from_store_error(&url, &error))
    }

    /// Uploads a part, counted from 0, and returns its tag.
    pub async fn send_part(&self, url: &Url, upload_id: &str, number: usize, payload: PutPayload) -> NetResult<String> {
        let put = self.s3.put_part(&parse_key(url)?, &upload_id.to_string(), number, payload).await;
        put.map(|part| part.content_id).map_err(|error| from_store_error(url, &error))
    }

    pub async fn complete(&self, url: &Url, upload_id: &str, tags: &[String]) -> NetResult<()> {
        let parts = tags.iter().map(|tag| PartId { content_id: tag.clone() }).collect();
        let completed = self.s3.complete_multipart(&parse_key(url)?, &upload_id.to_string(), parts).await;
        completed.map(drop).map_err(|error| from_store_error(url, &error))
    }

    pub async fn abort(&self, url: Url, upload_id: String) -> NetResult<()> {
        none_if_gone(&url, self.s3.abort_multipart(&parse_key(&url)?, &upload_id).await).map(drop)
    }
}

/// Returns the URL of a service, without a slash at its end.
fn parse_endpoint(text: &str) -> Result<String> {
    let url = parse_url(text).map_err(|error| error.within("the endpoint"))?;
    let is_secret = !url.username().is_empty() || url.password().is_some() || url.query().is_some();
    if is_secret || !url.scheme().starts_with("http") {
        return Err(Error::usage("the endpoint is not the URL of a service")
            .with_hint("it is https://HOST[:PORT]; credentials come from the environment"));
    }
    Ok(url.as_str().trim_end_matches('/').to_string())
}

/// Returns the key of a URL; refuses characters with more than one encoding.
fn parse_key(url: &Url) -> NetResult<Key> {
    check_clock(url)?;
    Key::parse(url.path()).map_err(|error| NetError::new(NetErrorKind::Forbidden, url, error))
}

fn none_if_gone<T>(url: &Url, answer: object_store::Result<T>) -> NetResult<Option<T>> {
    match answer.map_err(|error| from_store_error(url, &error)) {
        Ok(answer) => Ok(Some(answer)),
        Err(error) if error.kind() == NetErrorKind::Gone => Ok(None),
        Err(error) => Err(error),
    }
}

fn parent(key: &str) -> &str {
    key.rsplit_once('/').map_or("", |(parent, _)| key.get(..=parent.len()).unwrap_or_default())
}

/// Converts an item of a list. Returns `None` for the marks that some programs make for
/// directories.
fn object(meta: &object_store::ObjectMeta, prefix: &str) -> Option<Object> {
    let name = meta.location.as_ref().strip_prefix(prefix).filter(|name| !name.is_empty() && !name.contains('/'))?;
    Some(Object {
        name: name.to_string(),
        length_bytes: meta.size,
        modified: meta.last_modified.into(),
        etag: meta.e_tag.clone(),
    })
}
