//! HTTP/1.1 without encryption: the system sends files straight from the page cache (`sendfile`), which hyper cannot. Takes the
//! same requests and gives the same responses as hyper does for the rest; requests have no bodies, so little is left to do.

use std::io::{self, ErrorKind};
use std::net::Shutdown;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use hyper::header::{CONNECTION, CONTENT_LENGTH, DATE, HeaderName, HeaderValue, TRANSFER_ENCODING};
use hyper::http::Method;
use hyper::http::request::Parts;
use hyper::{HeaderMap, Request, Response, StatusCode, Uri, Version};
use slotpress_base::bytes::count;
use slotpress_base::to_usize;
use tokio::io::Interest;
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::{Instant, timeout};

use super::Server;
use super::files::{Reading, WINDOW_BYTES};
use super::limits::{Admission, HEAD_BYTES_MAX, HEADERS_MAX};
use super::respond::{self, Content, FileContent, Origin, Purpose, answer};

/// Handed to the system at a time.
const SEND_BYTES: u64 = 256 * 1024;

/// A reader that takes less than this within the timeout stands still.
const PROGRESS_BYTES_MIN: usize = 64 * 1024;

/// What a client sends first that expects TLS, and no request begins with.
const TLS_HANDSHAKE: u8 = 0x16;

/// Pages that wait in a socket cannot be dropped. So much may wait there: Linux's default limits are 4 MiB for the sender and, where
/// both ends are on one machine, 6 MiB for the receiver.
const SOCKET_BYTES: u64 = 16 << 20;
/// After so long, what waited there is sent, mostly.
const SOCKET_TIME: Duration = Duration::from_secs(3);

/// After a refusal, what still comes is read and thrown away: a reset would take the answer away from the client.
const LINGER: Duration = Duration::from_secs(1);
const LINGER_BYTES_MAX: usize = 256 * 1024;

/// Answers one request after another.
pub async fn talk(
    server: &Arc<Server>,
    stream: TcpStream,
    origin: Origin,
    admission: &Arc<Admission>,
    purpose: Purpose,
    mut stop: watch::Receiver<bool>,
) {
    let mut connection = Connection { server, stream, waiting_since: None, taken_bytes: 0, unread: Vec::new() };
    loop {
        let head = tokio::select! {
            biased;
            head = timeout(server.timeouts.head, connection.head()) => head,
            // A client that has sent nothing yet is not kept waiting.
            _ = stop.wait_for(|is_stopping| *is_stopping) => return,
        };
        let Ok(Ok(head)) = head else { return };
        let is_last = head.as_ref().map_or(true, |head| !head.keeps_open) || *stop.borrow();
        let is_refused = head.is_err();
        let is_old = head.as_ref().is_ok_and(|head| head.parts.version == Version::HTTP_10);
        let response = match head {
            Ok(head) => answer(server, origin, purpose, &head.parts).await,
            Err(StatusCode::METHOD_NOT_ALLOWED) => respond::not_allowed(),
            Err(status) => respond::plain(status, "Bad request.\n"),
        };
        if connection.respond(response, is_last, is_old, admission).await.is_err() {
            return;
        }
        if is_last {
            connection.close(is_refused).await;
            return;
        }
    }
}

struct Connection<'a> {
    server: &'a Arc<Server>,
    stream: TcpStream,
    /// Since when the reader has not taken [`PROGRESS_BYTES_MIN`]. Runs while something waits to be written.
    waiting_since: Option<Instant>,
    taken_bytes: usize,
    /// What came and was not looked at yet.
    unread: Vec<u8>,
}

struct Head {
    parts: Parts,
    keeps_open: bool,
}

