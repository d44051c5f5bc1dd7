//! Actions of servers, right and wrong.

use std::borrow::Cow;
use std::io::{self, Write};
use std::net::TcpStream;
use std::sync::atomic::Ordering::Relaxed;
use std::thread;
use std::time::Duration;

use super::stage::Scene;
use crate::common::http::{Request, Then, answer, file, head};
use crate::common::wait_for;

const ETAG: &str = "\"the-same\"";

/// Sends ranges of any bytes under one ETag.
fn ranges(scene: &Scene, request: &Request, stream: &mut TcpStream, bytes: &[u8]) -> io::Result<Then> {
    if request.method == "GET" {
        let range = request.range().map_or(bytes.len() as u64, |range| range.end.min(bytes.len() as u64) - range.start);
        scene.sent.fetch_add(range as usize, Relaxed);
    }
    file(request, stream, bytes, ETAG)
}

/// Sends all bytes for any request.
fn whole(scene: &Scene, request: &Request, stream: &mut TcpStream, bytes: &[u8]) -> io::Result<Then> {
    if request.method == "HEAD" {
        head(stream, "200 OK", &[("Content-Length", &bytes.len().to_string())])?;
        return Ok(Then::Keep);
    }
    scene.sent.fetch_add(bytes.len(), Relaxed);
    answer(stream, "200 OK", &[], bytes)
}

/// Sends the head of an answer with a range. The play sends the bytes.
fn range_head(scene: &Scene, request: &Request, stream: &mut TcpStream) -> io::Result<Option<std::ops::Range<usize>>> {
    let length = scene.archive.right.len();
    let Some(range) = request.range().filter(|_| request.method == "GET") else { return Ok(None) };
    let range = range.start as usize..(range.end as usize).min(length);
    let place = format!("bytes {}-{}/{length}", range.start, range.end - 1);
    let stated = range.len().to_string();
    let headers = [("Content-Range", place.as_str()), ("Content-Length", &stated), ("ETag", ETAG)];
    head(stream, "206 Partial Content", &headers)?;
    scene.sent.fetch_add(range.len(), Relaxed);
    Ok(Some(range))
}

fn flipped(bytes: &[u8], at: usize) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    bytes[at] ^= 1;
    bytes
}

fn page() -> Vec<u8> {
    b"<!DOCTYPE html><html><body>503 Service Unavailable</body></html>\n".repeat(500)
}

pub fn honest(scene: &Scene, request: &Request, stream: &mut TcpStream) -> io::Result<Then> {
    ranges(scene, request, stream, &scene.archive.right)
}

pub fn honest_without_ranges(scene: &Scene, request: &Request, stream: &mut TcpStream) -> io::Result<Then> {
    whole(scene, request, stream, &scene.archive.right)
}

pub fn page_in_ranges(scene: &Scene, request: &Request, stream: &mut TcpStream) -> io::Result<Then> {
    ranges(scene, request, stream, &page())
}

pub fn page_whole(scene: &Scene, request: &Request, stream: &mut TcpStream) -> io::Result<Then> {
    whole(scene, request, stream, &page())
}

pub fn zeros(scene: &Scene, request: &Request, stream: &mut TcpStream) -> io::Result<Then> {
    ranges(scene, request, stream, &vec![0; 3 << 20])
}

pub fn empty(scene: &Scene, request: &Request, stream: &mut TcpStream) -> io::Result<Then> {
    whole(scene, request, stream, &[])
}

pub fn half_in_ranges(scene: &Scene, request: &Request, stream: &mut TcpStream) -> io::Result<Then> {
    ranges(scene, request, stream, &scene.archive.right[..scene.archive.right.len() / 2])
}

pub fn half_whole(scene: &Scene, request: &Request, stream: &mut TcpStream) -> io::Result<Then> {
    whole(scene, request, stream, &scene.archive.right[..scene.archive.right.len() / 2])
}

/// Sends half without a length, so that only the end of the connection shows the end.
pub fn half_without_length(scene: &Scene, request: &Request, stream: &mut TcpStream) -> io::Result<Then> {
    head(stream, "200 OK", &[("Connection", "close")])?;
    if request.method == "GET" {
        stream.write_all(&scene.archive.right[..scene.archive.right.len() / 2])?;
    }
    Ok(Then::Close)
}

pub fn flipped_in_ranges(scene: &Scene, request: &Request, stream: &mut TcpStream) -> io::Result<Then> {
    ranges(scene, request, stream, &flipped(&scene.archive.right, scene.archive.right.len() / 2))
}

pub fn flipped_whole(scene: &Scene, request: &Request, stream: &mut TcpStream) -> io::Result<Then> {
    whole(scene, request, stream, &flipped(&scene.archive.right, scene.archive.right.len() / 2))
}

