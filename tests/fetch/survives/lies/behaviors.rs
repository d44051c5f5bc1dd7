//! Correct and wrong behaviors of servers.

use std::io::{self, Write};
use std::net::TcpStream;
use std::sync::atomic::Ordering::Relaxed;
use std::thread;
use std::time::Duration;

use super::lying_server::ServerState;
use crate::common::http::{Connection, Request, send_file, send_head, send_response};
use crate::common::wait_for;

const ETAG: &str = "\"the-same\"";

/// Sends ranges of these bytes, always with the same ETag.
fn send_ranges(state: &ServerState, request: &Request, stream: &mut TcpStream, bytes: &[u8]) -> io::Result<Connection> {
    if request.method == "GET" {
        let range = request.range().map_or(bytes.len() as u64, |range| range.end.min(bytes.len() as u64) - range.start);
        state.sent_bytes.fetch_add(range as usize, Relaxed);
    }
    send_file(request, stream, bytes, ETAG)
}

/// Sends all of these bytes, even if a range is requested.
fn send_whole(state: &ServerState, request: &Request, stream: &mut TcpStream, bytes: &[u8]) -> io::Result<Connection> {
    if request.method == "HEAD" {
        send_head(stream, "200 OK", &[("Content-Length", &bytes.len().to_string())])?;
        return Ok(Connection::KeepAlive);
    }
    state.sent_bytes.fetch_add(bytes.len(), Relaxed);
    send_response(stream, "200 OK", &[], bytes)
}

/// Sends the head of an answer with a range, and returns the range, whose bytes the caller sends. Sends
/// nothing and returns `None` if the request has no range.
fn send_range_head(
    state: &ServerState,
    request: &Request,
    stream: &mut TcpStream,
) -> io::Result<Option<std::ops::Range<usize>>> {
    let length = state.archive.original.len();
    let Some(range) = request.range().filter(|_| request.method == "GET") else { return Ok(None) };
    let range = range.start as usize..(range.end as usize).min(length);
    let content_range = format!("bytes {}-{}/{length}", range.start, range.end - 1);
    let content_length = range.len().to_string();
    let headers = [("Content-Range", content_range.as_str()), ("Content-Length", &content_length), ("ETag", ETAG)];
    send_head(stream, "206 Partial Content", &headers)?;
    state.sent_bytes.fetch_add(range.len(), Relaxed);
    Ok(Some(range))
}

fn flip_bit(bytes: &[u8], offset: usize) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    bytes[offset] ^= 1;
    bytes
}

fn page() -> Vec<u8> {
    b"<!DOCTYPE html><html><body>503 Service Unavailable</body></html>\n".repeat(500)
}

pub fn honest(state: &ServerState, request: &Request, stream: &mut TcpStream) -> io::Result<Connection> {
    send_ranges(state, request, stream, &state.archive.original)
}

pub fn honest_without_ranges(state: &ServerState, request: &Request, stream: &mut TcpStream) -> io::Result<Connection> {
    send_whole(state, request, stream, &state.archive.original)
}

pub fn page_in_ranges(state: &ServerState, request: &Request, stream: &mut TcpStream) -> io::Result<Connection> {
    send_ranges(state, request, stream, &page())
}

pub fn page_whole(state: &ServerState, request: &Request, stream: &mut TcpStream) -> io::Result<Connection> {
    send_whole(state, request, stream, &page())
}

pub fn zeros(state: &ServerState, request: &Request, stream: &mut TcpStream) -> io::Result<Connection> {
    send_ranges(state, request, stream, &vec![0; 3 << 20])
}

pub fn empty(state: &ServerState, request: &Request, stream: &mut TcpStream) -> io::Result<Connection> {
    send_whole(state, request, stream, &[])
}

pub fn half_in_ranges(state: &ServerState, request: &Request, stream: &mut TcpStream) -> io::Result<Connection> {
    send_ranges(state, request, stream, &state.archive.original[..state.archive.original.len() / 2])
}

pub fn half_whole(state: &ServerState, request: &Request, stream: &mut TcpStream) -> io::Result<Connection> {
    send_whole(state, request, stream, &state.archive.original[..state.archive.original.len() / 2])
}

/// Sends half without a length: only the end of the connection marks the end of the file.
pub fn half_without_length(state: &ServerState, request: &Request, stream: &mut TcpStream) -> io::Result<Connection> {
    send_head(stream, "200 OK", &[("Connection", "close")])?;
    if request.method == "GET" {
        stream.write_all(&state.archive.original[..state.archive.original.len() / 2])?;
    }
    Ok(Connection::Close)
}

pub fn flipped_in_ranges(state: &ServerState, request: &Request, stream: &mut TcpStream) -> io::Result<Connection> {
    send_ranges(state, request, stream, &flip_bit(&state.archive.original, state.archive.original.len() / 2))
}

pub fn flipped_whole(state: &ServerState, request: &Request, stream: &mut TcpStream) -> io::Result<Connection> {
    send_whole(state, request, stream, &flip_bit(&state.archive.original, state.archive.original.len() / 2))
}

