//! Runs the program in the random worlds of the simulation. Servers are honest, lie, fail, are slow or lose
//! connections, and the node has full archives. `WORLDS_REAL` sets the number of worlds, `WORLDS_FIRST`
//! the first seed.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
use std::{fs, thread};

use slotpress_format::ArchiveName;

use crate::common::http::{Connection, Request, Server, send_file, send_head, send_response};
use crate::common::site::{JsonOutput, run_to_json};
use crate::common::strace::number_from_env;
use crate::common::worlds::{DAYS, FULL_DAYS, Fate, HeldArchive, RandomWorld};
use crate::common::*;
use crate::rebase::rebase;

#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct ArchiveKey {
    base_day: Option<usize>,
    day: usize,
}

struct ArchiveFile {
    name: String,
    bytes: Vec<u8>,
}

impl ArchiveFile {
    fn read(path: &Path) -> Self {
        Self { name: name(path), bytes: fs::read(path).expect("read") }
    }
}

/// Full archives of a chain, and incremental archives on them.
type Chain = BTreeMap<ArchiveKey, ArchiveFile>;

/// Returns the archives, which are made once.
fn shared_chain() -> &'static Chain {
    static CHAIN: OnceLock<Chain> = OnceLock::new();
    CHAIN.get_or_init(|| {
        let dir = temp_dir();
        let fulls: Vec<PathBuf> = (0..DAYS)
            .map(|day| {
                let ledger = dir.path().join(format!("ledger-{day}"));
                let output = run_to_json(&[
                    "synth",
                    text(&ledger),
                    "--size",
                    "4MiB",
                    "--incremental",
                    &format!("{}MiB", day + 3),
                ]);
                assert_eq!(output.code, Some(0), "{output:?}");
                let output = run_to_json(&["archive", text(&ledger), "-o", text(dir.path())]);
                assert_eq!(output.code, Some(0), "{output:?}");
                PathBuf::from(output.line("archive")["path"].as_str().expect("a path"))
            })
            .collect();
        let mut chain = Chain::new();
        for (day, path) in fulls.iter().enumerate() {
            chain.insert(ArchiveKey { base_day: None, day }, ArchiveFile::read(path));
        }
        for base in 0..FULL_DAYS {
            for day in base + 1..DAYS {
                let rebased = rebase(&[&fulls[day]], &fulls[base], dir.path(), &[]);
                chain.insert(ArchiveKey { base_day: Some(base), day }, ArchiveFile::read(&rebased));
            }
        }
        chain
    })
}

fn slot_of(day: usize) -> u64 {
    ArchiveName::parse(&shared_chain()[&ArchiveKey { base_day: None, day }].name).expect("a name").slot
}

fn archive_of(held: &HeldArchive) -> &'static ArchiveFile {
    &shared_chain()[&ArchiveKey { base_day: held.base_day, day: held.day }]
}

/// Returns the bytes of an archive as its server or the node has them. If that lies, they are the bytes of a different
/// archive.
fn held_bytes(held: &HeldArchive) -> &'static [u8] {
    if !matches!(held.fate, Fate::Lies | Fate::Renames | Fate::Invents) {
        return &archive_of(held).bytes;
    }
    let mut others = shared_chain().iter().filter(|(key, _)| key.base_day == held.base_day && key.day != held.day);
    &others.next().expect("another archive").1.bytes
}

/// Returns the name of an archive after `request_count` requests for its server's list.
fn name_after(held: &HeldArchive, request_count: usize) -> String {
    let mut name = ArchiveName::parse(&archive_of(held).name).expect("a name");
    name.slot += match held.fate {
        Fate::Renames => request_count as u64,
        Fate::Invents if request_count > 1 => 1_000_000_000_000_000,
        _ => 0,
    };
    name.to_string()
}

/// Length for which no disk has space.
const OVERSTATED_BYTES: usize = 2 << 40;

