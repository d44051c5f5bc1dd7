//! Measures the compression and the hashes alone, on an archive with an index: a lower bound for archiving,
//! restoring and verifying.
//!
//! `cargo run --release --example floor -- archive ARCHIVE [THREADS] [LEVEL]` compresses the archive's frames,
//! which are already in memory, with checksums, and decompresses the original ones. It prints the elapsed seconds
//! of both.
//!
//! `cargo run --release --example floor -- verify ARCHIVE [THREADS]` prints four times in seconds of CPU time,
//! which a busy machine disturbs least: for decoding the frames alone, for reading all records without hashing,
//! for hashing alone (blake3's extended output of 2,048 bytes for every account), and for verifying as a whole. The
//! number of accounts follows.

use std::error::Error;
use std::path::Path;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU64, AtomicUsize};

use slotpress_base::{Elapsed, NoProgress, Stopwatch};
use slotpress_format::{
    AccountView, Entry, EntryKind, LatticeAccumulator, Record, RecordFault, RecordSink, RecordWalker,
};
use slotpress_read::{
    ArchivePass, CheckOptions, EntryRole, FrameDecoder, OpenArchive, RecordVisitor, RecordWorker, Snapshot, StorageRef,
    Tail, VerifyOptions, Visitor, verify,
};
use zstd::bulk::Compressor;
use zstd::zstd_safe::compress_bound;

const USAGE: &str = "usage: floor archive|verify ARCHIVE [THREADS] [LEVEL]";

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let (mode, path) = args.next().zip(args.next()).ok_or(USAGE)?;
    let threads: usize = args.next().map_or(Ok(1), |text| text.parse())?;
    let level: i32 = args.next().map_or(Ok(1), |text| text.parse())?;
    let path = Path::new(&path);
    let archive = OpenArchive::open(path, &Default::default())?;
    let tail = archive.tail.as_ref().ok_or("the archive has no index")?;
    match mode.as_str() {
        "archive" => measure_archiving(&archive, tail, threads, level),
        "verify" => measure_verifying(path, &archive, tail, threads),
        _ => Err(USAGE.into()),
    }
}

fn measure_archiving(archive: &OpenArchive, tail: &Tail, threads: usize, level: i32) -> Result<(), Box<dyn Error>> {
    let mut decoder = FrameDecoder::new()?;
    let mut frames = Vec::new();
    for frame in &tail.frames {
        let mut compressed = vec![0; frame.compressed_bytes as usize];
        archive.source.read_exact_at(&mut compressed, frame.offset_bytes)?;
        let mut content = Vec::new();
        decoder.decode(&compressed, frame.offset_bytes, u64::from(frame.content_bytes), &mut content)?;
        frames.push((compressed, content));
    }

    let compressing = run_on_threads(threads, frames.len(), || {
        let mut compressor = new_compressor(level);
        let frames = &frames;
        let mut output =
            vec![0; frames.iter().map(|(_, content)| compress_bound(content.len())).max().unwrap_or_default()];
        move |index: usize| compressor.compress_to_buffer(&frames[index].1, &mut output).is_ok()
    });
    let decompressing = run_on_threads(threads, frames.len(), || {
        let mut decoder = FrameDecoder::new().ok();
        let mut output = Vec::new();
        let frames = &frames;
        move |index: usize| {
            let (compressed, content) = &frames[index];
            decoder.as_mut().is_some_and(|decoder| {
                decoder.decode(compressed, 0, content.len() as u64, &mut output).is_ok()
                    && output.len() == content.len()
            })
        }
    });
    println!("{:.4} {:.4}", compressing.wall.as_secs_f64(), decompressing.wall.as_secs_f64());
    Ok(())
}

#[allow(clippy::expect_used, reason = "without a context, there is nothing to measure")]
fn new_compressor(level: i32) -> Compressor<'static> {
    let mut compressor = Compressor::new(level).expect("memory for a context");
    compressor.include_checksum(true).expect("zstd has checksums");
    compressor
}