/// Flips a bit of the index, before the seek table.
pub fn flipped_at_the_end(scene: &Scene, request: &Request, stream: &mut TcpStream) -> io::Result<Then> {
    let bytes = &scene.archive.right;
    let hashes = bytes.windows(8).rposition(|window| window == b"slotidx2").expect("an index");
    ranges(scene, request, stream, &flipped(bytes, hashes + 40))
}

/// Flips a bit of the last bytes, by which index and seek table are found.
pub fn flipped_last(scene: &Scene, request: &Request, stream: &mut TcpStream) -> io::Result<Then> {
    let bytes = &scene.archive.right;
    ranges(scene, request, stream, &flipped(bytes, bytes.len() - 2))
}

pub fn other(scene: &Scene, request: &Request, stream: &mut TcpStream) -> io::Result<Then> {
    file(request, stream, &scene.archive.other, "\"other\"")
}

pub fn other_whole(scene: &Scene, request: &Request, stream: &mut TcpStream) -> io::Result<Then> {
    whole(scene, request, stream, &scene.archive.other)
}

/// Announces ranges, and sends the whole file.
pub fn ranges_only_said(scene: &Scene, request: &Request, stream: &mut TcpStream) -> io::Result<Then> {
    let bytes = &scene.archive.right;
    head(stream, "200 OK", &[("Accept-Ranges", "bytes"), ("Content-Length", &bytes.len().to_string())])?;
    if request.method == "GET" {
        scene.sent.fetch_add(bytes.len() / 8, Relaxed);
        stream.write_all(bytes)?;
    }
    Ok(Then::Keep)
}

/// Sends another range than the requested one.
pub fn other_ranges(scene: &Scene, request: &Request, stream: &mut TcpStream) -> io::Result<Then> {
    let length = scene.archive.right.len();
    let Some(range) = request.range().filter(|_| request.method == "GET") else {
        return honest(scene, request, stream);
    };
    let place = format!("bytes {}-{}/{length}", range.start + 1, range.end);
    let body = vec![7; (range.end - range.start) as usize];
    answer(stream, "206 Partial Content", &[("Content-Range", &place)], &body)
}

/// On the first long range, sends 600 kB, waits until the client has the rest from another
/// connection, then sends wrong bytes.
pub fn late_rubbish(scene: &Scene, request: &Request, stream: &mut TcpStream) -> io::Result<Then> {
    const FIRST_BYTES: usize = 600_000;
    const FETCHED_ELSEWHERE: usize = 1;
    // The client has closed this connection, or reads no more from it.
    let is_closed = |stream: &TcpStream| {
        stream.set_nonblocking(true).expect("set");
        let end = stream.peek(&mut [0]);
        stream.set_nonblocking(false).expect("set");
        end.is_ok_and(|bytes| bytes == 0)
    };
    // This is not the end of the file, which comes first over one connection.
    let last = scene.archive.right.len() as u64 * 3 / 4;
    let is_long =
        |range: &std::ops::Range<u64>| range.end - range.start > FIRST_BYTES as u64 + 300_000 && range.end < last;
    let start = request.range().map_or(0, |range| range.start as usize);
    let late_from = start + FIRST_BYTES;
    if !request.range().as_ref().is_some_and(is_long)
        || scene.own.compare_exchange(0, late_from, Relaxed, Relaxed).is_err()
    {
        let late_from = scene.own.load(Relaxed);
        let is_rest =
            late_from > FETCHED_ELSEWHERE && (late_from.saturating_sub(FIRST_BYTES / 2)..=late_from).contains(&start);
        let result = honest(scene, request, stream);
        if is_rest {
            scene.own.store(FETCHED_ELSEWHERE, Relaxed);
        }
        return result;
    }
    let Some(range) = range_head(scene, request, stream)? else { return Ok(Then::Close) };
    stream.write_all(&scene.archive.right[range.start..range.start + FIRST_BYTES])?;
    stream.flush()?;
    wait_for("another connection to send the rest", || {
        scene.own.load(Relaxed) == FETCHED_ELSEWHERE || is_closed(stream)
    });
    // The client requests more, or has all.
    let gets = scene.gets.load(Relaxed);
    wait_for("the client to have the rest", || scene.gets.load(Relaxed) > gets + 1 || is_closed(stream));
    stream.write_all(&vec![7; range.len() - FIRST_BYTES])?;
    Ok(Then::Close)
}

/// Ends each connection after a part of a frame.
pub fn cut_often(scene: &Scene, request: &Request, stream: &mut TcpStream) -> io::Result<Then> {
    const CUT_BYTES: usize = 100_000;
    let Some(range) = range_head(scene, request, stream)? else { return honest(scene, request, stream) };
    let end = range.end.min(range.start + CUT_BYTES);
    scene.sent.fetch_sub(range.end - end, Relaxed);
    stream.write_all(&scene.archive.right[range.start..end])?;
    Ok(Then::Close)
}

