//! Other programs as servers: Python's, nginx, Apache, and TLS with an authority of our own.

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::{Duration, SystemTime};

use slotpress_base::NoProgress;
use slotpress_net::{Client, NetErrorKind, SourceLocation};

use super::{client, get_bytes, options, request_head, url};
use crate::common::servers::*;
use crate::common::*;

fn run_program(program: &str, arguments: &[&str]) {
    let output = Command::new(program).args(arguments).output().expect("runs");
    assert!(output.status.success(), "{program} {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
}

/// Starts a Python program that first prints its port.
fn start_python(program: &str, arguments: &[&str]) -> (Running, u16) {
    let mut child = Command::new("python3")
        .args(["-u", "-c", program])
        .args(arguments)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("starts");
    let mut line = String::new();
    BufReader::new(child.stdout.take().expect("piped")).read_line(&mut line).expect("a line");
    (Running(child), line.trim().parse().expect("a port"))
}

const PYTHON_SERVER: &str = "
import functools, http.server, ssl, sys
handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=sys.argv[1])
server = http.server.ThreadingHTTPServer(('127.0.0.1', 0), handler)
if len(sys.argv) > 2:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(sys.argv[2], sys.argv[3])
    server.socket = context.wrap_socket(server.socket, server_side=True)
print(server.server_address[1])
server.serve_forever()
";

/// Makes a directory with archives, for a web server.
fn make_mirror() -> tempfile::TempDir {
    let dir = tempfile::tempdir().expect("a directory");
    for name in [FULL_3500, INCREMENTAL_3500_3550] {
        let path = dir.path().join(name);
        fs::copy(fixture(name), &path).expect("copied");
        // For a very new file, Apache sends a weak ETag, because the file may still change.
        let file = fs::File::options().write(true).open(&path).expect("opened");
        file.set_modified(SystemTime::now() - Duration::from_secs(3600)).expect("set");
    }
    dir
}

#[test]
fn python_sends_lists_and_ignores_ranges() {
    needs!("python3");
    let dir = make_mirror();
    let (_server, port) = start_python(PYTHON_SERVER, &[dir.path().to_str().expect("UTF-8")]);
    let base = format!("http://127.0.0.1:{port}/");
    let client = client();
    // At the root of a server without redirects, its listing is used.
    let offers = client.list_offers(&base.parse::<SourceLocation>().expect("a source"), &NoProgress).expect("listed");
    let names: Vec<String> = offers.iter().map(|offer| offer.name.to_string()).collect();
    assert_eq!(names, [INCREMENTAL_3500_3550, FULL_3500]);
    let remote = request_head(&client, &format!("{base}{FULL_3500}")).expect("a head");
    assert!(!remote.accepts_ranges);
    assert!(remote.last_modified.is_some());
    assert!(remote.etag.is_none());
    let bytes = fs::read(fixture(FULL_3500)).expect("read");
    let (result, received) = get_bytes(&client, &remote, Some(1000..2000));
    assert!(result.expect("whole"));
    assert!(received == bytes);
    // A command that reads the archive once needs no ranges.
    for (flags, code) in [(&["--by-owner"][..], 4), (&[], 0)] {
        let output = slotpress().args(["inspect", &format!("{base}{FULL_3500}")]).args(flags).output().expect("runs");
        assert_eq!(output.status.code(), Some(code), "{flags:?}: {}", String::from_utf8_lossy(&output.stderr));
    }
}

#[test]
fn nginx_sends_ranges() {
    needs!("nginx");
    let dir = make_mirror();
    let port = free_port();
    open_to_others(dir.path());
    let server = format!(
        "server {{ listen 127.0.0.1:{port}; root {}; autoindex on;
             location = /snapshot.tar.bz2 {{ return 303 /{FULL_3500}; }} }}",
        dir.path().display(),
    );
    let _nginx = Nginx::start(port, "", &server);
    assert_ranges(&dir, port);
}