fn measure_verifying(path: &Path, archive: &OpenArchive, tail: &Tail, threads: usize) -> Result<(), Box<dyn Error>> {
    let decode = || {
        run_on_threads(threads, tail.frames.len(), || {
            let mut decoder = FrameDecoder::new().ok();
            let (mut compressed, mut output) = (Vec::new(), Vec::new());
            move |index: usize| {
                let frame = &tail.frames[index];
                compressed.resize(frame.compressed_bytes as usize, 0);
                let is_read = archive.source.read_exact_at(&mut compressed, frame.offset_bytes).is_ok();
                is_read
                    && decoder.as_mut().is_some_and(|decoder| {
                        decoder.decode(&compressed, 0, u64::from(frame.content_bytes), &mut output).is_ok()
                    })
            }
        })
    };
    decode();
    let decode_seconds = decode().cpu.as_secs_f64();

    let count = RecordCount::default();
    let start = Stopwatch::start();
    archive.read(&ArchivePass::new(threads, &NoProgress), &count)?;
    let walk_seconds = start.elapsed().cpu.as_secs_f64();

    // Hashes as many accounts, with data of the same lengths. The contents do not affect the time.
    let accounts = count.accounts.into_inner();
    let lengths = DataLengths::read(archive)?;
    let chunk_accounts = 1000;
    let hash_seconds = run_on_threads(threads, accounts.div_ceil(chunk_accounts) as usize, || {
        let mut sum = LatticeAccumulator::default();
        let data = vec![7; 10 << 20];
        let lengths = &lengths.0;
        move |index: usize| {
            for number in index as u64 * chunk_accounts..(index as u64 + 1) * chunk_accounts {
                let length = lengths[number as usize % lengths.len()];
                let data = &data[..length];
                sum.add(&AccountView {
                    pubkey: &[1; 32],
                    owner: &[2; 32],
                    lamports: number + 1,
                    executable: false,
                    data,
                });
            }
            true
        }
    })
    .cpu
    .as_secs_f64();

    let options = VerifyOptions::default().threads(threads).check(CheckOptions::default().memory_bytes(4 << 30));
    let start = Stopwatch::start();
    let report = verify(&Snapshot::archive(path), &options, &NoProgress)?;
    let verify_seconds = start.elapsed().cpu.as_secs_f64();
    if !report.ok {
        return Err("the archive is not valid".into());
    }
    println!("{decode_seconds:.4} {walk_seconds:.4} {hash_seconds:.4} {verify_seconds:.4} {accounts}");
    Ok(())
}

/// Counts the records with lamports.
#[derive(Default)]
struct RecordCount {
    accounts: AtomicU64,
}

impl Visitor for RecordCount {
    fn visit_entry(&self, entry: &Entry) -> slotpress::Result<EntryRole> {
        let EntryKind::Storage { slot, id } = entry.kind else {
            return Ok(EntryRole { is_document: true, ..EntryRole::default() });
        };
        Ok(EntryRole { storage: Some(StorageRef { number: 0, slot, id }), ..EntryRole::default() })
    }
    fn records(&self) -> Option<&dyn RecordVisitor> {
        Some(self)
    }
}

impl RecordVisitor for RecordCount {
    fn new_worker(&self) -> Box<dyn RecordWorker + '_> {
        Box::new(RecordCountWorker { count: self, accounts: 0 })
    }
}

struct RecordCountWorker<'a> {
    count: &'a RecordCount,
    accounts: u64,
}

impl RecordWorker for RecordCountWorker<'_> {
    fn begin(&mut self, _: StorageRef) {}
}

impl RecordSink for RecordCountWorker<'_> {
    fn record(&mut self, record: Record<'_>) {
        self.accounts += u64::from(record.header.lamports > 0);
    }
    fn fault(&mut self, _: RecordFault) {}
}

impl Drop for RecordCountWorker<'_> {
    fn drop(&mut self) {
        self.count.accounts.fetch_add(self.accounts, Relaxed);
    }
}

/// Data lengths of all accounts in an archive.
struct DataLengths(Vec<usize>);

impl RecordSink for DataLengths {
    fn record(&mut self, record: Record<'_>) {
        if record.header.lamports > 0 {
            self.0.push(record.data.len());
        }
    }
    fn fault(&mut self, _: RecordFault) {}
}

impl DataLengths {
    fn read(archive: &OpenArchive) -> Result<Self, Box<dyn Error>> {
        let mut lengths = Self(Vec::new());
        let mut walker = RecordWalker::default();
        let mut parser = slotpress_format::archive::entry_parser::EntryParser::default();
        let mut is_storage = false;
        archive.decode_stream(1, 0, &NoProgress, &mut |content| {
            parser.feed(content, &mut |event| {
                use slotpress_format::TarEvent;
                match event {
                    TarEvent::Begin(entry) => {
                        is_storage = matches!(entry.kind, EntryKind::Storage { .. });
                        walker.restart();
                    }
                    TarEvent::Content { bytes, .. } if is_storage => walker.feed(bytes, &mut lengths),
                    _ => {}
                }
                Ok(())
            })
        })?;
        Ok(lengths)
    }
}

/// Calls a worker on each thread with its share of the numbers below `count`. Returns the time that this took.
fn run_on_threads<W: FnMut(usize) -> bool>(threads: usize, count: usize, new_worker: impl Fn() -> W + Sync) -> Elapsed {
    let next = AtomicUsize::new(0);
    let failed = AtomicU64::new(0);
    let start = Stopwatch::start();
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                let mut worker = new_worker();
                loop {
                    let index = next.fetch_add(1, Relaxed);
                    if index >= count {
                        break;
                    }
                    failed.fetch_add(u64::from(!worker(index)), Relaxed);
                }
            });
        }
    });
    assert_eq!(failed.into_inner(), 0, "all calls succeed");
    start.elapsed()
}
