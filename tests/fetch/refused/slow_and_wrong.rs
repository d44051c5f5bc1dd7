//! Servers that are too slow, and redirects that lead nowhere.

use std::io::Write;
use std::thread;
use std::time::Duration;

use crate::common::http::{Connection, Server, send_file, send_head, send_redirect};
use crate::common::site::*;
use crate::common::*;

/// The server sends 250 bytes per second, and no ranges. So no bytes are kept, and the message must not claim
/// that some are.
#[test]
fn a_server_below_the_minimum_rate_is_given_up() {
    let (name, bytes) = full(&archives(&[]));
    let server = Server::start(move |request, stream| {
        if request.method == "HEAD" {
            return send_file(request, stream, &bytes, &etag(&bytes));
        }
        send_head(stream, "200 OK", &[("Content-Length", &bytes.len().to_string())])?;
        for chunk in bytes.chunks(50) {
            stream.write_all(chunk)?;
            thread::sleep(Duration::from_millis(200));
        }
        Ok(Connection::Close)
    });
    let dir = temp_dir();
    let url = server.url(&format!("/{name}"));
    let output = run_to_json(&["fetch", &url, "-o", text(dir.path()), "--min-rate", "10KiB"]);
    assert_eq!(output.code, Some(4), "{output:?}");
    assert!(output.stderr.contains("less than the minimum rate"), "{output:?}");
    assert!(!output.stderr.contains("bytes are kept"), "{output:?}");
    assert!(!dir.path().join(&name).exists());
}

/// Redirects in a circle, to private addresses, to a different scheme, and to nothing.
#[test]
fn redirects_that_lead_nowhere_are_errors() {
    for location in
        ["/snapshot.tar.bz2", "http://169.254.169.254/latest", "http://[::ffff:10.0.0.1]/x", "ftp://h/x", ""]
    {
        let server = Server::start(move |_, stream| send_redirect(stream, location));
        let dir = temp_dir();
        let output = run_to_json(&["fetch", &server.url(""), "-o", text(dir.path())]);
        assert_eq!(output.code, Some(4), "{location}: {output:?}");
        assert_eq!(relative_paths(dir.path()), Vec::<String>::new());
    }
}
