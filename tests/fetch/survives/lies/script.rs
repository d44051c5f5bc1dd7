//! Scripts of lies, parsed from any bytes. Servers in this process follow a script while `fetch`
//! runs a few times in one directory. Each run must end, and a file with the archive's name must be
//! one of the archives, whole, unless it was there before. The test in `random` and `fuzz/` share this module.

use std::collections::BTreeSet;
use std::io::{self, Write};
use std::net::TcpStream;
use std::ops::Range;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicUsize};
use std::sync::{Arc, LazyLock};
use std::time::Duration;
use std::{fs, thread};

use slotpress::net::{Client, ClientOptions, FetchLimits, FetchOptions, FindOptions, SourceLocation};
use slotpress::types::ArchiveRoot;
use slotpress::{Progress, ProgressEvent};
use slotpress_format::{Entry, EntryKind};

use super::server::{Connection, Request, Server, send_file, send_head, send_redirect, send_response, stall};
use super::wrapped;

pub const NAME: &str = "snapshot-26-5vEhTbsmLTSSQvMC1NEepXxVeVqpHmy8HCue69xKz9nt.tar.zst";

/// Far less than the default of two minutes. The pauses between requests are fractions of this time.
const GIVE_UP_AFTER: Duration = Duration::from_millis(60);

/// Small, because an archive of a few hundred kB should take many requests.
const PIECE_BYTES_MAX: u64 = 64 * 1024;

/// Two archives of the same name and length, with different content.
struct Archives {
    original: Vec<u8>,
    other: Vec<u8>,
    /// Root of the original, if it has frame hashes.
    root: Option<ArchiveRoot>,
}

static HASHED: LazyLock<Archives> =
    LazyLock::new(|| make_archives(&|tar| wrapped::archive_with_index(tar, 8 * 1024, &|_| {})));
static SINGLE: LazyLock<Archives> = LazyLock::new(|| make_archives(&wrapped::compress_to_one_frame));

fn make_archives(make: &dyn Fn(&[u8]) -> Vec<u8>) -> Archives {
    // Archives must be longer than the last 256 KiB, which are fetched first.
    let [original, other] = [1, 2].map(|seed| make(&make_tar(seed, 480 * 1024)));
    assert_eq!(original.len(), other.len());
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join(NAME);
    fs::write(&path, &original).expect("written");
    // `fetch` checks a file that is already in the directory, and reports its root.
    let sources = [SourceLocation::ArchiveFile(path)];
    let client = Client::new(&ClientOptions::default()).expect("a client");
    let report = slotpress::net::fetch(&client, &FetchOptions::new(sources, dir.path()), &StopAfterBytes::never());
    let root = report.expect("accepted").archives[0].root;
    Archives { original, other, root }
}

/// Makes a tar stream whose content cannot be compressed.
fn make_tar(seed: u64, content_bytes: usize) -> Vec<u8> {
    let mut tar = Vec::new();
    let mut draw = seed;
    let mut add = |kind, content: &[u8]| {
        tar.extend_from_slice(&Entry { kind, content_bytes: content.len() as u64 }.header());
        tar.extend_from_slice(content);
        tar.resize(tar.len().next_multiple_of(512), 0);
    };
    add(EntryKind::Version, b"1.2.0");
    for id in 0..8 {
        let words = (0..content_bytes / 64).map(|_| {
            draw = draw.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            draw ^ (draw >> 29)
        });
        add(EntryKind::Storage { slot: 26, id }, &words.flat_map(u64::to_le_bytes).collect::<Vec<_>>());
    }
    tar.resize(tar.len() + 1024, 0);
    tar
}

/// What a server does when bytes are requested. A place is a fraction of the requested bytes, in units of
/// 1/65536.
#[derive(Clone, Copy, Debug)]
enum Action {
    /// Sends its archive.
    Honest,
    /// Sends the other archive's bytes under this one's ETag.
    Mixed,
    /// Sends the other archive under its own ETag.
    Other,
    /// Replaces the archive: from now on, the server has the archive that it did not have before.
    Published,
    /// Sends the bytes up to a place, and closes the connection.
    Cut(u16),
    /// Sends the bytes up to a place, pauses, then sends the rest. If there are frame hashes, the rest is
    /// that of the other archive.
    Late(u16),
    /// Flips one bit.
    Flipped(u16),
    /// Sends the whole archive for any request.
    Whole,
    /// Sends the archive up to a place, without a length.
    WithoutLength(u16),
    /// Sends a different range than the requested one.
    Shifted(u16),
    /// Sends a page with status 200.
    Page,
    /// Sends an error status, sometimes with a time to wait.
    Status(u16),
    /// Redirects: to itself, to a missing path, to a forbidden address.
    Redirect(u16),
    /// Sends the bytes up to a place, and nothing more.
    Stalled(u16),
    /// Sends the bytes up to a place, and then a byte every 10 ms.
    Trickled(u16),
    /// Closes the connection.
    Silent,
}

