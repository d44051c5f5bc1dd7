//! Downloads a file, or a range of it.

use std::ops::{ControlFlow, Range};
use std::time::{Duration, Instant};

use reqwest::header::{CONTENT_RANGE, HeaderValue, IF_RANGE, RANGE};
use reqwest::{Method, Response, StatusCode};
use slotpress_base::quantity::bytes;
use slotpress_base::{Progress, range_bytes, split_at_most, to_usize};
use tokio::time::{sleep, timeout};

use super::content_range::ContentRange;
use super::options::BYTES_PER_SECOND_MIN;
use super::redirect::Scope;
use super::remote::{content_length, validators};
use super::request::{Ask, check_encoding, field, refused, send};
use super::{Client, NetError, NetErrorKind, Remote, Url};

/// Result of a transfer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transfer {
    /// True if the server sent the file from its beginning, because no range was requested or the
    /// server ignores ranges.
    pub is_whole: bool,
    pub got_bytes: u64,
    /// True if the whole body arrived; false if the receiver stopped it.
    pub is_complete: bool,
    pub elapsed: Duration,
}

impl Client {
    /// Downloads a range of a file, or all of it. Calls `on_bytes` on the calling thread with the
    /// offset in the file and the bytes as they arrive; it may stop the transfer.
    ///
    /// A server may answer with the whole file instead of the range: `on_bytes` then gets it from
    /// offset 0, and [`Transfer::is_whole`] is true. Bytes that came before an error are good,
    /// since [`NetErrorKind::Changed`] and [`NetErrorKind::BadAnswer`] are detected before the
    /// first byte.
    ///
    /// # Errors
    /// The server does not answer, its status is not success, it has another file than `remote`
    /// describes, it sends another range, or fewer or more bytes than it stated, or it is too slow.
    #[doc(hidden)]
    pub fn get(
        &self,
        remote: &Remote,
        range: Option<Range<u64>>,
        stop: &dyn Progress,
        on_bytes: &mut dyn FnMut(u64, &[u8]) -> ControlFlow<()>,
    ) -> Result<Transfer, NetError> {
        let start = Instant::now();
        self.wait(stop, async {
            let named = remote.is_operator.then_some(&remote.asked);
            let scope = Scope { named, allow_private: self.inner.options.allow_private };
            let mut ask = Ask::new(Method::GET);
            if let Some(range) = &range {
                // HTTP cannot express an empty range.
                if range.is_empty() {
                    return Err(NetError::bad_answer(&remote.url, "an empty range cannot be asked for"));
                }
                let text = format!("bytes={}-{}", range.start, range.end.saturating_sub(1));
                ask.headers.insert(RANGE, value(&remote.url, &text)?);
                if let Some(validator) = remote.etag.as_ref().or(remote.last_modified.as_ref()) {
                    ask.headers.insert(IF_RANGE, value(&remote.url, validator)?);
                }
            }
            let (response, url) = send(self, &scope, &remote.url, &ask).await?;
            let body = expect(remote, range.as_ref(), &url, &response)?;
            let (got_bytes, is_complete) = self.receive(&url, response, &body, stop, on_bytes).await?;
            Ok(Transfer { is_whole: body.is_whole, got_bytes, is_complete, elapsed: start.elapsed() })
        })
    }