fn serve_held(held: Vec<HeldArchive>) -> Server {
    let asked = AtomicUsize::new(0);
    let gets = AtomicUsize::new(0);
    Server::start(move |request, stream| {
        let is_offered = |held: &&HeldArchive| held.fate != Fate::Vanishes || asked.load(Relaxed) < 2;
        if request.path == "/dir/" {
            let asked = asked.fetch_add(1, Relaxed);
            let names: Vec<String> = held.iter().filter(is_offered).map(|held| name_after(held, asked)).collect();
            return send_response(stream, "200 OK", &[], names.join("\n").as_bytes());
        }
        let requested = request.path.trim_start_matches("/dir/");
        let is_requested =
            |held: &&HeldArchive| (0..asked.load(Relaxed)).any(|asked| name_after(held, asked) == requested);
        let Some(held) = held.iter().filter(is_offered).find(is_requested) else {
            return send_response(stream, "404 Not Found", &[], b"");
        };
        let bytes = held_bytes(held);
        let is_get = request.method == "GET";
        let number = if is_get { gets.fetch_add(1, Relaxed) } else { gets.load(Relaxed) };
        match held.fate {
            Fate::Fails if is_get => send_response(stream, "404 Not Found", &[], b""),
            Fate::Replaced(times) if number < times => {
                if is_get {
                    send_response(stream, "412 Precondition Failed", &[], b"")
                } else {
                    send_file(request, stream, bytes, &format!("\"{number}\""))
                }
            }
            Fate::NoRanges => {
                send_head(
                    stream,
                    "200 OK",
                    &[("Accept-Ranges", "bytes"), ("Content-Length", &bytes.len().to_string())],
                )?;
                if is_get {
                    stream.write_all(bytes)?;
                }
                Ok(Connection::KeepAlive)
            }
            Fate::Overstates if is_get => send_range(request, stream, bytes, Delivery::AtOnce, OVERSTATED_BYTES),
            Fate::Overstates => {
                let length = OVERSTATED_BYTES.to_string();
                send_head(
                    stream,
                    "200 OK",
                    &[("ETag", "\"a\""), ("Accept-Ranges", "bytes"), ("Content-Length", &length)],
                )?;
                Ok(Connection::KeepAlive)
            }
            Fate::Slow if is_get => send_range(request, stream, bytes, Delivery::Slow, bytes.len()),
            Fate::Breaks if is_get && number % 2 == 0 => {
                send_range(request, stream, bytes, Delivery::Broken, bytes.len())
            }
            _ => send_file(request, stream, bytes, "\"a\""),
        }
    })
}

#[derive(Clone, Copy)]
enum Delivery {
    AtOnce,
    /// In eight parts with pauses.
    Slow,
    /// Only the first half; then the connection is closed.
    Broken,
}

/// Sends the requested range, or the whole file. States that the file has `stated_bytes`.
fn send_range(
    request: &Request,
    stream: &mut TcpStream,
    bytes: &[u8],
    delivery: Delivery,
    stated_bytes: usize,
) -> io::Result<Connection> {
    let Some(range) = request.range() else { return send_file(request, stream, bytes, "\"a\"") };
    let start = range.start as usize;
    let end = (range.end as usize).min(bytes.len());
    if start >= end {
        return send_response(stream, "416 Range Not Satisfiable", &[], b"");
    }
    let place = format!("bytes {start}-{}/{stated_bytes}", end - 1);
    let length = (end - start).to_string();
    let fields = [("ETag", "\"a\""), ("Content-Range", &place), ("Content-Length", &length)];
    send_head(stream, "206 Partial Content", &fields)?;
    match delivery {
        Delivery::AtOnce => stream.write_all(&bytes[start..end])?,
        Delivery::Slow => {
            for part in bytes[start..end].chunks((end - start).div_ceil(8)) {
                stream.write_all(part)?;
                thread::sleep(Duration::from_millis(5));
            }
        }
        Delivery::Broken => {
            stream.write_all(&bytes[start..start + (end - start).div_ceil(2)])?;
            return Ok(Connection::Close);
        }
    }
    Ok(Connection::KeepAlive)
}

