//! A store as operators run it: `versitygw` on a directory, behind a test proxy that makes requests
//! fail.

#![allow(dead_code)] // each test file uses a part of it

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::Ordering::SeqCst;
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use std::{fs, thread};

pub const KEY: &str = "key-of-tests";
pub const SECRET: &str = "secret-of-tests";
pub const BUCKET: &str = "archives";

/// A failure of the next `times` requests that match.
struct Fault {
    /// Strings that the request's head must contain.
    head_parts: Vec<String>,
    times: usize,
    kind: FaultKind,
}

/// What the proxy does in place of forwarding a request and its response.
#[derive(Clone, Debug)]
pub enum FaultKind {
    /// Answers with a status and S3's error code.
    Refused(u16, &'static str),
    /// Answers with a status, S3's error code and a header line.
    RefusedWith(u16, &'static str, String),
    /// Closes the connection, and forwards nothing.
    Closed,
    /// Forwards the request, and drops the answer.
    AnswerLost,
    /// Answers 200, and does not forward the request.
    Discarded,
    /// Answers with this document and success.
    Document(&'static str, Forwarded),
    /// Never answers.
    Silence(Forwarded),
    /// Receives the request, and forwards it after an upload was aborted, or after a second.
    Delayed,
}

/// Tells whether the store receives the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Forwarded {
    Yes,
    No,
}

/// A page that web servers send, but no store does.
pub const PAGE: &str = "<!DOCTYPE html><html><body>Welcome</body></html>";

#[derive(Default)]
struct State {
    faults: Mutex<Vec<Fault>>,
    heads: Mutex<Vec<String>>,
    is_unreachable: AtomicBool,
    closed_connection_count: AtomicUsize,
    unanswered_request_count: AtomicUsize,
    abort_count: AtomicUsize,
}

pub struct Gateway {
    process: Child,
    dir: tempfile::TempDir,
    port: u16,
    state: Arc<State>,
}

impl Drop for Gateway {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Gateway {
    /// Starts a store with one empty bucket.
    pub fn start() -> Self {
        // On a disk, because not every kernel's tmpfs has extended attributes.
        let dir = tempfile::Builder::new().prefix("slotpress-test-").tempdir().expect("a directory");
        fs::create_dir_all(dir.path().join("buckets").join(BUCKET)).expect("made");
        let socket = dir.path().join("socket");
        let process = Command::new("versitygw")
            .args(["--access", KEY, "--secret", SECRET, "--quiet", "--port"])
            .arg(&socket)
            .arg("posix")
            .arg(dir.path().join("buckets"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("versitygw starts");
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let state = Arc::new(State::default());
        let gateway = Self { process, dir, port, state: state.clone() };
        wait_for("versitygw", || UnixStream::connect(&socket).is_ok());
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let state = state.clone();
                let socket = socket.clone();
                thread::spawn(move || handle_request(client, &socket, &state));
            }
        });
        gateway
    }

    pub fn endpoint(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    pub fn bucket(&self) -> PathBuf {
        self.dir.path().join("buckets").join(BUCKET)
    }

    /// Returns the number of parts of uploads that were neither completed nor aborted.
    pub fn leftover_part_count(&self) -> usize {
        self.leftover_parts().len()
    }

    pub fn leftover_parts(&self) -> Vec<PathBuf> {
        let mut leftover_parts = Vec::new();
        let mut dirs = vec![self.bucket().join(".sgwtmp")];
        while let Some(dir) = dirs.pop() {
            for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
                if entry.file_type().expect("a type").is_dir() {
                    dirs.push(entry.path())
                } else {
                    leftover_parts.push(entry.path())
                }
            }
        }
        leftover_parts
    }

    /// Makes the next `times` requests whose heads contain all these texts fail.
    pub fn fail(&self, head_parts: &[&str], times: usize, kind: FaultKind) {
        let head_parts = head_parts.iter().map(ToString::to_string).collect();
        self.state.faults.lock().expect("locked").push(Fault { head_parts, times, kind });
    }

    pub fn clear_faults(&self) {
        self.state.faults.lock().expect("locked").clear();
    }

    /// Sets whether new connections are closed at once.
    pub fn set_unreachable(&self, is_unreachable: bool) {
        self.state.is_unreachable.store(is_unreachable, SeqCst);
    }

    /// Returns the number of connections that were closed at once.
    pub fn closed_connection_count(&self) -> usize {
        self.state.closed_connection_count.load(SeqCst)
    }

    /// Returns the number of requests without an answer.
    pub fn unanswered_request_count(&self) -> usize {
        self.state.unanswered_request_count.load(SeqCst)
    }

    /// Returns the number of requests whose heads contain all these texts.
    pub fn count_requests(&self, head_parts: &[&str]) -> usize {
        let heads = self.state.heads.lock().expect("locked");
        heads.iter().filter(|head| head_parts.iter().all(|part| head.contains(part))).count()
    }
}

pub fn wait_for(event: &str, mut is_met: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_met() {
        assert!(start.elapsed() < Duration::from_secs(60), "{event} never came");
        thread::sleep(Duration::from_millis(5));
    }
}

/// Answers with a document as a web server does.
fn send_document(mut client: &TcpStream, head: &str, document: &str) {
    let body = if head.starts_with("HEAD ") { "" } else { document };
    let length = document.len();
    let _ = write!(
        client,
        "HTTP/1.1 200 x\r\nContent-Type: text/html\r\nContent-Length: {length}\r\nETag: \"p\"\r\n\
         Last-Modified: Mon, 23 Nov 2026 10:00:00 GMT\r\nConnection: close\r\n\r\n{body}"
    );
}

/// Handles one request: forwards it to the store, unless a fault matches it.
fn handle_request(client: TcpStream, socket: &Path, state: &State) {
    if state.is_unreachable.load(SeqCst) {
        state.closed_connection_count.fetch_add(1, SeqCst);
        return;
    }
    let mut reader = BufReader::new(client.try_clone().expect("a connection"));
    let Some((head, length)) = read_head(&mut reader) else { return };
    state.heads.lock().expect("locked").push(head.clone());
    let fault_kind = state.take_fault(&head);
    let mut body = reader.take(length);
    if answer_in_place_of_store(&client, &head, fault_kind.as_ref(), &mut body, state) {
        return;
    }
    let mut delayed_body = Vec::new();
    if let Some(FaultKind::Delayed) = fault_kind {
        let _ = body.read_to_end(&mut delayed_body);
        let start = Instant::now();
        while state.abort_count.load(SeqCst) == 0 && start.elapsed() < Duration::from_secs(1) {
            thread::sleep(Duration::from_millis(5));
        }
    }
    let Ok(mut gateway) = UnixStream::connect(socket) else { return };
    if !forward(&head, &mut delayed_body.as_slice().chain(body), length, &mut gateway) {
        return;
    }
    if matches!(fault_kind, None | Some(FaultKind::Delayed)) {
        let _ = std::io::copy(&mut gateway, &mut &client);
        if head.starts_with("DELETE ") && head.contains("uploadId=") {
            state.abort_count.fetch_add(1, SeqCst);
        }
        return;
    }
    let _lost_answer = gateway.read_to_end(&mut Vec::new());
    match fault_kind {
        Some(FaultKind::Document(document, _)) => send_document(&client, &head, document),
        Some(FaultKind::Silence(_)) => stay_silent(&client, state),
        _ => {}
    }
}

/// Reads the head of a request. Returns the head and the length of the body.
fn read_head(reader: &mut impl BufRead) -> Option<(String, u64)> {
    let mut head = String::new();
    let mut length = 0;
    loop {
        let mut line = String::new();
        if !reader.read_line(&mut line).is_ok_and(|read| read > 0) {
            return None;
        }
        if let Some((_, value)) = line.to_ascii_lowercase().split_once("content-length:") {
            length = value.trim().parse().expect("a length");
        }
        if line == "\r\n" {
            return Some((head, length));
        }
        head.push_str(&line);
    }
}

impl State {
    /// Returns the fault of a request with this head, and counts it.
    fn take_fault(&self, head: &str) -> Option<FaultKind> {
        let mut faults = self.faults.lock().expect("locked");
        let fault = faults
            .iter_mut()
            .find(|fault| fault.times > 0 && fault.head_parts.iter().all(|part| head.contains(part)))?;
        fault.times -= 1;
        Some(fault.kind.clone())
    }
}

/// Answers a request in the store's place. Returns false if the request is to be forwarded.
fn answer_in_place_of_store(
    mut client: &TcpStream,
    head: &str,
    fault_kind: Option<&FaultKind>,
    body: &mut dyn Read,
    state: &State,
) -> bool {
    let Some(fault_kind) = fault_kind else { return false };
    if matches!(
        fault_kind,
        FaultKind::AnswerLost
            | FaultKind::Delayed
            | FaultKind::Document(_, Forwarded::Yes)
            | FaultKind::Silence(Forwarded::Yes)
    ) {
        return false;
    }
    if let FaultKind::Closed = fault_kind {
        return true;
    }
    let _ = std::io::copy(body, &mut std::io::sink());
    match fault_kind {
        FaultKind::Refused(status, code) => refuse(client, head, *status, code, ""),
        FaultKind::RefusedWith(status, code, field) => refuse(client, head, *status, code, &format!("{field}\r\n")),
        FaultKind::Document(document, _) => send_document(client, head, document),
        FaultKind::Silence(_) => stay_silent(client, state),
        _ => {
            let _ = write!(client, "HTTP/1.1 200 OK\r\nETag: \"x\"\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
        }
    }
    true
}

fn refuse(mut client: &TcpStream, head: &str, status: u16, code: &str, field: &str) {
    let mut xml = format!("<Error><Code>{code}</Code><Message>said</Message></Error>");
    if head.starts_with("HEAD ") {
        xml.clear();
    }
    let length = xml.len();
    let _ = write!(client, "HTTP/1.1 {status} x\r\nContent-Length: {length}\r\n{field}Connection: close\r\n\r\n{xml}");
}

fn stay_silent(mut client: &TcpStream, state: &State) {
    state.unanswered_request_count.fetch_add(1, SeqCst);
    let _ = client.read(&mut [0]);
}

/// Sends a request to the gateway. Each connection has one request, because only the first head on it is
/// examined. Returns false if the body is incomplete. The caller then closes the connection, because the
/// gateway would wait for the rest.
fn forward(head: &str, body: &mut dyn Read, length: u64, gateway: &mut UnixStream) -> bool {
    let sent = write!(gateway, "{head}Connection: close\r\n\r\n").and_then(|()| std::io::copy(&mut *body, gateway));
    match sent {
        Ok(sent_bytes) => sent_bytes == length,
        // The gateway may answer before it has read everything.
        Err(_) => std::io::copy(body, &mut std::io::sink()).is_ok(),
    }
}
