//! Network errors. The kind of an error decides whether trying again may help.

use std::borrow::Cow;
use std::error::Error as _;
use std::time::Duration;
use std::{fmt, io};

use slotpress_base::quantity::bytes;
use slotpress_base::{Error, ErrorKind, hint, one_line};

use super::{Url, show_url};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NetErrorKind {
    /// The server was reached, but did not send enough in time.
    Timeout,
    /// No connection: the name is not found, nothing listens, or the network is down.
    Connect,
    Status(u16),
    /// The server no longer has the file, or never had it (404, 410).
    Gone,
    /// The file on the server is no longer the one that an earlier response described.
    Changed,
    /// The server announced ranges, but does not send them.
    NoRanges,
    Truncated {
        received_bytes: u64,
    },
    /// The server sends more bytes than it stated, or than are allowed.
    TooLong,
    /// The response breaks the protocol, or does not fit the request.
    BadAnswer,
    /// This client does not make the request (a private address, a redirect from `https`, a wrong clock),
    /// or a store refuses it and would refuse it again.
    Forbidden,
    /// The credentials are missing, unknown to the store, or not sufficient for the request.
    Denied,
    /// A store accepts no more bytes, because a quota is used up or its disks are full.
    Full,
    /// The TLS handshake failed, for example because the server's certificate is not trusted.
    Tls,
    /// The client was called on a thread of a tokio runtime, and would block it.
    InsideRuntime,
    Interrupted,
}

/// Error of a request: what failed, at which server, and why. Never contains the user, password or
/// query of a URL.
#[derive(Clone, Debug)]
pub struct NetError {
    kind: NetErrorKind,
    message: String,
    hint: Option<Cow<'static, str>>,
    retry_after: Option<Duration>,
}

const RETRY_AFTER_MAX: Duration = Duration::from_secs(120);

impl NetError {
    pub fn new(kind: NetErrorKind, url: &Url, why: impl fmt::Display) -> Self {
        Self::without_url(kind, &why.to_string()).with_url(url)
    }

    /// Names the URL of the request in the message.
    #[must_use]
    pub fn with_url(mut self, url: &Url) -> Self {
        self.message = format!("{}: {}", show_url(url), self.message);
        self
    }

    pub fn forbidden(url: &Url, why: impl fmt::Display) -> Self {
        Self::new(NetErrorKind::Forbidden, url, why)
    }

    pub fn bad_answer(url: &Url, why: impl fmt::Display) -> Self {
        Self::new(NetErrorKind::BadAnswer, url, why)
    }

    #[must_use]
    pub fn with_hint(mut self, hint: impl Into<Cow<'static, str>>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    pub fn interrupted() -> Self {
        Self::without_url(NetErrorKind::Interrupted, "interrupted")
    }

    pub fn without_url(kind: NetErrorKind, why: &str) -> Self {
        Self { kind, message: one_line(why), hint: None, retry_after: None }
    }

    /// Creates an error for a response with a status other than success. Its message does not name the
    /// URL.
    pub fn from_status(kind: NetErrorKind, status: u16, reason: &str, retry_after: Option<&str>) -> Self {
        let mut error = Self::without_url(kind, &format!("the server answers {status} {reason}"));
        let seconds = retry_after.and_then(|text| text.trim().parse::<u64>().ok());
        error.retry_after = seconds.map(|seconds| Duration::from_secs(seconds).min(RETRY_AFTER_MAX));
        error
    }

