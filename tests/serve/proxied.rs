//! Behind a proxy: limits and the log are about clients, not about the proxy.

use std::fs;
use std::process::Command;

use super::server::{Server, large_archive, read_head, send, two_archives};
use crate::common::servers::*;
use crate::common::*;

/// A proxy's connections are not those of one client; each client has its own limit, whatever it claims itself.
#[test]
fn clients_behind_a_proxy_have_their_own_limits() {
    let dir = two_archives();
    // Larger than what the sockets take: a transfer that is not read goes on.
    let (name, _) = large_archive(dir.path(), 60, 64 << 20);
    let server =
        Server::start_in(dir, &["--max-connections-per-client", "1", "--trusted-proxy", "127.0.0.1", "--access-log"]);
    let path = format!("/{name}");
    let ask = |client: &str| {
        let mut stream = server.connect();
        send(&mut stream, "GET", &path, &format!("X-Forwarded-For: {client}\r\n"));
        let head = read_head(&mut stream).expect("a head");
        (stream, head)
    };
    let held: Vec<_> = ["203.0.113.1", "203.0.113.2", "1.1.1.1, 203.0.113.3"].map(ask).into();
    assert!(held.iter().all(|(_, head)| head.status == 200), "{held:?}");
    let (_, head) = ask("9.9.9.9, 203.0.113.3");
    assert_eq!((head.status, head.header("retry-after")), (503, "5"), "a second one of the third client");
    let refused = server.wait_for_line(&["\"answered\"", "\"status\":503"]);
    assert!(refused.contains("\"client\":\"203.0.113.3\"") && refused.contains(&path), "{refused}");
    drop(held);
    server.wait_for_line(&["\"served\"", "203.0.113.2:0"]);
    // Without a transfer: the client's place is free again at once.
    for _ in 0..3 {
        assert_eq!(server.get("/healthz", "X-Forwarded-For: 203.0.113.9\r\n").status, 200);
    }
    server.wait_for_line(&["\"answered\"", "GET /healthz", "203.0.113.9", "\"status\":200"]);
}

/// Without the flag, what a client claims means nothing; refusals and errors are logged.
#[test]
fn nobody_is_believed_unasked() {
    let server = Server::start(&[]);
    assert_eq!(server.get("/no\x1bthing", "").status, 400);
    assert_eq!(server.get("/nothing", "X-Forwarded-For: 203.0.113.1\r\n").status, 404);
    let line = server.wait_for_line(&["\"answered\"", "GET /nothing"]);
    assert!(line.contains("\"client\":\"127.0.0.1\"") && line.contains("\"status\":404"), "{line}");
    server.get("/healthz", "");
    server.get("/last", "");
    server.wait_for_line(&["GET /last"]);
    assert!(!server.lines().iter().any(|line| line.contains("healthz")), "what went well is not logged unasked");
}

/// A connection is of the client that the header of the PROXY protocol names, whatever its requests say.
#[test]
fn the_proxy_protocol() {
    use std::io::Write;
    let server = Server::start(&["--trusted-proxy", "127.0.0.1", "--access-log", "--max-connections-per-client", "1"]);
    let ask = |header: &[u8], path: &str| {
        let mut stream = server.connect();
        // At once: after a wrong header the server may have closed the connection before a second write.
        let request = format!("GET {path} HTTP/1.1\r\nHost: here\r\nX-Forwarded-For: 9.9.9.9\r\n\r\n");
        stream.write_all(&[header, request.as_bytes()].concat()).expect("sent");
        (read_head(&mut stream).map(|head| head.status), stream)
    };
    let binary = |version_and_command: u8, rest: &[u8]| {
        let length = (rest.len() as u16).to_be_bytes();
        [&b"\r\n\r\n\0\r\nQUIT\n"[..], &[version_and_command, 0x21], &length, rest].concat()
    };
    let addresses =
        [&[0x20, 1, 0x0d, 0xb8][..], &[0; 11], &[7], &[0; 16], &[0x12, 0x67, 0, 80], &[4, 0, 1, 9]].concat();
    for (header, client) in [
        (&b"PROXY TCP4 203.0.113.7 10.0.0.1 4711 80\r\n"[..], "203.0.113.7"),
        (&binary(0x21, &addresses), "2001:db8::7"),
        // The proxy does not say: its requests may.
        (b"PROXY UNKNOWN\r\n", "9.9.9.9"),
        (&binary(0x20, &[]), "9.9.9.9"),
        (b"", "9.9.9.9"),
    ] {
        let path = format!("/of-{client}-{}", header.len());
        let (status, _) = ask(header, &path);
        assert_eq!(status, Some(404), "{client}");
        let line = server.wait_for_line(&["\"answered\"", &path]);
        assert!(line.contains(&format!("\"client\":\"{client}\"")), "{line}");
    }
    // Limits are of the client; it is gone when its connection is.
    let header = b"PROXY TCP4 203.0.113.8 10.0.0.1 4711 80\r\n";
    let held = ask(header, "/");
    assert_eq!(held.0, Some(200));
    assert_eq!(ask(header, "/").0, Some(503), "its second connection");
    drop(held);
    wait_for("its place", || ask(header, "/").0 == Some(200));
    for wrong in
        [&b"PROXY TCP4 x y 1 2\r\n"[..], &[b"PROXY ".as_slice(), &[b'x'; 200]].concat(), &binary(0x31, &addresses)]
    {
        assert_eq!(ask(wrong, "/").0, None, "{wrong:?}");
    }
    // Of whom nobody trusts, it is no request.
    let server = Server::start(&[]);
    let mut stream = server.connect();
    stream.write_all(&[&header[..], b"GET / HTTP/1.1\r\nHost: here\r\n\r\n"].concat()).expect("sent");
    assert_eq!(read_head(&mut stream).map(|head| head.status), Some(400));
}

