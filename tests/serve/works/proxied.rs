//! Behind a proxy, limits apply to the clients, and the log names the clients, not the proxy.

use std::fs;
use std::process::Command;

use crate::common::served::{ServeProcess, large_archive, read_head, send, two_archives};
use crate::common::servers::*;
use crate::common::*;

/// A client cannot evade its limit by claiming other addresses.
#[test]
fn clients_behind_a_proxy_have_their_own_limits() {
    let dir = two_archives();
    // The archive is larger than the socket buffers, so a transfer that nobody reads stays open.
    let (name, _) = large_archive(dir.path(), 60, 64 << 20);
    let server = ServeProcess::start_in(
        dir,
        &["--max-connections-per-client", "1", "--trusted-proxy", "127.0.0.1", "--access-log"],
    );
    let path = format!("/{name}");
    let request_as = |client: &str| {
        let mut stream = server.connect();
        send(&mut stream, "GET", &path, &format!("X-Forwarded-For: {client}\r\n"));
        let head = read_head(&mut stream).expect("a head");
        (stream, head)
    };
    let transfers: Vec<_> = ["203.0.113.1", "203.0.113.2", "1.1.1.1, 203.0.113.3"].map(request_as).into();
    assert!(transfers.iter().all(|(_, head)| head.status == 200), "{transfers:?}");
    let (_, head) = request_as("9.9.9.9, 203.0.113.3");
    assert_eq!((head.status, head.header("retry-after")), (503, "5"), "a second transfer of the third client");
    let refused = server.wait_for_line(&["\"answered\"", "\"status\":503"]);
    assert!(refused.contains("\"client\":\"203.0.113.3\""), "{refused}");
    assert!(refused.contains(&path), "{refused}");
    assert_eq!(server.request("HEAD", &path, "X-Forwarded-For: 203.0.113.3\r\n").status, 503);
    let refused = server.wait_for_line(&["\"answered\"", "HEAD ", "\"status\":503"]);
    assert!(refused.contains("\"sent_bytes\":0"), "a HEAD has no body: {refused}");
    drop(transfers);
    server.wait_for_line(&["\"served\"", "\"client\":\"203.0.113.2\""]);
    // A request without a transfer counts only until it is answered.
    for _ in 0..3 {
        assert_eq!(server.get("/healthz", "X-Forwarded-For: 203.0.113.9\r\n").status, 200);
    }
    server.wait_for_line(&["\"answered\"", "GET /healthz", "203.0.113.9", "\"status\":200"]);
}

#[test]
fn forwarded_addresses_are_ignored_by_default() {
    let server = ServeProcess::start(&[]);
    assert_eq!(server.get("/no\x1bthing", "").status, 400);
    assert_eq!(server.get("/nothing", "X-Forwarded-For: 203.0.113.1\r\n").status, 404);
    let line = server.wait_for_line(&["\"answered\"", "GET /nothing"]);
    assert!(line.contains("\"client\":\"127.0.0.1\""), "{line}");
    assert!(line.contains("\"status\":404"), "{line}");
    server.get("/healthz", "");
    server.get("/last", "");
    server.wait_for_line(&["GET /last"]);
    assert!(
        !server.lines().iter().any(|line| line.contains("healthz")),
        "a successful request is logged without --access-log"
    );
}

/// Uses the configuration in docs/serving.md, with other ports and paths.
#[test]
fn a_hundred_clients_behind_nginx_receive_the_archive() {
    needs!("nginx", "curl");
    let server = ServeProcess::start(&["--trusted-proxy", "127.0.0.1", "--max-connections-per-client", "64"]);
    let port = free_port();
    let (_, block) = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/serving.md"))
        .split_once("```nginx\n")
        .expect("a configuration");
    let (block, _) = block.split_once("```").expect("its end");
    let block = block.replace("listen 80;", &format!("listen 127.0.0.1:{port};"));
    let block = block.replace("127.0.0.1:8890", &server.address.to_string());
    let _nginx = Nginx::start(port, "", &block);
    let url = format!("http://127.0.0.1:{port}/{FULL_26}");
    let expected = fs::read(fixture(FULL_26)).expect("read");
    // The clients have a hundred addresses of this machine.
    let successes: Vec<bool> = std::thread::scope(|scope| {
        let clients: Vec<_> = (1..=100)
            .map(|client| {
                let url = &url;
                let expected = &expected;
                scope.spawn(move || {
                    let from = format!("127.0.1.{client}");
                    let output = Command::new("curl").args(["-fsS", "--interface", &from, url]).output();
                    output.is_ok_and(|output| output.status.success() && output.stdout == *expected)
                })
            })
            .collect();
        clients.into_iter().map(|client| client.join().unwrap_or(false)).collect()
    });
    assert_eq!(successes, [true; 100]);
    server.wait_for_line(&["\"served\"", "\"client\":\"127.0.1.100\""]);
}
