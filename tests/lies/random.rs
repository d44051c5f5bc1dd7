//! Servers that play random scripts of lies: whatever they do, a fetch ends, and what has the archive's name then is one
//! of the archives, whole.
//!
//! `LIES_SCRIPTS` says how many scripts are played, `LIES_SEED` and `LIES_FIRST` which.

use {
    super::stage::{Archive, Kind, Scene, Stage},
    crate::{
        common::*,
        faults::strace::{Draws, number_of},
        net::server::{Request, Then, answer, file, head},
    },
    slotpress_base::progress::NoProgress,
    slotpress_net::{
        Client, ClientOptions,
        fetch::{Limits, fetch_whole},
        parse_url,
    },
    std::{
        fs,
        io::{self, Write},
        net::TcpStream,
        sync::{Mutex, atomic::Ordering::Relaxed, mpsc},
        thread,
        time::Duration,
    },
};

/// What a server does with one request for bytes.
#[derive(Clone, Copy, Debug)]
enum Act {
    /// The archive's bytes.
    Right,
    /// The other archive's, as if they were the archive's.
    Mixed,
    /// The other archive, under its own ETag.
    Other,
    /// So many bytes, and the end of the connection.
    Cut(usize),
    /// So many bytes, a pause, then the other archive's.
    Late(usize),
    /// One bit is flipped.
    Flipped(usize),
    /// Everything, whatever was asked for.
    Whole,
    /// A status.
    Status(&'static str),
    /// The end of the connection.
    Silent,
}

/// The times of a test: what is waited for two minutes otherwise, is not here.
const GIVE_UP_AFTER: Duration = Duration::from_millis(400);

/// Longer than any run takes by far.
const TIMEOUT: Duration = Duration::from_secs(240);

fn act(draws: &mut Draws, length: usize) -> Act {
    match draws.below(16) {
        0..6 => Act::Right,
        6 => Act::Mixed,
        7 => Act::Other,
        // Less would end too, after many pauses.
        8..11 => Act::Cut(30_000 + draws.below(300_000)),
        11 => Act::Late(draws.below(700_000)),
        12 => Act::Flipped(draws.below(length)),
        13 => [Act::Whole, Act::Silent][draws.below(2)],
        14 => Act::Status(["503 Service Unavailable", "404 Not Found", "500 Internal Server Error"][draws.below(3)]),
        _ => Act::Silent,
    }
}

/// The script of a server: what it does with one request after the other, then from the beginning again.
type Script = Vec<Act>;

/// The scripts that are played now, by their servers.
static SCRIPTS: Mutex<Vec<Script>> = Mutex::new(Vec::new());

fn scripted<const SERVER: usize>(scene: &Scene, request: &Request, stream: &mut TcpStream) -> io::Result<Then> {
    const ETAG: &str = "\"one\"";
    let (right, other) = (&scene.archive.right, &scene.archive.other);
    let script = SCRIPTS.lock().expect("no panic")[SERVER].clone();
    if request.method != "GET" {
        return file(request, stream, right, ETAG);
    }
    let act = script[scene.own.fetch_add(1, Relaxed) % script.len()];
    // The other archive's bytes at these places, as long as the archive.
    let mixed = || -> Vec<u8> { other.iter().chain(std::iter::repeat(&0)).take(right.len()).copied().collect() };
    let in_parts = |stream: &mut TcpStream, first: usize, late: Option<&[u8]>| {
        let range = request.range().unwrap_or(0..right.len() as u64);
        let range = range.start as usize..(range.end as usize).min(right.len());
        let first = range.start + first.min(range.len());
        let place = format!("bytes {}-{}/{}", range.start, range.end - 1, right.len());
        let stated = range.len().to_string();
        head(stream, "206 Partial Content", &[("Content-Range", &place), ("Content-Length", &stated), ("ETag", ETAG)])?;
        stream.write_all(&right[range.start..first])?;
        if let Some(late) = late {
            thread::sleep(Duration::from_millis(50));
            stream.write_all(&late[first..range.end])?;
        }
        Ok(Then::Close)
    };
    match act {
        Act::Right => file(request, stream, right, ETAG),
        Act::Mixed => file(request, stream, &mixed(), ETAG),
        Act::Other => file(request, stream, other, "\"other\""),
        Act::Cut(bytes) => in_parts(stream, bytes, None),
        Act::Late(bytes) => in_parts(stream, bytes, Some(&mixed())),
        Act::Flipped(at) => {
            let mut bytes = right.clone();
            bytes[at] ^= 1;
            file(request, stream, &bytes, ETAG)
        }
        Act::Whole => answer(stream, "200 OK", &[("ETag", ETAG)], right),
        Act::Status(status) => answer(stream, status, &[], b""),
        Act::Silent => Ok(Then::Close),
    }
}

#[test]
fn random_scripts_end_with_an_archive_or_nothing() {
    let archive = Archive::of(Kind::Hashed);
    let seed = number_of("LIES_SEED", 1);
    let (mut named, mut scripts) = (0, 0);
    let first = number_of("LIES_FIRST", 0);
    for number in first..first + number_of("LIES_SCRIPTS", 12) {
        let mut draws = Draws(seed.wrapping_mul(1_000_003).wrapping_add(number));
        let all: Vec<Script> =
            (0..2).map(|_| (0..draws.below(12) + 1).map(|_| act(&mut draws, archive.right.len())).collect()).collect();
        *SCRIPTS.lock().expect("no panic") = all.clone();
        let servers = [Stage::start(archive, scripted::<0>), Stage::start(archive, scripted::<1>)];
        let expect_root = (draws.below(2) == 0).then(|| archive.root.parse().expect("a root"));
        let streams = draws.below(4) + 1;
        let dir = temp_dir();
        // Three runs in one directory: what one leaves is what the next one finds.
        for run in 0..3 {
            let at = format!("seed {seed}, script {number}, run {run}: {all:?}");
            let urls = servers.each_ref().map(Stage::url);
            let (path, is_pair) = (dir.path().to_path_buf(), number % 2 == 0);
            let (done, ended) = mpsc::channel();
            let fetching = thread::spawn(move || {
                let options = ClientOptions::default()
                    .read_timeout(Duration::from_millis(500))
                    .head_timeout(Duration::from_millis(500));
                let client = Client::new(&options).expect("a client");
                let head = |url: &String| client.head(&parse_url(url).expect("a URL"), &NoProgress).expect("a head");
                let remotes = urls.iter().take(if is_pair { 2 } else { 1 }).map(head).collect();
                let mut limits = Limits::default().streams(streams).give_up_after(GIVE_UP_AFTER);
                limits.expect_root = expect_root;
                let fetched = fetch_whole(&client, &path, &archive.name, remotes, &limits, &NoProgress, &mut |_| {});
                drop(done.send(fetched.map(drop).map_err(|ended| ended.error())));
            });
            let fetched = ended.recv_timeout(TIMEOUT).unwrap_or_else(|_| panic!("it does not end: {at}"));
            fetching.join().expect("no panic");
            scripts += 1;
            let found = fs::read(dir.path().join(&archive.name)).ok();
            assert_eq!(fetched.is_ok(), found.is_some(), "{fetched:?}: {at}");
            let Some(found) = found else { continue };
            let is_right = found == archive.right;
            assert!(
                is_right || (found == archive.other && expect_root.is_none()),
                "{} bytes, which differ at {:?}: {at}",
                found.len(),
                found.iter().zip(&archive.right).position(|(one, other)| one != other)
            );
            named += 1;
            fs::remove_file(dir.path().join(&archive.name)).expect("removed");
        }
    }
    println!("{scripts} runs, {named} of them with an archive at the end");
    assert!(named > 0, "none of {scripts} runs has fetched anything");
}
