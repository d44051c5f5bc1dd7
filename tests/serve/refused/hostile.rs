//! Hostile clients receive nothing but archives, use little memory, and cause no panic. Other clients are still
//! served.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::symlink;
use std::time::{Duration, Instant};

use crate::common::served::{ServeProcess, large_archive, read_head, read_response, send, two_archives};
use crate::common::*;

#[test]
fn only_archives_are_served() {
    let dir = two_archives();
    let outside = temp_dir();
    let secret = FULL_26.replace("-26-", "-9-");
    fs::write(outside.path().join(&secret), "secret").expect("written");
    fs::write(outside.path().join("key.pem"), "secret").expect("written");
    symlink(outside.path().join(&secret), dir.path().join(&secret)).expect("linked");
    symlink(outside.path(), dir.path().join("remote")).expect("linked");
    fs::write(dir.path().join("tmp-snapshot-archive-26.tar.zst"), "secret").expect("written");
    fs::write(dir.path().join(format!("tmp-{FULL_26}")), "secret").expect("written");
    fs::write(dir.path().join("key.pem"), "secret").expect("written");
    let mut server = ServeProcess::start_in(dir, &[]);
    let base = server.dir.path().file_name().expect("a name").to_str().expect("text").to_string();
    let paths = [
        format!("/{secret}"),
        format!("/remote/{secret}"),
        format!("/tmp-{FULL_26}"),
        "/tmp-snapshot-archive-26.tar.zst".into(),
        "/key.pem".into(),
        "/./key.pem".into(),
        "//key.pem".into(),
        format!("//{FULL_26}"),
        format!("/./{FULL_26}"),
        format!("/../{base}/{FULL_26}"),
        format!("/remote/../{FULL_26}"),
        format!("/%2e%2e/{base}/{FULL_26}"),
        format!("/{FULL_26}%00"),
        format!("/{FULL_26}/"),
        format!("/{FULL_26}.zst"),
        format!("/{}", FULL_26.to_uppercase()),
        format!("/{}", FULL_26.replace('-', "%2d")),
        "/..%2f..%2fetc%2fpasswd".into(),
        "/../../../../etc/passwd".into(),
        "/etc/passwd".into(),
        "/.".into(),
        "/%".into(),
        "/remote".into(),
        format!("/{}", "a".repeat(8_000)),
    ];
    for path in &paths {
        let response = server.get(path, "");
        assert!(matches!(response.status, 404 | 400 | 414), "{path}: {response:?}");
        assert!(!response.text().contains("secret"), "{path}");
    }
    assert!(!server.get("/", "").text().contains("-9-"));
    assert!(!server.get("/api/v1/archives", "").text().contains("-9-"));
    for raw in [
        format!("GET /{FULL_26}\0 HTTP/1.1\r\nHost: x\r\n\r\n"),
        format!("GET {FULL_26} HTTP/1.1\r\nHost: x\r\n\r\n"),
        "GET file:///etc/passwd HTTP/1.1\r\nHost: x\r\n\r\n".into(),
        "GET \\etc\\passwd HTTP/1.1\r\nHost: x\r\n\r\n".into(),
        // A request must name exactly one host.
        format!("GET /{FULL_26} HTTP/1.1\r\nHost: x\r\nHost: x\r\n\r\n"),
        format!("GET /{FULL_26} HTTP/1.1\r\n\r\n"),
    ] {
        let mut stream = server.connect();
        stream.write_all(raw.as_bytes()).expect("sent");
        stream.shutdown(std::net::Shutdown::Write).expect("shut");
        let mut response = Vec::new();
        let _ = stream.read_to_end(&mut response);
        let response = String::from_utf8_lossy(&response);
        let is_refused =
            response.is_empty() || ["400", "404"].iter().any(|code| response.contains(&format!(" {code} ")));
        assert!(is_refused, "{raw:?}: {response}");
        assert!(!response.contains("root:"), "{raw:?}: {response}");
    }
    assert!(server.is_running());
    assert_eq!(server.get(&format!("/{FULL_26}"), "").status, 200);
}

