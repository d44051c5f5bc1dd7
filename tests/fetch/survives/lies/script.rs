//! Scripts of lies, made of any bytes. Servers in this process play a script while `fetch` runs a
//! few times in one directory. Each run must end, and a file with the archive's name must be one of
//! the archives, whole. The property test here and `fuzz/` share this module.

use std::collections::BTreeSet;
use std::io::{self, Write};
use std::net::TcpStream;
use std::ops::Range;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicUsize};
use std::sync::{Arc, LazyLock};
use std::time::Duration;
use std::{fs, thread};

use slotpress::net::{Client, ClientOptions, FetchLimits, FetchOptions, FindOptions, SourceArg};
use slotpress::types::Root;
use slotpress::{Progress, ProgressEvent};
use slotpress_format::{Entry, EntryKind};

use super::server::{Request, Server, Then, answer, file, head, redirect, stall};
use super::wrapped;

pub const NAME: &str = "snapshot-26-5vEhTbsmLTSSQvMC1NEepXxVeVqpHmy8HCue69xKz9nt.tar.zst";

/// Replaces the usual wait of two minutes; pauses follow from it.
const GIVE_UP_AFTER: Duration = Duration::from_millis(60);

/// Short, so that an archive of some hundred kB takes many requests.
const PIECE_BYTES_MAX: u64 = 64 * 1024;

/// Two archives of one name and length, whose bytes differ everywhere.
struct Archives {
    right: Vec<u8>,
    other: Vec<u8>,
    /// Root of the right archive, if it has frame hashes.
    root: Option<Root>,
}

static HASHED: LazyLock<Archives> = LazyLock::new(|| archives(&|tar| wrapped::with_index(tar, 8 * 1024, &|_| {})));
static SINGLE: LazyLock<Archives> = LazyLock::new(|| archives(&wrapped::in_one_frame));

fn archives(make: &dyn Fn(&[u8]) -> Vec<u8>) -> Archives {
    // More than the 256 KiB at the end of an archive that are fetched first.
    let [right, other] = [1, 2].map(|seed| make(&tar(seed, 480 * 1024)));
    assert_eq!(right.len(), other.len());
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join(NAME);
    fs::write(&path, &right).expect("written");
    // If `fetch` finds a file in the directory, it accepts it or not, and shows the root.
    let sources = [SourceArg::LocalFile(path)];
    let client = Client::new(&ClientOptions::default()).expect("a client");
    let report = slotpress::net::fetch(&client, &FetchOptions::new(sources, dir.path()), &Stop::never());
    let root = report.expect("accepted").archives[0].root;
    Archives { right, other, root }
}

