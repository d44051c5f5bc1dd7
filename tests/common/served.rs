//! A running `slotpress serve`, and a client that is a plain socket.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::common::{
    FULL_26, INCREMENTAL_26_40, WAIT_MAX, fill_with_skippable_frames, fixture, slotpress_path, temp_dir,
};

/// A process of `slotpress serve`, which ends when this value is dropped.
pub struct ServeProcess {
    child: Child,
    pub address: SocketAddr,
    pub metrics: Option<SocketAddr>,
    pub dir: TempDir,
    lines: Arc<Mutex<Vec<String>>>,
    readers: Vec<JoinHandle<()>>,
}

/// A response. If only its head was read, the body is empty.
#[derive(Debug)]
pub struct Response {
    pub status: u16,
    pub headers: BTreeMap<String, String>,
    pub body: Vec<u8>,
}

impl Response {
    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", String::as_str)
    }

    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

/// Makes a directory with the archives of slots 26 and 40.
pub fn two_archives() -> TempDir {
    let dir = temp_dir();
    for name in [FULL_26, INCREMENTAL_26_40] {
        fs::copy(fixture(name), dir.path().join(name)).expect("copied");
    }
    dir
}

/// Writes a file of this length, a multiple of 8, that commands accept as an archive. Its name and content depend on
/// `slot`.
pub fn large_archive(dir: &Path, slot: u64, bytes: usize) -> (String, Vec<u8>) {
    let name = FULL_26.replace("-26-", &format!("-{slot}-"));
    let mut content: Vec<u8> =
        (0..bytes / 8).flat_map(|word| (word as u64).wrapping_mul(slot | 1).to_le_bytes()).collect();
    fill_with_skippable_frames(&mut content);
    fs::write(dir.join(&name), &content).expect("written");
    (name, content)
}

impl ServeProcess {
    /// Serves the archives of [`two_archives`].
    pub fn start(arguments: &[&str]) -> Self {
        Self::start_in(two_archives(), arguments)
    }

    pub fn start_in(dir: TempDir, arguments: &[&str]) -> Self {
        Self::start_with_command(Command::new(slotpress_path()), dir, arguments)
    }

    /// Serves a directory with a command that runs the program, perhaps in a changed environment.
    pub fn start_with_command(mut command: Command, dir: TempDir, arguments: &[&str]) -> Self {
        let mut child = command
            .args(["serve", "--listen", "127.0.0.1:0", "--json"])
            .args(arguments)
            .arg(dir.path())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("started");
        let lines = Arc::new(Mutex::new(Vec::new()));
        let stdout = BufReader::new(child.stdout.take().expect("its output"));
        let stderr = BufReader::new(child.stderr.take().expect("its errors"));
        let (line_tx, line_rx) = std::sync::mpsc::channel();
        let log = lines.clone();
        let stdout_reader = std::thread::spawn(move || {
            for line in stdout.lines().map_while(Result::ok) {
                let _ = line_tx.send(line.clone());
                log.lock().expect("unlocked").push(line);
            }
        });
        let log = lines.clone();
        let stderr_reader = std::thread::spawn(move || {
            for line in stderr.lines().map_while(Result::ok) {
                log.lock().expect("unlocked").push(line);
            }
        });
        let Ok(line) = line_rx.recv_timeout(WAIT_MAX) else {
            let _ = child.kill();
            panic!("the server does not start: {:?}", lines.lock().expect("unlocked"));
        };
        let line: serde_json::Value = serde_json::from_str(&line).expect("JSON");
        assert_eq!(line["type"], "serve");
        let address = |field: &str| line[field].as_str().map(|text| text.parse().expect("an address"));
        let (address, metrics) = (address("listen").expect("an address"), address("metrics"));
        Self { child, address, metrics, dir, lines, readers: vec![stdout_reader, stderr_reader] }
    }

    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub fn connect(&self) -> TcpStream {
        connect(self.address)
    }

    /// Sends one request on a new connection.
    pub fn request(&self, method: &str, path: &str, headers: &str) -> Response {
        let mut stream = self.connect();
        send(&mut stream, method, path, headers);
        read_response(&mut stream, method)
    }

    pub fn get(&self, path: &str, headers: &str) -> Response {
        self.request("GET", path, headers)
    }

    pub fn signal(&self, signal: rustix::process::Signal) {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, signal).expect("signaled");
    }

    /// Returns the server's resident memory in bytes.
    pub fn memory_bytes(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id())).expect("it runs");
        let line = status.lines().find(|line| line.starts_with("VmRSS:")).expect("a line");
        line.split_whitespace().nth(1).and_then(|kib| kib.parse::<u64>().ok()).expect("a number") * 1024
    }

    pub fn is_running(&mut self) -> bool {
        self.child.try_wait().expect("asked").is_none()
    }

    pub fn lines(&self) -> Vec<String> {
        self.lines.lock().expect("unlocked").clone()
    }

    /// Waits for a line of the server's output that contains all of these texts.
    pub fn wait_for_line(&self, texts: &[&str]) -> String {
        let start = Instant::now();
        loop {
            if let Some(line) = self.lines().into_iter().find(|line| texts.iter().all(|text| line.contains(text))) {
                return line;
            }
            assert!(start.elapsed() < WAIT_MAX, "no line has {texts:?}: {:?}", self.lines());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Asks the server to stop, and waits until it has ended.
    pub fn stop(mut self) -> (ExitStatus, Vec<String>) {
        self.signal(rustix::process::Signal::TERM);
        let status = self.wait();
        for reader in self.readers.drain(..) {
            reader.join().expect("read");
        }
        (status, self.lines())
    }

    pub fn wait(&mut self) -> ExitStatus {
        let start = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().expect("asked") {
                return status;
            }
            assert!(start.elapsed() < WAIT_MAX, "the server does not end");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for ServeProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect_timeout(&address, WAIT_MAX).expect("connected");
    stream.set_read_timeout(Some(WAIT_MAX)).expect("set");
    stream.set_write_timeout(Some(WAIT_MAX)).expect("set");
    stream
}

pub fn send(stream: &mut TcpStream, method: &str, path: &str, headers: &str) {
    let host = if headers.starts_with("Host: ") { "" } else { "Host: here\r\n" };
    let request = format!("{method} {path} HTTP/1.1\r\n{host}{headers}\r\n");
    stream.write_all(request.as_bytes()).expect("sent");
}

/// Reads the status line and headers of a response. Returns `None` if the connection ends before they do.
pub fn read_head(stream: &mut TcpStream) -> Option<Response> {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") {
        match stream.read(&mut byte) {
            Ok(1) => head.push(byte[0]),
            _ => return None,
        }
        assert!(head.len() < 10_000, "the headers do not end");
    }
    let head = String::from_utf8(head).expect("text");
    let mut lines = head.lines();
    let status = lines.next()?.split(' ').nth(1)?.parse().ok()?;
    let headers = lines.filter_map(|line| line.split_once(": "));
    let headers = headers.map(|(name, value)| (name.to_lowercase(), value.to_string())).collect();
    Some(Response { status, headers, body: Vec::new() })
}

/// Reads a response and its body, whose length the headers state.
pub fn read_response(stream: &mut TcpStream, method: &str) -> Response {
    let mut response = read_head(stream).expect("a response");
    let has_body = method != "HEAD" && !matches!(response.status, 204 | 304);
    if has_body {
        let length = response.header("content-length").parse().expect("a length");
        response.body = vec![0; length];
        stream.read_exact(&mut response.body).expect("the whole body");
    }
    response
}