/// Sends thousands of heads, most of them malformed, which are drawn from a fixed seed.
#[test]
fn malformed_heads_are_survived() {
    let mut server = ServeProcess::start(&["--head-timeout", "2s"]);
    let before = server.memory_bytes();
    let mut state = 1u64;
    let mut random = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize
    };
    let valid_head = format!("GET /{FULL_26} HTTP/1.1\r\nHost: x\r\nRange: bytes=0-9\r\nIf-Range: \"x\"\r\n\r\n");
    for round in 0..3_000 {
        let mut head = valid_head.clone().into_bytes();
        match round % 4 {
            0 => (0..1 + random() % 8).for_each(|_| {
                let position = random() % head.len();
                head[position] = random() as u8;
            }),
            1 => head.truncate(random() % head.len()),
            2 => head = (0..random() % 2_000).map(|_| random() as u8).collect(),
            _ => {
                let fields: String = (0..random() % 300)
                    .map(|number| format!("X-{number}: {}\r\n", "y".repeat(random() % 100)))
                    .collect();
                head = format!("GET / HTTP/1.1\r\n{fields}\r\n").into_bytes();
            }
        }
        let mut stream = server.connect();
        // The server may refuse the request before all of it is sent.
        let _ = stream.write_all(&head);
        let _ = stream.shutdown(std::net::Shutdown::Write);
        if round % 50 == 0 {
            let _ = stream.take(1 << 20).read_to_end(&mut Vec::new());
        }
    }
    // Sends a head without an end.
    let mut stream = server.connect();
    let _ = stream.write_all(b"GET / HTTP/1.1\r\n");
    for _ in 0..2_000 {
        if stream.write_all(b"X-Long: yyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyy\r\n").is_err() {
            break;
        }
    }
    assert!(server.is_running());
    // On a busy machine, many connections may still be open, and new ones are answered with 503.
    wait_for("a response once the connections have ended", || server.get(&format!("/{FULL_26}"), "").status == 200);
    let grown = server.memory_bytes().saturating_sub(before);
    assert!(grown < 64 << 20, "memory grew by {grown} bytes");
    let (_, lines) = server.stop();
    assert!(!lines.iter().any(|line| line.contains("panic") || line.contains("bug")), "{lines:?}");
}

