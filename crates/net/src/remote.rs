//! Requests the facts of a server's file: size, name, version.

use std::time::{Duration, SystemTime};

use reqwest::header::{
    ACCEPT_RANGES, CONTENT_LENGTH, CONTENT_RANGE, ETAG, HeaderMap, HeaderValue, LAST_MODIFIED, RANGE,
};
use reqwest::{Method, Response, StatusCode};
use slotpress_base::{Progress, clock};
use slotpress_format::{ArchiveName, parse_number};

use super::content_range::ContentRange;
use super::request::{RequestParts, check_encoding, field, refused, send};
use super::{Client, NetError, Url, shown, stores};

/// Limit on the length of a file name in bytes. Names of archives take about 120 at most.
const FILE_NAME_BYTES_MAX: usize = 255;

/// How far in the future a time of modification may be. Later ones are ignored: one of the two
/// clocks is wrong.
const CLOCKS_DIFFER_BY: Duration = Duration::from_secs(300);

/// Limit on the length of an ETag in bytes. Longer ones are ignored.
const ETAG_BYTES_MAX: usize = 1024;

/// A file on a server, and what the server tells about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Remote {
    /// URL of the file after all redirects.
    pub url: Url,
    /// URL that was requested.
    pub asked: Url,
    /// Size in bytes; `None` if the server does not tell.
    pub length_bytes: Option<u64>,
    /// Strong ETag with its quotes. Equal tags mean equal bytes. Weak tags are ignored.
    pub etag: Option<String>,
    /// `Last-Modified`, unparsed.
    pub last_modified: Option<String>,
    pub accepts_ranges: bool,
    /// Last segment of the path; empty if it cannot be a file name. Chosen by the server: check it
    /// with [`Remote::archive_name`].
    pub file_name: String,
    /// True if the operator named `asked`, which may then have a private address.
    pub(super) is_operator: bool,
}

/// Scheme, host and port of a URL.
pub fn origin_of(url: &Url) -> String {
    // URLs of stores have no origin by the URL standard.
    match url.origin() {
        origin if origin.is_tuple() => origin.ascii_serialization(),
        _ => shown(&url.join("/").unwrap_or_else(|_| url.clone())),
    }
}

impl Remote {
    /// Creates a file without facts, for tests without a network.
    #[doc(hidden)]
    pub fn of_url(url: &Url) -> Self {
        Self {
            url: url.clone(),
            asked: url.clone(),
            length_bytes: None,
            etag: None,
            last_modified: None,
            accepts_ranges: false,
            file_name: file_name(url).unwrap_or_default(),
            is_operator: true,
        }
    }

    /// True if the file is certainly unchanged: the server sends an ETag or a time of modification,
    /// and all facts are equal.
    pub fn is_as(&self, before: &Self) -> bool {
        let is_told = before.etag.is_some() || before.last_modified.is_some();
        is_told && self == before
    }

    pub fn origin(&self) -> String {
        origin_of(&self.url)
    }

    /// Time of the last modification; `None` if the server sends none, or one in the future.
    pub fn modified(&self) -> Option<SystemTime> {
        let modified = httpdate::parse_http_date(self.last_modified.as_ref()?).ok()?;
        let now = clock::now();
        (modified > SystemTime::UNIX_EPOCH && modified <= now.checked_add(CLOCKS_DIFFER_BY)?)
            .then_some(modified.min(now))
    }

    /// Parses the file name; `None` if it is not an archive's.
    pub fn archive_name(&self) -> Option<ArchiveName> {
        ArchiveName::parse(&self.file_name)
    }
}

impl Client {
    /// Requests a file's size, name and version, and follows redirects. If the server does not
    /// support `HEAD`, requests the file's first byte instead.
    ///
    /// # Errors
    /// The server does not answer, its status is not success, or a redirect is not followed.
    #[doc(hidden)]
    pub fn head(&self, url: &Url, stop: &dyn Progress) -> Result<Remote, NetError> {
        self.wait(stop, async {
            let (response, at) = send(self, &self.scope(url), url, &RequestParts::new(Method::HEAD)).await?;
            let unknown = [StatusCode::METHOD_NOT_ALLOWED, StatusCode::NOT_IMPLEMENTED];
            let (response, at) = if unknown.contains(&response.status()) {
                let mut parts = RequestParts::new(Method::GET);
                parts.headers.insert(RANGE, HeaderValue::from_static("bytes=0-0"));
                send(self, &self.scope(url), url, &parts).await?
            } else {
                (response, at)
            };
            let remote = match remote_of(url, at, &response) {
                Err(error) if url.scheme() == stores::SCHEME => return Err(self.explained(url, error).await),
                remote => remote?,
            };
            Ok(Remote { is_operator: self.is_operator, ..remote })
        })
    }
}

