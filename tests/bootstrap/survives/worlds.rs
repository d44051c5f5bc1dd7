//! The program in the random worlds of the simulation: servers that are honest, lie, fail, are
//! slow or lose connections, and full archives of the node. `WORLDS_REAL` sets the number of
//! worlds, `WORLDS_FIRST` the first seed.

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

use crate::common::http::{Request, Server, Then, answer, file, head};
use crate::common::site::{JsonOutput, run};
use crate::common::strace::number_of;
use crate::common::worlds::{DAYS, Drawn, FULL_DAYS, Fate, Held};
use crate::common::*;
use crate::rebase::rebase;

/// The archives of a chain: full ones, and incremental ones on them, by base and day.
type Chain = BTreeMap<(Option<usize>, usize), (String, Vec<u8>)>;

/// Makes the archives once.
fn chain() -> &'static Chain {
    static CHAIN: OnceLock<Chain> = OnceLock::new();
    CHAIN.get_or_init(|| {
        let dir = temp_dir();
        let fulls: Vec<PathBuf> = (0..DAYS)
            .map(|day| {
                let ledger = dir.path().join(format!("ledger-{day}"));
                let output =
                    run(&["synth", text(&ledger), "--size", "4MiB", "--incremental", &format!("{}MiB", day + 3)]);
                assert_eq!(output.code, Some(0), "{output:?}");
                let output = run(&["archive", text(&ledger), "-o", text(dir.path())]);
                assert_eq!(output.code, Some(0), "{output:?}");
                PathBuf::from(output.line("archive")["path"].as_str().expect("a path"))
            })
            .collect();
        let read = |path: &Path| (name(path), fs::read(path).expect("read"));
        let mut chain: Chain = fulls.iter().enumerate().map(|(day, path)| ((None, day), read(path))).collect();
        for base in 0..FULL_DAYS {
            for day in base + 1..DAYS {
                chain.insert((Some(base), day), read(&rebase(&[&fulls[day]], &fulls[base], dir.path(), &[])));
            }
        }
        chain
    })
}

fn slot_of(day: usize) -> u64 {
    ArchiveName::parse(&chain()[&(None, day)].0).expect("a name").slot
}

/// An archive at a place: its name, and its bytes or another archive's bytes.
fn bytes_of(held: &Held) -> (&'static str, &'static [u8]) {
    let (name, right) = &chain()[&(held.base_day, held.day)];
    let other = chain().iter().find(|((base, day), _)| *base == held.base_day && *day != held.day).expect("another");
    let is_wrong = matches!(held.fate, Fate::Lies | Fate::Renames | Fate::Invents);
    (name, if is_wrong { &other.1.1 } else { right })
}

/// The name of an archive when its server is asked for the `asked`th time.
fn name_of(held: &Held, asked: usize) -> String {
    let mut name = ArchiveName::parse(bytes_of(held).0).expect("a name");
    name.slot += match held.fate {
        Fate::Renames => asked as u64,
        Fate::Invents if asked > 1 => 1_000_000_000_000_000,
        _ => 0,
    };
    name.to_string()
}

/// A length for which no disk has room.
const OVERSTATED_BYTES: usize = 2 << 40;

fn serve(held: Vec<Held>) -> Server {
    let asked = AtomicUsize::new(0);
    let gets = AtomicUsize::new(0);
    Server::start(move |request, stream| {
        let is_offered = |held: &&Held| held.fate != Fate::Vanishes || asked.load(Relaxed) < 2;
        if request.path == "/dir/" {
            let asked = asked.fetch_add(1, Relaxed);
            let names: Vec<String> = held.iter().filter(is_offered).map(|held| name_of(held, asked)).collect();
            return answer(stream, "200 OK", &[], names.join("\n").as_bytes());
        }
        let wanted = request.path.trim_start_matches("/dir/");
        let is_wanted = |held: &&Held| (0..asked.load(Relaxed)).any(|asked| name_of(held, asked) == wanted);
        let Some(held) = held.iter().filter(is_offered).find(is_wanted) else {
            return answer(stream, "404 Not Found", &[], b"");
        };
        let bytes = bytes_of(held).1;
        let number = if request.method == "GET" { gets.fetch_add(1, Relaxed) } else { gets.load(Relaxed) };
        let is_get = request.method == "GET";
        match held.fate {
            Fate::Fails if is_get => answer(stream, "404 Not Found", &[], b""),
            Fate::PublishedAgain(often) if number < often => {
                if is_get {
                    answer(stream, "412 Precondition Failed", &[], b"")
                } else {
                    file(request, stream, bytes, &format!("\"{number}\""))
                }
            }
            Fate::NoRanges => {
                head(stream, "200 OK", &[("Accept-Ranges", "bytes"), ("Content-Length", &bytes.len().to_string())])?;
                if is_get {
                    stream.write_all(bytes)?;
                }
                Ok(Then::Keep)
            }
            Fate::Overstates if is_get => in_parts(request, stream, bytes, 1, OVERSTATED_BYTES),
            Fate::Overstates => {
                let length = OVERSTATED_BYTES.to_string();
                head(stream, "200 OK", &[("ETag", "\"a\""), ("Accept-Ranges", "bytes"), ("Content-Length", &length)])?;
                Ok(Then::Keep)
            }
            Fate::Slow if is_get => in_parts(request, stream, bytes, 8, bytes.len()),
            Fate::Breaks if is_get && number % 2 == 0 => in_parts(request, stream, bytes, 4, bytes.len()),
            _ => file(request, stream, bytes, "\"a\""),
        }
    })
}

