//! Sends a request and follows redirects, until the headers of the final response have arrived.

use reqwest::header::{CONTENT_ENCODING, HeaderMap, HeaderName, LOCATION, RETRY_AFTER};
use reqwest::{Method, Response, StatusCode};
use slotpress_base::clock;
use tokio::time::timeout;

use super::redirect::{REDIRECTS_MAX, Scope, resolve_redirect};
use super::{Client, NetError, NetErrorKind, Url, stores};

/// A request that is sent to a URL, and to each URL to which a server redirects it.
pub struct RequestTemplate<'a> {
    pub method: Method,
    pub headers: HeaderMap,
    pub body: Option<&'a [u8]>,
}

impl RequestTemplate<'_> {
    pub fn new(method: Method) -> Self {
        Self { method, headers: HeaderMap::new(), body: None }
    }
}

/// Checks that this machine's clock has a date that TLS and signatures can use.
///
/// # Errors
/// The clock is outside the years 1970 to 9999, and the URL is not plain `http`.
pub fn check_clock(url: &Url) -> Result<(), NetError> {
    if url.scheme() == "http" || clock::is_in_range() {
        return Ok(());
    }
    let why =
        "this machine's clock is outside the years 1970 to 9999, so certificates and signatures cannot be checked";
    Err(NetError::forbidden(url, why).with_hint("set the clock (chronyc makestep, timedatectl set-ntp true)"))
}

/// Sends a request to `first_url` and follows at most [`REDIRECTS_MAX`] redirects. Returns the response,
/// whose body has not been read, and its URL.
pub async fn send(
    client: &Client,
    scope: &Scope<'_>,
    first_url: &Url,
    template: &RequestTemplate<'_>,
) -> Result<(Response, Url), NetError> {
    let mut url = first_url.clone();
    for _ in 0..=REDIRECTS_MAX {
        // Each request is signed anew, because a download may outlast the validity of a signature.
        let (signed_url, http_client) = match url.scheme() {
            stores::SCHEME => (client.sign_url(&template.method, &url).await?, client.http_client()),
            _ => (url.clone(), client.inner.http_client(scope.reach_of(&url)?)),
        };
        check_clock(&signed_url)?;
        let mut request = http_client.request(template.method.clone(), signed_url).headers(template.headers.clone());
        if let Some(body) = template.body {
            request = request.body(body.to_vec());
        }
        let limit = client.inner.options.head_timeout;
        let response = match timeout(limit, request.send()).await {
            Ok(Ok(response)) => response,
            Ok(Err(error)) => return Err(NetError::from_request(&url, &error.without_url())),
            Err(_) => {
                let why = format!("no answer within {} s", limit.as_secs_f32());
                return Err(NetError::new(NetErrorKind::Timeout, &url, why));
            }
        };
        let is_redirect = match response.status() {
            StatusCode::TEMPORARY_REDIRECT | StatusCode::PERMANENT_REDIRECT => true,
            // These turn POST into GET, which would be a different request.
            StatusCode::MOVED_PERMANENTLY | StatusCode::FOUND | StatusCode::SEE_OTHER => template.body.is_none(),
            _ => false,
        };
        if !is_redirect {
            return Ok((response, url));
        }
        let Some(location) = response.headers().get(LOCATION) else {
            return Err(NetError::bad_answer(&url, "a redirect without a location"));
        };
        url = resolve_redirect(&url, location.as_bytes())?;
    }
    let why = format!("more than {REDIRECTS_MAX} redirects");
    Err(NetError::forbidden(first_url, why))
}

pub fn status_error(url: &Url, response: &Response) -> NetError {
    let status = response.status();
    let reason = status.canonical_reason().unwrap_or("unknown status");
    let kind = match status.as_u16() {
        404 | 410 => NetErrorKind::Gone,
        412 | 416 => NetErrorKind::Changed,
        code => NetErrorKind::Status(code),
    };
    let retry_after = header_text(response.headers(), RETRY_AFTER);
    NetError::from_status(kind, status.as_u16(), reason, retry_after).with_url(url)
}

/// Returns the value of a header; `None` if it is missing, or not text.
pub fn header_text(headers: &HeaderMap, name: HeaderName) -> Option<&str> {
    headers.get(name)?.to_str().ok()
}

/// Refuses a response with a `Content-Encoding`, because none was requested. Accepts an encoding that fits the
/// file's extension: some servers declare a stored `.gz` file as encoded, and send its bytes unchanged.
pub fn check_encoding(url: &Url, response: &Response) -> Result<(), NetError> {
    let encoding = header_text(response.headers(), CONTENT_ENCODING).unwrap_or_default().to_ascii_lowercase();
    let extension = match encoding.as_str() {
        "" | "identity" => return Ok(()),
        "gzip" | "x-gzip" => Some(".gz"),
        "bzip2" | "x-bzip2" => Some(".bz2"),
        "zstd" => Some(".zst"),
        _ => None,
    };
    if extension.is_some_and(|extension| url.path().ends_with(extension)) {
        return Ok(());
    }
    let why = format!("sent encoded as {encoding}, which was not requested");
    Err(NetError::bad_answer(url, why))
}