impl Action {
    /// Parses three bytes. Without frame hashes, a mix of two archives or a flipped bit would be found only
    /// when the archive is unpacked, so there are no such actions.
    fn parse(&[kind, high, low]: &[u8; 3], is_hashed: bool) -> Self {
        let place = u16::from_be_bytes([high, low]);
        match kind % 20 {
            5 if is_hashed => Self::Mixed,
            6 => Self::Other,
            7 => Self::Published,
            // Scripts with shorter cuts would end too, but after many pauses.
            8 | 9 => Self::Cut(place.max(8000)),
            10 | 11 => Self::Late(place),
            12 if is_hashed => Self::Flipped(place),
            13 => Self::Whole,
            14 => Self::WithoutLength(place),
            15 => Self::Shifted(place),
            16 => Self::Page,
            17 => Self::Status(place),
            18 => Self::Redirect(place),
            19 if place < 8000 => Self::Silent,
            19 if place % 2 == 1 => Self::Trickled(place),
            19 => Self::Stalled(place),
            _ => Self::Honest,
        }
    }
}

/// The way in which a server describes its file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ServerKind {
    Ranges,
    /// It announces no ranges, and sends none.
    Whole,
    /// It does not support `HEAD`.
    NoHead,
}

/// A script, read from bytes.
#[derive(Debug)]
struct Script {
    is_hashed: bool,
    has_two_servers: bool,
    expects_root: bool,
    streams: usize,
    /// The actions are repeated. Otherwise, a server that has finished its list is honest.
    is_repeated: bool,
    /// The arguments of `fetch` are URLs of servers, not of archives.
    names_servers: bool,
    /// Before the first run, a file with the archive's name contains its first half.
    has_half: bool,
    runs: u8,
    kinds: [ServerKind; 2],
    /// The first run is stopped when more than this number of bytes have arrived.
    stop_after_bytes: Option<i64>,
    actions: [Vec<Action>; 2],
}

impl Script {
    fn parse(bytes: &[u8]) -> Option<Self> {
        let (&[flags, settings, stop], actions) = bytes.split_first_chunk()?;
        let flag = |bit: u8| flags & (1 << bit) != 0;
        let server_kind = |bits: u8| {
            [ServerKind::Ranges, ServerKind::Ranges, ServerKind::Whole, ServerKind::NoHead][usize::from(bits % 4)]
        };
        let actions = actions.chunks_exact(3).take(48).filter_map(|action| action.first_chunk::<3>());
        let mut first = Vec::new();
        let mut second = Vec::new();
        for action in actions {
            let server_actions = if action[0] < 128 { &mut first } else { &mut second };
            server_actions.push(Action::parse(&[action[0] % 128, action[1], action[2]], !flag(0)));
        }
        Some(Self {
            is_hashed: !flag(0),
            has_two_servers: flag(1),
            expects_root: flag(2) && !flag(0),
            streams: 1 + usize::from((flags >> 3) % 4),
            is_repeated: flag(5),
            names_servers: flag(6),
            has_half: flag(7),
            runs: 1 + settings % 3,
            kinds: [server_kind(settings >> 2), server_kind(settings >> 4)],
            stop_after_bytes: (stop > 127).then(|| i64::from(stop - 128) * 4096),
            actions: [first, second],
        })
    }
}

/// The file that a server has at a moment.
struct ServedFile {
    bytes: &'static [u8],
    /// The archive of the same name that the server does not have.
    other: &'static [u8],
    etag: &'static str,
}

/// A server that follows a script.
struct ScriptedServer {
    archives: &'static Archives,
    actions: Vec<Action>,
    is_repeated: bool,
    kind: ServerKind,
    next: AtomicUsize,
    /// True if it has the other archive now.
    has_other: AtomicBool,
    /// True if the script is over.
    is_over: AtomicBool,
}