#[test]
fn slow_heads_are_cut_off() {
    let server = ServeProcess::start(&["--head-timeout", "1s"]);
    let start = Instant::now();
    let mut streams: Vec<_> = (0..20).map(|_| server.connect()).collect();
    // Half of the clients send a byte from time to time, the others send nothing.
    let mut is_open = vec![true; streams.len()];
    while is_open.contains(&true) {
        assert!(start.elapsed() < Duration::from_secs(20), "slow heads are not cut off");
        for (number, stream) in streams.iter_mut().enumerate().filter(|(number, _)| number % 2 == 0) {
            is_open[number] &= stream.write_all(b"G").is_ok();
        }
        for (number, stream) in streams.iter_mut().enumerate() {
            stream.set_read_timeout(Some(Duration::from_millis(5))).expect("set");
            match stream.read(&mut [0; 512]) {
                Ok(0) => is_open[number] = false,
                Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => is_open[number] = false,
                _ => {}
            }
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    assert_eq!(server.get("/healthz", "").status, 200);
}

#[test]
fn stalled_readers_are_cut_off_but_slow_readers_are_not() {
    let dir = two_archives();
    let (name, content) = large_archive(dir.path(), 60, 32 << 20);
    let server = ServeProcess::start_in(dir, &["--stall-timeout", "2s"]);
    let mut stalled: Vec<_> = (0..4).map(|_| server.connect()).collect();
    for stream in &mut stalled {
        send(stream, "GET", &format!("/{name}"), "");
        read_head(stream).expect("a head");
    }
    let mut slow = server.connect();
    send(&mut slow, "GET", &format!("/{name}"), "");
    read_head(&mut slow).expect("a head");
    let mut body = vec![0; content.len()];
    // Reads slowly until the server has cut off all stalled readers, but never to the end.
    let mut read_bytes = 0;
    let read_bytes_max = body.len() - (1 << 20);
    wait_for("the stalled readers to be cut off", || {
        let end = (read_bytes + (64 << 10)).min(read_bytes_max);
        slow.read_exact(&mut body[read_bytes..end]).expect("more");
        read_bytes = end;
        let is_cut = |line: &String| ["\"served\"", "\"complete\":false"].iter().all(|part| line.contains(part));
        server.lines().iter().filter(|line| is_cut(line)).count() == stalled.len()
    });
    assert!(read_bytes < read_bytes_max, "the slow reader read nearly to the end");
    slow.read_exact(&mut body[read_bytes..]).expect("the rest");
    assert!(body == content);
    for mut stream in stalled {
        let mut received = Vec::new();
        let _ = stream.read_to_end(&mut received);
        assert!(received.len() < content.len(), "a stalled reader was not cut off");
    }
}

#[test]
fn stalled_readers_use_little_memory() {
    let dir = two_archives();
    let (name, _) = large_archive(dir.path(), 60, 64 << 20);
    let server = ServeProcess::start_in(dir, &["--stall-timeout", "60s"]);
    let before = server.memory_bytes();
    let streams: Vec<_> = (0..50)
        .map(|_| {
            let mut stream = server.connect();
            send(&mut stream, "GET", &format!("/{name}"), "");
            // Waits until the transfer has begun.
            read_head(&mut stream).expect("a head");
            stream.read_exact(&mut [0; 1]).expect("a byte");
            stream
        })
        .collect();
    let grown = server.memory_bytes().saturating_sub(before);
    assert!(grown < 50 << 20, "{grown} bytes for 50 readers");
    drop(streams);
}

#[test]
fn too_many_connections_are_refused() {
    let server = ServeProcess::start(&["--max-connections-per-client", "5"]);
    let mut streams: Vec<_> = (0..5).map(|_| server.connect()).collect();
    for stream in &mut streams {
        send(stream, "GET", "/healthz", "");
        assert_eq!(read_response(stream, "GET").status, 200);
    }
    let mut refused = server.connect();
    let head = read_head(&mut refused).expect("a refusal");
    assert_eq!((head.status, head.header("connection")), (503, "close"));
    drop(streams.pop());
    wait_for("a free place", || {
        let mut stream = server.connect();
        let _ = write!(stream, "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n");
        read_head(&mut stream).is_some_and(|head| head.status == 200)
    });
}

/// The requests have a body, have a head that is too large, or are not HTTP.
#[test]
fn refused_requests_are_logged() {
    let server = ServeProcess::start(&[]);
    for (request, status) in [
        ("GET / HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\n\r\nx".to_string(), 413),
        (format!("GET / HTTP/1.1\r\nHost: x\r\nX: {}\r\n\r\n", "y".repeat(20_000)), 431),
        ("this is not HTTP\r\n\r\n".to_string(), 400),
    ] {
        let mut stream = server.connect();
        let _ = stream.write_all(request.as_bytes());
        let _ = stream.read_to_end(&mut Vec::new());
        server.wait_for_line(&["\"answered\"", &format!("\"status\":{status}")]);
    }
}

#[test]
fn the_log_is_json_for_requests_with_control_characters() {
    let server = ServeProcess::start(&["--access-log"]);
    let controls = "\u{80}\u{9b}\u{9f}\u{2028}\u{2029}\u{202a}\u{202e}\u{2066}\u{2069}";
    let mut stream = server.connect();
    send(&mut stream, "GET", &format!("/{controls}/end"), "Connection: close\r\n");
    let _ = stream.read_to_end(&mut Vec::new());
    let line = server.wait_for_line(&["answered", "/end"]);
    let line: serde_json::Value = serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line:?}"));
    assert!(line["request"].as_str().expect("text").contains(controls), "{line}");
}

#[test]
fn every_line_of_output_is_json() {
    let dir = two_archives();
    fs::write(dir.path().join(FULL_26.replace("-26-", "-27-")), [0; 100]).expect("written");
    let server = ServeProcess::start_in(dir, &[]);
    server.wait_for_line(&["is not used"]);
    let (_, lines) = server.stop();
    assert!(lines.iter().any(|line| line.contains("stopping")), "{lines:?}");
    for line in lines {
        serde_json::from_str::<serde_json::Value>(&line).unwrap_or_else(|error| panic!("{error}: {line}"));
    }
}
