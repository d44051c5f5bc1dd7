//! Transfers a file or a range of it. Checks that what arrives is what was requested.

use std::ops::{Deref, Range};
use std::time::{Duration, Instant};

use reqwest::header::{HeaderValue, IF_RANGE, RANGE};
use reqwest::{Method, Response, StatusCode};
use slotpress_base::quantity::bytes;
use slotpress_base::{Progress, range_bytes};
use tokio::time::{sleep, timeout};

use super::options::BYTES_PER_SECOND_MIN;
use super::redirect::Scope;
use super::remote::{content_length, content_range, validators};
use super::request::{RequestParts, check_encoding, send, status_error};
use super::{Client, NetError, NetErrorKind, Remote, Url};

#[derive(Debug)]
pub struct Body {
    /// True if the server sends the whole file, whatever was requested.
    pub is_whole: bool,
    url: Url,
    response: Response,
    start: u64,
    length_bytes: Option<u64>,
    got_bytes: u64,
    /// Time waited and bytes received since enough bytes had last arrived. Time that passes between
    /// two calls does not count.
    waited: Duration,
    lately_bytes: u64,
}

impl Client {
    /// Requests a file, or a range of it. A server may answer with the whole file instead of the
    /// range: see [`Body::is_whole`].
    ///
    /// # Errors
    /// The server does not answer, its status is not success, it has another file than `remote`
    /// describes, or it sends another range.
    #[doc(hidden)]
    pub fn open(&self, remote: &Remote, range: Option<Range<u64>>, stop: &dyn Progress) -> Result<Body, NetError> {
        self.wait(stop, async {
            let named = remote.named_by_operator.then_some(&remote.requested_url);
            let scope = Scope { named, allow_private: self.inner.options.allow_private };
            let mut parts = RequestParts::new(Method::GET);
            if let Some(range) = &range {
                // HTTP cannot express an empty range.
                if range.is_empty() {
                    let why = "an empty range cannot be asked for";
                    return Err(NetError::bad_answer(&remote.url, why));
                }
                let text = format!("bytes={}-{}", range.start, range.end.saturating_sub(1));
                parts.headers.insert(RANGE, header_value(&remote.url, &text)?);
                if let Some(validator) = remote.etag.as_ref().or(remote.last_modified.as_ref()) {
                    parts.headers.insert(IF_RANGE, header_value(&remote.url, validator)?);
                }
            }
            let (response, url) = send(self, &scope, &remote.url, &parts).await?;
            check_head(remote, range.as_ref(), url, response)
        })
    }
}

impl Body {
    /// Returns the next bytes, with their offset in the file; `None` at the end. Bytes that came
    /// before an error are good.
    ///
    /// # Errors
    /// The server sends fewer or more bytes than it stated, or is too slow; the user asks to stop.
    #[doc(hidden)]
    pub fn next(
        &mut self,
        client: &Client,
        stop: &dyn Progress,
    ) -> Result<Option<(u64, impl Deref<Target = [u8]> + use<>)>, NetError> {
        let limit = client.inner.options.read_timeout;
        let enough_bytes =
            u64::try_from(limit.as_millis()).unwrap_or(u64::MAX).saturating_mul(BYTES_PER_SECOND_MIN) / 1000;
        client.wait(stop, async {
            let asked = Instant::now();
            let got_bytes = self.got_bytes;
            let piece = match timeout(limit.saturating_sub(self.waited), self.response.chunk()).await {
                Ok(Ok(piece)) => piece,
                Ok(Err(error)) => return Err(NetError::from_body(&self.url, &error.without_url(), got_bytes)),
                Err(_) => {
                    let limit = limit.as_secs_f32();
                    let after = bytes(got_bytes);
                    let why = match self.lately_bytes {
                        0 => format!("nothing came for {limit} s, after {after}"),
                        few => format!("only {} came in {limit} s, after {after}", bytes(few)),
                    };
                    return Err(NetError::new(NetErrorKind::Timeout, &self.url, why));
                }
            };
            let Some(piece) = piece else {
                let Some(length) = self.length_bytes.filter(|length| got_bytes < *length) else { return Ok(None) };
                let why = format!("ended early, after {} of {}", bytes(got_bytes), bytes(length));
                return Err(NetError::new(NetErrorKind::Truncated { got_bytes }, &self.url, why));
            };
            let piece_bytes = piece.len() as u64;
            self.waited = self.waited.saturating_add(asked.elapsed());
            self.lately_bytes = self.lately_bytes.saturating_add(piece_bytes);
            if self.lately_bytes >= enough_bytes {
                (self.waited, self.lately_bytes) = (Duration::ZERO, 0);
            }
            self.got_bytes = got_bytes.saturating_add(piece_bytes);
            if let Some(length) = self.length_bytes.filter(|length| self.got_bytes > *length) {
                let why = format!("more bytes came than the {length} that were stated");
                return Err(NetError::new(NetErrorKind::TooLong, &self.url, why));
            }
            sleep(client.inner.wait_for_rate(piece_bytes)).await;
            Ok(Some((self.start.saturating_add(got_bytes), piece)))
        })
    }
}

/// Checks the head of an answer against the request, and against the known facts of the file.
fn check_head(remote: &Remote, asked: Option<&Range<u64>>, url: Url, response: Response) -> Result<Body, NetError> {
    let bad = |why: &str| NetError::bad_answer(&url, why);
    let headers = response.headers();
    let stated = content_length(&url, headers)?;
    let (is_whole, start, length_bytes, total_bytes) = match (response.status(), asked) {
        (StatusCode::OK, _) => (true, 0, stated, stated),
        (StatusCode::PARTIAL_CONTENT, Some(asked)) => {
            let range = content_range(&url, headers)?;
            if range.range != *asked {
                return Err(bad("sent another range than the requested one"));
            }
            let length = range_bytes(asked);
            if stated.is_some_and(|stated| stated != length) {
                return Err(bad("the length of the answer is not that of the range"));
            }
            (false, asked.start, Some(length), range.total_bytes)
        }
        (StatusCode::PARTIAL_CONTENT, None) => return Err(bad("sent a range that was not requested")),
        _ => return Err(status_error(&url, &response)),
    };
    check_encoding(&url, &response)?;
    let (etag, last_modified) = validators(headers);
    let differs = |before: &Option<String>, now: &Option<String>| before.is_some() && now.is_some() && before != now;
    let is_length_other = remote.length_bytes.zip(total_bytes).is_some_and(|(before, now)| before != now);
    // If strong ETags are equal, times may differ: several machines may serve the same file.
    let is_other = match (&remote.etag, &etag) {
        (Some(before), Some(now)) => before != now,
        _ => differs(&remote.last_modified, &last_modified),
    };
    if is_other || is_length_other {
        let why = "the file on the server has changed";
        return Err(NetError::new(NetErrorKind::Changed, &url, why));
    }
    // If the answer states no length, the size known before is the limit.
    let length_bytes = length_bytes.or(remote.length_bytes);
    Ok(Body { is_whole, url, response, start, length_bytes, got_bytes: 0, waited: Duration::ZERO, lately_bytes: 0 })
}

fn header_value(url: &Url, text: &str) -> Result<HeaderValue, NetError> {
    HeaderValue::from_str(text).map_err(|_| NetError::bad_answer(url, "an ETag that cannot be sent back"))
}
