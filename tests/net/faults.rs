//! Faults of servers, one by one.

use std::io::Write;
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use slotpress_base::{NoProgress, Progress};
use slotpress_net::{Client, NetError, NetErrorKind};

use super::{client, get_bytes, options, random_bytes, request_head, url};
use crate::common::http::{self, Connection, Request, Server, send_file, send_redirect, send_response};
use crate::common::{WAIT_MAX, wait_for};

const ETAG: &str = "\"one\"";

/// Starts a server that answers correctly, except for the requests that `wrong` answers.
fn start_correct_server_except(
    bytes: Vec<u8>,
    wrong: impl Fn(&Request, &mut TcpStream, &[u8]) -> Option<std::io::Result<Connection>> + Send + Sync + 'static,
) -> Server {
    Server::start(move |request, stream| {
        wrong(request, stream, &bytes).unwrap_or_else(|| send_file(request, stream, &bytes, ETAG))
    })
}

/// Sends the head of an answer to a range, with a range and a length that the test chooses.
fn send_range_head(stream: &mut TcpStream, range: &str, length: &str) -> std::io::Result<()> {
    http::send_head(
        stream,
        "206 Partial Content",
        &[("ETag", ETAG), ("Content-Range", range), ("Content-Length", length)],
    )
}

#[test]
fn a_good_server_sends_files_and_ranges() {
    let bytes = random_bytes(3_000_000);
    let server = start_correct_server_except(bytes.clone(), |_, _, _| None);
    let client = client();
    let remote = request_head(&client, &server.url("/dir/a.tar.zst?key=secret")).expect("a head");
    assert_eq!((remote.length_bytes, remote.accepts_ranges), (Some(3_000_000), true));
    assert_eq!(remote.etag.as_deref(), Some(ETAG));
    let (result, received) = get_bytes(&client, &remote, None);
    assert!(result.expect("whole"));
    assert!(received == bytes);
    for range in [0..1, 5..6, 1_000_000..2_999_999, 2_999_999..3_000_000] {
        let (result, received) = get_bytes(&client, &remote, Some(range.clone()));
        assert!(!result.expect("a range"));
        assert!(received == bytes[range.start as usize..range.end as usize]);
    }
    let request = server.requests().pop().expect("one");
    assert_eq!(request.headers["accept-encoding"], "identity");
    assert_eq!(request.headers["if-range"], ETAG);
    assert!(!request.headers.contains_key("referer"));
    assert!(!request.headers.contains_key("cookie"));
}

#[test]
fn a_stall_is_a_timeout() {
    let server = start_correct_server_except(random_bytes(100_000), |request, stream, bytes| {
        request.range()?;
        send_range_head(stream, "bytes 0-99999/100000", "100000").ok()?;
        stream.write_all(&bytes[..1000]).ok()?;
        Some(http::stall(stream))
    });
    let client = client();
    let remote = request_head(&client, &server.url("/a")).expect("a head");
    let (result, received) = get_bytes(&client, &remote, Some(0..100_000));
    let error = result.expect_err("a stall");
    assert_eq!((error.kind(), received.len()), (NetErrorKind::Timeout, 1000));
    assert!(error.is_retryable(), "{error}");
}

#[test]
fn an_early_end_is_an_error() {
    let server = start_correct_server_except(random_bytes(100_000), |request, stream, bytes| {
        request.range()?;
        send_range_head(stream, "bytes 0-99999/100000", "100000").ok()?;
        stream.write_all(&bytes[..60_000]).ok()?;
        Some(Ok(Connection::Close))
    });
    let client = client();
    let remote = request_head(&client, &server.url("/a")).expect("a head");
    let (result, received) = get_bytes(&client, &remote, Some(0..100_000));
    let error = result.expect_err("too few");
    assert_eq!((error.kind(), received.len()), (NetErrorKind::Truncated { received_bytes: 60_000 }, 60_000));
    assert!(error.is_retryable(), "{error}");
    assert!(error.to_string().contains("after 58.6 KiB"), "{error}");
}