impl ScriptedServer {
    fn next_action(&self) -> Action {
        let number = self.next.fetch_add(1, Relaxed);
        match self.actions.len() {
            0 => Action::Honest,
            count if self.is_repeated => self.actions[number % count],
            _ => self.actions.get(number).copied().unwrap_or(Action::Honest),
        }
    }

    fn served_file(&self) -> ServedFile {
        let Archives { original, other, .. } = self.archives;
        if self.has_other.load(Relaxed) {
            ServedFile { bytes: other, other: original, etag: "\"other\"" }
        } else {
            ServedFile { bytes: original, other, etag: "\"original\"" }
        }
    }

    fn respond(&self, request: &Request, stream: &mut TcpStream) -> io::Result<Connection> {
        // Connections that stay open after the script must not be used by the next one.
        if self.is_over.load(Relaxed) {
            return Ok(Connection::Close);
        }
        match request.path.as_str() {
            "/snapshot.tar.bz2" => return send_redirect(stream, &format!("/{NAME}")),
            path if path.strip_prefix('/') != Some(NAME) => return send_response(stream, "404 Not Found", &[], b""),
            _ => {}
        }
        let served = self.served_file();
        match (request.method.as_str(), self.kind) {
            ("HEAD", ServerKind::NoHead) => {
                return send_response(stream, "405 Method Not Allowed", &[("Connection", "close")], b"");
            }
            ("HEAD", ServerKind::Whole) => {
                send_head(stream, "200 OK", &[("Content-Length", &served.bytes.len().to_string())])?;
                return Ok(Connection::KeepAlive);
            }
            ("HEAD", ServerKind::Ranges) => return send_file(request, stream, served.bytes, served.etag),
            _ => {}
        }
        let action = self.next_action();
        if let Action::Published = action {
            self.has_other.fetch_xor(true, Relaxed);
        }
        // The action may have replaced the served file.
        let served = self.served_file();
        if self.kind == ServerKind::Whole {
            return self.respond_whole(action, stream, &served);
        }
        let ServedFile { bytes: own_bytes, etag, .. } = served;
        match action {
            Action::Honest | Action::Published => send_file(request, stream, own_bytes, etag),
            Action::Mixed => send_file(request, stream, served.other, etag),
            Action::Other => send_file(request, stream, &self.archives.other, "\"other\""),
            Action::Flipped(place) => {
                let mut bytes = own_bytes.to_vec();
                bytes[find_flippable(own_bytes, offset_in(&range_of(request, own_bytes.len()), place))] ^= 1;
                send_file(request, stream, &bytes, etag)
            }
            Action::Cut(place) => send_parts(request, stream, &served, place, AnswerRest::Closed),
            Action::Late(place) => {
                let late = if self.archives.root.is_some() { served.other } else { own_bytes };
                send_parts(request, stream, &served, place, AnswerRest::AfterPause(late))
            }
            Action::Stalled(place) => send_parts(request, stream, &served, place, AnswerRest::Never),
            Action::Trickled(place) => send_parts(request, stream, &served, place, AnswerRest::Slowly),
            Action::Shifted(by) => {
                let range = range_of(request, own_bytes.len());
                let start = range.start + usize::from(by) % 1000;
                let content_range = format!("bytes {start}-{}/{}", start + range.len() - 1, own_bytes.len());
                send_response(
                    stream,
                    "206 Partial Content",
                    &[("Content-Range", &content_range), ("ETag", etag)],
                    &own_bytes[range],
                )
            }
            _ => self.respond_whole(action, stream, &served),
        }
    }

