//! Requests to one bucket. This module does not retry: its callers do.

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
use super::{Condition, Object, PutOutcome, S3Options, SmallFile};
use crate::request::check_clock;
use crate::{Client, NetError, NetErrorKind, Url, parse_url};

/// Limit on the listed files below a prefix: enough for a full and an incremental archive every hour for ten
/// years.
const LISTED_MAX: usize = 200_000;

/// Limit on the pages of a list. Most services list 1,000 files per page; this assumes at least 100.
const LIST_PAGES_MAX: usize = LISTED_MAX / 100;

/// Validity of signed URLs. They are used at once; a transfer that has begun may outlast them.
const SIGNATURE_VALIDITY: Duration = Duration::from_secs(900);

pub struct Bucket {
    s3: AmazonS3,
    is_anonymous: bool,
    /// True once a connection to the endpoint has succeeded.
    pub was_reached: AtomicBool,
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
            .with_http_connector(Connector(client.http_client().clone()))
            // The module `answers` limits the time of requests, and callers retry.
            .with_client_options(ClientOptions::new().with_allow_http(false))
            .with_retry(RetryConfig { max_retries: 0, ..RetryConfig::default() })
            // Some stores refuse bulk deletion.
            .with_disable_bulk_delete(true);
        if let Some(endpoint) = &options.endpoint {
            builder = builder.with_config(AmazonS3ConfigKey::S3Endpoint, parse_endpoint(endpoint)?);
        }
        let mut region = options.region.clone();
        if options.anonymous {
            builder = builder.with_credentials(anonymous_credentials()).with_skip_signature(true);
        } else {
            let profile = Profile::from_environment()?;
            if let Some(credentials) = profile.credentials {
                builder = builder.with_credentials(credentials);
            }
            let is_set = |name: &str| std::env::var_os(name).is_some();
            if !is_set("AWS_REGION") && !is_set("AWS_DEFAULT_REGION") {
                region = region.or(profile.region);
            }
        }
        if let Some(region) = region {
            builder = builder.with_region(region);
        }
        let s3 =
            builder.build().map_err(|error| Error::usage(format!("cannot set up requests to s3://{name}: {error}")))?;
        Ok(Self { s3, is_anonymous: options.anonymous, was_reached: AtomicBool::new(false) })
    }

    pub async fn sign_url(&self, method: &Method, url: &Url) -> NetResult<Url> {
        let key = parse_key(url)?;
        let answer = self.s3.signed_url(method.clone(), &key, SIGNATURE_VALIDITY).await;
        let mut signed_url = check_answer(url, answer)?;
        if self.is_anonymous {
            signed_url.set_query(None);
        }
        Ok(signed_url)
    }

    pub async fn list(&self, url: &Url) -> NetResult<Vec<Object>> {
        check_clock(url)?;
        let prefix = url.path().trim_start_matches('/');
        let mut objects: Vec<Object> = Vec::new();
        let mut page_token = None;
        for _ in 0..LIST_PAGES_MAX {
            let options = PaginatedListOptions {
                delimiter: Some("/".into()),
                page_token: page_token.clone(),
                ..PaginatedListOptions::default()
            };
            let requested_prefix = (!prefix.is_empty()).then_some(prefix);
            let page = check_answer(url, self.s3.list_paginated(requested_prefix, options).await)?;
            for meta in &page.result.objects {
                objects.extend(to_object(meta, prefix));
            }
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
        let prefix = meta.location.as_ref().trim_end_matches(|character| character != '/');
        Ok(to_object(&meta, prefix))
    }

    /// Requests one byte of a file, to learn why it cannot be read: a response to `HEAD` has no body
    /// with the reason.
    pub async fn check_readable(&self, url: &Url) -> NetResult<()> {
        let options = GetOptions { range: Some((0..1).into()), ..GetOptions::default() };
        none_if_gone(url, self.s3.get_opts(&parse_key(url)?, options).await).map(drop)
    }

    pub async fn get_small_file(&self, url: Url, bytes_max: u64) -> NetResult<Option<SmallFile>> {
        let answer = self.s3.get_opts(&parse_key(&url)?, GetOptions::default()).await;
        let Some(response) = none_if_gone(&url, answer)? else { return Ok(None) };
        let etag = response.meta.e_tag.clone();
        let length_bytes = response.meta.size;
        if length_bytes > bytes_max {
            let why = format!("has {length_bytes} bytes, more than the {bytes_max} that are read");
            return Err(NetError::new(NetErrorKind::TooLong, &url, why));
        }
        let bytes = check_answer(&url, response.bytes().await)?.to_vec();
        Ok(Some(SmallFile { bytes, etag }))
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
            Condition::Unchanged(etag) => PutMode::Update(UpdateVersion { e_tag: Some(etag.clone()), version: None }),
        };
        let options = PutOptions { mode, attributes: headers.clone(), ..PutOptions::default() };
        let answer = self.s3.put_opts(&parse_key(url)?, PutPayload::from(bytes.to_vec()), options).await;
        let Err(error) = check_answer(url, answer) else { return Ok(PutOutcome::Done) };
        match error.kind() {
            NetErrorKind::Changed => Ok(PutOutcome::Refused),
            // The file that should be unchanged no longer exists.
            NetErrorKind::Gone if matches!(condition, Condition::Unchanged(_)) => Ok(PutOutcome::Refused),
            _ => Err(error),
        }
    }

    pub async fn delete(&self, url: Url) -> NetResult<()> {
        none_if_gone(&url, self.s3.delete(&parse_key(&url)?).await).map(drop)
    }

    pub async fn begin_upload(&self, url: Url, headers: &Attributes) -> NetResult<String> {
        let options = PutMultipartOptions { attributes: headers.clone(), ..PutMultipartOptions::default() };
        check_answer(&url, self.s3.create_multipart_opts(&parse_key(&url)?, options).await)
    }

    /// Uploads part `number`, counted from 0, and returns its tag.
    pub async fn send_part(&self, url: &Url, upload_id: &str, number: usize, payload: PutPayload) -> NetResult<String> {
        let answer = self.s3.put_part(&parse_key(url)?, &upload_id.to_string(), number, payload).await;
        Ok(check_answer(url, answer)?.content_id)
    }

    pub async fn complete_upload(&self, url: &Url, upload_id: &str, tags: &[String]) -> NetResult<()> {
        let parts = tags.iter().map(|tag| PartId { content_id: tag.clone() }).collect();
        let answer = self.s3.complete_multipart(&parse_key(url)?, &upload_id.to_string(), parts).await;
        check_answer(url, answer).map(drop)
    }

    pub async fn abort_upload(&self, url: Url, upload_id: String) -> NetResult<()> {
        none_if_gone(&url, self.s3.abort_multipart(&parse_key(&url)?, &upload_id).await).map(drop)
    }
}