#[test]
fn wrong_ranges_and_lengths_are_refused() {
    for (content_range, length) in [
        ("bytes 0-99/100000", "100"),
        ("bytes 100-200/100000", "101"),
        ("bytes 101-200/100000", "100"),
        ("bytes 100-199/100000", "99"),
        ("bytes 100-199/100000", "1000"),
        ("bytes 100-199/150", "100"),
        ("bytes */100000", "100"),
        ("100-199/100000", "100"),
        ("", "100"),
    ] {
        let server = start_correct_server_except(random_bytes(100_000), move |request, stream, _| {
            request.range()?;
            send_range_head(stream, content_range, length).ok()?;
            Some(stream.write_all(&[7; 100]).map(|()| Connection::Close))
        });
        let client = client();
        let remote = request_head(&client, &server.url("/a")).expect("a head");
        let (result, received) = get_bytes(&client, &remote, Some(100..200));
        assert_eq!(result.expect_err(content_range).kind(), NetErrorKind::BadAnswer, "{content_range} {length}");
        assert!(received.is_empty());
    }
}

#[test]
fn endless_bodies_are_cut_off() {
    // The body has no length, or comes in chunks, so only the length from HEAD limits it.
    for is_chunked in [false, true] {
        let server = start_correct_server_except(random_bytes(100_000), move |request, stream, _| {
            if request.method == "HEAD" {
                return None;
            }
            let coding: &[(&str, &str)] = if is_chunked { &[("Transfer-Encoding", "chunked")] } else { &[] };
            http::send_head(stream, "200 OK", &[coding, &[("ETag", ETAG)]].concat()).ok()?;
            let piece = [b"2710\r\n".as_slice(), &[0; 10_000], b"\r\n"].concat();
            // Ends when the client closes the connection.
            while stream.write_all(if is_chunked { &piece } else { &[0; 10_000] }).is_ok() {}
            Some(Ok(Connection::Close))
        });
        let client = client();
        let remote = request_head(&client, &server.url("/a")).expect("a head");
        let (result, received) = get_bytes(&client, &remote, None);
        assert_eq!(result.expect_err("endless").kind(), NetErrorKind::TooLong);
        assert!(received.len() <= 100_000);
        let error = client.get_document(&remote.url, 50_000, &NoProgress).expect_err("endless");
        assert_eq!(error.kind(), NetErrorKind::TooLong);
    }
}

#[test]
fn the_whole_file_in_place_of_a_range_is_accepted() {
    let bytes = random_bytes(200_000);
    let server = start_correct_server_except(bytes.clone(), |request, stream, bytes| {
        request.range()?;
        Some(send_response(stream, "200 OK", &[("ETag", ETAG)], bytes))
    });
    let client = client();
    let remote = request_head(&client, &server.url("/a")).expect("a head");
    let (result, received) = get_bytes(&client, &remote, Some(1000..2000));
    assert!(result.expect("the whole file"));
    assert!(received == bytes);
}