#[test]
fn apache_sends_ranges() {
    needs!("apache2");
    let dir = make_mirror();
    let work = tempfile::tempdir().expect("a directory");
    let port = free_port();
    let path_text = |name: &str| work.path().join(name).display().to_string();
    let modules = ["mpm_event", "authz_core", "alias", "autoindex", "dir"];
    let modules: String = modules
        .iter()
        .map(|name| format!("LoadModule {name}_module /usr/lib/apache2/modules/mod_{name}.so\n"))
        .collect();
    let config = format!(
        "{modules}ServerName localhost\nListen 127.0.0.1:{port}\nPidFile {pid}\nErrorLog {log}\nMutex file:{work}\n
         <IfModule unixd_module>\nUser nobody\nGroup nogroup\n</IfModule>\n
         DocumentRoot {root}\n<Directory {root}>\nOptions Indexes\nRequire all granted\n</Directory>\n
         Redirect 303 /snapshot.tar.bz2 /{FULL_3500}\n",
        pid = path_text("pid"),
        log = path_text("log"),
        work = work.path().display(),
        root = dir.path().display(),
    );
    fs::write(path_text("conf"), config).expect("written");
    open_to_others(dir.path());
    open_to_others(work.path());
    let mut command = Command::new("apache2");
    command.args(["-X", "-f", &path_text("conf")]);
    let _server = start(&mut command, port, path_text("log").as_ref());
    assert_ranges(&dir, port);
}

