//! A store as operators have it: `versitygw` over a directory, behind a proxy of the tests that lets requests fail.

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

/// What becomes of requests that match, so many times.
pub struct Fault {
    /// Parts of the head, all of which must be in it.
    pub of: Vec<String>,
    pub times: usize,
    pub instead: Instead,
}

#[derive(Clone, Debug)]
pub enum Instead {
    /// A status, and S3's code for it.
    Refused(u16, &'static str),
    /// The same, with a field of the head: its name, a colon and its value.
    RefusedWith(u16, &'static str, String),
    /// The connection ends before anything is passed on.
    Closed,
    /// The request is done, and its answer lost.
    AnswerLost,
    /// The answer is 200, and nothing is done.
    NotKept,
    /// This document with success; before it, the request is done or not.
    Says(&'static str, Done),
    /// No answer, as long as the client waits.
    Silence(Done),
}

/// Whether the store does what it was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Done {
    Yes,
    No,
}

/// What a server in front of a store says where that does not.
pub const PAGE: &str = "<!DOCTYPE html><html><body>Welcome</body></html>";

#[derive(Default)]
struct State {
    faults: Mutex<Vec<Fault>>,
    heads: Mutex<Vec<String>>,
    is_gone: AtomicBool,
    left_alone: AtomicUsize,
    silences: AtomicUsize,
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
    /// With one bucket, which is empty.
    pub fn start() -> Self {
        // On a disk: not every kernel has extended attributes in memory.
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
                let (state, socket) = (state.clone(), socket.clone());
                thread::spawn(move || pass_on(client, &socket, &state));
            }
        });
        gateway
    }

    pub fn endpoint(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// The directory of the bucket.
    pub fn bucket(&self) -> PathBuf {
        self.dir.path().join("buckets").join(BUCKET)
    }

    /// Parts of uploads that are neither complete nor forgotten.
    pub fn left_parts(&self) -> usize {
        self.parts().len()
    }

    /// Their files.
    pub fn parts(&self) -> Vec<PathBuf> {
        let mut parts = Vec::new();
        let mut dirs = vec![self.bucket().join(".sgwtmp")];
        while let Some(dir) = dirs.pop() {
            for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
                match entry.file_type().expect("a type").is_dir() {
                    true => dirs.push(entry.path()),
                    false => parts.push(entry.path()),
                }
            }
        }
        parts
    }

    pub fn fail(&self, of: &[&str], times: usize, instead: Instead) {
        let of = of.iter().map(ToString::to_string).collect();
        self.state.faults.lock().expect("locked").push(Fault { of, times, instead });
    }

    pub fn fail_no_more(&self) {
        self.state.faults.lock().expect("locked").clear();
    }

    /// Whether connections end as soon as they are made.
    pub fn set_gone(&self, is_gone: bool) {
        self.state.is_gone.store(is_gone, SeqCst);
    }

    /// How many connections ended as soon as they were made.
    pub fn left_alone(&self) -> usize {
        self.state.left_alone.load(SeqCst)
    }

    /// How many requests have no answer.
    pub fn silences(&self) -> usize {
        self.state.silences.load(SeqCst)
    }

    /// How many requests had all of this in their heads.
    pub fn count(&self, of: &[&str]) -> usize {
        let heads = self.state.heads.lock().expect("locked");
        heads.iter().filter(|head| of.iter().all(|part| head.contains(part))).count()
    }
}

pub fn wait_for(what: &str, mut is_there: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_there() {
        assert!(start.elapsed() < Duration::from_secs(60), "{what} has not come");
        thread::sleep(Duration::from_millis(5));
    }
}

/// A document, as a web server gives it.
fn say(mut client: &TcpStream, head: &str, document: &str) {
    let body = if head.starts_with("HEAD ") { "" } else { document };
    let length = document.len();
    let _ = write!(
        client,
        "HTTP/1.1 200 x\r\nContent-Type: text/html\r\nContent-Length: {length}\r\nETag: \"p\"\r\n\
         Last-Modified: Mon, 23 Nov 2026 10:00:00 GMT\r\nConnection: close\r\n\r\n{body}"
    );
}

