//! Servers other than slotpress, which are started on a free port and killed at the end of the test.

use std::fs;
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use tempfile::TempDir;

use super::wait_for;

/// A program that runs until the test ends.
pub struct Running(pub Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

pub fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("a port").port()
}

/// Starts a server in the foreground, and waits until it listens.
pub fn start(command: &mut Command, port: u16, log: &Path) -> Running {
    let server = Running(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("starts"));
    let mut printed = String::new();
    wait_for("the server; its log is printed", || {
        let text = fs::read_to_string(log).unwrap_or_default();
        if text != printed {
            eprintln!("{text}");
            printed = text;
        }
        TcpStream::connect(("127.0.0.1", port)).is_ok()
    });
    server
}

/// A running nginx, and the directory of its files.
pub struct Nginx {
    _running: Running,
    _work: TempDir,
}

impl Nginx {
    /// Runs nginx with this `http` block, which must listen on `port`, until the value is dropped.
    pub fn start(port: u16, modules: &str, http: &str) -> Self {
        let work = super::temp_dir();
        open_to_others(work.path());
        let path = |name: &str| work.path().join(name).display().to_string();
        let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
            .map(|name| format!("{name}_temp_path {};\n", path("tmp")))
            .concat();
        let config = format!(
            "{modules} daemon off; master_process off; pid {}; error_log {};\nevents {{ worker_connections 512; }}\n\
             http {{ access_log off; {temporary}\n{http}\n}}",
            path("pid"),
            path("log"),
        );
        fs::write(path("conf"), config).expect("written");
        let mut command = Command::new("nginx");
        command.args(["-c", &path("conf"), "-e", &path("log")]);
        Self { _running: start(&mut command, port, path("log").as_ref()), _work: work }
    }
}

/// Lets other users read and write a directory: if the tests run as root, the workers of web servers run as
/// another user.
pub fn open_to_others(dir: &Path) {
    fs::set_permissions(dir, fs::Permissions::from_mode(0o777)).expect("changed");
}