#[test]
fn a_replaced_file_is_an_error() {
    // Changes: a different ETag, from servers that respect and that ignore If-Range; a different length; a
    // shorter file; no file.
    type WrongAnswer = fn(&Request, &mut TcpStream) -> std::io::Result<Connection>;
    let cases: [(WrongAnswer, NetErrorKind); 5] = [
        (|request, stream| send_file(request, stream, &random_bytes(100_000), "\"two\""), NetErrorKind::Changed),
        (
            |_, stream| {
                let fields = [("ETag", "\"two\""), ("Content-Range", "bytes 0-99/100000")];
                send_response(stream, "206 Partial Content", &fields, &[0; 100])
            },
            NetErrorKind::Changed,
        ),
        (
            |_, stream| {
                send_response(stream, "206 Partial Content", &[("Content-Range", "bytes 0-99/100001")], &[0; 100])
            },
            NetErrorKind::Changed,
        ),
        (
            |_, stream| send_response(stream, "416 Range Not Satisfiable", &[("Content-Range", "bytes */50")], b""),
            NetErrorKind::Changed,
        ),
        (|_, stream| send_response(stream, "404 Not Found", &[], b"gone"), NetErrorKind::Gone),
    ];
    for (wrong, kind) in cases {
        let server = start_correct_server_except(random_bytes(100_000), move |request, stream, _| {
            request.range()?;
            Some(wrong(request, stream))
        });
        let client = client();
        let remote = request_head(&client, &server.url("/a")).expect("a head");
        let (result, received) = get_bytes(&client, &remote, Some(0..100));
        let error = result.expect_err("another file");
        assert_eq!((error.kind(), error.is_retryable()), (kind, false), "{error}");
        assert!(received.is_empty());
    }
}

/// Starts a server with redirects of every kind.
fn start_redirecting_server() -> Server {
    start_correct_server_except(random_bytes(1000), |request, stream, _| match request.path.as_str() {
        "/circle" => Some(send_redirect(stream, "/circle")),
        "/1" => Some(send_redirect(stream, "/2")),
        "/2" => Some(send_redirect(stream, "3")),
        "/3" => Some(send_redirect(stream, "/4")),
        "/4" => Some(send_redirect(stream, "/good.tar.zst")),
        "/0" => Some(send_redirect(stream, "/1")),
        "/private" => Some(send_redirect(stream, "http://10.0.0.1/x")),
        "/other" => Some(send_redirect(stream, "http://127.0.0.2:1/x")),
        "/port" => Some(send_redirect(stream, "http://127.0.0.1:1/x")),
        "/name" => Some(send_redirect(stream, "http://localhost:1/x")),
        "/mapped" => Some(send_redirect(stream, "http://[::ffff:169.254.169.254]/x")),
        "/file" => Some(send_redirect(stream, "file:///etc/passwd")),
        "/nowhere" => Some(send_response(stream, "302 Found", &[], b"")),
        _ => None,
    })
}

#[test]
fn redirects_are_followed_within_limits() {
    let server = start_redirecting_server();
    let client = client();
    let remote = request_head(&client, &server.url("/1")).expect("four are followed");
    assert_eq!(remote.url.path(), "/good.tar.zst");
    for (path, kind) in [
        ("/0", NetErrorKind::Forbidden),
        ("/circle", NetErrorKind::Forbidden),
        ("/private", NetErrorKind::Forbidden),
        ("/other", NetErrorKind::Forbidden),
        ("/port", NetErrorKind::Forbidden),
        ("/name", NetErrorKind::Forbidden),
        ("/mapped", NetErrorKind::Forbidden),
        ("/file", NetErrorKind::BadAnswer),
        ("/nowhere", NetErrorKind::BadAnswer),
    ] {
        let error = request_head(&client, &server.url(path)).expect_err(path);
        assert_eq!(error.kind(), kind, "{path}: {error}");
    }
}

#[test]
fn private_addresses_in_untrusted_urls_need_the_flag() {
    let server = start_redirecting_server();
    let peer = client().for_untrusted_urls();
    assert_eq!(request_head(&peer, &server.url("/good")).expect_err("private").kind(), NetErrorKind::Forbidden);
    let permissive = Client::new(&options().allow_private(true)).expect("a client");
    assert!(request_head(&permissive.for_untrusted_urls(), &server.url("/good")).is_ok());
    assert_eq!(
        request_head(&permissive, &server.url("/port")).expect_err("nobody listens").kind(),
        NetErrorKind::Connect
    );
}

