//! Compares orders of records: the size and time that a sort key gives at level 1. Works in memory,
//! on one thread, with the pieces of storages within frames that `--layout clustered` takes.
//!
//! `cargo run --release --example orders -- ARCHIVE CLUSTERED [ROUNDS]`: one line per order, size
//! and CPU against verbatim. CLUSTERED is an archive of the same ledger with `--layout clustered`.

use std::error::Error;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use slotpress_base::Stopwatch;
use slotpress_format::{EntryKind, EntryParser, TarEvent};
use slotpress_read::{FrameDecoder, LocalFile, Tail};
use zstd::bulk::Compressor;

/// The key of a record, from its header and its data.
type Key = fn(&[u8], &[u8]) -> Vec<u8>;

const ORDERS: [(&str, Key); 10] = [
    ("as it is, noise zeroed", |_, _| Vec::new()),
    ("owner, length", |header, data| [owner(header), &length(data)].concat()),
    ("owner, length, 8 bytes", |header, data| [owner(header), &length(data), first(data, 8)].concat()),
    ("owner, length, 32 bytes", |header, data| [owner(header), &length(data), first(data, 32)].concat()),
    ("owner, length, all data", |header, data| [owner(header), &length(data), data].concat()),
    ("owner, 32 bytes", |header, data| [owner(header), first(data, 32)].concat()),
    ("length, owner, balance", |header, data| [&length(data), owner(header), &balance(header)].concat()),
    ("length, owner, 32 bytes", |header, data| [&length(data), owner(header), first(data, 32)].concat()),
    ("length, owner, 32 bytes, balance", |header, data| {
        [&length(data), owner(header), first(data, 32), &balance(header)].concat()
    }),
    ("length, owner, 72 bytes", |header, data| [&length(data), owner(header), first(data, 72)].concat()),
];

fn owner(header: &[u8]) -> &[u8] {
    &header[64..96]
}

fn length(data: &[u8]) -> [u8; 8] {
    (data.len() as u64).to_be_bytes()
}

fn balance(header: &[u8]) -> [u8; 8] {
    let mut bytes = [0; 8];
    bytes.copy_from_slice(&header[48..56]);
    bytes.reverse();
    bytes
}

fn first(data: &[u8], count: usize) -> &[u8] {
    &data[..count.min(data.len())]
}

const USAGE: &str = "usage: orders ARCHIVE CLUSTERED [ROUNDS]";

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let path = args.next().ok_or(USAGE)?;
    let clustered = args.next().ok_or(USAGE)?;
    let rounds: usize = args.next().map_or(Ok(3), |text| text.parse())?;
    let frames = read_frames(Path::new(&path))?;
    let mut variants = vec![("verbatim", frames.clone())];
    for (name, key) in ORDERS {
        variants.push((name, frames.iter().map(|frame| ordered(frame, key)).collect::<Result<_, _>>()?));
    }
    variants.push(("--layout clustered", read_frames(Path::new(&clustered))?));

    let mut compressor = Compressor::new(1)?;
    compressor.include_checksum(true)?;
    let mut results = vec![(0, Vec::new()); variants.len()];
    for _ in 0..rounds {
        for ((_, frames), (size, seconds)) in variants.iter().zip(&mut results) {
            let stopwatch = Stopwatch::start_on_thread();
            *size = 0;
            for frame in frames {
                *size += compressor.compress(frame)?.len();
            }
            seconds.push(stopwatch.elapsed().cpu.as_secs_f64());
        }
    }
    let base = results[0].clone();
    for ((name, _), (size, seconds)) in variants.iter().zip(results) {
        let mut ratios: Vec<f64> = seconds.iter().zip(&base.1).map(|(one, base)| one / base).collect();
        ratios.sort_by(f64::total_cmp);
        println!("{name:<34} {:.4} {:.3}", size as f64 / base.0 as f64, ratios[ratios.len() / 2]);
    }
    Ok(())
}

/// The frames of an archive that start and end between entries.
fn read_frames(path: &Path) -> Result<Vec<Vec<u8>>, Box<dyn Error>> {
    let file = File::open(path)?;
    let tail = Tail::read(&LocalFile::open(path)?)?.ok_or("the archive has no index")?;
    let mut decoder = FrameDecoder::new()?;
    let mut frames = Vec::new();
    for frame in &tail.frames {
        let mut compressed = vec![0; frame.compressed_bytes as usize];
        file.read_exact_at(&mut compressed, frame.offset_bytes)?;
        let mut content = Vec::new();
        decoder.decode(&compressed, frame.offset_bytes, u64::from(frame.content_bytes), &mut content)?;
        let mut parser = EntryParser::new();
        if parser.feed(&content, &mut |_| Ok(())).is_ok() && parser.is_between_entries() {
            frames.push(content);
        }
    }
    Ok(frames)
}

fn ordered(frame: &[u8], key: Key) -> Result<Vec<u8>, Box<dyn Error>> {
    let mut to = frame.to_vec();
    let mut is_storage = false;
    EntryParser::new().feed(frame, &mut |event| {
        match event {
            TarEvent::Begin(entry) => is_storage = matches!(entry.kind, EntryKind::Storage { .. }),
            TarEvent::Content { bytes, .. } if is_storage => {
                let at = bytes.as_ptr().addr() - frame.as_ptr().addr();
                order(bytes, key, &mut to[at..at + bytes.len()]);
            }
            _ => {}
        }
        Ok(())
    })?;
    Ok(to)
}

fn order(storage: &[u8], key: Key, to: &mut [u8]) {
    let (mut records, mut at) = (Vec::new(), 0);
    while at + 136 <= storage.len() {
        let mut data_len = [0; 8];
        data_len.copy_from_slice(&storage[at + 8..at + 16]);
        let end = at + 136 + u64::from_le_bytes(data_len) as usize;
        let stored_end = end.next_multiple_of(8).min(storage.len());
        records.push((key(&storage[at..at + 136], &storage[at + 136..end]), at, end, stored_end));
        at = end.next_multiple_of(8);
    }
    // As clustering does: a last record without its padding stays the last.
    let sorted = records.len() - usize::from(!storage.len().is_multiple_of(8) && !records.is_empty());
    records[..sorted].sort();
    let mut at = 0;
    for (_, start, end, stored_end) in records {
        let copy = &mut to[at..at + stored_end - start];
        copy.copy_from_slice(&storage[start..stored_end]);
        copy[..8].fill(0);
        copy[97..136].fill(0);
        copy[end - start..].fill(0);
        at += stored_end - start;
    }
}