/// Writes the full archives of the node, for `--base`. Returns their paths.
fn write_bases(random_world: &RandomWorld, dir: &Path) -> Vec<PathBuf> {
    let mut paths = Vec::new();
    for held in random_world.held.iter().filter(|held| held.server.is_none()) {
        let path = dir.join(&archive_of(held).name);
        let bytes = held_bytes(held);
        let length = if held.fate == Fate::Fails { bytes.len() / 2 } else { bytes.len() };
        fs::write(&path, &bytes[..length]).expect("written");
        paths.push(path);
    }
    paths
}

/// Returns the newest day of the servers whose archives all arrive. Servers that lose connections are left out: if one
/// seems slow because of that, the run may choose an older state that arrives sooner.
fn newest_available_day(random_world: &RandomWorld) -> Option<usize> {
    let arrives = |held: &HeldArchive| matches!(held.fate, Fate::Arrives | Fate::Slow | Fate::Unconfirmed);
    let is_good = |server: usize| random_world.held.iter().filter(|held| held.server == Some(server)).all(arrives);
    let good = random_world.held.iter().filter(|held| held.server.is_some_and(is_good));
    good.map(|held| held.day).max()
}

/// Runs the program in a world. Returns its output, and the slot of the ledger's state if there is a state.
fn run_in_world(random_world: &RandomWorld, seed: u64) -> (JsonOutput, Option<u64>) {
    let dir = temp_dir();
    let ledger = dir.path().join("ledger");
    let bases = write_bases(random_world, dir.path());
    let mut by_server: BTreeMap<usize, Vec<HeldArchive>> = BTreeMap::new();
    for held in &random_world.held {
        if let Some(server) = held.server {
            by_server.entry(server).or_default().push(*held);
        }
    }
    let servers: Vec<Server> = by_server.into_values().map(serve_held).collect();
    let urls: Vec<String> = servers.iter().map(|server| server.url("/dir/")).collect();
    let mut arguments = vec!["bootstrap", "--ledger", text(&ledger), "--streams", "2"];
    arguments.extend(urls.iter().map(String::as_str));
    arguments.extend(bases.iter().flat_map(|base| ["--base", text(base)]));
    let output = run_to_json(&arguments);
    let snapshots = fs::read_dir(ledger.join("snapshots")).into_iter().flatten().flatten();
    let complete = snapshots.filter(|entry| entry.path().join("fastboot_version").exists());
    let slot = complete.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).max();
    assert!(output.code.is_some(), "seed {seed}: {output:?}");
    (output, slot)
}

/// Each run ends with the state of the honest source or a newer state. If a newer state could have arrived,
/// the report must name it as abandoned.
#[test]
fn random_worlds_end_with_the_best_state() {
    let first = number_from_env("WORLDS_FIRST", 0);
    let count = number_from_env("WORLDS_REAL", 6);
    println!("worlds {first} to {}", first + count);
    let mut states = 0;
    let mut reported = 0;
    for seed in first..first + count {
        let random_world = RandomWorld::from_seed(seed);
        let (output, slot) = run_in_world(&random_world, seed);
        let Some(slot) = slot else {
            assert!(matches!(output.code, Some(3 | 4)), "seed {seed}: {random_world:?}: {output:?}");
            assert!(newest_available_day(&random_world).is_none(), "seed {seed}: {random_world:?}: {output:?}");
            continue;
        };
        assert_eq!(output.code, Some(0), "seed {seed}: {random_world:?}: {output:?}");
        states += 1;
        let report = output.line("bootstrap");
        let is_better_reported = report["abandoned"]["slot"].as_u64().is_some_and(|better| better > slot);
        reported += u64::from(is_better_reported);
        let honest = random_world.honest_day().map(slot_of);
        assert!(
            honest.is_none_or(|honest| slot >= honest),
            "seed {seed}: {slot}, not {honest:?}: {random_world:?}: {output:?}"
        );
        let best = newest_available_day(&random_world).map(slot_of);
        assert!(
            is_better_reported || best.is_none_or(|best| slot >= best),
            "seed {seed}: {slot}, not {best:?}: {random_world:?}: {output:?}"
        );
    }
    println!("{states} states, {reported} of them with a better one abandoned");
}