impl Connection<'_> {
    /// The next request, or the status that refuses it.
    async fn head(&mut self) -> io::Result<Result<Head, StatusCode>> {
        let mut searched = 0;
        loop {
            if has_end(self.unread.get(searched..).unwrap_or_default()) || self.unread.len() >= HEAD_BYTES_MAX {
                match parse(&self.unread) {
                    Ok(Some((head, length))) => {
                        self.unread.drain(..length);
                        if self.unread.is_empty() {
                            // An idle connection holds no buffer.
                            self.unread = Vec::new();
                        }
                        return Ok(Ok(head));
                    }
                    Ok(None) if self.unread.len() < HEAD_BYTES_MAX => {}
                    Ok(None) => return Ok(Err(StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE)),
                    Err(status) => return Ok(Err(status)),
                }
            }
            searched = self.unread.len().saturating_sub(3);
            self.stream.readable().await?;
            match read_some(&self.stream, &mut self.unread) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                // Who waits for a handshake would wait until the head is due.
                Ok(_) if self.unread.first() == Some(&TLS_HANDSHAKE) => return Ok(Err(StatusCode::BAD_REQUEST)),
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
    }

    async fn respond(
        &mut self,
        response: Response<Content>,
        is_last: bool,
        is_old: bool,
        admission: &Admission,
    ) -> io::Result<()> {
        let (parts, content) = response.into_parts();
        let connection = match (is_last, is_old) {
            (true, _) => Some("close"),
            (false, true) => Some("keep-alive"),
            (false, false) => None,
        };
        let mut head = head_bytes(parts.status, &parts.headers, connection);
        match content {
            Content::None => self.write(&head).await?,
            Content::Bytes(bytes) => {
                head.extend_from_slice(&bytes);
                self.write(&head).await?;
            }
            Content::File(content) => {
                self.write(&head).await?;
                self.send_file(content, admission).await?;
            }
        }
        self.rest();
        Ok(())
    }

    async fn send_file(&mut self, content: FileContent, admission: &Admission) -> io::Result<()> {
        let FileContent { reading, running, client } = content;
        let admission = client.as_deref().unwrap_or(admission);
        let range = reading.range();
        let _late = DropLate(reading.clone());
        let mut offset = range.start;
        while offset < range.end {
            if offset == range.start || offset.is_multiple_of(WINDOW_BYTES) {
                make_ready(&reading, offset).await?;
                reading.pass(offset.saturating_sub(SOCKET_BYTES));
            }
            let most = admission.piece_bytes().unwrap_or(SEND_BYTES);
            let length = reading.piece_bytes(offset, most);
            admission.wait(length).await;
            let end = offset.saturating_add(length);
            while offset < end {
                let send = || {
                    let mut at = offset;
                    let left = to_usize(end.saturating_sub(offset));
                    let sent = rustix::fs::sendfile(&self.stream, reading.file(), Some(&mut at), left);
                    sent.map_err(io::Error::from)
                };
                match self.stream.try_io(Interest::WRITABLE, send) {
                    // The file has become shorter.
                    Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                    Ok(sent) => {
                        count(&mut offset, sent as u64);
                        running.advance(sent as u64);
                        self.took(sent);
                    }
                    Err(error) if error.kind() == ErrorKind::WouldBlock => self.wait().await?,
                    Err(error) if error.kind() == ErrorKind::Interrupted => {}
                    Err(error) => return Err(error),
                }
            }
            self.rest();
        }
        Ok(())
    }

    async fn write(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            match self.stream.try_write(bytes) {
                Ok(written) => {
                    bytes = bytes.get(written..).unwrap_or_default();
                    self.took(written);
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => self.wait().await?,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Until the socket takes more.
    async fn wait(&mut self) -> io::Result<()> {
        let since = *self.waiting_since.get_or_insert_with(Instant::now);
        let left = self.server.timeouts.stall.saturating_sub(since.elapsed());
        match timeout(left, self.stream.writable()).await {
            Ok(result) => result,
            Err(_) => {
                self.server.metrics.stalled.inc();
                Err(ErrorKind::TimedOut.into())
            }
        }
    }

    fn took(&mut self, bytes: usize) {
        self.taken_bytes = self.taken_bytes.saturating_add(bytes);
        if self.taken_bytes >= PROGRESS_BYTES_MIN {
            self.rest();
        }
    }

    /// Nothing waits to be written.
    fn rest(&mut self) {
        self.waiting_since = None;
        self.taken_bytes = 0;
    }

    async fn close(self, is_refused: bool) {
        if !is_refused {
            return;
        }
        let socket = rustix::io::dup(&self.stream).map(std::net::TcpStream::from);
        if socket.is_ok_and(|socket| socket.shutdown(Shutdown::Write).is_ok()) {
            let _ = timeout(LINGER, self.drain()).await;
        }
    }

    async fn drain(self) {
        let mut left = LINGER_BYTES_MAX;
        let mut buffer = Vec::new();
        while left > 0 && self.stream.readable().await.is_ok() {
            buffer.clear();
            match read_some(&self.stream, &mut buffer) {
                Ok(0) => return,
                Ok(read) => left = left.saturating_sub(read),
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(_) => return,
            }
        }
    }
}

/// Gives a file's last pages back when they have left the socket.
struct DropLate(Arc<Reading>);

impl Drop for DropLate {
    fn drop(&mut self) {
        let reading = self.0.clone();
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move {
                tokio::time::sleep(SOCKET_TIME).await;
                drop(reading);
            });
        }
    }
}

/// Sees to it that sending from here on does not wait for the disk: that would keep others waiting too.
async fn make_ready(reading: &Arc<Reading>, offset: u64) -> io::Result<()> {
    if reading.is_resident(offset) {
        tokio::task::yield_now().await;
        return Ok(());
    }
    let reading = reading.clone();
    tokio::task::spawn_blocking(move || reading.fetch(offset)).await.map_err(io::Error::other)?
}

fn read_some(stream: &TcpStream, to: &mut Vec<u8>) -> io::Result<usize> {
    let mut piece = [0; 4096];
    let length = piece.len().min(HEAD_BYTES_MAX.saturating_sub(to.len()).max(1));
    let read = stream.try_read(piece.get_mut(..length).unwrap_or_default())?;
    to.extend_from_slice(piece.get(..read).unwrap_or_default());
    Ok(read)
}

/// Whether an empty line is there.
fn has_end(bytes: &[u8]) -> bool {
    bytes.windows(2).any(|pair| pair == b"\n\n") || bytes.windows(3).any(|three| three == b"\n\r\n")
}

/// Reads a head, and returns how long it is; `None` when it has no end yet.
fn parse(bytes: &[u8]) -> Result<Option<(Head, usize)>, StatusCode> {
    let mut fields = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut parsed = httparse::Request::new(&mut fields);
    let length = match parsed.parse(bytes) {
        Ok(httparse::Status::Complete(length)) => length,
        Ok(httparse::Status::Partial) => return Ok(None),
        Err(httparse::Error::TooManyHeaders) => return Err(StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE),
        Err(_) => return Err(StatusCode::BAD_REQUEST),
    };
    // A line that ends without a carriage return ends elsewhere for others on the way (RFC 9112, 2.2).
    let mut lines = bytes.get(..length).unwrap_or_default().split_inclusive(|byte| *byte == b'\n');
    if !lines.all(|line| line.ends_with(b"\r\n")) {
        return Err(StatusCode::BAD_REQUEST);
    }
    let bad = |_| StatusCode::BAD_REQUEST;
    let (mut parts, ()) = Request::new(()).into_parts();
    parts.method =
        Method::from_bytes(parsed.method.unwrap_or_default().as_bytes()).map_err(|_| StatusCode::BAD_REQUEST)?;
    parts.uri = parsed.path.unwrap_or_default().parse::<Uri>().map_err(|_| StatusCode::BAD_REQUEST)?;
    parts.version = if parsed.version == Some(0) { Version::HTTP_10 } else { Version::HTTP_11 };
    for field in parsed.headers.iter() {
        let name = HeaderName::from_bytes(field.name.as_bytes()).map_err(|_| StatusCode::BAD_REQUEST)?;
        parts.headers.append(name, HeaderValue::from_bytes(field.value).map_err(|_| bad(()))?);
    }
    let has_body = parts.headers.contains_key(TRANSFER_ENCODING)
        || parts.headers.get_all(CONTENT_LENGTH).iter().any(|length| length.as_bytes() != b"0");
    if has_body {
        return Err(respond::with_body(&parts.method).status());
    }
    let says = |word: &str| {
        let values = parts.headers.get_all(CONNECTION).iter().filter_map(|value| value.to_str().ok());
        values.flat_map(|value| value.split(',')).any(|token| token.trim().eq_ignore_ascii_case(word))
    };
    let keeps_open = match parts.version {
        Version::HTTP_10 => says("keep-alive"),
        _ => !says("close"),
    };
    Ok(Some((Head { parts, keeps_open }, length)))
}

/// The head of a response.
fn head_bytes(status: StatusCode, headers: &HeaderMap, connection: Option<&str>) -> Vec<u8> {
    let reason = status.canonical_reason().unwrap_or_default();
    let mut head = format!("HTTP/1.1 {} {reason}\r\n", status.as_str()).into_bytes();
    let mut add = |name: &HeaderName, value: &[u8]| {
        // As simple clients expect them: Content-Length.
        let mut is_first = true;
        for byte in name.as_str().bytes() {
            head.push(if is_first { byte.to_ascii_uppercase() } else { byte });
            is_first = byte == b'-';
        }
        head.extend_from_slice(b": ");
        head.extend_from_slice(value);
        head.extend_from_slice(b"\r\n");
    };
    headers.iter().for_each(|(name, value)| add(name, value.as_bytes()));
    if let Some(connection) = connection {
        add(&CONNECTION, connection.as_bytes());
    }
    add(&DATE, httpdate::fmt_http_date(SystemTime::now()).as_bytes());
    head.extend_from_slice(b"\r\n");
    head
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn parsed(text: &str) -> Result<Option<(Head, usize)>, StatusCode> {
        parse(text.as_bytes())
    }

    #[test]
    fn heads() {
        let text = "GET /a?b HTTP/1.1\r\nHost: x\r\nRange: bytes=0-1\r\n\r\nmore";
        let (head, length) = parsed(text).expect("good").expect("whole");
        assert_eq!((head.parts.uri.path(), length, head.keeps_open), ("/a", text.len() - 4, true));
        assert_eq!(head.parts.headers["range"], "bytes=0-1");
        let keeps_open = |text: &str| parsed(text).expect("good").expect("whole").0.keeps_open;
        assert!(!keeps_open("GET / HTTP/1.1\r\nHost: x\r\nConnection: x, Close\r\n\r\n"));
        assert!(!keeps_open("GET / HTTP/1.0\r\n\r\n"));
        assert!(keeps_open("GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n"));
        assert!(parsed("GET / HTTP/1.1\r\nHost: x\r\n").expect("good").is_none());
        for (text, status) in [
            ("GET / HTTP/1.1\nHost: x\r\n\r\n", 400),
            ("GET / HTTP/1.1\r\nHost: x\r\n\n", 400),
            ("GET / HTTP/2.0\r\nHost: x\r\n\r\n", 400),
            ("GET  / HTTP/1.1\r\nHost: x\r\n\r\n", 400),
            ("GET /\0 HTTP/1.1\r\nHost: x\r\n\r\n", 400),
            ("GET / HTTP/1.1\r\nHost : x\r\n\r\n", 400),
            ("GET / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\n", 413),
            ("GET / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n", 413),
        ] {
            assert_eq!(parsed(text).err().map(|status| status.as_u16()), Some(status), "{text:?}");
        }
    }

    #[test]
    fn what_is_sent_reads_well() {
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_LENGTH, HeaderValue::from_static("5"));
        let head = String::from_utf8(head_bytes(StatusCode::OK, &headers, Some("close"))).expect("text");
        assert!(head.starts_with("HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\nDate: "), "{head}");
        assert!(head.ends_with(" GMT\r\n\r\n"));
    }

    proptest! {
        #[test]
        fn junk_never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = parse(&bytes);
            let mut head = b"GET / HTTP/1.1\r\nHost: x\r\n".to_vec();
            head.extend(bytes);
            let _ = parse(&head);
        }

        /// A head is not parsed before it has an end: none is missed.
        #[test]
        fn what_parses_has_an_end(text in "GET / HTTP/1.1(\r?\n|x|: ){0,8}") {
            if matches!(parse(text.as_bytes()), Ok(Some(_)) | Err(StatusCode::PAYLOAD_TOO_LARGE)) {
                prop_assert!(has_end(text.as_bytes()));
            }
        }
    }
}