fn remote_of(asked: &Url, url: Url, response: &Response) -> Result<Remote, NetError> {
    let headers = response.headers();
    let (length_bytes, is_range) = match response.status() {
        StatusCode::OK => (content_length(&url, headers)?, false),
        StatusCode::PARTIAL_CONTENT => {
            let range = field(headers, CONTENT_RANGE).and_then(ContentRange::parse);
            let range = range.ok_or_else(|| NetError::bad_answer(&url, "a range without a position"))?;
            (range.total_bytes, true)
        }
        _ => return Err(refused(&url, response)),
    };
    check_encoding(&url, response)?;
    let accepts = field(headers, ACCEPT_RANGES)
        .is_some_and(|units| units.split(',').any(|unit| unit.trim().eq_ignore_ascii_case("bytes")));
    let (etag, last_modified) = validators(headers);
    let file_name = file_name(&url).or_else(|| file_name(asked)).unwrap_or_default();
    Ok(Remote {
        url,
        asked: asked.clone(),
        length_bytes,
        etag,
        last_modified,
        accepts_ranges: is_range || accepts,
        file_name,
        is_operator: false,
    })
}

/// Parses `Content-Length`. A field that is not a number is an error.
pub(super) fn content_length(url: &Url, headers: &HeaderMap) -> Result<Option<u64>, NetError> {
    let Some(value) = headers.get(CONTENT_LENGTH) else { return Ok(None) };
    let length = value.to_str().ok().and_then(|text| parse_number(text.trim()));
    length.map(Some).ok_or_else(|| NetError::bad_answer(url, "a length that is no number"))
}

/// Returns the strong ETag and the time of the last change.
pub(super) fn validators(headers: &HeaderMap) -> (Option<String>, Option<String>) {
    let etag = field(headers, ETAG).filter(|tag| tag.len() <= ETAG_BYTES_MAX && tag.starts_with('"') && tag.len() > 2);
    let changed = field(headers, LAST_MODIFIED).filter(|time| time.len() <= 64);
    (etag.map(str::to_string), changed.map(str::to_string))
}

/// Last segment of a path; `None` if it cannot be a file name.
fn file_name(url: &Url) -> Option<String> {
    let last = url.path_segments()?.next_back()?;
    let name = percent_decoded(last)?;
    let is_fit = !name.is_empty()
        && name.len() <= FILE_NAME_BYTES_MAX
        && !name.starts_with('.')
        && !name.chars().any(|char| char == '/' || char == '\\' || char.is_control());
    is_fit.then_some(name)
}

/// Decodes `%2e` and the like once; `None` if the result is not UTF-8.
fn percent_decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'%' => {
                let digits = [rest.next()?, rest.next()?];
                let digits =
                    std::str::from_utf8(&digits).ok().filter(|text| text.bytes().all(|b| b.is_ascii_hexdigit()));
                u8::from_str_radix(digits?, 16).ok()?
            }
            byte => byte,
        });
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn name(url: &str) -> Option<String> {
        file_name(&Url::parse(url).expect("a URL"))
    }

    #[test]
    fn names() {
        let archive = "snapshot-26-D5jEKFz2JqBFLYETBEnvkiV47AnCXjXEdUgUU1XYNwsi.tar.zst";
        assert_eq!(name(&format!("http://h/a/{archive}?key=1#x")).as_deref(), Some(archive));
        assert_eq!(name("http://h/snapshot%2D5.tar").as_deref(), Some("snapshot-5.tar"));
        for url in [
            "http://h/",
            "http://h",
            "http://h/a/",
            "http://h/..%2f..%2fetc%2fpasswd",
            "http://h/%2e%2e",
            "http://h/.hidden",
            "http://h/a%00b",
            "http://h/a%0ab",
            "http://h/%ff",
            "http://h/%zz",
            "http://h/%4",
            "http://h/a%5cb",
            "http://h/%+4",
        ] {
            assert_eq!(name(url), None, "{url}");
        }
        assert_eq!(name(&format!("http://h/{}", "x".repeat(300))), None);
        // Names are decoded only once.
        assert_eq!(name("http://h/%252e%252e%252f").as_deref(), Some("%2e%2e%2f"));
    }

    proptest! {
        #[test]
        fn a_name_stays_in_its_directory(path in "[a-z0-9%./\\\\-]{0,60}") {
            let Ok(url) = Url::parse(&format!("http://h/{path}")) else { return Ok(()) };
            if let Some(name) = file_name(&url) {
                let joined = std::path::Path::new("/dir").join(&name);
                prop_assert_eq!(joined.parent(), Some(std::path::Path::new("/dir")));
            }
        }
    }
}