/// nginx with a configuration of docs/serving.md, which begins with `begin`: in front of this server, on the port told.
fn documented_nginx(begin: &str, server: &Server, modules: &str, wrap: impl Fn(&str) -> String) -> (Nginx, u16) {
    let port = free_port();
    let (_, block) = include_str!("../../docs/serving.md").split_once(begin).expect("a configuration");
    let (block, _) = block.split_once("```").expect("its end");
    let block = block.replace("listen 80;", &format!("listen 127.0.0.1:{port};"));
    let block = block.replace("127.0.0.1:8890", &server.address.to_string());
    (Nginx::start(port, modules, &wrap(&block)), port)
}

/// nginx that passes connections on, and says of whom they are (its module `stream`).
#[needs("nginx", "curl", nginx_stream)]
#[test]
fn nginx_with_the_proxy_protocol() {
    let module = "load_module /usr/lib/nginx/modules/ngx_stream_module.so;";
    let server = Server::start(&["--trusted-proxy", "127.0.0.1", "--access-log"]);
    let (_nginx, port) = documented_nginx("```nginx\nstream {", &server, module, |block| format!("stream {{{block}"));
    let url = format!("http://127.0.0.1:{port}/{FULL_26}");
    let output = Command::new("curl").args(["-fsS", "--interface", "127.0.1.7", &url]).output().expect("run");
    assert!(output.status.success() && output.stdout == fs::read(fixture(FULL_26)).expect("read"));
    server.wait_for_line(&["\"served\"", "127.0.1.7:"]);
}

/// The configuration in docs/serving.md, with other ports and paths, and a hundred clients at once.
#[needs("nginx", "curl")]
#[test]
fn nginx_in_front() {
    let server = Server::start(&["--trusted-proxy", "127.0.0.1", "--max-connections-per-client", "64"]);
    let (_nginx, port) =
        documented_nginx("```nginx\n", &server, "", |block| format!("http {{ access_log off; TEMPORARY\n{block}\n}}"));
    let url = format!("http://127.0.0.1:{port}/{FULL_26}");
    let expected = fs::read(fixture(FULL_26)).expect("read");
    // A hundred addresses of this machine.
    let fetched: Vec<bool> = std::thread::scope(|scope| {
        let clients: Vec<_> = (1..=100)
            .map(|client| {
                let (url, expected) = (&url, &expected);
                scope.spawn(move || {
                    let from = format!("127.0.1.{client}");
                    let output = Command::new("curl").args(["-fsS", "--interface", &from, url]).output();
                    output.is_ok_and(|output| output.status.success() && output.stdout == *expected)
                })
            })
            .collect();
        clients.into_iter().map(|client| client.join().unwrap_or(false)).collect()
    });
    assert_eq!(fetched.iter().filter(|fetched| **fetched).count(), 100);
    server.wait_for_line(&["\"served\"", "127.0.1.100:0"]);
}
