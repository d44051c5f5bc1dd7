//! Requests the size, name and version of a file on a server.

use std::time::{Duration, SystemTime};

use reqwest::header::{
    ACCEPT_RANGES, CONTENT_LENGTH, CONTENT_RANGE, ETAG, HeaderMap, HeaderValue, LAST_MODIFIED, RANGE,
};
use reqwest::{Method, Response, StatusCode};
use slotpress_base::{Progress, clock};
use slotpress_format::{ArchiveName, parse_number};

use super::content_range::ContentRange;
use super::request::{RequestTemplate, check_encoding, header_text, send, status_error};
use super::{Client, NetError, Url, show_url, stores};

/// Limit on how far in the future a modification time may be. Later times are ignored, because the
/// clock of the server or of this machine is wrong.
const CLOCK_SKEW_MAX: Duration = Duration::from_secs(300);

/// Limit on the length of an ETag in bytes. Longer ones are ignored.
const ETAG_BYTES_MAX: usize = 1024;

/// Limit on the length of `Last-Modified` in bytes. The standard's format has 29.
const TIME_BYTES_MAX: usize = 64;

/// A file on a server, and what the server says about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Remote {
    /// URL of the file after all redirects.
    pub url: Url,
    pub requested_url: Url,
    /// Size in bytes; `None` if the server does not state it.
    pub length_bytes: Option<u64>,
    /// Strong ETag with its quotes. Equal tags mean equal bytes. Weak tags are ignored.
    pub etag: Option<String>,
    /// The header `Last-Modified`, not parsed.
    pub last_modified: Option<String>,
    pub accepts_ranges: bool,
    /// True if the operator named `requested_url`, which may then have a private address.
    pub(super) named_by_operator: bool,
}

pub fn origin_of(url: &Url) -> String {
    // By the URL standard, the URL of a store does not have an origin.
    match url.origin() {
        origin if origin.is_tuple() => origin.ascii_serialization(),
        _ => show_url(&url.join("/").unwrap_or_else(|_| url.clone())),
    }
}

impl Remote {
    /// Describes a file when only its URL is known.
    pub fn from_url(url: &Url) -> Self {
        Self {
            url: url.clone(),
            requested_url: url.clone(),
            length_bytes: None,
            etag: None,
            last_modified: None,
            accepts_ranges: false,
            named_by_operator: true,
        }
    }

    /// True if the file is certainly unchanged: the server sends an ETag or a modification time, and all
    /// fields are equal.
    pub fn is_unchanged_since(&self, before: &Self) -> bool {
        (before.etag.is_some() || before.last_modified.is_some()) && self == before
    }

    pub fn origin(&self) -> String {
        origin_of(&self.url)
    }

    /// Returns the time of the last modification, at most now; `None` if the server sends none, or one that
    /// is invalid or implausible.
    pub fn modified_time(&self) -> Option<SystemTime> {
        let modified = httpdate::parse_http_date(self.last_modified.as_ref()?).ok()?;
        let now = clock::now();
        let is_plausible = modified > SystemTime::UNIX_EPOCH && modified <= now.checked_add(CLOCK_SKEW_MAX)?;
        is_plausible.then_some(modified.min(now))
    }

    /// Parses the last segment of the URL's path, or of the requested URL's if that is empty. Returns `None`
    /// if the segment is not an archive name. Archive names need no percent-encoding.
    pub fn archive_name(&self) -> Option<ArchiveName> {
        let segment = |url: &Url| url.path_segments()?.next_back().filter(|text| !text.is_empty()).map(str::to_string);
        ArchiveName::parse(&segment(&self.url).or_else(|| segment(&self.requested_url))?)
    }
}