/// Parses the URL of a service, and removes a slash at its end.
fn parse_endpoint(text: &str) -> Result<String> {
    let url = parse_url(text).map_err(|error| error.with_place("the endpoint"))?;
    let has_secret = !url.username().is_empty() || url.password().is_some() || url.query().is_some();
    if has_secret || !url.scheme().starts_with("http") {
        return Err(Error::usage("the endpoint is not the URL of a service")
            .with_hint("pass https://HOST[:PORT]; credentials come from the environment"));
    }
    Ok(url.as_str().trim_end_matches('/').to_string())
}

/// Returns the key of a URL. Refuses characters that have more than one encoding.
fn parse_key(url: &Url) -> NetResult<Key> {
    check_clock(url)?;
    Key::parse(url.path()).map_err(|error| NetError::new(NetErrorKind::Forbidden, url, error))
}

fn check_answer<T>(url: &Url, answer: object_store::Result<T>) -> NetResult<T> {
    answer.map_err(|error| from_store_error(url, &error))
}

fn none_if_gone<T>(url: &Url, answer: object_store::Result<T>) -> NetResult<Option<T>> {
    match check_answer(url, answer) {
        Ok(answer) => Ok(Some(answer)),
        Err(error) if error.kind() == NetErrorKind::Gone => Ok(None),
        Err(error) => Err(error),
    }
}

/// Converts the description of a file directly below a prefix. Returns `None` for other files, and for the
/// empty file with which some programs represent the prefix as a directory.
fn to_object(meta: &object_store::ObjectMeta, prefix: &str) -> Option<Object> {
    let name = meta.location.as_ref().strip_prefix(prefix)?;
    (!name.is_empty() && !name.contains('/')).then(|| Object {
        name: name.to_string(),
        length_bytes: meta.size,
        modified: meta.last_modified.into(),
        etag: meta.e_tag.clone(),
    })
}