/// Busy for a while, and says for how long.
pub fn busy_at_first(scene: &Scene, request: &Request, stream: &mut TcpStream) -> io::Result<Then> {
    if request.method == "GET" && scene.gets.load(Relaxed) < 3 {
        return answer(stream, "503 Service Unavailable", &[("Retry-After", "1")], b"busy");
    }
    honest(scene, request, stream)
}

/// Closes connections without an answer for a while.
pub fn silent_at_first(scene: &Scene, request: &Request, stream: &mut TcpStream) -> io::Result<Then> {
    if request.method == "GET" && scene.gets.load(Relaxed) < 3 {
        return Ok(Then::Close);
    }
    honest(scene, request, stream)
}

/// After some requests, another archive has the name.
pub fn published_again(scene: &Scene, request: &Request, stream: &mut TcpStream) -> io::Result<Then> {
    let bytes: Cow<'_, [u8]> = match scene.gets.load(Relaxed) {
        0..4 => Cow::Borrowed(&scene.archive.right),
        _ => Cow::Borrowed(&scene.archive.other),
    };
    if scene.gets.load(Relaxed) < 4 {
        file(request, stream, &bytes, ETAG)
    } else {
        file(request, stream, &bytes, "\"new\"")
    }
}

/// Each request finds another archive.
pub fn published_again_and_again(scene: &Scene, request: &Request, stream: &mut TcpStream) -> io::Result<Then> {
    let number = scene.own.fetch_add(1, Relaxed);
    let bytes = if number.is_multiple_of(2) { &scene.archive.right } else { &scene.archive.other };
    file(request, stream, bytes, &format!("\"{number}\""))
}

/// Gone after some requests.
pub fn gone_midway(scene: &Scene, request: &Request, stream: &mut TcpStream) -> io::Result<Then> {
    match scene.gets.load(Relaxed) {
        0..3 => honest(scene, request, stream),
        _ => answer(stream, "404 Not Found", &[], b""),
    }
}

/// Sends more bytes than stated.
pub fn endless(scene: &Scene, request: &Request, stream: &mut TcpStream) -> io::Result<Then> {
    if request.method == "HEAD" {
        return honest_without_ranges(scene, request, stream);
    }
    head(stream, "200 OK", &[("Connection", "close")])?;
    let mut left = 40 << 20;
    while left > 0 && stream.write_all(&scene.archive.right).is_ok() {
        left -= scene.archive.right.len().min(left);
    }
    Ok(Then::Close)
}

/// Sends some bytes of an answer, then one per second for as long as the client waits.
fn trickle(scene: &Scene, stream: &mut TcpStream, bytes: &[u8]) -> io::Result<Then> {
    for byte in bytes {
        stream.write_all(std::slice::from_ref(byte))?;
        scene.sent.fetch_add(1, Relaxed);
        thread::sleep(Duration::from_secs(1));
    }
    Ok(Then::Close)
}

/// Sends a range except its last bytes, then a byte per second.
fn slow_from(scene: &Scene, request: &Request, stream: &mut TcpStream, left: usize) -> io::Result<Then> {
    let Some(range) = range_head(scene, request, stream)? else { return honest(scene, request, stream) };
    let slow = range.end - left.min(range.len())..range.end;
    scene.sent.fetch_sub(slow.len(), Relaxed);
    stream.write_all(&scene.archive.right[range.start..slow.start])?;
    trickle(scene, stream, &scene.archive.right[slow])
}

pub fn a_byte_a_second(scene: &Scene, request: &Request, stream: &mut TcpStream) -> io::Result<Then> {
    slow_from(scene, request, stream, usize::MAX)
}

/// Fast except for the last bytes of each range.
pub fn slow_at_its_end(scene: &Scene, request: &Request, stream: &mut TcpStream) -> io::Result<Then> {
    slow_from(scene, request, stream, 1630)
}

/// The end of the file, with the index, comes fast, the rest at a byte per second.
pub fn slow_but_for_the_end(scene: &Scene, request: &Request, stream: &mut TcpStream) -> io::Result<Then> {
    if request.range().is_some_and(|range| range.end == scene.archive.right.len() as u64) {
        honest(scene, request, stream)
    } else {
        a_byte_a_second(scene, request, stream)
    }
}

/// Never silent for long, with ranges and without.
pub fn a_byte_in_a_moment(scene: &Scene, request: &Request, stream: &mut TcpStream) -> io::Result<Then> {
    let bytes = &scene.archive.right;
    if request.method == "HEAD" {
        return honest(scene, request, stream);
    }
    let range = match range_head(scene, request, stream)? {
        Some(range) => range,
        None => {
            head(stream, "200 OK", &[("Content-Length", &bytes.len().to_string()), ("ETag", ETAG)])?;
            0..bytes.len()
        }
    };
    for byte in &bytes[range] {
        stream.write_all(std::slice::from_ref(byte))?;
        thread::sleep(Duration::from_millis(20));
    }
    Ok(Then::Close)
}
