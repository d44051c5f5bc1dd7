//! What goes wrong on the network: which sort it is decides whether trying again may help.

use std::error::Error as _;
use std::time::Duration;
use std::{fmt, io};

use slotpress_base::quantity::bytes;
use slotpress_base::{Error, ErrorKind, Hint, one_line};

use super::{Url, shown};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum NetErrorKind {
    /// Nothing came for too long.
    Timeout,
    /// No connection: no such name, nothing listens, the network is down.
    Connect,
    Status(u16),
    /// The server has it no more, or never had it (404, 410).
    Gone,
    /// The file is not the one that was there before.
    Changed,
    /// The server said that it sends ranges, and sent none.
    NoRanges,
    /// The transfer ended early.
    Truncated {
        got_bytes: u64,
    },
    /// More bytes than there should be, or than is allowed.
    TooLong,
    /// An answer that makes no sense, or breaks the protocol.
    BadAnswer,
    /// An address or a redirect that is not followed.
    Forbidden,
    /// The server cannot show who it is.
    Tls,
    /// Called on a thread of a tokio runtime, which waiting would block.
    InsideRuntime,
    /// The user asked to stop.
    Interrupted,
}

/// What failed, at which server, and why. Never shows users, passwords or queries of URLs.
#[derive(Clone, Debug)]
pub struct NetError {
    kind: NetErrorKind,
    message: String,
    hint: Option<Hint>,
    retry_after: Option<Duration>,
}

/// The longest that a server may ask to wait before the next try.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(120);

impl NetError {
    /// An error of a request to `url`.
    pub fn new(kind: NetErrorKind, url: &Url, why: impl fmt::Display) -> Self {
        let message = format!("{}: {}", shown(url), one_line(&why.to_string()));
        Self { message, ..Self::without_url(kind, "") }
    }

    pub fn forbidden(url: &Url, why: impl fmt::Display) -> Self {
        Self::new(NetErrorKind::Forbidden, url, why)
    }

    pub fn bad_answer(url: &Url, why: impl fmt::Display) -> Self {
        Self::new(NetErrorKind::BadAnswer, url, why)
    }

