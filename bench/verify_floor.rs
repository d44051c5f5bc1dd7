//! The floors of verifying, and what verifying takes, on one archive with an index that lies in the page cache.
//!
//! `cargo run --release --example verify_floor -- ARCHIVE [THREADS]` prints, in
//! seconds of CPU time, which a busy machine disturbs least: decoding the frames alone; steps
//! 1 to 5 of verifying; blake3's extended output of 2,048 bytes for every account alone; all of verifying.

use {
    slotpress::{
        ledger::lattice::{AccountView, LatticeAccumulator},
        progress::NoProgress,
        restore::{
            input::{ArchiveFile, FrameDecoder},
            tail::Tail,
        },
        stopwatch::Stopwatch,
        verify::{
            NamedArchive, VerifyOptions,
            accounts::{Accounts, Task},
            indexed::read_indexed,
            pass::{Pass, SourceArchive},
            records::{Record, RecordFault, RecordSink, RecordWalker},
            report::Findings,
            verify_archives,
        },
    },
    std::{
        collections::HashSet,
        error::Error,
        os::unix::fs::FileExt,
        path::Path,
        sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed},
    },
};

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let path = args.next().ok_or("usage: verify_floor ARCHIVE [THREADS]")?;
    let threads: usize = args.next().map_or(Ok(1), |text| text.parse())?;
    let path = Path::new(&path);
    let file = ArchiveFile::open(path)?;
    let tail = Tail::read(&file.file, path, file.length_bytes)?.ok_or("the archive has no index")?;

    let decode = || {
        on_all(threads, tail.frames.len(), || {
            let mut decoder = FrameDecoder::new().ok();
            let (mut compressed, mut to) = (Vec::new(), Vec::new());
            let (tail, file) = (&tail, &file);
            move |at: usize| {
                let frame = &tail.frames[at];
                compressed.resize(frame.compressed_bytes as usize, 0);
                let is_read = file.file.read_exact_at(&mut compressed, frame.offset_bytes).is_ok();
                is_read
                    && decoder.as_mut().is_some_and(|decoder| {
                        decoder.decode(&compressed, 0, u64::from(frame.content_bytes), &mut to).is_ok()
                    })
            }
        })
    };
    decode();
    let decode_seconds = decode();

    let findings = Findings::new();
    let source = SourceArchive::open(path, None, &findings)?;
    let accounts = Accounts::new(1 << 30, &std::env::temp_dir(), 0)?;
    let pass = Pass {
        archive: &source,
        accounts: &accounts,
        findings: &findings,
        task: Some(&Task::Layout),
        wanted: None,
        first_storage: 0,
        threads,
        progress: &NoProgress,
    };
    let start = Stopwatch::start();
    read_indexed(&pass, &tail, &mut HashSet::new())?;
    let layout_seconds = start.taken().cpu.as_secs_f64();

    // The same accounts, all of one size: the extended output does not depend on it, and typical data is short.
    let records = accounts.sums().records - accounts.sums().tombstones;
    let sizes = Sizes::of(&file, &tail)?;
    let chunk = 1000;
    let hash_seconds = on_all(threads, records.div_ceil(chunk) as usize, || {
        let mut sum = LatticeAccumulator::new();
        let data = vec![7; 10 << 20];
        let sizes = &sizes.0;
        move |at: usize| {
            for number in at as u64 * chunk..(at as u64 + 1) * chunk {
                let length = sizes[number as usize % sizes.len()];
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
    });

    let options = VerifyOptions {
        clients: Vec::new(),
        is_quick: false,
        threads,
        memory_bytes: 4 << 30,
        temporary_dir: std::env::temp_dir(),
        expect_hash: None,
        expect_slot: None,
    };
    let start = Stopwatch::start();
    let report = verify_archives(&NamedArchive::of_path(path), None, &options, &NoProgress)?;
    let verify_seconds = start.taken().cpu.as_secs_f64();
    if !report.ok {
        return Err("the archive is not right".into());
    }
    println!("{decode_seconds:.4} {layout_seconds:.4} {hash_seconds:.4} {verify_seconds:.4} {records}");
    Ok(())
}

/// Data lengths of the accounts in some frames.
struct Sizes(Vec<usize>);

impl RecordSink for Sizes {
    fn record(&mut self, record: Record<'_>) {
        if record.header.lamports > 0 {
            self.0.push(record.data.len());
        }
    }
    fn fault(&mut self, _: RecordFault) {}
}

impl Sizes {
    fn of(file: &ArchiveFile, tail: &Tail) -> Result<Self, Box<dyn Error>> {
        let mut sizes = Self(Vec::new());
        let mut walker = RecordWalker::default();
        let mut parser = slotpress::format::entry_parser::EntryParser::new();
        let mut is_storage = false;
        file.decode_in_order(1, &NoProgress, &mut |content| {
            parser.feed(content, &mut |event| {
                use slotpress::format::{entry::EntryKind, entry_parser::TarEvent};
                match event {
                    TarEvent::Begin(entry) => {
                        is_storage = matches!(entry.kind, EntryKind::Storage { .. });
                        walker.restart();
                    }
                    TarEvent::Content { bytes, .. } if is_storage => walker.feed(bytes, &mut sizes),
                    _ => {}
                }
                Ok(())
            })
        })?;
        let _ = tail;
        Ok(sizes)
    }
}

/// Runs `new_worker()(0..count)` on threads, and returns the CPU seconds that it took.
fn on_all<W: FnMut(usize) -> bool>(threads: usize, count: usize, new_worker: impl Fn() -> W + Sync) -> f64 {
    let next = AtomicUsize::new(0);
    let failed = AtomicU64::new(0);
    let start = Stopwatch::start();
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                let mut worker = new_worker();
                loop {
                    let at = next.fetch_add(1, Relaxed);
                    if at >= count {
                        break;
                    }
                    failed.fetch_add(u64::from(!worker(at)), Relaxed);
                }
            });
        }
    });
    assert_eq!(failed.into_inner(), 0, "every frame decodes");
    start.taken().cpu.as_secs_f64()
}