/// Flips a bit of the index, before the seek table.
pub fn flipped_in_index(state: &ServerState, request: &Request, stream: &mut TcpStream) -> io::Result<Connection> {
    let bytes = &state.archive.original;
    let hashes = bytes.windows(8).rposition(|window| window == b"slotidx2").expect("an index");
    send_ranges(state, request, stream, &flip_bit(bytes, hashes + 40))
}

/// Flips a bit of the last bytes, which say where the index and the seek table begin.
pub fn flipped_in_last_bytes(state: &ServerState, request: &Request, stream: &mut TcpStream) -> io::Result<Connection> {
    let bytes = &state.archive.original;
    send_ranges(state, request, stream, &flip_bit(bytes, bytes.len() - 2))
}

pub fn other_archive(state: &ServerState, request: &Request, stream: &mut TcpStream) -> io::Result<Connection> {
    send_file(request, stream, &state.archive.other, "\"other\"")
}

pub fn other_archive_whole(state: &ServerState, request: &Request, stream: &mut TcpStream) -> io::Result<Connection> {
    send_whole(state, request, stream, &state.archive.other)
}

/// Announces ranges, but sends the whole file.
pub fn ranges_only_announced(state: &ServerState, request: &Request, stream: &mut TcpStream) -> io::Result<Connection> {
    let bytes = &state.archive.original;
    send_head(stream, "200 OK", &[("Accept-Ranges", "bytes"), ("Content-Length", &bytes.len().to_string())])?;
    if request.method == "GET" {
        // The client soon closes the connection, so only an eighth of the bytes counts as sent.
        state.sent_bytes.fetch_add(bytes.len() / 8, Relaxed);
        stream.write_all(bytes)?;
    }
    Ok(Connection::KeepAlive)
}

/// Sends a different range than the requested one.
pub fn other_ranges(state: &ServerState, request: &Request, stream: &mut TcpStream) -> io::Result<Connection> {
    let length = state.archive.original.len();
    let Some(range) = request.range().filter(|_| request.method == "GET") else {
        return honest(state, request, stream);
    };
    let content_range = format!("bytes {}-{}/{length}", range.start + 1, range.end);
    let body = vec![7; (range.end - range.start) as usize];
    send_response(stream, "206 Partial Content", &[("Content-Range", &content_range)], &body)
}

/// Sends 600 kB of the first long range, waits until the client has the rest from another connection, and
/// then sends wrong bytes.
pub fn late_garbage(state: &ServerState, request: &Request, stream: &mut TcpStream) -> io::Result<Connection> {
    const FIRST_BYTES: usize = 600_000;
    const FETCHED_ELSEWHERE: usize = 1;
    // True if the client has closed this connection.
    let is_closed = |stream: &TcpStream| {
        stream.set_nonblocking(true).expect("set");
        let peeked_bytes = stream.peek(&mut [0]);
        stream.set_nonblocking(false).expect("set");
        peeked_bytes.is_ok_and(|bytes| bytes == 0)
    };
    // Leaves out the end of the file, which comes first over one connection.
    let end_max = state.archive.original.len() as u64 * 3 / 4;
    let is_long =
        |range: &std::ops::Range<u64>| range.end - range.start > FIRST_BYTES as u64 + 300_000 && range.end < end_max;
    let start = request.range().map_or(0, |range| range.start as usize);
    let late_from = start + FIRST_BYTES;
    if !request.range().as_ref().is_some_and(is_long)
        || state.counter.compare_exchange(0, late_from, Relaxed, Relaxed).is_err()
    {
        let late_from = state.counter.load(Relaxed);
        let is_rest =
            late_from > FETCHED_ELSEWHERE && (late_from.saturating_sub(FIRST_BYTES / 2)..=late_from).contains(&start);
        let result = honest(state, request, stream);
        if is_rest {
            state.counter.store(FETCHED_ELSEWHERE, Relaxed);
        }
        return result;
    }
    let Some(range) = send_range_head(state, request, stream)? else { return Ok(Connection::Close) };
    stream.write_all(&state.archive.original[range.start..range.start + FIRST_BYTES])?;
    stream.flush()?;
    wait_for("another connection to send the rest", || {
        state.counter.load(Relaxed) == FETCHED_ELSEWHERE || is_closed(stream)
    });
    // Once the client has sent other requests, it has the rest. When it has all bytes, it closes the connection.
    let gets_before = state.get_count.load(Relaxed);
    wait_for("the client to have the rest", || state.get_count.load(Relaxed) > gets_before + 1 || is_closed(stream));
    stream.write_all(&vec![7; range.len() - FIRST_BYTES])?;
    Ok(Connection::Close)
}

/// Ends each connection after a part of a frame.
pub fn cut_often(state: &ServerState, request: &Request, stream: &mut TcpStream) -> io::Result<Connection> {
    const CUT_BYTES: usize = 100_000;
    let Some(range) = send_range_head(state, request, stream)? else { return honest(state, request, stream) };
    let end = range.end.min(range.start + CUT_BYTES);
    state.sent_bytes.fetch_sub(range.end - end, Relaxed);
    stream.write_all(&state.archive.original[range.start..end])?;
    Ok(Connection::Close)
}

