//! TLS: certificates are read, and read again when they change.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::common::served::{ServeProcess, two_archives};
use crate::common::*;

/// Creates a self-signed certificate and its key.
fn create_certificate(dir: &Path) {
    let names = ["-subj", "/CN=test", "-addext", "subjectAltName=IP:127.0.0.1"];
    self_signed_certificate(&dir.join("key.pem"), &dir.join("cert.pem"), &names);
}

/// Starts a server with the certificate in this directory.
fn start_encrypted_server(dir: &Path) -> ServeProcess {
    let cert = dir.join("cert.pem");
    let key = dir.join("key.pem");
    ServeProcess::start_in(two_archives(), &["--tls-cert", text(&cert), "--tls-key", text(&key)])
}

/// Fetches an archive with curl, which trusts only this certificate. Returns `None` if that fails.
fn fetch_with_curl(server: &ServeProcess, trusted: &Path, arguments: &[&str]) -> Option<Vec<u8>> {
    let output = Command::new("curl")
        .args(["-fsS", "--max-time", "60", "--cacert"])
        .arg(trusted)
        .args(arguments)
        .arg(format!("https://{}/{FULL_26}", server.address))
        .output()
        .expect("run");
    output.status.success().then_some(output.stdout)
}

#[test]
fn a_changed_certificate_is_used() {
    needs!("openssl", "curl");
    let dir = temp_dir();
    let old = temp_dir();
    create_certificate(dir.path());
    for file in ["cert.pem", "key.pem"] {
        fs::copy(dir.path().join(file), old.path().join(file)).expect("copied");
    }
    let cert = dir.path().join("cert.pem");
    let key = dir.path().join("key.pem");
    let server = start_encrypted_server(dir.path());
    let file = fs::read(fixture(FULL_26)).expect("read");
    let old_cert = old.path().join("cert.pem");
    assert_eq!(fetch_with_curl(&server, &old_cert, &[]), Some(file.clone()));
    assert_eq!(fetch_with_curl(&server, &old_cert, &["-r", "5-9"]), Some(file[5..10].to_vec()));
    let head = String::from_utf8(fetch_with_curl(&server, &old_cert, &["-I"]).expect("a head")).expect("text");
    assert!(head.contains(&format!("Content-Length: {}\r\n", file.len())), "{head}");
    assert_eq!(fetch_with_curl(&server, &old_cert, &["--tls-max", "1.2"]), Some(file.clone()));
    assert_eq!(fetch_with_curl(&server, &old_cert, &["--tls-max", "1.1"]), None);

    // While only one of the two files has changed, the old pair stays in use.
    fs::write(&key, "no key").expect("written");
    server.wait_for_line(&["warning", "key.pem", "old certificate stays"]);
    assert_eq!(fetch_with_curl(&server, &old_cert, &[]), Some(file.clone()));

    create_certificate(dir.path());
    wait_for("the new certificate", || fetch_with_curl(&server, &cert, &[]) == Some(file.clone()));
    assert_eq!(fetch_with_curl(&server, &old_cert, &[]), None);
    let (status, _) = server.stop();
    assert!(status.success());
}

#[cfg(feature = "net")]
#[test]
fn a_wrong_scheme_is_reported_with_the_correct_one() {
    needs!("openssl");
    let dir = temp_dir();
    create_certificate(dir.path());
    let encrypted = start_encrypted_server(dir.path());
    let plain = ServeProcess::start(&[]);
    let out = dir.path().join("out");
    for (url, correct_scheme) in [
        (format!("http://{}", encrypted.address), "https://"),
        (format!("https://{}", plain.address), "http://"),
        (format!("http://{}/{FULL_26}", encrypted.address), "https://"),
        (format!("https://{}/{FULL_26}", plain.address), "http://"),
    ] {
        for command in ["fetch", "bootstrap", "find"] {
            let arguments = match command {
                "fetch" => vec![command, &url, "-o", out.to_str().expect("text")],
                "bootstrap" => vec![command, &url, "--ledger", out.to_str().expect("text")],
                _ => vec![command, &url],
            };
            let output = slotpress().args(&arguments).output().expect("run");
            let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
            assert_eq!(output.status.code(), Some(4), "{arguments:?}: {stderr}");
            assert!(stderr.contains(&format!("use {correct_scheme} in its URL")), "{arguments:?}: {stderr}");
        }
    }
}

#[test]
fn a_key_of_another_certificate_is_refused() {
    needs!("openssl");
    let dir = two_archives();
    let other = temp_dir();
    create_certificate(dir.path());
    create_certificate(other.path());
    let output = slotpress()
        .args(["serve", "--listen", "127.0.0.1:0", "--tls-cert"])
        .arg(dir.path().join("cert.pem"))
        .arg("--tls-key")
        .arg(other.path().join("key.pem"))
        .arg(dir.path())
        .output()
        .expect("run");
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(stderr.contains("cannot use"), "{stderr}");
}
