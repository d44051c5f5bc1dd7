//! Transfers a file or a range of it. Checks that the response is the requested file and range.

use std::ops::{Deref, Range};
use std::time::{Duration, Instant};

use reqwest::header::{HeaderValue, IF_RANGE, RANGE};
use reqwest::{Method, Response, StatusCode};
use slotpress_base::quantity::bytes;
use slotpress_base::{Progress, range_bytes, saturating_add_to};
use tokio::time::{sleep, timeout};

use super::options::BYTES_PER_SECOND_MIN;
use super::remote::{content_length, content_range, last_modified, strong_etag};
use super::request::{RequestTemplate, check_encoding, send, status_error};
use super::{Client, NetError, NetErrorKind, Remote, Url};

/// Body of a response, while it arrives.
#[derive(Debug)]
pub struct Body {
    /// True if the server sends the whole file, whatever was requested.
    pub is_whole: bool,
    url: Url,
    response: Response,
    length_bytes: Option<u64>,
    received_bytes: u64,
    /// Time spent waiting since the transfer was last fast enough. The time between two calls does not count.
    recent_wait: Duration,
    /// Number of bytes that arrived during `recent_wait`.
    recent_bytes: u64,
}

impl Client {
    /// Requests a file, or a range of it. A server may answer with the whole file instead of the
    /// range: see [`Body::is_whole`].
    ///
    /// # Errors
    /// The server does not answer, its status is not success, its file is not the one that `remote`
    /// describes, or it sends a different range.
    #[doc(hidden)]
    pub fn open(&self, remote: &Remote, range: Option<Range<u64>>, progress: &dyn Progress) -> Result<Body, NetError> {
        self.block_on(progress, async {
            let scope = self.scope(remote.named_by_operator.then_some(&remote.requested_url));
            let mut template = RequestTemplate::new(Method::GET);
            let headers = &mut template.headers;
            if let Some(range) = &range {
                // HTTP cannot express an empty range.
                if range.is_empty() {
                    let why = "an empty range cannot be requested";
                    return Err(NetError::bad_answer(&remote.url, why));
                }
                let requested_range = format!("bytes={}-{}", range.start, range.end.saturating_sub(1));
                headers.insert(RANGE, header_value(&remote.url, &requested_range)?);
                if let Some(validator) = remote.etag.as_ref().or(remote.last_modified.as_ref()) {
                    headers.insert(IF_RANGE, header_value(&remote.url, validator)?);
                }
            }
            let (response, url) = send(self, &scope, &remote.url, &template).await?;
            body_from_response(remote, range.as_ref(), url, response)
        })
    }
}

impl Body {
    /// Returns the next bytes; `None` at the end. Bytes that arrived before an error are valid.
    ///
    /// # Errors
    /// The server sends fewer or more bytes than it stated, or is too slow; `progress` is interrupted.
    #[doc(hidden)]
    pub fn next(
        &mut self,
        client: &Client,
        progress: &dyn Progress,
    ) -> Result<Option<impl Deref<Target = [u8]> + use<>>, NetError> {
        let limit = client.inner.options.read_timeout;
        client.block_on(progress, async {
            let start = Instant::now();
            let Ok(arrival) = timeout(limit.saturating_sub(self.recent_wait), self.response.chunk()).await else {
                return Err(self.too_slow_error(limit));
            };
            let received_bytes = self.received_bytes;
            let piece =
                arrival.map_err(|error| NetError::from_body(&self.url, &error.without_url(), received_bytes))?;
            let Some(piece) = piece else { return self.check_end().map(|()| None) };
            let piece_bytes = piece.len() as u64;
            saturating_add_to(&mut self.received_bytes, piece_bytes);
            if let Some(length) = self.length_bytes
                && self.received_bytes > length
            {
                let why = format!("more bytes arrived than the {length} that were stated");
                return Err(NetError::new(NetErrorKind::TooLong, &self.url, why));
            }
            self.recent_wait = self.recent_wait.saturating_add(start.elapsed());
            saturating_add_to(&mut self.recent_bytes, piece_bytes);
            if self.recent_bytes as f64 >= limit.as_secs_f64() * BYTES_PER_SECOND_MIN as f64 {
                (self.recent_wait, self.recent_bytes) = (Duration::ZERO, 0);
            }
            sleep(client.inner.count_against_rate(piece_bytes)).await;
            Ok(Some(piece))
        })
    }