/// Answers the first requests with 503 and a time to wait.
pub fn busy_at_first(state: &ServerState, request: &Request, stream: &mut TcpStream) -> io::Result<Connection> {
    if request.method == "GET" && state.get_count.load(Relaxed) < 3 {
        return send_response(stream, "503 Service Unavailable", &[("Retry-After", "1")], b"busy");
    }
    honest(state, request, stream)
}

/// Closes the first connections without an answer.
pub fn silent_at_first(state: &ServerState, request: &Request, stream: &mut TcpStream) -> io::Result<Connection> {
    if request.method == "GET" && state.get_count.load(Relaxed) < 3 {
        return Ok(Connection::Close);
    }
    honest(state, request, stream)
}

/// Sends a different archive of the same name once four requests have been answered.
pub fn replaced(state: &ServerState, request: &Request, stream: &mut TcpStream) -> io::Result<Connection> {
    match state.get_count.load(Relaxed) {
        0..4 => send_file(request, stream, &state.archive.original, ETAG),
        _ => send_file(request, stream, &state.archive.other, "\"new\""),
    }
}

/// Alternates between two archives from request to request.
pub fn replaced_again_and_again(
    state: &ServerState,
    request: &Request,
    stream: &mut TcpStream,
) -> io::Result<Connection> {
    let number = state.counter.fetch_add(1, Relaxed);
    let bytes = if number.is_multiple_of(2) { &state.archive.original } else { &state.archive.other };
    send_file(request, stream, bytes, &format!("\"{number}\""))
}

/// Answers that the archive is gone once three requests have been answered.
pub fn gone_midway(state: &ServerState, request: &Request, stream: &mut TcpStream) -> io::Result<Connection> {
    match state.get_count.load(Relaxed) {
        0..3 => honest(state, request, stream),
        _ => send_response(stream, "404 Not Found", &[], b""),
    }
}

/// Sends more bytes than stated.
pub fn endless(state: &ServerState, request: &Request, stream: &mut TcpStream) -> io::Result<Connection> {
    if request.method == "HEAD" {
        return honest_without_ranges(state, request, stream);
    }
    send_head(stream, "200 OK", &[("Connection", "close")])?;
    let mut remaining_bytes = 40 << 20;
    while remaining_bytes > 0 && stream.write_all(&state.archive.original).is_ok() {
        remaining_bytes -= state.archive.original.len().min(remaining_bytes);
    }
    Ok(Connection::Close)
}

/// Sends a byte per second for as long as the client waits.
fn trickle(state: &ServerState, stream: &mut TcpStream, bytes: &[u8]) -> io::Result<Connection> {
    for byte in bytes {
        stream.write_all(std::slice::from_ref(byte))?;
        state.sent_bytes.fetch_add(1, Relaxed);
        thread::sleep(Duration::from_secs(1));
    }
    Ok(Connection::Close)
}

/// Sends a range fast, except for its last `slow_bytes`, which it sends at a byte per second.
fn send_with_slow_end(
    state: &ServerState,
    request: &Request,
    stream: &mut TcpStream,
    slow_bytes: usize,
) -> io::Result<Connection> {
    let Some(range) = send_range_head(state, request, stream)? else { return honest(state, request, stream) };
    let slow = range.end - slow_bytes.min(range.len())..range.end;
    state.sent_bytes.fetch_sub(slow.len(), Relaxed);
    stream.write_all(&state.archive.original[range.start..slow.start])?;
    trickle(state, stream, &state.archive.original[slow])
}

pub fn a_byte_a_second(state: &ServerState, request: &Request, stream: &mut TcpStream) -> io::Result<Connection> {
    send_with_slow_end(state, request, stream, usize::MAX)
}

/// Sends each range fast except for its last bytes.
pub fn slow_end_of_each_range(
    state: &ServerState,
    request: &Request,
    stream: &mut TcpStream,
) -> io::Result<Connection> {
    send_with_slow_end(state, request, stream, 1630)
}

/// Sends the end of the file, with the index, fast, and the rest at a byte per second.
pub fn slow_except_end_of_file(
    state: &ServerState,
    request: &Request,
    stream: &mut TcpStream,
) -> io::Result<Connection> {
    if request.range().is_some_and(|range| range.end == state.archive.original.len() as u64) {
        honest(state, request, stream)
    } else {
        a_byte_a_second(state, request, stream)
    }
}

/// Sends a byte every 20 ms, with ranges and without.
pub fn a_byte_every_20_ms(state: &ServerState, request: &Request, stream: &mut TcpStream) -> io::Result<Connection> {
    let bytes = &state.archive.original;
    if request.method == "HEAD" {
        return honest(state, request, stream);
    }
    let range = match send_range_head(state, request, stream)? {
        Some(range) => range,
        None => {
            send_head(stream, "200 OK", &[("Content-Length", &bytes.len().to_string()), ("ETag", ETAG)])?;
            0..bytes.len()
        }
    };
    for byte in &bytes[range] {
        stream.write_all(std::slice::from_ref(byte))?;
        thread::sleep(Duration::from_millis(20));
    }
    Ok(Connection::Close)
}