/// Asserts that the client receives ranges from a web server that redirects to an archive.
fn assert_ranges(dir: &tempfile::TempDir, port: u16) {
    let base = format!("http://127.0.0.1:{port}/");
    let client = client();
    let remote = request_head(&client, &format!("{base}snapshot.tar.bz2")).expect("a head");
    assert!(remote.accepts_ranges);
    assert!(remote.etag.is_some());
    assert_eq!(remote.archive_name().map(|name| name.to_string()).as_deref(), Some(FULL_3500));
    let bytes = fs::read(fixture(FULL_3500)).expect("read");
    let (result, received) = get_bytes(&client, &remote, Some(1000..2000));
    assert!(!result.expect("a range"));
    assert!(received == bytes[1000..2000]);
    let offers =
        client.list_offers(&base.parse::<SourceLocation>().expect("a source"), &NoProgress).expect("redirected");
    assert_eq!(offers.len(), 1);
    let output = slotpress().args(["verify", &format!("{base}{FULL_3500}"), "--json"]).output().expect("runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let ledger = temp_dir();
    let ledger = ledger.path().join("ledger");
    let output = slotpress().args(["bootstrap", &base, "--ledger"]).arg(&ledger).output().expect("runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(fs::read(ledger.join(FULL_3500)).expect("fetched") == bytes);
    // Now another file has the name. Because of If-Range, the server sends all of this file, which the client
    // refuses.
    let replaced = dir.path().join(FULL_3500);
    fs::write(&replaced, &bytes[1..]).expect("written");
    let (result, received) = get_bytes(&client, &remote, Some(1000..2000));
    assert_eq!((result.expect_err("changed").kind(), received.len()), (NetErrorKind::Changed, 0));
}

/// The client trusts a server only through the given authority, and only under the names in its
/// certificate.
#[test]
fn certificates_of_a_given_authority_are_trusted() {
    needs!("python3", "openssl");
    let dir = make_mirror();
    let keys = tempfile::tempdir().expect("a directory");
    let path_text = |name: &str| keys.path().join(name).display().to_string();
    let subject = ["-subj", "/CN=localhost"];
    let path = |name: &str| keys.path().join(name);
    self_signed_certificate(&path("ca.key"), &path("ca.pem"), &["-subj", "/CN=test authority"]);
    run_program(
        "openssl",
        &[
            &[
                "req",
                "-newkey",
                "ec",
                "-pkeyopt",
                "ec_paramgen_curve:prime256v1",
                "-nodes",
                "-keyout",
                &path_text("own.key"),
                "-out",
                &path_text("own.csr"),
            ][..],
            &subject,
        ]
        .concat(),
    );
    fs::write(path_text("names"), "subjectAltName=DNS:localhost,IP:127.0.0.1\nbasicConstraints=CA:FALSE\n")
        .expect("written");
    run_program(
        "openssl",
        &[
            "x509",
            "-req",
            "-in",
            &path_text("own.csr"),
            "-CA",
            &path_text("ca.pem"),
            "-CAkey",
            &path_text("ca.key"),
            "-CAcreateserial",
            "-days",
            "2",
            "-out",
            &path_text("own.pem"),
            "-extfile",
            &path_text("names"),
        ],
    );
    let root = dir.path().to_str().expect("UTF-8").to_string();
    let (_server, port) = start_python(PYTHON_SERVER, &[&root, &path_text("own.pem"), &path_text("own.key")]);
    let trusting = Client::new(&options().ca_file(std::path::PathBuf::from(path_text("ca.pem")))).expect("a client");
    for host in ["127.0.0.1", "localhost"] {
        let text = format!("https://{host}:{port}/{FULL_3500}");
        let error = request_head(&client(), &text).expect_err("an unknown authority");
        assert_eq!((error.kind(), error.is_retryable()), (NetErrorKind::Tls, false), "{error}");
        assert!(error.to_string().contains("does not trust the issuer of its certificate"), "{error}");
        assert!(slotpress::Error::from(error).hint() == Some(slotpress_base::hint::PASS_CA_FILE));
        let remote = request_head(&trusting, &text).expect("trusted");
        let (result, received) = get_bytes(&trusting, &remote, None);
        assert!(result.is_ok());
        assert!(received == fs::read(fixture(FULL_3500)).expect("read"));
    }
    // This server presents the authority's own certificate.
    let (_ca, ca_port) = start_python(PYTHON_SERVER, &[&root, &path_text("ca.pem"), &path_text("ca.key")]);
    let error = request_head(&trusting, &format!("https://localhost:{ca_port}/")).expect_err("a CA's certificate");
    assert!(error.to_string().contains("the server uses a CA's own certificate"), "{error}");
    // A certificate for a different name.
    let error =
        trusting.head(&url(&format!("https://127.0.0.2:{port}/")), &NoProgress).expect_err("nobody, or another name");
    assert!(matches!(error.kind(), NetErrorKind::Tls | NetErrorKind::Connect), "{error}");
    // Plain HTTP to a TLS server, and the reverse, fail in time.
    assert!(request_head(&trusting, &format!("http://127.0.0.1:{port}/")).is_err());
    let (_plain, plain_port) = start_python(PYTHON_SERVER, &[&root]);
    assert!(request_head(&trusting, &format!("https://127.0.0.1:{plain_port}/")).is_err());
}

#[test]
fn redirects_from_https_to_http_are_refused() {
    needs!("python3", "openssl");
    let keys = tempfile::tempdir().expect("a directory");
    let path_text = |name: &str| keys.path().join(name).display().to_string();
    let names = ["-addext", "subjectAltName=IP:127.0.0.1", "-addext", "basicConstraints=critical,CA:FALSE"];
    let path = |name: &str| keys.path().join(name);
    self_signed_certificate(&path("key"), &path("ca.pem"), &[&["-subj", "/CN=localhost"][..], &names].concat());
    let program = "
import http.server, ssl, sys
class Handler(http.server.BaseHTTPRequestHandler):
    def do_HEAD(self):
        self.send_response(302)
        self.send_header('Location', 'http://127.0.0.1:%d/x' % self.server.server_address[1])
        self.end_headers()
server = http.server.ThreadingHTTPServer(('127.0.0.1', 0), Handler)
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain(sys.argv[1], sys.argv[2])
server.socket = context.wrap_socket(server.socket, server_side=True)
print(server.server_address[1])
server.serve_forever()
";
    let (_server, port) = start_python(program, &[&path_text("ca.pem"), &path_text("key")]);
    let options = options().ca_file(std::path::PathBuf::from(path_text("ca.pem"))).allow_private(true);
    let trusting = Client::new(&options).expect("a client");
    let error = request_head(&trusting, &format!("https://127.0.0.1:{port}/")).expect_err("a redirect to http");
    assert_eq!(error.kind(), NetErrorKind::Forbidden, "{error}");
}