    #[must_use]
    pub fn with_hint(mut self, hint: impl Into<Hint>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    #[must_use]
    pub fn and(mut self, more: &str) -> Self {
        self.message = format!("{}; {more}", self.message);
        self
    }

    pub fn interrupted() -> Self {
        Self::without_url(NetErrorKind::Interrupted, "interrupted")
    }

    pub fn without_url(kind: NetErrorKind, why: &str) -> Self {
        Self { kind, message: one_line(why), hint: None, retry_after: None }
    }

    /// An answer with a status that is no success, for this reason.
    pub fn status(url: &Url, status: u16, reason: &str, retry_after: Option<&str>) -> Self {
        let kind = match status {
            404 | 410 => NetErrorKind::Gone,
            412 | 416 => NetErrorKind::Changed,
            code => NetErrorKind::Status(code),
        };
        let mut error = Self::new(kind, url, format!("the server answers {status} {reason}"));
        let seconds = retry_after.and_then(|text| text.trim().parse::<u64>().ok());
        error.retry_after = seconds.map(|seconds| Duration::from_secs(seconds).min(RETRY_AFTER_MAX));
        error
    }

    /// A failure that the HTTP library tells, before or while the head of an answer came.
    pub fn of_request(url: &Url, error: &reqwest::Error) -> Self {
        let causes = Causes::of(error);
        let why = &causes.last;
        if causes.is_forbidden {
            return Self::forbidden(url, why).with_hint(Hint::AllowPrivate);
        }
        let is_https = url.scheme() == "https";
        if causes.is_tls && causes.is_no_tls {
            return Self::new(NetErrorKind::Tls, url, "the server does not speak TLS: use http:// in its URL");
        }
        if !is_https && causes.is_no_http {
            return Self::new(
                NetErrorKind::BadAnswer,
                url,
                "the answer is not HTTP: if the server speaks TLS, use https:// in its URL",
            );
        }
        if causes.is_tls {
            return Self::new(NetErrorKind::Tls, url, format!("no trusted connection: {why}"))
                .with_hint(Hint::GiveCaFile);
        }
        match () {
            () if error.is_timeout() && is_https => {
                let why = "no connection in time; if the server does not speak TLS, use http:// in its URL";
                Self::new(NetErrorKind::Timeout, url, why)
            }
            () if error.is_timeout() => Self::new(NetErrorKind::Timeout, url, "no connection in time"),
            () if error.is_connect() => Self::new(NetErrorKind::Connect, url, format!("cannot connect: {why}")),
            // The server closed a connection, kept from an earlier request, or before it answered.
            () if causes.is_closed => Self::new(NetErrorKind::Connect, url, format!("closed without an answer: {why}")),
            () => Self::bad_answer(url, why),
        }
    }

    /// A failure while a body came, of which `got_bytes` were there.
    pub(super) fn of_body(url: &Url, error: &reqwest::Error, got_bytes: u64) -> Self {
        let why = Causes::of(error).last;
        Self::new(NetErrorKind::Truncated { got_bytes }, url, format!("ended early, after {}: {why}", bytes(got_bytes)))
    }

    pub fn of(error: &Error) -> Option<&Self> {
        error.source().and_then(|cause| cause.downcast_ref())
    }

    pub fn kind(&self) -> NetErrorKind {
        self.kind
    }

    /// How long the server asks to wait before the next try: at most two minutes.
    pub fn retry_after(&self) -> Option<Duration> {
        self.retry_after
    }

    /// Whether the same request may succeed a little later.
    pub fn is_retryable(&self) -> bool {
        match self.kind {
            NetErrorKind::Timeout | NetErrorKind::Connect | NetErrorKind::Truncated { .. } => true,
            NetErrorKind::Status(code) => matches!(code, 408 | 425 | 429 | 500 | 502 | 503 | 504),
            _ => false,
        }
    }
}

impl fmt::Display for NetError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for NetError {}

impl From<NetError> for Error {
    fn from(error: NetError) -> Self {
        let kind = match error.kind {
            NetErrorKind::Interrupted => return Self::interrupted(),
            NetErrorKind::Forbidden => ErrorKind::Failed,
            NetErrorKind::InsideRuntime => ErrorKind::Usage,
            _ => ErrorKind::Network,
        };
        let hint = error.hint.clone();
        let made = Self::new(kind, error.message.clone()).caused_by(error);
        match hint {
            Some(hint) => made.with_hint(hint),
            None => made,
        }
    }
}

/// So that a `Source` can tell it; the kind is lost.
impl From<NetError> for io::Error {
    fn from(error: NetError) -> Self {
        io::Error::other(error)
    }
}

/// Name lookup found addresses, but none that may be used.
#[derive(Debug)]
pub(super) struct PrivateOnly;

impl fmt::Display for PrivateOnly {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("its name resolves to a private address")
    }
}

impl std::error::Error for PrivateOnly {}

#[derive(Default)]
struct Causes {
    last: String,
    is_tls: bool,
    is_no_tls: bool,
    /// Whether what came was no HTTP, but may have been TLS.
    is_no_http: bool,
    is_forbidden: bool,
    is_closed: bool,
}

impl Causes {
    fn of(error: &reqwest::Error) -> Self {
        let mut causes = Self { last: error.to_string(), ..Self::default() };
        let mut next: Option<&(dyn std::error::Error + 'static)> = error.source();
        // Chains are short; the bound only keeps a loop of causes from being followed.
        for _ in 0..16 {
            let Some(cause) = next else { break };
            causes.last = cause.to_string();
            let tls = cause.downcast_ref::<rustls::Error>();
            causes.is_tls |= tls.is_some();
            causes.is_no_tls |= matches!(tls, Some(rustls::Error::InvalidMessage(_)));
            // An alert of TLS begins with no letter.
            causes.is_no_http |= causes.last.contains("invalid HTTP version");
            causes.is_forbidden |= cause.is::<PrivateOnly>();
            // hyper's words for the end of a connection before an answer, and before the request.
            causes.is_closed |= ["connection closed before message completed", "operation was canceled"]
                .iter()
                .any(|words| causes.last.contains(words));
            let inner = cause.downcast_ref::<io::Error>();
            if let Some(error) = inner {
                use io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset, UnexpectedEof};
                causes.is_closed |=
                    matches!(error.kind(), BrokenPipe | ConnectionAborted | ConnectionReset | UnexpectedEof);
            }
            next = match inner.and_then(io::Error::get_ref) {
                Some(inner) => Some(inner),
                None => cause.source(),
            };
        }
        if let Some(end) = causes.last.find(" (os error ") {
            causes.last.truncate(end);
        }
        causes
    }
}