#[test]
fn hostile_heads_are_refused() {
    type WrongAnswer = fn(&mut TcpStream) -> std::io::Result<()>;
    let cases: [WrongAnswer; 7] = [
        |stream| stream.write_all(b"SSH-2.0-OpenSSH_9.2p1\r\n"),
        |stream| stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\n"),
        |stream| stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999999\r\n\r\n"),
        |stream| stream.write_all(b"HTTP/1.1 200 OK\r\n\0\0\0: x\r\n\r\n"),
        |stream| {
            stream.write_all(b"HTTP/1.1 200 OK\r\n")?;
            for number in 0..10_000 {
                stream.write_all(format!("x-{number}: y\r\n").as_bytes())?;
            }
            stream.write_all(b"\r\n")
        },
        |stream| {
            stream.write_all(b"HTTP/1.1 200 OK\r\nx: ")?;
            // Ends when the client closes the connection.
            loop {
                stream.write_all(&[b'a'; 65536])?;
            }
        },
        |stream| stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Encoding: br\r\nContent-Length: 5\r\n\r\n"),
    ];
    let client = client();
    for (number, wrong) in cases.into_iter().enumerate() {
        let server = Server::start(move |_, stream| wrong(stream).map(|()| Connection::Close));
        let error = request_head(&client, &server.url("/a")).expect_err("a hostile head");
        assert!(!error.to_string().contains('\n'), "{error}");
        assert!(error.to_string().len() < 600, "{error}");
        assert_eq!(error.kind(), NetErrorKind::BadAnswer, "{number}: {error}");
    }
}

#[test]
fn hostile_names_are_not_archive_names() {
    let server = Server::start(|request, stream| match request.path.as_str() {
        "/snapshot.tar.bz2" => send_redirect(stream, "/..%2f..%2f..%2fetc%2fpasswd"),
        _ => send_file(request, stream, b"x", ETAG),
    });
    let remote = request_head(&client(), &server.url("/snapshot.tar.bz2")).expect("a head");
    assert!(remote.archive_name().is_none(), "{}", remote.url);
}

#[test]
fn a_server_without_head_is_asked_for_one_byte() {
    let bytes = random_bytes(5000);
    let server = start_correct_server_except(bytes, |request, stream, _| {
        (request.method == "HEAD").then(|| {
            http::send_head(stream, "405 Method Not Allowed", &[("Content-Length", "0")])
                .map(|()| Connection::KeepAlive)
        })
    });
    let remote = request_head(&client(), &server.url("/a")).expect("a head");
    assert_eq!((remote.length_bytes, remote.accepts_ranges), (Some(5000), true));
    assert_eq!(server.requests().last().and_then(Request::range), Some(0..1));
}

#[test]
fn statuses_decide_whether_a_request_is_retryable() {
    for (status, kind, is_retryable) in [
        ("404 Not Found", NetErrorKind::Gone, false),
        ("410 Gone", NetErrorKind::Gone, false),
        ("403 Forbidden", NetErrorKind::Status(403), false),
        ("500 Internal Server Error", NetErrorKind::Status(500), true),
        ("503 Service Unavailable", NetErrorKind::Status(503), true),
        ("429 Too Many Requests", NetErrorKind::Status(429), true),
        ("299 Odd", NetErrorKind::Status(299), false),
    ] {
        let server = Server::start(move |_, stream| send_response(stream, status, &[("Retry-After", "7")], b""));
        let error = request_head(&client(), &server.url("/a")).expect_err(status);
        assert_eq!((error.kind(), error.is_retryable()), (kind, is_retryable), "{error}");
        assert_eq!(error.retry_after(), Some(Duration::from_secs(7)));
    }
}

#[test]
fn a_server_that_has_ended_is_a_retryable_failure() {
    let server = Server::start(|_, _| Ok(Connection::Close));
    let url = server.url("/a");
    let error = request_head(&client(), &url).expect_err("closed");
    assert!(error.is_retryable(), "{error}");
    let address = server.address;
    drop(server);
    wait_for("the end of the server", || TcpStream::connect(address).is_err());
    let error = request_head(&client(), &url).expect_err("nobody listens");
    assert_eq!((error.kind(), error.is_retryable()), (NetErrorKind::Connect, true), "{error}");
    let error = slotpress::Error::from(error);
    assert_eq!(error.kind().exit_code(), 4);
}