    /// Checks that no bytes are missing at the end of the body.
    fn check_end(&self) -> Result<(), NetError> {
        let received_bytes = self.received_bytes;
        match self.length_bytes {
            Some(length) if received_bytes < length => {
                let why = format!("ended early, after {} of {}", bytes(received_bytes), bytes(length));
                Err(NetError::new(NetErrorKind::Truncated { received_bytes }, &self.url, why))
            }
            _ => Ok(()),
        }
    }

    fn too_slow_error(&self, limit: Duration) -> NetError {
        let limit = limit.as_secs_f32();
        let received = bytes(self.received_bytes);
        let why = match self.recent_bytes {
            0 => format!("nothing arrived for {limit} s, after {received}"),
            recent_bytes => format!("only {} arrived in {limit} s, after {received}", bytes(recent_bytes)),
        };
        NetError::new(NetErrorKind::Timeout, &self.url, why)
    }
}

/// Checks the headers of a response against the request, and against the known facts of the file.
fn body_from_response(
    remote: &Remote,
    requested: Option<&Range<u64>>,
    url: Url,
    response: Response,
) -> Result<Body, NetError> {
    let bad_answer = |why: &str| NetError::bad_answer(&url, why);
    let headers = response.headers();
    let mut length_bytes = content_length(&url, headers)?;
    let mut total_bytes = length_bytes;
    let is_whole = response.status() == StatusCode::OK;
    match (response.status(), requested) {
        (StatusCode::OK, _) => {}
        (StatusCode::PARTIAL_CONTENT, Some(requested)) => {
            let sent = content_range(&url, headers)?;
            if sent.range != *requested {
                return Err(bad_answer("sent a range other than the requested one"));
            }
            let range_bytes = range_bytes(requested);
            if length_bytes.is_some_and(|length| length != range_bytes) {
                return Err(bad_answer("the length of the response is not that of the range"));
            }
            length_bytes = Some(range_bytes);
            total_bytes = sent.total_bytes;
        }
        (StatusCode::PARTIAL_CONTENT, None) => return Err(bad_answer("sent a range that was not requested")),
        _ => return Err(status_error(&url, &response)),
    }
    check_encoding(&url, &response)?;
    // If strong ETags are equal, dates may differ: several machines may serve the same file.
    let has_changed = match (&remote.etag, &strong_etag(headers)) {
        (Some(before), Some(now)) => before != now,
        _ => is_known_to_differ(&remote.last_modified, &last_modified(headers)),
    };
    if has_changed || is_known_to_differ(&remote.length_bytes, &total_bytes) {
        let why = "the file on the server has changed";
        return Err(NetError::new(NetErrorKind::Changed, &url, why));
    }
    // If the response states no length, the body must have the length in `remote`.
    let length_bytes = length_bytes.or(remote.length_bytes);
    Ok(Body { is_whole, url, response, length_bytes, received_bytes: 0, recent_wait: Duration::ZERO, recent_bytes: 0 })
}

/// True if both values are known and not equal.
fn is_known_to_differ<T: PartialEq>(before: &Option<T>, now: &Option<T>) -> bool {
    before.is_some() && now.is_some() && before != now
}

fn header_value(url: &Url, text: &str) -> Result<HeaderValue, NetError> {
    HeaderValue::from_str(text).map_err(|_| NetError::bad_answer(url, "an ETag or a date that cannot be sent back"))
}