    /// Answers without ranges.
    fn respond_whole(&self, action: Action, stream: &mut TcpStream, served: &ServedFile) -> io::Result<Connection> {
        let ServedFile { bytes: own_bytes, other, etag } = *served;
        let part = |place: u16| offset_in(&(0..own_bytes.len()), place);
        let send_whole_head = |stream: &mut TcpStream| {
            send_head(stream, "200 OK", &[("Content-Length", &own_bytes.len().to_string()), ("Connection", "close")])
        };
        match action {
            Action::Mixed | Action::Other => send_response(stream, "200 OK", &[], other),
            Action::Cut(place) | Action::Late(place) | Action::Stalled(place) | Action::Trickled(place) => {
                send_whole_head(stream)?;
                stream.write_all(&own_bytes[..part(place)])?;
                match action {
                    Action::Late(_) if self.archives.root.is_some() => stream.write_all(&other[part(place)..])?,
                    Action::Late(_) => stream.write_all(&own_bytes[part(place)..])?,
                    Action::Stalled(_) => return stall(stream),
                    Action::Trickled(_) => trickle(stream, &own_bytes[part(place)..])?,
                    _ => {}
                }
                Ok(Connection::Close)
            }
            Action::WithoutLength(place) => {
                send_head(stream, "200 OK", &[("Connection", "close")])?;
                stream.write_all(&own_bytes[..part(place)])?;
                Ok(Connection::Close)
            }
            Action::Flipped(place) => {
                let mut bytes = own_bytes.to_vec();
                bytes[find_flippable(own_bytes, part(place))] ^= 1;
                send_response(stream, "200 OK", &[], &bytes)
            }
            Action::Page => send_response(stream, "200 OK", &[], &b"<!DOCTYPE html><html>503</html>\n".repeat(500)),
            Action::Status(choice) => {
                let all =
                    ["503 Service Unavailable", "500 Internal Server Error", "404 Not Found", "429 Too Many Requests"];
                let wait: &[_] = if choice & 4 == 0 { &[] } else { &[("Retry-After", "1")] };
                send_response(stream, all[usize::from(choice % 4)], wait, b"")
            }
            Action::Redirect(choice) => send_redirect(
                stream,
                &["/gone".to_string(), format!("/{NAME}"), "http://10.0.0.1/x".into()][usize::from(choice % 3)],
            ),
            Action::Silent => Ok(Connection::Close),
            _ => send_response(stream, "200 OK", &[("ETag", etag)], own_bytes),
        }
    }
}

/// The way in which the rest of a response arrives.
enum AnswerRest<'a> {
    /// The connection is closed.
    Closed,
    /// These bytes of an archive arrive after a pause.
    AfterPause(&'a [u8]),
    /// A byte arrives every 10 ms.
    Slowly,
    Never,
}