/// A tar stream whose content cannot be compressed.
fn tar(seed: u64, content_bytes: usize) -> Vec<u8> {
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

/// What a server does with one request for bytes. Places are parts of the requested bytes, in units
/// of 1 / 65536.
#[derive(Clone, Copy, Debug)]
enum Act {
    /// Sends its archive.
    Honest,
    /// Sends the other archive's bytes under this one's ETag.
    Mixed,
    /// Sends the other archive under its own ETag.
    Other,
    /// Publishes the name again: from now on, it has the other archive, or the first one again.
    Published,
    /// Sends the bytes up to a place, and closes the connection.
    Cut(u16),
    /// Sends the bytes up to a place, pauses, then sends the other archive's.
    Late(u16),
    /// Flips one bit.
    Flipped(u16),
    /// Sends everything for any request.
    Whole,
    /// Sends everything up to a place, without a length.
    WithoutLength(u16),
    /// Sends a range that was not requested.
    Shifted(u16),
    /// Sends a page with status 200.
    Page,
    /// Sends an error status, sometimes with a time to wait.
    Status(u16),
    /// Redirects: to itself, to a missing path, to a forbidden address.
    Redirect(u16),
    /// Sends the bytes up to a place, and nothing more.
    Stalled(u16),
    /// Sends the bytes up to a place, and then too few per second.
    Trickled(u16),
    /// Closes the connection.
    Silent,
}

impl Act {
    /// Returns the act of three bytes. Without frame hashes, wrong bytes are found only when the
    /// archive is unpacked, so there are no such acts.
    fn of(&[kind, high, low]: &[u8; 3], is_hashed: bool) -> Self {
        let place = u16::from_be_bytes([high, low]);
        match kind % 20 {
            5 if is_hashed => Self::Mixed,
            6 => Self::Other,
            7 => Self::Published,
            // Shorter cuts end too, but after many pauses.
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

/// How a server describes its file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Manner {
    Ranges,
    /// It announces no ranges, and sends none.
    Whole,
    /// It knows no `HEAD`.
    NoHead,
}

/// A script, read from bytes.
#[derive(Debug)]
struct Script {
    is_hashed: bool,
    /// Two servers instead of one.
    is_pair: bool,
    expects_root: bool,
    streams: usize,
    /// Repeats the acts. Without this, all acts after the last are honest.
    is_repeated: bool,
    /// `fetch` gets URLs of servers, not of archives.
    names_servers: bool,
    /// At first, a file with the archive's name holds its first half.
    is_half_there: bool,
    runs: u8,
    io_policy: [Manner; 2],
    /// Stops the first run when so many bytes have arrived.
    stopped_after: Option<i64>,
    acts: [Vec<Act>; 2],
}

impl Script {
    fn of(bytes: &[u8]) -> Option<Self> {
        let (&[flags, more, stop], acts) = bytes.split_first_chunk()?;
        let is = |bit: u8| flags & (1 << bit) != 0;
        let manner = |bits: u8| [Manner::Ranges, Manner::Ranges, Manner::Whole, Manner::NoHead][usize::from(bits % 4)];
        let acts = acts.chunks_exact(3).take(48).filter_map(|act| act.first_chunk::<3>());
        let mut first = Vec::new();
        let mut second = Vec::new();
        for act in acts {
            let to = if act[0] < 128 { &mut first } else { &mut second };
            to.push(Act::of(&[act[0] % 128, act[1], act[2]], !is(0)));
        }
        Some(Self {
            is_hashed: !is(0),
            is_pair: is(1),
            expects_root: is(2) && !is(0),
            streams: 1 + usize::from((flags >> 3) % 4),
            is_repeated: is(5),
            names_servers: is(6),
            is_half_there: is(7),
            runs: 1 + more % 3,
            io_policy: [manner(more >> 2), manner(more >> 4)],
            stopped_after: (stop > 127).then(|| i64::from(stop - 128) * 4096),
            acts: [first, second],
        })
    }
}

/// The state of a server while a script is played.
struct Scene {
    archives: &'static Archives,
    acts: Vec<Act>,
    is_repeated: bool,
    manner: Manner,
    next: AtomicUsize,
    /// True if it has the other archive now.
    has_other: AtomicBool,
    /// True if the script is over.
    is_over: AtomicBool,
}

impl Scene {
    fn next_act(&self) -> Act {
        let number = self.next.fetch_add(1, Relaxed);
        match self.acts.len() {
            0 => Act::Honest,
            count if self.is_repeated => self.acts[number % count],
            _ => self.acts.get(number).copied().unwrap_or(Act::Honest),
        }
    }

    /// Returns the archive that it has, the one that it does not have, and the ETag of the first.
    fn files(&self) -> (&'static [u8], &'static [u8], &'static str) {
        let Archives { right, other, .. } = self.archives;
        if self.has_other.load(Relaxed) { (other, right, "\"other\"") } else { (right, other, "\"right\"") }
    }

    fn respond(&self, request: &Request, stream: &mut TcpStream) -> io::Result<Then> {
        match request.path.as_str() {
            // A connection of an earlier run must not be used in the next one.
            _ if self.is_over.load(Relaxed) => return Ok(Then::Close),
            "/snapshot.tar.bz2" => return redirect(stream, &format!("/{NAME}")),
            path if path.strip_prefix('/') != Some(NAME) => return answer(stream, "404 Not Found", &[], b""),
            _ => {}
        }
        let (mine, _, tag) = self.files();
        match (request.method.as_str(), self.manner) {
            ("HEAD", Manner::NoHead) => {
                return answer(stream, "405 Method Not Allowed", &[("Connection", "close")], b"");
            }
            ("HEAD", Manner::Whole) => {
                head(stream, "200 OK", &[("Content-Length", &mine.len().to_string())])?;
                return Ok(Then::Keep);
            }
            ("HEAD", Manner::Ranges) => return file(request, stream, mine, tag),
            _ => {}
        }
        let act = self.next_act();
        if let Act::Published = act {
            self.has_other.fetch_xor(true, Relaxed);
        }
        let (mine, other, tag) = self.files();
        if self.manner == Manner::Whole {
            return self.respond_whole(act, stream, (mine, other, tag));
        }
        match act {
            Act::Honest | Act::Published => file(request, stream, mine, tag),
            Act::Mixed => file(request, stream, other, tag),
            Act::Other => file(request, stream, &self.archives.other, "\"other\""),
            Act::Flipped(at) => {
                let mut bytes = mine.to_vec();
                bytes[flippable(mine, part_of(&range_of(request, mine.len()), at))] ^= 1;
                file(request, stream, &bytes, tag)
            }
            Act::Cut(at) => in_parts(request, stream, (mine, mine), (at, tag), None),
            Act::Late(at) => {
                let late = if self.archives.root.is_some() { other } else { mine };
                in_parts(request, stream, (mine, late), (at, tag), Some(Late::Comes))
            }
            Act::Stalled(at) => in_parts(request, stream, (mine, mine), (at, tag), Some(Late::Never)),
            Act::Trickled(at) => in_parts(request, stream, (mine, mine), (at, tag), Some(Late::Slowly)),
            Act::Shifted(by) => {
                let range = range_of(request, mine.len());
                let start = range.start + usize::from(by) % 1000;
                let place = format!("bytes {start}-{}/{}", start + range.len() - 1, mine.len());
                answer(stream, "206 Partial Content", &[("Content-Range", &place), ("ETag", tag)], &mine[range])
            }
            _ => self.respond_whole(act, stream, (mine, other, tag)),
        }
    }

    /// Answers without ranges.
    fn respond_whole(
        &self,
        act: Act,
        stream: &mut TcpStream,
        (mine, other, tag): (&[u8], &[u8], &str),
    ) -> io::Result<Then> {
        let part = |at: u16| part_of(&(0..mine.len()), at);
        let begin = |stream: &mut TcpStream| {
            head(stream, "200 OK", &[("Content-Length", &mine.len().to_string()), ("Connection", "close")])
        };
        match act {
            Act::Mixed | Act::Other => answer(stream, "200 OK", &[], other),
            Act::Cut(at) | Act::Late(at) | Act::Stalled(at) | Act::Trickled(at) => {
                begin(stream)?;
                stream.write_all(&mine[..part(at)])?;
                match act {
                    Act::Late(_) if self.archives.root.is_some() => stream.write_all(&other[part(at)..])?,
                    Act::Late(_) => stream.write_all(&mine[part(at)..])?,
                    Act::Stalled(_) => return stall(stream),
                    Act::Trickled(_) => trickle(stream, &mine[part(at)..])?,
                    _ => {}
                }
                Ok(Then::Close)
            }
            Act::WithoutLength(at) => {
                head(stream, "200 OK", &[("Connection", "close")])?;
                stream.write_all(&mine[..part(at)])?;
                Ok(Then::Close)
            }
            Act::Flipped(at) => {
                let mut bytes = mine.to_vec();
                bytes[flippable(mine, part(at))] ^= 1;
                answer(stream, "200 OK", &[], &bytes)
            }
            Act::Page => answer(stream, "200 OK", &[], &b"<!DOCTYPE html><html>503</html>\n".repeat(500)),
            Act::Status(which) => {
                let all =
                    ["503 Service Unavailable", "500 Internal Server Error", "404 Not Found", "429 Too Many Requests"];
                let wait: &[_] = if which & 4 == 0 { &[] } else { &[("Retry-After", "1")] };
                answer(stream, all[usize::from(which % 4)], wait, b"")
            }
            Act::Redirect(which) => redirect(
                stream,
                &["/gone".to_string(), format!("/{NAME}"), "http://10.0.0.1/x".into()][usize::from(which % 3)],
            ),
            Act::Silent => Ok(Then::Close),
            _ => answer(stream, "200 OK", &[("ETag", tag)], mine),
        }
    }
}

/// The rest of a started answer.
enum Late {
    /// It comes after a pause.
    Comes,
    /// It comes, but too slowly.
    Slowly,
    /// It does not.
    Never,
}

fn trickle(stream: &mut TcpStream, bytes: &[u8]) -> io::Result<()> {
    bytes.iter().try_for_each(|byte| {
        stream.write_all(std::slice::from_ref(byte))?;
        thread::sleep(Duration::from_millis(10));
        Ok(())
    })
}

fn range_of(request: &Request, length: usize) -> Range<usize> {
    let range = request.range().unwrap_or(0..length as u64);
    (range.start as usize).min(length - 1)..(range.end as usize).min(length)
}

/// Returns a place near another at which a flipped bit is found: not in the header that announces an
/// index, because without frame hashes a wrong archive is found only when it is unpacked.
fn flippable(bytes: &[u8], at: usize) -> usize {
    let begin = bytes.windows(8).rposition(|window| window == b"slotidx2");
    match begin {
        Some(begin) if (begin - 8..begin + 8).contains(&at) => begin + 8,
        _ => at.min(bytes.len() - 1),
    }
}

fn part_of(range: &Range<usize>, at: u16) -> usize {
    range.start + range.len() * usize::from(at) / 65536
}

fn in_parts(
    request: &Request,
    stream: &mut TcpStream,
    (first, rest): (&[u8], &[u8]),
    (at, tag): (u16, &str),
    late: Option<Late>,
) -> io::Result<Then> {
    let range = range_of(request, first.len());
    let middle = part_of(&range, at);
    let place = format!("bytes {}-{}/{}", range.start, range.end - 1, first.len());
    let stated = range.len().to_string();
    head(stream, "206 Partial Content", &[("Content-Range", &place), ("Content-Length", &stated), ("ETag", tag)])?;
    stream.write_all(&first[range.start..middle])?;
    match late {
        None => {}
        Some(Late::Never) => return stall(stream),
        Some(Late::Slowly) => trickle(stream, &rest[middle..range.end])?,
        Some(Late::Comes) => {
            thread::sleep(Duration::from_millis(5));
            stream.write_all(&rest[middle..range.end])?;
        }
    }
    Ok(Then::Close)
}

/// Stops a run when so many bytes have arrived.
struct Stop(AtomicI64);

impl Stop {
    fn never() -> Self {
        Self(AtomicI64::new(i64::MAX))
    }
}

impl Progress for Stop {
    fn event(&self, event: ProgressEvent<'_>) {
        if let ProgressEvent::Bytes { input, .. } = event {
            self.0.fetch_sub(input as i64, Relaxed);
        }
    }

    fn is_interrupted(&self) -> bool {
        self.0.load(Relaxed) < 0
    }
}

/// Plays a script; returns the number of runs that ended with an archive.
pub fn play(bytes: &[u8]) -> usize {
    let Some(script) = Script::of(bytes) else { return 0 };
    let archives: &'static Archives = if script.is_hashed { &HASHED } else { &SINGLE };
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join(NAME);
    if script.is_half_there {
        fs::write(&path, &archives.right[..archives.right.len() / 2]).expect("written");
    }
    let scenes = [0, 1].map(|server| {
        Arc::new(Scene {
            archives,
            acts: script.acts[server].clone(),
            is_repeated: script.is_repeated,
            manner: script.io_policy[server],
            next: AtomicUsize::new(0),
            has_other: AtomicBool::new(false),
            is_over: AtomicBool::new(false),
        })
    });
    let servers: Vec<Server> = scenes.each_ref()[..1 + usize::from(script.is_pair)]
        .iter()
        .map(|scene| {
            let scene = Arc::clone(scene);
            Server::start(move |request, stream| scene.respond(request, stream))
        })
        .collect();
    let path_asked = if script.names_servers { String::new() } else { format!("/{NAME}") };
    let sources =
        servers.iter().map(|server| server.url(&path_asked).parse::<slotpress::net::SourceArg>().expect("a URL"));
    let find = FindOptions::default().sources(Vec::from_iter(sources));
    let mut limits =
        FetchLimits::default().streams(script.streams).give_up_after(GIVE_UP_AFTER).piece_bytes_max(PIECE_BYTES_MAX);
    limits.expect_root = archives.root.filter(|_| script.expects_root);
    let options = FetchOptions::new([], dir.path()).find(find.wants_incremental(false)).limits(limits);
    let time = Duration::from_millis(100);
    let options_of_client = ClientOptions::default().connect_timeout(time).head_timeout(time).read_timeout(time);
    let client = Client::new(&options_of_client).expect("a client");
    let mut named = 0;
    for run in 0..script.runs {
        let before = fs::read(&path).ok();
        let stop =
            script.stopped_after.filter(|_| run == 0).map_or_else(Stop::never, |after| Stop(AtomicI64::new(after)));
        let fetched = slotpress::net::fetch(&client, &options, &stop);
        let found = fs::read(&path).ok();
        let runs = |one: &[u8]| {
            let is_same = |from: &[u8]| one.iter().zip(from).take_while(|(one, other)| one == other).count();
            (one.len(), is_same(&archives.right), is_same(&archives.other))
        };
        let at = || {
            let found = found.as_deref().map(runs);
            format!("run {run}: {:?}, begins as either for {found:?} bytes: {script:?}", fetched.as_ref().map(|_| ()))
        };
        let is_whole = found
            .as_ref()
            .is_some_and(|found| *found == archives.right || (*found == archives.other && !script.expects_root));
        assert!(fetched.is_err() || is_whole, "what has the name is no archive: {}", at());
        assert!(is_whole || found.is_none() || found == before, "something else has the name: {}", at());
        let names = fs::read_dir(dir.path()).expect("a directory").map(|entry| entry.expect("an entry").file_name());
        let names: BTreeSet<String> = names.map(|name| name.into_string().expect("text")).collect();
        let is_own = |name: &String| name == NAME || name.starts_with("slotpress-fetch-");
        assert!(names.iter().all(is_own), "{names:?}: {}", at());
        assert!(fetched.is_err() || names.len() == 1, "{names:?} are left: {}", at());
        named += usize::from(is_whole);
    }
    scenes.iter().for_each(|scene| scene.is_over.store(true, Relaxed));
    named
}
