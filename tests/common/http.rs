//! A server whose responses a test chooses, correct or wrong. The test writes to the socket, so it controls every
//! byte of a response.

use std::collections::BTreeMap;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

/// A client's request.
#[derive(Clone, Debug)]
pub struct Request {
    pub method: String,
    pub path: String,
    /// Header fields; names are in lower case.
    pub headers: BTreeMap<String, String>,
    pub body: Vec<u8>,
}

impl Request {
    /// Returns the requested range of bytes, if the request has one of the form `bytes=FIRST-LAST`.
    pub fn range(&self) -> Option<Range<u64>> {
        let (first, last) = self.headers.get("range")?.strip_prefix("bytes=")?.split_once('-')?;
        Some(first.parse().ok()?..last.parse::<u64>().ok()? + 1)
    }
}

/// What a server does with a connection after a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Connection {
    KeepAlive,
    Close,
}

type Handler = dyn Fn(&Request, &mut TcpStream) -> io::Result<Connection> + Send + Sync;

/// A server, which listens until it is dropped.
pub struct Server {
    pub address: SocketAddr,
    requests: Arc<Mutex<Vec<Request>>>,
    is_stopped: Arc<AtomicBool>,
}

impl Server {
    pub fn start(handler: impl Fn(&Request, &mut TcpStream) -> io::Result<Connection> + Send + Sync + 'static) -> Self {
        Self::start_at("127.0.0.1", handler)
    }

    pub fn start_at(
        host: &str,
        handler: impl Fn(&Request, &mut TcpStream) -> io::Result<Connection> + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind((host, 0)).expect("a port");
        let address = listener.local_addr().expect("its address");
        let requests = Arc::new(Mutex::new(Vec::new()));
        let is_stopped = Arc::new(AtomicBool::new(false));
        let (log, must_stop) = (Arc::clone(&requests), Arc::clone(&is_stopped));
        let handler: Arc<Handler> = Arc::new(handler);
        thread::spawn(move || {
            for stream in listener.incoming() {
                if must_stop.load(Ordering::Relaxed) {
                    break;
                }
                let Ok(stream) = stream else { continue };
                let (log, handler) = (Arc::clone(&log), Arc::clone(&handler));
                thread::spawn(move || serve(stream, &log, handler.as_ref()));
            }
        });
        Self { address, requests, is_stopped }
    }

    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    pub fn requests(&self) -> Vec<Request> {
        self.requests.lock().expect("no panic").clone()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.is_stopped.store(true, Ordering::Relaxed);
        // Wakes the listener.
        let _ = TcpStream::connect_timeout(&self.address, Duration::from_secs(1));
    }
}

fn serve(mut stream: TcpStream, log: &Mutex<Vec<Request>>, handler: &Handler) {
    // Ends connections that a test has left open.
    let _ = stream.set_read_timeout(Some(Duration::from_secs(30)));
    let _ = stream.set_write_timeout(Some(Duration::from_secs(30)));
    let _ = stream.set_nodelay(true);
    let Ok(copy) = stream.try_clone() else { return };
    let mut reader = BufReader::new(copy);
    while let Some(request) = read_request(&mut reader) {
        log.lock().expect("no panic").push(request.clone());
        match handler(&request, &mut stream) {
            Ok(Connection::KeepAlive) => {}
            _ => break,
        }
    }
    let _ = stream.shutdown(std::net::Shutdown::Both);
}

fn read_request(reader: &mut impl BufRead) -> Option<Request> {
    let mut line = String::new();
    reader.read_line(&mut line).ok()?;
    let mut words = line.split_whitespace();
    let (method, path) = (words.next()?.to_string(), words.next()?.to_string());
    let mut headers = BTreeMap::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        let Some((name, value)) = line.trim_end().split_once(':') else { break };
        headers.insert(name.to_ascii_lowercase(), value.trim().to_string());
    }
    let length = headers.get("content-length").and_then(|length| length.parse().ok()).unwrap_or(0);
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    Some(Request { method, path, headers, body })
}

/// Sends nothing more until the client gives up.
pub fn stall(stream: &mut TcpStream) -> io::Result<Connection> {
    while stream.read(&mut [0; 64])? > 0 {}
    Ok(Connection::Close)
}

/// Sends a response with a `Content-Length` and a body.
pub fn send_response(
    stream: &mut TcpStream,
    status: &str,
    headers: &[(&str, &str)],
    body: &[u8],
) -> io::Result<Connection> {
    send_head(stream, status, &[headers, &[("Content-Length", &body.len().to_string())]].concat())?;
    stream.write_all(body)?;
    Ok(Connection::KeepAlive)
}

/// Sends the status line and headers of a response.
pub fn send_head(stream: &mut TcpStream, status: &str, headers: &[(&str, &str)]) -> io::Result<()> {
    let fields: String = headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
    stream.write_all(format!("HTTP/1.1 {status}\r\n{fields}\r\n").as_bytes())
}

/// Sends a redirect.
pub fn send_redirect(stream: &mut TcpStream, location: &str) -> io::Result<Connection> {
    send_response(stream, "303 See Other", &[("Location", location)], b"")
}

/// Sends a file as a correct server does, which supports HEAD, ranges and If-Range.
pub fn send_file(request: &Request, stream: &mut TcpStream, bytes: &[u8], etag: &str) -> io::Result<Connection> {
    let common = [("Accept-Ranges", "bytes"), ("ETag", etag)];
    let is_same = request.headers.get("if-range").is_none_or(|expected| expected == etag);
    let total = bytes.len() as u64;
    let range = if is_same { request.range() } else { None };
    match range {
        _ if request.method == "HEAD" => {
            send_head(stream, "200 OK", &[&common[..], &[("Content-Length", &total.to_string())]].concat())?;
            Ok(Connection::KeepAlive)
        }
        Some(range) if range.start >= total => {
            send_response(stream, "416 Range Not Satisfiable", &[("Content-Range", &format!("bytes */{total}"))], b"")
        }
        Some(range) => {
            let end = range.end.min(total);
            let content_range = format!("bytes {}-{}/{total}", range.start, end - 1);
            let headers = [&common[..], &[("Content-Range", &content_range)]].concat();
            send_response(stream, "206 Partial Content", &headers, &bytes[range.start as usize..end as usize])
        }
        None => send_response(stream, "200 OK", &common, bytes),
    }
}