fn trickle(stream: &mut TcpStream, bytes: &[u8]) -> io::Result<()> {
    for byte in bytes {
        stream.write_all(std::slice::from_ref(byte))?;
        thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}

fn range_of(request: &Request, length: usize) -> Range<usize> {
    let range = request.range().unwrap_or(0..length as u64);
    (range.start as usize).min(length - 1)..(range.end as usize).min(length)
}

/// Returns an offset near this one where `fetch` notices a flipped bit. In the header that announces an index, a
/// flipped bit goes unnoticed: without the index there are no frame hashes, and only unpacking shows the fault.
fn find_flippable(bytes: &[u8], offset: usize) -> usize {
    let header_offset = bytes.windows(8).rposition(|window| window == b"slotidx2");
    match header_offset {
        Some(header) if (header - 8..header + 8).contains(&offset) => header + 8,
        _ => offset.min(bytes.len() - 1),
    }
}

fn offset_in(range: &Range<usize>, place: u16) -> usize {
    range.start + range.len() * usize::from(place) / 65536
}

/// Sends the head of a range, the bytes up to a place, and perhaps the rest.
fn send_parts(
    request: &Request,
    stream: &mut TcpStream,
    served: &ServedFile,
    place: u16,
    rest: AnswerRest<'_>,
) -> io::Result<Connection> {
    let bytes = served.bytes;
    let range = range_of(request, bytes.len());
    let middle = offset_in(&range, place);
    let content_range = format!("bytes {}-{}/{}", range.start, range.end - 1, bytes.len());
    let content_length = range.len().to_string();
    let fields =
        [("Content-Range", content_range.as_str()), ("Content-Length", &content_length), ("ETag", served.etag)];
    send_head(stream, "206 Partial Content", &fields)?;
    stream.write_all(&bytes[range.start..middle])?;
    match rest {
        AnswerRest::Closed => {}
        AnswerRest::Never => return stall(stream),
        AnswerRest::Slowly => trickle(stream, &bytes[middle..range.end])?,
        AnswerRest::AfterPause(late) => {
            thread::sleep(Duration::from_millis(5));
            stream.write_all(&late[middle..range.end])?;
        }
    }
    Ok(Connection::Close)
}

/// Stops a run when more than this number of bytes have arrived.
struct StopAfterBytes(AtomicI64);

impl StopAfterBytes {
    fn never() -> Self {
        Self(AtomicI64::new(i64::MAX))
    }
}

impl Progress for StopAfterBytes {
    fn event(&self, event: ProgressEvent<'_>) {
        if let ProgressEvent::Bytes { input, .. } = event {
            self.0.fetch_sub(input as i64, Relaxed);
        }
    }

    fn is_interrupted(&self) -> bool {
        self.0.load(Relaxed) < 0
    }
}

/// Runs a script; returns the number of runs that ended with an archive.
pub fn run(bytes: &[u8]) -> usize {
    let Some(script) = Script::parse(bytes) else { return 0 };
    let archives: &'static Archives = if script.is_hashed { &HASHED } else { &SINGLE };
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join(NAME);
    if script.has_half {
        fs::write(&path, &archives.original[..archives.original.len() / 2]).expect("written");
    }
    let scripted = [0, 1].map(|server| {
        Arc::new(ScriptedServer {
            archives,
            actions: script.actions[server].clone(),
            is_repeated: script.is_repeated,
            kind: script.kinds[server],
            next: AtomicUsize::new(0),
            has_other: AtomicBool::new(false),
            is_over: AtomicBool::new(false),
        })
    });
    let servers: Vec<Server> = scripted.each_ref()[..1 + usize::from(script.has_two_servers)]
        .iter()
        .map(|server| {
            let server = Arc::clone(server);
            Server::start(move |request, stream| server.respond(request, stream))
        })
        .collect();
    let requested_path = if script.names_servers { String::new() } else { format!("/{NAME}") };
    let sources = servers.iter().map(|server| server.url(&requested_path).parse::<SourceLocation>().expect("a URL"));
    let find = FindOptions::default().sources(Vec::from_iter(sources));
    let limits =
        FetchLimits::default().streams(script.streams).give_up_after(GIVE_UP_AFTER).piece_bytes_max(PIECE_BYTES_MAX);
    let mut options = FetchOptions::new(find.incremental(false), dir.path()).limits(limits);
    options.expect_root = if script.expects_root { archives.root } else { None };
    let time = Duration::from_millis(100);
    let client_options = ClientOptions::default().connect_timeout(time).head_timeout(time).read_timeout(time);
    let client = Client::new(&client_options).expect("a client");
    let mut named_count = 0;
    for run in 0..script.runs {
        let before = fs::read(&path).ok();
        let stop = if run == 0 { script.stop_after_bytes } else { None };
        let stop = stop.map_or_else(StopAfterBytes::never, |after| StopAfterBytes(AtomicI64::new(after)));
        let fetched = slotpress::net::fetch(&client, &options, &stop);
        let file_bytes = fs::read(&path).ok();
        let context = || {
            let description = file_bytes.as_deref().map(|bytes| {
                let equal_bytes =
                    |archive: &[u8]| bytes.iter().zip(archive).take_while(|(byte, expected)| byte == expected).count();
                let [original, other] = [&archives.original, &archives.other].map(|archive| equal_bytes(archive));
                format!("{} bytes, the first {original} as in the original, {other} as in the other", bytes.len())
            });
            format!("run {run}: {:?}, file {description:?}: {script:?}", fetched.as_ref().map(|_| ()))
        };
        let is_whole = file_bytes
            .as_ref()
            .is_some_and(|bytes| *bytes == archives.original || (*bytes == archives.other && !script.expects_root));
        assert!(fetched.is_err() || is_whole, "the named file is not one of the archives: {}", context());
        assert!(is_whole || file_bytes.is_none() || file_bytes == before, "another file has the name: {}", context());
        let names = fs::read_dir(dir.path()).expect("a directory").map(|entry| entry.expect("an entry").file_name());
        let names: BTreeSet<String> = names.map(|name| name.into_string().expect("text")).collect();
        let is_expected = |name: &String| name == NAME || name.starts_with("slotpress-fetch-");
        assert!(names.iter().all(is_expected), "{names:?}: {}", context());
        assert!(fetched.is_err() || names.len() == 1, "{names:?} are left: {}", context());
        named_count += usize::from(is_whole);
    }
    scripted.iter().for_each(|server| server.is_over.store(true, Relaxed));
    named_count
}