    /// Converts an error of the HTTP library that occurred before the headers of the response were
    /// complete.
    pub fn from_request(url: &Url, error: &reqwest::Error) -> Self {
        let causes = collect_causes(error);
        // The resolver found only private addresses.
        if let Some(error) = causes.iter().find_map(|cause| cause.downcast_ref::<Self>()) {
            return error.clone().with_url(url);
        }
        let why = root_cause_text(error);
        let why = reword_tls_fault(&why);
        match causes.iter().find_map(|cause| cause.downcast_ref::<rustls::Error>()) {
            Some(rustls::Error::InvalidMessage(_)) => {
                let why = "the server does not speak TLS: use http:// in its URL";
                return Self::new(NetErrorKind::Tls, url, why);
            }
            Some(_) => {
                let why = format!("no trusted connection: {why}");
                return Self::new(NetErrorKind::Tls, url, why).with_hint(hint::PASS_CA_FILE);
            }
            None => {}
        }
        let is_https = url.scheme() == "https";
        // hyper's text for a response that does not begin with a letter, such as a TLS alert.
        let is_not_http = |cause: &&Cause| cause.to_string().contains("invalid HTTP version");
        if !is_https && causes.iter().any(is_not_http) {
            let why = "the answer is not HTTP: if the server speaks TLS, use https:// in its URL";
            return Self::bad_answer(url, why);
        }
        if error.is_connect() {
            let why = match (error.is_timeout(), is_https) {
                (true, true) => "no connection in time; if the server does not speak TLS, use http:// in its URL",
                (true, false) => "no connection in time",
                (false, _) => &format!("cannot connect: {why}"),
            };
            return Self::new(NetErrorKind::Connect, url, why);
        }
        // The system gave up on an established connection, because the server acknowledged nothing.
        if error.is_timeout() {
            return Self::new(NetErrorKind::Timeout, url, why);
        }
        // The server closed the connection before it answered. This is normal for a connection that was
        // idle after an earlier request.
        if causes.iter().any(|cause| is_closed_connection(*cause)) {
            let why = format!("closed without an answer: {why}");
            return Self::new(NetErrorKind::Connect, url, why);
        }
        Self::bad_answer(url, why)
    }

    /// Converts an error of the HTTP library that occurred after `received_bytes` bytes of the body.
    pub(super) fn from_body(url: &Url, error: &reqwest::Error, received_bytes: u64) -> Self {
        let why = format!("ended early, after {}: {}", bytes(received_bytes), root_cause_text(error));
        Self::new(NetErrorKind::Truncated { received_bytes }, url, why)
    }

    /// Returns the network error that caused an error of the library, if there is one.
    pub fn find_in(error: &Error) -> Option<&Self> {
        error.cause().and_then(|cause| cause.downcast_ref())
    }

    pub fn kind(&self) -> NetErrorKind {
        self.kind
    }

    /// Returns the pause that the server asks for before the next attempt, at most two minutes.
    pub fn retry_after(&self) -> Option<Duration> {
        self.retry_after
    }

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
            NetErrorKind::Denied => ErrorKind::PermissionDenied,
            NetErrorKind::Full => ErrorKind::NoSpace,
            NetErrorKind::InsideRuntime => ErrorKind::Usage,
            _ => ErrorKind::Network,
        };
        let hint = error.hint.clone();
        let error = Self::new(kind, error.message.clone()).with_cause(error);
        match hint {
            Some(hint) => error.with_hint(hint),
            None => error,
        }
    }
}

/// Explains two faults of certificates that rustls describes only in technical terms.
fn reword_tls_fault(why: &str) -> &str {
    if why.contains("CaUsedAsEndEntity") {
        "the server uses a CA's own certificate: make one for the server, and sign it with that CA's key"
    } else if why.contains("UnknownIssuer") {
        "this machine does not trust the issuer of its certificate"
    } else {
        why
    }
}

type Cause = dyn std::error::Error + 'static;

/// Returns the chain of causes of an error of the HTTP library. The last one is the root cause.
fn collect_causes(error: &reqwest::Error) -> Vec<&Cause> {
    let mut causes = Vec::new();
    let mut next = error.source();
    // Chains are short. The limit ends a cycle.
    for _ in 0..16 {
        let Some(cause) = next else { break };
        causes.push(cause);
        next = match cause.downcast_ref::<io::Error>().and_then(io::Error::get_ref) {
            Some(inner) => Some(inner),
            None => cause.source(),
        };
    }
    causes
}

/// Returns the text of the root cause, without the system's error number.
fn root_cause_text(error: &reqwest::Error) -> String {
    let text = match collect_causes(error).last() {
        Some(cause) => cause.to_string(),
        None => error.to_string(),
    };
    text.split(" (os error ").next().unwrap_or_default().to_string()
}

/// True for a connection that ended before the response arrived, or before the request was sent.
fn is_closed_connection(cause: &Cause) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset, UnexpectedEof};
    if let Some(error) = cause.downcast_ref::<io::Error>() {
        return matches!(error.kind(), BrokenPipe | ConnectionAborted | ConnectionReset | UnexpectedEof);
    }
    let text = cause.to_string();
    let hyper_texts = ["connection closed before message completed", "operation was canceled"];
    hyper_texts.iter().any(|known| text.contains(known))
}