/// One request: its head decides what becomes of it.
fn pass_on(client: TcpStream, socket: &Path, state: &State) {
    if state.is_gone.load(SeqCst) {
        state.left_alone.fetch_add(1, SeqCst);
        return;
    }
    let mut reader = BufReader::new(client.try_clone().expect("a connection"));
    let (mut head, mut length) = (String::new(), 0);
    loop {
        let mut line = String::new();
        if !reader.read_line(&mut line).is_ok_and(|read| read > 0) {
            return;
        }
        if let Some((_, value)) = line.to_ascii_lowercase().split_once("content-length:") {
            length = value.trim().parse().expect("a length");
        }
        if line == "\r\n" {
            break;
        }
        head.push_str(&line);
    }
    state.heads.lock().expect("locked").push(head.clone());
    let instead = {
        let mut faults = state.faults.lock().expect("locked");
        let fault = faults.iter_mut().find(|fault| fault.times > 0 && fault.of.iter().all(|of| head.contains(of)));
        fault.map(|fault| {
            fault.times -= 1;
            fault.instead.clone()
        })
    };
    let mut body = reader.take(length);
    let refuse = |status: u16, code: &str, field: &str, body: &mut dyn Read| {
        let _ = std::io::copy(body, &mut std::io::sink());
        let is_head = head.starts_with("HEAD ");
        let xml =
            if is_head { String::new() } else { format!("<Error><Code>{code}</Code><Message>said</Message></Error>") };
        let length = xml.len();
        let _ =
            write!(&client, "HTTP/1.1 {status} x\r\nContent-Length: {length}\r\n{field}Connection: close\r\n\r\n{xml}");
    };
    match &instead {
        Some(Instead::Refused(status, code)) => return refuse(*status, code, "", &mut body),
        Some(Instead::RefusedWith(status, code, field)) => {
            return refuse(*status, code, &format!("{field}\r\n"), &mut body);
        }
        Some(Instead::Closed) => return,
        Some(Instead::NotKept) => {
            let _ = std::io::copy(&mut body, &mut std::io::sink());
            let _ = write!(&client, "HTTP/1.1 200 OK\r\nETag: \"x\"\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
            return;
        }
        Some(Instead::Says(document, Done::No)) => {
            let _ = std::io::copy(&mut body, &mut std::io::sink());
            return say(&client, &head, document);
        }
        Some(Instead::Silence(Done::No)) => {
            let _ = std::io::copy(&mut body, &mut std::io::sink());
            state.silences.fetch_add(1, SeqCst);
            let _ = (&client).read(&mut [0]);
            return;
        }
        _ => {}
    }
    let Ok(mut gateway) = UnixStream::connect(socket) else { return };
    // One request for a connection: then each has a head that is looked at.
    // Of a body that is not whole, the gateway would wait for the rest: it sees the end of the connection, as the client's.
    let passed = write!(gateway, "{head}Connection: close\r\n\r\n")
        .and_then(|()| std::io::copy(&mut body, &mut gateway))
        // The gateway answers before it has read all.
        .or_else(|_| std::io::copy(&mut body, &mut std::io::sink()).map(|_| length));
    let sent = passed.is_ok_and(|passed_bytes| passed_bytes == length);
    if sent && instead.is_some() {
        let _ = gateway.read_to_end(&mut Vec::new());
        match instead {
            Some(Instead::Says(document, _)) => say(&client, &head, document),
            Some(Instead::Silence(_)) => {
                state.silences.fetch_add(1, SeqCst);
                let _ = (&client).read(&mut [0]);
            }
            _ => {}
        }
        return;
    }
    if sent {
        let _ = std::io::copy(&mut gateway, &mut &client);
    }
}