/// Stops on request.
struct Stop(AtomicBool);

impl Progress for Stop {
    fn is_interrupted(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

#[test]
fn interrupts_end_every_wait() {
    // Silence before the head, silence in the body, a body that never ends.
    let server = Server::start(|request, stream| match (request.method.as_str(), request.path.as_str()) {
        (_, "/silent") => http::stall(stream),
        ("HEAD", _) => send_file(request, stream, &random_bytes(1000), ETAG),
        (_, "/half") => {
            http::send_head(stream, "200 OK", &[("Content-Length", "1000"), ("ETag", ETAG)])?;
            stream.write_all(&[0; 10])?;
            http::stall(stream)
        }
        _ => {
            http::send_head(stream, "200 OK", &[("ETag", ETAG)])?;
            while stream.write_all(&[0]).is_ok() {
                thread::sleep(Duration::from_millis(20));
            }
            Ok(Connection::Close)
        }
    });
    // The client waits longer than the server does, so the transfer ends with the interrupt or with a
    // different error.
    let patient = options().head_timeout(WAIT_MAX * 2).read_timeout(WAIT_MAX * 2);
    let client = Client::new(&patient).expect("a client");
    for path in ["/silent", "/half", "/endless"] {
        let stop = Stop(AtomicBool::new(false));
        let has_begun = AtomicBool::new(false);
        thread::scope(|scope| {
            let waiting = scope.spawn(|| {
                let remote = client.head(&url(&server.url(path)), &stop)?;
                let mut body = client.open(&remote, None, &stop)?;
                while body.next(&client, &stop)?.is_some() {
                    has_begun.store(true, Ordering::Relaxed);
                }
                Ok::<_, NetError>(())
            });
            wait_for("the wait", || {
                let is_asked = server.requests().iter().any(|request| request.path == path);
                is_asked && (path == "/silent" || has_begun.load(Ordering::Relaxed))
            });
            stop.0.store(true, Ordering::Relaxed);
            let error = waiting.join().expect("no panic").expect_err("interrupted");
            assert_eq!(error.kind(), NetErrorKind::Interrupted, "{path}");
        });
    }
}

#[test]
fn transfers_share_the_maximum_rate() {
    let server = start_correct_server_except(random_bytes(3_000_000), |_, _, _| None);
    let options = options().max_rate_bytes_per_second(2_000_000);
    let client = Client::new(&options).expect("a client");
    let remote = request_head(&client, &server.url("/a")).expect("a head");
    let start = Instant::now();
    // At 2 MB/s, 6 MB take three seconds, less a burst and the last pieces, after which no transfer waits.
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| assert_eq!(get_bytes(&client, &remote, None).1.len(), 3_000_000));
        }
    });
    let seconds = start.elapsed().as_secs_f64();
    assert!(seconds >= 2.5, "{seconds}");
}

#[test]
fn many_ranges_at_once_arrive_whole() {
    let server = start_correct_server_except(random_bytes(1_000_000), |_, _, _| None);
    let client = client();
    let remote = request_head(&client, &server.url("/a")).expect("a head");
    let next = AtomicUsize::new(0);
    thread::scope(|scope| {
        for _ in 0..16 {
            scope.spawn(|| {
                loop {
                    let start = next.fetch_add(1, Ordering::Relaxed) as u64 * 10_000;
                    if start >= 1_000_000 {
                        break;
                    }
                    let (result, received) = get_bytes(&client, &remote, Some(start..start + 10_000));
                    assert!(result.is_ok());
                    assert!(received == random_bytes(1_000_000)[start as usize..start as usize + 10_000]);
                }
            });
        }
    });
}