/// Sends a range in parts; of four parts, only the first two. States the length of the file.
fn in_parts(request: &Request, stream: &mut TcpStream, bytes: &[u8], parts: usize, stated: usize) -> io::Result<Then> {
    let Some(range) = request.range() else { return file(request, stream, bytes, "\"a\"") };
    let start = range.start as usize;
    let end = (range.end as usize).min(bytes.len());
    if start >= end {
        return answer(stream, "416 Range Not Satisfiable", &[], b"");
    }
    let place = format!("bytes {start}-{}/{stated}", end - 1);
    let length = (end - start).to_string();
    let fields = [("ETag", "\"a\""), ("Content-Range", &place), ("Content-Length", &length)];
    head(stream, "206 Partial Content", &fields)?;
    let pieces = bytes[start..end].chunks((end - start).div_ceil(parts));
    for piece in pieces.take(if parts == 4 { 2 } else { parts }) {
        stream.write_all(piece)?;
        thread::sleep(Duration::from_millis(5));
    }
    Ok(if parts == 4 { Then::Close } else { Then::Keep })
}

/// Writes the full archives of the node, for `--base`.
fn put_bases(drawn: &Drawn, dir: &Path) -> Vec<PathBuf> {
    let put = |held: &Held| {
        let (name, bytes) = bytes_of(held);
        let length = if held.fate == Fate::Fails { bytes.len() / 2 } else { bytes.len() };
        fs::write(dir.join(name), &bytes[..length]).expect("written");
        dir.join(name)
    };
    drawn.held.iter().filter(|held| held.server.is_none()).map(put).collect()
}

/// Returns the newest state of one server whose archives all arrive. A server that loses
/// connections while it is measured may count as slow, and then an older state is younger at boot.
fn newest_available(drawn: &Drawn) -> Option<usize> {
    let comes = |held: &&Held| matches!(held.fate, Fate::Comes | Fate::Slow | Fate::Unconfirmed);
    let of_server = |server| drawn.held.iter().filter(move |held| held.server == server);
    let of_good =
        drawn.held.iter().filter(|held| held.server.is_some() && of_server(held.server).all(|held| comes(&held)));
    of_good.map(|held| held.day).max()
}

/// Runs the program in a world; returns its output, and the slot of the ledger's state, if there is
/// one.
fn run_in_world(drawn: &Drawn, seed: u64) -> (JsonOutput, Option<u64>) {
    let dir = temp_dir();
    let ledger = dir.path().join("ledger");
    let bases = put_bases(drawn, dir.path());
    let mut by_server: BTreeMap<usize, Vec<Held>> = BTreeMap::new();
    for held in &drawn.held {
        held.server.iter().for_each(|server| by_server.entry(*server).or_default().push(*held));
    }
    let servers: Vec<Server> = by_server.into_values().map(serve).collect();
    let urls: Vec<String> = servers.iter().map(|server| server.url("/dir/")).collect();
    let mut arguments = vec!["bootstrap", "--ledger", text(&ledger), "--streams", "2"];
    arguments.extend(urls.iter().map(String::as_str));
    arguments.extend(bases.iter().flat_map(|base| ["--base", text(base)]));
    let output = run(&arguments);
    let booted = fs::read_dir(ledger.join("snapshots")).into_iter().flatten().flatten();
    let booted = booted.filter(|entry| entry.path().join("fastboot_version").exists());
    let slot = booted.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).max();
    assert!(output.code.is_some(), "seed {seed}: {output:?}");
    (output, slot)
}

/// Checks that the run ends with the state of the honest source or a newer one. If a newer state
/// could have arrived, the last line must say so.
#[test]
fn random_worlds_end_with_the_best_state() {
    let first = number_of("WORLDS_FIRST", 0);
    let count = number_of("WORLDS_REAL", 6);
    println!("worlds {first} to {}", first + count);
    let mut done = 0;
    let mut reported = 0;
    for seed in first..first + count {
        let drawn = Drawn::from_seed(seed);
        let (output, slot) = run_in_world(&drawn, seed);
        let Some(slot) = slot else {
            assert!(matches!(output.code, Some(3 | 4)), "seed {seed}: {drawn:?}: {output:?}");
            assert!(newest_available(&drawn).is_none(), "seed {seed}: {drawn:?}: {output:?}");
            continue;
        };
        assert_eq!(output.code, Some(0), "seed {seed}: {drawn:?}: {output:?}");
        done += 1;
        let report = output.line("bootstrap");
        let reports = report["given_up"]["slot"].as_u64().is_some_and(|better| better > slot);
        reported += u64::from(reports);
        let honest = drawn.honest_day().map(slot_of);
        assert!(
            honest.is_none_or(|honest| slot >= honest),
            "seed {seed}: {slot}, not {honest:?}: {drawn:?}: {output:?}"
        );
        let best = newest_available(&drawn).map(slot_of);
        assert!(
            reports || best.is_none_or(|best| slot >= best),
            "seed {seed}: {slot}, not {best:?}: {drawn:?}: {output:?}"
        );
    }
    println!("{done} states, {reported} of them with a better one abandoned");
}