    /// True if `is_here` accepts all bytes that the server sends of a range. It is called with the
    /// offset of the bytes. Stops at the first difference.
    ///
    /// # Errors
    /// See [`Client::get`].
    #[doc(hidden)]
    pub fn sends_same(
        &self,
        remote: &Remote,
        range: &Range<u64>,
        stop: &dyn Progress,
        is_here: &mut dyn FnMut(u64, &[u8]) -> bool,
    ) -> Result<bool, NetError> {
        let (mut at, mut is_same) = (range.start, true);
        let asked = Some(range.clone()).filter(|_| remote.accepts_ranges);
        self.get(remote, asked, stop, &mut |offset_bytes, bytes| {
            let bytes = split_at_most(bytes, to_usize(range.end.saturating_sub(offset_bytes))).0;
            is_same &= offset_bytes == at && is_here(offset_bytes, bytes);
            at = offset_bytes.saturating_add(bytes.len() as u64);
            if is_same && at < range.end { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        })?;
        Ok(is_same && at == range.end)
    }

    async fn receive(
        &self,
        url: &Url,
        mut response: Response,
        body: &Body,
        stop: &dyn Progress,
        on_bytes: &mut dyn FnMut(u64, &[u8]) -> ControlFlow<()>,
    ) -> Result<(u64, bool), NetError> {
        let limit = self.inner.options.read_timeout;
        let enough_bytes =
            u64::try_from(limit.as_millis()).unwrap_or(u64::MAX).saturating_mul(BYTES_PER_SECOND_MIN) / 1000;
        let mut got_bytes = 0u64;
        // Time waited and bytes received since enough bytes had last arrived. Time spent in
        // `on_bytes` does not count.
        let (mut waited, mut lately_bytes) = (Duration::ZERO, 0u64);
        loop {
            let asked = Instant::now();
            let piece = match timeout(limit.saturating_sub(waited), response.chunk()).await {
                Ok(Ok(piece)) => piece,
                Ok(Err(error)) => return Err(NetError::of_body(url, &error.without_url(), got_bytes)),
                Err(_) => {
                    let (limit, after) = (limit.as_secs_f32(), bytes(got_bytes));
                    let why = match lately_bytes {
                        0 => format!("nothing came for {limit} s, after {after}"),
                        few => format!("only {} came in {limit} s, after {after}", bytes(few)),
                    };
                    return Err(NetError::new(NetErrorKind::Timeout, url, why));
                }
            };
            waited = waited.saturating_add(asked.elapsed());
            lately_bytes = lately_bytes.saturating_add(piece.as_ref().map_or(0, |piece| piece.len() as u64));
            if lately_bytes >= enough_bytes {
                (waited, lately_bytes) = (Duration::ZERO, 0);
            }
            let Some(piece) = piece else {
                return match body.length_bytes {
                    Some(length) if got_bytes < length => {
                        let why = format!("ended early, after {} of {}", bytes(got_bytes), bytes(length));
                        Err(NetError::new(NetErrorKind::Truncated { got_bytes }, url, why))
                    }
                    _ => Ok((got_bytes, true)),
                };
            };
            let end = got_bytes.saturating_add(piece.len() as u64);
            if body.length_bytes.is_some_and(|length| end > length) {
                let why =
                    format!("more bytes came than the {} that were stated", body.length_bytes.unwrap_or_default());
                return Err(NetError::new(NetErrorKind::TooLong, url, why));
            }
            // Checks for each piece: if `on_bytes` is slow, the check of `wait` would come too
            // late.
            if stop.is_interrupted() {
                return Err(NetError::interrupted());
            }
            let flow = on_bytes(body.start.saturating_add(got_bytes), &piece);
            got_bytes = end;
            if flow.is_break() {
                return Ok((got_bytes, body.length_bytes == Some(got_bytes)));
            }
            sleep(self.inner.wait_for_rate(piece.len() as u64)).await;
        }
    }
}

/// What the head of an answer says about the body.
struct Body {
    is_whole: bool,
    start: u64,
    length_bytes: Option<u64>,
    total_bytes: Option<u64>,
}

/// Checks the head of an answer against the request, and against the known facts of the file.
fn expect(remote: &Remote, asked: Option<&Range<u64>>, url: &Url, response: &Response) -> Result<Body, NetError> {
    let bad = |why: &str| NetError::bad_answer(url, why);
    let headers = response.headers();
    let stated = content_length(url, headers)?;
    let body = match (response.status(), asked) {
        (StatusCode::OK, _) => Body { is_whole: true, start: 0, length_bytes: stated, total_bytes: stated },
        (StatusCode::PARTIAL_CONTENT, Some(asked)) => {
            let range = field(headers, CONTENT_RANGE).and_then(ContentRange::parse);
            let range = range.ok_or_else(|| bad("a range without a place"))?;
            if range.range.as_ref() != Some(asked) {
                return Err(bad("sent another range than was asked for"));
            }
            let length = range_bytes(asked);
            if stated.is_some_and(|stated| stated != length) {
                return Err(bad("the length of the answer is not that of the range"));
            }
            Body { is_whole: false, start: asked.start, length_bytes: Some(length), total_bytes: range.total_bytes }
        }
        (StatusCode::PARTIAL_CONTENT, None) => return Err(bad("sent a range that was not requested")),
        _ => return Err(refused(url, response)),
    };
    check_encoding(url, response)?;
    let (etag, last_modified) = validators(headers);
    let differs = |before: &Option<String>, now: &Option<String>| before.is_some() && now.is_some() && before != now;
    let is_length_other = remote.length_bytes.zip(body.total_bytes).is_some_and(|(before, now)| before != now);
    // If strong ETags are equal, times may differ: several machines may serve the same file.
    let is_other = match (&remote.etag, &etag) {
        (Some(before), Some(now)) => before != now,
        _ => differs(&remote.last_modified, &last_modified),
    };
    if is_other || is_length_other {
        return Err(NetError::new(NetErrorKind::Changed, url, "the file on the server has changed"));
    }
    // If the answer states no length, the size known before is the limit.
    let total_bytes = body.total_bytes.or(remote.length_bytes);
    let length_bytes = body.length_bytes.or(remote.length_bytes);
    Ok(Body { total_bytes, length_bytes, ..body })
}

fn value(url: &Url, text: &str) -> Result<HeaderValue, NetError> {
    HeaderValue::from_str(text).map_err(|_| NetError::bad_answer(url, "an ETag that cannot be sent back"))
}