impl Client {
    /// Requests a file's size, name and version, and follows redirects. If the server does not
    /// support `HEAD`, requests the file's first byte instead.
    ///
    /// # Errors
    /// The server does not answer, its response is invalid or not a success, or a redirect is not followed.
    #[doc(hidden)]
    pub fn head(&self, url: &Url, progress: &dyn Progress) -> Result<Remote, NetError> {
        self.block_on(progress, async {
            let scope = self.scope(self.trusts_urls.then_some(url));
            let mut template = RequestTemplate::new(Method::HEAD);
            let (mut response, mut final_url) = send(self, &scope, url, &template).await?;
            if matches!(response.status(), StatusCode::METHOD_NOT_ALLOWED | StatusCode::NOT_IMPLEMENTED) {
                template.method = Method::GET;
                template.headers.insert(RANGE, HeaderValue::from_static("bytes=0-0"));
                (response, final_url) = send(self, &scope, url, &template).await?;
            }
            let remote = match parse_head(url, final_url, &response) {
                Err(error) if url.scheme() == stores::SCHEME => return Err(self.explain_refusal(url, error).await),
                remote => remote?,
            };
            Ok(Remote { named_by_operator: self.trusts_urls, ..remote })
        })
    }
}

fn parse_head(requested_url: &Url, url: Url, response: &Response) -> Result<Remote, NetError> {
    let headers = response.headers();
    let (length_bytes, is_range) = match response.status() {
        StatusCode::OK => (content_length(&url, headers)?, false),
        StatusCode::PARTIAL_CONTENT => (content_range(&url, headers)?.total_bytes, true),
        _ => return Err(status_error(&url, response)),
    };
    check_encoding(&url, response)?;
    let mut range_units = header_text(headers, ACCEPT_RANGES).unwrap_or_default().split(',');
    let accepts_ranges = is_range || range_units.any(|unit| unit.trim().eq_ignore_ascii_case("bytes"));
    Ok(Remote {
        url,
        length_bytes,
        etag: strong_etag(headers),
        last_modified: last_modified(headers),
        accepts_ranges,
        ..Remote::from_url(requested_url)
    })
}

/// Parses `Content-Length`. A value that is not a number is an error.
pub(super) fn content_length(url: &Url, headers: &HeaderMap) -> Result<Option<u64>, NetError> {
    let Some(value) = headers.get(CONTENT_LENGTH) else { return Ok(None) };
    let length = value.to_str().ok().and_then(|text| parse_number(text.trim()));
    length.map(Some).ok_or_else(|| NetError::bad_answer(url, "a length that is not a number"))
}

pub(super) fn content_range(url: &Url, headers: &HeaderMap) -> Result<ContentRange, NetError> {
    let range = header_text(headers, CONTENT_RANGE).and_then(ContentRange::parse);
    range.ok_or_else(|| NetError::bad_answer(url, "a range without a position"))
}

pub(super) fn strong_etag(headers: &HeaderMap) -> Option<String> {
    let tag = header_text(headers, ETAG)?;
    (tag.starts_with('"') && (3..=ETAG_BYTES_MAX).contains(&tag.len())).then(|| tag.to_string())
}

pub(super) fn last_modified(headers: &HeaderMap) -> Option<String> {
    let time = header_text(headers, LAST_MODIFIED)?;
    (time.len() <= TIME_BYTES_MAX).then(|| time.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_archive_names_are_parsed() {
        let name = |url: &str| Remote::from_url(&Url::parse(url).expect("a URL")).archive_name();
        let archive = "snapshot-26-D5jEKFz2JqBFLYETBEnvkiV47AnCXjXEdUgUU1XYNwsi.tar.zst";
        assert_eq!(
            name(&format!("http://h/a/{archive}?key=1#x")).map(|name| name.to_string()).as_deref(),
            Some(archive)
        );
        for path in ["", "a/", "..%2f..%2fetc%2fpasswd", "%2e%2e", "snapshot-26.tar.zst", "a%00b", "%ff", "a%5cb"] {
            assert_eq!(name(&format!("http://h/{path}")), None, "{path}");
            assert_eq!(name(&format!("http://h/{path}{archive}%2f")), None, "{path}");
        }
    }
}
